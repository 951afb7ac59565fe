import { batchNorm, convolution, linear, margin, product, relu, sequence, sigmoid, tellProgress, transposed } from "./layers.js";
import { count, margins, shapeOf } from "./networks.js";

/* Models with slots, as `zoo/slot_attention.py`, `slot_encoders.py`, `object_discovery.py` and `set_prediction.py` define
   them. Tokens and slots are rows: [N, D]. */

export const MAX_ITERATIONS = 20;
export const MAX_SLOTS = 32;
const MAX_TOKENS = 1 << 14;
const EPSILON = 1e-8;
const NORM_EPSILON = 1e-3;

/* x [n, inputs] times the transpose of weight [outputs, inputs], plus bias: [n, outputs]. */
function dense(weight, bias, x, n, inputs, outputs) {
  const out = new Float32Array(n * outputs);
  for (let i = 0; i < n; i++)
    for (let o = 0; o < outputs; o++) {
      let sum = bias ? bias[o] : 0;
      for (let d = 0; d < inputs; d++) sum += x[i * inputs + d] * weight[o * inputs + d];
      out[i * outputs + o] = sum;
    }
  return out;
}

function denseLayer(weights, name, inputs, outputs, hasBias = true) {
  const weight = weights.take(`${name}.weight`, [outputs, inputs]);
  const bias = hasBias ? weights.take(`${name}.bias`, [outputs]) : () => null;
  return (x) => dense(weight(), bias(), x, x.length / inputs, inputs, outputs);
}

function layerNorm(weights, name, width) {
  const [scale, shift] = [weights.take(`${name}.weight`, [width]), weights.take(`${name}.bias`, [width])];
  return (x) => {
    const out = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += width) {
      let [mean, variance] = [0, 0];
      for (let d = 0; d < width; d++) mean += x[start + d] / width;
      for (let d = 0; d < width; d++) variance += (x[start + d] - mean) ** 2 / width;
      const deviation = Math.sqrt(variance + NORM_EPSILON);
      for (let d = 0; d < width; d++) out[start + d] = ((x[start + d] - mean) / deviation) * scale()[d] + shift()[d];
    }
    return out;
  };
}

const rectified = (x) => x.map((value) => (value > 0 ? value : 0));

/* Adds a linear function of (row, column, 1 - row, 1 - column) to a map of [channels, count, height, width]. */
function position(weights, name, channels) {
  const [weight, bias] = [weights.take(`${name}.project.weight`, [channels, 4]), weights.take(`${name}.project.bias`, [channels])];
  return (map) => {
    const { data, shape, count: total } = map;
    const [, height, width] = shape;
    const share = (place, side) => (side > 1 ? place / (side - 1) : 0);
    for (let c = 0; c < channels; c++) {
      const [w0, w1, w2, w3] = weight().subarray(4 * c, 4 * c + 4);
      for (let y = 0; y < height; y++)
        for (let x = 0; x < width; x++) {
          const [row, column] = [share(y, height), share(x, width)];
          const added = w0 * row + w1 * column + w2 * (1 - row) + w3 * (1 - column) + bias()[c];
          for (let n = 0; n < total; n++) data[((c * total + n) * height + y) * width + x] += added;
        }
    }
    return map;
  };
}

/* Padding of a 5 x 5 convolution: two on all sides, or TensorFlow's "SAME". */
function padsOf(sides, stride, padding) {
  if (padding !== "tensorflow") return [2, 2, 2, 2];
  const [[above, below], [left, right]] = sides.map((side) => {
    const total = Math.max(0, (Math.ceil(side / stride) - 1) * stride + 5 - side);
    return [Math.floor(total / 2), total - Math.floor(total / 2)];
  });
  return [left, right, above, below];
}

