import { button, byId, el, note, notify, number, section, sizeOf, snippet, table, warning } from "./dom.js";
import { markdown } from "./markdown.js";

/* The pages of a hub: an index with search, and one page for each repository. What they show comes from the hub's API,
   the same that every client uses; a token is kept for this tab alone. */

const PAGE = 100;
const MAX_CARD = 1 << 20;
const token = () => sessionStorage.getItem("token") ?? "";

async function ask(path, limit = Infinity) {
  const headers = token() ? { authorization: `Bearer ${token()}` } : {};
  const response = await fetch(path, { headers });
  if (!response.ok) {
    const record = await response.json().catch(() => ({}));
    throw new Error(record.error ?? `The hub refused (${response.status}).`);
  }
  if (Number(response.headers.get("content-length")) > limit) throw new Error("This file is too long to be shown.");
  return response;
}

const json = async (path) => (await ask(path)).json();
const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : undefined);
const list = (value) => (Array.isArray(value) ? value : []);
const dateOf = (text) => String(text ?? "").slice(0, 16).replace("T", " ");

function scoresOf(card) {
  const found = new Map();
  for (const model of list(own(card, "model-index")))
    for (const result of list(model?.results))
      for (const metric of list(result?.metrics))
        if (typeof metric?.type === "string" && Number.isFinite(metric.value) && !found.has(metric.type))
          found.set(metric.type, { name: String(metric.name ?? metric.type), value: metric.value, how: result.dataset?.args ?? metric.args });
  return found;
}

function scoreRows(scores) {
  const rows = [];
  for (const [type, { name, value }] of scores) {
    if (type.endsWith("_std") && scores.has(type.slice(0, -4))) continue;
    const around = scores.get(`${type}_std`);
    rows.push([name, el("span", { class: "number" }, number(value) + (around ? ` ± ${number(around.value)}` : ""))]);
  }
  return rows;
}

/* The index */

async function showIndex() {
  const query = new URLSearchParams(location.search);
  const box = el("input", { type: "search", name: "search", value: query.get("search") ?? "", placeholder: "name ( / )", "aria-label": "Search" });
  const place = el("div");
  let asked = 0;
  const search = async () => {
    const mine = ++asked;
    history.replaceState(null, "", box.value ? `/?search=${encodeURIComponent(box.value)}` : "/");
    try {
      const record = await json(`/api/models?limit=${PAGE}&search=${encodeURIComponent(box.value)}`);
      if (mine !== asked) return;
      byId("status").textContent = record.length === PAGE ? `the ${PAGE} newest` : `${record.length} repositories`;
      place.replaceChildren(record.length ? indexTable(record) : note("Nothing here."));
      document.body.dataset.shown = String(record.length);
    } catch (error) {
      place.replaceChildren(warning(error.message));
    }
  };
  box.addEventListener("input", search);
  const use = `export HF_ENDPOINT=${location.origin}\nunknot hub list\nunknot hub push my-model USER/NAME`;
  byId("main").replaceChildren(el("div", { class: "row" }, box), place, section("Use it", snippet(use)));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === box) return;
    event.preventDefault();
    box.focus();
  });
  await search();
}

function indexTable(rows) {
  const [counts, names] = [new Map(), new Map()];
  const scored = rows.map((row) => [row, scoresOf(row.cardData)]);
  for (const [, scores] of scored)
    for (const [type, { name }] of scores) {
      if (type.endsWith("_std")) continue;
      counts.set(type, (counts.get(type) ?? 0) + 1);
      names.set(type, name.slice(0, 40));
    }
  const shown = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, 4); // ties: as cards list them
  const line = ([row, scores]) => {
    const about = own(row.cardData, "unknot") ?? {};
    return [
      el("a", { href: `/${row.id}` }, row.id, row.private ? " (private)" : ""),
      String(about.model ?? "–"),
      String(about.dataset ?? "–"),
      ...shown.map((type) => number(scores.get(type)?.value)),
      el("span", { class: "number" }, dateOf(row.lastModified)),
    ];
  };
  return table(["name", "model", "data set", ...shown.map((type) => names.get(type)), "changed"], scored.map(line));
}

/* A repository */

