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
    Numbers out;                      /* chosen to be taken out */
} Climb;

enum { STRETCH = 2000 }; /* items that a stretch spans at most */

static void choose(Climb *c, uint32_t item) {
    VEC_PUSH(c->m->a, c->out, item);
}

/* The recomputations from `item` on, at most n, and not farther than some chunks. */
static void choose_stretch(Climb *c, uint32_t item, uint32_t n, double part) {
    Mender *m = c->m;
    const Timeline *t = m->t;
    for (uint32_t steps = 0; item != NO_ID && n && steps < STRETCH; steps++) {
        const Item *x = &t->item.at[item];
        if (!x->first) {
            n--;
            if (part >= 1 || mend_unit(m) < part) choose(c, item);
        }
        item = timeline_next(t, item);
        m->work++;
    }
}

/* Fills c->out from the recomputations. */
static void ruin(Climb *c) {
    Mender *m = c->m;
    const Timeline *t = m->t;
    const Numbers *l = &t->again;
    c->out.n = 0;
    if (!l->n) return;
    uint32_t item = l->at[mend_random(m, l->n)];
    switch (mend_random(m, 4)) {
    case 0:
        for (uint32_t k = 1 + mend_random(m, 3); k > 0; k--) choose(c, l->at[mend_random(m, l->n)]);
        return;
    case 1: choose_stretch(c, item, 1 + mend_random(m, 12), 1); return;
    case 2: {
        uint32_t run = t->item.at[item].run;
        for (uint32_t k = 0; k < list_len(&t->p->out, run); k++) {
            uint32_t x = t->p->out.at[t->p->out.first[run] + k];
            const Numbers *makers = x == NO_ID ? NULL : &t->makers[x];
            for (uint32_t i = 0; makers && i < makers->n; i++) {
                uint32_t y = t->life.at[makers->at[i]].item;
                if (!t->item.at[y].first) choose(c, y);
            }
        }
        return;
    }
    default: choose_stretch(c, item, 60, 0.05 + 0.35 * mend_unit(m));
    }
}

/* Tries to take out what this round put in, and some of the others. */
static void reduce(Climb *c) {
    Mender *m = c->m;
    Timeline *t = m->t;
    for (uint32_t i = 0; i < t->journal.n && i < 200; i++) {
        Change x = t->journal.at[i];
        if (x.inserted && t->item.at[x.item].there && !t->item.at[x.item].first)
            mend_try_out(m, x.item);
    }
    c->out.n = 0;
    if (t->again.n) choose_stretch(c, t->again.at[mend_random(m, t->again.n)], 40, 1);
    for (uint32_t i = 0; i < c->out.n; i++)
        if (t->item.at[c->out.at[i]].there) mend_try_out(m, c->out.at[i]);
}

static bool round_of(Climb *c, double limit) {
    Mender *m = c->m;
    Timeline *t = m->t;
    ruin(c);
    if (!c->out.n) return false;
    for (uint32_t i = 0; i < c->out.n; i++)
        if (t->item.at[c->out.at[i]].there) mend_take_out(m, c->out.at[i]);
    m->noise = mend_random(m, 3) ? 0.2 + 0.8 * mend_unit(m) : 0;
    m->extend = mend_random(m, 4) != 0;
    static const MendOrder orders[] = {AT_PEAK, AT_FIRST, AT_RANDOM, AT_LAST};
    m->order = orders[mend_random(m, 4)];
    double loose = limit + 0.3 * (c->best - c->base) + 1;
    if (!mend(m, (uint64_t)loose, 60 + 2 * c->out.n)) return false;
    if ((double)t->cost_ns > limit + 0.1 * (c->best - c->base)) return false;
    reduce(c);
    return (double)t->cost_ns <= limit;
}

void search_improve(Mender *m, uint64_t work, double heat) {
    Timeline *t = m->t;
    Arena *a = arena_new();
    Climb c = {.m = m, .base = (double)t->p->base_ns};
    c.current = c.best = (double)t->cost_ns;
    c.heat = heat * (c.current - c.base) / (t->again.n + 1.0);
    Sequence best = timeline_save(a, t);
    for (uint64_t start = m->work; m->work - start < work;) {
        double left = 1 - (double)(m->work - start) / (double)work;
        double limit = c.current - c.heat * left * log(mend_unit(m) + 1e-12);
        timeline_forget(t);
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