/* Images to tokens, and height and width of the map that they come from. */
function tokensOf(weights, { image_shape, channels, strides, padding, batch_norm, encoder }) {
  if (encoder) throw new Error("A model with slots and an encoder of its own runs in Python only.");
  const shape = shapeOf(image_shape, 16);
  count(channels, "channels", 1024);
  if (!Array.isArray(strides) || strides.length < 1 || strides.length > 16) throw new Error("strides must be a list of 1 to 16 numbers.");
  const layers = [];
  let sides = shape.slice(1);
  let place = 0;
  for (const stride of strides) {
    count(stride, "Each of strides", 64);
    layers.push(convolution(weights, `encoder.convolutions.${place++}`, channels, 5, stride, padsOf(sides, stride, padding)));
    if (batch_norm) layers.push(batchNorm(weights, `encoder.convolutions.${place++}`));
    layers.push(relu());
    place++;
    const pads = padsOf(sides, stride, padding);
    sides = sides.map((side, axis) => Math.floor((side + pads[2 - 2 * axis] + pads[3 - 2 * axis] - 5) / stride) + 1);
  }
  const body = sequence(layers, shape);
  const [, height, width] = body.shape;
  if (height * width > MAX_TOKENS) throw new Error(`More than ${MAX_TOKENS.toLocaleString("en")} tokens are too many to run in a browser.`);
  const embed = position(weights, "encoder.position", channels);
  const norm = layerNorm(weights, "encoder.norm", channels);
  const [first, second] = [0, 2].map((at) => denseLayer(weights, `encoder.mlp.${at}`, channels, channels));
  const run = (image) => {
    const map = embed(body.run({ data: Float32Array.from(image, (value) => 2 * value - 1), shape, count: 1 }));
    const tokens = new Float32Array(map.data.length);
    const area = height * width;
    for (let c = 0; c < channels; c++) for (let at = 0; at < area; at++) tokens[at * channels + c] = map.data[c * area + at];
    return second(rectified(first(norm(tokens))));
  };
  return { shape, height, width, channels, cost: body.cost + 2 * height * width * channels ** 2, run };
}

function transposeRows(x, rows, cols) {
  const out = new Float32Array(x.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < cols; j++) out[j * rows + i] = x[i * cols + j];
  return out;
}

function attentionOf(weights, { num_slots, slot_dim, initial = "gaussian", offset = 0 }, inputs) {
  const [name, width] = ["slot_attention", count(slot_dim, "slot_dim", 1024)];
  const hidden = 128;
  const isLearned = initial === "learned";
  const mu = weights.take(`${name}.mu`, isLearned ? [num_slots, width] : [width]);
  const spread = isLearned ? weights.take(`${name}.noise`, []) : weights.take(`${name}.log_sigma`, [width]);
  const [normInputs, normSlots, normMlp] = [["norm_inputs", inputs], ["norm_slots", width], ["norm_mlp", width]].map(([part, size]) =>
    layerNorm(weights, `${name}.${part}`, size),
  );
  const query = denseLayer(weights, `${name}.q`, width, width, false);
  const key = weights.take(`${name}.k.weight`, [width, inputs]);
  const value = denseLayer(weights, `${name}.v`, inputs, width, false);
  const gates = ["ih", "hh"].map((part) => {
    const [weight, bias] = [weights.take(`${name}.gru.weight_${part}`, [3 * width, width]), weights.take(`${name}.gru.bias_${part}`, [3 * width])];
    return (x) => dense(weight(), bias(), x, x.length / width, width, 3 * width);
  });
  const [first, second] = [denseLayer(weights, `${name}.mlp.0`, width, hidden), denseLayer(weights, `${name}.mlp.2`, hidden, width)];

  const start = (slots, noise) => {
    if (isLearned) return mu().slice();
    return Float32Array.from({ length: slots * width }, (_, at) => mu()[at % width] + Math.exp(spread()[at % width]) * noise[at]);
  };
  const update = (slots, updates) => {
    const [x, h] = [gates[0](updates), gates[1](slots)];
    return slots.map((before, at) => {
      const [row, d] = [Math.floor(at / width) * 3 * width, at % width];
      const reset = sigmoid(x[row + d] + h[row + d]);
      const keep = sigmoid(x[row + width + d] + h[row + width + d]);
      const fresh = Math.tanh(x[row + 2 * width + d] + reset * h[row + 2 * width + d]);
      return (1 - keep) * fresh + keep * before;
    });
  };
  /* Tokens [N, inputs] to slots [K, width] and their attention [K, N]. */
  const run = (tokens, slots, iterations) => {
    const x = normInputs(tokens);
    const [n, k] = [x.length / inputs, slots.length / width];
    const turned = transposeRows(x, n, inputs);
    let attention = null;
    for (let t = 0; t < iterations; t++) {
      tellProgress();
      const q = product(query(normSlots(slots)), key(), k, width, inputs);
      attention = product(q, turned, k, inputs, n);
      for (let at = 0; at < n; at++) {
        let [most, sum] = [-Infinity, 0];
        for (let s = 0; s < k; s++) most = Math.max(most, (attention[s * n + at] /= Math.sqrt(width)));
        for (let s = 0; s < k; s++) sum += attention[s * n + at] = Math.exp(attention[s * n + at] - most);
        for (let s = 0; s < k; s++) attention[s * n + at] /= sum;
      }
      const means = product(attention.map((share) => share + EPSILON), x, k, n, inputs);
      for (let s = 0; s < k; s++) {
        let sum = Number(offset);
        for (let at = 0; at < n; at++) sum += attention[s * n + at] + EPSILON;
        for (let d = 0; d < inputs; d++) means[s * inputs + d] /= sum;
      }
      slots = update(slots, value(means));
      const added = second(rectified(first(normMlp(slots))));
      slots = slots.map((before, at) => before + added[at]);
    }
    return { slots, attention };
  };
  /* Multiplications of `run`. */
  const work = (slots, n, iterations) => slots * iterations * (2 * n * inputs + width * (2 * inputs + 7 * width + 2 * hidden));
  return { width, isLearned, start, run, work };
}

