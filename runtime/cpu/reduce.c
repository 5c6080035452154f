/* reduce.c - sums over any set of axes: y = scale * sum(x), in double.
 *
 * Neighbouring axes of one kind merge, so that kept and reduced axes alternate. Three shapes of
 * work:
 *  - everything reduced: PARTS fixed chunks, then the chunks in order;
 *  - the last axis reduced: each output sums contiguous runs;
 *  - the last axis kept: each output row sums rows, a block of columns at a time.
 * Every output is summed by one thread in index order. */
#include "dtrt_cpu.h"
#include "kernel.h"

#include <assert.h>

enum { MAX_ND = 8, PARTS = 64, BLOCK = 64 };

/* Kept and reduced axes apart from the innermost one, each with its stride in x. */
typedef struct {
    int nkeep, nred;
    int64_t keep[MAX_ND], keep_stride[MAX_ND], red[MAX_ND], red_stride[MAX_ND];
    int64_t reds;  /* product of red */
    int64_t inner; /* innermost axis */
    int last_red;  /* it is reduced */
} Nest;

static int merge_axes(int nd, const int64_t *dim, const uint8_t *red, int64_t *size, int *is_red) {
    int n = 0;
    for (int i = 0; i < nd; i++) {
        if (dim[i] == 1) continue;
        if (n && is_red[n - 1] == (red[i] != 0)) {
            size[n - 1] *= dim[i];
        } else {
            size[n] = dim[i];
            is_red[n++] = red[i] != 0;
        }
    }
    return n;
}

static Nest fill_nest(int n, const int64_t *size, const int *is_red) {
    Nest t = {.reds = 1, .inner = size[n - 1], .last_red = is_red[n - 1]};
    int64_t stride = size[n - 1];
    for (int i = n - 1; i-- > 0;) {
        if (is_red[i]) {
            t.red[t.nred] = size[i];
            t.red_stride[t.nred++] = stride;
            t.reds *= size[i];
        } else {
            t.keep[t.nkeep] = size[i];
            t.keep_stride[t.nkeep++] = stride;
        }
        stride *= size[i];
    }
    return t;
}

/* Offset of item i of axes listed innermost first. */
static inline int64_t offset(int n, const int64_t *size, const int64_t *stride, int64_t i) {
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        at += i % size[k] * stride[k];
        i /= size[k];
    }
    return at;
}

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
        const float *xo = x + offset(t->nkeep, t->keep, t->keep_stride, o);
        double sum = 0.0;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *run = xo + offset(t->nred, t->red, t->red_stride, r);
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
        const float *xo = x + offset(t->nkeep, t->keep, t->keep_stride, o) + c0;
        for (int64_t j = 0; j < n; j++) sum[j] = 0.0;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *row = xo + offset(t->nred, t->red, t->red_stride, r);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) sum[j] += (double)row[j];
        }
        for (int64_t j = 0; j < n; j++) {
            y[o * t->inner + c0 + j] = (float)(sum[j] * (double)scale);
        }
    }
}

void dtrt_reduce_sum(const float *x, float *y, int nd, const int64_t *dim, const uint8_t *red,
                     float scale) {
    int64_t size[MAX_ND] = {1}, total = 1, keeps = 1;
    int is_red[MAX_ND] = {0};
    assert(nd <= MAX_ND);
    int n = merge_axes(nd, dim, red, size, is_red);
    for (int i = 0; i < n; i++) total *= size[i];
    if (n == 1 && is_red[0]) {
        *y = sum_all(x, total, scale);
        return;
    }
    Nest t = fill_nest(n ? n : 1, size, is_red);
    for (int i = 0; i < t.nkeep; i++) keeps *= t.keep[i];
    if (t.last_red) {
        KERNEL_SPLIT(keeps, 1, total, sum_runs(x, y, &t, scale, lo, hi));
    } else {
        int64_t items = keeps * ((t.inner + BLOCK - 1) / BLOCK);
        KERNEL_SPLIT(items, 1, total, sum_rows(x, y, &t, scale, lo, hi));
    }
}
