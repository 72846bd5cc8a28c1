// Where a model's time goes: products with its weights, and attention. In WebAssembly (kernels.c),
// which computes four numbers at a time, or in the plain JavaScript of this file, where a browser has
// no SIMD. `kernels` is what the model uses; both have the same functions:
//
//   forward    y (N, O)  = x (N, I) w^T     of a layer with the weights w (O, I)
//   to_input   dx (N, I) = dy (N, O) w      the way back: from the gradient of y to that of x,
//   to_weight  dw (O, I) = dy^T x           and to that of w
//   attend, attend_back                     what each token finds among those that it sees
//   changed(w)                              says that these weights have new numbers
//   put(cache, rows, at)                    writes into a cache of keys or values
"use strict";

// --- in JavaScript ---

// y (N, O) = x (N, I) w^T, where w is (O, I). Four rows of x meet four rows of w, so that each
// number that is read from memory is used four times.
function matmul(x, w, N, O, I) {
  const y = new Float32Array(N * O);
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

function transpose(x, rows, columns) {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
  return y;
}

// Four sums side by side: none of them has to wait for the one before it.
function dot(a, from, b, at, length) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, i = 0;
  for (; i + 4 <= length; i += 4) {
    s0 += a[from + i] * b[at + i];
    s1 += a[from + i + 1] * b[at + i + 1];
    s2 += a[from + i + 2] * b[at + i + 2];
    s3 += a[from + i + 3] * b[at + i + 3];
  }
  for (; i < length; i++) s0 += a[from + i] * b[at + i];
  return s0 + s1 + s2 + s3;
}

// In place; the largest is subtracted first, so that no exponential overflows.
function softmax(x) {
  let largest = -Infinity, sum = 0;
  for (let i = 0; i < x.length; i++) if (x[i] > largest) largest = x[i];
  for (let i = 0; i < x.length; i++) sum += x[i] = Math.exp(x[i] - largest);
  for (let i = 0; i < x.length; i++) x[i] /= sum;
  return x;
}

// What the queries (N, heads, head_dim) find among the keys (slots, kv groups, head_dim):
// softmax(queries keys^T / sqrt(head_dim)) values. Neighbouring heads share a group's keys.
function attend(queries, keys, values, { seen, counts }, { n_heads, n_kv_groups, head_dim }) {
  const each = n_heads / n_kv_groups, root = Math.sqrt(head_dim);
  const found = new Float32Array(queries.length), weights = new Float32Array(n_heads * seen.length);
  let first = 0, from = 0; // of this token's slots in `seen`, of this head's weights
  counts.forEach((count, n) => {
    for (let h = 0; h < n_heads; h++) {
      const q = (n * n_heads + h) * head_dim, group = Math.floor(h / each);
      for (let s = 0; s < count; s++) {
        const k = (seen[first + s] * n_kv_groups + group) * head_dim;
        weights[from + s] = dot(queries, q, keys, k, head_dim) / root;
      }
      softmax(weights.subarray(from, from + count));
      for (let s = 0; s < count; s++) {
        const v = (seen[first + s] * n_kv_groups + group) * head_dim, weight = weights[from + s];
        for (let i = 0; i < head_dim; i++) found[q + i] += weight * values[v + i];
      }
      from += count;
    }
    first += count;
  });
  return [found, weights];
}

// From the gradient of what was found, those of queries, keys and values.
function attend_back(queries, keys, values, weights, dfound, { seen, counts }, cfg) {
  const { n_heads, n_kv_groups, head_dim } = cfg;
  const each = n_heads / n_kv_groups, root = Math.sqrt(head_dim);
  const dqueries = new Float32Array(queries.length);
  const dkeys = new Float32Array(keys.length), dvalues = new Float32Array(values.length);
  let first = 0, from = 0;
  counts.forEach((count, n) => {
    const dweights = new Float64Array(count);
    for (let h = 0; h < n_heads; h++) {
      const q = (n * n_heads + h) * head_dim, group = Math.floor(h / each);
      let mean = 0; // more for all keys alike changes nothing: only the difference counts
      for (let s = 0; s < count; s++) {
        const v = (seen[first + s] * n_kv_groups + group) * head_dim;
        dweights[s] = dot(dfound, q, values, v, head_dim);
        mean += weights[from + s] * dweights[s];
      }
      for (let s = 0; s < count; s++) {
        const k = (seen[first + s] * n_kv_groups + group) * head_dim, weight = weights[from + s];
        const dscore = (weight * (dweights[s] - mean)) / root;
        for (let i = 0; i < head_dim; i++) {
          dqueries[q + i] += dscore * keys[k + i];
          dkeys[k + i] += dscore * queries[q + i];
          dvalues[k + i] += weight * dfound[q + i];
        }
      }
      from += count;
    }
    first += count;
  });
  return [dqueries, dkeys, dvalues];
}

const PLAIN_KERNELS = {
  forward: matmul,
  to_input: (dy, w, N, O, I) => matmul(dy, transpose(w, O, I), N, I, O),
  to_weight: (dy, x, N, O, I) => matmul(transpose(dy, N, O), transpose(x, N, I), O, I, N),
  attend,
  attend_back,
  changed() {},
  put: (cache, rows, at) => cache.set(rows, at),
};

// --- in WebAssembly, which has a memory of its own ---

const ROOM_TO_STAY = 64 * 2 ** 20; // bytes

