/* sqrt.c - segment checkpoints: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear
 * Memory Cost", 2016 (arXiv 1604.06174), section 4, for graphs with bytes.
 *
 * The forward part is cut into about sqrt(n) segments of equal bytes. Storages that cross a
 * boundary are checkpoints and stay; the others go when their segment ends and are made again, the
 * whole segment at a time, when the backward part asks. The cut that gives the smallest byte sum of
 * checkpoints plus largest segment is searched among a few numbers of segments; the result goes
 * through the arena simulation without any further eviction, so a budget is met or it is not. */
#include "strategy.h"

#include <math.h>
#include <string.h>

/* Where the backward part starts: the first run of another phase than forward. */
static uint32_t forward_end(const Problem *p) {
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->g->node[p->node[r]].phase == PHASE_BACKWARD) return r;
    return p->nrun;
}

/* Segment of each forward run: equal shares of the bytes made. */
static void fill_segments(const Problem *p, uint32_t end, uint32_t count, uint32_t *segment) {
    double total = 0, done = 0;
    for (uint32_t r = 0; r < end; r++)
        EACH(p->out, r, t) if (t != NO_ID) total += (double)p->bytes[p->storage[t]];
    for (uint32_t r = 0; r < end; r++) {
        uint32_t k = total > 0 ? (uint32_t)(done / total * count) : 0;
        segment[r] = k < count ? k : count - 1;
        EACH(p->out, r, t) if (t != NO_ID) done += (double)p->bytes[p->storage[t]];
    }
}

/* Storages to drop, keyed by the last run of their segment: made in it, read later than the forward
 * part, and not read by a later segment. */
static Lists drops(Arena *a, const Problem *p, uint32_t end, const uint32_t *segment) {
    Lists l = {ARENA_ARRAY(a, uint32_t, (uint64_t)p->nrun + 1),
               ARENA_ARRAY(a, uint32_t, p->nstorage)};
    uint32_t n = 0, from = 0;
    for (uint32_t r = 0; r < p->nrun; r++) {
        bool last = r < end && (r + 1 == end || segment[r + 1] != segment[r]);
        for (uint32_t q = from; last && q <= r; q++) EACH(p->out, q, t) {
                if (t == NO_ID || t >= p->nstorage || !p->is_temp[t] || p->is_output[t]) continue;
                bool crosses = false, later = false;
                EACH(p->users, t, u) {
                    crosses |= u > r && u < end;
                    later |= u >= end;
                }
                if (later && !crosses) l.at[n++] = t;
            }
        if (last) from = r + 1;
        l.first[r + 1] = n;
    }
    return l;
}

Plan *plan_sqrt(Arena *a, const Problem *p, const PlanOptions *o) {
    Arena *scratch = arena_new();
    uint32_t end = forward_end(p);
    uint32_t *segment = ARENA_ARRAY(scratch, uint32_t, end);
    Sim *s = sim_new(scratch, p);
    Plan *best = NULL;
    uint32_t root = (uint32_t)sqrt((double)end);
    const uint32_t counts[] = {root, root / 2, 2 * root, root / 4, 4 * root};
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (!counts[i] || counts[i] > end) continue;
        fill_segments(p, end, counts[i], segment);
        Lists l = drops(scratch, p, end, segment);
        SimOptions so = {.capacity = plan_capacity(p, o->budget),
                         .bytes_only = o->bytes_only,
                         .lookahead = true,
                         .drop_after = &l,
                         .cost_limit = best ? best->cost_ns - 1 : UINT64_MAX};
        if (sim_run(s, &so) == PLAN_OK) best = sim_plan(a, s, o->budget, "sqrt");
    }
    arena_free(scratch);
    return best;
}
