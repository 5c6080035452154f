/* pool.c - max and average pooling over 1 to 3 axes, and their gradients. Own loops throughout:
 * they follow ONNX's ceil_mode, dilation and padding rules, and save the position of a maximum in
 * one byte.
 *
 * Images are [n, d, h, w, c] with missing axes of size 1; channels first is the same with n*c
 * images of one channel. Work is split by rows along w. Forward: for each output of a row, blocks
 * of channels run over the cells of the window. Gradient: a row of dx starts as zeros and takes its
 * share of every output row whose windows reach it, in order of outputs; no two threads write one
 * row, so any split gives the same bits.
 *
 * Rules: NaN is larger than any number, the first of equal cells wins (as in PyTorch). The index is
 * the number of the cell in the window, all ones for a window without any cell inside (its maximum
 * is -inf). An average counts the cells inside the image, or, with count_include_pad, inside image
 * and padding: cells that ceil_mode adds beyond the padding never count. No workspace. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, NONE8 = 255 };

typedef struct {
    int64_t in, out, k, stride, dil, lo, hi;
} Axis;

typedef struct {
    Axis a[3];
    int64_t n, c;
    int wide; /* index of four bytes: 255 cells and more */
    int include_pad;
} Plan;

static int64_t cells(const DtrtPool *p) {
    int64_t n = 1;
    for (int i = 0; i < p->nd; i++) n *= p->k[i];
    return n;
}

static Plan plan_of(const DtrtPool *p) {
    Plan t = {.n = p->n, .c = p->c, .wide = cells(p) > NONE8, .include_pad = p->count_include_pad};
    for (int i = 0; i < 3; i++) {
        if (i < p->nd) {
            t.a[i] = (Axis){p->in[i],  p->out[i],    p->k[i],     p->stride[i],
                            p->dil[i], p->pad_lo[i], p->pad_hi[i]};
        } else {
            t.a[i] = (Axis){1, 1, 1, 1, 1, 0, 0};
        }
    }
    if (!p->channels_last) {
        t.n *= t.c;
        t.c = 1;
    }
    return t;
}

/* Cells of the window of output o that lie in [-below, in + above): from `first` up to `end`. */
static inline void window(const Axis *a, int64_t o, int64_t below, int64_t above, int64_t *first,
                          int64_t *end) {
    int64_t base = o * a->stride - a->lo, k = 0, e = a->k;
    while (k < e && base + k * a->dil < -below) k++;
    while (e > k && base + (e - 1) * a->dil >= a->in + above) e--;
    *first = k;
    *end = e;
}

/* Cell of output o's window that is input i; -1 for none. */
static inline int64_t cell_of(const Axis *a, int64_t i, int64_t o) {
    int64_t d = i + a->lo - o * a->stride;
    return d >= 0 && d % a->dil == 0 && d / a->dil < a->k ? d / a->dil : -1;
}

/* Outputs whose windows may hold input i: [first, end). */
static inline void covering(const Axis *a, int64_t i, int64_t *first, int64_t *end) {
    int64_t reach = i + a->lo - (a->k - 1) * a->dil;
    *first = reach <= 0 ? 0 : (reach + a->stride - 1) / a->stride;
    *end = kernel_min((i + a->lo) / a->stride + 1, a->out);
}

/* Cells of one window inside the image: first and end in each axis. */
typedef struct {
    int64_t first[3], end[3];
} Cells;

static inline int64_t count_cells(const Cells *r) {
    return (r->end[0] - r->first[0]) * (r->end[1] - r->first[1]) * (r->end[2] - r->first[2]);
}

static inline void window_of(const Plan *t, int i, int64_t o, int with_pad, Cells *r) {
    const Axis *a = &t->a[i];
    window(a, o, with_pad ? a->lo : 0, with_pad ? a->hi : 0, &r->first[i], &r->end[i]);
}

