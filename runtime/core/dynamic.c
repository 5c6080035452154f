/* dynamic.c - dynamic mode: a schedule for the limit that holds when the program runs, made by
 * Dynamic Tensor Rematerialization (runtime/dtr) in place of the compiled one.
 *
 * Program -> graph of the engine -> the engine plays one step without arithmetic -> its runs, drops
 * and addresses, recorded as a DtrtSchedule, which steps then follow as they follow the compiled
 * one. The policy looks at nothing that changes from step to step (times are those of the cost
 * model), so that deciding again in every step would decide the same. Deciding before the first
 * step has two merits: a limit that cannot be met is known before any weight changes, and steps
 * cost no more than in static mode.
 *
 * What is played, and which of it stays: runtime/dtr/choose.c, as the planner does. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* ---- the graph ----------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes) {
    return (bytes + DTRT_ALIGN - 1) / DTRT_ALIGN * DTRT_ALIGN;
}

static void *take(uint8_t **at, uint64_t n, size_t element) {
    void *p = *at;
    *at += (n * element + 15) / 16 * 16;
    return p;
}

/* Storages without a duplicate; what a list may hold at most is what its node has operands. */
static void add_once(DtrLists *l, uint32_t row, uint32_t storage) {
    for (uint32_t i = l->first[row]; i < l->first[row + 1]; i++)
        if (l->at[i] == storage) return;
    l->at[l->first[row + 1]++] = storage;
}

static void fill_inputs(const DtrtProgram *p, DtrGraph *g, uint32_t r) {
    const DtrtNode *n = &p->node[r];
    for (uint32_t i = 0; i < n->nin; i++) {
        int32_t s = p->operand[n->first + i];
        if (s < 0) continue;
        bool temp = g->is_temp[s], mutated = i < 64 && (n->mutates >> i & 1);
        add_once(temp ? &g->in : &g->reads, r, (uint32_t)s);
        if (mutated && !temp) add_once(&g->writes, r, (uint32_t)s);
        int32_t out = n->nout ? p->operand[n->first + n->nin] : -1;
        if (temp && out >= 0 && i < 64 && (n->inplace >> i & 1) &&
            p->storage[s].bytes == p->storage[out].bytes)
            add_once(&g->inplace, r, (uint32_t)s);
    }
}

static void fill_run(const DtrtProgram *p, DtrGraph *g, uint32_t r) {
    const DtrtNode *n = &p->node[r];
    DtrLists *const lists[] = {&g->in, &g->out, &g->inplace, &g->writes, &g->reads};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        lists[k]->first[r + 1] = lists[k]->first[r];
    g->effect[r] = n->mutates != 0;
    g->ns[r] = n->ns;
    g->workspace[r] = round_up(n->workspace);
    fill_inputs(p, g, r);
    for (uint32_t k = 0; k < n->nout; k++) {
        int32_t s = p->operand[n->first + n->nin + k];
        bool temp = s >= 0 && g->is_temp[s];
        g->out.at[g->out.first[r + 1]++] = temp ? (uint32_t)s : DTR_NONE;
        if (temp) g->def[s] = r;
    }
}

static void fill_storages(const DtrtProgram *p, DtrGraph *g) {
    for (uint32_t s = 0; s < p->nstorage; s++) {
        uint64_t bytes = p->storage[s].bytes;
        g->is_temp[s] = p->storage[s].tensor < 0;
        g->bytes[s] = g->is_temp[s] ? round_up(bytes ? bytes : 1) : 0;
        g->storage[s] = s;
        g->def[s] = DTR_NONE;
    }
}

/* Graph and arrays in one block; NULL: no memory. */
static DtrGraph *make_graph(const DtrtProgram *p) {
    uint64_t n = p->nnode, m = p->noperand, s = p->nstorage;
    uint64_t bytes = sizeof(DtrGraph) + 64 * 16 + n * 17 + 5 * (n + 1 + m) * 4 + s * 17 + 4;
    DtrGraph *g = calloc(1, bytes);
    if (!g) return NULL;
    uint8_t *at = (uint8_t *)g;
    take(&at, 1, sizeof *g);
    g->nrun = p->nnode;
    g->nstorage = g->ntensor = p->nstorage;
    g->noutput = 1;
    g->align = DTRT_ALIGN;
    g->effect = take(&at, n, sizeof *g->effect);
    g->ns = take(&at, n, sizeof *g->ns);
    g->workspace = take(&at, n, sizeof *g->workspace);
    DtrLists *const lists[] = {&g->in, &g->out, &g->inplace, &g->writes, &g->reads};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        lists[k]->first = take(&at, n + 1, sizeof *lists[k]->first);
        lists[k]->at = take(&at, m, sizeof *lists[k]->at);
    }
    g->bytes = take(&at, s, sizeof *g->bytes);
    g->is_temp = take(&at, s, sizeof *g->is_temp);
    g->storage = take(&at, s, sizeof *g->storage);
    g->def = take(&at, s, sizeof *g->def);
    g->output = take(&at, 1, sizeof *g->output);
    g->output[0] = (uint32_t)p->loss_storage;
    fill_storages(p, g);
    for (uint32_t r = 0; r < p->nnode; r++) fill_run(p, g, r);
    return g;
}

