/* lives.c - who can still need what during a step. Three facts are kept up to date by
 * counting, with work proportional to what changes:
 *  - needed: x is not there and will have to be made again: it has uses ahead, or a child that is
 *    not there is needed (need[x]: such children)
 *  - lost: x could not be made again: its maker is frozen, or a parent that is not there is lost
 *    (blocked[x]: such reasons)
 *  - alive: something below x is there (alive[x]: children there or alive)
 *
 * Closure costs are cached per resident storage: `ancestors` sums what would have to be made first,
 * `descendants` the needed storages that would need x, `next_below` their earliest use. When a
 * storage comes or goes, the caches that can change are those of resident storages reached through
 * storages that are not there; they are marked stale and recomputed when asked for. Sums of
 * ancestors stop at a part of the base time: beyond it a storage is dear, no matter how dear. */
#include "engine.h"

#include <math.h>

enum { REACH = 256 }; /* incremental: storages that are not there, in one walk */

uint32_t dtr_next_use(Dtr *d, uint32_t x) {
    const DtrLists *u = &d->g->users;
    uint32_t *at = &d->use[x];
    while (*at < u->first[x + 1] && u->at[*at] < d->now) ++*at;
    if (*at < u->first[x + 1]) return u->at[*at];
    return d->g->is_output[x] ? d->g->nrun : FOREVER;
}

static bool is_away(const Dtr *d, uint32_t x) {
    return (d->state[x] & (S_MADE | S_THERE)) == S_MADE;
}

/* ---- counting ---- */

static void push(Dtr *d, uint32_t x) {
    d->stack[d->nstack++] = x;
}

/* x, which is not there, is needed from now on; so are the parents that are not there. */
static void need_on(Dtr *d, uint32_t x) {
    d->state[x] |= S_NEED;
    for (push(d, x); d->nstack;) {
        uint32_t y = d->stack[--d->nstack];
        DTR_EACH(d->g->parents, y, z) {
            d->count.work++;
            if (!d->need[z]) mark_dirty(d, z);
            if (d->need[z]++ || !is_away(d, z) || d->state[z] & S_NEED) continue;
            d->state[z] |= S_NEED;
            push(d, z);
        }
    }
}

static void need_off(Dtr *d, uint32_t x) {
    d->state[x] &= (uint8_t)~S_NEED;
    for (push(d, x); d->nstack;) {
        uint32_t y = d->stack[--d->nstack];
        DTR_EACH(d->g->parents, y, z) {
            d->count.work++;
            if (d->need[z] == 1) mark_dirty(d, z);
            if (--d->need[z] || !(d->state[z] & S_NEED) || dtr_next_use(d, z) != FOREVER) continue;
            d->state[z] &= (uint8_t)~S_NEED;
            push(d, z);
        }
    }
}

/* One reason more (or less) for each neighbour of x; what is not there passes its first (or last)
 * reason on. */
static void pass_on(Dtr *d, const DtrLists *neighbours, uint32_t *reasons, uint32_t x) {
    for (push(d, x); d->nstack;) {
        uint32_t y = d->stack[--d->nstack];
        DTR_EACH(*neighbours, y, z) {
            d->count.work++;
            if (reasons[z]++) continue;
            mark_dirty(d, z);
            if (is_away(d, z)) push(d, z);
        }
    }
}

static void take_back(Dtr *d, const DtrLists *neighbours, uint32_t *reasons, uint32_t x) {
    for (push(d, x); d->nstack;) {
        uint32_t y = d->stack[--d->nstack];
        DTR_EACH(*neighbours, y, z) {
            d->count.work++;
            if (--reasons[z]) continue;
            mark_dirty(d, z);
            if (is_away(d, z)) push(d, z);
        }
    }
}

/* ---- stale caches ---- */

/* h_DTR as published counts all evicted descendants, also those that nobody needs any more. */
static bool counts_dead(const Dtr *d) {
    return !d->o.lookahead && !d->o.incremental && d->o.h == DTR_FULL;
}

/* Does the score look at what is not there, beyond the neighbours? */
static bool counts_closures(const Dtr *d) {
    return d->o.lookahead || d->o.h == DTR_FULL || d->o.h == DTR_MSPS;
}

/* Incremental: what nobody needs any more keeps the closure cost that it had when it went, so that
 * walks end there. */
static bool is_settled(const Dtr *d, uint32_t x) {
    return d->o.incremental && !(d->state[x] & S_NEED);
}

static bool visit(Dtr *d, uint32_t x) {
    d->count.work++;
    if (d->seen[x] == d->stamp) return false;
    d->seen[x] = d->stamp;
    return true;
}

static void start_walk(Dtr *d, uint32_t x) {
    d->stamp++;
    d->head = d->nstack = 0;
    d->seen[x] = d->stamp;
    push(d, x);
}

/* The next storage to look around at. Incremental: nearest first, REACH of them. */
static bool walk_on(Dtr *d, uint32_t *x) {
    if (d->o.incremental && d->head == REACH) d->nstack = d->head;
    if (d->nstack == d->head) {
        d->nstack = d->head = 0;
        return false;
    }
    *x = d->stack[d->o.incremental ? d->head++ : --d->nstack];
    return true;
}

static void end_walk(Dtr *d) {
    d->nstack = d->head = 0;
}

/* Resident storages above x, through storages that are not there. */
static void spoil_above(Dtr *d, uint32_t x) {
    uint32_t y;
    if (!counts_closures(d)) return;
    for (start_walk(d, x); walk_on(d, &y);) {
        DTR_EACH(d->g->parents, y, z) {
            if (!visit(d, z)) continue;
            if (is_there(d, z)) {
                d->state[z] |= S_STALE_BELOW;
                mark_dirty(d, z);
            } else if (is_away(d, z)) {
                push(d, z);
            }
        }
    }
}

