/* attention_case.h - attention by its definition, in double, for the tests of both targets: cases
 * of both layouts of K, masks of several shapes, dropout, and one query after another. */
#ifndef ATTENTION_CASE_H
#define ATTENTION_CASE_H

#include "dtrt_kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int nbatch;
    int64_t batch[6], rows, keys, depth, width;
    int trans_k, add, cond;
    int64_t add_dim[7], cond_dim[7];
    float fill, ratio;
    bool wants_mask; /* the gradient of the masked scores too */
} Case;

#define MINUS (-INFINITY)
static const Case small_cases[] = {
    {"plain", 0, {0}, 5, 7, 4, 3, 0, 0, 0, {0}, {0}, 0, 0, false},
    {"one key", 1, {3}, 4, 1, 2, 5, 1, 0, 0, {0}, {0}, 0, 0, true},
    {"one query", 1, {3}, 1, 9, 8, 8, 0, 0, 0, {0}, {0}, 0, 0, false},
    {"heads", 2, {2, 3}, 17, 17, 8, 8, 1, 0, 0, {0}, {0}, 0, 0, false},
    {"mask of all", 2, {2, 3}, 6, 9, 8, 4, 1, 1, 0, {2, 3, 6}, {0}, 0, 0, true},
    {"mask of a batch", 2, {2, 3}, 6, 9, 8, 4, 0, 1, 0, {2, 1, 1}, {0}, 0, 0, false},
    {"mask of a head", 2, {2, 3}, 6, 9, 8, 4, 0, 1, 0, {1, 3, 6}, {0}, 0, 0, true},
    {"causal", 2, {2, 3}, 11, 11, 8, 8, 1, 0, 1, {0}, {1, 1, 11}, MINUS, 0, false},
    {"shown", 2, {2, 3}, 11, 11, 8, 8, 1, 0, 2, {0}, {2, 1, 1}, -1e9f, 0, false},
    {"finite fill", 1, {4}, 7, 6, 5, 4, 0, 0, 1, {0}, {4, 7}, 0.5f, 0, true},
    {"both", 3, {2, 2, 2}, 7, 6, 5, 4, 1, 1, 1, {1, 2, 1, 7}, {2, 1, 1, 1}, MINUS, 0, true},
    {"dropout", 2, {2, 3}, 7, 13, 8, 8, 1, 0, 0, {0}, {0}, 0, 0.25f, false},
    {"dropout, few keys", 1, {3}, 5, 2, 4, 4, 0, 0, 0, {0}, {0}, 0, 0.5f, true},
    {"dropout, causal",
     2,
     {2, 3},
     11,
     11,
     8,
     8,
     1,
     1,
     1,
     {1, 3, 11},
     {1, 1, 11},
     MINUS,
     0.1f,
     true},
    {"dropout, finite", 1, {4}, 7, 66, 5, 4, 0, 0, 1, {0}, {4, 7}, 0.5f, 0.75f, false},
};

enum { Q, K, V, DY, INPUTS, Y = 0, STATS, DQ, DK, DV, DSCORES, OUTPUTS };
enum { DROP_KEY = 7 };

/* What is on the host; the step's seed and number are the test's. */
typedef struct {
    int64_t nin[INPUTS], nout[OUTPUTS], nadd, ncond;
    float *in[INPUTS], *add;
    uint8_t *cond;
    double *want[OUTPUTS];
    uint64_t seed, step;
} Host;

static inline int64_t heads_of(const Case *c) {
    int64_t n = 1;
    for (int i = 0; i < c->nbatch; i++) n *= c->batch[i];
    return n;
}

static inline int64_t mask_rows(const Case *c, const int64_t *dim) {
    int64_t n = 1;
    for (int i = 0; i <= c->nbatch; i++) n *= dim[i];
    return n;
}

/* The element of a mask for a score. */
static inline int64_t mask_at(const Case *c, const int64_t *dim, int64_t head, int64_t row,
                              int64_t key) {
    int64_t at = 0, pos[7], stride = 1;
    for (int i = c->nbatch; i-- > 0; head /= c->batch[i]) pos[i] = head % c->batch[i];
    pos[c->nbatch] = row;
    for (int i = c->nbatch; i >= 0; i--) {
        at += dim[i] == 1 ? 0 : pos[i] * stride;
        stride *= dim[i];
    }
    return at * c->keys + key;
}

static inline double key_at(const Case *c, const float *k, int64_t head, int64_t key,
                            int64_t part) {
    k += head * c->keys * c->depth;
    return (double)k[c->trans_k ? part * c->keys + key : key * c->depth + part];
}

/* Probabilities of one query; hidden[j]: key j was filled. */
static inline void probabilities(const Case *c, const Host *x, int64_t h, int64_t i, double *p,
                                 int *hidden) {
    double top = -INFINITY, sum = 0;
    const float *q = x->in[Q] + (h * c->rows + i) * c->depth;
    for (int64_t j = 0; j < c->keys; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < c->depth; d++)
            p[j] += 0.25 * (double)q[d] * key_at(c, x->in[K], h, j, d);
        bool is = c->cond && x->cond[mask_at(c, c->cond_dim, h, i, j)];
        hidden[j] = c->cond && is == (c->cond == DTRT_ATTENTION_HIDES);
        if (hidden[j]) p[j] = (double)c->fill;
        if (c->add) p[j] += (double)x->add[mask_at(c, c->add_dim, h, i, j)];
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < c->keys; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = 0; j < c->keys; j++) p[j] /= sum;
}

