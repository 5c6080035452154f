/* compare_html.c - compare --report: overhead over budget for each planner as a picture and a
 * table, then the best plan of each budget.
 *
 * The axis runs from the largest budget to the smallest: curves fan out to the right, where their
 * names are. A planner that needs many times the overhead of the best would flatten all others: its
 * curve leaves the picture, its name says the number. */
#include "compare.h"
#include "page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLAT = 3 }; /* times the largest overhead of the best plans: what a picture shows */

typedef struct {
    double want, at;     /* percent of the height, from above */
    double x, y;         /* where the curve ends */
    const char *planner; /* "bound" */
    double value;        /* percent */
} Tag;

static double percent(const Plan *p) {
    return 100 * plan_overhead(p);
}

static Chart chart_of(Text *t, const Compare *c) {
    double most = 0, best = 0;
    for (uint32_t i = 0; i < c->nbudget; i++) {
        const CompareRow *row = compare_best(c, &c->budget[i]);
        if (row) best = fmax(best, percent(row->plan));
        for (uint32_t k = 0; k < c->nplanner; k++)
            if (c->budget[i].row[k].plan) most = fmax(most, percent(c->budget[i].row[k].plan));
    }
    double lo = (double)c->budget[0].bytes, hi = (double)c->budget[c->nbudget - 1].bytes;
    double margin = fmax(.03 * (hi - lo), .01 * hi);
    return (Chart){.t = t,
                   .lo = hi + margin,
                   .hi = lo - margin,
                   .top = 1.08 * fmin(fmax(most, 1), fmax(FLAT * best, 5))};
}

/* Below the bound of the next larger budget there is no plan; below the floor there is none. */
static void draw_bound(const Chart *c, const Work *w, const Compare *x) {
    text_add(c->t, "<path class=\"bound\" d=\"M0 %d", CHART_SIZE);
    for (uint32_t i = x->nbudget; i-- > 0;) {
        const CompareBudget *b = &x->budget[i];
        if (!b->possible) break;
        text_add(c->t, "H%.1fV%.1f", i + 1 < x->nbudget ? chart_x(c, (double)b->bytes) : 0,
                 chart_y(c, 100 * b->bound.overhead));
    }
    if (!x->budget[0].possible) text_add(c->t, "H%.1fV0", chart_x(c, (double)w->floor));
    text_add(c->t, "H%dV%dZ\"><title>proven: no plan is here</title></path>\n", CHART_SIZE,
             CHART_SIZE);
}

/* From one point to the next, as far as the picture goes. */
static void draw_line(const Chart *c, double x0, double y0, double x1, double y1) {
    if (y0 > c->top && y1 > c->top) return;
    double cut = (c->top - y0) / (y1 - y0); /* where a line that leaves or enters is cut */
    double from = y0 > c->top ? cut : 0, to = y1 > c->top ? cut : 1;
    text_add(c->t, "M%.1f %.1fL%.1f %.1f", chart_x(c, x0 + from * (x1 - x0)),
             chart_y(c, y0 + from * (y1 - y0)), chart_x(c, x0 + to * (x1 - x0)),
             chart_y(c, y0 + to * (y1 - y0)));
}

/* A ring at what a run took. */
static void draw_measured(const Chart *c, const CompareBudget *b, const CompareRow *r) {
    const Measured *m = r->measured;
    if (!m || m->error || 100 * m->overhead > c->top) return;
    double x = chart_x(c, (double)b->bytes), y = chart_y(c, 100 * m->overhead);
    text_add(c->t,
             "<path class=\"ring p-%s\" d=\"M%.1f %.1fh0\"><title>%s, measured: %.2f "
             "%%</title></path><path class=\"hole\" d=\"M%.1f %.1fh0\"/>\n",
             r->planner, x, y, r->planner, 100 * m->overhead, x, y);
}

static void draw_planner(const Chart *c, const Compare *x, uint32_t k) {
    const char *name = x->planner[k];
    text_add(c->t, "<path class=\"curve p-%s\" d=\"", name);
    const CompareBudget *last = NULL;
    for (uint32_t i = x->nbudget; i-- > 0;) {
        const CompareBudget *b = &x->budget[i];
        if (!b->row[k].plan) continue;
        if (last)
            draw_line(c, (double)last->bytes, percent(last->row[k].plan), (double)b->bytes,
                      percent(b->row[k].plan));
        last = b;
    }
    text_add(c->t, "\"><title>%s</title></path>\n", name);
    for (uint32_t i = x->nbudget; i-- > 0;) {
        const CompareBudget *b = &x->budget[i];
        const Plan *p = b->row[k].plan;
        char b1[32];
        draw_measured(c, b, &b->row[k]);
        if (p && percent(p) <= c->top)
            text_add(c->t,
                     "<path class=\"dot p-%s\" d=\"M%.1f %.1fh0\"><title>%s, %s: %.2f "
                     "%%</title></path>\n",
                     name, chart_x(c, (double)b->bytes), chart_y(c, percent(p)), name,
                     format_bytes(b1, b->bytes), percent(p));
    }
}

