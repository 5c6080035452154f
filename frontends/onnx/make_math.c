/* make_math.c - run-time nodes of elementwise operators. Most map one to one;
 * operators of many operands become chains, what the IR has no operator for becomes a few nodes
 * that compute the same. */
#include "import.h"

#include <string.h>

ValueId emit_unary(const Ctx *c, OpCode op, const char *suffix, ValueId a) {
    return a == NO_ID ? NO_ID : emit(c, op, suffix, 1, &a, 0, NULL);
}

ValueId emit_binary(const Ctx *c, OpCode op, const char *suffix, ValueId a, ValueId b) {
    ValueId in[] = {a, b};
    return a == NO_ID || b == NO_ID ? NO_ID : emit(c, op, suffix, 2, in, 0, NULL);
}

Res make_unary(Ctx *c) {
    return bind(c, 0, emit_unary(c, c->n->row->code, "", value_in(c, 0)));
}

/* The second operand. Before operator set 7 attribute axis said where its axes lie in the first;
 * since then they are the last ones. */
static Res second_operand(const Ctx *c, ValueId *out) {
    const Shape *a = shape_in(c, 0), *b = shape_in(c, 1);
    int64_t given;
    uint32_t axis;
    *out = value_in(c, 1);
    if (c->x->opset >= 7 || !attr_of(c, "axis") || b->rank == 0) return OK;
    MUST(attr_int(c, "axis", 0, &given));
    MUST(axis_of(c, given, a->rank, &axis));
    if (axis + b->rank >= a->rank) return OK;
    Shape s = *b;
    while (axis + s.rank < a->rank) s.dim[s.rank++] = 1;
    *out = emit_view(c, ".aligned", *out, &s);
    return *out == NO_ID ? FAIL : OK;
}

Res make_binary(Ctx *c) {
    ValueId b;
    MUST(second_operand(c, &b));
    return bind(c, 0, emit_binary(c, c->n->row->code, "", value_in(c, 0), b));
}

static Res make_binary_as(Ctx *c, OpCode op) {
    ValueId b;
    MUST(second_operand(c, &b));
    return bind(c, 0, emit_binary(c, op, "", value_in(c, 0), b));
}

static bool of_integers(const Ctx *c) {
    DType d = dtype_in(c, 0);
    return d == DT_I64 || d == DT_I32;
}

Res make_div(Ctx *c) {
    return make_binary_as(c, of_integers(c) ? OP_IntDiv : OP_Div);
}

/* Floats need fmod = 1: the remainder of C. */
Res make_mod(Ctx *c) {
    int64_t c_mod;
    MUST(attr_int(c, "fmod", 0, &c_mod));
    if (of_integers(c)) return make_binary_as(c, c_mod ? OP_IntRem : OP_IntMod);
    if (!c_mod || dtype_in(c, 0) != DT_F32)
        return ctx_skip(c, "of data only with integers, or with floats and fmod = 1");
    return make_binary(c);
}

Res make_bit_shift(Ctx *c) {
    bool left;
    int bits;
    MUST(shift_of(c, &left, &bits));
    Attr width = attr_i(c->x->tmp, A_k, bits);
    ValueId in[] = {value_in(c, 0), value_in(c, 1)};
    if (!of_integers(c) || dtype_in(c, 1) != dtype_in(c, 0))
        return ctx_fail(c, "does not take %s and %s", dtype_name(dtype_in(c, 0)),
                        dtype_name(dtype_in(c, 1)));
    return bind(c, 0, emit(c, left ? OP_ShiftLeft : OP_ShiftRight, "", 2, in, 1, &width));
}

Res make_where(Ctx *c) {
    ValueId in[] = {value_in(c, 0), value_in(c, 1), value_in(c, 2)};
    return bind(c, 0, emit(c, OP_Where, "", 3, in, 0, NULL));
}

ValueId emit_scaled(const Ctx *c, const char *suffix, ValueId v, double by) {
    Attr alpha = attr_f(c->x->tmp, A_alpha, by);
    return v == NO_ID ? NO_ID : emit(c, OP_Scale, suffix, 1, &v, 1, &alpha);
}

/* Min, Max, Sum, Mean: from the left. */
Res make_variadic(Ctx *c) {
    bool mean = c->n->row->kind == K_MEAN;
    if (c->n->nin == 1) return make_identity(c);
    ValueId v = value_in(c, 0);
    for (uint32_t i = 1; i < c->n->nin; i++) {
        bool last = i + 1 == c->n->nin && !mean;
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
        v = emit_binary(c, c->n->row->code, last ? "" : arena_printf(c->x->tmp, ".%u", i), v,
                        value_in(c, i));
    }
    return bind(c, 0, mean ? emit_scaled(c, "", v, 1.0 / c->n->nin) : v);
}

