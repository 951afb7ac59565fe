import { embedded, get, writtenDetail } from "./server.js";

/* The checkpoints and the state of the page. The state is in the address, so that it can be shared. */

export const MAX_COMPARED = 8;
export const BEST = "best";
export const SORTS = new Map([
  [BEST, "Best of each data set"],
  ["ref", "Name"],
  ["modified", "Date"],
  ["bytes", "Size"],
  ["model", "Method"],
  ["dataset", "Data set"],
  ["seed", "Seed"],
]);
export const FIELDS = new Map([
  ["dataset", "dataset"],
  ["method", "model"],
  ["family", "family"],
]);
/* Arguments that differ between trainings of one setting. */
const IGNORED = new Set(["seed", "status", "job", "steps", "seed_everything", "core_seconds", "commit"]);
const VIEWS = ["gallery", "table", "scatter", "curves", "compare", "detail"];
const TEXTS = ["q", "dataset", "method", "family", "source", "tag", "x", "y", "open", "columns", "term", "smooth"];
/* State of an open checkpoint: its latents, or its scene with slots and iterations. */
const OPENED = ["z", "scene", "slots", "iterations"];
const SWITCHES = ["turned", "grouped", "log"];

export const store = { checkpoints: [], known: new Map(), facts: {}, default: [], scores: [], main: [], settings: [] };
export const page = { state: readHash(), lastList: "gallery", shownDetail: null, returnTo: null, render: () => {} };
const details = new Map();

/* Names come from strangers: `toString` is no score unless somebody has one. */
export const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
export const score = (row, name) => own(row.scores, name);
export const spread = (row, name) => own(row.std, name);
/* Title, direction and rank of a score are the server's to tell. */
export const label = (name) => own(store.facts, name)?.title ?? name;
export const distinct = (field) => [...new Set(store.checkpoints.map((row) => row[field]).filter(Boolean))].sort();
export const isLower = (name) => own(store.facts, name)?.better === "lower";

/* A job of a study is called by what it trains; its folder is named for a hash. */
export function nameOf(row) {
  if (row.study) return row.title;
  return row.sources.includes("folder") ? row.ref.split(/[\\/]/).slice(-2).join("/") : row.ref;
}

export async function detailOf(id) {
  if (!details.has(id)) details.set(id, await (embedded ? writtenDetail(id) : get(`api/checkpoints/${id}`)));
  const record = details.get(id);
  if (record.error) throw new Error(record.error);
  return { ...store.known.get(id), ...record };
}

export function learn(record) {
  details.set(record.id, record);
  const row = store.known.get(record.id);
  if (row) Object.assign(row, Object.fromEntries(Object.keys(row).map((name) => [name, record[name] ?? row[name]])));
  page.shownDetail = null;
  store.version++;
  schedule();
}

export const forget = () => details.clear();

export function take(listed) {
  const text = JSON.stringify(listed);
  if (text === store.text) return false;
  const counts = new Map();
  const values = new Map();
  for (const row of listed.checkpoints) {
    for (const name of Object.keys(row.scores)) counts.set(name, (counts.get(name) ?? 0) + 1);
    for (const [name, value] of Object.entries(row.arguments ?? {}))
      values.set(name, (values.get(name) ?? new Set()).add(JSON.stringify(value)));
    row.text = [row.ref, row.title, row.study, row.model, row.dataset, row.family, row.license, ...(row.tags ?? [])].join(" ").toLowerCase();
  }
  const rank = (name) => own(listed.facts, name)?.rank ?? Infinity;
  const scores = [...counts.keys()].sort(
    (a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : counts.get(b) - counts.get(a) || a.localeCompare(b)),
  );
  const settings = [...values.keys()].sort((a, b) => values.get(b).size - values.get(a).size || a.localeCompare(b));
  const varying = settings.filter((name) => values.get(name).size > 1 && !IGNORED.has(name));
  const before = store.known.get(page.state.open);
  if (before && listed.checkpoints.some((row) => row.id === before.id && String(row.capabilities) !== String(before.capabilities))) page.shownDetail = null;
  const main = scores.filter((name) => listed.default.includes(own(listed.facts, name)?.title));
  Object.assign(store, listed, { text, scores, settings, varying, main: main.length > 1 ? main : scores, known: new Map() });
  for (const row of store.checkpoints) store.known.set(row.id, row);
  store.methods = distinct("model");
  store.version = (store.version ?? 0) + 1;
  schedule();
  return true;
}

export function readHash() {
  const record = new URLSearchParams(location.hash.slice(1));
  const text = (name, fallback = "") => record.get(name) ?? fallback;
  const min = new Map();
  for (const bound of record.getAll("min")) {
    const [name, value] = bound.split(":");
    if (Number.isFinite(parseFloat(value))) min.set(name, parseFloat(value));
  }
  const state = { view: VIEWS.includes(text("view")) ? text("view") : "gallery", min, sort: text("sort", BEST) };
  for (const name of [...TEXTS, ...OPENED]) state[name] = text(name);
  for (const name of SWITCHES) state[name] = text(name) === "1";
  state.compare = text("compare").split(",").filter(Boolean).slice(0, MAX_COMPARED);
  return state;
}

export function hashOf(wanted) {
  const record = new URLSearchParams();
  for (const [name, value] of Object.entries(wanted)) {
    if (name === "min") for (const [bound, least] of value) record.append("min", `${bound}:${least}`);
    else if (name === "compare") value.length && record.set(name, value.join(","));
    else if (value && !(name === "view" && value === "gallery") && !(name === "sort" && value === BEST))
      record.set(name, value === true ? "1" : value);
  }
  return `#${record}`;
}

