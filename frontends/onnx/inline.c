/* inline.c - calls of model-local functions become the functions' nodes, before anything else looks
 * at the graph; and what sub-graphs of control flow need to be treated likewise: copies of nodes
 * under other names, and the outer names that a sub-graph reads.
 *
 * Names inside a call are CALL/NAME, where CALL is the name of the calling node (made unique). A
 * function that carries the name of an operator of the standard set that is understood is not
 * looked at: the operator means the same. Attributes that a function passes on come from the call
 * or from the function's defaults. */
#include "inline.h"

#include <string.h>

#define MAX_CALLS 16         /* nested */
#define MAX_NODES (1u << 18) /* after inlining */

/* ---- names ---- */

Scope scope_new(Import *x, const Scope *outer) {
    Scope s = {.outer = outer, .names = map_new(x->tmp)};
    return s;
}

void scope_put(Import *x, Scope *s, const char *name, const char *to) {
    map_put(s->names, name, s->to.n);
    VEC_PUSH(x->tmp, s->to, to);
}

const char *scope_name(Import *x, const Scope *s, const char *name) {
    if (!*name || !s) return name;
    uint32_t i = map_get(s->names, name);
    if (i != NO_ID) return s->to.at[i];
    if (s->prefix) return arena_printf(x->tmp, "%s/%s", s->prefix, name);
    return scope_name(x, s->outer, name);
}

/* ---- copies ---- */

static GraphProto *clone_graph(Import *x, const Scope *s, const GraphProto *g);

static char **clone_names(Import *x, const Scope *s, char **name, size_t n) {
    char **copy = ARENA_ARRAY(x->tmp, char *, n);
    for (size_t i = 0; i < n; i++) copy[i] = (char *)(uintptr_t)scope_name(x, s, name[i]);
    return copy;
}

static const AttributeProto *find_attribute(const NodeProto *p, const char *name) {
    for (size_t i = 0; i < p->n_attribute; i++)
        if (p->attribute[i]->name && !strcmp(p->attribute[i]->name, name)) return p->attribute[i];
    return NULL;
}

/* An attribute that stands for one of the function; NULL: the call does not give it. */
static const AttributeProto *passed_attribute(Import *x, const Scope *s, const AttributeProto *a) {
    while (s && !s->function) s = s->outer;
    if (!s) return NULL;
    const AttributeProto *given = find_attribute(s->call, a->ref_attr_name);
    if (!given) given = load_default(x, s->function, a->ref_attr_name);
    if (!given) return NULL;
    AttributeProto *copy = ARENA_NEW(x->tmp, AttributeProto);
    *copy = *given;
    copy->name = a->name;
    return copy;
}

static const NodeProto *clone_node(Import *x, const Scope *s, const char *prefix,
                                   const NodeProto *p) {
    NodeProto *c = ARENA_NEW(x->tmp, NodeProto);
    *c = *p;
    if (prefix)
        c->name = arena_printf(x->tmp, "%s/%s", prefix, p->name && *p->name ? p->name : p->op_type);
    c->input = clone_names(x, s, p->input, p->n_input);
    c->output = clone_names(x, s, p->output, p->n_output);
    c->attribute = ARENA_ARRAY(x->tmp, AttributeProto *, p->n_attribute);
    c->n_attribute = 0;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const AttributeProto *a = p->attribute[i];
        if (a->ref_attr_name && *a->ref_attr_name && !(a = passed_attribute(x, s, a))) continue;
        AttributeProto *copy = ARENA_NEW(x->tmp, AttributeProto);
        *copy = *a;
        if (a->g) copy->g = clone_graph(x, s, a->g);
        c->attribute[c->n_attribute++] = copy;
    }
    return c;
}

