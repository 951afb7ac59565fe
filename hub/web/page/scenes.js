import { button, el, failure, figureOf, note, pixelsNode, section, table } from "./dom.js";
import { canvasOf, paint, readSheet, readUpload } from "./images.js";
import { acceptDrop, fileInput } from "./latents.js";
import { LiveModel } from "./live-model.js";
import { gaussians } from "./players.js";
import { address, embedded, newestOnly, post } from "./server.js";
import { own, page, remember } from "./state.js";

/* Models that take an image apart: slots with their masks, or the objects that they believe to see. */

const MOST_SCENES = 16;
const MOST_ITERATIONS = 12;
const MOST_SLOTS = 16;
const MOST_SEED = 2 ** 31 - 1;
/* Places of the classes among an object's 19 numbers, as in `core/clevr_objects.py`. */
export const CLASSES = [
  ["size", 3, ["small", "large"]],
  ["material", 5, ["rubber", "metal"]],
  ["shape", 7, ["cube", "sphere", "cylinder"]],
  ["color", 10, ["gray", "blue", "brown", "yellow", "red", "green", "purple", "cyan"]],
];
const REAL = 18;
const OBJECT = 19;

/* A model with slots in this browser. Slots start at random: the same for the same seed. */
class SceneViewer {
  static async load({ config, weights, images }) {
    const viewer = new SceneViewer();
    viewer.model = await LiveModel.load(config, weights);
    if (!viewer.model.slots) throw new Error("This model has no slots.");
    viewer.images = images ? await readSheet(images, viewer.model.shape, MOST_SCENES, viewer.model.ending.signal).catch(() => []) : [];
    return viewer;
  }

  async look({ seed, iterations, slots, file }) {
    const { model } = this;
    if (!file && !this.images.length) throw new Error("There are no scenes on this page. Use an image of yours.");
    const image = file ? await readUpload(file, model.shape) : this.images[seed % this.images.length];
    const noise = Float32Array.from(gaussians((model.isLearned || !model.iterations ? model.slots : slots) * model.width, seed + 1));
    return seenOf(await model.ask("look", { image, noise, iterations: model.iterations && iterations }), image, model.shape);
  }
}

function seenOf({ reconstruction, parts, masks, sets, attention, places }, image, shape) {
  const shown = (values, sides = shape) => paint(canvasOf(sides), values, sides);
  const seen = { input: shown(image) };
  const grey = [1, shape[1], shape[2]];
  const area = shape[1] * shape[2];
  if (parts) {
    const share = (mask) => mask.reduce((sum, value) => sum + value, 0) / area;
    seen.reconstruction = shown(reconstruction);
    seen.slots = parts.map((part, k) => ({ image: shown(part.map((value, at) => value * masks[k][at % area])), mask: shown(masks[k], grey), share: share(masks[k]) }));
    return seen;
  }
  const most = (values) => values.reduce((at, value, place) => (value > values[at] ? place : at), 0);
  seen.objects = Array.from({ length: sets.length / OBJECT }, (_, k) => {
    const row = sets.subarray(k * OBJECT, (k + 1) * OBJECT);
    const about = Object.fromEntries(CLASSES.map(([name, start, classes]) => [name, classes[most(row.subarray(start, start + classes.length))]]));
    return { present: row[REAL], place: Array.from(row.subarray(0, 3)), about, attention: attention && lookOf(attention, k, places) };
  });
  seen.objects.sort((a, b) => b.present - a.present);
  return seen;
}

function lookOf(attention, k, [height, width]) {
  const map = attention.slice(k * height * width, (k + 1) * height * width);
  const largest = map.reduce((a, b) => Math.max(a, b), 1e-9);
  return paint(canvasOf([1, height, width], { class: "pixels look", "aria-label": "where it looks" }), map.map((value) => value / largest), [1, height, width]);
}

