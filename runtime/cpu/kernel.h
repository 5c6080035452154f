/* kernel.h - private to runtime/cpu: how our own loops are split over threads and instruction sets.
 *
 * A kernel is a plain function over a range [lo, hi) of independent rows or elements; a driver
 * splits the whole over the threads. No result depends on where the split is: a row is summed by
 * one thread, long sums go through a fixed number of chunks. KERNEL compiles a function for several
 * instruction sets and picks one at load time, so that a library built for any x86-64 is fast on
 * the present one. (OpenMP bodies are outlined before cloning: that is why kernels are functions of
 * their own.) */
#ifndef DTRT_KERNEL_H
#define DTRT_KERNEL_H

#include <math.h>
#include <omp.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__) &&   \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KERNEL __attribute__((target_clones("avx512f", "avx2", "default"))) static void
#else
#define KERNEL static void
#endif

/* Helpers with loops of a KERNEL must be inlined, or they run with the default instruction set. */
#define KERNEL_INLINE static inline __attribute__((always_inline))

/* Elements of work below which a second thread costs more than it saves. */
enum { KERNEL_GRAIN = 16384 };

static inline int64_t kernel_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Largest of n contiguous numbers, NaN aside. (Lanes by hand: a maximum with NaN rules is no
 * reduction that every compiler vectorises.) */
KERNEL_INLINE float kernel_max(const float *x, int64_t n) {
    float lane[16], top;
    int64_t i = 0;
    for (int j = 0; j < 16; j++) lane[j] = -INFINITY;
    for (; i + 16 <= n; i += 16) {
#pragma omp simd
        for (int j = 0; j < 16; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    top = lane[0];
    for (int j = 1; j < 16; j++) top = lane[j] > top ? lane[j] : top;
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* This thread's part of [0, n), in units of `unit`. */
static inline void kernel_part(int64_t n, int64_t unit, int64_t *lo, int64_t *hi) {
    int64_t parts = omp_get_num_threads(), me = omp_get_thread_num(), units = (n + unit - 1) / unit;
    *lo = kernel_min(units * me / parts * unit, n);
    *hi = kernel_min(units * (me + 1) / parts * unit, n);
}

/* Runs call(.., lo, hi) over [0, n) in parallel when there is enough work. `lo` and `hi` are
 * declared here. */
#define KERNEL_SPLIT(n, unit, work, call)                                                          \
    do {                                                                                           \
        int64_t work_ = (work);                                                                    \
        _Pragma("omp parallel if (work_ > KERNEL_GRAIN)") {                                        \
            int64_t lo, hi;                                                                        \
            kernel_part((n), (unit), &lo, &hi);                                                    \
            if (lo < hi) call;                                                                     \
        }                                                                                          \
    } while (0)

#endif