/* Resident storages below x. What is dear stays dear, unless its own parent came. */
static void spoil_below(Dtr *d, uint32_t x, bool came) {
    uint32_t y;
    if (!counts_closures(d)) return;
    for (start_walk(d, x); walk_on(d, &y);) {
        DTR_EACH(d->g->children, y, z) {
            if (!visit(d, z)) continue;
            if (is_away(d, z)) {
                if (d->alive[z] && !is_settled(d, z)) push(d, z);
            } else if (d->ancestors[z] < d->dear || (came && y == x)) {
                d->state[z] |= S_STALE_ABOVE;
                mark_dirty(d, z);
            }
        }
    }
}

static void fill_ancestors(Dtr *d, uint32_t x) {
    double sum = 0;
    uint32_t y;
    for (start_walk(d, x); walk_on(d, &y);) {
        d->count.work += 2;
        DTR_EACH(d->g->parents, y, z) {
            if (!is_away(d, z) || !visit(d, z)) continue;
            sum += d->cost[z];
            if (is_settled(d, z))
                sum += d->ancestors[z];
            else
                push(d, z);
        }
        if (sum < d->dear) continue;
        sum = d->dear;
        end_walk(d);
    }
    d->ancestors[x] = sum;
}

/* h_DTR^eq looks at the neighbours only. */
static void mark_neighbours(Dtr *d, uint32_t x) {
    if (!d->o.incremental || d->o.h != DTR_EQ || d->o.lookahead) return;
    DTR_EACH(d->g->parents, x, y) mark_dirty(d, y);
    DTR_EACH(d->g->children, x, y) mark_dirty(d, y);
}

void dtr_came(Dtr *d, uint32_t x) {
    mark_neighbours(d, x);
    bool again = d->state[x] & S_MADE, was_alive = again && d->alive[x];
    if (again) {
        if (d->state[x] & S_NEED || counts_dead(d)) spoil_above(d, x);
        spoil_below(d, x, true);
        if (d->state[x] & S_NEED) need_off(d, x);
        if (d->blocked[x]) take_back(d, &d->g->children, d->blocked, x);
    }
    d->state[x] |= S_THERE | S_MADE | S_STALE_ABOVE | S_STALE_BELOW;
    if (!was_alive) pass_on(d, &d->g->parents, d->alive, x);
}

void dtr_gone(Dtr *d, uint32_t x) {
    mark_neighbours(d, x);
    d->state[x] &= (uint8_t)~S_THERE;
    if (dtr_next_use(d, x) != FOREVER || d->need[x]) need_on(d, x);
    if (d->blocked[x]) pass_on(d, &d->g->children, d->blocked, x);
    if (!d->alive[x]) take_back(d, &d->g->parents, d->alive, x);
    if (is_settled(d, x) && counts_closures(d) && d->state[x] & S_STALE_ABOVE) fill_ancestors(d, x);
    if (d->state[x] & S_NEED || counts_dead(d)) spoil_above(d, x);
    if (d->alive[x]) spoil_below(d, x, false);
}

void dtr_spoil(Dtr *d, uint32_t x) {
    if (!is_away(d, x)) return;
    spoil_above(d, x);
    spoil_below(d, x, true);
}

void dtr_freeze(Dtr *d, uint32_t run, uint8_t level) {
    bool first = !d->frozen[run];
    if (d->frozen[run] < level) d->frozen[run] = level;
    if (!first) return;
    DTR_EACH(d->g->out, run, t) {
        uint32_t x = t == DTR_NONE ? DTR_NONE : d->g->storage[t];
        if (x == DTR_NONE || !d->g->is_temp[x]) continue;
        mark_dirty(d, x);
        if (!d->blocked[x]++ && is_away(d, x)) pass_on(d, &d->g->children, d->blocked, x);
    }
}

void dtr_freeze_readers(Dtr *d, uint32_t r) {
    DTR_EACH(d->g->writes, r, w)
    DTR_EACH(d->g->readers, w, q) dtr_freeze(d, q, FROZEN);
    if (d->g->effect[r]) dtr_freeze(d, r, FROZEN);
}

/* ---- closure costs ---- */

static void fill_descendants(Dtr *d, uint32_t x) {
    bool dead = counts_dead(d);
    double sum = 0;
    uint32_t next = FOREVER, y;
    if (d->need[x] || dead) start_walk(d, x);
    while (walk_on(d, &y)) {
        d->count.work += 2;
        DTR_EACH(d->g->children, y, z) {
            if (!(dead ? is_away(d, z) : d->state[z] & S_NEED) || !visit(d, z)) continue;
            uint32_t n = dtr_next_use(d, z);
            if (n < next) next = n;
            sum += d->cost[z];
            push(d, z);
        }
        if (sum >= d->dear && dead) end_walk(d);
    }
    d->descendants[x] = sum;
    d->next_below[x] = next;
}

double dtr_lookahead_key(const Dtr *d, uint32_t x, double cost) {
    double bytes = (double)d->g->bytes[x];
    return (d->o.alpha == 1 ? cost : pow(cost, d->o.alpha)) / (bytes > 1 ? bytes : 1);
}

void dtr_refresh(Dtr *d, uint32_t x) {
    uint8_t stale = d->state[x] & (S_STALE_ABOVE | S_STALE_BELOW);
    if (!stale) return;
    d->state[x] &= (uint8_t)~stale;
    if (stale & S_STALE_ABOVE) fill_ancestors(d, x);
    if (stale & S_STALE_BELOW) fill_descendants(d, x);
    if (!d->o.lookahead) return;
    double cost = d->cost[x] + d->ancestors[x] + d->o.gamma * d->descendants[x];
    d->key[x] = dtr_lookahead_key(d, x, cost);
}