/* Offset in a channel image of cell (d, h, w) of output (od, oh, ow), in elements. */
static inline int64_t input_at(const Plan *t, const int64_t o[3], int64_t d, int64_t h, int64_t w) {
    int64_t id = o[0] * t->a[0].stride - t->a[0].lo + d * t->a[0].dil;
    int64_t ih = o[1] * t->a[1].stride - t->a[1].lo + h * t->a[1].dil;
    int64_t iw = o[2] * t->a[2].stride - t->a[2].lo + w * t->a[2].dil;
    return ((id * t->a[1].in + ih) * t->a[2].in + iw) * t->c;
}

/* ---- forward: blocks of n channels of one output; x is at the image and channel ---- */

KERNEL_INLINE void max_block(const Plan *t, const float *x, const int64_t o[3], const Cells *r,
                             int64_t n, float *best, int32_t *arg) {
    int32_t first = -1;
    for (int64_t j = 0; j < n; j++) best[j] = -INFINITY;
    for (int64_t d = r->first[0]; d < r->end[0]; d++) {
        for (int64_t h = r->first[1]; h < r->end[1]; h++) {
            for (int64_t w = r->first[2]; w < r->end[2]; w++) {
                const float *v = x + input_at(t, o, d, h, w);
                int32_t cell = (int32_t)((d * t->a[1].k + h) * t->a[2].k + w);
                if (first < 0) {
                    first = cell;
                    for (int64_t j = 0; j < n; j++) best[j] = v[j];
                    for (int64_t j = 0; j < n; j++) arg[j] = cell;
                    continue;
                }
#pragma omp simd
                for (int64_t j = 0; j < n; j++) {
                    int take = (v[j] > best[j]) | (v[j] != v[j]);
                    best[j] = take ? v[j] : best[j];
                    arg[j] = take ? cell : arg[j];
                }
            }
        }
    }
    for (int64_t j = 0; first < 0 && j < n; j++) arg[j] = -1;
}

KERNEL_INLINE void sum_block(const Plan *t, const float *x, const int64_t o[3], const Cells *r,
                             int64_t n, double *sum) {
    for (int64_t j = 0; j < n; j++) sum[j] = 0.0;
    for (int64_t d = r->first[0]; d < r->end[0]; d++) {
        for (int64_t h = r->first[1]; h < r->end[1]; h++) {
            for (int64_t w = r->first[2]; w < r->end[2]; w++) {
                const float *v = x + input_at(t, o, d, h, w);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) sum[j] += (double)v[j];
            }
        }
    }
}

/* 1 / number of cells that count for output (o[0], o[1], o[2]); 0 for none. */
static inline double weight_of(const Plan *t, const int64_t o[3]) {
    Cells r;
    for (int i = 0; i < 3; i++) window_of(t, i, o[i], t->include_pad, &r);
    int64_t count = count_cells(&r);
    return count ? 1.0 / (double)count : 0.0;
}

/* Output (channels c0 to c0 + n) number p = image and position. A full block has its own copy of
 * the loops, with a constant bound. */
KERNEL_INLINE void max_output(const Plan *t, const float *x, float *y, void *index, int64_t p,
                              const int64_t o[3], const Cells *r, int64_t c0, int64_t n) {
    float best[BLOCK];
    int32_t arg[BLOCK];
    int64_t at = p * t->c + c0;
    if (n == BLOCK) {
        max_block(t, x + c0, o, r, BLOCK, best, arg);
    } else {
        max_block(t, x + c0, o, r, n, best, arg);
    }
    for (int64_t j = 0; j < n; j++) y[at + j] = best[j];
    if (t->wide) {
        for (int64_t j = 0; j < n; j++) ((int32_t *)index)[at + j] = arg[j];
    } else {
        for (int64_t j = 0; j < n; j++) ((uint8_t *)index)[at + j] = (uint8_t)arg[j];
    }
}

