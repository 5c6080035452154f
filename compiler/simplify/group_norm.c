/* group_norm.c - group normalization as PyTorch writes it becomes GroupNorm:
 *
 *   [N, C, ..] -> [N, groups, rest] -> instance norm with scale 1, bias 0 -> [N, C, ..]
 *   -> * scale[C, 1, ..] -> + bias[C, 1, ..]
 *
 * Before the order of images is chosen, because the reshapes would force the plain order. The last
 * two steps may be missing. */
#include "passes.h"

#include <string.h>

typedef struct {
    const Node *norm, *mul, *add;
    ValueId x, scale, bias;
} Groups;

static const Node *def_of(const Graph *g, ValueId v, OpCode op) {
    if (g->value[v].def == NO_ID) return NULL;
    const Node *n = &g->node[g->value[v].def];
    return n->op == op ? n : NULL;
}

/* A constant all of whose elements are c. */
static bool is_constant(const Graph *g, ValueId v, float c) {
    const Value *x = &g->value[v];
    if (x->role != ROLE_CONST || x->dtype != DT_F32 || !x->data) return false;
    for (uint64_t i = 0; i < x->data->n / sizeof c; i++)
        if (memcmp((const char *)x->data->bytes + i * sizeof c, &c, sizeof c) != 0) return false;
    return true;
}

/* The only reader of v, when it is of the given kind and its other operand is one number for each
 * channel that no step computes. */
static const Node *channel_step(const Rewrite *r, const Users *u, ValueId v, OpCode op,
                                ValueId *weight) {
    const Graph *g = r->old;
    if (u->first[v + 1] - u->first[v] != 1 || bits_get(r->kept, v)) return NULL;
    const Node *n = &g->node[u->user[u->first[v]]];
    if (n->op != op || n->in[0] == n->in[1]) return NULL;
    *weight = n->in[n->in[0] == v];
    const Shape *x = &g->value[v].shape, *w = &g->value[*weight].shape;
    if (g->value[g->storage[g->value[*weight].storage].root].role == ROLE_TEMP) return NULL;
    if (w->rank > x->rank || w->rank + 1 < x->rank) return NULL;
    for (uint32_t i = 0; i < w->rank; i++) {
        uint32_t axis = x->rank - w->rank + i;
        if (w->dim[i] != (axis == 1 ? x->dim[1] : 1)) return NULL;
    }
    return n;
}

static bool match(const Rewrite *r, const Users *u, const Node *n, Groups *o) {
    const Graph *g = r->old;
    if (n->op != OP_Reshape || bits_get(r->kept, n->out[0])) return false;
    *o = (Groups){.norm = def_of(g, n->in[0], OP_GroupNorm)};
    if (!o->norm || u->first[n->in[0] + 1] - u->first[n->in[0]] != 1) return false;
    const Node *split = def_of(g, o->norm->in[0], OP_Reshape);
    if (!split || bits_get(r->kept, n->in[0])) return false;
    const Shape *x = &g->value[split->in[0]].shape, *s = &g->value[n->in[0]].shape;
    if (!shape_eq(x, &g->value[n->out[0]].shape) || x->rank < 2 || x->dim[0] != s->dim[0])
        return false;
    if (ir_get_i(o->norm, A_group, 1) != s->dim[1] || x->dim[1] % s->dim[1]) return false;
    if (!is_constant(g, o->norm->in[1], 1) || !is_constant(g, o->norm->in[2], 0)) return false;
    o->x = split->in[0];
    o->mul = channel_step(r, u, n->out[0], OP_Mul, &o->scale);
    if (o->mul) o->add = channel_step(r, u, o->mul->out[0], OP_Add, &o->bias);
    return true;
}

static ValueId filled(Rewrite *r, const char *name, int64_t n, float c) {
    float *x = ARENA_ARRAY(r->a, float, (uint64_t)n);
    for (int64_t i = 0; i < n; i++) x[i] = c;
    Data *data = ARENA_NEW(r->a, Data);
    *data = (Data){x, (uint64_t)n * sizeof *x};
    ValueId v = ir_value(r->g, name, DT_F32, &(Shape){1, {n}}, ROLE_CONST);
    r->g->value[v].data = data;
    return v;
}

/* The source behind v; v itself may be a view that stands later in the order. */
static ValueId source(Rewrite *r, const Node *n, ValueId v, int64_t channels) {
    ValueId root = r->old->storage[r->old->value[v].storage].root;
    return op_reshape(r->g, n->phase, n->name, r->map[root], &(Shape){1, {channels}});
}

static void put(Rewrite *r, const Node *n, const Groups *o) {
    const Graph *old = r->old;
    int64_t channels = old->value[o->x].shape.dim[1];
    const char *name = o->norm->name;
    ValueId in[3] = {r->map[o->x]};
    in[1] = o->mul ? source(r, n, o->scale, channels)
                   : filled(r, arena_printf(r->a, "%s.ones", name), channels, 1);
    in[2] = o->add ? source(r, n, o->bias, channels)
                   : filled(r, arena_printf(r->a, "%s.zeros", name), channels, 0);
    Attr at[2] = {attr_i(r->a, A_group, ir_get_i(o->norm, A_group, 1)),
                  attr_f(r->a, A_eps, ir_get_f(o->norm, A_eps, 1e-5))};
    ValueId y = op_make_attr(r->g, n->phase, OP_GroupNorm, name, 3, in, at, 2);
    const Node *last = o->add ? o->add : o->mul ? o->mul : n;
    r->g->node[r->g->value[y].def].onnx = o->norm->onnx;
    rw_rename(r, y, last->out[0]);
    rw_replace(r, n->out[0], y);
    if (o->mul) rw_replace(r, o->mul->out[0], y);
    rw_replace(r, last->out[0], y);
}

static bool has_groups(const Graph *g) {
    for (NodeId n = 0; n < g->nnode; n++)
        if (g->node[n].op == OP_GroupNorm) return true;
    return false;
}

const Graph *group_norms(Arena *a, const Graph *g) {
    if (!has_groups(g)) return g;
    Rewrite r;
    Groups o;
    rw_begin(&r, a, g, NULL);
    Users u = ir_users(a, g);
    for (NodeId id = 0; id < g->nnode; id++) {
        const Node *n = &g->node[id];
        if (n->nout && n->out[0] != NO_ID && r.map[n->out[0]] != NO_ID) continue; /* part of one */
        if (match(&r, &u, n, &o))
            put(&r, n, &o);
        else
            rw_copy(&r, id);
    }
    return rw_end(&r);
}
