// One run: what it is at and what comes next, its life, curves, ranks, and what has happened.

import { Charts } from "./charts.js";
import { el, put, table } from "./dom.js";
import { lifeStrip } from "./life.js";
import { Ranks } from "./ranks.js";
import { Track } from "./track.js";
import { cause, colon, glyph, length, moment, number, phase, pick, say, state, verdict, whole } from "./words.js";

const REDRAW_S = 5; // what moves by itself: the end of the strip

export class Run {
  constructor(name) {
    this.name = name;
    this.charts = new Charts();
    this.ranks = new Ranks();
    this.track = new Track();
    this.open = new Set(); // details that somebody has opened
  }

  make(live) {
    this.live = live;
    this.parts = Object.fromEntries(["bar", "tiles", "life", "stacks", "incidents", "notices", "checkpoints", "changed", "story"].map((key) => [key, el("div")]));
    const { parts } = this;
    parts.bar.append(...this.makeBar());
    this.tables = el("section", { id: "ranks" }, el("h2", {}, say("rank-map")), ...this.ranks.make());
    this.over = el("section", { id: "track" }, el("h2", {}, say("track")), ...this.track.make());
    return [
      el("h1", {}, this.name), parts.bar, parts.tiles,
      el("section", {}, el("h2", {}, say("life")), parts.life),
      el("section", {}, el("h2", {}, say("values")), ...this.charts.make()),
      this.tables, this.over, parts.stacks, parts.incidents, parts.notices, parts.checkpoints, parts.changed, parts.story,
    ];
  }

  update(picture, keys) {
    if (!picture?.head) return;
    const { parts } = this;
    const sections = {
      head: () => { this.bar(parts.bar, picture.head); this.tiles(parts.tiles, picture); },
      life: () => this.strip(picture.life),
      curves: () => this.charts.update(picture.curves || {}),
      ranks: () => { this.tables.hidden = !picture.ranks; this.ranks.update(picture.ranks); },
      track: () => { this.over.hidden = !Object.keys(picture.track?.columns || {}).length; if (!this.over.hidden) this.track.update(picture.track); },
      stacks: () => this.stacks(parts.stacks, picture.stacks),
      incidents: () => this.incidents(parts.incidents, picture.incidents || {}),
      notices: () => this.notices(parts.notices, picture.notices || {}),
      checkpoints: () => this.checkpoints(parts.checkpoints, picture.checkpoints || {}),
      changed: () => this.changed(parts.changed, picture.changed || {}),
      story: () => this.story(parts.story, picture.story || {}),
    };
    for (const [key, draw] of Object.entries(sections)) if (!keys || keys.includes(key)) draw();
    this.tick(this.live);
  }

  // The first thing that somebody reads at night. Made once: what has the focus must not go with each step.
  makeBar() {
    const command = `ciuic explain ${this.name}`;
    const copy = el("button", { type: "button", onclick: () => this.copy(copy, command) }, say("copy"));
    const said = (this.said = Object.fromEntries(["word", "since", "reason", "next", "countdown"].map((key) => [key, el("span")])));
    this.evidence = el("ul");
    this.notes = el("div");
    this.proof = el("div", {}, el("h2", { class: "small" }, say("evidence")), this.evidence);
    said.since.className = said.countdown.className = "dim";
    return [
      el("p", { class: "word" }, el("b", {}, said.word), " ", said.since),
      el("p", { class: "reason" }, said.reason), this.proof,
      el("p", {}, el("b", {}, `${say("next")}${colon()}`), said.next, " ", said.countdown),
      this.notes, el("p", { class: "command" }, el("code", {}, command), " ", copy),
    ];
  }

  bar(place, head) {
    const odd = head.verdict && !["ok", "waiting"].includes(head.group);
    this.until = head.next_at ?? null;
    place.className = `verdict ${head.group}`;
    put(this.said.word, `${glyph(head.state)} ${state(head.state)}${odd ? ` · ${verdict(head.verdict)}` : ""}`);
    put(this.said.since, head.since ? say("since", { at: moment(head.since) }) : "");
    put(this.said.reason, pick(head.reason));
    put(this.said.next, pick(head.next));
    this.proof.hidden = !head.evidence?.length;
    this.evidence.replaceChildren(...(head.evidence || []).map((line) => el("li", {}, pick(line))));
    this.notes.replaceChildren(...(head.notes || []).map((note) => el("p", { class: "note" }, pick(note))));
  }

  async copy(button, text) {
    try { await navigator.clipboard.writeText(text); put(button, say("copied")); } catch { getSelection().selectAllChildren(button.previousElementSibling); }
  }

