/* ilp.h - the strategies that prove: through mixed-integer programs. Internal to the room. */
#ifndef DTRC_ILP_H
#define DTRC_ILP_H

#include "strategy.h"

/* ---- ilp.c ---- */
/* Of the plan without recomputation. */
const PlanProof *plan_trivial_proof(Arena *a);
/* p: base order; late: updates at the end, or NULL. Never worse than `static`. */
Plan *plan_ilp(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o);

#endif
