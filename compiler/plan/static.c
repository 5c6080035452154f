/* static.c - the default planner.
 *
 * By byte sums: starts and local search (seek.h), and as further starts the simulations with
 * lookahead scores and the published heuristics. With addresses: the schedule found by byte sums
 * under the capacity is packed offline; when it does not fit, the search goes on under a smaller
 * capacity, from where it is, until it does; what then packs is refined. Simulations that place
 * everything as they go are members too: they win where a few huge storages fragment the arena.
 * Graphs of moderate size whose best plan is far above the bound are searched longer.
 *
 * All of the DTR family are members, stopped as soon as they cost more than the best plan so far,
 * so the result is never worse than any of them. Work is counted in elementary steps: same input,
 * same plan.
 *
 * First runs stand in the graph's order unless order.c has one that pays; what that gives is taken
 * only when it is cheaper. Updates at the end of the step are tried when updates in place gave no
 * plan, or when the gradients that would wait are few. */
#include "order.h"
#include "seek.h"
#include "strategy.h"

#include <string.h>

typedef struct {
    Arena *a;
    const PlanOptions *o;
    Plan *best;
    bool found;      /* there is a schedule by byte sums */
    bool impossible; /* proven: there is no plan */
    /* Left for simulations, in elementary steps of theirs: once something is known; before. */
    uint64_t work, hope;
    Sequence packed; /* of the best plan, while the Seek that found it is there */
    uint64_t gain;   /* ns that the first local search took off its start */
} Search;

typedef struct {
    double alpha, beta, gamma;
} Exponents;

/* Lookahead scores that are good on most graphs. */
static const Exponents favourite[] = {{1, 1, 0.5},   {0.5, 1, 0}, {1, 0.5, 0},
                                      {1.5, 1, 0.5}, {1, 0, 0.5}, {1, 1, 0}};
enum { NFAVOURITE = sizeof favourite / sizeof *favourite };

/* Elementary steps (some 10 ns each) of local search per effort: a constant and a part per run. */
static const uint64_t search_work[] = {0, 10000000, 200000000, 2000000000};
static const uint64_t search_work_run[] = {0, 5000, 50000, 500000};

/* And of windows solved exactly, after it. */
static const uint64_t exact_work[] = {0, 0, 400000000, 4000000000};

/* Steps (a few ns each) of all simulations. */
#define SIM_WORK UINT64_C(20000000)
#define SIM_WORK_RUN UINT64_C(10000)

enum {
    FEW = 2,               /* simulations of each kind when any plan will do, */
    QUICK = 8,             /* and the part of their work */
    NEAR = 500,            /* a part of base time that no further search is worth */
    FAR = 200,             /* a part of base time above the bound that is worth a longer search, */
    FAR_RUNS = 2500,       /* of graphs not larger than this, */
    FAR_WORK = 64000000,   /* by so many steps at most, */
    FAR_WORK_RUN = 100000, /* and per run */
    REFINE = 8,            /* rounds of search for what packs */
    PACK_SEARCH = 1000000, /* steps of local search under each smaller capacity */
};

static uint64_t sim_work(const Problem *p) {
    return SIM_WORK + SIM_WORK_RUN * (uint64_t)p->nrun;
}

static int effort_of(const PlanOptions *o) {
    return o->effort < 0 ? 0 : o->effort > 3 ? 3 : o->effort;
}

static bool is_enough(const Search *x) {
    return x->o->quick && x->best;
}

static void keep_better(Search *x, Plan *plan) {
    if (plan && (!x->best || plan->cost_ns < x->best->cost_ns)) x->best = plan;
}

static uint64_t cost_limit(const Search *x, const Problem *p) {
    if (x->best) return x->best->cost_ns - 1;
    return p->base_ns > UINT64_MAX / 8 ? UINT64_MAX : p->base_ns * 8;
}

