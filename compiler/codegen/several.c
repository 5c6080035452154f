/* several.c - programs that run at several sizes: one text from the texts at each point
 * (compiler/sizes), and the functions that fill the runtime's tables for given values of the
 * symbols.
 *
 * resize: every number of the tables that depends on a symbol. needs: what the library says when
 * its objects are there, so that a machine whose library wants more than was planned is found out
 * before the first step. largest: a bound on all of these numbers, in double, so that the runtime
 * can refuse values whose products would not fit. */
#include "gen.h"

#include <assert.h>

enum { POINTS = SIZES_MAX_COEFS + SIZES_MAX_CHECKS };

bool cg_merge(Gen *g, const char *const *text, GenText *out) {
    *out = (GenText){text[0], 0};
    if (!g->sizes) return true;
    Text t;
    text_init(&t, g->a);
    text_str(&t, "");
    TRY(sizes_merge(g->a, g->sizes, text, &t, &out->symbols, &g->one_size));
    out->text = t.at;
    return true;
}

void cg_declare_symbols(const Gen *g, uint32_t symbols, const char *from, Text *t) {
    for (uint32_t i = 0; g->sizes && i < g->sizes->nsym; i++)
        if (symbols >> i & 1)
            text_add(t, "    const int64_t %s = %s[%u];\n", g->sizes->sym[i].id, from, i);
}

/* ---- resize ---- */

/* One function's lines, and the symbols that they use. */
typedef struct {
    Gen *g;
    Text lines;
    uint32_t used;
    SizePoly sum; /* of the largest numbers */
} Filler;

/* "TARGET = EXPRESSION;" when the number is not the same at all points. */
static void set_number(Filler *f, const char *target, const int64_t *v) {
    SizePoly p;
    const Sizes *s = f->g->sizes;
    if (!s) return;
    bool ok = sizes_fit_checked(s, v, &p);
    assert(ok); /* the step's numbers are polynomials */
    (void)ok;
    if (sizes_constant(s, &p)) return;
    text_add(&f->lines, "    %s = ", target);
    sizes_print(&f->lines, s, &p);
    text_str(&f->lines, ";\n");
    f->used |= sizes_symbols(s, &p);
}

static void set_dims(Filler *f, ValueId v, const char *target) {
    int64_t dim[POINTS];
    for (uint32_t k = 0; k < f->g->g->value[v].shape.rank; k++) {
        for (uint32_t i = 0; i < f->g->npoint; i++) dim[i] = f->g->at[i]->value[v].shape.dim[k];
        set_number(f, arena_printf(f->g->a, "%s[%u]", target, k), dim);
    }
}

static void add_to_sum(Filler *f, const int64_t *v) {
    SizePoly p;
    if (!f->g->sizes || !sizes_fit(f->g->sizes, v, &p)) return;
    for (uint32_t k = 0; k < f->g->sizes->ngrid; k++) f->sum.c[k] += p.c[k] < 0 ? -p.c[k] : p.c[k];
}

static void set_storages(Filler *f) {
    Gen *g = f->g;
    uint64_t *bytes[POINTS];
    int64_t v[POINTS];
    for (uint32_t i = 0; i < g->npoint; i++) bytes[i] = cost_plain_bytes(g->a, g->at[i]);
    for (StorageId s = 0; s < g->g->nstorage; s++) {
        for (uint32_t i = 0; i < g->npoint; i++) v[i] = (int64_t)bytes[i][s];
        set_number(f, arena_printf(g->a, "storage[%u].bytes", s), v);
        add_to_sum(f, v);
    }
}

/* The points of loops: no operand may have that many elements. */
static void add_loops(Filler *f) {
    Gen *g = f->g;
    int64_t v[POINTS];
    for (NodeId n = 0; n < g->g->nnode; n++) {
        if (!op_is_loop(&g->g->node[n])) continue;
        for (uint32_t i = 0; i < g->npoint; i++) {
            LoopNest l;
            op_loop_nest(g->a, g->at[i], &g->at[i]->node[n], &l);
            v[i] = 8;
            for (uint32_t k = 0; k < l.naxis; k++) v[i] *= l.size[k];
        }
        add_to_sum(f, v);
    }
}

