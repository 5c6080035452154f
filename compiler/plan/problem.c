/* problem.c - Graph + Cost -> Problem. One pass gives every value its tensor, one the lists of each
 * run; the engine's room fills the rest. */
#include "problem.h"

typedef struct {
    Arena *a;
    Problem *p;
    uint32_t *tensor_of; /* per value; NO_ID: always there */
    VEC(uint32_t) in, out, inplace, writes, reads;
    VEC(StorageId) view_storage;
    VEC(uint32_t) view_def;
    uint32_t *mark, stamp; /* per tensor or storage: seen in the current list */
} Builder;

static uint64_t arena_size(const Problem *p, StorageId s) {
    if (p->g->storage[s].persistent) return 0;
    uint64_t bytes = p->c->storage_bytes[s];
    return p->align == 1 ? bytes : round_up(bytes ? bytes : 1, p->align);
}

/* Storages that output 0 may overwrite (plan.h, P5). */
static void add_inplace(Builder *b, const Node *n) {
    const Problem *p = b->p;
    uint64_t may = op_inplace_inputs(p->g, n);
    for (uint32_t i = 0; i < 64 && may >> i; i++) {
        if (!(may >> i & 1)) continue;
        StorageId s = p->g->value[n->in[i]].storage, to = p->g->value[n->out[0]].storage;
        if (p->bytes[s] && p->c->storage_bytes[s] == p->c->storage_bytes[to])
            VEC_PUSH(b->a, b->inplace, s);
    }
}

static bool fresh(Builder *b, uint32_t x) {
    if (b->mark[x] == b->stamp) return false;
    b->mark[x] = b->stamp;
    return true;
}

static void add_run(Builder *b, NodeId id) {
    Problem *p = b->p;
    const Graph *g = p->g;
    const Node *n = &g->node[id];
    uint32_t r = p->nrun++;
    NodeClass cls = op_node_class(n);
    p->node[r] = id;
    p->effect[r] = cls == CLS_EFFECT;
    p->ns[r] = p->c->node_ns[id];
    p->workspace[r] = p->c->node_workspace[id];
    if (p->align > 1) p->workspace[r] = round_up(p->workspace[r], p->align);
    b->stamp++;
    for (uint32_t i = 0; i < n->nin; i++) {
        uint32_t t = n->in[i] == NO_ID ? NO_ID : b->tensor_of[n->in[i]];
        if (t != NO_ID && fresh(b, t)) VEC_PUSH(b->a, b->in, t);
    }
    for (uint32_t k = 0; k < n->nout; k++) {
        uint32_t t = n->out[k] == NO_ID ? NO_ID : b->tensor_of[n->out[k]];
        VEC_PUSH(b->a, b->out, t);
        if (t == NO_ID) continue;
        if (t < p->nstorage)
            p->def[t] = r;
        else
            b->view_def.at[t - p->nstorage] = r;
    }
    uint32_t mutates = cls == CLS_EFFECT ? op_def(n->op)->mutates : 0;
    for (uint32_t i = 0; i < n->nin && i < 32; i++)
        if (mutates >> i & 1 && n->in[i] != NO_ID)
            VEC_PUSH(b->a, b->writes, g->value[n->in[i]].storage);
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NO_ID && g->storage[g->value[n->in[i]].storage].persistent)
            VEC_PUSH(b->a, b->reads, g->value[n->in[i]].storage);
    if (cls != CLS_VIEW) add_inplace(b, n);
    p->in.first[r + 1] = b->in.n;
    p->out.first[r + 1] = b->out.n;
    p->writes.first[r + 1] = b->writes.n;
    p->reads.first[r + 1] = b->reads.n;
    p->inplace.first[r + 1] = b->inplace.n;
}

static bool is_run(const Problem *p, NodeId n) {
    return op_node_class(&p->g->node[n]) != CLS_VIEW || p->c->node_ns[n] > 0;
}

static void fill_tensors(Builder *b) {
    Problem *p = b->p;
    const Graph *g = p->g;
    for (ValueId v = 0; v < g->nvalue; v++)
        b->tensor_of[v] = g->storage[g->value[v].storage].persistent ? NO_ID : g->value[v].storage;
    for (NodeId n = 0; n < g->nnode; n++) {
        if (op_node_class(&g->node[n]) != CLS_VIEW) continue;
        for (uint32_t k = 0; k < g->node[n].nout; k++) {
            ValueId out = g->node[n].out[k], in = g->node[n].in[0];
            if (out == NO_ID) continue;
            if (!is_run(p, n)) {
                b->tensor_of[out] = b->tensor_of[in];
                continue;
            }
            b->tensor_of[out] = p->nstorage + b->view_storage.n;
            VEC_PUSH(b->a, b->view_storage, g->value[out].storage);
            VEC_PUSH(b->a, b->view_def, NO_ID);
        }
    }
    p->ntensor = p->nstorage + b->view_storage.n;
}

