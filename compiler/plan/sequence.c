/* sequence.c - schedules at rest: from the base order, from a plan, from a timeline; and a timeline
 * as a plan without addresses. */
#include "keeper.h"
#include "strategy.h"

#include <assert.h>

static Sequence new_sequence(Arena *a, uint32_t most) {
    return (Sequence){.run = ARENA_ARRAY(a, uint32_t, most),
                      .kept = ARENA_ARRAY(a, uint64_t, most)};
}

static void append(Sequence *s, const Problem *p, uint32_t run, uint64_t kept) {
    s->run[s->n] = run;
    s->kept[s->n++] = kept;
    s->cost_ns += p->ns[run];
}

Sequence sequence_base(Arena *a, const Problem *p) {
    Sequence s = new_sequence(a, p->nrun);
    for (uint32_t r = 0; r < p->nrun; r++) append(&s, p, r, UINT64_MAX);
    return s;
}

Sequence sequence_of_plan(Arena *a, const Problem *p, const Plan *plan) {
    Sequence s = new_sequence(a, plan->nstep);
    Arena *scratch = arena_new();
    uint32_t *run_of = ARENA_ARRAY(scratch, uint32_t, p->g->nnode);
    for (uint32_t r = 0; r < p->nrun; r++) run_of[p->node[r]] = r;
    for (uint32_t i = 0; i < plan->nstep; i++) {
        const PlanStep *st = &plan->step[i];
        if (st->kind == STEP_DROP) continue;
        uint64_t kept = 0;
        for (uint32_t k = 0; k < p->g->node[st->id].nout && k < 64; k++)
            if (st->out[k].place != PLACE_SCRATCH) kept |= (uint64_t)1 << k;
        append(&s, p, run_of[st->id], kept);
    }
    arena_free(scratch);
    return s;
}

static void keep_only(Keeper *k, const bool *keep) {
    const Problem *p = k->p;
    bool *read = ARENA_ARRAY(k->a, bool, p->nstorage);
    EACH(p->in, k->now, t) read[p->storage[t]] = true;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (!keep[s] && !read[s]) keeper_forget(k, s);
}

bool sequence_keep(Arena *a, const Problem *p, uint32_t point, const bool *keep, Sequence *out) {
    Arena *scratch = arena_new();
    Keeper *k = keeper_new(scratch, p);
    bool ok = true;
    while (ok && k->now < point) ok = keeper_step(k);
    if (ok) keep_only(k, keep);
    ok = ok && keeper_finish(k);
    if (ok) *out = keeper_sequence(a, k);
    arena_free(scratch);
    return ok;
}

Sequence timeline_save(Arena *a, const Timeline *t) {
    Sequence s = new_sequence(a, t->nitem);
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i)) {
        const Item *x = &t->item.at[i];
        if (x->run == t->p->nrun) continue;
        uint64_t kept = 0;
        for (uint32_t k = 0; k < list_len(&t->p->out, x->run) && k < 64; k++)
            if (t->life.at[x->life + k].kept) kept |= (uint64_t)1 << k;
        append(&s, t->p, x->run, kept);
    }
    return s;
}

typedef struct {
    Arena *a;
    VEC(PlanStep) step;
} Steps;

static void add_drop(Steps *s, StorageId x) {
    VEC_PUSH(s->a, s->step, ((PlanStep){.kind = STEP_DROP, .id = x, .inplace = NO_ID}));
}

static void add_run(Steps *s, const Timeline *t, uint32_t item) {
    const Problem *p = t->p;
    const Item *i = &t->item.at[item];
    uint32_t nout = list_len(&p->out, i->run);
    StorageId over = timeline_inplace(t, item);
    PlanOut *out = ARENA_ARRAY(s->a, PlanOut, nout ? nout : 1);
    for (uint32_t k = 0; k < nout; k++) {
        const Life *l = &t->life.at[i->life + k];
        if (l->tensor == NO_ID || l->tensor >= p->nstorage) continue;
        out[k].place = l->kept ? PLACE_RESIDENT : PLACE_SCRATCH;
    }
    VEC_PUSH(s->a, s->step,
             ((PlanStep){.kind = STEP_RUN, .id = p->node[i->run], .inplace = over, .out = out}));
    EACH(t->reads, i->run, x) {
        uint32_t l = timeline_serving(t, x, item);
        if (t->life.at[l].to == item && x != over) add_drop(s, x);
    }
    for (uint32_t k = 0; k < nout; k++)
        if (out[k].place == PLACE_RESIDENT && t->life.at[i->life + k].to == item)
            add_drop(s, t->life.at[i->life + k].tensor);
}

Plan *timeline_plan(Arena *a, const Timeline *t, uint64_t budget, const char *planner) {
    Steps s = {.a = a};
    Plan *plan = ARENA_NEW(a, Plan);
    for (uint32_t i = timeline_head(t); i != NO_ID; i = timeline_next(t, i))
        if (t->item.at[i].run < t->p->nrun) add_run(&s, t, i);
    *plan = (Plan){.nstep = s.step.n,
                   .step = s.step.at,
                   .budget = budget,
                   .arena_bytes = (uint64_t)timeline_peak(t),
                   .planner = planner};
    plan_fill_totals(t->p->g, t->p->c, plan);
    assert(plan->cost_ns == t->cost_ns);
    assert(t->p->align > 1 || plan->byte_peak == plan->arena_bytes);
    return plan;
}
