/* report.c - what dtrc says about a plan: the overhead, the proven lower bound and the gap between
 * them, as text or JSON; and what it says when the budget cannot be met. */
#include "driver.h"

#include <errno.h>
#include <string.h>

enum { PEAK_VALUES = 8 }; /* values listed in a message about an infeasible budget */

static uint32_t count_storages(const Graph *g) {
    uint32_t n = 0;
    for (StorageId s = 0; s < g->nstorage; s++) n += g->storage[s].bytes > 0;
    return n;
}

double report_gap(double overhead, double bound) {
    double gap = overhead - bound;
    return gap < 0 && gap > -1e-9 ? 0 : gap;
}

double report_proof_bound(const Plan *p) {
    const PlanProof *x = p->proof;
    return x && !x->own_order && !x->published ? x->bound : 0;
}

static void field_bytes(Text *t, const char *name, uint64_t bytes) {
    text_add(t, "\"%s\": %llu, ", name, (unsigned long long)bytes);
}

/* null without a plan */
static void field_of_plan(Text *t, const Plan *p, const char *name, uint64_t x) {
    if (p)
        field_bytes(t, name, x);
    else
        text_add(t, "\"%s\": null, ", name);
}

static uint64_t base_ns(const Work *w) {
    uint64_t ns = 0;
    for (NodeId n = 0; n < w->step->nnode; n++) ns += w->cost->node_ns[n];
    return ns;
}

static void proof_fields(Text *t, const Plan *p) {
    const PlanProof *x = p->proof;
    double over = plan_overhead(p);
    text_add(t,
             ", \"ilp_status\": \"%s\", \"ilp_bound\": %.8f, \"ilp_gap\": %.8f, \"ilp_order\": "
             "\"%s\", \"ilp_points\": %u, \"ilp_columns\": %u, \"ilp_rows\": %u, "
             "\"ilp_rounds\": %u, \"ilp_nodes\": %u, \"ilp_seconds\": %.2f, "
             "\"ilp_start_overhead\": ",
             x->status, x->bound, over - x->bound,
             x->published   ? "published"
             : x->own_order ? "plan"
                            : "graph",
             x->points, x->columns, x->rows, x->rounds, x->nodes, x->seconds);
    if (x->start_ns)
        text_add(t, "%.8f", (double)x->start_ns / (double)p->base_ns - 1);
    else
        text_str(t, "null");
}

void report_fields(Text *t, const Work *w, const char *planner, double bound, uint64_t min) {
    static const Plan none;
    const Plan *p = w->plan, *x = p ? p : &none;
    text_add(t, "\"nodes\": %u, \"storages\": %u, ", w->step->nnode, count_storages(w->step));
    field_bytes(t, "base_cost_ns", base_ns(w));
    field_of_plan(t, p, "planned_cost_ns", x->cost_ns);
    double over = plan_overhead(x);
    if (p)
        text_add(t, "\"overhead\": %.6f, \"lower_bound\": %.6f, \"gap\": %.6f, ", over, bound,
                 report_gap(over, bound));
    else if (bound < 0)
        text_str(t, "\"overhead\": null, \"lower_bound\": null, \"gap\": null, ");
    else
        text_add(t, "\"overhead\": null, \"lower_bound\": %.6f, \"gap\": null, ", bound);
    field_bytes(t, "peak_without_budget_bytes", w->peak);
    field_bytes(t, "budget_bytes", p ? p->budget : w->budget);
    field_bytes(t, "persistent_bytes", w->persistent);
    field_of_plan(t, p, "arena_bytes", x->arena_bytes);
    field_of_plan(t, p, "byte_peak", x->byte_peak);
    field_bytes(t, "floor_bytes", w->floor);
    field_bytes(t, "min_budget_bytes", min);
    field_of_plan(t, p, "recomputed_runs", x->recomputed_runs);
    field_of_plan(t, p, "evictions", x->evictions);
    text_add(t, "\"planner\": \"%s\", \"planning_ms\": %.1f", planner, w->planning_ms);
    if (p && p->proof) proof_fields(t, p);
}

