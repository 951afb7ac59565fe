import { modelOf } from "./models.js";

/* A model at work, beside the page: however long it takes, the page answers, and can end it. */

let model = null;
const actions = {
  load({ config, weights }) {
    model = modelOf(config, weights);
    const { kind, shape, latents, slots, iterations, width, isLearned } = model;
    return { kind, shape, latents, slots, iterations, width, isLearned };
  },
  encode: ({ images }) => model.encode(images),
  decode: ({ codes }) => model.decode(codes),
  look: ({ image, noise, iterations }) => model.look(image, noise, iterations),
};

addEventListener("message", ({ data: { id, action, given } }) => {
  try {
    postMessage({ id, result: actions[action](given) });
  } catch (error) {
    postMessage({ id, error: error instanceof RangeError ? "There is not enough memory for this model." : error.message });
  }
});
