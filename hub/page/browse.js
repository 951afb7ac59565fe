"use strict";

/* Names, scores and cards are written by strangers: they become text nodes and attributes, never markup. */

const MAX_COMPARED = 4;
const MAIN_SCORES = 3;
const CARD_LIMIT = 100_000;
const SORTS = { ref: "Name", modified: "Date", bytes: "Size", model: "Method", dataset: "Data set" };
const PREFERRED = ["mig", "dci", "sap", "factor_vae", "modularity", "beta_vae", "irs"];
const FIELDS = { dataset: "dataset", method: "model", family: "family" };
const COLOURS = 8;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const embedded = byId("data") && JSON.parse(byId("data").textContent);
const token = document.querySelector('meta[name="token"]')?.content ?? "";

const store = { checkpoints: [], known: new Map(), labels: {}, lower: new Set(), scores: [], methods: [] };
const details = new Map();
const cards = new Map();
let state = readHash();
let lastList = "gallery";
let shownDetail = null;
let returnTo = null;

/* Building the page */

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function button(text, click, attributes = {}) {
  return el("button", { type: "button", click, ...attributes }, text);
}

const note = (text) => el("p", { class: "facts" }, text);
const warning = (text) => el("p", { class: "problem" }, text);
const cells = (tag, values) => values.map((value) => el(tag, {}, value));

function choice(options, value, attributes) {
  const entry = ([one, text]) => el("option", { value: one, selected: one === value }, text);
  return el("select", attributes, options.map(entry));
}

function grid(label, name, head, body, caption = null) {
  const table = el("table", { class: name }, caption, el("thead", {}, head), el("tbody", {}, body));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

function section(title, ...children) {
  return el("section", { class: "part" }, el("h3", {}, title), ...children);
}

function notify(message) {
  byId("notice").replaceChildren(el("span", {}, message), button("Close", () => (byId("notice").hidden = true)));
  byId("notice").hidden = false;
}

/* Talking to the server */

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `unknot browse` still running?");
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(told.error ?? `The server refused (${response.status}).`);
  }
  return response;
}

function post(path, body) {
  const content = body instanceof Blob ? body : JSON.stringify(body ?? {});
  return request(path, { method: "POST", headers: { "X-Unknot-Token": token }, body: content });
}

const address = (id, action) => `api/checkpoints/${id}/${action}`;

async function detailOf(id) {
  if (!details.has(id)) {
    const told = embedded ? embedded.details[id] : await (await request(`api/checkpoints/${id}`)).json();
    details.set(id, told);
  }
  const told = details.get(id);
  if (told.error) throw new Error(told.error);
  return { ...told, ...store.known.get(id) };
}

async function loadList() {
  const listed = embedded ?? (await (await request("api/checkpoints")).json());
  take(listed);
  if (!listed.ready) setTimeout(() => loadList().catch((error) => notify(error.message)), 800);
}

function take(listed) {
  const text = JSON.stringify(listed);
  if (text === store.text) return;
  const counts = new Map();
  for (const row of listed.checkpoints) {
    for (const score of Object.keys(row.scores)) counts.set(score, (counts.get(score) ?? 0) + 1);
    row.text = [row.ref, row.model, row.dataset, row.family, row.license].join(" ").toLowerCase();
  }
  const rank = (score) => (PREFERRED.indexOf(score) + PREFERRED.length + 1) % (PREFERRED.length + 1);
  const scores = [...counts.keys()].filter((score) => !score.endsWith("_std"));
  scores.sort((a, b) => rank(a) - rank(b) || counts.get(b) - counts.get(a) || a.localeCompare(b));
  Object.assign(store, listed, { text, scores, lower: new Set(listed.lower), known: new Map() });
  for (const row of store.checkpoints) store.known.set(row.id, row);
  store.methods = distinct("model");
  cards.clear();
  fillFilters();
  schedule();
}

const label = (score) => store.labels[score] ?? score;
const nameOf = (row) => (row.sources.includes("folder") ? row.ref.split(/[\\/]/).slice(-2).join("/") : row.ref);
const number = (value) => (value === undefined ? "–" : Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(3));
const distinct = (field) => [...new Set(store.checkpoints.map((row) => row[field]).filter(Boolean))].sort();

function sizeOf(bytes) {
  if (bytes === null || bytes === undefined) return null;
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e3).toFixed(1)} kB`;
}

/* The state is the address, so that it can be shared and reloaded */

function readHash() {
  const told = new URLSearchParams(location.hash.slice(1));
  const text = (name, fallback = "") => told.get(name) ?? fallback;
  const view = ["gallery", "scatter", "compare", "detail"].includes(text("view")) ? text("view") : "gallery";
  const min = new Map();
  for (const bound of told.getAll("min")) {
    const [score, value] = bound.split(":");
    if (Number.isFinite(parseFloat(value))) min.set(score, parseFloat(value));
  }
  const compare = text("compare").split(",").filter(Boolean).slice(0, MAX_COMPARED);
  const plain = ["q", "dataset", "method", "family", "source", "x", "y", "open"].map((name) => [name, text(name)]);
  const sort = text("sort", "ref");
  return { view, min, compare, sort, turned: text("turned") === "1", ...Object.fromEntries(plain) };
}

function hashOf(wanted) {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) {
    if (name === "min") for (const [score, least] of value) told.append("min", `${score}:${least}`);
    else if (name === "compare") value.length && told.set(name, value.join(","));
    else if (value && !(name === "view" && value === "gallery") && !(name === "sort" && value === "ref"))
      told.set(name, value === true ? "1" : value);
  }
  return `#${told}`;
}

