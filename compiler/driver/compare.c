/* compare.c - dtrc compare: planners side by side under several budgets, as text or JSON.
 *
 * Each planner is asked at each budget, alone: rows say what it would do there, not what the best
 * of its plans for smaller budgets could. Bounds do hold downwards (what no plan can do under a
 * larger budget none can under a smaller), and what a solver proves for the graph's order of first
 * runs holds for every plan in that order: so the gap of a row is against the best bound known.
 *
 * A table in which no planner has a plan is still a result: the exit status is 0. */
#include "compare.h"

#include <errno.h>
#include <string.h>

enum { TIME_LIMIT = 10 }; /* seconds of each ilp plan, unless --time-limit says otherwise */

static const char *const all_planners =
    "none,sqrt,dtr,dtr-eq,dtr-local,lru,size,msps,dynamic,static,ilp";
static const char *const default_budgets = "70%,50%,30%";

const char *compare_status(CompareStatus s) {
    static const char *const names[] = {"ok", "infeasible", "timeout"};
    return names[s];
}

bool compare_is_dynamic(const char *planner) {
    static const char *const names[] = {"dtr",  "dtr-eq", "dtr-local", "lru",
                                        "size", "msps",   "dynamic"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(planner, names[i])) return true;
    return false;
}

double compare_share(const Work *w, const CompareBudget *b) {
    return w->peak ? 100 * (double)b->bytes / (double)w->peak : 0;
}

const CompareRow *compare_best(const Compare *c, const CompareBudget *b) {
    const CompareRow *best = NULL;
    for (uint32_t i = 0; i < c->nplanner; i++) {
        const CompareRow *r = &b->row[i];
        if (!r->plan) continue;
        bool equal = best && r->plan->cost_ns == best->plan->cost_ns;
        if (!best || r->plan->cost_ns < best->plan->cost_ns ||
            (equal && !strcmp(r->planner, "static")))
            best = r;
    }
    return best;
}

/* Each name once, in the order given. */
static void fill_planners(Arena *a, const char *list, Compare *c) {
    VEC(const char *) names = {0};
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        const char *name = arena_strn(a, p, n);
        uint32_t i = 0;
        while (i < names.n && strcmp(names.at[i], name) != 0) i++;
        if (i == names.n) VEC_PUSH(a, names, name);
        p += n;
        if (!*p) break;
    }
    c->planner = names.at;
    c->nplanner = names.n;
}

static const char *why_none(Arena *a, const Work *w, const CompareBudget *b, const char *planner) {
    char b1[32];
    if (!b->possible)
        return arena_printf(a, "no schedule exists below %s", format_bytes(b1, w->floor));
    if (!strcmp(planner, "none")) return arena_printf(a, "needs %s", format_bytes(b1, w->peak));
    return "it found no plan";
}

static void plan_row(Arena *a, Diag *d, const Options *o, const Work *w, const CompareBudget *b,
                     CompareRow *r) {
    PlanOptions po = o->plan;
    po.budget = b->bytes;
    po.planner = r->planner;
    po.online = true;
    if (!(po.time_limit > 0)) po.time_limit = TIME_LIMIT;
    PlanStatus st = PLAN_INFEASIBLE;
    if (b->possible) st = pipeline_plan(a, d, o, w, &po, &r->plan, &r->ms);
    const PlanProof *proof = r->plan ? r->plan->proof : NULL;
    if (st == PLAN_INFEASIBLE) {
        r->status = COMPARE_INFEASIBLE;
        r->note = why_none(a, w, b, r->planner);
    } else if (st == PLAN_TOO_LARGE) {
        r->status = COMPARE_TIMEOUT;
        r->note = "too many nodes for it";
    } else if (st == PLAN_TOO_DEAR) {
        r->status = COMPARE_TIMEOUT;
        r->note = "recomputes without end";
    } else if (proof) {
        bool limit = !strcmp(proof->status, "limit");
        r->status = limit ? COMPARE_TIMEOUT : COMPARE_OK;
        r->note = limit ? "best so far" : proof->status;
    }
}

static void raise(double *x, double to) {
    if (to > *x) *x = to;
}

