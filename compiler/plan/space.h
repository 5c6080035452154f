/* space.h - the arena during a simulation: blocks in address order, free ones by size. Internal to
 * plan. */
#ifndef DTRC_SPACE_H
#define DTRC_SPACE_H

#include "base.h"

#define SPACE_FREE NO_ID
#define SPACE_BUSY (NO_ID - 1) /* owner of blocks that no storage has: scratch and workspace */

typedef struct {
    uint64_t offset, bytes;
    uint32_t prev, next;   /* by address; NO_ID: end */
    uint32_t owner;        /* storage, SPACE_BUSY or SPACE_FREE */
    uint32_t fprev, fnext; /* free blocks of one size class */
} SpaceBlock;

typedef struct {
    Arena *a;
    VEC(SpaceBlock) block;
    uint32_t spare; /* chain of unused entries through next */
    uint32_t head;
    uint64_t capacity, used, high; /* high: largest end ever taken */
    uint32_t bin[64];              /* free blocks with 2^k <= bytes < 2^(k+1) */
    uint64_t nonempty;             /* bit k: bin k has blocks */
} Space;

void space_init(Space *s, Arena *a);
void space_reset(Space *s, uint64_t capacity);
/* Best fit (ties: lowest offset); at the low or the high end of the hole. NO_ID when no hole is
 * large enough. */
uint32_t space_take(Space *s, uint64_t bytes, bool high_end, uint32_t owner);
/* Takes exactly [offset, offset+bytes) when all of it is free; else NO_ID. */
uint32_t space_take_at(Space *s, uint64_t offset, uint64_t bytes, uint32_t owner);
void space_give(Space *s, uint32_t block);

#endif