/* Activations with up to two numbers. Selu is Elu times gamma. */
Res make_alpha_beta(Ctx *c) {
    static const struct {
        const char *op, *alpha, *beta;
        double dalpha, dbeta;
    } rows[] = {{"LeakyRelu", "alpha", NULL, 0.01, 0},
                {"Elu", "alpha", NULL, 1, 0},
                {"Celu", "alpha", NULL, 1, 0},
                {"ThresholdedRelu", "alpha", NULL, 1, 0},
                {"HardSigmoid", "alpha", "beta", 0.2, 0.5},
                {"Shrink", "lambd", "bias", 0.5, 0},
                {"Selu", "alpha", "gamma", 1.67326319217681884765625, 1.05070102214813232421875}};
    size_t k = 0;
    while (strcmp(rows[k].op, c->n->row->name) != 0) k++;
    double alpha, beta = 0;
    MUST(attr_real(c, rows[k].alpha, rows[k].dalpha, &alpha));
    if (rows[k].beta) MUST(attr_real(c, rows[k].beta, rows[k].dbeta, &beta));
    OpCode op = c->n->row->code;
    bool selu = !strcmp(c->n->row->name, "Selu");
    if (op == OP_Celu && alpha == 0) return ctx_fail(c, "alpha is 0");
    Attr attr[] = {attr_f(c->x->tmp, A_alpha, alpha), attr_f(c->x->tmp, A_beta, beta)};
    ValueId v = value_in(c, 0);
    v = emit(c, op, selu ? ".elu" : "", 1, &v, rows[k].beta && !selu ? 2 : 1, attr);
    return bind(c, 0, selu ? emit_scaled(c, "", v, beta) : v);
}

Res make_is_inf(Ctx *c) {
    int64_t low, high;
    MUST(attr_int(c, "detect_negative", 1, &low));
    MUST(attr_int(c, "detect_positive", 1, &high));
    Attr attr[] = {attr_i(c->x->tmp, A_min, low != 0), attr_i(c->x->tmp, A_max, high != 0)};
    ValueId v = value_in(c, 0);
    return bind(c, 0, emit(c, OP_IsInf, "", 1, &v, 2, attr));
}

ValueId emit_cast(const Ctx *c, const char *suffix, ValueId v, DType dt) {
    Attr to = attr_i(c->x->tmp, A_to, dt);
    return v == NO_ID || c->x->g->value[v].dtype == dt ? v
                                                       : emit(c, OP_Cast, suffix, 1, &v, 1, &to);
}

/* The exponent may have another type than the base, whose type the result has. */
Res make_pow(Ctx *c) {
    const Tensor *e = known_in(c, 1);
    ValueId base = value_in(c, 0);
    if (e && !e->missing && e->count == 1 && e->shape.rank <= shape_in(c, 0)->rank) {
        Attr alpha = attr_f(c->x->tmp, A_alpha, tensor_real(e, 0));
        return bind(c, 0, emit(c, OP_PowScalar, "", 1, &base, 1, &alpha));
    }
    ValueId exponent;
    MUST(second_operand(c, &exponent));
    exponent = emit_cast(c, ".exponent", exponent, dtype_in(c, 0));
    return bind(c, 0, emit_binary(c, OP_Pow, "", base, exponent));
}

/* a <= b as a < b or a == b, which is false for NaN as it should be. */
Res make_or_equal(Ctx *c) {
    ValueId a = value_in(c, 0), b = value_in(c, 1);
    ValueId strict = emit_binary(c, c->n->row->code, ".strict", a, b);
    ValueId equal = emit_binary(c, OP_Equal, ".equal", a, b);
    return bind(c, 0, emit_binary(c, OP_Or, "", strict, equal));
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
            v = emit_binary(c, op, i == 1 ? ".min" : ".max", v, value_in(c, i));
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

Res make_gelu(Ctx *c) {
    const char *form;
    MUST(attr_text(c, "approximate", "none", &form));
    return bind(c, 0,
                emit_unary(c, strcmp(form, "tanh") ? OP_Gelu : OP_GeluTanh, "", value_in(c, 0)));
}

/* Before operator set 7 a slope per channel is a plain list. */
Res make_prelu(Ctx *c) {
    const Shape *x = shape_in(c, 0), *s = shape_in(c, 1);
    ValueId slope = value_in(c, 1);
    if (c->x->opset < 7 && s->rank == 1 && s->dim[0] > 1 && x->rank > 2) {
        Shape column = {.rank = x->rank - 1, .dim = {s->dim[0], 1, 1, 1, 1, 1, 1}};
        slope = emit_view(c, ".slope", slope, &column);
    }
    return bind(c, 0, emit_binary(c, OP_PRelu, "", value_in(c, 0), slope));
}

/* The type of attribute `to` (a name before operator set 6), or of the second input (CastLike). */
Res cast_target(const Ctx *c, DType *out) {
    static const char *const names[] = {"FLOAT", "INT64", "INT32", "BOOL", "DOUBLE"};
    static const DType types[] = {DT_F32, DT_I64, DT_I32, DT_BOOL, DT_F64};
    int64_t to;
    if (!strcmp(c->n->row->name, "CastLike")) {
        *out = dtype_in(c, 1);
        return OK;
    }
    const AttributeProto *a = attr_of(c, "to");
    for (size_t i = 0; a && a->has_s && i < sizeof names / sizeof *names; i++) {
        if (a->s.len != strlen(names[i]) || memcmp(a->s.data, names[i], a->s.len)) continue;
        *out = types[i];
        return OK;
    }
    MUST(attr_int(c, "to", 0, &to));
    if (to > 0 && to <= INT32_MAX && elem_dtype((int32_t)to, out)) return OK;
    return ctx_skip(c, "casts to %s", elem_name(to > 0 && to < 100 ? (int32_t)to : 0));
}

/* Doubles are computed in single precision. */
Res make_cast(Ctx *c) {
    DType dt;
    MUST(cast_target(c, &dt));
    if (dt == DT_F64) dt = DT_F32;
    if (dt == dtype_in(c, 0)) return make_identity(c);
    return bind(c, 0, emit_cast(c, "", value_in(c, 0), dt));
}
