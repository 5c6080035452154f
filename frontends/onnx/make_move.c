/* make_move.c - shapes of the operators that move elements, shared with compile-time evaluation,
 * and their run-time nodes. Reshape, Flatten, Squeeze, Unsqueeze and Identity become views; Split
 * becomes Slices; a Gather of one constant position becomes a Slice. */
#include "import.h"

#include <string.h>

/* ---- shapes ---- */

Res shape_reshape(const Ctx *c, Shape *out) {
    const Shape *in = shape_in(c, 0);
    int64_t allow_zero, fill = -1;
    uint64_t have = 0, rest = 1;
    Ints want;
    MUST(attr_int(c, "allowzero", 0, &allow_zero));
    MUST(ints_of(c, "shape", 1, &want));
    if (want.n > IR_MAX_RANK)
        return ctx_fail(c, "expected at most %d axes, found %u", IR_MAX_RANK, want.n);
    *out = (Shape){.rank = want.n};
    for (uint32_t k = 0; k < want.n; k++) {
        int64_t d = want.at[k];
        if (d == 0 && !allow_zero) {
            if (k >= in->rank) return ctx_fail(c, "shape copies axis %u of %u axes", k, in->rank);
            d = in->dim[k];
        }
        if (d < -1 || (d == -1 && fill >= 0))
            return ctx_fail(c, "shape has %s", d == -1 ? "two unknown axes" : "a negative size");
        if (d == -1) fill = k;
        out->dim[k] = d == -1 ? 1 : d;
    }
    shape_count(in, &have);
    bool fits = shape_count(out, &rest);
    if (fits && fill >= 0 && rest) out->dim[fill] = (int64_t)(have / rest);
    if (!fits || !shape_count(out, &rest) || rest != have)
        return ctx_fail(
            c,
            "a tensor of shape %s does not fit into %s; was the model exported with another "
            "batch size?",
            shape_str(c->x->tmp, in), shape_str(c->x->tmp, out));
    return OK;
}

Res shape_flatten(const Ctx *c, Shape *out) {
    const Shape *in = shape_in(c, 0);
    int64_t axis, rank = (int64_t)in->rank;
    MUST(attr_int(c, "axis", 1, &axis));
    if (axis < -rank || axis > rank)
        return ctx_fail(c, "axis %lld is outside of a tensor with %u axes", (long long)axis,
                        in->rank);
    if (axis < 0) axis += rank;
    *out = (Shape){.rank = 2, .dim = {1, 1}};
    for (uint32_t k = 0; k < in->rank; k++) out->dim[k < axis ? 0 : 1] *= in->dim[k];
    return OK;
}

Res shape_squeeze(const Ctx *c, Shape *out) {
    const Shape *in = shape_in(c, 0);
    uint32_t n, axes[IR_MAX_RANK];
    bool drop[IR_MAX_RANK] = {0};
    Ints given;
    MUST(ints_of(c, "axes", 1, &given));
    MUST(axes_of(c, &given, in->rank, &n, axes));
    for (uint32_t i = 0; i < n; i++) {
        drop[axes[i]] = in->dim[axes[i]] == 1;
        if (given.n && !drop[axes[i]])
            return ctx_fail(c, "axis %u to squeeze has size %lld, expected 1", axes[i],
                            (long long)in->dim[axes[i]]);
    }
    *out = (Shape){0};
    for (uint32_t k = 0; k < in->rank; k++)
        if (!drop[k]) out->dim[out->rank++] = in->dim[k];
    return OK;
}

