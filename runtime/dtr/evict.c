/* evict.c - making room in the arena: scores, choice of victims, eviction.
 *
 * Two ways to choose. One by one: evict the lowest score until a hole is large enough (DTR:
 * Kirisame et al., ICLR 2021). By window: slide over the blocks in address order and evict the
 * cheapest contiguous run that gives enough bytes (Coop: Zhang et al., "Coop: Memory is not a
 * Commodity", NeurIPS 2023).
 *
 * Scores: h of the DTR family (policy.h), or lookahead: closure cost over bytes times the
 * distance to the next use, which a static planner knows, to exponents that the portfolio varies.
 * The next use of a storage without uses of its own is that of the evicted descendants that it
 * serves.
 *
 * Regret (lookahead only): evicting one by one may free bytes that the request then does not take;
 * such victims come back where they were. */
#include "evict.h"

#include <assert.h>
#include <math.h>

void dtr_pool_add(Dtr *d, uint32_t x) {
    if (d->pool_at[x] != DTR_NONE || (!d->g->bytes[x] && !d->o.published)) return;
    d->entered[x] = d->entries++;
    d->pool_at[x] = d->npool;
    d->pool[d->npool++] = x;
    mark_dirty(d, x);
}

void dtr_pool_remove(Dtr *d, uint32_t x) {
    uint32_t at = d->pool_at[x];
    if (at == DTR_NONE) return;
    d->pool_at[x] = DTR_NONE;
    d->pool[at] = d->pool[--d->npool];
    if (at < d->npool) d->pool_at[d->pool[at]] = at;
    mark_dirty(d, x);
}

/* ---- scores ---- */

double dtr_numbers_score(Dtr *d, uint32_t x) {
    if (d->o.h == DTR_FULL || d->o.h == DTR_MSPS) dtr_refresh(d, x);
    DtrStorage s = {.cost = d->cost[x],
                    .ancestors = d->ancestors[x],
                    .descendants = d->descendants[x],
                    .classes = d->o.h == DTR_EQ ? dtr_classes_near(d, x) : 0,
                    .bytes = (double)d->g->bytes[x],
                    .staleness = d->clock - d->last[x]};
    return dtr_score(d->o.h, &s);
}

/* To a use, to the power of beta. What is needed and has no use in sight is as far away as can be:
 * storages that are made of one another, by views with a cost, keep each other needed when nobody
 * else does. */
static double distance(const Dtr *d, uint32_t next) {
    if (next > d->g->nrun) next = d->g->nrun;
    return d->dist[next > d->now ? next - d->now : 1];
}

/* -1: goes for nothing; infinite: must stay. What is above `low` may be any number above it: where
 * the time of x itself is enough for that, nobody looks at what hangs on x. */
static double score(Dtr *d, uint32_t x, double low) {
    d->count.work++;
    if (d->want[x]) return INFINITY;
    uint32_t next = dtr_next_use(d, x);
    if (next == FOREVER && !d->need[x]) return -1;
    if (d->blocked[x]) return INFINITY;
    if (d->o.lookahead) {
        double least = d->own_key[x] / distance(d, next) * (1 - 1e-9); /* pow rounds */
        if (least > low) return least;
        dtr_refresh(d, x);
        if (d->next_below[x] < next) next = d->next_below[x];
        return d->key[x] / distance(d, next);
    }
    return dtr_numbers_score(d, x);
}

bool dtr_may_drop_dead(const Dtr *d, uint32_t x) {
    return !d->need[x] || (!d->o.lookahead && !d->blocked[x]);
}

static uint32_t lowest(Dtr *d) {
    uint32_t best = DTR_NONE;
    double low = INFINITY;
    for (uint32_t i = 0; i < d->npool; i++) {
        uint32_t x = d->pool[i];
        double v = score(d, x, low);
        if (v < low || (v == low && best != DTR_NONE && x < best)) {
            low = v;
            best = x;
            if (v < 0) break;
        }
    }
    return best;
}

static bool evict_one(Dtr *d) {
    uint32_t best = d->o.published     ? dtr_published_victim(d)
                    : d->o.incremental ? dtr_incremental_victim(d)
                                       : lowest(d);
    if (best == DTR_NONE) return false;
    dtr_drop(d, best, true);
    return true;
}

static void fill_window_costs(Dtr *d) {
    d->nwindow = 0;
    for (uint32_t b = d->space.head; b != SPACE_NONE; b = d->space.block[b].next) {
        uint32_t x = d->space.block[b].owner;
        double cost = INFINITY;
        if (x == SPACE_FREE)
            cost = 0;
        else if (x != SPACE_BUSY && d->pool_at[x] != DTR_NONE) {
            double v = score(d, x, INFINITY);
            cost = v < 0 ? 0 : v * (double)d->g->bytes[x];
        }
        d->window[d->nwindow] = b;
        d->window_cost[d->nwindow++] = cost;
    }
}