KERNEL_INLINE void average_output(const Plan *t, const float *x, float *y, int64_t p,
                                  const int64_t o[3], const Cells *r, int64_t c0, int64_t n) {
    double sum[BLOCK], weight = weight_of(t, o);
    if (n == BLOCK) {
        sum_block(t, x + c0, o, r, BLOCK, sum);
    } else {
        sum_block(t, x + c0, o, r, n, sum);
    }
    for (int64_t j = 0; j < n; j++) y[p * t->c + c0 + j] = (float)(sum[j] * weight);
}

/* Output rows [lo, hi); index NULL: average. */
KERNEL pool_rows(const Plan *t, const float *x, float *y, void *index, int64_t lo, int64_t hi) {
    int64_t image = t->a[0].in * t->a[1].in * t->a[2].in * t->c, rows = t->a[0].out * t->a[1].out;
    for (int64_t row = lo; row < hi; row++) {
        int64_t o[3] = {row % rows / t->a[1].out, row % t->a[1].out, 0};
        const float *xi = x + row / rows * image;
        Cells r;
        window_of(t, 0, o[0], 0, &r);
        window_of(t, 1, o[1], 0, &r);
        for (; o[2] < t->a[2].out; o[2]++) {
            int64_t p = row * t->a[2].out + o[2];
            window_of(t, 2, o[2], 0, &r);
            for (int64_t c0 = 0; c0 < t->c; c0 += BLOCK) {
                int64_t n = kernel_min(BLOCK, t->c - c0);
                if (index) {
                    max_output(t, xi, y, index, p, o, &r, c0, n);
                } else {
                    average_output(t, xi, y, p, o, &r, c0, n);
                }
            }
        }
    }
}

/* The place of `cell` of output o in a channel image. */
static int64_t place_of(const Plan *t, const int64_t o[3], int32_t cell, int by_columns) {
    int64_t k[3] = {cell / (t->a[1].k * t->a[2].k), cell / t->a[2].k % t->a[1].k, cell % t->a[2].k};
    if (!by_columns) return input_at(t, o, k[0], k[1], k[2]);
    int64_t at = 0;
    for (int i = 3; i-- > 0;)
        at = at * t->a[i].in + o[i] * t->a[i].stride - t->a[i].lo + k[i] * t->a[i].dil;
    return at;
}

/* Output rows [lo, hi) of images of one channel. */
KERNEL place_rows(const Plan *t, const float *x, int64_t *place, int by_columns, int64_t lo,
                  int64_t hi) {
    int64_t image = t->a[0].in * t->a[1].in * t->a[2].in, rows = t->a[0].out * t->a[1].out;
    for (int64_t row = lo; row < hi; row++) {
        int64_t o[3] = {row % rows / t->a[1].out, row % t->a[1].out, 0}, n = row / rows;
        for (; o[2] < t->a[2].out; o[2]++) {
            Cells r;
            float best;
            int32_t arg = -1;
            for (int i = 0; i < 3; i++) window_of(t, i, o[i], 0, &r);
            max_block(t, x + n * image, o, &r, 1, &best, &arg);
            place[row * t->a[2].out + o[2]] =
                arg < 0 ? 0 : n * image + place_of(t, o, arg, by_columns);
        }
    }
}

/* ---- gradients ---- */

/* Adds dy of output position q (in elements) to d where its maximum came from `cell`. */
KERNEL_INLINE void add_if(const Plan *t, const float *dy, const void *index, int64_t q,
                          int32_t cell, float *d) {
    int64_t n = t->c;
    if (t->wide) {
        const int32_t *ix = (const int32_t *)index + q;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) d[j] += ix[j] == cell ? dy[q + j] : 0.0f;
    } else {
        const uint8_t *ix = (const uint8_t *)index + q;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) d[j] += (int32_t)ix[j] == cell ? dy[q + j] : 0.0f;
    }
}

