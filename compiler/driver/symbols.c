/* symbols.c - can the step be described for other values of the model's symbolic dimensions, and
 * how: the import, simplify, train and fuse stages again at the points of a grid, without plans or
 * questions to libraries; then the step that is compiled becomes an instance of what they have in
 * common (compiler/sizes).
 *
 * Dimensions on axis 0 of inputs are the batch and vary together. Symbols that change the structure
 * (an unrolled loop, a mask made at compile time) stay at what they were bound to; the others may
 * vary. A grid whose numbers meet a size of the model by accident (29 channels) shows as a change
 * of structure: another one is tried. */
#include "driver.h"

#include <string.h>

enum { BASES = 3, PROBE_MAX = 1 << 20 };

/* Grids to try; the symbols' numbers differ, so that no two dimensions are equal by accident. The
 * last ones suit models with tables of few positions. */
static const int64_t bases[SIZES_MAX_SYMBOLS][BASES] = {{29, 61, 13}, {23, 11, 6}, {19, 9, 4}};
/* What is added to the base for the two points of checks; other symbols than the batch may be
 * bounded above, so theirs stay close. */
static const int64_t checks[2][2] = {{42, -2}, {-8, 4}};

typedef struct {
    Arena *a;
    Arena *scratch; /* of the forward graphs of one grid */
    const Options *o;
    const Work *w;
    Sizes s;
    const Graph *forward[SIZES_MAX_COEFS]; /* at points of the grid */
    const char *why;
} Describe;

/* ---- the stages at one point ---- */

/* The first line that was reported, without "error: FILE: ". */
static const char *first_line(Arena *a, const Diag *d, const char *file) {
    const char *s = d->log.n ? d->log.at : "it cannot be imported";
    const char *at = strstr(s, file);
    if (at) at += strlen(file) + strspn(at + strlen(file), ": ");
    if (!at) at = s;
    return arena_strn(a, at, strcspn(at, "\n"));
}

static OnnxOptions options_at(Describe *x, const int64_t *at) {
    const OnnxInfo *info = &x->w->info;
    DimBinding *dim = ARENA_ARRAY(x->a, DimBinding, info->nsymbol + 1);
    for (uint32_t i = 0; i < info->nsymbol; i++)
        dim[i] = (DimBinding){info->symbol[i], info->symbol_size[i]};
    for (uint32_t i = 0; i < info->nsymbol; i++)
        for (uint32_t k = 0; k < x->s.nsym; k++)
            for (uint32_t j = 0; j < x->s.sym[k].nname; j++)
                if (!strcmp(info->symbol[i], x->s.sym[k].name[j])) dim[i].size = at[k];
    OnnxOptions o = x->o->onnx;
    o.batch = 0;
    o.dim = dim;
    o.ndim = info->nsymbol;
    o.need_weights = false;
    return o;
}

static Graph *import_at(Describe *x, Arena *a, Diag *d, const int64_t *at) {
    OnnxOptions o = options_at(x, at);
    diag_init(d, a, NULL);
    Graph *g = onnx_import(a, d, x->o->model, &o, NULL);
    return g && train_roles(g, d, x->o->rule, x->o->nrule) ? g : NULL;
}

/* Forward graph and step of point k. */
static bool build_at(Describe *x, Arena *a, uint32_t k) {
    Diag d;
    Graph *f = import_at(x, a, &d, x->s.point[k]), *net = NULL, *step = NULL;
    if (f) net = simplify_forward(a, &d, f);
    if (net && !d.errors) step = train_build(a, &d, net, &x->w->loss, &x->w->opt);
    if (!step || d.errors) {
        x->why = first_line(x->a, &d, x->o->model);
        return false;
    }
    x->forward[k] = ir_copy(x->scratch, f, a);
    x->s.step[k] = ir_copy(x->a, pipeline_fuse(a, x->o, step), a);
    return true;
}

static bool stages_at(Describe *x, uint32_t k) {
    Arena *a = arena_new();
    bool ok = build_at(x, a, k);
    arena_free(a);
    return ok;
}

/* ---- one grid ---- */

static bool grid_agrees(Describe *x) {
    for (uint32_t k = 0; k < x->s.ngrid; k++) {
        TRY(stages_at(x, k));
        x->why = sizes_difference(x->a, x->forward[0], x->forward[k]);
        if (!x->why) x->why = sizes_difference(x->a, x->s.step[0], x->s.step[k]);
        TRY(!x->why);
    }
    return true;
}

