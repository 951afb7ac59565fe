import { chart, colourOf, legend, marker } from "./charts.js";
import { byId, choice, el, note, svg, tick } from "./dom.js";
import { address, embedded, get, writtenDetail } from "./server.js";
import { nameOf, page, sorted, store, update } from "./state.js";

/* Training curves of several runs over one another; while a run trains they grow. */

const SETS = 3;
const EACH = 4;
const EVERY = 2000;
const known = new Map();
let timer = null;

async function curvesOf(id, isFresh) {
  if (!isFresh && known.has(id)) return known.get(id);
  const item = embedded
    ? { curves: (await writtenDetail(id)).curves ?? {}, training: false }
    : await get(address(id, "curves"));
  known.set(id, item);
  return item;
}

function smoothed(values, share) {
  if (!share) return values;
  let [sum, weight] = [0, 0];
  return values.map(([step, value]) => {
    sum = share * sum + (1 - share) * value;
    weight = share * weight + (1 - share);
    return [step, sum / weight];
  });
}

const termOf = (name) => name.split("/").pop();
const stageOf = (name) => (name.includes("/") ? name.split("/")[0] : "");

/* Lines of one term: the colour is the run's, or the stage's if there is one run; further stages are dashed. */
function linesOf(runs, term) {
  return runs.flatMap(({ name, curves }, place) =>
    Object.entries(curves)
      .filter(([column]) => termOf(column) === term)
      .map(([column, values], stage) => ({
        place: runs.length === 1 ? stage : place,
        isDashed: runs.length > 1 && stage > 0,
        name: runs.length === 1 ? column : [name, stageOf(column)].filter(Boolean).join(" · "),
        values,
      })),
  );
}

function pictureOf(runs, term, { log, ...size }, share) {
  const usable = ({ values, ...line }) => ({ ...line, values: smoothed(values, share).filter(([, value]) => !log || value > 0) });
  const lines = linesOf(runs, term).map(usable).filter((line) => line.values.length);
  if (!lines.length) return [note("Nothing that a log scale can show.")];
  const points = lines.flatMap((line) => line.values);
  const of = (axis) => points.map((point) => point[axis]);
  const { root, x, y } = chart(of(0), of(1), ["step", term], { ...size, isLog: log });
  for (const { place, values, isDashed } of lines) {
    const path = values.map(([step, value]) => `${x(step)},${y(value)}`).join(" ");
    root.append(svg("polyline", { class: `curve ${colourOf(place)}${isDashed ? " dashed" : ""}`, points: path }));
    if (values.length < 3) root.append(...values.map(([step, value]) => marker(place, x(step), y(value))));
  }
  return [legend(lines.map(({ place, name, isDashed }) => [place, name, isDashed])), root];
}

export function drawCurves(runs, options, change) {
  const terms = [...new Set(runs.flatMap(({ curves }) => Object.keys(curves).map(termOf)))].sort();
  if (!terms.length) return [note("No record of a training.")];
  const term = terms.includes(options.term) ? options.term : terms.includes("loss") ? "loss" : terms[0];
  const place = el("div");
  const { log, widest, tallest } = options;
  const sets = Map.groupBy(runs, ({ dataset }) => dataset ?? "");
  const part = (name, members, share) => [sets.size > 1 ? el("h3", { class: "set" }, name || "No data set") : null, ...pictureOf(members, term, { log, widest, tallest }, share)];
  const draw = (share) => place.replaceChildren(...[...sets].flatMap(([name, members]) => part(name, members, share)).filter(Boolean));
  const slider = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: Number(options.smooth) || 0, name: "smooth", "aria-label": "Smoothing" });
  // While it is dragged the slider must stay where it is: only the picture is redrawn.
  slider.addEventListener("input", () => draw(slider.valueAsNumber));
  slider.addEventListener("change", () => change({ smooth: slider.value === "0" ? "" : slider.value }));
  draw(slider.valueAsNumber);
  const bar = el(
    "div",
    { class: "row" },
    choice(terms.map((one) => [one, one]), term, { "aria-label": "Term of the training", name: "term", change: (event) => change({ term: event.target.value }) }),
    tick("Log scale", options.log, (isOn) => change({ log: isOn }), { name: "log" }),
    el("label", { class: "smooth" }, "Smoothing ", slider),
  );
  return [bar, place];
}

const countOf = (runs) => runs.flatMap(({ curves }) => Object.values(curves)).reduce((sum, one) => sum + one.length, 0);
const isDragged = (place) => Boolean(place.querySelector("[name=smooth]:active"));

/* The best few of each of a few data sets: losses of different data sets have no common scale. */
function firstRuns(rows) {
  const sets = Map.groupBy(sorted(rows.filter((row) => row.curves), page.state.sort, page.state.turned), (row) => row.dataset);
  return [...sets.values()].slice(0, SETS).flatMap((members) => members.slice(0, EACH));
}

export async function showCurves(rows) {
  clearTimeout(timer);
  const { state } = page;
  const chosen = state.compare.map((id) => store.known.get(id)).filter((row) => row?.curves);
  const shown = chosen.length ? chosen : firstRuns(rows);
  const place = byId("curves");
  if (!shown.length) {
    const hint = "None of these has a record of its training. Runs of `unknot fit` have one: `unknot browse runs`.";
    return place.replaceChildren(el("p", { class: "empty" }, hint));
  }
  const draw = async (isFresh) => {
    const item = await Promise.all(shown.map((row) => curvesOf(row.id, isFresh && known.get(row.id)?.training)));
    if (page.state.view !== "curves") return;
    if (isFresh && isDragged(place)) return void (timer = setTimeout(() => draw(true).catch(() => {}), EVERY));
    const runs = shown.map((row, at) => ({ name: nameOf(row), dataset: row.dataset, curves: item[at].curves }));
    const focused = document.activeElement?.name;
    const live = item.filter((one) => one.training).length;
    const from = chosen.length ? `${shown.length} chosen runs` : shown.length === 1 ? "1 run" : `${shown.length} runs, the first of each data set; tick “Compare” to choose others`;
    const about = note(`${from}${live ? ` · ${live} training now, redrawn every ${EVERY / 1000} s` : ""}`);
    place.replaceChildren(about, ...drawCurves(runs, { ...page.state, tallest: 420 }, (change) => update(change)));
    place.dataset.points = countOf(runs);
    if (["term", "log", "smooth"].includes(focused)) place.querySelector(`[name=${focused}]`)?.focus();
    clearTimeout(timer);
    if (live && !embedded) timer = setTimeout(() => draw(true).catch(() => {}), EVERY);
  };
  try {
    await draw(false);
  } catch (error) {
    place.replaceChildren(note(error.message));
  }
}

/* The same on the page of one checkpoint, which watches its own run. */
export function trainingPart(item) {
  if (!item.curves) return null;
  const place = el("div");
  const options = { term: "", log: false, smooth: "", widest: 560 };
  let next = null;
  const draw = async (isFresh) => {
    const { curves, training } = await curvesOf(item.id, isFresh);
    const change = (changed) => {
      Object.assign(options, changed);
      draw(false);
    };
    if (!isDragged(place)) place.replaceChildren(...drawCurves([{ name: "", curves }], options, change));
    place.dataset.points = countOf([{ curves }]);
    clearTimeout(next);
    if (training && !embedded) next = setTimeout(() => place.isConnected && draw(true).catch(() => {}), EVERY);
  };
  draw(Boolean(item.training)).catch((error) => place.replaceChildren(note(error.message)));
  return el("section", { class: "part" }, el("h3", {}, "Training"), place);
}
