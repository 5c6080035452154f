/* import.c - onnx_import: the straight list of stages, and the loop over nodes.
 *
 *   load.c    file -> unpacked model          names.c  names, order, what is needed
 *   dims.c    inputs with fixed shapes        roles.c  initializers
 *   then every node, in order: evaluated if its inputs are known, else made
 *
 * Nodes that are not supported do not stop the loop: all of them are reported in one error. */
#include "import.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 40 /* unsupported nodes in the message; all are in OnnxInfo */

/* Finds the table row; records a node that has none. Those count even where no output needs them.
 */
static void find_row(Import *x, FileNode *f) {
    Ctx c = {x, f};
    const char *domain = f->p->domain ? f->p->domain : "";
    bool main_domain = !*domain || !strcmp(domain, "ai.onnx");
    if (!main_domain)
        ctx_skip(&c, "%s", domain_why_not(domain));
    else if (!(f->row = op_row(f->p->op_type)))
        ctx_skip(&c, "%s", op_why_not(f->p->op_type));
    f->refused = !f->row;
}

static Res check_arity(const Ctx *c) {
    const OpRow *r = c->n->row;
    uint32_t nin = c->n->nin, nout = c->n->nout;
    while (nin && c->n->in[nin - 1] == NO_ID) nin--;
    if (nin < r->min_in || (r->max_in != 255 && nin > r->max_in))
        return ctx_fail(c, "expected %u to %u inputs, found %u", r->min_in, r->max_in, nin);
    for (uint32_t i = 0; i < r->min_in; i++)
        if (!has_in(c, i)) return ctx_fail(c, "input %u is not there", i);
    if (r->max_out != 255 && nout > r->max_out)
        return ctx_fail(c, "expected at most %u outputs, found %u", r->max_out, nout);
    return OK;
}

static bool is_known(const Ctx *c) {
    for (uint32_t i = 0; i < c->n->nin; i++)
        if (has_in(c, i) && !known_in(c, i)) return false;
    return true;
}

static bool is_lost(const Ctx *c) {
    for (uint32_t i = 0; i < c->n->nin; i++)
        if (has_in(c, i) && c->x->slot.at[c->n->in[i]].lost) return true;
    return false;
}

static Res convert(Ctx *c) {
    const OpRow *r = c->n->row;
    if (!r || is_lost(c)) return SKIP;
    MUST(check_arity(c));
    bool by_shape = r->eval == eval_shape || r->eval == eval_size || r->eval == eval_eye_like;
    if (r->eval && (by_shape || is_known(c))) return eval_node(c);
    if (!r->make) return ctx_skip(c, "only supported where its inputs are constants");
    return r->make(c);
}

/* Results with the last reader behind them are given back. */
static void release_inputs(Import *x, const FileNode *f) {
    for (uint32_t i = 0; i < f->nin + f->ncap; i++) {
        if (f->in[i] == NO_ID) continue;
        Slot *s = &x->slot.at[f->in[i]];
        if (--s->uses == 0 && s->known) tensor_release(x, s->known);
    }
}

bool convert_node(Import *x, FileNode *f) {
    Ctx c = {x, f};
    if (!f->row && !f->refused) find_row(x, f);
    Res r = convert(&c);
    if (r == FAIL) return false;
    for (uint32_t i = 0; r == SKIP && i < f->nout; i++)
        if (f->out[i] != NO_ID) x->slot.at[f->out[i]].lost = true;
    release_inputs(x, f);
    return true;
}

static bool convert_nodes(Import *x) {
    for (uint32_t n = 0; n < x->nnode; n++) {
        x->at = n;
        find_row(x, &x->node[n]);
    }
    TRY(roles_assign(x));
    for (uint32_t k = 0; k < x->nnode; k++)
        if (x->node[x->order[k]].live) {
            x->at = x->order[k];
            TRY(convert_node(x, &x->node[x->order[k]]));
        }
    return true;
}

