/* kernels.c - the code of a generated program: library objects, loops, one function for each
 * distinct node body, and the functions that set up the library and pack weights.
 *
 * Bodies name no values of the model, so nodes that do the same thing share a function; its comment
 * says which nodes they are. */
#include "gen.h"

#include <string.h>

enum { NAMES_SHOWN = 4 };

/* Types of objects that the library sets up before the first step. */
static const struct {
    const char *type, *init;
} set_up[] = {{"DtrtConv", "dtrt_conv_init"}, {"DtrtMatmul", "dtrt_matmul_init"}};

static uint32_t add_object(CpuEmit *e, const char *type, const char *init) {
    Gen *g = e->priv;
    const char *key = arena_printf(g->a, "%s %s", type, init);
    uint32_t id = map_get(g->object_by_text, key);
    if (id == NO_ID) {
        id = g->object.n;
        map_put(g->object_by_text, key, id);
        GenObject o = {arena_str(g->a, type), arena_str(g->a, init), id};
        VEC_PUSH(g->a, g->object, o);
    }
    if (!strcmp(type, "DtrtConv")) g->last_conv = id;
    return id;
}

/* A packed weight is converted by the first convolution that reads it. */
static void note_conv(Gen *g, const Node *n) {
    for (uint32_t i = 0; g->last_conv != NO_ID && i < n->nin; i++) {
        ValueId v = n->in[i];
        if (v != NO_ID && g->c->packed && g->c->packed[v] && g->conv_of[v] == NO_ID)
            g->conv_of[v] = g->last_conv;
    }
}

/* Without arithmetic: what a run of the node would touch, so that memory behaves as it would. */
static void null_body(Gen *g, const Node *n, Text *body) {
    for (uint32_t i = 0; i < n->nout; i++) {
        if (n->out[i] == NO_ID) continue;
        StorageId s = g->g->value[n->out[i]].storage;
        text_add(body, "    memset(p[%u], 0, %llu);\n", n->nin + i,
                 (unsigned long long)g->c->storage_bytes[s]);
    }
    if (!body->n) text_str(body, "    (void)p;\n");
}

static bool emit_node(Gen *g, NodeId id) {
    const Node *n = &g->g->node[id];
    Text body;
    text_init(&body, g->a);
    g->last_conv = NO_ID;
    if (g->o->target == TARGET_NULL) {
        null_body(g, n, &body);
    } else if (op_is_loop(n)) {
        cg_loop(g, n, &body);
    } else {
        CpuEmit e = {.arena = g->a, .body = &body, .g = g->g, .object = add_object, .priv = g};
        e.storage_bytes = g->c->storage_bytes;
        e.packed = g->c->packed;
        e.threads = g->c->threads;
        e.workspace = &g->c->node_workspace[id];
        if (!op_def(n->op)->cpu)
            return diag_error(g->d, ir_place(g->g, id, NO_ID),
                              "operator %s has no code for the target cpu", op_def(n->op)->name);
        TRY(op_def(n->op)->cpu(&e, n));
        note_conv(g, n);
    }
    uint32_t k = map_get(g->body_by_text, body.at);
    if (k == NO_ID) {
        k = g->body.n;
        map_put(g->body_by_text, body.at, k);
        VEC_PUSH(g->a, g->body, body.at);
    }
    g->node_body[id] = k;
    return true;
}

/* Optimizer state is laid out as its parameter. */
static void fill_state_convs(Gen *g) {
    for (ValueId v = 0; v < g->g->nvalue; v++) {
        const Value *x = &g->g->value[v];
        if (x->role == ROLE_STATE && x->param != NO_ID) g->conv_of[v] = g->conv_of[x->param];
    }
}

bool cg_kernels(Gen *g) {
    g->loop_by_text = map_new(g->a);
    g->body_by_text = map_new(g->a);
    g->object_by_text = map_new(g->a);
    g->node_body = ARENA_ARRAY(g->a, uint32_t, g->g->nnode);
    g->conv_of = ARENA_ARRAY(g->a, uint32_t, g->g->nvalue);
    for (ValueId v = 0; v < g->g->nvalue; v++) g->conv_of[v] = NO_ID;
    for (NodeId n = 0; n < g->g->nnode; n++) {
        g->node_body[n] = NO_ID;
        if (op_node_class(&g->g->node[n]) != CLS_VIEW) TRY(emit_node(g, n));
    }
    fill_state_convs(g);
    return true;
}

