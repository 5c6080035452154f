/* simt_device.h - what translated kernels are compiled with: the thread they run as, access to
 * memory, and the PTX instructions that are no plain C expression. Self-contained apart from
 * simt.h.
 *
 * Meanings follow "Parallel Thread Execution ISA" (NVIDIA, 9.0), with these differences: arithmetic
 * makes the NaN of the host, not always 0x7fffffff; .approx functions are those of the C library
 * (the device's are up to 2 ulp off). Must be compiled with -ffp-contract=off. */
#ifndef SIMT_DEVICE_H
#define SIMT_DEVICE_H

#include "simt.h"

#include <math.h>
#include <string.h>

enum { PTX_GLOBAL, PTX_SHARED, PTX_LOCAL, PTX_CONST, PTX_GENERIC };
enum { PTX_READ, PTX_WRITE, PTX_ATOMIC };
enum {
    PTX_GAP = 128
}; /* bytes before each __shared__ array and the extern one, in checked bodies */
enum { PTX_UP, PTX_DOWN, PTX_BFLY, PTX_IDX };
enum { PTX_Radd, PTX_Rmin, PTX_Rmax, PTX_Rand, PTX_Ror, PTX_Rxor };

/* The engine, as seen by a kernel: a module needs no symbol of it. */
typedef struct {
    void *(*access)(SimtThread *, int how, int space, uint64_t address, uint32_t bytes,
                    uint32_t line);
    uint32_t (*barrier)(SimtThread *, bool value, uint32_t line); /* how many came with true */
    void (*warp_sync)(SimtThread *, uint32_t mask, uint32_t line);
    uint32_t (*shuffle)(SimtThread *, int mode, uint32_t value, uint32_t b, uint32_t c,
                        uint32_t mask, uint32_t line, bool *inside);
    uint32_t (*ballot)(SimtThread *, bool value, uint32_t mask, uint32_t line, uint32_t *voters);
    uint32_t (*reduce)(SimtThread *, int op, int is_signed, uint32_t value, uint32_t mask,
                       uint32_t line);
    void (*trap)(SimtThread *, uint32_t line);
    void (*runaway)(SimtThread *, uint32_t line); /* a thread that jumped back too often */
} SimtCalls;

struct SimtThread {
    SimtDim tid, ntid, ctaid, nctaid;
    uint32_t linear, lane, warp;
    uint32_t block_threads;
    uint32_t dynamic_offset;
    uint32_t jumps; /* back, of a checked thread since it started or was last counted */
    const uint8_t *params;
    uint8_t *shared;
    const SimtCalls *calls;
};

/* Elements in memory; any type may lie there. */
typedef uint8_t ptx_u8;
typedef uint16_t __attribute__((may_alias)) ptx_u16;
typedef uint32_t __attribute__((may_alias)) ptx_u32;
typedef uint64_t __attribute__((may_alias)) ptx_u64;
typedef int8_t ptx_s8;
typedef int16_t __attribute__((may_alias)) ptx_s16;
typedef int32_t __attribute__((may_alias)) ptx_s32;
typedef int64_t __attribute__((may_alias)) ptx_s64;

#define PTX_INLINE static inline __attribute__((always_inline, unused))

PTX_INLINE void *ptx_access(SimtThread *T, int check, int how, int space, uint64_t address,
                            uint32_t bytes, uint32_t line) {
    if (check) return T->calls->access(T, how, space, address, bytes, line);
    if (space == PTX_SHARED) return T->shared + (uint32_t)address;
    return (void *)(uintptr_t)address;
}
PTX_INLINE void *ptx_read(SimtThread *T, int check, int space, uint64_t a, uint32_t n,
                          uint32_t line) {
    return ptx_access(T, check, PTX_READ, space, a, n, line);
}
PTX_INLINE void *ptx_write(SimtThread *T, int check, int space, uint64_t a, uint32_t n,
                           uint32_t line) {
    return ptx_access(T, check, PTX_WRITE, space, a, n, line);
}
PTX_INLINE void *ptx_atomic(SimtThread *T, int check, int space, uint64_t a, uint32_t n,
                            uint32_t line) {
    return ptx_access(T, check, PTX_ATOMIC, space, a, n, line);
}