function update(change, isStep = false) {
  state = { ...state, ...change };
  history[isStep ? "pushState" : "replaceState"](null, "", hashOf(state));
  schedule();
}

const show = (view) => update({ view, open: "" }, true);
const openDetail = (id) => update({ view: "detail", open: id }, true);

function closeDetail() {
  returnTo = state.open;
  update({ view: lastList, open: "" }, true);
}

/* Filtering and sorting */

function selected() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = store.checkpoints.filter(
    (row) =>
      words.every((word) => row.text.includes(word)) &&
      Object.entries(FIELDS).every(([name, field]) => !state[name] || row[field] === state[name]) &&
      (!state.source || row.sources.includes(state.source)) &&
      [...state.min].every(([score, least]) => row.scores[score] >= least),
  );
  return rows.sort(order(state.sort, state.turned));
}

function order(sort, turned) {
  const isField = sort in SORTS;
  const value = isField ? (row) => row[sort] : (row) => row.scores[sort];
  const falls = (isField ? sort === "modified" : !store.lower.has(sort)) !== turned;
  return (a, b) => {
    const [first, second] = [value(a) ?? null, value(b) ?? null];
    if (first === null || second === null) return (first === null) - (second === null) || a.ref.localeCompare(b.ref);
    const between = typeof first === "string" ? first.localeCompare(second) : first - second;
    return (falls ? -between : between) || a.ref.localeCompare(b.ref);
  };
}

function fillFilters() {
  const form = byId("filters").elements;
  const choose = (name, options, first) => {
    const entries = options.map(([value, text]) => el("option", { value }, text));
    form[name].replaceChildren(...(first ? [el("option", { value: "" }, first)] : []), ...entries);
  };
  const same = (values) => values.map((value) => [value, value]);
  const scores = store.scores.map((score) => [score, label(score)]);
  for (const [name, field] of Object.entries(FIELDS)) choose(name, same(distinct(field)), "all");
  choose("source", same([...new Set(store.checkpoints.flatMap((row) => row.sources))].sort()), "all");
  choose("bound", scores, "any score");
  choose("sort", [...Object.entries(SORTS), ...scores]);
}

function hasFilters() {
  return Boolean(state.q || state.dataset || state.method || state.family || state.source || state.min.size);
}

function clearFilters() {
  byId("filters").reset();
  update({ q: "", dataset: "", method: "", family: "", source: "", min: new Map() });
}

function setMinimum() {
  const { bound, least } = byId("filters").elements;
  if (!bound.value || least.value === "" || !Number.isFinite(least.valueAsNumber)) return;
  update({ min: new Map(state.min).set(bound.value, least.valueAsNumber) });
}

function removeMinimum(score) {
  const min = new Map(state.min);
  min.delete(score);
  byId("filters").elements.least.value = "";
  update({ min });
}

/* One render per frame, however often it is asked for */

let scheduled = false;

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    render();
  });
}

function render() {
  const rows = selected();
  showStatus(rows.length);
  showFilters(rows);
  for (const view of ["gallery", "scatter", "compare", "detail"]) byId(view).hidden = state.view !== view;
  for (const tab of document.querySelectorAll("[data-view]"))
    tab.setAttribute("aria-current", state.view === tab.dataset.view ? "page" : "false");
  if (state.view !== "detail") {
    lastList = state.view;
    shownDetail = null;
  }
  byId("filters").hidden = byId("chips").hidden = !isList();
  byId("sorting").hidden = state.view !== "gallery";
  byId("empty").hidden = !isList() || rows.length > 0;
  if (isList() && !rows.length) showEmpty();
  showTray();
  ({ gallery: showGallery, scatter: showScatter, compare: showCompare, detail: showDetail })[state.view](rows);
  document.body.dataset.rendered = String(Number(document.body.dataset.rendered ?? 0) + 1);
}

const isList = () => state.view === "gallery" || state.view === "scatter";

function showStatus(count) {
  const total = store.checkpoints.length;
  const shown = count === total || !isList() ? `${total} checkpoints` : `${count} of ${total} checkpoints`;
  const about = {
    asking: "asking the hub…",
    listed: `hub: ${store.note}`,
    offline: "offline: only what is on this machine",
    stale: "stale: the hub did not answer, its last list is shown",
  };
  const told = embedded ? "an export; `unknot browse` moves latents live" : (about[store.remote] ?? "");
  const text = `${shown} · ${told}`;
  if (byId("status").textContent !== text) byId("status").textContent = text;
  byId("status").title = store.note ?? "";
  byId("status").dataset.remote = embedded ? "" : store.remote;
}

