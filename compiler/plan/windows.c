/* windows.c - the lower bound from minimum cuts at points of the base order, alone and in a row.
 *
 * One point. The first runs of what is no effect stand in the base order; effects stand at their
 * place or later. Take the moment when run x happens for the first time. Memory holds its working
 * set W_x (less the operand that its result may take over) and a set P of other storages, so that
 * bytes(P) <= capacity - W_x. Let R be the runs before x that happen again after that moment. A
 * later first run, or the end of the step, reads tensor t made before x; a run in R reads its
 * operands. The storage of t was there all the time since x, so it is in P or in W_x, or it was
 * made after x, so its maker is in R. Hence the extra time after x is at least
 *     min sum over r in R of ns_r   where R and P satisfy these conditions,
 * and for any price l >= 0 at least
 *     min sum over R of ns_r + l (sum over P of bytes) - l (capacity - W_x),
 * which is what cut_solve computes. What weakens it, never the other way: operands of x count as
 * kept for nothing, also the one that is taken over; a view whose storage is kept is there for
 * nothing. Uses by effects before x do not count, since an effect may wait until after x (it then
 * needs more, not less). What an effect made is kept when a first run at x or before reads it (so
 * the effect cannot be waiting); otherwise it is left out, as if it were there and took no room.
 *
 * Windows. For points x < y the same holds with what first runs after x up to y itself read, and
 * with runs that happen again between the moments of x and y, since y finds its operands when it
 * runs. (Effects in between may wait; their uses do not count.) Such times belong to disjoint
 * windows, so bounds of consecutive windows, the last one open, add up. That pays where several
 * moments are tight for different reasons; ties.c makes more of it.
 *
 * All orders. At the first run of x in any order, what must come before x has run and what must
 * come after it has not (precede.c). So the same holds with the storages that are made by the
 * former and read by the latter, or by the end of the step; effects count like other runs. A view
 * that need not be made before x may be: its storage has to be there all the same when the view is
 * read. Windows x < y take y from what comes after x, and count what comes between the two in every
 * order. Points are moved to a run on a longest path nearby, which has the most others before and
 * after it.
 *
 * Whole storages. The dual may keep half a storage; branch.c closes that at the best point.
 *
 * Points. Local maxima of memory all over the step, then ever closer to the best one; where the
 * largest part of what is there has to go; the largest working sets. A point is screened by few
 * cuts at the price of the best one so far. The chain of windows is the best one of two or more
 * over a few points, each the best of its part of the step.
 */
#include "windows.h"

#include <math.h>
#include <string.h>

/* ---- a point of the base order ---- */

static void fill_last_uses(const Problem *p, uint32_t *last) {
    for (uint32_t r = 0; r < p->nrun; r++) EACH(p->in, r, t) last[t] = r;
    for (uint32_t i = 0; i < p->noutput; i++) last[p->output[i]] = p->nrun;
}

/* Working set: operands, results, workspace, less the operand that the result may take over. */
static uint64_t working_set(const Problem *p, uint32_t r, uint8_t *state) {
    uint64_t bytes = p->workspace[r];
    EACH(p->in, r, t) {
        if (state[p->storage[t]] == CUT_FIXED) continue;
        state[p->storage[t]] = CUT_FIXED;
        bytes += p->bytes[p->storage[t]];
    }
    EACH(p->out, r, t) if (t != NO_ID && t < p->nstorage) bytes += p->bytes[t];
    if (list_len(&p->inplace, r)) bytes -= p->bytes[p->inplace.at[p->inplace.first[r]]];
    return bytes;
}

/* Effects before the point may be waiting still. */
static void fix_effects(const Problem *p, uint32_t run, uint8_t *state) {
    for (uint32_t r = 0; r < run; r++) {
        if (!p->effect[r]) continue;
        bool happened = false;
        EACH(p->out, r, t) {
            if (t == NO_ID || t >= p->nstorage) continue;
            EACH(p->users, t, u) happened |= u <= run && !p->effect[u];
        }
        EACH(p->out, r, t) if (!happened && t != NO_ID && t < p->nstorage) state[t] = CUT_FIXED;
    }
}

