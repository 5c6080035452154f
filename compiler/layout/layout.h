/* layout.h - live ranges to offsets in one arena. Knows nothing of the IR. */
#ifndef DTRC_LAYOUT_H
#define DTRC_LAYOUT_H

#include "base.h"

typedef struct {
    uint32_t begin, end; /* half-open, in moments; begin < end */
    uint64_t bytes;      /* > 0 */
    uint64_t offset;     /* result */
} LayBlock;

/* Elementary steps (a few ns each) that lay_pack at effort 1 may spend on missing its target; four
 * times as many for each further effort. */
#define LAY_WORK UINT64_C(4000000)

/* Packs blocks so that blocks that overlap in time are disjoint in space. Several deterministic
 * orders (by size, by area, by begin, by length) of best fit; keeps the best. Returns the arena
 * bytes needed; writes offsets, multiples of align. Stops early once `target` is met (0: no
 * target). effort < 0: all that counts is whether the target is met; UINT64_MAX, and no offsets,
 * when not. */
uint64_t lay_pack(Arena *scratch, LayBlock *b, uint32_t n, uint64_t align, uint64_t target,
                  int effort);
/* The largest sum of bytes (each rounded up to align) at any moment: no layout can be smaller. */
uint64_t lay_bound(Arena *scratch, const LayBlock *b, uint32_t n, uint64_t align);
/* Independent check; reports the first violation. */
bool lay_verify(Diag *d, const LayBlock *b, uint32_t n, uint64_t align, uint64_t arena_bytes);

#endif
