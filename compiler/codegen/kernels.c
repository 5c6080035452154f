/* kernels.c - the code of a generated program: library objects, loops, one function for each
 * distinct node body, and the functions that set up the library and pack weights.
 *
 * Bodies name no values of the model, so nodes that do the same thing share a function; its comment
 * says which nodes they are. */
#include "gen.h"

#include <assert.h>
#include <string.h>

enum { NAMES_SHOWN = 4 };

/* Types of objects that the library sets up before the first step. Convolutions of a second size
 * take the packed layout of the first. */
static const struct {
    const char *type, *init;
    bool like;
    const char *needs; /* NULL: no workspace */
} set_up[] = {{"DtrtConv", "dtrt_conv_init", true, "dtrt_conv_workspace"},
              {"DtrtMatmul", "dtrt_matmul_init", false, "dtrt_matmul_workspace"},
              {"DtrtAttention", "dtrt_attention_init", false, "dtrt_attention_workspace"},
              {"DtrtResize", "dtrt_resize_init", false, NULL}};

/* What one node's emission is about: the objects that it asks for, in order. First they are only
 * noted, at each point; then they have numbers and the body is written. */
enum { NODE_OBJECTS = 4 };
typedef struct {
    Gen *g;
    uint32_t point, count;
    bool numbered;
    const char *type[NODE_OBJECTS];
    const char *init[NODE_OBJECTS][SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    uint32_t number[NODE_OBJECTS];
    const char *needs[SIZES_MAX_COEFS + SIZES_MAX_CHECKS]; /* CpuEmit.needs of each point */
} Emission;

static uint32_t note_object(CpuEmit *e, const char *type, const char *init) {
    Emission *x = e->priv;
    uint32_t k = x->count++;
    assert(k < NODE_OBJECTS);
    x->type[k] = type;
    x->init[k][x->point] = init;
    return x->numbered ? x->number[k] : 0;
}

static uint32_t packed_by(CpuEmit *e, ValueId v) {
    const Emission *x = e->priv;
    return x->g->conv_of[v];
}

static uint32_t add_object(Gen *g, const char *type, const GenText *init) {
    const char *key = arena_printf(g->a, "%s %s", type, init->text);
    uint32_t id = map_get(g->object_by_text, key);
    if (id != NO_ID) return id;
    id = g->object.n;
    map_put(g->object_by_text, key, id);
    GenObject o = {arena_str(g->a, type), init->text, id, init->symbols, 0};
    VEC_PUSH(g->a, g->object, o);
    return id;
}

static uint32_t add_body(Gen *g, const GenText *x) {
    uint32_t id = map_get(g->body_by_text, x->text);
    if (id != NO_ID) return id;
    id = g->body.n;
    map_put(g->body_by_text, x->text, id);
    VEC_PUSH(g->a, g->body, *x);
    return id;
}

static uint32_t add_loop(Gen *g, const GenText *x, const GenText *kernels) {
    const char *key = arena_printf(g->a, "%s%s", x->text, kernels->text);
    uint32_t id = map_get(g->loop_by_text, key);
    if (id != NO_ID) return id;
    id = g->loop.n;
    map_put(g->loop_by_text, key, id);
    VEC_PUSH(g->a, g->loop, *x);
    VEC_PUSH(g->a, g->loop_kernels, *kernels);
    return id;
}

static const char *whole(Gen *g, uint64_t v) {
    return arena_printf(g->a, "%llu", (unsigned long long)v);
}

/* ---- nodes that call the runtime ---- */

static bool emit_at(Emission *x, NodeId id, const char **body) {
    Gen *g = x->g;
    const Graph *at = g->at[x->point];
    Text t;
    text_init(&t, g->a);
    text_str(&t, "");
    CpuEmit e = {.arena = g->a, .body = &t, .g = at, .packed = g->c->packed};
    e.threads = g->c->threads;
    e.object = note_object;
    e.packed_by = packed_by;
    e.priv = x;
    x->count = 0;
    TRY(op_def(at->node[id].op)->cpu(&e, &at->node[id]));
    *body = t.at;
    x->needs[x->point] = e.needs;
    return true;
}

/* Weights that this convolution reads, and a gradient that it makes, are packed as it says. */
static void note_conv(Gen *g, const Node *n, uint32_t object) {
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        ValueId v = i < n->nin ? n->in[i] : n->out[i - n->nin];
        if (v != NO_ID && g->c->packed && g->c->packed[v] && g->conv_of[v] == NO_ID)
            g->conv_of[v] = object;
    }
}

