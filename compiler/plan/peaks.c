/* peaks.c - iterated peak cuts: while a position is over the capacity, the minimum cut there
 * (cut.h) says which of the storages held across it to keep, and what to run again afterwards; each
 * of the others is dropped before the position and made again right before its next use, with
 * operands that the cut keeps staying where they are. Where the schedule so changed is over the
 * capacity somewhere else, the next cut follows. */
#include "peaks.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    Mender *m;
    CutPoint at;
    uint8_t *state;
    bool *need, *stuck;
} Peaks;

typedef struct {
    uint64_t next; /* key of the next use */
    uint32_t life;
} Dropped;

static int dropped_cmp(const void *x, const void *y) {
    const Dropped *a = x, *b = y;
    if (a->next != b->next) return a->next < b->next ? -1 : 1;
    return a->life < b->life ? -1 : a->life > b->life;
}

static bool is_used_after(const Timeline *t, const Life *l, uint64_t key) {
    return l->uses.n && timeline_key(t, l->uses.at[l->uses.n - 1]) > key;
}

/* The first run that has not happened at item x. */
static uint32_t frontier(const Timeline *t, uint32_t x) {
    while (!t->item.at[x].first) x = timeline_next(t, x);
    return t->item.at[x].run;
}

/* Describes the timeline at x for the cut. */
static void fill_point(Peaks *k, uint32_t x) {
    const Timeline *t = k->m->t;
    const Problem *p = t->p;
    uint64_t key = timeline_key(t, x);
    int64_t movable = 0;
    memset(k->state, CUT_AWAY, p->nstorage);
    memset(k->need, 0, p->ntensor * sizeof *k->need);
    for (uint32_t w = 0; w < t->wide.n; w++) {
        StorageId s = t->wide.at[w];
        uint32_t life = timeline_serving(t, s, x);
        if (life == NO_ID || t->life.at[life].to_key <= key) continue;
        k->state[s] = CUT_MAY_KEEP;
        k->need[s] = true;
        movable += (int64_t)p->bytes[s];
        EACH(p->views, s, v) {
            uint32_t view = timeline_serving(t, v, x);
            k->need[v] = view != NO_ID && t->life.at[view].from_key > t->life.at[life].from_key &&
                         is_used_after(t, &t->life.at[view], key);
        }
    }
    EACH(t->reads, t->item.at[x].run, s) {
        if (k->state[s] == CUT_MAY_KEEP) movable -= (int64_t)p->bytes[s];
        k->state[s] = CUT_FIXED;
    }
    for (uint32_t r = 0; r < p->nrun; r++)
        k->stuck[r] = t->frozen[r] != NO_ID && timeline_key(t, t->first[t->frozen[r]]) < key;
    int64_t room = k->m->capacity - timeline_bytes_at(t, x) + movable;
    k->at.run = frontier(t, x);
    k->at.capacity = room > 0 ? (uint64_t)room : 0;
}

/* Drops what the cut does not keep, the soonest needed first. */
static bool apply(Peaks *k, Arena *a, uint32_t x, const CutResult *r) {
    Mender *m = k->m;
    Timeline *t = m->t;
    uint64_t key = timeline_key(t, x);
    Dropped *list = ARENA_ARRAY(a, Dropped, t->wide.n);
    uint32_t n = 0;
    for (uint32_t w = 0; w < t->wide.n; w++) {
        StorageId s = t->wide.at[w];
        if (k->state[s] != CUT_MAY_KEEP || r->keep[s]) continue;
        uint32_t life = timeline_serving(t, s, x), i = 0;
        const Life *l = &t->life.at[life];
        while (timeline_key(t, l->uses.at[i]) <= key) i++;
        list[n++] = (Dropped){timeline_key(t, l->uses.at[i]), life};
    }
    if (n) qsort(list, n, sizeof *list, dropped_cmp);
    bool ok = true;
    m->rerun = r->rerun;
    m->rerun_after = x;
    for (uint32_t i = 0; i < n && ok; i++) ok = mend_drop(m, list[i].life, x);
    m->rerun = NULL;
    return ok;
}

bool peaks_cut(Mender *m, Cut *cut, const double *ns, uint64_t cost_limit, uint32_t rounds) {
    const Problem *p = m->t->p;
    Arena *a = arena_new();
    Peaks k = {.m = m,
               .state = ARENA_ARRAY(a, uint8_t, p->nstorage),
               .need = ARENA_ARRAY(a, bool, p->ntensor),
               .stuck = ARENA_ARRAY(a, bool, p->nrun)};
    k.at = (CutPoint){.state = k.state, .need = k.need, .ns = ns, .stuck = k.stuck};
    bool ok = true;
    while (ok && timeline_peak(m->t) > m->capacity && m->t->cost_ns <= cost_limit) {
        Arena *scratch = arena_new();
        uint32_t x = mend_position(m);
        int64_t before = timeline_bytes_at(m->t, x);
        CutResult r;
        fill_point(&k, x);
        cut_solve(cut, &k.at, &r);
        ok = r.feasible && rounds-- && apply(&k, scratch, x, &r) &&
             timeline_bytes_at(m->t, x) < before;
        m->work += 1000 * (uint64_t)r.flows; /* roughly */
        arena_free(scratch);
    }
    arena_free(a);
    return ok && timeline_peak(m->t) <= m->capacity;
}
