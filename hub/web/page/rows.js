import { byId, button, el, number, sizeOf, tick } from "./dom.js";
import { SORTS, grouped, label, nameOf, openDetail, own, page, score, seedsOf, sorted, spread, store, update } from "./state.js";

/* The table of a population. Only the rows that can be seen are in the page, so that thousands cost as much as fifty. */

const ROW = 34;
const AROUND = 12;
const seen = { rows: [], columns: [], numeric: new Set(), toggle: () => {} };

function defaultColumns(rows) {
  const differs = (name) => new Set(rows.map((row) => JSON.stringify(own(row.arguments, name)))).size > 1;
  const settings = store.varying.filter(differs).slice(0, 4).map((name) => `arg:${name}`);
  const scores = [...new Set([...store.main, ...store.scores])].filter((name) => rows.some((row) => score(row, name) !== undefined)).slice(0, 5);
  return ["model", "dataset", "seed", ...scores, ...settings];
}

function allColumns() {
  const facts = ["model", "dataset", "family", "seed", "modified", "bytes"];
  return [...facts, ...store.settings.map((name) => `arg:${name}`), ...store.scores];
}

function titleOf(column) {
  if (column === "family") return "Family";
  if (SORTS.has(column)) return SORTS.get(column);
  return column.startsWith("arg:") ? column.slice(4) : label(column);
}

function cellOf(row, column) {
  if (column === "bytes") return sizeOf(row.bytes) ?? "–";
  if (column === "seed") return seedsOf(row);
  if (column === "modified") return row.modified?.slice(0, 10) ?? "–";
  if (column === "family" || SORTS.has(column)) return String(row[column] ?? "–");
  if (column.startsWith("arg:")) {
    const value = own(row.arguments, column.slice(4));
    return value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
  }
  const around = spread(row, column);
  return number(score(row, column)) + (around === undefined ? "" : ` ± ${number(around)}`);
}

const isNumber = (row, name) => !own(row.arguments, name) || typeof own(row.arguments, name) === "number";
const isNumeric = (column) => seen.numeric.has(column);

function headOf(columns) {
  const { state } = page;
  const cell = (column) => {
    const isSorted = state.sort === column;
    const order = isSorted ? (state.turned ? "turned" : "sorted") : null;
    const turn = () => update(isSorted ? { turned: !state.turned } : { sort: column, turned: false });
    const sign = isSorted ? (state.turned ? " ↑" : " ↓") : "";
    const look = { scope: "col", class: isNumeric(column) && "number", "aria-sort": order && "other" };
    const title = column === "ref" ? "Name" : titleOf(column);
    return el("th", look, button(title + sign, turn, { class: "link", "data-sort": column }));
  };
  return el("tr", {}, el("th", { class: "mark" }, el("span", { class: "only-read" }, "Compare")), ["ref", ...columns].map(cell));
}

function lineOf(row, place, columns) {
  const { state } = page;
  const single = row.members?.length > 1 ? null : (row.members?.[0] ?? row);
  const box = single
    ? el("input", {
        type: "checkbox",
        checked: state.compare.includes(single.id),
        "aria-label": `Compare ${nameOf(row)}`,
        change: () => seen.toggle(single.id),
      })
    : null;
  const name = single
    ? button(nameOf(row), () => openDetail(single.id), { class: "link", title: row.ref })
    : el("span", { title: row.ref }, row.ref);
  const cell = (column) => el("td", { class: isNumeric(column) && "number" }, cellOf(row, column));
  const line = el("tr", { "aria-rowindex": place + 2, "data-id": row.id }, el("td", { class: "mark" }, box), el("td", {}, name));
  line.append(...columns.map(cell));
  return line;
}

function drawWindow() {
  const frame = byId("rows").querySelector(".window");
  if (!frame) return;
  const first = Math.max(0, Math.floor(frame.scrollTop / ROW) - AROUND);
  const height = Math.max(frame.clientHeight, innerHeight); // before it is laid out it has no height
  const last = Math.min(seen.rows.length, Math.ceil((frame.scrollTop + height) / ROW) + AROUND);
  const gap = (count) => {
    const node = el("tr", { class: "gap", "aria-hidden": "true" }, el("td", { colspan: seen.columns.length + 2 }));
    node.style.height = `${count * ROW}px`;
    return node;
  };
  const lines = [];
  for (let place = first; place < last; place++) lines.push(lineOf(seen.rows[place], place, seen.columns));
  frame.querySelector("tbody").replaceChildren(gap(first), ...lines, gap(seen.rows.length - last));
}

function chooser(columns) {
  const chosen = new Set(columns);
  const change = (column) => (isOn) => {
    const next = allColumns().filter((one) => (one === column ? isOn : chosen.has(one)));
    update({ columns: next.map(encodeURIComponent).join(",") || "none" });
  };
  const boxes = allColumns().map((column) => tick(titleOf(column), chosen.has(column), change(column), { "data-column": column }));
  return boxes;
}

export function showRows(rows, toggle) {
  const { state } = page;
  const known = new Set(allColumns());
  const record = state.columns ? state.columns.split(",").map(decodeURIComponent) : defaultColumns(rows);
  seen.columns = [...new Set(record)].filter((column) => known.has(column));
  seen.rows = sorted(state.grouped ? grouped(rows) : rows, state.sort, state.turned);
  seen.toggle = toggle;
  const isRight = (column) =>
    column.startsWith("arg:")
      ? seen.rows.every((row) => isNumber(row, column.slice(4)))
      : ["seed", "bytes"].includes(column) || store.scores.includes(column);
  seen.numeric = new Set(seen.columns.filter(isRight));
  const place = byId("rows");
  const isOpen = place.querySelector("details")?.open ?? false;
  const scroll = place.querySelector(".window")?.scrollTop ?? 0;
  const focused = document.activeElement?.dataset;
  const count = state.grouped ? `${seen.rows.length} settings of ${rows.length} rows` : `${rows.length} rows`;
  const bar = el(
    "div",
    { class: "row" },
    tick("Group by setting, mean ± spread over seeds", state.grouped, (isOn) => update({ grouped: isOn }), { name: "grouped" }),
    el("details", { open: isOpen, class: "chooser" }, el("summary", {}, "Columns"), el("div", {}, chooser(seen.columns))),
    el("span", { class: "facts" }, count),
  );
  const made = el("table", { class: "rows", "aria-rowcount": seen.rows.length + 1 }, el("thead", {}, headOf(seen.columns)), el("tbody"));
  const frame = el("div", { class: "window", tabindex: 0, role: "region", "aria-label": "Table of checkpoints" }, made);
  let isAsked = false;
  frame.addEventListener("scroll", () => {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      drawWindow();
    });
  });
  place.replaceChildren(bar, frame);
  frame.scrollTop = scroll;
  drawWindow();
  const again = focused?.sort ? `[data-sort="${CSS.escape(focused.sort)}"]` : focused?.column && `[data-column="${CSS.escape(focused.column)}"]`;
  if (again) place.querySelector(again)?.focus();
}