/* Only names of outer tensors change; what the sub-graph defines keeps its name. */
static GraphProto *clone_graph(Import *x, const Scope *outer, const GraphProto *g) {
    GraphProto *c = ARENA_NEW(x->tmp, GraphProto);
    *c = *g;
    Scope s = scope_new(x, outer);
    x->expanded += (uint32_t)g->n_node;
    for (size_t i = 0; i < g->n_input; i++)
        if (g->input[i]->name) scope_put(x, &s, g->input[i]->name, g->input[i]->name);
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i]->name)
            scope_put(x, &s, g->initializer[i]->name, g->initializer[i]->name);
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            scope_put(x, &s, g->node[i]->output[k], g->node[i]->output[k]);
    c->node = ARENA_ARRAY(x->tmp, NodeProto *, g->n_node);
    for (size_t i = 0; i < g->n_node; i++)
        c->node[i] = (NodeProto *)(uintptr_t)clone_node(x, &s, NULL, g->node[i]);
    c->output = ARENA_ARRAY(x->tmp, ValueInfoProto *, g->n_output);
    for (size_t i = 0; i < g->n_output; i++) {
        c->output[i] = ARENA_NEW(x->tmp, ValueInfoProto);
        *c->output[i] = *g->output[i];
        if (g->output[i]->name)
            c->output[i]->name = (char *)(uintptr_t)scope_name(x, &s, g->output[i]->name);
    }
    return c;
}

/* ---- calls ---- */

static const char *text(const char *s) {
    return s ? s : "";
}

static bool is_main(const char *domain) {
    return !*domain || !strcmp(domain, "ai.onnx");
}

static const Onnx__FunctionProto *find_function(const Import *x, const NodeProto *p) {
    if (!x->model->n_functions || (is_main(text(p->domain)) && op_row(p->op_type))) return NULL;
    for (size_t i = 0; i < x->model->n_functions; i++) {
        const Onnx__FunctionProto *f = x->model->functions[i];
        bool domain = !strcmp(text(f->domain), text(p->domain)) ||
                      (is_main(text(f->domain)) && is_main(text(p->domain)));
        if (domain && !strcmp(text(f->name), p->op_type)) return f;
    }
    return NULL;
}

/* The prefix of a call's names: no other call has it. */
static const char *call_name(Import *x, const char *prefix, const NodeProto *p) {
    const char *own = p->name && *p->name ? p->name : p->op_type;
    const char *name = prefix ? arena_printf(x->tmp, "%s/%s", prefix, own) : own;
    if (!x->calls) x->calls = map_new(x->tmp);
    const char *unique = name;
    for (uint32_t k = 2; map_get(x->calls, unique) != NO_ID; k++)
        unique = arena_printf(x->tmp, "%s.%u", name, map_count(x->calls) + k);
    map_put(x->calls, unique, 0);
    return unique;
}

static bool too_many(Import *x) {
    return diag_error(x->d, (Place){.file = x->file},
                      "the model has more than %u nodes after inlining", MAX_NODES);
}

static bool push(Import *x, NodeList *out, const NodeProto *p) {
    if (++x->expanded > MAX_NODES) return too_many(x);
    VEC_PUSH(x->tmp, *out, p);
    return true;
}

/* y = Identity(x): a function that hands an input on. */
static const NodeProto *identity(Import *x, const char *prefix, const char *from, const char *to) {
    NodeProto *p = ARENA_NEW(x->tmp, NodeProto);
    onnx__node_proto__init(p);
    p->name = arena_printf(x->tmp, "%s/%s", prefix, to);
    p->op_type = arena_str(x->tmp, "Identity");
    p->input = ARENA_NEW(x->tmp, char *);
    p->output = ARENA_NEW(x->tmp, char *);
    *p->input = arena_str(x->tmp, from);
    *p->output = arena_str(x->tmp, to);
    p->n_input = p->n_output = 1;
    return p;
}

static bool expand(Import *x, const Scope *s, const char *prefix, const NodeProto *p, NodeList *out,
                   uint32_t depth);

