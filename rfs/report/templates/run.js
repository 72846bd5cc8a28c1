"use strict";
// The slider, and the values under the curves. Text is only ever set as textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, props);
  made.append(...children);
  return made;
}
const seen = { " ": "␣", "\n": "↵", "\t": "⇥" };
const label = (token) => token.replace(/[ \n\t]/g, (c) => seen[c]) || "(part of a character)";
const BOUNDS = [0.9, 0.7, 0.5, 0.2, 0.05, 0.01];

// ---- the slider through training ----
const probes = data.probes;
const state = { problem: 0, at: 0, token: 0 };
let playing = 0;

function current() { return probes.problems[state.problem].at[state.at]; }

function showAll() {
  const problem = probes.problems[state.problem];
  byId("question").textContent = problem.problem;
  byId("truth").textContent = problem.answer;
  for (const pill of byId("choices").children) {
    const on = Number(pill.dataset.problem) === state.problem;
    pill.setAttribute("aria-checked", on);
    pill.tabIndex = on ? 0 : -1;
  }
  drawRiver();
  showStep();
}

function showStep() {
  const at = current();
  byId("when").value = state.at;
  byId("step").textContent = "step " + probes.steps[state.at];
  byId("when").setAttribute("aria-valuetext", byId("step").textContent);
  for (const pill of byId("choices").children) {
    const then = probes.problems[Number(pill.dataset.problem)].at[state.at];
    pill.firstChild.textContent = (then && then.correct ? "✓ " : "✗ ");
  }
  moveCursor();
  const verdict = byId("verdict");
  verdict.className = "verdict " + (at && at.correct ? "right" : "wrong");
  verdict.textContent = !at ? "not recorded" : at.correct ? "✓ correct" : at.finished ? "✗ incorrect" : "✗ cut off";
  const said = byId("said");
  said.replaceChildren();
  if (at) {
    state.token = Math.max(0, Math.min(state.token, at.tokens.length - 1));
    at.tokens.forEach((token, place) => {
      const found = at.top[place].find((pair) => pair[0] === token);
      const p = found ? found[1] : 0;
      const shade = BOUNDS.filter((bound) => p < bound).length;
      const className = at.top[place].length ? (shade ? "s" + shade : "") : "tool";
      said.append(make("i", { textContent: token, className }));
    });
    // Only the first tokens of a long answer have distributions; the rest is plain text.
    // A tokenizer may drop the space that a text begins with.
    const known = at.tokens.join("").trimStart(), text = at.text.trimStart();
    if (text.startsWith(known)) said.append(text.slice(known.length));
  }
  showToken();
}

function showToken() {
  const at = current();
  byId("said").querySelectorAll("i").forEach((token, place) => token.classList.toggle("on", place === state.token));
  byId("place").textContent = "Token " + (state.token + 1) + " could have been";
  const bars = byId("bars");
  if (!at || !at.top.length) { bars.replaceChildren(); return; }
  const top = at.top[state.token];
  if (!top.length) {
    byId("place").textContent = "Token " + (state.token + 1) + " was not sampled: the environment or the calculator wrote it";
    bars.replaceChildren();
    return;
  }
  const rest = Math.max(0, 1 - top.reduce((sum, pair) => sum + pair[1], 0));
  const rows = top.map((pair) => [label(pair[0]), pair[1], pair[0] === at.tokens[state.token]]);
  rows.push(["all others", rest, false]);
  while (bars.children.length > rows.length) bars.lastChild.remove();
  while (bars.children.length < rows.length) {
    bars.append(make("div", { className: "row" }, make("b"), make("span", { className: "track" }, make("span")), make("span", { className: "value" })));
  }
  rows.forEach(([shown, p, taken], i) => {
    const [text, track, value] = bars.children[i].children;
    text.textContent = shown;
    track.firstChild.style.width = 100 * p + "%";
    value.textContent = percent(p);
    bars.children[i].className = "row" + (taken ? " taken" : "") + (i === rows.length - 1 ? " rest" : "");
  });
}

