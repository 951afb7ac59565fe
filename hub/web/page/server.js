import { byId } from "./dom.js";

/* Talking to the server; a page that was written to a file has its data inside and asks nobody. */

export const embedded = byId("data") && JSON.parse(byId("data").textContent);
const token = document.querySelector('meta[name="token"]')?.content ?? "";

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `unknot browse` still running?");
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(told.error ?? `The server refused (${response.status}).`);
  }
  return response;
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
      failed(error.message);
    } finally {
      isBusy = false;
    }
  };
}
