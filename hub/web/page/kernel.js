/* The product of matrices in WebAssembly, 4 x 8 numbers at a time. Its instructions are written here by hand, since a
   kilobyte needs no compiler; where a page may not run WebAssembly, `multiply` is null. */

const ROWS = 4;
const VECTORS = 2; // of four numbers each
const COLUMNS = 4 * VECTORS;
const [I32, V128] = [0x7f, 0x7b];
const PARAMETERS = ["a", "b", "rows", "inner", "stride", "bias", "out", "columns"];
const NUMBERS = ["column", "left", "pb", "po", "aBytes", "bBytes", "p0", "p1", "p2", "p3"];
const grid = Array.from({ length: ROWS }, (_, i) => Array.from({ length: VECTORS }, (__, j) => `sum${i}${j}`));
const VALUES = [...grid.flat(), "b0", "b1", "factor"];
const places = new Map([...PARAMETERS, ...NUMBERS, ...VALUES].map((name, place) => [name, place]));

/* Instructions; constants and offsets are below 64, which take one byte. */
const get = (name) => [0x20, places.get(name)];
const set = (name, value) => [value, 0x21, places.get(name)];
const constant = (value) => [0x41, value];
const add = (one, other) => [one, other, 0x6a];
const shifted = (value) => [value, constant(2), 0x74]; // numbers to bytes
const more = (name, value) => set(name, add(get(name), value));
const load = (address, offset) => [address, 0xfd, 0x00, 2, offset];
const spread = (address, offset) => [address, 0xfd, 0x09, 2, offset];
const save = (address, value, offset) => [address, value, 0xfd, 0x0b, 2, offset];
const plus = (one, other) => [one, other, 0xfd, 0xe4, 0x01];
const times = (one, other) => [one, other, 0xfd, 0xe6, 0x01];
const less = (name, by) => [get(name), constant(by), 0x6b, 0x22, places.get(name)]; // and what is left
const repeated = (body, condition) => [0x03, 0x40, body, condition, 0x0d, 0, 0x0b];
const each = (make) => grid.map((sums, i) => sums.map((sum, j) => make(sum, i, j)));

const inner = [
  set("b0", load(get("pb"), 0)),
  set("b1", load(get("pb"), 16)),
  grid.map((sums, i) => [
    set("factor", spread(get(`p${i}`), 0)),
    sums.map((sum, j) => set(sum, plus(get(sum), times(get("factor"), get(`b${j}`))))),
    more(`p${i}`, constant(4)),
  ]),
  more("pb", get("bBytes")),
];
const tile = [
  each((sum, i) => set(sum, spread(get("bias"), 4 * i))),
  grid.map((_, i) => set(`p${i}`, i ? add(get(`p${i - 1}`), get("aBytes")) : get("a"))),
  set("pb", add(get("b"), shifted(get("column")))),
  set("left", get("inner")),
  repeated(inner, less("left", 1)),
  set("po", add(get("out"), shifted(get("column")))),
  grid.map((sums) => [sums.map((sum, j) => save(get("po"), get(sum), 16 * j)), more("po", get("bBytes"))]),
  more("column", constant(COLUMNS)),
];
const code = [
  set("aBytes", shifted(get("inner"))),
  set("bBytes", shifted(get("stride"))),
  repeated(
    [
      set("column", constant(0)),
      repeated(tile, [get("column"), get("columns"), 0x49]),
      more("a", shifted(get("aBytes"))),
      more("out", shifted(get("bBytes"))),
      more("bias", constant(16)),
    ],
    less("rows", ROWS),
  ),
  0x0b,
];

/* Lengths take seven bits a byte. */
const sized = (bytes) => [(bytes.length & 127) | 128, bytes.length >> 7, bytes];
const named = (name) => [name.length, Array.from(name, (letter) => letter.charCodeAt(0))];
const part = (number, ...content) => [number, sized(content.flat(Infinity))];

function moduleBytes() {
  const locals = [2, NUMBERS.length, I32, VALUES.length, V128];
  const parts = [
    part(1, 1, 0x60, PARAMETERS.length, PARAMETERS.map(() => I32), 0),
    part(3, 1, 0),
    part(5, 1, 0, 1),
    part(7, 2, named("memory"), 2, 0, named("product"), 0, 0),
    part(10, 1, sized([locals, code].flat(Infinity))),
  ];
  return Uint8Array.from([0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0, parts].flat(Infinity));
}

function instance() {
  try {
    return new WebAssembly.Instance(new WebAssembly.Module(moduleBytes())).exports;
  } catch {
    return null;
  }
}

function multiplier({ memory, product }) {
  let heap = new Float32Array(memory.buffer);
  const PAGE = 1 << 14; // numbers
  return (a, b, m, k, n, bias, out) => {
    const [rows, columns] = [m - (m % ROWS), n - (n % COLUMNS)];
    if (!rows || !columns || !k) return [0, 0];
    const [atB, atBias] = [m * k, m * k + k * n];
    const atOut = atBias + m;
    const end = atOut + m * n;
    if (heap.length < end) {
      memory.grow(Math.ceil((end - heap.length) / PAGE));
      heap = new Float32Array(memory.buffer);
    }
    heap.set(a.subarray(0, m * k), 0);
    heap.set(b.subarray(0, k * n), atB);
    if (bias) heap.set(bias, atBias);
    else heap.fill(0, atBias, atOut);
    product(0, 4 * atB, rows, k, n, 4 * atBias, 4 * atOut, columns);
    out.set(heap.subarray(atOut, end));
    return [rows, columns];
  };
}

const exported = instance();

/* a [m, k] times b [k, n], plus bias [m], into out [m, n]: how many rows and columns of it, in fours and eights. */
export const multiply = exported && multiplier(exported);
