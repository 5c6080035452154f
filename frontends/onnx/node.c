/* node.c - what the functions for one operator see of a node: its place for messages, inputs as
 * shapes, known tensors or run-time values, attributes with defaults (or the inputs that replaced
 * them in later operator sets), and the making of IR nodes under the names of the file. */
#include "import.h"

#include <string.h>

Place ctx_place(const Ctx *c) {
    return (Place){.file = c->x->file, .node = c->n->name, .op = c->n->p->op_type};
}

Res ctx_fail(const Ctx *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    diag_error(c->x->d, ctx_place(c), "%s", arena_vprintf(c->x->tmp, fmt, ap));
    va_end(ap);
    return FAIL;
}

Res ctx_skip(const Ctx *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *domain = c->n->p->domain ? c->n->p->domain : "";
    Arena *a = c->x->a;
    OnnxUnsupported u = {.at = c->x->at,
                         .op = arena_str(a, c->n->p->op_type),
                         .domain = arena_str(a, *domain ? domain : "ai.onnx"),
                         .node = arena_str(a, c->n->name),
                         .why = arena_vprintf(a, fmt, ap)};
    va_end(ap);
    VEC_PUSH(a, c->x->unsupported, u);
    return SKIP;
}

/* ---- inputs and outputs ---- */

static Slot *slot_in(const Ctx *c, uint32_t i) {
    return has_in(c, i) ? &c->x->slot.at[c->n->in[i]] : NULL;
}

bool has_in(const Ctx *c, uint32_t i) {
    return i < c->n->nin && c->n->in[i] != NO_ID;
}

bool has_out(const Ctx *c, uint32_t k) {
    if (k >= c->n->nout || c->n->out[k] == NO_ID) return false;
    const Slot *s = &c->x->slot.at[c->n->out[k]];
    return s->nread || s->is_output;
}

const Tensor *known_in(const Ctx *c, uint32_t i) {
    const Slot *s = slot_in(c, i);
    return s ? s->known : NULL;
}

const Shape *shape_in(const Ctx *c, uint32_t i) {
    const Slot *s = slot_in(c, i);
    return s->known ? &s->known->shape : &c->x->g->value[s->value].shape;
}

DType dtype_in(const Ctx *c, uint32_t i) {
    const Slot *s = slot_in(c, i);
    return s->known ? s->known->dtype : c->x->g->value[s->value].dtype;
}

/* Doubles become f32 when they reach the run; the values of a step are never f64. */
ValueId constant(Import *x, const char *name, const Tensor *t, Role role) {
    DType dt = t->dtype == DT_F64 ? DT_F32 : t->dtype;
    ValueId v = ir_value(x->g, name, dt, &t->shape, role);
    if (t->missing) return v;
    Data *data = ARENA_NEW(x->a, Data);
    data->n = t->count * dtype_size(dt);
    data->bytes = t->data;
    if (t->dtype == DT_F64 && !x->narrowed) {
        import_note(x, "double precision constants are used in single precision");
        x->narrowed = true;
    }
    if (t->count && (t->dtype == DT_F64 || !t->kept)) {
        uint8_t *copy = arena_alloc(x->a, data->n);
        if (t->dtype == DT_F64)
            for (uint64_t i = 0; i < t->count; i++)
                memcpy(copy + 4 * i, &(float){(float)tensor_real(t, i)}, 4);
        else
            memcpy(copy, t->data, data->n);
        data->bytes = copy;
    }
    if (!data->bytes) data->bytes = "";
    x->g->value[v].data = data;
    return v;
}

ValueId value_in(const Ctx *c, uint32_t i) {
    Slot *s = slot_in(c, i);
    if (!s) return NO_ID;
    if (s->value == NO_ID) s->value = constant(c->x, s->name, s->known, ROLE_CONST);
    return s->value;
}

/* ---- attributes ---- */

#define ATTR_TYPE(x) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##x

const AttributeProto *attr_of(const Ctx *c, const char *name) {
    for (size_t i = 0; i < c->n->p->n_attribute; i++) {
        const AttributeProto *a = c->n->p->attribute[i];
        if (a->name && !strcmp(a->name, name)) return a;
    }
    return NULL;
}

static Res wrong_type(const Ctx *c, const char *name, const char *want) {
    return ctx_fail(c, "attribute %s is not %s", name, want);
}

Res attr_int(const Ctx *c, const char *name, int64_t dflt, int64_t *out) {
    const AttributeProto *a = attr_of(c, name);
    if (a && !a->has_i && a->type != ATTR_TYPE(INT)) return wrong_type(c, name, "an integer");
    *out = a ? a->i : dflt;
    return OK;
}

Res attr_real(const Ctx *c, const char *name, double dflt, double *out) {
    const AttributeProto *a = attr_of(c, name);
    if (a && !a->has_f && a->type != ATTR_TYPE(FLOAT)) return wrong_type(c, name, "a number");
    *out = a ? (double)a->f : dflt;
    return OK;
}

Res attr_text(const Ctx *c, const char *name, const char *dflt, const char **out) {
    const AttributeProto *a = attr_of(c, name);
    if (a && !a->has_s && a->type != ATTR_TYPE(STRING)) return wrong_type(c, name, "a string");
    *out = a ? arena_strn(c->x->tmp, a->s.len ? (const char *)a->s.data : "", a->s.len) : dflt;
    return OK;
}

/* A known input whose values are wanted now. */
static Res wanted(const Ctx *c, const char *what, uint32_t slot, const Tensor **out) {
    *out = NULL;
    if (slot == NO_ID || !has_in(c, slot)) return OK;
    const Tensor *t = known_in(c, slot);
    if (!t) return ctx_skip(c, "%s (input %u) depends on data; it must be constant", what, slot);
    if (t->missing)
        return ctx_fail(c, "%s (input %u) is kept in an external file that is not there", what,
                        slot);
    *out = t;
    return OK;
}

