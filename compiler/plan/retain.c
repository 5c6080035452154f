/* retain.c - a proven lower bound on the time of any plan under a budget: the interval-retention
 * bound.
 *
 * Setting. The first runs of the nodes that make something stand in the base order. A gap is the
 * time between two consecutive uses of a storage s by first runs (its making counts as a use, being
 * an output as the last one). If s is not resident all through the gap, its maker runs once more
 * within it, since s is there at both ends. Gaps of one storage are disjoint in time, so those
 * extra runs are distinct. A maker with several outputs serves them with one run, so each output is
 * charged a share of its time, by bytes; the shares add up to 1. So dropping gap i costs at least
 * c_i = share * time.
 *
 * At first run t memory holds the operands, results and workspace of t: W_t (less the result that
 * may take over an operand's bytes). The gaps that span t strictly, without ends at t, are about
 * other storages; the part y_i of gap i that is kept satisfies sum over them of b_i y_i <= capacity
 * - W_t = C_t. (y_i in [0, 1] relaxes the choice; alignment and fragmentation only make it harder.)
 * So extra time is at least min sum c_i (1 - y_i)   subject to, at each t,   sum b_i y_i <= C_t,
 * and by weak duality at least, for any prices l_t >= 0,
 *     f(l) = sum_i min(c_i, b_i * (sum of l_t that i spans)) - sum_t l_t C_t.
 * A view that costs something is lost with its storage: views made before the gap that the use at
 * its end reads run again within it, so their times add to c_i. Effects may run at their place or
 * later (deferred updates): a use by an effect ends a gap only when it is the last one, and runs of
 * effects give no memory constraint.
 *
 * Only runs at which not everything fits have a price (the others are left out from the start).
 * Subgradient ascent on f from the best price of one moment; every iterate is a valid bound, the
 * best one is kept. It ends within 0.02 % of base time of the optimum of the linear program on the
 * graphs of README.md. What cannot be made twice (results of effects) has infinite c_i
 * once a first run has read it. */
#include "retain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_ROUNDS = 600, MAX_ROUNDS = 4000, WORK = 40000000 };

/* A gap over the tight moments lo .. hi-1. */
typedef struct {
    uint32_t lo, hi;
    double bytes, cost;
} Span;

typedef struct {
    uint32_t ngap, nspan, n; /* n: tight moments */
    RetainGap *gap;
    Span *span;
    uint32_t *run;  /* of each moment */
    uint32_t *rank; /* per run t, and one more: moments before t */
    double *room;   /* C_t, per run; then per moment */
    double *price;  /* l_t */
    double *best;   /* the l_t of the best value */
    double *prefix; /* sums of prices before t */
    double *load;   /* difference array, then subgradient */
} Retain;

static double share_of(const Problem *p, StorageId s) {
    uint32_t r = p->def[s];
    double all = 0;
    if (p->effect[r]) return INFINITY;
    EACH(p->out, r, t)
    if (t != NO_ID && t < p->nstorage && p->is_temp[t]) all += (double)p->bytes[t];
    return (double)p->ns[r] * (double)p->bytes[s] / all;
}

/* Time of the views of s made at `from` or before that a use at `to` needs. wanted: per tensor,
 * scratch, all false. Tensors of one run have consecutive numbers; those of a view follow its base.
 */
static double views_cost(const Problem *p, StorageId s, uint32_t from, uint32_t to, bool *wanted) {
    double cost = 0;
    uint32_t first = p->views.first[s], done = NO_ID;
    if (!list_len(&p->views, s)) return 0;
    if (to < p->nrun) EACH(p->in, to, t) wanted[t] = p->storage[t] == s;
    for (uint32_t i = 0; i < p->noutput && to == p->nrun; i++)
        if (p->storage[p->output[i]] == s) wanted[p->output[i]] = true;
    for (uint32_t i = p->views.first[s + 1]; i-- > first;) {
        uint32_t t = p->views.at[i], r = p->def[t];
        if (!wanted[t] || r > from) continue;
        EACH(p->in, r, u) if (p->storage[u] == s) wanted[u] = true;
        if (r != done) cost += (double)p->ns[r];
        done = r;
    }
    EACH(p->views, s, t) wanted[t] = false;
    wanted[s] = false;
    return cost;
}

