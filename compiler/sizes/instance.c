/* instance.c - the graph at given values of the symbols: a copy of the first graph of the grid with
 * every shape and every number of an attribute replaced by the value of its polynomial.
 *
 * Numbers that are not whole are means' factors: 1 over a number of elements. They are that in
 * double precision, so that their inverses are found exactly. */
#include "sizes.h"

#include <math.h>
#include <string.h>

typedef struct {
    Arena *a;
    const Sizes *s;
    const Graph *const *grid;
    const int64_t *at;
    const char *why;
} Instance;

/* A number at the values wanted, from its values at the grid's points. */
static bool number(Instance *x, const int64_t *v, int64_t *out) {
    SizePoly p;
    bool same = true;
    for (uint32_t i = 1; i < x->s->ngrid; i++) same &= v[i] == v[0];
    *out = v[0];
    if (same) return true;
    if (!sizes_fit(x->s, v, &p)) {
        x->why = "is not a polynomial of it";
        return false;
    }
    if (sizes_eval(x->s, &p, x->at, out)) return true;
    x->why = "is too large";
    return false;
}

static bool real(Instance *x, const double *v, double *out) {
    int64_t inverse[SIZES_MAX_COEFS], q;
    bool same = true;
    for (uint32_t i = 1; i < x->s->ngrid; i++) same &= !memcmp(&v[i], &v[0], sizeof *v);
    *out = v[0];
    if (same) return true;
    for (uint32_t i = 0; i < x->s->ngrid; i++) {
        double r = 1 / v[i];
        x->why = "is not the inverse of a number of elements";
        if (!(fabs(r) < 0x1p53)) return false;
        inverse[i] = llround(r);
        if (!inverse[i] || 1 / (double)inverse[i] != v[i]) return false;
    }
    TRY(number(x, inverse, &q));
    *out = 1 / (double)q;
    return q != 0;
}

static bool shape_at(Instance *x, const Shape *const *shape, Shape *out) {
    *out = (Shape){.rank = shape[0]->rank};
    for (uint32_t k = 0; k < out->rank; k++) {
        int64_t v[SIZES_MAX_COEFS];
        for (uint32_t i = 0; i < x->s->ngrid; i++) v[i] = shape[i]->dim[k];
        TRY(number(x, v, &out->dim[k]));
    }
    return true;
}

static bool ints_at(Instance *x, const Attr *const *attr, Attr *out) {
    int64_t *now = ARENA_ARRAY(x->a, int64_t, out->n), v[SIZES_MAX_COEFS];
    for (uint32_t k = 0; k < out->n; k++) {
        for (uint32_t i = 0; i < x->s->ngrid; i++) v[i] = attr[i]->i[k];
        TRY(number(x, v, &now[k]));
    }
    out->i = now;
    return true;
}

static bool floats_at(Instance *x, const Attr *const *attr, Attr *out) {
    double *now = ARENA_ARRAY(x->a, double, out->n), v[SIZES_MAX_COEFS];
    for (uint32_t k = 0; k < out->n; k++) {
        for (uint32_t i = 0; i < x->s->ngrid; i++) v[i] = attr[i]->f[k];
        TRY(real(x, v, &now[k]));
    }
    out->f = now;
    return true;
}

/* list[i]: the attributes at point i, n each. */
static bool attrs_at(Instance *x, const Attr *const *list, uint32_t n, Attr **out) {
    *out = ARENA_ARRAY(x->a, Attr, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        const Attr *attr[SIZES_MAX_COEFS];
        for (uint32_t i = 0; i < x->s->ngrid; i++) attr[i] = &list[i][k];
        (*out)[k] = *attr[0];
        TRY(attr[0]->is_float ? floats_at(x, attr, &(*out)[k]) : ints_at(x, attr, &(*out)[k]));
    }
    return true;
}

static bool body_at(Instance *x, NodeId n, FusedBody **out) {
    const FusedBody *first = x->grid[0]->node[n].body;
    const Shape *space[SIZES_MAX_COEFS];
    FusedBody *b = *out = ARENA_NEW(x->a, FusedBody);
    *b = *first;
    for (uint32_t i = 0; i < x->s->ngrid; i++) space[i] = &x->grid[i]->node[n].body->space;
    TRY(shape_at(x, space, &b->space));
    b->inst = ARENA_ARRAY(x->a, FusedInst, b->ninst + 1);
    for (uint32_t k = 0; k < b->ninst; k++) {
        const Attr *list[SIZES_MAX_COEFS];
        Attr *attr;
        for (uint32_t i = 0; i < x->s->ngrid; i++) list[i] = x->grid[i]->node[n].body->inst[k].attr;
        b->inst[k] = first->inst[k];
        TRY(attrs_at(x, list, first->inst[k].nattr, &attr));
        b->inst[k].attr = attr;
    }
    return true;
}

