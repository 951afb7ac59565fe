import { byId, button, cells, el, grid, number } from "./dom.js";
import { MAX_COMPARED, detailOf, isLower, label, nameOf, openDetail, own, page, score, spread, store } from "./state.js";

export async function showCompare(toggle) {
  const ids = page.state.compare.filter((id) => store.known.has(id));
  if (ids.length < 2) {
    const hint = `Tick “Compare” on two to ${MAX_COMPARED} checkpoints of the gallery to see them side by side.`;
    return byId("compare").replaceChildren(el("p", { class: "empty" }, hint));
  }
  const failed = (id) => (error) => ({ ...store.known.get(id), problem: error.message });
  const rows = await Promise.all(ids.map((id) => detailOf(id).catch(failed(id))));
  const isWanted = page.state.view === "compare" && ids.every((id) => page.state.compare.includes(id));
  if (isWanted) byId("compare").replaceChildren(comparison(rows, toggle));
}

function comparison(rows, toggle) {
  const line = (title, nodes) => el("tr", {}, el("th", { scope: "row" }, title), nodes);
  const wide = { colspan: rows.length + 1, class: "group", scope: "colgroup" };
  const group = (title) => el("tr", {}, el("th", wide, title));
  const head = rows.map((row) => {
    const named = { class: "quiet", "aria-label": `Remove ${nameOf(row)}` };
    const remove = button("Remove", () => toggle(row.id), named);
    return el("th", { scope: "col" }, button(nameOf(row), () => openDetail(row.id), { class: "link" }), remove);
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
