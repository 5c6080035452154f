/* cpu_test.h - what the kernel tests share: buffers at odd places that start as NaN, reproducible
 * numbers, comparison with a reference in double, and a dtrt_fail that a test can catch.
 *
 * Each kernel is run by a CASE twice: at different addresses, with outputs and workspace full of
 * NaN before the first and of other NaN before the second run; both must give the same bits. */
#ifndef CPU_TEST_H
#define CPU_TEST_H

#include "dtrt_kernels.h"
#include "test.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>

static jmp_buf cpu_failed;
static char cpu_message[200];

void dtrt_fail(DtrtCtx *c, const char *fmt, ...) {
    va_list ap;
    (void)c;
    va_start(ap, fmt);
    vsnprintf(cpu_message, sizeof cpu_message, fmt, ap);
    va_end(ap);
    longjmp(cpu_failed, 1);
}

/* n bytes at a multiple of 64 that is not one of 128 when `odd`, filled with a NaN pattern; a guard
 * behind it shows writes past the end. */
typedef struct {
    char *base, *at;
    size_t n;
} Buf;

enum { GUARD = 64 };

static inline Buf buf_new(size_t n, int odd) {
    Buf b = {aligned_alloc(128, (n + 3 * 128) / 128 * 128 + 128), NULL, n};
    b.at = b.base + (odd ? 64 : 0);
    memset(b.base, odd ? 0xff : 0x7f, (size_t)(b.at - b.base) + n + GUARD);
    if (!odd) {
        for (size_t i = 0; i + 4 <= n; i += 4) memcpy(b.at + i, &(float){NAN}, 4);
    }
    memset(b.at + n, 0x5a, GUARD);
    return b;
}

static inline void buf_free(Buf *b) {
    for (int i = 0; i < GUARD; i++) {
        if (b->at[b->n + (size_t)i] != 0x5a) {
            CHECK(0 && "written past the end");
            break;
        }
    }
    free(b->base);
}

static uint32_t cpu_seed = 12345;
static inline float cpu_random(void) {
    cpu_seed = cpu_seed * 1664525u + 1013904223u;
    return (float)(int32_t)(cpu_seed >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
}

static inline Buf buf_random(int64_t n, int odd) {
    Buf b = buf_new((size_t)n * 4, odd);
    for (int64_t i = 0; i < n; i++) ((float *)(void *)b.at)[i] = cpu_random();
    return b;
}

/* The same bytes at another place. */
static inline Buf buf_copy(const Buf *x, int odd) {
    Buf b = buf_new(x->n, odd);
    memcpy(b.at, x->at, x->n);
    return b;
}

static inline float *buf_f(const Buf *b) {
    return (float *)(void *)b->at;
}

/* Largest |got - want| relative to the largest |want| (at least 1e-3); infinite if anything is not
 * finite where the reference is. Tolerances of the callers: a rounding to float is 6e-8 of a value.
 * 1e-6 where the kernel sums in double and rounds a few times; 2e-6 where the library sums some
 * hundred products in float; 3e-6 where exp or a division of differences comes before that. A wrong
 * index or factor is off by 1e-2 and more. */
static inline double worst(const float *got, const double *want, int64_t n) {
    double err = 0.0, top = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= err)) err = isnan(d) ? INFINITY : d;
        if (fabs(want[i]) > top) top = fabs(want[i]);
    }
    return err / top;
}

/* The second run of a kernel of ours, with another number of threads: still the same bits. */
#define OTHER_THREADS(call)                                                                        \
    do {                                                                                           \
        omp_set_num_threads(3);                                                                    \
        call;                                                                                      \
        omp_set_num_threads(2);                                                                    \
    } while (0)
#define CHECK_CLOSE(name, got, want, n, tol)                                                       \
    do {                                                                                           \
        double w_ = worst((got), (want), (n));                                                     \
        test_checks++;                                                                             \
        if (!(w_ <= (tol))) {                                                                      \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: %s: off by %g\n", __FILE__, __LINE__, (name), w_);             \
        }                                                                                          \
    } while (0)
#define CHECK_SAME(name, a, b)                                                                     \
    do {                                                                                           \
        test_checks++;                                                                             \
        if (memcmp((a).at, (b).at, (a).n)) {                                                       \
            test_failed++;                                                                         \
            fprintf(stderr, "%s:%d: %s: two runs differ\n", __FILE__, __LINE__, (name));           \
        }                                                                                          \
    } while (0)

#endif
