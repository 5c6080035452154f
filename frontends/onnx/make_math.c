/* make_math.c - run-time nodes of elementwise operators and reductions. Most map one to one;
 * operators of many operands become chains, what the IR has no operator for becomes a few nodes
 * that compute the same. */
#include "import.h"

#include <math.h>
#include <string.h>

static ValueId unary(const Ctx *c, OpCode op, const char *suffix, ValueId a) {
    return a == NO_ID ? NO_ID : emit(c, op, suffix, 1, &a, 0, NULL);
}

static ValueId binary(const Ctx *c, OpCode op, const char *suffix, ValueId a, ValueId b) {
    ValueId in[] = {a, b};
    return a == NO_ID || b == NO_ID ? NO_ID : emit(c, op, suffix, 2, in, 0, NULL);
}

Res make_unary(Ctx *c) {
    return bind(c, 0, unary(c, c->n->row->code, "", value_in(c, 0)));
}

Res make_binary(Ctx *c) {
    return bind(c, 0, binary(c, c->n->row->code, "", value_in(c, 0), value_in(c, 1)));
}

Res make_where(Ctx *c) {
    ValueId in[] = {value_in(c, 0), value_in(c, 1), value_in(c, 2)};
    return bind(c, 0, emit(c, OP_Where, "", 3, in, 0, NULL));
}

/* Min, Max, Sum: from the left. */
Res make_variadic(Ctx *c) {
    if (c->n->nin == 1) return make_identity(c);
    ValueId v = value_in(c, 0);
    for (uint32_t i = 1; i < c->n->nin; i++) {
        bool last = i + 1 == c->n->nin;
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
        v = binary(c, c->n->row->code, last ? "" : arena_printf(c->x->tmp, ".%u", i), v,
                   value_in(c, i));
    }
    return bind(c, 0, v);
}

/* LeakyRelu, Elu: alpha; HardSigmoid: alpha and beta. */
Res make_alpha_beta(Ctx *c) {
    OpCode op = c->n->row->code;
    double alpha, beta;
    bool hard = op == OP_HardSigmoid;
    MUST(attr_real(c, "alpha", hard ? 0.2 : op == OP_LeakyRelu ? 0.01 : 1.0, &alpha));
    MUST(attr_real(c, "beta", 0.5, &beta));
    Attr attr[] = {attr_f(c->x->tmp, A_alpha, alpha), attr_f(c->x->tmp, A_beta, beta)};
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, op, "", 1, &v, hard ? 2 : 1, attr));
}

static ValueId cast_to(const Ctx *c, const char *suffix, ValueId v, DType dt) {
    Attr to = attr_i(c->x->tmp, A_to, dt);
    return c->x->g->value[v].dtype == dt ? v : emit(c, OP_Cast, suffix, 1, &v, 1, &to);
}

/* The exponent may have another type than the base, whose type the result has. */
Res make_pow(Ctx *c) {
    const Tensor *e = known_in(c, 1);
    ValueId base = value_in(c, 0);
    if (e && !e->missing && e->count == 1 && e->shape.rank <= shape_in(c, 0)->rank) {
        Attr alpha = attr_f(c->x->tmp, A_alpha, tensor_real(e, 0));
        return bind(c, 0, emit(c, OP_PowScalar, "", 1, &base, 1, &alpha));
    }
    ValueId exponent = cast_to(c, ".exponent", value_in(c, 1), dtype_in(c, 0));
    return bind(c, 0, binary(c, OP_Pow, "", base, exponent));
}

/* a <= b as a < b or a == b, which is false for NaN as it should be. */
Res make_or_equal(Ctx *c) {
    ValueId a = value_in(c, 0), b = value_in(c, 1);
    ValueId strict = binary(c, c->n->row->code, ".strict", a, b);
    ValueId equal = binary(c, OP_Equal, ".equal", a, b);
    return bind(c, 0, binary(c, OP_Or, "", strict, equal));
}

