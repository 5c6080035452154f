/* conv.c - convolution and its two gradients: geometry -> how each pass is done (plan/passes.c) ->
 * run.
 *
 * A pass is a plan of cuDNN, run over parts of the batch one after the other, a matrix product of
 * cuBLAS, or kernels of kernels/conv.cu. Plans are made by dtrt_conv_init and take their workspace
 * from the caller. Packed weights are [co, k.., ci/group] with channels last, what the library
 * takes; plain ones, [co, ci/group, k..], are turned into that, or gradients out of it, through the
 * workspace. Bias and ReLU are one kernel of ours after the pass. Weights are packed and unpacked
 * on the host. */
#include "libraries.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 128, RUN = 4 }; /* of our kernels: threads of a block, pixels of a thread */

typedef struct Conv {
    CudaConvPass pass[PASSES];
    uint64_t workspace; /* the largest of the passes */
    CuConv loops;       /* for our kernels */
    DtrtConv *owner;
    struct Conv *next; /* of all that are there: cu_conv_close */
} Conv;

static Conv *all;

static int64_t product(const int64_t *v, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= v[i];
    return p;
}

/* ---- geometry for our kernels ---- */

/* Strides of an image or of weights: channels inside of cells, or cells inside of channels. */
static void set_strides(bool last, int channels, int cells, int *channel, int *cell) {
    *channel = last ? 1 : cells;
    *cell = last ? channels : 1;
}

/* False when something is too large for our kernels. */
static bool fill_loops(const DtrtConv *c, CuConv *q) {
    const int64_t inside = product(c->in, c->nd), outside = product(c->out, c->nd);
    const int64_t cells = product(c->k, c->nd);
    *q = (CuConv){.x_image = c->ci * inside, .y_image = c->co * outside};
    if (c->n > INT32_MAX || q->x_image > INT32_MAX || q->y_image > INT32_MAX ||
        cuda_conv_weights(c) > INT32_MAX)
        return false;
    q->n = (int)c->n, q->ci = (int)c->ci, q->co = (int)c->co;
    q->group_in = q->ci / c->group, q->group_out = q->co / c->group;
    for (int i = 0; i < 3; i++) {
        int at = i - (3 - c->nd);
        q->in[i] = at < 0 ? 1 : (int)c->in[at], q->out[i] = at < 0 ? 1 : (int)c->out[at];
        q->k[i] = at < 0 ? 1 : (int)c->k[at], q->lo[i] = at < 0 ? 0 : (int)c->pad_lo[at];
        q->stride[i] = at < 0 ? 1 : (int)c->stride[at], q->dil[i] = at < 0 ? 1 : (int)c->dil[at];
    }
    bool last = c->channels_last;
    set_strides(last, q->ci, (int)inside, &q->x_channel, &q->x_cell);
    set_strides(last, q->co, (int)outside, &q->y_channel, &q->y_cell);
    set_strides(last && c->packed, q->group_in, (int)cells, &q->w_in, &q->w_cell);
    q->w_out = q->group_in * (int)cells;
    return true;
}

/* ---- set-up ---- */

static bool init_pass(const DtrtConv *c, CudaPass pass, CudaConvPass *p, CuConv *loops) {
    cuda_conv_pass(NULL, c, pass, cu_device.tf32, c->limit, p);
    if (p->way == WAY_PRODUCT) return cu_blas();
    if (p->way == WAY_LIBRARY) {
        const Dnn *d = cu_dnn();
        if (!d) return false;
        cuda_conv_pass(d, c, pass, cu_device.tf32, c->limit, p);
    }
    if (p->way != WAY_OWN || fill_loops(c, loops)) return true;
    dtrt_error("a convolution of %lld to %lld channels is too large for the GPU: cuDNN has no plan "
               "for it within its workspace, and an image has 2^31 elements or more",
               (long long)c->ci, (long long)c->co);
    return false;
}

