/* resize.c - the sizes of a run: what --batch and --dim say, and what the library's objects need on
 * this machine. A run at the compiled sizes on a machine like the compiler's reads the program's
 * own tables; any other reads a copy whose numbers the program filled in (DtrtProgram.resize,
 * .needs), with the persistent tensors laid out anew. Such a copy has no compiled schedule.
 *
 * Values are checked before anything is computed from them: each against the program's range, and
 * together against the bound that the program gives for all its numbers. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables of a copy ---- */

static Status copy_tables(const DtrtProgram *p, Sized *out) {
    out->tensor = malloc((p->ntensor + 1) * sizeof *out->tensor);
    out->storage = malloc((p->nstorage + 1) * sizeof *out->storage);
    out->node = malloc((p->nnode + 1) * sizeof *out->node);
    if (!out->tensor || !out->storage || !out->node)
        return dtrt_no_memory(p->nnode * sizeof *out->node);
    if (p->ntensor) memcpy(out->tensor, p->tensor, p->ntensor * sizeof *out->tensor);
    if (p->nstorage) memcpy(out->storage, p->storage, p->nstorage * sizeof *out->storage);
    if (p->nnode) memcpy(out->node, p->node, p->nnode * sizeof *out->node);
    out->p = *p;
    out->p.tensor = out->tensor;
    out->p.storage = out->storage;
    out->p.node = out->node;
    return ST_OK;
}

static void free_tables(Sized *s) {
    free(s->tensor);
    free(s->storage);
    free(s->node);
    *s = (Sized){0};
}

/* Bytes that a node touches. */
static double touched(const DtrtProgram *p, uint32_t i) {
    const DtrtNode *n = &p->node[i];
    double sum = 1;
    for (uint32_t k = n->first; k < n->first + n->nin + n->nout; k++)
        if (p->operand[k] >= 0) sum += (double)p->storage[p->operand[k]].bytes;
    return sum;
}

/* Times of the cost model, for the choice of what to drop: as the bytes that a node touches. */
static void scale_times(const DtrtProgram *p, Sized *s) {
    for (uint32_t i = 0; i < p->nnode; i++) {
        double ns = (double)p->node[i].ns * touched(&s->p, i) / touched(p, i);
        s->node[i].ns = ns < 1 ? 1 : ns < 0x1p60 ? (uint64_t)ns : UINT64_C(1) << 60;
    }
}

/* Places of the persistent tensors, whose bytes are those of their storages. */
static void place_tensors(Sized *s) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->p.nstorage; i++)
        if (s->storage[i].tensor >= 0) s->tensor[s->storage[i].tensor].bytes = s->storage[i].bytes;
    for (uint32_t i = 0; i < s->p.ntensor; i++) {
        s->tensor[i].offset = at;
        at += (s->tensor[i].bytes + DTRT_ALIGN - 1) / DTRT_ALIGN * DTRT_ALIGN;
    }
    s->p.persistent_bytes = at;
}

/* Everything in the copy but what the library decides. */
static Status fill_tables(const DtrtProgram *p, Sized *s) {
    Status st = copy_tables(p, s);
    if (st) return st;
    if (p->nsymbol) p->resize(s->dim, s->tensor, s->storage, s->node, s->p.logits_dim);
    int64_t axis = p->class_axis < 0 ? p->class_axis + p->logits_rank : p->class_axis;
    if (p->nclass > 0 && axis >= 0 && axis < p->logits_rank) s->p.nclass = s->p.logits_dim[axis];
    place_tensors(s);
    scale_times(p, s);
    return ST_OK;
}

/* ---- the values ---- */

static const char *symbol_text(const DtrtSymbol *s) {
    return s->batch ? "--batch" : dtrt_name_str(s->name[0]);
}

/* The symbol that a dimension's name stands for; -1: none. */
static int find_symbol(const DtrtProgram *p, const char *name, size_t n) {
    for (uint32_t i = 0; i < p->nsymbol; i++)
        for (int k = 0; k < 4 && p->symbol[i].name[k]; k++)
            if (strlen(p->symbol[i].name[k]) == n && !strncmp(p->symbol[i].name[k], name, n))
                return (int)i;
    return -1;
}

static int batch_symbol(const DtrtProgram *p) {
    for (uint32_t i = 0; i < p->nsymbol; i++)
        if (p->symbol[i].batch) return (int)i;
    return -1;
}