  tiles(place, { head, time }) {
    const pace = head.pace ? `${length(head.pace[1])} (${say("usual", { seconds: length(head.pace[0]) })})` : "-";
    this.moved = el("b", {}, "-");
    this.movedAt = head.moved_at ?? null;
    const found = [
      [head.target ? `${whole(head.step)} / ${whole(head.target)}` : whole(head.step), "step"],
      [this.moved, "progress"],
      [number(head.loss), "loss"],
      [number(head.speed), "tokens-per-s"],
      [pace, "step-time"],
      [whole(head.saved), "checkpoint"],
      [head.nodes ? `${whole(head.nodes)} × ${Math.round((head.ranks || 0) / head.nodes)}` : "-", "nodes"],
      [head.job ? `${head.job[0]}.${head.start ?? "-"} (${head.job[1] || "-"})` : "-", "job"],
      [String(time?.faults ?? 0), "faults"],
      [typeof head.effective === "number" ? `${(head.effective * 100).toFixed(2)} %` : "-", "effective"],
      [(head.alerts || []).join(" / "), "alerts"],
    ];
    place.className = "tiles";
    place.replaceChildren(...found.map(([value, key]) => el("div", {}, typeof value === "string" ? el("b", {}, value) : value, el("span", {}, say(key)))));
  }

  tick(live) {
    const now = live.now();
    if (this.moved) put(this.moved, this.movedAt ? say("ago", { age: length(Math.max(0, Math.round(now - this.movedAt))) }) : "-");
    if (this.said) put(this.said.countdown, this.until && this.until > now ? say("in", { age: length(Math.round(this.until - now)) }) : "");
    const life = live.picture?.life;
    if (life && !life.end && now - (this.drawnAt || 0) > REDRAW_S && live.status === "live") this.strip(life);
  }

  strip(life) {
    this.drawnAt = this.live.now();
    this.parts.life.replaceChildren(...lifeStrip(life || {}, this.live.now()));
  }

  stacks(place, found) {
    if (!found?.groups?.length) return place.replaceChildren();
    const rows = found.groups.map(([count, ranks, doing, where, word, stopped]) => [String(count), ranks, `${doing || phase(word)}${stopped ? ` (${say("doing-z")})` : ""}`, where]);
    place.replaceChildren(el("h2", {}, say("stacks")), el("p", { class: "dim" }, say("stacks-of", { name: found.of })), table([say("ranks"), say("rank"), say("doing"), say("where")], rows, "figures", [0]));
  }

  incidents(place, found) {
    const rows = Object.entries(found).reverse().map(([name, item]) => [
      moment(item.at), name, `${verdict(item.verdict)} · ${cause(item.cause)}`, whole(item.step), length(item.detect_s), length(item.restart_s), whole(item.repeated), this.incident(name, item),
    ]);
    const titles = ["at", "start", "state", "step", "detected", "restarted", "repeated", "reason"].map((key) => say(key));
    place.replaceChildren(el("h2", {}, say("incidents")), rows.length ? table(titles, rows, "sentences", [3, 4, 5, 6], 7) : el("p", { class: "dim" }, say("no-incidents")));
  }

  incident(name, item) {
    const who = [...(item.suspects || []).map((rank) => `rank ${rank}`), ...(item.nodes || []), item.phase && phase(item.phase)].filter(Boolean).join(", ");
    const lines = [...pick(item.digest || ["", ""]).split("\n"), ...(item.lines || [])].filter(Boolean);
    const more = lines.length ? el("details", { open: this.open.has(name), ontoggle: (event) => this.open[event.target.open ? "add" : "delete"](name) },
      el("summary", {}, say("lines")), el("pre", {}, lines.join("\n"))) : null;
    return el("div", {}, el("div", {}, pick(item.reason)), who ? el("div", { class: "dim" }, `${say("suspects")}${colon()}${who}`) : null, more,
      item.evidence ? el("small", {}, `${say("evidence")}${colon()}${item.evidence}`) : null);
  }

  notices(place, found) {
    const rows = Object.entries(found).sort(([, a], [, b]) => b.at - a.at).map(([key, item]) => [moment(item.at), cause(key), whole(item.step), `${pick(item.reason)} ${item.over_at ? `→ ${pick(item.over)}` : `(${say("lasting")})`}`]);
    place.replaceChildren(...(rows.length ? [el("h2", {}, say("notices")), table([say("at"), say("state"), say("step"), say("reason")], rows, "sentences", [2], 3)] : []));
  }

  checkpoints(place, found) {
    const rows = Object.entries(found).reverse().map(([step, [at, attempt, generation]]) => [moment(at), whole(step), `${attempt}.${generation}`]);
    place.replaceChildren(...(rows.length ? [el("h2", {}, say("checkpoints")), this.folded("checkpoints", rows.length, table([say("at"), say("step"), say("start")], rows, "figures", [1]))] : []));
  }

  changed(place, found) {
    const rows = Object.values(found).reverse().map(([job, at, what, who]) => [String(job), moment(at), what, who]);
    place.replaceChildren(...(rows.length ? [el("h2", {}, say("changed")), table([say("before-job"), say("at"), say("setting"), say("by-whom")], rows, "sentences", [], 2)] : []));
  }

  story(place, found) {
    const lines = Object.entries(found).reverse().map((two) => pick(two));
    place.replaceChildren(...(lines.length ? [el("h2", {}, say("story")), this.folded("story", lines.length, el("ol", { class: "story", reversed: true }, lines.map((line) => el("li", {}, line))))] : []));
  }

  folded(name, count, inside) {
    return el("details", { open: this.open.has(name), ontoggle: (event) => this.open[event.target.open ? "add" : "delete"](name) }, el("summary", {}, String(count)), inside);
  }
}
