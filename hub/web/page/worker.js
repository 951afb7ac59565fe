import { reportProgress } from "./layers.js";
import { modelOf } from "./models.js";

/* A model at work, beside the page: however long it takes, the page answers, and can end it. */

const MAX_WORK = 6e9; // multiplications of one action
let model = null;
const actions = {
  load({ config, weights }) {
    model = modelOf(config, weights);
    const { kind, shape, latents, slots, iterations, width, isLearned, cost } = model;
    return { kind, shape, latents, slots, iterations, width, isLearned, cost };
  },
  encode: ({ images }) => model.encode(images),
  decode: ({ codes }) => model.decode(codes),
  look: ({ image, noise, iterations }) => model.look(image, noise, iterations),
};

addEventListener("message", ({ data: { id, action, given } }) => {
  postMessage({ id });
  try {
    if (model?.work[action]?.(given) > MAX_WORK) throw new Error("This model is too large to run in a browser.");
    postMessage({ id, result: actions[action](given) });
  } catch (error) {
    postMessage({ id, error: error instanceof RangeError ? "There is not enough memory for this model." : error.message });
  }
});

reportProgress(() => postMessage({}));
