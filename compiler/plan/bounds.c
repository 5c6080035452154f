/* bounds.c - what a budget can and cannot be: persistent bytes, the floor below which no schedule
 * exists, the peak without recomputation, the values live at the peak. */
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
