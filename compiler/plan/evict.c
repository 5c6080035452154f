/* evict.c - making room in the simulated arena: scores, choice of victims, eviction.
 *
 * Two ways to choose. One by one: evict the lowest score until a hole is large enough (DTR:
 * Kirisame et al., ICLR 2021). By window: slide over the blocks in address order and evict the
 * cheapest contiguous run that gives enough bytes (Coop: Zhang et al., "Coop: Memory is not a
 * Commodity", NeurIPS 2023).
 *
 * Scores: h of the DTR family (runtime/dtr/policy), or lookahead: closure cost over bytes times the
 * distance to the next use, which a static planner knows, to exponents that the portfolio varies.
 * The next use of a storage without uses of its own is that of the evicted descendants that it
 * serves.
 *
 * Regret (lookahead only): evicting one by one may free bytes that the request then does not take;
 * such victims come back where they were. */
#include "sim.h"

#include <assert.h>
#include <math.h>

void sim_pool_add(Sim *s, StorageId x) {
    if (s->pool_at[x] != NO_ID || !s->p->bytes[x]) return;
    s->pool_at[x] = s->npool;
    s->pool[s->npool++] = x;
}

void sim_pool_remove(Sim *s, StorageId x) {
    uint32_t at = s->pool_at[x];
    if (at == NO_ID) return;
    s->pool_at[x] = NO_ID;
    s->pool[at] = s->pool[--s->npool];
    if (at < s->npool) s->pool_at[s->pool[at]] = at;
}

/* ---- classes of h_DTR^eq: merged at eviction, cost taken out when made again, never split ---- */

static uint32_t eq_find(Sim *s, uint32_t i) {
    while (s->eq_up.at[i] != i) i = s->eq_up.at[i] = s->eq_up.at[s->eq_up.at[i]];
    return i;
}

static bool eq_is_member(const Sim *s, StorageId x) {
    return s->eq_node[x] != NO_ID && !sim_there(s, x);
}

static void eq_merge(Sim *s, StorageId x, const Lists *l) {
    EACH(*l, x, y) {
        if (!eq_is_member(s, y)) continue;
        uint32_t from = eq_find(s, s->eq_node[y]), to = eq_find(s, s->eq_node[x]);
        if (from == to) continue;
        s->eq_up.at[from] = to;
        s->eq_cost.at[to] += s->eq_cost.at[from];
    }
}

static void eq_evict(Sim *s, StorageId x) {
    uint32_t node = s->eq_node[x] = s->eq_up.n;
    VEC_PUSH(s->a, s->eq_up, node);
    VEC_PUSH(s->a, s->eq_cost, s->p->cost[x]);
    eq_merge(s, x, &s->p->parents);
    eq_merge(s, x, &s->p->children);
}

static double eq_neighbours(Sim *s, StorageId x) {
    double sum = 0;
    uint32_t seen[64], n = 0;
    const Lists *lists[2] = {&s->p->parents, &s->p->children};
    for (int k = 0; k < 2; k++) EACH(*lists[k], x, y) {
            if (!eq_is_member(s, y)) continue;
            uint32_t c = eq_find(s, s->eq_node[y]), i = 0;
            while (i < n && seen[i] != c) i++;
            s->work++;
            if (i < n || n == 64) continue;
            seen[n++] = c;
            sum += s->eq_cost.at[c];
        }
    return sum;
}

/* ---- scores ---- */

/* -1: goes for nothing; infinite: must stay. */
static double score(Sim *s, StorageId x) {
    s->work++;
    if (s->want[x]) return INFINITY;
    uint32_t next = sim_next_use(s, x);
    if (next == FOREVER && !s->need[x]) return -1;
    if (s->blocked[x]) return INFINITY;
    if (s->o.lookahead) {
        sim_refresh(s, x);
        if (s->next_below[x] < next) next = s->next_below[x];
        if (next <= s->now) next = s->now + 1;
        double v = s->key[x] / s->dist[next - s->now];
        return s->o.weight ? v * (double)s->o.weight[s->use[x] + x] : v;
    }
    if (s->o.h == DTR_FULL || s->o.h == DTR_MSPS) sim_refresh(s, x);
    DtrStorage d = {.cost = s->p->cost[x],
                    .ancestors = s->ancestors[x],
                    .descendants = s->descendants[x],
                    .classes = s->o.h == DTR_EQ ? eq_neighbours(s, x) : 0,
                    .bytes = (double)s->p->bytes[x],
                    .staleness = s->clock - s->last[x]};
    return dtr_score(s->o.h, &d);
}

bool sim_may_drop_dead(const Sim *s, StorageId x) {
    return !s->need[x] || (!s->o.lookahead && !s->blocked[x]);
}

