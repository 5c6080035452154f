/* clean.c - dead code, common subexpressions, and movements that cancel.
 *
 * Graph -> equivalent graph with the remaining nodes in their old order (so that I5 holds). One
 * sweep forward rewrites: Transpose of Transpose becomes one, a Transpose that only moves axes of
 * size 1 becomes a view, views of views become one, a Slice is taken where its elements come from,
 * operators that change nothing disappear, and a pure node that equals an earlier one (op,
 * attributes, inputs) gives way to it. A second sweep drops what nobody needs: the roots are
 * outputs, loss, logits and effects. Elementwise nodes are not shared across phases: computing them
 * again inside a fused loop costs less than keeping the value. */
#include "slices.h"

#include <assert.h>
#include <string.h>

/* ---- dead code ---- */

static void need(Bits live, ValueId v) {
    if (v != NO_ID) bits_set(live, v);
}

static bool node_is_live(const Node *n, Bits live) {
    if (op_class(n) == CLS_EFFECT) return true;
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] != NO_ID && bits_get(live, n->out[i])) return true;
    return false;
}

static Bits live_values(Arena *a, const Graph *g) {
    Bits live = bits_new(a, g->nvalue + 1);
    for (uint32_t i = 0; i < g->noutput; i++) need(live, g->output[i]);
    need(live, g->loss);
    need(live, g->logits);
    for (NodeId n = g->nnode; n-- > 0;) {
        if (!node_is_live(&g->node[n], live)) continue;
        for (uint32_t i = 0; i < g->node[n].nin; i++) need(live, g->node[n].in[i]);
    }
    return live;
}

/* Sources that stay although nobody reads them: inputs, because the data has them, and weights,
 * because the state of a run holds all of them. */
static bool source_stays(const Value *v) {
    return v->role != ROLE_CONST && v->role != ROLE_FROZEN && v->role != ROLE_STATE;
}

static Graph *drop_dead(Arena *a, const Graph *g) {
    Bits live = live_values(a, g), drop = bits_new(a, g->nvalue + 1);
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].def == NO_ID && !bits_get(live, v) && !source_stays(&g->value[v]))
            bits_set(drop, v);
    Rewrite r;
    rw_begin(&r, a, g, &drop);
    for (NodeId n = 0; n < g->nnode; n++)
        if (node_is_live(&g->node[n], live)) rw_copy(&r, n);
    return rw_end(&r);
}

/* ---- common subexpressions ---- */

typedef struct {
    NodeId *slot; /* open addressing; new nodes */
    uint32_t mask;
} Seen;

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static uint64_t hash_node(const Node *n) {
    uint64_t h = mix(n->op, n->key);
    for (uint32_t i = 0; i < n->nin; i++) h = mix(h, n->in[i]);
    for (uint32_t i = 0; i < n->nattr; i++) {
        h = mix(h, n->attr[i].key);
        for (uint32_t k = 0; k < n->attr[i].n && !n->attr[i].is_float; k++)
            h = mix(h, (uint64_t)n->attr[i].i[k]);
    }
    return h;
}

static bool attr_equal(const Attr *x, const Attr *y) {
    if (x->key != y->key || x->is_float != y->is_float || x->n != y->n) return false;
    return x->is_float ? !memcmp(x->f, y->f, x->n * sizeof *x->f)
                       : !memcmp(x->i, y->i, x->n * sizeof *x->i);
}

static bool node_equal(const Node *x, const Node *y) {
    if (x->op != y->op || x->key != y->key || x->nin != y->nin || x->nout != y->nout) return false;
    if (x->nattr != y->nattr) return false;
    if ((op_def(x->op)->flags & OPF_EW) && x->phase != y->phase) return false;
    for (uint32_t i = 0; i < x->nin; i++)
        if (x->in[i] != y->in[i]) return false;
    for (uint32_t i = 0; i < x->nout; i++)
        if ((x->out[i] == NO_ID) != (y->out[i] == NO_ID)) return false;
    for (uint32_t i = 0; i < x->nattr; i++)
        if (!attr_equal(&x->attr[i], &y->attr[i])) return false;
    return true;
}

/* An earlier node equal to the candidate; else the candidate is entered as node `id`. */
static NodeId seen_or_add(Seen *s, const Graph *g, const Node *cand, NodeId id) {
    uint32_t k = (uint32_t)hash_node(cand) & s->mask;
    for (; s->slot[k] != NO_ID; k = (k + 1) & s->mask)
        if (node_equal(&g->node[s->slot[k]], cand)) return s->slot[k];
    s->slot[k] = id;
    return NO_ID;
}

static Seen seen_new(Arena *a, uint32_t nnode) {
    uint32_t cap = 16;
    while (cap < nnode * 2 + 2) cap *= 2;
    Seen s = {ARENA_ARRAY(a, NodeId, cap), cap - 1};
    for (uint32_t i = 0; i < cap; i++) s.slot[i] = NO_ID;
    return s;
}

/* ---- movements that cancel ---- */

static bool any_kept(const Rewrite *r, const Node *n) {
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] != NO_ID && bits_get(r->kept, n->out[i])) return true;
    return false;
}

/* The value that a chain of views starts from. */
static ValueId behind_views(const Graph *g, ValueId v) {
    while (g->value[v].def != NO_ID && op_class(&g->node[g->value[v].def]) == CLS_VIEW)
        v = g->node[g->value[v].def].in[0];
    return v;
}

