/* plan.h - Graph + Cost + budget -> Plan: when each node runs, when each storage is dropped, and
 * where everything lies in the arena.
 *
 * The budget covers persistent storages (each rounded up to PLAN_ALIGN) plus the arena. Views need
 * no run: a view is there whenever its storage is. (A view that costs something, which only traces
 * have, is a run, and must run again after its storage was dropped.)
 *
 * Plan invariants (checked by plan_verify, which shares no code with the strategies):
 *  P1 every node but free views runs at least once; CLS_EFFECT nodes exactly once. The first runs
 *     stand in any order that P2 and P3 allow: most planners keep the graph's, or let updates wait
 *     for the end of the step; `static` and `ilp` may take another one where it pays.
 *  P2 a run finds all its inputs resident (persistent ones always are).
 *  P3 no node that reads a persistent value and does not mutate it runs after a node that does
 *     (I5, for reruns too); nodes that mutate the same value run in graph order.
 *  P4 at every moment resident storages, scratch outputs and workspace are disjoint in the arena,
 *     aligned to PLAN_ALIGN, and inside [0, arena_bytes); persistent_bytes + arena_bytes <= budget.
 *  P5 an in-place output has exactly the offset and bytes of the input storage that it takes over;
 *     that input is one that the op table allows (or, in a Fused node, an input of full size), it
 *     is not persistent, no output of the graph, and nobody reads it later without recomputing it.
 *  P6 graph outputs are resident at the end. */
#ifndef DTRC_PLAN_H
#define DTRC_PLAN_H

#include "cost.h"

#define PLAN_ALIGN 256
#define PLAN_TIME_LIMIT 60

typedef enum { STEP_RUN, STEP_DROP } StepKind;

typedef enum {
    PLACE_NONE,     /* no bytes: view, persistent, or absent output */
    PLACE_RESIDENT, /* stays until its DROP */
    PLACE_SCRATCH /* written but not kept: a second run of a node with several outputs writes those
                     that are still resident, or that nobody wants, to bytes of their own */
} PlanPlace;

typedef struct {
    uint64_t offset; /* in the arena */
    uint8_t place;   /* PlanPlace */
} PlanOut;

typedef struct {
    StepKind kind;
    uint32_t id;        /* RUN: node; DROP: storage */
    StorageId inplace;  /* RUN: output 0 takes over the bytes of this input storage, which ends here
                           (no  DROP follows); NO_ID: not in place */
    PlanOut *out;       /* RUN: per output of the node */
    uint64_t workspace; /* RUN: offset of the workspace when cost->node_workspace > 0 */
} PlanStep;

/* What a planner that proves says about its plan. */
typedef struct {
    /* "optimal"; "limit": time is up; "open": nothing left to refine; "not packed": the bound is
     * that of byte sums, but the schedule found no addresses; "failed": the solver gave up, see
     * message */
    const char *status;
    double bound;   /* plan_overhead of any plan is at least this, see own_order */
    bool published; /* the bound speaks of schedules of Checkmate's form only */
    bool own_order; /* the bound speaks of the plan's own order of first runs, not of the graph's */
    uint32_t points; /* of the step, with memory rows */
    uint32_t columns, rows, rounds, nodes;
    uint64_t start_ns; /* cost_ns of the plan of `static`; 0: it had none */
    double seconds;
    const char *message; /* what the solver said; or NULL */
} PlanProof;

typedef struct {
    uint32_t nstep;
    PlanStep *step;
    bool placed;     /* offsets are valid (always, with arena accounting) */
    uint64_t budget; /* bytes asked for */
    uint64_t persistent_bytes;
    uint64_t arena_bytes; /* highest end of anything in the arena */
    uint64_t byte_peak;   /* the largest byte sum at any moment: the no-fragmentation bound */
    uint64_t cost_ns;     /* all runs */
    uint64_t base_ns;     /* one run of each node */
    uint32_t recomputed_runs;
    uint32_t evictions;     /* drops of a storage that is computed again later */
    const char *planner;    /* strategy that made it, such as "dtr-local" */
    const PlanProof *proof; /* of `ilp` and `ilp-checkmate`; else NULL */
} Plan;

/* TOO_LARGE: the graph, for ilp-checkmate. TOO_DEAR: online planners only, recomputation without
 * end in sight. */
typedef enum { PLAN_OK, PLAN_INFEASIBLE, PLAN_TOO_LARGE, PLAN_TOO_DEAR } PlanStatus;

