/* optimizer.c - an update node for each trained parameter, and train_build, which is loss, autodiff
 * and optimizer in a row.
 *
 * An update stands directly after the node that completes the gradient, or after the last node that
 * reads the weight if that comes later (I5): the gradient dies as early as it can, and gradients of
 * different layers share memory. Several updates at one place stand by parameter id. */
#include "step.h"

#include <assert.h>
#include <string.h>

static ValueId make_state(Graph *g, const char *prefix, ValueId w) {
    Shape s = g->value[w].shape;
    const char *name = arena_printf(g->arena, "%s.%s", prefix, g->value[w].name);
    ValueId v = ir_value(g, name, DT_F32, &s, ROLE_STATE);
    g->value[v].param = w;
    return v;
}

/* m: velocity, or first moment; v: second moment. */
static void make_update(Graph *g, ValueId w, ValueId dw, const OptSpec *spec) {
    static const OpCode ops[] = {OP_Sgd, OP_Adam, OP_AdamW};
    ValueId in[4] = {w, dw, NO_ID, NO_ID};
    uint32_t n = 2;
    if (spec->kind != OPT_SGD || spec->momentum_state) in[n++] = make_state(g, "optim.m", w);
    if (spec->kind != OPT_SGD) in[n++] = make_state(g, "optim.v", w);
    const char *name = arena_printf(g->arena, "%s.update", g->value[w].name);
    op_make(g, PHASE_UPDATE, ops[spec->kind], name, n, in);
}

/* Per storage: the last node that reads it, views included; NO_ID: none. */
static NodeId *last_readers(const Graph *g, Arena *scratch, NodeId nnode) {
    NodeId *last = ARENA_ARRAY(scratch, NodeId, g->nstorage);
    for (StorageId s = 0; s < g->nstorage; s++) last[s] = NO_ID;
    for (NodeId n = 0; n < nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++)
            if (g->node[n].in[i] != NO_ID) last[g->value[g->node[n].in[i]].storage] = n;
    return last;
}

/* Puts each update (the nodes from `first` on) behind the node after[update - first]. */
static void place(Graph *g, Arena *scratch, NodeId first, const NodeId *after) {
    uint32_t nup = g->nnode - first;
    uint32_t *start = ARENA_ARRAY(scratch, uint32_t, first + 1u); /* counting sort by place */
    NodeId *sorted = ARENA_ARRAY(scratch, NodeId, nup);
    for (uint32_t u = 0; u < nup; u++) start[after[u] + 1]++;
    for (NodeId n = 0; n < first; n++) start[n + 1] += start[n];
    for (uint32_t u = 0; u < nup; u++) sorted[start[after[u]]++] = first + u;
    Node *old = ARENA_ARRAY(scratch, Node, g->nnode);
    if (g->nnode) memcpy(old, g->node, g->nnode * sizeof *old);
    NodeId at = 0;
    for (NodeId n = 0; n < first; n++) {
        uint32_t from = n ? start[n - 1] : 0; /* start[k] is now the end of place k */
        for (uint32_t k = 0; k < old[n].nout; k++)
            if (old[n].out[k] != NO_ID) g->value[old[n].out[k]].def = at;
        g->node[at++] = old[n];
        for (uint32_t u = from; u < start[n]; u++) g->node[at++] = old[sorted[u]];
    }
    assert(at == g->nnode);
}

/* Adds an update, with its states, for each parameter with a gradient. */
static void insert_updates(Graph *g, Arena *scratch, const ValueId *grad, const OptSpec *spec) {
    NodeId first = g->nnode;
    uint32_t nvalue = g->nvalue;
    const NodeId *last = last_readers(g, scratch, first);
    VEC(NodeId) after = {0};
    for (ValueId w = 0; w < nvalue; w++) {
        if (g->value[w].role != ROLE_PARAM || grad[w] == NO_ID) continue;
        NodeId def = g->value[grad[w]].def, read = last[g->value[w].storage];
        assert(def != NO_ID);
        VEC_PUSH(scratch, after, read != NO_ID && read > def ? read : def);
        make_update(g, w, grad[w], spec);
    }
    place(g, scratch, first, after.at);
}

Graph *step_copy(Arena *a, const Graph *old) {
    Graph *g = ARENA_NEW(a, Graph);
    *g = *old;
    g->arena = a;
    g->value = ARENA_ARRAY(a, Value, old->nvalue);
    g->node = ARENA_ARRAY(a, Node, old->nnode);
    g->storage = ARENA_ARRAY(a, Storage, old->nstorage);
    if (old->nvalue) memcpy(g->value, old->value, old->nvalue * sizeof *g->value);
    if (old->nnode) memcpy(g->node, old->node, old->nnode * sizeof *g->node);
    if (old->nstorage) memcpy(g->storage, old->storage, old->nstorage * sizeof *g->storage);
    g->value_cap = old->nvalue;
    g->node_cap = old->nnode;
    g->storage_cap = old->nstorage;
    return g;
}

Graph *train_build(Arena *a, Diag *d, const Graph *fwd, const LossSpec *loss, const OptSpec *opt) {
    Graph *g = step_copy(a, fwd);
    Arena *scratch = arena_new();
    ValueId *grad = NULL;
    bool ok = loss_build(g, d, loss) && ad_build(g, d, scratch, &grad);
    if (ok) insert_updates(g, scratch, grad, opt);
    arena_free(scratch);
    return ok ? g : NULL;
}
