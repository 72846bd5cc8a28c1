// The page: what is asked of the worker, and how its replies are shown. Text is only ever set as
// textContent, so whatever is typed or drawn stays text.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
// After the back button a browser would fill the fields with what they had, and show all else anew.
for (const field of document.querySelectorAll("input, select, textarea")) field.autocomplete = "off";
const by_id = (id) => document.getElementById(id);

function make(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  const { data: dataset = {}, ...rest } = props;
  Object.assign(made, rest);
  Object.assign(made.dataset, dataset);
  made.append(...children);
  return made;
}

const seen = { " ": "␣", "\n": "↵", "\t": "⇥" };
const label = (token) => token.replace(/[ \n\t]/g, (c) => seen[c]) || "(part of a character)";
const duration = (seconds) => seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
// Two probabilities, with as many digits as it takes to tell them apart.
const change = (was, is) => {
  const shown = [1, 2, 3, 4].map((digits) => [was, is].map((p) => (100 * p).toFixed(digits)));
  return (shown.find(([a, b]) => a !== b) ?? shown[0]).map((p) => p + "%").join(" → ");
};
const signed = (x, digits = 3) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(digits);
const plural = (count, thing) => `${count} ${thing}${count === 1 ? "" : "s"}`;
const BOUNDS = [0.9, 0.7, 0.5, 0.2, 0.05, 0.01];
const shade = (p) => { const s = BOUNDS.filter((bound) => p < bound).length; return s ? "s" + s : ""; };
const is_end = (token) => /^<\|(endoftext|im_end)\|>$/.test(token.text);

// --- the worker: made from text in this file, so that the page also opens from the disk ---

const worker = new Worker(URL.createObjectURL(
  new Blob([by_id("worker").textContent], { type: "text/javascript" })));
const waiting = new Map();
let last_id = 0;

// A promise of the result; `.id` is for stopping it.
function ask(what, request = {}, on_event = () => {}) {
  const id = ++last_id;
  const promise = new Promise((resolve, reject) => waiting.set(id, { resolve, reject, on_event }));
  worker.postMessage({ id, what, ...request });
  return Object.assign(promise, { id });
}

worker.onmessage = ({ data: { id, event, result, error } }) => {
  const { resolve, reject, on_event } = waiting.get(id);
  if (event !== undefined) return on_event(event);
  waiting.delete(id);
  if (error !== undefined) reject(new Error(error));
  else resolve(result);
};

const stop = (id) => worker.postMessage({ stop: id });

// --- the models ---

// Part 5's players know nothing but their game.
const singles = data.models.flatMap((model, index) => (model.step === null && !model.game ? [index] : []));
const saves = data.models.flatMap((model, index) => (model.step === null ? [] : [index]));
const titles = { step: "after your step", trained: "trained in this tab", player: "trained in this tab" };
const title = (model) => titles[model] ??
  data.models[model].name + (data.models[model].step === null ? "" : `, step ${data.models[model].step}`);
const read_model = (value) => (value in titles ? value : Number(value));

function model_box(model, checked) {
  const about = data.models[model]?.about;
  return make("label", {}, make("input", { type: "checkbox", value: model, checked }),
    make("span", {}, title(model), about ? make("span", { className: "soft", textContent: ": " + about }) : ""));
}

for (const model of singles) by_id("models").append(model_box(model, singles.indexOf(model) < 3));
if (saves.length) {
  const box = make("input", { type: "checkbox", value: saves[saves.length - 1], checked: !singles.length });
  const name = make("span", { textContent: title(saves[saves.length - 1]) });
  const slider = make("input", { type: "range", min: 0, max: saves.length - 1, value: saves.length - 1,
    ariaLabel: "Step of the run " + data.models[saves[0]].name });
  slider.oninput = () => {
    box.value = saves[slider.value];
    name.textContent = slider.ariaValueText = title(saves[slider.value]);
    box.checked = true;
  };
  by_id("models").append(make("label", {}, box, name), slider);
}
for (const model of [...singles, ...saves])
  by_id("group-model").append(make("option", { value: model, textContent: title(model) }));

// A model that was made here can be asked like the others.
function add_model(model) {
  if (by_id("models").querySelector(`[value="${model}"]`)) return;
  by_id("models").append(model_box(model, false));
  by_id("group-model").append(make("option", { value: model, textContent: title(model) }));
}

// --- 1 Answer ---