static void fill_gaps(Arena *a, const Problem *p, Retain *x) {
    uint32_t most = 0;
    for (StorageId s = 0; s < p->nstorage; s++) most += list_len(&p->users, s) + 1;
    x->gap = ARENA_ARRAY(a, RetainGap, most);
    bool *wanted = ARENA_ARRAY(a, bool, p->ntensor);
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!p->is_temp[s] || p->def[s] == NO_ID || !p->bytes[s]) continue;
        uint32_t last = p->def[s];
        double cost = share_of(p, s);
        for (uint32_t u = p->users.first[s]; u <= p->users.first[s + 1]; u++) {
            bool end = u == p->users.first[s + 1];
            if (end && !p->is_output[s]) break;
            uint32_t next = end ? p->nrun : p->users.at[u];
            bool last_use = end || (u + 1 == p->users.first[s + 1] && !p->is_output[s]);
            if (!end && p->effect[next] && !last_use) continue;
            bool waiting = p->effect[last]; /* it may not have made s yet */
            if (next > last + 1 && !waiting)
                x->gap[x->ngap++] =
                    (RetainGap){.storage = s,
                                .from = last,
                                .to = next,
                                .bytes = (double)p->bytes[s],
                                .cost = cost + views_cost(p, s, last, next, wanted)};
            last = next;
        }
    }
}

static void fill_room(Arena *a, const Problem *p, uint64_t capacity, Retain *x) {
    double all = 0; /* a room that never binds */
    uint32_t *seen = ARENA_ARRAY(a, uint32_t, p->nstorage);
    for (StorageId s = 0; s < p->nstorage; s++) all += (double)p->bytes[s];
    for (uint32_t r = 0; r < p->nrun; r++) {
        double used = (double)p->workspace[r];
        x->room[r] = all;
        if (p->effect[r]) continue;
        EACH(p->in, r, t) {
            StorageId s = p->storage[t];
            if (seen[s] != r + 1) used += (double)p->bytes[s];
            seen[s] = r + 1;
        }
        EACH(p->out, r, t) if (t != NO_ID && t < p->nstorage) used += (double)p->bytes[t];
        if (list_len(&p->inplace, r)) used -= (double)p->bytes[p->inplace.at[p->inplace.first[r]]];
        x->room[r] = (double)capacity - used;
    }
}

/* Moments at which all gaps together do not fit, and the gaps that span any. */
static void fill_spans(Arena *a, const Problem *p, Retain *x) {
    double load = 0;
    for (uint32_t i = 0; i < x->ngap; i++) {
        x->load[x->gap[i].from + 1] += x->gap[i].bytes;
        x->load[x->gap[i].to] -= x->gap[i].bytes;
    }
    for (uint32_t t = 0; t < p->nrun; t++) {
        load += x->load[t];
        x->rank[t] = x->n;
        if (load <= x->room[t]) continue;
        x->room[x->n] = x->room[t];
        x->run[x->n++] = t;
    }
    x->rank[p->nrun] = x->n;
    x->span = ARENA_ARRAY(a, Span, x->ngap);
    for (uint32_t i = 0; i < x->ngap; i++) {
        const RetainGap *g = &x->gap[i];
        Span s = {x->rank[g->from + 1], x->rank[g->to], g->bytes, g->cost};
        if (s.lo < s.hi) x->span[x->nspan++] = s;
    }
}

/* f at the prices; leaves the subgradient (load kept minus room) in x->load. */
static double value_at(Retain *x) {
    x->prefix[0] = 0;
    for (uint32_t t = 0; t < x->n; t++) x->prefix[t + 1] = x->prefix[t] + x->price[t];
    memset(x->load, 0, (x->n + 1) * sizeof *x->load);
    double f = 0;
    for (const Span *s = x->span; s < x->span + x->nspan; s++) {
        double hold = s->bytes * (x->prefix[s->hi] - x->prefix[s->lo]);
        if (hold < s->cost) {
            f += hold;
            x->load[s->lo] += s->bytes;
            x->load[s->hi] -= s->bytes;
        } else {
            f += s->cost;
        }
    }
    double sum = 0;
    for (uint32_t t = 0; t < x->n; t++) {
        sum += x->load[t];
        x->load[t] = sum - x->room[t];
        f -= x->price[t] * x->room[t];
    }
    return f;
}

typedef struct {
    double density, bytes;
} Offer;

static int offer_cmp(const void *x, const void *y) {
    const Offer *a = x, *b = y;
    return a->density < b->density ? -1 : a->density > b->density;
}

