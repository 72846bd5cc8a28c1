// What runs beside the page, so that it never freezes: the models, and what is asked of them.
// A message is {id, what, ...arguments}; replies are {id, event}, any number of them, and then
// {id, result} or {id, error}. {stop: id} ends a request early, with what there is by then.
"use strict";

const STEPS_BACK = 5; // so many steps can be undone; each takes three times the weights' memory
const world = { models: [], opened: new Map(), tokenizer: null, stopped: new Set() };

// The page's models are read from their bytes when they are first asked for.
function model_of(name) {
  if (!world.opened.has(name)) {
    const bytes = Uint8Array.from(atob(world.weights[name]), (c) => c.charCodeAt(0));
    const { cfg, index, bits } = world.models[name];
    world.opened.set(name, new Qwen3Model(cfg, read_tensors(bytes, index, bits)));
  }
  return world.opened.get(name);
}

// How a model is asked: a model trained here as the one that it started from.
function manner_of(name) {
  return world.models[world.origins[name] ?? name];
}

function prompt_of(name, problem) {
  return world.tokenizer.encode(manner_of(name).prompt.join(problem));
}

// What a player is told; it is not told the number.
function game_prompt_of(name) {
  return world.tokenizer.encode(manner_of(name).game.prompt);
}

function stop_ids_of(name) {
  return manner_of(name).stop_ids;
}

// Who answers a model that plays: one for each game.
function partner_of(name, number, game) {
  const environment = new Guess(number, game.most);
  return new Conversation(environment, world.tokenizer, game, manner_of(name).game);
}

// How probable each number is as a player's first turn, or as its next one: the digits, and then
// the end of the turn.
function number_probs(name, most, response_ids = []) {
  const turns = Array.from({ length: most }, (_, i) =>
    [...world.tokenizer.encode(String(i + 1)), manner_of(name).game.end_of_turn]);
  const context = [...game_prompt_of(name), ...response_ids];
  const { logprobs } = new TrainingPass(model_of(name), context, turns);
  return logprobs.map((each) => Math.exp(each.reduce((sum, x) => sum + x, 0)));
}

// Lets messages in, such as {stop}. (A timer would wait at least 4 ms.)
function pause() {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(0);
  });
}

// The `count` largest, the lower index first among equals.
function most_likely(probs, count) {
  const found = [];
  for (let id = 0; id < probs.length; id++) {
    if (found.length === count && probs[id] <= probs[found[count - 1]]) continue;
    let place = found.length;
    while (place && probs[found[place - 1]] < probs[id]) place--;
    found.splice(place, 0, id);
    found.length = Math.min(found.length, count);
  }
  return found.map((id) => ({ id, text: world.tokenizer.decode([id]), p: probs[id] }));
}

function finished_answer({ response_ids, logprobs, finished }) {
  const ids = finished ? response_ids.slice(0, -1) : response_ids;
  return { response_ids, logprobs, finished, text: world.tokenizer.decode(ids) };
}

