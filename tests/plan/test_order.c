/* test_order.c - orders of first runs: hand-made steps where another order needs less memory, legal
 * orders for random steps, and bounds for all orders against the cheapest schedule of tiny steps in
 * any order, found by exhaustive search. */
#include "exhaustive.h"
#include "graphs.h"
#include "test.h"

#include "cut.h"
#include "order.h"
#include "precede.h"

static Arena *a;

static const Problem *reorder(const Problem *p, const NodeId *order) {
    return problem_new(a, p->g, p->c, order, p->align == 1);
}

/* ---- by hand: floats of 4 bytes, byte sums ---- */

/* Four branches, made one after the other: big_i (40 bytes) from x, then small_i (4 bytes) from
 * big_i, but all big ones first. In the graph's order four big ones are there at once: when the
 * first small one is made, 160 + 4 bytes. Branch by branch it is one big one and the small ones
 * before it: 12 + 40 + 4 = 56. The sum of the small ones is the output. */
static Graph *branches(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 1), big[4], small[4];
    for (int i = 0; i < 4; i++) big[i] = node(&m, OP_Opaque, PHASE_FORWARD, 100, 10, 1, &x, 1);
    for (int i = 0; i < 4; i++) small[i] = node(&m, OP_Opaque, PHASE_FORWARD, 10, 1, 1, &big[i], 1);
    output(&m, node(&m, OP_Opaque, PHASE_FORWARD, 10, 1, 4, small, 1));
    return m.g;
}

static void branch_by_branch(void) {
    Graph *g = branches();
    Cost *c = cost_opaque(a, g);
    const Problem *p = problem_new(a, g, c, NULL, true);
    CHECK_EQ(order_base(a, p, 60).peak, 164);
    CHECK_EQ(order_list(a, p, 60).peak, 56);
    CHECK_EQ(order_search(a, p, 60).peak, 56);
    CHECK_EQ(order_search(a, p, 60).over, 0);
    /* In the graph's order 60 bytes hold one big one: when the last one is made the others have to
     * wait or be made again. In any order nothing has to be. */
    uint64_t budget = plan_persistent_bytes(g, c, true) + 60;
    PlanBound b = plan_bound(g, c, budget, true);
    CHECK(b.feasible && b.any_order == 0 && b.overhead > 0.3);
    PlanOptions o = {.budget = budget, .effort = 1, .bytes_only = true};
    Plan *plan;
    CHECK(plan_make(a, g, c, &o, &plan) == PLAN_OK && plan->recomputed_runs == 0);
    CHECK(!plan_keeps_order(g, c, plan));
    CHECK_NEAR(plan_bound_for(&b, g, c, plan), 0, 1e-12);
    o.planner = "dtr";
    if (plan_make(a, g, c, &o, &plan) == PLAN_OK) CHECK(plan_keeps_order(g, c, plan));
}

/* All gradients (40 bytes each) are made before the first update; each update could come right
 * after its gradient. 3 gradients: 120 bytes against 40. */
static void updates_at_once(void) {
    Maker m = maker_new(a, 1);
    ValueId x = source(&m, ROLE_INPUT, "x", 1), w[3], grad[3];
    for (int i = 0; i < 3; i++) w[i] = source(&m, ROLE_PARAM, arena_printf(a, "w%d", i), 10);
    for (int i = 0; i < 3; i++) grad[i] = node(&m, OP_Opaque, PHASE_BACKWARD, 9, 10, 1, &x, 1);
    for (int i = 0; i < 3; i++) update(&m, w[i], grad[i]);
    const Problem *p = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    CHECK_EQ(order_base(a, p, 0).peak, 120);
    CHECK_EQ(order_list(a, p, 0).peak, 40);
    CHECK_EQ(order_search(a, p, 0).peak, 40);
}

/* A reader of w keeps the update of w behind it, whatever the update would free: v = f(w), update
 * of w with its gradient (40 bytes), which was made before v (44 with it). */
