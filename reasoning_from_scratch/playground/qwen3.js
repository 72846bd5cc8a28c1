// Qwen3: the model of qwen3.py in plain JavaScript, forward and backward, for the tiny sizes.
//
//   token ids (N) -> embeddings (N, D)
//     -> n blocks, each  x = x + attention(norm(x)),  then  x = x + feed_forward(norm(x))
//     -> norm -> hidden states (N, D) -> head -> logits (N, V)
//
// In the comments: N tokens that are computed together, D features of a token, V vocabulary.
// A tensor is a Float32Array, row after row; matrices of weights are (out, in) as in PyTorch.
//
// All answers to one prompt are computed together, and the prompt only once:
//
//   slot      0 1 2 3 4 5 | 6 7 8 . | 10 11 . .     P = 6 tokens of the prompt, then a stretch
//             p p p p p p | a a a . | b  b  . .     of slots for each answer
//   position  0 1 2 3 4 5 | 6 7 8   | 6  7
//
// A token sees the prompt and the tokens before it in its own stretch, no other answer. Decoding
// adds one token to each stretch; training computes all tokens at once, in the same layout.
"use strict";

const EPS = 1e-6;

// --- the arithmetic that takes the time ---

// y (N, O) = x (N, I) w^T, where w is (O, I). Four rows of x meet four rows of w, so that each
// number that is read from memory is used four times.
function matmul(x, w, N, O, I, y = new Float32Array(N * O)) {
  let n = 0;
  for (; n + 4 <= N; n += 4) {
    const x0 = n * I, x1 = x0 + I, x2 = x1 + I, x3 = x2 + I;
    let o = 0;
    for (; o + 4 <= O; o += 4) {
      const w0 = o * I, w1 = w0 + I, w2 = w1 + I, w3 = w2 + I;
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
      for (let i = 0; i < I; i++) {
        const a0 = x[x0 + i], a1 = x[x1 + i], a2 = x[x2 + i], a3 = x[x3 + i];
        const b0 = w[w0 + i], b1 = w[w1 + i], b2 = w[w2 + i], b3 = w[w3 + i];
        s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2; s03 += a0 * b3;
        s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2; s13 += a1 * b3;
        s20 += a2 * b0; s21 += a2 * b1; s22 += a2 * b2; s23 += a2 * b3;
        s30 += a3 * b0; s31 += a3 * b1; s32 += a3 * b2; s33 += a3 * b3;
      }
      let at = n * O + o;
      y[at] = s00; y[at + 1] = s01; y[at + 2] = s02; y[at + 3] = s03; at += O;
      y[at] = s10; y[at + 1] = s11; y[at + 2] = s12; y[at + 3] = s13; at += O;
      y[at] = s20; y[at + 1] = s21; y[at + 2] = s22; y[at + 3] = s23; at += O;
      y[at] = s30; y[at + 1] = s31; y[at + 2] = s32; y[at + 3] = s33;
    }
    for (; o < O; o++) for (let k = n; k < n + 4; k++) y[k * O + o] = dot(x, k * I, w, o * I, I);
  }
  for (; n < N; n++) matvec(x, n * I, w, O, I, y, n * O);
  return y;
}

// One row: y (O) = w (O, I) x (I).
function matvec(x, from, w, O, I, y, to) {
  let o = 0;
  for (; o + 4 <= O; o += 4) {
    const w0 = o * I, w1 = w0 + I, w2 = w1 + I, w3 = w2 + I;
    let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (let i = 0; i < I; i++) {
      const a = x[from + i];
      s0 += a * w[w0 + i]; s1 += a * w[w1 + i]; s2 += a * w[w2 + i]; s3 += a * w[w3 + i];
    }
    y[to + o] = s0; y[to + o + 1] = s1; y[to + o + 2] = s2; y[to + o + 3] = s3;
  }
  for (; o < O; o++) y[to + o] = dot(x, from, w, o * I, I);
}

function dot(a, from, b, at, length) {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[from + i] * b[at + i];
  return sum;
}