static int higher(const void *x, const void *y) {
    const Tag *a = x, *b = y;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return (a->want > b->want) - (a->want < b->want);
}

/* Names at the right, where their curves end or as near as they fit, and lines that lead there. */
static uint32_t fill_tags(const Chart *c, const Compare *x, Tag *tag) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < x->nplanner; k++)
        for (uint32_t i = 0; i < x->nbudget; i++) {
            const CompareBudget *b = &x->budget[i];
            if (!b->row[k].plan) continue;
            if (i + 1 == x->nbudget && !strcmp(x->planner[k], "none")) break;
            double v = percent(b->row[k].plan), y = chart_y(c, v);
            tag[n++] = (Tag){.want = 100 * y / CHART_SIZE,
                             .x = chart_x(c, (double)b->bytes),
                             .y = y,
                             .planner = x->planner[k],
                             .value = v};
            break;
        }
    for (uint32_t i = 0; i < x->nbudget; i++) {
        const CompareBudget *b = &x->budget[i];
        if (!b->possible) continue;
        double v = 100 * b->bound.overhead, y = chart_y(c, v);
        tag[n++] = (Tag){100 * y / CHART_SIZE, 0, chart_x(c, (double)b->bytes), y, "bound", v};
        break;
    }
    qsort(tag, n, sizeof *tag, higher);
    const double gap = 5.7;
    double at = -gap;
    for (uint32_t i = 0; i < n; i++) tag[i].at = at = fmax(tag[i].want, at + gap);
    at = 100 + gap / 2;
    for (uint32_t i = n; i-- > 0;) tag[i].at = at = fmin(tag[i].at, at - gap);
    return n;
}

static void draw_ticks(const Chart *c, const Work *w, const Compare *x) {
    double last = -1e9, last_major = -1e9; /* positions */
    char b1[32], text[80];
    for (uint32_t i = x->nbudget; i-- > 0;) {
        const CompareBudget *b = &x->budget[i];
        double at = chart_x(c, (double)b->bytes);
        if (at - last < .085 * CHART_SIZE) continue;
        bool minor = at - last_major < .25 * CHART_SIZE;
        last = at;
        if (!minor) last_major = at;
        snprintf(text, sizeof text, "%.3g %%<br>%s", compare_share(w, b),
                 format_bytes(b1, b->bytes));
        chart_tick(c, (double)b->bytes, minor, text);
    }
}

static void draw_curves(Text *t, Arena *a, const Work *w, const Compare *x) {
    Chart c = chart_of(t, x);
    chart_begin(&c, "", "overhead, % of the compute time without a budget",
                "overhead of each planner over the budget");
    chart_grid(&c, 1);
    draw_bound(&c, w, x);
    Tag *tag = ARENA_ARRAY(a, Tag, (uint64_t)x->nplanner + 1);
    uint32_t n = fill_tags(&c, x, tag);
    for (uint32_t i = 0; i < n; i++)
        text_add(t, "<path class=\"lead p-%s\" d=\"M%.1f %.1fL%d %.1f\"/>\n", tag[i].planner,
                 tag[i].x, tag[i].y, CHART_SIZE, tag[i].at * CHART_SIZE / 100);
    for (uint32_t k = 0; k < x->nplanner; k++) draw_planner(&c, x, k);
    chart_labels(&c);
    for (uint32_t i = 0; i < n; i++)
        text_add(t,
                 "<span class=\"tag p-%s\" style=\"top:%.2f%%\">%s<i class=\"minor\"> %.2f "
                 "%%</i></span>\n",
                 tag[i].planner, tag[i].at, tag[i].planner, tag[i].value);
    draw_ticks(&c, w, x);
    chart_end(&c, "budget, of the peak without recomputation");
    text_str(t, "<p class=\"dim\">Shaded: proven that no plan is there. Lines between budgets only "
                "lead the eye; a dotted line leads from the last plan of a planner to its "
                "name.");
    text_str(t, x->base ? " Rings: measured.</p>\n" : "</p>\n");
}

/* ---- numbers ---- */

static void plan_cells(Text *t, const CompareRow *r) {
    const Plan *p = r->plan;
    char b1[32], b2[32];
    if (!p) {
        text_str(t, "<td></td><td></td><td></td><td></td><td></td><td></td>");
        return;
    }
    text_add(t, "<td>%.2f %%</td><td>%.2f</td><td>%s</td><td>%s</td><td>%u</td><td>%u</td>",
             percent(p), 100 * report_gap(plan_overhead(p), r->bound),
             format_bytes(b1, p->persistent_bytes + p->arena_bytes),
             format_bytes(b2, p->arena_bytes), p->recomputed_runs, p->evictions);
}

