/* step.c - one training step: walks the program's list of runs and drops. Nothing is allocated here
 * and nothing is decided: which node runs when, and where its operands lie, is in the tables.
 *
 * What is watched on the way: the loss, right after the node that makes it, and each gradient,
 * right before the update that uses it, must be finite, so that a diverged run ends before it
 * spoils the weights. In hard mode every range is filled with NaN when its tensor dies and before a
 * node writes it: a program that reads memory nobody wrote in this step then shows it. */
#include "core.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void dtrt_fail(DtrtCtx *c, const char *fmt, ...) {
    Runtime *rt = c->user;
    va_list ap;
    dtrt_end_line();
    fputs("error: ", stderr);
    if (rt->running >= 0) {
        const DtrtNode *n = &rt->p->node[rt->running];
        fprintf(stderr, "step %llu, node %s (%s): ", (unsigned long long)c->step,
                dtrt_name_str(n->name), n->op);
    }
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    rt->failed = ST_DATA;
    longjmp(rt->fail, 1);
}

/* 0xff in every byte is a NaN in f32 and f64, -1 in integers, and not 0 or 1 in booleans. */
static void fill_nan(const Runtime *rt, uint64_t offset, uint64_t bytes) {
    memset(rt->block + offset, 0xff, bytes);
}

uint64_t dtrt_operand_bytes(const DtrtProgram *p, const DtrtNode *n, uint32_t i) {
    if (i == n->nin + n->nout) return n->workspace;
    int32_t storage = p->operand[n->first + i];
    return storage < 0 ? 0 : p->storage[storage].bytes;
}

/* An output that takes over an input's storage, or part of it, must not be filled. */
static bool overlaps_input(const DtrtProgram *p, const DtrtNode *n, const uint64_t *addr,
                           uint64_t at, uint64_t bytes) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (addr[i] != DTRT_NOWHERE && addr[i] < at + bytes &&
            at < addr[i] + dtrt_operand_bytes(p, n, i))
            return true;
    return false;
}

void dtrt_hard_fill(const Runtime *rt, const DtrtNode *n, const uint64_t *addr, DtrtFill *fill) {
    for (uint32_t i = n->nin; i <= n->nin + n->nout; i++) {
        uint64_t bytes = dtrt_operand_bytes(rt->p, n, i);
        if (addr[i] != DTRT_NOWHERE && !overlaps_input(rt->p, n, addr, addr[i], bytes))
            fill(rt, addr[i], bytes);
    }
}

Status dtrt_gradient_out(Runtime *rt, const DtrtNode *n, const void *at) {
    if (!rt->on_grad) return ST_OK;
    const float *plain = dtrt_tensor_plain(rt, &rt->p->tensor[n->param], at, rt->bounce);
    return plain ? rt->on_grad(rt, n->param, plain) : ST_MACHINE;
}

/* Update nodes: input 1 is the gradient, in the layout of its parameter. */
static Status take_gradient(Runtime *rt, const DtrtNode *n, void *const *ptr, uint32_t step) {
    const DtrtProgram *p = rt->p;
    const DtrtTensor *t = &p->tensor[n->param];
    const float *g = ptr[1];
    if (!dtrt_all_finite(g, dtrt_operand_bytes(p, n, 1) / sizeof *g)) {
        char what[160];
        snprintf(what, sizeof what, "the gradient of %s", dtrt_name_str(t->name));
        return dtrt_diagnose(rt, step, what);
    }
    return dtrt_gradient_out(rt, n, g);
}

static void run_timed(Runtime *rt, const DtrtNode *n, void *const *ptr) {
    ProfileSlot *slot = &rt->profile[rt->running];
    uint64_t start = dtrt_now_ns();
    n->run(&rt->ctx, ptr);
    uint64_t ns = dtrt_now_ns() - start;
    if (!slot->runs || ns < slot->min_ns) slot->min_ns = ns;
    slot->ns[slot->runs++ % PROFILE_SAMPLES] = ns;
}

