/* bounds.c - what a budget can and cannot be: persistent bytes, the floor below which no schedule
 * exists, the peak without recomputation, the smallest budget that a planner meets, the values live
 * at the peak. */
#include "strategy.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t unbounded = UINT64_MAX / 4;

uint64_t plan_persistent_bytes(const Graph *g, const Cost *c, bool bytes_only) {
    uint64_t sum = 0;
    for (StorageId s = 0; s < g->nstorage; s++)
        if (g->storage[s].persistent)
            sum += bytes_only ? c->storage_bytes[s] : round_up(c->storage_bytes[s], PLAN_ALIGN);
    return sum;
}

static Plan *base_plan(Arena *a, const Problem *p) {
    PlanOptions o = {.budget = unbounded, .effort = 1, .bytes_only = p->align == 1};
    return plan_none(a, p, &o);
}

uint64_t plan_peak_without_budget(const Graph *g, const Cost *c, bool bytes_only) {
    Arena *t = arena_new();
    const Plan *plan = base_plan(t, problem_new(t, g, c, NULL, bytes_only));
    uint64_t peak = plan->persistent_bytes + plan->arena_bytes;
    arena_free(t);
    return peak;
}

uint64_t plan_floor(const Graph *g, const Cost *c, bool bytes_only) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, bytes_only);
    uint64_t floor = p->persistent_bytes + p->floor_bytes;
    arena_free(t);
    return floor;
}

enum { ISLANDS = 8 }; /* parts of the range below that are looked at */

/* Runs times nodes that a quick search for the smallest budget may spend: plans close to the floor
 * recompute without end, and all a large graph's report needs is a budget that is near. */
#define QUICK_WORK UINT64_C(150000000)

/* Bytes that a plan under `budget` really takes; 0 when there is none. Adds its runs times nodes to
 * *work; an attempt that failed counts as two runs of each node. */
static uint64_t needed(const Graph *g, const Cost *c, PlanOptions o, uint64_t budget,
                       uint64_t *work) {
    Arena *t = arena_new();
    Plan *plan;
    o.budget = budget;
    uint64_t bytes = 0, runs = 2 * (uint64_t)g->nnode;
    if (plan_make(t, g, c, &o, &plan) == PLAN_OK) {
        bytes = plan->persistent_bytes + plan->arena_bytes;
        runs = plan->recomputed_runs;
    }
    *work += runs * g->nnode;
    arena_free(t);
    return bytes;
}

uint64_t plan_min_budget(const Graph *g, const Cost *c, const PlanOptions *o) {
    uint64_t low = plan_floor(g, c, o->bytes_only), floor = low;
    uint64_t best = plan_peak_without_budget(g, c, o->bytes_only), met = best;
    PlanOptions quick = *o; /* any plan will do */
    quick.effort = 0;
    quick.quick = true;
    uint64_t work = 0;
    while (best > low && !(o->quick && work > QUICK_WORK)) {
        uint64_t step = best / 200 > PLAN_ALIGN ? best / 200 : PLAN_ALIGN;
        if (best - low <= step && (work > QUICK_WORK || best - low <= PLAN_ALIGN)) break;
        uint64_t mid = low + (best - low) / 2, bytes = needed(g, c, quick, mid, &work);
        if (bytes)
            best = bytes, met = mid;
        else
            low = mid;
    }
    /* Greedy planners have islands below the smallest budget that bisection meets. */
    for (uint32_t k = 1; k < ISLANDS && work < QUICK_WORK / 8; k++) {
        uint64_t mid = floor + (best - floor) / ISLANDS * k;
        uint64_t bytes = needed(g, c, quick, mid, &work);
        if (!bytes) continue;
        best = bytes, met = mid;
        break;
    }
    /* What a plan takes is less than its budget; as a budget it may lead the search elsewhere. */
    return best < met && !needed(g, c, quick, best, &work) ? met : best;
}

typedef struct {
    StorageId s;
    uint64_t bytes;
} Live;

static int live_cmp(const void *x, const void *y) {
    const Live *a = x, *b = y;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return a->s < b->s ? -1 : a->s > b->s;
}

/* Replays residencies; keeps a copy of the set at the largest byte sum. */
uint32_t plan_peak_values(const Graph *g, const Cost *c, ValueId *out, uint32_t max) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, false);
    const Plan *plan = base_plan(t, p);
    bool *there = ARENA_ARRAY(t, bool, p->nstorage), *at_peak = ARENA_ARRAY(t, bool, p->nstorage);
    uint64_t bytes = 0, peak = 0;
    for (uint32_t i = 0; i < plan->nstep; i++) {
        const PlanStep *st = &plan->step[i];
        StorageId gone = st->kind == STEP_DROP ? st->id : st->inplace;
        if (gone != NO_ID) {
            there[gone] = false;
            bytes -= p->bytes[gone];
        }
        if (st->kind == STEP_DROP) continue;
        for (uint32_t k = 0; k < g->node[st->id].nout; k++) {
            if (st->out[k].place != PLACE_RESIDENT) continue;
            StorageId s = g->value[g->node[st->id].out[k]].storage;
            there[s] = true;
            bytes += p->bytes[s];
        }
        if (bytes <= peak) continue;
        peak = bytes;
        memcpy(at_peak, there, p->nstorage * sizeof *there);
    }
    Live *live = ARENA_ARRAY(t, Live, p->nstorage);
    uint32_t n = 0;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (at_peak[s]) live[n++] = (Live){s, p->bytes[s]};
    qsort(live, n, sizeof *live, live_cmp);
    if (n > max) n = max;
    for (uint32_t i = 0; i < n; i++) out[i] = g->storage[live[i].s].root;
    arena_free(t);
    return n;
}
