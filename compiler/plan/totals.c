/* totals.c - the sums that a plan's header states, from its steps: time, reruns, evictions, byte
 * peak. */
#include "strategy.h"

static uint64_t size_of(const Plan *plan, uint64_t bytes) {
    return plan->placed ? round_up(bytes ? bytes : 1, PLAN_ALIGN) : bytes;
}

/* Bytes that a run adds for good (*kept) and while it runs (*extra). */
static void run_bytes(const Graph *g, const Cost *c, const Plan *plan, const PlanStep *st,
                      uint64_t *kept, uint64_t *extra) {
    const Node *n = &g->node[st->id];
    *kept = 0;
    *extra = c->node_workspace[st->id] ? size_of(plan, c->node_workspace[st->id]) : 0;
    for (uint32_t k = 0; k < n->nout; k++) {
        if (st->out[k].place == PLACE_NONE || n->out[k] == NO_ID) continue;
        uint64_t bytes = size_of(plan, c->storage_bytes[g->value[n->out[k]].storage]);
        if (st->out[k].place == PLACE_RESIDENT)
            *kept += bytes;
        else
            *extra += bytes;
    }
    if (st->inplace != NO_ID) *kept -= size_of(plan, c->storage_bytes[st->inplace]);
}

static void fill_evictions(const Graph *g, Plan *plan, Arena *t) {
    Bits later = bits_new(t, g->nstorage);
    plan->evictions = 0;
    for (uint32_t i = plan->nstep; i-- > 0;) {
        const PlanStep *st = &plan->step[i];
        if (st->kind == STEP_DROP) {
            plan->evictions += bits_get(later, st->id);
            continue;
        }
        for (uint32_t k = 0; k < g->node[st->id].nout; k++)
            if (st->out[k].place == PLACE_RESIDENT)
                bits_set(later, g->value[g->node[st->id].out[k]].storage);
    }
}

void plan_fill_totals(const Graph *g, const Cost *c, Plan *plan) {
    Arena *t = arena_new();
    Bits ran = bits_new(t, g->nnode);
    uint64_t bytes = 0;
    plan->persistent_bytes = plan->byte_peak = plan->cost_ns = plan->base_ns =
        plan->recomputed_runs = 0;
    for (StorageId s = 0; s < g->nstorage; s++)
        if (g->storage[s].persistent)
            plan->persistent_bytes +=
                plan->placed ? round_up(c->storage_bytes[s], PLAN_ALIGN) : c->storage_bytes[s];
    for (NodeId n = 0; n < g->nnode; n++) plan->base_ns += c->node_ns[n];
    for (uint32_t i = 0; i < plan->nstep; i++) {
        const PlanStep *st = &plan->step[i];
        if (st->kind == STEP_DROP) {
            bytes -= size_of(plan, c->storage_bytes[st->id]);
            continue;
        }
        uint64_t kept, extra;
        run_bytes(g, c, plan, st, &kept, &extra);
        bytes += kept;
        if (bytes + extra > plan->byte_peak) plan->byte_peak = bytes + extra;
        plan->cost_ns += c->node_ns[st->id];
        plan->recomputed_runs += bits_get(ran, st->id);
        bits_set(ran, st->id);
    }
    fill_evictions(g, plan, t);
    arena_free(t);
}
