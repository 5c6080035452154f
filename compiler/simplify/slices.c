/* slices.c - a Slice goes to where its elements come from: through transposes and views that only
 * add or drop axes of size 1, into the part of a Concat that holds it, through other slices. So the
 * last state of a recurrent layer, which exporters write as an entry of all its outputs, is that
 * state, and the gradient of all other outputs is no tensor of zeros. */
#include "slices.h"

#include <assert.h>
#include <string.h>

/* What is cut out of x, and how the result is brought to the form of the Slice that was there. */
typedef struct {
    ValueId x;
    Shape shape; /* of x */
    int64_t start[IR_MAX_RANK], step[IR_MAX_RANK], size[IR_MAX_RANK];
    uint32_t nperm; /* axes of the result, as axes of the slice of x; 0: no transpose */
    int64_t perm[IR_MAX_RANK];
} Cut;

static bool through_transpose(const Node *t, Cut *c) {
    uint32_t rank;
    const int64_t *perm = ir_get_ints(t, A_perm, &rank);
    Cut o = *c;
    for (uint32_t i = 0; i < rank; i++) {
        c->start[perm[i]] = o.start[i];
        c->step[perm[i]] = o.step[i];
        c->size[perm[i]] = o.size[i];
        c->perm[i] = perm[o.nperm ? (uint32_t)o.perm[i] : i];
    }
    c->nperm = rank;
    return true;
}

/* Only axes of size 1 differ: the others keep their cuts. Not below a transpose, whose axes would
 * have to be counted anew. */
static bool through_view(const Shape *from, Cut *c) {
    Cut o = *c;
    uint32_t k = 0;
    if (c->nperm) return false;
    for (uint32_t i = 0; i < from->rank; i++) {
        c->start[i] = 0;
        c->step[i] = c->size[i] = 1;
        if (from->dim[i] == 1) continue;
        while (k < o.shape.rank && o.shape.dim[k] == 1) k++;
        if (k == o.shape.rank || o.shape.dim[k] != from->dim[i]) {
            *c = o;
            return false;
        }
        c->start[i] = o.start[k];
        c->step[i] = o.step[k];
        c->size[i] = o.size[k++];
    }
    return true;
}

static bool through_slice(const Node *s, Cut *c) {
    const int64_t *start = ir_get_ints(s, A_starts, NULL), *step = ir_get_ints(s, A_steps, NULL);
    for (uint32_t i = 0; i < c->shape.rank; i++) {
        c->start[i] = start[i] + c->start[i] * step[i];
        c->step[i] *= step[i];
        if (c->size[i] == 1) c->step[i] = 1;
    }
    return true;
}

static bool through_concat(const Graph *g, const Node *n, Cut *c, ValueId *part) {
    int64_t axis = ir_get_i(n, A_axis, 0), lo, hi;
    if (axis < 0) axis += c->shape.rank;
    lo = c->start[axis];
    hi = lo + (c->size[axis] - 1) * c->step[axis];
    for (uint32_t i = 0; i < n->nin; i++) {
        int64_t d = g->value[n->in[i]].shape.dim[axis];
        if (lo >= 0 && lo < d && hi >= 0 && hi < d) {
            c->start[axis] = lo;
            *part = n->in[i];
            return true;
        }
        lo -= d;
        hi -= d;
    }
    return false;
}

/* One step towards the source. */
static bool move_up(const Graph *g, Cut *c) {
    NodeId def = g->value[c->x].def;
    if (def == NO_ID) return false;
    const Node *n = &g->node[def];
    ValueId from = n->nin ? n->in[0] : NO_ID;
    bool moved = false;
    if (n->op == OP_Transpose) moved = through_transpose(n, c);
    if (n->op == OP_Reshape) moved = through_view(&g->value[from].shape, c);
    if (n->op == OP_Slice) moved = through_slice(n, c);
    if (n->op == OP_Concat) moved = through_concat(g, n, c, &from);
    if (!moved) return false;
    c->x = from;
    c->shape = g->value[from].shape;
    return true;
}

static bool is_whole(const Cut *c) {
    for (uint32_t i = 0; i < c->shape.rank; i++)
        if (c->size[i] != c->shape.dim[i] || c->step[i] != 1) return false;
    return true;
}

static ValueId put_cut(Rewrite *r, const Node *n, const Cut *c) {
    ValueId v = c->x;
    Attr at[] = {attr_ints(r->a, A_starts, c->start, c->shape.rank),
                 attr_ints(r->a, A_steps, c->step, c->shape.rank),
                 attr_ints(r->a, A_sizes, c->size, c->shape.rank)};
    if (!is_whole(c)) v = op_make_attr(r->g, n->phase, OP_Slice, n->name, 1, &v, at, 3);
    if (c->nperm && !perm_moves_nothing(&r->g->value[v].shape, c->perm))
        v = op_transpose(r->g, n->phase, n->name, v, c->perm);
    return op_reshape(r->g, n->phase, n->name, v, &r->old->value[n->out[0]].shape);
}

ValueId clean_slice(Rewrite *r, const Node *n) {
    Cut c = {.x = r->map[n->in[0]]};
    c.shape = r->g->value[c.x].shape;
    if (!value_count(r->old, n->out[0])) return NO_ID;
    memcpy(c.start, ir_get_ints(n, A_starts, NULL), c.shape.rank * sizeof *c.start);
    memcpy(c.step, ir_get_ints(n, A_steps, NULL), c.shape.rank * sizeof *c.step);
    memcpy(c.size, ir_get_ints(n, A_sizes, NULL), c.shape.rank * sizeof *c.size);
    bool moved = false;
    while (move_up(r->g, &c)) moved = true;
    return moved ? put_cut(r, n, &c) : NO_ID;
}
