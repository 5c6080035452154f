/* lower.c - batch normalization as operators that can be planned, after S. Ioffe and C. Szegedy,
 * "Batch normalization", ICML 2015.
 *
 * BatchNorm with channels last -> in training mode: BnStats (batch mean and population variance),
 * InvStd, BnApply, and BnUpdate, the effect that moves the running statistics; in inference mode:
 * InvStd of the running variance and BnApply. The pure part can be computed again without touching
 * the statistics. */
#include "passes.h"

static ValueId inv_std(Rewrite *r, const Node *n, ValueId var) {
    Attr eps = attr_f(r->a, A_eps, ir_get_f(n, A_eps, 1e-5));
    const char *name = arena_printf(r->a, "%s.invstd", n->name);
    return op_make_attr(r->g, n->phase, OP_InvStd, name, 1, &var, &eps, 1);
}

static void update_statistics(Rewrite *r, const Node *n, ValueId mean, ValueId var) {
    ValueId in[4] = {r->map[n->in[3]], r->map[n->in[4]], mean, var};
    const char *name = arena_printf(r->a, "%s.update", n->name);
    NodeId u = ir_node(r->g, OP_BnUpdate, n->phase, name, 4, 0);
    for (uint32_t i = 0; i < 4; i++) r->g->node[u].in[i] = in[i];
    r->g->node[u].onnx = n->onnx;
    ir_attr_f(r->g, u, A_momentum, ir_get_f(n, A_momentum, 0.9));
}

static void lower_batch_norm(Rewrite *r, const Node *n) {
    ValueId x = r->map[n->in[0]], mean = r->map[n->in[3]], var = r->map[n->in[4]];
    bool training = ir_get_i(n, A_training, 0) != 0;
    if (training) {
        const char *name = arena_printf(r->a, "%s.stats", n->name);
        mean = op_make1(r->g, n->phase, OP_BnStats, name, x);
        var = r->g->node[r->g->value[mean].def].out[1];
    }
    ValueId in[5] = {x, mean, inv_std(r, n, var), r->map[n->in[1]], r->map[n->in[2]]};
    ValueId y = op_make(r->g, n->phase, OP_BnApply, n->name, 5, in);
    r->g->node[r->g->value[y].def].onnx = n->onnx;
    rw_rename(r, y, n->out[0]);
    rw_replace(r, n->out[0], y);
    if (training) update_statistics(r, n, mean, var);
}

Graph *lower_graph(Arena *a, const Graph *g) {
    Rewrite r;
    rw_begin(&r, a, g, NULL);
    for (NodeId n = 0; n < g->nnode; n++) {
        if (g->node[n].op == OP_BatchNorm)
            lower_batch_norm(&r, &g->node[n]);
        else
            rw_copy(&r, n);
    }
    return rw_end(&r);
}