static void table(Text *t, const Work *w, const Compare *c) {
    static const char *const head[] = {"<planner",   "overhead", "gap, points",  "peak",   "arena",
                                       "runs again", "drops",    "planning, ms", "<status"};
    enum { COLUMNS = sizeof head / sizeof *head };
    char b1[32];
    page_table(t, head, COLUMNS);
    for (uint32_t i = c->nbudget; i-- > 0;) {
        const CompareBudget *b = &c->budget[i];
        const CompareRow *best = compare_best(c, b);
        text_add(t, "<tr class=\"budget\"><td colspan=\"%d\">%s, %.1f %% of the peak: ", COLUMNS,
                 format_bytes(b1, b->bytes), compare_share(w, b));
        if (b->possible)
            text_add(t, "no plan below %.2f %% overhead</td></tr>\n", 100 * b->bound.overhead);
        else
            text_str(t, "no schedule exists</td></tr>\n");
        for (uint32_t k = 0; k < c->nplanner && b->possible; k++) {
            const CompareRow *r = &b->row[k];
            text_add(t, "<tr%s><td class=\"l\">%s</td>", r == best ? " class=\"best\"" : "",
                     r->planner);
            plan_cells(t, r);
            text_add(t, "<td>%.0f</td><td class=\"l\">%s%s", r->ms, compare_status(r->status),
                     r->note ? ": " : "");
            page_text(t, r->note ? r->note : "");
            text_str(t, "</td></tr>\n");
        }
    }
    page_table_end(t);
}

static void measured_row(Text *t, uint64_t budget, const char *planner, const Measured *m) {
    char b1[32], b2[32];
    text_add(t, "<tr><td class=\"l\">%s</td><td class=\"l\">%s</td>",
             budget ? format_bytes(b1, budget) : "none", planner);
    if (m->error) {
        text_add(t, "<td class=\"l note\" colspan=\"9\">status %d: ", m->status);
        page_text(t, m->error);
        text_str(t, "</td></tr>\n");
        return;
    }
    text_str(t, "<td class=\"l\">");
    page_text(t, m->mode);
    text_add(t, "</td><td>%.4g</td><td>%.4g</td><td>%.2f %%</td><td>%s</td><td>%u</td>", m->step_ms,
             m->base_ms, 100 * m->overhead, format_bytes(b2, m->peak_bytes), m->again);
    if (m->decisions)
        text_add(t, "<td>%.4g</td><td>%.4g</td>", m->decide_ns / 1e6, m->planning_ms);
    else
        text_str(t, "<td></td><td></td>");
    text_add(t, "<td class=\"l\">%s</td></tr>\n", m->same_weights ? "same bits" : "other bits");
}

static void measured(Text *t, const Work *w, const Compare *c) {
    static const char *const head[] = {"<budget",      "<planner",     "<mode",   "step, ms",
                                       "without, ms",  "overhead",     "peak",    "runs again",
                                       "deciding, ms", "at start, ms", "<weights"};
    text_add(t,
             "<h2>Measured</h2>\n<p>Medians of %u steps on random data with %d threads, beside the "
             "program without a budget, run right after. Dynamic mode decides once, at start: the "
             "time of the decisions it keeps, and of all that it tried.</p>\n",
             c->base->steps, w->cost->threads);
    page_table(t, head, sizeof head / sizeof *head);
    measured_row(t, 0, "none", c->base);
    for (uint32_t i = c->nbudget; i-- > 0;)
        for (uint32_t k = 0; k < c->nplanner; k++) {
            const CompareRow *r = &c->budget[i].row[k];
            if (r->measured) measured_row(t, c->budget[i].bytes, r->planner, r->measured);
        }
    page_table_end(t);
}

static void plans(Text *t, Arena *a, Work *w, const Compare *c) {
    uint32_t first = 0; /* the smallest budget with a plan: where there is most to see */
    while (first < c->nbudget && !compare_best(c, &c->budget[first])) first++;
    if (first == c->nbudget) text_str(t, "<p>There is none.</p>\n");
    for (uint32_t i = c->nbudget; i-- > first;) {
        const CompareBudget *b = &c->budget[i];
        const CompareRow *best = compare_best(c, b);
        char b1[32];
        if (!best) continue;
        text_add(t, "<details%s><summary>%s, %.1f %% of the peak: the plan of %s</summary>\n",
                 i == first ? " open" : "", format_bytes(b1, b->bytes), compare_share(w, b),
                 best->planner);
        w->plan = best->plan;
        page_plan(t, a, w);
        text_str(t, "</details>\n");
    }
}

bool compare_html(Arena *a, Diag *d, const Options *o, Work *w, const Compare *c) {
    Text t;
    text_init(&t, a);
    page_begin(&t, "dtrc compare", o->model);
    char b1[32], b2[32], b3[32];
    text_add(&t,
             "<p>%u nodes; %s without recomputation; smallest budget that static meets %s; "
             "no schedule exists below "
             "%s.%s</p>\n",
             w->step->nnode, format_bytes(b1, w->peak), format_bytes(b2, c->min),
             format_bytes(b3, w->floor),
             o->plan.bytes_only ? " Byte sums, without addresses." : "");
    text_str(&t, "<p class=\"dim\"><code>");
    page_text(&t, o->command);
    text_str(&t, "</code></p>\n<h2>Overhead over budget</h2>\n");
    draw_curves(&t, a, w, c);
    table(&t, w, c);
    if (c->base) measured(&t, w, c);
    text_str(&t, "<h2>The best plan of each budget</h2>\n");
    plans(&t, a, w, c);
    return page_end(&t, d, o->report);
}