Res shape_unsqueeze(const Ctx *c, Shape *out) {
    const Shape *in = shape_in(c, 0);
    uint32_t n = 0, axes[IR_MAX_RANK];
    bool added[IR_MAX_RANK] = {0};
    Ints given;
    MUST(ints_of(c, "axes", 1, &given));
    if (!given.n || in->rank + given.n > IR_MAX_RANK)
        return ctx_fail(c, "expected axes that make at most %d, found %u and %u", IR_MAX_RANK,
                        in->rank, given.n);
    uint32_t rank = in->rank + given.n;
    MUST(axes_of(c, &given, rank, &n, axes));
    for (uint32_t i = 0; i < n; i++) added[axes[i]] = true;
    *out = (Shape){.rank = rank};
    for (uint32_t k = 0, from = 0; k < rank; k++) out->dim[k] = added[k] ? 1 : in->dim[from++];
    return OK;
}

Res shape_expand(const Ctx *c, Shape *out) {
    Ints want;
    MUST(ints_of(c, "shape", 1, &want));
    if (want.n > IR_MAX_RANK)
        return ctx_fail(c, "expected at most %d axes, found %u", IR_MAX_RANK, want.n);
    Shape s = {.rank = want.n};
    for (uint32_t k = 0; k < want.n; k++) {
        if (want.at[k] < 0)
            return ctx_fail(c, "expected sizes in the shape, found %lld", (long long)want.at[k]);
        s.dim[k] = want.at[k];
    }
    if (!shape_broadcast(shape_in(c, 0), &s, out))
        return ctx_fail(c, "a tensor of shape %s does not expand to %s",
                        shape_str(c->x->tmp, shape_in(c, 0)), shape_str(c->x->tmp, &s));
    return OK;
}

