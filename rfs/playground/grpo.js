// GRPO on one group: rewards, advantages, the loss's pull on each token, and the step itself.
// The names are those of rewards.py, advantages.py, losses.py and trainer.py.
"use strict";

// --- rewards: is the last box right? Only for the answers of the tiny world: whole numbers,
// decimals and fractions. (The package's grader knows all the rest of mathematics.) ---

function get_last_boxed(text) {
  const start = text.lastIndexOf("\\boxed{");
  if (start < 0) return null;
  let depth = 0;
  for (let i = start + 6; i < text.length; i++) {
    if (text[i] === "{") depth++;
    if (text[i] === "}" && --depth === 0) return text.slice(start + 7, i).trim();
  }
  return null;
}

// "3/4", "\frac{3}{4}", "-2", "0.75" -> [numerator, denominator] as BigInts; null: not a number.
function read_number(text) {
  const plain = text.trim().replace(/^\$|\$$/g, "").replace(/^\u2212/, "-").replace(/(\d),(?=\d{3}(?!\d))/g, "$1");
  const fraction = plain.match(/^(-?)\s*\\d?frac\{\s*(-?\d+)\s*\}\{\s*(\d+)\s*\}$/) ||
    plain.match(/^(-?)(\d+)\s*\/\s*(\d+)$/);
  let top, bottom = 1n;
  if (fraction) {
    [top, bottom] = [BigInt(fraction[2]) * (fraction[1] ? -1n : 1n), BigInt(fraction[3])];
  } else {
    const decimal = plain.match(/^([-+]?)(?=\.?\d)(\d*)(?:\.(\d*))?$/);
    if (!decimal) return null;
    const [, sign, whole, digits = ""] = decimal;
    [top, bottom] = [BigInt(whole + digits) * (sign === "-" ? -1n : 1n), 10n ** BigInt(digits.length)];
  }
  return bottom === 0n ? null : [top, bottom];
}

function grade_answer(boxed, answer) {
  const [a, b] = [read_number(boxed), read_number(answer)];
  return Boolean(a && b && a[0] * b[1] === b[0] * a[1]);
}

function score_parts(text, answer, finished) {
  const boxed = get_last_boxed(text);
  const correct = Number(boxed !== null && grade_answer(boxed, answer));
  const format = Number(finished && boxed !== null && read_number(boxed) !== null);
  return { correct, wrong: 1 - correct, format, unformatted: 1 - format };
}

// The weighted sum; `conditional` counts the form only where the answer is right. DAPO's penalty
// falls from 0 to -1 over the last `cushion` tokens before the length limit.
function total_reward(parts, recipe, length, max_new_tokens) {
  let reward = 0;
  for (const [name, weight] of Object.entries(recipe.reward_parts)) {
    const counts = recipe.conditional_format && name.endsWith("format") ? parts.correct : 1;
    reward += weight * parts[name] * counts;
  }
  const cushion = recipe.overlong_penalty;
  if (!cushion) return reward;
  return reward + Math.max(-1, Math.min(0, (max_new_tokens - cushion - length) / cushion));
}

// --- advantages: how much better than the others of the group. All equal: exactly 0. ---

const mean_of = (numbers) => numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
const MEAN = 5; // steps: the share of correct answers jumps with the problems that a step draws
const running_mean = (values) => values.map((_, i) => mean_of(values.slice(Math.max(0, i - MEAN + 1), i + 1)));

function mean_centered(rewards) {
  if (rewards.every((r) => r === rewards[0])) return rewards.map(() => 0);
  const mean = mean_of(rewards);
  return rewards.map((r) => r - mean);
}

function zscore(rewards) {
  const centered = mean_centered(rewards);
  const std = Math.sqrt(centered.reduce((sum, x) => sum + x * x, 0) / (rewards.length - 1));
  return centered.map((x) => x / (std + 1e-4));
}

function leave_one_out(rewards) {
  return mean_centered(rewards).map((x) => (x * rewards.length) / (rewards.length - 1));
}

// For rewards of at least 0.
function maxrl(rewards) {
  return mean_centered(rewards).map((x) => (x ? x / mean_of(rewards) : 0));
}

const ADVANTAGES = { zscore, mean: mean_centered, "leave-one-out": leave_one_out, maxrl };

// --- the loss, by its slopes: how much the objective grows per unit of a token's log-probability.
// `logprobs` and `old_logprobs` are lists of numbers for each answer. ---

