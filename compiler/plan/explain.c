/* explain.c - facts about a plan, by one replay of its steps: a clock of run times, and for each
 * storage since when it has been there or gone. The replay is repeated up to the largest byte sum
 * to list what is there. */
#include "explain.h"

#include <stdlib.h>

typedef struct {
    const Graph *g;
    const Cost *c;
    const Plan *p;
    Arena *a;
    uint64_t clock;      /* ns of all runs so far */
    uint64_t *gone_ns;   /* per storage: clock when it went */
    uint32_t *gone_step; /* per storage: NO_ID when it is there or never was */
    uint32_t *since;     /* per storage: step at which it came; NO_ID: not there */
    PlanRerun *rerun;    /* per node; again 0: none */
    bool *ran;           /* per node */
    VEC(PlanEviction) eviction;
    VEC(PlanStay) stay;
    uint32_t *stays;      /* per storage that is there: its stay */
    uint64_t bytes, most; /* in the arena now, and at most so far */
    uint32_t peak_step;
} Replay;

static uint64_t size_of(const Replay *r, uint64_t bytes) {
    return r->p->placed ? round_up(bytes ? bytes : 1, PLAN_ALIGN) : bytes;
}

static uint64_t storage_size(const Replay *r, StorageId s) {
    return size_of(r, r->c->storage_bytes[s]);
}

static uint64_t workspace_size(const Replay *r, NodeId n) {
    return r->c->node_workspace[n] ? size_of(r, r->c->node_workspace[n]) : 0;
}

static StorageId out_storage(const Replay *r, const PlanStep *st, uint32_t k) {
    return r->g->value[r->g->node[st->id].out[k]].storage;
}

static void goes(Replay *r, uint32_t step, StorageId s) {
    r->bytes -= storage_size(r, s);
    r->since[s] = NO_ID;
    r->gone_step[s] = step;
    r->gone_ns[s] = r->clock;
    r->stay.at[r->stays[s]].to = step;
    r->stay.at[r->stays[s]].to_ns = r->clock;
}

/* What stays until further notice is there to the end of the step. */
static void add_stay(Replay *r, uint32_t step, StorageId s, uint64_t bytes, uint64_t offset,
                     bool scratch) {
    const PlanStep *st = &r->p->step[step];
    PlanStay x = {.storage = s,
                  .node = st->id,
                  .offset = offset,
                  .bytes = bytes,
                  .from = step,
                  .to = scratch ? step + 1 : r->p->nstep,
                  .from_ns = r->clock,
                  .to_ns = scratch ? r->clock + r->c->node_ns[st->id] : r->p->cost_ns,
                  .scratch = scratch,
                  .again = r->ran[st->id]};
    VEC_PUSH(r->a, r->stay, x);
}

static void comes(Replay *r, uint32_t step, StorageId s, const PlanOut *out) {
    NodeId n = r->p->step[step].id;
    r->bytes += storage_size(r, s);
    r->stays[s] = r->stay.n;
    add_stay(r, step, s, storage_size(r, s), out->offset, false);
    r->since[s] = step;
    if (r->gone_step[s] == NO_ID) return;
    PlanEviction e = {.storage = s,
                      .node = n,
                      .bytes = storage_size(r, s),
                      .gone = r->gone_step[s],
                      .back = step,
                      .idle_ns = r->clock - r->gone_ns[s],
                      .again_ns = r->c->node_ns[n]};
    VEC_PUSH(r->a, r->eviction, e);
    r->gone_step[s] = NO_ID;
}

static void count_run(Replay *r, uint32_t step, NodeId n) {
    PlanRerun *x = &r->rerun[n];
    if (r->ran[n]) {
        if (!x->again++) x->first = step;
        x->ns += r->c->node_ns[n];
        x->last = step;
    }
    r->ran[n] = true;
}

/* What lies in the arena during a run is its outputs, its workspace and all that stays; an operand
 * whose bytes output 0 takes over counts once. */
static void replay_run(Replay *r, uint32_t step, const PlanStep *st) {
    uint64_t extra = workspace_size(r, st->id);
    if (extra) add_stay(r, step, NO_ID, extra, st->workspace, true);
    if (st->inplace != NO_ID) goes(r, step, st->inplace);
    for (uint32_t k = 0; k < r->g->node[st->id].nout; k++) {
        const PlanOut *out = &st->out[k];
        if (out->place == PLACE_RESIDENT) comes(r, step, out_storage(r, st, k), out);
        if (out->place != PLACE_SCRATCH) continue;
        StorageId s = out_storage(r, st, k);
        extra += storage_size(r, s);
        add_stay(r, step, s, storage_size(r, s), out->offset, true);
    }
    if (r->bytes + extra > r->most) {
        r->most = r->bytes + extra;
        r->peak_step = step;
    }
    r->clock += r->c->node_ns[st->id];
    count_run(r, step, st->id);
}