function showFilters() {
  const form = byId("filters").elements;
  for (const name of ["q", "dataset", "method", "family", "source", "sort"])
    if (form[name].value !== state[name]) form[name].value = state[name];
  byId("turn").textContent = state.turned ? "↑" : "↓";
  byId("turn").setAttribute("aria-pressed", state.turned);
  const chips = [...state.min].map(([score, least]) => {
    const named = { "aria-label": `Remove minimum of ${label(score)}` };
    return button(`${label(score)} ≥ ${least} ×`, () => removeMinimum(score), named);
  });
  if (hasFilters()) chips.push(button("Clear filters", clearFilters, { class: "quiet" }));
  byId("chips").replaceChildren(...chips);
}

function showEmpty() {
  const hint = (text, command) => el("p", {}, `${text} `, el("code", {}, command));
  const nothing = [
    el("p", {}, "No checkpoints here yet."),
    hint("Show your runs:", "unknot browse runs"),
    hint("Train a model:", "unknot fit --config beta_vae_dsprites"),
    hint("Fetch one:", "unknot hub pull USER/REPO"),
  ];
  const unmatched = [el("p", {}, "No checkpoint matches these filters."), button("Clear filters", clearFilters)];
  byId("empty").replaceChildren(...(store.checkpoints.length ? unmatched : nothing));
}

function showTray() {
  const count = state.compare.length;
  byId("tray").hidden = !count || state.view === "compare";
  byId("tray").replaceChildren(
    el("span", {}, count === 1 ? "1 chosen; add another" : `${count} chosen`),
    button("Compare", () => show("compare"), { class: "main", disabled: count < 2 }),
    button("Clear", () => update({ compare: [] }), { class: "quiet" }),
  );
}

function toggleCompared(id) {
  if (state.compare.includes(id)) return update({ compare: state.compare.filter((one) => one !== id) });
  if (state.compare.length === MAX_COMPARED) {
    notify(`At most ${MAX_COMPARED} can be compared. Take one away first.`);
    return schedule();
  }
  return update({ compare: [...state.compare, id] });
}

/* Gallery */

function thumbnail(row) {
  if (!row.thumbnail) return el("div", { class: "thumb none", "aria-hidden": "true" }, row.model ?? "?");
  return el("img", { class: "thumb", src: row.thumbnail, alt: "", loading: "lazy", decoding: "async" });
}

function scoreList(row, scores) {
  const cell = (score) => el("div", {}, el("dt", {}, label(score)), el("dd", {}, number(row.scores[score])));
  return el("dl", { class: "scores" }, scores.map(cell));
}

function makeCard(row, scores) {
  const named = { "aria-label": `Compare ${nameOf(row)}` };
  const box = el("input", { type: "checkbox", change: () => toggleCompared(row.id), ...named });
  const link = el("a", { href: hashOf({ ...state, view: "detail", open: row.id }), title: row.ref }, nameOf(row));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openDetail(row.id);
  });
  const card = el("li", { class: "card", "data-id": row.id }, thumbnail(row), el("h2", {}, link));
  card.append(
    note([row.model, row.dataset, row.sources.join("+")].filter(Boolean).join(" · ")),
    scoreList(row, scores),
    ...(row.problem ? [warning(row.problem)] : []),
    el("label", { class: "pick" }, box, "Compare"),
  );
  return { card, box };
}

function showGallery(rows) {
  const first = state.sort in SORTS ? [] : [state.sort];
  const scores = [...new Set([...first, ...state.min.keys(), ...store.scores])].slice(0, MAIN_SCORES);
  if (cards.scores !== scores.join()) cards.clear();
  cards.scores = scores.join();
  const nodes = rows.map((row) => {
    if (!cards.has(row.id)) cards.set(row.id, makeCard(row, scores));
    const { card, box } = cards.get(row.id);
    box.checked = state.compare.includes(row.id);
    return card;
  });
  const list = byId("cards");
  if (nodes.length !== list.children.length || nodes.some((node, place) => node !== list.children[place]))
    list.replaceChildren(...nodes);
  if (returnTo) cards.get(returnTo)?.card.querySelector("a").focus();
  returnTo = null;
}

/* Charts */

function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const values = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) values.push(place * step);
  return values.map((value) => [value, String(parseFloat(value.toPrecision(6)))]);
}

function span(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - margin, high + margin];
}

function chart(xs, ys, titles, wanted) {
  const width = Math.min(wanted, Math.max(document.documentElement.clientWidth - 64, 240));
  const height = Math.max(width * 0.58, 260);
  const box = { left: 64, right: width - 16, top: 16, bottom: height - 48 };
  const [xSpan, ySpan] = [span(xs), span(ys)];
  const x = (value) => box.left + ((value - xSpan[0]) / (xSpan[1] - xSpan[0])) * (box.right - box.left);
  const y = (value) => box.bottom - ((value - ySpan[0]) / (ySpan[1] - ySpan[0])) * (box.bottom - box.top);
  const lines = [];
  for (const [value, text] of ticks(...xSpan, width / 110))
    lines.push(
      svg("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, text),
    );
  for (const [value, text] of ticks(...ySpan))
    lines.push(
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, text),
    );
  const centred = { class: "axis", "text-anchor": "middle" };
  const turned = `translate(14 ${(box.top + box.bottom) / 2}) rotate(-90)`;
  lines.push(
    svg("text", { x: (box.left + box.right) / 2, y: height - 8, ...centred }, titles[0]),
    svg("text", { transform: turned, ...centred }, titles[1]),
  );
  const named = { class: "chart", role: "group", "aria-label": titles.join(" and ") };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, ...named }, ...lines);
  return { root, x, y };
}