// The held-out problems. A problem's number is that in its own set, as an evaluation counts it: the
// seed draws by it.
const problems = [data.test, data.longer].flatMap((rows) => rows.map(
  ([problem, answer, type, level], number) => ({ problem, answer, type, steps: Number(level), number })));
const typed = { number: 0, steps: null }; // what is known of a problem that was typed
const state = { shown: typed, runs: [], asked: null };
const families = [...new Set(problems.map(({ type }) => type))].sort();
for (const family of families) by_id("family").append(make("option", { textContent: family }));

function show_levels() {
  const family = by_id("family").value;
  const levels = [...new Set(problems.filter(({ type }) => type === family).map(({ steps }) => steps))].sort((a, b) => a - b);
  by_id("level").replaceChildren(...levels.map((steps) => make("option", { textContent: steps })));
}

function matching() {
  const family = by_id("family").value, steps = Number(by_id("level").value);
  return problems.filter((row) => row.type === family && row.steps === steps);
}

// Answers to the problem before are still there to be read, but paler.
function show_problem(row) {
  state.shown = row;
  by_id("answers").classList.add("old");
  by_id("problem").value = row.problem;
  by_id("truth").value = row.answer;
}

function another() {
  const rows = matching();
  show_problem(rows[(rows.indexOf(state.shown) + 1) % rows.length]);
}

by_id("family").onchange = () => { show_levels(); show_problem(matching()[0]); };
by_id("level").onchange = () => show_problem(matching()[0]);
by_id("another").onclick = another;
by_id("problem").oninput = () => {
  by_id("truth").value = "";
  state.shown = typed;
  by_id("answers").classList.add("old");
};

// A number field's value, within its bounds.
function number_of(id) {
  const field = by_id(id), value = Number.isFinite(field.valueAsNumber) ? field.valueAsNumber : 0;
  field.value = Math.min(Math.max(value, Number(field.min)), Number(field.max));
  if (field.step === "1" || id.endsWith("seed")) field.value = Math.floor(field.value);
  return Number(field.value);
}

function sampling() {
  return { temperature: number_of("temperature"), top_p: number_of("top_p"),
    stream: [number_of("seed"), 0, state.shown.number], max_new_tokens: data.max_new_tokens };
}

// The tokens of an answer as one group of buttons: Tab enters it, arrow keys move within.
function token_list(name, on_choose) {
  const list = make("div", { className: "text tokens", role: "group", ariaLabel: name });
  list.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      document.activeElement.click();
    }
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = move && list.children[[...list.children].indexOf(document.activeElement) + move];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  list.onfocusin = ({ target }) => {
    for (const button of list.children) button.tabIndex = button === target ? 0 : -1;
  };
  list.onclick = ({ target }) => {
    const place = [...list.children].indexOf(target.closest("i"));
    if (place >= 0) on_choose(place);
  };
  return list;
}

function token_button(token, className) {
  const shown = is_end(token) ? "■" : token.text;
  const name = is_end(token) ? "end of the answer" : label(token.text);
  if (shown.startsWith("\n")) className += " newline"; // else there would be nothing to click
  // Not a <button>: that would be a box, and a line could not break within it.
  return make("i", { role: "button", className, textContent: shown, tabIndex: -1,
    ariaLabel: `${name}, ${percent(token.p)}`, title: `${name}  ${percent(token.p)}` });
}

// What the models have read: their words, and the kinds of parts that problems have (tiny/world.py).
const words_of = (text) => text.match(/(?<!\p{L})[a-z]+/gu) ?? [];
const read = Object.fromEntries(Object.entries(data.read).map(([name, found]) => [name, new Set(found)]));

// All runs of five pieces of a problem: the kind of each, and its own words.
function parts(problem) {
  const kind_of = (text) => /^\p{Nd}/u.test(text) ? "0".repeat(Math.min(text.length, 4))
    : read.things.has(text) ? "things"
    : /^\p{Lu}/u.test(text) && !read.opening.has(text) ? "Name" : text;
  const pieces = [...problem.matchAll(/\p{Nd}+|\p{L}+|[^\p{L}\p{N}_\s]/gu)].map(({ 0: text, index }) =>
    [kind_of(text), index, index + text.length]);
  const found = [["^", 0, 0], ...pieces, ["$", problem.length, problem.length]], size = data.part_size;
  return Array.from({ length: Math.max(found.length - size, 0) + 1 }, (_, at) => {
    const run = found.slice(at, at + size);
    return [run.map(([kind]) => kind).join(" "), problem.slice(run[0][1], run.at(-1)[2])];
  });
}