/* Before a jump back. In an unchecked kernel nothing: loops are what must be fast. */
enum { PTX_MOST_JUMPS = 1 << 27 };
PTX_INLINE void ptx_jump_back(SimtThread *T, int check, uint32_t line) {
    if (check && ++T->jumps > PTX_MOST_JUMPS) T->calls->runaway(T, line);
}

/* ---- bits and numbers ---- */
PTX_INLINE float ptx_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
PTX_INLINE uint32_t ptx_bits_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
PTX_INLINE double ptx_f64(uint64_t u) {
    double f;
    memcpy(&f, &u, 8);
    return f;
}
PTX_INLINE uint64_t ptx_bits_f64(double f) {
    uint64_t u;
    memcpy(&u, &f, 8);
    return u;
}
PTX_INLINE float ptx_ftz(float x) {
    return (ptx_bits_f32(x) & 0x7f800000u) ? x : copysignf(0.0f, x);
}
PTX_INLINE float ptx_sat(float x) {
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; /* NaN: 0 */
}
PTX_INLINE double ptx_cut_low(double x) {
    return ptx_f64(ptx_bits_f64(x) & 0xffffffff00000000ull);
}

/* ---- sums with carry ---- */
PTX_INLINE uint32_t ptx_add_cc(uint32_t a, uint32_t b, uint32_t *cc) {
    uint64_t s = (uint64_t)a + b;
    *cc = (uint32_t)(s >> 32);
    return (uint32_t)s;
}
PTX_INLINE uint32_t ptx_addc_cc(uint32_t a, uint32_t b, uint32_t *cc) {
    uint64_t s = (uint64_t)a + b + *cc;
    *cc = (uint32_t)(s >> 32);
    return (uint32_t)s;
}
PTX_INLINE uint32_t ptx_sub_cc(uint32_t a, uint32_t b, uint32_t *cc) {
    *cc = a < b;
    return a - b;
}
PTX_INLINE uint32_t ptx_subc_cc(uint32_t a, uint32_t b, uint32_t *cc) {
    uint64_t d = (uint64_t)a - b - *cc;
    *cc = (uint32_t)(d >> 63);
    return (uint32_t)d;
}

/* ---- products and quotients ---- */
__extension__ typedef unsigned __int128 ptx_u128;
__extension__ typedef __int128 ptx_s128;
PTX_INLINE uint16_t ptx_mulhi_u16(uint16_t a, uint16_t b) {
    return (uint16_t)(((uint32_t)a * b) >> 16);
}
PTX_INLINE int16_t ptx_mulhi_s16(int16_t a, int16_t b) {
    return (int16_t)((a * b) >> 16);
}
PTX_INLINE uint32_t ptx_mulhi_u32(uint32_t a, uint32_t b) {
    return (uint32_t)(((uint64_t)a * b) >> 32);
}
PTX_INLINE uint32_t ptx_mulhi_s32(int32_t a, int32_t b) {
    return (uint32_t)(((int64_t)a * b) >> 32);
}
PTX_INLINE uint64_t ptx_mulhi_u64(uint64_t a, uint64_t b) {
    return (uint64_t)(((ptx_u128)a * b) >> 64);
}
PTX_INLINE uint64_t ptx_mulhi_s64(int64_t a, int64_t b) {
    return (uint64_t)(((ptx_s128)a * b) >> 64);
}
PTX_INLINE uint32_t ptx_s24(int32_t a) {
    return (uint32_t)((int32_t)((uint32_t)a << 8) >> 8);
}
/* By zero: "unspecified"; all ones, and the dividend as remainder, as devices do. */
#define PTX_DIV(T, C, U)                                                                           \
    PTX_INLINE C ptx_div_##T(C a, C b) {                                                           \
        if (!b) return (C)-1;                                                                      \
        if (b == (C)-1 && (C)-1 < (C)1) return (C)((U)0 - (U)a); /* the least number by -1 */      \
        return (C)(a / b);                                                                         \
    }                                                                                              \
    PTX_INLINE C ptx_rem_##T(C a, C b) {                                                           \
        if (!b) return a;                                                                          \
        if (b == (C)-1 && (C)-1 < (C)1) return 0;                                                  \
        return (C)(a % b);                                                                         \
    }
PTX_DIV(u16, uint16_t, uint16_t)
PTX_DIV(s16, int16_t, uint16_t)
PTX_DIV(u32, uint32_t, uint32_t)
PTX_DIV(s32, int32_t, uint32_t)
PTX_DIV(u64, uint64_t, uint64_t)
PTX_DIV(s64, int64_t, uint64_t)

