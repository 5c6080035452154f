/* exhaustive.h - the cheapest schedule of a tiny problem by exhaustive search: what bounds are
 * tested against. Shares nothing with the planner but the Problem.
 *
 * A state says which storages are there, which views are defined, which effects have happened, and
 * how many of the other runs have run for the first time; those do so in the base order, effects at
 * their place or later. Steps: drop a storage (free), run something. Dijkstra's algorithm over
 * times that are small integers. */
#ifndef TEST_EXHAUSTIVE_H
#define TEST_EXHAUSTIVE_H

#include "problem.h"

#include <string.h>

enum { EXHAUSTIVE_BITS = 15, EXHAUSTIVE_NONE = -1 };

typedef struct {
    const Problem *p;
    uint64_t capacity;
    uint32_t nbit, nfirst, nstate;
    uint32_t bit_of_tensor[64], bit_of_effect[64], first[64]; /* NO_ID; first: run or NO_ID */
    int *dist;
    uint32_t *link, *head; /* states in a bucket of equal time */
    int most;
    bool in_order; /* effects at their place only */
} Exhaustive;

static inline bool ex_has(uint32_t set, uint32_t bit) {
    return bit != NO_ID && set >> bit & 1;
}

static inline uint64_t ex_bytes(const Exhaustive *x, uint32_t set) {
    uint64_t bytes = 0;
    for (StorageId s = 0; s < x->p->nstorage; s++)
        if (ex_has(set, x->bit_of_tensor[s])) bytes += x->p->bytes[s];
    return bytes;
}

static inline void ex_reach(Exhaustive *x, uint32_t set, uint32_t at, int time) {
    uint32_t state = (at << x->nbit) | set;
    if (time > x->most || (x->dist[state] >= 0 && x->dist[state] <= time)) return;
    x->dist[state] = time;
    /* a state may be in several buckets; only the one of its time counts */
    uint32_t entry = x->nstate++;
    x->link[2 * entry] = state;
    x->link[2 * entry + 1] = x->head[time];
    x->head[time] = entry;
}

static inline uint32_t ex_without(const Exhaustive *x, uint32_t set, StorageId s) {
    set &= ~(UINT32_C(1) << x->bit_of_tensor[s]);
    EACH(x->p->views, s, t) set &= ~(UINT32_C(1) << x->bit_of_tensor[t]);
    return set;
}

/* May run r happen now, as far as operands and mutated values go? */
static inline bool ex_ready(const Exhaustive *x, uint32_t r, uint32_t set) {
    const Problem *p = x->p;
    EACH(p->in, r, t)
    if (p->is_temp[p->storage[t]] && !ex_has(set, x->bit_of_tensor[t])) return false;
    for (uint32_t e = 0; e < p->nrun; e++) {
        if (!p->effect[e] || e == r) continue;
        EACH(p->writes, e, w) {
            EACH(p->readers, w, q) if (q == r && ex_has(set, x->bit_of_effect[e])) return false;
            EACH(p->writes, r, w2)
            if (w == w2 && (e < r) != ex_has(set, x->bit_of_effect[e])) return false;
        }
    }
    return true;
}

/* Runs r; `taken`: the operand whose bytes the first output takes over, or NO_ID. */
static inline void ex_run(Exhaustive *x, uint32_t r, uint32_t set, uint32_t at, int time,
                          StorageId taken) {
    const Problem *p = x->p;
    uint64_t bytes = ex_bytes(x, set) + p->workspace[r];
    uint32_t after = set, k = 0;
    EACH(p->out, r, t) {
        bool first = k++ == 0;
        if (t == NO_ID || !p->is_temp[p->storage[t]]) continue;
        if (t < p->nstorage && !(first && taken != NO_ID)) bytes += p->bytes[t];
        if (first && taken != NO_ID && ex_has(set, x->bit_of_tensor[t])) return;
        after |= UINT32_C(1) << x->bit_of_tensor[t];
    }
    if (bytes > x->capacity) return;
    if (taken != NO_ID) after = ex_without(x, after, taken);
    if (p->effect[r]) after |= UINT32_C(1) << x->bit_of_effect[r];
    ex_reach(x, after, at, time + (int)p->ns[r]);
}