// Why a problem that somebody typed is none that the models understand; "" if it may be one.
function beyond(problem) {
  const strange = words_of(problem).filter((word) => !read.words.has(word)).map((word) => `“${word}”`);
  const why = strange.length ? `they never learned ${strange.slice(0, 3).join(", ")}`
    : !/\d/.test(problem) ? "this one has no number"
    : parts(problem).filter(([kind]) => !read.parts.has(kind)).map(([, text]) => `they have read nothing like “${text.trim()}”`)[0];
  return why ? `These models know only problems like those that “Another problem” shows, and ${why}. ` : "";
}

function verdict({ truth, problem, typed }, text, finished) {
  const { correct } = truth.trim() ? score_parts(text, truth, finished) : {};
  if (correct) return ["right", "✓ correct"];
  if (typed && beyond(problem)) return ["mixed", "a kind of problem it has not read"];
  if (!truth.trim()) return ["mixed", "correct answer not given"];
  if (!read_number(truth)) return ["mixed", "the correct answer is not a number"];
  return ["wrong", finished ? "✗ incorrect" : "✗ cut off"];
}

// One model answers, from the beginning or after tokens that are given.
async function run_answer(run, begun = []) {
  run.tokens = [];
  run.list.replaceChildren();
  run.verdict.className = "";
  run.verdict.textContent = run.way.textContent = "";
  const request = { model: run.model, problem: run.problem, ...run.sampling,
    begun: begun.map((token) => token.id) };
  const asked = ask("answer", request, ({ token, text, p, top }) => {
    const place = run.tokens.length;
    run.tokens.push({ id: token, text, p, top });
    const className = shade(p) + (place + 1 === begun.length ? " given" : "");
    run.list.append(token_button(run.tokens[place], className));
    if (!place) run.list.firstChild.tabIndex = 0;
  });
  state.asked = asked.id;
  const { answers: [{ text, finished }], seconds } = await asked;
  const [kind, words] = state.stopping && !finished ? ["mixed", "stopped"] : verdict(run, text, finished);
  run.verdict.className = "verdict " + kind;
  run.verdict.textContent = words;
  run.way.textContent = `${way_of(text, run.steps)}, ${plural(run.tokens.length, "token")}`;
  return [run.tokens.length, seconds];
}

// While an answer is drawn, no second one is begun.
async function busy(work, state_line, stop_button) {
  const buttons = document.querySelectorAll("button.main");
  const before = [...buttons].map((button) => button.disabled), focused = document.activeElement;
  for (const button of buttons) button.disabled = true;
  if (stop_button) stop_button.hidden = false;
  try {
    state_line.textContent = await work();
  } catch (error) {
    state_line.textContent = error.message;
  }
  if (stop_button) stop_button.hidden = true;
  for (const line of document.querySelectorAll(".left")) line.hidden = true;
  buttons.forEach((button, i) => { button.disabled = before[i]; });
  by_id("step").disabled = !group.answers;
  // A button that is switched off loses the focus; whoever pressed it gets it back.
  if (document.activeElement === document.body) focused.focus({ preventScroll: true });
}

by_id("ask").onclick = () => busy(async () => {
  const boxes = [...by_id("models").querySelectorAll("input[type=checkbox]:checked")];
  if (!boxes.length) return "Choose a model to answer.";
  if (!by_id("problem").value.trim()) return "Type a problem.";
  by_id("answer-state").textContent = "sampling tokens …";
  state.stopping = false;
  state.runs = boxes.map((box) => {
    const run = { model: read_model(box.value), problem: by_id("problem").value,
      typed: state.shown === typed, steps: state.shown.steps, truth: by_id("truth").value, sampling: sampling(), tokens: [],
      verdict: make("span"), way: make("span", { className: "soft" }) };
    run.list = token_list(title(run.model) + ": answer; choose a token with the arrow keys",
      (place) => show_place(run, place));
    run.element = make("div", {}, make("h3", {}, title(run.model) + " ", run.verdict, " ", run.way), run.list);
    return run;
  });
  by_id("answers").replaceChildren(...state.runs.map((run) => run.element));
  by_id("answers").classList.remove("old");
  by_id("shades").hidden = false;
  choices_box.hidden = true;
  let tokens = 0, seconds = 0;
  for (const run of state.runs) {
    const [count, took] = state.stopping ? [0, 0] : await run_answer(run);
    [tokens, seconds] = [tokens + count, seconds + took];
  }
  show_speed(tokens / seconds);
  if (state.stopping) return "stopped";
  const [asked] = state.runs; // the fields may have something else by now
  const advice = asked.typed ? beyond(asked.problem) : "";
  const correct = state.runs.filter((run) => run.verdict.className === "verdict right").length;
  const answers = plural(state.runs.length, "answer");
  const graded = read_number(asked.truth) ? `${correct} of ${answers} correct` : answers;
  return `${advice}${graded}, ${plural(tokens, "token")} in ${seconds.toFixed(1)} s.`;
}, by_id("answer-state"), by_id("stop"));

