"use strict";
// Shows a token's numbers on hover, tap or arrow keys. Everything is written with textContent.
const bar = document.getElementById("bar");
const seen = { " ": "␣", "\n": "↵", "\t": "⇥" };
let current = null;

function show(token) {
  if (current) current.classList.remove("on");
  current = token;
  bar.hidden = !token;
  if (!token) return;
  token.classList.add("on");
  const box = token.closest(".text");
  const at = Array.prototype.indexOf.call(box.querySelectorAll("i"), token);
  const logprob = Number(box.dataset.logprobs.split(" ")[at]);
  const entropy = box.dataset.entropies.split(" ")[at];
  const name = document.createElement("b");
  name.textContent = token.textContent.replace(/[ \n\t]/g, (c) => seen[c]) || "(part of the next character)";
  const gap = box.querySelector(".gap"); // stands for tokens that are not shown
  const omitted = gap && gap.compareDocumentPosition(token) & Node.DOCUMENT_POSITION_FOLLOWING
    ? box.dataset.size - box.querySelectorAll("i").length : 0;
  const facts = ["token " + (at + 1 + omitted) + " of " + box.dataset.size];
  if (token.classList.contains("tool")) {
    facts.push("written by the environment or the calculator: read, not sampled, not trained on");
  } else {
    facts.push("log-probability " + logprob.toFixed(3));
    facts.push("probability " + percent(Math.exp(logprob)));
    if (entropy) facts.push("entropy " + entropy + " nats");
  }
  bar.replaceChildren(name, ...facts.map((fact) => {
    const span = document.createElement("span");
    span.textContent = fact;
    return span;
  }));
}

document.addEventListener("mouseover", (event) => {
  const token = event.target.closest(".text[data-logprobs] i");
  if (token) show(token);
});
document.addEventListener("click", (event) => {
  const token = event.target.closest(".text[data-logprobs] i");
  show(token);
});
document.addEventListener("keydown", (event) => {
  const box = event.target.closest && event.target.closest(".text[data-logprobs]");
  if (event.key === "Escape") show(null);
  if (!box || !["ArrowRight", "ArrowLeft", "Home", "End"].includes(event.key)) return;
  const tokens = box.querySelectorAll("i");
  let at = current && box.contains(current) ? Array.prototype.indexOf.call(tokens, current) : -1;
  if (event.key === "ArrowRight") at = Math.min(at + 1, tokens.length - 1);
  if (event.key === "ArrowLeft") at = Math.max(at - 1, 0);
  if (event.key === "Home") at = 0;
  if (event.key === "End") at = tokens.length - 1;
  event.preventDefault();
  show(tokens[at]);
  tokens[at].scrollIntoView({ block: "nearest" });
});
document.addEventListener("focusout", (event) => {
  if (event.target.closest(".text")) show(null);
});

// The same file may also be in a folder per step, where the other pages are one level up.
if (/\/iteration_\d+\/[^/]*$/.test(location.pathname)) {
  for (const link of document.querySelectorAll("a[data-flat]")) {
    link.setAttribute("href", "../" + link.getAttribute("href"));
  }
}