static bool node_at(Instance *x, Graph *g, NodeId n) {
    const Attr *list[SIZES_MAX_COEFS];
    for (uint32_t i = 0; i < x->s->ngrid; i++) list[i] = x->grid[i]->node[n].attr;
    TRY(attrs_at(x, list, g->node[n].nattr, &g->node[n].attr));
    return !g->node[n].body || body_at(x, n, &g->node[n].body);
}

static bool values_at(Instance *x, Graph *g) {
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Shape *shape[SIZES_MAX_COEFS];
        for (uint32_t i = 0; i < x->s->ngrid; i++) shape[i] = &x->grid[i]->value[v].shape;
        bool ok = shape_at(x, shape, &g->value[v].shape);
        uint64_t count = 0;
        if (ok && !shape_count(&g->value[v].shape, &count)) {
            x->why = "is too large";
            ok = false;
        }
        if (!ok) {
            x->why = arena_printf(x->a, "the shape of '%s' %s", diag_name(x->a, g->value[v].name),
                                  x->why);
            return false;
        }
        if (g->storage[g->value[v].storage].root == v)
            g->storage[g->value[v].storage].bytes = count * dtype_size(g->value[v].dtype);
    }
    return true;
}

/* A constant of the grid in the shape that it has now: cut, or repeated; NULL: it cannot be. */
static const Data *fitted(Instance *x, const Value *from, const Value *now) {
    uint32_t repeats = sizes_repeated_axes(from);
    uint64_t n = 0, size = dtype_size(now->dtype);
    bool ok = shape_count(&now->shape, &n);
    for (uint32_t i = 0; i < now->shape.rank; i++)
        ok = ok && from->shape.dim[i] > 0 &&
             (now->shape.dim[i] <= from->shape.dim[i] || repeats >> i & 1);
    if (!ok) return NULL;
    char *bytes = ARENA_ARRAY(x->a, char, n *size);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t rest = k, at = 0, step = 1;
        for (uint32_t i = now->shape.rank; i-- > 0;) {
            uint64_t dim = (uint64_t)now->shape.dim[i], have = (uint64_t)from->shape.dim[i];
            at += rest % dim % have * step;
            rest /= dim;
            step *= have;
        }
        memcpy(bytes + k * size, (const char *)from->data->bytes + at * size, size);
    }
    Data *data = ARENA_NEW(x->a, Data);
    *data = (Data){bytes, n * size};
    return data;
}

/* Initial values, which --init may have made, are those of the graph that was imported for use. A
 * constant that this graph does not have is made from the grid's. */
static bool take_data(Instance *x, Graph *g, const Graph *from) {
    bool ok = true;
    Arena *scratch = arena_new();
    Map *by_name = map_new(scratch);
    for (ValueId v = 0; v < from->nvalue; v++)
        if (from->value[v].def == NO_ID) map_put(by_name, from->value[v].name, v);
    for (ValueId v = 0; v < g->nvalue && ok; v++) {
        Value *now = &g->value[v];
        uint32_t k = now->def == NO_ID ? map_get(by_name, now->name) : NO_ID;
        if (k != NO_ID) now->data = from->value[k].data;
        if (now->role != ROLE_CONST || !now->data || now->data->n == value_bytes(g, v)) continue;
        now->data = fitted(x, &x->grid[0]->value[v], now);
        ok = now->data != NULL;
        if (!ok)
            x->why = arena_printf(x->a, "the constant '%s' cannot be continued",
                                  diag_name(x->a, now->name));
    }
    arena_free(scratch);
    return ok;
}

static Graph *copy_graph(Arena *a, const Graph *old) {
    Graph *g = ARENA_NEW(a, Graph);
    *g = *old;
    g->arena = a;
    g->value = ARENA_ARRAY(a, Value, old->nvalue + 1);
    g->node = ARENA_ARRAY(a, Node, old->nnode + 1);
    g->storage = ARENA_ARRAY(a, Storage, old->nstorage + 1);
    if (old->nvalue) memcpy(g->value, old->value, old->nvalue * sizeof *g->value);
    if (old->nnode) memcpy(g->node, old->node, old->nnode * sizeof *g->node);
    if (old->nstorage) memcpy(g->storage, old->storage, old->nstorage * sizeof *g->storage);
    g->value_cap = old->nvalue + 1;
    g->node_cap = old->nnode + 1;
    g->storage_cap = old->nstorage + 1;
    return g;
}

Graph *sizes_instance(Arena *a, const Sizes *s, const Graph *const *grid, const int64_t *at,
                      const Graph *data, const char **why) {
    Instance x = {.a = a, .s = s, .grid = grid, .at = at};
    Graph *g = copy_graph(a, grid[0]);
    bool ok = values_at(&x, g);
    for (NodeId n = 0; n < g->nnode && ok; n++) {
        ok = node_at(&x, g, n);
        if (!ok)
            x.why = arena_printf(a, "a number of node '%s' (%s) %s", diag_name(a, g->node[n].name),
                                 op_def(g->node[n].op)->name, x.why);
    }
    ok = ok && (!data || take_data(&x, g, data));
    *why = x.why;
    return ok ? g : NULL;
}
