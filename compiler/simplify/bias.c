/* bias.c - a sum of a convolution, or of a matrix product, and one number for each channel (each
 * column) becomes the node's bias, which costs no pass over the images. The numbers are a weight or
 * constant with the other axes 1, as exporters of layers with a bias of their own write it. Before
 * the order of images is chosen. Nodes that have a bias keep it and the sum. */
#include "passes.h"

static const Node *product_of(const Graph *g, ValueId v) {
    if (g->value[v].def == NO_ID) return NULL;
    const Node *n = &g->node[g->value[v].def];
    bool plain = n->op == OP_Conv || (n->op == OP_MatMul && ir_get_f(n, A_alpha, 1) == 1);
    return plain && (n->nin < 3 || n->in[2] == NO_ID) ? n : NULL;
}

/* Is b, which no step computes, one number for each position of the axis? */
static bool is_bias(const Graph *g, ValueId b, const Shape *y, uint32_t axis) {
    const Shape *s = &g->value[b].shape;
    Role role = g->value[g->storage[g->value[b].storage].root].role;
    if (role != ROLE_PARAM && role != ROLE_FROZEN && role != ROLE_CONST) return false;
    if (g->value[b].dtype != DT_F32 || s->rank > y->rank || s->rank + axis < y->rank) return false;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint32_t at = y->rank - s->rank + i;
        if (s->dim[i] != (at == axis ? y->dim[axis] : 1)) return false;
    }
    return s->rank > 0 && s->rank + axis >= y->rank;
}

static bool put_bias(Rewrite *r, const Users *u, const Node *n) {
    const Graph *g = r->old;
    for (uint32_t i = 0; n->op == OP_Add && i < 2; i++) {
        ValueId y = n->in[i], b = n->in[1 - i];
        const Node *p = product_of(g, y);
        const Shape *s = &g->value[y].shape;
        if (!p || u->first[y + 1] - u->first[y] != 1 || bits_get(r->kept, y)) continue;
        uint32_t axis = p->op == OP_Conv ? 1 : s->rank - 1;
        if (!shape_eq(s, &g->value[n->out[0]].shape) || !is_bias(g, b, s, axis)) continue;
        /* the weight itself: b may be a view that stands later in the order */
        ValueId root = r->map[g->storage[g->value[b].storage].root];
        ValueId in[3] = {r->map[p->in[0]], r->map[p->in[1]]};
        in[2] = op_reshape(r->g, n->phase, n->name, root, &(Shape){1, {s->dim[axis]}});
        ValueId now = op_make_attr(r->g, p->phase, p->op, p->name, 3, in, p->attr, p->nattr);
        r->g->node[r->g->value[now].def].onnx = p->onnx;
        rw_rename(r, now, n->out[0]);
        rw_replace(r, n->out[0], now);
        return true;
    }
    return false;
}

/* The products without a bias that are left unread are dead code. */
Graph *join_biases(Arena *a, const Graph *g) {
    Rewrite r;
    rw_begin(&r, a, g, NULL);
    Users u = ir_users(a, g);
    for (NodeId id = 0; id < g->nnode; id++)
        if (!put_bias(&r, &u, &g->node[id])) rw_copy(&r, id);
    return rw_end(&r);
}
