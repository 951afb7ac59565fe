import { trainingPart } from "./curves.js";
import { byId, button, el, grid, note, notify, number, section, sizeOf, snippet, table, warning } from "./dom.js";
import { latentsPart } from "./latents.js";
import { markdown } from "./markdown.js";
import { matricesPart, scenesPart } from "./scenes.js";
import { address, embedded, get, post } from "./server.js";
import { closeDetail, detailOf, label, learn, nameOf, page, schedule, score, spread, store, update } from "./state.js";

export async function showDetail(toggle) {
  const id = page.state.open;
  if (page.shownDetail === id) return;
  page.shownDetail = id;
  const row = store.known.get(id);
  const back = button("← Back", closeDetail, { class: "quiet" });
  const title = el("h2", { tabindex: -1 }, row ? nameOf(row) : "No such checkpoint");
  const place = byId("detail");
  if (!row) {
    page.shownDetail = null;
    return place.replaceChildren(back, title, note("It may have moved, or the hub has not answered yet."));
  }
  const isNew = place.dataset.id !== id;
  place.dataset.id = id;
  if (isNew) {
    place.replaceChildren(back, title, note("Loading…"));
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  let parts;
  try {
    parts = detailParts(await detailOf(id), toggle);
  } catch (error) {
    parts = [warning(error.message), section("Scores", scoreTable(row))];
  }
  if (page.shownDetail === id) place.replaceChildren(back, title, ...parts);
}

const can = (record, capability) => record.capabilities.includes(capability);
const hasLatents = (record) => can(record, "codes") && can(record, "decode");

function livePart(record) {
  if (hasLatents(record)) return latentsPart(record);
  if (can(record, "reasoning")) return matricesPart(record);
  return can(record, "slots") || can(record, "sets") ? scenesPart(record) : null;
}

function detailParts(record, toggle) {
  const picked = () => (page.state.compare.includes(record.id) ? "Do not compare" : "Compare");
  const choose = button(picked(), () => {
    toggle(record.id);
    choose.textContent = picked();
  });
  const files = Object.entries(record.files ?? {}).map(([name, size]) => [name, size.toLocaleString("en")]);
  const isRemote = !record.local && record.sources.includes("remote") && !embedded;
  return [
    el("div", { class: "row" }, choose, isRemote ? downloadButton(record) : null),
    record.problem ? warning(record.problem) : null,
    factList(record),
    livePart(record),
    record.load ? section("Load it", snippet(record.load)) : null,
    el(
      "div",
      { class: "columns" },
      section("Scores", scoreTable(record), evaluatePart(record)),
      el("div", {}, matrixPart(record), trainingPart(record)),
    ),
    picturesPart(record),
    record.card ? section("Card", el("div", { class: "markdown" }, markdown(record.card, record.pictures ?? []))) : null,
    argumentsPart(record.arguments),
    files.length ? section("Files", table(["file", "bytes"], files)) : null,
    changePart(record),
  ].filter(Boolean);
}

function factList(record) {
  const facts = [
    ["Method", record.model],
    ["Data set", record.dataset],
    ["Family", record.family],
    ["Seed", record.seed],
    ["Tags", record.tags?.join(", ") || null],
    ["License", record.license ?? "unknown"],
    ["Where", record.sources.join(" + ")],
    ["Changed", record.modified?.slice(0, 16).replace("T", " ")],
    ["Size", sizeOf(record.bytes)],
    ["Commit", record.commit],
    ["Study", record.study],
    ["Folder", nameOf(record) === record.ref ? null : record.ref],
  ];
  const known = facts.filter(([, value]) => value !== null && value !== undefined);
  const entry = ([name, value]) => {
    const { length } = String(value);
    return el("div", { class: length > 44 ? "whole" : length > 20 && "long" }, el("dt", {}, name), el("dd", {}, String(value)));
  };
  return el("dl", { class: "about" }, known.map(entry));
}

export function scoreTable(record) {
  const around = (name) => (spread(record, name) === undefined ? "" : ` ± ${number(spread(record, name))}`);
  const rows = Object.keys(record.scores).map((name) => [label(name), el("span", { class: "number" }, number(score(record, name)) + around(name))]);
  return rows.length ? table(["score", "value"], rows) : note(hasLatents(record) ? "No scores. `unknot evaluate` measures them." : "No scores.");
}

/* Scores are measured on this machine while one looks on. */
function evaluatePart(record) {
  if (embedded || !record.local || !hasLatents(record)) return null;
  const place = el("div", { class: "evaluate", "aria-live": "polite" });
  const watch = async () => {
    const { job, scores, std } = await get(address(record.id, "progress"));
    if (!place.isConnected) return;
    if (!job || job.state === "done") {
      const row = store.known.get(record.id);
      if (job && JSON.stringify(row.scores) !== JSON.stringify(scores)) learn({ ...record, scores, std });
      return offer(job ? "Measured." : "");
    }
    if (job.state === "failed") return offer(job.error);
    const text = job.state === "waiting" ? "Waiting…" : `Measuring ${job.now}: ${job.done} of ${job.total} done`;
    place.replaceChildren(el("progress", { max: job.total, value: job.done }), note(text));
    setTimeout(() => watch().catch((error) => offer(error.message)), 1000);
  };
  const offer = (text) => {
    const start = button("Evaluate now", async () => {
      start.disabled = true;
      try {
        await post(address(record.id, "evaluate"));
        await watch();
      } catch (error) {
        offer(error.message);
      }
    });
    const about = note(text || `${store.default.join(", ")} on 10,000 + 5,000 images; some minutes.`);
    place.replaceChildren(start, about);
  };
  offer("");
  get(address(record.id, "progress")).then(({ job }) => job && ["waiting", "running"].includes(job.state) && watch());
  return place;
}

function argumentsPart(record) {
  const rows = Object.entries(record ?? {}).map(([name, value]) => [name, JSON.stringify(value)]);
  return rows.length ? section("Arguments", table(["argument", "value"], rows)) : null;
}

function picturesPart(record) {
  const isInCard = (picture) => (record.card ?? "").includes(`](${picture.name})`);
  const pictures = (record.pictures ?? []).filter((picture) => picture.url && !isInCard(picture));
  if (!pictures.length) return null;
  const figure = ({ url, name }) =>
    el("figure", {}, el("img", { src: url, alt: name, loading: "lazy" }), el("figcaption", {}, name));
  return section("Pictures", el("div", { class: "pictures" }, pictures.map(figure)));
}

function downloadButton(record) {
  const size = sizeOf(record.files?.["model.safetensors"] ?? record.bytes);
  const node = button(`Download${size ? ` (${size})` : ""}`, async () => {
    node.disabled = true;
    node.textContent = "Downloading…";
    try {
      learn(await (await post(address(record.id, "download"))).json());
    } catch (error) {
      notify(error.message);
      node.disabled = false;
      node.textContent = "Download";
    }
  }, { class: "main" });
  return node;
}

function matrixPart(record) {
  const title = "Codes and factors";
  if (embedded || !hasLatents(record)) return null;
  if (!record.local) return section(title, note("Download the model to compute this."));
  const place = el("div");
  const ask = (text, kind) =>
    button(text, async (event) => {
      event.target.disabled = true;
      place.replaceChildren(note("Computing…"));
      try {
        place.replaceChildren(heatmap(await (await post(address(record.id, "matrix"), { kind })).json()));
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

/* Tags, another name, and away: for what lies in the folders that the page was opened with. */
function changePart(record) {
  if (embedded || !record.own) return null;
  const change = async (action, body, then) => {
    try {
      then(await (await post(address(record.id, action), body)).json());
    } catch (error) {
      notify(error.message);
    }
  };
  const tags = el("input", { type: "text", value: (record.tags ?? []).join(", "), placeholder: "tags, with commas", "aria-label": "Tags, with commas between", name: "tags" });
  const wanted = () => tags.value.split(",").map((tag) => tag.trim()).filter(Boolean);
  const save = button("Save tags", () => change("tag", { tags: wanted() }, learn));
  const name = el("input", { type: "text", value: record.ref.split(/[\\/]/).pop(), "aria-label": "Name of the folder", name: "name" });
  const rename = button("Rename", () =>
    change("rename", { name: name.value }, (now) => {
      store.known.delete(record.id);
      store.known.set(now.id, Object.assign(store.checkpoints.find((row) => row.id === record.id), now));
      store.version++;
      learn(now);
      update({ open: now.id });
    }),
  );
  const remove = button("Move to trash…", () => {
    if (remove.textContent === "Move to trash…") return void (remove.textContent = "Click again to confirm");
    change("remove", {}, ({ moved }) => {
      store.checkpoints = store.checkpoints.filter((row) => row.id !== record.id);
      store.known.delete(record.id);
      store.version++;
      notify(`It was moved to ${moved}. Delete that folder to free the space.`);
      update({ view: page.lastList, open: "", compare: page.state.compare.filter((id) => id !== record.id) }, true);
      schedule();
    });
  });
  const place = record.study
    ? el("p", { class: "note" }, "This is a job of a study, which finds it by its folder: it can be neither renamed nor deleted here.")
    : el("div", { class: "row" }, name, rename, remove);
  const repo = el("input", { type: "text", placeholder: "USER/NAME", "aria-label": "Repository on the hub", name: "repo" });
  const publish = button("Publish privately", () =>
    change("push", { repo: repo.value.trim() }, ({ address }) => notify(`Published: ${address}`)),
  );
  const publishing = record.local ? el("div", { class: "row" }, repo, publish) : null;
  return section("Change", el("div", { class: "row" }, tags, save), place, publishing);
}
