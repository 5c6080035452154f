/* device.c - memory that the host may not see. Targets without a DtrtDevice work in the host's
 * memory, and everything here comes down to the address itself. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

Status dtrt_device_open(Runtime *rt) {
    return rt->p->device ? rt->p->device->open(rt) : ST_OK;
}

void dtrt_device_close(Runtime *rt) {
    if (rt->p->device) rt->p->device->close(rt);
}

static bool is_data(const DtrtTensor *t) {
    return t->role == DTRT_INPUT || t->role == DTRT_TARGET;
}

static uint64_t staging_bytes(const Runtime *rt, uint32_t i) {
    uint64_t n = is_data(&rt->p->tensor[i]) ? rt->p->tensor[i].bytes : 0;
    return (n + DTRT_ALIGN - 1) / DTRT_ALIGN * DTRT_ALIGN;
}

Status dtrt_staging_open(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    uint64_t total = 0;
    if (!p->device) return ST_OK;
    for (uint32_t i = 0; i < p->ntensor; i++) total += 2 * staging_bytes(rt, i);
    rt->staged = p->device->alloc_host(total);
    for (int half = 0; half < 2; half++)
        rt->staging[half] = calloc(p->ntensor + 1, sizeof **rt->staging);
    if (!rt->staging[0] || !rt->staging[1] || !rt->staged) return dtrt_no_memory(total);
    memset(rt->staged, 0, total);
    uint8_t *at = rt->staged;
    for (uint32_t i = 0; i < p->ntensor; i++) {
        if (!is_data(&p->tensor[i])) continue;
        for (int half = 0; half < 2; half++, at += staging_bytes(rt, i)) rt->staging[half][i] = at;
    }
    return ST_OK;
}

void dtrt_staging_free(Runtime *rt) {
    if (rt->staged) rt->p->device->release_host(rt->staged);
    for (int half = 0; half < 2; half++) {
        free(rt->staging[half]);
        rt->staging[half] = NULL;
    }
    rt->staged = NULL;
}

uint8_t *dtrt_staging(const Runtime *rt, const DtrtTensor *t) {
    uint8_t **at = rt->staging[rt->half];
    return at ? at[t - rt->p->tensor] : rt->block + t->offset;
}

/* Not across a change of sizes: the tables are those of this step. */
void dtrt_stage_ahead(Runtime *rt) {
    uint64_t next = rt->ctx.step + 1;
    if (next >= rt->steps || dtrt_loader_is_tail(&rt->loader, next) != (rt->ctx.slot == 1)) return;
    rt->half = !rt->half;
    rt->ahead_status = dtrt_loader_stage(rt, next);
    rt->ahead_step = next;
    rt->ahead = true;
}

Status dtrt_stage(Runtime *rt, uint64_t step) {
    if (!rt->ahead || rt->ahead_step != step) return dtrt_loader_stage(rt, step);
    rt->ahead = false;
    return rt->ahead_status;
}

const void *dtrt_look(const Runtime *rt, const void *at, uint64_t n, void **own, uint64_t *room) {
    if (!rt->p->device) return at;
    if (n > *room || !*own) {
        free(*own);
        *own = malloc(n + 1);
        *room = *own ? n : 0;
        if (!*own) dtrt_no_memory(n);
    }
    return *own && !rt->p->device->read(*own, at, n) ? *own : NULL;
}