Res perm_of(const Ctx *c, uint32_t rank, int64_t *perm) {
    Ints given;
    bool seen[IR_MAX_RANK] = {0};
    MUST(ints_of(c, "perm", NO_ID, &given));
    if (given.given && given.n != rank)
        return ctx_fail(c, "expected %u axes in perm, found %u", rank, given.n);
    for (uint32_t k = 0; k < rank; k++) {
        uint32_t axis = 0;
        MUST(axis_of(c, given.given ? given.at[k] : (int64_t)(rank - 1 - k), rank, &axis));
        if (seen[axis]) return ctx_fail(c, "axis %u occurs twice in perm", axis);
        seen[axis] = true;
        perm[k] = axis;
    }
    return OK;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

/* One axis: ends past the tensor are legal and cut. */
static Res slice_axis(const Ctx *c, int64_t dim, int64_t start, int64_t end, int64_t step,
                      SliceSpec *out, uint32_t k) {
    if (step == 0) return ctx_fail(c, "step 0 on axis %u", k);
    step = clamp(step, -dim - 1, dim + 1);
    start += start < 0 ? dim : 0;
    end += end < 0 ? dim : 0;
    start = step > 0 ? clamp(start, 0, dim) : clamp(start, -1, dim - 1);
    end = step > 0 ? clamp(end, 0, dim) : clamp(end, -1, dim - 1);
    int64_t span = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    out->start[k] = start;
    out->step[k] = step;
    out->size[k] = span > 0 ? (span + stride - 1) / stride : 0;
    return OK;
}

Res slice_spec(const Ctx *c, SliceSpec *out) {
    const Shape *in = shape_in(c, 0);
    Ints starts, ends, axes, steps;
    bool seen[IR_MAX_RANK] = {0};
    MUST(ints_of(c, "starts", 1, &starts));
    MUST(ints_of(c, "ends", 2, &ends));
    MUST(ints_of(c, "axes", 3, &axes));
    MUST(ints_of(c, "steps", 4, &steps));
    if (starts.n != ends.n || (axes.given && axes.n != starts.n) ||
        (steps.given && steps.n != starts.n))
        return ctx_fail(c, "starts, ends, axes and steps have %u, %u, %u and %u entries", starts.n,
                        ends.n, axes.n, steps.n);
    for (uint32_t k = 0; k < in->rank; k++)
        MUST(slice_axis(c, in->dim[k], 0, in->dim[k], 1, out, k));
    for (uint32_t i = 0; i < starts.n; i++) {
        uint32_t k;
        MUST(axis_of(c, axes.given ? axes.at[i] : i, in->rank, &k));
        if (seen[k]) return ctx_fail(c, "axis %u occurs twice", k);
        seen[k] = true;
        MUST(slice_axis(c, in->dim[k], starts.at[i], ends.at[i], steps.given ? steps.at[i] : 1, out,
                        k));
    }
    return OK;
}

/* Without sizes: equal parts, the last one smaller (operator set 18; before it they must be equal).
 */
Res split_spec(const Ctx *c, uint32_t *axis, int64_t *sizes) {
    const Shape *in = shape_in(c, 0);
    int64_t given_axis, parts, total = 0;
    uint32_t n = c->n->nout;
    Ints split;
    MUST(attr_int(c, "axis", 0, &given_axis));
    MUST(axis_of(c, given_axis, in->rank, axis));
    MUST(ints_of(c, "split", 1, &split));
    MUST(attr_int(c, "num_outputs", n, &parts));
    int64_t dim = in->dim[*axis];
    if (parts != n || (split.given && split.n != n))
        return ctx_fail(c, "%lld parts for %u outputs", (long long)(split.given ? split.n : parts),
                        n);
    int64_t part = (dim + n - 1) / n;
    for (uint32_t k = 0; k < n; k++) {
        int64_t left = dim - total;
        sizes[k] = split.given ? split.at[k] : part < left ? part : left;
        if (sizes[k] < 0 || sizes[k] > left) break;
        total += sizes[k];
    }
    if (total != dim || (!split.given && !attr_of(c, "num_outputs") && dim % n))
        return ctx_fail(c, "the parts do not add up to the %lld of axis %u", (long long)dim, *axis);
    return OK;
}

Res concat_spec(const Ctx *c, uint32_t *axis, Shape *out) {
    int64_t given;
    for (uint32_t i = 0; i < c->n->nin; i++)
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
    MUST(attr_int(c, "axis", 1, &given));
    *out = *shape_in(c, 0);
    MUST(axis_of(c, given, out->rank, axis));
    for (uint32_t i = 1; i < c->n->nin; i++) {
        const Shape *s = shape_in(c, i);
        bool same = s->rank == out->rank && dtype_in(c, i) == dtype_in(c, 0);
        for (uint32_t k = 0; same && k < s->rank; k++)
            same = k == *axis || s->dim[k] == out->dim[k];
        if (!same)
            return ctx_fail(c, "input %u, %s%s, does not join %s%s along axis %u", i,
                            dtype_name(dtype_in(c, i)), shape_str(c->x->tmp, s),
                            dtype_name(dtype_in(c, 0)), shape_str(c->x->tmp, out), *axis);
        if (__builtin_add_overflow(out->dim[*axis], s->dim[*axis], &out->dim[*axis]))
            return ctx_fail(c, "the result is too large");
    }
    return OK;
}

Res gather_axis(const Ctx *c, uint32_t *axis, Shape *out) {
    const Shape *in = shape_in(c, 0), *at = shape_in(c, 1);
    int64_t given;
    MUST(attr_int(c, "axis", 0, &given));
    MUST(axis_of(c, given, in->rank, axis));
    if (dtype_in(c, 1) != DT_I64 && dtype_in(c, 1) != DT_I32)
        return ctx_fail(c, "indices must be integers, found %s", dtype_name(dtype_in(c, 1)));
    if (in->rank + at->rank - 1 > IR_MAX_RANK)
        return ctx_fail(c, "the result would have more than %d axes", IR_MAX_RANK);
    *out = (Shape){0};
    for (uint32_t k = 0; k < in->rank; k++) {
        for (uint32_t j = 0; k == *axis && j < at->rank; j++) out->dim[out->rank++] = at->dim[j];
        if (k != *axis) out->dim[out->rank++] = in->dim[k];
    }
    const Tensor *known = known_in(c, 1);
    for (uint64_t i = 0; known && !known->missing && i < known->count; i++) {
        int64_t v = tensor_int(known, i), dim = in->dim[*axis];
        if (v < -dim || v >= dim)
            return ctx_fail(c, "index %lld is outside of axis %u of size %lld", (long long)v, *axis,
                            (long long)dim);
    }
    return OK;
}

/* ---- run-time nodes ---- */

Res make_identity(Ctx *c) {
    return bind(c, 0, emit_view(c, "", value_in(c, 0), shape_in(c, 0)));
}

Res make_reshape(Ctx *c) {
    Shape s;
    MUST(shape_reshape(c, &s));
    return bind(c, 0, emit_view(c, "", value_in(c, 0), &s));
}

Res make_flatten(Ctx *c) {
    Shape s;
    MUST(shape_flatten(c, &s));
    return bind(c, 0, emit_view(c, "", value_in(c, 0), &s));
}

Res make_squeeze(Ctx *c) {
    Shape s;
    MUST(shape_squeeze(c, &s));
    return bind(c, 0, emit_view(c, "", value_in(c, 0), &s));
}

Res make_unsqueeze(Ctx *c) {
    Shape s;
    MUST(shape_unsqueeze(c, &s));
    return bind(c, 0, emit_view(c, "", value_in(c, 0), &s));
}

Res make_expand(Ctx *c) {
    Shape s;
    MUST(shape_expand(c, &s));
    if (shape_eq(&s, shape_in(c, 0))) return make_identity(c);
    Attr shape = attr_ints(c->x->tmp, A_shape, s.dim, s.rank);
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_Expand, "", 1, &v, 1, &shape));
}

