import { multiply } from "./kernel.js";

/* Layers of networks over typed arrays. A map of a batch is { data, shape, count } with data [channels, count, height,
   width], so that each layer is one product of matrices; features are data [features, count] with shape [features].

   A layer has `shape`, that of its output for one image, `cost`, its multiplications for one image, and `run`. Shapes
   are computed before anything is allocated, and refused where they are too large. */

export const MAX_COST = 1.5e9;
export const MAX_MAP = 8e6;

const size = (shape) => shape.reduce((product, side) => product * side, 1);
let columns = new Float32Array(0);

const PAUSE = 200;
const progress = { report: () => {}, last: 0 };

/* Call `report` between layers, at most five times a second: a worker that computes cannot be asked. */
export function reportProgress(report) {
  progress.report = report;
}

export function tellProgress() {
  const now = performance.now();
  if (now - progress.last < PAUSE) return;
  progress.last = now;
  progress.report();
}

/* Memory for intermediate columns, used by one layer at a time. */
function columnsOf(length) {
  if (columns.length < length) columns = new Float32Array(length);
  return columns;
}

/* a [m, k] times b [k, n], plus bias [m]: [m, n]. */
export function product(a, b, m, k, n, bias = null, out = new Float32Array(m * n)) {
  let [rows, cols] = multiply ? multiply(a, b, m, k, n, bias, out) : [0, 0];
  if (!rows) [rows, cols] = inBlocks(a, b, m, k, n, bias, out);
  const single = (i, j) => {
    let sum = bias ? bias[i] : 0;
    for (let x = 0; x < k; x++) sum += a[i * k + x] * b[x * n + j];
    out[i * n + j] = sum;
  };
  for (let i = 0; i < rows; i++) for (let j = cols; j < n; j++) single(i, j);
  for (let i = rows; i < m; i++) for (let j = 0; j < n; j++) single(i, j);
  return out;
}

/* Without WebAssembly, in blocks of 4 x 2 that stay in registers. */
function inBlocks(a, b, m, k, n, bias, out) {
  const [rows, cols] = [m - (m % 4), n - (n % 2)];
  for (let i = 0; i < rows; i += 4) {
    const [d0, d1, d2, d3] = bias ? [bias[i], bias[i + 1], bias[i + 2], bias[i + 3]] : [0, 0, 0, 0];
    for (let j = 0; j < cols; j += 2) {
      let [p, at] = [i * k, j];
      let q = p + k;
      let r = q + k;
      let s = r + k;
      let c00 = d0, c01 = d0, c10 = d1, c11 = d1, c20 = d2, c21 = d2, c30 = d3, c31 = d3;
      for (let x = 0; x < k; x++, at += n) {
        const b0 = b[at], b1 = b[at + 1];
        const a0 = a[p++], a1 = a[q++], a2 = a[r++], a3 = a[s++];
        c00 += a0 * b0; c01 += a0 * b1;
        c10 += a1 * b0; c11 += a1 * b1;
        c20 += a2 * b0; c21 += a2 * b1;
        c30 += a3 * b0; c31 += a3 * b1;
      }
      let o = i * n + j;
      out[o] = c00; out[o + 1] = c01; o += n;
      out[o] = c10; out[o + 1] = c11; o += n;
      out[o] = c20; out[o + 1] = c21; o += n;
      out[o] = c30; out[o + 1] = c31;
    }
  }
  return [rows, cols];
}

function transpose(values, rows, cols) {
  const turned = new Float32Array(values.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < cols; j++) turned[j * rows + i] = values[i * cols + j];
  return turned;
}

const once = (make) => {
  let made = null;
  return () => (made ??= make());
};

function layer(shape, cost, run) {
  if (!shape.every((side) => Number.isSafeInteger(side) && side > 0)) throw new Error(`A layer of this model gives [${shape}].`);
  if (size(shape) > MAX_MAP || cost > MAX_COST) throw new Error("A layer of this model is too large to run in a browser.");
  return { shape, cost, run };
}

const elementwise = (change) => (shape) =>
  layer(shape, 0, (map) => {
    const { data } = map;
    for (let place = 0; place < data.length; place++) data[place] = change(data[place]);
    return map;
  });

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));
export const relu = () => elementwise((x) => (x > 0 ? x : 0));
export const silu = () => elementwise((x) => x * sigmoid(x));
export const logistic = () => elementwise(sigmoid);