by_id("stop").onclick = () => { state.stopping = true; stop(state.asked); };

function show_speed(speed) {
  if (Number.isFinite(speed)) by_id("speed").textContent =
    `The last answers were sampled at ${speed.toFixed(0)} tokens per second, on one core of this machine.`;
}

// What else could have stood there: beneath the answer, and scrolled to where both are seen.
const choices_box = by_id("place");

function show_place(run, place) {
  const token = run.tokens[place];
  for (const { list } of state.runs)
    for (const button of list.children) button.classList.remove("on");
  run.list.children[place].classList.add("on");
  run.element.append(choices_box);
  choices_box.hidden = false;
  const name = is_end(token) ? "the end" : token.text === "\n" ? "the line break ↵" : label(token.text);
  by_id("place-title").textContent = `Token ${place + 1} of ${title(run.model)}: ${name}`;
  const shown = token.top.some(({ id }) => id === token.id) ? token.top : [...token.top, token];
  by_id("choices").replaceChildren(...shown.map((choice) => {
    const bar = make("span");
    bar.style.width = 100 * choice.p + "%";
    const taken = choice.id === token.id;
    const button = make("button", { type: "button", className: "row " + (taken ? "taken" : ""),
      title: label(choice.text) },
      make("b", { textContent: is_end(choice) ? "■ end" : label(choice.text) }),
      make("span", { className: "track" }, bar),
      make("span", { className: "value", textContent: percent(choice.p) }));
    button.onclick = () => go_on(run, place, choice);
    return make("li", {}, button);
  }));
  for (const seen of [choices_box, run.list.children[place]]) seen.scrollIntoView({ block: "nearest" });
}

function go_on(run, place, choice) {
  if (by_id("ask").disabled) return;
  busy(async () => {
    by_id("answer-state").textContent = "continuing from there …";
    state.stopping = false;
    const begun = [...run.tokens.slice(0, place), choice];
    await run_answer(run, begun);
    if (run.tokens[place]) show_place(run, place);
    return `${title(run.model)}, with ${label(choice.text)}: ${run.verdict.textContent}, ${run.way.textContent}`;
  }, by_id("answer-state"), by_id("stop")).then(() => by_id("choices").querySelector(".taken")?.focus({ preventScroll: true }));
}

by_id("temperature").onchange = () => {
  const zero = number_of("temperature") === 0;
  by_id("how-sampled").textContent = zero ? "Temperature 0 always takes the most likely token."
    : "The same seed gives the same answer, here and in the package.";
};

// --- 2 A group ---

const group = {};
const ROLLOUTS = 8;
const computed = ({ objective, advantage }) => objective in OBJECTIVES && advantage in ADVANTAGES;
const left_out = Object.keys(data.recipes).filter((name) => !computed(data.recipes[name]));
for (const id of ["recipe", "train-recipe"])
  for (const name of Object.keys(data.recipes).filter((name) => !left_out.includes(name)))
    by_id(id).append(make("option", { textContent: name, selected: name === "grpo" }));
const OPTIONS = {
  advantage: Object.keys(ADVANTAGES),
  objective: Object.keys(OBJECTIVES),
  aggregate: ["sum", "constant", "sequence", "token"],
};
for (const [id, names] of Object.entries(OPTIONS)) {
  for (const name of names) by_id(id).append(make("option", { textContent: name }));
  by_id(id).onchange = show_group;
}

function choose_recipe() {
  const recipe = data.recipes[by_id("recipe").value];
  for (const id of Object.keys(OPTIONS)) by_id(id).value = recipe[id];
  const missing = left_out.length ? ` This page does not compute ${left_out.join(", ")}.` : "";
  by_id("about").textContent = by_id("recipe").value + ": " + recipe.about + "." + missing;
  if (group.answers) regrade();
}
by_id("recipe").onchange = choose_recipe;

