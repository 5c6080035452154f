/* arena.c - the functions of watch.h: live storages of arenas, the ranges of steps, and the
 * question whether work may touch an address.
 *
 * Liveness changes when the queue of the stream reaches the call, so what counts is the order in
 * which the device would see it. The ranges of a step belong to the work that is queued after it
 * and are attached there and then (stream.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { MAX_ARENAS = 16, MAX_GHOSTS = 64, POISON = 0xFF };

typedef struct {
    uint64_t at, bytes;
    const char *name;
} Storage;

typedef struct {
    uint64_t at, bytes;
    Storage *live; /* ascending, disjoint */
    uint32_t count, capacity;
} Arena;

struct SimStep {
    uint32_t refs, count;
    const char *name;
    DtrtWatchRange ranges[];
};

typedef struct {
    uint64_t at, bytes;
    uint32_t flags;
    const char *name;
} Change; /* payload of live and dead */

static Arena arenas[MAX_ARENAS];
static uint32_t narenas;
static Storage ghosts[MAX_GHOSTS]; /* what died last, for messages */
static uint32_t nghosts;

SimStep *sim_step_hold(SimStep *step) {
    if (step) step->refs++;
    return step;
}

void sim_step_drop(SimStep *step) {
    if (step && --step->refs == 0) free(step);
}

const char *sim_step_name(const SimStep *step) {
    return step ? step->name : NULL;
}

uint32_t sim_step_ranges(const SimStep *step, SimRange *ranges, uint32_t most) {
    uint32_t n = 0;
    for (; step && n < step->count && n < most; n++)
        ranges[n] = (SimRange){step->ranges[n].at, step->ranges[n].bytes,
                               (step->ranges[n].use & DTRT_WATCH_WRITE) != 0, step->name};
    return n;
}

static Arena *arena_of(uint64_t at) {
    for (uint32_t i = 0; i < narenas; i++)
        if (at - arenas[i].at < arenas[i].bytes) return &arenas[i];
    return NULL;
}