static void fill_storages(Problem *p) {
    const Graph *g = p->g;
    for (StorageId s = 0; s < p->nstorage; s++) {
        p->is_temp[s] = !g->storage[s].persistent;
        p->bytes[s] = arena_size(p, s);
        uint64_t bytes = p->c->storage_bytes[s];
        if (g->storage[s].persistent)
            p->persistent_bytes += p->align == 1 ? bytes : round_up(bytes, p->align);
    }
}

static void fill_outputs(Builder *b) {
    Problem *p = b->p;
    p->output = ARENA_ARRAY(b->a, uint32_t, p->g->noutput);
    b->stamp++;
    for (uint32_t i = 0; i < p->g->noutput; i++) {
        uint32_t t = b->tensor_of[p->g->output[i]];
        if (t == NO_ID || !fresh(b, t)) continue;
        p->output[p->noutput++] = t;
    }
}

Problem *problem_new(Arena *a, const Graph *g, const Cost *c, const NodeId *order,
                     bool bytes_only) {
    Problem *p = ARENA_NEW(a, Problem);
    *p = (Problem){.g = g, .c = c};
    p->align = bytes_only ? 1 : PLAN_ALIGN;
    p->nstorage = g->nstorage;
    uint64_t n1 = (uint64_t)g->nnode + 1;
    p->node = ARENA_ARRAY(a, NodeId, n1);
    p->effect = ARENA_ARRAY(a, bool, n1);
    p->ns = ARENA_ARRAY(a, uint64_t, n1);
    p->workspace = ARENA_ARRAY(a, uint64_t, n1);
    p->in.first = ARENA_ARRAY(a, uint32_t, n1);
    p->out.first = ARENA_ARRAY(a, uint32_t, n1);
    p->inplace.first = ARENA_ARRAY(a, uint32_t, n1);
    p->writes.first = ARENA_ARRAY(a, uint32_t, n1);
    p->reads.first = ARENA_ARRAY(a, uint32_t, n1);
    p->bytes = ARENA_ARRAY(a, uint64_t, g->nstorage);
    p->is_temp = ARENA_ARRAY(a, bool, g->nstorage);
    fill_storages(p);
    Builder b = {.a = a, .p = p, .tensor_of = ARENA_ARRAY(a, uint32_t, g->nvalue)};
    fill_tensors(&b);
    p->storage = ARENA_ARRAY(a, StorageId, p->ntensor);
    p->def = ARENA_ARRAY(a, uint32_t, p->ntensor);
    b.mark = ARENA_ARRAY(a, uint32_t, p->ntensor);
    for (uint32_t t = 0; t < p->ntensor; t++) {
        p->storage[t] = t < p->nstorage ? t : b.view_storage.at[t - p->nstorage];
        p->def[t] = NO_ID;
    }
    fill_outputs(&b);
    for (NodeId i = 0; i < g->nnode; i++) {
        NodeId n = order ? order[i] : i;
        if (n != NO_ID && is_run(p, n)) add_run(&b, n);
    }
    for (uint32_t t = p->nstorage; t < p->ntensor; t++) p->def[t] = b.view_def.at[t - p->nstorage];
    p->in.at = b.in.at;
    p->out.at = b.out.at;
    p->inplace.at = b.inplace.at;
    p->writes.at = b.writes.at;
    p->reads.at = b.reads.at;
    dtr_fill_lists(&p->dtr, arena_alloc(a, dtr_lists_bytes(&p->dtr)));
    return p;
}

NodeId *problem_deferred_order(Arena *a, const Graph *g) {
    NodeId *order = ARENA_ARRAY(a, NodeId, g->nnode);
    uint32_t n = 0;
    bool moved = false, seen = false;
    for (NodeId i = 0; i < g->nnode; i++) {
        bool effect = op_node_class(&g->node[i]) == CLS_EFFECT;
        seen |= effect;
        moved |= seen && !effect;
        if (!effect) order[n++] = i;
    }
    for (NodeId i = 0; i < g->nnode; i++)
        if (op_node_class(&g->node[i]) == CLS_EFFECT) order[n++] = i;
    return moved ? order : NULL;
}

uint32_t *problem_frozen(Arena *a, const Problem *p) {
    uint32_t *frozen = ARENA_ARRAY(a, uint32_t, (uint64_t)p->nrun + 1);
    for (uint32_t r = 0; r <= p->nrun; r++) frozen[r] = NO_ID;
    for (uint32_t r = p->nrun; r-- > 0;) EACH(p->writes, r, w) EACH(p->readers, w, q) frozen[q] = r;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r]) frozen[r] = r;
    return frozen;
}
