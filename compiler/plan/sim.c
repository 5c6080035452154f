/* sim.c - the engine's step as a plan: its events are the steps of the list. */
#include "sim.h"

#include "strategy.h"

#include <assert.h>
#include <string.h>

Sim *sim_new(Arena *a, const Problem *p) {
    static const SimOptions none = {0};
    Sim *s = ARENA_NEW(a, Sim);
    *s = (Sim){.p = p, .a = a};
    s->dtr = dtr_init(arena_alloc(a, dtr_bytes(&p->dtr)), &p->dtr, &none);
    return s;
}

static PlanPlace place_of(uint8_t p) {
    return p == DTR_RESIDENT ? PLACE_RESIDENT : p == DTR_SCRATCH ? PLACE_SCRATCH : PLACE_NONE;
}

static bool record_run(void *user, const DtrRun *r) {
    Sim *s = user;
    VEC_PUSH(s->a, s->step, ((SimStep){STEP_RUN, r->run, r->inplace, s->out.n, r->workspace}));
    for (uint32_t k = 0; k < list_len(&s->p->out, r->run); k++)
        VEC_PUSH(s->a, s->out,
                 ((PlanOut){.offset = r->out[k].offset, .place = place_of(r->out[k].place)}));
    return true;
}

static bool record_drop(void *user, uint32_t storage, uint64_t offset, bool evicted) {
    (void)offset;
    (void)evicted;
    Sim *s = user;
    VEC_PUSH(s->a, s->step, ((SimStep){.kind = STEP_DROP, .id = storage, .inplace = NO_ID}));
    return true;
}

PlanStatus sim_run(Sim *s, const SimOptions *o) {
    s->o = *o;
    s->step.n = s->out.n = 0;
    dtr_set(s->dtr, o);
    DtrStatus st = dtr_step(s->dtr, &(DtrHooks){.user = s, .run = record_run, .drop = record_drop});
    const DtrCounters *c = dtr_counters(s->dtr);
    s->status = st;
    s->cost = c->cost_ns;
    s->work = c->work;
    s->byte_peak = c->peak_bytes;
    return st == DTR_OK ? PLAN_OK : PLAN_INFEASIBLE;
}

Plan *sim_plan(Arena *a, const Sim *s, uint64_t budget, const char *planner) {
    const Problem *p = s->p;
    Plan *plan = ARENA_NEW(a, Plan);
    *plan = (Plan){.nstep = s->step.n,
                   .step = ARENA_ARRAY(a, PlanStep, s->step.n),
                   .placed = !s->o.bytes_only,
                   .budget = budget,
                   .arena_bytes = dtr_counters(s->dtr)->high_bytes,
                   .planner = planner};
    PlanOut *out = ARENA_ARRAY(a, PlanOut, s->out.n);
    if (s->out.n) memcpy(out, s->out.at, s->out.n * sizeof *out);
    for (uint32_t i = 0; i < s->step.n; i++) {
        SimStep st = s->step.at[i];
        bool run = st.kind == STEP_RUN;
        plan->step[i] = (PlanStep){.kind = st.kind,
                                   .id = run ? p->node[st.id] : st.id,
                                   .inplace = st.inplace,
                                   .out = run ? out + st.out : NULL,
                                   .workspace = st.workspace};
    }
    plan_fill_totals(p->g, p->c, plan);
    bool counts_alike = plan->placed || p->align == 1; /* else place.c will place it */
    assert(plan->cost_ns == s->cost && (!counts_alike || plan->byte_peak == s->byte_peak));
    (void)counts_alike;
    return plan;
}
