/* choose.c - which schedule the steps follow: the compiled one, or one made at start for less
 * memory (dynamic mode), and the block that it needs. Dynamic mode starts by itself
 *  - when --budget is less than the compiled schedule needs,
 *  - when the machine has less free memory than that, or does not give the block.
 * --mode dynamic asks for it, --mode static forbids it. One line says why and what it means. */
#include "core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What the process takes beside the block, as far as limits on addresses are concerned: buffers of
 * data files, of the C library, of the compiler's runtime. */
#define BESIDE (UINT64_C(16) << 20)

/* ---- free memory ---------------------------------------------------------------------------- */

static uint64_t less(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* "Name:  N kB" of a file such as /proc/meminfo; UINT64_MAX when it is not there. */
static uint64_t read_kib(const char *file, const char *name) {
    char line[256];
    uint64_t kib = UINT64_MAX;
    size_t n = strlen(name);
    FILE *f = fopen(file, "re");
    if (!f) return kib;
    while (kib == UINT64_MAX && fgets(line, sizeof line, f)) {
        unsigned long long v;
        if (!strncmp(line, name, n) && sscanf(line + n, ": %llu", &v) == 1) kib = v;
    }
    fclose(f);
    return kib;
}

/* What the limit on addresses leaves. */
static uint64_t address_space_left(void) {
    struct rlimit r;
    uint64_t used = read_kib("/proc/self/status", "VmSize");
    if (getrlimit(RLIMIT_AS, &r) || r.rlim_cur == RLIM_INFINITY || used == UINT64_MAX)
        return UINT64_MAX;
    used = used * 1024 + BESIDE;
    return r.rlim_cur > used ? r.rlim_cur - used : 0;
}

static uint64_t read_number(const char *dir, const char *file) {
    char path[512];
    unsigned long long v = UINT64_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return UINT64_MAX;
    if (fscanf(f, "%llu", &v) != 1) v = UINT64_MAX; /* "max" */
    fclose(f);
    return v;
}

/* What the control groups of this process leave (version 2: one path, limits on every level). */
static uint64_t group_left(void) {
    char path[300] = "", line[300];
    uint64_t left = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f) return left;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "0::", 3)) snprintf(path, sizeof path, "%s", line + 3);
    fclose(f);
    path[strcspn(path, "\n")] = 0;
    for (;;) {
        char *slash = strrchr(path, '/');
        uint64_t max = read_number(path, "memory.max"), used = read_number(path, "memory.current");
        if (max != UINT64_MAX && used != UINT64_MAX) left = less(left, max > used ? max - used : 0);
        if (!slash || !*path) break;
        *slash = 0;
    }
    return left;
}

static uint64_t memory_left(const Runtime *rt) {
    if (rt->p->device) return rt->p->device->left();
    uint64_t free = read_kib("/proc/meminfo", "MemAvailable");
    uint64_t swap = read_kib("/proc/meminfo", "SwapFree");
    if (free != UINT64_MAX) free = (free + (swap == UINT64_MAX ? 0 : swap)) * 1024;
    return less(less(free, group_left()), address_space_left());
}

/* ---- the choice ------------------------------------------------------------------------------ */

static uint64_t compiled_bytes(const Runtime *rt) {
    return rt->compiled->persistent_bytes + rt->compiled->plan.arena_bytes;
}

/* Status and message when no schedule was found under the limit. */
static Status too_little(Runtime *rt, const char *reason, Status st) {
    const DtrtProgram *p = rt->p;
    uint64_t smallest = 0, floor = 0;
    Status bounds = dtrt_dynamic_bounds(p, rt->o.heuristic, &smallest, &floor);
    if (bounds) return bounds;
    dtrt_error("%s, and dynamic mode finds no schedule for %s%s (%" PRIu64
               " bytes) that computes less than %d times as long as without a budget",
               reason, dtrt_size_str(rt->limit), st == ST_MACHINE ? " of free memory" : "",
               rt->limit, DTR_THRASH);
    if (*rt->why_resized) {
        dtrt_hint("dynamic mode can run in %" PRIu64 " bytes; no schedule exists below %" PRIu64,
                  smallest, floor);
        return st;
    }
    dtrt_hint("dynamic mode can run in %" PRIu64 " bytes, the compiled plan in %" PRIu64
              "; no schedule exists below %" PRIu64
              "; compiling the model for the lower budget may find one between",
              smallest, compiled_bytes(rt), less(floor, compiled_bytes(rt)));
    return st;
}

