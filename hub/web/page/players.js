import { readSheet, readUpload } from "./images.js";
import { LiveModel } from "./live-model.js";
import { address, post } from "./server.js";

/* Who computes what the page shows of a model: this browser, or the server where a model runs in Python only. Images are
   [C * H * W] in [0, 1]. */

const SHEET = 64;
const STEPS = 11;
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

  /* Images of the data set, if there are any, and how much each latent tells about them. */
  async prepare() {
    this.images = this.files.images ? await readSheet(this.files.images, this.shape, SHEET).catch(() => []) : [];
    let known = this.images;
    if (!known.length) {
      const codes = Array.from({ length: 32 }, (_, place) => gaussians(this.latents, place + 1));
      known = await this.inParts(codes, (part) => this.model.ask("decode", { codes: part }));
    }
    this.kl = new Array(this.latents).fill(0);
    const parts = [];
    for (let first = 0; first < known.length; first += 8) parts.push(await this.model.ask("encode", { images: known.slice(first, first + 8) }));
    for (const [means, logvars] of parts)
      means.forEach((mean, n) => mean.forEach((value, d) => (this.kl[d] += (value ** 2 + Math.exp(logvars[n][d]) - logvars[n][d] - 1) / 2 / known.length)));
    this.hasImages = this.images.length > 0;
  }

  async inParts(items, run) {
    const results = [];
    for (let first = 0; first < items.length; first += STEPS) results.push(...(await run(items.slice(first, first + STEPS))));
    return results;
  }

  async encode(image) {
    const [[mean]] = await this.model.ask("encode", { images: [image] });
    return Array.from(mean);
  }

  async decode(codes) {
    return (await this.model.ask("decode", { codes: [codes] }))[0];
  }

  decodeAll(list) {
    return this.inParts(list, (codes) => this.model.ask("decode", { codes }));
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
