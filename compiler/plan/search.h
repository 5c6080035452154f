/* search.h - local search over timelines. Internal to the room. */
#ifndef DTRC_SEARCH_H
#define DTRC_SEARCH_H

#include "mend.h"

/* Improves the schedule in m->t, which keeps m->capacity, until `work` elementary steps are done;
 * leaves the best in m->t. Deterministic. heat: how much dearer than now a schedule may be at
 * first, in mean times of one recomputation. */
void search_improve(Mender *m, uint64_t work, double heat);

#endif