Res make_transpose(Ctx *c) {
    int64_t perm[IR_MAX_RANK];
    uint32_t rank = shape_in(c, 0)->rank, moved = 0;
    MUST(perm_of(c, rank, perm));
    for (uint32_t k = 0; k < rank; k++) moved += perm[k] != k;
    if (!moved) return make_identity(c);
    Attr attr = attr_ints(c->x->tmp, A_perm, perm, rank);
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_Transpose, "", 1, &v, 1, &attr));
}

static ValueId emit_slice(const Ctx *c, const char *suffix, ValueId v, const SliceSpec *s) {
    Arena *a = c->x->tmp;
    uint32_t rank = c->x->g->value[v].shape.rank;
    Attr attr[] = {attr_ints(a, A_starts, s->start, rank), attr_ints(a, A_steps, s->step, rank),
                   attr_ints(a, A_sizes, s->size, rank)};
    return emit(c, OP_Slice, suffix, 1, &v, 3, attr);
}

bool is_whole_slice(const Shape *in, const SliceSpec *s) {
    for (uint32_t k = 0; k < in->rank; k++)
        if (s->size[k] != in->dim[k] || (s->step[k] < 0 && s->size[k] > 1)) return false;
    return true;
}

static SliceSpec whole_slice(const Shape *in) {
    SliceSpec s;
    for (uint32_t k = 0; k < IR_MAX_RANK; k++) {
        s.start[k] = 0;
        s.step[k] = 1;
        s.size[k] = k < in->rank ? in->dim[k] : 0;
    }
    return s;
}

Res make_slice(Ctx *c) {
    SliceSpec s;
    MUST(slice_spec(c, &s));
    if (is_whole_slice(shape_in(c, 0), &s)) return make_identity(c);
    return bind(c, 0, emit_slice(c, "", value_in(c, 0), &s));
}