// Stacked areas: the probability of each first token at each recorded step.
const H = 190, L = 44, R = 8, T = 8, B = 24;
let W = 720; // the width on the screen, so that letters keep their size
const svg = (tag, attrs, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const key in attrs) made.setAttribute(key, attrs[key]);
  made.append(...children);
  return made;
};
function placeX(i) {
  const first = probes.steps[0], last = probes.steps[probes.steps.length - 1];
  return last === first ? L : L + ((W - L - R) * (probes.steps[i] - first)) / (last - first);
}
const placeY = (p) => T + (H - T - B) * (1 - p);

// A first token says little by itself ("␣"): show how an answer that began with it went on.
function beginning(token) {
  const at = probes.problems[state.problem].at.find((one) => one && one.tokens[0] === token);
  const line = at ? at.text.match(/^\s*[^\n]*/)[0] : token;
  return label(line.length > 16 ? line.slice(0, 15) + "…" : line) || label(token);
}

function drawRiver() {
  W = byId("river").clientWidth || W;
  const records = probes.problems[state.problem].at.map((at) => new Map(at && at.top.length ? at.top[0] : []));
  const peak = new Map();
  for (const record of records) for (const [token, p] of record) peak.set(token, Math.max(p, peak.get(token) || 0));
  const tokens = [...peak].sort((a, b) => b[1] - a[1]).slice(0, 5).filter((pair) => pair[1] >= 0.02).map((pair) => pair[0]);
  // The token that is most likely after training goes to the bottom of the picture.
  const last = records[records.length - 1];
  tokens.sort((a, b) => (last.get(b) || 0) - (last.get(a) || 0));
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Probability of the first token at each recorded step; the numbers of the chosen step are in the list of alternatives." });
  picture.append(svg("rect", { x: L, y: T, width: W - L - R, height: H - T - B, class: "others" }));
  const base = records.map(() => 0);
  const names = [];
  tokens.forEach((token, number) => {
    const low = base.slice();
    records.forEach((record, i) => { base[i] += record.get(token) || 0; });
    const up = base.map((p, i) => `${placeX(i).toFixed(1)} ${placeY(p).toFixed(1)}`);
    const down = low.map((p, i) => `${placeX(i).toFixed(1)} ${placeY(p).toFixed(1)}`).reverse();
    picture.append(svg("path", { class: "area a" + number, d: "M" + [...up, ...down].join("L") + "Z" }));
    const widest = records.reduce((best, record, i) => ((record.get(token) || 0) > (records[best].get(token) || 0) ? i : best), 0);
    const text = beginning(token), middle = (base[widest] + low[widest]) / 2;
    const anchor = placeX(widest) < W / 3 ? "start" : placeX(widest) > (2 * W) / 3 ? "end" : "middle";
    const x = placeX(widest) + { start: 10, middle: 0, end: -10 }[anchor];
    const from = x - { start: 0, middle: 4, end: 8 }[anchor] * text.length;
    // An area gets its name only if the whole name fits.
    const fits = records.every((_, i) => placeX(i) < from - 20 || placeX(i) > from + 8 * text.length + 20
      || (low[i] < middle - 0.06 && middle + 0.06 < base[i]));
    if (!fits || base[widest] - low[widest] < 0.15) return;
    names.push(svg("text", { class: "within", x, y: placeY(middle) + 4, "text-anchor": anchor }, text));
  });
  picture.append(...names);
  for (const p of [0, 0.5, 1]) picture.append(svg("text", { x: L - 6, y: placeY(p) + 4, "text-anchor": "end" }, 100 * p + "%"));
  probes.steps.forEach((step, i) => {
    const every = Math.ceil((probes.steps.length * 70) / (W - L - R));
    if (i % every === 0) picture.append(svg("text", { x: placeX(i), y: H - 6, "text-anchor": i ? (placeX(i) > W - 24 ? "end" : "middle") : "start" }, String(step)));
  });
  picture.append(svg("line", { class: "cursor on", y1: T, y2: H - B }));
  const keys = make("p", { className: "keys" });
  tokens.forEach((token, number) => keys.append(make("span", { className: "key k" + number, textContent: beginning(token) })));
  keys.append(make("span", { className: "key others", textContent: "others" }));
  byId("river").replaceChildren(picture, keys);
  picture.addEventListener("pointerdown", (event) => pickStep(event, picture));
  picture.addEventListener("pointermove", (event) => { if (event.buttons) pickStep(event, picture); });
}
function pickStep(event, picture) {
  const box = picture.getBoundingClientRect();
  const x = ((event.clientX - box.left) * W) / box.width;
  let best = 0;
  probes.steps.forEach((_, i) => { if (Math.abs(placeX(i) - x) < Math.abs(placeX(best) - x)) best = i; });
  state.at = best;
  showStep();
}
function moveCursor() {
  const line = byId("river").querySelector(".cursor");
  const x = placeX(state.at);
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
}

