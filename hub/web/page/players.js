import { readSheet, readUpload } from "./images.js";
import { LiveModel } from "./live-model.js";
import { address, post } from "./server.js";

/* Players compute images and latents of a model: in this browser, or on the server where it runs in Python only. Images are
   [C * H * W] in [0, 1]. */

const SHEET = 64;
const STEPS = 11;
const WORK = 1e9; // multiplications of one action, about a second
const PATIENCE = 1000;
export const STEP_VALUES = Array.from({ length: STEPS }, (_, place) => -2 + (4 * place) / (STEPS - 1));
export const INACTIVE = 0.01;

/* Normal numbers, the same for the same seed. */
export function gaussians(length, seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length }, () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
}

const sharedSeed = () => Math.floor(Math.random() * 2 ** 31);

/* A VAE in this browser. */
class BrowserPlayer {
  constructor(model, files) {
    Object.assign(this, { model, files, shape: model.shape, latents: model.latents, where: "in this browser" });
  }

  get isStopped() {
    return Boolean(this.model.closed);
  }

  /* Images of the data set, if there are any. A server may have to draw them first, and the first image does not wait. */
  async prepare() {
    this.sheet = this.files.images ? readSheet(this.files.images, this.shape, SHEET, this.model.ending.signal).catch(() => []) : Promise.resolve([]);
    const nothing = new Promise((resolve) => setTimeout(() => resolve([]), PATIENCE));
    this.images = await Promise.race([this.sheet, nothing]);
  }

  get hasImages() {
    return this.images.length > 0;
  }

  /* How much each latent tells about images: of fewer where a model is slow. */
  async measure() {
    this.images = await this.sheet;
    const count = Math.min(this.hasImages ? this.images.length : 32, Math.max(4, Math.floor((2 * WORK) / this.model.cost.encode)));
    const codes = Array.from({ length: count }, (_, place) => gaussians(this.latents, place + 1));
    const known = this.hasImages ? this.images.slice(0, count) : await this.decodeAll(codes);
    this.kl = new Array(this.latents).fill(0);
    for (const images of this.parts(known, "encode")) {
      const [means, logvars] = await this.model.ask("encode", { images });
      means.forEach((mean, n) => mean.forEach((value, d) => (this.kl[d] += (value ** 2 + Math.exp(logvars[n][d]) - logvars[n][d] - 1) / 2 / count)));
    }
  }

  /* Few at a time, so that an action is short and what is asked in between is not kept waiting. */
  parts(items, action) {
    const together = Math.max(1, Math.min(STEPS, Math.floor(WORK / this.model.cost[action])));
    return Array.from({ length: Math.ceil(items.length / together) }, (_, place) => items.slice(place * together, (place + 1) * together));
  }

  async encode(image) {
    const [[mean]] = await this.model.ask("encode", { images: [image] });
    return Array.from(mean);
  }

  async decode(codes) {
    return (await this.model.ask("decode", { codes: [codes] }))[0];
  }

  async decodeAll(list) {
    const images = [];
    for (const codes of this.parts(list, "decode")) images.push(...(await this.model.ask("decode", { codes })));
    return images;
  }

  strip(codes, latent) {
    return this.decodeAll(STEP_VALUES.map((value) => codes.with(latent, value)));
  }

  async start(origin) {
    if (origin === "data") {
      const image = this.images[sharedSeed() % this.images.length];
      return { codes: await this.encode(image), input: image };
    }
    return this.sample();
  }

  async sample() {
    return { codes: gaussians(this.latents, sharedSeed()), input: null };
  }

  async first() {
    if (!this.hasImages) return { codes: gaussians(this.latents, 1), input: null };
    return { codes: await this.encode(this.images[0]), input: this.images[0] };
  }

  async upload(file) {
    const image = await readUpload(file, this.shape);
    return { codes: await this.encode(image), input: image };
  }
}

const picture = (src) =>
  new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The server's picture could not be read."));
    image.src = src;
  });

/* A model that moves latents on the server. Its images are pictures. */
class ServerPlayer {
  constructor(id) {
    Object.assign(this, { id, where: "on the server" });
  }

  async ask(action, body) {
    return (await post(address(this.id, action), body)).json();
  }

  async take(started) {
    const { codes, input, kl, at_hand: hasImages } = started;
    Object.assign(this, { latents: codes.length, kl, hasImages });
    return { codes, input: input && (await picture(input)) };
  }

  async prepare() {
    this.begun = await this.take(await this.ask("start", { origin: "any", seed: 0 }));
  }

  /* The server measured it when it began. */
  async measure() {}

  async sample() {
    return { codes: gaussians(this.latents, sharedSeed()), input: null };
  }

  async first() {
    return this.begun;
  }

  async start(origin) {
    return this.take(await this.ask("start", { origin, seed: sharedSeed() }));
  }

  async upload(file) {
    return this.take(await (await post(address(this.id, "upload"), file)).json());
  }

  async decode(codes) {
    const src = URL.createObjectURL(await (await post(address(this.id, "decode"), { codes })).blob());
    return picture(src).finally(() => URL.revokeObjectURL(src));
  }

  async decodeAll(list) {
    const pictures = [];
    for (const codes of list) pictures.push(await this.decode(codes));
    return pictures;
  }

  async strip(codes, latent) {
    const { strips } = await this.ask("strips", { codes, latents: [latent] });
    return [await picture(strips[String(latent)])];
  }
}

/* The player of a checkpoint; `record.live` says where its files are. */
export async function playerOf(record, isServed) {
  try {
    if (!record.live) throw new Error("Its files are not part of this page.");
    const model = await LiveModel.load(record.live.config, record.live.weights);
    if (model.kind !== "latents") throw new Error("This model has no latents to move.");
    const player = new BrowserPlayer(model, record.live);
    await player.prepare();
    return player;
  } catch (error) {
    if (!isServed) throw error;
    const player = new ServerPlayer(record.id);
    await player.prepare();
    return player;
  }
}