/* Layers one after another. */
export function sequence(layers, shape) {
  const made = [];
  let cost = 0;
  for (const make of layers) {
    const next = make(shape);
    made.push(next);
    ({ shape } = next);
    cost += next.cost;
    if (cost > MAX_COST) throw new Error("This model is too large to run in a browser.");
  }
  const step = (map, next) => {
    const after = next.run(map);
    tellProgress();
    return after;
  };
  return { shape, cost, run: (map) => made.reduce(step, map) };
}

export const linear = (weights, name, outputs, hasBias = true) => ([inputs, ...rest]) => {
  if (rest.length) throw new Error(`${name} needs features, and got a map.`);
  const weight = weights.take(`${name}.weight`, [outputs, inputs]);
  const bias = hasBias ? weights.take(`${name}.bias`, [outputs]) : () => null;
  return layer([outputs], inputs * outputs, ({ data, count }) => ({
    data: product(weight(), data, outputs, inputs, count, bias()),
    shape: [outputs],
    count,
  }));
};

export const flatten = () => (shape) => {
  const [channels, height, width] = shape;
  const area = height * width;
  return layer([size(shape)], 0, ({ data, count }) => {
    const flat = new Float32Array(data.length);
    for (let c = 0; c < channels; c++)
      for (let n = 0; n < count; n++)
        for (let place = 0; place < area; place++) flat[(c * area + place) * count + n] = data[(c * count + n) * area + place];
    return { data: flat, shape: [size(shape)], count };
  });
};

export const unflatten = (shape) => ([features]) => {
  if (size(shape) !== features) throw new Error(`${features} features do not make a map [${shape}].`);
  const area = shape[1] * shape[2];
  return layer(shape, 0, ({ data, count }) => {
    const map = new Float32Array(data.length);
    for (let c = 0; c < shape[0]; c++)
      for (let n = 0; n < count; n++)
        for (let place = 0; place < area; place++) map[(c * count + n) * area + place] = data[(c * area + place) * count + n];
    return { data: map, shape, count };
  });
};

/* A convolution; `pad` is [left, right, above, below]. */
export const convolution = (weights, name, outputs, kernel, stride = 1, pad = [0, 0, 0, 0]) => ([channels, height, width]) => {
  const high = Math.floor((height + pad[2] + pad[3] - kernel) / stride) + 1;
  const wide = Math.floor((width + pad[0] + pad[1] - kernel) / stride) + 1;
  const depth = channels * kernel * kernel;
  const weight = weights.take(`${name}.weight`, [outputs, channels, kernel, kernel]);
  const bias = weights.take(`${name}.bias`, [outputs]);
  const run = ({ data, count }) => {
    const pixels = count * high * wide;
    const spread = columnsOf(depth * pixels);
    let row = 0;
    for (let c = 0; c < channels; c++)
      for (let ky = 0; ky < kernel; ky++)
        for (let kx = 0; kx < kernel; kx++, row++)
          for (let n = 0; n < count; n++)
            for (let y = 0; y < high; y++) {
              const from = y * stride + ky - pad[2];
              let to = row * pixels + (n * high + y) * wide;
              if (from < 0 || from >= height) {
                spread.fill(0, to, to + wide);
                continue;
              }
              const start = ((c * count + n) * height + from) * width;
              for (let x = 0, at = kx - pad[0]; x < wide; x++, at += stride) spread[to++] = at < 0 || at >= width ? 0 : data[start + at];
            }
    return { data: product(weight(), spread, outputs, depth, pixels, bias()), shape: [outputs, high, wide], count };
  };
  const made = layer([outputs, high, wide], outputs * depth * high * wide, run);
  if (depth * high * wide > MAX_MAP) throw new Error("A layer of this model is too large to run in a browser.");
  return made;
};

/* A transposed convolution cut by `pad` above and left, to `high` x `wide`. */
export const transposed = (weights, name, outputs, kernel, stride, pad, high, wide) => ([channels, height, width]) => {
  const depth = outputs * kernel * kernel;
  const weight = weights.take(`${name}.weight`, [channels, outputs, kernel, kernel]);
  const turned = once(() => transpose(weight(), channels, depth));
  const bias = weights.take(`${name}.bias`, [outputs]);
  const run = ({ data, count }) => {
    const pixels = count * height * width;
    const spread = product(turned(), data, depth, channels, pixels, null, columnsOf(depth * pixels));
    const out = new Float32Array(outputs * count * high * wide);
    const starts = bias();
    let row = 0;
    for (let c = 0; c < outputs; c++) {
      out.fill(starts[c], c * count * high * wide, (c + 1) * count * high * wide);
      for (let ky = 0; ky < kernel; ky++)
        for (let kx = 0; kx < kernel; kx++, row++)
          for (let n = 0; n < count; n++)
            for (let y = 0; y < height; y++) {
              const to = y * stride + ky - pad;
              if (to < 0 || to >= high) continue;
              const [from, start] = [row * pixels + (n * height + y) * width, ((c * count + n) * high + to) * wide];
              for (let x = 0, at = kx - pad; x < width; x++, at += stride) if (at >= 0 && at < wide) out[start + at] += spread[from + x];
            }
    }
    return { data: out, shape: [outputs, high, wide], count };
  };
  const made = layer([outputs, high, wide], channels * depth * height * width, run);
  if (depth * height * width > MAX_MAP) throw new Error("A layer of this model is too large to run in a browser.");
  return made;
};

