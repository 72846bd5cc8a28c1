/* Products with a model's weights, and attention, four numbers at a time: WebAssembly's SIMD.

   kernels.js has the same in plain JavaScript and copies to this memory and back; build_kernels.sh
   makes kernels.wasm.js of this file. Matrices are float32, row after row. */

#include <wasm_simd128.h>

#define LANES 4
#define add wasm_f32x4_add
#define mul wasm_f32x4_mul

static float sum_of(v128_t lanes) {
  return (wasm_f32x4_extract_lane(lanes, 0) + wasm_f32x4_extract_lane(lanes, 1)) +
         (wasm_f32x4_extract_lane(lanes, 2) + wasm_f32x4_extract_lane(lanes, 3));
}

/* One or two rows of x meet four rows of w: what is read from memory is used several times, and the
   eight sums stay in the processor's registers. The compiler unrolls the inner loops. */
static inline __attribute__((always_inline)) void rows_by_four(
    const float *x, const float *w, float *y, int rows, int O, int I) {
  v128_t sums[2][4];
  for (int r = 0; r < rows; r++)
    for (int o = 0; o < 4; o++) sums[r][o] = wasm_f32x4_splat(0);
  int i = 0;
  for (; i + LANES <= I; i += LANES) {
    v128_t of_w[4];
    for (int o = 0; o < 4; o++) of_w[o] = wasm_v128_load(w + o * I + i);
    for (int r = 0; r < rows; r++) {
      v128_t of_x = wasm_v128_load(x + r * I + i);
      for (int o = 0; o < 4; o++) sums[r][o] = add(sums[r][o], mul(of_x, of_w[o]));
    }
  }
  for (int r = 0; r < rows; r++)
    for (int o = 0; o < 4; o++) {
      float sum = sum_of(sums[r][o]);
      for (int k = i; k < I; k++) sum += x[r * I + k] * w[o * I + k];
      y[r * O + o] = sum;
    }
}

/* y (N, O) = x (N, I) w^T, where w is (O, I). */
void forward(const float *x, const float *w, float *y, int N, int O, int I) {
  int o = 0;
  for (; o + 4 <= O; o += 4) {
    int n = 0;
    for (; n + 2 <= N; n += 2) rows_by_four(x + n * I, w + o * I, y + n * O + o, 2, O, I);
    if (n < N) rows_by_four(x + n * I, w + o * I, y + n * O + o, 1, O, I);
  }
  for (; o < O; o++)
    for (int n = 0; n < N; n++) {
      float sum = 0;
      for (int i = 0; i < I; i++) sum += x[n * I + i] * w[o * I + i];
      y[n * O + o] = sum;
    }
}

/* `rows` rows of c, eight columns. A number of a is at a[r * a_row + k * a_step]. */
static inline __attribute__((always_inline)) void rows_by_eight(
    const float *a, int a_row, int a_step, const float *b, float *c, int rows, int K, int C) {
  v128_t sums[4][2];
  for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = wasm_f32x4_splat(0);
  for (int k = 0; k < K; k++) {
    v128_t low = wasm_v128_load(b + k * C), high = wasm_v128_load(b + k * C + LANES);
    for (int r = 0; r < rows; r++) {
      v128_t of_a = wasm_v128_load32_splat(a + r * a_row + k * a_step);
      sums[r][0] = add(sums[r][0], mul(of_a, low));
      sums[r][1] = add(sums[r][1], mul(of_a, high));
    }
  }
  for (int r = 0; r < rows; r++) {
    wasm_v128_store(c + r * C, sums[r][0]);
    wasm_v128_store(c + r * C + LANES, sums[r][1]);
  }
}

/* c (R, C) = a (R, K) b (K, C): both ways back. a may stand in memory turned, row by row or column
   by column, as a_row and a_step say. */
