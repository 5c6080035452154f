/* compare.c - whether two graphs are one structure: everything but shapes and the numbers in
 * attributes is the same, constants included. Constants that were computed from sizes may be larger
 * in one than in the other where the smaller is the first part of the larger along each axis: zeros
 * for the start of a recurrence, 0 1 2 .. for positions, a causal mask. */
#include "sizes.h"

#include <string.h>

static const char *in_value(Arena *a, const Value *v, const char *what) {
    return arena_printf(a, "%s of '%s' depends on it", what, diag_name(a, v->name));
}

static const char *in_node(Arena *a, const Node *n, const char *what) {
    return arena_printf(a, "%s of node '%s' (%s) depends on it", what, diag_name(a, n->name),
                        n->onnx ? n->onnx : op_def(n->op)->name);
}

enum { CORNER_MAX = 1 << 22 }; /* elements that are compared one by one */

/* Steps to the next element along each axis. */
static void fill_strides(const Shape *s, int64_t *stride) {
    int64_t n = 1;
    for (uint32_t i = s->rank; i-- > 0; n *= s->dim[i]) stride[i] = n;
}

/* Where element k of an array of the sizes `dim` lies under other strides. */
static int64_t place_of(int64_t k, const Shape *dim, const int64_t *stride) {
    int64_t at = 0;
    for (uint32_t i = dim->rank; i-- > 0; k /= dim->dim[i]) at += k % dim->dim[i] * stride[i];
    return at;
}

static bool same_element(const Value *x, int64_t i, const Value *y, int64_t k) {
    size_t n = dtype_size(x->dtype);
    return !memcmp((const char *)x->data->bytes + (size_t)i * n,
                   (const char *)y->data->bytes + (size_t)k * n, n);
}

/* Do both have the same elements as far as both reach? */
static bool same_corner(const Value *x, const Value *y) {
    int64_t xs[IR_MAX_RANK], ys[IR_MAX_RANK];
    Shape both = x->shape;
    uint64_t n;
    if (!shape_count(&x->shape, &n) || x->data->n != n * dtype_size(x->dtype)) return false;
    if (!shape_count(&y->shape, &n) || y->data->n != n * dtype_size(y->dtype)) return false;
    for (uint32_t i = 0; i < both.rank; i++)
        if (y->shape.dim[i] < both.dim[i]) both.dim[i] = y->shape.dim[i];
    fill_strides(&x->shape, xs);
    fill_strides(&y->shape, ys);
    if (!shape_count(&both, &n) || n > CORNER_MAX) return false;
    for (int64_t k = 0; k < (int64_t)n; k++)
        if (!same_element(x, place_of(k, &both, xs), y, place_of(k, &both, ys))) return false;
    return true;
}

uint32_t sizes_repeated_axes(const Value *v) {
    int64_t stride[IR_MAX_RANK];
    uint32_t bits = (1u << v->shape.rank) - 1;
    uint64_t n;
    if (!v->data || !shape_count(&v->shape, &n) || n > CORNER_MAX ||
        v->data->n != n * dtype_size(v->dtype))
        return 0;
    fill_strides(&v->shape, stride);
    for (int64_t k = 0; k < (int64_t)n && bits; k++)
        for (uint32_t i = 0; i < v->shape.rank; i++) {
            int64_t first = k - k / stride[i] % v->shape.dim[i] * stride[i];
            if (bits >> i & 1 && !same_element(v, k, v, first)) bits &= ~(1u << i);
        }
    return bits;
}

/* Weights come from the file as they are; constants may have been computed from shapes. */
static bool same_data(const Value *x, const Value *y) {
    if (!x->data != !y->data) return false;
    if (!x->data || x->role != ROLE_CONST) return true;
    if (!shape_eq(&x->shape, &y->shape)) return same_corner(x, y);
    return x->data->n == y->data->n && !memcmp(x->data->bytes, y->data->bytes, x->data->n);
}

static const char *value_difference(Arena *a, const Value *x, const Value *y) {
    if (strcmp(x->name, y->name) || x->dtype != y->dtype || x->role != y->role || x->def != y->def)
        return in_value(a, x, "the place in the graph");
    if (x->shape.rank != y->shape.rank) return in_value(a, x, "the number of axes");
    if (x->storage != y->storage || x->param != y->param) return in_value(a, x, "the storage");
    bool weight = x->role == ROLE_PARAM || x->role == ROLE_FROZEN || x->role == ROLE_BUFFER;
    if (weight && !shape_eq(&x->shape, &y->shape)) return in_value(a, x, "the shape of the weight");
    return same_data(x, y) ? NULL : in_value(a, x, "the constant value");
}

static bool same_attrs(const Attr *x, uint32_t nx, const Attr *y, uint32_t ny) {
    if (nx != ny) return false;
    for (uint32_t i = 0; i < nx; i++)
        if (x[i].key != y[i].key || x[i].is_float != y[i].is_float || x[i].n != y[i].n)
            return false;
    return true;
}

static bool same_ids(const uint32_t *x, const uint32_t *y, uint32_t n) {
    return n == 0 || !memcmp(x, y, n * sizeof *x);
}

static bool same_body(const FusedBody *x, const FusedBody *y, uint32_t nout) {
    if (x->space.rank != y->space.rank || x->ninst != y->ninst) return false;
    if (!same_ids(x->out_inst, y->out_inst, nout) || !same_ids(x->out_res, y->out_res, nout))
        return false;
    for (uint32_t i = 0; i < x->ninst; i++) {
        const FusedInst *p = &x->inst[i], *q = &y->inst[i];
        if (p->op != q->op || p->narg != q->narg || p->dtype != q->dtype || p->key != q->key)
            return false;
        if (!same_ids(p->arg, q->arg, p->narg) || !same_attrs(p->attr, p->nattr, q->attr, q->nattr))
            return false;
    }
    return true;
}

static const char *node_difference(Arena *a, const Node *x, const Node *y) {
    if (x->op != y->op || x->phase != y->phase || strcmp(x->name, y->name) || x->key != y->key)
        return in_node(a, x, "the place in the graph");
    if (x->nin != y->nin || x->nout != y->nout || !same_ids(x->in, y->in, x->nin) ||
        !same_ids(x->out, y->out, x->nout))
        return in_node(a, x, "the set of operands");
    if (!same_attrs(x->attr, x->nattr, y->attr, y->nattr)) return in_node(a, x, "an attribute");
    if (!x->body != !y->body || (x->body && !same_body(x->body, y->body, x->nout)))
        return in_node(a, x, "what is fused");
    return NULL;
}

const char *sizes_difference(Arena *a, const Graph *x, const Graph *y) {
    uint32_t nnode = x->nnode < y->nnode ? x->nnode : y->nnode;
    for (NodeId n = 0; n < nnode; n++) {
        const char *why = node_difference(a, &x->node[n], &y->node[n]);
        if (why) return why;
    }
    if (x->nnode != y->nnode) return "the number of nodes depends on it";
    if (x->nvalue != y->nvalue || x->nstorage != y->nstorage)
        return "the number of tensors depends on it";
    for (ValueId v = 0; v < x->nvalue; v++) {
        const char *why = value_difference(a, &x->value[v], &y->value[v]);
        if (why) return why;
    }
    if (x->noutput != y->noutput || !same_ids(x->output, y->output, x->noutput) ||
        x->loss != y->loss || x->logits != y->logits)
        return "the outputs depend on it";
    return NULL;
}