const colourOf = (place) => `c${place % COLOURS}`;

function marker(place, x, y, attributes = {}) {
  const shape = Math.floor(place / COLOURS) % 3;
  const paths = ["M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-4.5 -4.5h9v9h-9z", "M0 -6L5.5 4.5H-5.5z"];
  const look = { d: paths[shape], class: `point ${colourOf(place)}` };
  return svg("path", { ...look, transform: `translate(${x} ${y})`, ...attributes });
}

function scoreChoice(name, value) {
  const scores = store.scores.map((score) => [score, label(score)]);
  return choice(scores, value, { name, change: (event) => update({ [name]: event.target.value }) });
}

function showScatter(rows) {
  const tell = (...nodes) => byId("scatter").replaceChildren(...nodes);
  const hint = (text) => el("p", { class: "empty" }, text);
  if (!rows.length) return tell();
  if (store.scores.length < 2) {
    const how = "`unknot evaluate RUN/model --json RUN/scores.json` makes them for a run.";
    return tell(hint(`A scatter needs checkpoints with at least two scores. ${how}`));
  }
  const xName = store.scores.includes(state.x) ? state.x : store.scores[0];
  const yName = store.scores.includes(state.y) ? state.y : store.scores[1];
  const points = rows.filter((row) => xName in row.scores && yName in row.scores);
  points.sort((a, b) => a.scores[xName] - b.scores[xName]);
  const focused = document.activeElement?.name;
  const across = el("label", {}, "Across ", scoreChoice("x", xName));
  const up = el("label", {}, "Up ", scoreChoice("y", yName));
  const count = el("span", { class: "facts" }, `${points.length} of ${rows.length} have both`);
  const none = [hint("None of these has both scores. Choose others.")];
  const drawn = points.length ? scatterOf(points, xName, yName) : none;
  tell(el("div", { class: "row" }, across, up, count), ...drawn);
  if (focused === "x" || focused === "y") byId("scatter").querySelector(`[name=${focused}]`).focus();
}

function scatterOf(points, xName, yName) {
  const of = (name) => points.map((row) => row.scores[name]);
  const { root, x, y } = chart(of(xName), of(yName), [label(xName), label(yName)], 720);
  const hint = "Point at a checkpoint, or tab to the chart and use the arrow keys; Enter opens it.";
  const told = el("p", { class: "told", "aria-live": "polite" }, hint);
  const markers = points.map((row, place) => {
    const values = [xName, yName].map((name) => `${label(name)} ${number(row.scores[name])}`).join(", ");
    const text = `${nameOf(row)} (${row.model ?? "unknown"}): ${values}`;
    const tell = () => (told.textContent = text);
    const named = { tabindex: place ? -1 : 0, role: "link", "aria-label": text, "data-id": row.id };
    const does = { click: () => openDetail(row.id), mouseenter: tell, focus: tell };
    const node = marker(methodPlace(row), x(row.scores[xName]), y(row.scores[yName]), { ...named, ...does });
    node.append(svg("title", {}, text));
    return node;
  });
  root.append(...markers);
  root.addEventListener("keydown", (event) => {
    const place = markers.indexOf(event.target);
    const ends = { Home: -place, End: markers.length - 1 - place };
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, ...ends };
    if (event.key === "Enter" && place >= 0) openDetail(points[place].id);
    const next = markers[place + steps[event.key]];
    if (!next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  const present = [...new Set(points.map(methodPlace))].sort((a, b) => a - b);
  return [root, legend(present.map((place) => [place, store.methods[place] ?? "unknown"])), told];
}

const methodPlace = (row) => (row.model ? store.methods.indexOf(row.model) : store.methods.length);

function legend(entries) {
  const sign = (place) => svg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, marker(place, 0, 0));
  const entry = ([place, name]) => el("li", {}, sign(place), name);
  return el("ul", { class: "legend", "aria-label": "Legend" }, entries.map(entry));
}

/* Compare */

async function showCompare() {
  const ids = state.compare.filter((id) => store.known.has(id));
  if (ids.length < 2) {
    const hint = `Tick “Compare” on two to ${MAX_COMPARED} checkpoints of the gallery to see them side by side.`;
    return byId("compare").replaceChildren(el("p", { class: "empty" }, hint));
  }
  const failed = (id) => (error) => ({ ...store.known.get(id), problem: error.message });
  const rows = await Promise.all(ids.map((id) => detailOf(id).catch(failed(id))));
  const isWanted = state.view === "compare" && ids.every((id) => state.compare.includes(id));
  if (isWanted) byId("compare").replaceChildren(comparison(rows));
}

function comparison(rows) {
  const line = (title, nodes) => el("tr", {}, el("th", { scope: "row" }, title), nodes);
  const wide = { colspan: rows.length + 1, class: "group", scope: "colgroup" };
  const group = (title) => el("tr", {}, el("th", wide, title));
  const head = rows.map((row) => {
    const named = { class: "quiet", "aria-label": `Remove ${nameOf(row)}` };
    const remove = button("Remove", () => toggleCompared(row.id), named);
    return el("th", { scope: "col" }, button(nameOf(row), () => openDetail(row.id), { class: "link" }), remove);
  });
  const each = (cell) => cells("td", rows.map(cell));
  const picture = (row) => {
    const url = row.pictures?.find((one) => one.url)?.url;
    return url ? el("img", { src: url, alt: `Picture of ${nameOf(row)}` }) : "no picture";
  };
  const facts = { model: "Method", dataset: "Data set", family: "Family", seed: "Seed", license: "Licence" };
  if (rows.some((row) => row.problem)) facts.problem = "Problem";
  const scores = store.scores.filter((score) => rows.some((row) => score in row.scores));
  const differing = differences(rows);
  const body = [
    line("Picture", each(picture)),
    ...Object.entries(facts).map(([name, title]) => line(title, each((row) => String(row[name] ?? "–")))),
    group("Scores"),
    ...scores.map((score) => line(label(score), scoreCells(rows, score))),
    group(differing.length ? "Arguments that differ" : "Their arguments do not differ"),
    ...differing.map((name) => line(name, each((row) => argument(row, name)))),
  ];
  return grid("Comparison", "compare", el("tr", {}, el("td"), head), body);
}

function scoreCells(rows, score) {
  const values = rows.map((row) => row.scores[score]);
  const known = values.filter((value) => value !== undefined);
  const best = store.lower.has(score) ? Math.min(...known) : Math.max(...known);
  return values.map((value) => {
    const isBest = known.length > 1 && value === best;
    const mark = isBest ? el("span", { class: "mark" }, " best") : null;
    return el("td", { class: isBest && "best" }, number(value), mark);
  });
}

const argument = (row, name) => (row.arguments && name in row.arguments ? JSON.stringify(row.arguments[name]) : "–");

function differences(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.arguments ?? {})))].sort();
  return names.filter((name) => new Set(rows.map((row) => argument(row, name))).size > 1);
}