/* Bounds are attributes (before operator set 11) or inputs, each may be absent. */
Res make_clip(Ctx *c) {
    ValueId v = value_in(c, 0);
    Attr attr[2];
    uint32_t n = 0;
    for (uint32_t i = 1; i <= 2; i++) {
        const char *name = i == 1 ? "min" : "max";
        double bound;
        if (has_in(c, i) && !known_in(c, i)) {
            OpCode op = i == 1 ? OP_Max : OP_Min;
            v = binary(c, op, i == 1 ? ".min" : ".max", v, value_in(c, i));
            if (v == NO_ID) return FAIL;
            continue;
        }
        if (!has_in(c, i) && !attr_of(c, name)) continue;
        MUST(real_of(c, name, i, 0, &bound));
        attr[n++] = attr_f(c->x->tmp, i == 1 ? A_min : A_max, bound);
    }
    if (!n) return bind(c, 0, emit_view(c, "", v, &c->x->g->value[v].shape));
    return bind(c, 0, emit(c, OP_Clip, "", 1, &v, n, attr));
}

/* x*Phi(x), or its tanh form x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). */
Res make_gelu(Ctx *c) {
    const char *form;
    MUST(attr_text(c, "approximate", "none", &form));
    ValueId x = value_in(c, 0);
    if (strcmp(form, "tanh") != 0) return bind(c, 0, unary(c, OP_Gelu, "", x));
    Arena *a = c->x->tmp;
    Attr cube[] = {attr_f(a, A_alpha, 3)}, small[] = {attr_f(a, A_alpha, 0.044715)};
    Attr root[] = {attr_f(a, A_alpha, sqrt(2 / 3.14159265358979323846))};
    Attr half[] = {attr_f(a, A_alpha, 0.5), attr_f(a, A_beta, 0.5)};
    ValueId v = emit(c, OP_PowScalar, ".cube", 1, &x, 1, cube);
    v = v == NO_ID ? v : emit(c, OP_Scale, ".small", 1, &v, 1, small);
    v = binary(c, OP_Add, ".sum", x, v);
    v = v == NO_ID ? v : emit(c, OP_Scale, ".root", 1, &v, 1, root);
    v = unary(c, OP_Tanh, ".tanh", v);
    v = v == NO_ID ? v : emit(c, OP_Scale, ".half", 1, &v, 1, half);
    return bind(c, 0, binary(c, OP_Mul, "", x, v));
}

/* max(x,0) + slope*min(x,0) as relu(x) - slope*relu(-x). */
Res make_prelu(Ctx *c) {
    ValueId x = value_in(c, 0);
    ValueId positive = unary(c, OP_Relu, ".positive", x);
    ValueId negative = unary(c, OP_Relu, ".negative", unary(c, OP_Neg, ".neg", x));
    ValueId scaled = binary(c, OP_Mul, ".scaled", negative, value_in(c, 1));
    return bind(c, 0, binary(c, OP_Sub, "", positive, scaled));
}

Res make_cast(Ctx *c) {
    int64_t to;
    DType dt;
    MUST(attr_int(c, "to", 0, &to));
    bool known = to > 0 && to <= INT32_MAX && elem_dtype((int32_t)to, &dt);
    if (!known || dt == DT_F64)
        return ctx_skip(c, "casts of data to %s", elem_name(to > 0 && to < 100 ? (int32_t)to : 0));
    if (dt == dtype_in(c, 0)) return make_identity(c);
    return bind(c, 0, cast_to(c, "", value_in(c, 0), dt));
}

/* ReduceSum and ReduceMean: a sum with a scale. */
Res make_reduce(Ctx *c) {
    const Shape *in = shape_in(c, 0);
    int64_t keep, noop, list[IR_MAX_RANK];
    uint32_t n, axes[IR_MAX_RANK];
    double count = 1;
    Ints given;
    MUST(attr_int(c, "keepdims", 1, &keep));
    MUST(attr_int(c, "noop_with_empty_axes", 0, &noop));
    MUST(ints_of(c, "axes", 1, &given));
    if (noop && !given.n) return make_identity(c);
    MUST(axes_of(c, &given, in->rank, &n, axes));
    if (!n) return make_identity(c);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = axes[i];
        count *= (double)in->dim[axes[i]];
    }
    double scale = c->n->row->kind == K_MEAN ? 1 / count : 1;
    Attr attr[] = {attr_ints(c->x->tmp, A_axes, list, n), attr_i(c->x->tmp, A_keepdims, keep != 0),
                   attr_f(c->x->tmp, A_scale, scale)};
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_ReduceSum, "", 1, &v, scale == 1 ? 2 : 3, attr));
}
