/* random.c - Dropout, Bernoulli, uniform and normal numbers. They come from a counter-based
 * generator keyed by (seed, step, Node.key, element), so that a second run, and the gradient, see
 * the same mask and none is saved.
 *
 * The expression uses, besides the operand a and the ratio p0, what the emitter declares for random
 * operators: seed, step, key and index, the element's linear index in the row-major output (in a
 * Fused node: the operator's space must be the node's). */
#include "family.h"

static bool infer_dropout(InferCtx *c, NodeId n) {
    double ratio = ir_get_f(&c->g->node[n], A_ratio, 0.5);
    if (!(ratio >= 0 && ratio <= 1))
        return op_error(c, n, NO_ID, "expected a ratio of 0 to 1, found %g", ratio);
    return op_infer_ew(c, n);
}

/* Kept elements were multiplied by 1/(1-ratio), the others by 0: so is dY. */
static bool grad_dropout(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    if (!grad_wants(c, n, 0)) return true;
    NodeId b = ir_node(g, OP_Dropout, PHASE_BACKWARD, grad_name(c, n), 1, 1);
    const Node *f = &g->node[n];
    g->node[b].in[0] = dout[0];
    g->node[b].key = f->key;
    ir_attr_copy(g, b, f->attr, f->nattr);
    TRY(op_infer(g, c->d, b));
    din[0] = g->node[b].out[0];
    return true;
}

const OpDef op_Dropout = {
    .name = "Dropout",
    .cls = CLS_RANDOM,
    .flags = OPF_EW,
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .inplace = 1,
    .expr = "dtrt_dropout(a, p0, seed, step, key, index)",
    .p = {A_ratio, A_COUNT, A_COUNT},
    .dflt = {0.5},
    .out_dtype = DT_COUNT,
    .infer = infer_dropout,
    .grad = grad_dropout,
};

/* 1 with the probability that the operand says, else 0; no gradient, as in PyTorch. */
static bool grad_none(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    (void)c, (void)n, (void)dout, (void)din;
    return true;
}

const OpDef op_Bernoulli = {
    .name = "Bernoulli",
    .cls = CLS_RANDOM,
    .flags = OPF_EW,
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .inplace = 1,
    .expr = "dtrt_bernoulli(a, seed, step, key, index)",
    .p = {A_COUNT, A_COUNT, A_COUNT},
    .out_dtype = DT_COUNT,
    .grad = grad_none,
};

/* alpha*r + beta, r uniform in [0, 1) or normal */
static bool infer_random(InferCtx *c, NodeId n) {
    Shape s;
    TRY(op_need_shape_attr(c, n, &s));
    return op_out(c, n, 0, DT_F32, &s);
}

static uint64_t flops_random(const Graph *g, const Node *n) {
    return 256 * value_count(g, n->out[0]);
}

static bool cpu_random(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_random_fill(c, p[0], %llu, %u, %d, %s, %s);\n",
             (unsigned long long)value_count(e->g, n->out[0]), n->key, n->op == OP_RandomNormal,
             op_c_double(e->arena, ir_get_f(n, A_alpha, 1)),
             op_c_double(e->arena, ir_get_f(n, A_beta, 0)));
    return true;
}

#define RANDOM(NAME)                                                                               \
    const OpDef op_##NAME = {.name = #NAME,                                                        \
                             .cls = CLS_RANDOM,                                                    \
                             .min_in = 0,                                                          \
                             .max_in = 0,                                                          \
                             .nout = 1,                                                            \
                             .infer = infer_random,                                                \
                             .flops = flops_random,                                                \
                             .cpu = cpu_random};
RANDOM(RandomUniform)
RANDOM(RandomNormal)
