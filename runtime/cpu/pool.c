/* pool.c - max and average pooling over 1 to 3 axes, and their gradients. Own loops throughout:
 * they follow ONNX's ceil_mode, dilation and padding rules, and save the position of a maximum in
 * one byte.
 *
 * Images are [n, d, h, w, c] with missing axes of size 1; channels first is the same with n*c
 * images of one channel. Forward: for each output, blocks of channels run over the cells of the
 * window. Gradients gather: each input sums over the outputs whose windows hold it, in order of
 * outputs, so that every element is written once, nothing is zeroed first and any split over
 * threads gives the same bits.
 *
 * Rules: NaN is larger than any number, the first of equal cells wins (as in PyTorch). The index is
 * the number of the cell in the window; NONE marks a window without any cell inside (its maximum is
 * -inf). An average counts the cells inside the image, or, with count_include_pad, inside image and
 * padding: cells that ceil_mode adds beyond the padding never count. No workspace. */
#include "dtrt_cpu.h"
#include "kernel.h"

#include <assert.h>
#include <stdio.h>

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

/* Outputs whose window may hold input i: [first, end). Which cell: cell_of, -1 for none. */
static inline void covering(const Axis *a, int64_t i, int64_t *first, int64_t *end) {
    int64_t reach = i + a->lo - (a->k - 1) * a->dil;
    *first = reach <= 0 ? 0 : (reach + a->stride - 1) / a->stride;
    *end = kernel_min((i + a->lo) / a->stride + 1, a->out);
}
static inline int64_t cell_of(const Axis *a, int64_t i, int64_t o) {
    int64_t d = i + a->lo - o * a->stride;
    return d >= 0 && d % a->dil == 0 && d / a->dil < a->k ? d / a->dil : -1;
}

/* A position in three axes. */
typedef struct {
    int64_t d, h, w;
} Pos;

static inline Pos pos_at(int64_t i, const int64_t h, const int64_t w) {
    return (Pos){i / (h * w), i / w % h, i % w};
}

/* Range of cells in each axis. */
typedef struct {
    Pos first, end;
} Cells;

static inline Cells cells_inside(const Plan *t, Pos o, int with_pad) {
    Cells c;
    window(&t->a[0], o.d, with_pad ? t->a[0].lo : 0, with_pad ? t->a[0].hi : 0, &c.first.d,
           &c.end.d);
    window(&t->a[1], o.h, with_pad ? t->a[1].lo : 0, with_pad ? t->a[1].hi : 0, &c.first.h,
           &c.end.h);
    window(&t->a[2], o.w, with_pad ? t->a[2].lo : 0, with_pad ? t->a[2].hi : 0, &c.first.w,
           &c.end.w);
    return c;
}

/* Start of the input image position under cell (d, h, w) of output o, in elements. */
static inline int64_t input_at(const Plan *t, int64_t image, Pos o, Pos k) {
    int64_t d = o.d * t->a[0].stride - t->a[0].lo + k.d * t->a[0].dil;
    int64_t h = o.h * t->a[1].stride - t->a[1].lo + k.h * t->a[1].dil;
    int64_t w = o.w * t->a[2].stride - t->a[2].lo + k.w * t->a[2].dil;
    return (((image * t->a[0].in + d) * t->a[1].in + h) * t->a[2].in + w) * t->c;
}

/* ---- max ---- */

static inline void max_block(const Plan *t, const float *x, int64_t image, Pos o, const Cells *r,
                             int64_t c0, int64_t n, float *best, int32_t *arg) {
    for (int64_t j = 0; j < n; j++) {
        best[j] = -INFINITY;
        arg[j] = -1;
    }
    for (Pos k = r->first; k.d < r->end.d; k.d++) {
        for (k.h = r->first.h; k.h < r->end.h; k.h++) {
            for (k.w = r->first.w; k.w < r->end.w; k.w++) {
                const float *v = x + input_at(t, image, o, k) + c0;
                int32_t cell = (int32_t)((k.d * t->a[1].k + k.h) * t->a[2].k + k.w);
#pragma omp simd
                for (int64_t j = 0; j < n; j++) {
                    int take = arg[j] < 0 || v[j] > best[j] || v[j] != v[j];
                    best[j] = take ? v[j] : best[j];
                    arg[j] = take ? cell : arg[j];
                }
            }
        }
    }
}