// The recipe, with what was chosen beside it.
function chosen_config() {
  const chosen = Object.fromEntries(Object.keys(OPTIONS).map((id) => [id, by_id(id).value]));
  return { ...data.recipes[by_id("recipe").value], ...chosen };
}

function grade(answer) {
  const parts = score_parts(answer.text, group.truth, answer.finished);
  const length = answer.response_ids.length;
  const way = way_of(answer.text, group.steps);
  return { parts, way, reward: total_reward(parts, chosen_config(), length, data.max_new_tokens) };
}

function regrade() {
  group.rewards = group.answers.map((answer) => grade(answer).reward);
  show_group();
}

by_id("draw").onclick = () => busy(async () => {
  const problem = by_id("problem").value, truth = by_id("truth").value, config = chosen_config();
  if (!problem.trim()) return "Type a problem in part 1.";
  if (!read_number(truth)) return "The rewards need the correct answer as a number: enter it in part 1.";
  by_id("group-state").textContent = "sampling eight answers side by side …";
  const model = read_model(by_id("group-model").value), cards = [...Array(ROLLOUTS).keys()].map(card);
  const { temperature, top_p } = config, { number, steps } = state.shown;
  group.answers = null;
  by_id("rollouts").replaceChildren(...cards);
  by_id("group-problem").textContent = problem + "  Correct answer: " + truth;
  by_id("verdict-of-group").textContent = "";
  for (const id of ["advantages", "ways"]) by_id(id).hidden = true; // those of the group before
  const { answers, seconds } = await ask("answer", { model, problem, count: ROLLOUTS, temperature, top_p,
    stream: [number_of("group-seed"), 0, number], max_new_tokens: data.max_new_tokens },
  ({ answer, text }) => cards[answer].querySelector(".text").append(is_end({ text }) ? "■" : text));
  for (const answer of answers)
    answer.tokens = await ask("pieces", { ids: answer.response_ids });
  Object.assign(group, { model, problem, steps, truth, answers, result: null });
  by_id("changed").replaceChildren();
  by_id("ratio").replaceChildren(by_id("ratio").firstElementChild);
  by_id("step-state").textContent = "";
  regrade();
  const correct = answers.filter((answer) => grade(answer).parts.correct).length;
  const tokens = answers.reduce((sum, answer) => sum + answer.response_ids.length, 0);
  return `${correct} of ${ROLLOUTS} are correct. ${tokens} tokens in ${seconds.toFixed(1)} s.`;
}, by_id("group-state"));

by_id("all-correct").onclick = () => {
  if (!group.answers) return;
  group.rewards = group.answers.map(() => 1);
  show_group();
};
by_id("graded").onclick = () => { if (group.answers) regrade(); };
by_id("ratio").onchange = show_group;

// The mean reward is what maxrl divides by, so it is not for rewards below 0. The package refuses it.
const NO_MAXRL = "maxrl divides by the mean reward of the group: no reward may be below 0.";
const refused = (kind) => kind === "maxrl" && Math.min(...group.rewards) < 0;
const advantages_of = (kind) => refused(kind) ? group.rewards.map(() => 0) : ADVANTAGES[kind](group.rewards);

// What each token's log-probability is pushed by: the slopes of the loss, upside down.
function pushes() {
  const config = chosen_config();
  const advantages = advantages_of(config.advantage);
  const tokens = group.answers.reduce((sum, answer) => sum + answer.response_ids.length, 0);
  const later = by_id("ratio").value !== "first" && group.result;
  return group.answers.map(({ response_ids }, i) => {
    const old = later ? group.result.logprobs[0][i] : response_ids.map(() => 0);
    const logprobs = later ? group.result.logprobs[1][i] : old;
    const weight = token_weight(config, response_ids.length, ROLLOUTS, tokens);
    return objective_slopes(config, logprobs, old, advantages[i]).map((slope) => slope * weight);
  });
}

