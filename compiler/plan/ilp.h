/* ilp.h - the strategies that prove: through mixed-integer programs. Internal to the room. */
#ifndef DTRC_ILP_H
#define DTRC_ILP_H

#include "strategy.h"
#include "timeline.h"

/* ---- ilp.c ---- */
/* Of the plan without recomputation. */
const PlanProof *plan_trivial_proof(Arena *a);
/* The schedule as a plan, packed unless o counts bytes only; NULL when it finds no addresses. */
Plan *plan_of_timeline(Arena *a, const Timeline *t, const PlanOptions *o, const char *planner);
/* p: base order; late: updates at the end, or NULL. Never worse than `static`. */
Plan *plan_ilp(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o);
/* ---- checkmate.c ---- */
/* PLAN_TOO_LARGE, PLAN_INFEASIBLE, or a plan: that of `static` when the solver found none in time.
 */
PlanStatus plan_checkmate(Arena *a, const Problem *p, const PlanOptions *o, Plan **out);

#endif
