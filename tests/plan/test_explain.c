/* Facts about plans: one worked out by hand, and sums that must agree with the plan's header on
 * random steps. */
#include "explain.h"
#include "graphs.h"
#include "test.h"

static Arena *a;
static Diag d;

static Plan *make(const Graph *g, const Cost *c, uint64_t budget) {
    Plan *p = NULL;
    PlanOptions o = {.budget = budget, .planner = "dtr", .effort = 0};
    return plan_make(a, g, c, &o, &p) == PLAN_OK ? p : NULL;
}

/* a = f(x) 256 bytes, 7 ns; b = g(x) 512 bytes, 100 ns; t = h(b) 256, 100 ns; u = k(a, t) 256.
 * With 768 bytes of arena: f, g, drop a, h, drop b, f, k. a is away for h: 100 ns. The first run
 * with 768 bytes is g: a and b, beside x, 256 bytes. */
static void by_hand(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 64);
    ValueId va = node(&m, OP_Opaque, PHASE_FORWARD, 7, 64, 1, &x, 1);
    ValueId vb = node(&m, OP_Opaque, PHASE_FORWARD, 100, 128, 1, &x, 1);
    ValueId vt = node(&m, OP_Opaque, PHASE_FORWARD, 100, 64, 1, &vb, 1);
    ValueId in[] = {va, vt};
    output(&m, node(&m, OP_Opaque, PHASE_FORWARD, 100, 64, 2, in, 1));
    Cost *c = cost_opaque(a, m.g);
    Plan *p = make(m.g, c, 256 + 768);
    CHECK(p != NULL);
    if (!p) return;
    PlanFacts *f = plan_explain(a, m.g, c, p);
    CHECK_EQ(f->nrerun, 1);
    CHECK(f->rerun[0].node == 0 && f->rerun[0].again == 1 && f->rerun[0].ns == 7);
    CHECK_EQ(f->neviction, 1);
    const PlanEviction *e = &f->eviction[0];
    CHECK_EQ(e->storage, m.g->value[va].storage);
    CHECK(e->bytes == 256 && e->idle_ns == 100 && e->again_ns == 7 && e->node == 0);
    CHECK(p->step[e->gone].kind == STEP_DROP && p->step[e->back].kind == STEP_RUN);
    CHECK_EQ(p->step[e->back].id, 0);
    CHECK_EQ(f->rerun[0].first, e->back);
    CHECK_EQ(f->peak_bytes, 256 + 768);
    CHECK_EQ(p->step[f->peak_step].id, 1);
    CHECK_EQ(f->nresident, 3);
    CHECK_EQ(f->resident[0].storage, m.g->value[vb].storage);
    CHECK_EQ(f->resident[1].storage, m.g->value[x].storage);
    CHECK_EQ(f->resident[2].storage, m.g->value[va].storage);
    /* a twice; b from 7 on, for as long as g (100) and h (100) take. */
    CHECK_EQ(f->nstay, 5);
    CHECK(f->stay[0].storage == m.g->value[va].storage && !f->stay[0].again);
    CHECK(f->stay[0].from_ns == 0 && f->stay[0].to_ns == 107);
    CHECK(f->stay[1].from_ns == 7 && f->stay[1].to_ns == 207 && f->stay[1].bytes == 512);
    CHECK(f->stay[3].storage == m.g->value[va].storage && f->stay[3].again);
    CHECK(f->stay[3].from_ns == 207 && f->stay[3].from == e->back);
    CHECK(f->stay[4].to == p->nstep && f->stay[4].to_ns == p->cost_ns); /* an output */
}

/* At every run, bytes of the stays that span it: never more than the peak, as many at the peak. No
 * two of them overlap in the arena. */
static void stays(const Plan *p, const PlanFacts *f) {
    for (uint32_t i = 0; i < p->nstep; i++) {
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < f->nstay; k++) {
            const PlanStay *x = &f->stay[k];
            if (x->from > i || x->to <= i) continue;
            bytes += x->bytes;
            for (uint32_t j = 0; j < k; j++) {
                const PlanStay *y = &f->stay[j];
                if (y->from > i || y->to <= i) continue;
                CHECK(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
            }
        }
        CHECK(bytes <= p->byte_peak);
        CHECK(i != f->peak_step || bytes == p->byte_peak);
    }
}

/* Nothing is dropped: no facts but the peak. */
static void nothing_dropped(void) {
    Graph *g = chain_step(a, 6, 1000);
    Cost *c = cost_opaque(a, g);
    Plan *p = make(g, c, plan_peak_without_budget(g, c, false));
    CHECK(p != NULL);
    if (!p) return;
    PlanFacts *f = plan_explain(a, g, c, p);
    CHECK_EQ(f->nrerun, p->recomputed_runs);
    CHECK_EQ(f->peak_bytes, p->persistent_bytes + p->byte_peak);
}

static void sums(const Graph *g, const Cost *c, const Plan *p) {
    PlanFacts *f = plan_explain(a, g, c, p);
    uint64_t again = 0, ns = 0, bytes = 0;
    for (uint32_t i = 0; i < f->nrerun; i++) {
        again += f->rerun[i].again;
        ns += f->rerun[i].ns;
        CHECK(f->rerun[i].first <= f->rerun[i].last);
    }
    for (uint32_t i = 0; i < f->nresident; i++) {
        bytes += f->resident[i].bytes;
        CHECK(!i || f->resident[i].bytes <= f->resident[i - 1].bytes);
    }
    for (uint32_t i = 0; i < f->neviction; i++) {
        const PlanEviction *e = &f->eviction[i];
        CHECK(e->gone < e->back && p->step[e->back].kind == STEP_RUN);
    }
    CHECK_EQ(again, p->recomputed_runs);
    CHECK_EQ(ns, p->cost_ns - p->base_ns);
    CHECK(f->neviction >= p->evictions); /* operands that an output takes over go too */
    CHECK_EQ(f->peak_bytes, p->persistent_bytes + p->byte_peak);
    CHECK_EQ(bytes, f->peak_bytes);
    stays(p, f);
}

static void random_steps(void) {
    for (uint32_t seed = 1; seed <= 60; seed++) {
        Graph *g = random_step(a, seed, 20 + seed);
        Cost *c = cost_opaque(a, g);
        uint64_t floor = plan_floor(g, c, false), peak = plan_peak_without_budget(g, c, false);
        for (uint64_t k = 1; k <= 4; k++) {
            Plan *p = make(g, c, floor + (peak - floor) * k / 4);
            if (p) sums(g, c, p);
        }
    }
}

int main(void) {
    a = arena_new();
    diag_init(&d, a, NULL);
    by_hand();
    nothing_dropped();
    random_steps();
    arena_free(a);
    return test_end();
}