/* ---- bits ---- */
PTX_INLINE uint32_t ptx_lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; i++)
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
PTX_INLINE uint32_t ptx_shf_l(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)((((uint64_t)b << 32 | a) << n) >> 32);
}
PTX_INLINE uint32_t ptx_shf_r(uint32_t a, uint32_t b, uint32_t n) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> n);
}
PTX_INLINE uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t s = selector >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (s & 7)) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0; /* its sign instead */
        r |= byte << 8 * i;
    }
    return r;
}
/* Bits [at, at + n) of a, or its sign above; at and n count modulo 256. */
#define PTX_BFE(T, C, BITS)                                                                        \
    PTX_INLINE C ptx_bfe_##T(C a, uint32_t at, uint32_t n) {                                       \
        at &= 255, n &= 255;                                                                       \
        if (!n) return 0;                                                                          \
        bool is_signed = (C)-1 < (C)1;                                                             \
        uint64_t last = at + n - 1 < BITS - 1 ? at + n - 1 : BITS - 1;                             \
        uint64_t sign = is_signed ? (uint64_t)a >> last & 1 : 0, r = 0;                            \
        if (at < BITS) r = ((uint64_t)a & (UINT64_MAX >> (64 - BITS))) >> at;                      \
        uint32_t have = at < BITS ? (n < BITS - at ? n : BITS - at) : 0;                           \
        if (have < 64) r &= ((uint64_t)1 << have) - 1;                                             \
        if (sign && have < 64) r |= UINT64_MAX << have;                                            \
        return (C)r;                                                                               \
    }
PTX_BFE(u32, uint32_t, 32)
PTX_BFE(s32, int32_t, 32)
PTX_BFE(u64, uint64_t, 64)
PTX_BFE(s64, int64_t, 64)
PTX_INLINE uint64_t ptx_bfi_b64(uint64_t a, uint64_t b, uint32_t at, uint32_t n) {
    at &= 255, n &= 255;
    if (at > 63 || !n) return b;
    uint64_t mask = (n >= 64 ? UINT64_MAX : ((uint64_t)1 << n) - 1) << at;
    return (b & ~mask) | (a << at & mask);
}
PTX_INLINE uint32_t ptx_bfi_b32(uint32_t a, uint32_t b, uint32_t at, uint32_t n) {
    return (at & 255) > 31 ? b : (uint32_t)ptx_bfi_b64(a, b, at, n);
}
PTX_INLINE uint64_t ptx_brev_b64(uint64_t x) {
    uint64_t r = 0;
    for (int i = 0; i < 64; i++) r |= (x >> i & 1) << (63 - i);
    return r;
}
PTX_INLINE uint32_t ptx_brev_b32(uint32_t x) {
    return (uint32_t)(ptx_brev_b64(x) >> 32);
}
PTX_INLINE uint32_t ptx_popc(uint64_t x) {
    return (uint32_t)__builtin_popcountll(x);
}
PTX_INLINE uint32_t ptx_clz_b64(uint64_t x) {
    return x ? (uint32_t)__builtin_clzll(x) : 64;
}
PTX_INLINE uint32_t ptx_clz_b32(uint32_t x) {
    return x ? (uint32_t)__builtin_clz(x) : 32;
}
/* Position of the highest bit that is not the sign, from below or (shift) from above; none: ~0. */
PTX_INLINE uint32_t ptx_bfind_u64(uint64_t x, bool shift) {
    return !x ? ~0u : shift ? ptx_clz_b64(x) : 63 - ptx_clz_b64(x);
}
PTX_INLINE uint32_t ptx_bfind_u32(uint32_t x, bool shift) {
    return !x ? ~0u : shift ? ptx_clz_b32(x) : 31 - ptx_clz_b32(x);
}
PTX_INLINE uint32_t ptx_bfind_s32(int32_t x, bool shift) {
    return ptx_bfind_u32((uint32_t)(x < 0 ? ~x : x), shift);
}
PTX_INLINE uint32_t ptx_bfind_s64(int64_t x, bool shift) {
    return ptx_bfind_u64((uint64_t)(x < 0 ? ~x : x), shift);
}

