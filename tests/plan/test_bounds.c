/* test_bounds.c - proven bounds against the cheapest schedule of tiny graphs, found by exhaustive
 * search, and against sums done by hand. */
#include "exhaustive.h"
#include "graphs.h"
#include "test.h"

#include "cut.h"
#include "retain.h"

static Arena *a;

static ValueId view_ns(Maker *m, ValueId of, int64_t ns) {
    ValueId v = view(m, of);
    ir_attr_i(m->g, m->g->nnode - 1, A_cost_ns, ns);
    return v;
}

/* Up to ten runs: several outputs, views that cost something, workspace, in-place operators,
 * updates with readers before and after. */
static Graph *tiny_step(uint32_t seed) {
    Maker m = maker_new(a, seed * 2654435761u);
    ValueId live[64], w[2] = {source(&m, ROLE_PARAM, "w0", 1), source(&m, ROLE_PARAM, "w1", 1)};
    bool gone[2] = {false, false};
    uint32_t n = 6 + maker_rnd(&m, 4), nlive = 0, unread = 0;
    live[nlive++] = source(&m, ROLE_INPUT, "x", 1);
    for (uint32_t i = 0; i < n; i++) {
        ValueId in[4];
        uint32_t nin = 0, kind = maker_rnd(&m, 12), k = maker_rnd(&m, 2);
        in[nin++] = live[nlive - 1 - maker_rnd(&m, nlive > 2 ? 2 : nlive)];
        if (maker_rnd(&m, 3)) in[nin++] = live[maker_rnd(&m, nlive)];
        bool root = m.g->storage[m.g->value[in[0]].storage].root == in[0] && nlive > 1;
        if (kind < 2 && (root || kind)) {
            live[nlive++] = view_ns(&m, in[0], 1 + maker_rnd(&m, 4));
        } else if (kind == 2) {
            live[nlive++] = node(&m, OP_Relu, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                                 m.g->value[in[0]].shape.dim[0], 1, in, 1);
        } else if (kind == 3 && !gone[k] && i > 2) {
            update(&m, w[k], node(&m, OP_Opaque, PHASE_BACKWARD, 3, 1, nin, in, 1));
            gone[k] = true;
        } else {
            if (!gone[k] && maker_rnd(&m, 2)) in[nin++] = w[k];
            uint32_t nout = maker_rnd(&m, 4) ? 1 : 2;
            ValueId v = node(&m, OP_Opaque, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                             1 + maker_rnd(&m, 6), nin, in, nout);
            if (!maker_rnd(&m, 4)) ir_attr_i(m.g, m.g->nnode - 1, A_workspace, 4);
            for (uint32_t o = 0; o < nout; o++) live[nlive++] = v + o;
        }
        if (maker_rnd(&m, 3) == 0) unread = nlive - 1;
    }
    output(&m, live[nlive - 1]);
    if (unread && unread != nlive - 1) output(&m, live[unread]);
    return m.g;
}

static uint32_t solved, tight, impossible;

static void check_against_optimum(const Graph *g, const Cost *c, uint64_t capacity) {
    Arena *t = arena_new();
    const Problem *p = problem_new(t, g, c, NULL, true);
    int best = exhaustive(t, p, capacity, 300);
    CutBound b;
    cut_bound(t, p, capacity, &b);
    if (best == EXHAUSTIVE_NONE) {
        impossible += !b.feasible;
    } else {
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
        Graph *g = tiny_step(seed);
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
    fprintf(stderr, "solved %u, tight %u, impossible %u\n", solved, tight, impossible);
}

int main(void) {
    a = arena_new();
    against_exhaustive_search();
    arena_free(a);
    return test_end();
}
