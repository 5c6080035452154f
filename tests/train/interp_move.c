/* interp_move.c - sliding windows, matrix products and movement for the test interpreter. */
#include "interp.h"

#include <math.h>
#include <string.h>

/* ---- windows: one visit per (image cell, window cell, output cell) ---- */
typedef struct {
    uint32_t nd;
    bool last;          /* channels last */
    const Shape *x, *y; /* image and output */
    int64_t k[3], stride[3], dil[3], lo[3], hi[3];
} Win;

static Win window(const Call *c, const Shape *x, const Shape *y, const Shape *w) {
    Win q = {.nd = x->rank - 2, .last = call_i(c, A_channels_last, 0) != 0, .x = x, .y = y};
    const int64_t *k = call_ints(c, A_kernel), *s = call_ints(c, A_strides);
    const int64_t *d = call_ints(c, A_dilations), *p = call_ints(c, A_pads);
    for (uint32_t i = 0; i < 3; i++) q.k[i] = q.stride[i] = q.dil[i] = 1;
    for (uint32_t i = 0; i < q.nd; i++) {
        q.k[i] = w ? w->dim[2 + i] : k[i];
        if (s) q.stride[i] = s[i];
        if (d) q.dil[i] = d[i];
        if (p) q.lo[i] = p[i];
        if (p) q.hi[i] = p[q.nd + i];
    }
    return q;
}

static uint64_t image_at(const Win *q, const Shape *s, int64_t n, int64_t ch, const int64_t *at) {
    int64_t idx[IR_MAX_RANK] = {n};
    idx[q->last ? q->nd + 1 : 1] = ch;
    for (uint32_t i = 0; i < q->nd; i++) idx[i + (q->last ? 1 : 2)] = at[i];
    return ten_flat(s, idx);
}
static int64_t channels(const Win *q, const Shape *s) {
    return s->dim[q->last ? q->nd + 1 : 1];
}
static int64_t size(const Win *q, const Shape *s, uint32_t i) {
    return i < q->nd ? s->dim[i + (q->last ? 1 : 2)] : 1;
}

/* Image coordinates of window cell k of output cell o; false in the padding. */
static bool cell(const Win *q, const int64_t *o, const int64_t *k, int64_t *at) {
    bool inside = true;
    for (uint32_t i = 0; i < 3; i++) {
        at[i] = o[i] * q->stride[i] + k[i] * q->dil[i] - q->lo[i];
        inside &= at[i] >= 0 && at[i] < size(q, q->x, i);
    }
    return inside;
}

#define FOR3(v, hi0, hi1, hi2)                                                                     \
    for (int64_t v[3] = {0}; v[0] < (hi0); v[0]++)                                                 \
        for (v[1] = 0; v[1] < (hi1); v[1]++)                                                       \
            for (v[2] = 0; v[2] < (hi2); v[2]++)

/* Adds a*b to *sum for each triple (x, w, y) of a convolution. */
static void conv_triples(const Win *q, const Shape *w, int64_t group, const double *x,
                         const double *wt, const double *y, double *dx, double *dw, double *dy) {
    int64_t cg = w->dim[1], mg = w->dim[0] / group;
    for (int64_t n = 0; n < q->x->dim[0]; n++)
        for (int64_t m = 0; m < w->dim[0]; m++)
            FOR3(o, size(q, q->y, 0), size(q, q->y, 1), size(q, q->y, 2)) {
                uint64_t yi = image_at(q, q->y, n, m, o);
                for (int64_t c = 0; c < cg; c++) FOR3(k, q->k[0], q->k[1], q->k[2]) {
                        int64_t at[3], wi[IR_MAX_RANK] = {m, c, k[0], k[1], k[2]};
                        if (!cell(q, o, k, at)) continue;
                        uint64_t xi = image_at(q, q->x, n, m / mg * cg + c, at);
                        uint64_t wn = ten_flat(w, wi);
                        if (dy) dy[yi] += x[xi] * wt[wn];
                        if (dx) dx[xi] += y[yi] * wt[wn];
                        if (dw) dw[wn] += y[yi] * x[xi];
                    }
            }
}

