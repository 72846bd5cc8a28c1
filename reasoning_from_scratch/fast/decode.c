/* One decoding step of Qwen3, Qwen2.5 or Llama on a CPU: each row reads a token and gets the logits of its next.

   What qwen3.py computes with a cache, stage by stage, for rows of any lengths. A step reads
   every weight once and does little with each, so it can take no less time than memory needs.
   In Python hundreds of small operations stand between the products; here, nothing does. A
   row's numbers do not depend, to the last bit, on what else is in the batch.

   All threads walk through all stages, take the pieces of a stage as they find time, and meet
   after it. fast/decode_library.py compiles this file, with -DBFLOAT16 for weights in bfloat16. */

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

/* ---- Numbers, and as many of them as a register holds ---- */

#if defined(__AVX512F__)
#define LANES 16
#define ROWS 12 /* of a product at once: their sums, two each, stay in registers */
#elif defined(__AVX__)
#define LANES 8
#define ROWS 6
#else
#define LANES 4
#define ROWS 12
#endif

#ifndef STREAM
#define STREAM 262144 /* bytes of a matrix that a thread reads in one go */
#define AHEAD 16384 /* bytes from a weight to those that are asked for meanwhile */
#endif

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES)));

#ifdef BFLOAT16
typedef uint16_t Number; /* the upper half of a float */
#define PAIR 2 /* numbers in 32 bits */
#else
typedef float Number;
#define PAIR 1
#endif

static inline float wide(Number number) {
#ifdef BFLOAT16
    uint32_t bits = (uint32_t)number << 16;
    float result;
    memcpy(&result, &bits, sizeof bits);
    return result;
#else
    return number;
#endif
}

static inline Number narrow(float number) { /* to the nearest, ties to even */
#ifdef BFLOAT16
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (number != number) return bits >> 16 | 64; /* NaN stays NaN */
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
#else
    return number;
#endif
}

static inline Bits load(const Number *numbers) { /* LANES * PAIR of them */
    Bits bits;
    memcpy(&bits, numbers, sizeof bits);
    return bits;
}

static inline void ask_for(const Number *now) { /* what will be read soon after it */
    __builtin_prefetch((const char *)now + AHEAD, 0, 2);
}

/* The first number of each pair, or the second. */
static inline Lanes each(Bits numbers, int second) {
    return (Lanes)(PAIR == 1 ? numbers : second ? numbers & 0xffff0000 : numbers << 16);
}

static inline Lanes add_products(Lanes sums, Bits a, Bits b) {
#if defined(BFLOAT16) && defined(__AVX512BF16__)
    return (Lanes)_mm512_dpbf16_ps((__m512)sums, (__m512bh)a, (__m512bh)b);
#else
    for (int k = 0; k < PAIR; k++) sums += each(a, k) * each(b, k);
    return sums;
#endif
}

static inline float rounded(float number) { return wide(narrow(number)); }

static inline float total(Lanes lanes) {
    typedef float Four __attribute__((vector_size(16)));
    Four fours[LANES / 4];
    memcpy(fours, &lanes, sizeof fours);
    for (int i = 1; i < LANES / 4; i++) fours[0] += fours[i];
    return (fours[0][0] + fours[0][1]) + (fours[0][2] + fours[0][3]);
}

/* 2^n * e^rest, to about 1e-7 of its value; the polynomial is that of Cephes' expf. */
static inline float exponential(float x) {
    x = x < -87 ? -87 : x > 88 ? 88 : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* adding 1.5 * 2^23 rounds to an integer */
    float n = shifted - 12582912.0f;
    float rest = x - n * 0.693359375f + n * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1;
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23; /* the integer, from the lower bits, becomes the exponent */
    float power;
    memcpy(&power, &bits, 4);
    return sum * power;
}

/* ---- What fast/decoding.py hands over: the same fields in the same order ---- */

typedef struct {
    const Number *qkv, *out, *gate_up, *down; /* packed matrices */
    const float *norm_1, *norm_2;
    const float *query_norm, *key_norm, *qkv_bias; /* NULL where the model has none */
    Number *keys, *values; /* (rows, groups, capacity, head_dim) */
} Layer;

typedef struct {
    int64_t layers, emb, heads, groups, head_dim, hidden, vocab;
    double eps;
    const Number *embedding;
    const float *final_norm;
    const Number *head; /* packed */
    Layer *layer;
} Model;

