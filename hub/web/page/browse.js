import { showCompare } from "./compare.js";
import { showCurves } from "./curves.js";
import { showDetail } from "./detail.js";
import { button, byId, el, notify } from "./dom.js";
import { showGallery } from "./gallery.js";
import { showRows } from "./rows.js";
import { showScatter } from "./scatter.js";
import { embedded, get, post } from "./server.js";
import { FIELDS, MAX_COMPARED, SORTS, closeDetail, distinct, forget, label, page, readHash, schedule, selected, show, store, take, update } from "./state.js";

const LISTS = ["gallery", "table", "scatter", "curves"];
const isList = () => LISTS.includes(page.state.view);
const SECTIONS = { gallery: "gallery", table: "rows", scatter: "scatter", curves: "curves", compare: "compare", detail: "detail" };

async function loadList() {
  const listed = embedded ?? (await get("api/checkpoints"));
  if (take(listed)) fillFilters();
  if (!listed.ready && !embedded) setTimeout(() => loadList().catch((error) => notify(error.message)), 800);
}

/* Filters */

function fillFilters() {
  const form = byId("filters").elements;
  const choose = (name, options, first) => {
    const entries = options.map(([value, text]) => el("option", { value }, text));
    form[name].replaceChildren(...(first ? [el("option", { value: "" }, first)] : []), ...entries);
  };
  const same = (values) => values.map((value) => [value, value]);
  const all = (read) => same([...new Set(store.checkpoints.flatMap(read))].sort());
  const scores = store.scores.map((name) => [name, label(name)]);
  const settings = store.varying.map((name) => [`arg:${name}`, name]);
  for (const [name, field] of FIELDS) choose(name, same(distinct(field)), "all");
  choose("source", all((row) => row.sources), "all");
  choose("tag", all((row) => row.tags ?? []), "all");
  choose("bound", scores, "any score");
  choose("sort", [...SORTS, ...settings, ...scores]);
}

function hasFilters() {
  const { q, dataset, method, family, source, tag, min } = page.state;
  return Boolean(q || dataset || method || family || source || tag || min.size);
}

function clearFilters() {
  byId("filters").reset();
  update({ q: "", dataset: "", method: "", family: "", source: "", tag: "", min: new Map() });
}

function setMinimum() {
  const { bound, least } = byId("filters").elements;
  if (!bound.value || least.value === "" || !Number.isFinite(least.valueAsNumber)) return;
  update({ min: new Map(page.state.min).set(bound.value, least.valueAsNumber) });
}

function removeMinimum(name) {
  const min = new Map(page.state.min);
  min.delete(name);
  byId("filters").elements.least.value = "";
  update({ min });
}

function showFilters() {
  const { state } = page;
  const form = byId("filters").elements;
  for (const name of ["q", "dataset", "method", "family", "source", "tag", "sort"])
    if (form[name].value !== state[name]) form[name].value = state[name];
  form.tag.closest("label").hidden = form.tag.options.length < 2;
  byId("turn").textContent = state.turned ? "↑" : "↓";
  byId("turn").setAttribute("aria-pressed", state.turned);
  const chips = [...state.min].map(([name, least]) => {
    const named = { "aria-label": `Remove minimum of ${label(name)}` };
    return button(`${label(name)} ≥ ${least} ×`, () => removeMinimum(name), named);
  });
  if (hasFilters()) chips.push(button("Clear filters", clearFilters, { class: "quiet" }));
  byId("chips").replaceChildren(...chips);
}

/* Drawing */

function render() {
  const { state } = page;
  const rows = selected();
  showStatus(rows.length);
  showFilters();
  for (const [view, id] of Object.entries(SECTIONS)) byId(id).hidden = state.view !== view;
  for (const tab of document.querySelectorAll("[data-view]"))
    tab.setAttribute("aria-current", state.view === tab.dataset.view ? "page" : "false");
  if (state.view !== "detail") {
    page.lastList = state.view;
    page.shownDetail = null;
    byId("detail").dataset.id = "";
  }
  byId("filters").hidden = byId("chips").hidden = !isList();
  byId("sorting").hidden = state.view !== "gallery";
  byId("empty").hidden = !isList() || rows.length > 0;
  if (isList() && !rows.length) showEmpty();
  showTray();
  const views = {
    gallery: () => showGallery(rows, toggleCompared),
    table: () => showRows(rows, toggleCompared),
    scatter: () => showScatter(rows),
    curves: () => showCurves(rows),
    compare: () => showCompare(toggleCompared),
    detail: () => showDetail(toggleCompared),
  };
  views[state.view]();
  document.body.dataset.rendered = String(Number(document.body.dataset.rendered ?? 0) + 1);
}

