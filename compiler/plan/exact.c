/* exact.c - windows of a schedule solved exactly, as a move of local search.
 *
 * The stage-point model (stages.c) of the whole step, with points where the schedule fills the
 * capacity. The schedule itself is a solution of it. Most columns are fixed at what it does: what
 * is held across a point stays held, and nothing runs again that does not. Free are the storages
 * and reruns of a few runs, a stretch of layers or two, at all points; reruns of others may vanish.
 * GLPK looks for a solution that costs less. What it finds is carried out on the timeline: the
 * reruns of the free runs go, what the solution does not keep at a point is dropped across it, and
 * made again as the solution says. Where that is over the capacity, the place becomes a point and
 * the program is solved again; repair does the rest. The result is taken when it is cheaper.
 *
 * Large neighbourhoods searched exactly in place of greedy repair: Shaw, CP 1998; Danna, Rothberg,
 * Le Pape, "Exploring relaxation induced neighborhoods to improve MIP solutions", Mathematical
 * Programming 102, 2005 (columns fixed at the incumbent). What is fixed here are runs, not columns
 * by chance, because the model has a row for memory at few points only. */
#include "exact.h"

#include "stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    POINTS = 14,       /* at most, to begin with */
    MORE_POINTS = 4,   /* added where a solution does not fit */
    FEWEST = 24,       /* runs of a window, */
    MORE = 36,         /* and up to that many more */
    ITERATIONS = 4000, /* of the simplex method, per program */
    IN_VAIN = 60,      /* windows without a gain that end the search */
    MEMORY_MIB = 512,
    REPAIRS = 200, /* drops that repair may do */
    /* Elementary steps, some 10 ns each, that a column and an iteration take. */
    COLUMN_WORK = 12,
    ITERATION_WORK = 15000
};

typedef struct {
    Mender *m;
    const Problem *p;
    uint32_t point[POINTS + MORE_POINTS], npoint;
    bool *is_free; /* per run */
    bool *reruns;  /* per run: the schedule runs it again */
    Numbers pool;  /* runs whose storages live long, ascending */
    uint64_t work;
} Exact;

/* ---- the program ---- */

/* Is storage x, made before, held across item `at`? */
static bool is_held(const Timeline *t, StorageId x, uint32_t at, bool after) {
    uint32_t l = timeline_serving(t, x, at);
    if (l == NO_ID) return false;
    uint64_t key = timeline_key(t, at), to = t->life.at[l].to_key;
    return after ? to > key : to >= key;
}

static void bound(Mip *m, uint32_t column, double low, double high) {
    if (column == MIP_ZERO || column == MIP_ONE) return;
    m->column.at[column].low = low;
    m->column.at[column].high = high;
}

/* What is held at point j stays held, what is not stays away; if its maker runs again it may go,
 * since nobody may need it any more. */
static void bound_storages(const Exact *x, const Stages *s, uint32_t j) {
    const Problem *p = x->p;
    uint32_t at = x->m->t->first[s->point[j]];
    for (StorageId k = 0; k < p->nstorage; k++) {
        uint32_t maker = p->def[k], held = s->held[(size_t)j * p->nstorage + k],
                 after = stages_after(s, j, k);
        if (maker == NO_ID || x->is_free[maker]) continue;
        bool now = is_held(x->m->t, k, at, false), later = is_held(x->m->t, k, at, true);
        bound(s->mip, held, now && !x->reruns[maker], now);
        if (after != held) bound(s->mip, after, later && !x->reruns[maker], later);
    }
}

/* The segment in which the item stands: 0 before the first point. */
static uint32_t segment_of(const Exact *x, uint32_t item) {
    const Timeline *t = x->m->t;
    uint64_t key = timeline_key(t, item);
    uint32_t j = 0;
    while (j < x->npoint && timeline_key(t, t->first[x->point[j]]) < key) j++;
    return j;
}

/* Runs that do not happen again in a segment stay so. Returns what the schedule's own reruns cost
 * in the program. */
static double bound_runs(const Exact *x, const Stages *s) {
    const Timeline *t = x->m->t;
    const Problem *p = x->p;
    Arena *a = arena_new();
    bool *runs = ARENA_ARRAY(a, bool, (uint64_t)s->npoint * p->nrun);
    for (uint32_t i = 0; i < t->again.n; i++) {
        uint32_t j = segment_of(x, t->again.at[i]);
        if (j) runs[(size_t)(j - 1) * p->nrun + t->item.at[t->again.at[i]].run] = true;
    }
    double cost = 0;
    for (size_t k = 0; k < (size_t)s->npoint * p->nrun; k++) {
        uint32_t c = s->again[k];
        if (c == MIP_ZERO) continue;
        if (runs[k]) cost += s->mip->column.at[c].cost;
        if (!runs[k] && !x->is_free[k % p->nrun]) bound(s->mip, c, 0, 0);
    }
    arena_free(a);
    return cost;
}

