/* attention_rows.h - private to attention.c: what is done to rows of scores between the products.
 *
 * Scores become probabilities and two numbers a row are saved; the gradient makes the same
 * probabilities P from these and turns the gradient of P into that of the scores. Dropout draws its
 * numbers again in the gradient: a row's are marked by the sign of P, which is never negative, so
 * that they are drawn once a pass and need no memory. */
#ifndef DTRT_ATTENTION_ROWS_H
#define DTRT_ATTENTION_ROWS_H

#include "dtrt_kernels.h"
#include "dtrt_vecmath.h"
#include "kernel.h"

#include <stdbool.h>
#include <string.h>

/* Dropout; scale 0: there is none. */
typedef struct {
    uint64_t seed, step;
    uint32_t key, threshold;
    float scale;
} Drop;

typedef struct {
    const DtrtAttention *m;
    int64_t head, row, rows; /* the block's first head and row, its rows of a head */
    const float *add;
    const uint8_t *cond;
    float *stats, *dscores;
    Drop drop;
} Rows;

/* The row of a mask whose axes `dim` are those of the scores or 1. */
static int64_t mask_row(const DtrtAttention *m, const int64_t *dim, int64_t head, int64_t row) {
    int64_t at = dim[m->nbatch] > 1 ? row : 0, stride = dim[m->nbatch];
    for (int i = m->nbatch; i-- > 0;) {
        if (dim[i] > 1) at += head % m->batch[i] * stride;
        stride *= dim[i];
        head /= m->batch[i];
    }
    return at * m->keys;
}

typedef struct {
    const float *add;    /* NULL: none */
    const uint8_t *cond; /* as add */
    int64_t stats;       /* number of the row in all rows */
} Row;

static Row row_of(const Rows *r, int64_t i) {
    int64_t head = r->head + i / r->rows, row = r->row + i % r->rows;
    Row x = {.stats = head * r->m->rows + row};
    if (r->add) x.add = r->add + mask_row(r->m, r->m->add_dim, head, row);
    if (r->cond) x.cond = r->cond + mask_row(r->m, r->m->cond_dim, head, row);
    return x;
}

/* s = mask(alpha * s) */
KERNEL_INLINE void masked_row(const DtrtAttention *m, const Row *x, float *s) {
    float alpha = m->alpha, fill = m->fill;
    int hides = m->cond == DTRT_ATTENTION_HIDES;
#pragma omp simd
    for (int64_t j = 0; j < m->keys; j++) s[j] *= alpha;
    if (x->cond) {
#pragma omp simd
        for (int64_t j = 0; j < m->keys; j++) s[j] = (x->cond[j] != 0) == hides ? fill : s[j];
    }
    if (x->add) {
#pragma omp simd
        for (int64_t j = 0; j < m->keys; j++) s[j] += x->add[j];
    }
}

/* Makes those of n probabilities negative that are dropped; the first has number `at` among all.
 * (What is not a number stays, and is not dropped.) */
KERNEL_INLINE void mark_dropped(const Drop *d, float *s, int64_t n, uint64_t at) {
    int64_t head = kernel_min((int64_t)(-at & 3), n), blocks = (n - head) / 4;
    for (int64_t j = 0; j < head; j++)
        if (!dtrt_keep(d->seed, d->step, d->key, at + (uint64_t)j, d->threshold)) s[j] = -s[j];
    s += head, at += (uint64_t)head, n -= head;
#pragma omp simd
    for (int64_t b = 0; b < blocks; b++) {
        uint32_t w[4];
        dtrt_random4(d->seed, d->step, d->key, at / 4 + (uint64_t)b, w);
        for (int k = 0; k < 4; k++) s[4 * b + k] *= w[k] >= d->threshold ? 1.0f : -1.0f;
    }
    for (int64_t j = 4 * blocks; j < n; j++)
        if (!dtrt_keep(d->seed, d->step, d->key, at + (uint64_t)j, d->threshold)) s[j] = -s[j];
}

/* Marked probabilities with 0 for those that are dropped. */
KERNEL_INLINE void drop_marked(const Drop *d, float *s, int64_t n) {
    float scale = d->scale;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) s[j] = s[j] < 0.0f ? 0.0f : s[j] * scale;
}

/* Scores to probabilities. */
KERNEL probability_rows(float *scores, const Rows *r, int64_t lo, int64_t hi) {
    int64_t n = r->m->keys;
    for (int64_t i = lo; i < hi; i++) {
        float *s = scores + i * n;
        Row x = row_of(r, i);
        masked_row(r->m, &x, s);
        float top = kernel_max(s, n);
        double sum = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) {
            float e = dtrt_expf(s[j] - top);
            s[j] = e;
            sum += (double)e;
        }
        float scale = (float)(1.0 / sum);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) s[j] *= scale;
        if (r->drop.scale > 0.0f) {
            mark_dropped(&r->drop, s, n, (uint64_t)(x.stats * n));
            drop_marked(&r->drop, s, n);
        }
        r->stats[2 * x.stats] = top;
        r->stats[2 * x.stats + 1] = scale;
    }
}

/* Scores to probabilities, by what the forward pass saved, with marks where they are dropped; d to
 * dP. The sum of P times dP. */
KERNEL_INLINE float probabilities_again(const Rows *r, const Row *x, float *s, float *d) {
    int64_t n = r->m->keys;
    float top = r->stats[2 * x->stats], scale = r->stats[2 * x->stats + 1], up = r->drop.scale;
    double sum = 0.0;
    masked_row(r->m, x, s);
    if (up <= 0.0f) {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; j++) {
            s[j] = dtrt_expf(s[j] - top) * scale;
            sum += (double)(s[j] * d[j]);
        }
        return (float)sum;
    }
#pragma omp simd
    for (int64_t j = 0; j < n; j++) s[j] = dtrt_expf(s[j] - top) * scale;
    mark_dropped(&r->drop, s, n, (uint64_t)(x->stats * n));
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        d[j] = s[j] < 0.0f ? 0.0f : d[j] * up;
        sum += (double)(s[j] * d[j]);
    }
    return (float)sum;
}

/* Scores to D(P), what V' is multiplied with; d: the product of dY and V' to dS. */
KERNEL gradient_rows(float *scores, float *dprob, const Rows *r, int64_t lo, int64_t hi) {
    int64_t n = r->m->keys;
    float alpha = r->m->alpha;
    for (int64_t i = lo; i < hi; i++) {
        float *s = scores + i * n, *d = dprob + i * n;
        Row x = row_of(r, i);
        float mean = probabilities_again(r, &x, s, d);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) d[j] = fabsf(s[j]) * (d[j] - mean);
        if (r->dscores) memcpy(r->dscores + x.stats * n, d, (size_t)n * sizeof *d);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) d[j] *= alpha;
        if (r->drop.scale > 0.0f) drop_marked(&r->drop, s, n);
        if (!x.cond) continue;
        int hides = r->m->cond == DTRT_ATTENTION_HIDES;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) d[j] = (x.cond[j] != 0) == hides ? 0.0f : d[j];
    }
}

#endif
