// All runs, one line each, those that need a person first.

import { el, put } from "./dom.js";
import { glyph, length, number, pick, say, state, verdict, whole } from "./words.js";

const GROUPS = ["needs", "bad", "acting", "watch", "ok", "waiting", "done"];
const TITLES = ["state", "run", "step", "progress", "tokens-per-s", "checkpoint", "faults", "seen", "reason"];
const LABELLED = [3, 4, 5, 6, 7];
const MOST_ROWS = 200;
const OVER_ROWS = 10; // of runs that are over, unless they are asked for

export class Fleet {
  constructor() {
    this.group = "";
    this.text = "";
    this.rows = new Map();
  }

  // The one run that is not over, if there is one only.
  only(picture) {
    const going = Object.entries(picture.rows).filter(([, row]) => row.group !== "done");
    const all = Object.keys(picture.rows);
    return going.length === 1 ? going[0][0] : all.length === 1 ? all[0] : "";
  }

  make(live) {
    this.live = live;
    this.tiles = new Map(GROUPS.map((group) => [group, this.tile(group)]));
    this.filter = el("input", { type: "search", "aria-label": say("filter"), placeholder: say("filter"), oninput: () => this.narrow() });
    this.body = el("tbody");
    this.nothing = el("p", { class: "dim" });
    return [
      el("h1", {}, say("all-runs")),
      el("div", { class: "tiles groups" }, [...this.tiles.values()].map((tile) => tile.button)),
      this.filter,
      el("div", { class: "scroll" }, el("table", { class: "sentences fleet" }, el("thead", {}, el("tr", {}, TITLES.map((title) => el("th", { scope: "col" }, say(title))))), this.body)),
      this.nothing,
    ];
  }

  tile(group) {
    const count = el("b", {}, "0");
    const button = el("button", { type: "button", class: `tile ${group}`, "aria-pressed": "false", onclick: () => this.choose(group) }, count, el("span", {}, say(`group-${group}`)));
    return { button, count };
  }

  choose(group) {
    this.group = this.group === group ? "" : group;
    for (const [name, tile] of this.tiles) tile.button.setAttribute("aria-pressed", String(name === this.group));
    this.update(this.live.picture);
  }

  narrow() {
    this.text = this.filter.value.trim().toLowerCase();
    this.update(this.live.picture);
  }

  update(picture) {
    const all = Object.entries(picture.rows || {});
    for (const [group, tile] of this.tiles) put(tile.count, String(all.filter(([, row]) => row.group === group).length));
    const found = all.filter(([name, row]) => this.wanted(name, row));
    const place = (row) => GROUPS.indexOf(row.group);
    found.sort(([one, a], [other, b]) => place(a) - place(b) || (b.since || 0) - (a.since || 0) || (one < other ? -1 : 1));
    let over = 0;
    const shown = found.filter(([, row]) => row.group !== "done" || this.group === "done" || this.text || ++over <= OVER_ROWS).slice(0, MOST_ROWS);
    this.draw(shown);
    const left = found.length - shown.length;
    put(this.nothing, all.length === 0 ? say("no-runs") : left ? `+ ${left}` : "");
    this.tick(this.live);
  }

  wanted(name, row) {
    const text = `${name} ${(row.reason || []).join(" ")} ${state(row.state)}`.toLowerCase();
    return (!this.group || row.group === this.group) && (!this.text || text.includes(this.text));
  }

  draw(shown) {
    const names = new Set(shown.map(([name]) => name));
    for (const [name, line] of this.rows) {
      if (!names.has(name)) { line.node.remove(); this.rows.delete(name); }
    }
    shown.forEach(([name, row], at) => {
      const line = this.rows.get(name) || this.line(name);
      this.fill(line, row);
      if (this.body.children[at] !== line.node) this.body.insertBefore(line.node, this.body.children[at] || null);
    });
  }

  line(name) {
    const cells = Array.from({ length: 9 }, (_, at) => el("td", { class: at === 8 ? "t" : at === 0 ? "w" : at > 1 ? "n" : null, "data-title": LABELLED.includes(at) && say(TITLES[at]) }));
    cells[1].append(el("a", { href: `#/${encodeURIComponent(name)}` }, name));
    const bar = el("progress", { max: 1, value: 0, "aria-hidden": "true" });
    const step = el("span");
    cells[2].append(step, bar);
    const line = { cells, step, bar, row: null, node: el("tr", {}, cells) };
    this.rows.set(name, line);
    return line;
  }

  fill(line, row) {
    line.row = row;
    line.node.className = row.group;
    const odd = row.verdict && row.group !== "ok" && row.group !== "waiting";
    put(line.cells[0], `${glyph(row.state)} ${state(row.state)}${odd ? ` · ${verdict(row.verdict)}` : ""}`);
    line.cells[0].className = `w state ${row.group}`;
    put(line.step, row.target ? `${whole(row.step)} / ${whole(row.target)}` : whole(row.step));
    line.bar.value = row.target && row.step ? row.step / row.target : 0;
    line.bar.hidden = !row.target;
    put(line.cells[4], number(row.speed));
    put(line.cells[5], whole(row.saved));
    put(line.cells[6], String(row.faults));
    put(line.cells[8], pick(row.reason));
  }

  // What grows old by itself.
  tick(live) {
    for (const { cells, row } of this.rows.values()) {
      const over = row.group === "done" || row.state === "failed";
      put(cells[3], row.moved_at && !over ? say("ago", { age: length(Math.max(0, Math.round(live.now() - row.moved_at))) }) : "-");
      put(cells[7], over || !row.seen_at ? "-" : say("ago", { age: length(Math.max(0, Math.round(live.now() - row.seen_at))) }));
    }
  }

  key(event) {
    if (event.key === "/") {
      event.preventDefault();
      this.filter.focus();
    }
    const links = [...this.body.querySelectorAll("a")];
    const step = { j: 1, k: -1 }[event.key];
    if (!step || !links.length) return;
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
  }
}