function transpose(x, rows, columns) {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
  return y;
}

// Some rows of x (N, width), one after the other.
function rows_of(x, numbers, width) {
  const y = new Float32Array(numbers.length * width);
  numbers.forEach((n, k) => y.set(x.subarray(n * width, (n + 1) * width), k * width));
  return y;
}

function add_to(sum, x) {
  for (let i = 0; i < sum.length; i++) sum[i] += x[i];
}

// --- parts. Each has a forward pass; with a `tape` it keeps what its backward pass needs ---

class Parameter {
  constructor(data, shape) {
    this.data = data;
    this.shape = shape;
    this.grad = null;
  }

  // Adds to the gradient.
  accumulate(grad) {
    if (this.grad) add_to(this.grad, grad);
    else this.grad = grad;
  }
}

class Linear {
  constructor(weight) {
    this.weight = weight; // (O, I)
  }

  forward(x, tape) {
    const [O, I] = this.weight.shape;
    if (tape) tape.push(x);
    return matmul(x, this.weight.data, x.length / I, O, I); // (N, O)
  }

  // From the loss's gradient with respect to y, (N, O), that with respect to x, (N, I).
  backward(dy, tape) {
    const [O, I] = this.weight.shape, x = tape.pop(), N = x.length / I;
    this.weight.accumulate(matmul(transpose(dy, N, O), transpose(x, N, I), O, I, N));
    return matmul(dy, transpose(this.weight.data, O, I), N, I, O);
  }
}

class RMSNorm {
  constructor(scale) {
    this.scale = scale; // (width)
  }

  // Each stretch of `width` numbers: a token's features, or those of one of its heads.
  forward(x, tape) {
    const scale = this.scale.data, width = scale.length, y = new Float32Array(x.length);
    const inverse = new Float32Array(x.length / width); // 1 / root mean square
    for (let r = 0, from = 0; r < inverse.length; r++, from += width) {
      inverse[r] = 1 / Math.sqrt(dot(x, from, x, from, width) / width + EPS);
      for (let i = 0; i < width; i++) y[from + i] = x[from + i] * inverse[r] * scale[i];
    }
    if (tape) tape.push([x, inverse]);
    return y;
  }

  backward(dy, tape) {
    const [x, inverse] = tape.pop();
    const scale = this.scale.data, width = scale.length;
    const dx = new Float32Array(x.length), dscale = new Float32Array(width);
    for (let r = 0, from = 0; r < inverse.length; r++, from += width) {
      const inv = inverse[r];
      let along = 0; // how much of the gradient points along x: a longer x changes nothing
      for (let i = 0; i < width; i++) {
        const normal = x[from + i] * inv;
        dscale[i] += dy[from + i] * normal;
        along += dy[from + i] * scale[i] * normal;
      }
      along /= width;
      for (let i = 0; i < width; i++)
        dx[from + i] = inv * (dy[from + i] * scale[i] - x[from + i] * inv * along);
    }
    this.scale.accumulate(dscale);
    return dx;
  }
}

// Position p turns the i-th pair of features by p / theta^(2i / head_dim). Turning back, by
// direction = -1, is the backward pass.
function apply_rope(x, positions, heads, head_dim, theta_base, direction = 1) {
  const half = head_dim / 2;
  for (let i = 0; i < half; i++) {
    const frequency = 1 / Math.pow(theta_base, (2 * i) / head_dim);
    for (let n = 0; n < positions.length; n++) {
      const angle = positions[n] * frequency;
      const cos = Math.cos(angle), sin = direction * Math.sin(angle);
      for (let h = 0; h < heads; h++) {
        const first = (n * heads + h) * head_dim + i, second = first + half;
        const a = x[first], b = x[second];
        x[first] = a * cos - b * sin;
        x[second] = b * cos + a * sin;
      }
    }
  }
  return x;
}

// --- the cache ---