async function showRepository(id, revision) {
  const at = revision ?? "main";
  document.title = `${id} · unknot hub`;
  const [info, tree, commits] = await Promise.all([
    json(`/api/models/${id}/revision/${at}`),
    json(`/api/models/${id}/tree/${at}?recursive=true`),
    json(`/api/models/${id}/commits/${at}`),
  ]);
  const files = tree.filter((file) => file.type === "file");
  const address = (path) => `/${id}/resolve/${info.sha}/${path.split("/").map(encodeURIComponent).join("/")}`;
  const pictures = files.filter((file) => /^pictures\/[\w.-]+\.png$/.test(file.path) && file.size <= 10 << 20).slice(0, 20);
  const shown = await Promise.all(pictures.map(async ({ path }) => ({ name: path, url: await pictureOf(address(path)) })));
  const scores = scoresOf(info.cardData);
  const how = [...scores.values()].find((one) => one.how)?.how;
  const protocol = how ? note(`Measured with ${Object.entries(how).map(([key, value]) => `${key} ${value}`).join(", ")}`) : null;
  byId("status").textContent = `${info.private ? "private" : "public"} · ${dateOf(info.lastModified)}`;
  const load = `from unknot.hub import load\n\nmodel = load("${id}@${info.sha}")`;
  byId("main").replaceChildren(
    el("h2", {}, id, revision ? el("small", {}, ` at ${revision.slice(0, 12)}`) : null),
    el("p", { class: "tags" }, list(info.tags).slice(0, 30).map((tag) => el("span", { class: "tag" }, tag))),
    section("Load it", snippet(load)),
    el("div", { class: "columns" },
      section("Scores", scores.size ? table(["score", "value"], scoreRows(scores)) : note("No scores."), protocol),
      section("Commits", commitTable(id, commits)),
    ),
    section("Card", el("div", { class: "markdown" }, markdown(await cardOf(files, address), shown))),
    section("Files", fileTable(files, address)),
  );
}

async function pictureOf(path) {
  try {
    const content = await (await ask(path, 10 << 20)).arrayBuffer();
    return URL.createObjectURL(new Blob([content], { type: "image/png" }));
  } catch {
    return null;
  }
}

async function cardOf(files, address) {
  const card = files.find((file) => file.path === "README.md");
  if (!card || card.size > MAX_CARD) return "";
  const text = await (await ask(address("README.md"), MAX_CARD)).text();
  return text.replace(/^---[ \t]*\r?\n[^]*?^---[ \t]*\r?\n/m, "");
}

function fileTable(files, address) {
  const line = ({ path, size }) => {
    const save = button("Save", async () => {
      try {
        const url = URL.createObjectURL(await (await ask(address(path))).blob());
        el("a", { href: url, download: path.split("/").pop() }).click();
        setTimeout(() => URL.revokeObjectURL(url), 60_000);
      } catch (error) {
        notify(error.message);
      }
    }, { class: "link", "aria-label": `Save ${path}` });
    return [path, sizeOf(size), save];
  };
  return table(["file", "size", ""], files.map(line));
}

function commitTable(id, commits) {
  const line = ({ id: oid, title, date, authors }) => [
    el("a", { href: `/${id}/commit/${oid}` }, oid.slice(0, 7)),
    title,
    list(authors)[0]?.user ?? "",
    el("span", { class: "number" }, dateOf(date)),
  ];
  return table(["commit", "what", "by", "when"], commits.slice(0, 50).map(line));
}

function login() {
  const box = el("input", { type: "password", autocomplete: "off", "aria-label": "Token of this hub", value: token() });
  const submit = (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", box.value.trim());
    location.reload();
  };
  const user = el("input", { type: "text", autocomplete: "username", value: location.host, hidden: true });
  const about = "Token, until this tab is closed: ";
  byId("notice").replaceChildren(el("form", { submit, class: "row" }, about, user, box, el("button", {}, "Use")));
  byId("notice").hidden = false;
  box.focus();
}

async function main() {
  byId("login").addEventListener("click", login);
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  try {
    if (parts.length >= 2) await showRepository(`${parts[0]}/${parts[1]}`, parts[3]);
    else await showIndex();
  } catch (error) {
    byId("main").replaceChildren(warning(error.message), note("A private repository needs a token: “Use a token…” above."));
  }
  document.body.dataset.ready = "1";
}

main();
