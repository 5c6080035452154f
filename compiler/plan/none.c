/* none.c - no recomputation: the base order, each storage dropped after its last use, in place
 * where allowed. Addresses by best fit while simulating, then packed again offline. Its peak is
 * what budgets in percent refer to. */
#include "strategy.h"

Plan *plan_none(Arena *a, const Problem *p, const PlanOptions *o) {
    Arena *scratch = arena_new();
    Sim *s = sim_new(scratch, p);
    SimOptions so = {.capacity = UINT64_MAX / 4,
                     .bytes_only = o->bytes_only,
                     .two_ended = false,
                     .lookahead = true,
                     .cost_limit = UINT64_MAX};
    PlanStatus st = sim_run(s, &so);
    bool may_fit = st == PLAN_OK && s->byte_peak <= plan_capacity(p, o->budget);
    Plan *plan = may_fit ? sim_plan(a, s, o->budget, "none") : NULL;
    arena_free(scratch);
    if (!plan) return NULL;
    plan_repack(p, plan, 0, 1); /* the same peak at every effort */
    return plan->arena_bytes <= plan_capacity(p, o->budget) ? plan : NULL;
}
