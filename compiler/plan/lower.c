/* lower.c - the proven lower bound on what a budget costs: the larger of the interval-retention
 * bound (retain.c), which sees all moments at once, and the bound from minimum cuts (windows.c),
 * which sees chains of recomputation. Both hold for any number of recomputations anywhere, with
 * first runs in the base order and updates at their place or later; the second one is computed for
 * all orders as well. */
#include "cut.h"
#include "retain.h"
#include "strategy.h"

PlanBound plan_bound(const Graph *g, const Cost *c, uint64_t budget, bool bytes_only) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, bytes_only);
    uint64_t capacity = plan_capacity(p, budget);
    PlanBound b = {.feasible = false, .node = NO_ID};
    CutBound cut = {.feasible = false}, any = {.feasible = false};
    if (budget >= p->persistent_bytes) cut_bound_any_order(t, p, capacity, &any);
    if (any.feasible) cut_bound(t, p, capacity, &cut);
    b.feasible = any.feasible;
    if (any.feasible && p->base_ns) b.overhead = b.any_order = any.value / (double)p->base_ns;
    if (cut.feasible && p->base_ns) {
        Retention r;
        retain_solve(t, p, capacity, &r);
        b.retention = r.value / (double)p->base_ns;
        b.cut = cut.value / (double)p->base_ns;
        if (b.overhead < b.retention) b.overhead = b.retention;
        if (b.overhead < b.cut) b.overhead = b.cut;
        if (b.cut > b.retention) {
            b.node = p->node[cut.nwindow == 1 ? cut.window[0] : cut.run];
            b.windows = cut.nwindow;
        }
    }
    arena_free(t);
    return b;
}

bool plan_keeps_order(const Graph *g, const Cost *c, const Plan *p) {
    Arena *t = arena_new();
    bool *ran = ARENA_ARRAY(t, bool, g->nnode), keeps = true;
    NodeId next = 0; /* nodes before it ran, but for effects and views that cost nothing */
    for (uint32_t i = 0; i < p->nstep && keeps; i++) {
        NodeId n = p->step[i].id;
        if (p->step[i].kind != STEP_RUN || ran[n]) continue;
        NodeClass cls = op_node_class(&g->node[n]);
        ran[n] = true;
        if (cls == CLS_VIEW && !c->node_ns[n]) continue;
        for (; next < n; next++) {
            NodeClass before = op_node_class(&g->node[next]);
            bool free_view = before == CLS_VIEW && !c->node_ns[next];
            if (!ran[next] && before != CLS_EFFECT && !free_view) break;
        }
        keeps = next >= n && (cls == CLS_EFFECT || next == n);
    }
    arena_free(t);
    return keeps;
}

double plan_bound_for(const PlanBound *b, const Graph *g, const Cost *c, const Plan *p) {
    return plan_keeps_order(g, c, p) ? b->overhead : b->any_order;
}