/* Simulations run while their work lasts. */
static bool look(Search *x, Sim *s, Exponents e, SimOptions so) {
    bool found = x->best || x->found || x->o->quick;
    uint64_t *work = found ? &x->work : &x->hope;
    if (!*work) return false;
    so.capacity = plan_capacity(s->p, x->o->budget);
    so.evict = so.lookahead = so.regret = true;
    so.alpha = e.alpha;
    so.beta = e.beta;
    so.gamma = e.gamma;
    so.work_limit = plan_sim_work(s->p) / (x->o->quick ? QUICK : 1);
    if (*work < so.work_limit) so.work_limit = *work;
    so.cost_limit = cost_limit(x, s->p);
    PlanStatus st = sim_run(s, &so);
    *work -= s->work < *work ? s->work : *work;
    return st == PLAN_OK;
}

/* ---- schedules by byte sums ---- */

static void offer_simulations(Search *x, Seek *k, Sim *s) {
    Arena *a = arena_new();
    for (uint32_t i = 0; i < NFAVOURITE && !(x->o->quick && i == FEW); i++) {
        if (!look(x, s, favourite[i], (SimOptions){.bytes_only = true})) continue;
        Sequence q = sequence_of_plan(a, s->p, sim_plan(a, s, x->o->budget, "static"));
        seek_offer(k, &q);
    }
    arena_free(a);
}

static Plan *plan_of(Search *x, Seek *k, const Sequence *q) {
    timeline_restore(k->t, q);
    Plan *plan = timeline_plan(x->a, k->t, x->o->budget, "static");
    return x->o->bytes_only ? plan : plan_pack(k->p, plan, x->o->budget);
}

/* The cheapest of what was found that packs; false: a smaller capacity may give a cheaper one. */
static bool pack(Search *x, Seek *k) {
    for (uint32_t i = 0; i < k->n; i++) {
        Plan *plan = plan_of(x, k, &k->kept[i]);
        keep_better(x, plan);
        if (plan && x->best == plan) x->packed = k->kept[i];
        if (plan) return is_enough(x) || plan->cost_ns - k->kept[0].cost_ns <= k->p->base_ns / NEAR;
    }
    return false;
}

/* Goes down with the capacity until the schedule packs. */
static void pack_down(Search *x, Seek *k) {
    static const int part[] = {997, 994, 990, 985, 980, 970, 960, 945,
                               930, 910, 890, 865, 840, 800, 750, 700};
    int64_t capacity = k->m->capacity;
    Sequence from = k->kept[0];
    for (uint32_t i = 0; i < sizeof part / sizeof *part; i++) {
        seek_capacity(k, capacity / 1000 * part[i]);
        k->cost_limit = cost_limit(x, k->p);
        if (!seek_offer(k, &from)) return;
        if (!x->o->quick) seek_search(k, PACK_SEARCH);
        if (pack(x, k)) return;
        from = k->kept[0];
    }
}

/* Any schedule that packs will do: the first one may not. */
static void try_quickly(Search *x, Seek *k, uint64_t capacity) {
    for (SeekStart kind = 0; kind < START_KINDS && !x->best && !k->impossible; kind++) {
        seek_capacity(k, (int64_t)capacity);
        seek_start(k, kind);
        if (k->n && !pack(x, k)) pack_down(x, k);
    }
}

static PlanOptions any_plan(const PlanOptions *o) {
    PlanOptions quick = *o;
    quick.effort = 0;
    quick.quick = true;
    return quick;
}

/* Close to the smallest budget a better schedule may pack worse. */
static void try_others(Search *x, Seek *k, uint64_t capacity) {
    const PlanOptions *o = x->o;
    PlanOptions quick = any_plan(o);
    x->o = &quick;
    k->quick = true;
    k->known_ns = 0;
    try_quickly(x, k, capacity);
    x->o = o;
    k->quick = false;
}

/* Cheaper schedules that pack, too: local search from the one that does, under capacities from its
 * bytes up to all that there are. */
