/* peaks.h - repair of a timeline by minimum cuts, one over-full position after the other. Internal
 * to the room. */
#ifndef DTRC_PEAKS_H
#define DTRC_PEAKS_H

#include "cut.h"
#include "mend.h"

/* At most `rounds` cuts, while the time is within cost_limit, at the positions that m->order names.
 * ns: time of one more run of each, as the cuts shall see it. True when the capacity is kept; else
 * the timeline is somewhere on the way.
 */
bool peaks_cut(Mender *m, Cut *cut, const double *ns, uint64_t cost_limit, uint32_t rounds);

#endif