const requests = {
  open({ models, weights, tokenizer }) {
    Object.assign(world, { models, weights, origins: {}, tokenizer: new Qwen3Tokenizer(tokenizer) });
    model_of(0);
  },

  encode: ({ text }) => world.tokenizer.encode(text),
  decode: ({ ids }) => world.tokenizer.decode(ids),
  pieces: ({ ids }) => ids.map((id) => world.tokenizer.decode([id])),
  names: () => Array.from({ length: model_of(0).cfg.vocab_size }, (_, id) => world.tokenizer.decode([id])),

  logits({ model, ids }) {
    const asked = model_of(model);
    return asked.logits(asked.hidden_states(ids, prompt_plan(ids.length)));
  },

  // `count` answers; tokens arrive as events {answer, token, text, p, top}.
  async answer({ model, problem, stream, count = 1, max_new_tokens, temperature, top_p, begun }, id) {
    const [seed, step, number, first = 0] = stream;
    const keys = Array.from({ length: count }, (_, i) => stream_key(seed, step, number, first + i));
    const prompt_ids = prompt_of(model, problem), asked = model_of(model);
    if (prompt_ids.length >= asked.cfg.context_length)
      throw new Error(`The problem is too long: with its prompt it has ${prompt_ids.length} tokens, ` +
        `and the model reads ${asked.cfg.context_length}.`);
    const options = { max_new_tokens, temperature, top_p, begun, stop_ids: stop_ids_of(model) };
    const start = performance.now();
    const answers = await generate(asked, prompt_ids, keys, options, async (answer, draw) => {
      const text = world.tokenizer.decode([draw.token]);
      const top = most_likely(draw.probs, 8);
      postMessage({ id, event: { answer, token: draw.token, text, p: draw.probs[draw.token], top } });
      if (answer === 0) await pause();
      return !world.stopped.has(id);
    });
    return { answers: answers.map(finished_answer), seconds: (performance.now() - start) / 1000 };
  },

  // The chosen number of passes over one group, and what the model says before and after.
  async step({ model, problem, answers, rewards, config, lr, passes }, id) {
    const start = performance.now(), changed = model_of(model).copy();
    const prompt_ids = prompt_of(model, problem), optimizer = new AdamW(changed);
    const group = { prompt_ids, answers, rewards };
    const look = () => new TrainingPass(changed, prompt_ids, answers, config.train_temperature);
    const before = look(), norms = [];
    for (let pass = 0; pass < passes; pass++) {
      norms.push(train_step(changed, optimizer, [group], config, lr, [before.logprobs]));
      postMessage({ id, event: { pass } });
      await pause();
    }
    const after = look(), last = prompt_ids.length - 1;
    keep_trained("step", changed, model);
    return {
      first: [before, after].map(({ probs, sources }) => first_tokens(probs, sources, last)),
      logprobs: [before.logprobs, after.logprobs], norms,
      seconds: (performance.now() - start) / 1000,
    };
  },

  // The log-probabilities of a step's groups, and the gradient, for comparing them.
  gradient({ model, groups, config, old }) {
    const asked = model_of(model).copy(), logprobs = backward(asked, groups, config, old);
    const grads = Object.entries(asked.parameters).map(([name, { grad }]) => [name, grad]);
    return { logprobs, grads: Object.fromEntries(grads) };
  },

  // A game about each of some numbers, side by side: those that an evaluation plays with this seed.
  async games({ model, numbers, seed, temperature, game }, id) {
    const asked = model_of(model);
    const keys = numbers.map((number) => stream_key(seed, 0, game.numbers.indexOf(number), 0));
    const options = { max_new_tokens: game.max_new_tokens, temperature, top_p: 1,
      stop_ids: stop_ids_of(model), partner_of: (i) => partner_of(model, numbers[i], game) };
    const drawn = await generate(asked, game_prompt_of(model), keys, options,
      async (i) => { if (i === 0) await pause(); return !world.stopped.has(id); });
    return drawn.map(({ response_ids, forced, logprobs, finished, partner }) => ({ response_ids,
      forced, logprobs, finished, said: partner.said, found: partner.environment.found,
      rewards: partner.environment.rewards() }));
  },

  // Of one game, guess by guess: how probable each number was. An event for each guess.
  async looks({ model, response_ids, said, game }, id) {
    for (const [turn, { start }] of said.entries()) {
      const probs = number_probs(model, game.most, response_ids.slice(0, start));
      postMessage({ id, event: { turn, probs } });
      await pause();
      if (world.stopped.has(id)) break;
    }
  },

  // GRPO from step to step: events, one a step.
  async train({ model, steps, keep_as = "trained", ...options }, id) {
    const trained = model_of(model).copy(), optimizer = new AdamW(trained);
    for (let step = 0; step < steps; step++) {
      const event = await one_step(model, trained, optimizer, step, options, id);
      if (!event) break;
      keep_trained(keep_as, trained, model);
      if (options.game) event.first = number_probs(keep_as, options.game.most); // a game's first guess
      postMessage({ id, event });
      await pause();
    }
  },

  // The same, one step a request, and `back` undoes it; step 0 begins a new training.
  async learn({ model, step, ...options }, id) {
    if (step === 0) {
      const trained = model_of(model).copy();
      world.lesson = { trained, optimizer: new AdamW(trained), before: [] };
    }
    const { trained, optimizer, before } = world.lesson;
    before.push(optimizer.state());
    const event = await one_step(model, trained, optimizer, step, options, id);
    if (!event) before.pop();
    before.splice(0, before.length - STEPS_BACK);
    keep_trained("lesson", trained, model);
    return { event, back: before.length };
  },

  back() {
    const { optimizer, before } = world.lesson;
    optimizer.restore(before.pop());
    return before.length;
  },

  // Greedy answers to a few problems: how many are correct.
  async accuracy({ model, problems, max_new_tokens }, id) {
    let correct = 0, done = 0;
    for (const [problem, answer] of problems) {
      const options = { max_new_tokens, temperature: 0, top_p: 1, stop_ids: stop_ids_of(model) };
      const drawn = await generate(model_of(model), prompt_of(model, problem), [0n], options,
        async () => { await pause(); return !world.stopped.has(id); });
      if (world.stopped.has(id)) break;
      correct += score_parts(finished_answer(drawn[0]).text, answer, drawn[0].finished).correct;
      postMessage({ id, event: { done: ++done, correct } });
    }
    return { correct, done };
  },
};

