/* verify.c - independent check of a layout: alignment, arena size, and that blocks which share a
 * moment share no byte. Sweeps over time with the live blocks in a list kept by offset; shares no
 * code with pack.c. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t at, kind; /* kind 0: end, 1: begin */
    uint32_t block;
} Moment;

static int moment_cmp(const void *x, const void *y) {
    const Moment *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    return a->block < b->block ? -1 : a->block > b->block;
}

/* First position in the live list, sorted by offset, whose offset is above `offset`. */
static uint32_t above(const LayBlock *b, const uint32_t *live, uint32_t n, uint64_t offset) {
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (b[live[mid]].offset <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool overlap(Diag *d, const LayBlock *b, uint32_t x, uint32_t y) {
    return diag_error(
        d, (Place){0},
        "layout: blocks %u [%llu, +%llu) and %u [%llu, +%llu) overlap while both are live", x,
        (unsigned long long)b[x].offset, (unsigned long long)b[x].bytes, y,
        (unsigned long long)b[y].offset, (unsigned long long)b[y].bytes);
}

bool lay_verify(Diag *d, const LayBlock *b, uint32_t n, uint64_t align, uint64_t arena_bytes) {
    Arena *s = arena_new();
    Moment *m = ARENA_ARRAY(s, Moment, 2 * (uint64_t)n);
    uint32_t *live = ARENA_ARRAY(s, uint32_t, n), nlive = 0;
    bool ok = true;
    for (uint32_t i = 0; i < n && ok; i++) {
        m[2 * (size_t)i] = (Moment){b[i].begin, 1, i};
        m[2 * (size_t)i + 1] = (Moment){b[i].end, 0, i};
        uint64_t end;
        if (b[i].begin >= b[i].end || !b[i].bytes)
            ok = diag_error(d, (Place){0}, "layout: block %u is empty", i);
        else if (b[i].offset % align)
            ok = diag_error(d, (Place){0}, "layout: block %u lies at %llu, not a multiple of %llu",
                            i, (unsigned long long)b[i].offset, (unsigned long long)align);
        else if (!checked_add(b[i].offset, b[i].bytes, &end) || end > arena_bytes)
            ok = diag_error(d, (Place){0}, "layout: block %u ends past the arena of %llu bytes", i,
                            (unsigned long long)arena_bytes);
    }
    if (ok) qsort(m, 2 * (size_t)n, sizeof *m, moment_cmp);
    for (size_t i = 0; i < 2 * (size_t)n && ok; i++) {
        uint32_t k = m[i].block, at = above(b, live, nlive, b[k].offset);
        if (m[i].kind == 0) { /* equal offsets cannot both be live, so k is the one before */
            memmove(live + at - 1, live + at, (nlive - at) * sizeof *live);
            nlive--;
            continue;
        }
        if (at > 0 && b[live[at - 1]].offset + b[live[at - 1]].bytes > b[k].offset)
            ok = overlap(d, b, live[at - 1], k);
        else if (at < nlive && b[k].offset + b[k].bytes > b[live[at]].offset)
            ok = overlap(d, b, k, live[at]);
        memmove(live + at + 1, live + at, (nlive - at) * sizeof *live);
        live[at] = k;
        nlive++;
    }
    arena_free(s);
    return ok;
}
