import { button, el, failure, figureOf, note, notify, section } from "./dom.js";
import { canvasOf, drawingField, paint } from "./images.js";
import { INACTIVE, STEP_VALUES, playerOf } from "./players.js";
import { embedded, newestOnly } from "./server.js";
import { page, remember } from "./state.js";

/* Moving the latents of a VAE. */

const MAX_SHOWN = 64;
const SAMPLES = 16;
const REACH = 100;

export function latentsPart(record) {
  if (!embedded && !record.local) return section("Live latents", note("Download the model to move its latents."));
  if (embedded && !record.live) return drawnPart(record);
  const place = el("div");
  const open = async () => {
    place.replaceChildren(note("Loading the model…"));
    try {
      const player = await playerOf(record, !embedded);
      place.replaceChildren(await preview(player));
      await player.measure();
      place.replaceChildren(...(await livePanel(record, player, (error) => (player.isStopped ? stopped(error) : notify(error.message)))));
    } catch (error) {
      stopped(error);
    }
  };
  const stopped = (error) => place.replaceChildren(failure(error.message, open));
  open();
  return section("Live latents", place);
}

/* Pictures of what each latent does, where a page without a server cannot run the model. */
function drawnPart(record) {
  if (!record.drawn) return section("Latents", note(record.undrawn ?? "This model is not part of this page. `unknot browse` moves its latents."));
  const { codes, order, kl, strips, input, reconstruction } = record.drawn;
  const line = (latent) => el("li", {}, latentTitle(latent, kl), el("img", { src: strips[String(latent)], alt: `What z${latent} does from −2 to 2`, class: "strip" }));
  const images = el("div", { class: "images" }, input ? figureOf(input, "Input") : null, figureOf(reconstruction, input ? "Reconstruction" : "Start"));
  const lists = lineLists(order, kl, codes.length, line);
  return section("Latents", note("Each latent from −2 to 2. This model runs in Python only: `unknot browse` moves its latents."), el("div", { class: "latents still" }, images, lists));
}

const latentTitle = (latent, kl) => el("span", { class: "code" }, `z${latent}`, el("small", {}, `${kl[latent].toFixed(2)} nats`));

/* The latents that tell most come first; those that tell nothing are folded away. */
function lineLists(order, kl, count, line) {
  const active = order.filter((latent) => kl[latent] >= INACTIVE);
  const idle = order.filter((latent) => !(kl[latent] >= INACTIVE));
  const lists = el("div", { class: "codes" }, el("ol", {}, active.map(line)));
  if (idle.length) {
    const title = `${idle.length} inactive (mean KL below ${INACTIVE} nats)`;
    lists.append(el("details", { open: !active.length }, el("summary", {}, title), el("ol", {}, idle.map(line))));
  }
  if (count > order.length) lists.append(note(`${count - order.length} further latents with less KL are not shown.`));
  return lists;
}

/* Images of a model, or pictures of the server, side by side. */
function draw(canvas, images, shape) {
  if (!(images[0] instanceof Image)) return paint(canvas, images, shape);
  Object.assign(canvas, { width: images.reduce((sum, image) => sum + image.naturalWidth, 0), height: images[0].naturalHeight });
  let left = 0;
  for (const image of images) {
    canvas.getContext("2d").drawImage(image, left, 0);
    left += image.naturalWidth;
  }
  return canvas;
}

/* Latents in the address, so that a link shows the same image. */
function addressedLatents(count) {
  const values = page.state.z.split(",").map(Number);
  return page.state.z && values.length === count && values.every((value) => Math.abs(value) <= REACH) ? values : null;
}
const toAddress = (id, codes) => remember(id, { z: codes.map((value) => parseFloat(value.toFixed(3))).join(",") });

const startOf = (player) => {
  const codes = addressedLatents(player.latents);
  return codes ? { codes, input: null } : player.first();
};

/* The first image, before the latents are in order. */
async function preview(player) {
  const shape = player.shape ?? [1, 1, 1];
  const { codes, input } = await startOf(player);
  const image = draw(canvasOf(shape, { id: "first" }), [await player.decode(codes)], shape);
  const given = input ? captioned(draw(canvasOf(shape), [input], shape), "Input") : null;
  return el("div", { class: "latents" }, el("div", { class: "images" }, given, captioned(image, input ? "Reconstruction" : "Start")), note("Ordering the latents…"));
}