typedef struct {
    int64_t rows, capacity, threads;
    const int64_t *tokens, *positions; /* (rows,) */
    const Number *cos, *sin; /* (rows, head_dim) */
    Number *logits; /* (rows, vocab) */
} Step;

typedef struct {
    const Model *model;
    const Step *step;
    Number *x, *heads, *attended, *inner; /* (rows, so many) */
    atomic_long *taken; /* pieces of each stage that threads have taken */
    atomic_long threads; /* 0 while they are being started */
    atomic_long arrived, stages; /* threads that are through a stage; stages that all are through */
    char *scratch; /* `each` bytes for every thread */
    int64_t each;
    atomic_long begun; /* threads that have taken theirs */
} Work;

int64_t lanes(void) { return LANES; }

/* ---- Sharing a stage among threads ---- */

static int64_t piece(Work *work, long stage, int64_t pieces) { /* the next, or -1 */
    int64_t next = atomic_fetch_add(&work->taken[stage], 1);
    return next < pieces ? next : -1;
}

static void meet(Work *work, long *stage) {
    long now = (*stage)++;
    if (atomic_fetch_add(&work->arrived, 1) == work->threads - 1) {
        atomic_store(&work->arrived, 0);
        atomic_store(&work->stages, now + 1);
    }
    for (int turns = 0; atomic_load(&work->stages) == now;)
        if (++turns > 2000) sched_yield();
}

/* ---- Products ---- */

/* LANES outputs of a matrix are a strip; two strips are a tile, and lie in each other so that
   memory is read in one stream: (inputs / PAIR, 2, LANES, PAIR). The matrix's own strips become
   every `by`-th of the packed ones, from `first` on. */
void pack(const Number *matrix, int64_t outputs, int64_t inputs, Number *packed, int64_t first,
          int64_t by) {
    for (int64_t strip = first; outputs >= LANES; strip += by, outputs -= LANES) {
        Number *half = packed + (strip / 2 * inputs * 2 + strip % 2 * PAIR) * LANES;
        for (int64_t input = 0; input < inputs; input += PAIR, half += 2 * PAIR * LANES)
            for (int lane = 0; lane < LANES; lane++)
                memcpy(half + lane * PAIR, matrix + lane * inputs + input, PAIR * sizeof(Number));
        matrix += LANES * inputs;
    }
}

/* Sums of some rows with a tile. With `rows` known to the compiler, all stay in registers. */
static inline __attribute__((always_inline)) void
sum_rows(int rows, const Number *x, int64_t inputs, const Number *tile, Lanes (*sums)[2]) {
    Lanes local[ROWS][2] = {};
    for (int64_t i = 0; i < inputs; i += PAIR, tile += 2 * PAIR * LANES) {
        Bits weights[2] = {load(tile), load(tile + PAIR * LANES)};
        ask_for(tile);
        ask_for(tile + PAIR * LANES);
        for (int row = 0; row < rows; row++) {
            uint32_t input;
            memcpy(&input, x + row * inputs + i, sizeof input);
            for (int k = 0; k < 2; k++)
                local[row][k] = add_products(local[row][k], input - (Bits){}, weights[k]);
        }
    }
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < 2; k++) sums[row][k] = local[row][k];
}

static void sums_of(int rows, const Number *x, int64_t inputs, const Number *tile,
                    Lanes (*sums)[2]) {
#define CASE(n) case n: sum_rows(n, x, inputs, tile, sums); break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if ROWS > 6
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
}

enum Kind { PLAIN, ADD, GATE };

static void store(enum Kind kind, Number *y, const Lanes *sums, const float *bias) {
    float values[2 * LANES], *up = values + LANES;
    memcpy(values, sums, sizeof values);
    if (bias)
        for (int i = 0; i < 2 * LANES; i++) values[i] += bias[i];
    if (kind == PLAIN)
        for (int i = 0; i < 2 * LANES; i++) y[i] = narrow(values[i]);
    else if (kind == ADD)
        for (int i = 0; i < 2 * LANES; i++) y[i] = narrow(wide(y[i]) + rounded(values[i]));
    else
        for (int i = 0; i < LANES; i++) {
            float gate = rounded(values[i]);
            gate = rounded(gate / (1 + exponential(-gate)));
            y[i] = narrow(gate * rounded(up[i]));
        }
}

