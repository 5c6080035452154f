/* kinetic.h - the best of many lines at a time that only grows. Internal to the room. */
#ifndef DTRT_DTR_KINETIC_H
#define DTRT_DTR_KINETIC_H

#include "block.h"

#include <stdbool.h>

#define KINETIC_NONE UINT32_MAX

/* slope * (time - zero) + level; the level may be infinite. */
typedef struct {
    double slope, zero, level;
} Line;

typedef struct {
    double fail;  /* winners at and below the node are right before this time */
    uint32_t win; /* best item below; or NONE */
} Match;

typedef struct {
    uint32_t leaves; /* a power of two, at least the number of items */
    Line *line;      /* per item; those that take no part: minus infinity at all times */
    Match *match;    /* the children of node k are 2k and 2k+1; item i is node leaves + i */
} Kinetic;

static inline double line_at(const Line *l, double t) {
    return l->slope * (t - l->zero) + l->level;
}

void kinetic_take_memory(Kinetic *k, Block *b, uint32_t nitem);
void kinetic_reset(Kinetic *k);
static inline bool kinetic_has(const Kinetic *k, uint32_t item) {
    return k->match[k->leaves + item].win != KINETIC_NONE;
}
/* The item takes part with its line, or not any more. */
void kinetic_set(Kinetic *k, uint32_t item, bool there, Line line);
/* The `most` items with the highest values at time t (ties: lowest number), best first; returns how
 * many there are. t must not be less than before. most <= KINETIC_MOST. */
enum { KINETIC_MOST = 16 };
uint32_t kinetic_best(Kinetic *k, double t, uint32_t most, uint32_t *item);

#endif