static Status run_node(Runtime *rt, const DtrtRun *r, uint32_t step) {
    const DtrtNode *n = &rt->p->node[r->node];
    void *const *ptr = rt->ptr + r->first;
    rt->running = (int32_t)r->node;
    if (n->param >= 0) {
        Status st = take_gradient(rt, n, ptr, step);
        if (st) return st;
    }
    if (rt->o.hard) dtrt_hard_fill(rt, n, rt->s->addr + r->first, fill_nan);
    if (rt->profile && !rt->ctx.slot) /* of the batch: partial ones differ */
        run_timed(rt, n, ptr);
    else
        n->run(&rt->ctx, ptr);
    return ST_OK;
}

Status dtrt_step_run(Runtime *rt) {
    const DtrtSchedule *s = rt->s;
    rt->hits = rt->counted = 0;
    if (rt->p->device) return rt->p->device->step(rt);
    for (uint32_t i = 0; i < s->nstep; i++) {
        const DtrtStep *now = &s->step[i];
        if (now->run < 0) {
            if (rt->o.hard) fill_nan(rt, now->offset, rt->p->storage[now->storage].bytes);
            continue;
        }
        Status st = run_node(rt, &s->run[now->run], i);
        if (st) return st;
        if (rt->o.accuracy && i == rt->logits_step) dtrt_metric_accuracy(rt);
        if (i != rt->loss_step) continue;
        rt->loss = *rt->loss_at;
        if (!isfinite(rt->loss)) return dtrt_diagnose(rt, i + 1, "the loss");
    }
    rt->running = -1;
    return ST_OK;
}

/* The first or the last step after which a storage is there, and the address that it then has. NULL
 * when no node makes it. */
static const float *find_made(const Runtime *rt, int32_t storage, bool last, uint32_t *step) {
    const DtrtSchedule *s = rt->s;
    const float *at = NULL;
    for (uint32_t i = 0; i < s->nstep && (last || !at); i++) {
        if (s->step[i].run < 0) continue;
        const DtrtRun *r = &s->run[s->step[i].run];
        const DtrtNode *n = &rt->p->node[r->node];
        for (uint32_t k = n->nin; k < n->nin + n->nout; k++) {
            if (rt->p->operand[n->first + k] != storage || !rt->ptr[r->first + k]) continue;
            at = rt->ptr[r->first + k];
            *step = i;
        }
    }
    return at;
}

void dtrt_step_use(Runtime *rt, int slot) {
    if (slot == rt->ctx.slot) return;
    rt->stage[rt->ctx.slot] =
        (Stage){rt->p, rt->s, rt->ptr, rt->loss_step, rt->logits_step, rt->loss_at, rt->logits_at};
    const Stage *now = &rt->stage[slot];
    rt->p = now->p, rt->s = now->s, rt->ptr = now->ptr;
    rt->loss_step = now->loss_step, rt->loss_at = now->loss_at;
    rt->logits_step = now->logits_step, rt->logits_at = now->logits_at;
    rt->ctx.slot = slot;
    rt->ctx.dim = rt->size[slot].dim;
}

Status dtrt_step_open(Runtime *rt) {
    const DtrtSchedule *s = rt->s;
    rt->running = -1;
    rt->ptr = calloc(s->naddr + 1, sizeof *rt->ptr);
    if (!rt->ptr) return dtrt_no_memory(s->naddr * sizeof *rt->ptr);
    for (uint32_t i = 0; i < s->naddr; i++)
        if (s->addr[i] != DTRT_NOWHERE) rt->ptr[i] = rt->block + s->addr[i];
    rt->loss_at = find_made(rt, rt->p->loss_storage, true, &rt->loss_step);
    if (!rt->loss_at) {
        dtrt_error("the program's tables name no node that makes the loss");
        return ST_DATA;
    }
    rt->logits_step = UINT32_MAX;
    if (rt->p->logits_storage >= 0)
        rt->logits_at = find_made(rt, rt->p->logits_storage, false, &rt->logits_step);
    if (rt->o.hard && !rt->p->device) fill_nan(rt, rt->p->persistent_bytes, s->arena_bytes);
    if (!rt->o.profile || rt->profile) return ST_OK;
    rt->profile = calloc(rt->p->nnode + 1, sizeof *rt->profile);
    return rt->profile ? ST_OK : dtrt_no_memory(rt->p->nnode * sizeof *rt->profile);
}

void dtrt_step_free(Runtime *rt) {
    free(rt->ptr);
    free(rt->stage[!rt->ctx.slot].ptr);
    free(rt->profile);
    free(rt->bounce);
}
