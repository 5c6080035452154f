/* build.c - making graphs: values, views, nodes, attributes. Arrays double; ids stay, pointers do
 * not. */
#include "ir.h"

#include <assert.h>
#include <string.h>

Graph *ir_new(Arena *a, const char *file) {
    Graph *g = ARENA_NEW(a, Graph);
    g->arena = a;
    g->file = file ? arena_str(a, file) : NULL;
    g->loss = g->logits = NO_ID;
    return g;
}

static ValueId add_value(Graph *g, const char *name, DType dt, const Shape *s, Role role) {
    if (g->nvalue == g->value_cap)
        g->value = vec_grow(g->arena, g->value, &g->value_cap, sizeof *g->value);
    Value *v = &g->value[g->nvalue];
    *v = (Value){.name = arena_str(g->arena, name), .dtype = dt, .role = role, .shape = *s};
    v->storage = v->def = v->param = NO_ID;
    return g->nvalue++;
}

ValueId ir_value(Graph *g, const char *name, DType dt, const Shape *s, Role role) {
    uint64_t count = 0;
    bool fits = shape_count(s, &count);
    assert(fits && s->rank <= IR_MAX_RANK);
    (void)fits;
    ValueId v = add_value(g, name, dt, s, role);
    if (g->nstorage == g->storage_cap)
        g->storage = vec_grow(g->arena, g->storage, &g->storage_cap, sizeof *g->storage);
    g->storage[g->nstorage] =
        (Storage){.bytes = count * dtype_size(dt), .root = v, .persistent = is_persistent(role)};
    g->value[v].storage = g->nstorage++;
    return v;
}

ValueId ir_view(Graph *g, const char *name, const Shape *s, ValueId of) {
    uint64_t count = 0;
    bool fits = shape_count(s, &count);
    assert(fits && count == value_count(g, of));
    (void)fits;
    ValueId v = add_value(g, name, g->value[of].dtype, s, ROLE_TEMP);
    g->value[v].storage = g->value[of].storage;
    return v;
}

static uint32_t *id_array(Arena *a, uint32_t n) {
    if (n == 0) return NULL;
    uint32_t *p = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t i = 0; i < n; i++) p[i] = NO_ID;
    return p;
}

NodeId ir_node(Graph *g, OpCode op, Phase ph, const char *name, uint32_t nin, uint32_t nout) {
    if (g->nnode == g->node_cap)
        g->node = vec_grow(g->arena, g->node, &g->node_cap, sizeof *g->node);
    g->node[g->nnode] = (Node){.op = op, .phase = ph, .nin = nin, .nout = nout};
    Node *n = &g->node[g->nnode];
    n->in = id_array(g->arena, nin);
    n->out = id_array(g->arena, nout);
    n->name = arena_str(g->arena, name);
    return g->nnode++;
}

/* The entry for key k: the one that is there, or a new one. */
static Attr *attr_slot(Graph *g, NodeId id, AttrKey k) {
    Node *n = &g->node[id];
    for (uint32_t i = 0; i < n->nattr; i++)
        if (n->attr[i].key == k) return &n->attr[i];
    n->attr = arena_grow(g->arena, n->attr, n->nattr * sizeof(Attr), (n->nattr + 1) * sizeof(Attr));
    return &n->attr[n->nattr++];
}

void ir_attr_ints(Graph *g, NodeId n, AttrKey k, const int64_t *v, uint32_t count) {
    int64_t *copy = ARENA_ARRAY(g->arena, int64_t, count);
    if (count) memcpy(copy, v, count * sizeof *v);
    *attr_slot(g, n, k) = (Attr){.key = k, .n = count, .i = copy};
}

static void attr_floats(Graph *g, NodeId n, AttrKey k, const double *v, uint32_t count) {
    double *copy = ARENA_ARRAY(g->arena, double, count);
    if (count) memcpy(copy, v, count * sizeof *v);
    *attr_slot(g, n, k) = (Attr){.key = k, .is_float = true, .n = count, .f = copy};
}

void ir_attr_i(Graph *g, NodeId n, AttrKey k, int64_t v) {
    ir_attr_ints(g, n, k, &v, 1);
}

void ir_attr_f(Graph *g, NodeId n, AttrKey k, double v) {
    attr_floats(g, n, k, &v, 1);
}

void ir_attr_copy(Graph *g, NodeId to, const Attr *attr, uint32_t nattr) {
    for (uint32_t i = 0; i < nattr; i++) {
        if (attr[i].is_float)
            attr_floats(g, to, attr[i].key, attr[i].f, attr[i].n);
        else
            ir_attr_ints(g, to, attr[i].key, attr[i].i, attr[i].n);
    }
}