/* Starts at the most crowded moment alone: there the best price is the density c_i / b_i at which
 * enough has been dropped (the fractional knapsack). */
static void start_at_peak(Arena *a, Retain *x) {
    uint32_t peak = 0, n = 0;
    value_at(x); /* at price 0 everything is kept */
    for (uint32_t t = 0; t < x->n; t++)
        if (x->load[t] > x->load[peak]) peak = t;
    double over = x->n ? x->load[peak] : 0;
    Offer *o = ARENA_ARRAY(a, Offer, x->nspan);
    for (const Span *s = x->span; s < x->span + x->nspan; s++)
        if (s->lo <= peak && peak < s->hi) o[n++] = (Offer){s->cost / s->bytes, s->bytes};
    qsort(o, n, sizeof *o, offer_cmp);
    for (uint32_t i = 0; i < n && over > 0 && !isinf(o[i].density); i++) {
        x->price[peak] = o[i].density;
        over -= o[i].bytes;
    }
}

/* Polyak steps towards a target a little above the best value; the aim comes closer when nothing is
 * gained. Ends when it is as good as there, and starts again from the best prices as long as that
 * helps. */
static double ascend(Retain *x) {
    double best = 0, start = 0, reach = 1, scale = 0;
    uint32_t idle = 0;
    for (uint32_t i = 0; i < x->nspan; i++)
        if (!isinf(x->span[i].cost)) scale += x->span[i].cost;
    uint64_t rounds = WORK / ((uint64_t)x->nspan + x->n + 1);
    if (rounds < MIN_ROUNDS) rounds = MIN_ROUNDS;
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    for (uint64_t round = 0; round < rounds && reach > 1e-6; round++) {
        double f = value_at(x), norm = 0;
        if (f > best * (1 + 1e-6) + 1e-9) {
            best = f;
            memcpy(x->best, x->price, x->n * sizeof *x->best);
            idle = 0;
        } else if (++idle >= 8) {
            reach /= 2;
            idle = 0;
            if (reach < 1e-6 && best > start * (1 + 1e-5)) {
                reach = 0.01;
                start = best;
                memcpy(x->price, x->best, x->n * sizeof *x->price);
                continue;
            }
        }
        for (uint32_t t = 0; t < x->n; t++)
            if (x->load[t] > 0 || x->price[t] > 0) norm += x->load[t] * x->load[t];
        if (norm <= 0) break;
        double aim = best + reach * (best > 0.02 * scale ? best : 0.02 * scale),
               step = (aim - f) / norm;
        for (uint32_t t = 0; t < x->n; t++) {
            double l = x->price[t] + step * x->load[t];
            x->price[t] = l > 0 ? l : 0;
        }
    }
    return best < scale ? best : scale; /* unbounded prices: no plan at all */
}

static void fill_result(Arena *a, const Problem *p, const Retain *x, Retention *out) {
    out->price = ARENA_ARRAY(a, double, p->nrun);
    out->ngap = x->ngap;
    out->gap = x->gap;
    x->prefix[0] = 0;
    for (uint32_t t = 0; t < x->n; t++) {
        x->prefix[t + 1] = x->prefix[t] + x->best[t];
        out->price[x->run[t]] = x->best[t];
    }
    for (uint32_t i = 0; i < x->ngap; i++) {
        RetainGap *g = &x->gap[i];
        g->hold = g->bytes * (x->prefix[x->rank[g->to]] - x->prefix[x->rank[g->from + 1]]);
    }
}

void retain_solve(Arena *a, const Problem *p, uint64_t capacity, Retention *out) {
    Retain x = {0};
    uint64_t n = (uint64_t)p->nrun + 1;
    x.room = ARENA_ARRAY(a, double, n);
    x.price = ARENA_ARRAY(a, double, n);
    x.best = ARENA_ARRAY(a, double, n);
    x.prefix = ARENA_ARRAY(a, double, n);
    x.load = ARENA_ARRAY(a, double, n);
    x.run = ARENA_ARRAY(a, uint32_t, n);
    x.rank = ARENA_ARRAY(a, uint32_t, n);
    fill_gaps(a, p, &x);
    fill_room(a, p, capacity, &x);
    fill_spans(a, p, &x);
    start_at_peak(a, &x);
    out->value = ascend(&x);
    fill_result(a, p, &x, out);
}