// Keys and values of the tokens that were read so far, in the slots of the layout above.
class KVCache {
  constructor(cfg, prompt_length, answers, room) {
    const size = (prompt_length + answers * room) * cfg.n_kv_groups * cfg.head_dim;
    this.keys = Array.from({ length: cfg.n_layers }, () => new Float32Array(size));
    this.values = Array.from({ length: cfg.n_layers }, () => new Float32Array(size));
    this.prompt_length = prompt_length;
    this.room = room;
  }

  append(layer, keys, values, plan) {
    const width = keys.length / plan.slots.length;
    plan.slots.forEach((slot, n) => {
      this.keys[layer].set(keys.subarray(n * width, (n + 1) * width), slot * width);
      this.values[layer].set(values.subarray(n * width, (n + 1) * width), slot * width);
    });
    return [this.keys[layer], this.values[layer]];
  }
}

// Where the N tokens of one pass stand: their slots, positions, and where their own stretch starts.
class AttentionPlan {
  constructor(prompt_length) {
    this.prompt_length = prompt_length;
    this.slots = [];
    this.positions = [];
    this.starts = [];
  }

  add(slot, position, start) {
    this.slots.push(slot);
    this.positions.push(position);
    this.starts.push(start);
  }

  // The slots that token n sees: those of the prompt up to its position, then its own stretch.
  seen(n) {
    const slots = [];
    for (let s = 0; s < Math.min(this.prompt_length, this.positions[n] + 1); s++) slots.push(s);
    for (let s = Math.max(this.starts[n], this.prompt_length); s <= this.slots[n]; s++) slots.push(s);
    return slots;
  }
}

// The prompt's tokens alone.
function prompt_plan(prompt_length) {
  const plan = new AttentionPlan(prompt_length);
  for (let p = 0; p < prompt_length; p++) plan.add(p, p, 0);
  return plan;
}

// --- attention ---

class GroupedQueryAttention {
  constructor(cfg, p) {
    this.cfg = cfg;
    this.W_query = new Linear(p("W_query.weight"));
    this.W_key = new Linear(p("W_key.weight"));
    this.W_value = new Linear(p("W_value.weight"));
    this.out_proj = new Linear(p("out_proj.weight"));
    this.q_norm = new RMSNorm(p("q_norm.scale"));
    this.k_norm = new RMSNorm(p("k_norm.scale"));
  }

  rope(x, plan, heads, direction) {
    return apply_rope(x, plan.positions, heads, this.cfg.head_dim, this.cfg.rope_base, direction);
  }

  forward(x, plan, cache, layer, tape) {
    const { n_heads, n_kv_groups } = this.cfg;
    const queries = this.rope(
      this.q_norm.forward(this.W_query.forward(x, tape), tape), plan, n_heads);
    let keys = this.rope(this.k_norm.forward(this.W_key.forward(x, tape), tape), plan, n_kv_groups);
    let values = this.W_value.forward(x, tape);
    if (cache) [keys, values] = cache.append(layer, keys, values, plan);
    return this.out_proj.forward(this.attend(queries, keys, values, plan, tape), tape);
  }

  // What the queries (N, heads, head_dim) find among the keys (slots, kv groups, head_dim):
  // softmax(queries keys^T / sqrt(head_dim)) values. Neighbouring heads share a group's keys.
  attend(queries, keys, values, plan, tape) {
    const { n_heads, n_kv_groups, head_dim } = this.cfg, each = n_heads / n_kv_groups;
    const found = new Float32Array(queries.length), all_weights = [];
    for (let n = 0; n < plan.slots.length; n++) {
      const seen = plan.seen(n);
      for (let h = 0; h < n_heads; h++) {
        const q = (n * n_heads + h) * head_dim, group = Math.floor(h / each);
        const weights = new Float32Array(seen.length);
        seen.forEach((slot, s) => {
          const k = (slot * n_kv_groups + group) * head_dim;
          weights[s] = dot(queries, q, keys, k, head_dim) / Math.sqrt(head_dim);
        });
        softmax(weights);
        seen.forEach((slot, s) => {
          const v = (slot * n_kv_groups + group) * head_dim, weight = weights[s];
          for (let i = 0; i < head_dim; i++) found[q + i] += weight * values[v + i];
        });
        if (tape) all_weights.push(weights);
      }
    }
    if (tape) tape.push([queries, keys, values, all_weights]);
    return found;
  }

