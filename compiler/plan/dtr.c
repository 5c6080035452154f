/* dtr.c - Dynamic Tensor Rematerialization run ahead of time: the simulation with one heuristic of
 * the DTR family. What a static planner gets for nothing is included: dead storages go at once,
 * work in place, best-fit addresses, a cheapest contiguous run as second try when single victims do
 * not make room.
 *
 * A greedy heuristic can run into a dead end under one capacity and not under a smaller one. A plan
 * for the smaller one is a plan for this one too, so those are tried next, down to the floor. */
#include "strategy.h"

enum {
    THRASH = 8,      /* give up past this many times the base time */
    FINE_TRIES = 32, /* capacities one unit apart, before the distance doubles */
};

/* The better of both ways to evict under `capacity`, or NULL. Takes what it worked from *work;
 * *dear says that a simulation ended because of its cost, not for want of room. */
static Plan *try_capacity(Arena *a, Sim *s, const PlanOptions *o, DtrHeuristic h, uint64_t capacity,
                          uint64_t limit, uint64_t *work, bool *dear) {
    Plan *best = NULL;
    for (int window = 0; window < (o->bytes_only ? 1 : 2) && !(o->quick && best); window++) {
        SimOptions so = {.capacity = capacity,
                         .bytes_only = o->bytes_only,
                         .evict = true,
                         .h = h,
                         .gamma = 1,
                         .window = window,
                         .work_limit = *work + 1,
                         .cost_limit = best ? best->cost_ns - 1 : limit};
        if (sim_run(s, &so) == PLAN_OK) best = sim_plan(a, s, o->budget, dtr_name(h));
        *dear |= s->cost > so.cost_limit;
        *work -= s->work < *work ? s->work : *work;
    }
    return best;
}

Plan *plan_dtr(Arena *a, const Problem *p, const PlanOptions *o, DtrHeuristic h, uint64_t limit) {
    Arena *scratch = arena_new();
    Sim *s = sim_new(scratch, p);
    uint64_t capacity = plan_capacity(p, o->budget),
             work = 2 * plan_sim_work(p) / (o->quick ? 16 : 1);
    uint64_t thrash = p->base_ns < UINT64_MAX / THRASH ? p->base_ns * THRASH : UINT64_MAX;
    Plan *best = NULL;
    uint64_t step = PLAN_ALIGN;
    for (uint32_t tries = 1; !best && work && capacity >= p->floor_bytes; tries++) {
        bool dear = false;
        best = try_capacity(a, s, o, h, capacity, limit < thrash ? limit : thrash, &work, &dear);
        if (dear && limit < thrash) break; /* a plan that costs less is known */
        if (tries >= FINE_TRIES && step < capacity / 16) step *= 2;
        if (capacity < step) break;
        capacity -= step;
    }
    arena_free(scratch);
    return best;
}

/* The schedule that a program makes in dynamic mode under the same budget. */
PlanStatus plan_dynamic(Arena *a, const Problem *p, const PlanOptions *o, const char *heuristic,
                        Plan **out) {
    Arena *scratch = arena_new();
    Sim *s = sim_new(scratch, p);
    DtrChoice choice;
    SimOptions so;
    *out = NULL;
    dtr_choice_begin(&choice, &p->dtr, heuristic,
                     plan_capacity(p, o->budget) / p->align * p->align);
    choice.any = o->quick;
    while (dtr_choice_next(&choice, &so)) {
        if (o->bytes_only && (so.window || so.two_ended)) continue; /* nothing has a place */
        so.bytes_only = o->bytes_only;
        sim_run(s, &so);
        if (dtr_choice_ended(&choice, s->status, dtr_counters(s->dtr)))
            *out = sim_plan(a, s, o->budget, choice.name);
    }
    arena_free(scratch);
    return *out ? PLAN_OK : choice.dear ? PLAN_TOO_DEAR : PLAN_INFEASIBLE;
}