/* ---- a solution carried out ---- */

static void take_free_out(Exact *x, Arena *a) {
    Timeline *t = x->m->t;
    uint32_t n = t->again.n, *list = ARENA_ARRAY(a, uint32_t, (uint64_t)n + 1);
    memcpy(list, t->again.at, n * sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        const Item *it = &t->item.at[list[i]];
        if (it->there && !it->first && x->is_free[it->run]) mend_take_out(x->m, list[i]);
    }
}

static bool is_on(const double *value, uint32_t column) {
    return column == MIP_ONE || (column != MIP_ZERO && value[column] > 0.5);
}

/* What is held across point j and should not be, dropped. */
static bool drop_at_point(Exact *x, const Stages *s, const double *value, uint32_t j,
                          bool *const *again) {
    Mender *m = x->m;
    const Timeline *t = m->t;
    const Problem *p = x->p;
    uint32_t at = t->first[s->point[j]];
    for (StorageId k = 0; k < p->nstorage; k++) {
        uint32_t maker = p->def[k], column = stages_after(s, j, k);
        if (maker == NO_ID || !x->is_free[maker] || column == MIP_ONE || is_on(value, column) ||
            maker >= s->point[j] || !is_held(t, k, at, true))
            continue;
        uint32_t life = timeline_serving(t, k, at), i = 0;
        const Life *l = &t->life.at[life];
        while (timeline_key(t, l->uses.at[i]) <= timeline_key(t, at)) i++;
        uint32_t q = segment_of(x, l->uses.at[i]);
        m->rerun = again[q ? q - 1 : 0];
        m->rerun_after = t->first[s->point[q ? q - 1 : 0]];
        bool ok = mend_drop(m, life, at);
        m->rerun = NULL;
        if (!ok) return false;
    }
    return true;
}

static bool carry_out(Exact *x, Arena *a, const Stages *s, const double *value) {
    const Problem *p = x->p;
    bool **again = ARENA_ARRAY(a, bool *, s->npoint);
    for (uint32_t j = 0; j < s->npoint; j++) {
        again[j] = ARENA_ARRAY(a, bool, p->nrun);
        for (uint32_t r = 0; r < p->nrun; r++)
            again[j][r] = is_on(value, s->again[(size_t)j * p->nrun + r]);
    }
    take_free_out(x, a);
    for (uint32_t j = 0; j < s->npoint; j++)
        if (!drop_at_point(x, s, value, j, again)) return false;
    mend_reduce(x->m, BY_DENSITY);
    return true;
}

/* ---- points ---- */

static bool add_point(Exact *x, uint32_t run) {
    uint32_t i = x->npoint;
    if (i == POINTS + MORE_POINTS) return false;
    for (uint32_t k = 0; k < i; k++)
        if (x->point[k] == run) return false;
    for (; i > 0 && x->point[i - 1] > run; i--) x->point[i] = x->point[i - 1];
    x->point[i] = run;
    x->npoint++;
    return true;
}

typedef VEC(uint32_t) Runs;

/* Of a list n entries, spread evenly. */
static void add_some(Exact *x, const Runs *list, uint32_t n) {
    for (uint32_t i = 0; i < n && list->n; i++) add_point(x, list->at[(uint64_t)i * list->n / n]);
}

/* First runs before which, or at which, the schedule nearly fills the capacity, and first runs
 * before reruns. The very first one is among them: reruns before the first point, and a second
 * rerun between two points, cost nothing in the program. */
static void choose_points(Exact *x) {
    const Timeline *t = x->m->t;
    const Problem *p = x->p;
    Arena *a = arena_new();
    Runs full = {0}, before = {0};
    uint32_t last = NO_ID;
    int64_t most = 0;
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i)) {
        const Item *it = &t->item.at[i];
        int64_t bytes = timeline_bytes_at(t, i);
        if (!it->first && last != NO_ID) VEC_PUSH(a, before, last);
        most = bytes > most ? bytes : most;
        if (it->run == p->nrun || !it->first || p->effect[it->run]) continue;
        last = it->run;
        if (most >= x->m->capacity / 100 * 97) VEC_PUSH(a, full, last);
        most = 0;
    }
    x->npoint = 0;
    add_some(x, &before, POINTS / 2);
    add_some(x, &full, POINTS - x->npoint);
    arena_free(a);
}

/* The first run before which, or at which, the timeline is most over the capacity. */
static uint32_t worst_run(const Exact *x) {
    const Timeline *t = x->m->t;
    const Problem *p = x->p;
    int64_t most = x->m->capacity, here = 0;
    uint32_t worst = NO_ID;
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i)) {
        const Item *it = &t->item.at[i];
        int64_t bytes = timeline_bytes_at(t, i);
        here = bytes > here ? bytes : here;
        if (it->run == p->nrun || !it->first || p->effect[it->run]) continue;
        if (here > most) most = here, worst = it->run;
        here = 0;
    }
    return worst;
}

