/* copy.c - a graph out of the arena that it was built in: stages build in a scratch arena, which
 * holds many times what comes of it, and keep the result only. What lies elsewhere (weights in a
 * mapped file, names and bodies of an older graph) is shared. */
#include "ir.h"

#include <string.h>

typedef struct {
    Arena *to;
    const Arena *from;
} Copier;

static const void *copy(const Copier *c, const void *old, uint64_t n, size_t size) {
    if (!old || !n || !arena_owns(c->from, old)) return old;
    void *now = arena_alloc(c->to, checked_array(n, size));
    memcpy(now, old, checked_array(n, size));
    return now;
}

#define COPY(c, at, n) ((at) = (void *)(uintptr_t)copy((c), (at), (n), sizeof *(at)))

static void copy_string(const Copier *c, const char **s) {
    if (*s) COPY(c, *s, strlen(*s) + 1);
}

static void copy_attrs(const Copier *c, const Attr **list, uint32_t n) {
    Attr *attr = ARENA_ARRAY(c->to, Attr, n);
    for (uint32_t i = 0; i < n; i++) {
        attr[i] = (*list)[i];
        COPY(c, attr[i].i, attr[i].n);
        COPY(c, attr[i].f, attr[i].n);
    }
    *list = n ? attr : NULL;
}

static void copy_data(const Copier *c, const Data **at) {
    if (!*at) return;
    Data *data = ARENA_NEW(c->to, Data);
    *data = **at;
    const char *bytes = data->bytes;
    COPY(c, bytes, data->n);
    data->bytes = bytes;
    *at = data;
}

static void copy_body(const Copier *c, FusedBody **at, uint32_t nout) {
    if (!*at) return;
    FusedBody *b = ARENA_NEW(c->to, FusedBody);
    *b = **at;
    *at = b;
    const FusedInst *old = b->inst;
    b->inst = ARENA_ARRAY(c->to, FusedInst, b->ninst);
    for (uint32_t i = 0; i < b->ninst; i++) {
        FusedInst *x = &b->inst[i];
        *x = old[i];
        copy_attrs(c, &x->attr, x->nattr);
        COPY(c, x->arg, x->narg);
        copy_string(c, &x->name);
    }
    COPY(c, b->out_inst, nout);
    COPY(c, b->out_res, nout);
}

static void copy_node(const Copier *c, Node *n) {
    const Attr *attr = n->attr;
    copy_attrs(c, &attr, n->nattr);
    n->attr = (Attr *)(uintptr_t)attr;
    COPY(c, n->in, n->nin);
    COPY(c, n->out, n->nout);
    copy_string(c, &n->name);
    copy_string(c, &n->onnx);
    copy_body(c, &n->body, n->nout);
}

Graph *ir_copy(Arena *a, const Graph *old, const Arena *from) {
    Copier c = {a, from};
    Graph *g = ARENA_NEW(a, Graph);
    *g = *old;
    g->arena = a;
    copy_string(&c, &g->file);
    g->value_cap = g->nvalue;
    g->node_cap = g->nnode;
    g->storage_cap = g->nstorage;
    g->value = ARENA_ARRAY(a, Value, g->nvalue);
    g->node = ARENA_ARRAY(a, Node, g->nnode);
    g->storage = ARENA_ARRAY(a, Storage, g->nstorage);
    if (g->nvalue) memcpy(g->value, old->value, g->nvalue * sizeof *g->value);
    if (g->nnode) memcpy(g->node, old->node, g->nnode * sizeof *g->node);
    if (g->nstorage) memcpy(g->storage, old->storage, g->nstorage * sizeof *g->storage);
    COPY(&c, g->output, g->noutput);
    for (ValueId v = 0; v < g->nvalue; v++) {
        copy_string(&c, &g->value[v].name);
        copy_data(&c, &g->value[v].data);
    }
    for (NodeId n = 0; n < g->nnode; n++) copy_node(&c, &g->node[n]);
    return g;
}
