/* bound.c - the load of a set of live ranges: the largest sum of bytes at any moment. Blocks in,
 * one number out; a sweep over begins and ends. */
#include "layout.h"

#include <stdlib.h>

typedef struct {
    uint32_t at;
    bool is_begin;
    uint64_t bytes;
} Event;

static int event_cmp(const void *x, const void *y) {
    const Event *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    return (int)a->is_begin - (int)b->is_begin; /* half-open ranges: ends come first */
}

uint64_t lay_bound(Arena *scratch, const LayBlock *b, uint32_t n, uint64_t align) {
    Event *e = ARENA_ARRAY(scratch, Event, 2 * (uint64_t)n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = round_up(b[i].bytes, align);
        e[2 * (size_t)i] = (Event){b[i].begin, true, bytes};
        e[2 * (size_t)i + 1] = (Event){b[i].end, false, bytes};
    }
    qsort(e, 2 * (size_t)n, sizeof *e, event_cmp);
    uint64_t load = 0, peak = 0;
    for (size_t i = 0; i < 2 * (size_t)n; i++) {
        load = e[i].is_begin ? load + e[i].bytes : load - e[i].bytes;
        if (load > peak) peak = load;
    }
    return peak;
}
