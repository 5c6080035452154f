/* collect.c - what threads do together: barriers of the block, shuffles, votes and reductions of a
 * warp. A lane leaves what it brings in its fiber and waits; the last one to come works out what
 * all of them get. Lanes are matched by the mask they name: disjoint masks do not meet. */
#include "fiber.h"

static bool checked(void) {
    return simt_now.options->check;
}

static Fiber *lane_of(uint32_t warp, uint32_t lane) {
    return &simt_now.fibers[warp * 32 + lane];
}

/* ---- the barrier of the block ---- */

uint32_t simt_barrier(SimtThread *t, bool value, uint32_t line) {
    simt_now.barrier_votes += value;
    simt_now.at_barrier++;
    fiber_wait((Fiber *)t, FIBER_AT_BARRIER, line);
    return simt_now.barrier_result;
}

/* Not all at the same barrier, or not all there. */
static void check_barrier(void) {
    const Launch *l = &simt_now;
    const Fiber *first = NULL;
    for (uint32_t i = 0; i < l->threads; i++) {
        const Fiber *f = &l->fibers[i];
        if (l->state[i] != FIBER_AT_BARRIER) continue;
        if (first && f->line != first->line)
            simt_report(
                &f->t, SIMT_SYNC, f->line,
                "waits at the barrier of this line while thread %u waits at that of line %u",
                first->t.linear, first->line);
        first = f; /* one finding where the line changes */
    }
    if (first && l->live < l->threads)
        simt_report(&first->t, SIMT_SYNC, first->line,
                    "%u of %u threads had ended when the others met at this barrier",
                    l->threads - l->live, l->threads);
}

bool release_barrier(void) {
    Launch *l = &simt_now;
    if (!l->at_barrier || l->at_barrier != l->live) return false;
    if (checked()) check_barrier();
    for (uint32_t i = 0; i < l->threads; i++)
        if (l->state[i] == FIBER_AT_BARRIER) l->state[i] = FIBER_READY;
    l->barrier_result = l->barrier_votes;
    l->barrier_votes = 0;
    l->at_barrier = 0;
    l->epoch++;
    return true;
}

/* ---- collectives of a warp ---- */

/* The lane that lane `i` reads, by the rules of shfl: segments and clamps are packed in c. */
static uint32_t shuffle_source(const Fiber *f, uint32_t i, bool *inside) {
    uint32_t segment = f->c >> 8 & 31, clamp = f->c & 31, b = f->b & 31;
    uint32_t most = (i & segment) | (clamp & ~segment), least = i & segment, j;
    switch (f->mode) {
    case PTX_UP:
        j = i - b;
        *inside = (int32_t)j >= (int32_t)most;
        break;
    case PTX_DOWN:
        j = i + b;
        *inside = j <= most;
        break;
    case PTX_BFLY:
        j = i ^ b;
        *inside = j <= most;
        break;
    default: j = least | (b & ~segment); *inside = j <= most;
    }
    return *inside ? j : i;
}

static void finish_shuffle(uint32_t warp, const Group *g) {
    for (uint32_t i = 0; i < 32; i++) {
        if (!(g->arrived >> i & 1)) continue;
        Fiber *f = lane_of(warp, i);
        uint32_t j = shuffle_source(f, i, &f->flag);
        if (g->arrived >> j & 1) {
            f->result = lane_of(warp, j)->value;
        } else {
            f->result = ~0u;
            if (checked())
                simt_report(&f->t, SIMT_SYNC, g->line, "reads from lane %u, which takes no part",
                            j);
        }
    }
}

static uint32_t combine(int op, bool is_signed, uint32_t a, uint32_t b) {
    bool less = is_signed ? (int32_t)a < (int32_t)b : a < b;
    switch (op) {
    case PTX_Radd: return a + b;
    case PTX_Rmin: return less ? a : b;
    case PTX_Rmax: return less ? b : a;
    case PTX_Rand: return a & b;
    case PTX_Ror: return a | b;
    default: return a ^ b;
    }
}

static void finish(uint32_t warp, Group *g) {
    uint32_t votes = 0, sum = 0;
    bool any = false;
    if (g->kind == GROUP_SHUFFLE) finish_shuffle(warp, g);
    for (uint32_t i = 0; i < 32 && g->kind != GROUP_SHUFFLE; i++) {
        if (!(g->arrived >> i & 1)) continue;
        const Fiber *f = lane_of(warp, i);
        votes |= (uint32_t)f->flag << i;
        sum = any ? combine(f->mode, f->c != 0, sum, f->value) : f->value;
        any = true;
    }
    for (uint32_t i = 0; i < 32; i++) {
        if (!(g->arrived >> i & 1)) continue;
        Fiber *f = lane_of(warp, i);
        if (g->kind == GROUP_BALLOT) f->result = votes, f->value = g->arrived;
        if (g->kind == GROUP_REDUCE) f->result = sum;
        if (simt_now.state[f->t.linear] == FIBER_AT_WARP) simt_now.state[f->t.linear] = FIBER_READY;
    }
    Warp *w = &simt_now.warps[warp];
    if (g->kind == GROUP_SYNC && (g->mask & w->present) == w->present) w->epoch++;
    g->arrived = 0;
}

