import { button, el, figureOf, note, notify, section, warning } from "./dom.js";
import { address, embedded, newestOnly, post } from "./server.js";

export function latentsPart(told) {
  if (embedded) {
    const missing = "Drawn for downloaded checkpoints only. `unknot browse` moves latents live.";
    if (!told.drawn) return section("Latents", note(told.undrawn ?? missing));
    const hint = note("Each code from −2 to 2. Move them live with `unknot browse`.");
    return section("Latents", hint, latentPanel(told.id, told.drawn));
  }
  if (!told.local) return section("Live latents", note("Download the model to move its latents."));
  const place = el("div");
  const starts = [];
  const begin = async (pressed, action, body) => {
    for (const one of starts) one.setAttribute("aria-pressed", one === pressed);
    place.replaceChildren(note("Loading the model…"));
    try {
      const started = await (await post(address(told.id, action), body)).json();
      place.replaceChildren(latentPanel(told.id, started));
      data.hidden = !started.at_hand;
      if (!pressed) (started.input ? data : prior).setAttribute("aria-pressed", true);
    } catch (error) {
      place.replaceChildren(warning(error.message));
    }
  };
  const seed = () => Math.floor(Math.random() * 2 ** 31);
  const data = button(told.dataset ? `a random image of ${told.dataset}` : "a random image", () => begin(data, "start", { origin: "data", seed: seed() }));
  const prior = button("the prior", () => begin(prior, "start", { origin: "prior", seed: seed() }));
  const file = fileInput((chosen) => begin(upload, "upload", chosen));
  const upload = button("an image of yours…", () => file.click());
  starts.push(data, prior, upload);
  const row = el("div", { class: "row starts" }, "Start from", data, prior, upload, file);
  begin(null, "start", { origin: "any", seed: 0 });
  return section("Live latents", row, place);
}

export function fileInput(take) {
  const named = { class: "hidden", tabindex: -1, "aria-label": "Image to start from" };
  const change = (event) => {
    if (event.target.files[0]) take(event.target.files[0]);
    event.target.value = "";
  };
  return el("input", { type: "file", accept: "image/png,image/jpeg", change, ...named });
}

function latentPanel(id, started) {
  const codes = [...started.codes];
  const now = el("img", { src: started.reconstruction, alt: "Image of these codes", class: "pixels", id: "decoded" });
  const stripOf = ([code, src]) => [code, el("img", { src, alt: `What z${code} does from −2 to 2`, class: "strip" })];
  const strips = new Map(Object.entries(started.strips).map(stripOf));
  const decode = newestOnly(async () => {
    const old = now.src;
    now.src = URL.createObjectURL(await (await post(address(id, "decode"), { codes })).blob());
    if (old.startsWith("blob:")) URL.revokeObjectURL(old);
  }, notify);
  const redraw = newestOnly(async () => {
    const told = await (await post(address(id, "strips"), { codes })).json();
    for (const [code, src] of Object.entries(told.strips)) strips.get(code).src = src;
  }, notify);
  const move = (code) => (value) => {
    codes[code] = value;
    decode();
  };
  const sliders = new Map(started.order.map((code) => [code, sliderOf(code, codes[code], move(code), redraw)]));
  const reset = button("Reset", () => {
    for (const [code, slider] of sliders) slider.set(started.codes[code]);
    codes.splice(0, codes.length, ...started.codes);
    decode();
    redraw();
  });
  const line = (code) => {
    const title = el("span", { class: "code" }, `z${code}`, el("small", {}, `${started.kl[code].toFixed(2)} nats`));
    return el("li", {}, title, embedded ? null : sliders.get(code).node, strips.get(String(code)));
  };
  const images = [
    started.input ? figureOf(started.input, "Input") : null,
    figureOf(started.reconstruction, started.input ? "Reconstruction" : "Start"),
    ...(embedded ? [] : [el("figure", { class: "now" }, now, el("figcaption", {}, "Now")), reset]),
  ];
  const lists = codeLists(started, line);
  return el("div", { class: embedded ? "latents still" : "latents" }, el("div", { class: "images" }, images), lists);
}

function codeLists(started, line) {
  const inactive = new Set(started.inactive);
  const active = started.order.filter((code) => !inactive.has(code));
  const idle = started.order.filter((code) => inactive.has(code));
  const lists = el("div", { class: "codes" }, el("ol", {}, active.map(line)));
  if (idle.length) {
    const title = `${idle.length} inactive (KL below 0.01 nats): they tell nothing about the image`;
    lists.append(el("details", { open: !active.length }, el("summary", {}, title), el("ol", {}, idle.map(line))));
  }
  const more = started.codes.length - started.order.length;
  if (more) lists.append(note(`${more} further codes tell less and are not shown.`));
  return lists;
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
