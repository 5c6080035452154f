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
 * Which heuristic is best depends on graph and limit. Without --heuristic all are played, and
 * scores by the distance to the next use too, which a program that knows its whole step can have;
 * the cheapest schedule stays. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 256,  /* of offsets in the arena, as the planner has it */
    SMALLER = 24, /* smaller capacities tried when a heuristic ends in a dead end */
};
/* Elementary steps of the engine, some 10 ns each, that all plays of one limit may take together;
 * the first one that succeeds may always end. */
#define WORK UINT64_C(100000000)

typedef struct {
    DtrHeuristic h;
    bool lookahead;
    double alpha, beta, gamma; /* of lookahead */
} Score;

static const Score scores[] = {
    {.h = DTR_EQ},
    {.lookahead = true, .alpha = 1, .beta = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 0.5, .beta = 1},
    {.h = DTR_FULL},
    {.h = DTR_LOCAL},
    {.h = DTR_MSPS},
    {.lookahead = true, .alpha = 1, .beta = 0.5},
    {.lookahead = true, .alpha = 1.5, .beta = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 1, .beta = 1},
    {.h = DTR_LRU},
    {.h = DTR_SIZE},
};

/* How victims and holes are chosen: a cheapest contiguous run of storages or one by one; storages
 * with short lives at the other end of holes or not. */
enum { WINDOW = 1, TWO_ENDED = 2, WAYS = 4 };

static const char *score_name(const Score *s) {
    return s->lookahead ? "lookahead" : dtr_name(s->h);
}

bool dtrt_heuristic_known(const char *name) {
    return !strcmp(name, "auto") || !strcmp(name, "lookahead") || dtr_heuristic(name) != DTR_COUNT;
}

/* ---- the graph ----------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
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
    g->align = ALIGN;
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
    bool found, no_memory;
    uint64_t work; /* left */
} Search;

static void keep(Search *s, const Score *score, Recorder *r) {
    const DtrCounters *c = dtr_counters(s->d);
    dtrt_dynamic_free(s->best);
    s->found = true;
    *s->best = (Dynamic){.schedule = {.arena_bytes = c->high_bytes,
                                      .nrun = r->nrun,
                                      .naddr = r->naddr,
                                      .nstep = r->nstep,
                                      .run = r->run,
                                      .addr = r->addr,
                                      .step = r->step,
                                      .recomputed_runs = c->reruns,
                                      .evictions = r->evictions},
                         .heuristic = score_name(score),
                         .cost_ns = c->cost_ns,
                         .base_ns = s->g->base_ns,
                         .decisions = c->decisions,
                         .decide_ns = c->decide_ns};
}

/* True when the step came to its end within the limits. */
static bool play(Search *s, const Score *score, int way, uint64_t capacity) {
    uint64_t base = s->g->base_ns ? s->g->base_ns : 1;
    DtrOptions o = {.capacity = capacity,
                    .evict = true,
                    .h = score->h,
                    .lookahead = score->lookahead,
                    .alpha = score->alpha,
                    .beta = score->beta,
                    .gamma = score->lookahead ? score->gamma : 1,
                    .regret = score->lookahead,
                    .window = way & WINDOW,
                    .two_ended = way & TWO_ENDED,
                    .cost_limit =
                        base < UINT64_MAX / DYNAMIC_THRASH ? base * DYNAMIC_THRASH : UINT64_MAX,
                    .work_limit = s->found ? s->work : WORK};
    if (s->found) {
        if (!s->work || !s->best->cost_ns) return false;
        o.cost_limit = s->best->cost_ns - 1;
    }
    Recorder r = {.p = s->p, .d = s->d};
    DtrHooks hooks = {&r, record_run, record_drop, clock_ns};
    dtr_set(s->d, &o);
    DtrStatus st = dtr_step(s->d, &hooks);
    uint64_t work = dtr_counters(s->d)->work;
    s->work -= work < s->work ? work : s->work;
    s->no_memory |= r.no_memory;
    if (st == DTR_OK) {
        keep(s, score, &r);
        return true;
    }
    free(r.run);
    free(r.addr);
    free(r.step);
    return false;
}

static bool is_chosen(const Score *s, const char *heuristic) {
    return !strcmp(heuristic, "auto") || !strcmp(heuristic, score_name(s));
}

static void play_ways(Search *s, const char *heuristic, uint64_t capacity, bool any) {
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        for (int way = WAYS; way-- > 0 && is_chosen(&scores[i], heuristic);)
            if (play(s, &scores[i], way, capacity) && any) return;
}

/* A greedy heuristic can run into a dead end under one capacity and not under a smaller one, and a
 * schedule for the smaller one is a schedule for this one too. */
static void play_all(Search *s, const char *heuristic, uint64_t capacity) {
    for (uint32_t k = 0; k <= SMALLER && !s->found && !s->no_memory; k++) {
        uint64_t less = capacity / 256 * k;
        if (capacity - less < s->g->floor_bytes) break;
        play_ways(s, heuristic, capacity - less, false);
    }
}

static void close_search(Search *s) {
    dtr_close(s->d);
    free(s->lists);
    free(s->g);
}

static Status open_search(Search *s, const DtrtProgram *p, Dynamic *best) {
    const DtrOptions none = {0};
    *best = (Dynamic){0};
    *s = (Search){.p = p, .best = best, .work = WORK, .g = make_graph(p)};
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
    return limit < p->persistent_bytes ? 0 : (limit - p->persistent_bytes) / ALIGN * ALIGN;
}

Status dtrt_dynamic_make(const DtrtProgram *p, uint64_t limit, const char *heuristic,
                         Dynamic *out) {
    Search s;
    uint64_t start = dtrt_now_ns();
    Status st = open_search(&s, p, out);
    if (st) return st;
    play_all(&s, heuristic, arena_under(p, limit));
    out->plan_ns = dtrt_now_ns() - start;
    close_search(&s);
    if (!s.found && s.no_memory) return dtrt_no_memory(p->nnode * sizeof(DtrtStep));
    return s.found ? ST_OK : ST_BUDGET;
}

static bool try_capacity(Search *s, const char *heuristic, uint64_t capacity) {
    s->found = false;
    s->work = WORK;
    play_ways(s, heuristic, capacity, true);
    return s->found;
}

/* A capacity that works: what a step without evictions takes, or a little more, because holes are
 * chosen differently in a smaller arena. */
static uint64_t ample(Search *s, const char *heuristic) {
    try_capacity(s, heuristic, INT64_MAX / ALIGN * ALIGN);
    uint64_t capacity = s->best->schedule.arena_bytes;
    while (!s->no_memory && !try_capacity(s, heuristic, capacity))
        capacity += (capacity / 16 + ALIGN) / ALIGN * ALIGN;
    return capacity;
}

Status dtrt_dynamic_bounds(const DtrtProgram *p, const char *heuristic, uint64_t *smallest,
                           uint64_t *floor) {
    Search s;
    Dynamic best;
    Status st = open_search(&s, p, &best);
    if (st) return st;
    uint64_t lo = s.g->floor_bytes, hi = lo;
    if (!try_capacity(&s, heuristic, lo)) hi = ample(&s, heuristic);
    while (hi > lo + ALIGN && hi - lo > hi >> 7 && !s.no_memory) {
        uint64_t middle = (lo + (hi - lo) / 2) / ALIGN * ALIGN;
        if (try_capacity(&s, heuristic, middle))
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
