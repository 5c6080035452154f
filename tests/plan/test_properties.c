/* test_properties.c - what must hold of every planner on every graph: plans pass the separate
 * verifier, cost at least the proven bound, are the same when made twice; `static` is never worse
 * than a member of its portfolio; nobody fails where another finds a plan, and on tiny graphs, by
 * byte sums, exhaustive search says whether there is one and what the best costs.
 *
 * test_properties BUILD [GRAPHS [FIRST]]: another number of graphs, from another seed on. */
#include "exhaustive.h"
#include "steps.h"
#include "test.h"

#include "timeline.h"

static const char *const planners[] = {"none", "sqrt", "dtr",  "dtr-eq", "dtr-local",
                                       "lru",  "size", "msps", "static"};
enum { NPLANNER = sizeof planners / sizeof *planners, STATIC = NPLANNER - 1 };
enum { MOST = 300 }; /* extra time up to which exhaustive search looks */

#ifdef __SANITIZE_ADDRESS__
enum { GRAPHS = 12 };
#else
enum { GRAPHS = 200 };
#endif

typedef struct {
    uint32_t plans, failures, recomputing;
    uint32_t solved, best,
        near; /* tiny: optimum known and above 0; static reaches it; within 5 % */
    uint32_t missed, impossible; /* tiny: static fails, and there is a schedule; there is none */
    uint32_t mixed;              /* missed, and some updates have to wait, others not */
    uint32_t no_plan;            /* static fails between floor and peak, larger graphs */
    uint32_t ilp, online;
} Counts;

static Counts counts;
static Diag d;

static Plan *make(Arena *a, const Graph *g, const Cost *c, PlanOptions o) {
    Plan *p = NULL;
    PlanStatus st = plan_make(a, g, c, &o, &p);
    CHECK((st == PLAN_OK) == (p != NULL));
    counts.plans += p != NULL;
    counts.failures += !p;
    if (!p) return NULL;
    if (st != PLAN_OK)
        fprintf(stderr, "  %s, budget %llu, effort %d, %s\n", o.planner,
                (unsigned long long)o.budget, o.effort, o.bytes_only ? "byte sums" : "addresses");
    counts.recomputing += p->recomputed_runs > 0;
    CHECK(plan_verify(&d, g, c, p));
    CHECK(p->placed != o.bytes_only);
    return p;
}

static void same_twice(Arena *a, const Graph *g, const Cost *c, PlanOptions o, const Plan *p) {
    Text t, u;
    text_init(&t, a);
    text_init(&u, a);
    Plan *q = NULL;
    plan_make(a, g, c, &o, &q);
    CHECK(q != NULL);
    if (!q) return;
    plan_print_json(&t, g, c, p, "");
    plan_print_json(&u, g, c, q, "");
    CHECK(t.n == u.n && !memcmp(t.at, u.at, t.n));
}

static bool is_effortful(const Graph *g, uint32_t seed) {
    return g->nnode < 60 && seed % 40 == 0;
}

/* Is there a schedule with updates at their place, or all of them at the end? */
static void missed(Arena *a, const Graph *g, const Cost *c, uint64_t budget) {
    NodeId *order = problem_deferred_order(a, g);
    int best = EXHAUSTIVE_NONE;
    for (int late = 0; late < 1 + (order != NULL) && best == EXHAUSTIVE_NONE; late++) {
        const Problem *p = problem_new(a, g, c, late ? order : NULL, true);
        best = exhaustive_how(a, p, budget - p->persistent_bytes, MOST, true);
    }
    counts.missed++;
    counts.mixed += best == EXHAUSTIVE_NONE;
    if (best != EXHAUSTIVE_NONE)
        fprintf(stderr, "    no plan at %llu, optimum %d\n", (unsigned long long)budget, best);
}

/* What exhaustive search says about the plan of `static`, or about its absence. */
static void against_optimum(Arena *a, const Graph *g, const Cost *c, uint64_t budget, const Plan *p,
                            const PlanBound *b) {
    const Problem *pr = problem_new(a, g, c, NULL, true);
    if (budget < pr->persistent_bytes) {
        CHECK(!p);
        return;
    }
    int best = exhaustive(a, pr, budget - pr->persistent_bytes, MOST);
    if (best == EXHAUSTIVE_NONE) { /* or too large for it */
        if (!p) counts.impossible++;
        return;
    }
    CHECK(b->feasible);
    CHECK(b->overhead * (double)pr->base_ns <= best + 1e-6);
    if (!p) {
        missed(a, g, c, budget);
        return;
    }
    int extra = (int)(p->cost_ns - p->base_ns);
    CHECK(extra >= best);
    if (best == 0) return;
    counts.solved++;
    counts.best += extra == best;
    counts.near += (int)pr->base_ns * 5 >= 100 * (extra - best);
}

static void with_ilp(Arena *a, const Graph *g, const Cost *c, PlanOptions o, const Plan *best) {
    o.planner = "ilp";
    o.time_limit = 0.2;
    Plan *p = make(a, g, c, o);
    CHECK(p || !best);
    if (!p) return;
    counts.ilp++;
    CHECK(!best || p->cost_ns <= best->cost_ns);
    CHECK(p->proof != NULL);
    if (p->proof) CHECK(p->proof->bound <= plan_overhead(p) + 1e-9);
}

