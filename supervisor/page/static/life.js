// The strip of a run's life: jobs, what the workers did, verdicts, saves, over time.

import { el, svg } from "./dom.js";
import { cause, moment, say } from "./words.js";

const WIDTH = 1000;
const LANE = 25;
const PHASES = ["queue", "start", "train", "stalled", "restart"];
const LABELS = 5;

export function lifeStrip(life, now) {
  const jobs = Object.entries(life.jobs || {});
  if (!jobs.length) return [];
  const begin = life.begin ?? jobs[0][1][0];
  const end = Math.max(life.end ?? now, begin + 1);
  const at = (time) => Math.round((WIDTH * Math.min(1, Math.max(0, (time - begin) / (end - begin)))) * 10) / 10;
  const lanes = [
    jobs.map(([name, [from, to, job]]) => block(at(from), at(to ?? end), 0, "job", `${say("job")} ${name} (${job}): ${moment(from)} – ${to ? moment(to) : "…"}`)),
    Object.entries(life.work || {}).map(([name, [phase, from, to]]) => block(at(from), at(to ?? end), 1, phase, `${name.split(" ")[0]}: ${say(`phase-${phase}`)}, ${moment(from)} – ${to ? moment(to) : "…"}`)),
    Object.entries(life.verdicts || {}).map(([name, [time, why]]) => block(at(time) - 1, at(time) + 1, 2, "verdict", `${name}: ${cause(why)}, ${moment(time)}`)),
    [svg("path", { class: "saved", d: (life.saved || []).map((time) => `M${at(time)} ${LANE * 3.2}v${LANE * 0.6}`).join("") })],
  ];
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${LANE * 4}`, preserveAspectRatio: "none", role: "img", "aria-label": say("life") }, lanes.flat());
  const names = ["lane-jobs", "lane-workers", "lane-verdicts", "lane-checkpoints"].map((key, number) => {
    const name = el("span", {}, say(key));
    name.style.bottom = `${100 - (number + 0.5) * 25}%`;
    return name;
  });
  const keys = PHASES.map((phase) => el("span", { class: `key ${phase}` }, say(`phase-${phase}`)));
  return [el("div", { class: "life" }, el("figure", {}, el("figcaption", {}, keys),
    el("div", { class: "frame" }, el("div", { class: "left" }, names), el("div", { class: "plot" }, drawing), el("div", { class: "below" }, times(begin, end)))))];
}

// A stalled stretch is taller than the others: it is told by its shape, too.
function block(from, to, lane, style, hint) {
  const share = style === "stalled" ? 1 : 0.7;
  return svg("rect", { x: from, y: lane * LANE + (LANE * (1 - share)) / 2, width: Math.max(1.2, to - from), height: LANE * share, class: style }, svg("title", {}, hint));
}

function times(begin, end) {
  const shape = end - begin > 86400 ? [5, 16] : end - begin > 3600 ? [11, 16] : [11, 19];
  return Array.from({ length: LABELS }, (_, number) => {
    const share = (number + 0.5) / LABELS;
    const made = el("span", {}, moment(begin + (end - begin) * share).slice(...shape));
    made.style.left = `${share * 100}%`;
    return made;
  });
}