/* The panel of a model; `failed` gets the errors of later actions. */
async function livePanel(record, player, failed) {
  const { kl, latents } = player;
  const shape = player.shape ?? [1, 1, 1];
  const order = Array.from(kl.keys()).sort((a, b) => kl[b] - kl[a]).slice(0, MAX_SHOWN);
  const first = await startOf(player);
  let started = { ...first, codes: [...first.codes] };
  const codes = [...first.codes];
  const named = (text) => canvasOf(shape, { "aria-label": text });
  const canvases = { input: named("Input"), start: named("Start"), now: named("Image of these latents") };
  canvases.now.id = "decoded";
  const wide = [shape[0], shape[1], STEP_VALUES.length * (shape[2] + 1) - 1];
  const strips = new Map(order.map((latent) => [latent, canvasOf(wide, { class: "strip", "aria-label": `What z${latent} does from −2 to 2` })]));
  const decode = newestOnly(async () => {
    draw(canvases.now, [await player.decode([...codes])], shape);
    canvases.now.dataset.codes = codes.map((value) => value.toFixed(3)).join(",");
  }, failed);
  let version = 0;
  const redraw = newestOnly(async () => {
    const mine = ++version;
    const given = [...codes];
    for (const latent of order) {
      draw(strips.get(latent), await player.strip(given, latent), shape);
      strips.get(latent).dataset.drawn = mine;
      if (given.some((value, place) => value !== codes[place])) return; // who moved them asks again
    }
    toAddress(record.id, codes);
  }, failed);
  const moveTo = (values) => {
    codes.splice(0, codes.length, ...values);
    for (const [latent, slider] of sliders) slider.set(codes[latent]);
    decode();
  };
  const slide = (latent) => (value) => {
    codes[latent] = value;
    decode();
  };
  const sliders = new Map(order.map((latent) => [latent, sliderOf(`z${latent}`, codes[latent], slide(latent), redraw, { "data-code": latent })]));
  const inputFigure = captioned(canvases.input, "Input");
  const startFigure = captioned(canvases.start, "Start");
  const begin = async (next) => {
    started = { ...next, codes: [...next.codes] };
    inputFigure.hidden = !next.input;
    if (next.input) draw(canvases.input, [next.input], shape);
    startFigure.querySelector("figcaption").textContent = next.input ? "Reconstruction" : "Start";
    moveTo(next.codes);
    draw(canvases.start, [await player.decode(next.codes)], shape);
    redraw();
  };
  const attempt = (task) => async (...given) => {
    try {
      await task(...given);
    } catch (error) {
      failed(error);
    }
  };
  const upload = attempt(async (file) => begin(await player.upload(file)));
  const file = fileInput(upload);
  const starts = el("div", { class: "row starts" }, "Start from",
    player.hasImages ? button(`a random image of ${record.dataset ?? "the data set"}`, attempt(async () => begin(await player.start("data")))) : null,
    button("the prior", attempt(async () => begin(await player.start("prior")))),
    button("an image of yours…", () => file.click()), file,
  );
  const reset = button("Reset", () => begin(started));
  const images = el("div", { class: "images" }, inputFigure, startFigure, captioned(canvases.now, "Now", "now"), reset);
  const line = (latent) => el("li", {}, latentTitle(latent, kl), sliders.get(latent).node, strips.get(latent));
  const panel = el("div", { class: "latents" }, images, lineLists(order, kl, latents, line));
  acceptDrop(panel, upload);
  const about = note(`Computed ${player.where}. Drop a PNG or JPEG image anywhere here to encode it.`);
  const more = [
    folded("Interpolate between two images", () => interpolation(player, shape, () => [...codes], moveTo, () => redraw(), attempt)),
    folded(`${SAMPLES} samples of the prior`, () => priorSamples(player, shape, (sample) => begin({ codes: sample, input: null }), attempt)),
    player.encode ? folded("Draw an image", () => drawing(player, shape, begin, failed)) : null,
  ];
  await begin(started);
  return [starts, about, panel, ...more.filter(Boolean)];
}

function captioned(node, caption, name) {
  return el("figure", { class: name }, node, el("figcaption", {}, caption));
}