function slotDecoder(weights, width, { channels, image_shape, padding }) {
  const sides = image_shape.slice(1);
  const small = sides.map((side) => Math.ceil(side / 16));
  const layers = [];
  for (let stage = 0; stage < 4; stage++) {
    const scale = 2 ** (stage + 1);
    layers.push(transposed(weights, `decoder.${2 * stage}`, channels, 5, 2, padding === "tensorflow" ? 1 : 2, small[0] * scale, small[1] * scale), relu());
  }
  const whole = small.map((side) => 16 * side);
  layers.push(transposed(weights, "decoder.8", channels, 5, 1, 2, ...whole), relu());
  layers.push(transposed(weights, "decoder.10", image_shape[0] + 1, 3, 1, 1, ...whole), margin(margins(sides, 16).map((side) => -side)));
  return sequence(layers, [width, ...small]);
}

/* Slots [K, width], each spread over a small map, to parts [K][C * H * W] and masks [K][H * W]. */
function decompose(embed, decoder, slots, width, small, [channels, height, width2]) {
  const k = slots.length / width;
  const area = small[0] * small[1];
  const data = new Float32Array(width * k * area);
  for (let d = 0; d < width; d++) for (let s = 0; s < k; s++) data.fill(slots[s * width + d], (d * k + s) * area, (d * k + s + 1) * area);
  const drawn = decoder.run(embed({ data, shape: [width, ...small], count: k })).data;
  const pixels = height * width2;
  const at = (c, s) => (c * k + s) * pixels;
  const whole = new Float32Array(channels * pixels);
  const [parts, masks] = [[], []];
  for (let s = 0; s < k; s++) {
    parts.push(Float32Array.from({ length: channels * pixels }, (_, p) => (drawn[at(Math.floor(p / pixels), s) + (p % pixels)] + 1) / 2));
    masks.push(new Float32Array(pixels));
  }
  for (let p = 0; p < pixels; p++) {
    let [most, sum] = [-Infinity, 0];
    for (let s = 0; s < k; s++) most = Math.max(most, drawn[at(channels, s) + p]);
    for (let s = 0; s < k; s++) sum += masks[s][p] = Math.exp(drawn[at(channels, s) + p] - most);
    for (let s = 0; s < k; s++) {
      masks[s][p] /= sum;
      for (let c = 0; c < channels; c++) whole[c * pixels + p] += masks[s][p] * parts[s][c * pixels + p];
    }
  }
  return { reconstruction: whole, parts, masks };
}

