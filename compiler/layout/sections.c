/* sections.c - blocks over moments to blocks over sections. A section ends wherever a block ends
 * after another has begun: the sets of blocks between two such points are the maximal sets of
 * blocks that live together, and a layout that is right in each of them is right. As in Moffitt,
 * "MiniMalloc: A lightweight memory allocator for hardware-accelerated machine learning", ASPLOS
 * 2023, section 4.
 *
 * The lists of blocks per section are what costs memory. Where they get too long, sections that are
 * far from full have none: they are hardly ever what makes a layout fail. */
#include "search.h"

#include <stdlib.h>

enum { MAX_BLOCKS = 1 << 17, MAX_SPANS = 1 << 25, MAX_LIVE = 1 << 22 };

typedef struct {
    uint32_t at, block;
    bool is_begin;
} Event;

static int event_cmp(const void *x, const void *y) {
    const Event *a = x, *b = y;
    if (a->at != b->at) return a->at < b->at ? -1 : 1;
    if (a->is_begin != b->is_begin) return a->is_begin ? 1 : -1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static void cut_time(Arena *a, Sections *s, const LayBlock *b) {
    uint32_t n = s->n;
    Event *e = ARENA_ARRAY(a, Event, 2 * (uint64_t)n);
    for (uint32_t i = 0; i < n; i++) {
        e[2 * (size_t)i] = (Event){b[i].begin, i, true};
        e[2 * (size_t)i + 1] = (Event){b[i].end, i, false};
    }
    qsort(e, 2 * (size_t)n, sizeof *e, event_cmp);
    bool grown = false; /* a block began in this section */
    for (size_t i = 0; i < 2 * (size_t)n; i++) {
        if (e[i].is_begin) {
            s->first[e[i].block] = s->nsection;
            grown = true;
            continue;
        }
        s->nsection += grown;
        grown = false;
        s->last[e[i].block] = s->nsection;
    }
}

/* Sections filled to less than this part of the fullest one have no list. */
static bool is_listed(const Sections *s, uint32_t q, int32_t peak, int eighths) {
    return (int64_t)s->load[q] * 8 >= (int64_t)peak * eighths;
}

/* False when even the lists of the fullest sections are too long. */
static bool fill_live(Arena *a, Sections *s) {
    uint32_t *count = ARENA_ARRAY(a, uint32_t, s->nsection);
    int32_t peak = 0;
    for (uint32_t b = 0; b < s->n; b++)
        for (uint32_t q = s->first[b]; q < s->last[b]; q++) count[q]++;
    for (uint32_t q = 0; q < s->nsection; q++)
        if (s->load[q] > peak) peak = s->load[q];
    int eighths = 0;
    for (;; eighths++) {
        uint64_t total = 0;
        for (uint32_t q = 0; q < s->nsection; q++)
            if (is_listed(s, q, peak, eighths)) total += count[q];
        if (total <= MAX_LIVE) break;
        if (eighths == 8) return false;
    }
    s->all_live = !eighths;
    for (uint32_t q = 0; q < s->nsection; q++) {
        s->live_at[q + 1] = s->live_at[q] + (is_listed(s, q, peak, eighths) ? count[q] : 0);
        count[q] = 0;
    }
    s->live = ARENA_ARRAY(a, uint32_t, s->live_at[s->nsection]);
    for (uint32_t b = 0; b < s->n; b++)
        for (uint32_t q = s->first[b]; q < s->last[b]; q++)
            if (s->live_at[q + 1] > s->live_at[q]) s->live[s->live_at[q] + count[q]++] = b;
    return true;
}

Sections *lay_sections(Arena *a, const LayBlock *b, uint32_t n, const uint64_t *bytes,
                       uint64_t capacity) {
    Sections *s = ARENA_NEW(a, Sections);
    if (n > MAX_BLOCKS) return NULL;
    s->n = n;
    for (uint32_t i = 0; i < n; i++) s->unit = gcd(s->unit, bytes[i]);
    if (capacity / s->unit >= SEARCH_FAR / 2) return NULL;
    s->first = ARENA_ARRAY(a, uint32_t, (uint64_t)n + SEARCH_LANES);
    s->last = ARENA_ARRAY(a, uint32_t, (uint64_t)n + SEARCH_LANES);
    s->size = ARENA_ARRAY(a, int32_t, n);
    cut_time(a, s, b);
    uint64_t spans = 0;
    for (uint32_t i = 0; i < n; i++) spans += s->last[i] - s->first[i];
    if (spans > MAX_SPANS) return NULL;
    s->load = ARENA_ARRAY(a, int32_t, s->nsection);
    s->live_at = ARENA_ARRAY(a, uint32_t, (uint64_t)s->nsection + 1);
    for (uint32_t i = 0; i < n; i++) {
        s->size[i] = (int32_t)(bytes[i] / s->unit);
        for (uint32_t q = s->first[i]; q < s->last[i]; q++) s->load[q] += s->size[i];
    }
    return fill_live(a, s) ? s : NULL;
}
