/* static.c - the default planner: a portfolio over the simulation, the best plan by time.
 *
 * Members: no recomputation; lookahead scores with several exponents, evicting one by one or by
 * window; every heuristic of the DTR family, so that the result is never worse than any of them;
 * segment checkpoints. Each is tried with updates where the graph has them and at the end. A member
 * is stopped as soon as it costs more than the best plan so far, and lookahead members run while
 * the counted work lasts, so the same input gives the same plan on every machine. The exponents
 * come from the published finding that no single score wins everywhere. */
#include "strategy.h"

#include <math.h>

typedef struct {
    Arena *a;
    const PlanOptions *o;
    Plan *best;
    uint64_t work; /* left */
} Search;

typedef struct {
    double alpha, beta, gamma;
} Exponents;

/* In the order in which they are tried: the first few find good plans on most graphs. */
static const Exponents grid[] = {
    {1, 1, 0.5}, {1, 0, 0.5},    {0.5, 1, 0},    {1, 0.5, 0},     {1.5, 1, 0.5}, {0.5, 0, 0},
    {1, 1, 0},   {1, 1.5, 0.5},  {0.75, 1, 1},   {1.5, 0.5, 0},   {0.5, 0.5, 1}, {1.25, 1, 1},
    {1, 0, 1},   {0.75, 0.5, 0}, {1.5, 0, 0},    {0.5, 1.5, 0.5}, {1, 1, 1},     {1.5, 1.5, 1},
    {0.5, 0, 1}, {1.25, 0.5, 0}, {0.75, 0, 0.5}, {1.5, 1, 1},     {0.5, 0.5, 0}, {1.25, 0, 0},
};
enum { NGRID = sizeof grid / sizeof *grid };

static void try_member(Search *x, Sim *s, SimOptions so, const char *name) {
    so.capacity = plan_capacity(s->p, x->o->budget);
    so.bytes_only = x->o->bytes_only;
    uint64_t limit = s->p->base_ns > UINT64_MAX / 8 ? UINT64_MAX : s->p->base_ns * 8;
    so.cost_limit = x->best ? x->best->cost_ns - 1 : limit;
    PlanStatus st = sim_run(s, &so);
    x->work -= s->work < x->work ? s->work : x->work;
    if (st == PLAN_OK) x->best = sim_plan(x->a, s, x->o->budget, name);
}

static void try_lookahead(Search *x, Sim *s, uint32_t i) {
    for (int window = 0; window < (x->o->bytes_only ? 1 : 2) && x->work; window++) {
        SimOptions so = {.evict = true,
                         .lookahead = true,
                         .alpha = grid[i].alpha,
                         .beta = grid[i].beta,
                         .gamma = grid[i].gamma,
                         .window = window,
                         .regret = true,
                         .work_limit = x->work};
        try_member(x, s, so, "static");
    }
}

static void try_dtr(Search *x, const Problem *p) {
    PlanOptions o = *x->o;
    for (DtrHeuristic h = 0; h < DTR_COUNT; h++) {
        Plan *plan = plan_dtr(x->a, p, &o, h, x->best ? x->best->cost_ns - 1 : UINT64_MAX);
        if (plan && (!x->best || plan->cost_ns < x->best->cost_ns)) x->best = plan;
    }
    Plan *plan = plan_sqrt(x->a, p, &o);
    if (plan && (!x->best || plan->cost_ns < x->best->cost_ns)) x->best = plan;
}

Plan *plan_static(Arena *a, const Problem *p, const Problem *deferred, const PlanOptions *o) {
    Plan *none = plan_none(a, p, o);
    if (none) return none;
    static const uint64_t work_of_effort[] = {100000000, 400000000, 2000000000, 10000000000};
    Search x = {a, o, NULL, work_of_effort[o->effort < 0 ? 0 : o->effort > 3 ? 3 : o->effort]};
    Arena *scratch = arena_new();
    Sim *s[2] = {sim_new(scratch, p), deferred ? sim_new(scratch, deferred) : NULL};
    for (uint32_t i = 0; i < NGRID && x.work; i++)
        for (int k = 0; k < 2; k++)
            if (s[k]) try_lookahead(&x, s[k], i);
    try_dtr(&x, p);
    if (deferred) try_dtr(&x, deferred);
    arena_free(scratch);
    return x.best;
}