/* Made when it is opened. */
function folded(title, make) {
  const place = el("div");
  const node = el("details", { class: "more-live" }, el("summary", {}, title), place);
  node.addEventListener("toggle", () => node.open && !place.firstChild && place.append(...make()));
  return node;
}

function interpolation(player, shape, codesNow, moveTo, settle, attempt) {
  const from = { codes: codesNow() };
  const to = { codes: null };
  const wide = [shape[0], shape[1], STEP_VALUES.length * (shape[2] + 1) - 1];
  const row = canvasOf(wide, { class: "strip", "aria-label": "From the first image to the second" });
  const target = canvasOf(shape, { "aria-label": "Second image" });
  const between = (share) => from.codes.map((value, place) => (1 - share) * value + share * to.codes[place]);
  const slider = sliderOf("Share of the second image", 0, (share) => to.codes && moveTo(between(share)), settle, { min: 0, max: 1, step: 0.02 });
  const choose = attempt(async ({ codes, input }) => {
    Object.assign(from, { codes: codesNow() });
    Object.assign(to, { codes });
    slider.set(0);
    draw(target, [input ?? (await player.decode(codes))], shape);
    draw(row, await player.decodeAll(STEP_VALUES.map((_, place) => between(place / (STEP_VALUES.length - 1)))), shape);
    body.hidden = false;
  });
  const file = fileInput(async (chosen) => choose(await player.upload(chosen)));
  const buttons = el("div", { class: "row" }, "From the image above to",
    player.hasImages ? button("a random image", attempt(async () => choose(await player.start("data")))) : null,
    button("a sample of the prior", attempt(async () => choose(await player.start("prior")))),
    button("an image of yours…", () => file.click()), file,
  );
  const body = el("div", { hidden: true, class: "between" }, captioned(target, "Second image"), el("div", {}, slider.node, row));
  return [buttons, body];
}

function priorSamples(player, shape, choose, attempt) {
  const place = el("div", { class: "samples" });
  const drawAll = attempt(async () => {
    const samples = [];
    for (let count = 0; count < SAMPLES; count++) samples.push((await player.sample()).codes);
    const images = await player.decodeAll(samples);
    const cell = (image, at) => button("", attempt(() => choose(samples[at])), { class: "sample", "aria-label": `Start from sample ${at + 1}` });
    place.replaceChildren(...images.map((image, at) => {
      const node = cell(image, at);
      node.append(draw(canvasOf(shape, { "aria-hidden": "true" }), [image], shape));
      return node;
    }));
  });
  drawAll();
  return [el("div", { class: "row" }, button("Draw others", drawAll)), place];
}

function drawing(player, shape, begin, failed) {
  let image = null;
  const take = newestOnly(async () => begin({ codes: await player.encode(image), input: image }), failed);
  return [
    note("Each stroke is encoded as you draw."),
    drawingField(shape, (drawn) => {
      image = drawn;
      take();
    }),
  ];
}

export function fileInput(take) {
  const named = { class: "hidden", tabindex: -1, "aria-label": "Image to start from" };
  const change = (event) => {
    if (event.target.files[0]) take(event.target.files[0]);
    event.target.value = "";
  };
  return el("input", { type: "file", accept: "image/png,image/jpeg", change, ...named });
}

export function acceptDrop(node, take) {
  node.addEventListener("dragover", (event) => event.preventDefault());
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
  });
}

function sliderOf(name, value, move, settle, attributes = {}) {
  const reach = Math.max(3, Math.ceil(Math.abs(value)));
  const shown = el("output");
  const bounds = { type: "range", min: -reach, max: reach, step: 0.05 };
  const slide = () => {
    shown.textContent = input.valueAsNumber.toFixed(2);
    move(input.valueAsNumber);
  };
  const input = el("input", { ...bounds, "aria-label": name, change: settle, input: slide, ...attributes });
  const set = (to) => {
    if (!("min" in attributes) && Math.abs(to) > Number(input.max)) Object.assign(input, { min: -Math.ceil(Math.abs(to)), max: Math.ceil(Math.abs(to)) });
    input.value = to;
    shown.textContent = to.toFixed(2);
  };
  set(value);
  return { node: el("span", { class: "slider" }, input, shown), set };
}
