/* movement.c - reference of operators that move elements: Reshape, Copy, Transpose, Concat, Slice,
 * Pad, Gather, Fill. Each result element is traced back to where it comes from. */
#include "ref.h"

#include <string.h>

static void run_copy(const RefCall *c) {
    memcpy(c->y[0], dtrt_ref_in(c, 0), dtrt_ref_count(dtrt_ref_out_shape(c, 0)) * sizeof(double));
}

static void run_fill(const RefCall *c) {
    double value = dtrt_ref_f(c->n, "value", 0);
    uint64_t n = dtrt_ref_count(dtrt_ref_out_shape(c, 0));
    for (uint64_t i = 0; i < n; i++) c->y[0][i] = value;
}

/* Coordinates of linear index i. */
static void unravel(const DtrtRefValue *s, uint64_t i, int64_t *at) {
    for (int k = s->rank - 1; k >= 0; k--) {
        at[k] = (int64_t)(i % (uint64_t)s->dim[k]);
        i /= (uint64_t)s->dim[k];
    }
}

static uint64_t ravel(const DtrtRefValue *s, const int64_t *at) {
    uint64_t i = 0;
    for (int k = 0; k < s->rank; k++) i = i * (uint64_t)s->dim[k] + (uint64_t)at[k];
    return i;
}

static void run_transpose(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0), *y = dtrt_ref_out_shape(c, 0);
    const double *in = dtrt_ref_in(c, 0);
    uint32_t rank;
    const int64_t *perm = dtrt_ref_ints(c->n, "perm", &rank);
    uint64_t n = dtrt_ref_count(y);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at[DTRT_MAX_RANK], from[DTRT_MAX_RANK];
        unravel(y, i, at);
        for (uint32_t k = 0; k < rank; k++) from[perm[k]] = at[k];
        c->y[0][i] = in[ravel(x, from)];
    }
}

static void run_slice(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0), *y = dtrt_ref_out_shape(c, 0);
    const double *in = dtrt_ref_in(c, 0);
    uint32_t rank;
    const int64_t *start = dtrt_ref_ints(c->n, "starts", &rank);
    const int64_t *step = dtrt_ref_ints(c->n, "steps", &rank);
    uint64_t n = dtrt_ref_count(y);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at[DTRT_MAX_RANK];
        unravel(y, i, at);
        for (uint32_t k = 0; k < rank; k++) at[k] = start[k] + at[k] * step[k];
        c->y[0][i] = in[ravel(x, at)];
    }
}

/* Where padded position at comes from along one axis of size n; false: from the constant. */
static bool pad_source(int64_t *at, int64_t n, int64_t mode) {
    if (*at >= 0 && *at < n) return true;
    if (mode == 1) *at = *at < 0 ? -*at : 2 * (n - 1) - *at;
    if (mode == 2) *at = *at < 0 ? 0 : n - 1;
    return mode != 0;
}

static void run_pad(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0), *y = dtrt_ref_out_shape(c, 0);
    const double *in = dtrt_ref_in(c, 0);
    uint32_t count;
    const int64_t *pads = dtrt_ref_ints(c->n, "pads", &count);
    int64_t mode = dtrt_ref_i(c->n, "mode", 0);
    double value = dtrt_ref_f(c->n, "value", 0);
    uint64_t n = dtrt_ref_count(y);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at[DTRT_MAX_RANK];
        bool inside = true;
        unravel(y, i, at);
        for (int k = 0; k < x->rank; k++) {
            at[k] -= pads[k];
            inside = pad_source(&at[k], x->dim[k], mode) && inside;
        }
        c->y[0][i] = inside ? in[ravel(x, at)] : value;
    }
}

static void run_concat(const RefCall *c) {
    int64_t axis = dtrt_ref_i(c->n, "axis", 0), outer, total, inner, at = 0;
    dtrt_ref_split(dtrt_ref_out_shape(c, 0), axis, &outer, &total, &inner);
    for (uint32_t k = 0; k < c->n->nin; k++) {
        const double *in = dtrt_ref_in(c, k);
        int64_t o, n, i;
        dtrt_ref_split(dtrt_ref_in_shape(c, k), axis, &o, &n, &i);
        for (int64_t r = 0; r < outer; r++)
            memcpy(c->y[0] + (r * total + at) * inner, in + r * n * inner,
                   (size_t)(n * inner) * sizeof(double));
        at += n;
    }
}

/* Indices were checked by the program's own kernel, which ran first. */
static void run_gather(const RefCall *c) {
    const double *data = dtrt_ref_in(c, 0), *index = dtrt_ref_in(c, 1);
    int64_t outer, n, inner, count = (int64_t)dtrt_ref_count(dtrt_ref_in_shape(c, 1));
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), dtrt_ref_i(c->n, "axis", 0), &outer, &n, &inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < count; k++) {
            int64_t at = (int64_t)index[k];
            if (at < 0) at += n;
            memcpy(c->y[0] + (o * count + k) * inner, data + (o * n + at) * inner,
                   (size_t)inner * sizeof(double));
        }
}

RefOp *dtrt_ref_movement(const char *op) {
    static const struct {
        const char *op;
        RefOp *f;
    } table[] = {{"Reshape", run_copy},  {"Copy", run_copy},   {"Transpose", run_transpose},
                 {"Concat", run_concat}, {"Slice", run_slice}, {"Pad", run_pad},
                 {"Gather", run_gather}, {"Fill", run_fill}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].op, op)) return table[i].f;
    return NULL;
}