void sim_drop(Sim *s, StorageId x, bool evicted) {
    assert(sim_there(s, x) && !s->lock[x]);
    if (evicted && !s->o.bytes_only) {
        VEC_PUSH(s->a, s->victims, x);
        VEC_PUSH(s->a, s->victim_at, s->space.block.at[s->block[x]].offset);
    } else if (evicted) {
        VEC_PUSH(s->a, s->victims, x);
        VEC_PUSH(s->a, s->victim_at, 0);
    }
    if (evicted && s->o.weight) VEC_PUSH(s->a, s->evicted, s->use[x] + x);
    s->bytes -= s->p->bytes[x];
    if (!s->o.bytes_only && s->p->bytes[x]) space_give(&s->space, s->block[x]);
    EACH(s->p->views, x, t) s->defined[t] = false;
    sim_pool_remove(s, x);
    sim_gone(s, x);
    if (s->o.h == DTR_EQ && !s->o.lookahead) eq_evict(s, x);
    VEC_PUSH(s->a, s->step, ((SimStep){.kind = STEP_DROP, .id = x, .inplace = NO_ID}));
}

static bool evict_one(Sim *s) {
    StorageId best = NO_ID;
    double low = INFINITY;
    for (uint32_t i = 0; i < s->npool; i++) {
        StorageId x = s->pool[i];
        double v = score(s, x);
        if (v < low || (v == low && best != NO_ID && x < best)) {
            low = v;
            best = x;
            if (v < 0) break;
        }
    }
    if (best == NO_ID) return false;
    sim_drop(s, best, true);
    return true;
}

static void fill_window_costs(Sim *s) {
    s->window.n = s->window_cost.n = 0;
    for (uint32_t b = s->space.head; b != NO_ID; b = s->space.block.at[b].next) {
        StorageId x = s->space.block.at[b].owner;
        double cost = INFINITY;
        if (x == SPACE_FREE)
            cost = 0;
        else if (x != SPACE_BUSY && s->pool_at[x] != NO_ID) {
            double v = score(s, x);
            cost = v < 0 ? 0 : v * (double)s->p->bytes[x];
        }
        VEC_PUSH(s->a, s->window, b);
        VEC_PUSH(s->a, s->window_cost, cost);
    }
}

/* The cheapest run of blocks with enough bytes: [*from, *to) in Sim.window. */
static bool find_window(Sim *s, uint64_t need, uint32_t *from, uint32_t *to) {
    fill_window_costs(s);
    double sum = 0, best = INFINITY;
    uint64_t bytes = 0;
    for (uint32_t left = 0, i = 0; i < s->window.n; i++) {
        double cost = s->window_cost.at[i];
        if (isinf(cost)) {
            left = i + 1;
            bytes = 0;
            sum = 0;
            continue;
        }
        bytes += s->space.block.at[s->window.at[i]].bytes;
        sum += cost;
        for (; bytes - s->space.block.at[s->window.at[left]].bytes >= need; left++) {
            bytes -= s->space.block.at[s->window.at[left]].bytes;
            sum -= s->window_cost.at[left];
        }
        if (bytes >= need && sum < best) {
            best = sum;
            *from = left;
            *to = i + 1;
        }
    }
    return !isinf(best);
}

static bool evict_window(Sim *s, uint64_t need) {
    uint32_t from = 0, to = 0;
    if (!find_window(s, need, &from, &to)) return false;
    for (uint32_t i = from; i < to; i++) {
        StorageId x = s->space.block.at[s->window.at[i]].owner;
        s->window.at[i] = x; /* dropping merges blocks: remember storages, not blocks */
    }
    for (uint32_t i = from; i < to; i++)
        if (s->window.at[i] < s->p->nstorage) sim_drop(s, s->window.at[i], true);
    return true;
}

/* Victims of this search whose bytes are still free come back, the dearest (last) first; their
 * drops are the last steps of the list. */
static void bring_back(Sim *s, uint64_t need) {
    uint32_t n = s->victims.n, first = s->step.n - n;
    for (uint32_t i = n; i-- > 0;) {
        StorageId x = s->victims.at[i];
        uint64_t bytes = s->p->bytes[x];
        if (s->p->is_output[x] || sim_next_use(s, x) != FOREVER) {
            if (s->o.bytes_only) {
                if (s->bytes + need + bytes > s->o.capacity) continue;
            } else {
                uint32_t b = space_take_at(&s->space, s->victim_at.at[i], bytes, x);
                if (b == NO_ID) continue;
                s->block[x] = b;
            }
            s->bytes += bytes;
            sim_came(s, x);
            sim_pool_add(s, x);
            s->step.at[first + i].id = NO_ID;
        }
    }
    uint32_t keep = first;
    for (uint32_t i = first; i < s->step.n; i++)
        if (s->step.at[i].id != NO_ID) s->step.at[keep++] = s->step.at[i];
    s->step.n = keep;
}

uint32_t sim_make_room(Sim *s, uint64_t bytes, bool high_end, uint32_t owner) {
    s->victims.n = s->victim_at.n = 0;
    uint32_t block = 0;
    for (;;) {
        if (s->o.bytes_only) {
            if (s->bytes + bytes <= s->o.capacity) break;
        } else {
            block = space_take(&s->space, bytes, high_end && s->o.two_ended, owner);
            if (block != NO_ID) break;
        }
        if (!s->o.evict || (s->o.work_limit && s->work > s->o.work_limit)) return NO_ID;
        if (s->o.window && !s->o.bytes_only ? !evict_window(s, bytes) : !evict_one(s)) return NO_ID;
    }
    if (s->o.regret && s->victims.n > 1) bring_back(s, bytes);
    return block;
}
