/* optim.c - parameter updates, many tensors a launch. Most parameters are small, and a launch costs
 * more than their update: those that the schedule has side by side are collected (step.c says from
 * where to where), and two launches serve them, the check of their gradients and the update. A
 * grid over tensors of different lengths, with the list in its arguments, is what PyTorch calls
 * multi-tensor apply; a list in memory would have to be copied there. */
#include "walk.h"

typedef enum { RULE_SGD, RULE_ADAM } Rule;

static struct {
    bool held, checked; /* `checked`: some gradient is looked at */
    int order;          /* of the next one */
    Rule rule;
    CuUpdates u;
} pending;

static void launch_pending(void) {
    CuUpdates *u = &pending.u;
    int64_t blocks = u->chunks < CU_MAX_BLOCKS ? u->chunks : CU_MAX_BLOCKS;
    if (pending.checked) CU_LAUNCH(update_check, blocks, 256, u);
    if (pending.rule == RULE_SGD)
        CU_LAUNCH(update_sgd, blocks, 256, u);
    else
        CU_LAUNCH(update_adam, blocks, 256, u);
    u->count = u->chunks = 0;
    pending.checked = false;
}

/* A tensor has at most 2^40 elements: its chunks fit. */
static void add(Rule rule, int decoupled, CuUpdate one) {
    CuUpdates *u = &pending.u;
    int64_t chunks = (one.n + CU_UPDATE_CHUNK - 1) / CU_UPDATE_CHUNK;
    bool fits = u->count < CU_UPDATES && chunks <= INT32_MAX - u->chunks;
    if (u->count && (!fits || rule != pending.rule || decoupled != u->decoupled)) launch_pending();
    one.first = u->chunks;
    one.order = pending.order;
    pending.checked |= one.order != 0;
    pending.rule = rule;
    u->decoupled = decoupled;
    u->at[u->count++] = one;
    u->chunks += (int)chunks;
    pending.order = 0;
    if (!pending.held) launch_pending();
}

void cu_updates_begin(void) {
    pending.held = true;
}

void cu_updates_order(int order) {
    pending.order = order;
}

void cu_updates_end(void) {
    pending.held = false;
    if (pending.u.count) launch_pending();
}

void dtrt_sgd(const DtrtCtx *c, float *w, const float *g, float *v, int64_t n) {
    (void)c;
    add(RULE_SGD, 0, (CuUpdate){.w = w, .g = g, .m = v, .n = n});
}

void dtrt_adam(const DtrtCtx *c, float *w, const float *g, float *m, float *v, int64_t n,
               int decoupled) {
    (void)c;
    add(RULE_ADAM, decoupled, (CuUpdate){.w = w, .g = g, .m = m, .v = v, .n = n});
}