static void set_workspaces(Filler *f) {
    for (uint32_t i = 0; i < f->g->nnode; i++) {
        const GenText *x = &f->g->node_needs[f->g->graph_node[i]];
        if (!x->symbols) continue;
        text_add(&f->lines, "    node[%u].workspace = %s;\n", i, x->text);
        f->used |= x->symbols;
    }
}

static void print_resize(Gen *g, Text *t) {
    Filler f = {.g = g};
    text_init(&f.lines, g->a);
    text_str(&f.lines, "");
    for (uint32_t i = 0; i < g->ntensor; i++)
        set_dims(&f, g->tensor[i], arena_printf(g->a, "tensor[%u].dim", i));
    set_storages(&f);
    set_workspaces(&f);
    if (g->g->logits != NO_ID) set_dims(&f, g->g->logits, "logits");
    text_str(t, "/* The tables for other sizes: every number that depends on them. */\n"
                "static void resize(const int64_t *dim, DtrtTensor *tensor, DtrtStorage *storage,\n"
                "                   DtrtNode *node, int64_t *logits) {\n");
    cg_declare_symbols(g, f.used, "dim", t);
    text_add(t, "    (void)tensor, (void)node, (void)logits;\n%s}\n\n", f.lines.at);
    add_loops(&f);
    uint32_t used = sizes_symbols(g->sizes, &f.sum);
    text_str(t, "/* No number of the program is larger. */\n"
                "static double largest(const int64_t *dim) {\n");
    for (uint32_t i = 0; i < g->sizes->nsym; i++)
        if (used >> i & 1)
            text_add(t, "    const double %s = (double)dim[%u];\n", g->sizes->sym[i].id, i);
    text_str(t, used ? "    return " : "    (void)dim;\n    return ");
    sizes_print_real(t, g->sizes, &f.sum);
    text_str(t, ";\n}\n\n");
}

/* ---- needs ---- */

static void print_needs(Gen *g, Text *t) {
    text_str(t, "/* What the library's objects use here: workspace, packed weights. */\n"
                "static void needs(const DtrtCtx *c, DtrtStorage *storage, DtrtNode *node) {\n"
                "    (void)c, (void)storage, (void)node;\n");
    for (uint32_t i = 0; i < g->nnode; i++) {
        const GenText *x = &g->node_needs[g->graph_node[i]];
        if (x->text && !x->symbols) text_add(t, "    node[%u].workspace = %s;\n", i, x->text);
    }
    for (StorageId s = 0; s < g->g->nstorage; s++) {
        uint32_t conv = g->conv_of[g->g->storage[s].root];
        if (conv != NO_ID)
            text_add(t, "    storage[%u].bytes = dtrt_conv_weight_bytes(&DtrtConv_%u[c->slot]);\n",
                     s, conv);
    }
    text_str(t, "}\n\n");
}

/* ---- the symbols ---- */

static void print_symbols(const Gen *g, Text *t) {
    text_str(t,
             "/* Dimensions that may have other sizes: names, batch, compiled, least, largest. */\n"
             "static const DtrtSymbol symbols[] = {\n");
    for (uint32_t i = 0; i < g->sizes->nsym; i++) {
        const SizeSymbol *s = &g->sizes->sym[i];
        text_str(t, "    {{");
        for (uint32_t k = 0; k < s->nname; k++) {
            if (k) text_str(t, ", ");
            text_quote(t, s->name[k]);
        }
        text_add(t, "}, %d, %lld, %lld, %lld}, /* %s */\n", s->batch, (long long)s->value,
                 (long long)s->lo, (long long)s->hi, s->id);
    }
    text_str(t, "};\n\n");
}

void cg_print_sizes(Gen *g, Text *t) {
    text_str(t, "/* ---- sizes ---- */\n");
    if (g->sizes) {
        print_symbols(g, t);
        print_resize(g, t);
    }
    print_needs(g, t);
}

void cg_print_size_fields(const Gen *g, Text *t) {
    text_add(t, "    .nsymbol = %u,\n", g->sizes ? g->sizes->nsym : 0);
    if (g->sizes) {
        text_str(t, "    .symbol = symbols,\n    .resize = resize,\n    .largest = largest,\n");
    } else {
        text_str(t, "    .one_size = ");
        text_quote(t, g->one_size ? g->one_size : "");
        text_str(t, ",\n");
    }
    text_str(t, "    .needs = needs,\n");
}