/* Shares of one output row (its first position is q0; cells (kd, kh, *)) in a row of dx. */
KERNEL_INLINE void add_row(const Plan *t, const float *dy, const void *index, const int64_t row[2],
                           int64_t q0, int64_t plane, float *d) {
    const Axis *a = &t->a[2];
    int64_t o[3] = {row[0], row[1], 0};
    for (; o[2] < a->out; o[2]++) {
        int64_t first, end, q = (q0 + o[2]) * t->c, base = o[2] * a->stride - a->lo;
        window(a, o[2], 0, 0, &first, &end);
        float weight = index ? 0.0f : (float)weight_of(t, o);
        for (int64_t w = first; w < end; w++) {
            float *to = d + (base + w * a->dil) * t->c;
            if (index) {
                add_if(t, dy, index, q, (int32_t)(plane * a->k + w), to);
                continue;
            }
#pragma omp simd
            for (int64_t j = 0; j < t->c; j++) to[j] += dy[q + j] * weight;
        }
    }
}

/* Rows [lo, hi) of dx. */
KERNEL pool_grad_rows(const Plan *t, const float *dy, const void *index, float *dx, int64_t lo,
                      int64_t hi) {
    int64_t rows = t->a[0].in * t->a[1].in, width = t->a[2].in * t->c;
    for (int64_t row = lo; row < hi; row++) {
        int64_t id = row % rows / t->a[1].in, ih = row % t->a[1].in, first[2], end[2], o[2];
        float *d = dx + row * width;
        memset(d, 0, (size_t)width * sizeof *d);
        covering(&t->a[0], id, &first[0], &end[0]);
        covering(&t->a[1], ih, &first[1], &end[1]);
        for (o[0] = first[0]; o[0] < end[0]; o[0]++) {
            int64_t kd = cell_of(&t->a[0], id, o[0]);
            for (o[1] = first[1]; kd >= 0 && o[1] < end[1]; o[1]++) {
                int64_t kh = cell_of(&t->a[1], ih, o[1]);
                int64_t q = ((row / rows * t->a[0].out + o[0]) * t->a[1].out + o[1]) * t->a[2].out;
                if (kh >= 0) add_row(t, dy, index, o, q, kd * t->a[1].k + kh, d);
            }
        }
    }
}

/* ---- entry points ---- */

uint64_t dtrt_pool_index_bytes(const DtrtPool *p) {
    assert(p->nd >= 1 && p->nd <= 3 && cells(p) <= INT32_MAX);
    uint64_t n = (uint64_t)(p->n * p->c);
    for (int i = 0; i < p->nd; i++) n *= (uint64_t)p->out[i];
    return !p->is_max ? 0 : n * (cells(p) > NONE8 ? 4 : 1);
}

void dtrt_pool_forward(const DtrtPool *p, const float *x, float *y, void *index) {
    Plan t = plan_of(p);
    int64_t rows = t.n * t.a[0].out * t.a[1].out;
    assert(!p->is_max || index);
    KERNEL_SPLIT(rows, 1, rows * t.a[2].out * t.c * cells(p),
                 pool_rows(&t, x, y, p->is_max ? index : NULL, lo, hi));
}

void dtrt_pool_places(const DtrtPool *p, const float *x, int64_t *place, int by_columns) {
    Plan t = plan_of(p);
    int64_t rows = t.n * t.a[0].out * t.a[1].out;
    assert(!p->channels_last && p->is_max);
    KERNEL_SPLIT(rows, 1, rows * t.a[2].out * cells(p),
                 place_rows(&t, x, place, by_columns, lo, hi));
}

void dtrt_pool_grad(const DtrtPool *p, const float *dy, const void *index, float *dx) {
    Plan t = plan_of(p);
    int64_t rows = t.n * t.a[0].in * t.a[1].in;
    assert(!p->is_max || index);
    KERNEL_SPLIT(rows, 1, rows * t.a[2].in * t.c,
                 pool_grad_rows(&t, dy, p->is_max ? index : NULL, dx, lo, hi));
}