static void clear(const Ten *t) {
    memset(t->x, 0, ten_count(&t->s) * sizeof(double));
}

static void conv(const Call *c) {
    const Ten *in = c->in;
    Ten *out = &c->out[0];
    int64_t group = call_i(c, A_group, 1);
    clear(out);
    if (c->op == OP_ConvGradX) {
        Win q = window(c, &out->s, &in[0].s, &in[1].s);
        conv_triples(&q, &in[1].s, group, NULL, in[1].x, in[0].x, out->x, NULL, NULL);
        return;
    }
    if (c->op == OP_ConvGradW) {
        Win q = window(c, &in[1].s, &in[0].s, &out->s);
        conv_triples(&q, &out->s, group, in[1].x, NULL, in[0].x, NULL, out->x, NULL);
        return;
    }
    Win q = window(c, &in[0].s, &out->s, &in[1].s);
    conv_triples(&q, &in[1].s, group, in[0].x, in[1].x, NULL, NULL, NULL, out->x);
    for (int64_t n = 0; n < out->s.dim[0]; n++)
        for (int64_t m = 0; m < channels(&q, &out->s); m++)
            FOR3(o, size(&q, &out->s, 0), size(&q, &out->s, 1), size(&q, &out->s, 2)) {
                double *y = &out->x[image_at(&q, &out->s, n, m, o)];
                if (c->nin > 2 && in[2].x) *y += in[2].x[m];
                if (call_i(c, A_relu, 0) && *y < 0) *y = 0;
            }
}

/* Cells that an average counts: inside the image, or (include_pad) inside the padded image. */
static double average_cells(const Win *q, const int64_t *o, bool include_pad) {
    double n = 0;
    FOR3(k, q->k[0], q->k[1], q->k[2]) {
        int64_t at[3];
        bool inside = cell(q, o, k, at), padded = true;
        for (uint32_t i = 0; i < q->nd; i++) padded &= at[i] < size(q, q->x, i) + q->hi[i];
        n += include_pad ? padded : inside;
    }
    return n;
}

static void pool_cell(const Call *c, const Win *q, int64_t n, int64_t ch, const int64_t *o) {
    bool max = c->op == OP_MaxPool || c->op == OP_MaxPoolGrad;
    bool grad = c->op == OP_MaxPoolGrad || c->op == OP_AveragePoolGrad;
    uint64_t yi = image_at(q, q->y, n, ch, o);
    double cells = max ? 1 : average_cells(q, o, call_i(c, A_count_include_pad, 0));
    double best = -INFINITY, sum = 0, where = 0, number = 0;
    FOR3(k, q->k[0], q->k[1], q->k[2]) {
        int64_t at[3];
        if (cell(q, o, k, at)) {
            uint64_t xi = image_at(q, q->x, n, ch, at);
            if (grad && (!max || c->in[1].x[yi] == number))
                c->out[0].x[xi] += c->in[0].x[yi] / cells;
            if (!grad && c->in[0].x[xi] > best) {
                best = c->in[0].x[xi];
                where = number;
            }
            if (!grad) sum += c->in[0].x[xi];
        }
        number++;
    }
    if (grad) return;
    c->out[0].x[yi] = max ? best : sum / cells;
    if (max && c->nout > 1 && c->out[1].x) c->out[1].x[yi] = where;
}

static void pool(const Call *c) {
    bool grad = c->op == OP_MaxPoolGrad || c->op == OP_AveragePoolGrad;
    Win q = window(c, grad ? &c->out[0].s : &c->in[0].s, grad ? &c->in[0].s : &c->out[0].s, NULL);
    if (grad) clear(&c->out[0]);
    for (int64_t n = 0; n < q.x->dim[0]; n++)
        for (int64_t ch = 0; ch < channels(&q, q.x); ch++)
            FOR3(o, size(&q, q.y, 0), size(&q, q.y, 1), size(&q, q.y, 2)) {
                pool_cell(c, &q, n, ch, o);
            }
}