/* Detail */

async function showDetail() {
  const id = state.open;
  if (shownDetail === id) return;
  shownDetail = id;
  const row = store.known.get(id);
  const back = button("← Back", closeDetail, { class: "quiet" });
  const title = el("h2", { tabindex: -1 }, row ? nameOf(row) : "No such checkpoint");
  const place = byId("detail");
  if (!row) {
    shownDetail = null;
    return place.replaceChildren(back, title, note("It may have moved, or the hub has not answered yet."));
  }
  place.replaceChildren(back, title, note("Loading…"));
  title.focus({ preventScroll: true });
  scrollTo(0, 0);
  let parts;
  try {
    parts = detailParts(await detailOf(id));
  } catch (error) {
    parts = [warning(error.message), section("Scores", scoreTable(row))];
  }
  if (shownDetail === id) place.replaceChildren(back, title, ...parts);
}

function detailParts(told) {
  const picked = () => (state.compare.includes(told.id) ? "Do not compare" : "Compare");
  const choose = button(picked(), () => {
    toggleCompared(told.id);
    choose.textContent = picked();
  });
  const files = Object.entries(told.files ?? {}).map(([name, size]) => [name, size.toLocaleString("en")]);
  return [
    el("div", { class: "row" }, choose, told.local || embedded ? null : downloadButton(told)),
    told.problem ? warning(told.problem) : null,
    factList(told),
    section("Load it", snippet(told.load)),
    latentsPart(told),
    el(
      "div",
      { class: "columns" },
      section("Scores", scoreTable(told)),
      el("div", {}, matrixPart(told), trainingPart(told.training ?? {})),
    ),
    picturesPart(told),
    section("Card", el("div", { class: "markdown" }, markdown(told.card ?? "", told.pictures ?? []))),
    argumentsPart(told.arguments),
    section("Files", table(["file", "bytes"], files)),
  ].filter(Boolean);
}

function factList(told) {
  const facts = {
    Method: told.model,
    "Data set": told.dataset,
    Family: told.family,
    Seed: told.seed,
    Licence: told.license ?? "not told",
    Where: told.sources.join(" + "),
    Changed: told.modified?.slice(0, 16).replace("T", " "),
    Size: sizeOf(told.bytes),
    Commit: told.commit,
    Folder: nameOf(told) === told.ref ? null : told.ref,
  };
  const known = Object.entries(facts).filter(([, value]) => value !== null && value !== undefined);
  const entry = ([name, value]) => {
    const isLong = String(value).length > 24;
    return el("div", { class: isLong && "whole" }, el("dt", {}, name), el("dd", {}, String(value)));
  };
  return el("dl", { class: "about" }, known.map(entry));
}

function table(head, rows) {
  const body = rows.map((row) => el("tr", {}, cells("td", row)));
  const top = el("thead", {}, el("tr", {}, cells("th", head)));
  return el("div", { class: "scroll" }, el("table", {}, top, el("tbody", {}, body)));
}

