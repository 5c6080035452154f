/* make_image.c - run-time nodes of operators on images that are no convolutions: Resize and
 * Upsample, DepthToSpace and SpaceToDepth, LRN, LpPool, MaxUnpool. All but Resize are composed of
 * views, transposes, sums and averages. */
#include "import.h"

#include <math.h>
#include <string.h>

/* Position of a word in a list; -1 when it is not there. */
static int64_t word_at(const char *word, const char *const *list) {
    for (int64_t i = 0; list[i]; i++)
        if (!strcmp(word, list[i])) return i;
    return -1;
}

/* ---- Resize ---- */

typedef struct {
    uint32_t rank;
    int64_t size[IR_MAX_RANK], mode, coord, rounding, exclude, antialias;
    double scale[IR_MAX_RANK], first[IR_MAX_RANK], last[IR_MAX_RANK], cubic, value;
} Resizing;

/* Numbers of an attribute or a known input, one for each of the axes that attribute axes lists. */
static Res axis_reals(const Ctx *c, const char *attr, uint32_t slot, uint32_t parts, uint32_t n,
                      const double **out) {
    const AttributeProto *a = attr_of(c, attr);
    const Tensor *t = has_in(c, slot) ? known_in(c, slot) : NULL;
    double *v = ARENA_ARRAY(c->x->tmp, double, 2 * IR_MAX_RANK);
    *out = NULL;
    if (!a && has_in(c, slot) && (!t || t->missing))
        return ctx_skip(c, "%s (input %u) must be constant", attr, slot);
    uint64_t count = a ? a->n_floats : t ? t->count : 0;
    if (!count) return OK; /* operator set 11 writes empty tensors for what is not given */
    if (count != (uint64_t)parts * n)
        return ctx_fail(c, "expected %u numbers in %s, found %llu", parts * n, attr,
                        (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) v[i] = a ? (double)a->floats[i] : tensor_real(t, i);
    *out = v;
    return OK;
}

static Res resize_axes(const Ctx *c, uint32_t rank, uint32_t *n, uint32_t *axes) {
    Ints given;
    MUST(ints_of(c, "axes", NO_ID, &given));
    *n = given.given ? given.n : rank;
    if (*n > rank) return ctx_fail(c, "%u axes of %u", *n, rank);
    for (uint32_t i = 0; i < *n; i++) {
        axes[i] = i;
        if (given.given) MUST(axis_of(c, given.at[i], rank, &axes[i]));
    }
    return OK;
}

/* Sizes with keep_aspect_ratio_policy: one scale for all axes, the smallest or the largest. */
static Res keep_aspect(const Ctx *c, Resizing *r, uint32_t n, const uint32_t *axes,
                       const Shape *x) {
    const char *policy;
    MUST(attr_text(c, "keep_aspect_ratio_policy", "stretch", &policy));
    bool larger = !strcmp(policy, "not_smaller");
    if (!larger && strcmp(policy, "not_larger") != 0) return OK;
    double scale = larger ? 0 : INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double s = r->scale[axes[i]];
        scale = larger ? fmax(scale, s) : fmin(scale, s);
    }
    for (uint32_t i = 0; i < n; i++) {
        r->scale[axes[i]] = scale;
        r->size[axes[i]] = (int64_t)rint(scale * (double)x->dim[axes[i]]);
    }
    return OK;
}

/* Scales or sizes give the result's shape. */
static Res resize_shape(const Ctx *c, Resizing *r, uint32_t scales_at, uint32_t sizes_at) {
    const Shape *x = shape_in(c, 0);
    const double *scales, *region;
    uint32_t n, axes[IR_MAX_RANK];
    Ints sizes;
    MUST(resize_axes(c, x->rank, &n, axes));
    for (uint32_t k = 0; k < x->rank; k++) {
        r->size[k] = x->dim[k];
        r->scale[k] = r->last[k] = 1;
        if (x->dim[k] < 1) return ctx_fail(c, "axis %u is empty", k);
    }
    MUST(axis_reals(c, "scales", scales_at, 1, n, &scales));
    MUST(axis_reals(c, "", r->coord == 5 ? 1 : NO_ID, 2, n, &region));
    MUST(ints_of(c, "", sizes_at, &sizes));
    if (!scales && sizes.n != n)
        return ctx_fail(c, "expected scales or sizes of %u axes, found %u sizes", n, sizes.n);
    if (r->coord == 5 && !region) return ctx_fail(c, "the region (input 1) is not there");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = axes[i];
        double d = (double)x->dim[k], size = scales ? floor(scales[i] * d) : (double)sizes.at[i];
        if (!(size >= 1 && size <= INT32_MAX) || (scales && !(scales[i] > 0)))
            return ctx_fail(c, "axis %u of size %lld would get the size %g", k,
                            (long long)x->dim[k], size);
        r->size[k] = (int64_t)size;
        r->scale[k] = scales ? scales[i] : size / d;
        if (region) r->first[k] = region[i], r->last[k] = region[n + i];
    }
    return scales ? OK : keep_aspect(c, r, n, axes, x);
}

