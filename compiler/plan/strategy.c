/* strategy.c - the entry of the room: names, the deferred variant, and the check of every result.
 */
#include "strategy.h"

#include "ilp.h"

#include <assert.h>
#include <string.h>

bool plan_known(const char *planner) {
    return !strcmp(planner, "none") || !strcmp(planner, "dynamic") || !strcmp(planner, "sqrt") ||
           !strcmp(planner, "static") || !strcmp(planner, "ilp") ||
           !strcmp(planner, "ilp-checkmate") || dtr_heuristic(planner) != DTR_COUNT;
}

/* Where the plan without recomputation fits, no strategy has anything to decide: it costs the
 * least, and packing offline it may fit where placing as a simulation goes does not.
 *
 * Updates as soon as the gradient is complete (the graph's order) free gradients early, but freeze
 * what reads the weight; updates at the end do the opposite. Single strategies keep the graph's
 * order, the portfolio looks at both. */
static Plan *make(Arena *a, Arena *scratch, const Graph *g, const Cost *c, const PlanOptions *o,
                  const char *planner, PlanStatus *status) {
    bool proves = !strncmp(planner, "ilp", 3);
    const Problem *p = problem_new(scratch, g, c, NULL, o->bytes_only);
    if (p->persistent_bytes > o->budget) return NULL;
    if (p->floor_bytes > o->budget - p->persistent_bytes) return NULL;
    DtrHeuristic h = dtr_heuristic(planner);
    bool is_dynamic = !strcmp(planner, "dynamic");
    if (is_dynamic || (o->online && h != DTR_COUNT)) {
        Plan *plan;
        *status = plan_dynamic(a, p, o, is_dynamic ? "auto" : planner, &plan);
        return plan;
    }
    Plan *none = plan_none(a, p, o);
    if (none && strcmp(planner, "static")) none->planner = planner;
    if (none && proves) none->proof = plan_trivial_proof(a);
    if (none || !strcmp(planner, "none")) return none;
    if (!strcmp(planner, "sqrt")) return plan_sqrt(a, p, o);
    if (h != DTR_COUNT) return plan_dtr(a, p, o, h, UINT64_MAX);
    NodeId *order = problem_deferred_order(scratch, g);
    const Problem *late = order ? problem_new(scratch, g, c, order, o->bytes_only) : NULL;
    if (!strcmp(planner, "ilp") && !o->quick) return plan_ilp(a, p, late, o);
    Plan *plan;
    if (proves && !o->quick) {
        *status = plan_checkmate(a, p, o, &plan);
        return plan;
    }
    return plan_static(a, p, late, o);
}

PlanStatus plan_make(Arena *a, const Graph *g, const Cost *c, const PlanOptions *o, Plan **out) {
    const char *planner = o->planner ? o->planner : "static";
    assert(plan_known(planner));
    Arena *scratch = arena_new();
    PlanStatus status = PLAN_INFEASIBLE; /* when there is no plan */
    Plan *plan = make(a, scratch, g, c, o, planner, &status);
    arena_free(scratch);
    *out = plan;
    if (!plan) return status;
    Diag d;
    diag_init(&d, a, stderr);
    bool ok = plan_verify(&d, g, c, plan);
    assert(ok);
    return ok ? PLAN_OK : PLAN_INFEASIBLE;
}
