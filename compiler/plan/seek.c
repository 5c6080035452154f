/* seek.c - starts for local search. No single way to make a schedule wins on all graphs: what the
 * minimum cut at the worst moment keeps (cut.h; often within a tenth of a point of the optimum when
 * one moment decides), greedy repair of the base order in four orders, and whatever the caller
 * offers, such as the plans of the DTR family. */
#include "seek.h"

#include "chain.h"
#include "exact.h"
#include "peaks.h"
#include "search.h"

#include <string.h>

/* Repair gives up past this many times the base time; sooner on graphs of many runs. Chains may
 * cost more again when nothing else works. */
enum { THRASH = 8, QUICK_THRASH = 4, LARGE = 1000, CHAIN_THRASH = 4 };

/* Starts may recompute that many times more than the best one so far, before they are reduced, and
 * than a part of the base time. */
enum { DETOUR = 8, DETOUR_LEAST = 50 };

/* Iterated cuts: how many, on graphs of how many runs at most, and how much later runs cost more.
 */
enum { PEAKS = 60, PEAKS_RUNS = 4000 };
#define PEAKS_LEAN 0.02

/* Heats of local search, see search.h. */
#define COOL 0.06
#define HOT 0.5

Seek *seek_new(Arena *a, const Problem *p, int64_t capacity, bool quick) {
    Seek *x = ARENA_NEW(a, Seek);
    uint64_t most = quick && p->nrun > LARGE ? QUICK_THRASH : THRASH;
    *x = (Seek){.p = p, .a = a, .quick = quick, .t = timeline_new(a, p), .kept_arena = arena_new()};
    x->m = mender_new(a, x->t, capacity);
    x->cost_limit = p->base_ns < UINT64_MAX / most ? p->base_ns * most : UINT64_MAX;
    return x;
}

void seek_free(Seek *x) {
    arena_free(x->kept_arena);
}

void seek_capacity(Seek *x, int64_t capacity) {
    x->m->capacity = capacity;
    x->n = 0;
}

/* Remembers the timeline as it is. */
static void remember(Seek *x) {
    uint32_t at = x->n;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->kept[i].cost_ns == x->t->cost_ns) return;
    while (at > 0 && x->kept[at - 1].cost_ns > x->t->cost_ns) at--;
    if (at == SEEK_KEPT) return;
    if (x->n < SEEK_KEPT) x->n++;
    memmove(x->kept + at + 1, x->kept + at, (x->n - 1 - at) * sizeof *x->kept);
    x->kept[at] = timeline_save(x->kept_arena, x->t);
}

static void reduce_and_remember(Seek *x) {
    mend_reduce(x->m, BY_DENSITY);
    timeline_forget(x->t);
    remember(x);
}

/* What a start may cost on its way, before it is reduced: once a schedule is known, some times the
 * recomputation of that. */
static uint64_t cost_limit(const Seek *x) {
    uint64_t base = x->p->base_ns, known = x->n ? x->kept[0].cost_ns : x->known_ns;
    if (known < base) return x->cost_limit;
    uint64_t more = known - base + base / DETOUR_LEAST;
    if (more > (UINT64_MAX - base) / DETOUR) return x->cost_limit;
    return base + DETOUR * more < x->cost_limit ? base + DETOUR * more : x->cost_limit;
}

/* Repairs and reduces the timeline as it is. */
static bool finish(Seek *x) {
    Mender *m = x->m;
    uint32_t steps = x->quick ? 2 * x->p->nrun + 500 : 10 * x->p->nrun + 1000;
    m->noise = 0;
    m->extend = true;
    m->price = 0;
    if (!mend(m, cost_limit(x), steps)) return false;
    reduce_and_remember(x);
    return true;
}

bool seek_offer(Seek *x, const Sequence *s) {
    timeline_restore(x->t, s);
    x->m->order = AT_PEAK;
    if (timeline_peak(x->t) > x->m->capacity) return finish(x);
    reduce_and_remember(x); /* also when it costs more than the limit: less afterwards, perhaps */
    return true;
}

/* What the cut at the worst moment keeps. Repeated layers tie: at the price where one of them is
 * dropped all are. Times that lean a little to either end of the step break the ties in order. */
static void start_from_cuts(Seek *x) {
    static const double lean[] = {0, -0.02, 0.02, 0.1};
    Arena *a = arena_new();
    const Problem *p = x->p;
    uint64_t capacity = (uint64_t)x->m->capacity;
    CutBound b;
    cut_bound(a, p, capacity, &b);
    x->impossible = !b.feasible;
    x->least_ns = b.feasible ? b.value : 0;
    CutPoint at;
    bool any = b.feasible && b.run != NO_ID && cut_base_point(a, p, b.run, capacity, &at);
    Cut *cut = any ? cut_new(a, p) : NULL;
    double *ns = ARENA_ARRAY(a, double, p->nrun);
    for (uint32_t i = 0; any && i < sizeof lean / sizeof *lean && !(x->quick && x->n); i++) {
        CutResult r;
        Sequence s;
        for (uint32_t k = 0; k < p->nrun; k++)
            ns[k] = (double)p->ns[k] * (1 + lean[i] * (double)k / p->nrun);
        at.ns = ns;
        cut_solve(cut, &at, &r);
        if (r.feasible && sequence_keep(a, p, b.run, r.keep, &s)) seek_offer(x, &s);
    }
    arena_free(a);
}

