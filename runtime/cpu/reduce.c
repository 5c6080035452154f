/* reduce.c - sums over any set of axes: y = scale * sum(x), in double.
 *
 * Kept and reduced axes alternate (nest.h). Three shapes of work:
 *  - everything reduced: PARTS fixed chunks, then the chunks in order;
 *  - the last axis reduced: each output sums contiguous runs;
 *  - the last axis kept: each output row sums rows, a block of columns at a time.
 * Every output is summed by one thread in index order. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include "nest.h"

enum { PARTS = 64, BLOCK = 64 };

KERNEL sum_chunks(const float *x, double *part, int64_t n, int64_t lo, int64_t hi) {
    for (int64_t p = lo; p < hi; p++) {
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = n * p / PARTS; i < n * (p + 1) / PARTS; i++) sum += (double)x[i];
        part[p] = sum;
    }
}

static float sum_all(const float *x, int64_t n, float scale) {
    double part[PARTS], sum = 0.0;
    KERNEL_SPLIT(PARTS, 1, n, sum_chunks(x, part, n, lo, hi));
    for (int p = 0; p < PARTS; p++) sum += part[p];
    return (float)(sum * (double)scale);
}

KERNEL sum_runs(const float *x, float *y, const Nest *t, float scale, int64_t lo, int64_t hi) {
    for (int64_t o = lo; o < hi; o++) {
        const float *xo = x + nest_kept(t, o);
        double sum = 0.0;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *run = xo + nest_reduced(t, r);
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < t->inner; i++) sum += (double)run[i];
        }
        y[o] = (float)(sum * (double)scale);
    }
}

/* Item number = (kept row, block of columns). */
KERNEL sum_rows(const float *x, float *y, const Nest *t, float scale, int64_t lo, int64_t hi) {
    int64_t blocks = (t->inner + BLOCK - 1) / BLOCK;
    double sum[BLOCK];
    for (int64_t item = lo; item < hi; item++) {
        int64_t o = item / blocks, c0 = item % blocks * BLOCK;
        int64_t n = kernel_min(BLOCK, t->inner - c0);
        const float *xo = x + nest_kept(t, o) + c0;
        for (int64_t j = 0; j < n; j++) sum[j] = 0.0;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *row = xo + nest_reduced(t, r);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += (double)row[j];
        }
        for (int64_t j = 0; j < n; j++) {
            y[o * t->inner + c0 + j] = (float)(sum[j] * (double)scale);
        }
    }
}

uint64_t dtrt_reduce_sum_needs(int nd, const int64_t *dim, const uint8_t *red) {
    (void)nd, (void)dim, (void)red;
    return 0;
}

void dtrt_reduce_sum(const float *x, float *y, int nd, const int64_t *dim, const uint8_t *red,
                     float scale, void *ws) {
    (void)ws;
    Nest t = nest_new(nd, dim, red);
    if (t.all) {
        *y = sum_all(x, t.total, scale);
        return;
    }
    if (t.last_red) {
        KERNEL_SPLIT(t.keeps, 1, t.total, sum_runs(x, y, &t, scale, lo, hi));
    } else {
        int64_t items = t.keeps * ((t.inner + BLOCK - 1) / BLOCK);
        KERNEL_SPLIT(items, 1, t.total, sum_rows(x, y, &t, scale, lo, hi));
    }
}