BasePoint base_point_new(Arena *a, const Problem *p, uint64_t capacity) {
    BasePoint b = {.p = p,
                   .capacity = capacity,
                   .state = ARENA_ARRAY(a, uint8_t, p->nstorage),
                   .need = ARENA_ARRAY(a, bool, p->ntensor),
                   .last = ARENA_ARRAY(a, uint32_t, p->ntensor)};
    fill_last_uses(p, b.last);
    return b;
}

void base_point_any_order(Arena *a, BasePoint *b, const Precedence *any) {
    uint64_t n = (uint64_t)b->p->nrun + 1;
    b->any = any;
    b->before = ARENA_ARRAY(a, bool, n);
    b->after = ARENA_ARRAY(a, bool, n);
    b->within = ARENA_ARRAY(a, bool, n);
    b->stack = ARENA_ARRAY(a, uint32_t, n);
}

/* A view that need not be made before the point is no excuse for its storage. */
static void need_tensor(BasePoint *b, uint32_t t) {
    const Problem *p = b->p;
    if (p->def[t] != NO_ID && !b->before[p->def[t]]) t = p->storage[t];
    if (p->def[t] != NO_ID && b->before[p->def[t]]) b->need[t] = true;
}

/* What runs after the point and before `until` in every order, or `until` itself, read of what is
 * made before the point in every order. */
static void need_in_any_order(BasePoint *b, uint32_t run, uint32_t until) {
    const Problem *p = b->p;
    bool end = until == p->nrun;
    memset(b->before, false, p->nrun);
    memset(b->after, false, p->nrun);
    memset(b->within, end, p->nrun);
    precede_mark(&b->any->before, run, b->before, b->stack);
    precede_mark(&b->any->after, run, b->after, b->stack);
    if (!end) precede_mark(&b->any->before, until, b->within, b->stack);
    b->before[run] = b->after[run] = false;
    for (uint32_t r = run + 1; r < p->nrun; r++)
        if (b->after[r] && b->within[r]) EACH(p->in, r, t) need_tensor(b, t);
    for (uint32_t i = 0; i < p->noutput && end; i++) need_tensor(b, p->output[i]);
}

bool base_point_set(BasePoint *b, uint32_t run, uint32_t until) {
    const Problem *p = b->p;
    memset(b->state, CUT_MAY_KEEP, p->nstorage);
    memset(b->need, false, p->ntensor);
    if (b->any)
        need_in_any_order(b, run, until);
    else if (until == p->nrun)
        for (uint32_t t = 0; t < p->ntensor; t++)
            b->need[t] = p->def[t] != NO_ID && p->def[t] < run && b->last[t] > run;
    else
        for (uint32_t r = run + 1; r <= until; r++)
            if (!p->effect[r]) EACH(p->in, r, t) b->need[t] = p->def[t] != NO_ID && p->def[t] < run;
    uint64_t used = working_set(p, run, b->state);
    fix_effects(p, run, b->state);
    b->at =
        (CutPoint){.run = run, .capacity = b->capacity - used, .state = b->state, .need = b->need};
    return used <= b->capacity;
}

bool cut_base_point(Arena *a, const Problem *p, uint32_t run, uint64_t capacity, CutPoint *at) {
    BasePoint b = base_point_new(a, p, capacity);
    bool fits = base_point_set(&b, run, p->nrun);
    *at = b.at;
    return fits;
}

/* ---- points ---- */

/* Points of the base order where memory is over the capacity when nothing is dropped before its
 * last use: what that takes beyond the capacity, 0 for effects and where all fits; working sets. */
