import { byId } from "./dom.js";

/* A model that runs in this browser, in a worker of its own. One is loaded at a time. */

const MODEL_DEADLINE = 5000;
const FETCH_DEADLINE = 60_000;
const MAX_BYTES = 96 << 20;
let open = null;

/* Bytes of a file of this site, or of one that is inside the page. */
async function bytesOf(url) {
  const inside = byId(url);
  if (inside) return Uint8Array.from(atob(inside.textContent), (letter) => letter.charCodeAt(0)).buffer;
  const response = await fetch(url, { signal: AbortSignal.timeout(FETCH_DEADLINE) }).catch(() => null);
  if (!response?.ok) throw new Error(`The model could not be loaded (${response?.status ?? "no answer"}). Reload the page.`);
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
    this.count = 0;
    this.worker = startWorker();
    this.worker.addEventListener("message", ({ data: { id, result, error } }) => {
      const asked = this.waiting.get(id);
      this.waiting.delete(id);
      clearTimeout(asked?.timer);
      if (error === undefined) asked?.resolve(result);
      else asked?.reject(new Error(error));
    });
    this.worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.close("The model could not be run in this browser.");
    });
  }

  static async load(config, weights) {
    const [text, buffer] = await Promise.all([bytesOf(config).then((bytes) => new TextDecoder().decode(bytes)), bytesOf(weights)]);
    const model = new LiveModel();
    Object.assign(model, await model.ask("load", { config: text, weights: buffer }, [buffer]));
    return model;
  }

  /* The clock runs while the worker is at this question, not while it waits for those before it. */
  ask(action, given, moved = []) {
    if (this.closed) return Promise.reject(new Error(this.closed));
    const before = this.last ?? Promise.resolve();
    const asked = before.catch(() => {}).then(
      () =>
        new Promise((resolve, reject) => {
          if (this.closed) return reject(new Error(this.closed));
          const id = this.count++;
          const late = () => this.close(`Stopped after ${MODEL_DEADLINE / 1000} seconds: this model takes too long for a browser.`);
          this.waiting.set(id, { resolve, reject, timer: setTimeout(late, MODEL_DEADLINE) });
          this.worker.postMessage({ id, action, given }, moved);
        }),
    );
    this.last = asked;
    return asked;
  }

  close(reason) {
    if (this.closed) return;
    this.closed = reason;
    this.worker.terminate();
    for (const { reject, timer } of this.waiting.values()) {
      clearTimeout(timer);
      reject(new Error(reason));
    }
    this.waiting.clear();
    if (open === this) open = null;
  }
}