static Res emit_resize(const Ctx *c, const Resizing *r) {
    Arena *a = c->x->tmp;
    const Shape *x = shape_in(c, 0);
    uint32_t rank = x->rank, n = 0, changed = 0;
    Attr attr[12], reals = {.key = A_scales, .is_float = true, .n = rank, .f = r->scale};
    for (uint32_t k = 0; k < rank; k++)
        changed += r->size[k] != x->dim[k] || r->scale[k] != 1 || r->coord == 5;
    if (!changed) return bind(c, 0, emit_view(c, "", value_in(c, 0), x));
    attr[n++] = attr_ints(a, A_sizes, r->size, rank);
    attr[n++] = reals;
    attr[n++] = attr_i(a, A_mode, r->mode);
    attr[n++] = attr_i(a, A_coord, r->coord);
    if (r->mode == 0) attr[n++] = attr_i(a, A_rounding, r->rounding);
    if (r->mode == 2) attr[n++] = attr_f(a, A_cubic, r->cubic);
    if (r->exclude) attr[n++] = attr_i(a, A_exclude_outside, 1);
    if (r->antialias) attr[n++] = attr_i(a, A_antialias, 1);
    if (r->coord == 5) {
        reals.key = A_first, reals.f = r->first;
        attr[n++] = reals;
        reals.key = A_final, reals.f = r->last;
        attr[n++] = reals;
        attr[n++] = attr_f(a, A_value, r->value);
    }
    ValueId v = emit_cast(c, ".float", value_in(c, 0), DT_F32);
    return v == NO_ID ? FAIL : bind(c, 0, emit(c, OP_Resize, "", 1, &v, n, attr));
}

static Res resize_mode(const Ctx *c, int64_t *mode) {
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    const char *text;
    MUST(attr_text(c, "mode", "nearest", &text));
    *mode = !strcmp(text, "bilinear") ? 1 : word_at(text, modes);
    if (*mode >= 0) return OK;
    return ctx_fail(c, "mode is %s, expected nearest, linear or cubic", diag_name(c->x->tmp, text));
}

/* Operator set 10, and Upsample: asymmetric, the place below. */
static Res make_upsample(Ctx *c) {
    Resizing r = {.coord = 1, .rounding = 2, .cubic = -0.75};
    MUST(resize_mode(c, &r.mode));
    if (attr_of(c, "height_scale")) { /* operator set 1 */
        double down, along;
        MUST(attr_real(c, "height_scale", 1, &down));
        MUST(attr_real(c, "width_scale", 1, &along));
        const Shape *x = shape_in(c, 0);
        if (x->rank != 4 || !(down >= 1 && down < 1e6) || !(along >= 1 && along < 1e6))
            return ctx_fail(c, "scales %g and %g of %u axes", down, along, x->rank);
        for (uint32_t k = 0; k < 4; k++) {
            r.scale[k] = k == 2 ? down : k == 3 ? along : 1;
            r.size[k] = (int64_t)floor(r.scale[k] * (double)x->dim[k]);
        }
        return emit_resize(c, &r);
    }
    MUST(resize_shape(c, &r, 1, NO_ID));
    return emit_resize(c, &r);
}

Res make_resize(Ctx *c) {
    static const char *const coords[] = {
        "half_pixel",           "asymmetric",         "align_corners",        "pytorch_half_pixel",
        "tf_half_pixel_for_nn", "tf_crop_and_resize", "half_pixel_symmetric", NULL};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil", NULL};
    const char *coord, *rounding;
    Resizing r = {0};
    if (c->x->opset < 11 || !strcmp(c->n->row->name, "Upsample")) return make_upsample(c);
    MUST(resize_mode(c, &r.mode));
    MUST(attr_text(c, "coordinate_transformation_mode", "half_pixel", &coord));
    MUST(attr_text(c, "nearest_mode", "round_prefer_floor", &rounding));
    r.coord = word_at(coord, coords);
    r.rounding = word_at(rounding, roundings);
    if (r.coord < 0 || r.rounding < 0)
        return ctx_skip(c, "with %s", diag_name(c->x->tmp, r.coord < 0 ? coord : rounding));
    MUST(attr_real(c, "cubic_coeff_a", -0.75, &r.cubic));
    MUST(attr_real(c, "extrapolation_value", 0, &r.value));
    MUST(attr_int(c, "exclude_outside", 0, &r.exclude));
    MUST(attr_int(c, "antialias", 0, &r.antialias));
    MUST(resize_shape(c, &r, 2, 3));
    return emit_resize(c, &r);
}

