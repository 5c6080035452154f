/* search.h - tree search for a layout that fits a given capacity. Internal to the room.
 *
 * Time is cut into sections: the moments at which a set of live blocks is largest (a maximal clique
 * of the interval graph); a block covers the sections [first, last). Sizes are in units of their
 * greatest common divisor. */
#ifndef DTRC_LAYOUT_SEARCH_H
#define DTRC_LAYOUT_SEARCH_H

#include "layout.h"

enum {
    SEARCH_LANES = 64,   /* per block arrays of the search are padded to a multiple of these */
    SEARCH_FAR = 1 << 29 /* above every offset */
};

typedef struct {
    uint32_t n, nsection;
    uint32_t *first, *last; /* per block: sections [first, last); padded with empty ranges */
    int32_t *size;          /* per block, in units */
    int32_t *load;          /* per section: the sum of its blocks */
    uint32_t *live_at; /* per section: its blocks are live[live_at[q]] .. live[live_at[q + 1]] */
    uint32_t *live;    /* empty for sections far from full, where too long */
    bool all_live;     /* no list was left out */
    uint64_t unit;     /* bytes */
} Sections;

/* NULL when the blocks are too many or the capacity too large for a search. */
Sections *lay_sections(Arena *a, const LayBlock *b, uint32_t n, const uint64_t *bytes,
                       uint64_t capacity);

/* A search in progress: what a descent learns, also at another capacity, helps the next. */
typedef struct Search Search;
Search *lay_search_new(Arena *a, const LayBlock *b, const Sections *s);
/* One descent from the empty arena with a bounded number of steps back; spends at most about `work`
 * elementary steps and says how many in *spent. The capacity: at least the load, at most that of
 * lay_sections. True: offset[i] of all blocks is filled, in bytes, and none ends above the
 * capacity. */
bool lay_descend(Search *x, uint64_t capacity, uint64_t work, uint64_t *spent, uint64_t *offset);

#endif
