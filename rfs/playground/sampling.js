// Drawing tokens, as sampling.py does: the same uniform number for the same (seed, step, problem,
// rollout, position), so the page draws the answers that the package draws.
"use strict";

const GOLDEN = 0x9e3779b97f4a7c15n; // 2^64 / golden ratio
const bits64 = (x) => BigInt.asUintN(64, x);

// The finalizer of splitmix64: each input bit changes each output bit half the time.
function mix(x) {
  x = bits64((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n);
  x = bits64((x ^ (x >> 27n)) * 0x94d049bb133111ebn);
  return x ^ (x >> 31n);
}

// 64 bits that name a rollout's random stream.
function stream_key(seed, step, problem, rollout) {
  let key = 0n;
  for (const number of [seed, step, problem, rollout])
    key = mix(bits64((key ^ bits64(BigInt(number))) + GOLDEN));
  return key;
}

// The number in (0, 1) at this position of the stream: the middle of one of 2^22 equal parts.
function uniform_at(key, position) {
  return (Number(mix(bits64(key + BigInt(position + 1) * GOLDEN)) >> 42n) + 0.5) / 2 ** 22;
}

// probs (V), 0 where top-p cuts: the smallest set that holds top_p of the mass is kept. Among
// equals the lower index stays.
function cut(probs, top_p) {
  const ordered = probs.slice().sort().reverse();
  let last = 0, mass = 0;
  for (; last < ordered.length - 1; last++) {
    mass += ordered[last];
    if (Math.fround(mass) >= Math.fround(top_p)) break;
  }
  const smallest = ordered[last]; // the smallest probability that is kept
  let room = last + 1 - probs.filter((p) => p > smallest).length; // for so many that equal it
  return probs.map((p) => (p > smallest || (p === smallest && room-- > 0) ? p : 0));
}

// Inverse CDF: the index at which the running sum passes u of the total.
function draw_index(weights, u) {
  const mass = new Float32Array(weights.length);
  let sum = 0;
  for (let i = 0; i < weights.length; i++) mass[i] = sum += weights[i];
  const target = Math.fround(u * mass[mass.length - 1]);
  const index = mass.findIndex((m) => m > target);
  return index < 0 ? weights.length - 1 : index;
}

// One token from logits (V) with one uniform number. Temperature 0 takes the most probable
// token. `probs` is the whole distribution at this temperature, before top-p.
function sample_next_token(logits, u, temperature, top_p) {
  const probs = softmax(logits.map((x) => x / (temperature || 1)));
  const cuts = temperature > 0 && top_p < 1;
  const weights = cuts ? cut(probs, top_p) : probs;
  let token = 0;
  if (temperature === 0) {
    for (let i = 1; i < logits.length; i++) if (logits[i] > logits[token]) token = i;
  } else token = draw_index(weights, u);
  const mass = cuts ? weights.reduce((sum, p) => sum + p, 0) : 1;
  return { token, logprob: Math.log(probs[token] / mass), probs };
}

// Answers to one prompt, drawn side by side; the prompt is read once. `keys` has a stream for
// each; `begun` are tokens that each answer starts with. `partner_of(answer)` is who talks with the
// model in it (environments.js); what it says is in `response_ids`, and its places are in `forced`.
// `on_token(answer, draw)` is called for every token that is drawn, and may be async: that is where
// the worker looks whether it is to stop.
async function generate(model, prompt_ids, keys, options, on_token) {
  const { max_new_tokens, temperature, top_p, stop_ids, begun = [], partner_of } = options;
  const P = prompt_ids.length, D = model.cfg.emb_dim, V = model.cfg.vocab_size;
  const room = Math.min(max_new_tokens, model.cfg.context_length - P);
  const cache = new KVCache(model.cfg, P, keys.length, room);
  const read = model.hidden_states(prompt_ids, prompt_plan(P), cache); // (P, D)
  const first = model.logits(read.subarray((P - 1) * D)); // (V) the same for all answers
  let live = keys.map((key, index) => ({
    index, key, logits: first, response_ids: [], logprobs: [], forced: [], finished: false,
    read: 0, partner: partner_of ? partner_of(index) : null }));
  const answers = [...live];
  while (live.length) {
    for (const answer of live) {
      const position = answer.response_ids.length;
      const draw = sample_next_token(
        answer.logits, uniform_at(answer.key, position), temperature, top_p);
      if (position < begun.length) {
        draw.token = begun[position];
        draw.logprob = Math.log(draw.probs[draw.token]);
      }
      answer.response_ids.push(draw.token);
      answer.logprobs.push(draw.logprob);
      answer.finished = stop_ids.includes(draw.token);
      if ((await on_token(answer.index, draw)) === false) return answers;
    }
    live = live.filter((answer) => goes_on(answer, room));
    if (!live.length) break;
    // The model reads what was drawn, and after it what a partner has said.
    const plan = new AttentionPlan(P), ids = [], last = [];
    for (const answer of live) {
      const start = P + answer.index * room;
      for (; answer.read < answer.response_ids.length; answer.read++) {
        plan.add(start + answer.read, P + answer.read, start);
        ids.push(answer.response_ids[answer.read]);
      }
      last.push(ids.length - 1);
    }
    const hidden = model.hidden_states(ids, plan, cache);
    const logits = model.logits(rows_of(hidden, last, D)); // (live, V)
    live.forEach((answer, n) => { answer.logits = logits.subarray(n * V, (n + 1) * V); });
  }
  return answers;
}

// Whether an answer has further tokens to draw, now that it has drawn one.
function goes_on(answer, room) {
  const { response_ids, partner } = answer, left = room - response_ids.length;
  if (!partner) return !answer.finished && left > 0;
  const said = partner.hear(response_ids, answer.finished);
  if (!said || (answer.finished && !said.length)) return false;
  if (left <= said.length) { // nothing could be drawn after it
    answer.finished = false;
    return false;
  }
  for (const id of said) {
    answer.forced.push(response_ids.length);
    response_ids.push(id);
  }
  if (said.length) answer.finished = false;
  return true;
}
