// --- 5 Guess: the players guess a number, the page answers, and one player is trained ---
"use strict";

const players = data.models.flatMap((model, index) => (model.game ? [index] : []));
const WATCHED_TURNS = 8; // of a game that is watched: two more than the reward allows
const watched = { ...data.game, max_turns: WATCHED_TURNS };

// The numbers in a row. A bar says how probable the number is as the next guess; the tallest fills
// the height. Numbers that are ruled out have a gray background. A game's first line has a scale.
function number_line(probs, scale, { low = 1, high = data.game.most, guess = null, number = null } = {}) {
  const largest = Math.max(...probs), x = (n) => 10 * (n - 1), height = (p) => (40 * p) / largest;
  const gray = (from, to) => svg("rect", { class: "gone", x: x(from), y: 0, width: x(to + 1) - x(from), height: 44 });
  const bars = probs.map((p, i) => svg("rect", { class: i + 1 === guess ? "bar guessed" : "bar",
    x: x(i + 1) + 1, width: 8, y: 44 - height(p), height: height(p) }));
  const marks = probs.map((_, i) => i + 1).filter((n) => scale && (n === 1 || n % 16 === 0));
  const line = svg("svg", { viewBox: `0 0 ${x(probs.length + 1)} ${scale ? 68 : 54}`, class: "numbers", role: "img" });
  line.append(gray(1, low - 1), gray(high + 1, probs.length), ...bars,
    svg("line", { class: "grid", x1: 0, x2: x(probs.length + 1), y1: 44, y2: 44 }),
    ...marks.map((n) => svg("text", { x: x(n) + 5, y: 66, "text-anchor": n === 1 ? "start" : n === probs.length ? "end" : "middle" }, n)));
  if (number) line.append(svg("path", { class: "target", d: `M${x(number) + 5} 45 l5 8 h-10 z` }));
  const likeliest = probs.indexOf(largest) + 1;
  line.setAttribute("aria-label", `The most likely guess is ${likeliest}, with ${percent(largest)}.`);
  return line;
}

// Guesses of one game, each with what was possible before it.
function turns_of(said) {
  let low = 1, high = data.game.most;
  return said.map(({ text, reply }) => {
    const guess = Number(text), before = { low, high };
    if (reply === "higher") low = Math.max(low, guess + 1);
    if (reply === "lower") high = Math.min(high, guess - 1);
    return { ...before, guess, text, reply };
  });
}

const guesses_of = (count) => `${count} guess${count === 1 ? "" : "es"}`;

function outcome({ said, found, rewards }) {
  const last = label(said[said.length - 1].text);
  if (rewards.correct) return ["right", `✓ found in ${guesses_of(said.length)}`];
  if (found) return ["mixed", `found in ${guesses_of(said.length)}: too late`];
  if (!rewards.legal) return ["wrong", `✗ said “${last}”: not a number from 1 to ${data.game.most}`];
  return ["wrong", `✗ not found in ${guesses_of(said.length)}`];
}

// A game's guesses, one beneath the other; how probable each number was comes from the worker.
async function show_game(model, game, number, place) {
  const turns = turns_of(game.said), list = make("ol", { className: "turns" });
  const [kind, words] = outcome(game);
  const verdict = make("span");
  const about = data.models[model]?.about;
  place.replaceChildren(make("h3", {}, title(model) + (about ? `: ${about} ` : " "), verdict), list);
  await ask("looks", { model, response_ids: game.response_ids, said: game.said, game: watched }, ({ turn, probs }) => {
    const { low, high, guess, text, reply } = turns[turn], largest = Math.max(...probs);
    const likeliest = probs.indexOf(largest) + 1;
    const chances = likeliest === guess ? `${percent(largest)}, the most likely`
      : `${percent(probs[guess - 1] ?? 0)}; most likely ${likeliest}, ${percent(largest)}`;
    list.append(make("li", {}, number_line(probs, turn === 0, { low, high, guess, number }),
      make("p", {}, `${turn + 1}. `, make("b", { textContent: label(text) }), " → ",
        make("b", { textContent: reply ?? (guess === number ? "right" : "over") }),
        make("span", { className: "soft", textContent: ` (${chances})` }))));
  });
  verdict.className = "verdict " + kind;
  verdict.textContent = words;
  return `${title(model)}: ${words}`;
}

