/* test_bounds.c - proven bounds against the cheapest schedule of tiny graphs, found by exhaustive
 * search, and against sums done by hand. */
#include "exhaustive.h"
#include "graphs.h"
#include "test.h"

#include "retain.h"
#include "windows.h"

static Arena *a;

static uint32_t solved, tight;

static void check_against_optimum(const Graph *g, const Cost *c, uint64_t capacity) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, true);
    int best = exhaustive(t, p, capacity, 300);
    CutBound b;
    cut_bound(t, p, capacity, &b);
    if (best != EXHAUSTIVE_NONE) {
        CHECK(b.feasible && b.value <= best + 1e-6);
        Retention ret;
        retain_solve(t, p, capacity, &ret);
        CHECK(ret.value <= best + 1e-6);
        solved += best > 0;
        tight += best > 0 && b.value > 0.95 * best;
        Cut *cut = cut_new(t, p);
        for (uint32_t r = 0; r < p->nrun; r++) {
            CutPoint at;
            CutResult q;
            bool fits = cut_base_point(t, p, r, capacity, &at);
            if (p->effect[r]) continue;
            CHECK(fits);
            cut_solve(cut, &at, &q);
            if (!q.feasible || q.value > best + 1e-6)
                fprintf(stderr, "run %u: %g, optimum %d, feasible %d\n", r, q.value, best,
                        q.feasible);
            CHECK(q.feasible && q.value <= best + 1e-6 && q.value <= q.cost + 1e-6);
        }
    }
    arena_free(t);
}

static void against_exhaustive_search(void) {
    for (uint32_t seed = 1; seed <= 400; seed++) {
        Graph *g = tiny_step(a, seed);
        Cost *c = cost_opaque(a, g);
        uint64_t base = plan_persistent_bytes(g, c, true), low = plan_floor(g, c, true) - base,
                 high = plan_peak_without_budget(g, c, true) - base;
        int failed = test_failed;
        for (int k = 0; k < 4 && high > low; k++)
            check_against_optimum(g, c, low + (high - low) * (uint64_t)k / 4);
        if (test_failed > failed) {
            fprintf(stderr, "seed %u\n", seed);
            Text text;
            text_init(&text, a);
            ir_print(&text, g);
            fprintf(stderr, "%s\n", text.at);
            return;
        }
    }
    CHECK(solved > 500 && 2 * tight > solved); /* bounds that say nothing would pass otherwise */
}

/* ---- by hand: floats of 4 bytes, byte sums; times in ns ---- */

/* a = f(x) 10 ns, b = f(a) 20 ns, big (8 bytes), s = f(big), out = f(b, s); all but big 4 bytes.
 * When s runs, big and s fill 12 bytes: b has to go, and to make it again a has to be made again.
 * The cut says 30. Retention sees the gap of b only: 20. */
static void block(Maker *m, ValueId x) {
    ValueId va = node(m, OP_Opaque, PHASE_FORWARD, 10, 1, 1, &x, 1);
    ValueId vb = node(m, OP_Opaque, PHASE_FORWARD, 20, 1, 1, &va, 1);
    ValueId big = node(m, OP_Opaque, PHASE_FORWARD, 1, 2, 1, &x, 1);
    ValueId s = node(m, OP_Opaque, PHASE_FORWARD, 1, 1, 1, &big, 1);
    ValueId in[] = {vb, s};
    output(m, node(m, OP_Opaque, PHASE_FORWARD, 1, 0, 2, in, 1));
}

static void chain_is_charged(void) {
    Maker m = maker_new(a, 1);
    block(&m, source(&m, ROLE_INPUT, "x", 1));
    Cost *c = cost_opaque(a, m.g);
    PlanBound b = plan_bound(m.g, c, 4 + 12, true);
    CHECK(b.feasible && b.node == 3);
    CHECK_NEAR(b.cut * 33, 30, 1e-3);
    CHECK_NEAR(b.retention * 33, 20, 1e-3);
    CHECK_NEAR(b.overhead, b.cut, 0);
    b = plan_bound(m.g, c, 4 + 16, true);
    CHECK(b.feasible && b.overhead == 0 && b.node == NO_ID);
    CHECK(!plan_bound(m.g, c, 4 + 11, true).feasible);
    CHECK(!plan_bound(m.g, c, 3, true).feasible);
}

/* Two such blocks, one after the other: each costs 30, in windows of its own. */
static void windows_add_up(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 1);
    block(&m, x);
    block(&m, x);
    const Problem *p = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    CutBound b;
    cut_bound(a, p, 12, &b);
    CHECK(b.feasible && b.nwindow == 2 && b.window[0] == 3 && b.window[1] == 8);
    CHECK_NEAR(b.value, 60, 1e-3);
}

/* Room for 5 floats. w (2 floats, 5 ns) and v (1 float, 7 ns) are made first. At s1 nothing fits
 * beside its 5 floats; then w is read. At s2 one float is left; then w and v are read.
 * At s1 alone: both are made again, 12. Windows alone: w after s1, w after s2 (v fits): 10. Tied, v
 * at s2 has its price m: the first window makes v or loses m; the second keeps v for m and makes w
 * (5 + m), or keeps half of w and makes half of it and v (9.5): 5 + min(7, m) + min(5 + m, 9.5) -
 * m, which is 14.5 at the best m. Whole storages need 17. */
