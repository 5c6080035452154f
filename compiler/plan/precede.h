/* precede.h - what comes before what in every order of first runs that plan.h allows. Internal to
 * the room. */
#ifndef DTRC_PRECEDE_H
#define DTRC_PRECEDE_H

#include "problem.h"

/* Per run, its neighbours: makers before readers, readers of a persistent value before what mutates
 * it, those that mutate the same value in graph order. Base order is one of the orders. */
typedef struct {
    Lists before, after;
} Precedence;

Precedence precede_new(Arena *a, const Problem *p);

/* Per run, the number of runs on the longest path through it: those on long paths have many runs
 * before or after them in every order. */
uint32_t *precede_path(Arena *a, const Precedence *o, uint32_t nrun);

/* Adds r and all that one can reach from it in l to mark; stack: room for every run. */
void precede_mark(const Lists *l, uint32_t r, bool *mark, uint32_t *stack);

#endif