/* ---- floats ---- */
/* A number wins over NaN, and -0 is less than +0. */
#define PTX_MINMAX(T, F)                                                                           \
    PTX_INLINE F ptx_min_##T(F a, F b) {                                                           \
        if (a != a || b != b) return a != a ? b : a;                                               \
        return a < b || (a == b && signbit(a)) ? a : b;                                            \
    }                                                                                              \
    PTX_INLINE F ptx_max_##T(F a, F b) {                                                           \
        if (a != a || b != b) return a != a ? b : a;                                               \
        return a > b || (a == b && !signbit(a)) ? a : b;                                           \
    }
PTX_MINMAX(f32, float)
PTX_MINMAX(f64, double)
PTX_INLINE float ptx_min_nan(float a, float b) {
    return a != a || b != b ? NAN : ptx_min_f32(a, b);
}
PTX_INLINE float ptx_max_nan(float a, float b) {
    return a != a || b != b ? NAN : ptx_max_f32(a, b);
}

/* Directed rounding of s + e to float, where s is the nearest double to the exact value and e what
 * is missing: from the nearest float one step towards zero (z), down (m) or up (p) when the exact
 * value is on that side of it. */
PTX_INLINE float ptx_directed(double s, double e, char how) {
    float f = (float)s;
    double left = s - (double)f; /* exact */
    int side = left > 0 || (left == 0 && e > 0) ? 1 : left < 0 || e < 0 ? -1 : 0;
    if (isinf(f) && !isinf(s)) side = f > 0 ? -1 : 1; /* beyond the largest float */
    if (side < 0 && (how == 'm' || (how == 'z' && f > 0))) return nextafterf(f, -INFINITY);
    if (side > 0 && (how == 'p' || (how == 'z' && f < 0))) return nextafterf(f, INFINITY);
    return f;
}
/* The product of floats is exact in double; the error of the sum is TwoSum (Knuth, TAOCP vol. 2,
 * 4.2.2, theorem B). */
PTX_INLINE float ptx_fma_directed(float a, float b, float c, char how) {
    double p = (double)a * b, s = p + c, v = s - p, e = (p - (s - v)) + ((double)c - v);
    if (!isfinite(s)) return (float)s;
    if (s == 0 && how == 'm' && (p != 0 || signbit(p) || signbit((double)c))) return -0.0f;
    return ptx_directed(s, e, how);
}
PTX_INLINE float ptx_fma_rz(float a, float b, float c) {
    return ptx_fma_directed(a, b, c, 'z');
}
PTX_INLINE float ptx_fma_rm(float a, float b, float c) {
    return ptx_fma_directed(a, b, c, 'm');
}
PTX_INLINE float ptx_fma_rp(float a, float b, float c) {
    return ptx_fma_directed(a, b, c, 'p');
}
PTX_INLINE float ptx_add_rz(float a, float b) {
    return ptx_fma_directed(a, 1, b, 'z');
}
PTX_INLINE float ptx_add_rm(float a, float b) {
    return ptx_fma_directed(a, 1, b, 'm');
}
PTX_INLINE float ptx_add_rp(float a, float b) {
    return ptx_fma_directed(a, 1, b, 'p');
}
/* The zero that, added to a * b, changes nothing. */
PTX_INLINE float ptx_zero_of(float a, float b) {
    return signbit(a) != signbit(b) ? -0.0f : 0.0f;
}

/* Saturating; NaN is 0. x is whole already. The limits are exact as doubles, or the next below. */
#define PTX_TO_INT(T, C, LO, HI, MIN, MAX)                                                         \
    PTX_INLINE C ptx_to_##T(double x) {                                                            \
        return x != x ? 0 : x <= LO ? MIN : x >= HI ? MAX : (C)x;                                  \
    }
PTX_TO_INT(u8, uint8_t, 0, 255.0, 0, UINT8_MAX)
PTX_TO_INT(s8, int8_t, -128.0, 127.0, INT8_MIN, INT8_MAX)
PTX_TO_INT(u16, uint16_t, 0, 65535.0, 0, UINT16_MAX)
PTX_TO_INT(s16, int16_t, -32768.0, 32767.0, INT16_MIN, INT16_MAX)
PTX_TO_INT(u32, uint32_t, 0, 4294967295.0, 0, UINT32_MAX)
PTX_TO_INT(s32, int32_t, -2147483648.0, 2147483647.0, INT32_MIN, INT32_MAX)
PTX_TO_INT(u64, uint64_t, 0, 18446744073709551616.0, 0, UINT64_MAX)
PTX_TO_INT(s64, int64_t, -9223372036854775808.0, 9223372036854775808.0, INT64_MIN, INT64_MAX)

