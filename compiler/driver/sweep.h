/* sweep.h - the curve of plan --sweep, between what makes and what draws it. */
#ifndef DTRC_SWEEP_H
#define DTRC_SWEEP_H

#include "driver.h"

typedef struct {
    uint64_t budget, from; /* from: the budget whose plan this is */
    const Plan *plan;      /* NULL: there is none */
    double bound;          /* proven, as a part of the base time */
    double ms;             /* planning */
} SweepRow;

typedef VEC(SweepRow) SweepRows; /* budgets ascend, each once */

/* ---- sweep_svg.c ---- */
void sweep_svg(Text *t, const Options *o, const Work *w, const SweepRows *s, uint64_t min);

#endif