/* x->why outlives the arena. */
static Graph *instance_at(Describe *x, Arena *a, const Graph *const *grid, const int64_t *at,
                          const Graph *data) {
    Graph *g = sizes_instance(a, &x->s, grid, at, data, &x->why);
    if (!g) x->why = arena_str(x->a, x->why);
    return g;
}

static Graph *step_at(Describe *x, Arena *a, const int64_t *at, const Graph *data) {
    return instance_at(x, a, x->s.step, at, data);
}

static bool is_sound(Describe *x, Arena *a, const int64_t *at) {
    Diag d;
    diag_init(&d, a, NULL);
    Graph *g = step_at(x, a, at, NULL);
    if (!g) return false;
    for (ValueId v = 0; v < g->nvalue; v++) {
        uint64_t n = 0, before = value_count(x->s.step[0], v);
        if (before && (!shape_count(&g->value[v].shape, &n) || !n)) return false;
    }
    x->why = op_check(&d, g) ? NULL : first_line(x->a, &d, x->o->model);
    return !x->why;
}

/* Does the step at these values have the shapes that inference gives it, and no empty tensor? */
static bool makes_sense(Describe *x, const int64_t *at) {
    Arena *a = arena_new();
    bool ok = is_sound(x, a, at);
    arena_free(a);
    return ok;
}

/* The model imported at a point off the grid is what the polynomials say. */
static bool import_agrees(Describe *x, Arena *a, const int64_t *at) {
    Diag d;
    Graph *f = import_at(x, a, &d, at);
    if (!f) {
        x->why = first_line(x->a, &d, x->o->model);
        return false;
    }
    x->why = sizes_difference(x->a, x->forward[0], f);
    TRY(!x->why);
    Graph *g = instance_at(x, a, x->forward, at, NULL);
    TRY(g);
    x->why = "a size is no polynomial of it";
    return ir_digest(g) == ir_digest(f);
}

static bool check_at(Describe *x, const int64_t *at) {
    Arena *a = arena_new();
    bool ok = import_agrees(x, a, at);
    arena_free(a);
    TRY(ok && makes_sense(x, at));
    uint32_t k = x->s.npoint;
    memcpy(x->s.point[k], at, sizeof x->s.point[k]);
    x->s.step[k] = step_at(x, x->a, at, NULL);
    x->s.npoint++;
    return x->s.step[k] != NULL;
}

static bool checks_hold(Describe *x) {
    for (uint32_t c = 0; c < 2; c++) {
        int64_t at[SIZES_MAX_SYMBOLS] = {0};
        for (uint32_t i = 0; i < x->s.nsym; i++)
            at[i] = x->s.sym[i].base + checks[!x->s.sym[i].batch][c];
        TRY(check_at(x, at));
    }
    return true;
}

/* ---- how far the values may go ---- */

static bool works_with(Describe *x, uint32_t symbol, int64_t value) {
    int64_t at[SIZES_MAX_SYMBOLS] = {0};
    for (uint32_t i = 0; i < x->s.nsym; i++) at[i] = x->s.sym[i].base;
    at[symbol] = value;
    return makes_sense(x, at);
}

/* The least value, and the largest where a table or a window bounds it. */
static void fill_range(Describe *x, uint32_t i) {
    SizeSymbol *s = &x->s.sym[i];
    for (s->lo = 1; s->lo < s->base && !works_with(x, i, s->lo);) s->lo++;
    s->hi = INT32_MAX;
    if (works_with(x, i, PROBE_MAX)) return;
    int64_t good = s->base + s->degree, bad = PROBE_MAX;
    while (bad - good > 1) {
        int64_t mid = good + (bad - good) / 2;
        if (works_with(x, i, mid))
            good = mid;
        else
            bad = mid;
    }
    s->hi = good;
}

/* Constants that do not repeat themselves can be cut, but not continued. */
static void bound_by_constants(Describe *x) {
    const Graph *g = x->s.step[0];
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *c = &g->value[v];
        uint32_t repeats = c->role == ROLE_CONST ? sizes_repeated_axes(c) : ~0u;
        for (uint32_t k = 0; k < c->shape.rank; k++) {
            int64_t dim[SIZES_MAX_COEFS];
            SizePoly p;
            for (uint32_t i = 0; i < x->s.ngrid; i++) dim[i] = x->s.step[i]->value[v].shape.dim[k];
            if (repeats >> k & 1 || !sizes_fit(&x->s, dim, &p)) continue;
            for (uint32_t i = 0; i < x->s.nsym; i++) {
                SizeSymbol *s = &x->s.sym[i];
                if (sizes_symbols(&x->s, &p) >> i & 1 && s->hi > s->value) s->hi = s->value;
            }
        }
    }
}