/* ---- printing ---- */

static void print_init(const Gen *g, Text *t) {
    text_str(t, "/* Library objects; false after a message. */\n"
                "static bool init(DtrtCtx *c) {\n    (void)c;\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        for (size_t k = 0; k < sizeof set_up / sizeof *set_up; k++)
            if (!strcmp(g->object.at[i].type, set_up[k].type))
                text_add(t, "    if (!%s(&%s_%u, c->threads)) return false;\n", set_up[k].init,
                         set_up[k].type, i);
    text_str(t, "    return true;\n}\n\n");
}

static void print_packing(const Gen *g, Text *t, bool unpack) {
    Bits used = bits_new(g->a, g->object.n + 1);
    for (ValueId v = 0; v < g->g->nvalue; v++)
        if (g->conv_of[v] != NO_ID) bits_set(used, g->conv_of[v]);
    text_str(t, unpack ? "static bool unpack(int conv, const void *packed, float *plain) {\n"
                       : "static bool pack(int conv, const float *plain, void *packed) {\n");
    text_str(t, "    (void)plain, (void)packed;\n    switch (conv) {\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        if (bits_get(used, i))
            text_add(t,
                     unpack ? "    case %u: return dtrt_conv_unpack(&DtrtConv_%u, packed, plain);\n"
                            : "    case %u: return dtrt_conv_pack(&DtrtConv_%u, plain, packed);\n",
                     i, i);
    text_str(t, "    default: return false;\n    }\n}\n\n");
}

/* "k3: conv1, conv2 and 7 more" for each node function. */
static void print_users(const Gen *g, const NodeId *user, uint32_t n, Text *t) {
    text_str(t, "/* ");
    for (uint32_t i = 0; i < n && i < NAMES_SHOWN; i++) {
        if (i) text_str(t, ", ");
        text_comment(t, g->g->node[user[i]].name);
    }
    if (n > NAMES_SHOWN) text_add(t, " and %u more", n - NAMES_SHOWN);
    text_str(t, " */\n");
}

static void print_bodies(const Gen *g, Text *t) {
    uint32_t *first = ARENA_ARRAY(g->a, uint32_t, g->body.n + 2);
    NodeId *user = ARENA_ARRAY(g->a, NodeId, g->g->nnode + 1);
    for (NodeId n = 0; n < g->g->nnode; n++)
        if (g->node_body[n] != NO_ID) first[g->node_body[n] + 2]++;
    for (uint32_t i = 2; i < g->body.n + 2; i++) first[i] += first[i - 1];
    for (NodeId n = 0; n < g->g->nnode; n++)
        if (g->node_body[n] != NO_ID) user[first[g->node_body[n] + 1]++] = n;
    for (uint32_t i = 0; i < g->body.n; i++) {
        print_users(g, user + first[i], first[i + 1] - first[i], t);
        text_add(t, "static void k%u(DtrtCtx *c, void *const *p) {\n    (void)c;\n%s}\n", i,
                 g->body.at[i]);
    }
    text_char(t, '\n');
}

void cg_print_kernels(Gen *g, Text *t) {
    text_str(t, "/* ---- library objects ---- */\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        text_add(t, "static %s %s_%u = %s;\n", g->object.at[i].type, g->object.at[i].type, i,
                 g->object.at[i].init);
    text_str(
        t,
        "\n/* ---- loops: elementwise operators and sums over rows, shared by nodes that differ in "
        "size only ---- */\n");
    for (uint32_t i = 0; i < g->loop.n; i++)
        text_add(t, "static LOOP void loop%u%s\n", i, g->loop.at[i]);
    text_str(t, "/* ---- nodes: p holds inputs, outputs, workspace ---- */\n");
    print_bodies(g, t);
    print_init(g, t);
    print_packing(g, t, false);
    print_packing(g, t, true);
}
