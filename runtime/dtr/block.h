/* block.h - many arrays in one block of memory. The same calls with at == NULL give the size of the
 * block, so that what is asked for and what is used can not differ. Internal to the room. */
#ifndef DTRT_DTR_BLOCK_H
#define DTRT_DTR_BLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *at;
    size_t used;
} Block;

/* n elements, aligned to 16; NULL while only counting. */
static inline void *block_take(Block *b, uint64_t n, size_t element) {
    size_t from = (b->used + 15) & ~(size_t)15;
    b->used = from + (size_t)n * element;
    return b->at ? b->at + from : NULL;
}

#endif