static void readers_before_updates(void) {
    Maker m = maker_new(a, 1);
    ValueId w = source(&m, ROLE_PARAM, "w", 10), x = source(&m, ROLE_INPUT, "x", 1);
    ValueId grad = node(&m, OP_Opaque, PHASE_BACKWARD, 9, 10, 1, &x, 1);
    output(&m, node(&m, OP_Opaque, PHASE_FORWARD, 9, 1, 1, &w, 1));
    update(&m, w, grad);
    const Problem *p = problem_new(a, m.g, cost_opaque(a, m.g), NULL, true);
    Precedence o = precede_new(a, p);
    CHECK_EQ(list_len(&o.before, 2), 2); /* gradient and reader */
    CHECK_EQ(order_list(a, p, 0).peak, 44);
    CHECK_EQ(order_search(a, p, 0).peak, 44);
}

/* A chain there and back has one order: nothing is looked for. */
static void no_choice(void) {
    Maker m = maker_new(a, 1);
    ValueId y[9] = {source(&m, ROLE_INPUT, "x", 100)};
    for (int i = 1; i <= 8; i++)
        y[i] = node(&m, OP_Opaque, PHASE_FORWARD, 100, 100, 1, &y[i - 1], 1);
    ValueId dy = y[8];
    for (int i = 7; i >= 1; i--)
        dy = node(&m, OP_Opaque, PHASE_BACKWARD, 100, 100, 2, (ValueId[]){y[i], dy}, 1);
    output(&m, dy);
    const Graph *g = m.g;
    Cost *c = cost_opaque(a, g);
    const Problem *p = problem_new(a, g, c, NULL, true);
    CHECK(!order_find(a, p, order_base(a, p, 0).peak * 2 / 3));
    uint64_t budget = plan_peak_without_budget(g, c, true) / 4 * 3;
    PlanBound b = plan_bound(g, c, budget, true);
    CHECK(b.feasible && b.any_order > 0);
    CHECK_NEAR(b.any_order, b.overhead, 1e-9);
}

/* ---- random steps ---- */

/* Every run once, after all that must come before it; byte sums as a plan has them. */
static void check_order(const Problem *p, const Order *o) {
    Precedence pre = precede_new(a, p);
    uint32_t *at = ARENA_ARRAY(a, uint32_t, p->g->nnode), n = 0;
    for (uint32_t k = 0; k < p->g->nnode; k++)
        if (o->node[k] != NO_ID) at[o->node[k]] = ++n;
    CHECK_EQ(n, p->nrun);
    for (uint32_t r = 0; r < p->nrun; r++)
        EACH(pre.before, r, q) CHECK(at[p->node[q]] && at[p->node[q]] < at[p->node[r]]);
    const Problem *q = reorder(p, o->node);
    CHECK_EQ(order_base(a, q, 0).peak, o->peak);
}

static void random_orders(void) {
    uint32_t lower = 0, plans = 0, reordered = 0;
    for (uint32_t seed = 1; seed <= 90; seed++) {
        Graph *g = random_step(a, seed, 20 + seed);
        Cost *c = cost_opaque(a, g);
        const Problem *p = problem_new(a, g, c, NULL, true);
        Order base = order_base(a, p, 0);
        uint64_t capacity = base.peak / 10 * 6, persistent = plan_persistent_bytes(g, c, true);
        Order list = order_list(a, p, capacity), found = order_search(a, p, capacity),
              again = order_search(a, p, capacity);
        check_order(p, &list);
        check_order(p, &found);
        CHECK(found.peak == again.peak &&
              !memcmp(found.node, again.node, g->nnode * sizeof *found.node));
        lower += found.peak < base.peak || list.peak < base.peak;
        PlanOptions o = {.budget = capacity + persistent, .effort = 1, .bytes_only = true};
        Plan *plan;
        if (seed % 6 || plan_make(a, g, c, &o, &plan) != PLAN_OK) continue;
        Diag d;
        diag_init(&d, a, stderr);
        CHECK(plan_verify(&d, g, c, plan));
        PlanBound b = plan_bound(g, c, o.budget, true);
        plans++;
        reordered += !plan_keeps_order(g, c, plan);
        CHECK(b.feasible && b.any_order <= b.overhead + 1e-12);
        CHECK(plan_bound_for(&b, g, c, plan) <= plan_overhead(plan) + 1e-9);
    }
    CHECK(lower > 40 && plans > 5 && reordered > 0);
}