static void refine(Search *x, Seek *k, int64_t capacity) {
    for (int i = 0; i < REFINE; i++) {
        timeline_restore(k->t, &x->packed);
        int64_t low = timeline_peak(k->t);
        seek_capacity(k, low + (capacity - low) / (REFINE - 1) * i);
        k->cost_limit = x->best->cost_ns;
        if (!seek_offer(k, &x->packed)) return;
        seek_search(k, PACK_SEARCH);
        if (k->kept[0].cost_ns < x->best->cost_ns) pack(x, k);
    }
}

static void pack_kept(Search *x, Seek *k, uint64_t capacity) {
    uint64_t aim = k->kept[0].cost_ns;
    x->packed.n = 0;
    if (pack(x, k)) return;
    pack_down(x, k);
    if (x->o->quick) return;
    if (!x->best) try_others(x, k, capacity);
    if (x->packed.n && x->best->cost_ns > aim + k->p->base_ns / NEAR)
        refine(x, k, (int64_t)capacity);
}

/* Is a longer search worth its time: has this one given the best plan, which is far above what the
 * minimum cut proves, and not held back by packing? */
static bool is_far(const Search *x, const Seek *k, uint64_t cost_ns) {
    double base = (double)k->p->base_ns;
    if (effort_of(x->o) < 1 || x->o->quick || !x->packed.n || k->p->nrun > FAR_RUNS) return false;
    if (x->best->cost_ns > cost_ns + k->p->base_ns / NEAR) return false;
    return (double)x->best->cost_ns - base > k->least_ns + base / FAR;
}

/* Would local search have to gain more than it did the first time to matter? */
static bool is_behind(const Search *x, const Seek *k) {
    if (!x->gain || !x->best || !k->n) return false;
    return k->kept[0].cost_ns > x->best->cost_ns + x->gain + x->gain / 4;
}

/* Local search from what is known, and what comes of it packed. */
static void search_and_pack(Search *x, Seek *k, uint64_t capacity) {
    int e = effort_of(x->o);
    uint32_t n = k->n;
    uint64_t rng = k->m->rng;
    Sequence start[SEEK_KEPT];
    memcpy(start, k->kept, n * sizeof *start);
    seek_search(k, search_work[e] + search_work_run[e] * k->p->nrun);
    if (!k->n) return;
    if (exact_work[e]) seek_exact(k, exact_work[e]);
    uint64_t found_ns = k->kept[0].cost_ns;
    if (!x->gain && n) x->gain = start[0].cost_ns - found_ns + 1;
    pack_kept(x, k, capacity);
    if (!is_far(x, k, found_ns)) return;
    k->m->rng = rng;
    seek_capacity(k, (int64_t)capacity);
    memcpy(k->kept, start, n * sizeof *start);
    k->n = n;
    uint64_t work = (uint64_t)FAR_WORK_RUN * k->p->nrun;
    if (work > FAR_WORK) work = FAR_WORK;
    seek_search(k, work);
    seek_search_hot(k, work / 2);
    if (k->kept[0].cost_ns < x->best->cost_ns) pack_kept(x, k, capacity);
}

static void try_schedules(Search *x, Arena *scratch, const Problem *p) {
    uint64_t capacity = plan_capacity(p, x->o->budget);
    Seek *k = seek_new(scratch, p, (int64_t)capacity, x->o->quick);
    k->known_ns = x->best ? x->best->cost_ns : 0;
    if (x->o->quick)
        try_quickly(x, k, capacity);
    else
        seek_starts(k);
    x->found = k->n > 0;
    x->impossible |= k->impossible;
    if (!k->impossible && !is_enough(x)) {
        if (x->o->quick) seek_capacity(k, (int64_t)capacity);
        offer_simulations(x, k, sim_new(scratch, p));
        if (!is_behind(x, k)) search_and_pack(x, k, capacity);
    }
    seek_free(k);
}

/* ---- simulations with addresses ---- */