/* Bounds of a budget whose rows are there, as are those of the larger budgets. */
static void fill_bounds(const Work *w, const Compare *c, uint32_t i) {
    CompareBudget *b = &c->budget[i];
    if (!b->possible) return;
    if (i + 1 < c->nbudget) {
        raise(&b->bound.overhead, b[1].bound.overhead);
        raise(&b->bound.any_order, b[1].bound.any_order);
    }
    for (uint32_t k = 0; k < c->nplanner; k++)
        if (b->row[k].plan) raise(&b->bound.overhead, report_proof_bound(b->row[k].plan));
    for (uint32_t k = 0; k < c->nplanner; k++) {
        CompareRow *r = &b->row[k];
        r->bound =
            r->plan ? plan_bound_for(&b->bound, w->step, w->cost, r->plan) : b->bound.overhead;
    }
}

static void fill_budget(Arena *a, Diag *d, const Options *o, const Work *w, const Compare *c,
                        uint32_t i) {
    CompareBudget *b = &c->budget[i];
    b->bound = plan_bound(w->step, w->cost, b->bytes, o->plan.bytes_only);
    b->possible = b->bound.feasible && b->bytes >= w->floor;
    b->row = ARENA_ARRAY(a, CompareRow, c->nplanner);
    for (uint32_t k = 0; k < c->nplanner; k++) {
        b->row[k].planner = c->planner[k];
        plan_row(a, d, o, w, b, &b->row[k]);
    }
    fill_bounds(w, c, i);
}

/* ---- text ---- */

static void print_row(const CompareRow *r) {
    const Plan *p = r->plan;
    char b1[32], b2[32];
    printf("  %-13s", r->planner);
    if (p)
        printf("%8.2f %% %7.2f  %11s %11s  %6u %8u", 100 * plan_overhead(p),
               100 * report_gap(plan_overhead(p), r->bound),
               format_bytes(b1, p->persistent_bytes + p->arena_bytes),
               format_bytes(b2, p->arena_bytes), p->recomputed_runs, p->evictions);
    else
        printf("%8s   %7s  %11s %11s  %6s %8s", "-", "-", "-", "-", "-", "-");
    printf("  %8.0f ms  %s%s%s\n", r->ms, compare_status(r->status), r->note ? ": " : "",
           r->note ? r->note : "");
}

static void print_head(const Work *w, const Compare *c) {
    char b1[32], b2[32], b3[32];
    printf("%u nodes; without recomputation %s; static meets %s, no schedule exists below %s\n",
           w->step->nnode, format_bytes(b1, w->peak), format_bytes(b2, c->min),
           format_bytes(b3, w->floor));
}

static void print_budget(const Work *w, const Compare *c, const CompareBudget *b) {
    char b1[32];
    printf("\nbudget %s, %.1f %% of that%s\n", format_bytes(b1, b->bytes), compare_share(w, b),
           b->possible ? "" : ": no schedule exists");
    if (!b->possible) return;
    printf("  %-13s%10s %7s  %11s %11s  %6s %8s  %11s  %s\n", "planner", "overhead", "gap", "peak",
           "arena", "again", "dropped", "planning", "status");
    for (uint32_t k = 0; k < c->nplanner; k++) print_row(&b->row[k]);
    printf("  %-13s%8.2f %%", "lower bound", 100 * b->bound.overhead);
    if (b->bound.any_order < b->bound.overhead - 1e-4)
        printf("   (with first runs in any order %.2f %%)", 100 * b->bound.any_order);
    putchar('\n');
}

static void print_run(const char *budget, const char *planner, const Measured *m) {
    char b1[32];
    printf("  %12s  %-10s", budget, planner);
    if (m->error) {
        printf("status %d: %s\n", m->status, m->error);
        return;
    }
    printf("%-8s %10.4g %10.4g %8.2f %%  %11s  %6u", m->mode, m->step_ms, m->base_ms,
           100 * m->overhead, format_bytes(b1, m->peak_bytes), m->again);
    if (m->decisions)
        printf("  %9.4g %9.4g", m->decide_ns / 1e6, m->planning_ms);
    else
        printf("  %9s %9s", "-", "-");
    printf("  %s\n", m->same_weights ? "same bits" : "OTHER BITS");
}

static void print_measured(const Work *w, const Compare *c) {
    char b1[32];
    printf("\nmeasured, ms: %u steps on random data, %d threads; 'without': the program without a "
           "budget, right after\n"
           "  %12s  %-10s%-8s %10s %10s %10s  %11s  %6s  %9s %9s  %s\n",
           c->base->steps, w->cost->threads, "budget", "planner", "mode", "step", "without",
           "overhead", "peak", "again", "deciding", "at start", "weights");
    print_run("none", "none", c->base);
    for (uint32_t i = c->nbudget; i-- > 0;)
        for (uint32_t k = 0; k < c->nplanner; k++) {
            const CompareRow *r = &c->budget[i].row[k];
            if (r->measured)
                print_run(format_bytes(b1, c->budget[i].bytes), r->planner, r->measured);
        }
}

