/* windows.h - points of the base order and the windows between them, for bounds. Internal to the
 * room. */
#ifndef DTRC_WINDOWS_H
#define DTRC_WINDOWS_H

#include "cut.h"

/* A point of the base order, with room for its arrays. */
typedef struct {
    const Problem *p;
    uint64_t capacity;
    CutPoint at;
    uint8_t *state;
    bool *need;
    uint32_t *last; /* per tensor: last use; Problem.nrun for outputs */
} BasePoint;

/* capacity: bytes of the arena. */
BasePoint base_point_new(Arena *a, const Problem *p, uint64_t capacity);
/* The point at `run` with uses up to the first run of `until`, or to the end (Problem.nrun). False:
 * the working set does not fit. */
bool base_point_set(BasePoint *b, uint32_t run, uint32_t until);

/* ---- ties.c ---- */
/* A lower bound on extra time from the windows that begin at run[0] < run[1] < ..; at least the sum
 * of their own bounds. price: ns per byte to begin with; rounds: of the ascent. */
double ties_bound(Arena *a, Cut *c, BasePoint *b, const uint32_t *run, uint32_t n, double price,
                  uint32_t rounds);

/* ---- branch.c ---- */
/* The bound at run with whole storages, by a tree of at most so many nodes. Infinite: no plan
 * exists. What is not above `least` is of no use: then it may be more than the bound, but not above
 * `least`. */
double branch_bound(Arena *a, Cut *c, BasePoint *b, uint32_t run, double least, uint32_t nodes);

#endif