function scoreTable(told) {
  const spread = (score) => (`${score}_std` in told.scores ? ` ± ${number(told.scores[`${score}_std`])}` : "");
  const isSpread = (score) => score.endsWith("_std") && score.slice(0, -4) in told.scores;
  const names = Object.keys(told.scores).filter((score) => !isSpread(score));
  const rows = names.map((score) => [label(score), number(told.scores[score]) + spread(score)]);
  return rows.length ? table(["score", "value"], rows) : note("No scores. `unknot evaluate` measures them.");
}

function argumentsPart(told) {
  const rows = Object.entries(told ?? {}).map(([name, value]) => [name, JSON.stringify(value)]);
  return rows.length ? section("Arguments", table(["argument", "value"], rows)) : null;
}

function picturesPart(told) {
  const isInCard = (picture) => (told.card ?? "").includes(`](${picture.name})`);
  const pictures = (told.pictures ?? []).filter((picture) => picture.url && !isInCard(picture));
  if (!pictures.length) return null;
  const figure = ({ url, name }) =>
    el("figure", {}, el("img", { src: url, alt: name, loading: "lazy" }), el("figcaption", {}, name));
  return section("Pictures", el("div", { class: "pictures" }, pictures.map(figure)));
}

function snippet(code) {
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
  const block = el("code", {}, code);
  return el("div", { class: "snippet" }, el("pre", {}, block), copy);
}

function downloadButton(told) {
  const size = sizeOf(told.files?.["model.safetensors"] ?? told.bytes);
  const node = button(`Download${size ? ` (${size})` : ""}`, async () => {
    node.disabled = true;
    node.textContent = "Downloading…";
    try {
      const now = await (await post(address(told.id, "download"))).json();
      details.set(told.id, now);
      Object.assign(store.known.get(told.id), { local: true, thumbnail: now.thumbnail });
      cards.delete(told.id);
      shownDetail = null;
      schedule();
    } catch (error) {
      notify(error.message);
      node.disabled = false;
      node.textContent = "Download";
    }
  }, { class: "main" });
  return node;
}

/* Factor-code matrix and training curve */

function matrixPart(told) {
  const title = "Codes and factors";
  if (embedded) return told.matrix ? section(title, heatmap(told.matrix)) : null;
  if (told.latents === false) return null;
  if (!told.local) return section(title, note("Download the model to compute this."));
  const place = el("div");
  const ask = (text, kind) =>
    button(text, async (event) => {
      event.target.disabled = true;
      place.replaceChildren(note("Computing…"));
      try {
        place.replaceChildren(heatmap(await (await post(address(told.id, "matrix"), { kind })).json()));
      } catch (error) {
        place.replaceChildren(warning(error.message));
      }
      event.target.disabled = false;
    });
  const asks = [ask("Mutual information", "information"), ask("Tree importance (slow)", "importance")];
  return section(title, el("div", { class: "row" }, asks), place);
}

function heatmap(matrix) {
  const largest = Math.max(...matrix.values.flat(), 1e-12);
  const cell = (value) => {
    const node = el("td", { class: value > largest * 0.6 && "strong" }, value.toFixed(2));
    node.style.setProperty("--share", `${Math.round((100 * Math.max(value, 0)) / largest)}%`);
    return node;
  };
  const codes = matrix.values[0].map((_, code) => el("th", { scope: "col" }, `z${code}`));
  const line = (factor, place) => el("tr", {}, el("th", { scope: "row" }, factor), matrix.values[place].map(cell));
  const caption = el("caption", {}, `${matrix.title}, ${matrix.samples.toLocaleString("en")} samples`);
  return grid("Factor-code matrix", "heat", el("tr", {}, el("td"), codes), matrix.factors.map(line), caption);
}

function trainingPart(columns) {
  const terms = [...new Set(Object.keys(columns).map((name) => name.split("/").pop()))].sort();
  if (!terms.length) return null;
  const place = el("div");
  const draw = (term) => {
    const lines = Object.entries(columns).filter(([name]) => name.split("/").pop() === term);
    const points = lines.flatMap(([, values]) => values);
    const of = (axis) => points.map((point) => point[axis]);
    const { root, x, y } = chart(of(0), of(1), ["step", term], 560);
    lines.forEach(([, values], line) => {
      const path = values.map(([step, value]) => `${x(step)},${y(value)}`).join(" ");
      root.append(svg("polyline", { class: `curve ${colourOf(line)}`, points: path }));
      if (values.length < 3) root.append(...values.map(([step, value]) => marker(line, x(step), y(value))));
    });
    place.replaceChildren(root, legend(lines.map(([name], line) => [line, name])));
  };
  const first = terms.includes("loss") ? "loss" : terms[0];
  const named = { "aria-label": "Term of the training", change: (event) => draw(event.target.value) };
  draw(first);
  return section("Training", choice(terms.map((term) => [term, term]), first, named), place);
}

/* Latents */

