/* nest.h - private to runtime/cpu: the axes of a reduction, kept and reduced ones apart.
 * Neighbouring axes of one kind merge, so that both kinds alternate. */
#ifndef DTRT_NEST_H
#define DTRT_NEST_H

#include <assert.h>
#include <stdint.h>

enum { NEST_MAX_ND = 8 };

/* Kept and reduced axes apart from the innermost one, each with its stride in x. */
typedef struct {
    int nkeep, nred;
    int64_t keep[NEST_MAX_ND], keep_stride[NEST_MAX_ND], red[NEST_MAX_ND], red_stride[NEST_MAX_ND];
    int64_t keeps, reds; /* products of keep, of red */
    int64_t inner;       /* innermost axis */
    int last_red;        /* it is reduced */
    int all;             /* there is but one axis, and it is reduced */
    int64_t total;       /* elements of x */
} Nest;

static inline int nest_merge(int nd, const int64_t *dim, const uint8_t *red, int64_t *size,
                             int *is_red) {
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

static inline Nest nest_new(int nd, const int64_t *dim, const uint8_t *red) {
    int64_t size[NEST_MAX_ND] = {1};
    int is_red[NEST_MAX_ND] = {0};
    assert(nd <= NEST_MAX_ND);
    int merged = nest_merge(nd, dim, red, size, is_red), n = merged ? merged : 1;
    Nest t = {.keeps = 1, .reds = 1, .inner = size[n - 1], .last_red = is_red[n - 1], .total = 1};
    int64_t stride = size[n - 1];
    for (int i = n - 1; i-- > 0;) {
        if (is_red[i]) {
            t.red[t.nred] = size[i];
            t.red_stride[t.nred++] = stride;
            t.reds *= size[i];
        } else {
            t.keep[t.nkeep] = size[i];
            t.keep_stride[t.nkeep++] = stride;
            t.keeps *= size[i];
        }
        stride *= size[i];
    }
    t.total = stride;
    t.all = n == 1 && is_red[0];
    return t;
}

/* Offset of item i of axes listed innermost first. */
static inline int64_t nest_offset(int n, const int64_t *size, const int64_t *stride, int64_t i) {
    int64_t at = 0;
    for (int k = 0; k < n; k++) {
        at += i % size[k] * stride[k];
        i /= size[k];
    }
    return at;
}
static inline int64_t nest_kept(const Nest *t, int64_t i) {
    return nest_offset(t->nkeep, t->keep, t->keep_stride, i);
}
static inline int64_t nest_reduced(const Nest *t, int64_t i) {
    return nest_offset(t->nred, t->red, t->red_stride, i);
}

#endif