by_id("play").onclick = () => busy(async () => {
  const number = number_of("number"), seed = number_of("guess-seed"), said = [];
  by_id("play-state").textContent = "playing …";
  const places = players.map(() => make("div"));
  by_id("games").replaceChildren(...places);
  for (const [i, model] of players.entries()) {
    const [game] = await ask("games", { model, numbers: [number], seed, temperature: 1, game: watched });
    said.push(await show_game(model, game, number, places[i]));
  }
  return said.join("; ");
}, by_id("play-state"));

// One game about each number: how many are found in time.
async function found_by(model) {
  const seed = number_of("player-seed"), { numbers } = data.game;
  const asked = ask("games", { model, numbers, seed, temperature: 1, game: data.game });
  state.training = asked.id;
  return (await asked).filter(({ rewards }) => rewards.correct).length;
}

by_id("train-player").textContent = `Train ${title(players[0])}`;
by_id("train-player").onclick = () => busy(async () => {
  const steps = Number(by_id("player-steps").value), points = [], state_line = by_id("player-state");
  const [start] = players, { numbers, max_new_tokens, max_turns } = data.game;
  const stopped = () => state.stopping && "stopped after " + plural(points.length, "step");
  state.stopping = false;
  by_id("player-trained").textContent = "";
  state_line.textContent = "playing one game about each number …";
  const begun = performance.now(), before = await found_by(start), check = (performance.now() - begun) / 1000;
  if (stopped()) return stopped();
  state_line.textContent = "training …";
  show_left(by_id("player-left"), points, steps, check);
  const asked = ask("train", { model: start, problems: numbers.map((number) => ["", number]), game: data.game,
    config: data.recipes.grpo, lr: Number(by_id("player-lr").value), steps, keep_as: "player",
    problems_per_step: Number(by_id("numbers-per-step").value), rollouts: ROLLOUTS,
    seed: number_of("player-seed"), max_new_tokens }, (point) => {
    points.push(point);
    show_player(points, steps);
    show_left(by_id("player-left"), points, steps, check);
  });
  state.training = asked.id;
  await asked;
  if (points.length && !players.includes("player")) players.push("player");
  if (stopped()) return stopped();
  state_line.textContent = "playing one game about each number …";
  const after = await found_by("player"), seconds = points.reduce((sum, p) => sum + p.seconds, 0);
  if (stopped()) return stopped();
  by_id("player-trained").textContent = `Games won within ${max_turns} guesses, of one about each of the ${data.game.most} numbers: ` +
    `${before} before, ${after} after (other seeds differ by about 4). ` +
    "The player that you trained now plays above with the others.";
  return `${plural(points.length, "step")} in ${seconds.toFixed(0)} s.`;
}, by_id("player-state"), by_id("stop-player"));

by_id("stop-player").onclick = () => { state.stopping = true; stop(state.training); };

function show_player(points, steps) {
  const last = points[points.length - 1], likeliest = Math.max(...last.first);
  draw_curve(by_id("player-curve"), points, steps, `Share of a step's games won within ${data.game.max_turns} guesses. ` +
    `Step ${last.step + 1}: ${last_mean(points)}, ${last.seconds.toFixed(1)} s.`);
  by_id("first-guess").replaceChildren(
    make("p", { className: "soft", textContent: `Its first guess after step ${last.step + 1}: ` +
      `most likely ${last.first.indexOf(likeliest) + 1}, with ${percent(likeliest)}.` }), number_line(last.first, true));
}