/* Zeros around a map, or, with negative margins, cut from it: [left, right, above, below]. */
export const margin = ([left, right, above, below]) => ([channels, height, width]) => {
  const [high, wide] = [height + above + below, width + left + right];
  return layer([channels, high, wide], 0, ({ data, count }) => {
    const out = new Float32Array(channels * count * high * wide);
    for (let plane = 0; plane < channels * count; plane++)
      for (let y = Math.max(0, -above); y < Math.min(height, height + below); y++)
        for (let x = Math.max(0, -left); x < Math.min(width, width + right); x++)
          out[(plane * high + y + above) * wide + x + left] = data[(plane * height + y) * width + x];
    return { data: out, shape: [channels, high, wide], count };
  });
};

/* Pixels repeated twice along both sides. */
export const doubled = () => ([channels, height, width]) =>
  layer([channels, 2 * height, 2 * width], 0, ({ data, count }) => {
    const out = new Float32Array(4 * data.length);
    for (let line = 0; line < channels * count * height; line++)
      for (let x = 0; x < width; x++) {
        const [value, at] = [data[line * width + x], line * 4 * width + 2 * x];
        out[at] = out[at + 1] = out[at + 2 * width] = out[at + 2 * width + 1] = value;
      }
    return { data: out, shape: [channels, 2 * height, 2 * width], count };
  });

const commonDivisor = (a, b) => (b ? commonDivisor(b, a % b) : a);

export const groupNorm = (weights, name) => (shape) => {
  const [channels, height, width] = shape;
  const [scale, shift] = [weights.take(`${name}.weight`, [channels]), weights.take(`${name}.bias`, [channels])];
  const groups = commonDivisor(8, channels);
  const [each, area] = [channels / groups, height * width];
  return layer(shape, 0, ({ data, count }) => {
    const out = new Float32Array(data.length);
    for (let n = 0; n < count; n++)
      for (let group = 0; group < groups; group++) {
        let [sum, squares] = [0, 0];
        for (let c = group * each; c < (group + 1) * each; c++)
          for (let at = (c * count + n) * area, end = at + area; at < end; at++) sum += data[at];
        const mean = sum / (each * area);
        for (let c = group * each; c < (group + 1) * each; c++)
          for (let at = (c * count + n) * area, end = at + area; at < end; at++) squares += (data[at] - mean) ** 2;
        const deviation = Math.sqrt(squares / (each * area) + 1e-5);
        for (let c = group * each; c < (group + 1) * each; c++)
          for (let at = (c * count + n) * area, end = at + area; at < end; at++)
            out[at] = ((data[at] - mean) / deviation) * scale()[c] + shift()[c];
      }
    return { data: out, shape, count };
  });
};

/* Batch normalisation by the statistics of training. */
export const batchNorm = (weights, name) => (shape) => {
  const parts = ["weight", "bias", "running_mean", "running_var"].map((part) => weights.take(`${name}.${part}`, [shape[0]]));
  return layer(shape, 0, ({ data, count }) => {
    const [scale, shift, mean, variance] = parts.map((part) => part());
    const out = new Float32Array(data.length);
    const area = data.length / shape[0];
    for (let c = 0; c < shape[0]; c++) {
      const factor = scale[c] / Math.sqrt(variance[c] + 1e-5);
      for (let at = c * area; at < (c + 1) * area; at++) out[at] = (data[at] - mean[c]) * factor + shift[c];
    }
    return { data: out, shape, count };
  });
};

/* x + branch(x), or around(x) + branch(x). */
export const residual = (branch, around) => (shape) => {
  const inside = sequence(branch, shape);
  const past = around ? around(shape) : null;
  return layer(inside.shape, inside.cost + (past?.cost ?? 0), (map) => {
    const [added, kept] = [inside.run(map), past ? past.run(map) : map]; // a branch starts with a layer that copies
    for (let place = 0; place < added.data.length; place++) added.data[place] += kept.data[place];
    return added;
  });
};
