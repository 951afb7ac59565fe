import { brokenName, byId, button, cells, el, grid, note, number, section, table } from "./dom.js";
import { BEST, MAX_COMPARED, detailOf, isLower, label, nameOf, openDetail, own, page, pictured, score, selected, sorted, spread, store } from "./state.js";

const OFFERED = 8;

export async function showCompare(toggle) {
  const ids = page.state.compare.filter((id) => store.known.has(id));
  if (ids.length < 2) return byId("compare").replaceChildren(...suggestions(ids, toggle));
  const failed = (id) => (error) => ({ ...store.known.get(id), problem: error.message });
  const rows = await Promise.all(ids.map((id) => detailOf(id).catch(failed(id))));
  const isWanted = page.state.view === "compare" && ids.every((id) => page.state.compare.includes(id));
  if (isWanted) byId("compare").replaceChildren(comparison(rows, toggle));
}

/* Suggestions: the best of each data set, with a box each. */
function suggestions(ids, toggle) {
  const sets = Map.groupBy(sorted(pictured(selected()), BEST, false), (row) => row.dataset ?? "No data set");
  const boxOf = (row) => el("input", { type: "checkbox", checked: ids.includes(row.id), "aria-label": `Compare ${nameOf(row)}`, change: () => toggle(row.id) });
  const part = ([name, all]) => {
    const rows = all.slice(0, OFFERED);
    const known = (names) => names.filter((name) => rows.some((row) => score(row, name) !== undefined)).slice(0, 2);
    const scores = known(store.main).length ? known(store.main) : known(store.scores);
    const line = (row) => [boxOf(row), nameButton(row), row.model ?? "–", ...scores.map((name) => number(score(row, name)))];
    return section(name, table(["", "name", "method", ...scores.map(label)], rows.map(line)));
  };
  const hint = `Choose two to ${MAX_COMPARED} checkpoints to see them side by side${ids.length ? "; one is chosen" : ""}. These are the best of each data set; others can be ticked in the gallery and the table.`;
  return [note(hint), el("div", { class: "columns choices" }, [...sets].map(part))];
}

const nameButton = (row) => button(brokenName(nameOf(row)), () => openDetail(row.id), { class: "link" });

function comparison(rows, toggle) {
  const line = (title, nodes) => el("tr", {}, el("th", { scope: "row" }, title), nodes);
  const wide = { colspan: rows.length + 1, class: "group", scope: "colgroup" };
  const group = (title) => el("tr", {}, el("th", wide, title));
  const head = rows.map((row) => {
    const named = { class: "quiet", "aria-label": `Remove ${nameOf(row)}` };
    const remove = button("Remove", () => toggle(row.id), named);
    return el("th", { scope: "col" }, nameButton(row), remove);
  });
  const each = (cell) => cells("td", rows.map(cell));
  const picture = (row) => {
    const url = row.pictures?.find((one) => one.url)?.url;
    return url ? el("img", { src: url, alt: `Picture of ${nameOf(row)}` }) : "no picture";
  };
  const facts = [["model", "Method"], ["dataset", "Data set"], ["family", "Family"], ["seed", "Seed"], ["license", "License"]];
  if (rows.some((row) => row.problem)) facts.push(["problem", "Problem"]);
  const scores = store.scores.filter((name) => rows.some((row) => score(row, name) !== undefined));
  const differing = differences(rows);
  const body = [
    line("Picture", each(picture)),
    ...facts.map(([name, title]) => line(title, each((row) => String(row[name] ?? "–")))),
    group("Scores"),
    ...scores.map((name) => line(label(name), scoreCells(rows, name))),
    group(differing.length ? "Arguments that differ" : "Their arguments do not differ"),
    ...differing.map((name) => line(name, each((row) => argument(row, name)))),
  ];
  return grid("Comparison", "compare", el("tr", {}, el("td"), head), body);
}

function scoreCells(rows, name) {
  const values = rows.map((row) => score(row, name));
  const present = values.filter((value) => value !== undefined);
  const best = isLower(name) ? Math.min(...present) : Math.max(...present);
  return rows.map((row, place) => {
    const isBest = present.length > 1 && values[place] === best;
    const around = spread(row, name);
    const mark = isBest ? el("span", { class: "mark" }, " best") : null;
    return el("td", { class: isBest && "best" }, number(values[place]), around === undefined ? null : ` ± ${number(around)}`, mark);
  });
}

function argument(row, name) {
  const value = own(row.arguments, name);
  return value === undefined ? "–" : JSON.stringify(value);
}

function differences(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.arguments ?? {})))].sort();
  return names.filter((name) => new Set(rows.map((row) => argument(row, name))).size > 1);
}