function latentsPart(told) {
  if (told.latents === false) {
    return section("Latents", note(`${told.model} has no latent codes to move; its pictures show what it does.`));
  }
  if (embedded) {
    const missing = "Drawn for downloaded checkpoints only. `unknot browse` moves latents live.";
    if (!told.drawn) return section("Latents", note(told.undrawn ?? missing));
    const hint = note("Each code from −2 to 2. Move them live with `unknot browse`.");
    return section("Latents", hint, latentPanel(told.id, told.drawn));
  }
  if (!told.local) return section("Live latents", note("Download the model to move its latents."));
  const place = el("div");
  const begin = async (action, body) => {
    place.replaceChildren(note("Loading the model…"));
    try {
      place.replaceChildren(latentPanel(told.id, await (await post(address(told.id, action), body)).json()));
    } catch (error) {
      place.replaceChildren(warning(error.message));
    }
  };
  const start = (origin) => () => begin("start", { origin, seed: Math.floor(Math.random() * 2 ** 31) });
  const file = fileInput((chosen) => begin("upload", chosen));
  const row = el(
    "div",
    { class: "row" },
    "Start from",
    button(told.dataset ? `a random image of ${told.dataset}` : "a random image", start("data"), { class: "main" }),
    button("the prior", start("prior")),
    button("an image of yours…", () => file.click()),
    file,
  );
  return section("Live latents", row, place);
}

function fileInput(take) {
  const named = { class: "hidden", tabindex: -1, "aria-label": "Image to start from" };
  const change = (event) => {
    if (event.target.files[0]) take(event.target.files[0]);
    event.target.value = "";
  };
  return el("input", { type: "file", accept: "image/png,image/jpeg", change, ...named });
}

/* While one request is under way, only the newest of those that follow is made. */
function newestOnly(task) {
  let isBusy = false;
  let isAsked = false;
  return async () => {
    isAsked = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isAsked) {
        isAsked = false;
        await task();
      }
    } catch (error) {
      notify(error.message);
    } finally {
      isBusy = false;
    }
  };
}

function latentPanel(id, started) {
  const codes = [...started.codes];
  const now = el("img", { src: started.reconstruction, alt: "Image of these codes", class: "pixels", id: "decoded" });
  const stripOf = (src, code) => el("img", { src, alt: `What z${code} does from −2 to 2`, class: "strip" });
  const strips = started.strips.map(stripOf);
  const decode = newestOnly(async () => {
    const old = now.src;
    now.src = URL.createObjectURL(await (await post(address(id, "decode"), { codes })).blob());
    if (old.startsWith("blob:")) URL.revokeObjectURL(old);
  });
  const redraw = newestOnly(async () => {
    const told = await (await post(address(id, "strips"), { codes })).json();
    told.strips.forEach((src, code) => (strips[code].src = src));
  });
  const move = (code) => (value) => {
    codes[code] = value;
    decode();
  };
  const sliders = codes.map((value, code) => sliderOf(code, value, move(code), redraw));
  const reset = button("Reset", () => {
    started.codes.forEach((value, code) => sliders[code].set(value));
    codes.splice(0, codes.length, ...started.codes);
    decode();
    redraw();
  });
  const line = (code) => {
    const title = el("span", { class: "code" }, `z${code}`, el("small", {}, `${started.kl[code].toFixed(2)} nats`));
    return el("li", {}, title, embedded ? null : sliders[code].node, strips[code]);
  };
  const images = [
    started.input ? imageOf(started.input, "Input") : null,
    imageOf(started.reconstruction, started.input ? "Reconstruction" : "Start"),
    ...(embedded ? [] : [el("figure", { class: "now" }, now, el("figcaption", {}, "Now")), reset]),
  ];
  const lists = codeLists(started, line);
  return el("div", { class: embedded ? "latents still" : "latents" }, el("div", { class: "images" }, images), lists);
}

function codeLists(started, line) {
  const active = started.order.filter((code) => !started.inactive.includes(code));
  const idle = started.order.filter((code) => started.inactive.includes(code));
  const lists = el("div", { class: "codes" }, el("ol", {}, active.map(line)));
  if (idle.length) {
    const title = `${idle.length} inactive (KL below 0.01 nats): they tell nothing about the image`;
    lists.append(el("details", { open: !active.length }, el("summary", {}, title), el("ol", {}, idle.map(line))));
  }
  return lists;
}

function imageOf(src, caption) {
  return el("figure", {}, el("img", { src, alt: caption, class: "pixels" }), el("figcaption", {}, caption));
}

function sliderOf(code, value, move, settle) {
  const reach = Math.max(3, Math.ceil(Math.abs(value)));
  const shown = el("output");
  const bounds = { type: "range", min: -reach, max: reach, step: 0.05 };
  const slide = () => {
    shown.textContent = input.valueAsNumber.toFixed(2);
    move(input.valueAsNumber);
  };
  const input = el("input", { ...bounds, "aria-label": `z${code}`, "data-code": code, change: settle, input: slide });
  const set = (to) => {
    input.value = to;
    shown.textContent = to.toFixed(2);
  };
  set(value);
  return { node: el("span", { class: "slider" }, input, shown), set };
}

/* Markdown of strangers: headings, lists, tables, code, bold, links to the web, pictures of the repository */

function markdown(text, pictures) {
  const lines = text.slice(0, CARD_LIMIT).split(/\r?\n/);
  const blocks = [];
  while (lines.length) blocks.push(...[takeBlock(lines, pictures)].filter(Boolean));
  if (text.length > CARD_LIMIT) blocks.push(note("The card goes on; this is its beginning."));
  return blocks.length ? blocks : [note("No card.")];
}