bool dtr_slide(Dtr *d, uint64_t need, Window *w) {
    if (d->o.incremental)
        dtr_incremental_costs(d);
    else
        fill_window_costs(d);
    double sum = 0;
    uint64_t bytes = 0;
    w->cost = INFINITY;
    for (uint32_t left = 0, i = 0; i < d->nwindow; i++) {
        double cost = d->window_cost[i];
        if (isinf(cost)) {
            left = i + 1;
            bytes = 0;
            sum = 0;
            continue;
        }
        bytes += d->space.block[d->window[i]].bytes;
        sum += cost;
        for (; bytes - d->space.block[d->window[left]].bytes >= need; left++) {
            bytes -= d->space.block[d->window[left]].bytes;
            sum -= d->window_cost[left];
        }
        if (bytes >= need && sum < w->cost)
            *w = (Window){d->window[left], d->window[i], bytes, sum};
    }
    return !isinf(w->cost);
}

/* Nobody needed x, which could not be made again, until something before it in the same window went
 * that can only be made from x. */
static bool is_last_way(Dtr *d, uint32_t x) {
    return d->blocked[x] && (d->need[x] || dtr_next_use(d, x) != FOREVER);
}

static bool evict_window(Dtr *d, uint64_t need) {
    Window w;
    if (!(d->o.incremental && dtr_incremental_window(d, need, &w)) && !dtr_slide(d, need, &w))
        return false;
    uint32_t n = 0; /* dropping merges blocks: remember storages */
    for (uint32_t b = w.from;; b = d->space.block[b].next) {
        uint32_t x = d->space.block[b].owner;
        if (x < d->g->nstorage) d->window[n++] = x;
        if (b == w.to) break;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!is_last_way(d, d->window[i])) dtr_drop(d, d->window[i], true);
    return true;
}

/* Victims of this search whose bytes are still free come back, the dearest (last) first. */
static void bring_back(Dtr *d, uint64_t need) {
    for (uint32_t i = d->nvictim; i-- > 0;) {
        Victim *v = &d->victim[i];
        uint32_t x = v->storage;
        uint64_t bytes = d->g->bytes[x];
        if (!d->g->is_output[x] && dtr_next_use(d, x) == FOREVER) continue;
        if (d->o.bytes_only) {
            if (d->bytes + need + bytes > d->o.capacity) continue;
        } else {
            uint32_t b = space_take_at(&d->space, v->offset, bytes, x);
            if (b == SPACE_NONE) continue;
            d->block[x] = b;
        }
        d->bytes += bytes;
        dtr_came(d, x);
        dtr_pool_add(d, x);
        v->storage = DTR_NONE;
    }
}

static bool fits(Dtr *d, uint64_t bytes, bool high_end, uint32_t owner, uint32_t *block) {
    *block = 0;
    if (d->o.bytes_only) return d->bytes + bytes <= d->o.capacity;
    *block = space_take(&d->space, bytes, high_end && d->o.two_ended, owner);
    return *block != SPACE_NONE;
}

/* Evicts until it fits. */
static bool evict_for(Dtr *d, uint64_t bytes, bool high_end, uint32_t owner, uint32_t *block) {
    do {
        bool too_long = d->o.work_limit && d->count.work > d->o.work_limit;
        if (too_long) d->status = DTR_TOO_LONG;
        if (!d->o.evict || too_long) return false;
        d->count.decisions++;
        bool window = d->o.window && !d->o.bytes_only;
        if (window ? !evict_window(d, bytes) : !evict_one(d)) return false;
    } while (!fits(d, bytes, high_end, owner, block));
    if (d->o.regret && d->nvictim > 1) bring_back(d, bytes);
    return true;
}

uint32_t dtr_make_room(Dtr *d, uint64_t bytes, bool high_end, uint32_t owner) {
    uint32_t block;
    if (fits(d, bytes, high_end, owner, &block)) return block;
    uint64_t start = dtr_time(d);
    d->nvictim = 0;
    bool ok = evict_for(d, bytes, high_end, owner, &block);
    d->count.decide_ns += dtr_time(d) - start;
    for (uint32_t i = 0; i < d->nvictim; i++)
        if (d->victim[i].storage != DTR_NONE) dtr_tell_drop(d, d->victim[i], true);
    if (ok && d->status == DTR_OK) return block;
    if (d->status == DTR_OK) d->status = DTR_NO_ROOM;
    d->count.failed_bytes = bytes;
    return SPACE_NONE;
}
