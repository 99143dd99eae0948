// The map of all ranks: a cell each, on a canvas. A letter says what a rank does; odd ones carry a mark besides their colour.

import { el, put } from "./dom.js";
import { colon, length, phase, phases, say, whole } from "./words.js";

const MODES = ["doing", "still", "behind", "phase"];
export const DOING = { x: "bad", h: "bad", z: "needs", n: "waiting", s: "watch", b: "acting", e: "done", g: "ok" };
export const MARKED = new Set(["x", "h", "z"]);
const HUES = ["ok", "watch", "acting", "bad", "needs", "waiting"];

export class Ranks {
  constructor() {
    this.mode = "doing";
    this.at = null; // rank under the cursor
  }

  make() {
    this.choice = el("select", { onchange: () => { this.mode = this.choice.value; this.draw(); } }, MODES.map((mode) => el("option", { value: mode }, say(`by-${mode}`))));
    this.canvas = el("canvas", { tabindex: 0, role: "application", "aria-label": say("rank-map"), "aria-describedby": "map-help" });
    this.line = el("p", { class: "cell", role: "status" });
    this.legend = el("p", { class: "legend" });
    this.rows = el("div");
    this.canvas.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.found && this.draw()).observe(this.canvas.parentElement || document.body);
    return [el("p", {}, el("label", {}, `${say("colour-by")} `, this.choice)), this.legend, this.canvas, this.line, el("p", { class: "dim", id: "map-help" }, say("map-help")), this.rows];
  }

  update(found) {
    this.found = found;
    this.columns = {};
    for (const mode of MODES) this.columns[mode] = unfold(found?.[mode] || "");
    this.draw();
    this.list();
  }

  // Places of the cells: a node is a block of `size` cells, blocks flow as text does.
  layout() {
    const size = this.found.size;
    const nodes = this.found.nodes.length;
    const wide = Math.max(200, this.canvas.parentElement.clientWidth);
    const count = nodes * size;
    let cell = count <= 64 ? 28 : count <= 512 ? 16 : count <= 4096 ? 10 : 6;
    while (cell > 3 && size * cell > wide) cell--;
    const gap = cell > 8 ? 6 : 3;
    const across = Math.max(1, Math.floor((wide + gap) / (size * cell + gap)));
    return { size, nodes, cell, gap, across: Math.min(across, nodes), down: Math.ceil(nodes / Math.min(across, nodes)) };
  }

  where(rank, { size, cell, gap, across }) {
    const node = Math.floor(rank / size);
    return [(node % across) * (size * cell + gap) + (rank % size) * cell, Math.floor(node / across) * (cell + (gap > 3 ? 4 : 1))];
  }

  draw() {
    const letters = this.columns[this.mode];
    const empty = !this.found || !letters.length;
    this.canvas.hidden = this.choice.parentElement.hidden = empty;
    put(this.line, empty ? say("no-ranks") : this.line.textContent);
    if (empty) { this.legend.replaceChildren(); return; }
    if (this.line.textContent === say("no-ranks")) put(this.line, "");
    const plan = (this.plan = this.layout());
    const row = plan.cell + (plan.gap > 3 ? 4 : 1);
    const [width, height] = [plan.across * (plan.size * plan.cell + plan.gap) - plan.gap, plan.down * row];
    const sharp = devicePixelRatio || 1;
    this.canvas.width = width * sharp;
    this.canvas.height = height * sharp;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const inks = ink();
    const side = plan.cell - 1;
    const odd = [];
    letters.forEach((letter, rank) => {
      const [x, y] = this.where(rank, plan);
      pen.fillStyle = inks[this.hue(letter)];
      pen.fillRect(x, y, side, side);
      if (this.marked(letter)) mark(pen, x, y, side, inks.paper);
      if (this.marked(letter) && plan.cell <= 10) odd.push([x, y]);
      if (plan.cell >= 28) write(pen, String(rank), x, y, side, inks);
    });
    // Among thousands a single cell is not seen: a ring around it is.
    pen.strokeStyle = inks.ink;
    pen.lineWidth = 1.5;
    for (const [x, y] of odd) pen.strokeRect(x - 3, y - 3, side + 6, side + 6);
    if (this.at !== null) {
      const [x, y] = this.where(this.at, plan);
      pen.strokeStyle = inks.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x - 1, y - 1, side + 2, side + 2);
    }
    this.explain(letters);
  }

  hue(letter) {
    if (letter === "?") return "waiting";
    if (this.mode === "doing") return DOING[letter] || "waiting";
    if (this.mode === "still") return ["ok", "ok", "watch", "watch", "bad"][letter];
    if (this.mode === "behind") return letter === "0" ? "ok" : Number(letter) < 5 ? "watch" : "bad";
    return letter === "-" ? "ok" : HUES[1 + ((letter.charCodeAt(0) - 65) % (HUES.length - 1))];
  }

  marked(letter) {
    if (this.mode === "doing") return MARKED.has(letter);
    return this.mode === "still" ? letter === "4" : this.mode === "behind" ? Number(letter) >= 5 : false;
  }

  words(letter) {
    if (letter === "?") return say("unknown");
    if (this.mode === "doing") return say(`doing-${letter}`);
    if (this.mode === "still") return letter === "4" ? say("still-4") : say("still-share", { share: `${letter * 25} – ${letter * 25 + 25} %` });
    if (this.mode === "behind") return letter === "0" ? say("not-behind") : say("behind-by", { steps: letter === "9" ? "≥ 9" : letter });
    return letter === "-" ? say("moves-on") : phase(phases()[letter.charCodeAt(0) - 65]);
  }

  explain(letters) {
    const counts = new Map();
    for (const letter of letters) counts.set(letter, (counts.get(letter) || 0) + 1);
    const parts = [...counts].sort((a, b) => a[1] - b[1]).map(([letter, count]) =>
      el("span", { class: `key ${this.hue(letter)}${this.marked(letter) ? " marked" : ""}` }, `${this.words(letter)}${colon()}${whole(count)}`));
    this.legend.replaceChildren(...parts);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const { size, cell, gap, across } = this.plan;
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const block = size * cell + gap;
    const place = Math.floor((x % block) / cell);
    const rank = (Math.floor(y / (cell + (gap > 3 ? 4 : 1))) * across + Math.floor(x / block)) * size + place;
    return place < size && rank < this.columns[this.mode].length ? rank : null;
  }

  point(rank) {
    if (rank === this.at) return;
    this.at = rank;
    this.draw();
    if (rank === null) return put(this.line, "");
    const { nodes, size } = this.found;
    put(this.line, say("map-cell", { rank, node: nodes[Math.floor(rank / size)], what: this.words(this.columns[this.mode][rank]) }));
  }

  key(event) {
    const { size, across } = this.plan || {};
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -size * across, ArrowDown: size * across }[event.key];
    if (!step) return;
    event.preventDefault();
    const last = this.columns[this.mode].length - 1;
    this.point(this.at === null ? 0 : Math.min(last, Math.max(0, this.at + step)));
  }

  // The odd ones in words; of a small run all.
  list() {
    const rows = this.found?.rows || [];
    const count = this.columns.doing.length;
    if (!rows.length) {
      this.rows.replaceChildren(count ? el("p", { class: "dim" }, say("all-move", { count: whole(count) })) : "");
      return;
    }
    const line = (name, items) => el("tr", {}, items.map((item, at) => el(name, { class: [0, 2, 5, 6].includes(at) ? "n" : null, scope: name === "th" && "col" }, String(item))));
    if (!this.body?.isConnected) { // made once: it may have the focus
      this.body = el("tbody");
      const titles = ["rank", "node", "pid", "state", "phase", "step", "idle"].map((key) => say(key));
      this.rows.replaceChildren(el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": say("rank-map") }, el("table", { class: "figures" }, el("thead", {}, line("th", titles)), this.body)));
    }
    const cells = rows.map(([rank, node, pid, letter, word, step, idle]) => [rank, node, pid ?? "-", say(`doing-${letter}`), word ? phase(word) : "-", whole(step), idle === null ? "-" : length(idle)]);
    this.body.replaceChildren(...cells.map((row) => line("td", row)));
  }
}

// `g,4;s,1;` → ["g", "g", "g", "g", "s"]
export function unfold(text) {
  const letters = [];
  for (const part of text.split(";")) {
    const [letter, count] = part.split(",");
    for (let left = Number(count || 0); left > 0; left--) letters.push(letter);
  }
  return letters;
}

export function ink() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ok", "watch", "acting", "bad", "needs", "waiting", "done", "paper", "ink"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// A hole in the cell: seen without its colour.
export function mark(pen, x, y, side, colour) {
  const hole = Math.max(1, Math.round(side / 3));
  pen.fillStyle = colour;
  pen.fillRect(x + (side - hole) / 2, y + (side - hole) / 2, hole, hole);
}

function write(pen, text, x, y, side, inks) {
  pen.fillStyle = inks.ink;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "top";
  pen.fillText(text, x + 2, y + 2);
}
