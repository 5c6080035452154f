/* improve.c - local search over the decisions of a lookahead member.
 *
 * Every gap (a storage between two uses) has a factor on its eviction score, 1 at first. A move
 * raises the factors of a few gaps whose storages were evicted, the costly ones more likely, or
 * lowers some, or changes all gaps of a storage; then the whole step is simulated again. Accepted
 * when cheaper, or, with a probability that falls with the work done, a little dearer (simulated
 * annealing: Kirkpatrick, Gelatt, Vecchi, Science 220, 1983). Random numbers are a fixed sequence,
 * the end is counted work: one input, one plan. */
#include "strategy.h"

#include <math.h>
#include <string.h>

typedef struct {
    Sim *s;
    SimOptions so;
    uint64_t rng;
    uint32_t ngap;
    float *now, *next;       /* factors: accepted, tried */
    uint32_t *evicted;       /* gaps evicted by the accepted plan */
    uint32_t nevicted, room; /* room: entries allocated */
    StorageId *owner;        /* of each gap */
    StorageId *temp;         /* storages worth a move */
    uint32_t ntemp;
} Climb;

static uint32_t rnd(Climb *x, uint32_t n) {
    x->rng ^= x->rng << 13;
    x->rng ^= x->rng >> 7;
    x->rng ^= x->rng << 17;
    return (uint32_t)((x->rng >> 32) * n >> 32);
}

/* About normal, mean 0, deviation 1. */
static double bell(Climb *x) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)rnd(x, 1u << 20) / (1 << 20);
    return sum;
}

static uint32_t random_gap(Climb *x) {
    const Lists *u = &x->s->p->users;
    StorageId t = x->temp[rnd(x, x->ntemp)];
    return u->first[t] + t + rnd(x, list_len(u, t) + 1);
}

static void raise_evicted(Climb *x) {
    for (uint32_t n = 1 + rnd(x, 3); n > 0; n--) {
        uint32_t best = x->evicted[rnd(x, x->nevicted)];
        for (int k = 0; k < 2; k++) {
            uint32_t other = x->evicted[rnd(x, x->nevicted)];
            if (x->s->p->cost[x->owner[other]] > x->s->p->cost[x->owner[best]]) best = other;
        }
        x->next[best] *= (float)exp(1.5 + 1.5 * fabs(bell(x)));
    }
}

static void move(Climb *x) {
    memcpy(x->next, x->now, x->ngap * sizeof *x->now);
    uint32_t kind = rnd(x, 4);
    if (kind <= 1 && x->nevicted) {
        raise_evicted(x);
        for (uint32_t n = kind ? 1 + rnd(x, 3) : 0; n > 0; n--)
            x->next[random_gap(x)] *= (float)exp(-1.5 - 1.5 * fabs(bell(x)));
        return;
    }
    if (kind == 2) {
        for (uint32_t n = 1 + rnd(x, 4); n > 0; n--) {
            StorageId t = x->temp[rnd(x, x->ntemp)];
            float f = (float)exp(2 * bell(x));
            for (uint32_t i = x->s->p->users.first[t]; i <= x->s->p->users.first[t + 1]; i++)
                x->next[i + t] *= f;
        }
        return;
    }
    for (uint32_t n = 1 + rnd(x, 6); n > 0; n--)
        x->next[random_gap(x)] *= (float)exp(2.5 * bell(x));
}

static void accept(Climb *x, Arena *a) {
    float *t = x->now;
    x->now = x->next;
    x->next = t;
    x->nevicted = x->s->evicted.n;
    if (x->nevicted > x->room) {
        x->room = 2 * x->nevicted;
        x->evicted = ARENA_ARRAY(a, uint32_t, x->room);
    }
    if (x->nevicted) memcpy(x->evicted, x->s->evicted.at, x->nevicted * sizeof *x->evicted);
}

static void fill_owners(Climb *x, Arena *a) {
    const Problem *p = x->s->p;
    x->ngap = p->users.first[p->nstorage] + p->nstorage + 1;
    x->now = ARENA_ARRAY(a, float, x->ngap);
    x->next = ARENA_ARRAY(a, float, x->ngap);
    x->owner = ARENA_ARRAY(a, StorageId, x->ngap);
    x->temp = ARENA_ARRAY(a, StorageId, p->nstorage);
    for (uint32_t i = 0; i < x->ngap; i++) x->now[i] = 1;
    for (StorageId t = 0; t < p->nstorage; t++) {
        for (uint32_t i = p->users.first[t]; i <= p->users.first[t + 1]; i++) x->owner[i + t] = t;
        if (p->is_temp[t] && p->bytes[t]) x->temp[x->ntemp++] = t;
    }
}

Plan *plan_improve(Arena *a, Sim *s, SimOptions so, bool packed, uint64_t cost, uint64_t least,
                   uint64_t budget, uint64_t work) {
    Arena *scratch = arena_new();
    Climb x = {.s = s, .so = so, .rng = 0x9E3779B97F4A7C15u};
    Plan *found = NULL;
    double base = (double)s->p->base_ns, current = (double)cost;
    uint64_t done = 0;
    fill_owners(&x, scratch);
    for (bool first = true; done < work && x.ntemp; first = false) {
        double left = 1 - (double)done / (double)work,
               heat = 2e-4 * left * (current - base + 0.01 * base);
        if (first)
            memcpy(x.next, x.now, x.ngap * sizeof *x.now);
        else
            move(&x);
        x.so.weight = x.next;
        x.so.cost_limit = (uint64_t)(current + 5 * heat);
        PlanStatus st = sim_run(s, &x.so);
        done += s->work + s->p->nrun;
        if (st != PLAN_OK) {
            if (first) break;
            continue;
        }
        double worse = (double)s->cost - current;
        if (worse > 0 &&
            (double)rnd(&x, 1u << 20) / (1 << 20) >= exp(-worse / (heat > 0 ? heat : 1)))
            continue;
        current = (double)s->cost;
        accept(&x, scratch);
        if (s->cost >= least) continue;
        Plan *plan =
            packed ? plan_pack_bytes(a, s, budget, "static") : sim_plan(a, s, budget, "static");
        if (packed) done += plan_pack_work(s, plan != NULL);
        if (!plan) continue;
        least = s->cost;
        found = plan;
    }
    arena_free(scratch);
    return found;
}
