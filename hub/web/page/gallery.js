import { brokenName, byId, button, el, note, number, warning } from "./dom.js";
import { BEST, SORTS, hashOf, label, nameOf, openDetail, page, pictured, score, sorted, spread, store, update } from "./state.js";

const MAIN_SCORES = 3;
const SHOWN = 120;
const cards = new Map();
let limit = SHOWN;

function thumbnail(row) {
  const none = () => el("div", { class: "thumb none", "aria-hidden": "true" }, row.model ?? "?");
  if (!row.thumbnail) return none();
  const image = el("img", { class: "thumb", src: row.thumbnail, alt: "", loading: "lazy", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(none()));
  return image;
}

function scoreList(row, scores) {
  const common = scores.filter((name) => score(row, name) !== undefined);
  const known = common.length ? common : Object.keys(row.scores).slice(0, MAIN_SCORES); // other models, other scores
  const value = (name) => number(score(row, name)) + (spread(row, name) === undefined ? "" : ` ± ${number(spread(row, name))}`);
  const cell = (name) => el("div", {}, el("dt", {}, label(name)), el("dd", { title: value(name) }, number(score(row, name))));
  return known.length ? el("dl", { class: "scores" }, known.map(cell)) : null;
}

function makeCard(row, scores, toggle) {
  const named = { "aria-label": `Compare ${nameOf(row)}` };
  const box = el("input", { type: "checkbox", change: () => toggle(row.id), ...named });
  const link = el("a", { href: hashOf({ ...page.state, view: "detail", open: row.id }), title: row.ref }, brokenName(nameOf(row)));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openDetail(row.id);
  });
  const card = el("li", { class: "card", "data-id": row.id }, thumbnail(row), el("h2", {}, link));
  const tags = (row.tags ?? []).map((tag) => el("span", { class: "tag" }, tag));
  card.append(
    note([row.model, row.dataset, row.sources.join("+")].filter(Boolean).join(" · ")),
    ...(tags.length ? [el("p", { class: "tags" }, tags)] : []),
    ...[scoreList(row, scores)].filter(Boolean),
    ...(row.training ? [el("p", { class: "facts live" }, "training now")] : []),
    ...(row.problem && !row.training ? [warning(row.problem)] : []),
    el("label", { class: "pick" }, box, "Compare"),
  );
  return { card, box };
}

const headings = new Map();

/* A line before the first checkpoint of each data set. */
function withHeadings(rows, nodes) {
  const starts = rows.slice(0, nodes.length).flatMap((row, place) => (place && rows[place - 1].dataset === row.dataset ? [] : [[place, row.dataset ?? "No data set"]]));
  if (starts.length < 2) return;
  for (const [place, name] of starts.reverse()) {
    if (!headings.has(name)) headings.set(name, el("li", { class: "heading" }, name));
    nodes.splice(place, 0, headings.get(name));
  }
}

export function showGallery(rows, toggle) {
  const { state } = page;
  const first = SORTS.has(state.sort) || state.sort.startsWith("arg:") ? [] : [state.sort];
  const scores = [...new Set([...first, ...state.min.keys(), ...store.main, ...store.scores])].slice(0, MAIN_SCORES);
  const drawn = `${store.version} ${scores.join()}`;
  if (cards.drawn !== drawn) cards.clear();
  cards.drawn = drawn;
  const asked = JSON.stringify([state.q, state.dataset, state.method, state.family, state.source, state.tag, state.sort]);
  if (cards.asked !== asked) limit = SHOWN;
  cards.asked = asked;
  const shown = sorted(pictured(rows), state.sort, state.turned);
  const nodes = shown.slice(0, limit).map((row) => {
    if (!cards.has(row.id)) cards.set(row.id, makeCard(row, scores, toggle));
    const { card, box } = cards.get(row.id);
    box.checked = state.compare.includes(row.id);
    return card;
  });
  if (state.sort === BEST) withHeadings(shown, nodes);
  const list = byId("cards");
  if (nodes.length !== list.children.length || nodes.some((node, place) => node !== list.children[place]))
    list.replaceChildren(...nodes);
  const more = () => {
    limit += SHOWN;
    update({});
  };
  const rest = shown.length - Math.min(shown.length, limit);
  const away = rows.length - shown.length;
  byId("more").replaceChildren(
    ...(rest > 0 ? [button(`Show ${Math.min(rest, SHOWN)} more of ${rest}`, more)] : []),
    ...(away ? [note(`${away.toLocaleString("en")} rows of tables of results are under Table and Scatter.`)] : []),
  );
  if (page.returnTo) cards.get(page.returnTo)?.card.querySelector("a").focus();
  page.returnTo = null;
}
