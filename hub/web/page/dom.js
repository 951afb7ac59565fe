/* Building the page. Names, scores and cards are written by strangers: they become text and attributes, never markup. */

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function button(text, click, attributes = {}) {
  return el("button", { type: "button", click, ...attributes }, text);
}

/* A name that may be broken after its slashes, before it is anywhere else. */
export const brokenName = (name) => name.split(/(?<=\/)/).flatMap((part) => [part, el("wbr")]);

export const note = (text) => el("p", { class: "facts" }, text);
export const warning = (text) => el("p", { class: "problem" }, text);
export const failure = (message, tryAgain) => el("div", { class: "row failure" }, warning(message), button("Try again", tryAgain));
export const cells = (tag, values) => values.map((value) => el(tag, {}, value));

export function choice(options, value, attributes) {
  const entry = ([one, text]) => el("option", { value: one, selected: one === value }, text);
  return el("select", attributes, options.map(entry));
}

export function tick(text, checked, change, attributes = {}) {
  const box = el("input", { type: "checkbox", checked, change: (event) => change(event.target.checked), ...attributes });
  return el("label", { class: "tick" }, box, text);
}

export function grid(title, name, head, body, caption = null) {
  const made = el("table", { class: name }, caption, el("thead", {}, head), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, made);
}

export function table(head, rows) {
  const body = rows.map((row) => el("tr", {}, cells("td", row)));
  const top = el("thead", {}, el("tr", {}, cells("th", head)));
  return el("div", { class: "scroll" }, el("table", {}, top, el("tbody", {}, body)));
}

export function section(title, ...children) {
  return el("section", { class: "part" }, el("h3", {}, title), ...children);
}

/* An image by its address, or a canvas. */
export const pixelsNode = (image, alt, name = "pixels") => (typeof image === "string" ? el("img", { src: image, alt, class: name }) : image);

export function figureOf(image, caption) {
  return el("figure", {}, pixelsNode(image, caption), el("figcaption", {}, caption));
}

export function notify(message) {
  byId("notice").replaceChildren(el("span", {}, message), button("Close", () => (byId("notice").hidden = true)));
  byId("notice").hidden = false;
}

export function snippet(code) {
  const block = el("code", {}, code);
  const copy = button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(code);
    } catch {
      getSelection().selectAllChildren(block);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
    setTimeout(() => (copy.textContent = "Copy"), 1500);
  });
  return el("div", { class: "snippet" }, el("pre", {}, block), copy);
}

export const number = (value) =>
  typeof value !== "number" ? "–" : Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(3);

export function sizeOf(bytes) {
  if (typeof bytes !== "number") return null;
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e3).toFixed(1)} kB`;
}
