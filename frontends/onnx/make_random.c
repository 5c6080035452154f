/* make_random.c - run-time nodes with random numbers: RandomNormal, RandomUniform, their -Like
 * forms, Bernoulli, Dropout. The numbers depend on the run's seed, the step and a key of the node,
 * so that a node that runs again in a step makes the same ones; attribute seed is not used. */
#include "import.h"

#include <string.h>

/* The number of a random node. */
static ValueId keyed(const Ctx *c, ValueId y) {
    Graph *g = c->x->g;
    if (y != NO_ID) g->node[g->value[y].def].key = g->next_key++;
    return y;
}

static Res random_type(const Ctx *c, DType dflt, DType *out) {
    int64_t elem;
    *out = dflt;
    MUST(attr_int(c, "dtype", 0, &elem));
    if (elem && (elem < 0 || elem > INT32_MAX || !elem_dtype((int32_t)elem, out)))
        return ctx_skip(c, "of type %s", elem_name(elem > 0 && elem < 100 ? (int32_t)elem : 0));
    if (*out == DT_F64) *out = DT_F32;
    return OK;
}

/* alpha * r + beta, r uniform in [0, 1) or normal. */
Res make_random(Ctx *c) {
    bool normal = c->n->row->code == OP_RandomNormal;
    double a, b;
    Shape s;
    DType dt;
    MUST(attr_real(c, normal ? "mean" : "low", 0, &a));
    MUST(attr_real(c, normal ? "scale" : "high", 1, &b));
    MUST(random_type(c, DT_F32, &dt));
    if (c->n->nin) {
        s = *shape_in(c, 0);
    } else {
        Ints dims;
        MUST(ints_of(c, "shape", NO_ID, &dims));
        if (dims.n > IR_MAX_RANK)
            return ctx_fail(c, "expected at most %d axes, found %u", IR_MAX_RANK, dims.n);
        s = (Shape){.rank = dims.n};
        for (uint32_t k = 0; k < dims.n; k++) s.dim[k] = dims.at[k];
    }
    Attr attr[] = {attr_ints(c->x->tmp, A_shape, s.dim, s.rank),
                   attr_f(c->x->tmp, A_alpha, normal ? b : b - a), attr_f(c->x->tmp, A_beta, a)};
    bool cast = dt != DT_F32;
    ValueId v = keyed(c, emit(c, c->n->row->code, cast ? ".float" : "", 0, NULL, 3, attr));
    return bind(c, 0, emit_cast(c, "", v, dt));
}

/* 1 with the probability that the input says. */
Res make_bernoulli(Ctx *c) {
    DType dt;
    MUST(random_type(c, dtype_in(c, 0), &dt));
    ValueId p = emit_cast(c, ".p", value_in(c, 0), DT_F32);
    ValueId v = keyed(c, emit_unary(c, OP_Bernoulli, dt == DT_F32 ? "" : ".float", p));
    return bind(c, 0, emit_cast(c, "", v, dt));
}

/* A mask that keeps everything. */
static Res full_mask(const Ctx *c) {
    const Shape *s = shape_in(c, 0);
    Attr attr[] = {attr_f(c->x->tmp, A_value, 1), attr_i(c->x->tmp, A_to, DT_BOOL),
                   attr_ints(c->x->tmp, A_shape, s->dim, s->rank)};
    return bind(c, 1, emit(c, OP_Fill, ".mask", 0, NULL, 3, attr));
}

/* The mask of a node that drops: what it makes of ones, drawn with the same key. The ones are made
 * of x, so that they lie in memory as x does whatever order its axes get, and so get x's numbers.
 */
static Res drawn_mask(const Ctx *c, ValueId x, Attr ratio, uint32_t key) {
    ValueId ones = emit_binary(c, OP_EqMask, ".ones", x, x);
    ValueId kept = ones == NO_ID ? NO_ID : emit(c, OP_Dropout, ".kept", 1, &ones, 1, &ratio);
    if (kept == NO_ID) return FAIL;
    c->x->g->node[c->x->g->value[kept].def].key = key;
    return bind(c, 1, emit_cast(c, ".mask", kept, DT_BOOL));
}

/* From operator set 12 on a flag says whether it drops. Before, the operator has none; training
 * exports write its mask output, inference exports remove the node, so the mask is the sign. Before
 * operator set 7 attribute is_test says it. */
Res make_dropout(Ctx *c) {
    double ratio;
    int64_t is_test;
    const Tensor *flag = known_in(c, 2);
    MUST(attr_int(c, "is_test", 0, &is_test));
    bool training = c->x->opset < 12 && c->n->nout > 1 && c->n->out[1] != NO_ID && !is_test;
    MUST(real_of(c, "ratio", 1, 0.5, &ratio));
    if (has_in(c, 2)) {
        if (!flag || flag->missing || flag->count != 1)
            return ctx_skip(c, "training_mode (input 2) must be one constant");
        training = tensor_int(flag, 0) != 0;
    }
    if (!(ratio >= 0 && ratio < 1)) return ctx_fail(c, "ratio is %g, expected 0 to below 1", ratio);
    if (!training || ratio == 0 || !c->x->opt->dropout) {
        if (has_out(c, 1)) MUST(full_mask(c));
        return make_identity(c);
    }
    Attr attr = attr_f(c->x->tmp, A_ratio, ratio);
    ValueId v = value_in(c, 0), y = keyed(c, emit(c, OP_Dropout, "", 1, &v, 1, &attr));
    if (y != NO_ID && has_out(c, 1))
        MUST(drawn_mask(c, v, attr, c->x->g->node[c->x->g->value[y].def].key));
    return bind(c, 0, y);
}
