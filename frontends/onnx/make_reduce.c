/* make_reduce.c - run-time nodes of reductions. Norms and logarithms of sums become a sum between
 * elementwise nodes, means a sum with a scale, global pools reductions over the spatial axes. */
#include "import.h"

#include <string.h>

enum { MAX_POSITIONS = 1 << 24 }; /* of a constant that counts */

typedef struct {
    uint32_t n;
    int64_t axes[IR_MAX_RANK];
    bool keep;
    double count; /* elements that make one result */
} Over;

static ValueId reduce(const Ctx *c, OpCode op, const char *suffix, ValueId v, const Over *o,
                      double scale) {
    Arena *a = c->x->tmp;
    Attr attr[] = {attr_ints(a, A_axes, o->axes, o->n), attr_i(a, A_keepdims, o->keep),
                   attr_f(a, A_scale, scale)};
    return v == NO_ID ? NO_ID : emit(c, op, suffix, 1, &v, scale == 1 ? 2 : 3, attr);
}

static ValueId with_alpha(const Ctx *c, OpCode op, const char *suffix, ValueId v, double alpha) {
    Attr at = attr_f(c->x->tmp, A_alpha, alpha);
    return v == NO_ID ? NO_ID : emit(c, op, suffix, 1, &v, 1, &at);
}

/* (sum |x|^p)^(1/p) */
static ValueId norm(const Ctx *c, ValueId v, const Over *o, double p) {
    if (p == 1) return reduce(c, OP_ReduceSum, "", emit_unary(c, OP_Abs, ".abs", v), o, 1);
    if (p != 2) v = emit_unary(c, OP_Abs, ".abs", v);
    v = reduce(c, OP_ReduceSum, ".sum", with_alpha(c, OP_PowScalar, ".power", v, p), o, 1);
    return with_alpha(c, OP_Root, "", v, 1 / p);
}

static ValueId reduction(const Ctx *c, const Over *o) {
    ValueId v = value_in(c, 0);
    switch (c->n->row->kind) {
    case K_MEAN: return reduce(c, OP_ReduceSum, "", v, o, 1 / o->count);
    case K_L1: return norm(c, v, o, 1);
    case K_L2: return norm(c, v, o, 2);
    case K_SUM_SQUARE:
        return reduce(c, OP_ReduceSum, "", with_alpha(c, OP_PowScalar, ".square", v, 2), o, 1);
    case K_LOG_SUM: return emit_unary(c, OP_Log, "", reduce(c, OP_ReduceSum, ".sum", v, o, 1));
    default: return reduce(c, c->n->row->code, "", v, o, 1);
    }
}

Res make_reduce(Ctx *c) {
    const Shape *in = shape_in(c, 0);
    int64_t keep, noop;
    uint32_t n, axes[IR_MAX_RANK];
    Ints given;
    MUST(attr_int(c, "keepdims", 1, &keep));
    MUST(attr_int(c, "noop_with_empty_axes", 0, &noop));
    MUST(ints_of(c, "axes", 1, &given));
    if (noop && !given.n) return make_identity(c);
    MUST(axes_of(c, &given, in->rank, &n, axes));
    Over o = {.n = n, .keep = keep != 0, .count = 1};
    for (uint32_t i = 0; i < n; i++) {
        o.axes[i] = axes[i];
        o.count *= (double)in->dim[axes[i]];
    }
    return bind(c, 0, reduction(c, &o));
}

Res make_global(Ctx *c) {
    const Shape *x = shape_in(c, 0);
    int64_t p;
    if (x->rank < 3) return ctx_fail(c, "expected at least 3 axes, found %u", x->rank);
    MUST(attr_int(c, "p", 2, &p));
    Over o = {.n = x->rank - 2, .keep = true, .count = 1};
    for (uint32_t k = 2; k < x->rank; k++) {
        o.axes[k - 2] = k;
        o.count *= (double)x->dim[k];
    }
    if (c->n->row->kind != K_L2) return bind(c, 0, reduction(c, &o));
    if (p < 1) return ctx_fail(c, "p is %lld, expected at least 1", (long long)p);
    return bind(c, 0, norm(c, value_in(c, 0), &o, (double)p));
}

