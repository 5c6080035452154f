/* ilp.c - strategy `ilp`: the stage-point model (stages.c), points added until its solution is a
 * schedule that fits.
 *
 * The plan of `static` is the first cutoff. Then, round after round: solve the model, whose value
 * is a lower bound; decode the solution. A decoded schedule that fits and costs the bound is
 * optimal. If it does not fit, the place where it is most over the capacity becomes a point, and
 * repair and reduction make a schedule of it that may be a better cutoff. The first point is the
 * one whose minimum cut (cut.c) is largest. No solution within the cutoff means that the best known
 * schedule is optimal. Ends when that is proven or time is up, with the best plan and the bound.
 *
 * Byte sums give the bound, with addresses too: packing only makes it harder. There a schedule
 * counts when it can be packed.
 *
 * "Optimal" is to one part in a million of the time of one run of each node, or to the greatest
 * common divisor of all times when that is more: the cutoff is the best time less that. */
#include "ilp.h"

#include "cut.h"
#include "mend.h"
#include "search.h"
#include "stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_POINTS = 40, MEMORY_MIB = 2048, SAMPLES = 48 };

typedef struct {
    double value;
    uint32_t run;
} Candidate;

typedef struct {
    Arena *a;       /* of the result */
    Arena *scratch; /* of the whole search */
    const PlanOptions *o;
    const Problem *p, *late; /* late: updates at the end, or NULL */
    uint64_t capacity;
    double deadline;
    Mender *mender[2]; /* on timelines of p and late */
    double step;       /* ns that a better schedule must save */
    double best;       /* ns: least extra time of a schedule that fits by byte sums; or INFINITY */
    Sequence schedule; /* that one, of `of`; of no importance when it came with `plan` */
    int of;
    Plan *plan; /* the cheapest placed one */
    double bound;
    Candidate *candidate; /* points by their cut */
    uint32_t ncandidate;
    uint32_t point[MOST_POINTS], npoint;
    PlanProof *proof;
    Text *model;
} Ilp;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- schedules ---- */

Plan *plan_of_timeline(Arena *a, const Timeline *t, const PlanOptions *o, const char *planner) {
    const Problem *p = t->p;
    Plan *plan = timeline_plan(a, t, o->budget, planner);
    if (o->bytes_only) return plan;
    uint64_t capacity = plan_capacity(p, o->budget);
    plan->placed = true;
    plan->arena_bytes = UINT64_MAX;
    plan_fill_totals(p->g, p->c, plan);
    plan_repack(p, plan, capacity, 1);
    return plan->arena_bytes <= capacity ? plan : NULL;
}

static Timeline *timeline_of(const Ilp *x, int of) {
    return x->mender[of]->t;
}

static double extra(const Ilp *x, uint64_t cost_ns) {
    return (double)cost_ns - (double)x->p->base_ns;
}

static void take_plan(Ilp *x, int of) {
    const Timeline *t = timeline_of(x, of);
    if (x->plan && t->cost_ns >= x->plan->cost_ns) return;
    Plan *plan = plan_of_timeline(x->a, t, x->o, "ilp");
    if (plan) x->plan = plan;
}

/* The schedule in the timeline fits: reduces it and keeps it if it is the best. */
static void take(Ilp *x, int of) {
    Mender *m = x->mender[of];
    mend_reduce(m, BY_DENSITY);
    double cost = extra(x, m->t->cost_ns);
    if (cost >= x->best) return;
    x->best = cost;
    x->schedule = timeline_save(x->scratch, m->t);
    x->of = of;
    take_plan(x, of);
}

/* Repairs the schedule in the timeline, which does not fit, as long as it may become the best. */
static void repair(Ilp *x, int of) {
    Mender *m = x->mender[of];
    uint64_t limit = isinf(x->best) ? UINT64_MAX : x->p->base_ns + (uint64_t)x->best;
    /* what reduction takes out again */
    uint64_t loose = limit > UINT64_MAX / 2 ? limit : limit + (limit - x->p->base_ns) / 4;
    m->order = AT_PEAK;
    if (mend(m, loose, m->t->nitem)) take(x, of);
}

/* ---- points ---- */

static int candidate_cmp(const void *x, const void *y) {
    const Candidate *a = x, *b = y;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return a->run < b->run ? -1 : a->run > b->run;
}

/* Local maxima of memory over the capacity in the base order, spread over the step, by their cut.
 */
