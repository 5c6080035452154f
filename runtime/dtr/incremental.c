/* incremental.c - victims without looking at everything. The score of a storage changes for two
 * reasons: time passes, or something next to it comes or goes. Bytes over cost times staleness (or
 * distance to the next use) are lines in time, so a kinetic tournament has the best one at any
 * moment; what changed is marked and computed again before the next choice.
 *
 * A contiguous run of victims (Coop, see evict.c) is grown around the few best storages and the
 * largest holes, always to the cheaper side; all blocks are looked at only when that finds none.
 *
 * Deviations from evict.c, for speed: neighbourhoods end after REACH storages; descendants that
 * nobody needs any more do not count; classes of h_DTR^eq are looked up again for the best
 * candidate only. README.md says what that costs. */
#include "engine.h"
#include "evict.h"

#include <math.h>

enum {
    SEEDS = 4,  /* storages that windows are grown around */
    FEW = 512,  /* blocks: that many are looked at all */
    HOLES = 2,  /* and free blocks */
    TRIES = 64, /* h_DTR^eq: candidates looked at again */
    LEAST = 1,  /* ns: what costs less counts as this */
};

static double time_of(const Dtr *d) {
    return d->o.lookahead ? d->now : d->clock;
}

/* The score of x turned over, as a line in time; false when x has to stay. */
static bool line_of(Dtr *d, uint32_t x, Line *l) {
    const DtrOptions *o = &d->o;
    d->count.work++;
    if (d->want[x]) return false;
    uint32_t next = dtr_next_use(d, x);
    *l = (Line){0, 0, INFINITY};
    if (next == FOREVER && !d->need[x]) return true;
    if (d->blocked[x]) return false;
    double bytes = (double)d->g->bytes[x];
    if (o->lookahead) {
        dtr_refresh(d, x);
        if (d->next_below[x] < next) next = d->next_below[x];
        double key = fmax(d->key[x], 1e-300);
        if (o->beta > 0)
            *l = (Line){-1 / (o->beta == 1 ? key : pow(key, 1 / o->beta)), next, 0};
        else
            *l = (Line){0, 0, 1 / key};
        return true;
    }
    if (o->h == DTR_FULL || o->h == DTR_MSPS) dtr_refresh(d, x);
    double cost = d->cost[x];
    if (o->h == DTR_FULL) cost += d->ancestors[x] + d->descendants[x];
    if (o->h == DTR_MSPS) cost += d->ancestors[x];
    if (o->h == DTR_EQ) cost += dtr_classes_near(d, x);
    double dense = bytes / fmax(cost, LEAST);
    switch (o->h) {
    case DTR_LRU: *l = (Line){1, d->last[x], 0}; break;
    case DTR_SIZE: *l = (Line){0, 0, bytes}; break;
    case DTR_MSPS: *l = (Line){0, 0, dense}; break;
    default: *l = (Line){dense, d->last[x], 0};
    }
    return true;
}

static void update(Dtr *d, uint32_t x) {
    Line l = {0, 0, 0};
    bool there = d->pool_at[x] != DTR_NONE && line_of(d, x, &l);
    kinetic_set(&d->kinetic, x, there, l);
}

static void catch_up(Dtr *d) {
    while (d->ndirty) {
        uint32_t x = d->dirty_list[--d->ndirty];
        d->dirty[x] = false;
        update(d, x);
    }
}

uint32_t dtr_incremental_victim(Dtr *d) {
    uint32_t x = DTR_NONE;
    catch_up(d);
    for (int i = 0; i < TRIES; i++) {
        if (!kinetic_best(&d->kinetic, time_of(d), 1, &x)) return DTR_NONE;
        if (d->o.h != DTR_EQ || d->o.lookahead) return x;
        double slope = d->kinetic.line[x].slope;
        update(d, x);
        if (d->kinetic.line[x].slope >= slope) return x;
    }
    return x;
}

/* ---- windows ---- */

/* What it costs to have the bytes of a block at time t; infinite: they can not be had. */
static double block_cost(const Dtr *d, uint32_t b, double t) {
    const SpaceBlock *k = &d->space.block[b];
    if (k->owner >= SPACE_BUSY) return k->owner == SPACE_FREE ? 0 : INFINITY;
    const Line *l = &d->kinetic.line[k->owner];
    double value = line_at(l, t), least = fabs(l->slope);
    return (double)k->bytes / (value > least ? value : least);
}

void dtr_incremental_costs(Dtr *d) {
    double t = time_of(d);
    uint32_t n = 0;
    for (uint32_t b = d->space.head; b != SPACE_NONE; b = d->space.block[b].next, n++) {
        d->window[n] = b;
        d->window_cost[n] = block_cost(d, b, t);
    }
    d->nwindow = n;
}

static double side_cost(const Dtr *d, uint32_t b) {
    return b == SPACE_NONE ? INFINITY : block_cost(d, b, time_of(d));
}

static double density(const Dtr *d, uint32_t b, double cost) {
    return cost > 0 ? cost / (double)d->space.block[b].bytes : 0;
}

/* Adds blocks to either side until there are enough bytes. */
static bool widen(Dtr *d, uint64_t need, Window *w) {
    const SpaceBlock *block = d->space.block;
    while (w->bytes < need) {
        uint32_t lo = block[w->from].prev, hi = block[w->to].next;
        double a = side_cost(d, lo), b = side_cost(d, hi);
        d->count.work++;
        if (isinf(a) && isinf(b)) return false;
        bool low = isinf(b) || (!isinf(a) && density(d, lo, a) <= density(d, hi, b));
        if (low)
            w->from = lo;
        else
            w->to = hi;
        w->bytes += block[low ? lo : hi].bytes;
        w->cost += low ? a : b;
    }
    return true;
}

/* Gives up blocks at the ends that are not needed. */
static void narrow(const Dtr *d, uint64_t need, Window *w) {
    const SpaceBlock *block = d->space.block;
    for (int low = 0; low < 2; low++) {
        uint32_t *end = low ? &w->from : &w->to;
        while (w->from != w->to && w->bytes - block[*end].bytes >= need) {
            w->bytes -= block[*end].bytes;
            w->cost -= block_cost(d, *end, time_of(d));
            *end = low ? block[*end].next : block[*end].prev;
        }
    }
}

static void try_window(Dtr *d, uint64_t need, uint32_t b, Window *best) {
    double cost = block_cost(d, b, time_of(d));
    if (isinf(cost)) return;
    Window w = {b, b, d->space.block[b].bytes, cost};
    if (!widen(d, need, &w)) return;
    narrow(d, need, &w);
    uint64_t at = d->space.block[w.from].offset;
    if (best->from != SPACE_NONE && w.cost == best->cost && at >= d->space.block[best->from].offset)
        return;
    if (best->from == SPACE_NONE || w.cost <= best->cost) *best = w;
}

bool dtr_incremental_window(Dtr *d, uint64_t need, Window *w) {
    uint32_t seed[SEEDS], hole[HOLES];
    w->from = SPACE_NONE;
    if (dtr_incremental_victim(d) == DTR_NONE) return false;
    if (d->space.nblock <= FEW) return dtr_slide(d, need, w);
    uint32_t n = kinetic_best(&d->kinetic, time_of(d), SEEDS, seed);
    for (uint32_t i = 0; i < n; i++) try_window(d, need, d->block[seed[i]], w);
    n = space_holes(&d->space, HOLES, hole);
    for (uint32_t i = 0; i < n; i++) try_window(d, need, hole[i], w);
    return w->from != SPACE_NONE;
}
