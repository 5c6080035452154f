/* chain.h - the step as a chain: forward cut into segments where little is carried over, each with
 * its part of backward; and schedules for chains by dynamic programming. Internal to the room. */
#ifndef DTRC_CHAIN_H
#define DTRC_CHAIN_H

#include "timeline.h"

enum { CHAIN_LEAST = 4, CHAIN_MOST = 96 }; /* segments */

/* What a segment keeps: what it carries on; that and what its backward reads; only the latter. */
enum { SEG_CARRIED, SEG_BOTH, SEG_INNER, SEG_KEPT };

/* Forward runs [run, run of the next), and backward runs [back of the next, back). Carried into it:
 * what was made before and is read by forward runs from there on. Bytes do not contain what is
 * carried into it. */
typedef struct {
    uint32_t run, back;
    uint64_t inner;            /* what its backward reads of it and it does not carry on */
    uint64_t fwd[SEG_KEPT];    /* most while it runs, by what it keeps, */
    double again_ns[SEG_KEPT]; /* and the time of doing that again */
    uint64_t bwd, least; /* most during backward: with inner until its last use; made when read */
    uint64_t grads;      /* gradients there when its backward begins */
} Segment;

typedef struct {
    const Problem *p;
    uint32_t n, forward; /* forward: number of forward runs */
    Segment *segment;    /* n + 1: the last one begins where backward does */
    uint64_t *carry;     /* n + 1 by n + 1: bytes carried into segment j, made from i on */
    uint32_t *last;      /* per storage: last forward run that reads it; the one that made it */
} Chain;

/* NULL: too few places where little is carried over. */
Chain *chain_new(Arena *a, const Problem *p);

/* ---- rotor.c ---- */
typedef struct Rotor Rotor;
Rotor *rotor_new(Arena *a, const Chain *c, uint64_t capacity);
/* A schedule for so many bytes, at most 1.1 times the capacity; false: none that costs at most so
 * much. It may take a little more than those bytes, see rotor.c. */
bool rotor_schedule(Arena *a, const Rotor *r, uint64_t bytes, uint64_t cost_limit, Sequence *out);
/* Extra time of that schedule as the program sees it, in ns; infinite: none. */
double rotor_cost(const Rotor *r, uint64_t bytes);

#endif
