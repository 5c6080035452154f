/* lives.c - who can still need what during a simulation. Three facts are kept up to date by
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
#include "sim.h"

#include <math.h>

uint32_t sim_next_use(Sim *s, StorageId x) {
    const Lists *u = &s->p->users;
    uint32_t *at = &s->use[x];
    while (*at < u->first[x + 1] && u->at[*at] < s->now) ++*at;
    if (*at < u->first[x + 1]) return u->at[*at];
    return s->p->is_output[x] ? s->p->nrun : FOREVER;
}

static bool is_away(const Sim *s, StorageId x) {
    return (s->state[x] & (S_MADE | S_THERE)) == S_MADE;
}

/* ---- counting ---- */

static void push(Sim *s, StorageId x) {
    VEC_PUSH(s->a, s->stack, x);
}

/* x, which is not there, is needed from now on; so are the parents that are not there. */
static void need_on(Sim *s, StorageId x) {
    s->state[x] |= S_NEED;
    for (push(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(s->p->parents, y, z) {
            s->work++;
            if (s->need[z]++ || !is_away(s, z) || s->state[z] & S_NEED) continue;
            s->state[z] |= S_NEED;
            push(s, z);
        }
    }
}

static void need_off(Sim *s, StorageId x) {
    s->state[x] &= (uint8_t)~S_NEED;
    for (push(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(s->p->parents, y, z) {
            s->work++;
            if (--s->need[z] || !(s->state[z] & S_NEED) || sim_next_use(s, z) != FOREVER) continue;
            s->state[z] &= (uint8_t)~S_NEED;
            push(s, z);
        }
    }
}

/* One reason more (or less) for each neighbour of x; what is not there passes its first (or last)
 * reason on. */
static void pass_on(Sim *s, const Lists *neighbours, uint32_t *reasons, StorageId x) {
    for (push(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(*neighbours, y, z) {
            s->work++;
            if (!reasons[z]++ && is_away(s, z)) push(s, z);
        }
    }
}

static void take_back(Sim *s, const Lists *neighbours, uint32_t *reasons, StorageId x) {
    for (push(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(*neighbours, y, z) {
            s->work++;
            if (!--reasons[z] && is_away(s, z)) push(s, z);
        }
    }
}

/* ---- stale caches ---- */

/* h_DTR as published counts all evicted descendants, also those that nobody needs any more. */
static bool counts_dead(const Sim *s) {
    return !s->o.lookahead && s->o.h == DTR_FULL;
}

static bool visit(Sim *s, StorageId x) {
    s->work++;
    if (s->seen[x] == s->stamp) return false;
    s->seen[x] = s->stamp;
    return true;
}

static void start_walk(Sim *s, StorageId x) {
    s->stamp++;
    s->seen[x] = s->stamp;
    push(s, x);
}

/* Resident storages above x, through storages that are not there. */
static void spoil_above(Sim *s, StorageId x) {
    for (start_walk(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(s->p->parents, y, z) {
            if (!visit(s, z)) continue;
            if (sim_there(s, z))
                s->state[z] |= S_STALE_BELOW;
            else if (is_away(s, z))
                push(s, z);
        }
    }
}

/* Resident storages below x. What is dear stays dear, unless its own parent came. */
static void spoil_below(Sim *s, StorageId x, bool came) {
    for (start_walk(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        EACH(s->p->children, y, z) {
            if (!visit(s, z)) continue;
            if (is_away(s, z)) {
                if (s->alive[z]) push(s, z);
            } else if (s->ancestors[z] < s->dear || (came && y == x)) {
                s->state[z] |= S_STALE_ABOVE;
            }
        }
    }
}

void sim_came(Sim *s, StorageId x) {
    bool again = s->state[x] & S_MADE, was_alive = again && s->alive[x];
    if (again) {
        if (s->state[x] & S_NEED || counts_dead(s)) spoil_above(s, x);
        spoil_below(s, x, true);
        if (s->state[x] & S_NEED) need_off(s, x);
        if (s->blocked[x]) take_back(s, &s->p->children, s->blocked, x);
    }
    s->state[x] |= S_THERE | S_MADE | S_STALE_ABOVE | S_STALE_BELOW;
    if (!was_alive) pass_on(s, &s->p->parents, s->alive, x);
}

void sim_gone(Sim *s, StorageId x) {
    s->state[x] &= (uint8_t)~S_THERE;
    if (sim_next_use(s, x) != FOREVER || s->need[x]) need_on(s, x);
    if (s->blocked[x]) pass_on(s, &s->p->children, s->blocked, x);
    if (!s->alive[x]) take_back(s, &s->p->parents, s->alive, x);
    if (s->state[x] & S_NEED || counts_dead(s)) spoil_above(s, x);
    if (s->alive[x]) spoil_below(s, x, false);
}

void sim_freeze(Sim *s, uint32_t run, uint8_t level) {
    bool first = !s->frozen[run];
    if (s->frozen[run] < level) s->frozen[run] = level;
    if (!first) return;
    EACH(s->p->out, run, t) {
        StorageId x = t == NO_ID ? NO_ID : s->p->storage[t];
        if (x == NO_ID || !s->p->is_temp[x]) continue;
        if (!s->blocked[x]++ && is_away(s, x)) pass_on(s, &s->p->children, s->blocked, x);
    }
}

/* ---- closure costs ---- */

static void fill_ancestors(Sim *s, StorageId x) {
    double sum = 0;
    for (start_walk(s, x); s->stack.n;) {
        StorageId y = s->stack.at[--s->stack.n];
        s->work += 2;
        EACH(s->p->parents, y, z) {
            if (sim_there(s, z) || !visit(s, z)) continue;
            sum += s->p->cost[z];
            push(s, z);
        }
        if (sum < s->dear) continue;
        sum = s->dear;
        s->stack.n = 0;
    }
    s->ancestors[x] = sum;
}

static void fill_descendants(Sim *s, StorageId x) {
    bool dead = counts_dead(s);
    double sum = 0;
    uint32_t next = FOREVER;
    if (s->need[x] || dead) start_walk(s, x);
    while (s->stack.n) {
        StorageId y = s->stack.at[--s->stack.n];
        s->work += 2;
        EACH(s->p->children, y, z) {
            if (!(dead ? is_away(s, z) : s->state[z] & S_NEED) || !visit(s, z)) continue;
            uint32_t n = sim_next_use(s, z);
            if (n < next) next = n;
            sum += s->p->cost[z];
            push(s, z);
        }
        if (sum >= s->dear && dead) s->stack.n = 0;
    }
    s->descendants[x] = sum;
    s->next_below[x] = next;
}

void sim_refresh(Sim *s, StorageId x) {
    uint8_t stale = s->state[x] & (S_STALE_ABOVE | S_STALE_BELOW);
    if (!stale) return;
    s->state[x] &= (uint8_t)~stale;
    if (stale & S_STALE_ABOVE) fill_ancestors(s, x);
    if (stale & S_STALE_BELOW) fill_descendants(s, x);
    if (!s->o.lookahead) return;
    double cost = s->p->cost[x] + s->ancestors[x] + s->o.gamma * s->descendants[x];
    double bytes = (double)s->p->bytes[x];
    s->key[x] = (s->o.alpha == 1 ? cost : pow(cost, s->o.alpha)) / (bytes > 1 ? bytes : 1);
}
