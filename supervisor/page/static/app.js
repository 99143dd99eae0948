// Which view, which language, how old the picture is.

import { el, put } from "./dom.js";
import { Fleet } from "./fleet.js";
import { Live } from "./live.js";
import { Run } from "./run.js";
import { length, loadWords, otherLanguage, say, zone } from "./words.js";

const LATE_S = 15;
const place = document.getElementById("view");
let live = null;
let view = null;
let held = false;

function route() {
  const run = decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  live?.close();
  view = run ? new Run(run) : new Fleet();
  place.replaceChildren(el("p", { class: "dim" }, say("loading")));
  document.title = run ? `${run} · ciuic` : "ciuic";
  const mine = view;
  let shown = false;
  live = new Live(run, (picture, keys) => {
    if (mine !== view) return;
    if (picture && !run && !shown && location.hash === "" && mine.only(picture)) {
      location.replace(`#/${encodeURIComponent(mine.only(picture))}`);
      return;
    }
    if (picture && !shown) {
      place.replaceChildren(...mine.make(live));
      shown = true;
      keys = null;
    }
    if (shown && !held) mine.update(picture, keys);
    age();
  });
  age();
}

// The header says how old the picture is, in words when that matters.
function age() {
  const seconds = live.age();
  const old = seconds !== null && seconds > LATE_S;
  const status = live.status === "live" && old ? "late" : live.status;
  const texts = {
    loading: () => say("loading"),
    live: () => say("live", { age: length(Math.round(seconds)) }),
    late: () => say("late", { age: length(seconds) }),
    gone: () => (seconds === null ? say("loading") : say("gone", { age: length(seconds) })),
    denied: () => say("denied"),
    missing: () => say("no-such-run", { run: view.name || "" }),
  };
  const line = document.getElementById("age");
  put(line, texts[status]());
  line.setAttribute("aria-live", status === "live" ? "off" : "polite");
  document.body.dataset.status = status;
  view.tick?.(live);
}

function furniture() {
  put(document.getElementById("language"), say("other-language"));
  put(document.getElementById("hold"), say(held ? "go-on" : "pause"));
  document.getElementById("hold").setAttribute("aria-pressed", String(held));
  put(document.getElementById("help"), say("help"));
  put(document.getElementById("zone"), say("zone", { zone: zone() }));
  document.querySelector(".home").setAttribute("aria-label", say("all-runs"));
}

function hold() {
  held = !held;
  furniture();
  if (!held && live.picture) view.update(live.picture, null);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  const found = { g: () => { location.hash = "#/"; }, p: hold }[event.key];
  if (found) {
    event.preventDefault();
    found();
  } else view.key?.(event);
}

await loadWords();
furniture();
document.getElementById("hold").addEventListener("click", hold);
document.getElementById("language").addEventListener("click", () => { otherLanguage(); furniture(); route(); });
addEventListener("hashchange", route);
addEventListener("keydown", keys);
setInterval(age, 1000);
route();
