/* static.c - the default planner: a portfolio over the simulation, then local search on the best
 * member.
 *
 * Members: lookahead scores with several exponents, evicting one by one or by window, with short
 * lives at either end of holes, or by bytes and packed offline; every heuristic of the DTR family,
 * so that the result is never worse than any of them; segment checkpoints. A member is stopped as
 * soon as it costs more than the best plan so far; lookahead members and the search run while the
 * counted work lasts, so the same input gives the same plan on every machine. That no single score
 * wins everywhere is the common experience of the published planners; the first few of the grid are
 * good on most graphs.
 *
 * Updates at the end of the step are tried when updates in place gave no plan, or when the
 * gradients that would wait are few. */
#include "strategy.h"

typedef struct {
    Arena *a;
    const PlanOptions *o;
    Plan *best;
    uint64_t work; /* left for lookahead members */
    Sim *look_sim; /* best lookahead member: simulation, options, time */
    SimOptions look;
    bool look_packed;
    uint64_t look_cost;
} Search;

typedef struct {
    double alpha, beta, gamma;
} Exponents;

/* The first few are good on most graphs; then all combinations. */
static const Exponents favourite[] = {{1, 1, 0.5},   {0.5, 1, 0}, {1, 0.5, 0},
                                      {1.5, 1, 0.5}, {1, 0, 0.5}, {1, 1, 0}};
enum { NFAVOURITE = sizeof favourite / sizeof *favourite, NALPHA = 5, NBETA = 4, NGAMMA = 3 };
enum { NGRID = NFAVOURITE + NALPHA * NBETA * NGAMMA, ALWAYS = 2, NPACKED = 3 };

static Exponents exponents(uint32_t i) {
    if (i < NFAVOURITE) return favourite[i];
    static const double alpha[] = {1, 0.75, 1.25, 0.5, 1.5}, beta[] = {1, 0.5, 1.5, 0},
                        gamma[] = {0, 0.5, 1};
    i -= NFAVOURITE;
    return (Exponents){alpha[i % NALPHA], beta[i / NALPHA % NBETA], gamma[i / (NALPHA * NBETA)]};
}

/* Work per effort, in elementary steps (a few ns each): grid, then search. */
static const uint64_t grid_work[] = {5000000, 200000000, 1000000000, 4000000000};
static const uint64_t climb_work[] = {0, 150000000, 2000000000, 20000000000};

static int effort_of(const PlanOptions *o) {
    return o->effort < 0 ? 0 : o->effort > 3 ? 3 : o->effort;
}

static bool is_enough(const Search *x) {
    return x->o->quick && x->best;
}

static void spend(Search *x, uint64_t work) {
    x->work -= work < x->work ? work : x->work;
}

static bool simulate(Search *x, Sim *s, SimOptions *so, Exponents e) {
    so->evict = so->lookahead = so->regret = true;
    so->alpha = e.alpha;
    so->beta = e.beta;
    so->gamma = e.gamma;
    so->work_limit = plan_sim_work(s->p);
    so->cost_limit = s->p->base_ns > UINT64_MAX / 8 ? UINT64_MAX : s->p->base_ns * 8;
    if (x->best) so->cost_limit = x->best->cost_ns - 1;
    PlanStatus st = sim_run(s, so);
    spend(x, s->work);
    return st == PLAN_OK;
}

static void keep(Search *x, Plan *plan, Sim *s, const SimOptions *so, bool packed) {
    x->best = plan;
    x->look = *so;
    x->look_packed = packed;
    x->look_sim = s;
    x->look_cost = plan->cost_ns;
}

static void try_lookahead(Search *x, Sim *s, Exponents e, bool window, bool two_ended) {
    SimOptions so = {.capacity = plan_capacity(s->p, x->o->budget),
                     .bytes_only = x->o->bytes_only,
                     .window = window,
                     .two_ended = two_ended};
    if (simulate(x, s, &so, e)) keep(x, sim_plan(x->a, s, x->o->budget, "static"), s, &so, false);
}

/* Plans by byte sums under a part of the capacity, then packs offline: pays off where a few huge
 * storages make every online placement fragment. The first part that packs is the cheapest of this
 * member. */
static void try_packed(Search *x, Sim *s, Exponents e) {
    static const double part[] = {1, 0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64};
    double capacity = (double)plan_capacity(s->p, x->o->budget);
    for (uint32_t i = 0; i < sizeof part / sizeof *part; i++) {
        SimOptions so = {.capacity = (uint64_t)(capacity * part[i]), .bytes_only = true};
        if (!simulate(x, s, &so, e)) return;
        Plan *plan = plan_pack_bytes(x->a, s, x->o->budget, "static");
        spend(x, plan_pack_work(s, plan != NULL));
        if (!plan) continue;
        keep(x, plan, s, &so, true);
        return;
    }
}

static void try_grid(Search *x, Sim *s) {
    int kinds = x->o->bytes_only ? 1 : 4;
    for (uint32_t i = 0; i < NGRID; i++) {
        for (int k = 0; k < kinds; k++) {
            if (is_enough(x) || (i >= ALWAYS && !x->work)) return;
            try_lookahead(x, s, exponents(i), k & 1, k == 1 || k == 2);
        }
        if (i < NPACKED && !x->o->bytes_only && x->work && !is_enough(x))
            try_packed(x, s, exponents(i));
        if (i + 1 == ALWAYS && x->o->quick) return;
    }
}

static void keep_better(Search *x, Plan *plan) {
    if (plan && (!x->best || plan->cost_ns < x->best->cost_ns)) x->best = plan;
}

static void try_published(Search *x, const Problem *p) {
    for (DtrHeuristic h = 0; h < DTR_COUNT && !is_enough(x); h++) {
        if (x->o->quick && h != DTR_FULL && h != DTR_MSPS) continue;
        keep_better(x, plan_dtr(x->a, p, x->o, h, x->best ? x->best->cost_ns - 1 : UINT64_MAX));
    }
    if (!is_enough(x)) keep_better(x, plan_sqrt(x->a, p, x->o));
}

/* Bytes of gradients that wait when updates come last. */
static uint64_t waiting_bytes(const Problem *p) {
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (p->effect[r]) EACH(p->in, r, t) bytes += p->bytes[p->storage[t]];
    return bytes;
}

Plan *plan_static(Arena *a, const Problem *p, const Problem *deferred, const PlanOptions *o) {
    Arena *scratch = arena_new();
    Search x = {.a = a, .o = o, .work = grid_work[effort_of(o)]};
    try_grid(&x, sim_new(scratch, p));
    try_published(&x, p);
    bool few = waiting_bytes(p) < plan_capacity(p, o->budget) / 16;
    if (deferred && (!x.best || (few && !o->quick))) {
        x.work += grid_work[effort_of(o)] / 4;
        try_grid(&x, sim_new(scratch, deferred));
    }
    uint64_t climb = o->quick ? 0 : climb_work[effort_of(o)];
    if (x.look_sim && climb)
        keep_better(&x, plan_improve(a, x.look_sim, x.look, x.look_packed, x.look_cost,
                                     x.best->cost_ns, o->budget, climb));
    arena_free(scratch);
    return x.best;
}