// One step of GRPO, on problems of the training set; null if it was stopped. With a `game` the
// problems are numbers to guess.
async function one_step(model, trained, optimizer, step, options, id) {
  const { problems, config, lr, problems_per_step, rollouts, seed, max_new_tokens, game } = options;
  const start = performance.now(), groups = [];
  for (let number = 0; number < problems_per_step; number++) {
    const [problem, answer, , level] = problems[(step * problems_per_step + number) % problems.length];
    const prompt_ids = game ? game_prompt_of(model) : prompt_of(model, problem);
    const keys = Array.from({ length: rollouts }, (_, i) => stream_key(seed, step, number, i));
    const sampling = { max_new_tokens, temperature: config.temperature, top_p: config.top_p,
      stop_ids: stop_ids_of(model), partner_of: game && (() => partner_of(model, Number(answer), game)) };
    const drawn = await generate(trained, prompt_ids, keys, sampling,
      async (i) => { if (i === 0) await pause(); return !world.stopped.has(id); });
    const texts = drawn.map((a) => finished_answer(a).text);
    const parts = drawn.map(({ partner, finished }, i) =>
      partner ? partner.environment.rewards() : score_parts(texts[i], answer, finished));
    groups.push({ problem, texts, prompt_ids, answers: drawn.map((a) => a.response_ids), parts,
      forced: drawn.map((a) => a.forced),
      ways: game ? [] : texts.map((text) => way_of(text, Number(level))),
      rewards: parts.map((p, i) =>
        total_reward(p, config, drawn[i].response_ids.length, max_new_tokens)) });
  }
  if (world.stopped.has(id)) return null;
  const grad_norm = train_step(trained, optimizer, groups, config, lr);
  const all = groups.flatMap((g) => g.parts), lengths = groups.flatMap((g) => g.answers);
  return { step, grad_norm, ways: groups.flatMap((g) => g.ways),
    groups: groups.map(({ problem, texts, answers, rewards }) => ({ problem, texts, answers, rewards })),
    correct: mean_of(all.map((p) => p.correct)), tokens: mean_of(lengths.map((a) => a.length)),
    seconds: (performance.now() - start) / 1000 };
}

// The distribution of the answers' first token.
function first_tokens(probs, sources, last) {
  return Array.from(probs[sources.indexOf(last)]);
}

function keep_trained(name, model, origin) {
  for (const parameter of Object.values(model.parameters)) parameter.grad = null;
  world.opened.set(name, model);
  world.origins[name] = world.origins[origin] ?? origin;
}

onmessage = async ({ data: { id, what, stop, ...rest } }) => {
  if (stop !== undefined) {
    world.stopped.add(stop);
    return;
  }
  try {
    postMessage({ id, result: await requests[what](rest, id) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