Res make_split(Ctx *c) {
    uint32_t axis;
    int64_t *size = ARENA_ARRAY(c->x->tmp, int64_t, c->n->nout), start = 0;
    MUST(split_spec(c, &axis, size));
    if (c->n->nout == 1) return make_identity(c);
    for (uint32_t k = 0; k < c->n->nout; k++) {
        SliceSpec s = whole_slice(shape_in(c, 0));
        s.start[axis] = start;
        s.size[axis] = size[k];
        start += size[k];
        if (!has_out(c, k)) continue;
        MUST(bind(c, k, emit_slice(c, arena_printf(c->x->tmp, ".%u", k), value_in(c, 0), &s)));
    }
    return OK;
}

/* Empty inputs, which some exporters write, add nothing. */
Res make_concat(Ctx *c) {
    uint32_t axis, n = 0;
    Shape s;
    MUST(concat_spec(c, &axis, &s));
    ValueId *in = ARENA_ARRAY(c->x->tmp, ValueId, c->n->nin);
    for (uint32_t i = 0; i < c->n->nin; i++)
        if (shape_in(c, i)->dim[axis]) in[n++] = value_in(c, i);
    if (n == 1) return bind(c, 0, emit_view(c, "", in[0], &s));
    Attr attr = attr_i(c->x->tmp, A_axis, axis);
    return bind(c, 0, emit(c, OP_Concat, "", n, in, 1, &attr));
}

Res make_gather(Ctx *c) {
    uint32_t axis;
    Shape s;
    MUST(gather_axis(c, &axis, &s));
    const Tensor *at = known_in(c, 1);
    ValueId in[] = {value_in(c, 0), NO_ID};
    if (at && !at->missing && at->count == 1) {
        const Shape *shape = shape_in(c, 0);
        SliceSpec spec = whole_slice(shape);
        int64_t i = tensor_int(at, 0);
        spec.start[axis] = i < 0 ? i + shape->dim[axis] : i;
        spec.size[axis] = 1;
        ValueId v = emit_slice(c, ".slice", in[0], &spec);
        return v == NO_ID ? FAIL : bind(c, 0, emit_view(c, "", v, &s));
    }
    in[1] = value_in(c, 1);
    Attr attr = attr_i(c->x->tmp, A_axis, axis);
    return bind(c, 0, emit(c, OP_Gather, "", 2, in, 1, &attr));
}

/* Pads of the listed axes (operator set 18) as pads of all axes. */
static Res pads_of(const Ctx *c, uint32_t rank, int64_t *pads) {
    Ints given, axes;
    uint32_t n = rank;
    MUST(ints_of(c, "pads", 1, &given));
    MUST(ints_of(c, "axes", 3, &axes));
    if (axes.given) n = axes.n;
    if (given.n != 2 * n) return ctx_fail(c, "expected %u pads, found %u", 2 * n, given.n);
    for (uint32_t i = 0; i < 2 * rank; i++) pads[i] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        if (axes.given) MUST(axis_of(c, axes.at[i], rank, &k));
        pads[k] = given.at[i];
        pads[rank + k] = given.at[n + i];
    }
    return OK;
}

Res make_pad(Ctx *c) {
    static const char *const modes[] = {"constant", "reflect", "edge"};
    const char *mode;
    double value;
    int64_t pads[2 * IR_MAX_RANK], any = 0, m = 0;
    uint32_t rank = shape_in(c, 0)->rank;
    MUST(attr_text(c, "mode", "constant", &mode));
    MUST(real_of(c, "value", 2, 0, &value));
    MUST(pads_of(c, rank, pads));
    while (m < 3 && strcmp(mode, modes[m]) != 0) m++;
    if (m == 3)
        return ctx_skip(c, "mode %s (constant, reflect and edge are)", diag_name(c->x->tmp, mode));
    for (uint32_t i = 0; i < 2 * rank; i++) any |= pads[i];
    if (!any) return make_identity(c);
    Attr attr[] = {attr_ints(c->x->tmp, A_pads, pads, 2 * rank), attr_i(c->x->tmp, A_mode, m),
                   attr_f(c->x->tmp, A_value, value)};
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_Pad, "", 1, &v, 3, attr));
}
