/* emit.c - a graph with its costs as a simrd log, so that others can plan it and score plans: the
 * converse of simrd.c.
 *
 * Node k is operator k. Persistent storages are CONSTANT. Every node is a CALL with its time; a
 * view is one with ALIAS 0. A workspace is a result more that nobody reads: it takes its bytes
 * while the operator runs. An update is a CALL without results (a MUTATE would be a copy and count
 * the weight twice). Every tensor is released after its last use, but for the graph's outputs.
 *
 * What the format cannot say, and a plan for the log need not keep: that nothing may read a weight
 * after its update, that an update runs once, and that an output may take over the bytes of an
 * operand. */
#include "trace.h"

#include <string.h>

enum { NAME_BYTES = 4000 };

typedef struct {
    Text *t;
    const Graph *g;
    const Cost *c;
    Map *taken;
    const char **name; /* per value */
    NodeId *last;      /* per value: the last node that reads it */
    bool *kept;        /* per value: an output */
} Log;

/* ---- names ---- */

static bool is_good(const char *s) {
    uint32_t code;
    if (!*s || strlen(s) > NAME_BYTES) return false;
    for (size_t n; *s; s += n)
        if (!(n = utf8_length(s, &code))) return false;
    return true;
}

/* The wish, or a name that nobody has. */
static const char *choose_name(Log *l, Arena *a, const char *wish, char kind, uint32_t id) {
    const char *name = wish;
    if (!is_good(wish) || map_get(l->taken, wish) != NO_ID)
        name = arena_printf(a, "%c%u", kind, id);
    while (map_get(l->taken, name) != NO_ID) name = arena_printf(a, "%s_", name);
    map_put(l->taken, name, id);
    return name;
}

/* ---- lines ---- */

static void begin(Log *l, const char *kind) {
    text_add(l->t, "{\"INSTRUCTION\":\"%s\"", kind);
}

static void name_field(Log *l, const char *key, const char *name) {
    text_add(l->t, ",\"%s\":", key);
    text_json(l->t, name);
}

static void end(Log *l) {
    text_str(l->t, "}\n");
}

static void annotate(Log *l, const char *what) {
    begin(l, "ANNOTATE");
    name_field(l, "ANNOTATION", what);
    end(l);
}

static void number(Log *l, const char *kind, const char *name, int64_t x) {
    begin(l, kind);
    name_field(l, "NAME", name);
    text_add(l->t, ",\"%s\":\"%lld\"", kind, (long long)x);
    end(l);
}

static void release(Log *l, const char *name) {
    begin(l, "RELEASE");
    name_field(l, "NAME", name);
    end(l);
}

static void name_list(Log *l, const char *key, const ValueId *v, uint32_t n, const char *more) {
    bool first = true;
    text_add(l->t, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        if (v[i] == NO_ID) continue;
        text_str(l->t, first ? "" : ",");
        text_json(l->t, l->name[v[i]]);
        first = false;
    }
    if (more) {
        text_str(l->t, first ? "" : ",");
        text_json(l->t, more);
    }
    text_char(l->t, ']');
}

/* ---- the graph ---- */

static void fill_uses(Log *l) {
    for (NodeId n = 0; n < l->g->nnode; n++) {
        const Node *x = &l->g->node[n];
        for (uint32_t k = 0; k < x->nout; k++)
            if (x->out[k] != NO_ID) l->last[x->out[k]] = n;
        for (uint32_t k = 0; k < x->nin; k++)
            if (x->in[k] != NO_ID) l->last[x->in[k]] = n;
    }
    for (uint32_t i = 0; i < l->g->noutput; i++) l->kept[l->g->output[i]] = true;
}

static void emit_results(Log *l, NodeId n, const char *workspace) {
    const Node *x = &l->g->node[n];
    bool view = op_node_class(x) == CLS_VIEW;
    for (uint32_t k = 0; k < x->nout; k++) {
        if (x->out[k] == NO_ID) continue;
        const char *name = l->name[x->out[k]];
        number(l, "MEMORY", name, (int64_t)l->c->storage_bytes[l->g->value[x->out[k]].storage]);
        number(l, "ALIAS", name, view ? 0 : -1);
    }
    if (!workspace) return;
    number(l, "MEMORY", workspace, (int64_t)l->c->node_workspace[n]);
    number(l, "ALIAS", workspace, -1);
}

/* What node n made or read and nobody reads later; each once. */
static void emit_releases(Log *l, NodeId n, const char *workspace) {
    const Node *x = &l->g->node[n];
    if (workspace) release(l, workspace);
    for (uint32_t k = 0; k < x->nin + x->nout; k++) {
        ValueId v = k < x->nin ? x->in[k] : x->out[k - x->nin];
        if (v == NO_ID || l->last[v] != n || l->kept[v] || is_persistent(l->g->value[v].role))
            continue;
        l->last[v] = NO_ID;
        release(l, l->name[v]);
    }
}

static void emit_node(Log *l, Arena *a, NodeId n) {
    const Node *x = &l->g->node[n];
    const char *workspace = NULL;
    if (l->c->node_workspace[n])
        workspace = choose_name(l, a, arena_printf(a, "%s.workspace", x->name), 'w', n);
    begin(l, "CALL");
    name_field(l, "NAME", is_good(x->name) ? x->name : ir_op_name(x->op));
    name_list(l, "ARGS", x->in, x->nin, NULL);
    name_list(l, "RESULT", x->out, x->nout, workspace);
    text_add(l->t, ",\"TIME\":\"%llu\"", (unsigned long long)l->c->node_ns[n]);
    end(l);
    emit_results(l, n, workspace);
    emit_releases(l, n, workspace);
}

void trace_print_log(Text *out, const Graph *g, const Cost *c) {
    Arena *a = arena_new();
    Log l = {out,
             g,
             c,
             map_new(a),
             ARENA_ARRAY(a, const char *, g->nvalue),
             ARENA_ARRAY(a, NodeId, g->nvalue),
             ARENA_ARRAY(a, bool, g->nvalue)};
    for (ValueId v = 0; v < g->nvalue; v++)
        l.name[v] = choose_name(&l, a, g->value[v].name, 'v', v);
    fill_uses(&l);
    annotate(&l, "START");
    for (StorageId s = 0; s < g->nstorage; s++) {
        if (!g->storage[s].persistent) continue;
        const char *name = l.name[g->storage[s].root];
        begin(&l, "CONSTANT");
        name_field(&l, "NAME", name);
        end(&l);
        number(&l, "MEMORY", name, (int64_t)c->storage_bytes[s]);
    }
    bool backward = false;
    for (NodeId n = 0; n < g->nnode; n++) {
        if (!backward && g->node[n].phase != PHASE_FORWARD) {
            backward = true;
            annotate(&l, "BACKWARD");
        }
        emit_node(&l, a, n);
    }
    arena_free(a);
}
