/* rotor.c - schedules for chains by dynamic programming.
 *
 * cost(i, j, m): least extra time for backward of segments i..j, gradients of j + 1 there, what is
 * carried into i there, m bytes besides. Either segment i runs first and keeps what its backward
 * reads,
 *     again_ns[BOTH](i) + cost(i + 1, j, m - inner(i) - carry(i, i + 1)),
 * or it runs on to some k and only what is carried into k stays:
 *     sum of again_ns[CARRIED](i .. k - 1) + cost(k, j, m - carry(i, k)) + cost(i, k - 1, m).
 * Up to the last segment it is the first pass, which costs nothing extra.
 *
 * Sources: the recurrence for chains whose segments differ is that of rotor (Beaumont,
 * Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains", Inria
 * RR-9302, 2019); for equal segments its second half alone is optimal (Griewank, Walther,
 * "Algorithm 799: revolve", ACM TOMS 26, 2000).
 *
 * Here segments are parts of a graph, and three things differ. What is carried over may overlap
 * (skip connections): it counts once. A segment may keep half of what its backward reads or, at the
 * end of a recursion, nothing; what that costs is guessed as half of its time and all of it, and
 * repair (mend.c) finds out what exactly goes. Bytes are rounded up to slots, unless all are
 * multiples of one that is large enough. So a schedule may not fit exactly, or too well: callers
 * repair and reduce it, and ask for a few sizes. */
#include "chain.h"

#include "keeper.h"

#include <math.h>
#include <string.h>

enum { SLOTS_LEAST = 100, SLOTS_MOST = 1000, SLOTS_WORK = 30000000 };
enum { WHOLE, HALF, NOTHING, SHARES }; /* of what backward reads */

struct Rotor {
    const Chain *c;
    uint64_t unit; /* bytes of a slot */
    uint32_t slots;
    float **cost;    /* [i * n + j][m] */
    double *fwd_sum; /* again_ns[SEG_CARRIED] of the segments before */
};

static uint32_t up(const Rotor *r, uint64_t bytes) {
    uint64_t n = (bytes + r->unit - 1) / r->unit;
    return n > r->slots ? r->slots + 1 : (uint32_t)n;
}

static uint64_t larger(uint64_t x, uint64_t y) {
    return x > y ? x : y;
}

static uint64_t share(uint64_t whole, uint64_t nothing, int part) {
    if (part == WHOLE || nothing > whole) return whole;
    return part == HALF ? whole - (whole - nothing) / 2 : nothing;
}

/* A way to go on from (i, j). */
typedef struct {
    uint32_t k; /* 0: segment i keeps `part`; else: goes on to k */
    int part;
    uint32_t need, less;       /* slots that must be there; that are held during the right part */
    const float *right, *left; /* costs, or NULL */
    float ns;
} Way;

/* At the end of a recursion only what backward reads has to be made. */
static Way keep_way(const Rotor *r, uint32_t i, uint32_t j, int part) {
    const Chain *c = r->c;
    const Segment *s = &c->segment[i];
    bool first = j + 1 == c->n;
    int kept = i < j || first ? SEG_BOTH : SEG_INNER;
    double once = s->again_ns[kept], more = part == WHOLE ? 0 : part == HALF ? once / 2 : once;
    Way w = {.part = part, .ns = (float)((first ? 0 : once) + more)};
    uint64_t running = share(s->fwd[kept], s->fwd[SEG_CARRIED], part) + c->segment[j].grads;
    if (kept == SEG_INNER && once <= 0) running = 0;
    w.need = up(r, larger(running, share(s->bwd, s->least, part)));
    if (i == j) return w;
    w.less = up(r, share(s->inner, 0, part) + c->carry[i * (c->n + 1) + i + 1]);
    if (w.need < w.less) w.need = w.less;
    w.right = r->cost[(i + 1) * c->n + j];
    return w;
}

static Way go_way(const Rotor *r, uint32_t i, uint32_t j, uint32_t k, uint64_t running) {
    const Chain *c = r->c;
    Way w = {.k = k, .ns = (float)(j + 1 < c->n ? r->fwd_sum[k] - r->fwd_sum[i] : 0)};
    w.need = up(r, running + c->segment[j].grads);
    w.less = up(r, c->carry[i * (c->n + 1) + k]);
    if (w.need < w.less) w.need = w.less;
    w.right = r->cost[k * c->n + j];
    w.left = r->cost[i * c->n + k - 1];
    return w;
}