/* A cut where the peak is, at the first or at the last place over the capacity, and repair for the
 * rest; or one cut after the other. */
static void start_from_peaks(Seek *x) {
    static const MendOrder orders[] = {AT_PEAK, AT_FIRST, AT_LAST};
    enum { NORDER = sizeof orders / sizeof *orders };
    Arena *a = arena_new();
    Sequence base = sequence_base(a, x->p);
    Cut *cut = cut_new(a, x->p);
    double *ns = ARENA_ARRAY(a, double, x->p->nrun);
    for (uint32_t k = 0; k < x->p->nrun; k++)
        ns[k] = (double)x->p->ns[k] * (1 + PEAKS_LEAN * (double)k / x->p->nrun);
    for (uint32_t i = 0; i < 2 * NORDER; i++) {
        timeline_restore(x->t, &base);
        x->m->order = orders[i % NORDER];
        peaks_cut(x->m, cut, ns, cost_limit(x), i < NORDER ? 1 : PEAKS);
        x->m->order = AT_PEAK;
        finish(x);
    }
    arena_free(a);
}

/* Where the step is a chain, the best schedule for chains; a little more than the capacity may do,
 * since it counts carefully. */
static void start_from_chain(Seek *x) {
    static const uint64_t percent[] = {0, 4, 9};
    Arena *a = arena_new();
    const Chain *c = chain_new(a, x->p);
    uint64_t capacity = (uint64_t)x->m->capacity;
    const Rotor *r = c ? rotor_new(a, c, capacity) : NULL;
    uint64_t most = cost_limit(x);
    if (!x->n && most < UINT64_MAX / CHAIN_THRASH) most *= CHAIN_THRASH;
    double before = 0;
    for (uint32_t i = 0; r && i < sizeof percent / sizeof *percent && !(x->quick && x->n); i++) {
        uint64_t bytes = capacity + capacity * percent[i] / 100;
        double ns = rotor_cost(r, bytes);
        Sequence s;
        if (ns == before || !rotor_schedule(a, r, bytes, most, &s)) continue;
        before = ns;
        seek_offer(x, &s);
    }
    arena_free(a);
}

/* Where dropping one by one leads nowhere. */
static void start_lean(Seek *x) {
    static const uint64_t part[] = {8, 32, 0};
    Arena *a = arena_new();
    for (uint32_t i = 0; i < sizeof part / sizeof *part && !x->n; i++) {
        Sequence s;
        uint64_t small = part[i] ? (uint64_t)x->m->capacity / part[i] : 0;
        if (sequence_lean(a, x->p, small, &s)) seek_offer(x, &s);
    }
    arena_free(a);
}

static void start_from_repair(Seek *x) {
    static const MendOrder orders[] = {AT_PEAK, AT_FIRST, AT_LAST, AT_RANDOM};
    Arena *a = arena_new();
    Sequence base = sequence_base(a, x->p);
    for (uint32_t i = 0; i < sizeof orders / sizeof *orders && !(x->quick && x->n); i++) {
        timeline_restore(x->t, &base);
        x->m->order = orders[i];
        finish(x);
    }
    arena_free(a);
}

void seek_start(Seek *x, SeekStart kind) {
    switch (kind) {
    case START_REPAIR:
        start_from_cuts(x);
        if (!x->impossible) start_from_repair(x);
        break;
    case START_CHAIN: start_from_chain(x); break;
    default: start_lean(x);
    }
}

void seek_starts(Seek *x) {
    seek_start(x, START_REPAIR);
    if (x->impossible) return;
    seek_start(x, START_CHAIN);
    if (x->p->nrun <= PEAKS_RUNS) start_from_peaks(x);
    if (!x->n) seek_start(x, START_LEAN);
}

static void climb(Seek *x, const Sequence *from, uint64_t work, double heat) {
    timeline_restore(x->t, from);
    search_improve(x->m, work, heat);
    remember(x);
}

/* Half of the work from all starts, half on from the best that came of it. */
void seek_search(Seek *x, uint64_t work) {
    uint32_t n = x->n;
    Sequence start[SEEK_KEPT];
    memcpy(start, x->kept, n * sizeof *start);
    for (uint32_t i = 0; i < n; i++) climb(x, &start[i], work / 2 / n, COOL);
    if (n) climb(x, &x->kept[0], work / 2, COOL);
}

void seek_search_hot(Seek *x, uint64_t work) {
    if (x->n) climb(x, &x->kept[0], work, HOT);
}

void seek_exact(Seek *x, uint64_t work) {
    if (!x->n) return;
    timeline_restore(x->t, &x->kept[0]);
    exact_improve(x->m, work);
    remember(x);
}
