/* findings.c - the list of findings: the same kind on the same line of a kernel is one entry. */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const kind_names[SIMT_KINDS] = {
    [SIMT_LAUNCH] = "launch",
    [SIMT_MEMORY] = "memory",
    [SIMT_ALIGNMENT] = "alignment",
    [SIMT_RACE] = "race",
    [SIMT_BLOCK_RACE] = "race between blocks",
    [SIMT_UNINIT_SHARED] = "shared memory read before written",
    [SIMT_UNINIT_GLOBAL] = "global memory read before written",
    [SIMT_SYNC] = "synchronisation",
    [SIMT_DEADLOCK] = "deadlock",
    [SIMT_TRAP] = "trap",
};

const char *simt_kind_name(SimtKind kind) {
    return kind < SIMT_KINDS ? kind_names[kind] : "unknown";
}

void simt_describe(const SimtFinding *f, char *text, size_t size) {
    snprintf(text, size, "%s: %s line %u, block %u,%u,%u thread %u,%u,%u: %s (%llu times)",
             simt_kind_name(f->kind), f->kernel, f->line, f->block.x, f->block.y, f->block.z,
             f->thread.x, f->thread.y, f->thread.z, f->text, (unsigned long long)f->times);
}

static SimtFinding *same(SimtFindings *all, SimtKind kind, uint32_t line) {
    for (uint32_t i = 0; i < all->count; i++) {
        SimtFinding *f = &all->list[i];
        if (f->kind == kind && f->line == line &&
            !strncmp(f->kernel, simt_now.kernel->name, sizeof f->kernel - 1))
            return f;
    }
    return NULL;
}

void simt_report(const SimtThread *t, SimtKind kind, uint32_t line, const char *fmt, ...) {
    Launch *l = &simt_now;
    uint64_t limit = l->options->max_findings ? l->options->max_findings : 100000;
    l->findings++;
    if (l->findings >= limit) l->stop = true;
    SimtFindings *all = l->found;
    if (!all) return;
    all->total++;
    SimtFinding *f = same(all, kind, line);
    if (!f && all->count < SIMT_MAX_FINDINGS) {
        f = &all->list[all->count++];
        *f = (SimtFinding){.kind = kind, .line = line, .block = l->block_id};
        snprintf(f->kernel, sizeof f->kernel, "%s", l->kernel->name);
        if (t) f->thread = t->tid;
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(f->text, sizeof f->text, fmt, ap);
        va_end(ap);
    }
    if (f) f->times++;
}
