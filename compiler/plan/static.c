/* static.c - the default planner.
 *
 * By byte sums: starts and local search (seek.h), and as further starts the simulations with
 * lookahead scores and the published heuristics. With addresses: the schedule found by byte sums
 * under the capacity is packed offline; when it does not fit, the search goes on under a smaller
 * capacity, from where it is, until it does. Simulations that place everything as they go are
 * members too: they win where a few huge storages fragment the arena.
 *
 * All of the DTR family are members, stopped as soon as they cost more than the best plan so far,
 * so the result is never worse than any of them. Work is counted in elementary steps: same input,
 * same plan.
 *
 * Updates at the end of the step are tried when updates in place gave no plan, or when the
 * gradients that would wait are few. */
#include "seek.h"
#include "strategy.h"

typedef struct {
    Arena *a;
    const PlanOptions *o;
    Plan *best;
    bool found;    /* there is a schedule by byte sums */
    uint64_t work; /* left for simulations, in elementary steps of theirs */
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

/* Steps (a few ns each) of all simulations. */
#define SIM_WORK UINT64_C(20000000)
#define SIM_WORK_RUN UINT64_C(10000)

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

/* Once there is a plan, simulations run while their work lasts. */
static bool look(Search *x, Sim *s, Exponents e, SimOptions so) {
    bool found = x->best || x->found;
    if (found && !x->work) return false;
    so.capacity = plan_capacity(s->p, x->o->budget);
    so.evict = so.lookahead = so.regret = true;
    so.alpha = e.alpha;
    so.beta = e.beta;
    so.gamma = e.gamma;
    so.work_limit = found && x->work < plan_sim_work(s->p) ? x->work : plan_sim_work(s->p);
    so.cost_limit = cost_limit(x, s->p);
    PlanStatus st = sim_run(s, &so);
    x->work -= s->work < x->work ? s->work : x->work;
    return st == PLAN_OK;
}

/* ---- schedules by byte sums ---- */

static void offer_simulations(Search *x, Seek *k, Sim *s) {
    Arena *a = arena_new();
    for (uint32_t i = 0; i < NFAVOURITE; i++) {
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

/* Goes down with the capacity until the schedule packs. */
static void pack_down(Search *x, Seek *k) {
    int64_t capacity = k->m->capacity;
    for (int part = 1000; part >= 600; part -= part > 900 ? 10 : 25) {
        seek_capacity(k, capacity / 1000 * part);
        Sequence from = timeline_save(k->kept_arena, k->t);
        k->cost_limit = cost_limit(x, k->p);
        if (!seek_offer(k, &from)) break;
        seek_search(k, 1000000);
        Plan *plan = plan_of(x, k, &k->kept[0]);
        keep_better(x, plan);
        if (plan) break;
    }
}

static void try_schedules(Search *x, Arena *scratch, const Problem *p) {
    int e = effort_of(x->o);
    Seek *k = seek_new(scratch, p, (int64_t)plan_capacity(p, x->o->budget));
    seek_starts(k, x->o->quick);
    x->found = k->n > 0;
    if (!x->o->quick || !k->n) {
        offer_simulations(x, k, sim_new(scratch, p));
        seek_search(k, search_work[e] + search_work_run[e] * p->nrun);
    }
    if (k->n) {
        Plan *plan = plan_of(x, k, &k->kept[0]);
        keep_better(x, plan);
        if (!plan) pack_down(x, k);
    }
    seek_free(k);
}

/* ---- simulations with addresses ---- */

static void try_placed(Search *x, Sim *s) {
    for (uint32_t i = 0; i < NFAVOURITE; i++)
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
    if (!x->o->bytes_only && !is_enough(x)) try_placed(x, sim_new(scratch, p));
}

/* Bytes of gradients that wait when updates come last. */
static uint64_t waiting_bytes(const Problem *p) {
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r]) EACH(p->in, r, t) bytes += p->bytes[p->storage[t]];
    return bytes;
}

static Plan *search(Arena *a, const Problem *p, const Problem *deferred, const PlanOptions *o) {
    Arena *scratch = arena_new();
    Search x = {.a = a, .o = o, .work = SIM_WORK + SIM_WORK_RUN * (uint64_t)p->nrun};
    try_all(&x, scratch, p);
    if (!is_enough(&x)) try_published(&x, p);
    bool few = waiting_bytes(p) < plan_capacity(p, o->budget) / 16;
    if (deferred && (!x.best || (few && !o->quick))) try_all(&x, scratch, deferred);
    arena_free(scratch);
    return x.best;
}

/* Close to the smallest budget a better schedule may pack worse: what a quick search finds, a long
 * one must find, too. */
Plan *plan_static(Arena *a, const Problem *p, const Problem *deferred, const PlanOptions *o) {
    Plan *best = search(a, p, deferred, o);
    if (best || o->quick) return best;
    PlanOptions quick = *o;
    quick.effort = 0;
    quick.quick = true;
    return search(a, p, deferred, &quick);
}