static void fill_candidates(Ilp *x) {
    const Problem *p = x->p;
    Arena *t = arena_new();
    Timeline *base = timeline_new(t, p);
    int64_t *bytes = ARENA_ARRAY(t, int64_t, (uint64_t)p->nrun + 2);
    for (uint32_t r = 0; r < p->nrun; r++)
        bytes[r + 1] = p->effect[r] ? 0 : timeline_bytes_at(base, base->first[r]);
    VEC(uint32_t) peak = {0};
    for (uint32_t r = 0; r < p->nrun; r++)
        if (bytes[r + 1] > (int64_t)x->capacity && bytes[r + 1] >= bytes[r] &&
            bytes[r + 1] >= bytes[r + 2])
            VEC_PUSH(t, peak, r);
    Cut *cut = cut_new(t, p);
    uint32_t every = peak.n / SAMPLES + 1;
    x->candidate = ARENA_ARRAY(x->scratch, Candidate, (uint64_t)peak.n + 1);
    for (uint32_t i = every / 2; i < peak.n; i += every) {
        Arena *one = arena_new();
        CutPoint at;
        CutResult r = {0};
        if (cut_base_point(one, p, peak.at[i], x->capacity, &at)) cut_solve(cut, &at, &r);
        x->candidate[x->ncandidate++] = (Candidate){r.feasible ? r.value : 0, peak.at[i]};
        arena_free(one);
    }
    if (x->ncandidate) qsort(x->candidate, x->ncandidate, sizeof *x->candidate, candidate_cmp);
    arena_free(t);
}

static bool add_point(Ilp *x, uint32_t run) {
    uint32_t i = x->npoint;
    for (uint32_t k = 0; k < x->npoint; k++)
        if (x->point[k] == run) return false;
    if (i == MOST_POINTS) return false;
    for (; i > 0 && x->point[i - 1] > run; i--) x->point[i] = x->point[i - 1];
    x->point[i] = run;
    x->npoint++;
    return true;
}

static bool add_candidate(Ilp *x) {
    for (uint32_t i = 0; i < x->ncandidate; i++)
        if (add_point(x, x->candidate[i].run)) return true;
    return false;
}

static bool add_node(Ilp *x, NodeId node) {
    for (uint32_t r = 0; r < x->p->nrun && node != NO_ID; r++)
        if (x->p->node[r] == node) return add_point(x, r);
    return false;
}

/* ---- rounds ---- */

typedef enum { GO_ON, DONE } Next;

static Next end(Ilp *x, const char *status) {
    x->proof->status = status;
    return DONE;
}

static Next optimal(Ilp *x) {
    if (!isinf(x->best)) x->bound = x->best;
    return end(x, isinf(x->best) ? "infeasible" : "optimal");
}

static void raise_bound(Ilp *x, double ns) {
    if (ns > x->best) ns = x->best;
    if (ns > x->bound) x->bound = ns;
}

/* A better schedule would cost at most best - step. The solver's values are not exact. */
static bool is_proven(const Ilp *x) {
    static const double nearly = 0.99;
    return x->bound > x->best - nearly * x->step;
}

/* Decodes the solution; what is over the capacity most becomes a point. */
static Next read_solution(Ilp *x, const Stages *s, const MipResult *r) {
    Sequence q;
    int of = 0;
    Arena *t = arena_new();
    bool ok = stages_decode(t, s, r->value, x->p, &q);
    if (!ok && x->late) {
        of = 1;
        ok = stages_decode(t, s, r->value, x->late, &q);
    }
    Next next = GO_ON;
    NodeId worst = NO_ID;
    if (ok) {
        Timeline *l = timeline_of(x, of);
        timeline_restore(l, &q);
        if (timeline_peak(l) <= (int64_t)x->capacity) {
            take(x, of);
        } else {
            worst = stages_worst(s, l);
            repair(x, of);
        }
    }
    arena_free(t);
    if (is_proven(x)) return optimal(x);
    if (r->status == MIP_LIMIT) return end(x, "limit");
    if (!add_node(x, worst) && !add_candidate(x)) next = end(x, "open");
    return next;
}

static const char *head_of(Arena *a, const Ilp *x, const Stages *s) {
    return arena_printf(
        a,
        "dtrc: least recomputation under a budget of %llu bytes, at %u points of the step.\n"
        "One unit of the objective is %.9g ns; one run of each node takes %llu ns.\n"
        "P, A: storage held at a point, and after it; R: run happens again before the next\n"
        "point; Q: after the point; D: view; I: not in place. NAMEpoint_number.\n"
        "The least value is a lower bound for the extra time of all schedules%s.",
        (unsigned long long)x->o->budget, s->npoint, s->unit, (unsigned long long)x->p->base_ns,
        isinf(s->most) ? "" : "\nthat are cheaper than the best known one");
}

