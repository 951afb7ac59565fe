import { byId } from "./dom.js";

/* A model that runs in this browser, in a worker of its own. One is loaded at a time. The worker tells when it begins an
   action and between layers, and refuses actions of too many multiplications: what ends a model is work, not the wait
   for a busy machine. */

const SILENCE = 5000; // between two layers
const FETCH_DEADLINE = 60_000;
const MAX_BYTES = 96 << 20;
let open = null;

/* Bytes of a file of this site, or of one that is inside the page. */
async function bytesOf(url) {
  const inside = byId(url);
  if (inside) return Uint8Array.from(atob(inside.textContent), (letter) => letter.charCodeAt(0)).buffer;
  const response = await fetch(url, { signal: AbortSignal.timeout(FETCH_DEADLINE) }).catch(() => null);
  if (!response?.ok) throw new Error(`The model could not be loaded (${response?.status ?? "no answer"}). Try again.`);
  const parts = [];
  let size = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MAX_BYTES) {
      reader.cancel();
      throw new Error(`This file has more than ${MAX_BYTES >> 20} MB, too many to run in a browser.`);
    }
    parts.push(value);
  }
  return new Blob(parts).arrayBuffer();
}

function startWorker() {
  const script = byId("worker");
  if (!script) return new Worker(new URL("page/worker.js", document.baseURI), { type: "module" });
  const address = URL.createObjectURL(new Blob([script.textContent], { type: "text/javascript" }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  return worker;
}

export class LiveModel {
  constructor() {
    open?.close("Another model was opened.");
    open = this;
    this.waiting = new Map();
    this.ending = new AbortController();
    this.count = 0;
    this.worker = startWorker();
    this.worker.addEventListener("message", ({ data: { id, result, error } }) => {
      this.hasBegun = true;
      const request = this.waiting.get(id);
      const isDone = result !== undefined || error !== undefined;
      if (isDone) this.waiting.delete(id);
      this.watch();
      if (error !== undefined) request?.reject(new Error(error));
      else if (isDone) request?.resolve(result);
    });
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.close("The model could not be run in this browser.");
    });
  }

  static async load(config, weights) {
    const model = new LiveModel();
    try {
      const [text, buffer] = await Promise.all([bytesOf(config).then((bytes) => new TextDecoder().decode(bytes)), bytesOf(weights)]);
      return Object.assign(model, await model.ask("load", { config: text, weights: buffer }, [buffer]));
    } catch (error) {
      model.close(error.message);
      throw error;
    }
  }

  ask(action, given, moved = []) {
    if (this.closed) return Promise.reject(new Error(this.closed));
    return new Promise((resolve, reject) => {
      const id = this.count++;
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, action, given }, moved);
      if (this.waiting.size === 1) this.watch();
    });
  }

  /* End a worker from which nothing is heard. Its first action waits for its scripts. */
  watch() {
    clearTimeout(this.timer);
    if (!this.waiting.size) return;
    const limit = this.hasBegun ? SILENCE : FETCH_DEADLINE;
    const late = () => this.close(`Stopped: no layer of this model was computed for ${limit / 1000} seconds.`);
    this.timer = setTimeout(late, limit);
  }

  close(reason) {
    if (this.closed) return;
    this.closed = reason;
    clearTimeout(this.timer);
    this.worker.terminate();
    this.ending.abort();
    for (const { reject } of this.waiting.values()) reject(new Error(reason));
    this.waiting.clear();
    if (open === this) open = null;
  }
}
