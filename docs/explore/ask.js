// The tiny model, in a worker, for the pages that run it. They load engine.js before this: model,
// problems, recipes and the playground's code, one file that the browser keeps for both pages.
"use strict";

const MISSING = "This page runs the tiny model, which is not beside it yet. In a clone, type " +
  "“uv run python docs/explore/make_engine.py”, then load the page again.";

// Whether there is a model; if not, the page says how to get one.
function has_model(place) {
  if (typeof ENGINE !== "undefined") return true;
  place.textContent = MISSING;
  return false;
}

const waiting = new Map();
let worker = null, last_id = 0;

// A promise of the worker's reply; its `.id` is for stopping it.
function ask(what, request = {}) {
  worker ??= started();
  const id = ++last_id;
  const promise = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  worker.postMessage({ id, what, ...request });
  return Object.assign(promise, { id });
}

const stop = (id) => worker.postMessage({ stop: id });

// Made of text, so that the page also opens from the disk.
function started() {
  const { data, weights, worker: code } = ENGINE;
  const made = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  made.onmessage = ({ data: { id, event, result, error } }) => {
    if (event !== undefined) return; // a page here waits for the whole
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error !== undefined) reject(new Error(error));
    else resolve(result);
  };
  waiting.set(0, { resolve() {}, reject(error) { throw error; } });
  made.postMessage({ id: 0, what: "open", models: data.models, weights: [weights], tokenizer: data.tokenizer });
  return made;
}

const SHOWN = { " ": "␣", "\n": "↵", "\t": "⇥" };
const visible_token = (text) => text.replace(/[ \n\t]/g, (c) => SHOWN[c]) || "(part of a character)";
