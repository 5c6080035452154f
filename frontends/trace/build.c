/* build.c - tensors and operators of a trace become values and nodes. Everything that the file
 * chooses has a limit: names, sizes, counts and their sums. */
#include "build.h"

#include <string.h>

enum { NAME_BYTES = 4096 };

Trace trace_new(Arena *a, Diag *d, const char *file) {
    return (Trace){.a = a, .d = d, .file = file, .g = ir_new(a, file), .tensors = map_new(a)};
}

void trace_report(Trace *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *msg = arena_vprintf(t->d->arena, fmt, ap);
    va_end(ap);
    Place at = {.file = t->file};
    if (t->line)
        diag_error(t->d, at, "line %u: %s", t->line, msg);
    else
        diag_error(t->d, at, "%s", msg);
}

static bool check_name(Trace *t, const char *what, const char *name) {
    uint32_t code;
    size_t len = strlen(name);
    if (!len) return trace_error(t, "the name of %s is empty", what);
    if (len > NAME_BYTES)
        return trace_error(t, "the name of %s has %zu bytes, expected at most %d", what, len,
                           NAME_BYTES);
    t->names += len;
    if (t->names > TRACE_NAMES) return trace_error(t, "the names are too long together");
    for (const char *s = name; *s;) {
        size_t k = utf8_length(s, &code);
        if (!k) return trace_error(t, "the name of %s is not UTF-8 text", what);
        s += k;
    }
    return true;
}

/* A name that no tensor has yet. */
static bool check_tensor(Trace *t, const char *name) {
    TRY(check_name(t, "a tensor", name));
    if (map_get(t->tensors, name) != NO_ID)
        return trace_error(t, "a second tensor '%s'", diag_name(t->d->arena, name));
    if (map_count(t->tensors) >= TRACE_TENSORS)
        return trace_error(t, "more than %u tensors", TRACE_TENSORS);
    return true;
}

bool trace_tensor(Trace *t, const char *name, uint64_t bytes, Role role, ValueId *out) {
    TRY(check_tensor(t, name));
    if (bytes > TRACE_TENSOR_BYTES)
        return trace_error(t, "tensor '%s' has %llu bytes, expected at most %llu",
                           diag_name(t->d->arena, name), (unsigned long long)bytes,
                           (unsigned long long)TRACE_TENSOR_BYTES);
    t->bytes += bytes;
    if (t->bytes > TRACE_BYTES) return trace_error(t, "the tensors are too large together");
    *out = ir_value(t->g, name, DT_U8, &(Shape){1, {(int64_t)bytes}}, role);
    map_put(t->tensors, name, *out);
    return true;
}

bool trace_operator(Trace *t, const char *name, Phase ph, uint64_t ns, const Values *in,
                    uint32_t nout, NodeId *out) {
    TRY(check_name(t, "an operator", name));
    t->ns += ns;
    if (ns > TRACE_NS || t->ns > TRACE_NS)
        return trace_error(t, "the operators take too long together: more than %llu ns",
                           (unsigned long long)TRACE_NS);
    t->operands += in->n;
    if (in->n > TRACE_OPERANDS || t->operands > TRACE_OPERANDS)
        return trace_error(t, "more than %u operands", TRACE_OPERANDS);
    if (t->g->nnode >= TRACE_TENSORS)
        return trace_error(t, "more than %u operators", TRACE_TENSORS);
    *out = ir_node(t->g, OP_Opaque, ph, name, in->n, nout);
    if (in->n) memcpy(t->g->node[*out].in, in->at, in->n * sizeof *in->at);
    ir_attr_i(t->g, *out, A_cost_ns, (int64_t)ns);
    return true;
}

static void define(Trace *t, NodeId n, uint32_t k, ValueId v) {
    t->g->value[v].def = n;
    t->g->node[n].out[k] = v;
}

bool trace_result(Trace *t, NodeId n, uint32_t k, const char *name, uint64_t bytes) {
    ValueId v;
    TRY(trace_tensor(t, name, bytes, ROLE_TEMP, &v));
    define(t, n, k, v);
    return true;
}

/* A view that takes no time and reads one tensor needs no run of its own in a plan. One that reads
 * more can only run while they are there, so it is given the smallest time that makes it a run. */
void trace_make_view(Trace *t, NodeId n, uint32_t i) {
    Node *x = &t->g->node[n];
    ValueId of = x->in[i];
    bool more = false;
    x->op = OP_OpaqueView;
    x->in[i] = x->in[0];
    x->in[0] = of;
    for (uint32_t k = 1; k < x->nin; k++) more |= x->in[k] != of;
    if (more && ir_get_i(x, A_cost_ns, 0) == 0) ir_attr_i(t->g, n, A_cost_ns, 1);
}

bool trace_view(Trace *t, NodeId n, uint32_t k, const char *name) {
    TRY(check_tensor(t, name));
    ValueId of = t->g->node[n].in[0];
    Shape shape = t->g->value[of].shape; /* ir_view moves the array */
    ValueId v = ir_view(t->g, name, &shape, of);
    map_put(t->tensors, name, v);
    define(t, n, k, v);
    return true;
}