/* What programs do in dynamic mode: without a heuristic nothing is worse than with one. */
static void with_dynamic(Arena *a, const Graph *g, const Cost *c, PlanOptions o,
                         const PlanBound *b) {
    o.online = true;
    o.planner = "dynamic";
    const Plan *any = make(a, g, c, o);
    for (int i = 2; i < STATIC; i++) { /* the heuristics */
        o.planner = planners[i];
        const Plan *p = make(a, g, c, o);
        if (!p) continue;
        counts.online++;
        CHECK(any && any->cost_ns <= p->cost_ns);
        CHECK(plan_keeps_order(g, c, p) && plan_overhead(p) >= b->overhead - 1e-9);
        CHECK(!strcmp(p->planner, planners[i]));
    }
}

static void one_budget(const Graph *g, const Cost *c, PlanOptions o, uint32_t seed) {
    Arena *a = arena_new();
    PlanBound b = plan_bound(g, c, o.budget, o.bytes_only);
    uint64_t floor = plan_floor(g, c, o.bytes_only), least = UINT64_MAX;
    Plan *best = NULL;
    bool every = seed % 3 == 0; /* all planners; else `static` and one more */
    for (int i = 0; i < NPLANNER; i++) {
        if (!every && i != STATIC && i != (int)(seed % STATIC)) continue;
        o.planner = planners[i];
        Plan *p = make(a, g, c, o);
        if (i == STATIC) {
            best = p;
            CHECK(p || least == UINT64_MAX);
            if (p) CHECK(p->cost_ns <= least);
        }
        if (!p) continue;
        CHECK(o.budget >= floor && (b.feasible || !plan_keeps_order(g, c, p)));
        CHECK(plan_overhead(p) >= plan_bound_for(&b, g, c, p) - 1e-9);
        CHECK(!o.keep_order || plan_keeps_order(g, c, p));
        if (p->cost_ns < least) least = p->cost_ns;
    }
    if (seed % 9 == 0) with_dynamic(a, g, c, o, &b);
    if (best && seed % 4 == 0) same_twice(a, g, c, o, best);
    if (!best && o.budget >= floor) counts.no_plan++;
    if (o.bytes_only && g->nnode <= 16) against_optimum(a, g, c, o.budget, best, &b);
    if (g->nnode <= 24 && seed % 8 == 0) with_ilp(a, g, c, o, best);
    arena_free(a);
}

static void one_graph(uint32_t seed) {
    Arena *a = arena_new();
    Maker m = {a, NULL, seed * 7919 + 3};
    for (int i = 0; i < 3; i++) maker_rnd(&m, 2);
    uint32_t size = seed % 3 == 0 ? 2 + maker_rnd(&m, 3)
                    : seed % 40   ? 5 + maker_rnd(&m, 25)
                                  : 60 + maker_rnd(&m, 140);
    Graph *g = steps_make(a, seed, seed / 3 % SHAPE_COUNT, size);
    CHECK(ir_verify(&d, g));
    Cost *c = cost_opaque(a, g);
    for (int bytes_only = 0; bytes_only < 2; bytes_only++) {
        uint64_t floor = plan_floor(g, c, bytes_only),
                 peak = plan_peak_without_budget(g, c, bytes_only);
        CHECK(floor <= peak);
        for (int k = 0; k < 3; k++) {
            double u = maker_rnd(&m, 1000) / 1000.0;
            u = k == 2 ? u * 1.1 - 0.05 : u * u;
            double budget = (double)floor + (double)(peak - floor) * u - (k == 0 && u < 0.1);
            PlanOptions o = {.budget = (uint64_t)budget,
                             .bytes_only = bytes_only,
                             .keep_order = g->nnode <= 16 || seed % 2, /* as exhaustive search */
                             .effort = is_effortful(g, seed)};
            one_budget(g, c, o, seed + (uint32_t)k);
        }
    }
    arena_free(a);
}

int main(int argc, char **argv) {
    Arena *a = arena_new();
    diag_init(&d, a, stderr);
    uint32_t n = argc > 2 ? (uint32_t)atoi(argv[2]) : GRAPHS;
    uint32_t first = argc > 3 ? (uint32_t)atoi(argv[3]) : 1;
    for (uint32_t seed = first; seed < first + n; seed++) {
        int failed = test_failed;
        uint32_t missed_before = counts.missed - counts.mixed;
        one_graph(seed);
        if (test_failed > failed || counts.missed - counts.mixed > missed_before)
            fprintf(stderr, "  graph %u\n", seed);
    }
    printf("%u graphs: %u plans (%u recompute), %u failures; %u of them `static` above the floor\n"
           "tiny ones: optimum %u, reached %u, within 5 %% %u; no plan though there is one %u "
           "(%u of them with some updates late only), none there %u; ilp %u; online %u\n",
           n, counts.plans, counts.recomputing, counts.failures, counts.no_plan, counts.solved,
           counts.best, counts.near, counts.missed, counts.mixed, counts.impossible, counts.ilp,
           counts.online);
    CHECK(n < 200 || (counts.recomputing > n && counts.failures > n / 4 && counts.online > n / 4));
    arena_free(a);
    return test_end();
}