/* ---- all orders of tiny steps ---- */

/* A few runs with little order among them, some with two results, views that cost something. */
static Graph *loose_step(uint32_t seed) {
    Maker m = maker_new(a, seed * 2654435761u);
    ValueId live[32], w = source(&m, ROLE_PARAM, "w", 1);
    uint32_t n = 5 + maker_rnd(&m, 3), nlive = 0;
    bool gone = false;
    live[nlive++] = source(&m, ROLE_INPUT, "x", 1);
    for (uint32_t i = 0; i < n; i++) {
        ValueId in[4];
        uint32_t nin = 0, kind = maker_rnd(&m, 10);
        in[nin++] = live[maker_rnd(&m, nlive)];
        if (maker_rnd(&m, 2)) in[nin++] = live[nlive - 1 - maker_rnd(&m, nlive > 3 ? 3 : nlive)];
        bool root = m.g->storage[m.g->value[in[0]].storage].root == in[0] && nlive > 1;
        if (kind == 0 && root) {
            live[nlive++] = view(&m, in[0]);
            ir_attr_i(m.g, m.g->nnode - 1, A_cost_ns, 1 + maker_rnd(&m, 4));
        } else if (kind == 1) {
            live[nlive++] = node(&m, OP_Relu, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                                 m.g->value[in[0]].shape.dim[0], 1, in, 1);
        } else if (kind == 2 && !gone && i > 2) {
            update(&m, w, node(&m, OP_Opaque, PHASE_BACKWARD, 3, 1, nin, in, 1));
            gone = true;
        } else {
            if (!gone && maker_rnd(&m, 3) == 0) in[nin++] = w;
            uint32_t nout = maker_rnd(&m, 5) ? 1 : 2;
            ValueId v = node(&m, OP_Opaque, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                             1 + maker_rnd(&m, 6), nin, in, nout);
            for (uint32_t o = 0; o < nout; o++) live[nlive++] = v + o;
        }
    }
    output(&m, live[nlive - 1]);
    return m.g;
}

/* As exhaustive(), with first runs in any order: a bit per run says that it has happened. */
enum { ANY_BITS = 16 };

typedef struct {
    Exhaustive e; /* its state is not used: `set` is wider here */
    Arena *a;
    uint32_t bit_of_run[64], nbit;
    int *dist;
    VEC(uint32_t) * bucket;
    uint32_t now; /* set from which runs start */
} AnyOrder;

static void any_reach(AnyOrder *x, uint32_t set, int time) {
    if (time > x->e.most || (x->dist[set] >= 0 && x->dist[set] <= time)) return;
    x->dist[set] = time;
    VEC_PUSH(x->a, x->bucket[time], set);
}

static void any_run(AnyOrder *x, uint32_t r, StorageId taken) {
    const Problem *p = x->e.p;
    uint32_t after = x->now, k = 0;
    uint64_t bytes = ex_bytes(&x->e, after) + p->workspace[r];
    EACH(p->out, r, t) {
        bool first = k++ == 0;
        if (t == NO_ID || !p->is_temp[p->storage[t]]) continue;
        if (first && taken != NO_ID && ex_has(after, x->e.bit_of_tensor[t])) return;
        if (t < p->nstorage && !(first && taken != NO_ID)) bytes += p->bytes[t];
        after |= UINT32_C(1) << x->e.bit_of_tensor[t];
    }
    if (bytes > x->e.capacity) return;
    if (taken != NO_ID) after = ex_without(&x->e, after, taken);
    any_reach(x, after | UINT32_C(1) << x->bit_of_run[r], x->dist[x->now] + (int)p->ns[r]);
}

