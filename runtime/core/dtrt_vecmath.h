/* dtrt_vecmath.h - exp, log, tanh, erf and friends as straight-line C that compilers vectorise
 * inside
 * `#pragma omp simd` loops. Header only; used by runtime/cpu and by generated kernels.
 *
 * Every function is a fixed sequence of IEEE operations on float without calls, branches or tables:
 * a value gives the same bits in a vector lane, in the scalar tail of a loop and on every
 * instruction set, unless the compiler contracts to FMA (-std=c11 and -ffp-contract=off do not).
 * gcc vectorises the selects only with -fno-trapping-math. Method: range reduction as in W. J. Cody
 * and W. Waite, "Software Manual for the Elementary Functions" (1980); the polynomials are our own
 * weighted minimax fits (Lawson's iteration). Largest errors, tested in tests/cpu: exp and log 1.5
 * ulp, the others 2.5 ulp; sigmoid gives zero where the result is subnormal. NaN gives NaN;
 * infinities and zeros as in C99. */
#ifndef DTRT_VECMATH_H
#define DTRT_VECMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t dtrt_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float dtrt_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* e^x = 2^n e^r, |r| <= ln2/2. 2^n is applied in two factors, so that subnormal results and
 * overflow come out of the multiplications. Adding 1.5 * 2^23 rounds to an integer whose bits are
 * the low mantissa. */
static inline float dtrt_expf(float x) {
    const float magic = 12582912.0f;
    float c = x < -104.0f ? -104.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float t = c * 1.44269504f + magic;
    float n = t - magic;
    float r = (c - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 0.00139517174f;
    p = p * r + 0.00836959854f;
    p = p * r + 0.0416661873f;
    p = p * r + 0.166665122f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    uint32_t k = dtrt_bits(t) - dtrt_bits(magic); /* n as two's complement */
    uint32_t half = ((k + 512u) >> 1) - 256u;     /* floor(n / 2) */
    return p * dtrt_float((half + 127u) << 23) * dtrt_float((k - half + 127u) << 23);
}

/* log x = e ln2 + log1p(f), 1 + f in [sqrt(1/2), sqrt(2)) */
static inline float dtrt_logf(float x) {
    float tiny = x < 1.17549435e-38f ? 8388608.0f : 1.0f;
    float bias = x < 1.17549435e-38f ? 150.0f : 127.0f;
    uint32_t u = dtrt_bits(x * tiny);
    uint32_t low = u & 0x007fffffu;
    uint32_t up = low >= 0x003504f3u ? 1u : 0u; /* mantissa >= sqrt(2): halve it */
    float e = (float)(int32_t)((u >> 23) + up) - bias;
    float f = dtrt_float(low | ((127u - up) << 23)) - 1.0f;
    float p = 0.0691536814f;
    p = p * f - 0.117898077f;
    p = p * f + 0.118729763f;
    p = p * f - 0.123843484f;
    p = p * f + 0.142186582f;
    p = p * f - 0.16669251f;
    p = p * f + 0.200022265f;
    p = p * f - 0.249999866f;
    p = p * f + 0.333333105f;
    float ff = f * f;
    float y = (p * f) * ff + e * 1.42860677e-6f;
    y = (y - 0.5f * ff) + f + e * 0.693145752f;
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* log(1 + x): the rounding error of 1 + x is undone by the quotient x / ((1 + x) - 1). */
static inline float dtrt_log1pf(float x) {
    float u = 1.0f + x, d = u - 1.0f;
    float q = d == 0.0f ? 1.0f : x / d;
    float y = dtrt_logf(u) * (u > 3.40282347e38f ? 1.0f : q);
    return d == 0.0f ? x : y;
}

static inline float dtrt_sigmoidf(float x) {
    return 1.0f / (1.0f + dtrt_expf(-x));
}

/* Odd polynomial near 0, 1 - 2/(e^2|x| + 1) elsewhere. */
static inline float dtrt_tanhf(float x) {
    float a = fabsf(x), z = x * x;
    float p = -0.00590586057f;
    p = p * z + 0.0208053775f;
    p = p * z - 0.0537866801f;
    p = p * z + 0.133319587f;
    p = p * z - 0.333332986f;
    float small = (p * z) * x + x;
    float big = 1.0f - 2.0f / (dtrt_expf(2.0f * a) + 1.0f);
    big = x < 0.0f ? -big : big;
    return a < 0.6f ? small : big;
}

/* x P(x^2) below 0.95, 1 - e^Q(|x|) above; erf is 1 in float from 3.92 on. */
static inline float dtrt_erff(float x) {
    float a = fabsf(x), z = x * x;
    float p = 8.21542344e-05f;
    p = p * z - 0.00081059651f;
    p = p * z + 0.00519779697f;
    p = p * z - 0.0268581044f;
    p = p * z + 0.112836726f;
    p = p * z - 0.376126319f;
    p = p * z + 0.128379226f;
    float small = p * x + x;
    float c = a > 3.95f ? 3.95f : a;
    float q = -2.0909556e-05f;
    q = q * c + 0.000432303001f;
    q = q * c - 0.00416052714f;
    q = q * c + 0.0250914972f;
    q = q * c - 0.108236618f;
    q = q * c - 0.633386672f;
    q = q * c - 1.12949514f;
    q = q * c + 0.000170552041f;
    float big = 1.0f - dtrt_expf(q);
    big = x < 0.0f ? -big : big;
    return a < 0.95f ? small : big;
}

#endif