Res ints_of(const Ctx *c, const char *attr, uint32_t slot, Ints *out) {
    *out = (Ints){0};
    const AttributeProto *a = attr_of(c, attr);
    if (a) {
        if (a->type && a->type != ATTR_TYPE(INTS)) return wrong_type(c, attr, "a list of integers");
        if (a->n_ints > UINT16_MAX) return ctx_fail(c, "attribute %s is too long", attr);
        *out = (Ints){true, (uint32_t)a->n_ints, a->ints};
        return OK;
    }
    const Tensor *t;
    MUST(wanted(c, attr, slot, &t));
    if (!t) return OK;
    if (t->dtype != DT_I64 && t->dtype != DT_I32)
        return ctx_fail(c, "%s (input %u) must be integers, found %s", attr, slot,
                        dtype_name(t->dtype));
    if (t->shape.rank > 1 || t->count > UINT16_MAX)
        return ctx_fail(c, "%s (input %u) must be a list, found shape %s", attr, slot,
                        shape_str(c->x->tmp, &t->shape));
    int64_t *v = ARENA_ARRAY(c->x->tmp, int64_t, t->count + 1);
    for (uint64_t i = 0; i < t->count; i++) v[i] = tensor_int(t, i);
    *out = (Ints){true, (uint32_t)t->count, v};
    return OK;
}

static Res one_of(const Ctx *c, const char *what, uint32_t slot, const Tensor **out) {
    MUST(wanted(c, what, slot, out));
    if (*out && (*out)->count != 1)
        return ctx_fail(c, "%s (input %u) must be one number, found shape %s", what, slot,
                        shape_str(c->x->tmp, &(*out)->shape));
    return OK;
}

Res int_of(const Ctx *c, const char *attr, uint32_t slot, int64_t dflt, int64_t *out) {
    const Tensor *t = NULL;
    if (!attr_of(c, attr)) MUST(one_of(c, attr, slot, &t));
    if (!t) return attr_int(c, attr, dflt, out);
    *out = tensor_int(t, 0);
    return OK;
}

Res real_of(const Ctx *c, const char *attr, uint32_t slot, double dflt, double *out) {
    const Tensor *t = NULL;
    if (!attr_of(c, attr)) MUST(one_of(c, attr, slot, &t));
    if (!t) return attr_real(c, attr, dflt, out);
    *out = tensor_real(t, 0);
    return OK;
}

Res axis_of(const Ctx *c, int64_t axis, uint32_t rank, uint32_t *out) {
    int64_t r = (int64_t)rank;
    if (axis < -r || axis >= r)
        return ctx_fail(c, "axis %lld is outside of a tensor with %u axes", (long long)axis, rank);
    *out = (uint32_t)(axis < 0 ? axis + r : axis);
    return OK;
}

Res axes_of(const Ctx *c, const Ints *given, uint32_t rank, uint32_t *n, uint32_t *axes) {
    bool want[IR_MAX_RANK] = {0};
    for (uint32_t i = 0; i < given->n; i++) {
        uint32_t axis = 0;
        MUST(axis_of(c, given->at[i], rank, &axis));
        if (want[axis]) return ctx_fail(c, "axis %u occurs twice", axis);
        want[axis] = true;
    }
    *n = 0;
    for (uint32_t k = 0; k < rank; k++)
        if (want[k] || !given->n) axes[(*n)++] = k;
    return OK;
}

/* ---- IR nodes ---- */

/* Results of a step are neither empty nor absurdly large. */
static bool check_results(const Ctx *c, NodeId n) {
    const Graph *g = c->x->g;
    const Node *node = &g->node[n];
    for (uint32_t k = 0; k < node->nout; k++) {
        if (node->out[k] == NO_ID) continue;
        uint64_t bytes = value_bytes(g, node->out[k]);
        if (bytes == 0 || bytes > MAX_TENSOR_BYTES)
            return diag_error(c->x->d, ctx_place(c), "the result is %s: shape %s",
                              bytes ? "too large" : "empty",
                              shape_str(c->x->tmp, &g->value[node->out[k]].shape));
    }
    return true;
}

ValueId emit(const Ctx *c, OpCode op, const char *suffix, uint32_t nin, const ValueId *in,
             uint32_t nattr, const Attr *attr) {
    Graph *g = c->x->g;
    const char *name = arena_printf(c->x->tmp, "%s%s", c->n->name, suffix);
    NodeId n = ir_node(g, op, PHASE_FORWARD, name, nin, op_def(op)->nout);
    g->node[n].onnx = arena_str(g->arena, c->n->p->op_type);
    for (uint32_t i = 0; i < nin; i++) g->node[n].in[i] = in[i];
    ir_attr_copy(g, n, attr, nattr);
    return op_infer(g, c->x->d, n) && check_results(c, n) ? g->node[n].out[0] : NO_ID;
}

ValueId emit_view(const Ctx *c, const char *suffix, ValueId v, const Shape *s) {
    Attr attr = attr_ints(c->x->tmp, A_shape, s->dim, s->rank);
    return emit(c, OP_Reshape, suffix, 1, &v, 1, &attr);
}

Res bind(const Ctx *c, uint32_t k, ValueId v) {
    if (v == NO_ID) return FAIL;
    if (k >= c->n->nout || c->n->out[k] == NO_ID) return OK;
    Slot *s = &c->x->slot.at[c->n->out[k]];
    s->value = v;
    c->x->g->value[v].name = arena_str(c->x->g->arena, s->name);
    return OK;
}