/* All that are named, exist and have not ended are there. */
static bool complete(const Warp *w, const Group *g) {
    uint32_t need = g->mask & w->present & ~w->done;
    return g->arrived && (g->arrived & need) == need;
}

/* Comes to a collective and waits for the other lanes of the mask. */
PTX_INLINE void meet(Fiber *f, GroupKind kind, uint32_t mask, uint32_t line) {
    Warp *w = &simt_now.warps[f->t.warp];
    if (!(mask >> f->t.lane & 1)) {
        simt_report(&f->t, SIMT_SYNC, line, "lane %u is not in its own mask %08x", f->t.lane, mask);
        mask |= 1u << f->t.lane;
    }
    if (checked() && (mask & w->done))
        simt_report(&f->t, SIMT_SYNC, line, "mask %08x names lanes that have ended (%08x)", mask,
                    mask & w->done);
    Group *g = &w->group[__builtin_ctz(mask)];
    if (!g->arrived) {
        *g = (Group){kind, line, mask, 0};
    } else if (g->line != line || g->mask != mask) {
        simt_report(&f->t, SIMT_SYNC, line,
                    "with mask %08x, while other lanes of the warp wait in line %u with mask %08x",
                    mask, g->line, g->mask);
        simt_now.stop = true;
        fiber_end();
    }
    g->arrived |= 1u << f->t.lane;
    if (complete(w, g))
        finish(f->t.warp, g);
    else
        fiber_wait(f, FIBER_AT_WARP, line);
}

void simt_warp_sync(SimtThread *t, uint32_t mask, uint32_t line) {
    meet((Fiber *)t, GROUP_SYNC, mask, line);
}

uint32_t simt_shuffle(SimtThread *t, int mode, uint32_t value, uint32_t b, uint32_t c,
                      uint32_t mask, uint32_t line, bool *inside) {
    Fiber *f = (Fiber *)t;
    f->mode = mode, f->value = value, f->b = b, f->c = c;
    meet(f, GROUP_SHUFFLE, mask, line);
    *inside = f->flag;
    return f->result;
}

uint32_t simt_ballot(SimtThread *t, bool value, uint32_t mask, uint32_t line, uint32_t *voters) {
    Fiber *f = (Fiber *)t;
    f->flag = value, f->value = 0;
    meet(f, GROUP_BALLOT, mask, line);
    *voters = f->value;
    return f->result;
}

uint32_t simt_reduce(SimtThread *t, int op, int is_signed, uint32_t value, uint32_t mask,
                     uint32_t line) {
    Fiber *f = (Fiber *)t;
    f->mode = op, f->value = value, f->c = (uint32_t)is_signed;
    meet(f, GROUP_REDUCE, mask, line);
    return f->result;
}

/* ---- ends ---- */

/* Lanes that wait for this one need wait no longer; where that is wrong, it is said. */
void thread_ended(Fiber *f) {
    Warp *w = &simt_now.warps[f->t.warp];
    simt_now.live--;
    w->done |= 1u << f->t.lane;
    for (uint32_t i = 0; i < 32; i++) {
        Group *g = &w->group[i];
        if (!g->arrived || !(g->mask >> f->t.lane & 1)) continue;
        if (checked())
            simt_report(&f->t, SIMT_SYNC, g->line, "ended while lanes %08x wait for it",
                        g->arrived);
        if (complete(w, g)) finish(f->t.warp, g);
    }
}

void report_stuck(void) {
    Launch *l = &simt_now;
    uint32_t waiting = 0;
    bool others = l->at_barrier || l->live < l->threads; /* else warps wait for themselves */
    for (uint32_t i = 0; i < l->threads && !waiting; i++) {
        const Fiber *f = &l->fibers[i];
        if (l->state[i] != FIBER_AT_WARP) continue;
        for (uint32_t k = 0; k < 32; k++) {
            const Group *g = &l->warps[f->t.warp].group[k];
            if (!(g->arrived >> f->t.lane & 1)) continue;
            simt_report(&f->t, others ? SIMT_SYNC : SIMT_DEADLOCK, f->line,
                        "waits with mask %08x; only lanes %08x came, %u threads wait at a barrier",
                        g->mask, g->arrived, l->at_barrier);
            waiting = g->arrived;
        }
    }
    l->stop = true;
}
