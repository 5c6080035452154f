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
        const DtrtRun *r = &rt->p->run[rt->running];
        fprintf(stderr, "step %llu, node %s (%s): ", (unsigned long long)c->step,
                dtrt_name_str(r->name), r->op);
    }
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    longjmp(rt->fail, 1);
}

/* 0xff in every byte is a NaN in f32 and f64, -1 in integers, and not 0 or 1 in booleans. */
static void fill_nan(Runtime *rt, uint64_t offset, uint64_t bytes) {
    memset(rt->block + offset, 0xff, bytes);
}

/* An output that takes over an input's storage, or part of it, must not be filled. */
static bool overlaps_input(const DtrtProgram *p, const DtrtRun *r, uint64_t at, uint64_t bytes) {
    for (uint32_t i = r->first; i < r->first + r->nin; i++)
        if (p->addr[i] != DTRT_NOWHERE && p->addr[i] < at + bytes &&
            at < p->addr[i] + p->addr_bytes[i])
            return true;
    return false;
}

static void fill_operands(Runtime *rt, const DtrtRun *r) {
    const DtrtProgram *p = rt->p;
    for (uint32_t i = r->first + r->nin; i < r->first + r->count; i++)
        if (p->addr[i] != DTRT_NOWHERE && !overlaps_input(p, r, p->addr[i], p->addr_bytes[i]))
            fill_nan(rt, p->addr[i], p->addr_bytes[i]);
}

/* Update nodes: operand 1 is the gradient, in the layout of its parameter. */
static Status take_gradient(Runtime *rt, const DtrtRun *r, uint32_t step) {
    const DtrtProgram *p = rt->p;
    const DtrtTensor *t = &p->tensor[r->param];
    const float *g = rt->ptr[r->first + 1];
    if (!dtrt_all_finite(g, p->addr_bytes[r->first + 1] / sizeof *g)) {
        char what[160];
        snprintf(what, sizeof what, "the gradient of %s", dtrt_name_str(t->name));
        return dtrt_diagnose(rt, step, what);
    }
    if (!rt->on_grad) return ST_OK;
    const float *plain = dtrt_tensor_plain(p, t, g, rt->bounce);
    return plain ? rt->on_grad(rt, r->param, plain) : ST_MACHINE;
}

static void run_timed(Runtime *rt, const DtrtRun *r) {
    ProfileSlot *slot = &rt->profile[rt->running];
    uint64_t start = dtrt_now_ns();
    r->run(&rt->ctx, rt->ptr + r->first);
    uint64_t ns = dtrt_now_ns() - start;
    if (!slot->runs || ns < slot->min_ns) slot->min_ns = ns;
    slot->ns[slot->runs++ % PROFILE_SAMPLES] = ns;
}

static Status run_node(Runtime *rt, const DtrtRun *r, uint32_t step) {
    rt->running = (int32_t)(r - rt->p->run);
    if (r->param >= 0) {
        Status st = take_gradient(rt, r, step);
        if (st) return st;
    }
    if (rt->o.hard) fill_operands(rt, r);
    if (rt->profile)
        run_timed(rt, r);
    else
        r->run(&rt->ctx, rt->ptr + r->first);
    return ST_OK;
}

Status dtrt_step_run(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    rt->hits = rt->counted = 0;
    for (uint32_t i = 0; i < p->nstep; i++) {
        const DtrtStep *s = &p->step[i];
        if (s->run < 0) {
            if (rt->o.hard) fill_nan(rt, s->offset, s->bytes);
            continue;
        }
        Status st = run_node(rt, &p->run[s->run], i);
        if (st) return st;
        if (rt->o.accuracy && (int)i == p->logits_run) dtrt_metric_accuracy(rt);
        if (i != rt->loss_step) continue;
        rt->loss = *(const float *)(rt->block + p->loss_offset);
        if (!isfinite(rt->loss)) return dtrt_diagnose(rt, i + 1, "the loss");
    }
    rt->running = -1;
    return ST_OK;
}

/* The last step that writes at the loss's place makes the loss that stays until the end. */
static uint32_t find_loss_step(const DtrtProgram *p) {
    uint32_t at = UINT32_MAX;
    for (uint32_t i = 0; i < p->nstep; i++) {
        if (p->step[i].run < 0) continue;
        const DtrtRun *r = &p->run[p->step[i].run];
        for (uint32_t k = r->first + r->nin; k < r->first + r->nin + r->nout; k++)
            if (p->addr[k] == p->loss_offset) at = i;
    }
    return at;
}

Status dtrt_step_open(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    rt->running = -1;
    rt->loss_step = find_loss_step(p);
    rt->ptr = calloc(p->naddr + 1, sizeof *rt->ptr);
    if (!rt->ptr) return dtrt_no_memory(p->naddr * sizeof *rt->ptr);
    for (uint32_t i = 0; i < p->naddr; i++)
        if (p->addr[i] != DTRT_NOWHERE) rt->ptr[i] = rt->block + p->addr[i];
    if (rt->loss_step == UINT32_MAX) {
        dtrt_error("the program's tables name no node that makes the loss");
        return ST_DATA;
    }
    if (rt->o.hard) fill_nan(rt, p->persistent_bytes, p->arena_bytes);
    if (!rt->o.profile) return ST_OK;
    rt->profile = calloc(p->nrun + 1, sizeof *rt->profile);
    return rt->profile ? ST_OK : dtrt_no_memory(p->nrun * sizeof *rt->profile);
}

void dtrt_step_free(Runtime *rt) {
    free(rt->ptr);
    free(rt->profile);
    free(rt->bounce);
}
