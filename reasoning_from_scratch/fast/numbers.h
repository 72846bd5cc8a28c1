/* What decode.c and training.c compute with: numbers, a processor's registers full of them, and
   threads that share work. */

#pragma once

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif
#if defined(BFLOAT16) && defined(__AMX_BF16__) && defined(__linux__)
#define TILES /* the processor multiplies blocks of 16 rows and 16 outputs in one instruction */
#include <sys/syscall.h>
#include <unistd.h>
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
#elif defined(BFLOAT16) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return (Lanes)vbfdotq_f32((float32x4_t)sums, (bfloat16x8_t)a, (bfloat16x8_t)b);
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

/* In C, unlike in C++, vectors have no a ? b : c. */
static inline Lanes choose(Bits mask, Lanes a, Lanes b) {
    return (Lanes)((mask & (Bits)a) | (~mask & (Bits)b));
}

static inline Lanes larger(Lanes a, Lanes b) { return choose((Bits)(a > b), a, b); }

/* e^x for numbers that are not above 0; 0 where it is below e^-87. */
static inline Lanes exponentials(Lanes x) {
    Bits gone = (Bits)(x < -87);
    x = choose(gone, (Lanes){} - 87, x);
    Lanes shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    Lanes rest = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1;
    return (Lanes)(~gone & (Bits)(sum * (Lanes)(((Bits)shifted + 127) << 23)));
}

static inline Lanes lanes_at(const float *place) {
    Lanes lanes;
    memcpy(&lanes, place, sizeof lanes);
    return lanes;
}

/* Bytes, in whole cache lines. */
static inline int64_t in_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* ---- Tiles ---- */

#ifdef TILES
/* Linux lets a process use the registers that hold tiles after it has asked once. */
static inline int tiles_allowed(void) {
    static int allowed = -1;
    if (allowed < 0) allowed = syscall(SYS_arch_prctl, 0x1023, 18) == 0;
    return allowed;
}

static inline void open_tiles(void) { /* of 16 lines with 64 bytes each; a thread's registers are its own */
    struct { uint8_t palette, start, unused[14]; uint16_t bytes[16]; uint8_t lines[16]; } shape
        = {.palette = 1};
    for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.lines[i] = 16;
    if (tiles_allowed()) _tile_loadconfig(&shape);
}

static inline void close_tiles(void) { if (tiles_allowed()) _tile_release(); }
#else
static inline void open_tiles(void) {}
static inline void close_tiles(void) {}
#endif

/* ---- Threads ---- */

typedef struct {
    void (*work)(void *);
    void *on;
    atomic_long *threads; /* told how many there are, before they begin */
} Team;

static inline void *work_in_team(void *argument) {
    Team *team = argument;
    team->work(team->on);
    return NULL;
}

static inline void start_threads(Team *team, int64_t wanted) {
    pthread_t threads[wanted];
    long started = 1;
    while (started < wanted && !pthread_create(&threads[started], NULL, work_in_team, team))
        started++;
    atomic_store(team->threads, started);
    work_in_team(team);
    while (--started) pthread_join(threads[started], NULL);
}

/* After an operation, OpenMP's threads stay awake for a while and wait for another. Threads beside
   them would wait for a core, so where torch has GNU's OpenMP these do the work themselves. */
#ifdef __linux__
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
extern int omp_get_num_threads(void) __attribute__((weak));

static inline void work_in_torch(void *argument) {
    Team *team = argument;
    atomic_store(team->threads, omp_get_num_threads());
    team->work(team->on);
}

static inline int use_torch_threads(Team *team, int64_t wanted) {
    if (wanted == 1 || !GOMP_parallel || !omp_get_num_threads) return 0;
    GOMP_parallel(work_in_torch, team, wanted, 0);
    return 1;
}
#else
static inline int use_torch_threads(Team *team, int64_t wanted) { (void)team, (void)wanted; return 0; }
#endif

static inline void share(void (*work)(void *), void *on, atomic_long *threads, int64_t wanted) {
    Team team = {work, on, threads};
    if (!use_torch_threads(&team, wanted)) start_threads(&team, wanted);
}

/* ---- Work in pieces ---- */

/* Threads take pieces as they find time, and each has scratch memory of its own. */
typedef struct {
    const void *of;
    atomic_long threads, begun, next;
    char *scratch; /* `each` bytes for every thread */
    int64_t each;
} Pieces;

static inline char *own_scratch(Pieces *all) {
    return all->scratch + atomic_fetch_add(&all->begun, 1) * all->each;
}

/* 1 if there is no memory for it. */
static inline int share_pieces(void (*work)(void *), const void *of, int64_t each,
                               int64_t threads) {
    Pieces all = {.of = of, .each = each, .scratch = malloc(threads * each)};
    if (!all.scratch) return 1;
    share(work, &all, &all.threads, threads);
    free(all.scratch);
    return 0;
}
