import { button, el, figureOf, note, section, table, warning } from "./dom.js";
import { fileInput } from "./latents.js";
import { address, embedded, newestOnly, post } from "./server.js";

/* Models that take an image apart: slots with their masks, or the objects that they believe to see. */

export function scenesPart(told) {
  const title = told.kind === "slots" ? "Live slots" : "Live sets";
  if (embedded) return told.seen ? section(title, ...sceneOf(told.seen)) : null;
  if (!told.local) return section(title, note("Download the model to use it."));
  const place = el("div");
  const wanted = { seed: 0, iterations: own0(told, "num_iterations", 3), slots: own0(told, "num_slots", 7), file: null };
  const look = newestOnly(
    async () => {
      const { seed, iterations, slots, file } = wanted;
      const query = new URLSearchParams({ seed, iterations, slots });
      const answer = file
        ? await post(address(told.id, `upload?${query}`), file)
        : await post(address(told.id, "look"), { origin: "data", seed, iterations, slots });
      place.replaceChildren(...sceneOf(await answer.json()));
    },
    (message) => place.replaceChildren(warning(message)),
  );
  const slider = (name, text, most) => {
    const shown = el("output", {}, String(wanted[name]));
    const input = el("input", { type: "range", min: 1, max: most, step: 1, value: wanted[name], "aria-label": text, "data-name": name });
    input.addEventListener("input", () => {
      wanted[name] = input.valueAsNumber;
      shown.textContent = input.value;
      look();
    });
    return el("label", { class: "slider" }, `${text} `, input, shown);
  };
  const file = fileInput((chosen) => {
    wanted.file = chosen;
    look();
  });
  const another = button("another scene", () => {
    Object.assign(wanted, { seed: Math.floor(Math.random() * 2 ** 31), file: null });
    look();
  });
  const bar = el("div", { class: "row starts" }, "Look at", another, button("an image of yours…", () => file.click()), file);
  const sliders = el("div", { class: "row sliders" }, slider("iterations", "Iterations", 12), slider("slots", "Slots", 16));
  place.replaceChildren(note("Loading the model…"));
  look();
  return section(title, bar, sliders, place);
}

/* Models that complete a matrix of panels. */
export function matricesPart(told) {
  const title = "A matrix to complete";
  if (embedded) return told.seen ? section(title, ...matrixOf(told.seen)) : null;
  if (!told.local) return section(title, note("Download the model to use it."));
  const place = el("div", {}, note("Loading the model…"));
  let seed = 0;
  const look = newestOnly(
    async () => {
      const answer = await post(address(told.id, "look"), { origin: "data", seed });
      place.replaceChildren(...matrixOf(await answer.json()));
    },
    (message) => place.replaceChildren(warning(message)),
  );
  const another = button("another matrix", () => {
    seed = Math.floor(Math.random() * 2 ** 31);
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

function own0(told, name, otherwise) {
  const value = told.arguments && Object.hasOwn(told.arguments, name) ? told.arguments[name] : otherwise;
  return Number.isInteger(value) ? value : otherwise;
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
    attention ? el("img", { src: attention, alt: "where it looks", class: "pixels look" }) : "–",
  ]);
  const names = seen.objects.length ? Object.keys(seen.objects[0].about) : [];
  return [tops, table(["there", ...names, "place", "attention"], rows)];
}