/* ---- blocks of pixels and channels ---- */

/* x as shape s, transposed by perm, as shape out */
static Res rearrange(const Ctx *c, const Shape *s, const int64_t *perm, const Shape *out) {
    ValueId v = emit_view(c, ".split", value_in(c, 0), s);
    Attr at = attr_ints(c->x->tmp, A_perm, perm, s->rank);
    if (v != NO_ID) v = emit(c, OP_Transpose, ".turn", 1, &v, 1, &at);
    return v == NO_ID ? FAIL : bind(c, 0, emit_view(c, "", v, out));
}

static Res block_size(const Ctx *c, int64_t *b) {
    MUST(attr_int(c, "blocksize", 0, b));
    if (shape_in(c, 0)->rank != 4 || *b < 1 || *b > INT16_MAX)
        return ctx_fail(c, "expected 4 axes and a block size of at least 1, found %u and %lld",
                        shape_in(c, 0)->rank, (long long)*b);
    return OK;
}

/* DCR: the block's place is the slow part of the channel number, CRD: the fast one. */
Res make_depth_to_space(Ctx *c) {
    static const int64_t dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    const Shape x = *shape_in(c, 0);
    const char *mode;
    int64_t b;
    MUST(block_size(c, &b));
    MUST(attr_text(c, "mode", "DCR", &mode));
    bool slow = !strcmp(mode, "DCR");
    if (x.dim[1] % (b * b))
        return ctx_fail(c, "%lld channels for blocks of %lld", (long long)x.dim[1],
                        (long long)(b * b));
    int64_t d = x.dim[1] / (b * b);
    Shape s = {6, {x.dim[0], slow ? b : d, b, slow ? d : b, x.dim[2], x.dim[3]}};
    Shape out = {4, {x.dim[0], d, x.dim[2] * b, x.dim[3] * b}};
    return rearrange(c, &s, slow ? dcr : crd, &out);
}

Res make_space_to_depth(Ctx *c) {
    static const int64_t perm[] = {0, 3, 5, 1, 2, 4};
    const Shape x = *shape_in(c, 0);
    int64_t b;
    MUST(block_size(c, &b));
    if (x.dim[2] % b || x.dim[3] % b)
        return ctx_fail(c, "shape %s for blocks of %lld", shape_str(c->x->tmp, &x), (long long)b);
    Shape s = {6, {x.dim[0], x.dim[1], x.dim[2] / b, b, x.dim[3] / b, b}};
    Shape out = {4, {x.dim[0], x.dim[1] * b * b, x.dim[2] / b, x.dim[3] / b}};
    return rearrange(c, &s, perm, &out);
}

/* ---- local norms ---- */

static ValueId with_alpha(const Ctx *c, OpCode op, const char *suffix, ValueId v, double alpha) {
    Attr at = attr_f(c->x->tmp, A_alpha, alpha);
    return v == NO_ID ? NO_ID : emit(c, op, suffix, 1, &v, 1, &at);
}

/* x / (bias + alpha * mean)^beta, mean: that of the squares in a window of channels (zeros beyond
 * the first and last one), an average pool over images whose rows are channels. Krizhevsky et al.,
 * NIPS 2012, section 3.3. */
Res make_lrn(Ctx *c) {
    Arena *a = c->x->tmp;
    const Shape x = *shape_in(c, 0);
    double alpha, beta, bias;
    int64_t size;
    MUST(attr_real(c, "alpha", 1e-4, &alpha));
    MUST(attr_real(c, "beta", 0.75, &beta));
    MUST(attr_real(c, "bias", 1, &bias));
    MUST(attr_int(c, "size", 0, &size));
    if (x.rank < 2 || size < 1 || size > INT16_MAX)
        return ctx_fail(c, "a window of %lld channels of %u axes", (long long)size, x.rank);
    Shape rows = {4, {x.dim[0], 1, x.dim[1], 1}};
    for (uint32_t k = 2; k < x.rank; k++) rows.dim[3] *= x.dim[k];
    int64_t kernel[] = {size, 1}, ones[] = {1, 1}, pads[] = {(size - 1) / 2, 0, size / 2, 0};
    Attr pool[] = {attr_ints(a, A_kernel, kernel, 2), attr_ints(a, A_strides, ones, 2),
                   attr_ints(a, A_pads, pads, 4), attr_i(a, A_count_include_pad, 1)};
    Attr line[] = {attr_f(a, A_alpha, alpha), attr_f(a, A_beta, bias)};
    ValueId in = value_in(c, 0), v = with_alpha(c, OP_PowScalar, ".square", in, 2);
    v = v == NO_ID ? v : emit_view(c, ".rows", v, &rows);
    v = v == NO_ID ? v : emit(c, OP_AveragePool, ".mean", 1, &v, 4, pool);
    v = v == NO_ID ? v : emit_view(c, ".image", v, &x);
    v = v == NO_ID ? v : emit(c, OP_Scale, ".base", 1, &v, 2, line);
    return bind(c, 0,
                emit_binary(c, OP_Mul, "", in, with_alpha(c, OP_PowScalar, ".power", v, -beta)));
}

