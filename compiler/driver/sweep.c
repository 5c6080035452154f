/* sweep.c - plan --sweep: overhead over budget, from the peak down to the smallest budget.
 *
 * A plan for a smaller budget is one for a larger budget too, and what no plan can do under a
 * larger budget none can under a smaller. So budgets are planned from the smallest up and each row
 * keeps the best plan so far, and bounds are carried down: both curves never rise with the budget.
 */
#include "driver.h"
#include "sweep.h"

#include <errno.h>
#include <string.h>

enum { STEP = 5 }; /* percent between default budgets */

static void default_list(Arena *a, const Work *w, Budgets *s, uint64_t min) {
    VEC_PUSH(a, *s, min);
    for (uint64_t p = STEP; p <= 100; p += STEP) {
        uint64_t budget = (uint64_t)((double)w->peak * ((double)p / 100));
        if (budget > min) VEC_PUSH(a, *s, budget);
    }
}

static const Plan *plan_one(Arena *a, Diag *d, const Options *o, const Work *w, uint64_t budget,
                            double *ms) {
    PlanOptions po = o->plan;
    po.budget = budget;
    const Plan *p;
    pipeline_plan(a, d, o, w, &po, &p, ms);
    return p;
}

/* The plan of one budget, used for a larger one. */
static const Plan *plan_for(Arena *a, const Plan *p, uint64_t budget) {
    Plan *q = ARENA_NEW(a, Plan);
    *q = *p;
    q->budget = budget;
    return q;
}

static void plan_rows(Arena *a, Diag *d, const Options *o, const Work *w, SweepRows *s,
                      uint64_t min) {
    const Plan *best = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        SweepRow *r = &s->at[i];
        if (r->budget < w->floor) continue;
        const Plan *own = plan_one(a, d, o, w, r->budget, &r->ms);
        double ms;
        if (!own && !best && r->budget >= min) best = plan_one(a, d, o, w, min, &ms);
        if (own) r->bound = report_proof_bound(own);
        if (own && (!best || own->cost_ns <= best->cost_ns)) best = own;
        if (!best) continue;
        r->plan = plan_for(a, best, r->budget);
        r->from = best->budget;
    }
    bool keeps = true; /* a bound for the graph's order says nothing about other plans */
    for (uint32_t i = 0; i < s->n && keeps; i++)
        keeps = !s->at[i].plan || plan_keeps_order(w->step, w->cost, s->at[i].plan);
    double bound = 0;
    for (uint32_t i = s->n; i-- > 0;) {
        SweepRow *r = &s->at[i];
        if (r->budget < w->floor) continue;
        PlanBound b = plan_bound(w->step, w->cost, r->budget, o->plan.bytes_only);
        double own = keeps ? b.overhead : b.any_order;
        if (keeps && r->bound > own) own = r->bound; /* a solver's */
        r->bound = bound = own > bound ? own : bound;
    }
}

static void print_text(const SweepRows *s, const Work *w, uint64_t min) {
    char b1[32], b2[32], b3[32];
    printf("peak without recomputation %s, smallest budget %s, no schedule below %s\n",
           format_bytes(b1, w->peak), format_bytes(b2, min), format_bytes(b3, w->floor));
    printf("%12s  of peak  overhead     bound      gap  runs again\n", "budget");
    for (uint32_t i = s->n; i-- > 0;) {
        const SweepRow *r = &s->at[i];
        printf("%12s  %5.1f %%", format_bytes(b1, r->budget),
               100 * (double)r->budget / (double)w->peak);
        if (!r->plan) {
            printf("  %s\n", r->budget < w->floor ? "impossible: below the largest working set"
                                                  : "no plan found");
            continue;
        }
        double over = plan_overhead(r->plan);
        printf("  %6.2f %%  %6.2f %%  %7.2f  %10u", 100 * over, 100 * r->bound,
               100 * report_gap(over, r->bound), r->plan->recomputed_runs);
        if (r->from != r->budget) printf("  plan of %s", format_bytes(b2, r->from));
        putchar('\n');
    }
}

static void print_json(Arena *a, const Options *o, const SweepRows *s, Work *w, uint64_t min) {
    const char *planner = o->plan.planner ? o->plan.planner : "static";
    Text t;
    text_init(&t, a);
    text_char(&t, '[');
    for (uint32_t i = s->n; i-- > 0;) {
        const SweepRow *r = &s->at[i];
        text_add(&t, "%s{\"status\": \"%s\", ", i + 1 == s->n ? "" : ",\n ",
                 r->plan ? "ok" : "infeasible");
        w->plan = r->plan;
        w->planning_ms = r->ms;
        w->budget = r->budget;
        if (r->plan)
            text_add(&t, "\"from_budget_bytes\": %llu, ", (unsigned long long)r->from);
        else
            text_str(&t, "\"from_budget_bytes\": null, ");
        report_fields(&t, w, r->plan ? r->plan->planner : planner,
                      r->budget < w->floor ? -1 : r->bound, min);
        text_char(&t, '}');
    }
    text_str(&t, "]\n");
    fputs(t.at, stdout);
}

int sweep(Arena *a, Diag *d, const Options *o) {
    Work w = {0};
    int status = pipeline_run(a, d, o, ST_COST, &w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_COST)) return status;
    pipeline_limits(o, &w);
    Budgets budgets = {0};
    if (o->budgets && !pipeline_budgets(a, d, o->budgets, w.peak, &budgets)) return EXIT_USAGE;
    PlanOptions po = o->plan;
    po.quick = true;
    uint64_t min = plan_min_budget(w.step, w.cost, &po);
    if (!o->budgets) default_list(a, &w, &budgets, min);
    SweepRows s = {0};
    for (uint32_t i = 0; i < budgets.n; i++) {
        SweepRow r = {.budget = budgets.at[i]};
        VEC_PUSH(a, s, r);
    }
    plan_rows(a, d, o, &w, &s, min);
    if (o->json)
        print_json(a, o, &s, &w, min);
    else
        print_text(&s, &w, min);
    if (!o->out) return EXIT_DONE;
    Text t;
    text_init(&t, a);
    sweep_svg(&t, o, &w, &s, min);
    if (file_write(o->out, t.at, t.n)) return EXIT_DONE;
    diag_error(d, (Place){.file = o->out}, "cannot write the picture: %s", strerror(errno));
    return EXIT_MACHINE;
}
