/* attention.c - scaled dot-product attention as exporters write it becomes one Attention node,
 * whose gradient keeps nothing of the size of queries times keys:
 *
 *   Q K' -> * c -> where(condition, c, .) -> + mask -> softmax over keys -> times V
 *
 * The factor may also be the product's own or stand on Q; factor, condition and mask may be
 * missing. Nobody else may read a value in between. Left apart: attention with dropout on its
 * probabilities (each of them would have to be drawn again), masks that are trained, operands whose
 * batch axes differ. */
#include "passes.h"

#include <string.h>

typedef struct {
    Rewrite r;
    Users users;
    bool *trained; /* per value: some weight that is trained has a part in it */
} Pass;

typedef struct {
    ValueId q, k, v, add, cond;
    double alpha, fill;
    bool shows, rows; /* rows: K is [.., keys, depth] */
} Match;

static const Node *def_of(const Graph *g, ValueId v, OpCode op) {
    if (v == NO_ID || g->value[v].def == NO_ID) return NULL;
    const Node *n = &g->node[g->value[v].def];
    return n->op == op ? n : NULL;
}

static bool only_reader(const Pass *t, ValueId v) {
    return t->users.first[v + 1] - t->users.first[v] == 1 && !bits_get(t->r.kept, v);
}

/* The node of this kind behind v, when nobody else reads v. */
static const Node *inner(const Pass *t, ValueId v, OpCode op) {
    return only_reader(t, v) ? def_of(t->r.old, v, op) : NULL;
}

bool *trained_values(Arena *a, const Graph *g) {
    bool *is = ARENA_ARRAY(a, bool, g->nvalue + 1);
    for (ValueId v = 0; v < g->nvalue; v++) is[v] = g->value[v].role == ROLE_PARAM;
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        bool any = false;
        for (uint32_t i = 0; i < x->nin; i++) any = any || (x->in[i] != NO_ID && is[x->in[i]]);
        for (uint32_t k = 0; k < x->nout; k++)
            if (x->out[k] != NO_ID) is[x->out[k]] = any;
    }
    return is;
}

/* Axes of m are those of the scores or 1, and the last is the keys'. */
static bool is_mask(const Pass *t, ValueId m, const Shape *scores) {
    const Graph *g = t->r.old;
    const Shape *s = &g->value[m].shape;
    Shape sum;
    return !t->trained[m] && s->rank >= 1 && s->rank <= scores->rank &&
           shape_broadcast(s, scores, &sum) && shape_eq(&sum, scores) &&
           s->dim[s->rank - 1] == scores->dim[scores->rank - 1];
}

static bool scalar_constant(const Graph *g, ValueId v, double *out) {
    const Value *x = &g->value[g->storage[g->value[v].storage].root];
    float f;
    if (x->role != ROLE_CONST || x->dtype != DT_F32 || !x->data || x->data->n != sizeof f)
        return false;
    memcpy(&f, x->data->bytes, sizeof f);
    *out = (double)f;
    return true;
}

/* Scores behind an added mask, a condition and a factor, each of which may be missing. */
static ValueId behind_masks(const Pass *t, ValueId v, Match *m) {
    const Graph *g = t->r.old;
    const Shape *scores = &g->value[v].shape;
    const Node *add = inner(t, v, OP_Add);
    for (uint32_t i = 0; add && i < 2; i++) {
        ValueId x = add->in[i], mask = add->in[1 - i];
        if (!shape_eq(&g->value[x].shape, scores) || !is_mask(t, mask, scores)) continue;
        if (!def_of(g, x, OP_Where) && !def_of(g, x, OP_Scale) && !def_of(g, x, OP_MatMul))
            continue;
        m->add = mask;
        v = x;
        break;
    }
    const Node *where = inner(t, v, OP_Where);
    for (uint32_t i = 1; where && i < 3; i++) {
        ValueId x = where->in[i];
        if (!shape_eq(&g->value[x].shape, scores) || !is_mask(t, where->in[0], scores) ||
            !scalar_constant(g, where->in[3 - i], &m->fill))
            continue;
        m->cond = where->in[0];
        m->shows = i == 1;
        v = x;
        break;
    }
    const Node *scale = inner(t, v, OP_Scale);
    if (!scale || ir_get_f(scale, A_beta, 0) != 0) return v;
    m->alpha = ir_get_f(scale, A_alpha, 1);
    return scale->in[0];
}

