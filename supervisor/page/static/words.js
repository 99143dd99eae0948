// What is said, in the reader's language; and times, lengths and numbers as people write them.

let words = null;
let at = 0; // 0 English, 1 Chinese

export async function loadWords() {
  const answer = await fetch("static/words.json");
  if (!answer.ok) throw new Error(String(answer.status));
  words = await answer.json();
  const asked = new URLSearchParams(location.search).get("lang") || stored() || navigator.language || "";
  choose(asked.toLowerCase().startsWith("zh") ? 1 : 0);
}

export function otherLanguage() {
  choose(1 - at);
  const address = new URL(location);
  if (address.searchParams.has("lang")) {
    address.searchParams.set("lang", at ? "zh" : "en");
    history.replaceState(null, "", address);
  }
  try { localStorage.setItem("ciuic-language", at ? "zh" : "en"); } catch { /* a browser that keeps nothing */ }
}

function choose(number) {
  at = number;
  document.documentElement.lang = at ? "zh-CN" : "en";
}

function stored() {
  try { return localStorage.getItem("ciuic-language"); } catch { return ""; }
}

export const colon = () => (at ? "：" : ": ");
export const pick = (pair) => (pair ? pair[at] : "");

export function say(key, values = {}) {
  return pick(words.texts[key]).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

export const cause = (key) => pick(words.causes[key]) || key || "";
export const phase = (key) => pick(words.phases[key]) || key || "";
export const phases = () => Object.keys(words.phases);
export const verdict = (key) => pick(words.verdicts[key]) || key || "";
export const state = (key) => pick(words.states[key]) || key;
export const glyph = (key) => (words.states[key] || words.states.unknown)[2];

// 48 seconds, 12.5 minutes, 3.1 hours: as the alerts say it.
export function length(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  const units = [[172800, 86400, "天", "days"], [7200, 3600, "小时", "h"], [120, 60, "分钟", "min"]];
  for (const [least, unit, zh, en] of units) {
    if (seconds >= least) return `${(seconds / unit).toFixed(1)} ${at ? zh : en}`;
  }
  const digits = seconds > 0 && seconds < 10 ? 1 : 0;
  return `${Math.max(0, seconds).toFixed(digits).replace(/\.0$/, "")} ${at ? "秒" : "s"}`;
}

export const whole = (value) => (value === null || value === undefined ? "-" : Math.round(value).toLocaleString("en-US"));

// A value as a label: 0.00022 → 2.2e-4, 12500 → 12.5k. The report's rule.
export function number(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size === 0) return "0";
  for (const [least, unit, letter] of [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]]) {
    if (size >= least) return `${Number((value / unit).toPrecision(4))}${letter}`;
  }
  if (size < 1e-3) {
    const [digits, exponent] = value.toExponential(2).split("e");
    return `${Number(digits)}e${Number(exponent)}`;
  }
  return String(Number(value.toPrecision(5)));
}

export function moment(seconds) {
  if (!seconds) return "-";
  const when = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
}

export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const two = (value) => String(value).padStart(2, "0");
  const hours = `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC"} (UTC${hours})`;
}
