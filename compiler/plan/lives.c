/* lives.c - who can still need what during a simulation: next uses, closure costs of evicted
 * neighbourhoods, frozen runs, and storages that are done for good.
 *
 * Closure costs are cached per resident storage. When a storage x comes, goes or is frozen, the
 * caches that can change are those of resident storages reachable from x through storages that are
 * not there: sim_touch marks them dirty, sim_refresh recomputes one on demand.
 *
 * A storage is done when it has no use ahead and every run that reads it is closed; a run is closed
 * when it happened and either is frozen or all it makes is done. Done storages can never be needed
 * again, and walks stop there; without that, a walk in the backward pass would visit everything
 * above it. */
#include "sim.h"

#include <assert.h>
#include <math.h>

uint32_t sim_next_use(Sim *s, StorageId x) {
    const Lists *u = &s->p->users;
    uint32_t *at = &s->use[x];
    while (*at < u->first[x + 1] && u->at[*at] < s->now) ++*at;
    if (*at < u->first[x + 1]) return u->at[*at];
    return s->p->is_output[x] ? s->p->nrun : FOREVER;
}

static bool visit(Sim *s, StorageId x) {
    s->work++;
    if (s->seen[x] == s->stamp) return false;
    s->seen[x] = s->stamp;
    return true;
}

static void touch_direction(Sim *s, StorageId x, const Lists *l) {
    s->stamp++;
    s->stack.n = 0;
    s->seen[x] = s->stamp;
    for (StorageId y = x;; y = s->stack.at[--s->stack.n]) {
        EACH(*l, y, z) {
            if (!visit(s, z)) continue;
            if (sim_there(s, z))
                s->state[z] |= S_DIRTY;
            else if ((s->state[z] & (S_MADE | S_DONE)) == S_MADE)
                VEC_PUSH(s->a, s->stack, z);
        }
        if (!s->stack.n) break;
    }
}

void sim_touch(Sim *s, StorageId x) {
    s->state[x] |= S_DIRTY;
    touch_direction(s, x, &s->p->children);
    touch_direction(s, x, &s->p->parents);
}

static bool is_frozen(const Sim *s, StorageId x, uint8_t level) {
    EACH(s->p->makers, x, r) if (s->frozen[r] >= level) return true;
    return false;
}

static void fill_ancestors(Sim *s, StorageId x) {
    double sum = 0;
    s->stamp++;
    s->stack.n = 0;
    s->seen[x] = s->stamp;
    for (StorageId y = x;; y = s->stack.at[--s->stack.n]) {
        if (is_frozen(s, y, FREEZING)) {
            s->ancestors[x] = INFINITY;
            return;
        }
        EACH(s->p->parents, y, z) {
            if (sim_there(s, z) || !visit(s, z)) continue;
            sum += s->p->cost[z];
            VEC_PUSH(s->a, s->stack, z);
        }
        if (!s->stack.n) break;
    }
    s->ancestors[x] = sum;
}

static bool is_open_below(const Sim *s, StorageId y) {
    return (s->state[y] & (S_MADE | S_THERE | S_DONE)) == S_MADE && !is_frozen(s, y, FROZEN);
}

static void fill_descendants(Sim *s, StorageId x) {
    double sum = 0;
    uint32_t next = FOREVER;
    s->stamp++;
    s->stack.n = 0;
    s->seen[x] = s->stamp;
    for (StorageId y = x;; y = s->stack.at[--s->stack.n]) {
        EACH(s->p->children, y, z) {
            if (!is_open_below(s, z) || !visit(s, z)) continue;
            uint32_t n = sim_next_use(s, z);
            if (n < next) next = n;
            sum += s->p->cost[z];
            VEC_PUSH(s->a, s->stack, z);
        }
        if (!s->stack.n) break;
    }
    s->descendants[x] = sum;
    s->next_below[x] = next;
}

void sim_refresh(Sim *s, StorageId x) {
    if (!(s->state[x] & S_DIRTY)) return;
    s->state[x] &= (uint8_t)~S_DIRTY;
    fill_ancestors(s, x);
    fill_descendants(s, x);
    double cost = s->p->cost[x] + s->ancestors[x] + s->o.gamma * s->descendants[x];
    double bytes = (double)s->p->bytes[x];
    if (s->o.lookahead) s->key[x] = pow(cost, s->o.alpha) / (bytes > 1 ? bytes : 1);
}

bool sim_is_needed(Sim *s, StorageId x) {
    if (sim_next_use(s, x) != FOREVER) return true;
    s->stamp++;
    s->stack.n = 0;
    s->seen[x] = s->stamp;
    for (StorageId y = x;; y = s->stack.at[--s->stack.n]) {
        EACH(s->p->children, y, z) {
            if (!is_open_below(s, z) || !visit(s, z)) continue;
            if (sim_next_use(s, z) != FOREVER) return true;
            VEC_PUSH(s->a, s->stack, z);
        }
        if (!s->stack.n) return false;
    }
}

/* ---- done ---- */

static void set_done(Sim *s, StorageId x);

/* The recursion of done storage -> closed run -> done storage runs over an explicit stack of runs.
 */
static void close_run(Sim *s, uint32_t run) {
    uint32_t base = s->stack.n;
    VEC_PUSH(s->a, s->stack, run);
    while (s->stack.n > base) {
        uint32_t r = s->stack.at[--s->stack.n];
        if (s->closed[r]) continue;
        s->closed[r] = true;
        EACH(s->p->in, r, t) {
            StorageId x = s->p->storage[t];
            if (!s->p->is_temp[x] || list_len(&s->p->views, x))
                continue; /* views that cost: never done */
            if (s->open_users[x] && !--s->open_users[x] && !s->p->is_output[x]) set_done(s, x);
        }
    }
}

static void set_done(Sim *s, StorageId x) {
    s->state[x] |= S_DONE;
    EACH(s->p->makers, x, r)
    if (s->ran[r] && s->open_outs[r] && !--s->open_outs[r] && !s->closed[r])
        VEC_PUSH(s->a, s->stack, r);
}

void sim_close_if_done(Sim *s, uint32_t run) {
    s->stack.n = 0;
    if (s->ran[run] && (s->frozen[run] == FROZEN || !s->open_outs[run])) close_run(s, run);
}

void sim_freeze(Sim *s, uint32_t run, uint8_t level) {
    if (s->frozen[run] >= level) return;
    s->frozen[run] = level;
    EACH(s->p->out, run, t)
    if (t != NO_ID && s->p->is_temp[s->p->storage[t]]) sim_touch(s, s->p->storage[t]);
    if (level == FROZEN) sim_close_if_done(s, run);
}