typedef struct {
    uint64_t budget;     /* bytes, persistent ones included */
    const char *planner; /* none, sqrt, dtr, dtr-eq, dtr-local, lru, size, msps, static (default:
                            best of all of these), dynamic (what a program makes of the budget in
                            dynamic mode), ilp, ilp-checkmate; NULL: static */
    int effort;          /* 0..3 */
    bool bytes_only;     /* --accounting bytes: no addresses */
    bool keep_order;     /* first runs in the graph's order, updates there or later */
    bool online;         /* dtr and its kin: as a program in dynamic mode runs them */
    bool quick;          /* any plan will do; plan_min_budget: an estimate will do */
    double time_limit;   /* seconds for ilp; 0: PLAN_TIME_LIMIT */
    Text *model;         /* ilp: gets its last program in CPLEX LP format; or NULL */
} PlanOptions;

/* What recomputation costs: 0.05 is 5 % more time than one run of each node. */
static inline double plan_overhead(const Plan *p) {
    return p->base_ns ? (double)p->cost_ns / (double)p->base_ns - 1 : 0;
}

/* ---- strategy.c: the one entry ------------------------------------------------------------- */
/* Plans under o->budget. On PLAN_OK *out is placed and passes plan_verify. */
PlanStatus plan_make(Arena *a, const Graph *g, const Cost *c, const PlanOptions *o, Plan **out);
bool plan_known(const char *planner);

/* ---- lower.c ------------------------------------------------------------------------------- */
/* Proven for any recomputation. */
typedef struct {
    bool feasible;         /* false: no plan exists; nothing else is valid then */
    double any_order;      /* plan_overhead of any plan is at least this */
    double overhead;       /* the same for plans with first runs in the graph's order and updates at
                              their place or later: plan_keeps_order */
    double retention, cut; /* what the two kinds of bound say; see lower.c */
    NodeId node;           /* the cut is the larger one, at this node; NO_ID: retention is */
    uint32_t windows;      /* 1: the cut at this node alone; more: at several, this is the best */
} PlanBound;
PlanBound plan_bound(const Graph *g, const Cost *c, uint64_t budget, bool bytes_only);
bool plan_keeps_order(const Graph *g, const Cost *c, const Plan *p);
/* What of it holds for this plan. */
double plan_bound_for(const PlanBound *b, const Graph *g, const Cost *c, const Plan *p);

/* ---- bounds.c ------------------------------------------------------------------------------ */
/* bytes_only: by byte sums without rounding and addresses, as PlanOptions.bytes_only counts. */
uint64_t plan_persistent_bytes(const Graph *g, const Cost *c, bool bytes_only);
/* Peak without recomputation (persistent + arena): the smallest that our placement reaches, or the
 * largest byte sum when each storage goes after its last use. */
uint64_t plan_peak_without_budget(const Graph *g, const Cost *c, bool bytes_only);
/* No schedule exists below this: persistent + the largest working set of one node. */
uint64_t plan_floor(const Graph *g, const Cost *c, bool bytes_only);
/* Smallest budget at which plan_make succeeds at effort 0, by bisection between floor and peak: at
 * the result it does succeed. Precise to 0.5 %; with o->quick the search of a large graph ends
 * earlier, with the best that it found. */
uint64_t plan_min_budget(const Graph *g, const Cost *c, const PlanOptions *o);
/* Values live at the peak of the plan without recomputation, largest first; for messages. */
uint32_t plan_peak_values(const Graph *g, const Cost *c, ValueId *out, uint32_t max);

/* ---- views.c ---- */
/* For readers to whom every operator is a run: the plan with runs of the views that cost nothing,
 * each right before it is read first and again after its storage was dropped. Views that nobody
 * reads stay out. */
const Plan *plan_run_views(Arena *a, const Graph *g, const Cost *c, const Plan *p);

/* ---- verify.c, json.c ------------------------------------------------------------------------ */
bool plan_verify(Diag *d, const Graph *g, const Cost *c, const Plan *p);
/* planbench's plan JSON with a header; see compiler/plan/README.md. */
void plan_print_json(Text *out, const Graph *g, const Cost *c, const Plan *p, const char *header);
/* NULL after reporting. The result goes to plan_verify, which says whether it is a good one. */
Plan *plan_parse_json(Arena *a, Diag *d, const char *file, const char *text, size_t n,
                      const Graph *g, const Cost *c);
void plan_print_list(Text *out, const Graph *g, const Plan *p); /* -d plan: one line a step */

#endif