static void matmul(const Call *c) {
    const Ten *a = &c->in[0], *b = &c->in[1];
    Ten *y = &c->out[0];
    bool ta = call_i(c, A_trans_a, 0), tb = call_i(c, A_trans_b, 0);
    uint32_t r = y->s.rank;
    int64_t depth = a->s.dim[a->s.rank - (ta ? 2 : 1)], at[IR_MAX_RANK];
    for (uint64_t i = 0; i < ten_count(&y->s); i++) {
        double sum = 0;
        ten_index(&y->s, i, at);
        int64_t row = at[r - 2], col = at[r - 1];
        for (int64_t k = 0; k < depth; k++) {
            at[r - 2] = ta ? k : row;
            at[r - 1] = ta ? row : k;
            double x = a->x[ten_broadcast(&a->s, &y->s, at)];
            at[r - 2] = tb ? col : k;
            at[r - 1] = tb ? k : col;
            sum += x * b->x[ten_broadcast(&b->s, &y->s, at)];
        }
        y->x[i] = call_f(c, A_alpha, 1) * sum + (c->nin > 2 && c->in[2].x ? c->in[2].x[col] : 0);
    }
}

bool interp_window(const Call *c) {
    switch (c->op) {
    case OP_Conv:
    case OP_ConvGradX:
    case OP_ConvGradW: conv(c); return true;
    case OP_MaxPool:
    case OP_MaxPoolGrad:
    case OP_AveragePool:
    case OP_AveragePoolGrad: pool(c); return true;
    case OP_MatMul: matmul(c); return true;
    default: return false;
    }
}

/* ---- movement ---- */
static void transpose(const Call *c) {
    const int64_t *perm = call_ints(c, A_perm);
    int64_t at[IR_MAX_RANK], from[IR_MAX_RANK];
    for (uint64_t i = 0; i < ten_count(&c->out[0].s); i++) {
        ten_index(&c->out[0].s, i, at);
        for (uint32_t k = 0; k < c->out[0].s.rank; k++) from[perm[k]] = at[k];
        c->out[0].x[i] = c->in[0].x[ten_flat(&c->in[0].s, from)];
    }
}

static void concat(const Call *c) {
    int64_t axis = call_i(c, A_axis, 0), base = 0, at[IR_MAX_RANK];
    if (axis < 0) axis += c->out[0].s.rank;
    for (uint32_t k = 0; k < c->nin; k++) {
        for (uint64_t i = 0; i < ten_count(&c->in[k].s); i++) {
            ten_index(&c->in[k].s, i, at);
            at[axis] += base;
            c->out[0].x[ten_flat(&c->out[0].s, at)] = c->in[k].x[i];
        }
        base += c->in[k].s.dim[axis];
    }
}

/* The cut and its place in the whole: Slice reads, SliceGrad writes the whole. */
static void slice(const Call *c) {
    bool grad = c->op == OP_SliceGrad;
    const Ten *cut = grad ? &c->in[0] : &c->out[0], *whole = grad ? &c->out[0] : &c->in[0];
    const int64_t *start = call_ints(c, A_starts), *step = call_ints(c, A_steps);
    int64_t at[IR_MAX_RANK];
    if (grad) clear(&c->out[0]);
    for (uint64_t i = 0; i < ten_count(&cut->s); i++) {
        ten_index(&cut->s, i, at);
        for (uint32_t k = 0; k < cut->s.rank; k++) at[k] = start[k] + at[k] * step[k];
        uint64_t j = ten_flat(&whole->s, at);
        if (grad)
            whole->x[j] = cut->x[i];
        else
            cut->x[i] = whole->x[j];
    }
}