export function scenesPart(record) {
  const title = record.capabilities.includes("slots") ? "Live slots" : "Live sets";
  if (embedded && !record.live) return record.seen ? section(title, ...sceneOf(record.seen)) : null;
  if (!embedded && !record.local) return section(title, note("Download the model to use it."));
  const place = el("div");
  const requested = {
    seed: addressedNumber("scene", 0, MOST_SEED, 0),
    iterations: addressedNumber("iterations", 1, MOST_ITERATIONS, argumentOf(record, "num_iterations", 3)),
    slots: addressedNumber("slots", 1, MOST_SLOTS, argumentOf(record, "num_slots", 7)),
    file: null,
  };
  const onServer = async ({ seed, iterations, slots, file }) => {
    const query = new URLSearchParams({ seed, iterations, slots });
    const answer = file
      ? await post(address(record.id, `upload?${query}`), file)
      : await post(address(record.id, "look"), { origin: "data", seed, iterations, slots });
    return answer.json();
  };
  const hasSlots = record.arguments?.num_iterations !== undefined;
  let viewer = null;
  const open = async () => {
    const here = record.live && (await SceneViewer.load(record.live).catch((error) => (embedded ? Promise.reject(error) : null)));
    viewer = here ?? { look: onServer };
  };
  const look = newestOnly(
    async () => {
      if (!viewer || viewer.model?.closed) await open();
      const { seed, iterations, slots, file } = requested;
      place.replaceChildren(...sceneOf(await viewer.look({ seed, iterations, slots, file })));
      remember(record.id, { scene: file ? "" : String(seed), ...(hasSlots ? { iterations: String(iterations), slots: String(slots) } : {}) });
    },
    (error) => place.replaceChildren(failure(error.message, look)),
  );
  const slider = (name, text, most) => {
    const shown = el("output", {}, String(requested[name]));
    const input = el("input", { type: "range", min: 1, max: most, step: 1, value: requested[name], "aria-label": text, "data-name": name });
    input.addEventListener("input", () => {
      requested[name] = input.valueAsNumber;
      shown.textContent = input.value;
      look();
    });
    return el("label", { class: "slider" }, `${text} `, input, shown);
  };
  const take = (chosen) => {
    requested.file = chosen;
    look();
  };
  const file = fileInput(take);
  const another = button("another scene", () => {
    Object.assign(requested, { seed: Math.floor(Math.random() * MOST_SEED), file: null });
    look();
  });
  const bar = el("div", { class: "row starts" }, "Look at", another, button("an image of yours…", () => file.click()), file);
  const sliders = hasSlots ? el("div", { class: "row sliders" }, slider("iterations", "Iterations", MOST_ITERATIONS), slider("slots", "Slots", MOST_SLOTS)) : null;
  place.replaceChildren(note("Loading the model…"));
  look();
  const made = section(title, bar, sliders, place);
  acceptDrop(made, take);
  return made;
}

/* Models that complete a matrix of panels. */
export function matricesPart(record) {
  const title = "A matrix to complete";
  if (embedded) return record.seen ? section(title, ...matrixOf(record.seen)) : null;
  if (!record.local) return section(title, note("Download the model to use it."));
  const place = el("div", {}, note("Loading the model…"));
  let seed = addressedNumber("scene", 0, MOST_SEED, 0);
  const look = newestOnly(
    async () => {
      const answer = await post(address(record.id, "look"), { origin: "data", seed });
      place.replaceChildren(...matrixOf(await answer.json()));
      remember(record.id, { scene: String(seed) });
    },
    (error) => place.replaceChildren(failure(error.message, look)),
  );
  const another = button("another matrix", () => {
    seed = Math.floor(Math.random() * MOST_SEED);
    look();
  });
  look();
  return section(title, el("div", { class: "row starts" }, another), place);
}

function matrixOf({ context, answers, right, picked }) {
  const panels = context.map((src, place) => el("img", { src, alt: `panel ${place + 1}`, class: "pixels" }));
  const asked = el("span", { class: "asked" }, "?");
  const answerOf = ({ image, share }, place) => {
    const marks = [place === right && "right", place === picked && "picked"].filter(Boolean);
    const text = [`${(100 * share).toFixed(0)} %`, marks.join(", ")].filter(Boolean).join(" · ");
    return el("div", { class: marks.join(" ") }, figureOf(image, text));
  };
  return [el("div", { class: "matrix" }, panels, asked), el("div", { class: "scene answers" }, answers.map(answerOf))];
}

function argumentOf(record, name, otherwise) {
  const value = own(record.arguments, name);
  return Number.isInteger(value) ? value : otherwise;
}

/* A whole number of the address. */
function addressedNumber(name, least, most, otherwise) {
  const value = Number(page.state[name] || NaN);
  return Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
}

function sceneOf(seen) {
  const first = [figureOf(seen.input, "Input")];
  if (seen.reconstruction) first.push(figureOf(seen.reconstruction, "Reconstruction"));
  const tops = el("div", { class: "scene" }, first);
  if (seen.slots) {
    const slot = ({ image, mask, share }, place) =>
      el("div", { class: "slot" }, figureOf(image, `slot ${place}`), figureOf(mask, `its mask, ${(100 * share).toFixed(0)} %`));
    return [tops, el("div", { class: "scene slots" }, seen.slots.map(slot))];
  }
  const rows = seen.objects.map(({ present, about, place, attention }) => [
    present.toFixed(2),
    ...Object.values(about),
    el("span", { class: "place" }, place.map((value) => value.toFixed(2)).join(", ")),
    attention ? pixelsNode(attention, "where it looks", "pixels look") : "–",
  ]);
  const names = seen.objects.length ? Object.keys(seen.objects[0].about) : [];
  return [tops, table(["there", ...names, "place", "attention"], rows)];
}
