import { linear, sigmoid } from "./layers.js";
import { count, network, partOf, shapeOf } from "./networks.js";
import { slotModel } from "./slots.js";
import { Weights } from "./weights.js";

/* Models of the zoo by their config.json and model.safetensors: what a visitor's own machine can compute. */

const MAX_CONFIG = 1 << 20;
const MAX_LATENTS = 4096;
const TOGETHER = 2 ** 21; // values of the largest map of a batch

/* Those that encode and decode as `unknot.zoo.VAE` does; another class may do so in its own way. */
export const VAES = [
  "BetaVAE",
  "AnnealedVAE",
  "FactorVAE",
  "BetaTCVAE",
  "DIPVAEI",
  "DIPVAEII",
  "S2BetaVAE",
  "S2BetaTCVAE",
  "S2FactorVAE",
  "S2DIPVAEI",
  "SupervisedVAE",
  "GVAE",
  "MLVAE",
  "AdaGVAE",
  "AdaMLVAE",
  "HFSVAE",
  "SlowVAE",
];
export const SLOT_MODELS = ["SlotAutoEncoder", "SlotSetPredictor", "SlotMLPSetPredictor"];
const isTrainingOnly = (name) => name === "capacity" || name.startsWith("discriminator.");

function readConfig(text) {
  if (text.length > MAX_CONFIG) throw new Error("config.json has more than a megabyte.");
  let config;
  try {
    config = JSON.parse(text);
  } catch {
    throw new Error("config.json is not JSON.");
  }
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isObject(config) || !isObject(config.arguments) || typeof config.model !== "string")
    throw new Error("config.json must name a model and its arguments.");
  return config;
}

/* The mean image of a decoder's output, by likelihood. */
function meanOf(recipe, weights) {
  const { name, bounded = true, variance } = partOf(recipe, "bernoulli");
  if (name === "gaussian" && variance === "learned") weights.take("likelihood.log_variance", []);
  if (name === "bernoulli" || (name === "gaussian" && bounded)) return sigmoid;
  if (name === "gaussian") return (output) => output;
  if (name !== "continuous_bernoulli") throw new Error(`The likelihood ${name.slice(0, 60)} runs in Python only.`);
  return (logit) => (Math.abs(logit) < 1e-2 ? 0.5 + logit / 12 : sigmoid(logit) / Math.tanh(logit / 2) - 1 / logit);
}

function vae(config, weights) {
  const { image_shape: given = [1, 64, 64], latent_dim = 10, encoder, decoder, likelihood, reconstruction } = config.arguments;
  const shape = shapeOf(given);
  const latents = count(latent_dim, "latent_dim", MAX_LATENTS);
  const body = network(weights, "encoder.body", encoder, "ConvEncoder", shape, shape);
  const heads = ["encoder.mean", "encoder.logvar"].map((name) => linear(weights, name, latents)(body.shape));
  const draw = network(weights, "decoder", decoder, "ConvDecoder", shape, [latents]);
  const mean = meanOf(likelihood === "bernoulli" && reconstruction ? reconstruction : likelihood, weights);
  if (String(draw.shape) !== String(shape)) throw new Error(`The decoder draws [${draw.shape}], but image_shape is [${shape}].`);
  const pixels = shape[0] * shape[1] * shape[2];

  /* Images [N][C * H * W] to mean and log-variance, each [N][D]. */
  const encode = (images) => {
    const features = body.run(mapOf(images, shape));
    return heads.map((head) => rowsOf(head.run(features)));
  };
  /* Latents [N][D] to images [N][C * H * W]. */
  const decode = (codes) => {
    const map = draw.run(featuresOf(codes, latents));
    const { data, count: total } = map;
    const area = shape[1] * shape[2];
    return codes.map((_, n) => {
      const image = new Float32Array(pixels);
      for (let c = 0; c < shape[0]; c++)
        for (let at = 0; at < area; at++) image[c * area + at] = mean(data[(c * total + n) * area + at]);
      return image;
    });
  };
  const cost = { encode: body.cost, decode: draw.cost };
  const work = { encode: (given) => given.images.length * cost.encode, decode: (given) => given.codes.length * cost.decode };
  return { kind: "latents", shape, latents, cost, work, encode: inBatches(encode, cost.encode), decode: inBatches(decode, cost.decode) };
}

function mapOf(images, shape) {
  const area = shape[1] * shape[2];
  const data = new Float32Array(images.length * shape[0] * area);
  images.forEach((image, n) => {
    for (let c = 0; c < shape[0]; c++) data.set(image.subarray(c * area, (c + 1) * area), (c * images.length + n) * area);
  });
  return { data, shape, count: images.length };
}

function featuresOf(rows, width) {
  const data = new Float32Array(rows.length * width);
  rows.forEach((row, n) => row.forEach((value, d) => (data[d * rows.length + n] = value)));
  return { data, shape: [width], count: rows.length };
}

const rowsOf = ({ data, shape, count: total }) =>
  Array.from({ length: total }, (_, n) => Float32Array.from({ length: shape[0] }, (__, d) => data[d * total + n]));

/* Few images at a time, so that memory stays small; more where they are cheap. */
function inBatches(run, cost) {
  const together = Math.max(1, Math.min(32, Math.floor(TOGETHER / Math.max(1, cost / 32))));
  return (items) => {
    const parts = [];
    for (let first = 0; first < items.length; first += together) parts.push(run(items.slice(first, first + together)));
    if (parts.length < 2 || !Array.isArray(parts[0][0])) return parts.flat();
    return parts[0].map((_, place) => parts.flatMap((part) => part[place]));
  };
}

export function modelOf(configText, buffer) {
  const config = readConfig(configText);
  const weights = new Weights(buffer);
  let model;
  if (VAES.includes(config.model)) model = vae(config, weights);
  else if (SLOT_MODELS.includes(config.model)) model = slotModel(config, weights);
  else throw new Error(`${config.model.slice(0, 60)} runs in Python only: open it with \`unknot browse\`.`);
  const [extra] = weights.unused((name) => isTrainingOnly(name) || name.endsWith(".num_batches_tracked"));
  if (extra) throw new Error(`These are not the weights of this model: nothing takes ${extra.slice(0, 80)}.`);
  return model;
}
