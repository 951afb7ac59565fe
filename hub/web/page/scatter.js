import { chart, legend, marker, pearson, spearman } from "./charts.js";
import { byId, choice, el, number, svg, tick } from "./dom.js";
import { grouped, label, nameOf, openDetail, page, score, seedsOf, spread, store, update } from "./state.js";

const NAMED = 40;

function scoreChoice(name, value) {
  const scores = store.scores.map((one) => [one, label(one)]);
  return choice(scores, value, { name, change: (event) => update({ [name]: event.target.value }) });
}

const isOne = (row) => !(row.members?.length > 1); // a setting with several seeds has no page of its own
const methodPlace = (row) => (row.model ? store.methods.indexOf(row.model) : store.methods.length);

export function showScatter(rows) {
  const { state } = page;
  const tell = (...nodes) => byId("scatter").replaceChildren(...nodes);
  const hint = (text) => el("p", { class: "empty" }, text);
  if (!rows.length) return tell();
  if (store.scores.length < 2) {
    const how = "`unknot evaluate RUN` makes them for a run.";
    return tell(hint(`A scatter needs checkpoints with at least two scores. ${how}`));
  }
  const xName = store.scores.includes(state.x) ? state.x : store.main[0];
  const yName = store.scores.includes(state.y) ? state.y : [...store.main, ...store.scores].find((name) => name !== xName);
  const all = state.grouped ? grouped(rows) : rows;
  const points = all.filter((row) => score(row, xName) !== undefined && score(row, yName) !== undefined);
  points.sort((a, b) => score(a, xName) - score(b, xName));
  const focused = document.activeElement?.name;
  const bar = el(
    "div",
    { class: "row" },
    el("label", {}, "Across ", scoreChoice("x", xName)),
    el("label", {}, "Up ", scoreChoice("y", yName)),
    tick("Group by setting", state.grouped, (isOn) => update({ grouped: isOn }), { name: "grouped" }),
    el("span", { class: "facts" }, `${points.length} of ${all.length} have both`),
  );
  tell(bar, ...(points.length ? scatterOf(points, xName, yName) : [hint("None of these has both scores. Choose others.")]));
  if (["x", "y", "grouped"].includes(focused)) byId("scatter").querySelector(`[name=${focused}]`).focus();
}

function correlations(points, xName, yName) {
  if (points.length < 3) return null;
  const [xs, ys] = [xName, yName].map((name) => points.map((row) => score(row, name)));
  const text = `Rank correlation ${number(spearman(xs, ys))}, linear ${number(pearson(xs, ys))}, of ${points.length} points`;
  return el("p", { class: "facts", id: "correlation" }, text);
}

function barsOf(row, xName, yName, x, y) {
  const [xs, ys] = [spread(row, xName), spread(row, yName)];
  const [cx, cy] = [score(row, xName), score(row, yName)];
  const line = (x1, x2, y1, y2) => svg("line", { class: "bar", x1, x2, y1, y2 });
  return [
    xs ? line(x(cx - xs), x(cx + xs), y(cy), y(cy)) : null,
    ys ? line(x(cx), x(cx), y(cy - ys), y(cy + ys)) : null,
  ].filter(Boolean);
}

/* Names beside points, where they lie neither over one another nor over a point. */
function namesOf(points, places, box) {
  const taken = places.map(([left, top]) => ({ left: left - 6, right: left + 6, top: top - 6, bottom: top + 6 }));
  const nodes = [];
  points.forEach((row, place) => {
    const [left, top] = places[place];
    const text = nameOf(row).slice(0, 40);
    const width = text.length * 6.2;
    const areaAt = (start) => ({ left: start, right: start + width, top: top - 16, bottom: top - 2 });
    const isFree = (area) =>
      area.left >= box.left &&
      area.right <= box.right &&
      !taken.some((other) => area.left < other.right && other.left < area.right && area.top < other.bottom && other.top < area.bottom);
    const area = [left + 9, left - 9 - width].map(areaAt).find(isFree);
    if (!area) return;
    taken.push(area);
    nodes.push(svg("text", { class: "name", x: area.left, y: top - 5, "aria-hidden": "true" }, text));
  });
  return nodes;
}

function scatterOf(points, xName, yName) {
  const reach = (name) =>
    points.flatMap((row) => {
      const [value, around] = [score(row, name), spread(row, name) ?? 0];
      return around ? [value - around, value + around] : [value];
    });
  const { root, x, y, box } = chart(reach(xName), reach(yName), [label(xName), label(yName)]);
  const hint = "Point at a checkpoint, or tab to the chart and use the arrow keys; Enter opens it.";
  const record = el("p", { class: "message", "aria-live": "polite" }, hint);
  const places = points.map((row) => [x(score(row, xName)), y(score(row, yName))]);
  const markers = points.map((row, place) => {
    const value = (name) => {
      const around = spread(row, name);
      return `${label(name)} ${number(score(row, name))}${around === undefined ? "" : ` ± ${number(around)}`}`;
    };
    const about = row.members ? seedsOf(row) : (row.model ?? "unknown");
    const text = `${nameOf(row)} (${about}): ${value(xName)}, ${value(yName)}`;
    const tell = () => (record.textContent = text);
    const named = { tabindex: place ? -1 : 0, role: isOne(row) ? "link" : "img", "aria-label": text, "data-id": row.id };
    const does = { click: () => isOne(row) && openDetail(row.id), mouseenter: tell, focus: tell };
    const node = marker(methodPlace(row), ...places[place], { ...named, ...does });
    node.append(svg("title", {}, text));
    return node;
  });
  root.append(...points.flatMap((row) => barsOf(row, xName, yName, x, y)), ...markers);
  if (points.length <= NAMED) root.append(...namesOf(points, places, box));
  root.addEventListener("keydown", (event) => {
    const place = markers.indexOf(event.target);
    const steps = new Map([
      ["ArrowRight", 1],
      ["ArrowUp", 1],
      ["ArrowLeft", -1],
      ["ArrowDown", -1],
      ["Home", -place],
      ["End", markers.length - 1 - place],
    ]);
    if (event.key === "Enter" && place >= 0 && isOne(points[place])) openDetail(points[place].id);
    const next = markers[place + steps.get(event.key)];
    if (!next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  const present = [...new Set(points.map(methodPlace))].sort((a, b) => a - b);
  const signs = legend(present.map((place) => [place, store.methods[place] ?? "unknown"]));
  return [correlations(points, xName, yName), root, signs, record].filter(Boolean);
}
