/* smallest.c - the smallest budget that a planner meets, by bisection.
 *
 * Failures cost most: a planner tries everything before it gives up. So the parts of `static`
 * (strategy.h), each of which finds plans on its own, are searched one after the other: the first
 * one between the floor and the peak, the others below what the ones before them reached, and most
 * of them end with their first failure. That is not what bisection over the whole portfolio would
 * do, where every step down fails in all parts.
 *
 * Planners are greedy: they may fail under one budget and succeed under a smaller one. A few
 * budgets below the result are looked at for such islands. */
#include "strategy.h"

#include <string.h>

enum {
    ISLANDS = 8, /* parts of the range below that are looked at */
    SMALL = 128, /* graphs of so many nodes: failures cost little, all parts at once */
};

/* Runs times nodes. Plans close to the floor recompute without end, and all a large graph's report
 * needs is a budget that is near; a small graph gets its smallest budget to the byte. */
#define QUICK_WORK UINT64_C(150000000)
#define EXACT_WORK UINT64_C(4000000)

typedef struct {
    const Graph *g;
    const Cost *c;
    const PlanOptions *o;
    const Problem *p, *late; /* for parts of `static`, else NULL */
    StaticPart part;
    uint64_t best, met; /* bytes that the best plan takes; the budget under which it was found */
    uint64_t work; /* runs times nodes of all plans; a failure counts as two runs of each node */
} Smallest;

/* Is there a plan under the budget? */
static bool probe(Smallest *x, uint64_t budget) {
    Arena *t = arena_new();
    PlanOptions o = *x->o;
    o.budget = budget;
    o.effort = 0;
    o.quick = true;
    Plan *plan = NULL;
    if (x->p)
        plan = plan_static_part(t, x->p, x->late, &o, x->part);
    else
        plan_make(t, x->g, x->c, &o, &plan);
    uint64_t runs = plan ? plan->recomputed_runs : 2 * (uint64_t)x->g->nnode;
    x->work += runs * x->g->nnode;
    if (plan && plan->persistent_bytes + plan->arena_bytes <= x->best) {
        x->best = plan->persistent_bytes + plan->arena_bytes;
        x->met = budget;
    }
    arena_free(t);
    return plan != NULL;
}

static uint64_t step_of(const Smallest *x) {
    uint64_t step = x->best / 2000;
    return step < PLAN_ALIGN || x->work < EXACT_WORK ? PLAN_ALIGN : step;
}

static bool is_over(const Smallest *x) {
    return x->o->quick && x->work > QUICK_WORK;
}

static void bisect(Smallest *x, uint64_t low) {
    while (x->best > low && x->best - low > step_of(x) && !is_over(x)) {
        uint64_t mid = low + (x->best - low) / 2;
        if (!probe(x, mid)) low = mid;
    }
}

static void look_for_islands(Smallest *x, uint64_t floor) {
    for (uint32_t k = 1; k < ISLANDS && x->work < QUICK_WORK / 8; k++)
        if (probe(x, floor + (x->best - floor) / ISLANDS * k)) return;
}

/* The first failure of a part ends it. */
static void search_parts(Smallest *x, uint64_t floor) {
    for (x->part = 0; x->part < STATIC_PARTS; x->part++) {
        if (x->part == PART_LATE && !x->late) continue;
        if (x->part == PART_PLACED && x->o->bytes_only) continue;
        if (x->part == PART_ORDER && x->o->keep_order) continue;
        if (x->part && (x->best - floor <= step_of(x) || !probe(x, x->best - step_of(x)))) continue;
        bisect(x, floor);
        if (!x->part) look_for_islands(x, floor);
    }
}

uint64_t plan_min_budget(const Graph *g, const Cost *c, const PlanOptions *o) {
    Arena *t = arena_new();
    uint64_t floor = plan_floor(g, c, o->bytes_only),
             peak = plan_peak_without_budget(g, c, o->bytes_only);
    Smallest x = {.g = g, .c = c, .o = o, .best = peak, .met = peak};
    const char *planner = o->planner ? o->planner : "static";
    bool parts = !strcmp(planner, "static") || !strncmp(planner, "ilp", 3);
    if (parts && g->nnode > SMALL) {
        NodeId *order = problem_deferred_order(t, g);
        x.p = problem_new(t, g, c, NULL, o->bytes_only);
        if (order) x.late = problem_new(t, g, c, order, o->bytes_only);
        search_parts(&x, floor);
    } else {
        bisect(&x, floor);
        look_for_islands(&x, floor);
    }
    /* What a plan takes is less than its budget; as a budget it may lead the search elsewhere. */
    uint64_t best = x.best, met = x.met;
    x.p = NULL;
    bool works = best == met || probe(&x, best);
    arena_free(t);
    return works ? best : met;
}