/* The compiled values themselves, with the data of the graph that was imported for use. */
static bool take_values(Describe *x, const Graph *natural, Graph **out) {
    int64_t at[SIZES_MAX_SYMBOLS] = {0};
    for (uint32_t i = 0; i < x->s.nsym; i++) at[i] = x->s.sym[i].value;
    TRY(makes_sense(x, at));
    *out = step_at(x, x->a, at, natural);
    return *out != NULL;
}

/* ---- which symbols ---- */

static bool try_symbols(Describe *x, const Graph *natural, Graph **out) {
    const char *first = NULL;
    for (uint32_t b = 0; b < BASES; b++) {
        for (uint32_t i = 0; i < x->s.nsym; i++) {
            x->s.sym[i].base = bases[i][b];
            x->s.sym[i].degree = x->s.nsym > 1 && x->s.sym[i].batch ? 1 : 2;
        }
        sizes_grid(&x->s);
        x->scratch = arena_new();
        bool holds = grid_agrees(x) && checks_hold(x);
        arena_free(x->scratch);
        if (holds && take_values(x, natural, out)) {
            for (uint32_t i = 0; i < x->s.nsym; i++) fill_range(x, i);
            bound_by_constants(x);
            return true;
        }
        if (!first) first = x->why;
    }
    x->why = first;
    return false;
}

/* A name for generated C: N for the batch, N_seq for others. */
static const char *c_name(Arena *a, const SizeSymbol *s, uint32_t number) {
    char safe[24];
    size_t n = 0;
    if (s->batch) return "N";
    for (const char *p = s->name[0]; *p && n + 1 < sizeof safe; p++) {
        bool ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (ok || (n && safe[n - 1] != '_')) safe[n++] = ok ? *p : '_';
    }
    safe[n] = 0;
    return arena_printf(a, "N%u%s%s", number, n ? "_" : "", safe);
}

/* The batch first, then the others. */
static uint32_t list_symbols(Arena *a, const OnnxInfo *info, SizeSymbol *all) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < info->nsymbol; i++) {
        if (!info->symbol_batch[i]) continue;
        if (n && (all[0].nname == SIZES_MAX_NAMES || info->symbol_size[i] != all[0].value))
            continue;
        if (!n) all[n++] = (SizeSymbol){.batch = true, .value = info->symbol_size[i]};
        all[0].name[all[0].nname++] = info->symbol[i];
    }
    for (uint32_t i = 0; i < info->nsymbol && n < SIZES_MAX_SYMBOLS; i++)
        if (!info->symbol_batch[i])
            all[n++] =
                (SizeSymbol){.nname = 1, .name = {info->symbol[i]}, .value = info->symbol_size[i]};
    for (uint32_t i = 0; i < n; i++) all[i].id = c_name(a, &all[i], i);
    return n;
}

/* All symbols, or those that can vary alone, or the first of them. */
static bool find_symbols(Describe *x, const Graph *natural, Graph **out) {
    SizeSymbol all[SIZES_MAX_SYMBOLS], free[SIZES_MAX_SYMBOLS];
    uint32_t n = list_symbols(x->a, &x->w->info, all), nfree = 0;
    memcpy(x->s.sym, all, sizeof all);
    x->s.nsym = n;
    if (try_symbols(x, natural, out)) return true;
    const char *why = x->why;
    for (uint32_t i = 0; i < n && n > 1; i++) {
        x->s.nsym = 1;
        x->s.sym[0] = all[i];
        if (try_symbols(x, natural, out)) free[nfree++] = all[i];
    }
    for (uint32_t k = nfree; k > 0; k = k > 1 ? 1 : 0) {
        memcpy(x->s.sym, free, sizeof free);
        x->s.nsym = k;
        if (try_symbols(x, natural, out)) return true;
    }
    x->why = why;
    return false;
}

void describe_sizes(Arena *a, Diag *d, const Options *o, Work *w) {
    Describe *x = ARENA_NEW(a, Describe);
    Graph *step = NULL;
    *x = (Describe){.a = a, .o = o, .w = w};
    if (!w->is_onnx || !w->info.nsymbol) {
        w->one_size = w->is_onnx ? "the dimensions of its inputs are fixed" : "it is a text graph";
        return;
    }
    if (find_symbols(x, w->step, &step)) {
        w->sizes = &x->s;
        w->step = step;
        return;
    }
    w->one_size = arena_printf(a, "with another %s, %s", diag_name(a, w->info.symbol[0]), x->why);
    if (o->verb == VERB_COMPILE)
        diag_warn(d, (Place){.file = o->model}, "the program will run at these sizes only: %s",
                  w->one_size);
}