static void fill_excess(Arena *a, const Problem *p, const uint32_t *last, uint64_t capacity,
                        double *over, double *set) {
    double live = 0;
    uint8_t *state = ARENA_ARRAY(a, uint8_t, p->nstorage);
    uint32_t *end = ARENA_ARRAY(a, uint32_t, p->nstorage);
    for (uint32_t t = 0; t < p->ntensor; t++)
        if (last[t] > end[p->storage[t]]) end[p->storage[t]] = last[t];
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!p->is_temp[s] || p->def[s] == NO_ID || end[s] <= p->def[s] + 1) continue;
        over[p->def[s] + 1] += (double)p->bytes[s];
        over[end[s]] -= (double)p->bytes[s];
    }
    for (uint32_t r = 0; r < p->nrun; r++) {
        set[r] = (double)working_set(p, r, state);
        double most = (live += over[r]) + set[r];
        EACH(p->in, r, t) {
            StorageId s = p->storage[t];
            if (state[s] == CUT_FIXED && end[s] > r) most -= (double)p->bytes[s];
            state[s] = CUT_MAY_KEEP;
        }
        over[r] = p->effect[r] || most < (double)capacity ? 0 : most - (double)capacity;
    }
    over[p->nrun] = 0;
}

/* Points of each kind that are looked at, more in small problems; cuts that say whether one is
 * worth more; parts of the step that give a point each to the chain of windows; what the ascent of
 * tied windows may take, in runs. */
enum { NEARBY = 16, SAMPLES = 16, SMALL = 30000, SCREEN = 2, PARTS = 12, MOST_PARTS = 48 };
/* What the ascent of tied windows and a tree may take, in runs; trees, times runs. */
enum { TIE_WORK = 60000, TREE_WORK = 40000, SMALL_TREES = 4000 };
static const double close_to_best = 0.98, worth_tying = 0.8;

typedef struct {
    uint32_t run;
    double value;
} Spot;

typedef struct {
    const Problem *p;
    Arena *a;
    Cut *cut;
    BasePoint point;
    const uint32_t *path; /* precede_path, for all orders; else NULL */
    uint32_t samples;
    VEC(uint32_t) peak;
    VEC(Spot) seen;
    CutBound *best;
} Scan;

/* A valid value for the window; 0 when it cannot be had. */
static double window_value(Scan *x, uint32_t run, uint32_t until, double guess, uint32_t flows,
                           CutResult *r) {
    x->best->feasible &= base_point_set(&x->point, run, until);
    if (!x->best->feasible) return 0;
    x->point.at.guess = guess;
    x->point.at.flows = flows;
    cut_solve(x->cut, &x->point.at, r);
    if (!flows) x->best->feasible &= r->feasible;
    return r->value;
}

/* For all orders: the run nearby that has most others before or after it in every order. */
static uint32_t anchor(const Scan *x, uint32_t run) {
    uint32_t best = run, near = x->p->nrun / 64 < NEARBY ? x->p->nrun / 64 : NEARBY;
    for (uint32_t r = run < near ? 0 : run - near; r < x->p->nrun && r <= run + near; r++)
        if (!x->p->effect[r] && x->path[r] > x->path[best]) best = r;
    return best;
}

static void look(Scan *x, uint32_t run) {
    CutBound *best = x->best;
    CutResult r;
    if (x->path) {
        run = anchor(x, run);
        for (uint32_t i = 0; i < x->seen.n; i++)
            if (x->seen.at[i].run == run) return;
    }
    uint32_t end = x->p->nrun;
    double v = 0;
    if (best->run != NO_ID) v = window_value(x, run, end, best->price, SCREEN, &r);
    if (best->run == NO_ID || v >= close_to_best * best->value)
        v = window_value(x, run, end, best->price, 0, &r);
    VEC_PUSH(x->a, x->seen, ((Spot){run, v}));
    if (!best->feasible || v <= best->value) return;
    best->value = v;
    best->run = run;
    best->price = r.price;
    memcpy(best->keep, r.keep, x->p->nstorage * sizeof *r.keep);
}

