/* patch.c - SliceAdd: X with dY added in a slice of it. What a sum with the gradient of a slice
 * becomes (simplify), so that the parts of a tensor (gates and steps of recurrent layers, channel
 * groups, heads) bring their gradients together in one buffer, one part at a time. */
#include "family.h"

static bool infer_slice_add(InferCtx *c, NodeId n) {
    const int64_t *start, *step;
    for (uint32_t i = 0; i < 2; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    const Shape x = op_input(c->g, n, 0)->shape;
    TRY(op_need_rank(c, n, 1, x.rank, x.rank));
    TRY(op_need_ints(c, n, A_starts, x.rank, true, &start));
    TRY(op_need_ints(c, n, A_steps, x.rank, true, &step));
    TRY(op_check_cut(c, n, &x, start, step, op_input(c->g, n, 1)->shape.dim));
    if (op_input(c->g, n, 0)->storage == op_input(c->g, n, 1)->storage)
        return op_error(c, n, 1, "expected another tensor than input 0: that may be written over");
    return op_out(c, n, 0, DT_F32, &x);
}

static void emit_list(CpuEmit *e, const char *name, const int64_t *v, uint32_t n) {
    text_add(e->body, "    const int64_t %s[] = {", name);
    for (uint32_t i = 0; i < n; i++) text_add(e->body, i ? ", %lld" : "%lld", (long long)v[i]);
    text_str(e->body, n ? "};\n" : "0};\n");
}

static bool cpu_slice_add(CpuEmit *e, const Node *n) {
    const Shape *x = &e->g->value[n->in[0]].shape, *dy = &e->g->value[n->in[1]].shape;
    emit_list(e, "xdim", x->dim, x->rank);
    emit_list(e, "start", ir_get_ints(n, A_starts, NULL), x->rank);
    emit_list(e, "step", ir_get_ints(n, A_steps, NULL), x->rank);
    emit_list(e, "size", dy->dim, x->rank);
    text_add(e->body, "    dtrt_slice_add(p[0], p[1], p[2], %u, xdim, start, step, size);\n",
             x->rank);
    return true;
}

static uint64_t flops_slice_add(const Graph *g, const Node *n) {
    return value_count(g, n->in[1]);
}

const OpDef op_SliceAdd = {.name = "SliceAdd",
                           .flags = OPF_PATCHES,
                           .min_in = 2,
                           .max_in = 2,
                           .nout = 1,
                           .inplace = 1,
                           .infer = infer_slice_add,
                           .flops = flops_slice_add,
                           .cpu = cpu_slice_add};
