/* Reading model.safetensors. The file may come from anyone: sizes are checked before anything is allocated. */

const MAX_HEADER = 1 << 20;
export const MAX_FILE = 96 << 20;
export const MAX_VALUES = 24e6;
const BYTES = new Map([
  ["F64", 8],
  ["F32", 4],
  ["F16", 2],
  ["BF16", 2],
]);

let halves = null;

/* All 65,536 half-precision numbers. */
function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(1 << 16);
  for (let bits = 0; bits < 1 << 16; bits++) {
    const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction;
    halves[bits] = sign * size;
  }
  return halves;
}

function toSingles(buffer, start, count, dtype) {
  const bytes = buffer.slice(start, start + count * BYTES.get(dtype)); // aligned, whatever the header's length
  if (dtype === "F64") return Float32Array.from(new Float64Array(bytes));
  if (dtype === "F32") return new Float32Array(bytes);
  const bits = new Uint16Array(bytes);
  const values = new Float32Array(count);
  if (dtype === "F16") {
    const table = halfTable();
    for (let place = 0; place < count; place++) values[place] = table[bits[place]];
    return values;
  }
  const word = new Uint32Array(1);
  const single = new Float32Array(word.buffer);
  for (let place = 0; place < count; place++) {
    word[0] = bits[place] << 16;
    values[place] = single[0];
  }
  return values;
}

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

function entryOf(name, { dtype, shape, data_offsets: offsets } = {}, room) {
  const isShape = Array.isArray(shape) && shape.length <= 8 && shape.every(isCount);
  const isPlace = Array.isArray(offsets) && offsets.length === 2 && offsets.every(isCount);
  const count = isShape ? shape.reduce((product, side) => product * side, 1) : NaN;
  if (!isShape || !isPlace || offsets[1] > room || offsets[0] > offsets[1])
    throw new Error(`model.safetensors is damaged: ${name.slice(0, 80)} has no valid shape or place.`);
  if (BYTES.has(dtype) && offsets[1] - offsets[0] !== count * BYTES.get(dtype))
    throw new Error(`model.safetensors is damaged: ${name.slice(0, 80)} does not have the size of its shape.`);
  return { dtype, shape, start: offsets[0], count };
}

/* Tensors by name. `take` gives one that must have a shape; `unused` names those that nobody took. */
export class Weights {
  constructor(buffer) {
    if (buffer.byteLength > MAX_FILE) throw new Error(`model.safetensors has more than ${MAX_FILE >> 20} MB, too many to run in a browser.`);
    const length = buffer.byteLength < 8 ? Infinity : Number(new DataView(buffer).getBigUint64(0, true));
    if (length > Math.min(MAX_HEADER, buffer.byteLength - 8)) throw new Error("model.safetensors is damaged: its header is not whole.");
    let header;
    try {
      header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(buffer, 8, length)));
    } catch {
      throw new Error("model.safetensors is damaged: its header is not JSON.");
    }
    if (typeof header !== "object" || header === null) throw new Error("model.safetensors is damaged: its header is not an object.");
    this.buffer = buffer;
    this.start = 8 + length;
    this.entries = new Map();
    this.taken = new Set();
    this.values = 0;
    const room = buffer.byteLength - this.start;
    for (const [name, entry] of Object.entries(header))
      if (name !== "__metadata__") this.entries.set(name, entryOf(name, entry ?? {}, room));
  }

  /* Check now; read on the first call of what this returns. */
  take(name, shape) {
    const entry = this.entries.get(name);
    if (!entry) throw new Error(`These are not the weights of this model: there is no ${name}.`);
    if (entry.shape.length !== shape.length || entry.shape.some((side, axis) => side !== shape[axis]))
      throw new Error(`These are not the weights of this model: ${name} is [${entry.shape}] and not [${shape}].`);
    if (!BYTES.has(entry.dtype)) throw new Error(`${name} is stored as ${String(entry.dtype).slice(0, 20)}, expected F16, BF16, F32 or F64.`);
    if (!this.taken.has(name)) this.values += entry.count;
    if (this.values > MAX_VALUES) throw new Error(`This model has more than ${MAX_VALUES / 1e6} million weights, too many to run in a browser.`);
    this.taken.add(name);
    let read = null;
    return () => (read ??= toSingles(this.buffer, this.start + entry.start, entry.count, entry.dtype));
  }

  unused(isTrainingOnly) {
    return [...this.entries.keys()].filter((name) => !this.taken.has(name) && !isTrainingOnly(name));
  }
}