function show_group() {
  if (!group.answers) return;
  const config = chosen_config(), slopes = pushes();
  const chosen = advantages_of(config.advantage);
  show_advantages(config.advantage);
  show_ways(chosen);
  const largest = Math.max(...slopes.flat().map(Math.abs));
  by_id("pushes").hidden = by_id("pass").hidden = false;
  by_id("largest").textContent = largest ? `Largest push: ${largest.toPrecision(2)} per unit of log-probability.` : "";
  [...by_id("rollouts").children].forEach((article, i) => {
    const answer = group.answers[i], { parts: { correct }, way } = grade(answer);
    article.className = "rollout " + (correct ? "is-right" : "is-wrong");
    const [mark, length, advantage] = article.querySelectorAll(".verdict, .length, .advantage");
    length.textContent = `${way}, ${plural(answer.response_ids.length, "token")}`;
    mark.className = "verdict " + (correct ? "right" : "wrong");
    mark.textContent = correct ? "✓ correct" : answer.finished ? "✗ incorrect" : "✗ cut off";
    advantage.textContent = signed(chosen[i]);
    const field = article.querySelector("input");
    if (document.activeElement !== field) field.value = +group.rewards[i].toFixed(3);
    article.querySelector(".text").replaceChildren(...answer.tokens.map((text, t) =>
      make("i", { className: push_class(slopes[i][t], largest, chosen[i]),
        title: `${label(text)}  ${signed(slopes[i][t], 4)}`, textContent: is_end({ text }) ? "■" : text })));
  });
}

function push_class(slope, largest, advantage) {
  if (slope === 0) return advantage ? "clipped" : "";
  const size = Math.abs(slope) / largest;
  return (slope > 0 ? "up" : "down") + (size > 0.66 ? 3 : size > 0.33 ? 2 : 1);
}

// An answer's card; while it is drawn it has its text, the rest is filled in by show_group.
function card(i) {
  const field = make("input", { type: "number", step: "0.1" });
  field.oninput = () => {
    if (!group.answers || !Number.isFinite(field.valueAsNumber)) return;
    group.rewards[i] = field.valueAsNumber;
    show_group();
  };
  return make("article", {},
    make("p", { className: "chips" }, make("b", { textContent: i + 1 }), make("span", { className: "verdict" }),
      make("span", { className: "length" })),
    make("p", { className: "chips" }, make("label", {}, `Reward of answer ${i + 1} `, field),
      make("span", {}, "advantage ", make("b", { className: "advantage" }))),
    make("div", { className: "text", tabIndex: 0, role: "group", ariaLabel: `Answer ${i + 1}` }));
}

function show_advantages(chosen) {
  const row = (name, cells) => make("tr", {}, make("th", { scope: "row", textContent: name }),
    ...cells.map((textContent) => make("td", { className: "number", textContent })));
  const rows = Object.keys(ADVANTAGES).map((kind) =>
    row(kind, advantages_of(kind).map((x) => refused(kind) ? "–" : signed(x))));
  const head = make("tr", {}, make("th", { scope: "col", textContent: "answer" }),
    ...group.answers.map((_, i) => make("th", { scope: "col", className: "number", textContent: i + 1 })));
  by_id("advantages").hidden = false;
  by_id("advantages").replaceChildren(make("thead", {}, head),
    make("tbody", {}, row("reward", group.rewards.map((x) => +x.toFixed(3))), ...rows));
  const uniform = group.rewards.every((r) => r === group.rewards[0]);
  by_id("verdict-of-group").textContent = refused(chosen) ? NO_MAXRL : uniform
    ? "All eight have the same reward. No answer is better than the others, so every advantage is exactly 0: " +
      "the model learns nothing from this group, and the step skips it."
    : `Mean reward ${mean_of(group.rewards).toFixed(3)}: answers above it are pushed up, those below it down.`;
}

