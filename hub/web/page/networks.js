import { convolution, doubled, flatten, groupNorm, linear, margin, relu, residual, sequence, silu, transposed, unflatten } from "./layers.js";

/* The zoo's networks by the names and arguments of config.json, as lists of layers. `zoo/networks.py` defines them. */

const HIDDEN = 256;
const MAX_SIDE = 1024;

export function count(value, name, most) {
  if (!Number.isInteger(value) || value < 1 || value > most) throw new Error(`${name} must be a whole number from 1 to ${most}, got ${JSON.stringify(value)?.slice(0, 40)}.`);
  return value;
}

export function shapeOf(value, smallest = 1) {
  const isShape = Array.isArray(value) && value.length === 3 && value.every((side) => Number.isInteger(side) && side >= 1);
  if (!isShape || value[0] > 16 || Math.max(value[1], value[2]) > MAX_SIDE || Math.min(value[1], value[2]) < smallest)
    throw new Error(`image_shape must be [channels, height, width] with sides from ${smallest} to ${MAX_SIDE}, got ${JSON.stringify(value)?.slice(0, 60)}.`);
  return value;
}

/* Margins that make both sides multiples: [left, right, above, below]. */
export function margins([height, width], multiple) {
  const [rows, cols] = [height, width].map((side) => (multiple - (side % multiple)) % multiple);
  return [Math.floor(cols / 2), cols - Math.floor(cols / 2), Math.floor(rows / 2), rows - Math.floor(rows / 2)];
}

const even = (pad) => [pad, pad, pad, pad];

function convEncoder(weights, name, [channels, ...sides]) {
  shapeOf([channels, ...sides], 16);
  const widths = [32, 32, 64, 64];
  const layers = [margin(margins(sides, 16))];
  widths.forEach((width, place) =>
    layers.push(convolution(weights, `${name}.${2 * place}`, width, place < 2 ? 4 : 2, 2, even(place < 2 ? 1 : 0)), relu()),
  );
  return [...layers, flatten(), linear(weights, `${name}.9`, HIDDEN), relu()];
}

function convDecoder(weights, name, [channels, ...sides]) {
  shapeOf([channels, ...sides], 16);
  const [high, wide] = sides.map((side) => Math.ceil(side / 16));
  const layers = [linear(weights, `${name}.0`, HIDDEN), relu(), linear(weights, `${name}.2`, 64 * high * wide), relu(), unflatten([64, high, wide])];
  [64, 32, 32, channels].forEach((width, place) => {
    const scale = 2 ** (place + 1);
    layers.push(transposed(weights, `${name}.${5 + 2 * place}`, width, 4, 2, 1, high * scale, wide * scale));
    if (place < 3) layers.push(relu());
  });
  return [...layers, margin(margins(sides, 16).map((side) => -side))];
}

function block(weights, name, before, after) {
  const branch = [
    groupNorm(weights, `${name}.branch.0`),
    silu(),
    convolution(weights, `${name}.branch.2`, after, 3, 1, even(1)),
    groupNorm(weights, `${name}.branch.3`),
    silu(),
    convolution(weights, `${name}.branch.5`, after, 3, 1, even(1)),
  ];
  return residual(branch, before === after ? null : convolution(weights, `${name}.around`, after, 1));
}

function stagesOf(sides, width, blocks) {
  count(width, "width", 4096);
  count(blocks, "blocks", 64);
  const halvings = Math.floor(Math.log2(Math.min(...sides) / 4));
  const widths = Array.from({ length: halvings }, (_, stage) => width * Math.min(2 ** stage, 8));
  return [widths, 2 ** halvings];
}

function residualEncoder(weights, name, [channels, ...sides], { width = 32, blocks = 1, features = HIDDEN }) {
  shapeOf([channels, ...sides], 16);
  const [widths, multiple] = stagesOf(sides, width, blocks);
  const layers = [margin(margins(sides, multiple)), convolution(weights, `${name}.0`, width, 3, 1, even(1))];
  let place = 1;
  for (const after of widths) {
    layers.push(convolution(weights, `${name}.${place++}`, after, 4, 2, even(1)));
    for (let i = 0; i < blocks; i++) layers.push(block(weights, `${name}.${place++}`, after, after));
  }
  return [...layers, silu(), flatten(), linear(weights, `${name}.${place + 2}`, count(features, "features", 65536)), silu()];
}

function residualDecoder(weights, name, [channels, ...sides], { width = 32, blocks = 1 }) {
  shapeOf([channels, ...sides], 16);
  const [widths, multiple] = stagesOf(sides, width, blocks);
  const small = [widths.at(-1), ...sides.map((side) => Math.ceil(side / multiple))];
  const layers = [linear(weights, `${name}.0`, small[0] * small[1] * small[2]), unflatten(small)];
  const all = [...widths.toReversed(), width];
  let place = 2;
  all.slice(1).forEach((after, stage) => {
    for (let i = 0; i < blocks; i++) layers.push(block(weights, `${name}.${place++}`, all[stage], all[stage]));
    layers.push(doubled(), convolution(weights, `${name}.${place + 1}`, after, 3, 1, even(1)));
    place += 2;
  });
  return [...layers, silu(), convolution(weights, `${name}.${place + 1}`, channels, 3, 1, even(1)), margin(margins(sides, multiple).map((side) => -side))];
}

function widthsOf(hidden) {
  if (!Array.isArray(hidden) || hidden.length < 1 || hidden.length > 64) throw new Error("hidden must be a list of 1 to 64 widths.");
  return hidden.map((width) => count(width, "Each of hidden", 65536));
}

function mlpEncoder(weights, name, _, { hidden = [512, 512] }) {
  return [flatten(), ...widthsOf(hidden).flatMap((width, place) => [linear(weights, `${name}.${2 * place + 1}`, width), relu()])];
}

function mlpDecoder(weights, name, shape, { hidden = [512, 512] }) {
  const inner = widthsOf(hidden).flatMap((width, place) => [linear(weights, `${name}.${2 * place}`, width), relu()]);
  return [...inner, linear(weights, `${name}.${inner.length}`, shape[0] * shape[1] * shape[2]), unflatten(shape)];
}

const NETWORKS = new Map([
  ["ConvEncoder", convEncoder],
  ["ConvDecoder", convDecoder],
  ["ResidualEncoder", residualEncoder],
  ["ResidualDecoder", residualDecoder],
  ["MLPEncoder", mlpEncoder],
  ["MLPDecoder", mlpDecoder],
]);

/* A part of a configuration: a name, an object with a name and arguments, or nothing. */
export function partOf(value, otherwise) {
  const part = typeof value === "string" ? { name: value } : (value ?? { name: otherwise });
  if (typeof part !== "object" || typeof part.name !== "string") throw new Error(`${JSON.stringify(value).slice(0, 60)} is not the name of a network.`);
  return part;
}

export function network(weights, name, recipe, otherwise, imageShape, inputShape) {
  const part = partOf(recipe, otherwise);
  const make = NETWORKS.get(part.name);
  if (!make) throw new Error(`The network ${part.name.slice(0, 60)} runs in Python only.`);
  return sequence(make(weights, name, imageShape, part), inputShape);
}