static Status refuse(const DtrtProgram *p, const char *what) {
    dtrt_error("%s: this program was compiled for batch %" PRId64 " and has no other sizes: %s",
               what, dtrt_program_batch(p),
               p->one_size && *p->one_size ? p->one_size : "the model does not let it vary");
    dtrt_hint("compile the model again for that size");
    return ST_USAGE;
}

static Status unknown(const DtrtProgram *p, const char *what) {
    dtrt_error("%s: no dimension of that name may have another size", what);
    for (uint32_t i = 0; i < p->nsymbol; i++)
        dtrt_hint("%s may, from %" PRId64 " to %" PRId64, dtrt_name_str(p->symbol[i].name[0]),
                  p->symbol[i].lo, p->symbol[i].hi);
    return ST_USAGE;
}

static Status set_value(const DtrtProgram *p, int symbol, int64_t v, const char *what,
                        int64_t *dim) {
    const DtrtSymbol *s = &p->symbol[symbol];
    if (v >= s->lo && v <= s->hi) {
        dim[symbol] = v;
        return ST_OK;
    }
    dtrt_error("%s %" PRId64 ": expected a number from %" PRId64 " to %" PRId64, what, v, s->lo,
               s->hi);
    if (s->hi < INT32_MAX && v > s->hi)
        dtrt_hint("a tensor of the model, such as a table of positions, has no more places");
    return ST_USAGE;
}

/* Two options that name one dimension must agree. */
static Status set_once(const DtrtProgram *p, int symbol, int64_t v, const char *what, int64_t *dim,
                       bool *given) {
    if (given[symbol] && dim[symbol] != v) {
        dtrt_error("%s %" PRId64 ": another option says %" PRId64 " for the same dimension", what,
                   v, dim[symbol]);
        return ST_USAGE;
    }
    given[symbol] = true;
    return set_value(p, symbol, v, what, dim);
}

static Status read_dims(const Runtime *rt, int64_t *dim) {
    const DtrtProgram *p = rt->p;
    const Options *o = &rt->o;
    bool given[MAX_SYMBOLS] = {0};
    for (uint32_t i = 0; i < p->nsymbol; i++) dim[i] = p->symbol[i].value;
    for (uint32_t i = 0; i < o->ndim; i++) {
        const char *text = o->dim[i].text;
        int k = find_symbol(p, text, (size_t)(strrchr(text, '=') - text));
        char what[160];
        snprintf(what, sizeof what, "--dim %s", dtrt_name_str(k < 0 ? text : p->symbol[k].name[0]));
        if (k < 0) return p->nsymbol ? unknown(p, what) : refuse(p, what);
        Status st = set_once(p, k, o->dim[i].value, what, dim, given);
        if (st) return st;
    }
    int batch = batch_symbol(p);
    if (!o->batch || (batch < 0 && o->batch == dtrt_program_batch(p))) return ST_OK;
    if (batch >= 0) return set_once(p, batch, o->batch, "--batch", dim, given);
    char what[64];
    snprintf(what, sizeof what, "--batch %" PRId64, o->batch);
    return refuse(p, what);
}

/* No product of these values is near the end of 64 bits. */
static Status check_bound(const DtrtProgram *p, const int64_t *dim) {
    double most = p->nsymbol ? p->largest(dim) : 0;
    if (most < 0x1p61) return ST_OK;
    dtrt_error("a step of this size (%s %" PRId64 ") has some %.3g bytes of tensors",
               symbol_text(&p->symbol[0]), dim[0], most);
    return ST_BUDGET;
}

static bool is_compiled(const DtrtProgram *p, const int64_t *dim) {
    for (uint32_t i = 0; i < p->nsymbol; i++)
        if (dim[i] != p->symbol[i].value) return false;
    return true;
}

/* ---- the batch ------------------------------------------------------------------------------ */

/* No schedule exists below this: the tensors of one node and the persistent ones. */
static uint64_t least_bytes(const DtrtProgram *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->nnode; i++) {
        const DtrtNode *n = &p->node[i];
        uint64_t in = 0, out = 0;
        for (uint32_t k = 0; k < n->nin + n->nout; k++) {
            int32_t s = p->operand[n->first + k];
            if (s < 0 || p->storage[s].tensor >= 0) continue;
            uint64_t *sum = k < n->nin ? &in : &out;
            bool again = false;
            for (uint32_t j = 0; j < k; j++) again |= p->operand[n->first + j] == s;
            if (!again) *sum += p->storage[s].bytes;
        }
        uint64_t node = n->inplace ? (in > out ? in : out) : in + out;
        most = node > most ? node : most;
    }
    return p->persistent_bytes + most;
}

