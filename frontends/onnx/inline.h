/* inline.h - private to the importer: copies of nodes under other names (functions, sub-graphs). */
#ifndef DTRC_ONNX_INLINE_H
#define DTRC_ONNX_INLINE_H

#include "import.h"

/* What the names inside a function or a sub-graph stand for. */
typedef struct Scope {
    const struct Scope *outer; /* sub-graphs: names that are not here are looked up there */
    Map *names;
    VEC(const char *) to;
    const char *prefix;    /* functions: of names that are only used inside; NULL: sub-graph */
    const NodeProto *call; /* functions: where attributes come from */
    const Onnx__FunctionProto *function;
} Scope;

Scope scope_new(Import *x, const Scope *outer);
void scope_put(Import *x, Scope *s, const char *name, const char *to);
const char *scope_name(Import *x, const Scope *s, const char *name);

typedef VEC(const NodeProto *) NodeList;
/* Appends node p, or the nodes of the function that it calls, under the names of the scope (NULL:
 * their own). prefix: of node names, or NULL. */
bool expand_node(Import *x, const Scope *s, const char *prefix, const NodeProto *p, NodeList *out);
/* Names of outer tensors that the sub-graphs of a node read. */
typedef VEC(const char *) NameList;
void captured_names(Import *x, const NodeProto *p, NameList *out);

#endif
