/* What a training pass in bfloat16 on a CPU spends its time on besides large products.

   Torch computes these in many small operations, and each of them reads and writes memory that is
   a hundred times slower than the processor. Here what belongs together is computed at once, on
   pieces that fit into the processor's cache. fast/narrow.py calls this file;
   fast/decode_library.py compiles it together with decode.c. */

#ifdef BFLOAT16
#include "numbers.h"

typedef int32_t Whole __attribute__((vector_size(4 * LANES)));
typedef uint16_t Half __attribute__((vector_size(2 * LANES)));

/* Each float rounded as `narrow` does, in the lower half of its 32 bits. */
static inline Bits narrow_lanes(Lanes lanes) {
    Bits bits = (Bits)lanes;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline void put(Lanes lanes, float *place) { memcpy(place, &lanes, sizeof lanes); }

static inline void put_narrow(Bits halves, Number *place) {
    Half half = __builtin_convertvector(halves, Half);
    memcpy(place, &half, sizeof half);
}

/* ---- Small products ---- */

/* The right factor of a product lies in memory as the processor's instructions take it: of a matrix
   (k, n) two rows at a time, (k / 2, n, 2). */
static inline uint32_t pair(Number first, Number second) {
    return (uint32_t)second << 16 | first;
}

#define SIDE 32 /* every side of a matrix is a multiple of it */

#ifdef TILES
static void multiply_tiles(int64_t m, int64_t n, int64_t k, const Number *a, int64_t width,
                           const Number *b, float *c, int add) {
    for (int64_t i = 0; i < m; i += SIDE)
        for (int64_t j = 0; j < n; j += SIDE) {
            float *here = c + i * n + j;
            if (add) {
                _tile_loadd(0, here, 4 * n);
                _tile_loadd(1, here + 16, 4 * n);
                _tile_loadd(2, here + 16 * n, 4 * n);
                _tile_loadd(3, here + 16 * n + 16, 4 * n);
            } else {
                _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
            }
            for (int64_t p = 0; p < k; p += SIDE) {
                _tile_loadd(4, a + i * width + p, 2 * width);
                _tile_loadd(5, a + (i + 16) * width + p, 2 * width);
                _tile_loadd(6, b + p * n + 2 * j, 4 * n);
                _tile_loadd(7, b + p * n + 2 * (j + 16), 4 * n);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, here, 4 * n);
            _tile_stored(1, here + 16, 4 * n);
            _tile_stored(2, here + 16 * n, 4 * n);
            _tile_stored(3, here + 16 * n + 16, 4 * n);
        }
}
#endif

#define HIGH (LANES == 16 ? 8 : 4) /* rows of c whose sums stay in registers */

/* c (m, n) = a (m, k) b, or c += a b. A row of a is `width` numbers behind the one before. */
static void multiply(int64_t m, int64_t n, int64_t k, const Number *a, int64_t width,
                     const Number *b, float *c, int add) {
#ifdef TILES
    if (tiles_allowed()) {
        multiply_tiles(m, n, k, a, width, b, c, add);
        return;
    }
#endif
    for (int64_t i = 0; i < m; i += HIGH)
        for (int64_t j = 0; j < n; j += 2 * LANES) {
            Lanes sums[HIGH][2];
            for (int row = 0; row < HIGH; row++)
                for (int half = 0; half < 2; half++)
                    sums[row][half] = add ? lanes_at(c + (i + row) * n + j + half * LANES)
                                          : (Lanes){};
            for (int64_t p = 0; p < k; p += 2) {
                const Number *two = b + p * n + 2 * j;
                Bits right[2] = {load(two), load(two + 2 * LANES)};
                for (int row = 0; row < HIGH; row++) {
                    uint32_t left;
                    memcpy(&left, a + (i + row) * width + p, sizeof left);
                    for (int half = 0; half < 2; half++)
                        sums[row][half] = add_products(sums[row][half], left - (Bits){},
                                                       right[half]);
                }
            }
            for (int row = 0; row < HIGH; row++)
                for (int half = 0; half < 2; half++)
                    put(sums[row][half], c + (i + row) * n + j + half * LANES);
        }
}

/* ---- The gradient of attention ---- */

/* Query t of a row sees the first starts[row] + t + 1 keys. A group of heads shares its keys; what
   one query of one of its heads asks is a line. Keys come first among the known, then values. */
typedef struct {
    int64_t rows, heads, groups, queries, keys, size, threads;
    double scale; /* 1 / sqrt(size) */
    const int64_t *starts; /* (rows,) */
    const Number *asked, *arriving; /* (rows, queries, heads, size); the loss by the results */
    const Number *known; /* (rows, keys, 2 groups, size) */
    Number *to_asked, *to_known; /* the loss by these */
} Attention;

#define LINES 64 /* at a time: their scores for all keys stay in the processor's cache */

/* What a thread holds, of S keys and F features, both rounded up to a whole SIDE. Scores lie with
   the lines side by side: then a register has LANES lines, and a sum over keys is a running sum. */
typedef struct {
    int64_t keys, features;
    /* Of a group of heads in a row: */
    Number *known[2]; /* keys and values, (S, F) */
    Number *turned; /* keys, (F, S) */
    float *to_known[2]; /* (S, F) */
    /* Of LINES lines: what they ask, and what arrives at what they find. */
    Number *by_feature[2]; /* (F / 2, LINES, 2) */
    Number *by_line[2]; /* (LINES / 2, F, 2) */
    float *p, *ds; /* (S, LINES) scores, and what arrives at p; later p, and what arrives there */
    Number *narrow_p, *narrow_ds; /* (S, LINES) */
    Number *pairs_of_ds; /* (S / 2, LINES, 2) */
    float *to_asked; /* (F, LINES) */
} Desk;

static int64_t whole_sides(int64_t count) { return (count + SIDE - 1) / SIDE * SIDE; }

/* Places everything behind `scratch`; returns the bytes that it takes. */
static int64_t set_desk(Desk *desk, const Attention *a, char *scratch) {
    int64_t keys = desk->keys = whole_sides(a->keys);
    int64_t features = desk->features = whole_sides(a->size), taken = 0;
#define PLACE(pointer, count) \
    (pointer) = (void *)(scratch + taken), taken += in_lines((count) * sizeof *(pointer))
    for (int i = 0; i < 2; i++) {
        PLACE(desk->known[i], keys * features);
        PLACE(desk->to_known[i], keys * features);
        PLACE(desk->by_feature[i], features * LINES);
        PLACE(desk->by_line[i], features * LINES);
    }
    PLACE(desk->turned, keys * features);
    PLACE(desk->p, keys * LINES);
    PLACE(desk->ds, keys * LINES);
    PLACE(desk->narrow_p, keys * LINES);
    PLACE(desk->narrow_ds, keys * LINES);
    PLACE(desk->pairs_of_ds, keys * LINES);
    PLACE(desk->to_asked, features * LINES);
#undef PLACE
    return taken;
}

/* The keys and values of a row's group, with zeros around them. */
static void fetch_known(const Attention *a, int64_t row, int64_t group, Desk *desk) {
    int64_t all = desk->keys * desk->features;
    for (int i = 0; i < 2; i++) {
        memset(desk->known[i], 0, all * sizeof *desk->known[i]);
        memset(desk->to_known[i], 0, all * sizeof *desk->to_known[i]);
        for (int64_t key = 0; key < a->keys; key++) {
            int64_t place = ((row * a->keys + key) * 2 + i) * a->groups + group;
            memcpy(desk->known[i] + key * desk->features, a->known + place * a->size,
                   a->size * sizeof(Number));
        }
    }
    for (int64_t key = 0; key < desk->keys; key++)
        for (int64_t feature = 0; feature < desk->features; feature++)
            desk->turned[feature * desk->keys + key]
                = desk->known[0][key * desk->features + feature];
}

static void deliver_known(const Attention *a, int64_t row, int64_t group, const Desk *desk) {
    for (int i = 0; i < 2; i++)
        for (int64_t key = 0; key < a->keys; key++) {
            int64_t place = ((row * a->keys + key) * 2 + i) * a->groups + group;
            const float *from = desk->to_known[i] + key * desk->features;
            for (int64_t k = 0; k < a->size; k++) a->to_known[place * a->size + k] = narrow(from[k]);
        }
}

/* Where line `line` of a row's group is, among (rows, queries, heads). Lines of the same query are
   neighbors, so that lines that are computed together see about as many keys. */
static int64_t place_of(const Attention *a, int64_t row, int64_t group, int64_t line) {
    int64_t heads = a->heads / a->groups;
    return (row * a->queries + line / heads) * a->heads + group * heads + line % heads;
}

/* Returns whether anything arrives at these lines; at padding, nothing does. */
static int fetch_lines(const Attention *a, int64_t row, int64_t group, int64_t first, int64_t count,
                       Desk *desk) {
    static const Number zeros[1024];
    const Number *from[2] = {a->asked, a->arriving};
    uint32_t arrives = 0;
    for (int i = 0; i < 2; i++)
        for (int64_t line = 0; line < LINES; line += 2) {
            const Number *two[2] = {zeros, zeros};
            for (int k = 0; k < 2 && line + k < count; k++)
                two[k] = from[i] + place_of(a, row, group, first + line + k) * a->size;
            uint32_t *by_line = (uint32_t *)desk->by_line[i] + line / 2 * desk->features;
            for (int64_t f = 0; f < desk->features; f++)
                by_line[f] = f < a->size ? pair(two[0][f], two[1][f]) : 0;
            uint32_t *by_feature = (uint32_t *)desk->by_feature[i] + line;
            for (int64_t f = 0; f < desk->features; f += 2)
                for (int k = 0; k < 2; k++) {
                    uint32_t found = f >= a->size ? 0
                        : pair(two[k][f], f + 1 < a->size ? two[k][f + 1] : 0);
                    by_feature[f / 2 * LINES + k] = found;
                    if (i) arrives |= found & 0x7fff7fff; /* -0 is nothing, too */
                }
        }
    return arrives != 0;
}

/* p = softmax(scale * scores); what arrives at a score is p (what arrives at p - its mean under p),
   times the scale. */
static void soften(const Attention *a, int64_t row, int64_t first, int64_t count, int64_t keys,
                   Desk *desk) {
    float scale = a->scale;
    for (int64_t line = 0; line < LINES; line += LANES) {
        Whole seen;
        for (int lane = 0; lane < LANES; lane++) {
            int64_t here = line + lane < count ? line + lane : count - 1;
            seen[lane] = a->starts[row] + (first + here) / (a->heads / a->groups) + 1;
        }
        float *p = desk->p + line, *ds = desk->ds + line;
        Lanes most = (Lanes){} - INFINITY, sum = {}, product = {};
        for (int64_t key = 0; key < keys; key++) {
            Bits hidden = (Bits)((int32_t)key - (Whole){} >= seen);
            Lanes score = choose(hidden, (Lanes){} - INFINITY, lanes_at(p + key * LINES));
            put(score, p + key * LINES);
            most = larger(score, most);
        }
        for (int64_t key = 0; key < keys; key++) {
            Lanes now = exponentials((lanes_at(p + key * LINES) - most) * scale);
            sum += now;
            product += now * lanes_at(ds + key * LINES);
            put(now, p + key * LINES);
        }
        Lanes part = 1 / sum, mean = product * part;
        for (int64_t key = 0; key < keys; key += 2) {
            Bits narrow_ds[2];
            for (int k = 0; k < 2; k++) {
                int64_t place = (key + k) * LINES;
                Lanes weight = lanes_at(p + place) * part;
                narrow_ds[k] = narrow_lanes(weight * (lanes_at(ds + place) - mean) * scale);
                put_narrow(narrow_lanes(weight), desk->narrow_p + line + place);
                put_narrow(narrow_ds[k], desk->narrow_ds + line + place);
            }
            Bits pairs = narrow_ds[1] << 16 | narrow_ds[0];
            memcpy(desk->pairs_of_ds + key * LINES + 2 * line, &pairs, sizeof pairs);
        }
    }
}

/* `count` lines of a row's group, from the first on. */
static void attend_lines(const Attention *a, int64_t row, int64_t group, int64_t first,
                         int64_t count, Desk *desk) {
    Number *to_line[LINES];
    for (int64_t line = 0; line < count; line++)
        to_line[line] = a->to_asked + place_of(a, row, group, first + line) * a->size;
    if (!fetch_lines(a, row, group, first, count, desk)) {
        for (int64_t line = 0; line < count; line++)
            memset(to_line[line], 0, a->size * sizeof(Number));
        return;
    }
    int64_t seen = a->starts[row] + (first + count - 1) / (a->heads / a->groups) + 1;
    int64_t keys = whole_sides(seen < a->keys ? seen : a->keys), features = desk->features;
    multiply(keys, LINES, features, desk->known[0], features, desk->by_feature[0], desk->p, 0);
    multiply(keys, LINES, features, desk->known[1], features, desk->by_feature[1], desk->ds, 0);
    soften(a, row, first, count, keys, desk);
    multiply(keys, features, LINES, desk->narrow_ds, LINES, desk->by_line[0], desk->to_known[0], 1);
    multiply(keys, features, LINES, desk->narrow_p, LINES, desk->by_line[1], desk->to_known[1], 1);
    multiply(features, LINES, keys, desk->turned, desk->keys, desk->pairs_of_ds, desk->to_asked, 0);
    for (int64_t line = 0; line < count; line++)
        for (int64_t k = 0; k < a->size; k++)
            to_line[line][k] = narrow(desk->to_asked[k * LINES + line]);
}

static void attend_groups(void *argument) {
    Pieces *all = argument;
    const Attention *a = all->of;
    Desk desk;
    set_desk(&desk, a, own_scratch(all));
    int64_t lines = a->queries * (a->heads / a->groups);
    open_tiles();
    for (int64_t next; (next = atomic_fetch_add(&all->next, 1)) < a->rows * a->groups;) {
        int64_t row = next / a->groups, group = next % a->groups;
        fetch_known(a, row, group, &desk);
        for (int64_t first = 0; first < lines; first += LINES)
            attend_lines(a, row, group, first, lines - first < LINES ? lines - first : LINES, &desk);
        deliver_known(a, row, group, &desk);
    }
    close_tiles();
}

/* 1 if there is no memory for it. */
int attention_gradient(const Attention *attention) {
    Desk desk;
    int64_t each = set_desk(&desk, attention, NULL);
    return share_pieces(attend_groups, attention, each, attention->threads);
}
#endif