/* What dropout multiplies a probability with. */
static inline double kept(const Case *c, const Host *x, int64_t row, int64_t key) {
    uint64_t at = (uint64_t)(row * c->keys + key);
    return (double)dtrt_dropout(1.0f, c->ratio, x->seed, x->step, DROP_KEY, at);
}

static inline void reference(const Case *c, Host *x) {
    int64_t t = c->keys, w = c->width;
    double *p = calloc((size_t)t, sizeof *p), *d = calloc((size_t)t, sizeof *d), **want = x->want;
    int *hidden = calloc((size_t)t, sizeof *hidden);
    if (!p || !d || !hidden) abort();
    for (int64_t r = 0; r < heads_of(c) * c->rows; r++) {
        int64_t h = r / c->rows;
        const float *dy = x->in[DY] + r * w, *v = x->in[V] + h * t * w;
        double sum = 0;
        probabilities(c, x, h, r % c->rows, p, hidden);
        for (int64_t j = 0; j < t; j++) {
            double keep = c->ratio > 0 ? kept(c, x, r, j) : 1;
            d[j] = 0;
            for (int64_t e = 0; e < w; e++) {
                want[Y][r * w + e] += keep * p[j] * (double)v[j * w + e];
                want[DV][(h * t + j) * w + e] += keep * p[j] * (double)dy[e];
                d[j] += keep * (double)dy[e] * (double)v[j * w + e];
            }
            sum += d[j] * p[j];
        }
        for (int64_t j = 0; j < t; j++) {
            double all = p[j] * (d[j] - sum), ds = hidden[j] ? 0 : 0.25 * all;
            want[DSCORES][r * t + j] = all;
            for (int64_t e = 0; e < c->depth; e++) {
                int64_t at = h * t * c->depth + (c->trans_k ? e * t + j : j * c->depth + e);
                want[DQ][r * c->depth + e] += ds * key_at(c, x->in[K], h, j, e);
                want[DK][at] += ds * (double)x->in[Q][r * c->depth + e];
            }
        }
    }
    free(p);
    free(d);
    free(hidden);
}

static inline DtrtAttention object_of(const Case *c, int grad) {
    DtrtAttention m = {.grad = grad, .nbatch = c->nbatch, .trans_k = c->trans_k, .add = c->add};
    m.cond = c->cond, m.alpha = 0.25f, m.fill = c->fill, m.ratio = c->ratio;
    m.rows = c->rows, m.keys = c->keys, m.depth = c->depth, m.width = c->width;
    memcpy(m.batch, c->batch, sizeof m.batch);
    memcpy(m.add_dim, c->add_dim, sizeof m.add_dim);
    memcpy(m.cond_dim, c->cond_dim, sizeof m.cond_dim);
    return m;
}

static inline float draw(void) {
    static uint32_t seed = 12345;
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
}

static inline float *random_floats(int64_t n) {
    float *f = malloc((size_t)n * sizeof *f);
    if (!f) abort();
    for (int64_t i = 0; i < n; i++) f[i] = draw();
    return f;
}

static inline Host make_host(const Case *c) {
    Host x = {.nadd = c->add ? mask_rows(c, c->add_dim) * c->keys : 1,
              .ncond = c->cond ? mask_rows(c, c->cond_dim) * c->keys : 1};
    int64_t h = heads_of(c), nq = h * c->rows * c->depth, ny = h * c->rows * c->width;
    int64_t nk = h * c->keys * c->depth, nv = h * c->keys * c->width;
    memcpy(x.nin, (int64_t[]){nq, nk, nv, ny}, sizeof x.nin);
    memcpy(x.nout, (int64_t[]){ny, 2 * h * c->rows, nq, nk, nv, h * c->rows * c->keys},
           sizeof x.nout);
    for (int i = 0; i < INPUTS; i++) x.in[i] = random_floats(x.nin[i]);
    for (int i = 0; i < OUTPUTS; i++) {
        x.want[i] = calloc((size_t)x.nout[i], sizeof *x.want[i]);
        if (!x.want[i]) abort();
    }
    x.add = random_floats(x.nadd);
    x.cond = malloc((size_t)x.ncond);
    if (!x.cond) abort();
    for (int64_t i = 0; i < x.ncond; i++) { /* the first key of a row is never hidden */
        bool hide = i % c->keys && draw() < 0;
        x.cond[i] = hide == (c->cond == DTRT_ATTENTION_HIDES);
    }
    return x;
}

static inline void free_host(Host *x) {
    for (int i = 0; i < INPUTS; i++) free(x->in[i]);
    for (int i = 0; i < OUTPUTS; i++) free(x->want[i]);
    free(x->add);
    free(x->cond);
}

#endif
