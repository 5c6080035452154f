/* sweep.c - plan --sweep: overhead over budget, from the peak down to the smallest budget.
 *
 * A plan for a smaller budget is one for a larger budget too, and what no plan can do under a
 * larger budget none can under a smaller. So budgets are planned from the smallest up and each row
 * keeps the best plan so far, and bounds are carried down: both curves never rise with the budget.
 */
#include "driver.h"
#include "sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEP = 5, MAX_ROWS = 400 }; /* percent between default budgets */

static int by_budget(const void *x, const void *y) {
    const SweepRow *a = x, *b = y;
    return (a->budget > b->budget) - (a->budget < b->budget);
}

static void add_row(Arena *a, SweepRows *s, uint64_t budget) {
    SweepRow r = {.budget = budget};
    VEC_PUSH(a, *s, r);
}

/* --budgets 100%,60%,2G */
static bool parse_list(Arena *a, Diag *d, const Options *o, const Work *w, SweepRows *s) {
    const char *p = o->budgets;
    for (;;) {
        size_t n = strcspn(p, ",");
        uint64_t bytes;
        TRY(pipeline_budget(d, "--budgets", arena_strn(a, p, n), w->peak, &bytes));
        if (s->n == MAX_ROWS)
            return diag_error(d, (Place){0}, "--budgets: more than %d entries", MAX_ROWS);
        add_row(a, s, bytes);
        if (!p[n]) return true;
        p += n + 1;
    }
}

static void default_list(Arena *a, const Work *w, SweepRows *s, uint64_t min) {
    add_row(a, s, min);
    for (uint64_t p = 100; p >= STEP; p -= STEP) {
        uint64_t budget = (uint64_t)((double)w->peak * ((double)p / 100));
        if (budget > min) add_row(a, s, budget);
    }
}

static const Plan *plan_one(Arena *a, Diag *d, const Options *o, const Work *w, uint64_t budget,
                            double *ms) {
    PlanOptions po = o->plan;
    po.budget = budget;
    Plan *p = NULL;
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    PlanStatus st = plan_make(a, w->step, w->cost, &po, &p);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    *ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6;
    return st == PLAN_OK && plan_verify(d, w->step, w->cost, p) ? p : NULL;
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
        if (own && own->proof && !own->proof->own_order) r->bound = own->proof->bound;
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

static void print_json(Arena *a, const SweepRows *s, Work *w, uint64_t min) {
    Text t;
    text_init(&t, a);
    text_char(&t, '[');
    for (uint32_t i = s->n; i-- > 0;) {
        const SweepRow *r = &s->at[i];
        text_add(&t, "%s{\"status\": \"%s\", ", i + 1 == s->n ? "" : ",\n ",
                 r->plan ? "ok" : "infeasible");
        w->plan = r->plan;
        w->planning_ms = r->ms;
        if (r->plan) {
            text_add(&t, "\"from_budget_bytes\": %llu, ", (unsigned long long)r->from);
            report_fields(&t, w, r->bound, min);
        } else {
            text_add(&t,
                     "\"from_budget_bytes\": null, \"budget_bytes\": %llu, \"overhead\": null, "
                     "\"gap\": null, \"planned_cost_ns\": null, \"arena_bytes\": null, "
                     "\"byte_peak\": null, \"recomputed_runs\": null, \"evictions\": null, "
                     "\"floor_bytes\": %llu, \"min_budget_bytes\": %llu, "
                     "\"peak_without_budget_bytes\": %llu, \"persistent_bytes\": %llu, ",
                     (unsigned long long)r->budget, (unsigned long long)w->floor,
                     (unsigned long long)min, (unsigned long long)w->peak,
                     (unsigned long long)w->persistent);
            if (r->budget < w->floor)
                text_str(&t, "\"lower_bound\": null");
            else
                text_add(&t, "\"lower_bound\": %.6f", r->bound);
        }
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
    SweepRows s = {0};
    if (o->budgets && !parse_list(a, d, o, &w, &s)) return EXIT_USAGE;
    PlanOptions po = o->plan;
    po.quick = true;
    uint64_t min = plan_min_budget(w.step, w.cost, &po);
    if (!o->budgets) default_list(a, &w, &s, min);
    qsort(s.at, s.n, sizeof *s.at, by_budget);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s.n; i++)
        if (!n || s.at[i].budget != s.at[n - 1].budget) s.at[n++] = s.at[i];
    s.n = n;
    plan_rows(a, d, o, &w, &s, min);
    if (o->json)
        print_json(a, &s, &w, min);
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