/* Whether memory at point j is used up by a solution of the relaxation. */
static bool is_tight(const Stages *s, const double *value, uint32_t j) {
    static const double nearly = 0.999;
    double bytes = (double)stages_used(s, value, j);
    return bytes >= nearly * (double)s->capacity;
}

/* One round with the linear relaxation in place of the program: finds points where memory matters,
 * in no time. Removes points where it does not. False: nothing more to find. */
static bool relax_round(Ilp *x, Arena *t, bool *last) {
    double most = isinf(x->best) ? INFINITY : x->best - x->step;
    Stages *s = stages_new(t, x->p, x->capacity, x->point, x->npoint, most);
    MipOptions mo = {.seconds = x->deadline - now(),
                     .cutoff = (most + x->step / 100) / s->unit,
                     .memory_mib = MEMORY_MIB,
                     .relaxed = true};
    MipResult r;
    if (mo.seconds <= 0) return false;
    mip_solve(t, s->mip, &mo, &r);
    if (r.status != MIP_OPTIMAL) return false;
    raise_bound(x, r.bound * s->unit);
    Sequence q;
    NodeId worst = NO_ID;
    if (!*last && stages_decode(t, s, r.value, x->p, &q)) {
        Timeline *l = timeline_of(x, 0);
        timeline_restore(l, &q);
        worst = stages_worst(s, l);
        if (timeline_peak(l) <= (int64_t)x->capacity)
            take(x, 0);
        else
            repair(x, 0);
    }
    uint32_t n = 0;
    for (uint32_t j = 0; j < s->npoint; j++)
        if (is_tight(s, r.value, j)) x->point[n++] = x->point[j];
    if (n) x->npoint = n;
    return add_node(x, worst);
}

enum { RELAX_ROUNDS = 12 };

static void relax_rounds(Ilp *x) {
    bool last = false;
    for (uint32_t i = 0; i <= RELAX_ROUNDS && !last; i++) {
        last = i == RELAX_ROUNDS;
        Arena *t = arena_new();
        bool more = relax_round(x, t, &last);
        arena_free(t);
        if (!more) break;
    }
}

static void print_model(Ilp *x, Arena *t, const Stages *s) {
    x->model->n = 0;
    mip_print(x->model, s->mip, head_of(t, x, s));
}

static Next solve_round(Ilp *x, Arena *t) {
    double most = isinf(x->best) ? INFINITY : x->best - x->step;
    if (is_proven(x)) return optimal(x);
    Stages *s = stages_new(t, x->p, x->capacity, x->point, x->npoint, most);
    x->proof->rounds++;
    x->proof->points = x->npoint;
    x->proof->columns = s->mip->column.n;
    x->proof->rows = s->mip->row.n;
    if (x->model) print_model(x, t, s);
    MipOptions mo = {.seconds = x->deadline - now(),
                     .cutoff = (most + x->step / 100) / s->unit,
                     .memory_mib = MEMORY_MIB,
                     .cuts = true};
    if (mo.seconds <= 0) return end(x, "limit");
    MipResult r;
    mip_solve(t, s->mip, &mo, &r);
    x->proof->nodes += r.nodes;
    if (r.status == MIP_INFEASIBLE) return optimal(x);
    raise_bound(x, r.bound * s->unit);
    if (r.status == MIP_BROKEN) {
        x->proof->message = arena_str(x->a, r.message);
        return end(x, "failed");
    }
    if (!r.has_value) return end(x, "limit");
    return read_solution(x, s, &r);
}

/* A first point whose cut is below this part of the known bound is one of many that matter. */
static const double FAR = 0.9;

/* Without any round, because the bound was met from the start: that of the first point. */
static void print_first_model(Ilp *x) {
    Arena *t = arena_new();
    print_model(x, t, stages_new(t, x->p, x->capacity, x->point, x->npoint, INFINITY));
    arena_free(t);
}

static void run_rounds(Ilp *x) {
    Next next = add_candidate(x) ? GO_ON : end(x, "open");
    if (next == GO_ON && x->candidate[0].value < FAR * x->bound) relax_rounds(x);
    while (next == GO_ON) {
        Arena *t = arena_new();
        next = solve_round(x, t);
        arena_free(t);
    }
    if (x->model && !x->model->n) print_first_model(x);
}

/* ---- start and end ---- */

static uint64_t common_divisor(const Problem *p) {
    uint64_t a = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        for (uint64_t b = p->ns[r]; b;) {
            uint64_t c = a % b;
            a = b;
            b = c;
        }
    return a;
}

