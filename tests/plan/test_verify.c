/* The verifier must object to a valid plan that was damaged, each invariant in turn. */
#include "graphs.h"
#include "test.h"

static Arena *a;
static Diag d;
static const Graph *g;
static const Cost *c;
static Plan good;

static Plan *copy(void) {
    Plan *p = ARENA_NEW(a, Plan);
    *p = good;
    p->step = ARENA_ARRAY(a, PlanStep, good.nstep + 2);
    for (uint32_t i = 0; i < good.nstep; i++) {
        p->step[i] = good.step[i];
        if (p->step[i].kind != STEP_RUN) continue;
        uint32_t n = g->node[p->step[i].id].nout;
        p->step[i].out = ARENA_ARRAY(a, PlanOut, n);
        if (n) memcpy(p->step[i].out, good.step[i].out, n * sizeof(PlanOut));
    }
    return p;
}

static void erase(Plan *p, uint32_t i) {
    memmove(p->step + i, p->step + i + 1, (p->nstep - i - 1) * sizeof *p->step);
    p->nstep--;
}

static void append(Plan *p, PlanStep s) {
    p->step[p->nstep++] = s;
}

static bool objects(const Plan *p, const char *invariant) {
    d.log.n = 0;
    if (d.log.at) d.log.at[0] = 0;
    if (plan_verify(&d, g, c, p)) return false;
    return !invariant || strstr(d.log.at, invariant);
}

static uint32_t find_run(NodeClass cls, bool again) {
    for (uint32_t i = 0; i < good.nstep; i++) {
        if (good.step[i].kind != STEP_RUN || op_node_class(&g->node[good.step[i].id]) != cls)
            continue;
        bool seen = false;
        for (uint32_t k = 0; k < i; k++)
            seen |= good.step[k].kind == STEP_RUN && good.step[k].id == good.step[i].id;
        if (seen == again) return i;
    }
    return NO_ID;
}

static void headers(void) {
    Plan *p = copy();
    CHECK(plan_verify(&d, g, c, p));
    p->budget = p->persistent_bytes + p->arena_bytes - 1;
    CHECK(objects(p, "P4"));
    p = copy();
    p->arena_bytes -= PLAN_ALIGN;
    CHECK(objects(p, "P4"));
    p = copy();
    p->arena_bytes += PLAN_ALIGN;
    CHECK(objects(p, "arena_bytes"));
    p = copy();
    p->cost_ns--;
    CHECK(objects(p, "cost"));
    p = copy();
    p->recomputed_runs++;
    CHECK(objects(p, "recomputed"));
    p = copy();
    p->byte_peak--;
    CHECK(objects(p, "byte_peak"));
    p = copy();
    p->persistent_bytes = 0;
    CHECK(objects(p, "persistent"));
}

static void every_step(void) {
    for (uint32_t i = 0; i < good.nstep; i++) { /* no run is superfluous, if only to the totals */
        Plan *p = copy();
        if (p->step[i].kind != STEP_RUN) continue;
        erase(p, i);
        CHECK(objects(p, NULL));
    }
    for (uint32_t i = 0; i < good.nstep; i++) {
        if (good.step[i].kind != STEP_RUN) continue;
        for (uint32_t k = 0; k < g->node[good.step[i].id].nout; k++) {
            if (good.step[i].out[k].place == PLACE_NONE) continue;
            Plan *p = copy();
            p->step[i].out[k].offset += 8;
            CHECK(objects(p, NULL));
            p = copy();
            p->step[i].out[k].offset = UINT64_MAX - 255; /* wraps */
            CHECK(objects(p, NULL));
            p = copy();
            p->step[i].out[k].place = PLACE_NONE;
            CHECK(objects(p, "P"));
        }
    }
}

