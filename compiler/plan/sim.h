/* sim.h - one training step played by the engine (runtime/dtr) and written down: the core of every
 * strategy but `none`'s packing. Internal to the room. */
#ifndef DTRC_SIM_H
#define DTRC_SIM_H

#include "problem.h"

typedef DtrOptions SimOptions;

typedef struct {
    StepKind kind;
    uint32_t id; /* run (not node), or storage */
    StorageId inplace;
    uint32_t out; /* first of its entries in Sim.out */
    uint64_t workspace;
} SimStep;

typedef struct {
    const Problem *p;
    Arena *a;
    Dtr *dtr;
    SimOptions o;
    /* of the last step */
    DtrStatus status;
    uint64_t cost, work, byte_peak;
    VEC(SimStep) step;
    VEC(PlanOut) out;
} Sim;

Sim *sim_new(Arena *a, const Problem *p);
/* PLAN_OK, or PLAN_INFEASIBLE when it did not fit or went past a limit. */
PlanStatus sim_run(Sim *s, const SimOptions *o);
Plan *sim_plan(Arena *a, const Sim *s, uint64_t budget, const char *planner);

#endif