static ValueId view_of(Rewrite *r, const Node *n, ValueId of) {
    const Shape *s = &r->old->value[n->out[0]].shape;
    if (shape_eq(s, &r->g->value[of].shape)) return of;
    return op_reshape(r->g, n->phase, n->name, of, s);
}

/* What a Transpose becomes; NO_ID: a plain copy. */
static ValueId clean_transpose(Rewrite *r, const Node *n) {
    ValueId x = r->map[n->in[0]];
    uint32_t rank;
    const int64_t *perm = ir_get_ints(n, A_perm, &rank);
    NodeId def = r->g->value[x].def;
    if (perm_moves_nothing(&r->g->value[x].shape, perm))
        return view_of(r, n, behind_views(r->g, x));
    if (def == NO_ID || r->g->node[def].op != OP_Transpose) return NO_ID;
    const int64_t *first = ir_get_ints(&r->g->node[def], A_perm, &rank);
    int64_t both[IR_MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) both[i] = first[perm[i]];
    ValueId from = r->g->node[def].in[0];
    if (perm_moves_nothing(&r->g->value[from].shape, both))
        return view_of(r, n, behind_views(r->g, from));
    return op_transpose(r->g, n->phase, n->name, from, both);
}

static bool changes_nothing(const Graph *g, const Node *n) {
    const Value *x = &g->value[n->in[0]], *y = &g->value[n->out[0]];
    if (!shape_eq(&x->shape, &y->shape) || x->dtype != y->dtype) return false;
    if (n->op == OP_Scale) return ir_get_f(n, A_alpha, 1) == 1 && ir_get_f(n, A_beta, 0) == 0;
    return n->op == OP_Expand || n->op == OP_Cast || n->op == OP_Copy;
}

static bool swaps_last_two(const Node *n) {
    uint32_t rank;
    const int64_t *perm = ir_get_ints(n, A_perm, &rank);
    for (uint32_t i = 0; i + 2 < rank; i++)
        if (perm[i] != i) return false;
    return rank >= 2 && perm[rank - 1] == rank - 2;
}

/* A matrix product reads a transposed operand as it lies; NO_ID: none is transposed. */
static ValueId clean_matmul(Rewrite *r, const Node *n) {
    ValueId *in = ARENA_ARRAY(r->a, ValueId, n->nin);
    Attr *at = ARENA_ARRAY(r->a, Attr, n->nattr + 2);
    uint32_t nattr = 0;
    bool trans[2] = {ir_get_i(n, A_trans_a, 0) != 0, ir_get_i(n, A_trans_b, 0) != 0}, any = false;
    for (uint32_t i = 0; i < n->nin; i++) {
        in[i] = n->in[i] == NO_ID ? NO_ID : r->map[n->in[i]];
        NodeId def = in[i] == NO_ID ? NO_ID : r->g->value[in[i]].def;
        if (i > 1 || def == NO_ID || r->g->node[def].op != OP_Transpose) continue;
        if (!swaps_last_two(&r->g->node[def])) continue;
        in[i] = r->g->node[def].in[0];
        trans[i] = !trans[i];
        any = true;
    }
    if (!any) return NO_ID;
    for (uint32_t i = 0; i < n->nattr; i++)
        if (n->attr[i].key != A_trans_a && n->attr[i].key != A_trans_b) at[nattr++] = n->attr[i];
    if (trans[0]) at[nattr++] = attr_i(r->a, A_trans_a, 1);
    if (trans[1]) at[nattr++] = attr_i(r->a, A_trans_b, 1);
    return op_make_attr(r->g, n->phase, OP_MatMul, n->name, n->nin, in, at, nattr);
}

/* The new value that stands for output 0 of the old node, or NO_ID. */
static ValueId simpler(Rewrite *r, const Node *n) {
    if (n->op == OP_MatMul) return clean_matmul(r, n);
    if (n->nout != 1 || !n->nin || n->in[0] == NO_ID || any_kept(r, n)) return NO_ID;
    if (n->op == OP_Transpose) return clean_transpose(r, n);
    if (n->op == OP_Slice) return clean_slice(r, n);
    if (op_class(n) == CLS_VIEW) return view_of(r, n, behind_views(r->g, r->map[n->in[0]]));
    return changes_nothing(r->old, n) ? r->map[n->in[0]] : NO_ID;
}

/* Enters what was just made for the old node (the nodes from `first` on) or takes an equal one. */
static void clean_node(Rewrite *r, Seen *seen, NodeId id) {
    const Node *n = &r->old->node[id];
    NodeId first = r->g->nnode;
    ValueId now = simpler(r, n);
    if (now == NO_ID) {
        rw_copy(r, id);
    } else {
        if (r->g->nnode > first) {
            rw_rename(r, now, n->out[0]);
            r->g->node[first].onnx = n->onnx;
        }
        rw_replace(r, n->out[0], now);
    }
    if (r->g->nnode != first + 1) return; /* it came to an older value, or took several nodes */
    const Node *c = &r->g->node[first];
    NodeClass cls = op_node_class(c);
    if (cls == CLS_EFFECT || c->body || any_kept(r, n)) return;
    NodeId same = seen_or_add(seen, r->g, c, first);
    if (same == NO_ID) return;
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] != NO_ID) rw_replace(r, n->out[i], r->g->node[same].out[i]);
}

Graph *simplify_clean(Arena *a, const Graph *g) {
    Graph *live = drop_dead(a, g);
    Rewrite r;
    rw_begin(&r, a, live, NULL);
    Seen seen = seen_new(a, live->nnode);
    for (NodeId n = 0; n < live->nnode; n++) clean_node(&r, &seen, n);
    return drop_dead(a, rw_end(&r));
}