KERNEL max_forward(const Plan *t, const float *x, float *y, void *index, int64_t lo, int64_t hi) {
    int64_t space = t->a[0].out * t->a[1].out * t->a[2].out;
    float best[BLOCK];
    int32_t arg[BLOCK];
    for (int64_t p = lo; p < hi; p++) {
        Pos o = pos_at(p % space, t->a[1].out, t->a[2].out);
        Cells r = cells_inside(t, o, 0);
        for (int64_t c0 = 0; c0 < t->c; c0 += BLOCK) {
            int64_t n = kernel_min(BLOCK, t->c - c0), at = p * t->c + c0;
            max_block(t, x, p / space, o, &r, c0, n, best, arg);
            for (int64_t j = 0; j < n; j++) y[at + j] = best[j];
            if (t->wide) {
                for (int64_t j = 0; j < n; j++) ((int32_t *)index)[at + j] = arg[j];
            } else {
                for (int64_t j = 0; j < n; j++) ((uint8_t *)index)[at + j] = (uint8_t)arg[j];
            }
        }
    }
}

/* Adds dy of output position q (in elements) where its maximum came from `cell`. */
static inline void add_if(const Plan *t, const float *dy, const void *index, int64_t q, int64_t n,
                          int32_t cell, float *acc) {
    if (t->wide) {
        const int32_t *ix = (const int32_t *)index + q;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) acc[j] += ix[j] == cell ? dy[q + j] : 0.0f;
    } else {
        const uint8_t *ix = (const uint8_t *)index + q;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) acc[j] += (int32_t)ix[j] == cell ? dy[q + j] : 0.0f;
    }
}

/* ---- average ---- */

static inline int64_t count_cells(const Cells *r) {
    return (r->end.d - r->first.d) * (r->end.h - r->first.h) * (r->end.w - r->first.w);
}

/* 1 / number of cells that count for output o; 0 for none. */
static inline double weight_of(const Plan *t, Pos o) {
    Cells r = cells_inside(t, o, t->include_pad);
    int64_t count = count_cells(&r);
    return count ? 1.0 / (double)count : 0.0;
}

KERNEL average_forward(const Plan *t, const float *x, float *y, int64_t lo, int64_t hi) {
    int64_t space = t->a[0].out * t->a[1].out * t->a[2].out;
    double sum[BLOCK];
    for (int64_t p = lo; p < hi; p++) {
        Pos o = pos_at(p % space, t->a[1].out, t->a[2].out);
        Cells r = cells_inside(t, o, 0);
        double weight = weight_of(t, o);
        for (int64_t c0 = 0; c0 < t->c; c0 += BLOCK) {
            int64_t n = kernel_min(BLOCK, t->c - c0);
            for (int64_t j = 0; j < n; j++) sum[j] = 0.0;
            for (Pos k = r.first; k.d < r.end.d; k.d++) {
                for (k.h = r.first.h; k.h < r.end.h; k.h++) {
                    for (k.w = r.first.w; k.w < r.end.w; k.w++) {
                        const float *v = x + input_at(t, p / space, o, k) + c0;
#pragma omp simd
                        for (int64_t j = 0; j < n; j++) sum[j] += (double)v[j];
                    }
                }
            }
            for (int64_t j = 0; j < n; j++) y[p * t->c + c0 + j] = (float)(sum[j] * weight);
        }
    }
}

/* ---- gradients ---- */