static bool expand_call(Import *x, const Scope *outer, const char *prefix, const NodeProto *call,
                        const Onnx__FunctionProto *f, NodeList *out, uint32_t depth) {
    Place place = {.file = x->file, .node = call->name, .op = call->op_type};
    const NodeProto *p = clone_node(x, outer, NULL, call);
    Scope s = scope_new(x, NULL);
    s.prefix = call_name(x, prefix, call);
    s.call = p;
    s.function = f;
    if (depth == MAX_CALLS)
        return diag_error(x->d, place, "functions call each other more than %d deep", MAX_CALLS);
    if (p->n_input > f->n_input || p->n_output > f->n_output)
        return diag_error(x->d, place,
                          "expected at most %zu inputs and %zu outputs, found %zu, %zu", f->n_input,
                          f->n_output, p->n_input, p->n_output);
    for (size_t i = 0; i < f->n_input; i++)
        scope_put(x, &s, f->input[i], i < p->n_input ? p->input[i] : "");
    for (size_t i = 0; i < p->n_output; i++) {
        if (!*p->output[i]) continue;
        const char *from =
            map_get(s.names, f->output[i]) == NO_ID ? NULL : scope_name(x, &s, f->output[i]);
        if (!from)
            scope_put(x, &s, f->output[i], p->output[i]);
        else
            TRY(push(x, out, identity(x, s.prefix, from, p->output[i])));
    }
    for (size_t i = 0; i < f->n_node; i++) TRY(expand(x, &s, s.prefix, f->node[i], out, depth + 1));
    return true;
}

static bool expand(Import *x, const Scope *s, const char *prefix, const NodeProto *p, NodeList *out,
                   uint32_t depth) {
    const Onnx__FunctionProto *f = find_function(x, p);
    if (f) return expand_call(x, s, prefix, p, f, out, depth);
    return push(x, out, s || prefix ? clone_node(x, s, prefix, p) : p);
}

bool expand_node(Import *x, const Scope *s, const char *prefix, const NodeProto *p, NodeList *out) {
    return expand(x, s, prefix, p, out, 0);
}

/* ---- what sub-graphs read ---- */

typedef struct Defined {
    const struct Defined *outer;
    Map *names;
} Defined;

static bool is_defined(const Defined *d, const char *name) {
    for (; d; d = d->outer)
        if (map_get(d->names, name) != NO_ID) return true;
    return false;
}

static void read_name(Import *x, const Defined *d, Map *seen, const char *name, NameList *out) {
    if (!name || !*name || is_defined(d, name) || map_get(seen, name) != NO_ID) return;
    map_put(seen, name, 0);
    VEC_PUSH(x->tmp, *out, name);
}

static void read_graph(Import *x, const Defined *outer, Map *seen, const GraphProto *g,
                       NameList *out) {
    Defined d = {outer, map_new(x->tmp)};
    x->expanded += (uint32_t)g->n_node; /* so that the limit holds for the work done here, too */
    for (size_t i = 0; i < g->n_input; i++)
        if (g->input[i]->name) map_put(d.names, g->input[i]->name, 0);
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i]->name) map_put(d.names, g->initializer[i]->name, 0);
    for (size_t i = 0; i < g->n_node; i++) {
        const NodeProto *p = g->node[i];
        for (size_t k = 0; k < p->n_input; k++) read_name(x, &d, seen, p->input[k], out);
        for (size_t k = 0; k < p->n_attribute; k++)
            if (p->attribute[k]->g) read_graph(x, &d, seen, p->attribute[k]->g, out);
        for (size_t k = 0; k < p->n_output; k++) map_put(d.names, p->output[k], 0);
    }
    for (size_t i = 0; i < g->n_output; i++) read_name(x, &d, seen, g->output[i]->name, out);
}

void captured_names(Import *x, const NodeProto *p, NameList *out) {
    Map *seen = NULL;
    for (size_t i = 0; i < p->n_attribute; i++) {
        if (!p->attribute[i]->g) continue;
        if (!seen) seen = map_new(x->tmp);
        read_graph(x, NULL, seen, p->attribute[i]->g, out);
    }
}