// Which styles of answer were sampled, and which of them were rewarded.
function show_ways(advantages) {
  const graded = group.answers.map(grade), cell = (text) => make("td", { className: "number", textContent: text });
  const rows = ways_drawn(graded.map(({ way }) => way)).map(([way, drawn]) => {
    const of_way = (numbers) => numbers.filter((_, i) => graded[i].way === way);
    const correct = of_way(graded.map(({ parts }) => parts.correct)).filter(Boolean).length;
    return make("tr", {}, make("th", { scope: "row", textContent: way }), cell(drawn), cell(correct),
      cell(mean_of(of_way(group.rewards)).toFixed(3).replace("-", "−")), cell(signed(mean_of(of_way(advantages)))));
  });
  const head = ["style of answer", "sampled", "correct", "mean reward", "mean advantage"].map((name, i) =>
    make("th", { scope: "col", className: i ? "number" : "", textContent: name }));
  by_id("ways").hidden = false;
  by_id("ways").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

// --- 3 One step ---

by_id("step").onclick = () => busy(async () => {
  by_id("step-state").textContent = "computing the gradient through all layers …";
  const config = chosen_config(), passes = Number(by_id("passes").value), rewards = [...group.rewards];
  if (refused(config.advantage)) return NO_MAXRL;
  const result = await ask("step", { model: group.model, problem: group.problem, rewards,
    answers: group.answers.map((answer) => answer.response_ids), config, lr: Number(by_id("lr").value), passes });
  group.result = result;
  by_id("ratio").replaceChildren(by_id("ratio").firstElementChild,
    make("option", { value: "later", textContent: "the next pass (ratios after the step)" }));
  const names = await ask("names");
  show_step(result, names, ADVANTAGES[config.advantage](rewards));
  add_model("step");
  show_group();
  if (result.norms[0] === 0) return "Every advantage is 0: no gradient, so no weight moved.";
  return `Gradient norm ${result.norms.map((n) => n.toPrecision(3)).join(", ")}. ` +
    `${result.seconds.toFixed(1)} s. Part 1 can now ask the updated model.`;
}, by_id("step-state"));

function show_step({ first: [before, after], logprobs: [old, now] }, names, advantages) {
  const most = (id) => Math.max(before[id], after[id]);
  const order = [...before.keys()].filter((id) => most(id) > 0.001).sort((a, b) => most(b) - most(a)).slice(0, 8);
  const bars = order.map((id) => {
    const [was, is] = [before, after].map((probs, i) => {
      const bar = make("span");
      bar.style.width = 100 * probs[id] + "%";
      return make("div", { className: "track " + (i ? "" : "was") }, bar);
    });
    return make("div", { className: "row" }, make("b", { textContent: label(names[id]), title: label(names[id]) }),
      make("div", {}, was, is),
      make("span", { className: "value", textContent: change(before[id], after[id]) }));
  });
  const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);
  const cell = (text) => make("td", { className: "number", textContent: text });
  const rows = old.map((numbers, i) => {
    const change = sum(now[i]) - sum(numbers);
    return make("tr", {}, make("th", { scope: "row", textContent: i + 1 }), cell(signed(advantages[i])),
      cell(sum(numbers).toFixed(2).replace("-", "−")), cell(sum(now[i]).toFixed(2).replace("-", "−")),
      cell("× " + Math.exp(change).toFixed(Math.exp(change) < 10 ? 2 : 0)));
  });
  const head = ["answer", "advantage", "log-prob. before", "after", "change"].map((name, i) =>
    make("th", { scope: "col", className: i ? "number" : "", textContent: name }));
  by_id("changed").replaceChildren(
    make("h3", { textContent: "How the answer begins: before and after" }), ...bars,
    make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: "Log-probabilities of the eight answers" },
      make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))));
}

// --- 4 Train ---

const CHECKED = 10; // test problems that are answered before and after
by_id("start-training").textContent = `Train ${title(0)}`;

by_id("start-training").onclick = () => busy(async () => {
  const steps = Number(by_id("steps").value), points = [], state_line = by_id("train-state");
  const held_out = data.test.slice(0, CHECKED), { max_new_tokens } = data;
  state.stopping = false;
  by_id("trained").textContent = "";
  const count = async (model) => {
    state_line.textContent = `answering ${CHECKED} test problems …`;
    const asked = ask("accuracy", { model, problems: held_out, max_new_tokens });
    state.training = asked.id;
    return (await asked).correct;
  };
  const begun = performance.now(), before = await count(0), check = (performance.now() - begun) / 1000;
  if (state.stopping) return "stopped";
  state_line.textContent = "training …"; // said once: a screen reader is not told of each step
  show_left(by_id("train-left"), points, steps, check);
  const asked = ask("train", { model: 0, problems: data.train, config: data.recipes[by_id("train-recipe").value],
    lr: Number(by_id("train-lr").value), steps, problems_per_step: Number(by_id("per-step").value),
    rollouts: ROLLOUTS, seed: number_of("train-seed"), max_new_tokens }, (point) => {
    points.push(point);
    show_curve(points, steps);
    show_left(by_id("train-left"), points, steps, check);
  });
  state.training = asked.id;
  await asked;
  if (!points.length) return "stopped";
  add_model("trained");
  if (state.stopping) return `stopped after ${plural(points.length, "step")}`;
  const after = await count("trained"), seconds = points.reduce((sum, p) => sum + p.seconds, 0);
  if (state.stopping) return `stopped after ${plural(points.length, "step")}`; // not all were answered
  by_id("trained").textContent = `Correct answers to ${CHECKED} test problems, with greedy decoding: ${before} before, ` +
    `${after} after. Parts 1 and 2 can now ask the model that you trained.`;
  return `${plural(points.length, "step")} in ${seconds.toFixed(0)} s.`;
}, by_id("train-state"), by_id("stop-training"));

