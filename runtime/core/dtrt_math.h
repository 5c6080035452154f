/* dtrt_math.h - scalar functions that generated kernels and the reference share: the counter-based
 * random numbers of Dropout, and float helpers. Header only. */
#ifndef DTRT_MATH_H
#define DTRT_MATH_H

#include <math.h>
#include <stdint.h>

/* Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the
 * numbers at indices 4*block .. 4*block+3 of the stream (seed, step, key). */
static inline void dtrt_random4(uint64_t seed, uint64_t step, uint32_t key, uint64_t block,
                                uint32_t c[4]) {
    uint32_t k0 = (uint32_t)seed ^ (key * 0x9E3779B9u), k1 = (uint32_t)(seed >> 32) ^ key;
    c[0] = (uint32_t)block;
    c[1] = (uint32_t)(block >> 32);
    c[2] = (uint32_t)step;
    c[3] = (uint32_t)(step >> 32);
    for (int r = 0; r < 10; r++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}
/* One of them: the number at `index`. Recomputing gives the same numbers. */
static inline uint32_t dtrt_random(uint64_t seed, uint64_t step, uint32_t key, uint64_t index) {
    uint32_t c[4];
    dtrt_random4(seed, step, key, index >> 2, c);
    return c[index & 3];
}
/* Keep decision of Dropout: kept with probability 1 - ratio; ratio < 1. */
static inline uint32_t dtrt_threshold(float ratio) {
    return (uint32_t)((double)ratio * 4294967296.0);
}
static inline int dtrt_keep(uint64_t seed, uint64_t step, uint32_t key, uint64_t index,
                            uint32_t threshold) {
    return dtrt_random(seed, step, key, index) >= threshold;
}
/* Dropout of x: its element `index` kept with probability 1 - ratio and scaled up, or 0. */
static inline float dtrt_dropout(float x, float ratio, uint64_t seed, uint64_t step, uint32_t key,
                                 uint64_t index) {
    if (ratio >= 1) return 0;
    return dtrt_keep(seed, step, key, index, dtrt_threshold(ratio)) ? x * (1.0f / (1.0f - ratio))
                                                                    : 0;
}
/* Uniform in [0, 1): 24 bits. */
static inline float dtrt_uniform(uint64_t seed, uint64_t step, uint32_t key, uint64_t index) {
    return (float)(dtrt_random(seed, step, key, index) >> 8) * 0x1p-24f;
}
/* Normal with mean 0 and variance 1, from two numbers (Box and Muller, Ann. Math. Stat. 29, 1958).
 */
static inline double dtrt_normal(uint64_t seed, uint64_t step, uint32_t key, uint64_t index) {
    double a = ((double)dtrt_random(seed, step, key, 2 * index) + 1) * 0x1p-32;
    double b = (double)dtrt_random(seed, step, key, 2 * index + 1) * 0x1p-32;
    return sqrt(-2 * log(a)) * cos(6.28318530717958647692 * b);
}
/* 1 with probability p, else 0. */
static inline float dtrt_bernoulli(float p, uint64_t seed, uint64_t step, uint32_t key,
                                   uint64_t index) {
    return dtrt_uniform(seed, step, key, index) < p ? 1.0f : 0.0f;
}

/* Integers, without the operands for which C has no result: x/0 and x mod 0 are 0, what overflows
 * wraps. The remainder of mod has the sign of b, that of rem the sign of a. */
static inline int64_t dtrt_int_div(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline int64_t dtrt_int_rem(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}
static inline int64_t dtrt_int_mod(int64_t a, int64_t b) {
    int64_t r = dtrt_int_rem(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/* Of unsigned integers of `bits` bits, which are kept in signed ones. */
static inline uint64_t dtrt_low_bits(int64_t a, int bits) {
    return (uint64_t)a & (bits < 1 || bits > 63 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1);
}
static inline int64_t dtrt_shift_left(int64_t a, int64_t by, int bits) {
    if (by < 0 || by >= bits || by > 63) return 0;
    return (int64_t)dtrt_low_bits((int64_t)((uint64_t)a << by), bits);
}
static inline int64_t dtrt_shift_right(int64_t a, int64_t by, int bits) {
    return by < 0 || by >= bits || by > 63 ? 0 : (int64_t)(dtrt_low_bits(a, bits) >> by);
}

#endif
