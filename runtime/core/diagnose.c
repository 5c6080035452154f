/* diagnose.c - where a non-finite loss or gradient came from. The step is run again from its start,
 * without the nodes that change persistent state, and the first node that turns finite inputs into
 * a non-finite output is named. Recomputation is deterministic, so the rerun sees the values of the
 * first run, but for weights that this step had updated already when a gradient was at fault.
 *
 * -inf out of finite numbers is normal in masked attention (a mask is filled with it), so that a
 * node which makes only -inf is named only when there is no better suspect. */
#include "core.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum { FINITE, MINUS_INF, PLUS_INF, NOT_A_NUMBER } Kind;

bool dtrt_all_finite(const float *x, uint64_t n) {
    int bad = 0;
#pragma omp parallel for reduction(| : bad) if (n > 65536)
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

/* The worst kind among n floats, and where it is. */
static Kind worst(const float *x, uint64_t n, uint64_t *at) {
    Kind kind = FINITE;
    if (dtrt_all_finite(x, n)) return FINITE;
    for (uint64_t i = 0; i < n; i++) {
        Kind k = isnan(x[i])    ? NOT_A_NUMBER
                 : !isinf(x[i]) ? FINITE
                 : x[i] > 0     ? PLUS_INF
                                : MINUS_INF;
        if (k <= kind) continue;
        kind = k;
        *at = i;
    }
    return kind;
}

/* Of n bytes in device memory. */
static Kind worst_at(const Runtime *rt, const void *at, uint64_t bytes, uint64_t *pos) {
    void *own = NULL;
    uint64_t room = 0;
    const float *x = dtrt_look(rt, at, bytes, &own, &room);
    Kind kind = x ? worst(x, bytes / sizeof *x, pos) : FINITE;
    free(own);
    return kind;
}

/* Of operands from .. to of a run. */
static Kind worst_operand(const Runtime *rt, const DtrtRun *r, uint32_t from, uint32_t to,
                          uint32_t *which, uint64_t *at) {
    const DtrtNode *n = &rt->p->node[r->node];
    Kind kind = FINITE;
    for (uint32_t i = from; i < to; i++) {
        const float *x = rt->ptr[r->first + i];
        int32_t storage = rt->p->operand[n->first + i];
        uint64_t pos = 0;
        if (!x || storage < 0 || rt->p->storage[storage].type != DTRT_F32) continue;
        Kind k = worst_at(rt, x, rt->p->storage[storage].bytes, &pos);
        if (k <= kind) continue;
        kind = k;
        *which = i - from;
        *at = pos;
    }
    return kind;
}

typedef struct {
    int32_t node;
    uint32_t output;
    uint64_t element;
    Kind kind;
} Suspect;

static Suspect find_suspect(Runtime *rt, uint32_t end) {
    Suspect s = {.node = -1};
    for (uint32_t i = 0; i < end; i++) {
        if (rt->s->step[i].run < 0) continue;
        const DtrtRun *r = &rt->s->run[rt->s->step[i].run];
        const DtrtNode *n = &rt->p->node[r->node];
        uint32_t which = 0;
        uint64_t at = 0;
        if (n->mutates) continue;
        Kind before = worst_operand(rt, r, 0, n->nin, &which, &at);
        rt->running = (int32_t)r->node;
        if (rt->p->device)
            rt->p->device->run(rt, r->node, rt->ptr + r->first);
        else
            n->run(&rt->ctx, rt->ptr + r->first);
        Kind after = worst_operand(rt, r, n->nin, n->nin + n->nout, &which, &at);
        if (after == FINITE || after <= before || (after != NOT_A_NUMBER && before != FINITE))
            continue;
        if (s.node < 0 || (s.kind == MINUS_INF && after != MINUS_INF))
            s = (Suspect){rt->running, which, at, after};
        if (s.kind != MINUS_INF) break;
    }
    return s;
}

/* Inputs, weights and statistics as they were when the step began. */
static bool report_persistent(const Runtime *rt) {
    for (uint32_t i = 0; i < rt->p->ntensor; i++) {
        const DtrtTensor *t = &rt->p->tensor[i];
        uint64_t at = 0;
        if (t->type != DTRT_F32 || t->role == DTRT_CONST || t->role == DTRT_STATE) continue;
        Kind k = worst_at(rt, rt->block + t->offset, t->bytes, &at);
        if (k == FINITE) continue;
        bool data = t->role == DTRT_INPUT || t->role == DTRT_TARGET;
        dtrt_error("the %s %s holds %s (element %" PRIu64 ") before any node runs",
                   data ? "data array" : "weight", dtrt_name_str(t->name),
                   k == NOT_A_NUMBER ? "a NaN" : "an infinity", at);
        return true;
    }
    return false;
}

Status dtrt_diagnose(Runtime *rt, uint32_t end, const char *what) {
    static const char *const kind[] = {"finite", "-inf", "inf", "NaN"};
    dtrt_error("training diverged at step %" PRIu64 ": %s is not finite (learning rate %g)",
               rt->ctx.step, what, (double)rt->ctx.lr);
    if (report_persistent(rt)) return ST_DIVERGED;
    Suspect s = find_suspect(rt, end);
    if (s.node >= 0) {
        const DtrtNode *n = &rt->p->node[s.node];
        dtrt_error("the first node to produce a non-finite value is %s (%s): %s in element %" PRIu64
                   " of output %u",
                   dtrt_name_str(n->name), n->op, kind[s.kind], s.element, s.output);
    }
    dtrt_hint("try a lower --lr");
    return ST_DIVERGED;
}
