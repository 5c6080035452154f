/* check.c - an access of a checked kernel: where it goes, whether it may, and where the kernel
 * finds the bytes. A refused read gives 0xFF bytes, a refused write goes nowhere. */
#include "engine.h"

#include <stdio.h>

static uint8_t nowhere[16] __attribute__((aligned(16)));

static void *refused(void) {
    memset(nowhere, 0xff, sizeof nowhere);
    return nowhere;
}

static const char *verb(int how) {
    return how == PTX_READ ? "read" : how == PTX_WRITE ? "write" : "atomic";
}

static void *bad(SimtThread *t, SimtKind kind, uint32_t line, int how, uint64_t address,
                 uint32_t bytes, const char *why) {
    simt_report(t, kind, line, "%s of %u bytes at 0x%llx: %s", verb(how), bytes,
                (unsigned long long)address, why);
    if (simt_now.stop) fiber_end();
    return refused();
}

const char *shared_name(uint64_t offset, char *text, size_t size) {
    const SimtKernel *k = simt_now.kernel;
    for (uint32_t i = 0; i < k->nshared; i++) {
        uint64_t at = k->shared[i].offset + (i + 1) * (uint64_t)PTX_GAP;
        if (offset < at || offset - at >= k->shared[i].bytes) continue;
        snprintf(text, size, "%s + %llu", k->shared[i].name, (unsigned long long)(offset - at));
        return text;
    }
    uint64_t dynamic = k->dynamic_offset + (k->nshared + 1) * (uint64_t)PTX_GAP;
    snprintf(text, size, "extern array + %lld", (long long)(offset - dynamic));
    return text;
}

static void *shared_access(SimtThread *t, int how, uint64_t offset, uint32_t bytes, uint32_t line) {
    Launch *l = &simt_now;
    char name[100];
    if (offset > l->shared_bytes || bytes > l->shared_bytes - offset)
        return bad(t, SIMT_MEMORY, line, how, offset, bytes,
                   "outside of the block's shared memory");
    const uint8_t *state = l->shared_state + offset;
    bool unwritten = false;
    for (uint32_t b = 0; b < bytes; b++) {
        if (state[b] == SHARED_GAP)
            return bad(t, SIMT_MEMORY, line, how, offset, bytes,
                       "outside of every __shared__ array");
        unwritten |= state[b] == SHARED_UNWRITTEN;
    }
    if (how != PTX_WRITE && unwritten) /* an atomic reads too */
        simt_report(t, SIMT_UNINIT_SHARED, line, "%u bytes at %s", bytes,
                    shared_name(offset, name, sizeof name));
    if (how != PTX_READ) memset(l->shared_state + offset, SHARED_WRITTEN, bytes);
    uint8_t *p = l->shared + offset;
    shadow_touch(t, true, how, (uint64_t)(uintptr_t)p, bytes, line);
    return p;
}

/* 0: not there; else whether it may be accessed like this. */
typedef enum { NOT_THERE, FORBIDDEN, ALLOWED } Verdict;

static Verdict module_variable(int how, int space, uint64_t address, uint32_t bytes) {
    const SimtModule *m = simt_now.kernel->module;
    for (uint32_t i = 0; i < m->nvariables; i++) {
        const SimtVariable *v = &m->variables[i];
        uint64_t lo = (uint64_t)(uintptr_t)v->address;
        if (address < lo || address - lo >= v->bytes) continue;
        bool fits = bytes <= v->bytes - (address - lo);
        bool kind = v->constant ? how == PTX_READ && space != PTX_GLOBAL : space != PTX_CONST;
        return fits && kind ? ALLOWED : FORBIDDEN;
    }
    return NOT_THERE;
}

static void *global_access(SimtThread *t, int how, int space, uint64_t address, uint32_t bytes,
                           uint32_t line) {
    const SimtOptions *o = simt_now.options;
    const void *p = (const void *)(uintptr_t)address;
    const char *why = NULL;
    Verdict verdict = module_variable(how, space, address, bytes);
    bool own = verdict == ALLOWED;
    if (verdict == NOT_THERE) {
        bool may = space != PTX_CONST && address;
        if (may && o->may) may = o->may(o->ctx, p, bytes, how != PTX_READ, &why);
        verdict = may ? ALLOWED : FORBIDDEN;
    }
    if (verdict == FORBIDDEN)
        return bad(t, SIMT_MEMORY, line, how, address, bytes,
                   why ? why : "not in any memory it may use");
    if (!own && how != PTX_WRITE && o->initialised && !o->initialised(o->ctx, p, bytes))
        simt_report(t, SIMT_UNINIT_GLOBAL, line, "%u bytes at 0x%llx", bytes,
                    (unsigned long long)address);
    if (!own && how != PTX_READ && o->wrote) o->wrote(o->ctx, p, bytes);
    shadow_touch(t, false, how, address, bytes, line);
    return (void *)(uintptr_t)address;
}

void *simt_access(SimtThread *t, int how, int space, uint64_t address, uint32_t bytes,
                  uint32_t line) {
    Launch *l = &simt_now;
    uint64_t shared = (uint64_t)(uintptr_t)l->shared, params = (uint64_t)(uintptr_t)l->params;
    if (address % bytes)
        return bad(t, SIMT_ALIGNMENT, line, how, address, bytes, "not a multiple of its size");
    bool stack = fiber_owns((Fiber *)t, address, bytes);
    switch (space) {
    case PTX_SHARED: return shared_access(t, how, address, bytes, line);
    case PTX_LOCAL:
        if (stack) return (void *)(uintptr_t)address;
        return bad(t, SIMT_MEMORY, line, how, address, bytes,
                   "outside of the thread's local memory");
    case PTX_GENERIC:
        if (stack) return (void *)(uintptr_t)address;
        if (address >= shared && address - shared < l->shared_bytes)
            return shared_access(t, how, address - shared, bytes, line);
        if (how == PTX_READ && address >= params && address - params < l->kernel->param_bytes)
            return (void *)(uintptr_t)address;
    }
    return global_access(t, how, space, address, bytes, line);
}
