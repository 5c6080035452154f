/* compare.h - the rows of dtrc compare, between what plans, what measures and what draws them. */
#ifndef DTRC_COMPARE_H
#define DTRC_COMPARE_H

#include "driver.h"

typedef enum { COMPARE_OK, COMPARE_INFEASIBLE, COMPARE_TIMEOUT } CompareStatus;

/* One planner under one budget. */
typedef struct {
    const char *planner; /* as asked for */
    CompareStatus status;
    const char *note; /* why there is no plan, or what a solver proved; or NULL */
    const Plan *plan; /* NULL: there is none */
    double bound;     /* proven for this plan, or for the graph's order when there is none */
    double ms;        /* planning */
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
} Compare;

const char *compare_status(CompareStatus s);
/* What a budget is of the peak, in percent. */
double compare_share(const Work *w, const CompareBudget *b);
/* The row with the least overhead; of equals `static`, else the first; NULL: nobody has a plan. */
const CompareRow *compare_best(const Compare *c, const CompareBudget *b);

/* ---- compare_html.c ---- */
bool compare_html(Arena *a, Diag *d, const Options *o, Work *w, const Compare *c);

#endif
