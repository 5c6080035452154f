/* layout.h - live ranges to offsets in one arena. Knows nothing of the IR. */
#ifndef DTRC_LAYOUT_H
#define DTRC_LAYOUT_H

#include "base.h"

typedef struct {
    uint32_t begin, end; /* half-open, in moments; begin < end */
    uint64_t bytes;      /* > 0 */
    uint64_t offset;     /* result */
} LayBlock;

/* Elementary steps (about a ns each) that the search of lay_pack may spend at effort 1 when greedy
 * orders miss the target; four times as many for each further effort. The second part is what one
 * descent of the search takes for so many blocks. */
#define LAY_WORK UINT64_C(40000000)
static inline uint64_t lay_work(uint32_t n, int effort) {
    uint64_t m = n < 20000 ? n : 20000;
    return (LAY_WORK + m * m * 3 / 2) << 2 * (effort - 1);
}

/* Packs blocks so that blocks that overlap in time are disjoint in space: best fit in several
 * deterministic orders (by size, by area, by begin, by length), then a tree search when these miss
 * the target. Returns the arena bytes needed, the smallest that it found; writes offsets, multiples
 * of align. Stops once `target` (0: the load) is met. Effort 0: no search. effort < 0: all that
 * counts is whether the target is met, searched for with the work of -effort; UINT64_MAX, and no
 * offsets, when not. */
uint64_t lay_pack(Arena *scratch, LayBlock *b, uint32_t n, uint64_t align, uint64_t target,
                  int effort);
/* The largest sum of bytes (each rounded up to align) at any moment: no layout can be smaller. */
uint64_t lay_bound(Arena *scratch, const LayBlock *b, uint32_t n, uint64_t align);
/* Fragmentation: how far an arena is above the load (the clique bound); 0.05 is 5 %. */
static inline double lay_fragmentation(uint64_t load, uint64_t arena_bytes) {
    return load ? (double)arena_bytes / (double)load - 1 : 0;
}
/* Independent check; reports the first violation. */
bool lay_verify(Diag *d, const LayBlock *b, uint32_t n, uint64_t align, uint64_t arena_bytes);

#endif
