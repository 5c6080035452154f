/* ops.c - the table of operators, questions to it, and builders of nodes for lowering passes and
 * gradients. The rows themselves live in the family files. */
#include "family.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const OpDef *const table[OP_COUNT] = {
    NULL,
#define OP(name, what) &op_##name,
#include "ops.def"
#undef OP
};

const OpDef *op_def(OpCode op) {
    assert(op > OP_NONE && op < OP_COUNT);
    return table[op];
}

/* Leading axes 0..k-1: the generated loop adds rows up into one row of the trailing axes. */
bool op_is_colreduce(const Node *n) {
    if (!(op_def(n->op)->flags & OPF_COLREDUCE)) return false;
    uint32_t count;
    const int64_t *axes = ir_get_ints(n, A_axes, &count);
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] != (int64_t)i) return false;
    return true;
}

NodeClass op_node_class(const Node *n) {
    if (n->body)
        for (uint32_t i = 0; i < n->body->ninst; i++)
            if (op_def(n->body->inst[i].op)->cls == CLS_RANDOM) return CLS_RANDOM;
    if (op_class(n) == CLS_PURE && ir_get_f(n, A_ratio, 0) > 0) return CLS_RANDOM;
    return op_class(n);
}

/* Transcendental functions cost some 24 operations; a keyed random number is ten rounds of a
 * generator. */
uint64_t op_element_flops(OpCode op) {
    const OpDef *def = op_def(op);
    if (def->cls == CLS_RANDOM) return 256;
    if (def->flags & (OPF_CHEAP | OPF_COLREDUCE)) return 2;
    return def->flags & OPF_EW ? 24 : 1;
}

static bool overwrites(const Graph *g, const Node *n, uint32_t i) {
    const OpDef *def = op_def(n->op);
    const Value *in = &g->value[n->in[i]], *out = &g->value[n->out[0]];
    if (in->dtype != out->dtype || value_count(g, n->in[i]) != value_count(g, n->out[0]))
        return false;
    return n->body || def->flags & OPF_EW || (i < 32 && (def->inplace >> i & 1));
}

/* Output 0 of a Fused node has an element for each point of the space that its loop walks. */
static bool is_elementwise(const Graph *g, const Node *n) {
    if (!n->nout || n->out[0] == NO_ID) return false;
    if (!n->body) return true;
    const FusedInst *inst = &n->body->inst[n->body->out_inst[0]];
    uint64_t space;
    return !(op_def(inst->op)->flags & OPF_COLREDUCE) && shape_count(&n->body->space, &space) &&
           value_count(g, n->out[0]) == space;
}

uint64_t op_inplace_inputs(const Graph *g, const Node *n) {
    uint64_t mask = 0;
    if (op_node_class(n) == CLS_VIEW || !is_elementwise(g, n)) return 0;
    for (uint32_t i = 0; i < n->nin && i < 64; i++) {
        /* a storage that another operand reads under a different shape must not be overwritten */
        bool ok = n->in[i] != NO_ID && overwrites(g, n, i);
        for (uint32_t j = 0; j < n->nin && ok; j++)
            if (n->in[j] != NO_ID && g->value[n->in[j]].storage == g->value[n->in[i]].storage)
                ok = j >= i && overwrites(g, n, j);
        if (ok) mask |= UINT64_C(1) << i;
    }
    return mask;
}

uint64_t op_flops(const Graph *g, const Node *n) {
    const OpDef *def = op_def(n->op);
    if (def->flops) return def->flops(g, n);
    if (def->cls == CLS_VIEW || n->nout == 0 || n->out[0] == NO_ID) return 0;
    return op_element_flops(n->op) * value_count(g, n->out[0]);
}

/* ---- builders -------------------------------------------------------------------------------- */

/* Builders are called with operands that fit; a failure is our bug, so its message goes to stderr.
 */
static ValueId finish(Graph *g, NodeId n) {
    Diag d;
    diag_init(&d, g->arena, NULL);
    bool ok = op_infer(g, &d, n);
    if (!ok) fputs(d.log.at, stderr);
    assert(ok);
    return g->node[n].nout ? g->node[n].out[0] : NO_ID;
}