bool dtrt_conv_init(DtrtConv *c, const DtrtConv *like, int threads) {
    const int wanted[PASSES] = {c->fwd, c->grad_x, c->grad_w};
    (void)like, (void)threads; /* the layout of weights is always the same */
    Conv *v = c->impl = calloc(1, sizeof *v);
    if (!v) {
        dtrt_error("no memory for a convolution");
        return false;
    }
    v->owner = c;
    v->next = all;
    all = v;
    for (int i = 0; i < PASSES; i++) {
        if (!wanted[i]) continue;
        if (!init_pass(c, (CudaPass)i, &v->pass[i], &v->loops)) {
            dtrt_conv_free(c);
            return false;
        }
        if (v->pass[i].bytes > v->workspace) v->workspace = v->pass[i].bytes;
    }
    return true;
}

void dtrt_conv_free(DtrtConv *c) {
    Conv *v = c->impl;
    for (Conv **at = &all; v && *at; at = &(*at)->next)
        if (*at == v) {
            *at = v->next;
            break;
        }
    for (int i = 0; v && i < PASSES; i++)
        if (v->pass[i].plan) dnn_drop(cu_dnn(), v->pass[i].plan);
    free(v);
    c->impl = NULL;
}

void cu_conv_close(void) {
    while (all) dtrt_conv_free(all->owner);
}

uint64_t dtrt_conv_workspace(const DtrtConv *c) {
    return ((const Conv *)c->impl)->workspace;
}

uint64_t dtrt_conv_weight_bytes(const DtrtConv *c) {
    return sizeof(float) * (uint64_t)cuda_conv_weights(c);
}

int64_t dtrt_conv_weight_count(const DtrtConv *c) {
    return cuda_conv_weights(c);
}

/* ---- packing, on the host ---- */

/* from [outer, rows, cols] to [outer, cols, rows] */
static void swap_axes(const float *from, float *to, int64_t outer, int64_t rows, int64_t cols) {
    for (int64_t o = 0; o < outer; o++, from += rows * cols, to += rows * cols)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < cols; k++) to[k * rows + r] = from[r * cols + k];
}

bool dtrt_conv_pack(const DtrtConv *c, const float *plain, void *packed) {
    int64_t channels = c->ci / c->group, cells = product(c->k, c->nd);
    if (c->channels_last)
        swap_axes(plain, packed, c->co, channels, cells);
    else
        memcpy(packed, plain, dtrt_conv_weight_bytes(c));
    return true;
}

bool dtrt_conv_unpack(const DtrtConv *c, const void *packed, float *plain) {
    int64_t channels = c->ci / c->group, cells = product(c->k, c->nd);
    if (c->channels_last)
        swap_axes(packed, plain, c->co, cells, channels);
    else
        memcpy(plain, packed, dtrt_conv_weight_bytes(c));
    return true;
}

/* ---- runs ---- */

/* from [outer, rows, cols] to [outer, cols, rows] on the device */
static void turn(const float *from, float *to, int64_t outer, int64_t rows, int64_t cols) {
    int64_t count = outer * rows * cols;
    CU_LAUNCH(conv_turn, cu_blocks(count, 256), 256, &from, &to, &count, &rows, &cols);
}

/* A plan of the library over all parts of the batch. x and y are images, w weights, whichever of
 * them is the result. */
static void run_library(const DtrtConv *c, CudaPass pass, const float *x, const float *w,
                        const float *y, void *ws) {
    const Conv *v = c->impl;
    const CudaConvPass *p = &v->pass[pass];
    int64_t channels = c->ci / c->group, cells = product(c->k, c->nd);
    const int64_t image_x = c->ci * product(c->in, c->nd), image_y = c->co * product(c->out, c->nd);
    float *own = (float *)((char *)ws + p->library);
    if (p->weights && pass != PASS_GRAD_W) turn(w, own, c->co, channels, cells);
    for (int64_t n = 0; n < c->n; n += p->images)
        cu_dnn_execute(p->plan, x + n * image_x, p->weights ? own : w, y + n * image_y, ws);
    if (p->weights && pass == PASS_GRAD_W) turn(own, (float *)(uintptr_t)w, c->co, cells, channels);
}