/* Workspace that the library decides about when the program starts. */
static void note_needs(Gen *g, NodeId id, const char *type, uint32_t object) {
    for (size_t k = 0; k < sizeof set_up / sizeof *set_up; k++)
        if (!strcmp(type, set_up[k].type) && set_up[k].needs)
            g->node_needs[id].text =
                arena_printf(g->a, "%s(&%s_%u[c->slot])", set_up[k].needs, type, object);
}

/* Workspace of other calls, where it depends on sizes: what the call says, or a number. */
static bool call_needs(Gen *g, NodeId id, const char *const *said) {
    const char *text[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    GenText need;
    for (uint32_t k = 0; k < g->npoint; k++)
        text[k] =
            said[k] ? said[k]
                    : whole(g, cost_plain_workspace(g->at[k], &g->at[k]->node[id], g->c->threads));
    TRY(cg_merge(g, text, &need));
    if (need.symbols) g->node_needs[id] = need;
    return true;
}

static bool emit_call(Gen *g, NodeId id, GenText *out) {
    Emission x = {.g = g};
    const char *body[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    if (!op_def(g->g->node[id].op)->cpu)
        return diag_error(g->d, ir_place(g->g, id, NO_ID),
                          "operator %s has no code for the target cpu",
                          op_def(g->g->node[id].op)->name);
    for (x.point = 0; x.point < g->npoint; x.point++) TRY(emit_at(&x, id, &body[x.point]));
    for (uint32_t k = 0; k < x.count; k++) {
        GenText init;
        TRY(cg_merge(g, x.init[k], &init));
        x.number[k] = add_object(g, x.type[k], &init);
        note_needs(g, id, x.type[k], x.number[k]);
        if (strcmp(x.type[k], "DtrtConv")) continue;
        note_conv(g, &g->g->node[id], x.number[k]);
        g->object.at[x.number[k]].limit = 1 + g->c->node_workspace[id];
    }
    TRY(call_needs(g, id, x.needs));
    x.numbered = true;
    for (x.point = 0; x.point < g->npoint; x.point++) TRY(emit_at(&x, id, &body[x.point]));
    return cg_merge(g, body, out);
}

/* ---- loops ---- */

/* Are there 2^31 elements at the compiled sizes? */
static bool is_wide(const Gen *g, NodeId id) {
    LoopNest l;
    uint64_t total = 1;
    op_loop_nest(g->a, g->g, &g->g->node[id], &l);
    for (uint32_t i = 0; i < l.naxis; i++)
        if (!checked_mul(total, (uint64_t)l.size[i], &total)) return true;
    return total >= INT32_MAX;
}

/* The loop in one form: "loop3(c, p, 64 * N, 3)". */
static bool emit_form(Gen *g, NodeId id, bool by_columns, GenText *call) {
    const char *text[SIZES_MAX_COEFS + SIZES_MAX_CHECKS], *args[SIZES_MAX_COEFS + SIZES_MAX_CHECKS],
        *kernel[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    GenText body, loop, kernels = {"", 0};
    GenLoop l = {0};
    bool cuda = g->o->target == TARGET_CUDA, wide = g->wide || is_wide(g, id);
    for (uint32_t k = 0; k < g->npoint; k++) {
        const char *params = l.params;
        if (cuda)
            cg_cuda_loop(g->a, g->at[k], &g->at[k]->node[id], by_columns, wide, &l);
        else
            cg_loop(g->a, g->at[k], &g->at[k]->node[id], by_columns, &l);
        text[k] = l.text;
        kernel[k] = l.kernels;
        args[k] = l.args;
        if (k && strcmp(params, l.params)) {
            g->one_size = arena_printf(g->a, "the axes of its loop depend on it");
            return false;
        }
    }
    TRY(cg_merge(g, text, &body));
    if (cuda) TRY(cg_merge(g, kernel, &kernels));
    body.symbols |= kernels.symbols;
    Text t;
    text_init(&t, g->a);
    text_add(&t, "%s {\n", l.params);
    cg_declare_symbols(g, body.symbols, "c->dim", &t);
    text_add(&t, "%s}\n", body.text);
    loop = (GenText){t.at, body.symbols};
    TRY(cg_merge(g, args, call));
    call->text = arena_printf(g->a, "loop%u%s", add_loop(g, &loop, &kernels), call->text);
    return true;
}

/* How a reduction goes: by columns, by rows, or as its sizes are at run time. */
typedef enum { BY_ROWS, BY_COLUMNS, BY_SIZE } Choice;

typedef struct {
    Choice choice;
    GenText lead, kept;
    const char *by_columns; /* the condition of BY_SIZE */
    uint32_t nacc;
} Reduction;

/* At the least values of the symbols; a product of sizes grows with them. */
static int64_t fewest_rows(const Gen *g, const int64_t *rows) {
    SizePoly p;
    int64_t lo[SIZES_MAX_SYMBOLS] = {0}, least;
    for (uint32_t i = 0; i < g->sizes->nsym; i++) lo[i] = g->sizes->sym[i].lo;
    return sizes_fit(g->sizes, rows, &p) && sizes_eval(g->sizes, &p, lo, &least) ? least : 0;
}

static bool read_reduction(Gen *g, NodeId id, Reduction *r) {
    const char *lead[SIZES_MAX_COEFS + SIZES_MAX_CHECKS], *kept[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    int64_t rows[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    uint64_t most = 0;
    for (uint32_t k = 0; k < g->npoint; k++) {
        LoopNest l;
        op_loop_nest(g->a, g->at[k], &g->at[k]->node[id], &l);
        lead[k] = whole(g, l.lead);
        kept[k] = whole(g, l.kept);
        rows[k] = (int64_t)l.lead;
        most = l.kept > most ? l.kept : most;
        r->nacc = l.nacc;
        if (k == 0) r->choice = l.by_columns ? BY_COLUMNS : BY_ROWS;
        if (l.nlead == l.naxis) r->choice = BY_ROWS; /* nothing is kept: no choice */
        if (l.nlead == l.naxis || l.nacc == 0) return true;
    }
    TRY(cg_merge(g, lead, &r->lead) && cg_merge(g, kept, &r->kept));
    bool one_lead = !r->lead.symbols, one_kept = !r->kept.symbols;
    if (one_lead && one_kept) return true;
    if ((one_lead && rows[0] < LOOP_FEW_ROWS) || (one_kept && most > LOOP_MANY_COLUMNS))
        r->choice = BY_COLUMNS;
    else if (one_kept && fewest_rows(g, rows) >= LOOP_FEW_ROWS)
        r->choice = BY_ROWS;
    else
        r->choice = BY_SIZE;
    const char *few = arena_printf(g->a, "%s < %d", r->lead.text, LOOP_FEW_ROWS);
    const char *many = arena_printf(g->a, "%s > %d", r->kept.text, LOOP_MANY_COLUMNS);
    r->by_columns = one_lead ? many : one_kept ? few : arena_printf(g->a, "%s || %s", few, many);
    return true;
}

/* Doubles for each share, accumulator and column. */
static bool loop_needs(Gen *g, NodeId id, const Reduction *r) {
    const char *need[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    GenText by_rows;
    for (uint32_t k = 0; k < g->npoint; k++) {
        LoopNest l;
        op_loop_nest(g->a, g->at[k], &g->at[k]->node[id], &l);
        need[k] = whole(g, (uint64_t)g->c->threads * l.nacc * l.kept * sizeof(double));
    }
    if (r->choice == BY_COLUMNS || !r->nacc) return true;
    TRY(cg_merge(g, need, &by_rows));
    if (r->choice == BY_SIZE)
        by_rows.text = arena_printf(g->a, "%s ? 0 : %s", r->by_columns, by_rows.text);
    by_rows.symbols |= r->choice == BY_SIZE ? r->lead.symbols | r->kept.symbols : 0;
    if (by_rows.symbols) g->node_needs[id] = by_rows;
    return true;
}

static bool emit_loop(Gen *g, NodeId id, GenText *out) {
    Reduction r = {.choice = BY_ROWS};
    GenText rows = {0}, columns = {0};
    TRY(read_reduction(g, id, &r) && loop_needs(g, id, &r));
    if (r.choice != BY_COLUMNS) TRY(emit_form(g, id, false, &rows));
    if (r.choice != BY_ROWS) TRY(emit_form(g, id, true, &columns));
    out->symbols = rows.symbols | columns.symbols;
    if (r.choice == BY_SIZE) {
        out->symbols |= r.lead.symbols | r.kept.symbols;
        out->text = arena_printf(g->a, "    if (%s)\n        %s;\n    else\n        %s;\n",
                                 r.by_columns, columns.text, rows.text);
    } else {
        out->text =
            arena_printf(g->a, "    %s;\n", r.choice == BY_COLUMNS ? columns.text : rows.text);
    }
    return true;
}

/* ---- without arithmetic: what a run of the node would touch, so that memory behaves as it would
 */

static bool emit_null(Gen *g, NodeId id, GenText *out) {
    const char *text[SIZES_MAX_COEFS + SIZES_MAX_CHECKS];
    for (uint32_t k = 0; k < g->npoint; k++) {
        const Node *n = &g->at[k]->node[id];
        uint64_t *bytes = cost_plain_bytes(g->a, g->at[k]);
        Text t;
        text_init(&t, g->a);
        for (uint32_t i = 0; i < n->nout; i++)
            if (n->out[i] != NO_ID)
                text_add(&t, "    memset(p[%u], 0, %llu);\n", n->nin + i,
                         (unsigned long long)bytes[g->at[k]->value[n->out[i]].storage]);
        text[k] = t.n ? t.at : "    (void)p;\n";
    }
    return cg_merge(g, text, out);
}

static bool emit_node(Gen *g, NodeId id) {
    GenText text = {0}, body;
    bool ok = g->o->target == TARGET_NULL   ? emit_null(g, id, &text)
              : op_is_loop(&g->g->node[id]) ? emit_loop(g, id, &text)
                                            : emit_call(g, id, &text);
    if (!ok && g->one_size)
        g->one_size = arena_printf(g->a, "node '%s' (%s): %s", diag_name(g->a, g->g->node[id].name),
                                   op_def(g->g->node[id].op)->name, g->one_size);
    TRY(ok);
    Text t;
    text_init(&t, g->a);
    cg_declare_symbols(g, text.symbols, "c->dim", &t);
    text_str(&t, text.text);
    body = (GenText){t.at, text.symbols};
    g->node_body[id] = add_body(g, &body);
    return true;
}

/* Optimizer state is laid out as its parameter. */
static void fill_state_convs(Gen *g) {
    for (ValueId v = 0; v < g->g->nvalue; v++) {
        const Value *x = &g->g->value[v];
        if (x->role == ROLE_STATE && x->param != NO_ID) g->conv_of[v] = g->conv_of[x->param];
    }
}

static bool emit_nodes(Gen *g) {
    g->loop.n = g->loop_kernels.n = g->body.n = g->object.n = 0;
    g->loop_by_text = map_new(g->a);
    g->body_by_text = map_new(g->a);
    g->object_by_text = map_new(g->a);
    g->node_body = ARENA_ARRAY(g->a, uint32_t, g->g->nnode + 1);
    g->node_needs = ARENA_ARRAY(g->a, GenText, g->g->nnode + 1);
    g->conv_of = ARENA_ARRAY(g->a, uint32_t, g->g->nvalue + 1);
    for (ValueId v = 0; v < g->g->nvalue; v++) g->conv_of[v] = NO_ID;
    for (NodeId n = 0; n < g->g->nnode; n++) {
        g->node_body[n] = NO_ID;
        if (op_node_class(&g->g->node[n]) != CLS_VIEW) TRY(emit_node(g, n));
    }
    fill_state_convs(g);
    return true;
}

/* Where the code itself cannot be written for several sizes, it is written for one. */
bool cg_kernels(Gen *g) {
    g->sizes = g->o->sizes;
    g->one_size = g->o->one_size;
    if (g->sizes) {
        g->npoint = g->sizes->npoint;
        g->at = g->sizes->step;
        g->one_size = NULL;
        if (emit_nodes(g)) return true;
        g->sizes = NULL;
        if (!g->one_size) return false; /* an error */
    }
    g->npoint = 1;
    g->at = &g->g;
    return emit_nodes(g);
}

/* ---- printing ---- */

/* On the target cuda a convolution may not want more than was planned at the compiled sizes. */
static void print_limits(const Gen *g, Text *t) {
    if (g->o->target != TARGET_CUDA) return;
    text_str(t, "    const bool compiled = true");
    for (uint32_t i = 0; g->sizes && i < g->sizes->nsym; i++)
        text_add(t, " && c->dim[%u] == %lld", i, (long long)g->sizes->sym[i].value);
    text_str(t, ";\n    (void)compiled;\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        if (g->object.at[i].limit)
            text_add(t, "    if (compiled) %s_%u[c->slot].limit = %llu;\n", g->object.at[i].type, i,
                     (unsigned long long)g->object.at[i].limit);
}

static void print_init(const Gen *g, Text *t) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < g->object.n; i++) used |= g->object.at[i].symbols;
    text_str(t, "/* Library objects for the sizes of c; false after a message. */\n"
                "static bool init(DtrtCtx *c) {\n    (void)c;\n");
    cg_declare_symbols(g, used, "c->dim", t);
    for (uint32_t i = 0; i < g->object.n; i++)
        text_add(t, "    %s_%u[c->slot] = (%s)%s;\n", g->object.at[i].type, i, g->object.at[i].type,
                 g->object.at[i].init);
    print_limits(g, t);
    for (uint32_t i = 0; i < g->object.n; i++)
        for (size_t k = 0; k < sizeof set_up / sizeof *set_up; k++)
            if (!strcmp(g->object.at[i].type, set_up[k].type)) {
                text_add(t, "    if (!%s(&%s_%u[c->slot], ", set_up[k].init, set_up[k].type, i);
                if (set_up[k].like) text_add(t, "c->slot ? &%s_%u[0] : NULL, ", set_up[k].type, i);
                text_str(t, "c->threads)) return false;\n");
            }
    text_str(t, "    return true;\n}\n\n");
}

static void print_packing(const Gen *g, Text *t, bool unpack) {
    Bits used = bits_new(g->a, g->object.n + 1);
    for (ValueId v = 0; v < g->g->nvalue; v++)
        if (g->conv_of[v] != NO_ID && g->g->value[v].role != ROLE_TEMP)
            bits_set(used, g->conv_of[v]);
    text_str(t, unpack ? "static bool unpack(int conv, const void *packed, float *plain) {\n"
                       : "static bool pack(int conv, const float *plain, void *packed) {\n");
    text_str(t, "    (void)plain, (void)packed;\n    switch (conv) {\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        if (bits_get(used, i))
            text_add(t,
                     unpack
                         ? "    case %u: return dtrt_conv_unpack(&DtrtConv_%u[0], packed, plain);\n"
                         : "    case %u: return dtrt_conv_pack(&DtrtConv_%u[0], plain, packed);\n",
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
                 g->body.at[i].text);
    }
    text_char(t, '\n');
}

void cg_print_loop(const Gen *g, const char *text, uint32_t number, Text *t) {
    uint32_t symbols = g->loop_kernels.at[number].symbols;
    for (const char *s = text; *s; s++) {
        if (*s == KERNEL_NUMBER)
            text_add(t, "%u", number);
        else if (*s != SYMBOL_PARAMS && *s != SYMBOL_ARGS)
            text_char(t, *s);
        else
            for (uint32_t i = 0; g->sizes && i < g->sizes->nsym; i++)
                if (symbols >> i & 1)
                    text_add(t, *s == SYMBOL_PARAMS ? ", int64_t %s" : ", (void *)&%s",
                             g->sizes->sym[i].id);
    }
}

void cg_print_kernels(Gen *g, Text *t) {
    text_str(t, "/* ---- library objects, for each set of sizes: init fills them ---- */\n");
    for (uint32_t i = 0; i < g->object.n; i++)
        text_add(t, "static %s %s_%u[SLOTS];\n", g->object.at[i].type, g->object.at[i].type, i);
    text_str(
        t,
        "\n/* ---- loops: elementwise operators and sums over rows, shared by nodes that differ in "
        "size only ---- */\n");
    for (uint32_t i = 0; i < g->loop.n; i++) {
        text_add(t, "static LOOP void loop%u", i);
        cg_print_loop(g, g->loop.at[i].text, i, t);
        text_char(t, '\n');
    }
    text_str(t, "/* ---- nodes: p holds inputs, outputs, workspace ---- */\n");
    print_bodies(g, t);
    print_init(g, t);
    print_packing(g, t, false);
    print_packing(g, t, true);
}
