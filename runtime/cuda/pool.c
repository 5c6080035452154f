/* pool.c - max and average pooling and their gradients: plans for the kernels of pool.cu. Channels
 * first is the same as n*c images of one channel. */
#include "walk.h"

enum { NONE8 = 255 }; /* windows of as many cells and more have positions of four bytes */

static int64_t cells(const DtrtPool *p) {
    int64_t n = 1;
    for (int i = 0; i < p->nd; i++) n *= p->k[i];
    return n;
}

static CuPoolAxis axis_of(const DtrtPool *p, int i) {
    CuPoolAxis a = {.in = 1, .out = 1, .k = 1, .stride = 1, .dil = 1};
    if (i < p->nd) {
        assert(p->in[i] + p->pad_lo[i] + p->pad_hi[i] + p->k[i] * p->dil[i] <= INT32_MAX / 2 &&
               p->out[i] * p->stride[i] <= INT32_MAX / 2);
        a = (CuPoolAxis){.in = (int)p->in[i],
                         .out = (int)p->out[i],
                         .k = (int)p->k[i],
                         .stride = (int)p->stride[i],
                         .dil = (int)p->dil[i],
                         .lo = (int)p->pad_lo[i],
                         .hi = (int)p->pad_hi[i]};
    }
    a.by_in = cu_divider((uint64_t)a.in);
    a.by_out = cu_divider((uint64_t)a.out);
    return a;
}

/* in, out: elements of x and y */
static CuPool plan_of(const DtrtPool *p, int64_t *in, int64_t *out) {
    CuPool q = {.n = p->n,
                .c = p->c,
                .is_max = p->is_max,
                .wide = cells(p) > NONE8,
                .include_pad = p->count_include_pad};
    *in = *out = p->n * p->c;
    for (int i = 0; i < 3; i++) {
        q.a[i] = axis_of(p, i);
        *in *= q.a[i].in;
        *out *= q.a[i].out;
    }
    if (!p->channels_last) {
        q.n *= q.c;
        q.c = 1;
    }
    q.small_in = *in <= INT32_MAX;
    q.small_out = *out <= INT32_MAX;
    q.by_c = cu_divider((uint64_t)(q.c <= INT32_MAX ? q.c : 1));
    return q;
}

uint64_t dtrt_pool_index_bytes(const DtrtPool *p) {
    assert(p->nd >= 1 && p->nd <= 3 && cells(p) <= INT32_MAX);
    uint64_t n = (uint64_t)(p->n * p->c);
    for (int i = 0; i < p->nd; i++) n *= (uint64_t)p->out[i];
    return !p->is_max ? 0 : n * (cells(p) > NONE8 ? 4 : 1);
}

void dtrt_pool_forward(const DtrtPool *p, const float *x, float *y, void *index) {
    int64_t in, out;
    CuPool q = plan_of(p, &in, &out);
    assert(!p->is_max || index);
    if (q.small_out) {
        CU_LAUNCH(pool, cu_blocks(out, 256), 256, &q, &x, &y, &index);
    } else {
        CU_LAUNCH(pool_big, cu_blocks(out, 256), 256, &q, &x, &y, &index);
    }
}

void dtrt_pool_places(const DtrtPool *p, const float *x, int64_t *place, int by_columns) {
    int64_t in, out;
    CuPool q = plan_of(p, &in, &out);
    assert(!p->channels_last && p->is_max);
    if (q.small_out) {
        CU_LAUNCH(pool_places, cu_blocks(out, 256), 256, &q, &x, &place, &by_columns);
    } else {
        CU_LAUNCH(pool_places_big, cu_blocks(out, 256), 256, &q, &x, &place, &by_columns);
    }
}

void dtrt_pool_grad(const DtrtPool *p, const float *dy, const void *index, float *dx) {
    int64_t in, out;
    CuPool q = plan_of(p, &in, &out);
    assert(!p->is_max || index);
    if (q.small_in) {
        CU_LAUNCH(pool_grad, cu_blocks(in, 256), 256, &q, &dy, &index, &dx);
    } else {
        CU_LAUNCH(pool_grad_big, cu_blocks(in, 256), 256, &q, &dy, &index, &dx);
    }
}
