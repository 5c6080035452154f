/* attention.c - scaled dot-product attention as exporters write it becomes one Attention node,
 * whose gradient keeps nothing of the size of queries times keys:
 *
 *   Q K' -> * c -> where(condition, c, .) -> + masks -> softmax over keys -> dropout -> times V
 *
 * The factor may also be the product's own or stand on Q; everything between product and softmax,
 * and dropout, may be missing. Masks may be trained. A condition that hides with -inf may stand
 * behind a mask. Views that leave queries and keys alone may stand in between, as in attention over
 * shifted windows (Z. Liu et al., "Swin Transformer", ICCV 2021): the node works on the finest of
 * these. Operands with fewer batch axes are spread out, masks summed up first. Nobody else may read
 * a value in between.
 *
 * Left apart: finite numbers put in behind a mask, dropout of everything. */
#include "passes.h"

#include <math.h>
#include <string.h>

enum { MASKS = 3, DEPTH = 12 };

typedef struct {
    Rewrite r;
    Users users;
} Pass;

/* A value that is added to, or chooses, scores that have shape `at` there. */
typedef struct {
    ValueId v;
    Shape at;
} Mask;

typedef struct {
    ValueId q, k, v;
    Mask add[MASKS], cond; /* cond.v NO_ID: none */
    uint32_t nadd, key;
    double alpha, fill, ratio;
    bool shows, rows; /* rows: K is [.., keys, depth] */
    Shape view;       /* of the scores where they have most axes */
    Shape product;    /* of the scores at the product */
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

static bool broadcasts_to(const Shape *s, const Shape *to) {
    Shape sum;
    return s->rank <= to->rank && shape_broadcast(s, to, &sum) && shape_eq(&sum, to);
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

/* Equal axes at the end of both. */
static uint32_t common_end(const Shape *a, const Shape *b) {
    uint32_t n = 0;
    while (n < a->rank && n < b->rank && a->dim[a->rank - 1 - n] == b->dim[b->rank - 1 - n]) n++;
    return n;
}

static bool is_plain_product(const Node *n) {
    return !ir_get_i(n, A_trans_a, 0) && (n->nin < 3 || n->in[2] == NO_ID);
}

/* ---- from the softmax back to the product ---- */

static bool scores(const Pass *t, ValueId v, bool scaled, int depth, Match *m);

static bool through_sum(const Pass *t, const Node *add, int depth, Match *m) {
    const Graph *g = t->r.old;
    const Shape *s = &g->value[add->out[0]].shape;
    if (m->nadd == MASKS) return false;
    for (uint32_t i = 0; i < 2; i++) {
        Match try = *m;
        ValueId x = add->in[i], mask = add->in[1 - i];
        if (!shape_eq(&g->value[x].shape, s) || !broadcasts_to(&g->value[mask].shape, s)) continue;
        try.add[try.nadd++] = (Mask){mask, *s};
        if (!scores(t, x, false, depth, &try)) continue;
        *m = try;
        return true;
    }
    return false;
}

static bool through_choice(const Pass *t, const Node *where, int depth, Match *m) {
    const Graph *g = t->r.old;
    const Shape *s = &g->value[where->out[0]].shape;
    if (m->cond.v != NO_ID || !broadcasts_to(&g->value[where->in[0]].shape, s)) return false;
    for (uint32_t i = 1; i < 3; i++) {
        Match try = *m;
        ValueId x = where->in[i];
        if (!shape_eq(&g->value[x].shape, s) || !scalar_constant(g, where->in[3 - i], &try.fill))
            continue;
        try.cond = (Mask){where->in[0], *s};
        try.shows = i == 1;
        if (!scores(t, x, false, depth, &try)) continue;
        *m = try;
        return true;
    }
    return false;
}

static bool through_view(const Pass *t, const Node *view, bool scaled, int depth, Match *m) {
    const Shape *out = &t->r.old->value[view->out[0]].shape;
    const Shape *in = &t->r.old->value[view->in[0]].shape;
    if (common_end(in, out) < 2) return false;
    if (in->rank > m->view.rank) m->view = *in;
    return scores(t, view->in[0], scaled, depth, m);
}

/* Masks were counted from the softmax on; what was added before a choice counts for nothing where
 * that puts -inf. scaled: a factor stands behind, nothing may be added or chosen any more. */
static bool scores(const Pass *t, ValueId v, bool scaled, int depth, Match *m) {
    if (depth == DEPTH || !only_reader(t, v) || t->r.old->value[v].def == NO_ID) return false;
    const Node *n = &t->r.old->node[t->r.old->value[v].def];
    switch (n->op) {
    case OP_Reshape: return through_view(t, n, scaled, depth + 1, m);
    case OP_Add:
        if (scaled || (m->cond.v != NO_ID && m->fill != -INFINITY)) return false;
        return through_sum(t, n, depth + 1, m);
    case OP_Where: return !scaled && through_choice(t, n, depth + 1, m);
    case OP_Scale:
        if (scaled || ir_get_f(n, A_beta, 0) != 0) return false;
        m->alpha = ir_get_f(n, A_alpha, 1);
        return scores(t, n->in[0], true, depth + 1, m);
    case OP_MatMul:
        if (!is_plain_product(n)) return false;
        m->alpha *= ir_get_f(n, A_alpha, 1);
        m->q = n->in[0];
        m->k = n->in[1];
        m->rows = ir_get_i(n, A_trans_b, 0) != 0;
        m->product = t->r.old->value[v].shape;
        return true;
    default: return false;
    }
}

/* A mask for scores of shape `at` works for those of `view` as well when the axes that it has are
 * the last of both. */
static bool fits_view(const Graph *g, const Mask *m, const Shape *view) {
    const Shape *s = &g->value[m->v].shape;
    uint32_t ones = 0;
    if (shape_eq(&m->at, view)) return true;
    while (ones < s->rank && s->dim[ones] == 1) ones++;
    return s->rank - ones <= common_end(&m->at, view);
}

/* Axes of a mask that are not 1 where it comes first: those of the scores, or 1. */
static Shape without_ones(const Shape *s, const Shape *view) {
    Shape out = *s;
    while (out.rank > 1 && out.rank > view->rank - 1 && out.dim[0] == 1) {
        out.rank--;
        memmove(out.dim, out.dim + 1, out.rank * sizeof *out.dim);
    }
    return out;
}

static bool masks_fit(const Graph *g, const Match *m) {
    Shape sum = {0};
    for (uint32_t i = 0; i < m->nadd; i++) {
        Shape s = without_ones(&g->value[m->add[i].v].shape, &m->view);
        if (!fits_view(g, &m->add[i], &m->view) || !shape_broadcast(&sum, &s, &sum)) return false;
    }
    return m->cond.v == NO_ID || fits_view(g, &m->cond, &m->view);
}

/* The softmax behind the probabilities p, with dropout or not. */
static const Node *softmax_of(const Pass *t, ValueId p, Match *m) {
    const Node *drop = inner(t, p, OP_Dropout);
    if (drop) {
        m->ratio = ir_get_f(drop, A_ratio, 0.5);
        m->key = drop->key;
        if (m->ratio >= 1 || ir_get_i(drop, A_channels_last, 0)) return NULL;
        p = drop->in[0];
    }
    const Node *softmax = inner(t, p, OP_Softmax);
    int64_t last = t->r.old->value[p].shape.rank - 1;
    int64_t axis = softmax ? ir_get_i(softmax, A_axis, -1) : 0;
    return softmax && (axis == -1 || axis == last) ? softmax : NULL;
}

/* Of two axes at least, and not empty. */
static bool is_matrix(const Graph *g, ValueId v) {
    return g->value[v].shape.rank >= 2 && value_count(g, v) > 0;
}

static bool match(const Pass *t, const Node *n, Match *m) {
    const Graph *g = t->r.old;
    *m = (Match){.alpha = 1, .cond = {.v = NO_ID}};
    if (n->op != OP_MatMul || !is_plain_product(n) || ir_get_i(n, A_trans_b, 0) ||
        ir_get_f(n, A_alpha, 1) != 1)
        return false;
    const Node *softmax = softmax_of(t, n->in[0], m);
    if (!softmax) return false;
    const Shape *s = &g->value[softmax->in[0]].shape, *y = &g->value[n->out[0]].shape;
    m->v = n->in[1];
    m->view = *s;
    if (s->rank < 2 || s->rank != y->rank || memcmp(s->dim, y->dim, (s->rank - 2) * sizeof *s->dim))
        return false;
    if (!scores(t, softmax->in[0], false, 0, m) || !is_matrix(g, m->q) || !is_matrix(g, m->k) ||
        !is_matrix(g, m->v) || !value_count(g, softmax->in[0]))
        return false;
    const Node *scale = inner(t, m->q, OP_Scale);
    if (scale && ir_get_f(scale, A_beta, 0) == 0) {
        m->alpha *= ir_get_f(scale, A_alpha, 1);
        m->q = scale->in[0];
    }
    return masks_fit(g, m);
}

/* ---- the node ---- */

static ValueId expand(Rewrite *r, const Node *n, ValueId v, const Shape *to) {
    if (shape_eq(&r->g->value[v].shape, to)) return v;
    Attr at = attr_ints(r->a, A_shape, to->dim, to->rank);
    return op_make_attr(r->g, n->phase, OP_Expand, n->name, 1, &v, &at, 1);
}

/* Operand v with the batch axes of `full`, as those of `view`. */
static ValueId operand(Rewrite *r, const Node *n, ValueId old, const Shape *full,
                       const Shape *view) {
    ValueId v = r->map[old];
    const Shape of = r->g->value[v].shape;
    Shape all = *full, out = *view;
    for (uint32_t i = 1; i <= 2; i++)
        all.dim[all.rank - i] = out.dim[out.rank - i] = of.dim[of.rank - i];
    return op_reshape(r->g, n->phase, n->name, expand(r, n, v, &all), &out);
}

/* A mask with no more axes than the view has, the last one as long as there are keys. */
static ValueId mask(Rewrite *r, const Node *n, ValueId old, const Shape *view) {
    ValueId v = r->map[old];
    Shape s = r->g->value[v].shape;
    if (s.rank == 0) s = (Shape){.rank = 1, .dim = {1}};
    s = without_ones(&s, view);
    v = op_reshape(r->g, n->phase, n->name, v, &s);
    s.dim[s.rank - 1] = view->dim[view->rank - 1];
    return expand(r, n, v, &s);
}

static ValueId all_masks(Rewrite *r, const Node *n, const Match *m) {
    ValueId sum = NO_ID;
    for (uint32_t i = m->nadd; i-- > 0;) {
        ValueId one = mask(r, n, m->add[i].v, &m->view);
        sum = sum == NO_ID ? one : op_make2(r->g, n->phase, OP_Add, n->name, sum, one);
    }
    return sum;
}

static void put(Pass *t, const Node *n, const Match *m) {
    Rewrite *r = &t->r;
    const Shape y = r->old->value[n->out[0]].shape;
    ValueId in[5] = {operand(r, n, m->q, &m->product, &m->view),
                     operand(r, n, m->k, &m->product, &m->view), operand(r, n, m->v, &y, &m->view),
                     all_masks(r, n, m), NO_ID};
    if (m->cond.v != NO_ID) in[4] = mask(r, n, m->cond.v, &m->view);
    uint32_t nin = in[4] != NO_ID ? 5 : in[3] != NO_ID ? 4 : 3, nattr = 0;
    Attr at[5];
    at[nattr++] = attr_f(r->a, A_alpha, m->alpha);
    if (m->rows) at[nattr++] = attr_i(r->a, A_trans_b, 1);
    if (m->cond.v != NO_ID) at[nattr++] = attr_f(r->a, A_value, m->fill);
    if (m->cond.v != NO_ID && m->shows) at[nattr++] = attr_i(r->a, A_mode, 1);
    if (m->ratio > 0) at[nattr++] = attr_f(r->a, A_ratio, m->ratio);
    ValueId made = op_make_attr(r->g, n->phase, OP_Attention, n->name, nin, in, at, nattr);
    Node *node = &r->g->node[r->g->value[made].def];
    node->onnx = n->onnx;
    if (m->ratio > 0) node->key = m->key;
    ValueId out = op_reshape(r->g, n->phase, n->name, made, &y);
    rw_rename(r, out, n->out[0]);
    rw_replace(r, n->out[0], out);
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
    for (NodeId id = 0; id < g->nnode; id++)
        if (match(&t, &g->node[id], &m))
            put(&t, &g->node[id], &m);
        else
            rw_copy(&t.r, id);
    return rw_end(&t.r);
}