static void runs(void) {
    uint32_t effect = find_run(CLS_EFFECT, false), again = find_run(CLS_PURE, true);
    CHECK(effect != NO_ID && again != NO_ID);
    Plan *p = copy();
    append(p, good.step[effect]);
    CHECK(objects(p, "P1"));
    p = copy(); /* a reader of the weight, moved behind its update */
    for (uint32_t i = 0; i < good.nstep; i++) {
        if (good.step[i].kind != STEP_RUN || g->node[good.step[i].id].nin < 2) continue;
        if (g->node[good.step[i].id].in[1] != g->node[good.step[effect].id].in[0]) continue;
        append(p, good.step[i]);
        break;
    }
    CHECK(p->nstep == good.nstep + 1 && objects(p, "P"));
    p = copy();
    p->step[0].id = g->nnode;
    CHECK(objects(p, "no such node"));
    p = copy();
    append(p, (PlanStep){.kind = STEP_DROP, .id = g->nstorage, .inplace = NO_ID});
    CHECK(objects(p, "not in the arena"));
    p = copy();
    append(p,
           (PlanStep){.kind = STEP_DROP, .id = g->value[g->output[0]].storage, .inplace = NO_ID});
    CHECK(objects(p, "P6"));
}

/* Step i works in place of whatever is resident although its operator does not allow that. */
static void in_place(void) {
    uint32_t tried = 0;
    for (uint32_t i = 1; i < good.nstep; i++) {
        if (good.step[i].kind != STEP_RUN || good.step[i].inplace != NO_ID) continue;
        const Node *n = &g->node[good.step[i].id];
        if (n->op != OP_Opaque || !n->nout || n->in[0] == NO_ID) continue;
        Plan *p = copy();
        p->step[i].inplace = g->value[n->in[0]].storage;
        CHECK(objects(p, "P5"));
        tried++;
    }
    CHECK(tried > 3);
}

/* y = f(x, w); z = Opaque(y); update w; again f: only the order is wrong. */
static void stale_weight(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 64), w = source(&m, ROLE_PARAM, "w", 64), in[] = {x, w};
    ValueId y = node(&m, OP_Opaque, PHASE_FORWARD, 10, 64, 2, in, 1);
    ValueId dw = node(&m, OP_Opaque, PHASE_BACKWARD, 10, 64, 1, &y, 1);
    update(&m, w, dw);
    output(&m, y);
    const Graph *h = m.g;
    Cost *k = cost_opaque(a, h);
    StorageId sy = h->value[y].storage, sd = h->value[dw].storage;
    PlanOut at0 = {0, PLACE_RESIDENT}, at256 = {256, PLACE_RESIDENT};
    PlanStep step[] = {{STEP_RUN, 0, NO_ID, &at0, 0},   {STEP_RUN, 1, NO_ID, &at256, 0},
                       {STEP_DROP, sy, NO_ID, NULL, 0}, {STEP_RUN, 2, NO_ID, NULL, 0},
                       {STEP_RUN, 0, NO_ID, &at0, 0},   {STEP_DROP, sd, NO_ID, NULL, 0}};
    Plan p = {.nstep = 6,
              .step = step,
              .placed = true,
              .budget = 1 << 20,
              .persistent_bytes = 512,
              .arena_bytes = 512,
              .byte_peak = 512,
              .cost_ns = 35,
              .base_ns = 25,
              .recomputed_runs = 1,
              .planner = "hand"};
    g = h, c = k;
    CHECK(objects(&p, "P3"));
    PlanStep t = step[3]; /* the update after the rerun: fine */
    step[3] = step[4];
    step[4] = t;
    CHECK(plan_verify(&d, h, k, &p));
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, NULL);
    g = chain_step(a, 12, 1024);
    c = cost_opaque(a, g);
    Plan *p = NULL;
    PlanOptions o = {.budget = plan_peak_without_budget(g, c, false) * 6 / 10, .planner = "dtr"};
    CHECK(plan_make(a, g, c, &o, &p) == PLAN_OK);
    if (p) {
        good = *p;
        headers();
        every_step();
        runs();
        in_place();
    }
    stale_weight();
    arena_free(a);
    return test_end();
}