static void multiply_tile(int64_t rows, enum Kind kind, const Number *x, int64_t inputs,
                          const Number *tile, const float *bias, Number *y, int64_t outputs) {
    for (int64_t row = 0; row < rows; row += ROWS) {
        Lanes sums[ROWS][2];
        int count = rows - row < ROWS ? rows - row : ROWS;
        sums_of(count, x + row * inputs, inputs, tile, sums);
        for (int k = 0; k < count; k++) store(kind, y + (row + k) * outputs, sums[k], bias);
    }
}

/* x (rows, inputs) times a packed matrix, plus a bias or NULL: stored in y (rows, outputs), or
   added to it; or the matrix has two halves, and y becomes silu(first half) * second half. */
static void product(Work *work, long *stage, enum Kind kind, const Number *x, int64_t inputs,
                    const Number *packed, const float *bias, Number *y, int64_t outputs) {
    int64_t width = kind == GATE ? LANES : 2 * LANES, size = 2 * LANES * inputs;
    int64_t tiles = outputs / width, some = 1 + STREAM / (size * sizeof(Number));
    int64_t most = 1 + tiles / (4 * work->threads); /* so that nobody waits for long */
    if (some > most) some = most;
    for (int64_t i; (i = piece(work, *stage, (tiles + some - 1) / some)) >= 0;)
        for (int64_t tile = i * some; tile < (i + 1) * some && tile < tiles; tile++)
            multiply_tile(work->step->rows, kind, x, inputs, packed + tile * size,
                          bias ? bias + tile * width : NULL, y + tile * width, outputs);
    meet(work, stage);
}

/* ---- Everything else ---- */

static void rms_norm(const Number *x, const float *scale, int64_t size, double eps,
                     Number *restrict y) {
    Lanes squares = {};
    for (int64_t i = 0; i < size; i += LANES * PAIR)
        for (int k = 0; k < PAIR; k++) squares += each(load(x + i), k) * each(load(x + i), k);
    float factor = 1 / sqrtf(total(squares) / size + (float)eps);
    for (int64_t i = 0; i < size; i++) y[i] = narrow(wide(x[i]) * factor * scale[i]);
}

/* Each thread norms all rows for itself: that is faster than to fetch them from another. */
static void norm(Work *work, const float *scale, Number *normed) {
    int64_t emb = work->model->emb;
    for (int64_t row = 0; row < work->step->rows; row++)
        rms_norm(work->x + row * emb, scale, emb, work->model->eps, normed + row * emb);
}

/* Rotary embedding: feature i and feature i + half are a point, turned by the row's angle. */
static void turn(const Number *x, const Number *cos, const Number *sin, int64_t size,
                 Number *restrict y) {
    for (int64_t i = 0, j = size / 2; i < size / 2; i++, j++) {
        float first = wide(x[i]), second = wide(x[j]);
        y[i] = narrow(rounded(first * wide(cos[i])) + rounded(-second * wide(sin[i])));
        y[j] = narrow(rounded(second * wide(cos[j])) + rounded(first * wide(sin[j])));
    }
}

/* scores[i] = query * key i, for some keys. */
static void score(const Number *query, const Number *keys, int64_t count, int64_t size,
                  float *scores) {
    float scale = 1 / sqrtf(size);
    for (int64_t i = 0; i < count; i++) {
        Lanes sums = {};
        for (int64_t d = 0; d < size; d += LANES * PAIR) {
            ask_for(keys + i * size + d);
            sums = add_products(sums, load(query + d), load(keys + i * size + d));
        }
        scores[i] = total(sums) * scale;
    }
}

/* In place. Behind the last there is room to fill up a register. */
static void softmax(float *scores, int64_t count) {
    for (int64_t i = count; i % LANES; i++) scores[i] = -INFINITY;
    float largest[LANES], sums[LANES] = {}, most = -INFINITY, sum = 0;
    memcpy(largest, scores, sizeof largest);
    for (int64_t i = 0; i < count; i += LANES)
        for (int k = 0; k < LANES; k++)
            largest[k] = scores[i + k] > largest[k] ? scores[i + k] : largest[k];
    for (int k = 0; k < LANES; k++) most = largest[k] > most ? largest[k] : most;
    for (int64_t i = 0; i < count; i += LANES)
        for (int k = 0; k < LANES; k++) {
            scores[i + k] = i + k < count ? exponential(scores[i + k] - most) : 0;
            sums[k] += scores[i + k];
        }
    for (int k = 0; k < LANES; k++) sum += sums[k];
    for (int64_t i = 0; i < count; i++) scores[i] *= 1 / sum;
}