static void try_placed(Search *x, Sim *s) {
    for (uint32_t i = 0; i < NFAVOURITE && !(x->o->quick && i == FEW); i++)
        for (int k = 0; k < 4 && !is_enough(x); k++) {
            SimOptions so = {.window = k & 1, .two_ended = k == 1 || k == 2};
            if (look(x, s, favourite[i], so))
                keep_better(x, sim_plan(x->a, s, x->o->budget, "static"));
        }
}

static void try_published(Search *x, const Problem *p) {
    for (DtrHeuristic h = 0; h < DTR_COUNT && !is_enough(x); h++) {
        if (x->o->quick && h != DTR_FULL && h != DTR_MSPS) continue;
        keep_better(x, plan_dtr(x->a, p, x->o, h, x->best ? x->best->cost_ns - 1 : UINT64_MAX));
    }
    if (!is_enough(x)) keep_better(x, plan_sqrt(x->a, p, x->o));
}

static void try_all(Search *x, Arena *scratch, const Problem *p) {
    try_schedules(x, scratch, p);
    if (!x->o->bytes_only && !x->impossible && !is_enough(x)) try_placed(x, sim_new(scratch, p));
}

/* Bytes of gradients that wait when updates come last. */
static uint64_t waiting_bytes(const Problem *p) {
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r]) EACH(p->in, r, t) bytes += p->bytes[p->storage[t]];
    return bytes;
}

/* First runs in another order, when that can pay. */
static void try_reordered(Search *x, Arena *scratch, const Problem *p) {
    const NodeId *order = order_find(scratch, p, plan_capacity(p, x->o->budget));
    x->impossible = false;
    if (order) try_all(x, scratch, problem_new(scratch, p->g, p->c, order, p->align == 1));
}

static void try_part(Search *x, Arena *scratch, const Problem *p, const Problem *late,
                     StaticPart part) {
    if (x->o->quick) { /* what a part finds does not depend on the parts before it */
        x->work = 4 * sim_work(p);
        x->found = false;
    }
    switch (part) {
    case PART_SCHEDULES: try_schedules(x, scratch, p); break;
    case PART_PLACED: try_placed(x, sim_new(scratch, p)); break;
    case PART_PUBLISHED: try_published(x, p); break;
    case PART_LATE: try_all(x, scratch, late); break;
    default: try_reordered(x, scratch, p);
    }
}

static bool is_wanted(const Search *x, const Problem *p, const Problem *late, StaticPart part) {
    if (is_enough(x)) return false;
    bool few = waiting_bytes(p) < plan_capacity(p, x->o->budget) / 16;
    switch (part) {
    case PART_SCHEDULES: return true;
    case PART_PLACED: return !x->o->bytes_only && !x->impossible;
    case PART_PUBLISHED: return !x->impossible;
    case PART_LATE: return !x->impossible && late && (!x->best || (few && !x->o->quick));
    default: return !x->o->keep_order;
    }
}

static Plan *search(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o,
                    uint32_t parts) {
    Arena *scratch = arena_new();
    Search x = {.a = a, .o = o, .work = sim_work(p), .hope = 2 * plan_sim_work(p)};
    for (StaticPart i = 0; i < STATIC_PARTS; i++)
        if ((parts >> i & 1) && is_wanted(&x, p, late, i)) try_part(&x, scratch, p, late, i);
    arena_free(scratch);
    return x.best;
}

Plan *plan_static_part(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o,
                       StaticPart part) {
    PlanOptions quick = any_plan(o);
    return search(a, p, late, &quick, UINT32_C(1) << part);
}

/* Close to the smallest budget a better schedule may pack worse: what a quick search finds, a long
 * one must find, too. */
Plan *plan_static(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o) {
    Plan *best = search(a, p, late, o, UINT32_MAX);
    PlanOptions quick = any_plan(o);
    return best || o->quick ? best : search(a, p, late, &quick, UINT32_MAX);
}
