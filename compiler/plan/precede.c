/* precede.c - precedence of first runs from the lists of a problem; reachability by search. */
#include "precede.h"

#include <string.h>

typedef struct {
    Arena *a;
    VEC(uint32_t) at;
    uint32_t *mark, stamp; /* per run: in the current list */
} Builder;

static void add(Builder *b, uint32_t r) {
    if (r == NO_ID || b->mark[r] == b->stamp) return;
    b->mark[r] = b->stamp;
    VEC_PUSH(b->a, b->at, r);
}

static Lists turned_around(Arena *a, uint32_t n, const Lists *l) {
    Lists out = {ARENA_ARRAY(a, uint32_t, (uint64_t)n + 1), ARENA_ARRAY(a, uint32_t, l->first[n])};
    uint32_t *next = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t i = 0; i < l->first[n]; i++) out.first[l->at[i] + 1]++;
    for (uint32_t i = 0; i < n; i++) out.first[i + 1] += out.first[i];
    memcpy(next, out.first, n * sizeof *next);
    for (uint32_t i = 0; i < n; i++) EACH(*l, i, x) out.at[next[x]++] = i;
    return out;
}

Precedence precede_new(Arena *a, const Problem *p) {
    Builder b = {.a = a, .mark = ARENA_ARRAY(a, uint32_t, p->nrun)};
    uint32_t *writer = ARENA_ARRAY(a, uint32_t, p->nstorage); /* last one */
    Precedence o = {.before = {.first = ARENA_ARRAY(a, uint32_t, (uint64_t)p->nrun + 1)}};
    for (StorageId s = 0; s < p->nstorage; s++) writer[s] = NO_ID;
    for (uint32_t r = 0; r < p->nrun; r++) {
        b.stamp = r + 1;
        b.mark[r] = b.stamp;
        EACH(p->in, r, t) add(&b, p->def[t]);
        EACH(p->writes, r, s) {
            EACH(p->readers, s, q) add(&b, q);
            add(&b, writer[s]);
            writer[s] = r;
        }
        o.before.first[r + 1] = b.at.n;
    }
    o.before.at = b.at.at;
    o.after = turned_around(a, p->nrun, &o.before);
    return o;
}

void precede_mark(const Lists *l, uint32_t r, bool *mark, uint32_t *stack) {
    uint32_t n = 0;
    if (mark[r]) return;
    mark[r] = true;
    stack[n++] = r;
    while (n) {
        uint32_t x = stack[--n];
        EACH(*l, x, y) {
            if (mark[y]) continue;
            mark[y] = true;
            stack[n++] = y;
        }
    }
}

uint32_t *precede_path(Arena *a, const Precedence *o, uint32_t nrun) {
    uint32_t *up = ARENA_ARRAY(a, uint32_t, nrun), *down = ARENA_ARRAY(a, uint32_t, nrun);
    for (uint32_t r = 0; r < nrun; r++) {
        up[r] = 1;
        EACH(o->before, r, q) if (up[q] >= up[r]) up[r] = up[q] + 1;
    }
    for (uint32_t r = nrun; r-- > 0;)
        EACH(o->after, r, q) if (down[q] >= down[r]) down[r] = down[q] + 1;
    for (uint32_t r = 0; r < nrun; r++) up[r] += down[r];
    return up;
}