static uint64_t limit_of(const Runtime *rt) {
    return rt->o.budget ? rt->o.budget : rt->p->budget_bytes;
}

Status dtrt_sizes_open(Runtime *rt) {
    Sized *s = &rt->size[0];
    rt->compiled = rt->p;
    rt->ctx.dim = s->dim;
    Status st = read_dims(rt, s->dim);
    if (!st) st = check_bound(rt->p, s->dim);
    if (!st) st = fill_tables(rt->p, s);
    if (st || is_compiled(rt->p, s->dim)) return st;
    const char *only = rt->o.check_grad ? "--check-grad" : rt->o.profile ? "--profile" : NULL;
    if (only) {
        dtrt_error("%s is for the sizes that the program was compiled for", only);
        return ST_USAGE;
    }
    rt->p = &s->p;
    s->p.plan = (DtrtSchedule){0};
    uint64_t least = least_bytes(rt->p), limit = limit_of(rt);
    if (!limit || least <= limit) return ST_OK;
    dtrt_error("with %s %" PRId64 " no schedule exists below %" PRIu64
               " bytes, and the budget is %" PRIu64,
               symbol_text(&rt->p->symbol[0]), s->dim[0], least, limit);
    dtrt_hint("give a larger --budget, or a smaller size");
    return ST_BUDGET;
}

/* Does a schedule that was made for the numbers of `of` hold for those of p too? */
static bool fits(const DtrtProgram *p, const DtrtProgram *of) {
    for (uint32_t i = 0; i < p->nstorage; i++)
        if (p->storage[i].bytes > of->storage[i].bytes) return false;
    for (uint32_t i = 0; i < p->nnode; i++)
        if (p->node[i].workspace > of->node[i].workspace) return false;
    return true;
}

/* Makes the library's objects for the sizes in use and takes what they need into the tables. */
static Status open_library(Runtime *rt, Sized *s) {
    uint64_t before = dtrt_taken_bytes(rt);
    dtrt_fence(true);
    bool made = !rt->compiled->init || rt->compiled->init(&rt->ctx);
    dtrt_fence(false);
    if (!made) {
        dtrt_error("the library's objects could not be created");
        return ST_MACHINE;
    }
    uint64_t after = dtrt_taken_bytes(rt);
    rt->library_bytes += after > before ? after - before : 0;
    if (rt->compiled->needs) rt->compiled->needs(&rt->ctx, s->storage, s->node);
    return ST_OK;
}

Status dtrt_sizes_needs(Runtime *rt) {
    Sized *s = &rt->size[0];
    Status st = open_library(rt, s);
    if (st) return st;
    place_tensors(s);
    bool same = is_compiled(rt->compiled, s->dim);
    if (same && fits(&s->p, rt->compiled)) {
        rt->p = rt->compiled;
        return ST_OK;
    }
    rt->p = &s->p;
    s->p.plan = (DtrtSchedule){0};
    const DtrtSymbol *y = rt->compiled->symbol;
    uint32_t k = 0;
    while (!same && s->dim[k] == y[k].value) k++; /* the first that is not as compiled */
    if (same)
        snprintf(rt->why_resized, sizeof rt->why_resized,
                 "the library needs more workspace here than was planned");
    else
        snprintf(rt->why_resized, sizeof rt->why_resized,
                 "%s is %" PRId64 ", compiled for %" PRId64,
                 y[k].batch ? "the batch" : dtrt_name_str(y[k].name[0]), s->dim[k], y[k].value);
    return ST_OK;
}

/* ---- constants ------------------------------------------------------------------------------ */

static bool same_dims(const DtrtTensor *x, const DtrtTensor *y, int from) {
    for (int i = from; i < x->rank; i++)
        if (x->dim[i] != y->dim[i]) return false;
    return true;
}

bool dtrt_is_resized(const Runtime *rt, uint32_t tensor) {
    return !same_dims(&rt->p->tensor[tensor], &rt->compiled->tensor[tensor], 0);
}

/* Element k of t in the compiled tensor. Past its end the contents repeat: the program's range is
 * bounded for constants that do not. */
static uint64_t source_of(const DtrtTensor *t, const DtrtTensor *compiled, uint64_t k) {
    uint64_t at = 0, step = 1;
    for (int i = t->rank; i-- > 0;) {
        uint64_t x = k % (uint64_t)t->dim[i], have = (uint64_t)compiled->dim[i];
        k /= (uint64_t)t->dim[i];
        at += (x < have || !have ? x : x % have) * step;
        step *= have;
    }
    return at;
}