static inline void ex_expand(Exhaustive *x, uint32_t set, uint32_t at, int time) {
    const Problem *p = x->p;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (ex_has(set, x->bit_of_tensor[s])) ex_reach(x, ex_without(x, set, s), at, time);
    for (uint32_t r = 0; r < p->nrun; r++) {
        bool next = at < x->nfirst && x->first[at] == r;
        if (x->in_order && p->effect[r] && !next) continue;
        if (p->effect[r] ? ex_has(set, x->bit_of_effect[r]) : !next && r >= x->first[at]) continue;
        /* effects not before their place */
        if (p->effect[r] && x->first[at] < r) continue;
        if (!ex_ready(x, r, set)) continue;
        ex_run(x, r, set, at + next, time, NO_ID);
        EACH(p->inplace, r, s) ex_run(x, r, set, at + next, time, s);
    }
}

static inline bool ex_done(const Exhaustive *x, uint32_t set, uint32_t at) {
    const Problem *p = x->p;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r] && !ex_has(set, x->bit_of_effect[r])) return false;
    for (uint32_t i = 0; i < p->noutput; i++) {
        uint32_t t = p->output[i];
        if (p->is_temp[p->storage[t]] && !ex_has(set, x->bit_of_tensor[t])) return false;
    }
    return at == x->nfirst;
}

static inline bool ex_number(Exhaustive *x) {
    const Problem *p = x->p;
    if (p->ntensor > 64 || p->nrun > 63) return false;
    for (uint32_t t = 0; t < p->ntensor; t++) {
        bool used = p->is_temp[p->storage[t]] && p->def[t] != NO_ID;
        x->bit_of_tensor[t] = used ? x->nbit++ : NO_ID;
    }
    for (uint32_t r = 0; r < p->nrun; r++) {
        x->bit_of_effect[r] = p->effect[r] ? x->nbit++ : NO_ID;
        if (!p->effect[r] || x->in_order) x->first[x->nfirst++] = r;
    }
    x->first[x->nfirst] = p->nrun;
    return x->nbit <= EXHAUSTIVE_BITS;
}

/* Extra time of the cheapest schedule; EXHAUSTIVE_NONE: there is none up to `most` ns of extra
 * time, or the problem is too large. */
static inline int exhaustive_how(Arena *a, const Problem *p, uint64_t capacity, int most,
                                 bool in_order) {
    Exhaustive x = {
        .p = p, .capacity = capacity, .most = (int)p->base_ns + most, .in_order = in_order};
    if (!ex_number(&x)) return EXHAUSTIVE_NONE;
    uint32_t n = (x.nfirst + 1) << x.nbit, nbucket = (uint32_t)x.most + 1;
    x.dist = ARENA_ARRAY(a, int, n);
    x.head = ARENA_ARRAY(a, uint32_t, nbucket);
    x.link = ARENA_ARRAY(a, uint32_t, 16 * (uint64_t)n);
    memset(x.dist, -1, n * sizeof *x.dist);
    memset(x.head, -1, nbucket * sizeof *x.head);
    ex_reach(&x, 0, 0, 0);
    for (int time = 0; time <= x.most; time++) {
        while (x.head[time] != NO_ID) {
            uint32_t e = x.head[time], state = x.link[2 * e];
            x.head[time] = x.link[2 * e + 1];
            if (x.dist[state] != time) continue;
            uint32_t set = state & ((UINT32_C(1) << x.nbit) - 1), at = state >> x.nbit;
            if (ex_done(&x, set, at)) return time - (int)p->base_ns;
            ex_expand(&x, set, at, time);
        }
    }
    return EXHAUSTIVE_NONE;
}

static inline int exhaustive(Arena *a, const Problem *p, uint64_t capacity, int most) {
    return exhaustive_how(a, p, capacity, most, false);
}

#endif
