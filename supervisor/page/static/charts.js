// The report's charts, drawn where the numbers change: the same buckets, the same style sheet, one cursor for all of them.

import { el, put, svg } from "./dom.js";
import { number, say, whole } from "./words.js";

const WIDTH = 1000;
const HEIGHT = 100;
const LOG_FROM = 20; // ratio of greatest and least value
const MOST_RESUMES = 50;
// key of the title → [series, style, label]…; `zero`: the scale begins there
const CHARTS = [
  ["loss", [["again", "again", "loss-again"], ["loss", "one", "loss-train"], ["val_loss", "two", "loss-validation"]], false],
  ["norm", [["grad_norm", "one", ""]], false],
  ["rate", [["lr_embedding", "two", "rate-first"], ["lr", "one", "lr-one"]], true],
  ["throughput", [["tokens_per_s", "one", ""]], true],
  ["step-time", [["step_s", "one", ""]], true],
  ["batch", [["global_batch", "one", ""]], true],
  ["micro", [["micro_steps", "one", ""]], true],
];

export class Charts {
  constructor() {
    this.span = null; // [from, to] steps; null: the whole run
    this.cursor = null; // step
    this.drawn = [];
  }

  make() {
    this.note = el("p", { class: "dim" });
    this.buttons = el("p", { class: "spans" },
      el("button", { type: "button", onclick: () => this.look(null) }, say("whole-run")), " ",
      el("button", { type: "button", onclick: () => this.look(this.tenth()) }, say("last-part")), " ",
      el("span", { class: "dim" }, say("narrower")));
    this.place = el("div", { class: "charts" });
    return [this.buttons, this.place, this.note];
  }

  update(curves) {
    this.curves = curves;
    const there = CHARTS.filter(([, lines]) => lines.some(([name]) => Object.keys(this.series(name)).length));
    const keys = there.map(([key]) => key).join();
    if (keys !== this.keys) {
      this.keys = keys;
      this.drawn = there.map(([key, lines, zero]) => this.chart(key, lines, zero));
      this.place.replaceChildren(...this.drawn.map((chart) => chart.figure));
    }
    this.buttons.hidden = there.length === 0;
    this.draw();
  }

  series(name) {
    return (name === "again" ? this.curves.again : this.curves.series?.[name]) || {};
  }

  // The last step of any series.
  last() {
    const keys = ["loss", "grad_norm", "tokens_per_s", "val_loss"].flatMap((name) => Object.keys(this.series(name)).slice(-1));
    return Math.max(1, ...keys.map((key) => Number(key) * this.curves.width));
  }

  tenth() {
    const last = this.last();
    return [Math.floor(last * 0.9), last];
  }

  look(span) {
    this.span = span;
    this.draw();
  }

  chart(key, lines, zero) {
    const values = el("span", { class: "values", "aria-live": "polite" });
    const keys = lines.filter(([name, , label]) => label && Object.keys(this.series(name)).length)
      .map(([, style, label]) => el("span", { class: `key ${style}` }, say(label)));
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const plot = el("div", { class: "plot", tabindex: 0, role: "group", "aria-label": say(key) }, drawing);
    const left = el("div", { class: "left" });
    const below = el("div", { class: "below" });
    const chart = { key, lines, zero, values, drawing, plot, left, below };
    this.listen(plot);
    chart.figure = el("figure", { "data-chart": key }, el("figcaption", {}, say(key), " ", keys, " ", values), el("div", { class: "frame" }, left, plot, below));
    return chart;
  }

