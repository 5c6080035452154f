/* test_ilp.c - strategy ilp against the cheapest schedule of tiny graphs, found by exhaustive
 * search, and against figures known from elsewhere; the door to GLPK under errors, memory and time
 * limits; reduction and rounding of programs. */
#include "exhaustive.h"
#include "graphs.h"
#include "test.h"

#include "mip.h"

#include <time.h>

static Arena *a;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- programs ---- */

static MipOptions options(void) {
    return (MipOptions){.seconds = 20, .cutoff = INFINITY, .memory_mib = 256, .cuts = true};
}

/* Most value of things of 20, 30, 10 KiB worth 5, 4, 3 in 50 KiB: the first two, 9, against 8 for
 * the first and last. */
static Mip *three_things(uint32_t *c) {
    static const double worth[] = {5, 4, 3}, bytes[] = {20480, 30720, 10240};
    Mip *m = mip_new(a);
    for (uint32_t i = 0; i < 3; i++) c[i] = mip_column(m, -worth[i], 1, true, (MipName){'x', 1, i});
    for (uint32_t i = 0; i < 3; i++) mip_add(m, c[i], bytes[i]);
    mip_knapsack(m, 51200, 2);
    return m;
}

static void solves(void) {
    uint32_t c[3];
    Mip *m = three_things(c);
    MipOptions o = options();
    MipResult r;
    mip_solve(a, m, &o, &r);
    CHECK(r.status == MIP_OPTIMAL && r.has_value);
    CHECK_NEAR(r.objective, -9, 1e-9);
    CHECK_NEAR(r.bound, -9, 1e-6);
    CHECK(r.value[c[0]] > 0.5 && r.value[c[1]] > 0.5 && r.value[c[2]] < 0.5);
    CHECK_NEAR(m->term.at[0].coef, 2, 0); /* divided by 10 KiB */
    CHECK_NEAR(m->row.at[0].rhs, 5, 0);
    o.cutoff = -9.5;
    mip_solve(a, m, &o, &r);
    CHECK(r.status == MIP_INFEASIBLE && !r.has_value);
    o = options();
    mip_add(m, c[0], -1); /* x0 + x1 <= 1 through the other side */
    mip_add(m, c[1], -1);
    mip_row(m, MIP_LEAST, -1, 1);
    mip_solve(a, m, &o, &r);
    CHECK_NEAR(r.objective, -8, 1e-9);
    mip_add(m, c[1], 1); /* a row of one column is a bound */
    mip_row(m, MIP_LEAST, 1, 1);
    CHECK_NEAR(m->column.at[c[1]].low, 1, 0);
    mip_solve(a, m, &o, &r);
    CHECK_NEAR(r.objective, -7, 1e-9);
    mip_add(m, MIP_ONE, 3); /* 3 + x2 <= 2 */
    mip_add(m, c[2], 1);
    mip_row(m, MIP_MOST, 2, 1);
    CHECK(m->impossible);
    mip_solve(a, m, &o, &r);
    CHECK(r.status == MIP_INFEASIBLE);
}

/* 64 and 96 KiB, and 1 byte that spoils the common divisor, in 200 KiB: by 32 KiB, 2 x + 3 y <= 6
 * holds, too, which cuts x = y = 1 with z = 1.25 KiB of nothing. */
static void rounds_knapsacks(void) {
    Mip *m = mip_new(a);
    uint32_t x = mip_column(m, -1, 1, true, (MipName){'x', 0, 0});
    uint32_t y = mip_column(m, -1, 1, true, (MipName){'y', 0, 0});
    uint32_t z = mip_column(m, -1, 1, true, (MipName){'z', 0, 0});
    uint32_t w = mip_column(m, -1, 1, true, (MipName){'w', 0, 0});
    mip_add(m, x, 65536);
    mip_add(m, y, 98304);
    mip_add(m, w, 98304);
    mip_add(m, z, 1);
    mip_knapsack(m, 204800, 2);
    CHECK(m->row.n >= 2 && m->row.at[0].links && m->row.at[1].links);
    bool found = false;
    for (uint32_t i = 1; i < m->row.n; i++)
        found |= fabs(m->row.at[i].rhs - 6) < 1e-12 && m->term.at[m->row.at[i].first].coef == 2;
    CHECK(found);
}

/* Twenty times the same choice: one of two columns at 1 for 3 or 5 units of room. Ten may take 3:
 * 10 x 4 + 10 x 1. Without an order of the twenty, that is 184756 equal solutions. */