/* ---- halves, as their bits ---- */
PTX_INLINE float ptx_from_bf16(uint16_t h) {
    return ptx_f32((uint32_t)h << 16);
}
PTX_INLINE uint16_t ptx_to_bf16(float f) {
    uint32_t u = ptx_bits_f32(f);
    if (f != f) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
PTX_INLINE float ptx_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
    if (exponent == 31) return ptx_f32(sign | 0x7f800000u | fraction << 13);
    if (exponent) return ptx_f32(sign | (exponent + 112) << 23 | fraction << 13);
    return ptx_f32(sign | ptx_bits_f32((float)fraction * 0x1p-24f));
}
/* To nearest even. Below 2^-14 the steps are 2^-24, which adding 0.5 to the magnitude gives. */
PTX_INLINE uint16_t ptx_to_f16(float f) {
    uint32_t u = ptx_bits_f32(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffffu;
    if (f != f) return 0x7fff;
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more */
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (ptx_bits_f32(ptx_f32(magnitude) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
/* f16: products and sums in double are exact enough to be rounded once (a product has 22 bits, the
 * sum of two f16 fits in 40; fma is rounded to odd by being exact in double but for far exponents,
 * whose order cannot matter). bf16: likewise. */
PTX_INLINE float ptx_half_round(double x) {
    float f = (float)x; /* to odd: the second rounding then errs not */
    if ((double)f != x && !(ptx_bits_f32(f) & 1) && isfinite(f))
        f = nextafterf(f, (double)f < x ? INFINITY : -INFINITY);
    return f;
}
#define PTX_HALF(H)                                                                                \
    PTX_INLINE uint16_t ptx_round_##H(double x) {                                                  \
        return ptx_to_##H(ptx_half_round(x));                                                      \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_add_##H(uint16_t a, uint16_t b) {                                      \
        return ptx_round_##H((double)ptx_from_##H(a) + ptx_from_##H(b));                           \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_sub_##H(uint16_t a, uint16_t b) {                                      \
        return ptx_round_##H((double)ptx_from_##H(a) - ptx_from_##H(b));                           \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_mul_##H(uint16_t a, uint16_t b) {                                      \
        return ptx_round_##H((double)ptx_from_##H(a) * ptx_from_##H(b));                           \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_fma_##H(uint16_t a, uint16_t b, uint16_t c) {                          \
        return ptx_round_##H((double)ptx_from_##H(a) * ptx_from_##H(b) + ptx_from_##H(c));         \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_min_##H(uint16_t a, uint16_t b) {                                      \
        return ptx_to_##H(ptx_min_f32(ptx_from_##H(a), ptx_from_##H(b)));                          \
    }                                                                                              \
    PTX_INLINE uint16_t ptx_max_##H(uint16_t a, uint16_t b) {                                      \
        return ptx_to_##H(ptx_max_f32(ptx_from_##H(a), ptx_from_##H(b)));                          \
    }
PTX_HALF(f16)
PTX_HALF(bf16)
/* Two of them in 32 bits. */
#define PTX_PAIR(H, OP)                                                                            \
    PTX_INLINE uint32_t ptx_##OP##_##H##x2(uint32_t a, uint32_t b) {                               \
        return (uint32_t)ptx_##OP##_##H((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16 |          \
               ptx_##OP##_##H((uint16_t)a, (uint16_t)b);                                           \
    }
#define PTX_PAIRS(H)                                                                               \
    PTX_PAIR(H, add)                                                                               \
    PTX_PAIR(H, sub)                                                                               \
    PTX_PAIR(H, mul)                                                                               \
    PTX_PAIR(H, min)                                                                               \
    PTX_PAIR(H, max)                                                                               \
    PTX_INLINE uint32_t ptx_fma_##H##x2(uint32_t a, uint32_t b, uint32_t c) {                      \
        return (uint32_t)ptx_fma_##H((uint16_t)(a >> 16), (uint16_t)(b >> 16),                     \
                                     (uint16_t)(c >> 16))                                          \
                   << 16 |                                                                         \
               ptx_fma_##H((uint16_t)a, (uint16_t)b, (uint16_t)c);                                 \
    }
PTX_PAIRS(f16)
PTX_PAIRS(bf16)

#endif