/* ---- recording ------------------------------------------------------------------------------ */

typedef struct {
    const DtrtProgram *p;
    const Dtr *d;
    DtrtRun *run;
    uint64_t *addr;
    DtrtStep *step;
    uint32_t nrun, naddr, nstep, evictions;
    uint64_t run_room, addr_room, step_room;
    bool no_memory;
} Recorder;

static bool make_room(Recorder *r, void *array, uint64_t *room, uint64_t n, size_t element) {
    void *old, *more;
    if (n <= *room) return true;
    memcpy(&old, array, sizeof old);
    uint64_t want = n + n / 2 + 64;
    more = realloc(old, want * element);
    if (!more || want > INT32_MAX) {
        free(more ? more : old);
        more = NULL;
        r->no_memory = true;
    }
    memcpy(array, &more, sizeof more);
    *room = more ? want : 0;
    return more != NULL;
}

static bool add_step(Recorder *r, DtrtStep s) {
    if (!make_room(r, &r->step, &r->step_room, (uint64_t)r->nstep + 1, sizeof s)) return false;
    r->step[r->nstep++] = s;
    return true;
}

static uint64_t input_address(const Recorder *r, int32_t storage) {
    if (storage < 0) return DTRT_NOWHERE;
    int32_t tensor = r->p->storage[storage].tensor;
    if (tensor >= 0) return r->p->tensor[tensor].offset;
    return r->p->persistent_bytes + dtr_where(r->d, (uint32_t)storage);
}

static bool record_run(void *user, const DtrRun *e) {
    Recorder *r = user;
    const DtrtProgram *p = r->p;
    const DtrtNode *n = &p->node[e->run];
    uint64_t need = (uint64_t)r->naddr + n->nin + n->nout + 1;
    if (!make_room(r, &r->addr, &r->addr_room, need, sizeof *r->addr) ||
        !make_room(r, &r->run, &r->run_room, (uint64_t)r->nrun + 1, sizeof *r->run))
        return false;
    r->run[r->nrun] = (DtrtRun){e->run, r->naddr};
    for (uint32_t i = 0; i < n->nin; i++)
        r->addr[r->naddr++] = input_address(r, p->operand[n->first + i]);
    for (uint32_t k = 0; k < n->nout; k++)
        r->addr[r->naddr++] =
            e->out[k].place == DTR_NOTHING ? DTRT_NOWHERE : p->persistent_bytes + e->out[k].offset;
    r->addr[r->naddr++] = n->workspace ? p->persistent_bytes + e->workspace : DTRT_NOWHERE;
    return add_step(r, (DtrtStep){(int32_t)r->nrun++, -1, 0});
}

static bool record_drop(void *user, uint32_t storage, uint64_t offset, bool evicted) {
    Recorder *r = user;
    r->evictions += evicted;
    return add_step(r, (DtrtStep){-1, (int32_t)storage, r->p->persistent_bytes + offset});
}

static uint64_t clock_ns(void *user) {
    (void)user;
    return dtrt_now_ns();
}

static void free_schedule(DtrtSchedule *s) {
    /* what the engine recorded is ours, though programs see it as const */
    void *owned[3];
    memcpy(&owned[0], &s->run, sizeof owned[0]);
    memcpy(&owned[1], &s->addr, sizeof owned[1]);
    memcpy(&owned[2], &s->step, sizeof owned[2]);
    for (int i = 0; i < 3; i++) free(owned[i]);
    *s = (DtrtSchedule){0};
}

void dtrt_dynamic_free(Dynamic *d) {
    free_schedule(&d->schedule);
}

/* ---- playing -------------------------------------------------------------------------------- */

typedef struct {
    const DtrtProgram *p;
    Dtr *d;
    DtrGraph *g;
    void *lists; /* of g */
    Dynamic *best;
    bool no_memory;
} Search;