/* Block c0.. of input position p: sums over the outputs that hold it. */
static inline void grad_block(const Plan *t, const float *dy, const void *index, int64_t image,
                              Pos i, const Pos first, const Pos end, int64_t c0, int64_t n,
                              float *acc) {
    for (int64_t j = 0; j < n; j++) acc[j] = 0.0f;
    for (Pos o = first; o.d < end.d; o.d++) {
        int64_t kd = cell_of(&t->a[0], i.d, o.d);
        for (o.h = first.h; kd >= 0 && o.h < end.h; o.h++) {
            int64_t kh = cell_of(&t->a[1], i.h, o.h);
            for (o.w = first.w; kh >= 0 && o.w < end.w; o.w++) {
                int64_t kw = cell_of(&t->a[2], i.w, o.w);
                if (kw < 0) continue;
                int64_t row = (image * t->a[0].out + o.d) * t->a[1].out + o.h;
                int64_t q = (row * t->a[2].out + o.w) * t->c + c0;
                if (index) {
                    int32_t cell = (int32_t)((kd * t->a[1].k + kh) * t->a[2].k + kw);
                    add_if(t, dy, index, q, n, cell, acc);
                } else {
                    float weight = (float)weight_of(t, o);
#pragma omp simd
                    for (int64_t j = 0; j < n; j++) acc[j] += dy[q + j] * weight;
                }
            }
        }
    }
}

KERNEL pool_backward(const Plan *t, const float *dy, const void *index, float *dx, int64_t lo,
                     int64_t hi) {
    int64_t space = t->a[0].in * t->a[1].in * t->a[2].in;
    float acc[BLOCK];
    for (int64_t p = lo; p < hi; p++) {
        Pos i = pos_at(p % space, t->a[1].in, t->a[2].in), first, end;
        covering(&t->a[0], i.d, &first.d, &end.d);
        covering(&t->a[1], i.h, &first.h, &end.h);
        covering(&t->a[2], i.w, &first.w, &end.w);
        for (int64_t c0 = 0; c0 < t->c; c0 += BLOCK) {
            int64_t n = kernel_min(BLOCK, t->c - c0);
            grad_block(t, dy, index, p / space, i, first, end, c0, n, acc);
            for (int64_t j = 0; j < n; j++) dx[p * t->c + c0 + j] = acc[j];
        }
    }
}

/* ---- entry points ---- */

bool dtrt_pool_needs(const DtrtPool *p, int threads, DtrtPoolNeeds *out, char *err, size_t nerr) {
    (void)threads;
    uint64_t n = (uint64_t)(p->n * p->c);
    if (p->nd < 1 || p->nd > 3 || cells(p) > INT32_MAX) {
        snprintf(err, nerr, "pooling over %d axes, %lld cells: expected 1 to 3 axes", p->nd,
                 (long long)cells(p));
        return false;
    }
    for (int i = 0; i < p->nd; i++) n *= (uint64_t)p->out[i];
    *out = (DtrtPoolNeeds){.index_bytes = !p->is_max ? 0 : n * (cells(p) > NONE8 ? 4 : 1)};
    return true;
}

bool dtrt_pool_init(DtrtPool *p, int threads) {
    (void)p;
    (void)threads;
    return true;
}

void dtrt_pool_forward(const DtrtPool *p, const float *x, float *y, void *index, void *ws) {
    Plan t = plan_of(p);
    int64_t n = t.n * t.a[0].out * t.a[1].out * t.a[2].out;
    (void)ws;
    if (p->is_max) {
        assert(index);
        KERNEL_SPLIT(n, 1, n * t.c * cells(p), max_forward(&t, x, y, index, lo, hi));
    } else {
        KERNEL_SPLIT(n, 1, n * t.c * cells(p), average_forward(&t, x, y, lo, hi));
    }
}

void dtrt_pool_grad(const DtrtPool *p, const float *dy, const void *index, float *dx, void *ws) {
    Plan t = plan_of(p);
    int64_t n = t.n * t.a[0].in * t.a[1].in * t.a[2].in;
    (void)ws;
    assert(!p->is_max || index);
    KERNEL_SPLIT(n, 1, n * t.c * 4, pool_backward(&t, dy, p->is_max ? index : NULL, dx, lo, hi));
}
