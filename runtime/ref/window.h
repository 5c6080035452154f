/* window.h - the sliding window of convolutions and pools, always with three spatial axes: missing
 * ones lead and have size 1. Images are channels-first. */
#ifndef DTRT_REF_WINDOW_H
#define DTRT_REF_WINDOW_H

#include "ref.h"

typedef struct {
    int64_t n, ci, co;
    int64_t in[3], out[3], k[3], stride[3], dil[3], lo[3], hi[3];
} Window;

/* From image x to image y. */
static inline Window ref_window_of(const RefCall *c, const DtrtRefValue *x, const DtrtRefValue *y) {
    Window w = {x->dim[0], x->dim[1], y->dim[1], {1, 1, 1}, {1, 1, 1},
                {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}};
    uint32_t count;
    int nd = x->rank - 2;
    const int64_t *k = dtrt_ref_ints(c->n, "kernel", &count),
                  *s = dtrt_ref_ints(c->n, "strides", &count);
    const int64_t *d = dtrt_ref_ints(c->n, "dilations", &count),
                  *p = dtrt_ref_ints(c->n, "pads", &count);
    for (int i = 0; i < nd; i++) {
        int at = 3 - nd + i;
        w.in[at] = x->dim[2 + i];
        w.out[at] = y->dim[2 + i];
        w.k[at] = k ? k[i] : dtrt_ref_in_shape(c, 1)->dim[2 + i];
        if (s) w.stride[at] = s[i];
        if (d) w.dil[at] = d[i];
        if (p) w.lo[at] = p[i];
        if (p) w.hi[at] = p[nd + i];
    }
    return w;
}

static inline Window ref_window(const RefCall *c) {
    return ref_window_of(c, dtrt_ref_in_shape(c, 0), dtrt_ref_out_shape(c, 0));
}

/* Input position of output o and tap k along axis i; -1 in the padding. */
static inline int64_t window_at(const Window *w, int i, int64_t o, int64_t k) {
    int64_t at = o * w->stride[i] + k * w->dil[i] - w->lo[i];
    return at >= 0 && at < w->in[i] ? at : -1;
}

#endif
