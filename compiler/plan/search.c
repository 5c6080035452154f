/* search.c - large neighbourhood search over timelines: take some recomputations out, repair,
 * reduce, keep the result when it is cheaper or, early in the search, a little dearer.
 *
 * Ruin and recreate: Shaw, CP 1998; Schrimpf et al., J. Comput. Phys. 159, 2000. What is taken out:
 * a few at random, a stretch of the sequence, all of one run, part of a longer stretch. Repair runs
 * with noise on its scores, so that it does not end where it began. Ends after counted work. */
#include "search.h"

#include <math.h>
#include <string.h>

typedef struct {
    Mender *m;
    double base, current, best, heat; /* ns */
    uint32_t mark;
    uint32_t *out; /* chosen to be taken out */
    uint32_t nout, room;
} Climb;

static void choose(Climb *c, uint32_t item) {
    c->out[c->nout++] = item;
}

/* Fills c->out from the reruns. */
static void ruin(Climb *c) {
    Mender *m = c->m;
    const Numbers *l = mend_reruns(m);
    c->nout = 0;
    if (l->n > c->room) {
        c->room = 2 * l->n;
        c->out = ARENA_ARRAY(m->a, uint32_t, c->room);
    }
    if (!l->n) return;
    switch (mend_random(m, 4)) {
    case 0:
        for (uint32_t k = 1 + mend_random(m, 3); k > 0; k--) choose(c, l->at[mend_random(m, l->n)]);
        return;
    case 1: {
        uint32_t from = mend_random(m, l->n), n = 1 + mend_random(m, l->n < 12 ? l->n : 12);
        for (uint32_t i = from; i < from + n && i < l->n; i++) choose(c, l->at[i]);
        return;
    }
    case 2: {
        uint32_t run = m->t->item.at[l->at[mend_random(m, l->n)]].run;
        for (uint32_t i = 0; i < l->n; i++)
            if (m->t->item.at[l->at[i]].run == run) choose(c, l->at[i]);
        return;
    }
    default: {
        uint32_t n = l->n < 60 ? l->n : 60, from = mend_random(m, l->n - n + 1);
        double part = 0.05 + 0.35 * mend_unit(m);
        for (uint32_t i = from; i < from + n; i++)
            if (mend_unit(m) < part) choose(c, l->at[i]);
    }
    }
}

/* Tries to take out what this round put in, and some of the others. */
static void reduce(Climb *c) {
    Mender *m = c->m;
    Timeline *t = m->t;
    for (uint32_t i = c->mark; i < t->journal.n && i < c->mark + 200; i++) {
        Change x = t->journal.at[i];
        if (x.inserted && t->item.at[x.item].there && !t->item.at[x.item].first)
            mend_try_out(m, x.item);
    }
    const Numbers *l = mend_reruns(m);
    uint32_t n = l->n < 40 ? l->n : 40, from = mend_random(m, l->n - n + 1);
    for (uint32_t i = from; i < from + n; i++) {
        uint32_t item = m->list.at[i];
        if (t->item.at[item].there) mend_try_out(m, item);
    }
}

static bool round_of(Climb *c, double limit) {
    Mender *m = c->m;
    Timeline *t = m->t;
    ruin(c);
    if (!c->nout) return false;
    for (uint32_t i = 0; i < c->nout; i++)
        if (t->item.at[c->out[i]].there && !t->item.at[c->out[i]].first)
            mend_take_out(m, c->out[i]);
    m->noise = mend_random(m, 3) ? 0.2 + 0.8 * mend_unit(m) : 0;
    m->extend = mend_random(m, 4) != 0;
    static const MendOrder orders[] = {AT_PEAK, AT_FIRST, AT_RANDOM, AT_LAST};
    m->order = orders[mend_random(m, 4)];
    double loose = limit + 0.3 * (c->best - c->base) + 1;
    if (!mend(m, (uint64_t)loose, 60 + 2 * c->nout)) return false;
    if ((double)t->cost_ns > limit + 0.1 * (c->best - c->base)) return false;
    reduce(c);
    return (double)t->cost_ns <= limit;
}

void search_improve(Mender *m, uint64_t work) {
    Timeline *t = m->t;
    Arena *a = arena_new();
    Climb c = {.m = m, .base = (double)t->p->base_ns};
    c.current = c.best = (double)t->cost_ns;
    c.heat = 0.02 * (c.current - c.base);
    Sequence best = timeline_save(a, t);
    for (uint64_t start = m->work; m->work - start < work;) {
        double left = 1 - (double)(m->work - start) / (double)work;
        double limit = c.current - c.heat * left * log(mend_unit(m) + 1e-12);
        timeline_forget(t);
        c.mark = 0;
        m->work += 100;
        if (!round_of(&c, limit)) {
            timeline_undo(t, 0);
            continue;
        }
        c.current = (double)t->cost_ns;
        if (c.current >= c.best) continue;
        c.best = c.current;
        Arena *old = a;
        a = arena_new();
        best = timeline_save(a, t);
        arena_free(old);
    }
    timeline_restore(t, &best);
    arena_free(a);
}
