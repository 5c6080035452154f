/* fuzz_trace.c - any bytes as a log and as a node-link graph, compressed or not. What a reader
 * accepts is a graph that can be planned (when it is small): the plan passes the verifier, also
 * with the runs of its views and after a round through its file form. */
#include "plan.h"
#include "trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 100, TINY = 20 }; /* operators of a graph that is planned, and by `static` too */

static void replan(Arena *a, Diag *d, const Graph *g, const Cost *c, const PlanOptions *o) {
    Plan *p;
    if (plan_make(a, g, c, o, &p) != PLAN_OK) return;
    const Plan *all = plan_run_views(a, g, c, p);
    if (!plan_verify(d, g, c, all)) abort();
    Text t;
    text_init(&t, a);
    plan_print_json(&t, g, c, all, NULL);
    const Plan *back = plan_parse_json(a, d, "plan.json", t.at, t.n, g, c);
    if (!back || !plan_verify(d, g, c, back)) abort();
}

static void try(const char *name, const uint8_t *data, size_t size) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    const Graph *g = trace_parse(a, &d, name, (const char *)data, size);
    if (!g && !d.errors) abort();
    if (g && g->nnode <= SMALL && g->nvalue <= 4 * SMALL) {
        const Cost *c = cost_opaque(a, g);
        uint64_t peak = plan_peak_without_budget(g, c, true), floor = plan_floor(g, c, true);
        if (floor > peak) abort();
        PlanOptions o = {.budget = peak, .bytes_only = true, .planner = "none"};
        replan(a, &d, g, c, &o);
        o.budget = floor + (peak - floor) / 2;
        o.planner = "dtr";
        replan(a, &d, g, c, &o);
        o.planner = "static";
        o.quick = true;
        if (g->nnode <= TINY) replan(a, &d, g, c, &o);
        if (d.errors) {
            fputs(d.log.at, stderr);
            abort();
        }
    }
    arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try("fuzz.log", data, size);
    try("fuzz.json", data, size);
    return 0;
}
