/* rewrite.c - copying a graph node by node (see rewrite.h). Values keep their relative order, so
 * that ids and everything that breaks ties by id stay stable. */
#include "rewrite.h"

#include <assert.h>
#include <string.h>

static void copy_source(Rewrite *r, ValueId v) {
    const Value *o = &r->old->value[v];
    ValueId n = ir_value(r->g, o->name, o->dtype, &o->shape, o->role);
    r->g->value[n].data = o->data;
    r->map[v] = n;
}

void rw_begin(Rewrite *r, Arena *a, const Graph *old, const Bits *drop) {
    r->a = a;
    r->old = old;
    r->g = ir_new(a, old->file);
    r->g->next_key = old->next_key;
    r->map = ARENA_ARRAY(a, ValueId, old->nvalue);
    r->kept = bits_new(a, old->nvalue + 1);
    for (ValueId v = 0; v < old->nvalue; v++) {
        r->map[v] = NO_ID;
        if (old->value[v].def == NO_ID && !(drop && bits_get(*drop, v))) copy_source(r, v);
    }
    for (uint32_t i = 0; i < old->noutput; i++) bits_set(r->kept, old->output[i]);
    if (old->loss != NO_ID) bits_set(r->kept, old->loss);
    if (old->logits != NO_ID) bits_set(r->kept, old->logits);
}

static ValueId copy_output(Rewrite *r, NodeId n, ValueId v, bool view) {
    const Value *o = &r->old->value[v];
    ValueId now = view ? ir_view(r->g, o->name, &o->shape, r->g->node[n].in[0])
                       : ir_value(r->g, o->name, o->dtype, &o->shape, o->role);
    r->g->value[now].def = n;
    return now;
}

NodeId rw_copy(Rewrite *r, NodeId id) {
    const Node *o = &r->old->node[id];
    NodeId n = ir_node(r->g, o->op, o->phase, o->name, o->nin, o->nout);
    Node *c = &r->g->node[n];
    c->onnx = o->onnx;
    c->key = o->key;
    c->body = o->body;
    ir_attr_copy(r->g, n, o->attr, o->nattr);
    for (uint32_t i = 0; i < o->nin; i++)
        if (o->in[i] != NO_ID) c->in[i] = r->map[o->in[i]];
    bool view = op_class(o) == CLS_VIEW;
    for (uint32_t i = 0; i < o->nout; i++) {
        if (o->out[i] == NO_ID) continue;
        c->out[i] = copy_output(r, n, o->out[i], view);
        r->map[o->out[i]] = c->out[i];
    }
    return n;
}

void rw_replace(Rewrite *r, ValueId v, ValueId now) {
    assert(shape_eq(&r->old->value[v].shape, &r->g->value[now].shape));
    r->map[v] = now;
}

void rw_rename(Rewrite *r, ValueId now, ValueId old) {
    r->g->value[now].name = r->old->value[old].name;
}

bool perm_moves_nothing(const Shape *s, const int64_t *perm) {
    int64_t last = -1;
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[perm[i]] == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

Graph *rw_end(Rewrite *r) {
    const Graph *o = r->old;
    Graph *g = r->g;
    for (ValueId v = 0; v < o->nvalue; v++) {
        ValueId p = o->value[v].param;
        if (p != NO_ID && r->map[v] != NO_ID) g->value[r->map[v]].param = r->map[p];
    }
    g->noutput = o->noutput;
    g->output = ARENA_ARRAY(r->a, ValueId, o->noutput);
    for (uint32_t i = 0; i < o->noutput; i++) g->output[i] = r->map[o->output[i]];
    g->loss = o->loss == NO_ID ? NO_ID : r->map[o->loss];
    g->logits = o->logits == NO_ID ? NO_ID : r->map[o->logits];
    return g;
}