function play(on) {
  clearInterval(playing);
  playing = 0;
  byId("play").setAttribute("aria-pressed", on);
  byId("play").textContent = on ? "❚❚ Pause" : "▶ Play";
  if (!on) return;
  if (state.at === probes.steps.length - 1) state.at = 0;
  showStep();
  playing = setInterval(() => {
    if (state.at >= probes.steps.length - 1) { play(false); return; }
    state.at += 1;
    showStep();
  }, Math.max(120, Math.min(600, 8000 / probes.steps.length)));
}

function startProbes() {
  byId("probes").hidden = false;
  state.at = probes.steps.length - 1;
  byId("when").max = probes.steps.length - 1;
  probes.problems.forEach((_, number) => {
    const pill = make("button", { type: "button" }, make("span"), "problem " + (number + 1));
    pill.setAttribute("role", "radio");
    pill.dataset.problem = number;
    pill.addEventListener("click", () => { state.problem = number; state.token = 0; showAll(); });
    byId("choices").append(pill);
  });
  byId("choices").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    state.problem = (state.problem + by + probes.problems.length) % probes.problems.length;
    state.token = 0;
    showAll();
    byId("choices").children[state.problem].focus();
  });
  byId("when").addEventListener("input", (event) => { play(false); state.at = Number(event.target.value); showStep(); });
  byId("play").addEventListener("click", () => play(!playing));
  byId("said").addEventListener("click", (event) => {
    const tokens = [...byId("said").querySelectorAll("i")];
    if (tokens.includes(event.target)) { state.token = tokens.indexOf(event.target); showToken(); }
  });
  byId("said").addEventListener("keydown", (event) => {
    const last = current() ? current().tokens.length - 1 : 0;
    const to = { ArrowRight: state.token + 1, ArrowLeft: state.token - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    state.token = Math.max(0, Math.min(last, to));
    showToken();
  });
  showAll();
  new ResizeObserver(() => { if (byId("river").clientWidth !== W) { drawRiver(); moveCursor(); } }).observe(byId("river"));
}
if (probes) startProbes();

// ---- reading the curves: pointer or arrow keys ----
for (const figure of document.querySelectorAll("[data-chart]")) {
  const { lines, shares } = data.charts[Number(figure.dataset.chart)];
  const picture = figure.querySelector("svg");
  const readout = figure.querySelector(".readout");
  const cursor = figure.querySelector(".cursor");
  const note = readout.textContent;
  const last = Number(picture.dataset.last);
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  let at = -1;
  const show = (index) => {
    at = index;
    cursor.classList.toggle("on", index >= 0);
    if (index < 0) { readout.textContent = note; return; }
    const x = 46 + ((360 - 46 - 10) * steps[index]) / last;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    const values = lines.map((line) => {
      const place = line.steps.indexOf(steps[index]);
      return place < 0 ? null : (lines.length > 1 ? line.label + " " : "") + (shares ? percent(line.values[place]) : Number(line.values[place].toPrecision(4)));
    });
    readout.textContent = "step " + steps[index] + ": " + values.filter(Boolean).join(" · ");
  };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const step = ((((event.clientX - box.left) * 360) / box.width - 46) / (360 - 46 - 10)) * last;
    let best = 0;
    steps.forEach((s, i) => { if (Math.abs(s - step) < Math.abs(steps[best] - step)) best = i; });
    show(best);
  });
  picture.addEventListener("pointerleave", () => show(-1));
  figure.addEventListener("focusout", () => show(-1));
  figure.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: steps.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(Math.max(0, Math.min(steps.length - 1, to)));
  });
}