static double least_step(const Problem *p) {
    double step = floor((double)p->base_ns * 1e-6), unit = (double)common_divisor(p);
    return step > unit ? step : unit;
}

/* Schedules that fit by byte sums but could not be packed: the same under smaller capacities. */
static void pack_tighter(Ilp *x) {
    static const double part[] = {1, 0.99, 0.98, 0.97, 0.95, 0.92, 0.88};
    if (isinf(x->best) || (x->plan && x->plan->cost_ns <= x->p->base_ns + (uint64_t)x->best))
        return;
    Mender *m = x->mender[x->of];
    uint64_t limit = x->plan ? x->plan->cost_ns - 1 : UINT64_MAX;
    for (uint32_t i = 0; i < sizeof part / sizeof *part && now() < x->deadline; i++) {
        timeline_restore(m->t, &x->schedule);
        m->capacity = (int64_t)((double)x->capacity * part[i]);
        uint64_t before = x->plan ? x->plan->cost_ns : UINT64_MAX;
        if (mend(m, limit, m->t->nitem)) {
            mend_reduce(m, BY_DENSITY);
            take_plan(x, x->of);
        }
        if (x->plan && x->plan->cost_ns < before) break;
    }
    m->capacity = (int64_t)x->capacity;
}

/* The plan's own order, for plans that do not follow the graph's. */
static const Problem *problem_of_plan(Arena *a, const Problem *p, const Plan *plan) {
    NodeId *order = ARENA_ARRAY(a, NodeId, p->g->nnode);
    Bits seen = bits_new(a, p->g->nnode);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->nstep; i++) {
        NodeId id = plan->step[i].id;
        if (plan->step[i].kind != STEP_RUN || bits_get(seen, id)) continue;
        bits_set(seen, id);
        order[n++] = id;
    }
    while (n < p->g->nnode) order[n++] = NO_ID;
    return problem_new(a, p->g, p->c, order, p->align == 1);
}

static void prepare(Ilp *x, const Plan *start) {
    x->step = least_step(x->p);
    x->best = INFINITY;
    for (int i = 0; i < 2; i++) {
        const Problem *q = i ? x->late : x->p;
        if (!q) continue;
        x->mender[i] = mender_new(x->scratch, timeline_new(x->scratch, q), (int64_t)x->capacity);
    }
    if (start) x->best = extra(x, start->cost_ns);
    x->bound = 0;
    if (!x->proof->own_order) {
        PlanBound b = plan_bound(x->p->g, x->p->c, x->o->budget, x->o->bytes_only);
        raise_bound(x, b.feasible ? b.overhead * (double)x->p->base_ns : 0);
    }
}

const PlanProof *plan_trivial_proof(Arena *a) {
    PlanProof *proof = ARENA_NEW(a, PlanProof);
    proof->status = "optimal";
    return proof;
}

Plan *plan_ilp(Arena *a, const Problem *p, const Problem *late, const PlanOptions *o) {
    Ilp *x = ARENA_NEW(a, Ilp);
    *x = (Ilp){.a = a, .scratch = arena_new(), .o = o, .p = p, .late = late, .model = o->model};
    x->capacity = plan_capacity(p, o->budget);
    double seconds = o->time_limit > 0 ? o->time_limit : PLAN_TIME_LIMIT, began = now();
    x->deadline = began + seconds;
    x->proof = ARENA_NEW(a, PlanProof);
    Plan *start = NULL;
    PlanOptions so = *o;
    so.planner = "static";
    if (plan_make(a, p->g, p->c, &so, &start) != PLAN_OK) start = NULL;
    if (start && !plan_keeps_order(p->g, p->c, start)) {
        x->p = problem_of_plan(x->scratch, p, start);
        x->late = NULL;
        x->proof->own_order = true;
    }
    prepare(x, start);
    x->plan = start;
    x->proof->start_ns = start ? start->cost_ns : 0;
    fill_candidates(x);
    run_rounds(x);
    if (!o->bytes_only) pack_tighter(x);
    x->p = p; /* the scratch arena may hold the problem in the plan's order; times are the same */
    arena_free(x->scratch);
    if (!x->plan) return NULL;
    double open = extra(x, x->plan->cost_ns) - x->bound;
    if (open > x->step && !strcmp(x->proof->status, "optimal")) x->proof->status = "not packed";
    x->plan->planner = "ilp";
    x->proof->bound = fmin(x->bound / (double)p->base_ns, plan_overhead(x->plan));
    x->proof->seconds = now() - began;
    x->plan->proof = x->proof;
    return x->plan;
}