static float way_cost(const Way *w, uint32_t m) {
    if (m < w->need) return INFINITY;
    float ns = w->ns;
    if (w->right) ns += w->right[m - w->less];
    if (w->left) ns += w->left[m];
    return ns;
}

/* All ways, in a fixed order; *state: what the enumeration carries. */
typedef struct {
    uint32_t k;
    int part;
    uint64_t running;
} Ways;

static bool next_way(const Rotor *r, uint32_t i, uint32_t j, Ways *x, Way *w) {
    const Chain *c = r->c;
    if (x->part == HALF) x->part++;
    if (x->part < (i == j ? SHARES : HALF)) {
        *w = keep_way(r, i, j, x->part++);
        return true;
    }
    if (x->k == 0) x->k = i;
    if (x->k >= j) return false;
    uint64_t running = c->segment[x->k].fwd[SEG_CARRIED] + c->carry[i * (c->n + 1) + x->k];
    x->running = larger(x->running, running);
    *w = go_way(r, i, j, ++x->k, x->running);
    return true;
}

static void fill(Rotor *r, uint32_t i, uint32_t j) {
    float *best = r->cost[i * r->c->n + j];
    for (uint32_t m = 0; m <= r->slots; m++) best[m] = INFINITY;
    Way w;
    for (Ways x = {0}; next_way(r, i, j, &x, &w);)
        for (uint32_t m = w.need; m <= r->slots; m++) {
            float ns = way_cost(&w, m);
            if (ns < best[m]) best[m] = ns;
        }
}

/* Slots as small as the time allows; whole divisors of all bytes when they are large enough. */
static void choose_slots(Rotor *r, uint64_t capacity) {
    const Chain *c = r->c;
    uint64_t most = capacity + capacity / 10, n = c->n;
    uint64_t slots = SLOTS_LEAST + SLOTS_WORK / (n * n * n / 6 + 1), all = 0;
    if (slots > SLOTS_MOST) slots = SLOTS_MOST;
    for (StorageId s = 0; s < c->p->nstorage; s++) all = gcd(all, c->p->bytes[s]);
    for (uint32_t k = 0; k < c->p->nrun; k++) all = gcd(all, c->p->workspace[k]);
    r->unit = all && most / all <= 2 * SLOTS_MOST ? all : most / slots + 1;
    r->slots = (uint32_t)(most / r->unit);
}

Rotor *rotor_new(Arena *a, const Chain *c, uint64_t capacity) {
    Rotor *r = ARENA_NEW(a, Rotor);
    r->c = c;
    choose_slots(r, capacity);
    r->cost = ARENA_ARRAY(a, float *, (uint64_t)c->n * c->n);
    r->fwd_sum = ARENA_ARRAY(a, double, (uint64_t)c->n + 1);
    for (uint32_t k = 0; k < c->n; k++)
        r->fwd_sum[k + 1] = r->fwd_sum[k] + c->segment[k].again_ns[SEG_CARRIED];
    for (uint32_t d = 0; d < c->n; d++)
        for (uint32_t i = 0; i + d < c->n; i++) {
            r->cost[i * c->n + i + d] = ARENA_ARRAY(a, float, (uint64_t)r->slots + 1);
            fill(r, i, i + d);
        }
    return r;
}

static uint32_t slots_of(const Rotor *r, uint64_t bytes) {
    uint64_t m = bytes / r->unit;
    return m > r->slots ? r->slots : (uint32_t)m;
}

double rotor_cost(const Rotor *r, uint64_t bytes) {
    return r->cost[r->c->n - 1][slots_of(r, bytes)];
}

/* ---- the schedule ---- */

typedef struct {
    const Rotor *r;
    Keeper *k;
    int32_t *held; /* per storage: reasons to keep it */
} Replay;

/* Storages carried into segment k; those that its backward reads. */
static void hold_carried(Replay *x, uint32_t k, int32_t by) {
    const Chain *c = x->r->c;
    uint32_t run = c->segment[k].run;
    for (StorageId s = 0; s < c->p->nstorage; s++)
        if (c->p->is_temp[s] && c->p->def[s] < run && c->last[s] >= run) x->held[s] += by;
}