function clip(x, low, high) {
  return Math.min(Math.max(x, low), high);
}

// A token's slope. `clipped`: the update has moved it far enough; there is nothing more to gain.
// `moved`: by how much its probability has changed. Recipes with other objectives are not offered.
const OBJECTIVES = {
  reinforce: ({ advantage }) => advantage,
  importance_sampling: ({ ratio, advantage }) => ratio * advantage,
  ppo: ({ ratio, advantage, clipped }) => (clipped ? 0 : ratio * advantage),
  cispo: ({ ratio, advantage }, config) => clip(ratio, config.clip_low, config.clip_high) * advantage,
  dro: ({ log_ratio, advantage }, config) => advantage - config.dro_beta * log_ratio,
  dppo: ({ ratio, advantage, moved }, config) =>
    Math.sign(advantage) * moved > config.divergence_limit ? 0 : ratio * advantage,
  gspo: ({ ratio, advantage, clipped }) => (clipped ? 0 : ratio * advantage),
};

function objective_slopes(config, logprobs, old_logprobs, advantage) {
  const { objective, clip_low: low, clip_high: high } = config;
  const log_ratios = logprobs.map((p, t) => p - old_logprobs[t]);
  const sequence_ratio = Math.exp(mean_of(log_ratios)); // gspo: one ratio for the whole answer
  return log_ratios.map((log_ratio, t) => {
    const ratio = objective === "gspo" ? sequence_ratio : Math.exp(log_ratio);
    const clipped = (ratio > high && advantage > 0) || (ratio < low && advantage < 0);
    const moved = Math.exp(logprobs[t]) - Math.exp(old_logprobs[t]);
    return OBJECTIVES[objective]({ log_ratio, ratio, clipped, moved, advantage }, config);
  });
}

// What each token of an answer weighs in the loss; the divisor counts all groups of the step.
function token_weight(config, length, sequences, tokens) {
  switch (config.aggregate) {
    case "sum": return 1;
    case "constant": return 1 / (sequences * config.length_constant);
    case "sequence": return 1 / (sequences * length);
    case "token": return 1 / tokens;
    default: throw new Error("unknown aggregate " + config.aggregate);
  }
}

// --- log-probabilities, and the way back ---

// Tokens of an answer that the model drew itself. `forced`: the places of those that it did not.
const sampled_count = (response_ids, forced = []) => response_ids.length - forced.length;

// One forward pass over a prompt and all its answers. `logprobs` has a list for each answer, of the
// tokens that were drawn: what somebody else said is read by the model, and not trained on.
// `backward` adds the gradient of the sum of slopes * logprobs, negated: the loss goes down.
class TrainingPass {
  constructor(model, prompt_ids, answers, temperature = 1, forced = []) {
    const P = prompt_ids.length, plan = prompt_plan(P), D = model.cfg.emb_dim;
    Object.assign(this, { model, plan, temperature, tape: [], in_idx: [...prompt_ids] });
    this.sources = []; // the token whose hidden state predicts each sampled token
    this.targets = []; // that sampled token
    const counts = answers.map((response_ids, i) => sampled_count(response_ids, forced[i]));
    answers.forEach((response_ids, i) => {
      const start = this.in_idx.length, masked = new Set(forced[i]);
      response_ids.forEach((id, t) => {
        if (!masked.has(t)) {
          this.sources.push(t ? start + t - 1 : P - 1);
          this.targets.push(id);
        }
        if (t + 1 === response_ids.length) return; // nothing is predicted from the last one
        plan.add(start + t, P + t, start);
        this.in_idx.push(id);
      });
    });
    const hidden = model.hidden_states(this.in_idx, plan, null, this.tape); // (N, D)
    this.head_tape = [];
    const logits = model.out_head.forward(
      rows_of(hidden, this.sources, D), this.head_tape); // (sampled tokens, V)
    const V = model.cfg.vocab_size, flat = [];
    this.probs = this.targets.map((target, k) => {
      const probs = softmax(logits.subarray(k * V, (k + 1) * V).map((x) => x / temperature));
      flat.push(Math.log(probs[target]));
      return probs;
    });
    let from = 0;
    this.logprobs = counts.map((count) => flat.slice(from, (from += count)));
  }

