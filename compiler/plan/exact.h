/* exact.h - local search by mixed-integer programs: a part of the schedule is free, the rest stays.
 * Internal to the room. */
#ifndef DTRC_EXACT_H
#define DTRC_EXACT_H

#include "mend.h"

/* Improves the schedule in m->t, which keeps the capacity. Ends after `work` elementary steps
 * (counted in iterations of the solver, never in time), or when nothing is found any more. */
void exact_improve(Mender *m, uint64_t work);

#endif
