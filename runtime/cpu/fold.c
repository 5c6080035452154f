/* fold.c - maxima, minima, products and log-sum-exp over any set of axes, the gradient of products,
 * running sums along an axis, and positions of extremes.
 *
 * Every output is computed by one thread in index order, so the bits do not depend on the number of
 * threads. NaN wins over every number. log-sum-exp takes the maximum out first (a second pass). The
 * gradient of a product is dY times the product of the others: without zeros that is Y/x, with one
 * zero only the zero has a gradient, with two nothing has. */
#include "dtrt_kernels.h"
#include "kernel.h"
#include "nest.h"

enum { BLOCK = 64 };

static inline double fold_start(DtrtFold kind) {
    return kind == DTRT_FOLD_PROD ? 1 : kind == DTRT_FOLD_MIN ? INFINITY : -INFINITY;
}

KERNEL_INLINE double combine(DtrtFold kind, double acc, double v) {
    switch (kind) {
    case DTRT_FOLD_PROD: return acc * v;
    case DTRT_FOLD_MIN: return v < acc || v != v ? v : acc;
    default: return v > acc || v != v ? v : acc;
    }
}

/* What is taken out of the exponents: 0 instead of an infinity, which would give inf - inf. */
static inline double shift_of(double max) {
    return isinf(max) ? 0 : max;
}

/* The last axis is reduced: one output after the other. */
KERNEL_INLINE void fold_runs_of(DtrtFold kind, const float *x, float *y, const Nest *t, int64_t lo,
                                int64_t hi) {
    for (int64_t o = lo; o < hi; o++) {
        const float *xo = x + nest_kept(t, o);
        double acc = fold_start(kind), sum = 0;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *run = xo + nest_reduced(t, r);
            for (int64_t i = 0; i < t->inner; i++) acc = combine(kind, acc, (double)run[i]);
        }
        double shift = shift_of(acc);
        for (int64_t r = 0; kind == DTRT_FOLD_LSE && r < t->reds; r++) {
            const float *run = xo + nest_reduced(t, r);
            for (int64_t i = 0; i < t->inner; i++) sum += exp((double)run[i] - shift);
        }
        y[o] = (float)(kind == DTRT_FOLD_LSE ? shift + log(sum) : acc);
    }
}

/* The last axis is kept: item = (kept row, block of columns). */
KERNEL_INLINE void fold_rows_of(DtrtFold kind, const float *x, float *y, const Nest *t, int64_t lo,
                                int64_t hi) {
    int64_t blocks = (t->inner + BLOCK - 1) / BLOCK;
    double acc[BLOCK], sum[BLOCK];
    for (int64_t item = lo; item < hi; item++) {
        int64_t o = item / blocks, c0 = item % blocks * BLOCK;
        int64_t n = kernel_min(BLOCK, t->inner - c0);
        const float *xo = x + nest_kept(t, o) + c0;
        for (int64_t j = 0; j < n; j++) acc[j] = fold_start(kind);
        for (int64_t r = 0; r < t->reds; r++) {
            const float *row = xo + nest_reduced(t, r);
#pragma omp simd
            for (int64_t j = 0; j < n; j++) acc[j] = combine(kind, acc[j], (double)row[j]);
        }
        for (int64_t j = 0; j < n; j++) sum[j] = 0;
        for (int64_t r = 0; kind == DTRT_FOLD_LSE && r < t->reds; r++) {
            const float *row = xo + nest_reduced(t, r);
            for (int64_t j = 0; j < n; j++) sum[j] += exp((double)row[j] - shift_of(acc[j]));
        }
        for (int64_t j = 0; j < n; j++)
            y[o * t->inner + c0 + j] =
                (float)(kind == DTRT_FOLD_LSE ? shift_of(acc[j]) + log(sum[j]) : acc[j]);
    }
}

/* One copy of the loops for each kind, so that the choice is not in them. */
#define BY_KIND(loops)                                                                             \
    switch (kind) {                                                                                \
    case DTRT_FOLD_MAX: loops(DTRT_FOLD_MAX, x, y, t, lo, hi); break;                              \
    case DTRT_FOLD_MIN: loops(DTRT_FOLD_MIN, x, y, t, lo, hi); break;                              \
    case DTRT_FOLD_PROD: loops(DTRT_FOLD_PROD, x, y, t, lo, hi); break;                            \
    case DTRT_FOLD_LSE: loops(DTRT_FOLD_LSE, x, y, t, lo, hi); break;                              \
    }
