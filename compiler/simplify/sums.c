/* sums.c - Add(a, SliceGrad(d)) becomes SliceAdd(a, d): the gradient of a tensor of which slices
 * are used is one buffer that each slice adds its part to, instead of one tensor of zeros for each
 * slice. In a chain of such sums (T steps of a recurrent layer, heads, channel groups) that is the
 * difference between T times the whole tensor and the whole tensor once. */
#include "passes.h"

/* The slice gradient that v is and that nobody else reads, or NULL. */
static const Node *slice_grad(const Rewrite *r, const Users *u, ValueId v) {
    const Graph *g = r->old;
    if (g->value[v].def == NO_ID || bits_get(r->kept, v)) return NULL;
    const Node *n = &g->node[g->value[v].def];
    return n->op == OP_SliceGrad && u->first[v + 1] - u->first[v] == 1 ? n : NULL;
}

static bool put_patch(Rewrite *r, const Users *u, const Node *n) {
    const Graph *g = r->old;
    if (n->op != OP_Add || n->in[0] == n->in[1]) return false;
    for (uint32_t i = 2; i-- > 0;) {
        const Node *s = slice_grad(r, u, n->in[i]);
        ValueId other = n->in[1 - i];
        if (!s || !shape_eq(&g->value[other].shape, &g->value[n->out[0]].shape)) continue;
        if (g->value[other].storage == g->value[s->in[0]].storage) continue;
        ValueId in[2] = {r->map[other], r->map[s->in[0]]};
        Attr at[2] = {*ir_attr(s, A_starts), *ir_attr(s, A_steps)};
        ValueId y = op_make_attr(r->g, n->phase, OP_SliceAdd, s->name, 2, in, at, 2);
        r->g->node[r->g->value[y].def].onnx = n->onnx;
        rw_rename(r, y, n->out[0]);
        rw_replace(r, n->out[0], y);
        return true;
    }
    return false;
}

Graph *join_sums(Arena *a, const Graph *g) {
    Rewrite r;
    rw_begin(&r, a, g, NULL);
    Users u = ir_users(a, g);
    for (NodeId n = 0; n < g->nnode; n++)
        if (!put_patch(&r, &u, &g->node[n])) rw_copy(&r, n);
    return rw_end(&r);
}