static void slice_add(const Call *c) {
    const int64_t *start = call_ints(c, A_starts), *step = call_ints(c, A_steps);
    int64_t at[IR_MAX_RANK];
    memcpy(c->out[0].x, c->in[0].x, ten_count(&c->in[0].s) * sizeof(double));
    for (uint64_t i = 0; i < ten_count(&c->in[1].s); i++) {
        ten_index(&c->in[1].s, i, at);
        for (uint32_t k = 0; k < c->in[1].s.rank; k++) at[k] = start[k] + at[k] * step[k];
        c->out[0].x[ten_flat(&c->out[0].s, at)] += c->in[1].x[i];
    }
}

/* Where the padded cell comes from; false: the constant. */
static bool pad_source(const Shape *x, const int64_t *pads, int64_t mode, int64_t *at) {
    bool inside = true;
    for (uint32_t k = 0; k < x->rank; k++) {
        int64_t n = x->dim[k], i = at[k] - pads[k];
        if (mode == 1 && i < 0) i = -i;
        if (mode == 1 && i >= n) i = 2 * (n - 1) - i;
        if (mode == 2) i = i < 0 ? 0 : i >= n ? n - 1 : i;
        inside &= i >= 0 && i < n;
        at[k] = i;
    }
    return inside;
}

static void pad(const Call *c) {
    bool grad = c->op == OP_PadGrad;
    const Ten *padded = grad ? &c->in[0] : &c->out[0], *x = grad ? &c->out[0] : &c->in[0];
    int64_t at[IR_MAX_RANK], mode = call_i(c, A_mode, 0);
    if (grad) clear(&c->out[0]);
    for (uint64_t i = 0; i < ten_count(&padded->s); i++) {
        ten_index(&padded->s, i, at);
        bool inside = pad_source(&x->s, call_ints(c, A_pads), mode, at);
        if (grad && inside) x->x[ten_flat(&x->s, at)] += padded->x[i];
        if (!grad) padded->x[i] = inside ? x->x[ten_flat(&x->s, at)] : call_f(c, A_value, 0);
    }
}

static void gather(const Call *c) {
    bool grad = c->op == OP_GatherGrad;
    const Ten *y = grad ? &c->in[0] : &c->out[0], *x = grad ? &c->out[0] : &c->in[0];
    const Ten *idx = &c->in[1];
    int64_t at[IR_MAX_RANK], from[IR_MAX_RANK], axis = call_i(c, A_axis, 0);
    if (axis < 0) axis += x->s.rank;
    uint32_t a = (uint32_t)axis, ni = idx->s.rank;
    if (grad) clear(&c->out[0]);
    for (uint64_t i = 0; i < ten_count(&y->s); i++) {
        ten_index(&y->s, i, at);
        int64_t pick = (int64_t)idx->x[ten_flat(&idx->s, at + a)];
        for (uint32_t k = 0; k < x->s.rank; k++) from[k] = at[k < a ? k : k + ni - 1];
        from[a] = pick < 0 ? pick + x->s.dim[a] : pick;
        uint64_t j = ten_flat(&x->s, from);
        if (grad)
            x->x[j] += y->x[i];
        else
            y->x[i] = x->x[j];
    }
}

bool interp_movement(const Call *c) {
    switch (c->op) {
    case OP_Reshape:
    case OP_Copy:
        memcpy(c->out[0].x, c->in[0].x, ten_count(&c->in[0].s) * sizeof(double));
        return true;
    case OP_Transpose: transpose(c); return true;
    case OP_Concat: concat(c); return true;
    case OP_Slice:
    case OP_SliceGrad: slice(c); return true;
    case OP_SliceAdd: slice_add(c); return true;
    case OP_Pad:
    case OP_PadGrad: pad(c); return true;
    case OP_Gather:
    case OP_GatherGrad: gather(c); return true;
    case OP_Fill:
        for (uint64_t i = 0; i < ten_count(&c->out[0].s); i++)
            c->out[0].x[i] = call_f(c, A_value, 0);
        return true;
    default: return false;
    }
}
