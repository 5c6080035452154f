/* ew.h - how the families of elementwise operators write their rows: one line each, and the common
 * forms of gradients. Private to the room; the functions are static because every family file has
 * its own operators. */
#ifndef DTRC_OPS_EW_H
#define DTRC_OPS_EW_H

#include "family.h"

/* exp and its kin cost about 24 vector operations an element. */
static inline uint64_t flops_function(const Graph *g, const Node *n) {
    return 24 * value_count(g, n->out[0]);
}

/* NAME, operands, 1 when cheap (OPF_CHEAP), expression, gradient, attributes of p0 and p1 with
 * defaults. in place: any operand of full size. */
#define EW_FULL(NAME, NIN, CHEAP, EXPR, GRAD, P0, D0, P1, D1, OUT, INFER)                          \
    const OpDef op_##NAME = {                                                                      \
        .name = #NAME,                                                                             \
        .cls = CLS_PURE,                                                                           \
        .flags = OPF_EW | (CHEAP ? OPF_CHEAP : 0),                                                 \
        .min_in = NIN,                                                                             \
        .max_in = NIN,                                                                             \
        .nout = 1,                                                                                 \
        .inplace = (1u << NIN) - 1,                                                                \
        .expr = EXPR,                                                                              \
        .p = {P0, P1, A_COUNT},                                                                    \
        .dflt = {D0, D1, 0},                                                                       \
        .out_dtype = OUT,                                                                          \
        .infer = INFER,                                                                            \
        .grad = GRAD,                                                                              \
        .flops = CHEAP ? NULL : flops_function,                                                    \
    };
#define EW(NAME, NIN, CHEAP, EXPR, GRAD)                                                           \
    EW_FULL(NAME, NIN, CHEAP, EXPR, GRAD, A_COUNT, 0, A_COUNT, 0, DT_COUNT, NULL)
#define EW1(NAME, NIN, CHEAP, EXPR, GRAD, P0, D0)                                                  \
    EW_FULL(NAME, NIN, CHEAP, EXPR, GRAD, P0, D0, A_COUNT, 0, DT_COUNT, NULL)
#define EW2(NAME, NIN, CHEAP, EXPR, GRAD, P0, D0, P1, D1)                                          \
    EW_FULL(NAME, NIN, CHEAP, EXPR, GRAD, P0, D0, P1, D1, DT_COUNT, NULL)
#define EW_BOOL(NAME, NIN, EXPR)                                                                   \
    EW_FULL(NAME, NIN, 1, EXPR, no_grad, A_COUNT, 0, A_COUNT, 0, DT_BOOL, NULL)

/* ---- common forms of gradients ---- */
#define BWD PHASE_BACKWARD

/* The derivative is zero everywhere. */
static inline bool no_grad(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    (void)c, (void)n, (void)dout, (void)din;
    return true;
}

/* din[0] = op(dY, v) with the attributes of the forward node. */
static inline bool unary(GradCtx *c, NodeId n, ValueId dy, OpCode op, ValueId v, ValueId *din) {
    const Node *nd = &c->g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    ValueId in[2] = {dy, v};
    din[0] = op_make_attr(c->g, BWD, op, grad_name(c, n), 2, in, nd->attr, nd->nattr);
    return true;
}
#define GRAD_OF_X(NAME)                                                                            \
    static bool grad_##NAME(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {             \
        return unary(c, n, dout[0], OP_##NAME##Grad, c->g->node[n].in[0], din);                    \
    }
#define GRAD_OF_Y(NAME)                                                                            \
    static bool grad_##NAME(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {             \
        return unary(c, n, dout[0], OP_##NAME##Grad, c->g->node[n].out[0], din);                   \
    }

static inline ValueId mk1(GradCtx *c, NodeId n, OpCode op, ValueId a) {
    return op_make1(c->g, BWD, op, grad_name(c, n), a);
}
static inline ValueId mk2(GradCtx *c, NodeId n, OpCode op, ValueId a, ValueId b) {
    return op_make2(c->g, BWD, op, grad_name(c, n), a, b);
}
static inline ValueId mk3(GradCtx *c, NodeId n, OpCode op, ValueId a, ValueId b, ValueId d) {
    return op_make3(c->g, BWD, op, grad_name(c, n), a, b, d);
}
static inline ValueId mk4(GradCtx *c, NodeId n, OpCode op, ValueId a, ValueId b, ValueId d,
                          ValueId e) {
    ValueId in[4] = {a, b, d, e};
    return op_make(c->g, BWD, op, grad_name(c, n), 4, in);
}
static inline ValueId mk_scale(GradCtx *c, NodeId n, ValueId v, double alpha) {
    Attr at = attr_f(c->g->arena, A_alpha, alpha);
    return op_make_attr(c->g, BWD, OP_Scale, grad_name(c, n), 1, &v, &at, 1);
}

#endif