/* Blocks over the pixels of a row and their channels, times the rows. */
static int64_t row_blocks(int64_t cells, int64_t channels) {
    return cu_blocks((cells + RUN - 1) / RUN * channels, LANES);
}

static int64_t row_count(int64_t rows) {
    return rows < CU_MAX_BLOCKS ? rows : CU_MAX_BLOCKS;
}

void dtrt_conv_forward(const DtrtConv *c, const float *x, const float *w, const float *b, float *y,
                       void *ws) {
    const Conv *v = c->impl;
    const CudaConvPass *p = &v->pass[PASS_FWD];
    CuConv q = v->loops;
    int64_t cells = product(c->out, c->nd);
    assert(c->fwd && (!c->bias || b));
    if (p->way == WAY_PRODUCT) {
        DtrtMatmul m = {.trans_b = 1, .alpha = 1, .m = c->n * cells, .n = c->co, .k = c->ci};
        cu_matmul(&m, x, w, y, ws, p->library);
    } else if (p->way == WAY_LIBRARY) {
        run_library(c, PASS_FWD, x, w, y, ws);
    } else {
        CU_LAUNCH2(conv_forward, row_blocks(q.out[2], q.co),
                   row_count((int64_t)q.n * q.out[0] * q.out[1]), LANES, &q, &x, &w, &y);
    }
    cu_add_bias(y, c->bias ? b : NULL, c->n * cells * c->co, c->co, c->channels_last ? 1 : cells,
                c->relu != 0);
}

void dtrt_conv_grad_x(const DtrtConv *c, const float *dy, const float *w, float *dx, void *ws) {
    const Conv *v = c->impl;
    const CudaConvPass *p = &v->pass[PASS_GRAD_X];
    CuConv q = v->loops;
    assert(c->grad_x);
    if (p->way == WAY_PRODUCT) {
        DtrtMatmul m = {.alpha = 1, .m = c->n * product(c->out, c->nd), .n = c->ci, .k = c->co};
        cu_matmul(&m, dy, w, dx, ws, p->library);
    } else if (p->way == WAY_LIBRARY) {
        run_library(c, PASS_GRAD_X, dx, w, dy, ws);
    } else {
        CU_LAUNCH2(conv_grad_x, row_blocks(q.in[2], q.ci),
                   row_count((int64_t)q.n * q.in[0] * q.in[1]), LANES, &q, &dy, &w, &dx);
    }
}

void dtrt_conv_grad_w(const DtrtConv *c, const float *dy, const float *x, float *dw, void *ws) {
    const Conv *v = c->impl;
    const CudaConvPass *p = &v->pass[PASS_GRAD_W];
    CuConv q = v->loops;
    assert(c->grad_w);
    if (p->way == WAY_PRODUCT) {
        int64_t rows = c->n * product(c->out, c->nd);
        DtrtMatmul m = {.trans_a = 1, .alpha = 1, .m = c->co, .n = c->ci, .k = rows};
        cu_matmul(&m, dy, x, dw, ws, p->library);
    } else if (p->way == WAY_LIBRARY) {
        run_library(c, PASS_GRAD_W, x, dw, dy, ws);
    } else {
        double *part = p->parts > 1 ? ws : NULL;
        int64_t weights = cuda_conv_weights(c), parts = p->parts;
        CU_LAUNCH2(conv_grad_w, cu_blocks(weights, LANES), parts, LANES, &q, &dy, &x, &dw, &part);
        if (part)
            CU_LAUNCH(conv_add_parts, cu_blocks(weights, LANES), LANES, &q, &part, &parts, &dw);
    }
}
