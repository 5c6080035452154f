/* optim.c - parameter updates, in PyTorch's definitions: SGD with momentum (Sutskever et al., ICML
 * 2013, in the form of torch.optim.SGD), Adam (Kingma and Ba, ICLR 2015), AdamW (Loshchilov and
 * Hutter, ICLR 2019). Rates and coefficients come from the run, so that they can change without a
 * compile. The kernels run over the bytes of the storage: packed weights are longer than their
 * shape, and their padding stays zero under all three rules. */
#include "family.h"

static bool infer_update(InferCtx *c, NodeId n) {
    Shape w = op_input(c->g, n, 0)->shape;
    for (uint32_t i = 0; i < c->g->node[n].nin; i++) {
        TRY(op_need_dtype(c, n, i, DT_F32));
        TRY(op_need_shape(c, n, i, &w));
    }
    return true;
}

/* How many elements a kernel runs over: packed weights have as many as the library says. */
static const char *elements(CpuEmit *e, const Node *n) {
    uint32_t conv = e->packed_by(e, n->in[0]);
    if (conv != NO_ID)
        return arena_printf(e->arena, "dtrt_conv_weight_count(&DtrtConv_%u[c->slot])", conv);
    return arena_printf(e->arena, "%llu", (unsigned long long)value_count(e->g, n->in[0]));
}

static bool cpu_sgd(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_sgd(c, p[0], p[1], %s, %s);\n", n->nin > 2 ? "p[2]" : "NULL",
             elements(e, n));
    return true;
}
static bool cpu_adam(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_adam(c, p[0], p[1], p[2], p[3], %s, %d);\n", elements(e, n),
             n->op == OP_AdamW);
    return true;
}

static uint64_t flops_sgd(const Graph *g, const Node *n) {
    return 2 * n->nin * value_count(g, n->in[0]);
}
static uint64_t flops_adam(const Graph *g, const Node *n) {
    return 14 * value_count(g, n->in[0]);
}

#define UPDATE(NAME, MIN, MAX, MUTATES, FLOPS, CPU)                                                \
    const OpDef op_##NAME = {                                                                      \
        .name = #NAME,                                                                             \
        .cls = CLS_EFFECT,                                                                         \
        .min_in = MIN,                                                                             \
        .max_in = MAX,                                                                             \
        .mutates = MUTATES,                                                                        \
        .infer = infer_update,                                                                     \
        .flops = FLOPS,                                                                            \
        .cpu = CPU,                                                                                \
    };
UPDATE(Sgd, 2, 3, 1 << 0 | 1 << 2, flops_sgd, cpu_sgd)
UPDATE(Adam, 4, 4, 1 << 0 | 1 << 2 | 1 << 3, flops_adam, cpu_adam)
UPDATE(AdamW, 4, 4, 1 << 0 | 1 << 2 | 1 << 3, flops_adam, cpu_adam)
