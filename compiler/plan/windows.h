/* windows.h - points of the base order and the windows between them, for bounds. Internal to the
 * room. */
#ifndef DTRC_WINDOWS_H
#define DTRC_WINDOWS_H

#include "cut.h"
#include "precede.h"

/* A point of the base order, with room for its arrays. */
typedef struct {
    const Problem *p;
    uint64_t capacity;
    CutPoint at;
    uint8_t *state;
    bool *need;
    uint32_t *last; /* per tensor: last use; Problem.nrun for outputs */
    /* For all orders, else NULL; then per run: comes before, after the point, before `until` in any
     * order */
    const Precedence *any;
    bool *before, *after, *within;
    uint32_t *stack;
} BasePoint;

/* capacity: bytes of the arena. */
BasePoint base_point_new(Arena *a, const Problem *p, uint64_t capacity);
/* From now on, points are about what every order needs. */
void base_point_any_order(Arena *a, BasePoint *b, const Precedence *any);
/* The point at `run` with uses up to the first run of `until`, or to the end (Problem.nrun). False:
 * the working set does not fit. In all orders, `until` must be after `run`. */
bool base_point_set(BasePoint *b, uint32_t run, uint32_t until);
/* Whether r comes before `run`, at which the point is, in the base order or in all orders. */
static inline bool base_point_before(const BasePoint *b, uint32_t r, uint32_t run) {
    return b->any ? b->before[r] : r < run;
}

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
