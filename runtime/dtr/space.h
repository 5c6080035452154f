/* space.h - the arena: blocks in address order, free ones in a search tree. Internal to the
 * room. */
#ifndef DTRT_DTR_SPACE_H
#define DTRT_DTR_SPACE_H

#include "block.h"

#include <stdbool.h>

#define SPACE_NONE UINT32_MAX       /* no block */
#define SPACE_FREE UINT32_MAX       /* owner of free blocks */
#define SPACE_BUSY (SPACE_FREE - 1) /* of blocks that no storage has: scratch and workspace */

typedef struct {
    uint64_t offset, bytes;
    uint32_t prev, next;  /* by address; SPACE_NONE: end */
    uint32_t owner;       /* storage, SPACE_BUSY or SPACE_FREE */
    uint32_t left, right; /* free blocks: subtrees of smaller and larger ones */
} SpaceBlock;

typedef struct {
    SpaceBlock *block;
    uint32_t nblock; /* entries used so far */
    uint32_t spare;  /* chain of unused entries through next */
    uint32_t head;
    uint64_t used, high; /* high: largest end ever taken */
    uint32_t root;       /* of the free blocks, by bytes, then by offset */
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
/* The largest free blocks, at most `most`, largest first; returns how many. */
uint32_t space_holes(const Space *s, uint32_t most, uint32_t *block);

#endif