function showStatus(count) {
  const total = store.checkpoints.length;
  const lines = store.checkpoints.filter((row) => row.sources[0] === "table").length;
  const named = lines ? `${total - lines} checkpoints and ${lines.toLocaleString("en")} rows of tables` : `${total} checkpoints`;
  const shown = count === total || !isList() ? named : `${count.toLocaleString("en")} of ${named}`;
  const about = new Map([
    ["asking", "asking the hub…"],
    ["listed", `hub: ${store.note}`],
    ["offline", "on this machine (offline)"],
    ["stale", "the hub's last list (it does not answer now)"],
  ]);
  const record = embedded ? "models run in this browser" : (about.get(store.remote) ?? "");
  const text = `${shown} · ${record}`;
  if (byId("status").textContent !== text) byId("status").textContent = text;
  byId("status").title = store.note ?? "";
  byId("status").dataset.remote = embedded ? "" : store.remote;
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
  const count = page.state.compare.length;
  byId("tray").hidden = !count || page.state.view === "compare";
  byId("tray").replaceChildren(
    el("span", {}, count === 1 ? "1 chosen; add another" : `${count} chosen`),
    button("Compare", () => show("compare"), { class: "main", disabled: count < 2 }),
    button("Curves", () => show("curves")),
    button("Clear", () => update({ compare: [] }), { class: "quiet" }),
  );
}

function toggleCompared(id) {
  const { compare } = page.state;
  if (compare.includes(id)) return update({ compare: compare.filter((one) => one !== id) });
  if (compare.length === MAX_COMPARED) {
    notify(`At most ${MAX_COMPARED} can be compared. Take one away first.`);
    return schedule();
  }
  return update({ compare: [...compare, id] });
}

/* Events */

function isTyping(target) {
  return target.matches?.("input, select, textarea") && target.type !== "checkbox";
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !byId("notice").hidden) byId("notice").hidden = true;
  else if (event.key === "Escape" && page.state.view === "detail") closeDetail();
  else if (event.key === "Escape" && page.state.view !== "gallery") show("gallery");
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
    if (take(await (await post("api/refresh")).json())) fillFilters();
    forget();
  } catch (error) {
    notify(error.message);
  }
  byId("refresh").disabled = false;
}

/* An address that opens the page once more, in another browser or on a phone. */
async function openElsewhere() {
  try {
    const { key } = await (await post("api/key")).json();
    notify(`For another browser, once: ${location.origin}/?key=${key}`);
  } catch (error) {
    notify(error.message);
  }
}

function connect() {
  const form = byId("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.q.addEventListener("input", (event) => update({ q: event.target.value }));
  for (const name of ["dataset", "method", "family", "source", "tag", "sort"])
    form.elements[name].addEventListener("change", (event) => update({ [name]: event.target.value }));
  form.elements.bound.addEventListener("change", setMinimum);
  form.elements.least.addEventListener("input", setMinimum);
  byId("turn").addEventListener("click", () => update({ turned: !page.state.turned }));
  for (const tab of document.querySelectorAll("[data-view]"))
    tab.addEventListener("click", () => show(tab.dataset.view));
  byId("filtering").addEventListener("click", () => {
    const isOpen = form.classList.toggle("open");
    byId("filtering").setAttribute("aria-expanded", isOpen);
  });
  byId("refresh").addEventListener("click", refresh);
  byId("refresh").hidden = byId("elsewhere").hidden = Boolean(embedded);
  byId("elsewhere").addEventListener("click", openElsewhere);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  addEventListener("keydown", onKey);
  addEventListener("resize", schedule);
  addEventListener("popstate", () => {
    page.state = readHash();
    page.shownDetail = null; // another address may show the same checkpoint with other latents
    schedule();
  });
}

/* The key in the address has done its work; it must not stay in the history. */
if (!embedded && location.search) history.replaceState(null, "", `${location.pathname}${location.hash}`);
page.render = render;
connect();
loadList().catch((error) => notify(error.message));