function takeWhile(lines, wanted) {
  const end = lines.findIndex((line) => !wanted(line));
  return lines.splice(0, end < 0 ? lines.length : end);
}

const isItem = (line) => /^\s*([-*+]|\d{1,9}[.)])\s/.test(line);
const isTable = (line) => line.trimStart().startsWith("|");
const isHeading = (line) => /^#{1,6}\s/.test(line);
const isFence = (line) => line.startsWith("```");
const isProse = (line) => line.trim() && !isItem(line) && !isTable(line) && !isHeading(line) && !isFence(line);

function takeBlock(lines, pictures) {
  const inside = (text) => inline(text, pictures);
  const line = lines[0];
  if (!line.trim()) return void lines.shift();
  if (isFence(line)) {
    lines.shift();
    const code = takeWhile(lines, (one) => !isFence(one));
    lines.shift();
    return el("pre", {}, el("code", {}, code.join("\n")));
  }
  if (isHeading(line)) {
    const marks = line.indexOf(" ") < 0 ? 1 : line.trim().match(/^#+/)[0].length;
    return el(`h${Math.min(marks + 3, 6)}`, {}, inside(lines.shift().replace(/^#+/, "").trim()));
  }
  if (isTable(line)) return tableOf(takeWhile(lines, isTable), inside);
  if (isItem(line)) {
    const items = takeWhile(lines, isItem).map((one) => el("li", {}, inside(one.trim().replace(/^\S+\s+/, ""))));
    return el(/^\s*\d/.test(line) ? "ol" : "ul", {}, items);
  }
  if (/^\s*([-*_])\1\1+\s*$/.test(line)) {
    lines.shift();
    return el("hr");
  }
  return el("p", {}, inside(takeWhile(lines, isProse).join(" ")));
}

function tableOf(lines, inside) {
  const cells = lines.map((line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
  const isRule = (row) => row.every((cell) => /^:?-+:?$/.test(cell));
  const hasHead = cells.length > 1 && isRule(cells[1]);
  const rows = cells.filter((row) => !isRule(row)).map((row) => row.map(inside));
  return hasHead ? table(rows[0], rows.slice(1)) : table([], rows);
}

function inline(text, pictures) {
  const nodes = [];
  const mark = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|(!?)\[([^\][]*)\]\(([^()\s]*)\)/;
  let rest = text;
  for (let found = mark.exec(rest); found; found = mark.exec(rest)) {
    nodes.push(rest.slice(0, found.index));
    rest = rest.slice(found.index + found[0].length);
    if (found[1] !== undefined) nodes.push(el("code", {}, found[1]));
    else if (found[2] !== undefined) nodes.push(el("strong", {}, found[2]));
    else if (found[3] !== undefined) nodes.push(el("em", {}, found[3]));
    else nodes.push(found[4] ? cardPicture(found[5], found[6], pictures) : cardLink(found[5], found[6]));
  }
  return [...nodes, rest];
}

function cardLink(text, target) {
  if (!/^https?:\/\//i.test(target) || !URL.canParse(target)) return text;
  return el("a", { href: target, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
}

function cardPicture(text, target, pictures) {
  const known = pictures.find((picture) => picture.name === target && picture.url);
  if (!known) return el("span", { class: "facts" }, `[picture: ${text || target}]`);
  return el("img", { src: known.url, alt: text, loading: "lazy" });
}

/* What people do */

function isTyping(target) {
  return target.matches?.("input, select, textarea") && target.type !== "checkbox";
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !byId("notice").hidden) byId("notice").hidden = true;
  else if (event.key === "Escape" && state.view === "detail") closeDetail();
  else if (event.key === "Escape" && state.view !== "gallery") show("gallery");
  else if (event.key === "/" && !isTyping(event.target)) {
    event.preventDefault();
    if (byId("filters").hidden) show("gallery");
    byId("filters").hidden = false;
    byId("filters").elements.q.focus();
  }
}

async function refresh() {
  byId("refresh").disabled = true;
  try {
    take(await (await post("api/refresh")).json());
    details.clear();
  } catch (error) {
    notify(error.message);
  }
  byId("refresh").disabled = false;
}

function connect() {
  const form = byId("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.q.addEventListener("input", (event) => update({ q: event.target.value }));
  for (const name of ["dataset", "method", "family", "source", "sort"])
    form.elements[name].addEventListener("change", (event) => update({ [name]: event.target.value }));
  form.elements.bound.addEventListener("change", setMinimum);
  form.elements.least.addEventListener("input", setMinimum);
  byId("turn").addEventListener("click", () => update({ turned: !state.turned }));
  for (const tab of document.querySelectorAll("[data-view]"))
    tab.addEventListener("click", () => show(tab.dataset.view));
  byId("refresh").addEventListener("click", refresh);
  byId("refresh").hidden = Boolean(embedded);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  addEventListener("keydown", onKey);
  addEventListener("resize", schedule);
  addEventListener("popstate", () => {
    state = readHash();
    schedule();
  });
}

connect();
loadList().catch((error) => notify(error.message));