by_id("stop-training").onclick = () => { state.stopping = true; stop(state.training); };

// How far a training is. Answers get longer, so a step is taken to last as long as the last five;
// `check` is how long the test afterwards will take.
function show_left(line, points, steps, check) {
  const bar = line.querySelector("progress"), done = points.length;
  line.hidden = false;
  [bar.max, bar.value] = [steps, done];
  const seconds = done && (steps - done) * mean_of(points.slice(-5).map((point) => point.seconds)) + check;
  line.querySelector("span").textContent = done ? `step ${done} of ${steps}, about ${duration(seconds)} left`
    : `step 1 of ${steps}`;
}

function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

function show_curve(points, steps) {
  const last = points[points.length - 1];
  const drawn = ({ ways }) => ways_drawn(ways).map(([way, count]) => `${count} ${way}`).join(", ");
  draw_curve(by_id("curve"), points, steps, `Share of the sampled answers that are correct, step by step. Step ${last.step + 1}: ` +
    `${last_mean(points)}, ${last.tokens.toFixed(1)} tokens per answer, ${last.seconds.toFixed(1)} s. ` +
    `Sampled at step 1: ${drawn(points[0])}; at step ${last.step + 1}: ${drawn(last)}.`);
}

// The last step's share of correct answers, in words. It depends on the problems that were drawn.
const last_mean = (points) => `${percent(points.at(-1).correct)} correct, ` +
  `mean of the last ${Math.min(points.length, MEAN)}: ${percent(running_mean(points.map(({ correct }) => correct)).at(-1))}`;

// The share of correct answers in a figure: a dot for each step, a line for the mean of five.
function draw_curve(figure, points, steps, caption) {
  const x = (step) => 66 + (564 * (step + 0.5)) / steps, y = (share) => 210 - 190 * share;
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
    svg("line", { class: "grid", x1: 66, x2: 630, y1: y(share), y2: y(share) }),
    svg("text", { x: 60, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`)]);
  const means = running_mean(points.map(({ correct }) => correct));
  const path = points.map(({ step }, i) => `${x(step).toFixed(1)},${y(means[i]).toFixed(1)}`).join(" ");
  const dots = points.map(({ step, correct }) => svg("circle", { class: "dots", cx: x(step), cy: y(correct), r: 3.5 }));
  const axis = svg("text", { x: 340, y: 234, "text-anchor": "middle" }, `step 1 to ${steps} (line: mean of five)`);
  figure.hidden = false;
  figure.querySelector("svg").replaceChildren(...grid, svg("polyline", { class: "line", points: path }), ...dots, axis);
  figure.querySelector("figcaption").textContent = caption;
}

// --- the menu: the part that is being read is marked ---

const links = [...document.querySelectorAll("nav a")];
const part_of = (link) => document.querySelector(link.hash).closest("section");

function mark_part() {
  const begun = links.filter((link) => part_of(link).getBoundingClientRect().top < 120);
  const at_end = scrollY && innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const current = (at_end ? links : begun).at(-1) ?? links[0];
  for (const link of links)
    if (link === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
}

addEventListener("scroll", mark_part, { passive: true });
mark_part();

// --- begin ---

const weights = [...document.querySelectorAll("script.weights")].map((element) => {
  const text = element.textContent;
  element.remove(); // the worker has them; twice would be a waste
  return text;
});
const opened = ask("open", { models: data.models, weights, tokenizer: data.tokenizer });
opened.then(() => {
  for (const button of document.querySelectorAll("button.main")) button.disabled = button.id === "step";
  by_id("ask").click(); // whoever opens the page sees answers
}, (error) => { by_id("answer-state").textContent = "Cannot open the models: " + error.message; });
by_id("family").value = families.includes("stories") ? "stories" : families[0];
show_levels();
by_id("level").value = 3; // few enough for the eye, too many to be guessed
show_problem(matching()[0]);
choose_recipe();