static void orders_components(void) {
    Mip *m = mip_new(a);
    uint32_t p[20], r[20];
    for (uint32_t i = 0; i < 20; i++) {
        p[i] = mip_column(m, 0, 1, true, (MipName){'p', 0, i});
        r[i] = mip_column(m, 4.25, 1, true, (MipName){'r', 0, i});
        mip_add(m, p[i], 1);
        mip_add(m, r[i], 1);
        mip_row(m, MIP_LEAST, 1, 4);
    }
    for (uint32_t i = 0; i < 20; i++) mip_add(m, p[i], 3);
    mip_knapsack(m, 31, 2);
    MipOptions o = options();
    o.cutoff = 42.4; /* ten at 4.25 are 42.5 */
    MipResult q;
    mip_solve(a, m, &o, &q);
    CHECK(q.status == MIP_INFEASIBLE);
    o.cutoff = INFINITY;
    mip_solve(a, m, &o, &q);
    CHECK(q.status == MIP_OPTIMAL);
    CHECK_NEAR(q.objective, 42.5, 1e-6);
}

/* A program that GLPK cannot finish at once: a market split (Cornuejols and Dawande, 1998): 0-1
 * sums that must hit the half of their row. */
static Mip *market_split(uint32_t rows, uint32_t columns) {
    Mip *m = mip_new(a);
    for (uint32_t c = 0; c < columns; c++) mip_column(m, 0, 1, true, (MipName){'x', 0, c});
    test_random_state = 7;
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t over = mip_column(m, 1, 1e6, false, (MipName){'s', r, 0}),
                 under = mip_column(m, 1, 1e6, false, (MipName){'t', r, 0});
        double sum = 0;
        for (int side = 0; side < 2; side++) {
            uint64_t state = test_random_state;
            sum = 0;
            for (uint32_t c = 0; c < columns; c++) {
                double d = (double)(test_random() >> 33) / (1 << 24);
                sum += d;
                mip_add(m, c, d);
            }
            if (!side) test_random_state = state;
            mip_add(m, over, 1);
            mip_add(m, under, -1);
            mip_row(m, side ? MIP_LEAST : MIP_MOST, sum / 2, 1);
        }
    }
    return m;
}

static void keeps_errors_in(void) {
    uint32_t c[3];
    Mip *m = three_things(c);
    MipOptions o = options();
    MipResult r;
    o.fail_for_tests = true;
    for (int i = 0; i < 3; i++) {
        mip_solve(a, m, &o, &r);
        CHECK(r.status == MIP_BROKEN && !r.has_value);
        CHECK(strstr(r.message, "out of range") != NULL);
    }
    o = options();
    mip_solve(a, m, &o, &r);
    CHECK(r.status == MIP_OPTIMAL);
    Mip *large = market_split(40, 600);
    o.memory_mib = 1;
    mip_solve(a, large, &o, &r);
    CHECK(r.status == MIP_BROKEN);
    CHECK(strstr(r.message, "memory") != NULL);
    o = options();
    mip_solve(a, m, &o, &r);
    CHECK(r.status == MIP_OPTIMAL);
}

static void keeps_time(void) {
    Mip *m = market_split(6, 60);
    MipOptions o = options();
    MipResult r;
    o.seconds = 0.3;
    double t = now();
    mip_solve(a, m, &o, &r);
    CHECK(now() - t < 3);
    CHECK(r.status == MIP_LIMIT);
    CHECK(r.bound >= -1e-6); /* the linear relaxation is 0 */
}

/* ---- plans ---- */

static uint32_t optimal, compared;

static void check_tiny(const Graph *g, const Cost *c, uint64_t budget) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, true);
    int best = exhaustive(t, p, budget - p->persistent_bytes, 300);
    PlanOptions o = {
        .budget = budget, .planner = "ilp", .effort = 1, .bytes_only = true, .keep_order = true};
    Plan *plan;
    PlanStatus st = plan_make(t, g, c, &o, &plan); /* verifies what it returns */
    CHECK(best != EXHAUSTIVE_NONE || st == PLAN_INFEASIBLE);
    if (st == PLAN_OK && best != EXHAUSTIVE_NONE) {
        const PlanProof *x = plan->proof;
        double base = (double)plan->base_ns, least = best / base;
        CHECK(plan_overhead(plan) >= least - 1e-9);
        CHECK(x->bound <= least + 1e-6);
        CHECK(x->bound >= plan_bound(g, c, budget, true).overhead - 1e-6);
        if (!strcmp(x->status, "optimal")) CHECK_NEAR(plan_overhead(plan), least, 1e-6);
        optimal += !strcmp(x->status, "optimal") && best > 0;
        compared += best > 0;
    }
    arena_free(t);
}

static void against_exhaustive_search(void) {
    for (uint32_t seed = 1; seed <= 150; seed++) {
        Graph *g = tiny_step(a, seed);
        Cost *c = cost_opaque(a, g);
        uint64_t low = plan_floor(g, c, true), high = plan_peak_without_budget(g, c, true);
        int failed = test_failed;
        for (int k = 0; k < 3 && high > low; k++)
            check_tiny(g, c, low + (high - low) * (uint64_t)k / 3);
        if (test_failed > failed) {
            fprintf(stderr, "seed %u\n", seed);
            return;
        }
    }
    if (getenv("DTRC_TEST_VERBOSE")) fprintf(stderr, "%u of %u optimal\n", optimal, compared);
    CHECK(compared > 150 && 10 * optimal > 8 * compared);
}