static void say(const Runtime *rt, const char *reason) {
    const Dynamic *d = &rt->dynamic;
    dtrt_note("dynamic mode: %s; runs in %s with %.3g %% more compute time than without a budget "
              "(compiled plan: %.3g %% in %s), %u of %u operations again, decided in %.3g ms (%s)",
              reason, dtrt_size_str(rt->p->persistent_bytes + d->schedule.arena_bytes),
              100 * dtrt_dynamic_overhead(d), 100 * rt->p->planned_overhead,
              dtrt_size_str(compiled_bytes(rt)), d->schedule.recomputed_runs, rt->p->nnode,
              (double)d->plan_ns * 1e-6, d->heuristic);
}

static Status go_dynamic(Runtime *rt, const char *reason, Status st) {
    Status made = dtrt_dynamic_make(rt->p, rt->limit, rt->o.heuristic, &rt->dynamic);
    if (made == ST_BUDGET) return too_little(rt, reason, st);
    if (made) return made;
    rt->s = &rt->dynamic.schedule;
    rt->is_dynamic = true;
    return ST_OK;
}

/* Nobody named one: the compiled schedule takes what it needs, and so may any other. */
static bool no_budget(const Runtime *rt) {
    return !rt->o.budget && !rt->compiled->budget_bytes;
}

/* Free memory is the limit where it is lower; then too little of it is the machine's fault. */
static void limit_to_free(Runtime *rt, Status *st) {
    uint64_t left = memory_left(rt);
    if (left >= rt->limit) return;
    rt->limit = left;
    *st = ST_MACHINE;
}

static const char *why_dynamic(Runtime *rt, Status *st) {
    static char text[256];
    uint64_t need = compiled_bytes(rt);
    *st = ST_BUDGET;
    if (no_budget(rt) && (*rt->why_resized || rt->o.mode == MODE_DYNAMIC)) rt->limit = UINT64_MAX;
    if (*rt->why_resized) {
        limit_to_free(rt, st);
        return rt->why_resized;
    }
    if (need > rt->limit) {
        snprintf(text, sizeof text, "the budget of %s is less than the compiled plan's %s",
                 dtrt_size_str(rt->limit), dtrt_size_str(need));
        return text;
    }
    if (rt->o.mode == MODE_DYNAMIC) {
        limit_to_free(rt, st);
        return "as --mode says";
    }
    uint64_t left = memory_left(rt);
    if (need <= left || rt->o.mode == MODE_STATIC) return NULL;
    *st = ST_MACHINE;
    rt->limit = left;
    snprintf(text, sizeof text, "%s of memory are free, and the compiled plan needs %s",
             dtrt_size_str(left), dtrt_size_str(need));
    return text;
}

/* The block; where the machine does not give it, a smaller one with another schedule. */
static Status map_block(Runtime *rt, const char **reason) {
    while (!dtrt_block_map(rt)) {
        uint64_t bytes = rt->p->persistent_bytes + rt->s->arena_bytes;
        if (rt->o.mode == MODE_STATIC) return dtrt_no_memory(bytes);
        dtrt_dynamic_free(&rt->dynamic);
        rt->limit = bytes / 8 * 7;
        *reason = "the machine does not give the memory of the compiled plan";
        Status st = go_dynamic(rt, *reason, ST_MACHINE);
        if (st) return st;
    }
    return ST_OK;
}

Status dtrt_choose(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    Status st;
    rt->s = &p->plan;
    rt->limit = rt->o.budget      ? rt->o.budget
                : p->budget_bytes ? p->budget_bytes
                                  : compiled_bytes(rt);
    const char *reason = why_dynamic(rt, &st);
    if (reason && rt->o.mode == MODE_STATIC) {
        dtrt_error("%s, and --mode static forbids another", reason);
        dtrt_hint(*rt->why_resized
                      ? "compile the model again for these sizes, or leave --mode out"
                      : "compile the model again with the lower budget, or leave --mode out");
        return ST_BUDGET;
    }
    st = reason ? go_dynamic(rt, reason, st) : ST_OK;
    if (!st) st = map_block(rt, &reason);
    if (!st && no_budget(rt)) rt->limit = rt->block_bytes;
    if (!st && rt->is_dynamic) say(rt, reason);
    return st;
}
