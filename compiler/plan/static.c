/* static.c - the default planner: a portfolio over the simulation, then local search on the best
 * member.
 *
 * Members: lookahead scores with several exponents, evicting one by one or by
 * window, with short lives at either end of holes; every heuristic of the DTR family, so that the
 * result is never worse than any of them; segment checkpoints. A member is stopped as soon as it
 * costs more than the best plan so far; lookahead members and the search run while the counted work
 * lasts, so the same input gives the same plan on every machine. That no single score wins
 * everywhere is the common experience of the published planners; the first few of the grid are good
 * on most graphs.
 *
 * Updates at the end of the step are tried when updates in place gave no plan, or when the
 * gradients that would wait are few. */
#include "strategy.h"

typedef struct {
    Arena *a;
    const PlanOptions *o;
    Plan *best;
    uint64_t work; /* left for lookahead members */
    Sim *look_sim; /* best lookahead member: simulation, options, time */
    SimOptions look;
    uint64_t look_cost;
} Search;

typedef struct {
    double alpha, beta, gamma;
} Exponents;

static const Exponents grid[] = {
    {1, 1, 0.5}, {0.5, 1, 0},    {1, 0.5, 0},   {1.5, 1, 0.5},   {1, 0, 0.5},   {1, 1, 0},
    {0.5, 0, 0}, {0.75, 1, 1},   {1.5, 0.5, 0}, {1, 1.5, 0.5},   {0.5, 0.5, 1}, {1.25, 1, 1},
    {1, 0, 1},   {0.75, 0.5, 0}, {1.5, 0, 0},   {0.5, 1.5, 0.5}, {1.5, 1.5, 1}, {0.5, 0, 1},
};
enum { NGRID = sizeof grid / sizeof *grid };

/* Work per effort, in elementary steps (a few ns each): grid, then search. */
static const uint64_t grid_work[] = {30000000, 200000000, 1000000000, 4000000000};
static const uint64_t climb_work[] = {0, 150000000, 2000000000, 20000000000};

static int effort_of(const PlanOptions *o) {
    return o->effort < 0 ? 0 : o->effort > 3 ? 3 : o->effort;
}

static void try_lookahead(Search *x, Sim *s, Exponents e, bool window, bool two_ended) {
    SimOptions so = {.capacity = plan_capacity(s->p, x->o->budget),
                     .bytes_only = x->o->bytes_only,
                     .evict = true,
                     .lookahead = true,
                     .alpha = e.alpha,
                     .beta = e.beta,
                     .gamma = e.gamma,
                     .window = window,
                     .two_ended = two_ended,
                     .regret = true,
                     .work_limit = x->work};
    so.cost_limit = s->p->base_ns > UINT64_MAX / 8 ? UINT64_MAX : s->p->base_ns * 8;
    if (x->best) so.cost_limit = x->best->cost_ns - 1;
    PlanStatus st = sim_run(s, &so);
    x->work -= s->work < x->work ? s->work : x->work;
    if (st != PLAN_OK) return;
    x->best = sim_plan(x->a, s, x->o->budget, "static");
    x->look = so;
    x->look.work_limit = 0;
    x->look_sim = s;
    x->look_cost = s->cost;
}

/* Plans by byte sums under a part of the capacity, then packs offline: pays off where a few huge
 * storages make every online placement fragment. The first part that packs is the cheapest of this
 * member. */
static void try_packed(Search *x, Sim *s, Exponents e) {
    static const double part[] = {1, 0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64};
    uint64_t capacity = plan_capacity(s->p, x->o->budget);
    SimOptions so = {.bytes_only = true,
                     .evict = true,
                     .lookahead = true,
                     .alpha = e.alpha,
                     .beta = e.beta,
                     .gamma = e.gamma,
                     .regret = true};
    for (uint32_t i = 0; i < sizeof part / sizeof *part && x->work; i++) {
        so.capacity = (uint64_t)((double)capacity * part[i]);
        so.cost_limit = x->best ? x->best->cost_ns - 1 : 8 * s->p->base_ns;
        PlanStatus st = sim_run(s, &so);
        x->work -= s->work < x->work ? s->work : x->work;
        if (st != PLAN_OK) return;
        Plan *plan = sim_plan(x->a, s, x->o->budget, "static");
        plan->placed = true;
        plan->arena_bytes = UINT64_MAX;
        plan_fill_totals(s->p->g, s->p->c, plan);
        plan_repack(s->p, plan, capacity, 1);
        uint64_t n = plan->nstep, work = n * n / 16 + 100 * n;
        x->work -= work < x->work ? work : x->work;
        if (plan->arena_bytes > capacity) continue;
        x->best = plan;
        return;
    }
}

static void try_grid(Search *x, Sim *s) {
    int kinds = x->o->bytes_only ? 1 : 4;
    for (uint32_t i = 0; i < 6 && !x->o->bytes_only; i++) try_packed(x, s, grid[i]);
    for (uint32_t i = 0; i < NGRID; i++)
        for (int k = 0; k < kinds && x->work; k++)
            try_lookahead(x, s, grid[i], k & 1, k == 1 || k == 2);
}

static void keep_better(Search *x, Plan *plan) {
    if (plan && (!x->best || plan->cost_ns < x->best->cost_ns)) x->best = plan;
}

static void try_published(Search *x, const Problem *p) {
    for (DtrHeuristic h = 0; h < DTR_COUNT; h++)
        keep_better(x, plan_dtr(x->a, p, x->o, h, x->best ? x->best->cost_ns - 1 : UINT64_MAX));
    keep_better(x, plan_sqrt(x->a, p, x->o));
}

/* Bytes of gradients that wait when updates come last. */
static uint64_t waiting_bytes(const Problem *p) {
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r]) EACH(p->in, r, t) bytes += p->bytes[p->storage[t]];
    return bytes;
}

Plan *plan_static(Arena *a, const Problem *p, const Problem *deferred, const PlanOptions *o) {
    Arena *scratch = arena_new();
    Search x = {.a = a, .o = o, .work = grid_work[effort_of(o)]};
    try_grid(&x, sim_new(scratch, p));
    try_published(&x, p);
    if (deferred && (!x.best || waiting_bytes(p) < plan_capacity(p, o->budget) / 16)) {
        x.work += grid_work[effort_of(o)] / 4;
        try_grid(&x, sim_new(scratch, deferred));
    }
    if (x.look_sim && climb_work[effort_of(o)])
        keep_better(&x, plan_improve(a, x.look_sim, x.look, x.look_cost, x.best, o->budget,
                                     climb_work[effort_of(o)]));
    arena_free(scratch);
    return x.best;
}