/* 16 layers of one unit of time and memory, loss, 16 gradients: 33 nodes. A quarter of the way from
 * the floor (3 units) to the peak (17) is 6.5 units. The DTR heuristic takes 14 runs more, 42.4 %,
 * an optimal schedule 12, 36.4 %. */
static void unit_chain(void) {
    Maker m = maker_new(a, 1);
    ValueId f[16], last;
    for (uint32_t i = 0; i < 16; i++)
        f[i] = node(&m, OP_Opaque, PHASE_FORWARD, 1, 1, i > 0, i ? &f[i - 1] : NULL, 1);
    last = node(&m, OP_Opaque, PHASE_FORWARD, 1, 1, 1, &f[15], 1);
    for (uint32_t i = 16; i-- > 0;) {
        ValueId in[] = {last, i ? f[i - 1] : last};
        last = node(&m, OP_Opaque, PHASE_BACKWARD, 1, 1, i ? 2 : 1, in, 1);
    }
    Cost *c = cost_opaque(a, m.g);
    uint64_t low = plan_floor(m.g, c, true), high = plan_peak_without_budget(m.g, c, true);
    CHECK_EQ(low, 12);
    CHECK_EQ(high, 68);
    PlanOptions o = {.budget = low + (high - low) / 4, .planner = "ilp", .bytes_only = true};
    Plan *plan;
    CHECK_EQ(plan_make(a, m.g, c, &o, &plan), PLAN_OK);
    CHECK_STR(plan->proof->status, "optimal");
    CHECK_EQ(plan->cost_ns - plan->base_ns, 12);
    CHECK_NEAR(plan->proof->bound, 12.0 / 33, 1e-6);
}

static const char *json_of(Arena *t, const Graph *g, const Cost *c, const PlanOptions *o) {
    Plan *plan;
    if (plan_make(t, g, c, o, &plan) != PLAN_OK) return "infeasible";
    Text text;
    text_init(&text, t);
    plan_print_json(&text, g, c, plan, "");
    return text.at;
}

/* Random steps with addresses: verified by plan_make, never worse than static, the same twice. */
static void random_steps(void) {
    for (uint32_t seed = 1; seed <= 12; seed++) {
        Arena *t = arena_new();
        Graph *g = random_step(t, 100 + seed, 12 + 2 * seed);
        Cost *c = cost_opaque(t, g);
        uint64_t low = plan_floor(g, c, false), high = plan_peak_without_budget(g, c, false);
        PlanOptions o = {.budget = low + (high - low) / 2, .planner = "ilp", .effort = 0};
        PlanOptions so = o;
        so.planner = "static";
        Plan *plan, *start;
        PlanStatus st = plan_make(t, g, c, &o, &plan);
        if (plan_make(t, g, c, &so, &start) == PLAN_OK) {
            CHECK(st == PLAN_OK && plan->cost_ns <= start->cost_ns);
            CHECK(plan->proof->bound <= plan_overhead(plan) + 1e-9);
        }
        CHECK_STR(json_of(t, g, c, &o), json_of(t, g, c, &o));
        arena_free(t);
    }
}

/* Checkmate's program on the same tiny graphs: what it finds is a plan, and not below the optimum.
 */
static void published_program(void) {
    uint32_t solved = 0;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        Arena *t = arena_new();
        Graph *g = tiny_step(t, seed);
        Cost *c = cost_opaque(t, g);
        uint64_t low = plan_floor(g, c, true), high = plan_peak_without_budget(g, c, true);
        const Problem *p = problem_new(t, g, c, NULL, true);
        PlanOptions o = {.budget = (low + high) / 2,
                         .planner = "ilp-checkmate",
                         .bytes_only = true,
                         .keep_order = true};
        Plan *plan;
        int best = exhaustive(t, p, o.budget - p->persistent_bytes, 300);
        if (plan_make(t, g, c, &o, &plan) == PLAN_OK && plan->proof && best != EXHAUSTIVE_NONE) {
            CHECK(plan_overhead(plan) >= (double)best / (double)plan->base_ns - 1e-9);
            solved += !strcmp(plan->proof->status, "optimal");
        }
        arena_free(t);
    }
    CHECK(solved > 20);
}

int main(void) {
    a = arena_new();
    solves();
    rounds_knapsacks();
    orders_components();
    keeps_errors_in();
    keeps_time();
    against_exhaustive_search();
    unit_chain();
    random_steps();
    published_program();
    arena_free(a);
    return test_end();
}
