/* compare.h - the rows of dtrc compare, between what plans, what measures and what draws them. */
#ifndef DTRC_COMPARE_H
#define DTRC_COMPARE_H

#include "driver.h"

typedef enum { COMPARE_OK, COMPARE_INFEASIBLE, COMPARE_TIMEOUT } CompareStatus;

/* One run of a compiled program. */
typedef struct {
    int status;        /* exit status; -1: it could not be started */
    const char *error; /* why there is nothing else; NULL: all is well */
    const char *mode, *heuristic, *sha256;
    uint32_t steps;
    double base_ms;      /* step of the program without a budget, run right after */
    double step_ms;      /* median */
    double overhead;     /* over the program without a budget: .05 is 5 % more time */
    uint64_t peak_bytes; /* of the block that was mapped */
    uint32_t again, evictions, decisions;
    double decide_ns, planning_ms; /* dynamic mode, at start */
    bool same_weights;             /* bit for bit those of the program without a budget */
} Measured;

/* One planner under one budget. */
typedef struct {
    const char *planner; /* as asked for */
    CompareStatus status;
    const char *note; /* why there is no plan, or what a solver proved; or NULL */
    const Plan *plan; /* NULL: there is none */
    double bound;     /* proven for this plan, or for the graph's order when there is none */
    double ms;        /* planning */
    const Measured *measured; /* or NULL */
} CompareRow;

typedef struct {
    uint64_t bytes;
    bool possible;   /* false: no schedule exists; nothing else holds then */
    PlanBound bound; /* with what solvers proved, and never less than under a larger budget */
    CompareRow *row; /* one for each planner */
} CompareBudget;

typedef struct {
    uint32_t nplanner, nbudget;
    const char **planner;
    CompareBudget *budget; /* ascending, each once */
    uint64_t min;          /* smallest budget that `static` meets */
    bool listed;           /* planners were asked for by name */
    const Measured *base;  /* the program without a budget; NULL: nothing was measured */
} Compare;

/* The planner is one that a running program has: dynamic mode. */
bool compare_is_dynamic(const char *planner);
const char *compare_status(CompareStatus s);
/* What a budget is of the peak, in percent. */
double compare_share(const Work *w, const CompareBudget *b);
/* The row with the least overhead; of equals `static`, else the first; NULL: nobody has a plan. */
const CompareRow *compare_best(const Compare *c, const CompareBudget *b);

/* ---- measure.c ---- */
/* Fills c->base and the rows' `measured`. The exit status. */
int measure(Arena *a, Diag *d, const Options *o, Work *w, Compare *c);

/* ---- compare_html.c ---- */
bool compare_html(Arena *a, Diag *d, const Options *o, Work *w, const Compare *c);

#endif