/* (sum over the window of |x|^p)^(1/p): the mean that counts the padding's zeros, times the cells.
 */
Res make_lp_pool(Ctx *c) {
    Arena *a = c->x->tmp;
    Window w;
    int64_t p, ceil_mode;
    double cells = 1;
    MUST(read_window(c, NULL, &w));
    MUST(auto_pad(c, shape_in(c, 0), &w));
    MUST(attr_int(c, "p", 2, &p));
    MUST(attr_int(c, "ceil_mode", 0, &ceil_mode));
    if (p < 1 || p > INT16_MAX) return ctx_fail(c, "p is %lld", (long long)p);
    for (uint32_t i = 0; i < w.nd; i++) {
        if (w.dilation[i] != 1 || ceil_mode) return ctx_skip(c, "dilated or with ceil_mode");
        cells *= (double)w.kernel[i];
    }
    Attr pool[] = {attr_ints(a, A_kernel, w.kernel, w.nd), attr_ints(a, A_strides, w.stride, w.nd),
                   attr_ints(a, A_pads, w.pads, 2 * w.nd), attr_i(a, A_count_include_pad, 1)};
    ValueId v = value_in(c, 0);
    if (p != 2) v = emit_unary(c, OP_Abs, ".abs", v);
    if (p != 1) v = with_alpha(c, OP_PowScalar, ".power", v, (double)p);
    if (v != NO_ID) v = emit(c, OP_AveragePool, ".mean", 1, &v, 4, pool);
    if (p == 1) return bind(c, 0, emit_scaled(c, "", v, cells));
    return bind(c, 0, with_alpha(c, OP_Root, "", emit_scaled(c, ".sum", v, cells), 1 / (double)p));
}

/* The places that MaxPool's indices name in the whole (flat) image get the values, the others 0.
 * With output_shape the image is padded to that at its ends. */
Res make_max_unpool(Ctx *c) {
    Arena *a = c->x->tmp;
    const Shape x = *shape_in(c, 0), *index = shape_in(c, 1);
    Window w;
    Ints want;
    MUST(read_window(c, NULL, &w));
    MUST(ints_of(c, "", 2, &want));
    Shape y = x, list = {1, {1}}, flat = {1, {1}};
    for (uint32_t i = 0; i < w.nd; i++) {
        y.dim[2 + i] =
            (x.dim[2 + i] - 1) * w.stride[i] + w.kernel[i] - w.pads[i] - w.pads[w.nd + i];
        if (y.dim[2 + i] < 1 || y.dim[2 + i] > INT32_MAX)
            return ctx_fail(c, "the result has %lld places on spatial axis %u",
                            (long long)y.dim[2 + i], i);
    }
    uint64_t n = 0, m = 0;
    if (!shape_eq(&x, index) || !shape_count(&x, &m) || !shape_count(&y, &n))
        return ctx_fail(c, "indices of shape %s for %s", shape_str(a, index), shape_str(a, &x));
    list.dim[0] = (int64_t)m, flat.dim[0] = (int64_t)n;
    ValueId in[] = {emit_view(c, ".places", value_in(c, 1), &list),
                    emit_view(c, ".values", value_in(c, 0), &list)};
    Attr attr[] = {attr_i(a, A_axis, 0), attr_ints(a, A_shape, flat.dim, 1)};
    if (in[0] == NO_ID || in[1] == NO_ID) return FAIL;
    ValueId v = emit(c, OP_ScatterElements, ".flat", 2, in, 2, attr);
    v = v == NO_ID ? v : emit_view(c, want.n ? ".image" : "", v, &y);
    if (!want.n || v == NO_ID) return bind(c, 0, v);
    int64_t pads[2 * IR_MAX_RANK] = {0};
    if (want.n != y.rank) return ctx_fail(c, "an output shape of %u axes", want.n);
    for (uint32_t k = 0; k < y.rank; k++) {
        pads[y.rank + k] = want.at[k] - y.dim[k];
        if (want.at[k] < y.dim[k] || want.at[k] > INT32_MAX)
            return ctx_fail(c, "an output of %lld places on axis %u, found %lld",
                            (long long)want.at[k], k, (long long)y.dim[k]);
    }
    Attr pad = attr_ints(a, A_pads, pads, 2 * y.rank);
    return bind(c, 0, emit(c, OP_Pad, "", 1, &v, 1, &pad));
}
