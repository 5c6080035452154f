/* infer.c - shape inference: the dispatcher, the checks that family files state their needs with,
 * and the rule of elementwise operators. Every message says what was expected and what was found.
 */
#include "family.h"

#include <string.h>

const Value *op_input(const Graph *g, NodeId n, uint32_t i) {
    const Node *node = &g->node[n];
    return i < node->nin && node->in[i] != NO_ID ? &g->value[node->in[i]] : NULL;
}

bool op_error(InferCtx *c, NodeId n, uint32_t i, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *msg = arena_vprintf(c->d->arena, fmt, ap);
    va_end(ap);
    const Node *node = &c->g->node[n];
    return diag_error(c->d, ir_place(c->g, n, i < node->nin ? node->in[i] : NO_ID), "%s", msg);
}

static const char *output_name(Graph *g, NodeId n, uint32_t k) {
    const char *base = g->node[n].name;
    return k ? arena_printf(g->arena, "%s.out%u", base, k) : arena_printf(g->arena, "%s.out", base);
}

bool op_out(InferCtx *c, NodeId n, uint32_t k, DType dt, const Shape *s) {
    uint64_t count;
    if (s->rank > IR_MAX_RANK)
        return op_error(c, n, NO_ID, "output %u has %u axes, expected at most %d", k, s->rank,
                        IR_MAX_RANK);
    if (!shape_count(s, &count))
        return op_error(c, n, NO_ID, "output %u of shape %s is too large", k,
                        shape_str(c->d->arena, s));
    if (k >= c->g->node[n].nout) return true;
    ValueId v = ir_value(c->g, output_name(c->g, n, k), dt, s, ROLE_TEMP);
    c->g->node[n].out[k] = v;
    c->g->value[v].def = n;
    return true;
}

bool op_out_view(InferCtx *c, NodeId n, const Shape *s) {
    ValueId v = ir_view(c->g, output_name(c->g, n, 0), s, c->g->node[n].in[0]);
    c->g->node[n].out[0] = v;
    c->g->value[v].def = n;
    return true;
}

bool op_need_dtype(InferCtx *c, NodeId n, uint32_t i, DType want) {
    const Value *v = op_input(c->g, n, i);
    if (!v || v->dtype == want) return true;
    return op_error(c, n, i, "expected dtype %s for input %u, found %s", dtype_name(want), i,
                    dtype_name(v->dtype));
}

bool op_need_index(InferCtx *c, NodeId n, uint32_t i) {
    const Value *v = op_input(c->g, n, i);
    if (!v || v->dtype == DT_I64 || v->dtype == DT_I32) return true;
    return op_error(c, n, i, "expected integers (i64 or i32) for input %u, found %s", i,
                    dtype_name(v->dtype));
}

bool op_need_rank(InferCtx *c, NodeId n, uint32_t i, uint32_t lo, uint32_t hi) {
    const Value *v = op_input(c->g, n, i);
    if (!v || (v->shape.rank >= lo && v->shape.rank <= hi)) return true;
    const char *found = shape_str(c->d->arena, &v->shape);
    if (lo == hi)
        return op_error(c, n, i, "expected %u axes for input %u, found shape %s", lo, i, found);
    return op_error(c, n, i, "expected %u to %u axes for input %u, found shape %s", lo, hi, i,
                    found);
}

bool op_need_shape(InferCtx *c, NodeId n, uint32_t i, const Shape *want) {
    const Value *v = op_input(c->g, n, i);
    if (!v || shape_eq(&v->shape, want)) return true;
    return op_error(c, n, i, "expected shape %s for input %u, found %s",
                    shape_str(c->d->arena, want), i, shape_str(c->d->arena, &v->shape));
}

bool op_need_axis(InferCtx *c, NodeId n, uint32_t rank, int64_t dflt, int64_t *axis) {
    int64_t a = ir_get_i(&c->g->node[n], A_axis, dflt), r = (int64_t)rank;
    if (a < -r || a >= r)
        return op_error(c, n, NO_ID, "expected an axis in %lld..%lld, found %lld", (long long)-r,
                        (long long)r - 1, (long long)a);
    *axis = a < 0 ? a + r : a;
    return true;
}

bool op_need_ints(InferCtx *c, NodeId n, AttrKey k, uint32_t count, bool required,
                  const int64_t **v) {
    const Attr *a = ir_attr(&c->g->node[n], k);
    *v = NULL;
    if (!a && !required) return true;
    if (!a) return op_error(c, n, NO_ID, "expected attribute %s, found none", attr_name(k));
    if (a->is_float || a->n != count)
        return op_error(c, n, NO_ID, "expected %u integers in attribute %s, found %u%s", count,
                        attr_name(k), a->n, a->is_float ? " floats" : "");
    *v = a->i;
    return true;
}

bool op_need_shape_attr(InferCtx *c, NodeId n, Shape *out) {
    uint32_t rank;
    const int64_t *dim = ir_get_ints(&c->g->node[n], A_shape, &rank);
    if (!dim) return op_error(c, n, NO_ID, "expected attribute shape, found none");
    if (rank > IR_MAX_RANK)
        return op_error(c, n, NO_ID, "expected at most %d axes in attribute shape, found %u",
                        IR_MAX_RANK, rank);
    *out = (Shape){.rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return op_error(c, n, NO_ID, "expected sizes in attribute shape, found %lld",
                            (long long)dim[i]);
        out->dim[i] = dim[i];
    }
    return true;
}