Status dtrt_constant_load(Runtime *rt, uint32_t tensor, uint8_t *to) {
    const DtrtTensor *t = &rt->p->tensor[tensor], *c = &rt->compiled->tensor[tensor];
    uint64_t n = dtrt_tensor_count(t), size = dtrt_type_bytes(t->type);
    if (c->file_bytes != dtrt_tensor_plain_bytes(c)) {
        dtrt_error("%s: %" PRIu64 " bytes of initial values, expected %" PRIu64,
                   dtrt_name_str(c->name), c->file_bytes, dtrt_tensor_plain_bytes(c));
        return ST_DATA;
    }
    uint8_t *file = malloc(c->file_bytes);
    if (!file) return dtrt_no_memory(c->file_bytes);
    Status st = dtrt_payload_read(rt, c->file_offset, file, c->file_bytes);
    for (uint64_t k = 0; k < n && !st; k++)
        memcpy(to + k * size, file + source_of(t, c, k) * size, size);
    free(file);
    return st;
}

/* The constants of a smaller batch must be where those of the batch are: its first rows. */
static bool shares_constants(const DtrtProgram *p, const DtrtProgram *of) {
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        int first = 0; /* axis of the rows */
        while (first < t->rank && of->tensor[i].dim[first] == 1) first++;
        if (t->role == DTRT_CONST && !same_dims(t, &of->tensor[i], first + 1)) return false;
    }
    return true;
}

/* ---- the last batch of an epoch -------------------------------------------------------------- */

/* Samples lie along axis 0 of all data. */
static bool has_rows(const DtrtProgram *p, uint64_t rows) {
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if (t->role != DTRT_INPUT && t->role != DTRT_TARGET) continue;
        if (!t->rank || t->dim[0] != (int64_t)rows) return false;
    }
    return true;
}

static void same_places(const DtrtProgram *of, Sized *s) {
    for (uint32_t i = 0; i < of->ntensor; i++) s->tensor[i].offset = of->tensor[i].offset;
    s->p.persistent_bytes = of->persistent_bytes;
}

/* Why a batch of so many rows cannot be trained; NULL when it can. */
static const char *why_no_tail(const Runtime *rt, uint64_t rows) {
    const DtrtProgram *p = rt->compiled;
    int batch = batch_symbol(p);
    if (batch < 0) return p->one_size && *p->one_size ? p->one_size : "the batch is fixed";
    if ((int64_t)rows < p->symbol[batch].lo) return "the model needs larger ones";
    return NULL;
}

static void leave_out(uint64_t rows, const char *why) {
    dtrt_note("the last %" PRIu64 " samples of an epoch are left out: %s", rows, why);
}

/* The schedule of the batch serves the smaller one too, at the same addresses, unless a kernel has
 * a form for few rows that needs more workspace. */
static Status schedule_tail(Runtime *rt, uint64_t rows) {
    const DtrtProgram *p = &rt->size[1].p;
    rt->tail = true;
    if (fits(p, rt->p)) return ST_OK;
    Status st = dtrt_dynamic_make(p, rt->block_bytes, rt->o.heuristic, &rt->tail_dynamic);
    rt->stage[1].s = &rt->tail_dynamic.schedule;
    if (st != ST_BUDGET) return st;
    rt->tail = false;
    leave_out(rows, "no schedule was found for them in this memory");
    return ST_OK;
}

Status dtrt_sizes_tail(Runtime *rt, uint64_t rows) {
    Sized *s = &rt->size[1];
    const char *why = why_no_tail(rt, rows);
    if (why) {
        leave_out(rows, why);
        return ST_OK;
    }
    memcpy(s->dim, rt->size[0].dim, sizeof s->dim);
    s->dim[batch_symbol(rt->compiled)] = (int64_t)rows;
    Status st = fill_tables(rt->compiled, s);
    if (st) return st;
    if (!shares_constants(&s->p, rt->p)) {
        leave_out(rows, "a constant of the model is laid out otherwise for them");
        return ST_OK;
    }
    if (!has_rows(&s->p, rows)) {
        leave_out(rows, "not all inputs have the batch on their first axis");
        return ST_OK;
    }
    same_places(rt->p, s);
    rt->stage[1] = (Stage){.p = &s->p, .s = rt->s};
    dtrt_step_use(rt, 1);
    st = open_library(rt, s);
    dtrt_step_use(rt, 0);
    return st ? st : schedule_tail(rt, rows);
}

void dtrt_sizes_free(Runtime *rt) {
    for (int i = 0; i < 2; i++) free_tables(&rt->size[i]);
}