  backward(dy, plan, tape) {
    const { n_heads, n_kv_groups } = this.cfg;
    const [dqueries, dkeys, dvalues] = this.attend_backward(
      this.out_proj.backward(dy, tape), plan, tape);
    const dx = this.W_value.backward(dvalues, tape);
    this.rope(dkeys, plan, n_kv_groups, -1);
    add_to(dx, this.W_key.backward(this.k_norm.backward(dkeys, tape), tape));
    this.rope(dqueries, plan, n_heads, -1);
    add_to(dx, this.W_query.backward(this.q_norm.backward(dqueries, tape), tape));
    return dx;
  }

  attend_backward(dfound, plan, tape) {
    const { n_heads, n_kv_groups, head_dim } = this.cfg, each = n_heads / n_kv_groups;
    const [queries, keys, values, all_weights] = tape.pop(), root = Math.sqrt(head_dim);
    const dqueries = new Float32Array(queries.length);
    const dkeys = new Float32Array(keys.length), dvalues = new Float32Array(values.length);
    for (let n = 0; n < plan.slots.length; n++) {
      const seen = plan.seen(n);
      for (let h = 0; h < n_heads; h++) {
        const q = (n * n_heads + h) * head_dim, group = Math.floor(h / each);
        const weights = all_weights[n * n_heads + h];
        const dweights = seen.map((slot) =>
          dot(dfound, q, values, (slot * n_kv_groups + group) * head_dim, head_dim));
        let mean = 0; // more for all keys alike changes nothing: only the difference counts
        seen.forEach((_, s) => { mean += weights[s] * dweights[s]; });
        seen.forEach((slot, s) => {
          const k = (slot * n_kv_groups + group) * head_dim, weight = weights[s];
          const dscore = (weight * (dweights[s] - mean)) / root;
          for (let i = 0; i < head_dim; i++) {
            dqueries[q + i] += dscore * keys[k + i];
            dkeys[k + i] += dscore * queries[q + i];
            dvalues[k + i] += weight * dfound[q + i];
          }
        });
      }
    }
    return [dqueries, dkeys, dvalues];
  }
}

// In place; the largest is subtracted first, so that no exponential overflows.
function softmax(x) {
  let largest = -Infinity, sum = 0;
  for (let i = 0; i < x.length; i++) if (x[i] > largest) largest = x[i];
  for (let i = 0; i < x.length; i++) sum += x[i] = Math.exp(x[i] - largest);
  for (let i = 0; i < x.length; i++) x[i] /= sum;
  return x;
}

// --- the block and the model ---

class FeedForward {
  constructor(cfg, p) {
    this.fc1 = new Linear(p("fc1.weight")); // gate
    this.fc2 = new Linear(p("fc2.weight")); // up
    this.fc3 = new Linear(p("fc3.weight")); // down
  }