/* Adds some values by weight to sums; of each register, first numbers come before second. */
static inline __attribute__((always_inline)) void
blend_registers(int registers, const float *weights, const Number *values, int64_t count,
                int64_t size, float *sums) {
    Lanes local[2][PAIR];
    memcpy(local, sums, registers * sizeof *local);
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < registers; k++) {
            const Number *value = values + i * size + k * LANES * PAIR;
            ask_for(value);
            for (int second = 0; second < PAIR; second++)
                local[k][second] += weights[i] * each(load(value), second);
        }
    memcpy(sums, local, registers * sizeof *local);
}

static void blend(const float *weights, const Number *values, int64_t count, int64_t size,
                  float *sums) {
    int64_t d = 0, two = 2 * LANES * PAIR;
    for (; d + two <= size; d += two)
        blend_registers(2, weights, values + d, count, size, sums + d);
    if (d < size) blend_registers(1, weights, values + d, count, size, sums + d);
}

/* What `heads` queries, which share keys and values, find among the first `count` of them. These
   are read once: a block of them stays in the cache until all queries have seen it. */
static void attend(const Number *queries, int64_t heads, const Number *keys, const Number *values,
                   int64_t count, int64_t size, float *weights, float *sums, Number *found) {
    int64_t room = (count + LANES - 1) / LANES * LANES, block = 64;
    for (int64_t i = 0; i < count; i += block)
        for (int64_t head = 0; head < heads; head++)
            score(queries + head * size, keys + i * size, count - i < block ? count - i : block,
                  size, weights + head * room + i);
    for (int64_t head = 0; head < heads; head++) softmax(weights + head * room, count);
    memset(sums, 0, heads * size * sizeof *sums);
    for (int64_t i = 0; i < count; i += block)
        for (int64_t head = 0; head < heads; head++)
            blend(weights + head * room + i, values + i * size,
                  count - i < block ? count - i : block, size, sums + head * size);
    for (int64_t start = 0; start < heads * size; start += LANES * PAIR)
        for (int k = 0; k < LANES * PAIR; k++)
            found[start + k] = narrow(sums[start + k % PAIR * LANES + k / PAIR]);
}

/* A query or key, normed in `room` where the model does that. */
static const Number *head_norm(const Number *x, const float *scale, const Model *m, Number *room) {
    if (!scale) return x;
    rms_norm(x, scale, m->head_dim, m->eps, room);
    return room;
}

/* A piece is a row's group: it writes one key and value, and its heads look at all of them. The
   thread has room for their sums and weights, and for their queries and a key. */
static void attention(Work *work, long *stage, const Layer *layer, float *sums, Number *normed) {
    const Model *m = work->model;
    const Step *step = work->step;
    int64_t size = m->head_dim, heads = m->heads / m->groups;
    int64_t all = (m->heads + 2 * m->groups) * size;
    Number *queries = normed + size;
    for (int64_t i; (i = piece(work, *stage, step->rows * m->groups)) >= 0;) {
        int64_t row = i / m->groups, group = i % m->groups, place = step->positions[row];
        const Number *cos = step->cos + row * size, *sin = step->sin + row * size;
        const Number *fresh = work->heads + row * all; /* queries, keys and values of all groups */
        Number *keys = layer->keys + i * step->capacity * size;
        Number *values = layer->values + i * step->capacity * size;
        for (int64_t head = 0; head < heads; head++) {
            const Number *query = fresh + (group * heads + head) * size;
            turn(head_norm(query, layer->query_norm, m, normed), cos, sin, size,
                 queries + head * size);
        }
        const Number *key = fresh + (m->heads + group) * size;
        turn(head_norm(key, layer->key_norm, m, normed), cos, sin, size, keys + place * size);
        memcpy(values + place * size, fresh + (m->heads + m->groups + group) * size,
               size * sizeof(Number));
        attend(queries, heads, keys, values, place + 1, size, sums + heads * size, sums,
               work->attended + (row * m->heads + group * heads) * size);
    }
    meet(work, stage);
}