static void scan_peaks(Scan *x) {
    uint32_t step = x->peak.n / x->samples + 1;
    for (uint32_t i = step / 2; i < x->peak.n; i += step) look(x, x->peak.at[i]);
    while (step > 1) {
        step /= 2;
        uint32_t at = 0;
        while (at < x->peak.n && x->peak.at[at] < x->best->run) at++;
        if (at >= step) look(x, x->peak.at[at - step]);
        if (at + step < x->peak.n) look(x, x->peak.at[at + step]);
    }
}

/* The points that come first by score; takes them out. */
static void scan_best(Scan *x, double *score, uint32_t many) {
    for (uint32_t k = 0; k < many; k++) {
        uint32_t most = 0;
        for (uint32_t r = 1; r < x->p->nrun; r++)
            if (score[r] > score[most]) most = r;
        if (score[most] <= 0) return;
        look(x, most);
        score[most] = 0;
    }
}

/* Where the largest part of what is there has to go, a neighbour being much the same; and the
 * largest working sets. */
static void scan_tight(Scan *x, const double *over, double *set) {
    uint32_t n = x->p->nrun;
    double *share = ARENA_ARRAY(x->a, double, (uint64_t)n + 1),
           *score = ARENA_ARRAY(x->a, double, (uint64_t)n + 1);
    for (uint32_t r = 0; r < n; r++) {
        if (over[r] > 0) share[r] = over[r] / (over[r] + (double)x->point.capacity - set[r]);
        if (over[r] <= 0) set[r] = 0;
    }
    for (uint32_t r = 0; r < n; r++)
        if (share[r] >= share[r + 1] && (!r || share[r] >= share[r - 1])) score[r] = share[r];
    scan_best(x, score, x->samples);
    scan_best(x, set, x->samples / 2);
}

/* ---- windows ---- */

/* The best point that was seen in each part of the range of points, in the order of the step. */
static uint32_t choose_links(const Scan *x, uint32_t *link) {
    uint32_t low = NO_ID, high = 0, n = 0, parts = PARTS + SMALL / 2 / (x->p->nrun + 1);
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    for (uint32_t i = 0; i < x->seen.n; i++) {
        if (x->seen.at[i].run < low) low = x->seen.at[i].run;
        if (x->seen.at[i].run > high) high = x->seen.at[i].run;
    }
    for (uint32_t k = 0; k < parts; k++) {
        const Spot *best = NULL;
        for (uint32_t i = 0; i < x->seen.n; i++) {
            const Spot *s = &x->seen.at[i];
            if ((uint64_t)(s->run - low) * parts / (high - low + 1) != k) continue;
            if (!best || s->value > best->value) best = s;
        }
        if (best) link[n++] = best->run;
    }
    return n;
}

/* The best chain of two windows or more, from each link to the end, the last link first; its
 * windows tied together. */
static void chain_windows(Scan *x) {
    uint32_t link[MOST_PARTS], next[MOST_PARTS], n = choose_links(x, link), first = NO_ID;
    double value[MOST_PARTS + 1], pair[MOST_PARTS];
    CutResult r;
    for (uint32_t i = n; i-- > 0;) {
        double open = window_value(x, link[i], x->p->nrun, x->best->price, 0, &r), price = r.price;
        pair[i] = 0;
        value[i] = open;
        const bool *after = x->point.after; /* of link[i], also when others have been looked at */
        for (uint32_t j = i + 1; j < n && x->best->feasible; j++) {
            if (after && !after[link[j]]) continue;
            if (open + value[j] <= pair[i]) continue; /* a window is worth no more than the rest */
            double v = window_value(x, link[i], link[j], price, SCREEN + 1, &r) + value[j];
            if (v <= pair[i]) continue;
            pair[i] = v;
            next[i] = j;
        }
        if (pair[i] > value[i]) value[i] = pair[i];
        if (pair[i] > 0 && (first == NO_ID || pair[i] > pair[first])) first = i;
    }
    if (first == NO_ID || pair[first] < worth_tying * x->best->value || !x->best->feasible) return;
    uint32_t count = 0, window[MOST_PARTS];
    window[count++] = link[first];
    do {
        first = next[first];
        window[count++] = link[first];
    } while (pair[first] > 0 && pair[first] >= value[first]);
    double v = ties_bound(x->a, x->cut, &x->point, window, count, x->best->price,
                          5 + TIE_WORK / (count * (x->p->nrun + 500)));
    if (v <= x->best->value) return;
    x->best->value = v;
    x->best->nwindow = count;
    memcpy(x->best->window, window, count * sizeof *window);
}

