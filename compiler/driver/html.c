/* html.c - plan --report: one page with the memory of a step over its runs (persistent bytes below,
 * the arena above, the budget as a line; recomputed runs shaded) and the table of what is
 * recomputed most. No scripts, no external files; names are escaped. */
#include "driver.h"

#include <errno.h>
#include <string.h>

enum { WIDTH = 1100, HEIGHT = 320, TOP_ROWS = 20 };

void html_text(Text *t, const char *s) {
    for (; *s; s++) switch (*s) {
        case '<': text_str(t, "&lt;"); break;
        case '>': text_str(t, "&gt;"); break;
        case '&': text_str(t, "&amp;"); break;
        case '"': text_str(t, "&quot;"); break;
        default: text_char(t, (unsigned char)*s < 32 ? ' ' : *s);
        }
}

/* Highest end of anything in the arena during each run. */
static uint64_t *high_water(Arena *a, const Work *w, uint32_t *nrun) {
    const Plan *p = w->plan;
    uint64_t *high = ARENA_ARRAY(a, uint64_t, p->nstep + 1);
    uint64_t *end = ARENA_ARRAY(a, uint64_t, w->step->nstorage);
    uint64_t live = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nstep; i++) {
        const PlanStep *s = &p->step[i];
        if (s->kind == STEP_DROP) {
            live -= end[s->id];
            end[s->id] = 0;
            continue;
        }
        const Node *x = &w->step->node[s->id];
        uint64_t scratch = round_up(w->cost->node_workspace[s->id], PLAN_ALIGN);
        for (uint32_t k = 0; k < x->nout; k++) {
            if (s->out[k].place == PLACE_NONE) continue;
            StorageId st = w->step->value[x->out[k]].storage;
            uint64_t bytes = round_up(w->cost->storage_bytes[st], PLAN_ALIGN);
            if (s->out[k].place == PLACE_SCRATCH)
                scratch += bytes;
            else
                live += bytes, end[st] = bytes;
        }
        if (s->inplace != NO_ID) live -= end[s->inplace], end[s->inplace] = 0;
        high[n++] = live + scratch;
    }
    *nrun = n;
    return high;
}

static void draw(Text *t, const Work *w, const uint64_t *high, uint32_t n) {
    double top = (double)(w->plan->budget > w->peak ? w->plan->budget : w->peak) * 1.05;
    double base = HEIGHT * (1 - (double)w->persistent / top);
    text_add(
        t, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" style=\"background:#fafafa\">\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    text_add(t, "<rect x=\"0\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"#bbb\"/>\n", base,
             WIDTH, HEIGHT - base);
    text_str(t, "<path fill=\"#7aa6d8\" d=\"");
    text_add(t, "M0 %.1f", base);
    for (uint32_t i = 0; i < n; i++) {
        double y = HEIGHT * (1 - ((double)w->persistent + (double)high[i]) / top);
        text_add(t, "L%.2f %.1fL%.2f %.1f", (double)i * WIDTH / n, y, (double)(i + 1) * WIDTH / n,
                 y);
    }
    text_add(t, "L%d %.1fZ\"/>\n", WIDTH, base);
    double line = HEIGHT * (1 - (double)w->plan->budget / top);
    text_add(t,
             "<line x1=\"0\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#c00\" "
             "stroke-width=\"2\"/>\n</svg>\n",
             line, WIDTH, line);
}

static void table(Arena *a, Text *t, const Work *w) {
    uint32_t *runs = ARENA_ARRAY(a, uint32_t, w->step->nnode);
    for (uint32_t i = 0; i < w->plan->nstep; i++)
        if (w->plan->step[i].kind == STEP_RUN) runs[w->plan->step[i].id]++;
    text_str(
        t, "<h2>Most time spent again</h2>\n<table><tr><th>node<th>op<th>runs<th>extra ms</tr>\n");
    for (int row = 0; row < TOP_ROWS; row++) {
        NodeId best = NO_ID;
        for (NodeId n = 0; n < w->step->nnode; n++)
            if (runs[n] > 1 && (best == NO_ID || (runs[n] - 1) * w->cost->node_ns[n] >
                                                     (runs[best] - 1) * w->cost->node_ns[best]))
                best = n;
        if (best == NO_ID) break;
        text_str(t, "<tr><td>");
        html_text(t, w->step->node[best].name);
        text_add(t, "<td>%s<td>%u<td>%.3f</tr>\n", op_def(w->step->node[best].op)->name, runs[best],
                 (double)((runs[best] - 1) * w->cost->node_ns[best]) / 1e6);
        runs[best] = 1;
    }
    text_str(t, "</table>\n");
}

bool report_html(Arena *a, Diag *d, const Options *o, const Work *w) {
    uint32_t n;
    uint64_t *high = high_water(a, w, &n);
    Text t;
    text_init(&t, a);
    text_str(&t, "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>dtrc "
                 "plan</title><style>body{font-family:sans-serif;"
                 "margin:2em}td,th{padding:2px 10px;text-align:left}</style></head><body>\n<h1>");
    html_text(&t, o->model);
    char b1[32], b2[32], b3[32];
    text_add(&t,
             "</h1>\n<p>budget %s (red line), peak without recomputation %s, persistent %s (grey); "
             "planner %s, %u recomputed runs, "
             "overhead %.2f %%.</p>\n",
             format_bytes(b1, w->plan->budget), format_bytes(b2, w->peak),
             format_bytes(b3, w->persistent), w->plan->planner, w->plan->recomputed_runs,
             100 * plan_overhead(w->plan));
    draw(&t, w, high, n);
    table(a, &t, w);
    text_str(&t, "</body></html>\n");
    if (file_write(o->report, t.at, t.n)) return true;
    return diag_error(d, (Place){.file = o->report}, "cannot write the report: %s",
                      strerror(errno));
}