static int by_place(const void *a, const void *b) {
    const OnnxUnsupported *p = a, *q = b;
    return p->at != q->at ? (p->at < q->at ? -1 : 1) : strcmp(p->node, q->node);
}

static bool report_unsupported(Import *x) {
    uint32_t n = x->unsupported.n;
    if (!n) return true;
    qsort(x->unsupported.at, n, sizeof *x->unsupported.at, by_place);
    Text t;
    text_init(&t, x->tmp);
    text_str(&t, "");
    for (uint32_t i = 0; i < n && i < MAX_SHOWN; i++) {
        const OnnxUnsupported *u = &x->unsupported.at[i];
        bool main_domain = !strcmp(u->domain, "ai.onnx");
        text_add(&t, "\n  node '%s' (%s%s%s): %s", diag_name(x->tmp, u->node),
                 main_domain ? "" : diag_name(x->tmp, u->domain),
                 main_domain ? "" : "::", diag_name(x->tmp, u->op), u->why);
    }
    if (n > MAX_SHOWN) text_add(&t, "\n  and %u more", n - MAX_SHOWN);
    return diag_error(x->d, (Place){.file = x->file}, "%u of %u nodes are not supported:%s", n,
                      x->nnode, t.at);
}

static bool collect_outputs(Import *x) {
    Graph *g = x->g;
    g->noutput = (uint32_t)x->graph->n_output;
    g->output = ARENA_ARRAY(g->arena, ValueId, g->noutput);
    for (uint32_t i = 0; i < g->noutput; i++) {
        Slot *s = &x->slot.at[slot_of(x, x->graph->output[i]->name)];
        if (s->value == NO_ID) s->value = constant(x, s->name, s->known, ROLE_CONST);
        g->output[i] = s->value;
    }
    return true;
}

static bool import_stages(Import *x, Span bytes) {
    TRY(load_model(x, bytes));
    x->g = ir_new(x->a, x->file);
    TRY(names_resolve(x));
    TRY(dims_bind(x));
    bool converted = convert_nodes(x);
    return report_unsupported(x) && converted && collect_outputs(x);
}

static void fill_info(const Import *x) {
    if (!x->info) return;
    x->info->nunsupported = x->unsupported.n;
    x->info->unsupported = x->unsupported.at;
    x->info->nnote = x->notes.n;
    x->info->note = x->notes.at;
    x->info->missing_bytes = x->src.missing_bytes;
}

Graph *import_bytes(Arena *a, Diag *d, const char *file, const char *folder, Span bytes,
                    const OnnxOptions *o, OnnxInfo *info) {
    if (info) *info = (OnnxInfo){0};
    Import x = {.a = a, .tmp = arena_new(), .d = d, .file = file, .opt = o, .info = info};
    x.src = (Sources){.file = file, .folder = folder, .need = o->need_weights && !o->init_given};
    bool ok = import_stages(&x, bytes);
    fill_info(&x);
    if (ok && info)
        info->sha256 = load_digest(a, bytes); /* not of what was refused: it may be huge */
    for (uint32_t i = 0; i < x.heap.n; i++) tensor_release(&x, x.heap.at[i]);
    if (!ok) external_unmap(&x.src);
    arena_free(x.tmp);
    return ok ? x.g : NULL;
}

const char *import_folder(Arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : arena_strn(a, path, (size_t)(slash - path));
}

Graph *onnx_import(Arena *a, Diag *d, const char *path, const OnnxOptions *o, OnnxInfo *info) {
    LoadedFile file;
    if (info) *info = (OnnxInfo){0};
    if (!load_file(a, d, path, &file)) return NULL;
    const char *folder = import_folder(a, path);
    Graph *g = import_bytes(a, d, path, folder, file.bytes, o, info);
    if (g && info) info->bytes = file.bytes.at;
    if (!g) load_drop(&file);
    return g;
}
