import { byId } from "./dom.js";

/* Talking to the server; a page that was written to a file has its data inside and asks nobody. */

export const embedded = byId("data") && JSON.parse(byId("data").textContent);
const token = document.querySelector('meta[name="token"]')?.content ?? "";

const DEADLINE = 90_000;
/* Actions that move many bytes. */
const LONG = 900_000;
const isLong = (path) => /\/(download|push)$/.test(path);

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(isLong(path) ? LONG : DEADLINE), ...options });
  } catch (error) {
    if (error.name === "TimeoutError") throw new Error("No answer in time. Try again.");
    throw new Error("The server does not answer. Is `unknot browse` still running?");
  }
  if (!response.ok) {
    const record = await response.json().catch(() => ({}));
    throw new Error(record.error ?? `The server refused (${response.status}).`);
  }
  return response;
}

/* The record of one checkpoint on a page without a server: inside it, or in a file beside it. */
export async function writtenDetail(id) {
  return embedded.details ? embedded.details[id] : get(`models/${encodeURIComponent(id)}/detail.json`);
}

export const get = async (path) => (await request(path)).json();

export function post(path, body) {
  const content = body instanceof Blob ? body : JSON.stringify(body ?? {});
  return request(path, { method: "POST", headers: { "X-Unknot-Token": token }, body: content });
}

export const address = (id, action) => `api/checkpoints/${id}/${action}`;

/* While one request is under way, only the newest of those that follow is made. */
export function newestOnly(task, failed) {
  let isBusy = false;
  let isAsked = false;
  return async () => {
    isAsked = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isAsked) {
        isAsked = false;
        await task();
      }
    } catch (error) {
      failed(error);
    } finally {
      isBusy = false;
    }
  };
}