static void keep(Search *s, const char *heuristic, Recorder *r) {
    const DtrCounters *c = dtr_counters(s->d);
    dtrt_dynamic_free(s->best);
    *s->best = (Dynamic){.schedule = {.arena_bytes = c->high_bytes,
                                      .nrun = r->nrun,
                                      .naddr = r->naddr,
                                      .nstep = r->nstep,
                                      .run = r->run,
                                      .addr = r->addr,
                                      .step = r->step,
                                      .recomputed_runs = c->reruns,
                                      .evictions = r->evictions},
                         .heuristic = heuristic,
                         .cost_ns = c->cost_ns,
                         .base_ns = s->g->base_ns,
                         .decisions = c->decisions,
                         .decide_ns = c->decide_ns};
}

/* True when a step came to its end under the capacity; any: the first that does will do. */
static bool play(Search *s, const char *heuristic, uint64_t capacity, bool any) {
    DtrChoice choice;
    DtrOptions o;
    dtr_choice_begin(&choice, s->g, heuristic, capacity);
    choice.any = any;
    while (!s->no_memory && dtr_choice_next(&choice, &o)) {
        Recorder r = {.p = s->p, .d = s->d};
        DtrHooks hooks = {&r, record_run, record_drop, clock_ns};
        dtr_set(s->d, &o);
        DtrStatus st = dtr_step(s->d, &hooks);
        s->no_memory |= r.no_memory;
        if (dtr_choice_ended(&choice, st, dtr_counters(s->d))) {
            keep(s, choice.name, &r);
            continue;
        }
        free(r.run);
        free(r.addr);
        free(r.step);
    }
    return choice.found;
}

static void close_search(Search *s) {
    dtr_close(s->d);
    free(s->lists);
    free(s->g);
}

static Status open_search(Search *s, const DtrtProgram *p, Dynamic *best) {
    const DtrOptions none = {0};
    *best = (Dynamic){0};
    *s = (Search){.p = p, .best = best, .g = make_graph(p)};
    size_t bytes = s->g ? dtr_lists_bytes(s->g) + 1 : sizeof *s->g;
    s->lists = s->g ? calloc(1, bytes) : NULL;
    if (s->lists) {
        dtr_fill_lists(s->g, s->lists);
        s->d = dtr_open(s->g, &none);
    }
    if (s->d) return ST_OK;
    close_search(s);
    return dtrt_no_memory(bytes);
}

/* Bytes of the arena under a limit for everything. */
static uint64_t arena_under(const DtrtProgram *p, uint64_t limit) {
    return limit < p->persistent_bytes ? 0
                                       : (limit - p->persistent_bytes) / DTRT_ALIGN * DTRT_ALIGN;
}

Status dtrt_dynamic_make(const DtrtProgram *p, uint64_t limit, const char *heuristic,
                         Dynamic *out) {
    Search s;
    uint64_t start = dtrt_now_ns();
    Status st = open_search(&s, p, out);
    if (st) return st;
    bool found = play(&s, heuristic, arena_under(p, limit), false);
    out->plan_ns = dtrt_now_ns() - start;
    close_search(&s);
    if (!found && s.no_memory) return dtrt_no_memory(p->nnode * sizeof(DtrtStep));
    return found ? ST_OK : ST_BUDGET;
}

/* A capacity that works: what a step without evictions takes, or a little more, because holes are
 * chosen differently in a smaller arena. */
static uint64_t ample(Search *s, const char *heuristic) {
    play(s, heuristic, INT64_MAX / DTRT_ALIGN * DTRT_ALIGN, true);
    uint64_t capacity = s->best->schedule.arena_bytes;
    while (!s->no_memory && !play(s, heuristic, capacity, true))
        capacity += (capacity / 16 + DTRT_ALIGN) / DTRT_ALIGN * DTRT_ALIGN;
    return capacity;
}

Status dtrt_dynamic_bounds(const DtrtProgram *p, const char *heuristic, uint64_t *smallest,
                           uint64_t *floor) {
    Search s;
    Dynamic best;
    Status st = open_search(&s, p, &best);
    if (st) return st;
    uint64_t lo = s.g->floor_bytes, hi = lo;
    if (!play(&s, heuristic, lo, true)) hi = ample(&s, heuristic);
    while (hi > lo + DTRT_ALIGN && hi - lo > hi >> 7 && !s.no_memory) {
        uint64_t middle = (lo + (hi - lo) / 2) / DTRT_ALIGN * DTRT_ALIGN;
        if (play(&s, heuristic, middle, true))
            hi = middle;
        else
            lo = middle;
    }
    *floor = p->persistent_bytes + s.g->floor_bytes;
    *smallest = p->persistent_bytes + hi;
    dtrt_dynamic_free(&best);
    close_search(&s);
    return s.no_memory ? dtrt_no_memory(p->nnode * sizeof(DtrtStep)) : ST_OK;
}
