/* retain.h - the interval-retention bound and the prices of memory over time that come with it.
 * Internal to the room. */
#ifndef DTRC_RETAIN_H
#define DTRC_RETAIN_H

#include "problem.h"

/* Time between two consecutive uses of a storage: at first runs t with from < t < to it need not be
 * there. `to` is Problem.nrun for an output of the graph. */
typedef struct {
    StorageId storage;
    uint32_t from, to;
    double bytes;
    double cost; /* ns that dropping it there costs at least; infinite: it cannot be made again */
    double hold; /* ns that keeping it costs at the prices; keep it where hold < cost */
} RetainGap;

typedef struct {
    double value;  /* ns; a valid lower bound on the extra time of any plan, see retain.c */
    double *price; /* per run: ns per byte that is kept while it happens */
    uint32_t ngap;
    RetainGap *gap; /* by storage, then time */
} Retention;

/* capacity: bytes of the arena. */
void retain_solve(Arena *a, const Problem *p, uint64_t capacity, Retention *out);

#endif
