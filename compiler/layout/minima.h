/* minima.h - an array of numbers >= 0 that knows its minimum: chunks of 64 keep theirs, and one
 * that may have lost it is scanned again only when asked. Internal to the room. */
#ifndef DTRC_LAYOUT_MINIMA_H
#define DTRC_LAYOUT_MINIMA_H

#include "base.h"

enum { MINIMA_CHUNK = 64, MINIMA_UNKNOWN = -1 };

typedef struct {
    uint32_t n;
    int32_t *at;
    int32_t *least; /* per chunk; MINIMA_UNKNOWN: scan it */
} Minima;

static inline Minima minima_new(Arena *a, uint32_t n) {
    return (Minima){n, ARENA_ARRAY(a, int32_t, n),
                    ARENA_ARRAY(a, int32_t, (uint64_t)n / MINIMA_CHUNK + 1)};
}

static inline void minima_set(Minima *m, uint32_t i, int32_t value) {
    int32_t *least = &m->least[i / MINIMA_CHUNK], old = m->at[i];
    m->at[i] = value;
    if (value <= *least)
        *least = value;
    else if (old == *least)
        *least = MINIMA_UNKNOWN;
}

/* Adds to all in [from, to). */
static inline void minima_add(Minima *m, uint32_t from, uint32_t to, int32_t delta) {
    for (uint32_t i = from; i < to; i++) m->at[i] += delta;
    for (uint32_t c = from / MINIMA_CHUNK; c <= (to - 1) / MINIMA_CHUNK; c++)
        m->least[c] = MINIMA_UNKNOWN;
}

/* The first index of the smallest; m->n > 0. */
static inline uint32_t minima_first(Minima *m, uint64_t *work) {
    uint32_t best = 0;
    for (uint32_t c = 0; c * MINIMA_CHUNK < m->n; c++) {
        if (m->least[c] == MINIMA_UNKNOWN) {
            uint32_t from = c * MINIMA_CHUNK, to = from + MINIMA_CHUNK;
            int32_t least = INT32_MAX;
            for (uint32_t i = from; i < (to < m->n ? to : m->n); i++)
                least = m->at[i] < least ? m->at[i] : least;
            m->least[c] = least;
            *work += MINIMA_CHUNK / 4;
        }
        if (m->least[c] < m->least[best]) best = c;
    }
    *work += m->n / MINIMA_CHUNK + 1;
    uint32_t i = best * MINIMA_CHUNK;
    while (m->at[i] != m->least[best]) i++;
    return i;
}

/* The first index in [from, to) with a number below `value`; `to` when there is none. */
static inline uint32_t minima_below(const Minima *m, uint32_t from, uint32_t to, int32_t value,
                                    uint64_t *work) {
    uint32_t i = from;
    while (i < to) {
        int32_t least = m->least[i / MINIMA_CHUNK];
        uint32_t end = (i / MINIMA_CHUNK + 1) * MINIMA_CHUNK;
        *work += 1;
        if (least < value) { /* or not known */
            for (; i < end && i < to; i++)
                if (m->at[i] < value) return i;
            *work += MINIMA_CHUNK / 4;
        }
        i = end;
    }
    return to;
}

#endif
