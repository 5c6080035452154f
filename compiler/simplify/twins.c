/* twins.c - making and finding the two axis orders of a value (see twins.h). */
#include "twins.h"

#include <assert.h>
#include <string.h>

void tw_begin(Twins *t, Arena *a, Diag *d, const Graph *old) {
    rw_begin(&t->r, a, old, NULL);
    t->d = d;
    t->twin = ARENA_ARRAY(a, ValueId, old->nvalue);
    t->channels = ARENA_ARRAY(a, uint8_t, old->nvalue);
    for (ValueId v = 0; v < old->nvalue; v++) t->twin[v] = NO_ID;
}

void tw_perm(uint32_t rank, uint32_t k, int64_t *perm) {
    uint32_t n = 0;
    perm[n++] = 0;
    for (uint32_t i = k + 1; i < rank; i++) perm[n++] = i;
    for (uint32_t i = 1; i <= k; i++) perm[n++] = i;
}

uint32_t tw_axis(uint32_t rank, uint32_t k, uint32_t axis) {
    if (axis == 0) return 0;
    return axis <= k ? rank - k + axis - 1 : axis - k;
}

Shape tw_shape(const Shape *plain, uint32_t k) {
    int64_t perm[IR_MAX_RANK];
    Shape s = {.rank = plain->rank};
    tw_perm(plain->rank, k, perm);
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = plain->dim[perm[i]];
    return s;
}

bool tw_only(const Twins *t, ValueId v) {
    return t->twin[v] != NO_ID && t->r.map[v] == NO_ID;
}

static Shape with_leading_ones(const Shape *s, uint32_t rank) {
    Shape o = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++)
        o.dim[i] = i < rank - s->rank ? 1 : s->dim[i - (rank - s->rank)];
    return o;
}

static void rename_to(Twins *t, ValueId now, const char *name) {
    t->r.g->value[now].name = name;
}

ValueId tw_plain(Twins *t, ValueId v) {
    if (v == NO_ID || t->r.map[v] != NO_ID) return v == NO_ID ? NO_ID : t->r.map[v];
    assert(t->twin[v] != NO_ID);
    const Value *o = &t->r.old->value[v];
    Graph *g = t->r.g;
    int64_t perm[IR_MAX_RANK];
    for (uint32_t i = 0; i < o->shape.rank; i++)
        perm[i] = tw_axis(o->shape.rank, t->channels[v], i);
    bool taken = !strcmp(g->value[t->twin[v]].name, o->name);
    const char *name = taken ? arena_printf(t->r.a, "%s.nchw", o->name) : o->name;
    ValueId now = op_transpose(g, PHASE_FORWARD, name, t->twin[v], perm);
    rename_to(t, now, name);
    return t->r.map[v] = now;
}

/* The shape of v as an operand of rank `rank`, and the permutation that makes it a twin. */
static Shape operand_shape(const Twins *t, ValueId v, uint32_t rank, uint32_t k, int64_t *perm) {
    tw_perm(rank, k, perm);
    return with_leading_ones(&t->r.old->value[v].shape, rank);
}

static bool has_twin(const Twins *t, ValueId v, uint32_t rank, uint32_t k) {
    return t->twin[v] != NO_ID && t->channels[v] == k && t->r.old->value[v].shape.rank == rank;
}

/* One element of lower rank broadcasts as it is. */
static bool is_scalar(const Twins *t, ValueId v, uint32_t rank) {
    return t->r.old->value[v].shape.rank < rank && value_count(t->r.old, v) == 1;
}

ValueId tw_last(Twins *t, ValueId v, uint32_t rank, uint32_t k) {
    if (has_twin(t, v, rank, k)) return t->twin[v];
    if (is_scalar(t, v, rank)) return tw_plain(t, v);
    int64_t perm[IR_MAX_RANK];
    Shape s = operand_shape(t, v, rank, k, perm);
    const char *name = arena_printf(t->r.a, "%s.nhwc", t->r.old->value[v].name);
    ValueId wide = op_reshape(t->r.g, PHASE_FORWARD, name, tw_plain(t, v), &s);
    ValueId now = op_transpose(t->r.g, PHASE_FORWARD, name, wide, perm);
    rename_to(t, now, name);
    if (rank == t->r.old->value[v].shape.rank) tw_set(t, v, now, k);
    return now;
}

uint64_t tw_cost_last(const Twins *t, ValueId v, uint32_t rank, uint32_t k) {
    if (has_twin(t, v, rank, k)) return 0;
    int64_t perm[IR_MAX_RANK];
    Shape s = operand_shape(t, v, rank, k, perm);
    return perm_moves_nothing(&s, perm) ? 0 : value_count(t->r.old, v);
}

uint64_t tw_cost_plain(const Twins *t, ValueId v) {
    if (!tw_only(t, v)) return 0;
    const Shape *s = &t->r.old->value[v].shape;
    int64_t perm[IR_MAX_RANK];
    tw_perm(s->rank, t->channels[v], perm);
    return perm_moves_nothing(s, perm) ? 0 : value_count(t->r.old, v);
}

void tw_make(Twins *t, ValueId v, ValueId twin, uint32_t k) {
    const char *name = t->r.old->value[v].name;
    if (bits_get(t->r.kept, v)) name = arena_printf(t->r.a, "%s.nhwc", name);
    rename_to(t, twin, name);
    tw_set(t, v, twin, k);
}

void tw_set(Twins *t, ValueId v, ValueId twin, uint32_t k) {
    t->twin[v] = twin;
    t->channels[v] = (uint8_t)k;
}

NodeId tw_node(Twins *t, const Node *n, const ValueId *in, const Attr *attr, uint32_t nattr,
               uint32_t k) {
    Graph *g = t->r.g;
    NodeId id = ir_node(g, n->op, n->phase, n->name, n->nin, n->nout);
    Node *now = &g->node[id];
    memcpy(now->in, in, n->nin * sizeof *in);
    now->onnx = n->onnx;
    now->key = n->key;
    ir_attr_copy(g, id, attr, nattr);
    bool ok = op_infer(g, t->d, id);
    assert(ok);
    (void)ok;
    for (uint32_t i = 0; i < n->nout; i++) {
        if (n->out[i] != NO_ID) tw_make(t, n->out[i], g->node[id].out[i], k);
    }
    return id;
}
