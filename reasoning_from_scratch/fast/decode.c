/* One decoding step of Qwen3, Qwen2.5 or Llama on a CPU: each row reads a token and gets the logits of its next.

   What qwen3.py computes with a cache, stage by stage, for rows of any lengths. A step reads
   every weight once and does little with each, so it can take no less time than memory needs.
   In Python hundreds of small operations stand between the products; here, nothing does. A
   row's numbers do not depend, to the last bit, on what else is in the batch.

   All threads walk through all stages, take the pieces of a stage as they find time, and meet
   after it. Then a token of each row is drawn from its logits, as sampling.py does.
   fast/decode_library.py compiles this file, with -DBFLOAT16 for weights in bfloat16. */

#include "numbers.h"

/* ---- What fast/decoding.py hands over: the same fields in the same order ---- */

typedef struct {
    int64_t outputs, inputs;
    const Number *weights; /* packed */
    const uint8_t *int8; /* packed in 8 bits instead, or NULL */
    const float *bias; /* NULL where there is none */
    /* LoRA: y += B (scale * A x). A (rank, inputs) and B (outputs, rank), packed, or NULL. */
    int64_t rank;
    const Number *lora_a, *lora_b;
    double scale;
} Matrix;

typedef struct {
    Matrix qkv, out, gate_up, down;
    const float *norm_1, *norm_2;
    const float *query_norm, *key_norm; /* NULL where the model has none */
    Number *keys, *values; /* (rows, groups, capacity, head_dim) */
} Layer;

typedef struct {
    int64_t layers, emb, heads, groups, head_dim, hidden, vocab;
    double eps;
    const Number *embedding;
    const float *final_norm;
    Matrix head;
    Layer *layer;
    int64_t rank; /* the largest of any matrix */
} Model;

typedef struct {
    int64_t rows, capacity, threads;
    int64_t shared; /* of all rows' keys and values, the first so many are the same */
    const int64_t *tokens, *positions; /* (rows,) */
    const Number *cos, *sin; /* (rows, head_dim) */
    Number *logits; /* (rows, vocab) */
} Step;

typedef struct {
    const Model *model;
    const Step *step;
    Number *x, *heads, *attended, *inner; /* (rows, so many) */
    Number *low; /* (rows, rank): scale * A x, of the matrix whose turn it is */
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

enum Kind { PLAIN, SCALE, ADD, GATE };

static void store(enum Kind kind, Number *y, const Lanes *sums, const float *bias,
                  const Lanes *added, float scale) {
    float values[2 * LANES], *up = values + LANES;
    memcpy(values, sums, sizeof values);
    if (bias)
        for (int i = 0; i < 2 * LANES; i++) values[i] += bias[i];
    if (added) { /* rounded where optim/lora.py rounds */
        float low_rank[2 * LANES];
        memcpy(low_rank, added, sizeof low_rank);
        for (int i = 0; i < 2 * LANES; i++) values[i] = rounded(values[i]) + low_rank[i];
    }
    if (kind == PLAIN)
        for (int i = 0; i < 2 * LANES; i++) y[i] = narrow(values[i]);
    else if (kind == SCALE)
        for (int i = 0; i < 2 * LANES; i++) y[i] = narrow(rounded(values[i]) * scale);
    else if (kind == ADD)
        for (int i = 0; i < 2 * LANES; i++) y[i] = narrow(wide(y[i]) + rounded(values[i]));
    else
        for (int i = 0; i < LANES; i++) {
            float gate = rounded(values[i]);
            gate = rounded(gate / (1 + exponential(-gate)));
            y[i] = narrow(gate * rounded(up[i]));
        }
}

#ifdef TILES
#define MOST_ROWS 32 /* of a product at once: two tiles, times the two strips of the matrix */

/* Sums of up to 32 rows. Reads and computes whole tiles of 16; what it finds for rows that are not
   there is not looked at. A strip's lines are 128 bytes apart, since another lies in between. */
static void sum_tiles(int rows, const Number *x, int64_t inputs, const Number *tile,
                      Lanes (*sums)[2]) {
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    for (int64_t i = 0; i < inputs; i += 32, tile += 32 * 2 * LANES) {
        for (int line = 0; line < 32; line++) ask_for(tile + line * 2 * LANES);
        _tile_loadd(6, tile, 128);
        _tile_loadd(7, tile + PAIR * LANES, 128);
        _tile_loadd(4, x + i, 2 * inputs);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (rows <= 16) continue;
        _tile_loadd(5, x + 16 * inputs + i, 2 * inputs);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums[0], 128);
    _tile_stored(1, &sums[0][1], 128);
    if (rows <= 16) return;
    _tile_stored(2, sums[16], 128);
    _tile_stored(3, &sums[16][1], 128);
}
#else
#define MOST_ROWS ROWS
#endif

static int rows_at_once(void) {
#ifdef TILES
    if (tiles_allowed()) return MOST_ROWS;
#endif
    return ROWS;
}

/* Sums of at most rows_at_once() rows with a tile of two strips. */
static void sums_with(int rows, const Number *x, int64_t inputs, const Number *tile,
                      Lanes (*sums)[2]) {
#ifdef TILES
    if (tiles_allowed()) {
        sum_tiles(rows, x, inputs, tile, sums);
        return;
    }
#endif
    sums_of(rows, x, inputs, tile, sums);
}

/* ---- Products in 8 bits ---- */

/* A weight is a whole number from -127 to 127 times a scale, and so is an input. Each output has a
   scale for every block of 128 inputs, and so has each row. Within a block the sum of the products
   is a whole number, the same on every processor; blocks are added up as floats. */
#define MOST_IN_BLOCK 128

static int64_t block_of(int64_t inputs) { /* which are a multiple of 32 */
    return inputs % 128 == 0 ? 128 : inputs % 64 == 0 ? 64 : 32;
}

/* Of a tile: its bytes, one for each weight, and behind each block 2 * LANES scales. */
static int64_t int8_tile(int64_t inputs) {
    return 2 * LANES * (inputs + inputs / block_of(inputs) * sizeof(float));
}

/* The inputs of some rows. Each row has as many scales, and sums of its numbers, as blocks. */
typedef struct {
    int8_t *numbers;
    float *scales;
    int32_t *sums;
} Int8Inputs;

typedef int32_t Ints __attribute__((vector_size(4 * LANES)));

/* Adds to each lane's sum the products of its four weights with four inputs. That is all that an
   instruction set has to bring along. VNNI takes weights without a sign: for it the packed ones are
   larger by OFFSET, and what that adds is taken away beforehand. */
#if defined(__AVX512VNNI__)
#define OFFSET 128
static inline Ints add_fours(Ints sums, Bits weights, uint32_t inputs) {
    return (Ints)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)weights, _mm512_set1_epi32(inputs));
}
#elif defined(__AVXVNNI__) && LANES == 8
#define OFFSET 128
static inline Ints add_fours(Ints sums, Bits weights, uint32_t inputs) {
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)weights,
                                         _mm256_set1_epi32(inputs));
}
#elif defined(__AVX2__) && LANES == 8
#define OFFSET 0
/* The older instruction multiplies numbers without a sign by ones with a sign, in pairs that may be
   32767 at most: so the weight's sign moves to the input, and two products are 2 * 127 * 127. */
