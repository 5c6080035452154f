/* space.h - the arena: blocks in address order, free ones by size. Internal to the room. */
#ifndef DTRT_DTR_SPACE_H
#define DTRT_DTR_SPACE_H

#include "block.h"

#include <stdbool.h>

#define SPACE_NONE UINT32_MAX       /* no block */
#define SPACE_FREE UINT32_MAX       /* owner of free blocks */
#define SPACE_BUSY (SPACE_FREE - 1) /* of blocks that no storage has: scratch and workspace */

typedef struct {
    uint64_t offset, bytes;
    uint32_t prev, next;   /* by address; SPACE_NONE: end */
    uint32_t owner;        /* storage, SPACE_BUSY or SPACE_FREE */
    uint32_t fprev, fnext; /* free blocks of one size class */
} SpaceBlock;

typedef struct {
    SpaceBlock *block;
    uint32_t nblock; /* entries used so far */
    uint32_t spare;  /* chain of unused entries through next */
    uint32_t head;
    uint64_t used, high; /* high: largest end ever taken */
    uint32_t bin[64];    /* free blocks with 2^k <= bytes < 2^(k+1) */
    uint64_t nonempty;   /* bit k: bin k has blocks */
} Space;

/* Memory for at most `most` blocks with owners at a time. */
void space_take_memory(Space *s, Block *b, uint64_t most);
void space_reset(Space *s, uint64_t capacity);
/* Best fit (ties: lowest offset); at the low or the high end of the hole. SPACE_NONE when no hole
 * is large enough. */
uint32_t space_take(Space *s, uint64_t bytes, bool high_end, uint32_t owner);
/* Takes exactly [offset, offset+bytes) when all of it is free; else SPACE_NONE. */
uint32_t space_take_at(Space *s, uint64_t offset, uint64_t bytes, uint32_t owner);
void space_give(Space *s, uint32_t block);

#endif
