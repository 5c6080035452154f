/* seek.h - a cheap schedule under a capacity of bytes: several starts, then local search on the
 * best. Internal to the room. */
#ifndef DTRC_SEEK_H
#define DTRC_SEEK_H

#include "mend.h"

enum { SEEK_KEPT = 3 }; /* schedules that are remembered */

typedef struct {
    const Problem *p;
    Arena *a, *kept_arena;
    Timeline *t;
    Mender *m;
    uint64_t cost_limit; /* schedules that cost more are of no use */
    uint64_t known_ns;   /* cost of one that others found; 0: none */
    bool quick;          /* any schedule will do, and soon */
    double least_ns;     /* seek_starts has proven that any schedule recomputes that long */
    bool impossible;     /* seek_starts has proven that no schedule keeps the capacity */
    uint32_t n;
    Sequence kept[SEEK_KEPT]; /* cheapest first, of different cost */
} Seek;

Seek *seek_new(Arena *a, const Problem *p, int64_t capacity, bool quick);
void seek_free(Seek *x);
/* Forgets what was found; another capacity. */
void seek_capacity(Seek *x, int64_t capacity);
/* Takes a schedule as a start: repaired when it does not keep the capacity, and reduced. */
bool seek_offer(Seek *x, const Sequence *s);
/* Starts of its own. With quick, only until one works. */
typedef enum {
    START_REPAIR, /* what the minimum cut keeps; repair of the base order */
    START_CHAIN,  /* the best schedule for chains */
    START_LEAN,   /* what holds as little as it can */
    START_KINDS
} SeekStart;
void seek_start(Seek *x, SeekStart kind);
/* All of them; the last one when nothing else works. */
void seek_starts(Seek *x);
/* Local search from what is kept, `work` elementary steps together. */
void seek_search(Seek *x, uint64_t work);
/* From the best, farther away from it. */
void seek_search_hot(Seek *x, uint64_t work);
/* From the best, window by window (exact.h). */
void seek_exact(Seek *x, uint64_t work);

#endif