export function update(change, isStep = false) {
  page.state = { ...page.state, ...change };
  history[isStep ? "pushState" : "replaceState"](null, "", `${location.pathname}${hashOf(page.state)}`);
  schedule();
}

const unopened = Object.fromEntries(OPENED.map((name) => [name, ""]));
/* Into the address, if the checkpoint is open still. */
export const remember = (id, change) => page.state.open === id && update(change);
export const show = (view) => update({ view, open: "", ...unopened }, true);
export const openDetail = (id) => update({ view: "detail", open: id, ...unopened }, true);

export function closeDetail() {
  page.returnTo = page.state.open;
  show(page.lastList);
}

/* One render per frame, however often it is asked for */

let scheduled = false;

export function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    page.render();
  });
}

/* Filtering, sorting, grouping */

export function selected() {
  const { state } = page;
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  return store.checkpoints.filter(
    (row) =>
      words.every((word) => row.text.includes(word)) &&
      [...FIELDS].every(([name, field]) => !state[name] || row[field] === state[name]) &&
      (!state.source || row.sources.includes(state.source)) &&
      (!state.tag || row.tags?.includes(state.tag)) &&
      [...state.min].every(([name, least]) => score(row, name) >= least),
  );
}

export const seedsOf = ({ members, seed }) =>
  members?.length > 1 ? `${members.length} seeds` : String(members?.[0].seed ?? seed ?? "–");

/* Rows of tables have no pictures and no weights: among checkpoints they are shown where they are asked for. */
export function pictured(rows) {
  const others = rows.filter((row) => row.sources[0] !== "table");
  return page.state.source === "table" || !others.length ? rows : others;
}

export function valueOf(row, column) {
  if (column === "ref") return nameOf(row);
  if (SORTS.has(column)) return row[column];
  if (column.startsWith("arg:")) return own(row.arguments, column.slice(4));
  return score(row, column);
}

const inOrder = new Intl.Collator(undefined, { numeric: true }).compare; // #2 before #10

/* The score by which checkpoints of a data set are compared: the first of the main ones that they have. */
const bestScore = (row) => store.main.find((name) => score(row, name) !== undefined) ?? Object.keys(row.scores)[0];

/* By data set, the user's own first; within one by their main score. Rows of tables come after checkpoints. */
function bestFirst(rows, turned) {
  const sets = new Map();
  for (const row of rows) {
    const set = sets.get(row.dataset) ?? { own: false, count: 0 };
    sets.set(row.dataset, { own: set.own || row.own, count: set.count + 1 });
  }
  const order = [...sets].sort(([a, one], [b, other]) => other.own - one.own || !a - !b || other.count - one.count || inOrder(a ?? "", b ?? ""));
  const places = new Map(order.map(([name], place) => [name, place]));
  const keyOf = (row) => {
    const name = bestScore(row);
    const value = name === undefined ? 0 : score(row, name) * (isLower(name) === turned ? -1 : 1);
    const kind = name === undefined ? Infinity : store.scores.indexOf(name); // scores of other names do not compare
    return [row.sources[0] === "table", places.get(row.dataset), !row.own, Math.min(kind, 1e9), value, nameOf(row), row];
  };
  const keyed = rows.map(keyOf);
  keyed.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3] || a[4] - b[4] || inOrder(a[5], b[5]));
  return keyed.map((key) => key.at(-1));
}

export function sorted(rows, sort, turned) {
  if (sort === BEST) return bestFirst(rows, turned);
  const isScore = !SORTS.has(sort) && !sort.startsWith("arg:");
  const falls = (isScore ? !isLower(sort) : sort === "modified") !== turned;
  const keyed = rows.map((row) => [valueOf(row, sort) ?? null, nameOf(row), row]);
  keyed.sort(([first, one], [second, other]) => {
    if (first === null || second === null) return (first === null) - (second === null) || inOrder(one, other);
    const areNumbers = typeof first === "number" && typeof second === "number";
    const between = areNumbers ? first - second : inOrder(String(first), String(second));
    return (falls ? -between : between) || inOrder(one, other);
  });
  return keyed.map(([, , row]) => row);
}

/* Rows of the same setting become one: its scores are means over seeds, and their spread is that between seeds. */
export function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const settings = Object.entries(row.arguments ?? {}).filter(([name]) => !IGNORED.has(name));
    settings.sort(([a], [b]) => a.localeCompare(b));
    const key = JSON.stringify([row.model, row.dataset, settings]);
    if (!groups.has(key)) groups.set(key, { settings, members: [] });
    groups.get(key).members.push(row);
  }
  return [...groups.values()].map(({ settings, members }) => groupOf(settings, members));
}

function groupOf(settings, members) {
  const first = members[0];
  const [scores, std] = [{}, {}];
  for (const name of new Set(members.flatMap((row) => Object.keys(row.scores)))) {
    const values = members.map((row) => score(row, name)).filter((value) => value !== undefined);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    scores[name] = mean;
    if (values.length > 1)
      std[name] = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
  }
  const record = settings.filter(([name]) => store.varying.includes(name)).map(([name, value]) => `${name} ${value}`);
  const name = [first.model ?? "?", ...record].join(", ");
  const about = { ref: name, sources: ["group"], seed: null, members };
  return { ...first, ...about, arguments: Object.fromEntries(settings), scores, std };
}