/* ---- along one axis ---- */

Res make_cumsum(Ctx *c) {
    int64_t axis, exclusive, reverse;
    uint32_t k;
    MUST(int_of(c, "", 1, 0, &axis));
    MUST(axis_of(c, axis, shape_in(c, 0)->rank, &k));
    MUST(attr_int(c, "exclusive", 0, &exclusive));
    MUST(attr_int(c, "reverse", 0, &reverse));
    Attr attr[] = {attr_i(c->x->tmp, A_axis, k), attr_i(c->x->tmp, A_exclusive, exclusive != 0),
                   attr_i(c->x->tmp, A_reverse, reverse != 0)};
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_CumSum, "", 1, &v, 3, attr));
}

static ValueId emit_arg(const Ctx *c, OpCode op, const char *suffix, ValueId v, uint32_t axis,
                        bool keep, bool last) {
    Attr attr[] = {attr_i(c->x->tmp, A_axis, axis), attr_i(c->x->tmp, A_keepdims, keep),
                   attr_i(c->x->tmp, A_last, last)};
    return v == NO_ID ? NO_ID : emit(c, op, suffix, 1, &v, 3, attr);
}

Res make_arg(Ctx *c) {
    int64_t given, keep, last;
    uint32_t axis;
    MUST(attr_int(c, "axis", 0, &given));
    MUST(axis_of(c, given, shape_in(c, 0)->rank, &axis));
    MUST(attr_int(c, "keepdims", 1, &keep));
    MUST(attr_int(c, "select_last_index", 0, &last));
    ValueId v = emit_cast(c, ".float", value_in(c, 0), DT_F32);
    return bind(c, 0, emit_arg(c, c->n->row->code, "", v, axis, keep != 0, last != 0));
}

/* 0, 1, .. n-1 as a constant along the given axis of `rank`. */
ValueId emit_positions(const Ctx *c, const char *suffix, int64_t n, uint32_t rank, uint32_t axis,
                       DType dt) {
    Tensor t = {.dtype = dt, .shape = {.rank = rank}, .count = (uint64_t)n};
    for (uint32_t k = 0; k < rank; k++) t.shape.dim[k] = k == axis ? n : 1;
    if (n < 0 || n > MAX_POSITIONS) {
        ctx_fail(c, "%lld positions, expected at most %d", (long long)n, MAX_POSITIONS);
        return NO_ID;
    }
    t.data = arena_alloc(c->x->tmp, (uint64_t)n * dtype_size(dt));
    for (uint64_t i = 0; i < t.count; i++) put_int(&t, i, (int64_t)i);
    const char *name = arena_printf(c->x->tmp, "%s%s", c->n->name, suffix);
    return constant(c->x, name, &t, ROLE_CONST);
}

/* 1 at the first maximum, 0 elsewhere. Before operator set 13 the axes from `axis` on are one. */
Res make_hardmax(Ctx *c) {
    bool old = c->x->opset < 13;
    const Shape x = *shape_in(c, 0);
    int64_t given;
    uint32_t axis;
    MUST(attr_int(c, "axis", old ? 1 : -1, &given));
    MUST(axis_of(c, given, x.rank, &axis));
    ValueId v = value_in(c, 0);
    Shape s = x;
    if (old && axis + 1 < x.rank) {
        s = (Shape){.rank = 2, .dim = {1, 1}};
        for (uint32_t k = 0; k < x.rank; k++) s.dim[k < axis ? 0 : 1] *= x.dim[k];
        v = emit_view(c, ".rows", v, &s);
        axis = 1;
    }
    ValueId at = emit_arg(c, OP_ArgMax, ".max", v, axis, true, false);
    ValueId place = emit_positions(c, ".place", s.dim[axis], s.rank, axis, DT_I64);
    v = emit_cast(c, ".hot", emit_binary(c, OP_Equal, ".equal", at, place), DT_F32);
    return v == NO_ID ? FAIL : bind(c, 0, emit_view(c, "", v, &x));
}