/* ---- elementwise operators ------------------------------------------------------------------- */

/* Operand 0 selects: it is a mask beside operands of another dtype. */
static bool has_mask(OpCode op) {
    return op == OP_Where || op == OP_SelectA || op == OP_SelectB;
}

static bool takes_bool(OpCode op) {
    return op == OP_Not || op == OP_And || op == OP_Or || op == OP_Xor;
}

static bool needs_integers(OpCode op) {
    return op == OP_IntDiv || op == OP_IntMod || op == OP_IntRem || op == OP_ShiftLeft ||
           op == OP_ShiftRight;
}

/* Operators whose expression is right for integers too. */
static bool takes_integers(OpCode op) {
    switch (op) {
    case OP_Neg:
    case OP_Abs:
    case OP_Sign:
    case OP_Relu:
    case OP_Clip:
    case OP_Add:
    case OP_Sub:
    case OP_Mul:
    case OP_Div:
    case OP_Min:
    case OP_Max:
    case OP_Equal:
    case OP_Less:
    case OP_Greater:
    case OP_Where: return true;
    default: return needs_integers(op);
    }
}

static bool check_element(InferCtx *c, NodeId n, uint32_t i, DType dt) {
    OpCode op = c->g->node[n].op;
    if (takes_bool(op)) return op_need_dtype(c, n, i, DT_BOOL);
    if (needs_integers(op)) return op_need_index(c, n, i);
    if (dt == DT_BOOL && (op == OP_Equal || op == OP_Where)) return true;
    if (dt == DT_BOOL || dt == DT_U8 || !takes_integers(op)) return op_need_dtype(c, n, i, DT_F32);
    return true;
}

/* Batch norm: `images` operands of one shape [.., C], then [C] each. */
static bool check_channels(InferCtx *c, NodeId n, uint32_t images) {
    TRY(op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    const Shape x = op_input(c->g, n, 0)->shape;
    const Shape channels = {.rank = 1, .dim = {x.dim[x.rank - 1]}};
    for (uint32_t i = 1; i < c->g->node[n].nin; i++)
        TRY(op_need_shape(c, n, i, i < images ? &x : &channels));
    return true;
}

bool op_infer_ew(InferCtx *c, NodeId n) {
    const Node *node = &c->g->node[n];
    Arena *scratch = c->d->arena;
    Shape shape = {0};
    uint32_t first = has_mask(node->op) ? 1 : 0; /* the operand that gives the dtype */
    if (first) TRY(op_need_dtype(c, n, 0, DT_BOOL));
    if (node->op == OP_BnApply) TRY(check_channels(c, n, 1));
    if (node->op == OP_BnGradX) TRY(check_channels(c, n, 2));
    DType dt = op_input(c->g, n, first)->dtype;
    TRY(check_element(c, n, first, dt));
    for (uint32_t i = 0; i < node->nin; i++) {
        const Value *v = op_input(c->g, n, i);
        if (!v) continue;
        if (i > first) TRY(op_need_dtype(c, n, i, dt));
        Shape sum;
        if (!shape_broadcast(&shape, &v->shape, &sum))
            return op_error(c, n, i,
                            "expected a shape that broadcasts with %s for input %u, found %s",
                            shape_str(scratch, &shape), i, shape_str(scratch, &v->shape));
        shape = sum;
    }
    DType out = op_def(node->op)->out_dtype;
    return op_out(c, n, 0, out == DT_COUNT ? dt : out, &shape);
}

/* ---- the dispatcher -------------------------------------------------------------------------- */

static bool check_arity(InferCtx *c, NodeId n, const OpDef *def) {
    const Node *node = &c->g->node[n];
    if (node->nin < def->min_in || (def->max_in != 255 && node->nin > def->max_in)) {
        if (def->min_in == def->max_in)
            return op_error(c, n, NO_ID, "expected %u inputs, found %u", def->min_in, node->nin);
        if (def->max_in == 255)
            return op_error(c, n, NO_ID, "expected at least %u inputs, found %u", def->min_in,
                            node->nin);
        return op_error(c, n, NO_ID, "expected %u to %u inputs, found %u", def->min_in, def->max_in,
                        node->nin);
    }
    for (uint32_t i = 0; i < node->nin; i++)
        if (node->in[i] == NO_ID && (i < def->min_in || def->max_in == 255))
            return op_error(c, n, NO_ID, "input %u is required, found none", i);
    if (node->op != OP_Fused && node->op != OP_Opaque && node->nout > def->nout)
        return op_error(c, n, NO_ID, "expected at most %u outputs, found %u", def->nout,
                        node->nout);
    return true;
}

bool op_infer(Graph *g, Diag *d, NodeId n) {
    InferCtx c = {g, d};
    const OpDef *def = op_def(g->node[n].op);
    TRY(check_arity(&c, n, def));
    return def->infer ? def->infer(&c, n) : op_infer_ew(&c, n);
}
