/* make_norm.c - run-time nodes of normalizations. Layer, RMS, group and instance normalization are
 * operators of their own, so that only their input and a few numbers are kept for the gradient;
 * LpNormalization and MeanVarianceNormalization are what their specification writes. */
#include "import.h"

#include <string.h>

static ValueId one(const Ctx *c, OpCode op, const char *suffix, ValueId a) {
    return a == NO_ID ? NO_ID : emit(c, op, suffix, 1, &a, 0, NULL);
}

static ValueId two(const Ctx *c, OpCode op, const char *suffix, ValueId a, ValueId b) {
    ValueId in[] = {a, b};
    return a == NO_ID || b == NO_ID ? NO_ID : emit(c, op, suffix, 2, in, 0, NULL);
}

static ValueId expand(const Ctx *c, const char *suffix, ValueId v, const Shape *s) {
    Attr at = attr_ints(c->x->tmp, A_shape, s->dim, s->rank);
    return v == NO_ID ? NO_ID : emit(c, OP_Expand, suffix, 1, &v, 1, &at);
}

/* Scale and bias of the normalized axes; the file may write more leading ones, or fewer numbers
 * that broadcast. */
static Res norm_weight(const Ctx *c, uint32_t i, uint32_t axis, ValueId *out) {
    const Shape *x = shape_in(c, 0), *s = shape_in(c, i);
    Shape inner = {.rank = x->rank - axis}, sum;
    for (uint32_t k = 0; k < inner.rank; k++) inner.dim[k] = x->dim[axis + k];
    uint64_t want = 0, have = 1;
    const char *suffix = i == 1 ? ".scale" : ".bias";
    shape_count(&inner, &want);
    shape_count(s, &have);
    *out = value_in(c, i);
    if (shape_eq(s, &inner)) return OK;
    if (want == have)
        *out = emit_view(c, suffix, *out, &inner);
    else if (shape_broadcast(s, &inner, &sum) && shape_eq(&sum, &inner))
        *out = expand(c, suffix, *out, &inner);
    else
        return ctx_skip(c, "input %u of shape %s for normalised axes %s", i,
                        shape_str(c->x->tmp, s), shape_str(c->x->tmp, &inner));
    return *out == NO_ID ? FAIL : OK;
}

/* LayerNormalization; RMSNormalization and SimplifiedLayerNormalization have no mean and no bias.
 */
Res make_layer_norm(Ctx *c) {
    int64_t given;
    OpCode op = c->n->row->code;
    uint32_t axis, nin = op == OP_LayerNorm && has_in(c, 2) ? 3 : 2;
    double eps;
    ValueId in[3] = {value_in(c, 0), NO_ID, NO_ID};
    MUST(attr_int(c, "axis", -1, &given));
    MUST(axis_of(c, given, shape_in(c, 0)->rank, &axis));
    MUST(attr_real(c, "epsilon", 1e-5, &eps));
    for (uint32_t i = 1; i < nin; i++) MUST(norm_weight(c, i, axis, &in[i]));
    Attr attr[] = {attr_i(c->x->tmp, A_axis, axis), attr_f(c->x->tmp, A_eps, eps)};
    ValueId y = emit(c, op, "", nin, in, 2, attr);
    if (y == NO_ID) return FAIL;
    NodeId n = c->x->g->value[y].def;
    MUST(bind(c, 0, y));
    for (uint32_t k = 1; k < op_def(op)->nout; k++) MUST(bind(c, k, c->x->g->node[n].out[k]));
    return OK;
}

/* ---- groups of channels ---- */

/* Scale or bias per channel; GroupNormalization before operator set 21 has one per group. */
static Res channel_weight(const Ctx *c, uint32_t i, int64_t channels, int64_t group, ValueId *out) {
    const Shape *s = shape_in(c, i);
    const char *suffix = i == 1 ? ".scale" : ".bias";
    *out = value_in(c, i);
    if (s->rank == 1 && s->dim[0] == channels) return OK;
    if (s->rank != 1 || s->dim[0] != group)
        return ctx_fail(c, "expected %lld numbers in input %u, one per channel, found shape %s",
                        (long long)channels, i, shape_str(c->x->tmp, s));
    *out = emit_view(c, suffix, *out, &(Shape){2, {group, 1}});
    *out = expand(c, suffix, *out, &(Shape){2, {group, channels / group}});
    if (*out != NO_ID) *out = emit_view(c, suffix, *out, &(Shape){1, {channels}});
    return *out == NO_ID ? FAIL : OK;
}