// Weights and caches are copied there once and stay; the rest comes and goes with each call, behind
// them. When their room is full, all of them are forgotten and copied again as they are needed.
class CompiledKernels {
  constructor(compiled) {
    this.code = new WebAssembly.Instance(compiled, { js: { exp: Math.exp } }).exports;
    this.read_memory();
    this.first = this.code.__heap_base.value;
    this.forget_all();
  }

  read_memory() {
    this.floats = new Float32Array(this.code.memory.buffer);
    this.whole = new Int32Array(this.code.memory.buffer);
  }

  forget_all() {
    this.places = new Map(); // array -> its place, in bytes
    this.old = new Set(); // arrays that were changed since they were copied
    this.end = this.first;
  }

  // In bytes, a multiple of 16.
  size(length) {
    return 4 * (length + (-length & 3));
  }

  make_room(end) {
    const missing = end - this.floats.byteLength;
    if (missing <= 0) return;
    this.code.memory.grow(Math.ceil((missing + this.floats.byteLength / 4) / 65536));
    this.read_memory();
  }

  // The places of arrays that stay.
  places_of(...arrays) {
    const fresh = arrays.filter((x) => !this.places.has(x));
    const missing = fresh.reduce((sum, x) => sum + this.size(x.length), 0);
    if (missing && this.end + missing > this.first + ROOM_TO_STAY) {
      this.forget_all();
      return this.places_of(...arrays);
    }
    this.make_room(this.end + missing);
    for (const x of fresh) {
      this.places.set(x, this.end);
      this.old.add(x);
      this.end += this.size(x.length);
    }
    return arrays.map((x) => {
      const place = this.places.get(x);
      if (this.old.delete(x)) this.floats.set(x, place / 4);
      return place;
    });
  }

  // The places of arrays that are copied for this call, and of its results, which are set to zero.
  lay_out(arrays, lengths) {
    const places = [], sizes = [...arrays.map((x) => x.length), ...lengths].map(this.size);
    let at = this.end;
    for (const size of sizes) {
      places.push(at);
      at += size;
    }
    this.make_room(at);
    arrays.forEach((x, k) =>
      (x instanceof Int32Array ? this.whole : this.floats).set(x, places[k] / 4));
    this.floats.fill(0, (places[arrays.length] ?? at) / 4, at / 4);
    return places;
  }

  result(place, length) {
    return this.floats.slice(place / 4, place / 4 + length);
  }

  changed(w) {
    if (this.places.has(w)) this.old.add(w);
  }

  put(cache, rows, at) {
    cache.set(rows, at);
    if (this.places.has(cache)) this.floats.set(rows, this.places.get(cache) / 4 + at);
  }

  forward(x, w, N, O, I) {
    const [of_w] = this.places_of(w), [of_x, y] = this.lay_out([x], [N * O]);
    this.code.forward(of_x, of_w, y, N, O, I);
    return this.result(y, N * O);
  }

  to_input(dy, w, N, O, I) {
    const [of_w] = this.places_of(w), [of_dy, dx] = this.lay_out([dy], [N * I]);
    this.code.back(of_dy, O, 1, of_w, dx, N, O, I);
    return this.result(dx, N * I);
  }

  to_weight(dy, x, N, O, I) {
    const [of_dy, of_x, dw] = this.lay_out([dy, x], [O * I]);
    this.code.back(of_dy, 1, O, of_x, dw, O, N, I);
    return this.result(dw, O * I);
  }

  // `stays`: keys and values are a cache.
  attend(queries, keys, values, lists, cfg, stays) {
    const { seen, counts } = lists, { n_heads, n_kv_groups, head_dim } = cfg;
    if (head_dim % 4) return attend(queries, keys, values, lists, cfg);
    const lengths = [n_heads * seen.length, queries.length];
    const [k, v] = stays ? this.places_of(keys, values) : [];
    const given = stays ? [queries, seen, counts] : [queries, seen, counts, keys, values];
    const [q, s, c, ...rest] = this.lay_out(given, lengths);
    const [weights, found] = rest.slice(-2);
    this.code.attend(q, k ?? rest[0], v ?? rest[1], s, c, weights, found,
      counts.length, n_heads, n_kv_groups, head_dim);
    return [this.result(found, lengths[1]), this.result(weights, lengths[0])];
  }

  attend_back(queries, keys, values, weights, dfound, lists, cfg) {
    const { seen, counts } = lists, { n_heads, n_kv_groups, head_dim } = cfg;
    if (head_dim % 4) return attend_back(queries, keys, values, weights, dfound, lists, cfg);
    const lengths = [queries.length, keys.length, values.length];
    const [q, k, v, s, c, w, df, ...results] = this.lay_out(
      [queries, keys, values, seen, counts, weights, dfound], lengths);
    this.code.attend_back(q, k, v, s, c, w, df, ...results,
      counts.length, n_heads, n_kv_groups, head_dim);
    return results.map((place, i) => this.result(place, lengths[i]));
  }
}

function best_kernels() {
  const bytes = Uint8Array.from(atob(KERNELS_WASM), (c) => c.charCodeAt(0));
  try {
    return new CompiledKernels(new WebAssembly.Module(bytes));
  } catch { // no WebAssembly, none with SIMD, or none on a page with a policy
    return PLAIN_KERNELS;
  }
}

const kernels = best_kernels();
