// Nodes over time: a row a node (or a few of them), a column every ten seconds, the worst of its ranks. Odd ones are marked.

import { el, put } from "./dom.js";
import { DOING, MARKED, ink, mark, unfold } from "./ranks.js";
import { moment, say } from "./words.js";

const MOST_ROWS = 256;
const WORST = "xhznsbeg";

export class Track {
  make() {
    this.canvas = el("canvas", { role: "img", "aria-label": say("track") });
    this.line = el("p", { class: "cell", role: "status" });
    this.note = el("p", { class: "dim" });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => put(this.line, ""));
    return [this.canvas, this.line, this.note];
  }

  update(found) {
    this.found = found;
    const times = Object.keys(found.columns || {});
    const nodes = found.nodes?.length || 0;
    const each = (this.each = Math.max(1, Math.ceil(nodes / MOST_ROWS))); // nodes in a row
    const rows = Math.ceil(nodes / each);
    const high = (this.high = rows <= 32 ? 14 : rows <= 128 ? 6 : 3);
    const wide = (this.wide = Math.max(2, Math.floor(Math.min(12, this.canvas.parentElement.clientWidth / 120))));
    this.canvas.hidden = !times.length || !nodes;
    const sharp = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, times.length * wide) * sharp;
    this.canvas.height = Math.max(1, rows * high) * sharp;
    this.canvas.style.width = `${times.length * wide}px`;
    this.canvas.style.height = `${rows * high}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(sharp, sharp);
    const inks = ink();
    this.cells = times.map((time) => grouped(unfold(found.columns[time]), each));
    const odd = new Set();
    this.cells.forEach((letters, column) => letters.forEach((letter, row) => {
      pen.fillStyle = inks[DOING[letter] || "waiting"];
      pen.fillRect(column * wide, row * high, wide - (wide > 4 ? 1 : 0), high - (high > 4 ? 1 : 0));
      if (MARKED.has(letter) && high > 4) mark(pen, column * wide, row * high, Math.min(wide, high) - 1, inks.paper);
      if (letter !== "g") odd.add(row);
    }));
    put(this.note, say("track-note", { from: times.length ? moment(Number(times[0])).slice(11) : "-", each, odd: odd.size }));
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.wide);
    const row = Math.floor((event.clientY - box.top) / this.high);
    const letter = this.cells[column]?.[row];
    const names = this.found.nodes.slice(row * this.each, (row + 1) * this.each);
    const who = names.length > 1 ? `${names[0]} – ${names[names.length - 1]}` : names[0];
    put(this.line, letter ? `${moment(Number(Object.keys(this.found.columns)[column]))} · ${who} · ${say(`doing-${letter}`)}` : "");
  }
}

function grouped(letters, each) {
  if (each === 1) return letters;
  const rows = [];
  for (let at = 0; at < letters.length; at += each) {
    rows.push(letters.slice(at, at + each).reduce((worst, letter) => (WORST.indexOf(letter) < WORST.indexOf(worst) ? letter : worst)));
  }
  return rows;
}
