/* dtr.c - Dynamic Tensor Rematerialization run ahead of time: the simulation with one heuristic of
 * the DTR family. What a static planner gets for nothing is included: dead storages go at once,
 * work in place, best-fit addresses, a cheapest contiguous run as second try when single victims do
 * not make room. */
#include "strategy.h"

enum { THRASH = 8 }; /* give up past this many times the base time */

Plan *plan_dtr(Arena *a, const Problem *p, const PlanOptions *o, DtrHeuristic h, uint64_t limit) {
    Arena *scratch = arena_new();
    Sim *s = sim_new(scratch, p);
    Plan *best = NULL;
    if (p->base_ns < UINT64_MAX / THRASH && p->base_ns * THRASH < limit)
        limit = p->base_ns * THRASH;
    for (int window = 0; window < (o->bytes_only ? 1 : 2) && !(o->quick && best); window++) {
        SimOptions so = {.capacity = plan_capacity(p, o->budget),
                         .bytes_only = o->bytes_only,
                         .evict = true,
                         .h = h,
                         .gamma = 1,
                         .window = window,
                         .work_limit = plan_sim_work(p),
                         .cost_limit = best ? best->cost_ns - 1 : limit};
        if (sim_run(s, &so) == PLAN_OK) best = sim_plan(a, s, o->budget, dtr_name(h));
    }
    arena_free(scratch);
    return best;
}
