/* keeper.h - builds a sequence by saying what runs and what is forgotten; what is missing for a run
 * is made again first. Internal to the room. */
#ifndef DTRC_KEEPER_H
#define DTRC_KEEPER_H

#include "timeline.h"

typedef struct {
    const Problem *p;
    Arena *a;
    bool *there;                  /* per tensor */
    uint32_t *frozen;             /* problem_frozen */
    uint32_t now;                 /* first run that has not happened yet */
    uint64_t cost_ns, cost_limit; /* of all runs so far; nothing is made past the limit */
    VEC(uint32_t) run, stack;
    VEC(uint64_t) kept;
} Keeper;

Keeper *keeper_new(Arena *a, const Problem *p);
/* Tensor t with all that it takes; false when something frozen would have to run again, or past the
 * limit. */
bool keeper_make(Keeper *k, uint32_t t);
/* The next first run, its operands before it. */
bool keeper_step(Keeper *k);
/* The rest of the step: first runs and outputs. */
bool keeper_finish(Keeper *k);
/* The storage's contents are gone. */
void keeper_forget(Keeper *k, StorageId s);
Sequence keeper_sequence(Arena *a, const Keeper *k);

#endif
