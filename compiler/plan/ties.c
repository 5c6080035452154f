/* ties.c - the bound of several windows (windows.c) that are tied together by what goes from one to
 * the next.
 *
 * Windows begin at the moments of x_1 < x_2 < .. Let K_js be 1 when storage s is kept at x_j, and
 * H_js when it is there some time between the moments of x_j and x_j+1. What was made before x_j-1
 * and is kept at x_j has been there: K_js <= H_j-1,s. (An operand of x_j is there, K = 1; one of
 * x_j-1 has been, H = 1. Results of effects are left out.) For any prices m_js >= 0 the extra time
 * plus sum of m_js (K_js - H_j-1,s) is no larger than the extra time, and its minimum over all
 * schedules is no larger than the sum over windows of
 *     min of (runs that happen again + m_js for what is kept + m_j+1,s for what is never there)
 * less the sum of all m. Those are minimum cuts with CutPoint.keep_ns and .want_ns, memory priced
 * by cut_solve itself.
 *
 * The m rise by subgradient ascent with Polyak steps from 0, where windows are independent: the
 * price of s at x_j goes up while s is kept there but never was there before. Steps are in units of
 * the time that makes s. The single-point relaxation with continuity between points is that of the
 * lazy stage points of planner `ilp`; dualizing continuity is Lagrangian decomposition (Guignard
 * and Kim, Mathematical Programming 1987). */
#include "windows.h"

#include <string.h>

typedef struct {
    const Problem *p;
    Cut *cut;
    BasePoint *point;
    uint32_t n;
    const uint32_t *run;
    double *price; /* per window: of memory, to begin with */
    /* per window after the first, and storage */
    double *m, *best, *slope;
    double *none; /* per storage: zeros */
    bool *tied;   /* per window and storage: made before the window in front of it */
} Ties;

static double *row(const Ties *t, double *x, uint32_t j) {
    return x + (uint64_t)(j - 1) * t->p->nstorage;
}

static bool is_tied(const Ties *t, uint32_t j, StorageId s) {
    return t->tied[(uint64_t)j * t->p->nstorage + s];
}

static void fill_tied(Ties *t) {
    const Problem *p = t->p;
    for (uint32_t j = 1; j < t->n; j++) {
        base_point_set(t->point, t->run[j - 1], t->run[j]);
        for (StorageId s = 0; s < p->nstorage; s++)
            t->tied[(uint64_t)j * p->nstorage + s] =
                p->is_temp[s] && p->bytes[s] && p->def[s] != NO_ID && !p->effect[p->def[s]] &&
                base_point_before(t->point, p->def[s], t->run[j - 1]);
    }
}

/* Adds what window j says to the slopes; returns its part of the value. */
static double window_part(Ties *t, uint32_t j) {
    CutResult r;
    CutPoint *at = &t->point->at;
    bool last = j + 1 == t->n;
    base_point_set(t->point, t->run[j], last ? t->p->nrun : t->run[j + 1]);
    at->guess = t->price[j];
    at->flows = 4;
    at->keep_ns = j ? row(t, t->m, j) : t->none;
    at->want_ns = last ? t->none : row(t, t->m, j + 1);
    cut_solve(t->cut, at, &r);
    t->price[j] = r.price;
    double value = r.value;
    for (StorageId s = 0; s < t->p->nstorage; s++) {
        bool fixed = at->state[s] == CUT_FIXED;
        if (j && is_tied(t, j, s)) {
            row(t, t->slope, j)[s] += fixed ? 1 : r.kept[s];
            if (fixed) value += at->keep_ns[s];
        }
        if (!last && is_tied(t, j + 1, s)) {
            row(t, t->slope, j + 1)[s] -= fixed ? 1 : r.have[s];
            value -= at->want_ns[s];
        }
    }
    return value;
}

static double value_at(Ties *t) {
    double value = 0;
    memset(t->slope, 0, (uint64_t)(t->n - 1) * t->p->nstorage * sizeof *t->slope);
    for (uint32_t j = 0; j < t->n; j++) value += window_part(t, j);
    return value;
}

/* One step along the slope towards a value that is `gain` higher. False at a maximum. */
static bool step(Ties *t, double gain) {
    uint64_t n = (uint64_t)(t->n - 1) * t->p->nstorage;
    double norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        double g = t->slope[i] * t->p->cost[i % t->p->nstorage];
        if (g > 0 || t->m[i] > 0) norm += g * g;
    }
    if (norm <= 0) return false;
    for (uint64_t i = 0; i < n; i++) {
        double unit = t->p->cost[i % t->p->nstorage];
        double m = t->m[i] + gain / norm * t->slope[i] * unit * unit;
        t->m[i] = m > 0 ? m : 0;
    }
    return true;
}

double ties_bound(Arena *a, Cut *c, BasePoint *b, const uint32_t *run, uint32_t n, double price,
                  uint32_t rounds) {
    const Problem *p = b->p;
    uint64_t size = (uint64_t)(n - 1) * p->nstorage;
    Ties t = {.p = p, .cut = c, .point = b, .n = n, .run = run};
    t.m = ARENA_ARRAY(a, double, size);
    t.best = ARENA_ARRAY(a, double, size);
    t.slope = ARENA_ARRAY(a, double, size);
    t.none = ARENA_ARRAY(a, double, p->nstorage);
    t.price = ARENA_ARRAY(a, double, n);
    t.tied = ARENA_ARRAY(a, bool, (uint64_t)n * p->nstorage);
    for (uint32_t j = 0; j < n; j++) t.price[j] = price;
    fill_tied(&t);
    double best = 0, reach = 0.05;
    uint32_t idle = 0;
    for (uint32_t i = 0; i < rounds && n > 1; i++) {
        double f = value_at(&t);
        if (f > best * (1 + 1e-5)) {
            best = f;
            idle = 0;
            memcpy(t.best, t.m, size * sizeof *t.m);
        } else if (++idle == 5) { /* too far: nearer steps from the best prices */
            idle = 0;
            reach /= 2;
            memcpy(t.m, t.best, size * sizeof *t.m);
            continue;
        }
        if (!step(&t, best * (1 + reach) - f)) break;
    }
    return best;
}