static void tied_windows(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 1);
    ValueId w = node(&m, OP_Opaque, PHASE_FORWARD, 5, 2, 1, &x, 1);
    ValueId v = node(&m, OP_Opaque, PHASE_FORWARD, 7, 1, 1, &x, 1);
    ValueId big1 = node(&m, OP_Opaque, PHASE_FORWARD, 1, 4, 1, &x, 1);
    ValueId s1 = node(&m, OP_Opaque, PHASE_FORWARD, 1, 1, 1, &big1, 1);
    ValueId in1[] = {w, s1};
    node(&m, OP_Opaque, PHASE_FORWARD, 1, 0, 2, in1, 1);
    ValueId big2 = node(&m, OP_Opaque, PHASE_FORWARD, 1, 3, 1, &x, 1);
    ValueId s2 = node(&m, OP_Opaque, PHASE_FORWARD, 1, 1, 1, &big2, 1);
    ValueId in2[] = {w, v, s2};
    output(&m, node(&m, OP_Opaque, PHASE_FORWARD, 1, 0, 3, in2, 1));
    const Problem *p = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    BasePoint point = base_point_new(a, p, 20);
    uint32_t run[] = {3, 6};
    double alone = ties_bound(a, cut_new(a, p), &point, run, 2, 0, 1),
           tied = ties_bound(a, cut_new(a, p), &point, run, 2, 0, 100);
    CHECK_NEAR(alone, 10, 1e-3);
    CHECK(tied > 14.4 && tied < 14.501);
    CHECK_EQ(exhaustive(a, p, 20, 100), 17);
}

/* p and q come from one run of 10 ns; both have to go while s runs: 10 once. A view of p that
 * costs 3 ns is read afterwards: 3 more. */
static void outputs_and_views(bool with_view) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 1);
    ValueId p = node(&m, OP_Opaque, PHASE_FORWARD, 10, 1, 1, &x, 2), q = p + 1;
    ValueId v = with_view ? view_ns(&m, p, 3) : p;
    ValueId big = node(&m, OP_Opaque, PHASE_FORWARD, 1, 2, 1, &x, 1);
    ValueId s = node(&m, OP_Opaque, PHASE_FORWARD, 1, 1, 1, &big, 1);
    ValueId in[] = {v, q, s};
    output(&m, node(&m, OP_Opaque, PHASE_FORWARD, 1, 0, 3, in, 1));
    const Problem *pr = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    double expected = with_view ? 13 : 10;
    CutBound b;
    cut_bound(a, pr, 12, &b);
    CHECK_NEAR(b.value, expected, 1e-3);
    Retention r;
    retain_solve(a, pr, 12, &r);
    CHECK_NEAR(r.value, expected, 1e-3);
    CHECK_EQ(exhaustive(a, pr, 12, 100), expected);
}

/* The states that a planner gives: at run s of the block (run 3) nothing fits but what is fixed. */
static void states_of_a_planner(void) {
    Maker m = maker_new(a, 1);
    block(&m, source(&m, ROLE_INPUT, "x", 1));
    const Problem *p = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    CutPoint at;
    CutResult r;
    Cut *c = cut_new(a, p);
    CHECK(cut_base_point(a, p, 3, 12, &at) && at.capacity == 0);
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 30 && r.rerun[0] && r.rerun[1] && !r.rerun[2] && r.bytes == 0);
    at.capacity = 4; /* one of them: b, which makes a needless */
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 0 && r.keep[p->out.at[1]] && r.bytes == 4);
    uint8_t state[16] = {0};
    state[p->out.at[0]] = CUT_FIXED; /* a is there whatever happens */
    at.state = state;
    at.capacity = 0;
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 20 && !r.rerun[0]);
    state[p->out.at[1]] = CUT_AWAY;
    at.capacity = 4;
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 20 && r.value <= 20 && r.rerun[1]);
    bool stuck[16] = {false, true};
    at.stuck = stuck;
    cut_solve(c, &at, &r);
    CHECK(!r.feasible);
    state[p->out.at[1]] = CUT_MAY_KEEP;
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 0 && r.keep[p->out.at[1]]);
    double ns[16] = {1, 2, 3, 4, 5};
    at.stuck = NULL;
    at.ns = ns;
    at.capacity = 0;
    state[p->out.at[0]] = CUT_MAY_KEEP;
    cut_solve(c, &at, &r);
    CHECK(r.feasible && r.cost == 3);
}

static void same_twice(void) {
    for (uint32_t seed = 1; seed <= 5; seed++) {
        Graph *g = random_step(a, seed, 300);
        Cost *c = cost_opaque(a, g);
        uint64_t budget = plan_peak_without_budget(g, c, false) / 10 * 7;
        PlanBound b = plan_bound(g, c, budget, false), again = plan_bound(g, c, budget, false);
        CHECK(b.feasible == again.feasible && b.overhead == again.overhead && b.node == again.node);
    }
}

int main(void) {
    a = arena_new();
    chain_is_charged();
    windows_add_up();
    tied_windows();
    outputs_and_views(false);
    outputs_and_views(true);
    states_of_a_planner();
    same_twice();
    against_exhaustive_search();
    arena_free(a);
    return test_end();
}
