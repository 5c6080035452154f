/* place.c - new offsets for a plan whose steps stand: residencies, scratch and workspace become
 * blocks over step numbers, and layout packs them. An in-place output continues the block of its
 * operand. */
#include "strategy.h"

#include "layout.h"

#include <assert.h>

typedef struct {
    LayBlock *block;
    uint32_t n;
    uint32_t *of_storage; /* open block */
} Blocks;

static uint32_t open_block(Blocks *b, uint32_t step, uint32_t end, uint64_t bytes) {
    b->block[b->n] = (LayBlock){step, end, bytes, 0};
    return b->n++;
}

static StorageId out_storage(const Graph *g, const PlanStep *st, uint32_t k) {
    return g->value[g->node[st->id].out[k]].storage;
}

/* Numbers the blocks in the order of their begin; out_block and work_block say where each offset
 * is. */
static void fill_blocks(Blocks *b, const Problem *p, const Plan *plan, uint32_t *out_block,
                        uint32_t *work_block) {
    const Graph *g = p->g;
    uint32_t o = 0;
    for (uint32_t i = 0; i < plan->nstep; i++) {
        const PlanStep *st = &plan->step[i];
        if (st->kind == STEP_DROP) {
            b->block[b->of_storage[st->id]].end = i;
            continue;
        }
        for (uint32_t k = 0; k < g->node[st->id].nout; k++, o++) {
            if (st->out[k].place == PLACE_NONE) continue;
            StorageId s = out_storage(g, st, k);
            if (k == 0 && st->inplace != NO_ID)
                out_block[o] = b->of_storage[st->inplace];
            else if (st->out[k].place == PLACE_SCRATCH)
                out_block[o] = open_block(b, i, i + 1, p->bytes[s]);
            else
                out_block[o] = open_block(b, i, plan->nstep, p->bytes[s]);
            if (st->out[k].place == PLACE_RESIDENT) b->of_storage[s] = out_block[o];
        }
        uint64_t ws = p->c->node_workspace[st->id];
        if (ws) work_block[i] = open_block(b, i, i + 1, round_up(ws, PLAN_ALIGN));
    }
}

Plan *plan_pack(const Problem *p, Plan *plan, uint64_t budget) {
    uint64_t capacity = plan_capacity(p, budget);
    plan->budget = budget;
    plan->placed = true;
    plan->arena_bytes = UINT64_MAX;
    plan_fill_totals(p->g, p->c, plan);
    if (plan->byte_peak > capacity) return NULL;
    plan_repack(p, plan, capacity, -1);
    return plan->arena_bytes <= capacity ? plan : NULL;
}

bool plan_repack(const Problem *p, Plan *plan, uint64_t target, int effort) {
    if (!plan->placed) return false;
    const Graph *g = p->g;
    Arena *a = arena_new();
    uint32_t nout = 0, o = 0;
    for (uint32_t i = 0; i < plan->nstep; i++)
        if (plan->step[i].kind == STEP_RUN) nout += g->node[plan->step[i].id].nout;
    Blocks b = {ARENA_ARRAY(a, LayBlock, (uint64_t)nout + plan->nstep), 0,
                ARENA_ARRAY(a, uint32_t, p->nstorage)};
    uint32_t *out_block = ARENA_ARRAY(a, uint32_t, nout);
    uint32_t *work_block = ARENA_ARRAY(a, uint32_t, plan->nstep);
    fill_blocks(&b, p, plan, out_block, work_block);
    uint64_t bytes = lay_pack(a, b.block, b.n, PLAN_ALIGN, target, effort);
    bool better = bytes < plan->arena_bytes;
    for (uint32_t i = 0; i < plan->nstep && better; i++) {
        PlanStep *st = &plan->step[i];
        if (st->kind == STEP_DROP) continue;
        for (uint32_t k = 0; k < g->node[st->id].nout; k++, o++)
            if (st->out[k].place != PLACE_NONE) st->out[k].offset = b.block[out_block[o]].offset;
        if (p->c->node_workspace[st->id]) st->workspace = b.block[work_block[i]].offset;
    }
    if (better) plan->arena_bytes = bytes;
    arena_free(a);
    return better;
}