/* Index of the first storage that ends after `at`. */
static uint32_t first_after(const Arena *arena, uint64_t at) {
    uint32_t low = 0, high = arena->count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (arena->live[mid].at + arena->live[mid].bytes <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const char *ghost_name(uint64_t at) {
    for (uint32_t i = 0; i < nghosts && i < MAX_GHOSTS; i++) {
        const Storage *g = &ghosts[(nghosts - 1 - i) % MAX_GHOSTS];
        if (at - g->at < g->bytes) return g->name;
    }
    return NULL;
}

static void insert(Arena *arena, uint32_t i, Storage s) {
    if (arena->count == arena->capacity) {
        arena->capacity = arena->capacity ? 2 * arena->capacity : 64;
        arena->live = realloc(arena->live, arena->capacity * sizeof *arena->live);
        if (!arena->live) abort();
    }
    memmove(&arena->live[i + 1], &arena->live[i], (arena->count - i) * sizeof *arena->live);
    arena->live[i] = s;
    arena->count++;
}

static void forget(const Change *c) {
    memset((void *)(uintptr_t)c->at, POISON, c->bytes);
    sim_mark(c->at, c->bytes, false);
}

static void run_live(void *payload, SimOp *op) {
    (void)op;
    const Change *c = payload;
    Arena *arena = arena_of(c->at);
    if (!arena || c->bytes > arena->bytes - (c->at - arena->at)) {
        sim_finding("watch: %s becomes live outside of every arena, at %s", c->name,
                    sim_place(c->at));
        return;
    }
    uint32_t i = first_after(arena, c->at);
    if (i < arena->count && arena->live[i].at < c->at + c->bytes) {
        sim_finding("watch: %s becomes live at %s, where %s is alive", c->name, sim_place(c->at),
                    arena->live[i].name);
        return;
    }
    insert(arena, i, (Storage){c->at, c->bytes, c->name});
    if (!(c->flags & DTRT_WATCH_KEEP)) forget(c);
}

static void run_dead(void *payload, SimOp *op) {
    (void)op;
    const Change *c = payload;
    Arena *arena = arena_of(c->at);
    uint32_t i = arena ? first_after(arena, c->at) : 0;
    if (!arena || i == arena->count || arena->live[i].at != c->at ||
        arena->live[i].bytes != c->bytes) {
        sim_finding("watch: %llu bytes at %s die, which are no living storage",
                    (unsigned long long)c->bytes, sim_place(c->at));
        return;
    }
    ghosts[nghosts++ % MAX_GHOSTS] = arena->live[i];
    arena->count--;
    memmove(&arena->live[i], &arena->live[i + 1], (arena->count - i) * sizeof *arena->live);
    if (!(c->flags & DTRT_WATCH_KEEP)) forget(c);
}

void sim_arena_forget(uint64_t at, uint64_t bytes) {
    for (uint32_t i = 0; i < narenas;) {
        if (arenas[i].at - at >= bytes) {
            i++;
            continue;
        }
        free(arenas[i].live);
        arenas[i] = arenas[--narenas];
    }
}

static bool step_allows(const SimStep *step, uint64_t at, uint64_t bytes, bool write, SimSpan *span,
                        const char **why) {
    static char text[200];
    uint32_t need = write ? DTRT_WATCH_WRITE : DTRT_WATCH_READ;
    bool inside = false;
    for (uint32_t i = 0; i < step->count; i++) {
        const DtrtWatchRange *r = &step->ranges[i];
        if (at - r->at >= r->bytes || bytes > r->bytes - (at - r->at)) continue;
        inside = true;
        if (!(r->use & need)) continue;
        if (r->at > span->begin) span->begin = r->at;
        if (r->at + r->bytes < span->end) span->end = r->at + r->bytes;
        return true;
    }
    snprintf(text, sizeof text, inside ? "step %s does not %s there" : "not in step %s (to %s)",
             step->name, write ? "write" : "read");
    *why = text;
    return false;
}

bool sim_may_touch(const SimStep *step, uint64_t at, uint64_t bytes, bool write, SimSpan *span,
                   const char **why) {
    static char text[200];
    const SimAlloc *a = sim_alloc_at(at, bytes);
    if (!a || a->freed) {
        *why = a ? "in a freed buffer" : "not in a buffer";
        return false;
    }
    *span = (SimSpan){a->at, a->at + a->bytes};
    const Arena *arena = arena_of(at);
    if (!arena) return true;
    uint32_t i = first_after(arena, at);
    const Storage *s = i < arena->count ? &arena->live[i] : NULL;
    if (!s || at < s->at || bytes > s->bytes - (at - s->at)) {
        const char *ghost = ghost_name(at);
        snprintf(text, sizeof text,
                 s && at >= s->at ? "past the end of storage %s"
                 : ghost          ? "dead since the end of storage %s"
                                  : "in no storage%s",
                 s && at >= s->at ? s->name
                 : ghost          ? ghost
                                  : "");
        *why = text;
        return false;
    }
    *span = (SimSpan){s->at, s->at + s->bytes};
    return !step || step_allows(step, at, bytes, write, span, why);
}

static void change(void *stream, void (*run)(void *, SimOp *), const char *what, Change c) {
    SimRange range = {c.at, c.bytes, true, c.name};
    SimWork work = {what, run, &c, sizeof c, &range, 1, true};
    if (c.bytes) sim_enqueue(stream, &work);
}

void dtrt_watch_arena(uint64_t at, uint64_t bytes);
void dtrt_watch_live(void *stream, uint64_t at, uint64_t bytes, uint32_t flags, const char *name);
void dtrt_watch_dead(void *stream, uint64_t at, uint64_t bytes, uint32_t flags);
void dtrt_watch_step(void *stream, const char *name, const DtrtWatchRange *ranges, uint32_t n);

void dtrt_watch_arena(uint64_t at, uint64_t bytes) {
    SIM_ENTER_SURE;
    const SimAlloc *a = sim_alloc_at(at, bytes);
    if (!a || a->freed || a->host || narenas == MAX_ARENAS || !bytes || arena_of(at)) {
        sim_finding("watch: no arena of %llu bytes at %s", (unsigned long long)bytes,
                    sim_place(at));
        return;
    }
    arenas[narenas++] = (Arena){.at = at, .bytes = bytes};
}

void dtrt_watch_live(void *stream, uint64_t at, uint64_t bytes, uint32_t flags, const char *name) {
    SIM_ENTER_SURE;
    change(stream, run_live, "watch live", (Change){at, bytes, flags, name});
}

void dtrt_watch_dead(void *stream, uint64_t at, uint64_t bytes, uint32_t flags) {
    SIM_ENTER_SURE;
    change(stream, run_dead, "watch dead", (Change){at, bytes, flags, "dying storage"});
}

void dtrt_watch_step(void *stream, const char *name, const DtrtWatchRange *ranges, uint32_t n) {
    SIM_ENTER_SURE;
    SimStep *step = NULL;
    if (ranges || n) {
        step = malloc(sizeof *step + n * sizeof *ranges);
        if (!step) abort();
        *step = (SimStep){.refs = 1, .count = n, .name = name};
        if (n) memcpy(step->ranges, ranges, n * sizeof *ranges);
    }
    sim_stream_step(stream, step);
}