ValueId op_make_attr(Graph *g, Phase ph, OpCode op, const char *name, uint32_t nin,
                     const ValueId *in, const Attr *attr, uint32_t nattr) {
    NodeId n = ir_node(g, op, ph, name, nin, op_def(op)->nout);
    if (nin) memcpy(g->node[n].in, in, nin * sizeof *in);
    ir_attr_copy(g, n, attr, nattr);
    return finish(g, n);
}

ValueId op_make(Graph *g, Phase ph, OpCode op, const char *name, uint32_t nin, const ValueId *in) {
    return op_make_attr(g, ph, op, name, nin, in, NULL, 0);
}

ValueId op_make1(Graph *g, Phase ph, OpCode op, const char *name, ValueId a) {
    return op_make(g, ph, op, name, 1, &a);
}

ValueId op_make2(Graph *g, Phase ph, OpCode op, const char *name, ValueId a, ValueId b) {
    return op_make(g, ph, op, name, 2, (ValueId[]){a, b});
}

ValueId op_make3(Graph *g, Phase ph, OpCode op, const char *name, ValueId a, ValueId b, ValueId c) {
    return op_make(g, ph, op, name, 3, (ValueId[]){a, b, c});
}

Attr attr_ints(Arena *a, AttrKey k, const int64_t *v, uint32_t n) {
    int64_t *copy = ARENA_ARRAY(a, int64_t, n);
    if (n) memcpy(copy, v, n * sizeof *v);
    return (Attr){.key = k, .n = n, .i = copy};
}

Attr attr_i(Arena *a, AttrKey k, int64_t v) {
    return attr_ints(a, k, &v, 1);
}

Attr attr_f(Arena *a, AttrKey k, double v) {
    double *copy = ARENA_NEW(a, double);
    *copy = v;
    return (Attr){.key = k, .is_float = true, .n = 1, .f = copy};
}

ValueId op_reshape(Graph *g, Phase ph, const char *name, ValueId v, const Shape *s) {
    if (shape_eq(&g->value[v].shape, s)) return v;
    Attr shape = attr_ints(g->arena, A_shape, s->dim, s->rank);
    return op_make_attr(g, ph, OP_Reshape, name, 1, &v, &shape, 1);
}

ValueId op_transpose(Graph *g, Phase ph, const char *name, ValueId v, const int64_t *perm) {
    Attr p = attr_ints(g->arena, A_perm, perm, g->value[v].shape.rank);
    return op_make_attr(g, ph, OP_Transpose, name, 1, &v, &p, 1);
}

/* Axes that broadcasting added or stretched are summed; kept axes of size 1 are put back by a view.
 */
ValueId op_reduce_to(Graph *g, Phase ph, const char *name, ValueId v, const Shape *s) {
    Shape from = g->value[v].shape, to = *s;
    assert(from.rank >= to.rank);
    uint32_t extra = from.rank - to.rank, count = 0;
    int64_t axes[IR_MAX_RANK];
    for (uint32_t i = 0; i < from.rank; i++) {
        int64_t want = i < extra ? 1 : to.dim[i - extra];
        if (from.dim[i] != want) axes[count++] = i;
        assert(from.dim[i] == want || want == 1);
    }
    if (count) {
        Attr attr[] = {attr_ints(g->arena, A_axes, axes, count), attr_i(g->arena, A_keepdims, 0)};
        v = op_make_attr(g, ph, OP_ReduceSum, name, 1, &v, attr, 2);
    }
    return op_reshape(g, ph, name, v, &to);
}

const char *op_derived(Graph *g, NodeId n, const char *suffix) {
    return arena_printf(g->arena, "%s%s", g->node[n].name, suffix);
}

int64_t shape_span(const Shape *s, uint32_t lo, uint32_t hi) {
    int64_t n = 1;
    for (uint32_t i = lo; i < hi; i++) n *= s->dim[i];
    return n;
}

static const char *c_number(Arena *a, double v, int digits, const char *suffix) {
    if (isnan(v)) return "NAN";
    if (isinf(v)) return v > 0 ? "INFINITY" : "-INFINITY";
    char *s = arena_printf(a, "%.*g", digits, v);
    return arena_printf(a, "%s%s%s", s, strpbrk(s, ".e") ? "" : ".0", suffix);
}

const char *op_c_float(Arena *a, double v) {
    return c_number(a, (double)(float)v, 9, "f");
}

const char *op_c_double(Arena *a, double v) {
    return c_number(a, v, 17, "");
}