/* ---- JSON ---- */

static void measured_json(Text *t, const Measured *m) {
    if (!m) {
        text_str(t, "null");
        return;
    }
    text_add(t, "{\"exit_status\": %d, ", m->status);
    if (m->error) {
        text_str(t, "\"error\": ");
        text_json(t, m->error);
    } else {
        text_str(t, "\"mode\": ");
        text_json(t, m->mode);
        text_str(t, ", \"heuristic\": ");
        text_json(t, m->heuristic);
        text_add(t,
                 ", \"steps\": %u, \"step_ms\": %.6g, \"base_step_ms\": %.6g, \"overhead\": %.6f, "
                 "\"peak_bytes\": %llu, "
                 "\"recomputed_runs\": %u, \"evictions\": %u, \"decisions\": %u, "
                 "\"decide_ns\": %.0f, \"planning_ms\": %.6g, \"weights_equal\": %s, "
                 "\"weights_sha256\": ",
                 m->steps, m->step_ms, m->base_ms, m->overhead, (unsigned long long)m->peak_bytes,
                 m->again, m->evictions, m->decisions, m->decide_ns, m->planning_ms,
                 m->same_weights ? "true" : "false");
        text_json(t, m->sha256);
    }
    text_char(t, '}');
}

static void print_json(Arena *a, Work *w, const Compare *c) {
    Text t;
    text_init(&t, a);
    for (uint32_t i = c->nbudget; i-- > 0;)
        for (uint32_t k = 0; k < c->nplanner; k++) {
            const CompareBudget *b = &c->budget[i];
            const CompareRow *r = &b->row[k];
            text_add(&t, "%s{\"status\": \"%s\", ", t.n ? ",\n " : "[", compare_status(r->status));
            w->plan = r->plan;
            w->budget = b->bytes;
            w->planning_ms = r->ms;
            report_fields(&t, w, r->planner, b->possible ? r->bound : -1, c->min);
            if (c->base) {
                text_str(&t, ", \"measured\": ");
                measured_json(&t, r->measured);
                text_str(&t, ", \"measured_base\": ");
                measured_json(&t, c->base);
            }
            text_char(&t, '}');
        }
    text_str(&t, "]\n");
    fputs(t.at, stdout);
}

int compare(Arena *a, Diag *d, const Options *o) {
    Work w = {0};
    if (o->report && !file_can_write(o->report)) { /* said before minutes of planning */
        diag_error(d, (Place){.file = o->report}, "cannot write the report: %s", strerror(errno));
        return EXIT_MACHINE;
    }
    int status = pipeline_run(a, d, o, ST_COST, &w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_COST)) return status;
    pipeline_limits(o, &w);
    Budgets budgets = {0};
    if (!pipeline_budgets(a, d, o->budgets ? o->budgets : default_budgets, w.peak, &budgets))
        return EXIT_USAGE;
    Compare c = {.listed = o->planners != NULL,
                 .nbudget = budgets.n,
                 .budget = ARENA_ARRAY(a, CompareBudget, budgets.n)};
    for (uint32_t i = 0; i < budgets.n; i++) c.budget[i].bytes = budgets.at[i];
    fill_planners(a, o->planners ? o->planners : all_planners, &c);
    PlanOptions po = o->plan;
    po.quick = true;
    c.min = plan_min_budget(w.step, w.cost, &po);
    if (!o->json) print_head(&w, &c);
    for (uint32_t i = c.nbudget; i-- > 0; fflush(stdout)) { /* each as soon as it is there */
        fill_budget(a, d, o, &w, &c, i);
        if (!o->json) print_budget(&w, &c, &c.budget[i]);
    }
    status = o->measure ? measure(a, d, o, &w, &c) : EXIT_DONE;
    if (status != EXIT_DONE) return status;
    if (o->json)
        print_json(a, &w, &c);
    else if (c.base)
        print_measured(&w, &c);
    if (o->report && !compare_html(a, d, o, &w, &c)) return EXIT_MACHINE;
    return EXIT_DONE;
}