/* ---- moves ---- */

static void fill_pool(Exact *x, Arena *a) {
    const Timeline *t = x->m->t;
    const Problem *p = x->p;
    bool *in = ARENA_ARRAY(a, bool, p->nrun);
    for (uint32_t w = 0; w < t->wide.n; w++)
        if (!p->effect[p->def[t->wide.at[w]]]) in[p->def[t->wide.at[w]]] = true;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (in[r]) VEC_PUSH(a, x->pool, r);
}

static void free_stretch(Exact *x, uint32_t n) {
    uint32_t from = mend_random(x->m, x->pool.n);
    for (uint32_t i = from; i < x->pool.n && n; i++, n--) x->is_free[x->pool.at[i]] = true;
}

/* One stretch, two, or runs at random. */
static void choose_free(Exact *x) {
    uint32_t n = FEWEST + mend_random(x->m, MORE);
    memset(x->is_free, 0, x->p->nrun * sizeof *x->is_free);
    switch (mend_random(x->m, 3)) {
    case 0: free_stretch(x, n); break;
    case 1:
        free_stretch(x, n / 2);
        free_stretch(x, n / 2);
        break;
    default:
        for (uint32_t i = 0; i < n; i++)
            x->is_free[x->pool.at[mend_random(x->m, x->pool.n)]] = true;
    }
    memset(x->reruns, 0, x->p->nrun * sizeof *x->reruns);
    const Timeline *t = x->m->t;
    for (uint32_t i = 0; i < t->again.n; i++) x->reruns[t->item.at[t->again.at[i]].run] = true;
}

/* Solves once and carries the solution out. False: nothing cheaper. */
static bool solve(Exact *x, Arena *a) {
    const Timeline *t = x->m->t;
    double extra = (double)t->cost_ns - (double)x->p->base_ns;
    Stages *s = stages_new(a, x->p, (uint64_t)x->m->capacity, x->point, x->npoint, extra);
    for (uint32_t j = 0; j < s->npoint; j++) bound_storages(x, s, j);
    double now = bound_runs(x, s), step = floor((double)x->p->base_ns * 1e-5) + 1;
    MipOptions o = {.seconds = INFINITY,
                    .cutoff = now - step / s->unit,
                    .memory_mib = MEMORY_MIB,
                    .iterations = ITERATIONS,
                    .cuts = true};
    MipResult r;
    mip_solve(a, s->mip, &o, &r);
    x->work += (uint64_t)s->mip->column.n * COLUMN_WORK + r.iterations * ITERATION_WORK;
    return r.has_value && carry_out(x, a, s, r.value);
}

/* What was carried out is over the capacity: repaired, if that leaves it cheaper. */
static bool repair(Exact *x, uint64_t before) {
    Mender *m = x->m;
    m->order = AT_PEAK;
    m->noise = 0;
    m->extend = true;
    if (!mend(m, before + (before - x->p->base_ns) / 4, REPAIRS)) return false;
    mend_reduce(m, BY_DENSITY);
    return m->t->cost_ns < before;
}

/* True: the timeline has become cheaper. Else it is somewhere else. */
static bool move(Exact *x, const Sequence *from) {
    const Timeline *t = x->m->t;
    uint64_t before = t->cost_ns;
    choose_free(x);
    choose_points(x);
    for (int i = 0; i <= MORE_POINTS && x->npoint; i++) {
        Arena *a = arena_new();
        bool ok = solve(x, a);
        arena_free(a);
        if (!ok || t->cost_ns >= before) return false;
        if (timeline_peak(t) <= x->m->capacity) return true;
        uint32_t worst = worst_run(x);
        if (repair(x, before)) return true;
        if (worst == NO_ID || !add_point(x, worst)) return false;
        timeline_restore(x->m->t, from);
    }
    return false;
}

void exact_improve(Mender *m, uint64_t work) {
    const Problem *p = m->t->p;
    Arena *a = arena_new();
    Exact x = {.m = m, .p = p};
    x.is_free = ARENA_ARRAY(a, bool, p->nrun);
    x.reruns = ARENA_ARRAY(a, bool, p->nrun);
    fill_pool(&x, a);
    Sequence best = timeline_save(a, m->t);
    for (uint32_t vain = 0; x.pool.n && x.work < work && vain < IN_VAIN; vain++) {
        timeline_forget(m->t);
        if (move(&x, &best)) {
            best = timeline_save(a, m->t);
            vain = 0;
        } else {
            timeline_restore(m->t, &best);
        }
    }
    arena_free(a);
}
