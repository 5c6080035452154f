/* patches.c - gradients of convolutions whose windows do not overlap (the patch embedding of vision
 * transformers: Dosovitskiy et al., ICLR 2021; other large strides), channels last.
 *
 *   P[n o, k c] = X[n, o*stride + k*dilation - pad, c], zero outside of the image
 *   dW = dY' P        dP = dY W, and each cell of dX is in at most one row of dP
 *
 * The library has no kernel of its own for kernels of 16x16 and more and falls back to loops that
 * take some hundred times as long. P is no larger than the image (padding aside) and lies in the
 * workspace. Weights are [co, k.., ci] here; conv.c reorders them from and to the store. */
#include "patches.h"
#include "kernel.h"

#include <string.h>

bool patches_fit(const DtrtConv *c) {
    if (c->group != 1 || !c->channels_last) return false;
    for (int i = 0; i < c->nd; i++)
        if ((c->k[i] - 1) * c->dil[i] + 1 > c->stride[i]) return false;
    return true;
}

static dnnl_status_t matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t cols, bool transposed) {
    dnnl_dims_t dim = {rows, cols};
    dnnl_dims_t stride = {transposed ? 1 : cols, transposed ? rows : 1};
    return dnnl_memory_desc_init_by_strides(md, 2, dim, dnnl_f32, stride);
}

static dnnl_status_t weights_md(const DtrtConv *c, Patches *p) {
    dnnl_dims_t dim = {c->co, c->ci}, stride = {p->cols, 1};
    int64_t step = c->ci;
    for (int i = c->nd; i-- > 0;) {
        dim[2 + i] = c->k[i];
        stride[2 + i] = step;
        step *= c->k[i];
    }
    return dnnl_memory_desc_init_by_strides(&p->weights, c->nd + 2, dim, dnnl_f32, stride);
}

dnnl_status_t patches_plan(const DtrtConv *c, bool grad_w, Patches *p, dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_matmul_desc_t desc;
    *p = (Patches){.rows = c->n, .cols = c->ci};
    *pd = NULL;
    for (int i = 0; i < c->nd; i++) {
        p->rows *= c->out[i];
        p->cols *= c->k[i];
    }
    dnnl_status_t st = weights_md(c, p);
    if (st == dnnl_success)
        st = grad_w ? matrix(&p->a, c->co, p->rows, true) : matrix(&p->a, p->rows, c->co, false);
    if (st == dnnl_success) st = matrix(&p->b, grad_w ? p->rows : c->co, p->cols, false);
    if (st == dnnl_success) st = matrix(&p->y, grad_w ? c->co : p->rows, p->cols, false);
    if (st == dnnl_success) st = dnnl_matmul_desc_init(&desc, &p->a, &p->b, NULL, &p->y);
    if (st == dnnl_success) st = onednn_attr(&attr);
    if (st == dnnl_success) st = dnnl_primitive_desc_create(pd, &desc, attr, onednn_engine(), NULL);
    if (st != dnnl_success) *pd = NULL;
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

uint64_t patches_bytes(const Patches *p) {
    return (uint64_t)p->rows * (uint64_t)p->cols * sizeof(float);
}

/* ---- moving patches ---- */

/* Three spatial axes: missing ones lead with size 1. */
typedef struct {
    int64_t in[3], out[3], k[3], stride[3], dil[3], lo[3], ci, cols;
} Walk;

static Walk walk_of(const DtrtConv *c) {
    Walk w = {.in = {1, 1, 1}, .out = {1, 1, 1}, .k = {1, 1, 1}, .ci = c->ci, .cols = c->ci};
    for (int i = 0; i < 3; i++) w.stride[i] = w.dil[i] = 1;
    for (int i = 0; i < c->nd; i++) {
        int at = 3 - c->nd + i;
        w.in[at] = c->in[i], w.out[at] = c->out[i], w.k[at] = c->k[i];
        w.stride[at] = c->stride[i], w.dil[at] = c->dil[i], w.lo[at] = c->pad_lo[i];
        w.cols *= c->k[i];
    }
    return w;
}

/* Offset in the image of tap (i, j, 0) of row r along the leading axes, -1 when it is outside;
 * *first: place of its first tap on the last axis. */
static int64_t line_at(const Walk *w, int64_t r, int64_t i, int64_t j, int64_t *first) {
    int64_t o2 = r % w->out[2], o1 = r / w->out[2] % w->out[1];
    int64_t o0 = r / w->out[2] / w->out[1] % w->out[0], n = r / w->out[2] / w->out[1] / w->out[0];
    int64_t p0 = o0 * w->stride[0] + i * w->dil[0] - w->lo[0];
    int64_t p1 = o1 * w->stride[1] + j * w->dil[1] - w->lo[1];
    *first = o2 * w->stride[2] - w->lo[2];
    if (p0 < 0 || p0 >= w->in[0] || p1 < 0 || p1 >= w->in[1]) return -1;
    return ((n * w->in[0] + p0) * w->in[1] + p1) * w->in[2] * w->ci;
}

/* Rows lo..hi-1: out of the image when to is NULL, else into it. */
static void move_rows(const Walk *w, const float *x, float *to, float *patches, int64_t lo,
                      int64_t hi) {
    size_t pixel = (size_t)w->ci * sizeof(float);
    for (int64_t r = lo; r < hi; r++) {
        float *p = patches + r * w->cols;
        for (int64_t ij = 0; ij < w->k[0] * w->k[1]; ij++) {
            int64_t first, line = line_at(w, r, ij / w->k[1], ij % w->k[1], &first);
            bool inside = line >= 0 && first >= 0 && first + w->k[2] <= w->in[2];
            int64_t step = inside && w->dil[2] == 1 ? w->k[2] : 1; /* taps at a time */
            for (int64_t k = 0; k < w->k[2]; k += step, p += step * w->ci) {
                int64_t at = first + k * w->dil[2];
                bool here = line >= 0 && at >= 0 && at < w->in[2];
                if (here && to) memcpy(to + line + at * w->ci, p, (size_t)step * pixel);
                if (here && !to) memcpy(p, x + line + at * w->ci, (size_t)step * pixel);
                if (!here && !to) memset(p, 0, pixel);
            }
        }
    }
}

static int64_t row_count(const DtrtConv *c) {
    int64_t rows = c->n;
    for (int i = 0; i < c->nd; i++) rows *= c->out[i];
    return rows;
}

void patches_gather(const DtrtConv *c, const float *x, float *patches) {
    const Walk w = walk_of(c);
    int64_t rows = row_count(c);
    KERNEL_SPLIT(rows, 1, rows * w.cols, move_rows(&w, x, NULL, patches, lo, hi));
}

void patches_scatter(const DtrtConv *c, const float *patches, float *dx) {
    const Walk w = walk_of(c);
    int64_t rows = row_count(c), all = c->n * w.in[0] * w.in[1] * w.in[2] * w.ci;
    float *p = (float *)(uintptr_t)patches;
    KERNEL_SPLIT(all, 16, all, memset(dx + lo, 0, (size_t)(hi - lo) * sizeof(float)));
    KERNEL_SPLIT(rows, 1, rows * w.cols, move_rows(&w, NULL, dx, p, lo, hi));
}
