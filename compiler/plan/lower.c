/* lower.c - the proven lower bound on what a budget costs: the larger of the interval-retention
 * bound (retain.c), which sees all moments at once, and the bound from minimum cuts (windows.c),
 * which sees chains of recomputation. Both hold for any number of recomputations anywhere, with
 * first runs in the base order and updates at their place or later. */
#include "cut.h"
#include "retain.h"
#include "strategy.h"

PlanBound plan_bound(const Graph *g, const Cost *c, uint64_t budget, bool bytes_only) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, bytes_only);
    uint64_t capacity = plan_capacity(p, budget);
    PlanBound b = {.feasible = false, .node = NO_ID};
    CutBound cut = {.feasible = false};
    if (budget >= p->persistent_bytes) cut_bound(t, p, capacity, &cut);
    b.feasible = cut.feasible;
    if (cut.feasible && p->base_ns) {
        Retention r;
        retain_solve(t, p, capacity, &r);
        b.retention = r.value / (double)p->base_ns;
        b.cut = cut.value / (double)p->base_ns;
        b.overhead = b.cut > b.retention ? b.cut : b.retention;
        if (b.cut > b.retention) {
            b.node = p->node[cut.nwindow == 1 ? cut.window[0] : cut.run];
            b.windows = cut.nwindow;
        }
    }
    arena_free(t);
    return b;
}