static void hold_inner(Replay *x, uint32_t k, int32_t by) {
    const Chain *c = x->r->c;
    const Segment *s = &c->segment[k];
    for (uint32_t r = s[1].back; r < s->back; r++) EACH(c->p->in, r, t)
    if (c->p->def[t] < s[1].run && c->p->def[t] >= s->run) x->held[c->p->storage[t]] += by;
}

/* Of what forward made, all that nobody keeps goes. */
static void forget(Replay *x) {
    const Problem *p = x->r->c->p;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (p->is_temp[s] && p->def[s] < x->r->c->forward && !x->held[s]) keeper_forget(x->k, s);
}

/* Makes whatever is held. */
static bool make_held(Replay *x, uint32_t from, uint32_t to) {
    const Problem *p = x->r->c->p;
    for (uint32_t r = from; r < to; r++) EACH(p->out, r, t) {
            bool wanted = t != NO_ID && x->held[p->storage[t]] && !p->effect[r];
            if (wanted && !keeper_make(x->k, t)) return false;
        }
    return true;
}

/* Segment k, whose result is held by the caller; for the first time, or what is held of it. */
static bool run_forward(Replay *x, uint32_t k) {
    const Segment *s = &x->r->c->segment[k];
    if (x->k->now < s[1].run) {
        while (x->k->now < s[1].run)
            if (!keeper_step(x->k)) return false;
    } else if (!make_held(x, s->run, s[1].run)) {
        return false;
    }
    forget(x);
    return true;
}

static bool run_backward(Replay *x, uint32_t k, int part) {
    while (x->k->now < x->r->c->segment[k].back) {
        if (part == NOTHING) forget(x);
        if (!keeper_step(x->k)) return false;
    }
    forget(x);
    return true;
}

/* Goes on from i to k and keeps only what is carried there. */
static bool run_on(Replay *x, uint32_t i, uint32_t k) {
    for (uint32_t q = i; q < k; q++) {
        hold_carried(x, q + 1, 1);
        if (q > i) hold_carried(x, q, -1);
        if (!run_forward(x, q)) return false;
    }
    return true;
}

static bool replay(Replay *x, uint32_t i, uint32_t j, uint32_t m) {
    const Rotor *r = x->r;
    Way w, best = {.k = 0};
    float least = INFINITY;
    for (Ways ways = {0}; next_way(r, i, j, &ways, &w);)
        if (way_cost(&w, m) < least) {
            least = way_cost(&w, m);
            best = w;
        }
    if (!isfinite(least)) return false;
    if (best.k) {
        if (!run_on(x, i, best.k) || !replay(x, best.k, j, m - best.less)) return false;
        hold_carried(x, best.k, -1);
        forget(x);
        return replay(x, i, best.k - 1, m);
    }
    /* At the end of a recursion what is missing is made when backward reads it. */
    bool first = x->k->now < r->c->segment[i + 1].run;
    if (i == j && !first) return run_backward(x, i, best.part);
    if (best.part != NOTHING) hold_inner(x, i, 1);
    if (i < j) hold_carried(x, i + 1, 1);
    if (!run_forward(x, i)) return false;
    if (i < j) {
        if (!replay(x, i + 1, j, m - best.less)) return false;
        hold_carried(x, i + 1, -1);
    }
    if (!run_backward(x, i, best.part)) return false;
    if (best.part != NOTHING) hold_inner(x, i, -1);
    forget(x);
    return true;
}

/* Outputs, and what an update freezes before its last use, stay. */
static void hold_lost(Replay *x) {
    const Problem *p = x->r->c->p;
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!p->is_temp[s] || p->def[s] == NO_ID) continue;
        bool lost = p->is_output[s];
        EACH(p->users, s, r) lost |= x->k->frozen[p->def[s]] < r;
        x->held[s] += lost;
    }
}

bool rotor_schedule(Arena *a, const Rotor *r, uint64_t bytes, uint64_t cost_limit, Sequence *out) {
    Arena *scratch = arena_new();
    Replay x = {.r = r, .k = keeper_new(scratch, r->c->p)};
    x.k->cost_limit = cost_limit;
    x.held = ARENA_ARRAY(scratch, int32_t, r->c->p->nstorage);
    hold_lost(&x);
    bool ok = replay(&x, 0, r->c->n - 1, slots_of(r, bytes)) && keeper_finish(x.k);
    if (ok) *out = keeper_sequence(a, x.k);
    arena_free(scratch);
    return ok;
}