void back(const float *a, int a_row, int a_step, const float *b, float *c, int R, int K, int C) {
  int column = 0;
  for (; column + 8 <= C; column += 8) {
    int r = 0;
    for (; r + 4 <= R; r += 4)
      rows_by_eight(a + r * a_row, a_row, a_step, b + column, c + r * C + column, 4, K, C);
    for (; r < R; r++)
      rows_by_eight(a + r * a_row, a_row, a_step, b + column, c + r * C + column, 1, K, C);
  }
  for (; column < C; column++)
    for (int r = 0; r < R; r++) {
      float sum = 0;
      for (int k = 0; k < K; k++) sum += a[r * a_row + k * a_step] * b[k * C + column];
      c[r * C + column] = sum;
    }
}

/* --- attention ---

   queries and found are (N, heads, dim), keys and values (slots, groups, dim), where neighbouring
   heads share a group. Token n sees counts[n] slots; `seen` has the slots of the first token, then
   those of the next. `weights` is as long for each head: those of token 0 and head 0, of head 1, ...
   dim is a multiple of four. */

__attribute__((import_module("js"), import_name("exp"))) double js_exp(double x);

static float dot(const float *a, const float *b, int dim) {
  v128_t even = wasm_f32x4_splat(0), odd = wasm_f32x4_splat(0);
  int i = 0;
  for (; i + 2 * LANES <= dim; i += 2 * LANES) {
    even = add(even, mul(wasm_v128_load(a + i), wasm_v128_load(b + i)));
    odd = add(odd, mul(wasm_v128_load(a + i + LANES), wasm_v128_load(b + i + LANES)));
  }
  if (i < dim) even = add(even, mul(wasm_v128_load(a + i), wasm_v128_load(b + i)));
  return sum_of(add(even, odd));
}

/* y += factor * x */
static void add_scaled(float *y, float factor, const float *x, int dim) {
  v128_t times = wasm_f32x4_splat(factor);
  for (int i = 0; i < dim; i += LANES)
    wasm_v128_store(y + i, add(wasm_v128_load(y + i), mul(times, wasm_v128_load(x + i))));
}

static void softmax(float *x, int count) {
  float largest = x[0], sum = 0;
  for (int s = 1; s < count; s++)
    if (x[s] > largest) largest = x[s];
  for (int s = 0; s < count; s++) sum += x[s] = (float)js_exp(x[s] - largest);
  for (int s = 0; s < count; s++) x[s] /= sum;
}

/* `found` is zero when this begins. */
void attend(const float *queries, const float *keys, const float *values, const int *seen,
            const int *counts, float *weights, float *found, int N, int heads, int groups, int dim) {
  float root = __builtin_sqrtf((float)dim);
  for (int n = 0; n < N; seen += counts[n++])
    for (int h = 0; h < heads; h++, weights += counts[n]) {
      int q = (n * heads + h) * dim, group = h / (heads / groups);
      for (int s = 0; s < counts[n]; s++)
        weights[s] = dot(queries + q, keys + (seen[s] * groups + group) * dim, dim) / root;
      softmax(weights, counts[n]);
      for (int s = 0; s < counts[n]; s++)
        add_scaled(found + q, weights[s], values + (seen[s] * groups + group) * dim, dim);
    }
}

/* The three results are zero when this begins. */
void attend_back(const float *queries, const float *keys, const float *values, const int *seen,
                 const int *counts, const float *weights, const float *dfound, float *dqueries,
                 float *dkeys, float *dvalues, int N, int heads, int groups, int dim) {
  float root = __builtin_sqrtf((float)dim);
  for (int n = 0; n < N; seen += counts[n++])
    for (int h = 0; h < heads; h++, weights += counts[n]) {
      int q = (n * heads + h) * dim, group = h / (heads / groups);
      float mean = 0; /* more for all keys alike changes nothing: only the difference counts */
      for (int s = 0; s < counts[n]; s++)
        mean += weights[s] * dot(dfound + q, values + (seen[s] * groups + group) * dim, dim);
      for (int s = 0; s < counts[n]; s++) {
        int k = (seen[s] * groups + group) * dim;
        float dscore = weights[s] * (dot(dfound + q, values + k, dim) - mean) / root;
        add_scaled(dqueries + q, dscore, keys + k, dim);
        add_scaled(dkeys + k, dscore, queries + q, dim);
        add_scaled(dvalues + k, weights[s], dfound + q, dim);
      }
    }
}
