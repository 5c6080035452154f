/* html.c - what a page says about one plan, and plan --report: the page of one plan. */
#include "page.h"

#include <stdlib.h>

enum { ROWS = 20 };

static const char *name_of(const Work *w, StorageId s) {
    const Graph *g = w->step;
    return s == NO_ID ? "workspace" : g->value[g->storage[s].root].name;
}

static void name_cell(Text *t, const char *name) {
    text_str(t, "<td class=\"name\">");
    page_text(t, name);
    text_str(t, "</td>");
}

static void bytes_cell(Text *t, uint64_t bytes) {
    char b1[32];
    text_add(t, "<td>%s</td>", format_bytes(b1, bytes));
}

static void rows_left(Text *t, uint32_t n) {
    if (n > ROWS) text_add(t, "<p class=\"dim\">and %u more</p>\n", n - ROWS);
}

static void at_peak(Text *t, Arena *a, const Work *w, const PlanFacts *f) {
    static const char *const head[] = {"<value", "<what it is", "bytes"};
    char b1[32];
    text_add(t, "<h3>There at the peak of %s</h3>\n", format_bytes(b1, f->peak_bytes));
    page_table(t, head, 3);
    for (uint32_t i = 0; i < f->nresident && i < ROWS; i++) {
        const PlanResident *x = &f->resident[i];
        text_str(t, "<tr>");
        name_cell(t, name_of(w, x->storage));
        text_str(t, "<td class=\"l\">");
        page_text(t, explain_storage_kind(a, w, x->storage));
        text_str(t, "</td>");
        bytes_cell(t, x->bytes);
        text_str(t, "</tr>\n");
    }
    page_table_end(t);
    rows_left(t, f->nresident);
}

static int dearer(const void *x, const void *y) {
    const PlanRerun *a = x, *b = y;
    if (a->ns != b->ns) return a->ns > b->ns ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static void runs_again(Text *t, Arena *a, const Work *w, PlanFacts *f) {
    static const char *const head[] = {"<node", "<operator", "again", "ms", "of the step"};
    text_str(t, "<h3>Most expensive recomputations</h3>\n");
    if (!f->nrerun) {
        text_str(t, "<p>Nothing runs twice.</p>\n");
        return;
    }
    qsort(f->rerun, f->nrerun, sizeof *f->rerun, dearer);
    page_table(t, head, 5);
    for (uint32_t i = 0; i < f->nrerun && i < ROWS; i++) {
        const PlanRerun *x = &f->rerun[i];
        text_str(t, "<tr>");
        name_cell(t, w->step->node[x->node].name);
        text_str(t, "<td class=\"l\">");
        page_text(t, explain_kind(a, &w->step->node[x->node]));
        text_add(t, "</td><td>%u</td><td>%.4g</td><td>%.2f %%</td></tr>\n", x->again,
                 (double)x->ns / 1e6,
                 w->plan->cost_ns ? 100 * (double)x->ns / (double)w->plan->cost_ns : 0);
    }
    page_table_end(t);
    rows_left(t, f->nrerun);
}

static int longer(const void *x, const void *y) {
    const PlanEviction *a = x, *b = y;
    double p = (double)a->bytes * (double)a->idle_ns, q = (double)b->bytes * (double)b->idle_ns;
    if (p != q) return p > q ? -1 : 1;
    return (a->back > b->back) - (a->back < b->back);
}

static void drops(Text *t, const Work *w, PlanFacts *f) {
    static const char *const head[] = {"<value", "bytes", "away for ms", "made again in ms"};
    if (!f->neviction) return;
    text_str(t, "<h3>Dropped for longest (bytes times time)</h3>\n");
    qsort(f->eviction, f->neviction, sizeof *f->eviction, longer);
    page_table(t, head, 4);
    for (uint32_t i = 0; i < f->neviction && i < ROWS; i++) {
        const PlanEviction *x = &f->eviction[i];
        text_str(t, "<tr>");
        name_cell(t, name_of(w, x->storage));
        bytes_cell(t, x->bytes);
        text_add(t, "<td>%.4g</td><td>%.4g</td></tr>\n", (double)x->idle_ns / 1e6,
                 (double)x->again_ns / 1e6);
    }
    page_table_end(t);
    rows_left(t, f->neviction);
}

void page_plan(Text *t, Arena *a, const Work *w) {
    const Plan *p = w->plan;
    char b1[32], b2[32], b3[32], b4[32];
    text_add(t,
             "<div class=\"plan\"><p>Planner %s: needs %s (%s persistent, %s arena) of %s; %u runs "
             "again and %u drops, "
             "%.2f %% more time than without a budget.</p>\n",
             p->planner, format_bytes(b1, p->persistent_bytes + p->arena_bytes),
             format_bytes(b2, p->persistent_bytes), format_bytes(b3, p->arena_bytes),
             format_bytes(b4, p->budget), p->recomputed_runs, p->evictions, 100 * plan_overhead(p));
    PlanFacts *f = plan_explain(a, w->step, w->cost, p);
    page_memory(t, a, w, f);
    runs_again(t, a, w, f);
    at_peak(t, a, w, f);
    drops(t, w, f);
    text_str(t, "</div>\n");
}

bool report_html(Arena *a, Diag *d, const Options *o, const Work *w) {
    Text t;
    text_init(&t, a);
    page_begin(&t, "dtrc plan", o->model);
    char b1[32], b2[32];
    text_add(&t, "<p class=\"dim\">%u nodes; %s without recomputation; no schedule below %s</p>\n",
             w->step->nnode, format_bytes(b1, w->peak), format_bytes(b2, w->floor));
    page_plan(&t, a, w);
    return page_end(&t, d, o->report);
}