  backward(slopes) {
    const V = this.model.cfg.vocab_size, D = this.model.cfg.emb_dim;
    const dlogits = new Float32Array(this.targets.length * V);
    slopes.flat().forEach((slope, k) => {
      // d log p(target) / d logits = (1 at the target) - p
      const each = -slope / this.temperature;
      for (let v = 0; v < V; v++) dlogits[k * V + v] = -each * this.probs[k][v];
      dlogits[k * V + this.targets[k]] += each;
    });
    const dsources = this.model.out_head.backward(dlogits, this.head_tape);
    const dhidden = new Float32Array(this.in_idx.length * D);
    this.sources.forEach((n, k) => {
      for (let i = 0; i < D; i++) dhidden[n * D + i] += dsources[k * D + i];
    });
    this.model.backward(dhidden, this.in_idx, this.plan, this.tape);
  }
}

// --- the update ---

class AdamW {
  constructor(model, beta1 = 0.9, beta2 = 0.95) {
    Object.assign(this, { beta1, beta2, updates: 0, parameters: Object.values(model.parameters) });
    for (const parameter of this.parameters) {
      parameter.mean = new Float32Array(parameter.data.length);
      parameter.square = new Float32Array(parameter.data.length);
    }
  }

  // The gradient's norm before clipping.
  clip_gradient(largest) {
    let sum = 0;
    for (const { grad } of this.parameters) for (let i = 0; i < grad.length; i++) sum += grad[i] ** 2;
    const norm = Math.sqrt(sum), scale = Math.min(1, largest / (norm + 1e-6));
    if (scale < 1)
      for (const { grad } of this.parameters) for (let i = 0; i < grad.length; i++) grad[i] *= scale;
    return norm;
  }

  step(lr) {
    this.updates++;
    const { beta1, beta2 } = this;
    const mean_part = 1 - beta1 ** this.updates, square_part = 1 - beta2 ** this.updates;
    for (const { data, grad, mean, square } of this.parameters)
      for (let i = 0; i < data.length; i++) {
        mean[i] += (1 - beta1) * (grad[i] - mean[i]);
        square[i] = beta2 * square[i] + (1 - beta2) * grad[i] * grad[i];
        data[i] -= ((lr / mean_part) * mean[i]) / (Math.sqrt(square[i] / square_part) + 1e-8);
      }
    for (const { data } of this.parameters) kernels.changed(data);
  }

  zero_grad() {
    for (const parameter of this.parameters) parameter.grad = null;
  }

  // What a step changes, for going back to before it.
  state() {
    const arrays = this.parameters.map(({ data, mean, square }) =>
      [data, mean, square].map((x) => x.slice()));
    return { updates: this.updates, arrays };
  }

  restore({ updates, arrays }) {
    this.updates = updates;
    this.parameters.forEach(({ data, mean, square }, i) => {
      [data, mean, square].forEach((x, k) => x.set(arrays[i][k]));
      kernels.changed(data);
    });
  }
}

// The gradient of one pass over the groups of a step. A group is {prompt_ids, answers, rewards},
// and `forced`, if somebody talked with the model: for each answer the places that were not drawn.
// `old` has the log-probabilities of each group when the step began, null in the first pass.
// For each group its log-probabilities; null if it has no signal.
function backward(model, groups, config, old = null) {
  const sequences = groups.reduce((sum, group) => sum + group.answers.length, 0);
  const tokens = groups.reduce((sum, { answers, forced = [] }) =>
    sum + answers.reduce((count, ids, i) => count + sampled_count(ids, forced[i]), 0), 0);
  return groups.map(({ prompt_ids, answers, rewards, forced = [] }, g) => {
    const advantages = ADVANTAGES[config.advantage](rewards);
    if (advantages.every((a) => a === 0)) return null; // nothing to prefer
    const pass = new TrainingPass(model, prompt_ids, answers, config.train_temperature, forced);
    pass.backward(pass.logprobs.map((logprobs, i) => {
      const weight = token_weight(config, logprobs.length, sequences, tokens);
      const base = old ? old[g][i] : logprobs;
      return objective_slopes(config, logprobs, base, advantages[i]).map((slope) => slope * weight);
    }));
    return pass.logprobs;
  });
}

// One pass and one update; the gradient's norm. Without any gradient there is no update: AdamW's
// momentum would still move the weights.
function train_step(model, optimizer, groups, config, lr, old = null) {
  if (!backward(model, groups, config, old).some(Boolean)) return 0;
  const norm = optimizer.clip_gradient(config.grad_clip || Infinity);
  optimizer.step(lr);
  optimizer.zero_grad();
  return norm;
}
