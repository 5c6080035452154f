/* make_nn.c - run-time nodes of layers: convolution, matrix products, pooling, normalisation,
 * softmax. auto_pad is resolved to pads; Gemm becomes MatMul with a bias where that is the
 * same; what operator sets before 13 mean by the axis of Softmax is said with reshapes. */
#include "import.h"

#include <string.h>

/* ---- sliding windows ---- */

static Res read_list(const Ctx *c, const char *name, uint32_t n, int64_t lo, int64_t dflt,
                     int64_t *out) {
    Ints given;
    MUST(ints_of(c, name, NO_ID, &given));
    if (given.given && given.n != n)
        return ctx_fail(c, "expected %u entries in %s, found %u", n, name, given.n);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = given.given ? given.at[i] : dflt;
        if (out[i] < lo || out[i] > INT32_MAX)
            return ctx_fail(c, "%s holds %lld, expected at least %lld", name, (long long)out[i],
                            (long long)lo);
    }
    return OK;
}

/* SAME: the output has ceil(input / stride) positions; an odd rest goes to the end (UPPER) or the
 * start. */
Res auto_pad(const Ctx *c, const Shape *in, Window *w) {
    const char *mode;
    MUST(attr_text(c, "auto_pad", "NOTSET", &mode));
    bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
    if (!*mode || !strcmp(mode, "NOTSET")) return OK;
    if (!upper && !lower && strcmp(mode, "VALID") != 0)
        return ctx_fail(c, "auto_pad is %s, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER",
                        diag_name(c->x->tmp, mode));
    for (uint32_t i = 0; i < w->nd; i++) {
        int64_t d = in->dim[2 + i], out = (d + w->stride[i] - 1) / w->stride[i];
        int64_t total = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - d;
        if (total < 0 || (!upper && !lower)) total = 0;
        w->pads[i] = upper ? total / 2 : total - total / 2;
        w->pads[w->nd + i] = total - w->pads[i];
    }
    return OK;
}

Res read_window(const Ctx *c, const int64_t *kernel, Window *w) {
    const Shape *in = shape_in(c, 0);
    if (in->rank < 3 || in->rank > 5)
        return ctx_skip(c, "%u-d input (3 to 5 axes are: 1 to 3 spatial ones)", in->rank);
    *w = (Window){.nd = in->rank - 2};
    MUST(read_list(c, "kernel_shape", w->nd, 1, 1, w->kernel));
    if (!attr_of(c, "kernel_shape") && !kernel) return ctx_fail(c, "kernel_shape is not there");
    for (uint32_t i = 0; kernel && i < w->nd; i++) {
        if (attr_of(c, "kernel_shape") && w->kernel[i] != kernel[i])
            return ctx_fail(c, "kernel_shape says %lld on axis %u, the weight has %lld",
                            (long long)w->kernel[i], i, (long long)kernel[i]);
        w->kernel[i] = kernel[i];
        if (kernel[i] > INT32_MAX)
            return ctx_fail(c, "a window of %lld on axis %u", (long long)kernel[i], i);
    }
    MUST(read_list(c, "strides", w->nd, 1, 1, w->stride));
    MUST(read_list(c, "dilations", w->nd, 1, 1, w->dilation));
    return read_list(c, "pads", 2 * w->nd, 0, 0, w->pads);
}

static uint32_t window_attrs(const Ctx *c, const Window *w, Attr *attr) {
    Arena *a = c->x->tmp;
    attr[0] = attr_ints(a, A_kernel, w->kernel, w->nd);
    attr[1] = attr_ints(a, A_strides, w->stride, w->nd);
    attr[2] = attr_ints(a, A_pads, w->pads, 2 * w->nd);
    attr[3] = attr_ints(a, A_dilations, w->dilation, w->nd);
    return 4;
}

Res make_conv(Ctx *c) {
    const Shape *x = shape_in(c, 0), *k = shape_in(c, 1);
    Window w;
    int64_t group;
    if (k->rank != x->rank)
        return ctx_fail(c, "the weight has %u axes, the input %u", k->rank, x->rank);
    MUST(read_window(c, k->rank > 2 ? k->dim + 2 : k->dim, &w));
    MUST(auto_pad(c, x, &w));
    MUST(attr_int(c, "group", 1, &group));
    Attr attr[5];
    uint32_t n = window_attrs(c, &w, attr);
    attr[n++] = attr_i(c->x->tmp, A_group, group);
    ValueId in[] = {value_in(c, 0), value_in(c, 1), value_in(c, 2)};
    return bind(c, 0, emit(c, OP_Conv, "", in[2] == NO_ID ? 2 : 3, in, n, attr));
}