  listen(plot) {
    let from = null;
    const at = (event) => {
      const box = plot.getBoundingClientRect();
      const [low, high] = this.range();
      return low + ((event.clientX - box.left) / box.width) * (high - low);
    };
    // A page that moves under a resting pointer makes such events too: they take nothing from whoever uses keys.
    plot.addEventListener("pointermove", (event) => {
      const there = `${event.screenX},${event.screenY}`;
      if (there !== this.there) { this.keyed = false; this.point(at(event)); }
      this.there = there;
    });
    plot.addEventListener("pointerleave", () => this.keyed || this.point(null));
    plot.addEventListener("pointerdown", (event) => { from = at(event); });
    plot.addEventListener("pointerup", (event) => {
      const to = at(event);
      const [low, high] = this.range();
      if (from !== null && Math.abs(to - from) > (high - low) / 100) this.look([Math.max(0, Math.min(from, to)), Math.max(from, to)]);
      from = null;
    });
    plot.addEventListener("dblclick", () => this.look(null));
    plot.addEventListener("keydown", (event) => {
      const [low, high] = this.range();
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) {
        event.preventDefault();
        this.keyed = true;
        const unit = Math.max(this.curves.width, (high - low) / 100);
        this.point(Math.min(high, Math.max(low, (this.cursor ?? high) + step * unit)));
      } else if (event.key === "Escape") this.look(null);
    });
  }

  range() {
    return this.span || [0, this.last()];
  }

  draw() {
    const [low, high] = this.range();
    const across = { low, high, size: WIDTH };
    const marks = [...Object.keys(this.curves.resumes || {})].map(Number);
    for (const chart of this.drawn) {
      const shown = chart.lines.map(([name, style]) => ({ style, points: this.points(name, low, high) })).filter((line) => line.points.length);
      const up = vertical(shown, chart.zero);
      const parts = [resumed(marks, across)];
      for (const line of shown) parts.push(...curve(line, across, up));
      if (chart.key === "loss") {
        const broken = Object.keys(this.curves.broken || {}).map((key) => `M${place(across, key * this.curves.width)} 0v6`).join("");
        if (broken) parts.push(svg("path", { d: broken, class: "bad-mark" }));
      }
      chart.cursor = svg("path", { class: "cursor", d: "" });
      chart.drawing.replaceChildren(...parts.filter(Boolean), chart.cursor);
      chart.left.replaceChildren(...ticks(up, 4).map((tick) => label(number(tick), "bottom", place(up, tick) / HEIGHT)));
      chart.below.replaceChildren(...ticks(across, 5).map((tick) => label(number(tick), "left", place(across, tick) / WIDTH)));
    }
    const width = this.curves.width;
    const notes = [this.drawn.length ? say("buckets", { rows: whole(this.curves.rows), width }) : say("no-metrics")];
    const broken = Object.values(this.curves.broken || {}).reduce((sum, count) => sum + count, 0);
    if (broken) notes.push(say("not-finite", { count: broken }));
    if (this.curves.again_rows) notes.push(say("ends-here", { count: whole(this.curves.again_rows) }));
    if (this.curves.dropped) notes.push(say("dropped", { count: this.curves.dropped }));
    if (this.curves.behind) notes.push(say("reading", { mb: (this.curves.behind / 1e6).toFixed(1) }));
    put(this.note, notes.join(" "));
    this.point(this.cursor);
  }

  points(name, low, high) {
    const width = this.curves.width;
    return Object.entries(this.series(name))
      .map(([key, value]) => [key * width, value[0], value[1] ?? value[0], value[2] ?? value[0]])
      .filter(([step]) => step >= low - width && step <= high);
  }

  // One cursor in all charts, and the values there in words.
  point(step) {
    this.cursor = step;
    const [low, high] = this.range();
    for (const chart of this.drawn) {
      if (step === null) {
        chart.cursor.setAttribute("d", "");
        put(chart.values, "");
        continue;
      }
      chart.cursor.setAttribute("d", `M${place({ low, high, size: WIDTH }, step)} 0V${HEIGHT}`);
      const key = Math.floor(step / this.curves.width);
      const found = chart.lines.map(([name, , title]) => {
        const value = this.series(name)[key];
        return value && `${title ? `${say(title)} ` : ""}${value.length > 1 ? `${number(value[2])} (${number(value[0])} – ${number(value[1])})` : number(value[0])}`;
      });
      put(chart.values, [`${say("step")} ${whole(key * this.curves.width)}`, ...found.filter(Boolean)].join(" · "));
    }
  }
}

function label(text, side, share) {
  const made = el("span", { class: side === "left" && share > 0.95 ? "last" : null }, text);
  made.style[side] = `${(share * 100).toFixed(2)}%`;
  return made;
}

function vertical(lines, zero) {
  const low = Math.min(...lines.flatMap((line) => line.points.map((point) => point[1])));
  const high = Math.max(...lines.flatMap((line) => line.points.map((point) => point[2])));
  if (low > 0 && high / low > LOG_FROM && !zero) return { low, high, size: HEIGHT, log: true };
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  return { low: zero && low >= 0 ? 0 : low - room, high: high + room, size: HEIGHT };
}

function place(scale, value) {
  const turn = scale.log ? (item) => Math.log10(Math.max(item, 1e-300)) : Number;
  const [low, high, at] = [turn(scale.low), turn(scale.high), turn(value)];
  const share = high > low ? (at - low) / (high - low) : 0.5;
  return Math.round(scale.size * Math.min(1, Math.max(0, share)) * 10) / 10;
}

function ticks(scale, about) {
  if (scale.log) {
    let found = [];
    for (const factors of [[1, 2, 5], [1, 3], [1]]) {
      found = [];
      for (let exponent = Math.floor(Math.log10(scale.low)); exponent <= Math.ceil(Math.log10(scale.high)); exponent++) {
        found.push(...factors.map((factor) => factor * 10 ** exponent));
      }
      found = found.filter((tick) => scale.low <= tick && tick <= scale.high);
      if (found.length <= about + 2) break;
    }
    const every = Math.max(1, Math.floor(found.length / about));
    return found.filter((_, number) => number % every === 0);
  }
  if (!(scale.high > scale.low)) return [scale.low];
  const rough = (scale.high - scale.low) / about;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => unit * factor).find((item) => item >= rough * 0.999);
  const found = [];
  for (let tick = Math.ceil(scale.low / step); tick <= Math.floor(scale.high / step); tick++) found.push(tick * step);
  return found;
}

function curve(line, across, up) {
  const at = line.points.map(([step, low, high, mean]) => [place(across, step), HEIGHT - place(up, low), HEIGHT - place(up, high), HEIGHT - place(up, mean)]);
  const through = (points) => `M${points.map(([x, y]) => `${x} ${y}`).join("L")}`;
  const parts = [];
  if (at.some(([, low, high]) => low !== high)) {
    const outline = [...at.map(([x, , high]) => [x, high]), ...at.map(([x, low]) => [x, low]).reverse()];
    parts.push(svg("path", { d: `${through(outline)}z`, class: `band ${line.style}` }));
  }
  if (at.length === 1) parts.push(svg("circle", { cx: at[0][0], cy: at[0][3], r: 2, class: `dot ${line.style}` }));
  else parts.push(svg("path", { d: through(at.map(([x, , , mean]) => [x, mean])), class: `line ${line.style}` }));
  return parts;
}

function resumed(steps, across) {
  const places = [...new Set(steps.filter((step) => step >= across.low && step <= across.high).map((step) => place(across, step)))];
  const top = places.length <= MOST_RESUMES ? 0 : HEIGHT - 6;
  return places.length ? svg("path", { d: places.map((at) => `M${at} ${HEIGHT}V${top}`).join(""), class: "resumed" }) : null;
}