static bool same_batch(const Graph *g, ValueId a, ValueId b) {
    const Shape *x = &g->value[a].shape, *y = &g->value[b].shape;
    if (x->rank != y->rank) return false;
    return !memcmp(x->dim, y->dim, (x->rank - 2) * sizeof *x->dim);
}

static bool is_plain_product(const Node *n) {
    return !ir_get_i(n, A_trans_a, 0) && (n->nin < 3 || n->in[2] == NO_ID);
}

static bool match(const Pass *t, const Node *n, Match *m) {
    const Graph *g = t->r.old;
    *m = (Match){.add = NO_ID, .cond = NO_ID, .alpha = 1};
    if (n->op != OP_MatMul || !is_plain_product(n) || ir_get_i(n, A_trans_b, 0) ||
        ir_get_f(n, A_alpha, 1) != 1)
        return false;
    const Node *softmax = inner(t, n->in[0], OP_Softmax);
    if (!softmax) return false;
    int64_t axis = ir_get_i(softmax, A_axis, -1), rank = g->value[n->in[0]].shape.rank;
    if (axis != -1 && axis != rank - 1) return false;
    const Node *product = inner(t, behind_masks(t, softmax->in[0], m), OP_MatMul);
    if (!product || !is_plain_product(product)) return false;
    m->alpha *= ir_get_f(product, A_alpha, 1);
    m->q = product->in[0];
    m->k = product->in[1];
    m->v = n->in[1];
    m->rows = ir_get_i(product, A_trans_b, 0) != 0;
    const Node *scale = inner(t, m->q, OP_Scale);
    if (scale && ir_get_f(scale, A_beta, 0) == 0) {
        m->alpha *= ir_get_f(scale, A_alpha, 1);
        m->q = scale->in[0];
    }
    return same_batch(g, m->q, m->k) && same_batch(g, m->q, m->v);
}

static void put(Pass *t, const Node *n, const Match *m) {
    Rewrite *r = &t->r;
    ValueId in[5] = {r->map[m->q], r->map[m->k], r->map[m->v], NO_ID, NO_ID};
    uint32_t nin = 3, nattr = 0;
    Attr at[4];
    if (m->add != NO_ID) in[3] = r->map[m->add], nin = 4;
    if (m->cond != NO_ID) in[4] = r->map[m->cond], nin = 5;
    at[nattr++] = attr_f(r->a, A_alpha, m->alpha);
    if (m->rows) at[nattr++] = attr_i(r->a, A_trans_b, 1);
    if (m->cond != NO_ID) at[nattr++] = attr_f(r->a, A_value, m->fill);
    if (m->cond != NO_ID && m->shows) at[nattr++] = attr_i(r->a, A_mode, 1);
    ValueId y = op_make_attr(r->g, n->phase, OP_Attention, n->name, nin, in, at, nattr);
    r->g->node[r->g->value[y].def].onnx = n->onnx;
    rw_rename(r, y, n->out[0]);
    rw_replace(r, n->out[0], y);
}

static bool has_softmax(const Graph *g) {
    for (NodeId n = 0; n < g->nnode; n++)
        if (g->node[n].op == OP_Softmax) return true;
    return false;
}

/* What a match leaves unread is dead code. */
const Graph *join_attention(Arena *a, const Graph *g) {
    if (!has_softmax(g)) return g;
    Pass t;
    Match m;
    rw_begin(&t.r, a, g, NULL);
    t.users = ir_users(a, g);
    t.trained = trained_values(a, g);
    for (NodeId id = 0; id < g->nnode; id++)
        if (match(&t, &g->node[id], &m))
            put(&t, &g->node[id], &m);
        else
            rw_copy(&t.r, id);
    return rw_end(&t.r);
}