/* The sizes of a transposed convolution are those of the convolution whose gradient it is, so
 *   out = stride * (in - 1) + (kernel - 1) * dilation + 1 + output_padding - pads.
 * Padding follows from the output size where output_shape or auto_pad gives that (the operator's
 * specification: an odd rest goes to the end with SAME_UPPER, else to the start); a size that no
 * padding gives is output_padding. */
static Res transposed_size(const Ctx *c, const Shape *in, Window *w, int64_t *size) {
    const char *mode;
    int64_t more[3];
    Ints want;
    MUST(attr_text(c, "auto_pad", "NOTSET", &mode));
    MUST(read_list(c, "output_padding", w->nd, 0, 0, more));
    MUST(ints_of(c, "output_shape", NO_ID, &want));
    if (want.given && want.n != w->nd)
        return ctx_fail(c, "expected %u entries in output_shape, found %u", w->nd, want.n);
    bool upper = !strcmp(mode, "SAME_UPPER"), same = upper || !strcmp(mode, "SAME_LOWER");
    if (!same && *mode && strcmp(mode, "NOTSET") != 0 && strcmp(mode, "VALID") != 0)
        return ctx_fail(c, "auto_pad is %s, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER",
                        diag_name(c->x->tmp, mode));
    for (uint32_t i = 0; i < w->nd; i++) {
        int64_t *lo = &w->pads[i], *hi = &w->pads[w->nd + i], d = in->dim[2 + i];
        double about = (double)w->stride[i] * (double)d;
        about += (double)w->kernel[i] * (double)w->dilation[i];
        if (about > INT32_MAX || (want.given && (want.at[i] < 1 || want.at[i] > INT32_MAX)))
            return ctx_fail(c, "spatial axis %u of the result is too large or empty", i);
        int64_t full = w->stride[i] * (d - 1) + (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (want.given || same) {
            int64_t out = want.given ? want.at[i] : d * w->stride[i];
            int64_t total = full + more[i] - out;
            if (total < 0) more[i] -= total, total = 0;
            *lo = upper ? total / 2 : total - total / 2;
            *hi = total - *lo;
        }
        if (more[i] >= w->stride[i])
            return ctx_skip(c, "%lld of output padding with a stride of %lld", (long long)more[i],
                            (long long)w->stride[i]);
        size[i] = full + more[i] - *lo - *hi;
        if (size[i] < 1 || size[i] > INT32_MAX)
            return ctx_fail(c, "the result has %lld places on spatial axis %u", (long long)size[i],
                            i);
    }
    return OK;
}

/* ConvTranspose: the gradient of a convolution as a node of its own, and the bias added. */
Res make_conv_transpose(Ctx *c) {
    const Shape *x = shape_in(c, 0), *k = shape_in(c, 1);
    Window w;
    int64_t group;
    Shape y = {.rank = x->rank};
    if (k->rank != x->rank)
        return ctx_fail(c, "the weight has %u axes, the input %u", k->rank, x->rank);
    MUST(read_window(c, k->rank > 2 ? k->dim + 2 : k->dim, &w));
    MUST(attr_int(c, "group", 1, &group));
    MUST(transposed_size(c, x, &w, y.dim + 2));
    if (group < 1 || group > x->dim[1])
        return ctx_fail(c, "%lld groups of %lld channels", (long long)group, (long long)x->dim[1]);
    y.dim[0] = x->dim[0];
    y.dim[1] = k->dim[1] * group;
    Attr attr[6];
    uint32_t n = window_attrs(c, &w, attr);
    attr[n++] = attr_i(c->x->tmp, A_group, group);
    attr[n++] = attr_ints(c->x->tmp, A_shape, y.dim, y.rank);
    ValueId in[] = {value_in(c, 0), value_in(c, 1)};
    bool add = has_in(c, 2);
    ValueId v = emit(c, OP_ConvGradX, add ? ".conv" : "", 2, in, n, attr);
    if (!add || v == NO_ID) return bind(c, 0, v);
    const Shape *b = shape_in(c, 2);
    if (b->rank != 1 || b->dim[0] != y.dim[1])
        return ctx_fail(c, "expected a bias of shape [%lld], found %s", (long long)y.dim[1],
                        shape_str(c->x->tmp, b));
    Shape column = {.rank = x->rank - 1, .dim = {b->dim[0], 1, 1, 1}};
    ValueId bias = emit_view(c, ".bias", value_in(c, 2), &column);
    if (bias == NO_ID) return FAIL;
    return bind(c, 0, emit(c, OP_Add, "", 2, (ValueId[]){v, bias}, 0, NULL));
}

Res make_pool(Ctx *c) {
    bool max = c->n->row->code == OP_MaxPool;
    Window w;
    int64_t ceil_mode, count_pad;
    MUST(read_window(c, NULL, &w));
    MUST(auto_pad(c, shape_in(c, 0), &w));
    MUST(attr_int(c, "ceil_mode", 0, &ceil_mode));
    MUST(attr_int(c, "count_include_pad", 0, &count_pad));
    for (uint32_t i = 0; i < w.nd; i++)
        if (!max && w.dilation[i] != 1) return ctx_skip(c, "dilated average pooling");
    Attr attr[7];
    uint32_t n = max ? window_attrs(c, &w, attr) : window_attrs(c, &w, attr) - 1;
    attr[n++] = attr_i(c->x->tmp, A_ceil_mode, ceil_mode != 0);
    if (!max) attr[n++] = attr_i(c->x->tmp, A_count_include_pad, count_pad != 0);
    ValueId v = value_in(c, 0);
    if (has_out(c, 1)) {
        int64_t columns;
        MUST(attr_int(c, "storage_order", 0, &columns));
        attr[n] = attr_i(c->x->tmp, A_mode, columns != 0);
        MUST(bind(c, 1, emit(c, OP_MaxPoolPlaces, ".indices", 1, &v, n + 1, attr)));
    }
    return bind(c, 0, emit(c, c->n->row->code, "", 1, &v, n, attr));
}

/* ---- matrix products ---- */

/* C of Gemm broadcasts to [M,N]. As [N] (or [1,N]) it is MatMul's bias; else it is added. */
static ValueId gemm_bias(const Ctx *c, int64_t n) {
    const Shape *s = shape_in(c, 2);
    ValueId v = value_in(c, 2);
    if (s->rank == 1 && s->dim[0] == n) return v;
    if (s->rank == 2 && s->dim[0] == 1 && s->dim[1] == n)
        return emit_view(c, ".bias", v, &(Shape){.rank = 1, .dim = {n}});
    return NO_ID;
}

Res make_gemm(Ctx *c) {
    Arena *a = c->x->tmp;
    double alpha, beta;
    int64_t trans_a, trans_b;
    MUST(attr_real(c, "alpha", 1, &alpha));
    MUST(attr_real(c, "beta", 1, &beta));
    MUST(attr_int(c, "transA", 0, &trans_a));
    MUST(attr_int(c, "transB", 0, &trans_b));
    const Shape *s = shape_in(c, 1);
    if (shape_in(c, 0)->rank != 2 || s->rank != 2)
        return ctx_fail(c, "expected matrices, found shapes %s and %s",
                        shape_str(a, shape_in(c, 0)), shape_str(a, s));
    Attr attr[3];
    uint32_t nattr = 0, nin = 2;
    if (trans_a) attr[nattr++] = attr_i(a, A_trans_a, 1);
    if (trans_b) attr[nattr++] = attr_i(a, A_trans_b, 1);
    if (alpha != 1) attr[nattr++] = attr_f(a, A_alpha, alpha);
    bool add = has_in(c, 2) && beta != 0;
    ValueId in[3] = {value_in(c, 0), value_in(c, 1), NO_ID};
    if (add && beta == 1) in[2] = gemm_bias(c, s->dim[trans_b ? 0 : 1]);
    if (in[2] != NO_ID) add = false, nin = 3;
    ValueId v = emit(c, OP_MatMul, add ? ".product" : "", nin, in, nattr, attr);
    if (!add || v == NO_ID) return bind(c, 0, v);
    ValueId term = value_in(c, 2);
    Attr scale = attr_f(a, A_alpha, beta);
    if (beta != 1) term = emit(c, OP_Scale, ".beta", 1, &term, 1, &scale);
    if (term == NO_ID) return FAIL;
    Shape sum;
    if (!shape_broadcast(&c->x->g->value[v].shape, shape_in(c, 2), &sum) ||
        !shape_eq(&sum, &c->x->g->value[v].shape))
        return ctx_fail(c, "C of shape %s does not broadcast to %s", shape_str(a, shape_in(c, 2)),
                        shape_str(a, &c->x->g->value[v].shape));
    return bind(c, 0, emit(c, OP_Add, "", 2, (ValueId[]){v, term}, 0, NULL));
}

/* A vector on the left is one row, on the right one column; the axis goes afterwards. */
Res make_matmul(Ctx *c) {
    ValueId in[2];
    bool vector[2];
    for (uint32_t i = 0; i < 2; i++) {
        const Shape *s = shape_in(c, i);
        in[i] = value_in(c, i);
        vector[i] = s->rank == 1;
        if (s->rank == 0) return ctx_fail(c, "input %u is a scalar", i);
        if (!vector[i]) continue;
        Shape m = {.rank = 2, .dim = {i ? s->dim[0] : 1, i ? 1 : s->dim[0]}};
        in[i] = emit_view(c, i ? ".column" : ".row", in[i], &m);
        if (in[i] == NO_ID) return FAIL;
    }
    bool any = vector[0] || vector[1];
    ValueId v = emit(c, OP_MatMul, any ? ".product" : "", 2, in, 0, NULL);
    if (!any || v == NO_ID) return bind(c, 0, v);
    Shape full = c->x->g->value[v].shape, s = {0};
    for (uint32_t k = 0; k < full.rank; k++) {
        bool row = k + 2 == full.rank, column = k + 1 == full.rank;
        if (!(row && vector[0]) && !(column && vector[1])) s.dim[s.rank++] = full.dim[k];
    }
    return bind(c, 0, emit_view(c, "", v, &s));
}

/* ---- normalisation ---- */

/* Running statistics that the node updates: a buffer, also when the file has a constant there. */
static ValueId statistic(const Ctx *c, uint32_t i) {
    const Tensor *t = known_in(c, i);
    if (!t) return value_in(c, i);
    const char *name = arena_printf(c->x->tmp, "%s%s", c->n->name, i == 3 ? ".mean" : ".var");
    return constant(c->x, name, t, ROLE_BUFFER);
}

/* Training form: training_mode = 1, before operator set 14 the presence of the further outputs. */
static Res is_training(const Ctx *c, bool *out) {
    int64_t mode;
    uint32_t named = 0;
    MUST(attr_int(c, "training_mode", 0, &mode));
    for (uint32_t k = 1; k < c->n->nout; k++) named += c->n->out[k] != NO_ID;
    *out = c->x->opset >= 14 ? mode != 0 : named != 0;
    return OK;
}

Res make_batch_norm(Ctx *c) {
    bool training;
    double eps, momentum;
    int64_t spatial;
    MUST(is_training(c, &training));
    MUST(attr_real(c, "epsilon", 1e-5, &eps));
    MUST(attr_real(c, "momentum", 0.9, &momentum));
    MUST(attr_int(c, "spatial", 1, &spatial));
    if (!spatial) return ctx_skip(c, "statistics per element (spatial = 0)");
    for (uint32_t k = 1; k < c->n->nout; k++)
        if (has_out(c, k)) return ctx_skip(c, "its output %u of statistics is used", k);
    ValueId in[5];
    for (uint32_t i = 0; i < 5; i++) {
        in[i] = training && i >= 3 ? statistic(c, i) : value_in(c, i);
        if (training && i >= 3 && c->x->g->value[in[i]].role != ROLE_BUFFER)
            return ctx_skip(c, "running statistics that are computed in the graph");
    }
    Attr attr[] = {attr_f(c->x->tmp, A_eps, eps), attr_f(c->x->tmp, A_momentum, momentum),
                   attr_i(c->x->tmp, A_training, training)};
    return bind(c, 0, emit(c, OP_BatchNorm, "", 5, in, 3, attr));
}

/* Softmax and LogSoftmax. Before operator set 13 the axes from `axis` on are one. */
Res make_softmax(Ctx *c) {
    bool old = c->x->opset < 13;
    const Shape x = *shape_in(c, 0);
    int64_t given;
    uint32_t axis;
    MUST(attr_int(c, "axis", old ? 1 : -1, &given));
    if (x.rank == 0) return ctx_fail(c, "a scalar has no axis");
    if (!(old && given == (int64_t)x.rank)) MUST(axis_of(c, given, x.rank, &axis));
    if (old && given == (int64_t)x.rank) axis = x.rank;
    ValueId v = value_in(c, 0);
    if (!old || axis + 1 == x.rank) {
        Attr attr = attr_i(c->x->tmp, A_axis, axis);
        return bind(c, 0, emit(c, c->n->row->code, "", 1, &v, 1, &attr));
    }
    Shape rows = {.rank = 2, .dim = {1, 1}};
    for (uint32_t k = 0; k < x.rank; k++) rows.dim[k < axis ? 0 : 1] *= x.dim[k];
    Attr attr = attr_i(c->x->tmp, A_axis, 1);
    v = emit_view(c, ".rows", v, &rows);
    if (v != NO_ID) v = emit(c, c->n->row->code, ".flat", 1, &v, 1, &attr);
    return v == NO_ID ? FAIL : bind(c, 0, emit_view(c, "", v, &x));
}