static void replay(Replay *r, uint32_t nstep) {
    for (uint32_t i = 0; i < nstep; i++) {
        const PlanStep *st = &r->p->step[i];
        if (st->kind == STEP_DROP)
            goes(r, i, st->id);
        else
            replay_run(r, i, st);
    }
}

static Replay replay_new(Arena *a, const Graph *g, const Cost *c, const Plan *p) {
    Replay r = {.g = g,
                .c = c,
                .p = p,
                .a = a,
                .gone_ns = ARENA_ARRAY(a, uint64_t, g->nstorage),
                .gone_step = ARENA_ARRAY(a, uint32_t, g->nstorage),
                .since = ARENA_ARRAY(a, uint32_t, g->nstorage),
                .stays = ARENA_ARRAY(a, uint32_t, g->nstorage),
                .rerun = ARENA_ARRAY(a, PlanRerun, g->nnode),
                .ran = ARENA_ARRAY(a, bool, g->nnode)};
    for (StorageId s = 0; s < g->nstorage; s++) r.gone_step[s] = r.since[s] = NO_ID;
    return r;
}

static int by_bytes(const void *x, const void *y) {
    const PlanResident *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->storage < b->storage ? -1 : a->storage > b->storage;
}

static int by_going(const void *x, const void *y) {
    const PlanEviction *a = x, *b = y;
    if (a->gone != b->gone) return a->gone < b->gone ? -1 : 1;
    return a->storage < b->storage ? -1 : a->storage > b->storage;
}

/* r stands after the run of the largest sum. */
static void fill_residents(Arena *a, const Replay *r, PlanFacts *f) {
    const Graph *g = r->g;
    const PlanStep *st = r->p->nstep ? &r->p->step[f->peak_step] : NULL;
    uint32_t nout = st ? g->node[st->id].nout : 0;
    f->resident = ARENA_ARRAY(a, PlanResident, (uint64_t)g->nstorage + nout + 1);
    for (StorageId s = 0; s < g->nstorage; s++) {
        bool there = g->storage[s].persistent || r->since[s] != NO_ID;
        uint32_t since = r->since[s] == NO_ID ? 0 : r->since[s];
        uint64_t bytes =
            g->storage[s].persistent && !r->c->storage_bytes[s] ? 0 : storage_size(r, s);
        if (there && bytes) f->resident[f->nresident++] = (PlanResident){s, bytes, since, false};
    }
    for (uint32_t k = 0; k < nout; k++) {
        if (st->out[k].place != PLACE_SCRATCH) continue;
        StorageId s = out_storage(r, st, k);
        f->resident[f->nresident++] = (PlanResident){s, storage_size(r, s), f->peak_step, true};
    }
    if (st && workspace_size(r, st->id))
        f->resident[f->nresident++] =
            (PlanResident){NO_ID, workspace_size(r, st->id), f->peak_step, true};
    if (f->nresident) qsort(f->resident, f->nresident, sizeof *f->resident, by_bytes);
}

PlanFacts *plan_explain(Arena *a, const Graph *g, const Cost *c, const Plan *p) {
    PlanFacts *f = ARENA_NEW(a, PlanFacts);
    Arena *t = arena_new();
    Replay r = replay_new(t, g, c, p);
    r.a = a;
    replay(&r, p->nstep);
    f->rerun = ARENA_ARRAY(a, PlanRerun, g->nnode);
    for (NodeId n = 0; n < g->nnode; n++) {
        r.rerun[n].node = n;
        if (r.rerun[n].again) f->rerun[f->nrerun++] = r.rerun[n];
    }
    f->eviction = r.eviction.at;
    f->neviction = r.eviction.n;
    if (f->neviction) qsort(f->eviction, f->neviction, sizeof *f->eviction, by_going);
    f->stay = r.stay.at;
    f->nstay = r.stay.n;
    f->peak_step = r.peak_step;
    f->peak_bytes = p->persistent_bytes + r.most;
    Replay until = replay_new(t, g, c, p);
    replay(&until, p->nstep ? r.peak_step + 1 : 0);
    fill_residents(a, &until, f);
    arena_free(t);
    return f;
}