static Res group_norm(const Ctx *c, int64_t group) {
    double eps;
    const Shape *x = shape_in(c, 0);
    int64_t channels = x->dim[1];
    ValueId in[3] = {value_in(c, 0), NO_ID, NO_ID};
    MUST(attr_real(c, "epsilon", 1e-5, &eps));
    for (uint32_t i = 1; i < 3; i++) MUST(channel_weight(c, i, channels, group, &in[i]));
    Attr at[] = {attr_i(c->x->tmp, A_group, group), attr_f(c->x->tmp, A_eps, eps)};
    return bind(c, 0, emit(c, OP_GroupNorm, "", 3, in, 2, at));
}

static Res need_channels(const Ctx *c) {
    const Shape *x = shape_in(c, 0);
    if (x->rank >= 2 && x->dim[1] >= 1) return OK;
    return ctx_fail(c, "expected a batch and channels, found shape %s", shape_str(c->x->tmp, x));
}

Res make_instance_norm(Ctx *c) {
    MUST(need_channels(c));
    return group_norm(c, shape_in(c, 0)->dim[1]);
}

Res make_group_norm(Ctx *c) {
    int64_t group;
    MUST(need_channels(c));
    MUST(attr_int(c, "num_groups", 0, &group));
    int64_t channels = shape_in(c, 0)->dim[1];
    if (group < 1 || channels % group)
        return ctx_fail(c, "num_groups is %lld, expected a divisor of %lld channels",
                        (long long)group, (long long)channels);
    return group_norm(c, group);
}

/* ---- by their definition ---- */

/* Sum or mean over axes, which stay as 1. */
static ValueId sum_over(const Ctx *c, const char *suffix, ValueId v, uint32_t n,
                        const uint32_t *axes, bool mean) {
    if (v == NO_ID) return NO_ID;
    int64_t list[IR_MAX_RANK];
    double count = 1;
    for (uint32_t i = 0; i < n; i++) {
        list[i] = axes[i];
        count *= (double)c->x->g->value[v].shape.dim[axes[i]];
    }
    Attr at[] = {attr_ints(c->x->tmp, A_axes, list, n), attr_i(c->x->tmp, A_keepdims, 1),
                 attr_f(c->x->tmp, A_scale, mean ? 1 / count : 1)};
    return emit(c, OP_ReduceSum, suffix, 1, &v, 3, at);
}

static ValueId square(const Ctx *c, const char *suffix, ValueId v) {
    Attr two_ = attr_f(c->x->tmp, A_alpha, 2);
    return v == NO_ID ? NO_ID : emit(c, OP_PowScalar, suffix, 1, &v, 1, &two_);
}

/* x / (sum |x|^p)^(1/p) along one axis, p = 1 or 2 */
Res make_lp_norm(Ctx *c) {
    int64_t given, p;
    uint32_t axis;
    ValueId x = value_in(c, 0);
    MUST(attr_int(c, "axis", -1, &given));
    MUST(attr_int(c, "p", 2, &p));
    MUST(axis_of(c, given, shape_in(c, 0)->rank, &axis));
    if (p != 1 && p != 2) return ctx_fail(c, "p is %lld, expected 1 or 2", (long long)p);
    ValueId v = p == 2 ? square(c, ".square", x) : one(c, OP_Abs, ".abs", x);
    v = sum_over(c, ".sum", v, 1, &axis, false);
    if (p == 2) v = one(c, OP_Sqrt, ".norm", v);
    return bind(c, 0, two(c, OP_Div, "", x, v));
}

/* d / (sqrt(mean(d^2)) + 1e-9), d = x - mean(x); axes 0, 2, 3 by default */
Res make_mean_variance_norm(Ctx *c) {
    static const int64_t usual[] = {0, 2, 3};
    Ints given;
    uint32_t n, axes[IR_MAX_RANK];
    MUST(ints_of(c, "axes", NO_ID, &given));
    if (!given.given) given = (Ints){true, 3, usual};
    MUST(axes_of(c, &given, shape_in(c, 0)->rank, &n, axes));
    ValueId x = value_in(c, 0), d, v;
    d = two(c, OP_Sub, ".centered", x, sum_over(c, ".mean", x, n, axes, true));
    v = one(c, OP_Sqrt, ".std", sum_over(c, ".var", square(c, ".square", d), n, axes, true));
    Attr at[] = {attr_f(c->x->tmp, A_alpha, 1), attr_f(c->x->tmp, A_beta, 1e-9)};
    if (v != NO_ID) v = emit(c, OP_Scale, ".eps", 1, &v, 2, at);
    return bind(c, 0, two(c, OP_Div, "", d, v));
}