  forward(x, tape) {
    const gate = this.fc1.forward(x, tape), up = this.fc2.forward(x, tape);
    const product = new Float32Array(gate.length);
    for (let i = 0; i < gate.length; i++) product[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
    if (tape) tape.push([gate, up]);
    return this.fc3.forward(product, tape);
  }

  backward(dy, tape) {
    const dproduct = this.fc3.backward(dy, tape), [gate, up] = tape.pop();
    const dgate = new Float32Array(gate.length), dup = new Float32Array(gate.length);
    for (let i = 0; i < gate.length; i++) {
      const sigmoid = 1 / (1 + Math.exp(-gate[i]));
      dup[i] = dproduct[i] * gate[i] * sigmoid;
      dgate[i] = dproduct[i] * up[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
    }
    const dx = this.fc2.backward(dup, tape);
    add_to(dx, this.fc1.backward(dgate, tape));
    return dx;
  }
}

class TransformerBlock {
  constructor(cfg, p) {
    this.att = new GroupedQueryAttention(cfg, (name) => p("att." + name));
    this.ff = new FeedForward(cfg, (name) => p("ff." + name));
    this.norm1 = new RMSNorm(p("norm1.scale"));
    this.norm2 = new RMSNorm(p("norm2.scale"));
  }

  forward(x, plan, cache, layer, tape) {
    const attended = this.att.forward(this.norm1.forward(x, tape), plan, cache, layer, tape);
    add_to(attended, x);
    const out = this.ff.forward(this.norm2.forward(attended, tape), tape);
    add_to(out, attended);
    return out;
  }

  backward(dx, plan, tape) {
    add_to(dx, this.norm2.backward(this.ff.backward(dx, tape), tape));
    add_to(dx, this.norm1.backward(this.att.backward(dx, plan, tape), tape));
    return dx;
  }
}

class Qwen3Model {
  // tensors: {name: {data, shape}} by the names of the package's state dict.
  constructor(cfg, tensors) {
    this.cfg = cfg;
    this.parameters = {};
    const p = (name) => (this.parameters[name] = new Parameter(tensors[name].data, tensors[name].shape));
    this.tok_emb = p("tok_emb.weight");
    this.trf_blocks = Array.from({ length: cfg.n_layers }, (_, layer) =>
      new TransformerBlock(cfg, (name) => p(`trf_blocks.${layer}.${name}`)));
    this.final_norm = new RMSNorm(p("final_norm.scale"));
    this.out_head = new Linear(cfg.tie_embeddings ? this.tok_emb : p("out_head.weight"));
  }

  // A copy to train, so that the one it started from can still be asked.
  copy() {
    const tensors = {};
    for (const [name, { data, shape }] of Object.entries(this.parameters))
      tensors[name] = { data: data.slice(), shape };
    return new Qwen3Model(this.cfg, tensors);
  }

  // Final hidden states (N, D). The head is left to the caller, who may need it at few tokens.
  hidden_states(in_idx, plan, cache = null, tape = null) {
    const D = this.cfg.emb_dim;
    let x = new Float32Array(in_idx.length * D); // (N, D)
    in_idx.forEach((id, n) => x.set(this.tok_emb.data.subarray(id * D, (id + 1) * D), n * D));
    this.trf_blocks.forEach((block, layer) => { x = block.forward(x, plan, cache, layer, tape); });
    return this.final_norm.forward(x, tape);
  }

  // Adds to all gradients, from that of the hidden states, (N, D). The tape is read backwards.
  backward(dhidden, in_idx, plan, tape) {
    const D = this.cfg.emb_dim;
    let dx = this.final_norm.backward(dhidden, tape);
    for (const block of [...this.trf_blocks].reverse()) dx = block.backward(dx, plan, tape);
    const demb = new Float32Array(this.tok_emb.data.length);
    in_idx.forEach((id, n) => { for (let i = 0; i < D; i++) demb[id * D + i] += dx[n * D + i]; });
    this.tok_emb.accumulate(demb);
  }

  logits(hidden) {
    return this.out_head.forward(hidden); // (N, V)
  }
}

// The tensors of a model from the page: 17-bit integers with one float32 scale for each row. Of
// each integer the upper 16 bits stand in one list, the lowest bits of all stand after it, eight
// in a byte. (Half precision is almost as long, and rounds about eight times as coarsely.)
function read_tensors(bytes, index) {
  const tensors = {};
  let at = 0;
  for (const [name, shape] of index) {
    const rows = shape[0], width = shape[1] ?? 1, data = new Float32Array(rows * width);
    const take = (size) => bytes.slice(at, (at += size)); // the next bytes
    const scales = new Float32Array(take(4 * rows).buffer);
    const upper = new Int16Array(take(2 * data.length).buffer), lowest = take(Math.ceil(data.length / 8));
    for (let i = 0; i < data.length; i++) {
      const bit = (lowest[i >> 3] >> (7 - (i & 7))) & 1;
      data[i] = (2 * upper[i] + bit) * scales[Math.floor(i / width)];
    }
    tensors[name] = { data, shape };
  }
  return tensors;
}