static bool any_done(const AnyOrder *x, uint32_t set) {
    const Problem *p = x->e.p;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (!ex_has(set, x->bit_of_run[r])) return false;
    for (uint32_t i = 0; i < p->noutput; i++)
        if (!ex_has(set, x->e.bit_of_tensor[p->output[i]])) return false;
    return true;
}

static void any_expand(AnyOrder *x) {
    const Problem *p = x->e.p;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (ex_has(x->now, x->e.bit_of_tensor[s]))
            any_reach(x, ex_without(&x->e, x->now, s), x->dist[x->now]);
    for (uint32_t r = 0; r < p->nrun; r++) {
        if (p->effect[r] && ex_has(x->now, x->bit_of_run[r])) continue;
        if (!ex_ready(&x->e, r, x->now)) continue;
        any_run(x, r, NO_ID);
        EACH(p->inplace, r, s) if (!p->is_output[s]) any_run(x, r, s);
    }
}

static int exhaustive_any_order(Arena *t, const Problem *p, uint64_t capacity, int most) {
    AnyOrder x = {.e = {.p = p, .capacity = capacity, .most = (int)p->base_ns + most}, .a = t};
    if (!ex_number(&x.e)) return EXHAUSTIVE_NONE;
    x.nbit = x.e.nbit;
    for (uint32_t r = 0; r < p->nrun; r++)
        x.bit_of_run[r] = p->effect[r] ? x.e.bit_of_effect[r] : x.nbit++;
    if (x.nbit > ANY_BITS) return EXHAUSTIVE_NONE;
    x.dist = ARENA_ARRAY(t, int, (uint64_t)1 << x.nbit);
    memset(x.dist, -1, sizeof *x.dist << x.nbit);
    x.bucket = arena_alloc(t, (size_t)(x.e.most + 1) * sizeof *x.bucket);
    memset(x.bucket, 0, (size_t)(x.e.most + 1) * sizeof *x.bucket);
    any_reach(&x, 0, 0);
    for (int time = 0; time <= x.e.most; time++)
        for (uint32_t i = 0; i < x.bucket[time].n; i++) {
            x.now = x.bucket[time].at[i];
            if (x.dist[x.now] != time) continue;
            if (any_done(&x, x.now)) return time - (int)p->base_ns;
            any_expand(&x);
        }
    return EXHAUSTIVE_NONE;
}

static void bounds_for_all_orders(void) {
    uint32_t positive = 0, tight = 0, cheaper = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        Graph *g = loose_step(seed);
        Cost *c = cost_opaque(a, g);
        Arena *t = arena_new();
        const Problem *p = problem_new(t, g, c, NULL, true);
        uint64_t low = p->floor_bytes, high = order_base(t, p, 0).peak;
        for (uint64_t k = 0; k < 3 && high > low; k++) {
            uint64_t capacity = low + (high - low) * k / 3;
            int best = exhaustive_any_order(t, p, capacity, 80);
            CutBound b;
            cut_bound_any_order(t, p, capacity, &b);
            if (best == EXHAUSTIVE_NONE) continue;
            CHECK(b.feasible && b.value <= best + 1e-6);
            if (!b.feasible || b.value > best + 1e-6)
                fprintf(stderr, "seed %u: bound %g, optimum %d\n", seed, b.value, best);
            int base = exhaustive(t, p, capacity, 80);
            CHECK(base == EXHAUSTIVE_NONE || best <= base);
            cheaper += base == EXHAUSTIVE_NONE || best < base;
            positive += best > 0;
            tight += best > 0 && b.value > 0.95 * best;
        }
        arena_free(t);
    }
    /* bounds that say nothing would pass otherwise, and so would orders that make no difference */
    CHECK(positive > 40 && 5 * tight > positive && cheaper > 20);
}

int main(void) {
    a = arena_new();
    branch_by_branch();
    updates_at_once();
    readers_before_updates();
    no_choice();
    random_orders();
    bounds_for_all_orders();
    arena_free(a);
    return test_end();
}
