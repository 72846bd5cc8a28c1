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
    return kernels.forward(x, this.weight.data, x.length / I, O, I); // (N, O)
  }

  // From the loss's gradient with respect to y, (N, O), that with respect to x, (N, I).
  backward(dy, tape) {
    const [O, I] = this.weight.shape, x = tape.pop(), N = x.length / I;
    this.weight.accumulate(kernels.to_weight(dy, x, N, O, I));
    return kernels.to_input(dy, this.weight.data, N, O, I);
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
      kernels.put(this.keys[layer], keys.subarray(n * width, (n + 1) * width), slot * width);
      kernels.put(this.values[layer], values.subarray(n * width, (n + 1) * width), slot * width);
    });
    return [this.keys[layer], this.values[layer]];
  }
}

// Where the N tokens of one pass stand, and what each of them sees. `start` is where a token's own
// stretch starts.
class AttentionPlan {
  constructor(prompt_length) {
    this.prompt_length = prompt_length;
    this.slots = [];
    this.positions = [];
    this.seen = []; // the slots that each token sees: the first token's, then the next one's
    this.counts = []; // how many each token sees
  }

  // It sees the prompt up to its position, then its own stretch up to its slot.
  add(slot, position, start) {
    const before = this.seen.length;
    this.slots.push(slot);
    this.positions.push(position);
    for (let s = 0; s < Math.min(this.prompt_length, position + 1); s++) this.seen.push(s);
    for (let s = Math.max(start, this.prompt_length); s <= slot; s++) this.seen.push(s);
    this.counts.push(this.seen.length - before);
  }

  // As attention takes them.
  lists() {
    this.made ??= { seen: Int32Array.from(this.seen), counts: Int32Array.from(this.counts) };
    return this.made;
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
    const [found, weights] = kernels.attend(
      queries, keys, values, plan.lists(), this.cfg, Boolean(cache));
    if (tape) tape.push([queries, keys, values, weights]);
    return this.out_proj.forward(found, tape);
  }

  backward(dy, plan, tape) {
    const { n_heads, n_kv_groups } = this.cfg;
    const dfound = this.out_proj.backward(dy, tape), [queries, keys, values, weights] = tape.pop();
    const [dqueries, dkeys, dvalues] = kernels.attend_back(
      queries, keys, values, weights, dfound, plan.lists(), this.cfg);
    const dx = this.W_value.backward(dvalues, tape);
    this.rope(dkeys, plan, n_kv_groups, -1);
    add_to(dx, this.W_key.backward(this.k_norm.backward(dkeys, tape), tape));
    this.rope(dqueries, plan, n_heads, -1);
    add_to(dx, this.W_query.backward(this.q_norm.backward(dqueries, tape), tape));
    return dx;
  }
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

// The tensors of a model from the page: one float32 scale for each row, then the weights as integers
// of so many bits, one after the other, the highest bit of each first.
function read_tensors(bytes, index, bits) {
  const tensors = {};
  let at = 0;
  for (const [name, shape] of index) {
    const rows = shape[0], width = shape[1] ?? 1, data = new Float32Array(rows * width);
    const scales = new Float32Array(bytes.slice(at, (at += 4 * rows)).buffer);
    let held = 0, count = 0; // bits that have been read and belong to the next weight
    for (let i = 0; i < data.length; i++) {
      for (; count < bits; count += 8) held = (held << 8) | bytes[at++];
      count -= bits;
      const whole = ((held >> count) << (32 - bits)) >> (32 - bits); // its first bit is its sign
      held &= (1 << count) - 1;
      data[i] = whole * scales[Math.floor(i / width)];
    }
    tensors[name] = { data, shape };
  }
  return tensors;
}
