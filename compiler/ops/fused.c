/* fused.c - Fused, a node with a body of elementwise instructions and column reductions over one
 * space (made by simplify, emitted by codegen), and Opaque and OpaqueView, nodes of a planning
 * trace. */
#include "family.h"

#include <assert.h>

/* Shape of result r of a reduction instruction: the columns, with the leading axes gone or 1. */
static Shape column_shape(const FusedBody *b, const FusedInst *in) {
    Shape s = b->space, o = {0};
    if (in->op != OP_ReduceSum) {
        o.rank = 1;
        o.dim[0] = s.dim[s.rank - 1];
        return o;
    }
    const Attr *axes = attr_find(in->attr, in->nattr, A_axes);
    const Attr *keep = attr_find(in->attr, in->nattr, A_keepdims);
    uint32_t gone = axes && axes->n ? axes->n : s.rank;
    for (uint32_t k = 0; k < s.rank; k++) {
        if (k >= gone)
            o.dim[o.rank++] = s.dim[k];
        else if (!keep || keep->i[0])
            o.dim[o.rank++] = 1;
    }
    return o;
}

static bool infer_fused(InferCtx *c, NodeId n) {
    Graph *g = c->g;
    const FusedBody *b = g->node[n].body;
    uint32_t nin = g->node[n].nin;
    assert(b);
    for (uint32_t i = 0; i < nin; i++) {
        Shape s = op_input(g, n, i)->shape, both;
        if (!shape_broadcast(&s, &b->space, &both) || !shape_eq(&both, &b->space))
            return op_error(c, n, i, "expected a shape that broadcasts to %s, found %s",
                            shape_str(c->d->arena, &b->space), shape_str(c->d->arena, &s));
    }
    for (uint32_t k = 0; k < b->ninst; k++)
        for (uint32_t i = 0; i < b->inst[k].narg; i++)
            if (b->inst[k].arg[i] >= nin + k)
                return op_error(c, n, NO_ID, "instruction %u reads operand %u, which comes later",
                                k, b->inst[k].arg[i]);
    for (uint32_t k = 0; k < g->node[n].nout; k++) {
        const FusedInst *in = &b->inst[b->out_inst[k]];
        bool column = op_def(in->op)->flags & OPF_COLREDUCE;
        Shape s = column ? column_shape(b, in) : b->space;
        TRY(op_out(c, n, k, in->dtype, &s));
    }
    return true;
}

static uint64_t flops_fused(const Graph *g, const Node *n) {
    uint64_t count = 1, per = 0;
    (void)g;
    shape_count(&n->body->space, &count);
    for (uint32_t k = 0; k < n->body->ninst; k++) per += op_element_flops(n->body->inst[k].op);
    return count * per;
}

const OpDef op_Fused = {
    .name = "Fused",
    .max_in = 255,
    .nout = 255,
    .inplace = ~0u,
    .infer = infer_fused,
    .flops = flops_fused,
};

/* Its outputs are made by the reader of traces, which knows their bytes; it has no kernel. */
static bool infer_opaque(InferCtx *c, NodeId n) {
    (void)c, (void)n;
    return true;
}

const OpDef op_Opaque = {
    .name = "Opaque",
    .max_in = 255,
    .nout = 255,
    .infer = infer_opaque,
};

const OpDef op_OpaqueView = {
    .name = "OpaqueView",
    .cls = CLS_VIEW,
    .min_in = 1,
    .max_in = 255,
    .nout = 255,
    .infer = infer_opaque,
};
