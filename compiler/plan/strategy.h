/* strategy.h - what the strategies share. Internal to the room. Every strategy has the same shape:
 * problem and budget in, plan or NULL out; NULL means that it found no plan under the budget. */
#ifndef DTRC_STRATEGY_H
#define DTRC_STRATEGY_H

#include "sim.h"

/* Bytes of the arena under a budget; 0: the persistent storages alone are too large. */
static inline uint64_t plan_capacity(const Problem *p, uint64_t budget) {
    return budget < p->persistent_bytes ? 0 : budget - p->persistent_bytes;
}

/* Elementary steps that one simulation may take: many times what a good one needs. */
static inline uint64_t plan_sim_work(const Problem *p) {
    return 100000000 + 20000 * (uint64_t)p->nrun;
}

/* ---- none.c ---- */
Plan *plan_none(Arena *a, const Problem *p, const PlanOptions *o);
/* ---- dtr.c ---- */
/* Gives up past `limit` ns of all runs, or when it thrashes. */
Plan *plan_dtr(Arena *a, const Problem *p, const PlanOptions *o, DtrHeuristic h, uint64_t limit);
/* heuristic: "auto", or a name. */
PlanStatus plan_dynamic(Arena *a, const Problem *p, const PlanOptions *o, const char *heuristic,
                        Plan **out);
/* ---- sqrt.c ---- */
Plan *plan_sqrt(Arena *a, const Problem *p, const PlanOptions *o);
/* ---- static.c ---- */
/* p: base order; late: updates at the end, or NULL. */
Plan *plan_static(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o);
/* Its parts. When any plan will do (PlanOptions.quick) each finds what it finds alone, and
 * plan_static finds a plan where one of them does. */
typedef enum {
    PART_SCHEDULES, /* by byte sums, packed */
    PART_PLACED,    /* simulations with addresses */
    PART_PUBLISHED, /* the DTR family, segment checkpoints */
    PART_LATE,      /* updates at the end of the step */
    PART_ORDER,     /* another order of first runs */
    STATIC_PARTS
} StaticPart;
Plan *plan_static_part(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o,
                       StaticPart part);
/* ---- totals.c ---- */
/* Everything in the header but budget, arena_bytes, placed and planner. */
void plan_fill_totals(const Graph *g, const Cost *c, Plan *plan);
/* ---- place.c ---- */
/* Gives a plan that was made by byte sums its offsets; NULL when it does not fit the budget. */
Plan *plan_pack(const Problem *p, Plan *plan, uint64_t budget);
/* Packs again, offline; takes the result when it is smaller. True when it did. */
bool plan_repack(const Problem *p, Plan *plan, uint64_t target, int effort);

#endif
