/* search.h - local search over timelines. Internal to the room. */
#ifndef DTRC_SEARCH_H
#define DTRC_SEARCH_H

#include "mend.h"

/* Improves the schedule in m->t, which keeps m->capacity, until `work` elementary steps are done;
 * leaves the best in m->t. Deterministic. */
void search_improve(Mender *m, uint64_t work);

#endif