/* A solver's proof speaks of the graph's order, of the plan's own, or of less. */
static double bound_of(const Options *o, const Work *w) {
    PlanBound b = plan_bound(w->step, w->cost, w->plan->budget, o->plan.bytes_only);
    double bound = plan_bound_for(&b, w->step, w->cost, w->plan);
    double proven = report_proof_bound(w->plan);
    return proven > bound ? proven : bound;
}

static void proof_print(FILE *out, const Plan *p) {
    const PlanProof *x = p->proof;
    double over = plan_overhead(p);
    if (!strcmp(x->status, "optimal"))
        fprintf(out, "optimal, to 0.0001 points: no schedule takes less");
    else
        fprintf(out, "bound %.4f %%, gap %.4f points (%s%s%s)", 100 * x->bound,
                100 * (over - x->bound), x->status, x->message ? ": " : "",
                x->message ? x->message : "");
    if (x->published)
        fputs(" of the published form", out);
    else
        fprintf(out, " with the first runs in the %s order", x->own_order ? "plan's" : "graph's");
    if (x->start_ns)
        fprintf(out, "; static had %.4f %%", 100 * ((double)x->start_ns / (double)p->base_ns - 1));
    fprintf(out, "\n%u points, %u columns, %u rows, %u rounds, %u nodes, %.1f s\n", x->points,
            x->columns, x->rows, x->rounds, x->nodes, x->seconds);
}

static void plan_json(FILE *out, const Options *o, const Work *w) {
    PlanOptions po = o->plan;
    po.quick = true;
    Arena *a = arena_new();
    Text t;
    text_init(&t, a);
    text_char(&t, '{');
    report_fields(&t, w, w->plan->planner, bound_of(o, w), plan_min_budget(w->step, w->cost, &po));
    if (o->explain) {
        text_str(&t, ", \"explain\": ");
        explain_json(&t, w);
    }
    text_str(&t, "}\n");
    fputs(t.at, out);
    arena_free(a);
}

void report_plan(FILE *out, const Options *o, const Work *w) {
    if (o->json) {
        plan_json(out, o, w);
        return;
    }
    const Plan *p = w->plan;
    char b1[32], b2[32], b3[32], b4[32], b5[32];
    double over = plan_overhead(p), bound = bound_of(o, w);
    fprintf(out, "budget %s: needs %s = %s persistent + %s arena; %s without recomputation\n",
            format_bytes(b1, p->budget), format_bytes(b2, p->persistent_bytes + p->arena_bytes),
            format_bytes(b3, p->persistent_bytes), format_bytes(b4, p->arena_bytes),
            format_bytes(b5, w->peak));
    fprintf(out,
            "%u nodes, %u recomputed runs: overhead %.2f %%, lower bound %.2f %%, gap %.2f points "
            "(planner %s, %.0f ms)\n",
            w->step->nnode, p->recomputed_runs, 100 * over, 100 * bound,
            100 * report_gap(over, bound), p->planner, w->planning_ms);
    if (p->proof) proof_print(out, p);
}

int report_infeasible(Arena *a, Diag *d, const Options *o, const Work *w) {
    char b1[32], b2[32], b3[32];
    PlanOptions po = o->plan;
    uint64_t min = plan_min_budget(w->step, w->cost, &po);
    diag_error(d, (Place){.file = o->model},
               "the budget of %s (%llu bytes) cannot be met: the smallest that this planner meets "
               "is %s (%llu bytes), "
               "and no schedule exists below %s (%llu bytes)",
               format_bytes(b1, w->budget), (unsigned long long)w->budget, format_bytes(b2, min),
               (unsigned long long)min, format_bytes(b3, w->floor), (unsigned long long)w->floor);
    ValueId top[PEAK_VALUES];
    uint32_t n = plan_peak_values(w->step, w->cost, top, PEAK_VALUES);
    diag_hint(d, "persistent: %s (%s); the largest values live at the peak:",
              format_bytes(b1, w->persistent),
              w->is_trace ? "constants" : "weights, optimizer state, staged inputs");
    for (uint32_t i = 0; i < n; i++)
        diag_hint(d, "  %s %s", format_bytes(b1, value_bytes(w->step, top[i])),
                  diag_name(a, w->step->value[top[i]].name));
    if (!w->is_trace) diag_hint(d, "a smaller --batch needs less");
    return EXIT_BUDGET;
}