/* The mean of a map of tokens in pooled x pooled windows, as features [channels * pooled * pooled]. */
function pool(tokens, { height, width, channels }, pooled) {
  const out = new Float32Array(channels * pooled * pooled);
  const window = (place, side) => [Math.floor((place * side) / pooled), Math.ceil(((place + 1) * side) / pooled)];
  for (let i = 0; i < pooled; i++)
    for (let j = 0; j < pooled; j++) {
      const [[y0, y1], [x0, x1]] = [window(i, height), window(j, width)];
      for (let c = 0; c < channels; c++) {
        let sum = 0;
        for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) sum += tokens[(y * width + x) * channels + c];
        out[(c * pooled + i) * pooled + j] = sum / ((y1 - y0) * (x1 - x0));
      }
    }
  return out;
}

const DEFAULTS = { image_shape: [3, 128, 128], channels: 64, strides: [1, 2, 2, 1], padding: "symmetric", batch_norm: false, num_slots: 10, num_iterations: 3, slot_dim: 64 };
const OWN_DEFAULTS = new Map([["SlotAutoEncoder", { num_slots: 7, strides: [1, 1, 1, 1] }]]);

export function slotModel(config, weights) {
  const given = Object.fromEntries(Object.entries(config.arguments).filter(([, value]) => value !== null));
  const record = { ...DEFAULTS, ...OWN_DEFAULTS.get(config.model), ...given };
  const slots = count(record.num_slots, "num_slots", MAX_SLOTS);
  const iterations = count(record.num_iterations, "num_iterations", MAX_ITERATIONS);
  if (config.model === "SlotAutoEncoder" && config.arguments.decoder) throw new Error("A model with slots and a decoder of its own runs in Python only.");
  const tokens = tokensOf(weights, record);
  const { shape } = tokens;
  const base = { kind: "slots", shape, slots, iterations, width: record.slot_dim };
  if (config.model === "SlotMLPSetPredictor") {
    const { pooled = 8, hidden_dim = 512, slot_dim } = record;
    const inputs = tokens.channels * count(pooled, "pooled", 64) ** 2;
    const widths = [count(hidden_dim, "hidden_dim", 65536), hidden_dim, slots * slot_dim];
    const mlp = sequence([linear(weights, "mlp.0", widths[0]), relu(), linear(weights, "mlp.2", widths[1]), relu(), linear(weights, "mlp.4", widths[2])], [inputs]);
    const head = headOf(weights, slot_dim);
    const look = (image) => {
      const rows = mlp.run({ data: pool(tokens.run(image), tokens, pooled), shape: [inputs], count: 1 }).data;
      return { sets: head(rows), attention: null };
    };
    return { ...base, kind: "sets", iterations: null, work: { look: () => tokens.cost + mlp.cost }, look };
  }
  const attention = attentionOf(weights, record, tokens.channels);
  base.isLearned = attention.isLearned;
  const workWith = (perSlot) => ({ noise, iterations }) => {
    const total = noise.length / attention.width;
    return tokens.cost + attention.work(total, tokens.height * tokens.width, iterations) + total * perSlot;
  };
  const find = (image, noise, steps) => attention.run(tokens.run(image), attention.start(noise.length / attention.width, noise), steps);
  if (config.model === "SlotSetPredictor") {
    const head = headOf(weights, attention.width);
    const look = (image, noise, steps) => {
      const { slots: rows, attention: shares } = find(image, noise, steps);
      return { sets: head(rows), attention: shares, places: [tokens.height, tokens.width] };
    };
    return { ...base, kind: "sets", work: { look: workWith(0) }, look };
  }
  const embed = position(weights, "position", attention.width);
  const decoder = slotDecoder(weights, attention.width, record);
  const small = shape.slice(1).map((side) => Math.ceil(side / 16));
  const look = (image, noise, steps) => decompose(embed, decoder, find(image, noise, steps).slots, attention.width, small, shape);
  return { ...base, work: { look: workWith(decoder.cost) }, look };
}

/* A slot to the 19 numbers of an object. */
function headOf(weights, width) {
  const [first, second] = [denseLayer(weights, "head.0", width, 64), denseLayer(weights, "head.2", 64, 19)];
  return (slots) => second(rectified(first(slots))).map(sigmoid);
}