static inline Ints add_fours(Ints sums, Bits weights, uint32_t inputs) {
    __m256i w = (__m256i)weights, x = _mm256_sign_epi8(_mm256_set1_epi32(inputs), w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), x);
    return (Ints)_mm256_add_epi32((__m256i)sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#elif defined(__ARM_FEATURE_DOTPROD) && LANES == 4
#define OFFSET 0
static inline Ints add_fours(Ints sums, Bits weights, uint32_t inputs) {
    return (Ints)vdotq_s32((int32x4_t)sums, (int8x16_t)weights,
                           vreinterpretq_s8_u32(vdupq_n_u32(inputs)));
}
#else
#define OFFSET 0
static inline Ints add_fours(Ints sums, Bits weights, uint32_t inputs) {
    typedef int16_t Shorts __attribute__((vector_size(4 * LANES)));
    Shorts a = (Shorts)weights, b = (Shorts)(inputs - (Bits){}); /* two numbers in each */
    Shorts pairs = (a >> 8) * (b >> 8) + (a << 8 >> 8) * (b << 8 >> 8); /* at most 2 * 127 * 127 */
    return sums + ((Ints)pairs >> 16) + ((Ints)pairs << 16 >> 16);
}
#endif

/* Rounds the numbers of a block; returns their scale, NaN if any is not a number. */
static float to_int8(const Number *numbers, int64_t block, int8_t *restrict found) {
    uint32_t most = 0, bits;
    for (int64_t i = 0; i < block; i++) { /* bits of positive floats grow with them, up to NaN's */
        float number = wide(numbers[i]);
        memcpy(&bits, &number, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float largest;
    memcpy(&largest, &most, sizeof largest);
    float factor = largest > 0 ? 127 / largest : 0;
    for (int64_t i = 0; i < block; i++) {
        float shifted = wide(numbers[i]) * factor + 12582912.0f; /* rounds, as in `exponential` */
        memcpy(&bits, &shifted, sizeof bits);
        found[i] = bits; /* the lowest 8 */
    }
    return largest / 127;
}

/* As `pack`: a tile is (blocks, (block / 4, 2, LANES, 4) weights and (2, LANES) scales). */
void pack_int8(const Number *matrix, int64_t outputs, int64_t inputs, uint8_t *packed,
               int64_t first, int64_t by) {
    int64_t block = block_of(inputs), line = 2 * LANES * 4; /* bytes of four inputs, or of scales */
    for (int64_t strip = first; outputs >= LANES; strip += by, outputs -= LANES) {
        uint8_t *half = packed + strip / 2 * int8_tile(inputs) + strip % 2 * LANES * 4;
        for (int64_t start = 0; start < inputs; start += block, half += line * (block / 4 + 1))
            for (int lane = 0; lane < LANES; lane++) {
                int8_t numbers[MOST_IN_BLOCK];
                float scale = to_int8(matrix + lane * inputs + start, block, numbers);
                for (int64_t i = 0; i < block; i += 4) {
                    uint32_t four;
                    memcpy(&four, numbers + i, sizeof four);
                    four ^= OFFSET * 0x01010101u; /* which adds 128 to each */
                    memcpy(half + i / 4 * line + lane * 4, &four, sizeof four);
                }
                memcpy(half + block / 4 * line + lane * 4, &scale, sizeof scale);
            }
        matrix += LANES * inputs;
    }
}

/* Every thread rounds the inputs of all rows for itself, as it norms them. */
static void round_inputs(const Number *x, int64_t rows, int64_t inputs, Int8Inputs *into) {
    int64_t block = block_of(inputs);
    for (int64_t i = 0; i < rows * inputs / block; i++) {
        int8_t *numbers = into->numbers + i * block;
        into->scales[i] = to_int8(x + i * block, block, numbers);
        into->sums[i] = 0;
        for (int64_t k = 0; k < block; k++) into->sums[i] += numbers[k];
    }
}

static Int8Inputs from_row(const Int8Inputs *x, int64_t row, int64_t inputs) {
    int64_t first = row * (inputs / block_of(inputs));
    return (Int8Inputs){x->numbers + row * inputs, x->scales + first, x->sums + first};
}

static inline Bits bits_at(const void *place) {
    Bits bits;
    memcpy(&bits, place, sizeof bits);
    return bits;
}

/* Adds what a block brings: its whole number, by the scales of weights and inputs. */
static inline Lanes add_block(Lanes sums, Ints found, Bits scales, float scale) {
    return sums + __builtin_convertvector(found, Lanes) * ((Lanes)scales * scale);
}

static inline __attribute__((always_inline)) void
sum_rows_of_int8(int rows, Int8Inputs x, int64_t inputs, const uint8_t *tile, Lanes (*sums)[2]) {
    int64_t block = block_of(inputs), blocks = inputs / block, strip = LANES * 4;
    memset(sums, 0, rows * sizeof *sums);
    for (int64_t b = 0; b < blocks; b++) {
        Ints found[ROWS][2];
        for (int row = 0; row < rows; row++)
            found[row][0] = found[row][1] = -OFFSET * x.sums[row * blocks + b] - (Ints){};
        for (int64_t i = b * block; i < (b + 1) * block; i += 4, tile += 2 * strip) {
            Bits weights[2] = {bits_at(tile), bits_at(tile + strip)};
            __builtin_prefetch(tile + AHEAD, 0, 2);
            __builtin_prefetch(tile + strip + AHEAD, 0, 2);
            for (int row = 0; row < rows; row++) {
                uint32_t four;
                memcpy(&four, x.numbers + row * inputs + i, sizeof four);
                for (int k = 0; k < 2; k++)
                    found[row][k] = add_fours(found[row][k], weights[k], four);
            }
        }
        for (int row = 0; row < rows; row++)
            for (int k = 0; k < 2; k++)
                sums[row][k] = add_block(sums[row][k], found[row][k], bits_at(tile + k * strip),
                                         x.scales[row * blocks + b]);
        tile += 2 * strip;
    }
}

#if defined(TILES) && defined(__AMX_INT8__)
/* In tiles, which take 64 inputs at a time. */
static int int8_in_tiles(int64_t inputs) { return tiles_allowed() && inputs % 64 == 0; }

static void sum_tiles_of_int8(int rows, Int8Inputs x, int64_t inputs, const uint8_t *tile,
                              Lanes (*sums)[2]) {
    int64_t block = block_of(inputs), blocks = inputs / block, line = 2 * LANES * 4;
    memset(sums, 0, rows * sizeof *sums);
    for (int64_t b = 0; b < blocks; b++) {
        Ints found[MOST_ROWS][2];
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
        for (int64_t i = b * block; i < (b + 1) * block; i += 64, tile += 16 * line) {
            for (int64_t k = 0; k < 16 * line; k += 64) __builtin_prefetch(tile + k + AHEAD, 0, 2);
            _tile_loadd(6, tile, 128);
            _tile_loadd(7, tile + LANES * 4, 128);
            _tile_loadd(4, x.numbers + i, inputs);
            _tile_dpbsud(0, 4, 6);
            _tile_dpbsud(1, 4, 7);
            if (rows <= 16) continue;
            _tile_loadd(5, x.numbers + 16 * inputs + i, inputs);
            _tile_dpbsud(2, 5, 6);
            _tile_dpbsud(3, 5, 7);
        }
        _tile_stored(0, found[0], 128);
        _tile_stored(1, &found[0][1], 128);
        if (rows > 16) {
            _tile_stored(2, found[16], 128);
            _tile_stored(3, &found[16][1], 128);
        }
        for (int row = 0; row < rows; row++) {
            int64_t of_row = row * blocks + b;
            for (int k = 0; k < 2; k++)
                sums[row][k] = add_block(sums[row][k], found[row][k] - OFFSET * x.sums[of_row],
                                         bits_at(tile + k * LANES * 4), x.scales[of_row]);
        }
        tile += line;
    }
}
#endif

/* Sums of some rows with a tile. */
static void sums_of_int8(int rows, Int8Inputs x, int64_t inputs, const uint8_t *tile,
                         Lanes (*sums)[2]) {
#if defined(TILES) && defined(__AMX_INT8__)
    if (int8_in_tiles(inputs)) {
        sum_tiles_of_int8(rows, x, inputs, tile, sums);
        return;
    }
#endif
    int64_t blocks = inputs / block_of(inputs);
    for (; rows > 0; rows -= ROWS, sums += ROWS) {
#define CASE8(n) case n: sum_rows_of_int8(n, x, inputs, tile, sums); break;
        switch (rows < ROWS ? rows : ROWS) {
            CASE8(1) CASE8(2) CASE8(3) CASE8(4) CASE8(5) CASE8(6)
#if ROWS > 6
            CASE8(7) CASE8(8) CASE8(9) CASE8(10) CASE8(11) CASE8(12)
#endif
        }
        x.numbers += ROWS * inputs, x.scales += ROWS * blocks, x.sums += ROWS * blocks;
    }
}

/* ---- A whole matrix ---- */

/* A tile of the matrix, times all rows, which are x or, in 8 bits, x8. `low` (rows, rank) is what
   LoRA's A has made of them. */
static void multiply_tile(int64_t rows, enum Kind kind, const Number *x, const Int8Inputs *x8,
                          const Matrix *m, int64_t tile, const Number *low, Number *y,
                          int64_t outputs) {
    const Number *weights = m->weights + tile * 2 * LANES * m->inputs;
    const uint8_t *int8 = m->int8 ? m->int8 + tile * int8_tile(m->inputs) : NULL;
    const float *bias = m->bias ? m->bias + tile * 2 * LANES : NULL;
    int at_once = rows_at_once();
    for (int64_t row = 0; row < rows; row += at_once) {
        Lanes sums[MOST_ROWS][2], added[MOST_ROWS][2];
        int count = rows - row < at_once ? rows - row : at_once;
        if (m->int8)
            sums_of_int8(count, from_row(x8, row, m->inputs), m->inputs, int8, sums);
        else
            sums_with(count, x + row * m->inputs, m->inputs, weights, sums);
        if (low)
            sums_with(count, low + row * m->rank, m->rank, m->lora_b + tile * 2 * LANES * m->rank,
                      added);
        for (int k = 0; k < count; k++)
            store(kind, y + (row + k) * outputs, sums[k], bias, low ? added[k] : NULL, m->scale);
    }
}

/* x (rows, inputs) times a packed matrix, plus its bias: stored in y, or added to it; or the matrix
   has two halves, and y becomes silu(first half) * second half. */
static void product(Work *work, long *stage, enum Kind kind, const Number *x, const Matrix *m,
                    Number *y, Int8Inputs *x8) {
    Number *low = NULL;
    if (m->rank) {
        Matrix a = {.outputs = m->rank, .inputs = m->inputs, .weights = m->lora_a,
                    .scale = m->scale};
        product(work, stage, SCALE, x, &a, low = work->low, NULL);
    }
    if (m->int8) round_inputs(x, work->step->rows, m->inputs, x8);
    int64_t width = kind == GATE ? LANES : 2 * LANES, tiles = m->outputs / (2 * LANES);
    int64_t bytes = 2 * LANES * m->inputs * sizeof(Number);
    int64_t some = 1 + STREAM / (m->int8 ? int8_tile(m->inputs) : bytes);
    int64_t most = 1 + tiles / (4 * work->threads); /* so that nobody waits for long */
    if (some > most) some = most;
    for (int64_t i; (i = piece(work, *stage, (tiles + some - 1) / some)) >= 0;)
        for (int64_t tile = i * some; tile < (i + 1) * some && tile < tiles; tile++)
            multiply_tile(work->step->rows, kind, x, x8, m, tile, low, y + tile * width,
                          tiles * width);
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

/* Keys and values that follow each other. What a row has read is two spans: the beginning that all
   rows share is read from the first row's memory, so that it stays in the processor's cache. */
typedef struct { const Number *keys, *values; int64_t first, count; } Span;

/* What `heads` queries, which share keys and values, find among `count` of them in two spans. These
   are read once: a block of them stays in the cache until all queries have seen it. */
static void attend_plainly(const Number *queries, int64_t heads, const Span *spans, int64_t count,
                           int64_t size, float *weights, float *sums) {
    int64_t room = (count + LANES - 1) / LANES * LANES, block = 64;
    for (const Span *span = spans; span < spans + 2; span++)
        for (int64_t i = 0; i < span->count; i += block)
            for (int64_t head = 0; head < heads; head++)
                score(queries + head * size, span->keys + i * size,
                      span->count - i < block ? span->count - i : block, size,
                      weights + head * room + span->first + i);
    for (int64_t head = 0; head < heads; head++) softmax(weights + head * room, count);
    memset(sums, 0, heads * size * sizeof *sums);
    for (const Span *span = spans; span < spans + 2; span++)
        for (int64_t i = 0; i < span->count; i += block)
            for (int64_t head = 0; head < heads; head++)
                blend(weights + head * room + span->first + i, span->values + i * size,
                      span->count - i < block ? span->count - i : block, size,
                      sums + head * size);
}

#ifdef TILES
/* The same for queries in tiles: a key is a line of one, a query a column of another, and their
   scores, for 16 keys and up to 16 queries at a time, are 16 lines of 16 numbers. */
#define MOST_HEADS 16
#define MOST_PARTS 4 /* of 32 features; each part of the queries keeps a tile */

static void score_16(int parts, const Number *keys, int64_t size, float *scores) {
    _tile_zero(0);
    for (int part = 0; part < parts; part++) {
        _tile_loadd(1, keys + part * 32, size * sizeof(Number));
        if (part == 0) _tile_dpbf16ps(0, 1, 4);
        if (part == 1) _tile_dpbf16ps(0, 1, 5);
        if (part == 2) _tile_dpbf16ps(0, 1, 6);
        if (part == 3) _tile_dpbf16ps(0, 1, 7);
    }
    _tile_stored(0, scores, 64);
}

/* scores (count, 16) of all queries with all keys of two spans. */
static void score_in_tiles(const Number *queries, int64_t heads, const Span *spans, int64_t size,
                           float *scores) {
    uint32_t pairs[MOST_PARTS][16][MOST_HEADS] = {}; /* of features, for each query */
    int parts = size / 32;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t pair = 0; pair < size / 2; pair++)
            memcpy(&pairs[pair / 16][pair % 16][head], queries + head * size + 2 * pair, 4);
    _tile_loadd(4, pairs[0], 64);
    if (parts > 1) _tile_loadd(5, pairs[1], 64);
    if (parts > 2) _tile_loadd(6, pairs[2], 64);
    if (parts > 3) _tile_loadd(7, pairs[3], 64);
    for (const Span *span = spans; span < spans + 2; span++) {
        int64_t i = 0, rest = span->count % 16;
        for (; i + 16 <= span->count; i += 16)
            score_16(parts, span->keys + i * size, size, scores + (span->first + i) * 16);
        if (!rest) continue;
        Number last[16 * 32 * MOST_PARTS]; /* behind the last key there may be no memory */
        memset(last, 0, sizeof last);
        memcpy(last, span->keys + i * size, rest * size * sizeof(Number));
        score_16(parts, last, size, scores + (span->first + i) * 16);
    }
}

/* In place, for each of 16 columns; returns what each has to be divided by. */
static Lanes softmax_columns(float *scores, int64_t count, float scale) {
    Lanes largest = (Lanes){} - INFINITY, sum = {}, line;
    for (int64_t i = 0; i < count; i++) {
        memcpy(&line, scores + i * 16, sizeof line);
        largest = larger(line, largest);
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(&line, scores + i * 16, sizeof line);
        line = exponentials((line - largest) * scale);
        sum += line;
        memcpy(scores + i * 16, &line, sizeof line);
    }
    return sum;
}

/* Adds 32 features of all values by weight, for up to 8 queries: each value is read once. */
static inline __attribute__((always_inline)) void
blend_heads(int heads, const float *weights, const Number *values, int64_t count, int64_t size,
            float *sums) {
    Lanes local[8][2];
    for (int head = 0; head < heads; head++)
        memcpy(local[head], sums + head * size, sizeof local[head]);
    for (int64_t i = 0; i < count; i++) {
        Bits value = load(values + i * size);
        ask_for(values + i * size);
        for (int head = 0; head < heads; head++)
            for (int second = 0; second < 2; second++)
                local[head][second] += weights[i * 16 + head] * each(value, second);
    }
    for (int head = 0; head < heads; head++)
        memcpy(sums + head * size, local[head], sizeof local[head]);
}

static void blend_some(int heads, const float *weights, const Number *values, int64_t count,
                       int64_t size, float *sums) {
#define HEADS(n) case n: blend_heads(n, weights, values, count, size, sums); break;
    switch (heads) { HEADS(1) HEADS(2) HEADS(3) HEADS(4) HEADS(5) HEADS(6) HEADS(7) HEADS(8) }
}

static void attend_in_tiles(const Number *queries, int64_t heads, const Span *spans, int64_t count,
                            int64_t size, float *weights, float *sums) {
    score_in_tiles(queries, heads, spans, size, weights);
    Lanes total = softmax_columns(weights, count, 1 / sqrtf(size));
    memset(sums, 0, heads * size * sizeof *sums);
    for (const Span *span = spans; span < spans + 2; span++)
        for (int64_t head = 0; head < heads; head += 8)
            for (int64_t d = 0; d < size; d += 32)
                blend_some(heads - head < 8 ? heads - head : 8, weights + span->first * 16 + head,
                           span->values + d, span->count, size, sums + head * size + d);
    for (int64_t head = 0; head < heads; head++)
        for (int64_t d = 0; d < size; d++) sums[head * size + d] /= total[head];
}
#endif

static void attend(const Number *queries, int64_t heads, const Span *spans, int64_t count,
                   int64_t size, float *weights, float *sums, Number *found) {
#ifdef TILES
    if (tiles_allowed() && heads <= MOST_HEADS && size <= 32 * MOST_PARTS)
        attend_in_tiles(queries, heads, spans, count, size, weights, sums);
    else
#endif
        attend_plainly(queries, heads, spans, count, size, weights, sums);
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
        Span spans[2] = {
            {layer->keys + group * step->capacity * size,
             layer->values + group * step->capacity * size, 0, step->shared},
            {keys + step->shared * size, values + step->shared * size, step->shared,
             place + 1 - step->shared},
        };
        attend(queries, heads, spans, place + 1, size, sums + heads * size, sums,
               work->attended + (row * m->heads + group * heads) * size);
    }
    meet(work, stage);
}

/* ---- The step ---- */

/* Bytes of the four parts of a thread's scratch. */

/* Products may read 16 rows at a time, and the last ones need not hold anything. */
static int64_t whole_tiles(int64_t rows) { return (rows + 15) / 16 * 16; }

static int64_t sums_size(const Model *m, const Step *step) {
    int64_t heads = m->heads / m->groups;
    if (heads < 16) heads = 16; /* a tile's columns */
    return in_lines(heads * (m->head_dim + step->capacity + LANES) * sizeof(float));
}

static int64_t queries_size(const Model *m) {
    return in_lines((1 + m->heads / m->groups) * m->head_dim * sizeof(Number));
}

static int64_t normed_size(const Model *m, const Step *step) {
    return in_lines(whole_tiles(step->rows) * m->emb * sizeof(Number));
}

static int64_t widest_inputs(const Model *m) {
    int64_t width = m->heads * m->head_dim, most = m->emb > m->hidden ? m->emb : m->hidden;
    return width > most ? width : most;
}

static int64_t int8_size(const Model *m, const Step *step) { /* blocks have at least 32 inputs */
    int64_t numbers = whole_tiles(step->rows) * widest_inputs(m);
    return m->head.int8 ? in_lines(numbers + numbers / 32 * (sizeof(float) + sizeof(int32_t))) : 0;
}

static Int8Inputs int8_inputs_at(char *place, const Model *m, const Step *step) {
    int64_t numbers = whole_tiles(step->rows) * widest_inputs(m);
    float *scales = (float *)(place + numbers);
    return (Int8Inputs){(int8_t *)place, scales, (int32_t *)(scales + numbers / 32)};
}

static void walk(void *argument) {
    Work *w = argument;
    const Model *m = w->model;
    long stage = 0;
    while (!atomic_load(&w->threads)) sched_yield();
    char *scratch = w->scratch + atomic_fetch_add(&w->begun, 1) * w->each;
    float *sums = (float *)scratch;
    Number *queries = (Number *)(scratch + sums_size(m, w->step));
    Number *normed = (Number *)((char *)queries + queries_size(m));
    Int8Inputs x8 = int8_inputs_at((char *)normed + normed_size(m, w->step), m, w->step);
    open_tiles();
    for (int64_t row; (row = piece(w, stage, w->step->rows)) >= 0;)
        memcpy(w->x + row * m->emb, m->embedding + w->step->tokens[row] * m->emb,
               m->emb * sizeof(Number));
    meet(w, &stage);
    for (const Layer *layer = m->layer; layer < m->layer + m->layers; layer++) {
        norm(w, layer->norm_1, normed);
        product(w, &stage, PLAIN, normed, &layer->qkv, w->heads, &x8);
        attention(w, &stage, layer, sums, queries);
        product(w, &stage, ADD, w->attended, &layer->out, w->x, &x8);
        norm(w, layer->norm_2, normed);
        product(w, &stage, GATE, normed, &layer->gate_up, w->inner, &x8);
        product(w, &stage, ADD, w->inner, &layer->down, w->x, &x8);
    }
    norm(w, m->final_norm, normed);
    product(w, &stage, PLAIN, normed, &m->head, w->step->logits, &x8);
    close_tiles();
}

/* ---- Drawing a token from each row's logits ---- */

typedef struct {
    int64_t rows, vocab, threads, top_k;
    double temperature, top_p;
    const Number *logits; /* (rows, vocab) */
    const float *uniform; /* (rows,) in (0, 1) */
    int64_t *tokens; /* (rows,) */
    float *logprobs, *entropies; /* (rows,) of the distribution that is drawn from */
    int32_t *kept; /* (rows, vocab), the tokens that top-p and top-k kept, or NULL */
    int64_t *counts; /* (rows,) how many of them */
} Drawing;

#define BLOCK 128 /* logits whose sum is one number of a running sum */
#define BUCKETS 2048 /* by the upper bits of a positive float, which grow with it */

typedef struct { float weight; int32_t token; } Entry;

/* What a thread needs for one row. */
typedef struct {
    float *weights; /* (whole blocks,) e^(logit / temperature - largest), 0 where cut */
    float *sums; /* of each block */
    Entry *entries; /* those of a bucket */
    double masses[BUCKETS];
    int32_t sizes[BUCKETS];
} Room;

static int64_t whole_blocks(int64_t vocab) { return (vocab + BLOCK - 1) / BLOCK * BLOCK; }

static int64_t scratch_of_draw(int64_t vocab) {
    int64_t entries = whole_blocks(vocab);
    return in_lines(sizeof(Room) + entries * (sizeof(float) + sizeof(float) / BLOCK + sizeof(Entry))
                    + BLOCK * sizeof(float));
}

static Room *room_in(char *scratch, int64_t vocab) {
    Room *room = (Room *)scratch;
    room->weights = (float *)(room + 1);
    room->sums = room->weights + whole_blocks(vocab);
    room->entries = (Entry *)(room->sums + whole_blocks(vocab) / BLOCK);
    return room;
}

/* weights[i] = logits[i] / temperature, -inf behind the last; returns the largest, or NaN if any is
   not a number or infinite. */
static float scale_logits(const Number *logits, int64_t vocab, float temperature, float *weights) {
    int64_t all = whole_blocks(vocab);
    if (temperature == 1)
        for (int64_t i = 0; i < vocab; i++) weights[i] = wide(logits[i]);
    else
        for (int64_t i = 0; i < vocab; i++) weights[i] = wide(logits[i]) / temperature;
    for (int64_t i = vocab; i < all; i++) weights[i] = -INFINITY;
    Lanes largest = (Lanes){} - INFINITY;
    Bits wrong = {};
    for (int64_t i = 0; i < all; i += LANES) {
        Lanes some;
        memcpy(&some, weights + i, sizeof some);
        largest = larger(some, largest);
        wrong |= (Bits)(some != some);
    }
    float most = -INFINITY;
    int found_wrong = 0;
    for (int k = 0; k < LANES; k++) {
        most = largest[k] > most ? largest[k] : most;
        found_wrong |= wrong[k] != 0;
    }
    return found_wrong || most - most != 0 ? NAN : most;
}

/* The weights become e^(weight - largest). Sums each block of them, and adds up all of them and
   weight * log(weight), which is what their entropy needs. */
static void weigh(Room *room, int64_t vocab, float largest, double *mass, double *energy) {
    *mass = *energy = 0;
    for (int64_t block = 0; block < whole_blocks(vocab) / BLOCK; block++) {
        Lanes sum = {}, all = {};
        for (int i = 0; i < BLOCK; i += LANES) {
            float *place = room->weights + block * BLOCK + i;
            Lanes some;
            memcpy(&some, place, sizeof some);
            some -= largest;
            Lanes weights = exponentials(some);
            memcpy(place, &weights, sizeof weights);
            sum += weights;
            all += weights * larger(some, (Lanes){} - 1e30f); /* 0 * -inf is not a number */
        }
        *mass += room->sums[block] = total(sum);
        *energy += total(all);
    }
}

static int largest_first(const void *one, const void *other) {
    const Entry *a = one, *b = other;
    if (a->weight != b->weight) return a->weight < b->weight ? 1 : -1;
    return a->token < b->token ? -1 : 1;
}

static int bucket_of(float weight) {
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits >> 20;
}

/* The entries of a bucket, the largest first, and among equals the lower token. */
static int64_t sorted_bucket(Room *room, int64_t vocab, int bucket) {
    int64_t count = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (bucket_of(room->weights[i]) == bucket)
            room->entries[count++] = (Entry){room->weights[i], i};
    qsort(room->entries, count, sizeof *room->entries, largest_first);
    return count;
}

/* Sets to 0 what top-p and top-k cut: sampling.kept_tokens says what that is. Sums are rounded to
   float before they are compared, as they are there. */
static void cut(Room *room, int64_t vocab, double mass, int64_t top_k, float top_p) {
    memset(room->masses, 0, sizeof room->masses);
    memset(room->sizes, 0, sizeof room->sizes);
    for (int64_t i = 0; i < vocab; i++) {
        int bucket = bucket_of(room->weights[i]);
        room->masses[bucket] += room->weights[i];
        room->sizes[bucket]++;
    }
    int64_t most = top_k && top_k < vocab ? top_k : vocab, count = 0;
    float target = top_p;
    double sum = 0;
    int bucket = BUCKETS - 1;
    if (top_k) { /* top_p is a share of the sum of the top_k largest */
        for (; count + room->sizes[bucket] < most; bucket--)
            count += room->sizes[bucket], sum += room->masses[bucket];
        sorted_bucket(room, vocab, bucket);
        for (int64_t i = 0; count < most; i++) count++, sum += room->entries[i].weight;
        target = (float)(sum / mass) * top_p;
    }
    for (bucket = BUCKETS - 1, count = 0, sum = 0; bucket > 0; bucket--) {
        double next = sum + room->masses[bucket];
        if (count + room->sizes[bucket] >= most || (float)(next / mass) >= target) break;
        count += room->sizes[bucket], sum = next;
    }
    int64_t inside = sorted_bucket(room, vocab, bucket), last = 0;
    for (; last < inside; last++) {
        count++, sum += room->entries[last].weight;
        if (count >= most || (float)(sum / mass) >= target) break;
    }
    if (last >= inside) last = inside - 1;
    float smallest = last < 0 ? 0 : room->entries[last].weight;
    int64_t equal = 0; /* how many of those as small as the smallest are kept */
    for (int64_t i = 0; i <= last; i++) equal += room->entries[i].weight == smallest;
    for (int64_t i = 0; i < vocab; i++) {
        float weight = room->weights[i];
        if (weight < smallest || (weight == smallest && equal-- <= 0)) room->weights[i] = 0;
    }
}

/* Sums of what a cut has left. `energy` is as in `exponentials`. */
static void sum_again(Room *room, int64_t vocab, double *mass, double *energy) {
    *mass = *energy = 0;
    for (int64_t block = 0; block < whole_blocks(vocab) / BLOCK; block++) {
        room->sums[block] = 0;
        for (int64_t i = block * BLOCK; i < (block + 1) * BLOCK; i++)
            if (room->weights[i] > 0) {
                room->sums[block] += room->weights[i];
                *energy += room->weights[i] * logf(room->weights[i]);
            }
        *mass += room->sums[block];
    }
}

/* The token at which the running sum of the weights passes u of their total. */
static int64_t pick(const Room *room, int64_t vocab, double mass, float u) {
    double target = u * mass, sum = 0;
    int64_t block = 0, blocks = whole_blocks(vocab) / BLOCK, token, found = 0;
    while (block < blocks - 1 && sum + room->sums[block] <= target) sum += room->sums[block++];
    while (block && room->sums[block] == 0) block--; /* only where rounding has gone too far */
    for (token = block * BLOCK; token < (block + 1) * BLOCK; token++) {
        if (room->weights[token] == 0) continue;
        found = token; /* the last one that has weight, if rounding leaves something over */
        sum += room->weights[token];
        if (sum > target) break;
    }
    return found;
}

static int64_t most_likely(const Number *logits, int64_t vocab) { /* the first among equals */
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++)
        if (wide(logits[i]) > wide(logits[best])) best = i;
    return best;
}

static void draw_row(const Drawing *d, int64_t row, Room *room) {
    const Number *logits = d->logits + row * d->vocab;
    int greedy = d->temperature == 0, narrowed = !greedy && (d->top_p < 1 || d->top_k > 0);
    double mass, energy;
    float largest = scale_logits(logits, d->vocab, greedy ? 1 : d->temperature, room->weights);
    if (largest != largest) { /* the caller sees that this is no number */
        d->tokens[row] = 0;
        d->logprobs[row] = d->entropies[row] = NAN;
        if (d->kept) d->counts[row] = 0;
        return;
    }
    weigh(room, d->vocab, largest, &mass, &energy);
    if (narrowed) {
        cut(room, d->vocab, mass, d->top_k, d->top_p);
        sum_again(room, d->vocab, &mass, &energy);
    }
    int64_t token = greedy ? most_likely(logits, d->vocab)
                           : pick(room, d->vocab, mass, d->uniform[row]);
    d->tokens[row] = token;
    d->logprobs[row] = log(room->weights[token] / mass);
    d->entropies[row] = log(mass) - energy / mass;
    if (!d->kept) return;
    int64_t count = 0;
    for (int64_t i = 0; i < d->vocab; i++)
        if (room->weights[i] > 0) d->kept[row * d->vocab + count++] = i;
    d->counts[row] = count;
}

static void draw_rows(void *argument) {
    Pieces *all = argument;
    const Drawing *d = all->of;
    Room *room = room_in(own_scratch(all), d->vocab);
    for (int64_t row; (row = atomic_fetch_add(&all->next, 1)) < d->rows;)
        draw_row(d, row, room);
}

/* ---- What Python calls ---- */

/* All memory of a step is taken here, before any work: 1 if there is none, and nothing changed. */
int decode(const Model *m, const Step *step) {
    int64_t width = m->heads * m->head_dim, all = width + 2 * m->groups * m->head_dim;
    int64_t rows = whole_tiles(step->rows);
    Work work = {.model = m, .step = step};
    work.each = sums_size(m, step) + queries_size(m) + normed_size(m, step)
        + int8_size(m, step);
    work.x = malloc(rows * (m->emb + all + width + m->hidden + m->rank) * sizeof(Number));
    work.scratch = malloc(step->threads * work.each);
    work.taken = calloc(9 * m->layers + 3, sizeof *work.taken);
    int found = work.x && work.scratch && work.taken;
    if (found) {
        work.heads = work.x + rows * m->emb;
        work.attended = work.heads + rows * all;
        work.inner = work.attended + rows * width;
        work.low = work.inner + rows * m->hidden;
        share(walk, &work, &work.threads, step->threads);
    }
    free(work.x);
    free(work.scratch);
    free(work.taken);
    return !found;
}

/* Draws a token for each row; 1 if there is no memory for it. */
int draw(const Drawing *drawing) {
    return share_pieces(draw_rows, drawing, scratch_of_draw(drawing->vocab), drawing->threads);
}