/* ---- The step ---- */

/* Bytes of the three parts of a thread's scratch, each a whole number of cache lines. */
static int64_t in_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t sums_size(const Model *m, const Step *step) {
    return in_lines(m->heads / m->groups * (m->head_dim + step->capacity + LANES) * sizeof(float));
}

static int64_t queries_size(const Model *m) {
    return in_lines((1 + m->heads / m->groups) * m->head_dim * sizeof(Number));
}

static int64_t normed_size(const Model *m, const Step *step) {
    return in_lines(step->rows * m->emb * sizeof(Number));
}

static void walk(Work *w) {
    const Model *m = w->model;
    int64_t width = m->heads * m->head_dim, all = width + 2 * m->groups * m->head_dim;
    long stage = 0;
    while (!atomic_load(&w->threads)) sched_yield();
    char *scratch = w->scratch + atomic_fetch_add(&w->begun, 1) * w->each;
    float *sums = (float *)scratch;
    Number *queries = (Number *)(scratch + sums_size(m, w->step));
    Number *normed = (Number *)((char *)queries + queries_size(m));
    for (int64_t row; (row = piece(w, stage, w->step->rows)) >= 0;)
        memcpy(w->x + row * m->emb, m->embedding + w->step->tokens[row] * m->emb,
               m->emb * sizeof(Number));
    meet(w, &stage);
    for (const Layer *layer = m->layer; layer < m->layer + m->layers; layer++) {
        norm(w, layer->norm_1, normed);
        product(w, &stage, PLAIN, normed, m->emb, layer->qkv, layer->qkv_bias, w->heads, all);
        attention(w, &stage, layer, sums, queries);
        product(w, &stage, ADD, w->attended, width, layer->out, NULL, w->x, m->emb);
        norm(w, layer->norm_2, normed);
        product(w, &stage, GATE, normed, m->emb, layer->gate_up, NULL, w->inner, m->hidden);
        product(w, &stage, ADD, w->inner, m->hidden, layer->down, NULL, w->x, m->emb);
    }
    norm(w, m->final_norm, normed);
    product(w, &stage, PLAIN, normed, m->emb, m->head, NULL, w->step->logits, m->vocab);
}

static void *walk_alone(void *work) { walk(work); return NULL; }

static void start_threads(Work *work) {
    pthread_t threads[work->step->threads];
    long started = 1;
    while (started < work->step->threads
           && !pthread_create(&threads[started], NULL, walk_alone, work)) started++;
    atomic_store(&work->threads, started);
    walk(work);
    while (--started) pthread_join(threads[started], NULL);
}

/* After an operation, OpenMP's threads stay awake for a while and wait for another. Threads beside
   them would wait for a core, so where torch has GNU's OpenMP these do the work themselves. */
#ifdef __linux__
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
extern int omp_get_num_threads(void) __attribute__((weak));

static void walk_in_team(void *argument) {
    Work *work = argument;
    atomic_store(&work->threads, omp_get_num_threads());
    walk(work);
}

static int use_torch_threads(Work *work) {
    if (work->step->threads == 1 || !GOMP_parallel || !omp_get_num_threads) return 0;
    GOMP_parallel(walk_in_team, work, work->step->threads, 0);
    return 1;
}
#else
static int use_torch_threads(Work *work) { (void)work; return 0; }
#endif

/* All memory of a step is taken here, before any work: 1 if there is none, and nothing changed. */
int decode(const Model *m, const Step *step) {
    int64_t width = m->heads * m->head_dim, all = width + 2 * m->groups * m->head_dim;
    Work work = {.model = m, .step = step};
    work.each = sums_size(m, step) + queries_size(m) + normed_size(m, step);
    work.x = malloc(step->rows * (m->emb + all + width + m->hidden) * sizeof(Number));
    work.scratch = malloc(step->threads * work.each);
    work.taken = calloc(5 * m->layers + 2, sizeof *work.taken);
    int found = work.x && work.scratch && work.taken;
    if (found) {
        work.heads = work.x + step->rows * m->emb;
        work.attended = work.heads + step->rows * all;
        work.inner = work.attended + step->rows * width;
        if (!use_torch_threads(&work)) start_threads(&work);
    }
    free(work.x);
    free(work.scratch);
    free(work.taken);
    return !found;
}
