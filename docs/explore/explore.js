// What the explorable pages share: controls, and curves with a dot where the reader is.
// A page has one `draw` that computes everything anew from its controls, and leaves what it shows
// in `shown`, for whoever wants to compare the numbers with the package's.
"use strict";

// Framed in a chapter, a page is as dark or light as the chapter is (docs/site/frames.js tells).
if (parent !== window) {
  document.documentElement.classList.add("framed");
  addEventListener("message", ({ data, source }) => {
    if (source === parent && ["dark", "light"].includes(data?.theme)) document.documentElement.dataset.theme = data.theme;
  });
  parent.postMessage("theme?", "*");
}

const shown = {};
const at = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Controls are made with autocomplete off: after the back button a browser would otherwise set them
// to what they were, while the page shows what it shows at first.

// A labelled slider; its value is read with `.value()`. `says` turns it into what the label shows.
function slider(place, name, [low, high, step], start, draw, says = (x) => x.toFixed(2)) {
  const input = element("input", { type: "range", min: low, max: high, step, value: start, autocomplete: "off" });
  const output = element("output");
  const value = () => Number(input.value);
  const show = () => { output.textContent = says(value()); };
  input.addEventListener("input", () => { show(); draw(); });
  place.append(element("label", {}, name + " ", output, input));
  show();
  return { value, set(x) { input.value = x; show(); } };
}

// One of several; its value is read with `.value()`.
function choice(place, name, options, start, draw) {
  const group = "choice-" + name.replace(/\W/g, "");
  const box = element("fieldset", {}, element("legend", {}, name));
  for (const [value, words] of Object.entries(options)) {
    const input = element("input", { type: "radio", name: group, value, onchange: draw, autocomplete: "off" });
    input.checked = value === start;
    box.append(element("label", {}, input, words));
  }
  place.append(box);
  return { value: () => box.querySelector("input:checked").value };
}

// A menu; its value is read with `.value()`.
function menu(place, name, options, start, changed) {
  const select = element("select", { onchange: changed, autocomplete: "off" });
  for (const [value, words] of Object.entries(options)) select.append(element("option", { value }, words));
  select.value = start;
  place.append(element("label", {}, name + " ", select));
  return { value: () => select.value, set(value) { select.value = value; } };
}

// With its sign, unless it is 0 as shown.
function signed(x, digits = 3) {
  const size = Math.abs(x).toFixed(digits);
  return (Number(size) === 0 ? "" : x < 0 ? "−" : "+") + size;
}

// Curves over x, each { y: x => number or null, color, label }; a dot on each at `at`. A null breaks
// the line. Colors also differ by their dashes, so that the picture can be read in grey. With
// `shares`, y is in percent.
function plot(place, { title, x: [x0, x1], y: [y0, y1], xlabel, curves, at, shares = false }) {
  const W = 320, H = 200, [left, right, top, bottom] = [shares ? 44 : 34, 8, 10, 34];
  const sx = (x) => left + ((x - x0) / (x1 - x0)) * (W - left - right);
  const sy = (y) => top + ((y1 - y) / (y1 - y0)) * (H - top - bottom);
  const parts = [];
  const line = (a, b, c, d, kind) =>
    parts.push(`<line x1="${a}" y1="${b}" x2="${c}" y2="${d}" class="${kind}"/>`);
  for (const tick of ticks(y0, y1)) {
    line(left, sy(tick), W - right, sy(tick), tick === 0 ? "zero" : "axis");
    parts.push(`<text x="${left - 4}" y="${sy(tick) + 4}" text-anchor="end">${shares ? `${Math.round(100 * tick)}%` : tick}</text>`);
  }
  for (const tick of ticks(x0, x1)) {
    parts.push(`<text x="${sx(tick)}" y="${H - bottom + 15}" text-anchor="middle">${tick}</text>`);
  }
  if (at !== undefined) line(sx(at), top, sx(at), H - bottom, "axis");
  for (const { y, color } of curves) {
    let path = "", pen = "M";
    for (let i = 0; i <= 240; i++) {
      const x = x0 + ((x1 - x0) * i) / 240, value = y(x);
      if (value === null || value < y0 || value > y1) { pen = "M"; continue; }
      path += `${pen}${sx(x).toFixed(1)} ${sy(value).toFixed(1)}`;
      pen = "L";
    }
    parts.push(`<path d="${path}" class="curve ${color}"/>`);
    const here = at === undefined ? null : y(at);
    if (here !== null && here >= y0 && here <= y1) {
      parts.push(`<circle cx="${sx(at)}" cy="${sy(here)}" r="5" class="dot fill ${color}"/>`);
    }
  }
  parts.push(`<text x="${(left + W - right) / 2}" y="${H - 4}" text-anchor="middle">${xlabel}</text>`);
  place.innerHTML =
    `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="${title}">${parts.join("")}</svg>`;
}

function ticks(low, high) {
  const rough = (high - low) / 4, size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((factor) => size * factor >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9; i++) found.push(Number((i * step).toFixed(6)));
  return found;
}

// A row with a name, something to press or nothing, a bar to either side of zero, and its number.
function bar(name, control, value, largest, words) {
  const share = Math.min(1, Math.abs(value) / largest) * 50;
  const filled = element("i", {
    class: value < 0 ? "down" : "up",
    style: `left: ${value < 0 ? 50 - share : 50}%; width: ${share}%`,
  });
  return element("div", { class: "row" }, element("span", {}, name), control,
    element("div", { class: "track" }, filled, element("b")),
    element("span", { class: "number" }, words));
}
