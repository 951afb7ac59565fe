import { el, svg } from "./dom.js";

const COLOURS = 8;

export const colourOf = (place) => `c${place % COLOURS}`;

function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const values = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) values.push(place * step);
  return values.map((value) => [value, String(parseFloat(value.toPrecision(6)))]);
}

/* Powers of ten, with 2 and 5 between them where they are few; within less than that, round numbers. */
function logTicks(low, high) {
  for (const factors of [[1], [1, 2, 5]]) {
    const found = [];
    for (let power = Math.floor(low); power <= high; power++)
      for (const factor of factors) found.push(power + Math.log10(factor));
    const inside = found.filter((value) => value >= low && value <= high);
    const every = Math.ceil(inside.length / 7);
    if (inside.length > 2)
      return inside.filter((_, place) => place % every === 0).map((value) => [value, String(parseFloat((10 ** value).toPrecision(1)))]);
  }
  return ticks(10 ** low, 10 ** high).map(([value, text]) => [Math.log10(value), text]);
}

/* Of thousands of values at once, which Math.min(...values) would not take. */
function span(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - margin, high + margin];
}

/* A chart as wide as the page, or no wider than `widest`. */
export function chart(xs, ys, titles, { widest = 1280, tallest = Infinity, isLog = false } = {}) {
  const width = Math.min(widest, Math.max(document.documentElement.clientWidth - 32, 240));
  const height = Math.max(Math.min(width * 0.58, innerHeight * 0.7, tallest), 260);
  const box = { left: 64, right: width - 16, top: 16, bottom: height - 48 };
  const scaled = isLog ? Math.log10 : (value) => value;
  const [xSpan, ySpan] = [span(xs), span(ys.map(scaled))];
  const x = (value) => box.left + ((value - xSpan[0]) / (xSpan[1] - xSpan[0])) * (box.right - box.left);
  const at = (value) => box.bottom - ((value - ySpan[0]) / (ySpan[1] - ySpan[0])) * (box.bottom - box.top);
  const y = (value) => at(scaled(value));
  const lines = [];
  for (const [value, text] of ticks(...xSpan, width / 110))
    lines.push(
      svg("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, text),
    );
  for (const [value, text] of isLog ? logTicks(...ySpan) : ticks(...ySpan))
    lines.push(
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: at(value), y2: at(value) }),
      svg("text", { x: box.left - 8, y: at(value) + 4, "text-anchor": "end" }, text),
    );
  const centred = { class: "axis", "text-anchor": "middle" };
  const turned = `translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`;
  lines.push(
    svg("text", { x: (box.left + box.right) / 2, y: height - 8, ...centred }, titles[0]),
    svg("text", { transform: turned, ...centred }, titles[1]),
  );
  const named = { class: "chart", role: "group", "aria-label": titles.join(" and ") };
  return { root: svg("svg", { viewBox: `0 0 ${width} ${height}`, ...named }, ...lines), x, y, box };
}

export function marker(place, x, y, attributes = {}) {
  const shape = Math.floor(place / COLOURS) % 3;
  const paths = ["M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-4.5 -4.5h9v9h-9z", "M0 -6L5.5 4.5H-5.5z"];
  const look = { d: paths[shape], class: `point ${colourOf(place)}` };
  return svg("path", { ...look, transform: `translate(${x} ${y})`, ...attributes });
}

export function legend(entries) {
  const dashes = (place) => svg("polyline", { class: `curve ${colourOf(place)} dashed`, points: "-8,0 8,0" });
  const sign = (place, isDashed) =>
    svg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, isDashed ? dashes(place) : marker(place, 0, 0));
  const entry = ([place, name, isDashed]) => el("li", {}, sign(place, isDashed), name);
  return el("ul", { class: "legend", "aria-label": "Legend" }, entries.map(entry));
}

/* Statistics of two scores */

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export function pearson(xs, ys) {
  const [mx, my] = [mean(xs), mean(ys)];
  let [xy, xx, yy] = [0, 0, 0];
  xs.forEach((value, place) => {
    xy += (value - mx) * (ys[place] - my);
    xx += (value - mx) ** 2;
    yy += (ys[place] - my) ** 2;
  });
  return xx > 0 && yy > 0 ? xy / Math.sqrt(xx * yy) : undefined;
}

export function ranks(values) {
  const order = values.map((value, place) => [value, place]).sort((a, b) => a[0] - b[0]);
  const found = new Array(values.length);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end < order.length && order[end][0] === order[start][0]) end++;
    for (let place = start; place < end; place++) found[order[place][1]] = (start + end - 1) / 2;
    start = end;
  }
  return found;
}

export const spearman = (xs, ys) => pearson(ranks(xs), ranks(ys));