KERNEL fold_runs(DtrtFold kind, const float *x, float *y, const Nest *t, int64_t lo,
                 int64_t hi){BY_KIND(fold_runs_of)} KERNEL
    fold_rows(DtrtFold kind, const float *x, float *y, const Nest *t, int64_t lo, int64_t hi) {
    BY_KIND(fold_rows_of)
}

void dtrt_fold(DtrtFold kind, const float *x, float *y, int nd, const int64_t *dim,
               const uint8_t *red) {
    Nest t = nest_new(nd, dim, red);
    if (t.last_red) {
        KERNEL_SPLIT(t.keeps, 1, t.total, fold_runs(kind, x, y, &t, lo, hi));
    } else {
        int64_t items = t.keeps * ((t.inner + BLOCK - 1) / BLOCK);
        KERNEL_SPLIT(items, 1, t.total, fold_rows(kind, x, y, &t, lo, hi));
    }
}

/* ---- gradient of products ---- */

/* Outputs lo..hi-1, numbered as y; each one's elements lie `inner` columns apart or, with the last
 * axis reduced, in runs. */
KERNEL prod_grad(const float *dy, const float *x, float *dx, const Nest *t, int64_t lo,
                 int64_t hi) {
    int64_t run = t->last_red ? t->inner : 1, columns = t->last_red ? 1 : t->inner;
    for (int64_t o = lo; o < hi; o++) {
        int64_t base = nest_kept(t, o / columns) + o % columns, zeros = 0;
        double others = 1;
        for (int64_t r = 0; r < t->reds; r++) {
            const float *from = x + base + nest_reduced(t, r);
            for (int64_t i = 0; i < run; i++) {
                zeros += from[i] == 0;
                others *= from[i] == 0 ? 1 : (double)from[i];
            }
        }
        double g = (double)dy[o] * others;
        for (int64_t r = 0; r < t->reds; r++) {
            int64_t at = base + nest_reduced(t, r);
            for (int64_t i = 0; i < run; i++) {
                double v = (double)x[at + i];
                dx[at + i] = (float)(v == 0 ? (zeros == 1 ? g : 0) : (zeros ? 0 : g / v));
            }
        }
    }
}

void dtrt_prod_grad(const float *dy, const float *x, float *dx, int nd, const int64_t *dim,
                    const uint8_t *red) {
    Nest t = nest_new(nd, dim, red);
    int64_t outputs = t.keeps * (t.last_red ? 1 : t.inner);
    KERNEL_SPLIT(outputs, 1, t.total, prod_grad(dy, x, dx, &t, lo, hi));
}

/* ---- along one axis: [outer, n, inner] ---- */

/* Item = (outer slice, block of columns), summed from the first place on, or from the last. */
KERNEL cumsum_items(const float *x, float *y, int64_t n, int64_t inner, int exclusive, int reverse,
                    int64_t lo, int64_t hi) {
    int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    double sum[BLOCK];
    for (int64_t item = lo; item < hi; item++) {
        int64_t c0 = item % blocks * BLOCK, m = kernel_min(BLOCK, inner - c0);
        int64_t start = item / blocks * n * inner + c0;
        for (int64_t j = 0; j < m; j++) sum[j] = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = start + (reverse ? n - 1 - i : i) * inner;
            for (int64_t j = 0; j < m; j++) {
                double before = sum[j];
                sum[j] += (double)x[at + j];
                y[at + j] = (float)(exclusive ? before : sum[j]);
            }
        }
    }
}

void dtrt_cumsum(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int exclusive,
                 int reverse) {
    int64_t items = outer * ((inner + BLOCK - 1) / BLOCK);
    KERNEL_SPLIT(items, 1, outer * n * inner,
                 cumsum_items(x, y, n, inner, exclusive, reverse, lo, hi));
}

KERNEL arg_lines(const float *x, int64_t *y, int64_t n, int64_t inner, int min, int last,
                 int64_t lo, int64_t hi) {
    for (int64_t o = lo; o < hi; o++) {
        const float *from = x + o / inner * n * inner + o % inner;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) {
            float v = from[i * inner], top = from[best * inner];
            int better = isnan(v) ? !isnan(top) : min ? v < top : v > top;
            int equal = v == top || (isnan(v) && isnan(top));
            if (better || (last && equal)) best = i;
        }
        y[o] = best;
    }
}

void dtrt_arg(const float *x, int64_t *y, int64_t outer, int64_t n, int64_t inner, int min,
              int last) {
    KERNEL_SPLIT(outer * inner, 1, outer * n * inner, arg_lines(x, y, n, inner, min, last, lo, hi));
}