/* The best points with whole storages. */
static void branch_at_best(Scan *x) {
    CutBound *best = x->best;
    uint32_t points = 1 + SMALL_TREES / (x->p->nrun + 1);
    for (uint32_t k = 0; k < points && best->feasible; k++) {
        Spot *most = x->seen.at;
        for (uint32_t i = 1; i < x->seen.n; i++)
            if (x->seen.at[i].value > most->value) most = &x->seen.at[i];
        uint32_t run = most->run;
        if (most->value <= 0) return;
        for (uint32_t i = 0; i < x->seen.n; i++)
            if (x->seen.at[i].run == run) x->seen.at[i].value = 0;
        double v = branch_bound(x->a, x->cut, &x->point, run, best->value,
                                8 + TREE_WORK / (x->p->nrun + 100));
        if (isinf(v)) best->feasible = false;
        if (v <= best->value) continue;
        best->value = v;
        best->nwindow = 1;
        best->window[0] = run;
    }
}

static void scan(Arena *a, const Problem *p, uint64_t capacity, bool any_order, CutBound *best) {
    *best = (CutBound){.feasible = p->floor_bytes <= capacity,
                       .run = NO_ID,
                       .keep = ARENA_ARRAY(a, bool, p->nstorage),
                       .window = ARENA_ARRAY(a, uint32_t, MOST_PARTS)};
    if (!best->feasible) return;
    Arena *scratch = arena_new();
    Scan x = {.p = p,
              .a = scratch,
              .cut = cut_new(scratch, p),
              .point = base_point_new(scratch, p, capacity),
              .samples = SAMPLES + SMALL / (p->nrun + 1),
              .best = best};
    Precedence any;
    if (any_order) {
        any = precede_new(scratch, p);
        base_point_any_order(scratch, &x.point, &any);
        x.path = precede_path(scratch, &any, p->nrun);
    }
    double *over = ARENA_ARRAY(scratch, double, (uint64_t)p->nrun + 1),
           *set = ARENA_ARRAY(scratch, double, p->nrun);
    fill_excess(scratch, p, x.point.last, capacity, over, set);
    uint32_t highest = 0;
    for (uint32_t r = 0; r < p->nrun; r++) {
        if (over[r] <= 0 || (r && over[r - 1] > over[r]) || over[r + 1] > over[r]) continue;
        if (over[r] > over[highest]) highest = r;
        VEC_PUSH(scratch, x.peak, r);
    }
    if (over[highest] > 0) {
        look(&x, highest);
        scan_peaks(&x);
        scan_tight(&x, over, set);
        best->window[best->nwindow++] = best->run;
        chain_windows(&x);
        branch_at_best(&x);
    }
    arena_free(scratch);
}

void cut_bound(Arena *a, const Problem *p, uint64_t capacity, CutBound *best) {
    scan(a, p, capacity, false, best);
}

void cut_bound_any_order(Arena *a, const Problem *p, uint64_t capacity, CutBound *best) {
    scan(a, p, capacity, true, best);
}
