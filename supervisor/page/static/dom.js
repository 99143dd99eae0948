// Elements from data. Text is always text: nothing here makes markup of a string.

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// A table with titles; cells are texts or elements. `kind` is the report's class for it.
export function table(titles, rows, kind = "sentences", numbers = [], text = -1) {
  const look = (at) => (numbers.includes(at) ? "n" : at === text ? "t" : at === 0 ? "w" : null);
  // On a phone a row is a paragraph, and each cell carries its title.
  const line = (name, cells) => el("tr", {}, cells.map((cell, at) => el(name, { class: look(at), "data-title": name === "td" && at > 0 && at !== text && titles[at], scope: name === "th" && "col" }, cell ?? "")));
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": titles.join(", ") },
    el("table", { class: kind }, el("thead", {}, line("th", titles)), el("tbody", {}, rows.map((row) => line("td", row)))));
}

// Text that changes only when it differs, so that a reader's selection and a screen reader are left alone.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
