/* query.c - questions to a graph: attributes, dtypes, shapes, sizes, places, consumers. */
#include "ir.h"

#include <assert.h>
#include <string.h>

#define COUNT_MAX ((uint64_t)1 << 40) /* elements; so that sums of sizes cannot overflow */

const Attr *attr_find(const Attr *attr, uint32_t nattr, AttrKey k) {
    for (uint32_t i = 0; i < nattr; i++)
        if (attr[i].key == k) return &attr[i];
    return NULL;
}

const Attr *ir_attr(const Node *n, AttrKey k) {
    return attr_find(n->attr, n->nattr, k);
}

int64_t ir_get_i(const Node *n, AttrKey k, int64_t dflt) {
    const Attr *a = ir_attr(n, k);
    return a && !a->is_float && a->n ? a->i[0] : dflt;
}

double ir_get_f(const Node *n, AttrKey k, double dflt) {
    const Attr *a = ir_attr(n, k);
    if (!a || !a->n) return dflt;
    return a->is_float ? a->f[0] : (double)a->i[0];
}

const int64_t *ir_get_ints(const Node *n, AttrKey k, uint32_t *count) {
    const Attr *a = ir_attr(n, k);
    bool there = a && !a->is_float;
    if (count) *count = there ? a->n : 0;
    return there ? a->i : NULL;
}

static const char *const attr_names[A_COUNT] = {
#define ATTR(name) #name,
#include "attrs.def"
#undef ATTR
};

const char *attr_name(AttrKey k) {
    return k < A_COUNT ? attr_names[k] : "?";
}

AttrKey attr_by_name(const char *s) {
    AttrKey k = 0;
    while (k < A_COUNT && strcmp(attr_names[k], s)) k++;
    return k;
}

size_t dtype_size(DType d) {
    static const size_t size[DT_COUNT] = {
        [DT_F32] = 4, [DT_F64] = 8, [DT_I64] = 8, [DT_I32] = 4, [DT_U8] = 1, [DT_BOOL] = 1};
    assert(d < DT_COUNT);
    return size[d];
}

const char *dtype_name(DType d) {
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "f32", [DT_F64] = "f64", [DT_I64] = "i64",
        [DT_I32] = "i32", [DT_U8] = "u8",   [DT_BOOL] = "bool"};
    return d < DT_COUNT ? name[d] : "?";
}

const char *role_name(Role r) {
    static const char *const name[ROLE_COUNT] = {
        [ROLE_TEMP] = "temp",   [ROLE_INPUT] = "input",   [ROLE_TARGET] = "target",
        [ROLE_PARAM] = "param", [ROLE_FROZEN] = "frozen", [ROLE_BUFFER] = "buffer",
        [ROLE_CONST] = "const", [ROLE_STATE] = "state",   [ROLE_SCALAR] = "scalar"};
    return r < ROLE_COUNT ? name[r] : "?";
}

bool is_persistent(Role r) {
    return r != ROLE_TEMP;
}

bool shape_eq(const Shape *a, const Shape *b) {
    if (a->rank != b->rank) return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* A dimension of 0 makes the product 0, but the others must still be sizes. */
bool shape_count(const Shape *s, uint64_t *n) {
    uint64_t count = 1, bound = 1;
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0) return false;
        uint64_t d = (uint64_t)s->dim[i];
        count *= d;
        if (!checked_mul(bound, d ? d : 1, &bound) || bound > COUNT_MAX) return false;
    }
    *n = count;
    return true;
}

uint64_t value_count(const Graph *g, ValueId v) {
    uint64_t n = 0;
    bool fits = shape_count(&g->value[v].shape, &n);
    assert(fits);
    (void)fits;
    return n;
}

uint64_t value_bytes(const Graph *g, ValueId v) {
    return value_count(g, v) * dtype_size(g->value[v].dtype);
}

const char *shape_str(Arena *a, const Shape *s) {
    Text t;
    text_init(&t, a);
    text_char(&t, '[');
    for (uint32_t i = 0; i < s->rank; i++) text_add(&t, i ? ",%lld" : "%lld", (long long)s->dim[i]);
    text_char(&t, ']');
    return t.at;
}

bool shape_broadcast(const Shape *a, const Shape *b, Shape *out) {
    Shape r = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (uint32_t i = 0; i < r.rank; i++) { /* i counts from the last axis */
        int64_t x = i < a->rank ? a->dim[a->rank - 1 - i] : 1;
        int64_t y = i < b->rank ? b->dim[b->rank - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        r.dim[r.rank - 1 - i] = x == 1 ? y : x;
    }
    *out = r;
    return true;
}

Place ir_place(const Graph *g, NodeId n, ValueId v) {
    Place p = {.file = g->file};
    if (n != NO_ID) {
        p.node = g->node[n].name;
        p.op = g->node[n].onnx ? g->node[n].onnx : ir_op_name(g->node[n].op);
    }
    if (v != NO_ID) p.tensor = g->value[v].name;
    return p;
}

/* Two sweeps over the nodes; `last` keeps a node that reads a value twice from counting twice. */
Users ir_users(Arena *a, const Graph *g) {
    Users u = {.first = ARENA_ARRAY(a, uint32_t, (uint64_t)g->nvalue + 1)};
    NodeId *last = ARENA_ARRAY(a, NodeId, g->nvalue); /* node + 1 */
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++) {
            ValueId v = g->node[n].in[i];
            if (v == NO_ID || last[v] == n + 1) continue;
            last[v] = n + 1;
            u.first[v + 1]++;
        }
    for (uint32_t v = 0; v < g->nvalue; v++) u.first[v + 1] += u.first[v];
    u.user = ARENA_ARRAY(a, NodeId, u.first[g->nvalue]);
    uint32_t *fill = ARENA_ARRAY(a, uint32_t, g->nvalue);
    for (uint32_t v = 0; v < g->nvalue; v++) last[v] = 0;
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++) {
            ValueId v = g->node[n].in[i];
            if (v == NO_ID || last[v] == n + 1) continue;
            last[v] = n + 1;
            u.user[u.first[v] + fill[v]++] = n;
        }
    return u;
}
