/* memory.c - memory over the planned time of a step, as pictures and as a table: the sum of bytes
 * by what they are for, and where each block lies in the arena.
 *
 * A moment is a run; a picture has COLUMNS of them, each the run of the largest sum within its part
 * of the time, so that no peak is lost. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 400, BLOCKS = 500, MOMENTS = 12 };

/* What bytes are for; the order in the stack is another one. */
typedef enum { M_FIXED, M_FORWARD, M_AGAIN, M_BACKWARD, M_GRADIENT, M_SCRATCH, M_COUNT } Use;

static const Use stack[M_COUNT] = {M_FIXED, M_GRADIENT, M_FORWARD, M_AGAIN, M_BACKWARD, M_SCRATCH};

static const char *use_name(const Work *w, Use u) {
    static const char *const name[] = {"weights, optimizer state, inputs",
                                       "kept from the forward pass",
                                       "made again",
                                       "backward pass",
                                       "gradients of weights",
                                       "workspace, scratch"};
    return u == M_FIXED && w->is_trace ? "constants" : name[u];
}

typedef struct {
    const Work *w;
    const PlanFacts *f;
    uint32_t nrun;
    uint32_t *runs_before;      /* per step, and at the end */
    uint64_t *at_ns;            /* per run, and at the end */
    uint64_t (*bytes)[M_COUNT]; /* per run */
    uint32_t column[COLUMNS];   /* the run that stands for it */
    double unit;                /* of time, ns */
    const char *unit_name;
} Memory;

static Use use_of(const Work *w, const PlanStay *x) {
    if (x->scratch) return M_SCRATCH;
    const Graph *g = w->step;
    const Value *v = &g->value[g->storage[x->storage].root];
    if (v->param != NO_ID) return M_GRADIENT;
    if (x->again) return M_AGAIN;
    return g->node[x->node].phase == PHASE_FORWARD ? M_FORWARD : M_BACKWARD;
}

static uint64_t sum_at(const Memory *m, uint32_t run) {
    uint64_t sum = 0;
    for (int u = 0; u < M_COUNT; u++) sum += m->bytes[run][u];
    return sum;
}

static void fill_runs(Arena *a, Memory *m) {
    const Plan *p = m->w->plan;
    m->runs_before = ARENA_ARRAY(a, uint32_t, p->nstep + 1);
    m->at_ns = ARENA_ARRAY(a, uint64_t, p->nstep + 1);
    for (uint32_t i = 0; i < p->nstep; i++) {
        m->runs_before[i] = m->nrun;
        if (p->step[i].kind == STEP_DROP) continue;
        m->at_ns[m->nrun + 1] = m->at_ns[m->nrun] + m->w->cost->node_ns[p->step[i].id];
        m->nrun++;
    }
    m->runs_before[p->nstep] = m->nrun;
    m->bytes = arena_alloc(a, checked_array((uint64_t)m->nrun + 1, sizeof *m->bytes));
    for (uint32_t i = 0; i < m->f->nstay; i++) { /* differences first */
        const PlanStay *x = &m->f->stay[i];
        Use u = use_of(m->w, x);
        m->bytes[m->runs_before[x->from]][u] += x->bytes;
        m->bytes[m->runs_before[x->to]][u] -= x->bytes;
    }
    for (uint32_t r = 0; r < m->nrun; r++)
        for (int u = 0; u < M_COUNT; u++) {
            m->bytes[r + 1][u] += m->bytes[r][u];
            if (u == M_FIXED) m->bytes[r][u] = m->w->persistent;
        }
}

/* Column of a time; 0 where no run takes any. */
static uint32_t column_of(const Memory *m, uint64_t ns) {
    double end = (double)m->at_ns[m->nrun];
    double c = end > 0 ? COLUMNS * (double)ns / end : 0;
    return c < COLUMNS ? (uint32_t)c : COLUMNS - 1;
}

static void fill_columns(Memory *m) {
    for (uint32_t k = 0; k < COLUMNS; k++) m->column[k] = NO_ID;
    for (uint32_t r = 0; r < m->nrun; r++)
        for (uint32_t k = column_of(m, m->at_ns[r]); k <= column_of(m, m->at_ns[r + 1]); k++) {
            uint32_t *best = &m->column[k];
            if (*best == NO_ID || sum_at(m, r) > sum_at(m, *best)) *best = r;
        }
    for (uint32_t k = 1; k < COLUMNS; k++)
        if (m->column[k] == NO_ID) m->column[k] = m->column[k - 1];
}

/* ---- pictures ---- */

/* Where the forward pass has ended; 0: nowhere within the step. */
static double backward_ns(const Memory *m) {
    const Work *w = m->w;
    uint32_t end = 0;
    for (uint32_t i = 0; i < m->f->nstay; i++) {
        const PlanStay *x = &m->f->stay[i];
        if (!x->again && w->step->node[x->node].phase == PHASE_FORWARD)
            end = m->runs_before[x->from] + 1;
    }
    return end < m->nrun ? (double)m->at_ns[end] : 0;
}

static void time_axis(const Memory *m, const Chart *c) {
    double step = chart_step(c->hi / m->unit, 7), v = 0;
    char text[64];
    for (int i = 0; v <= c->hi / m->unit * 1.0001; i++, v += step) {
        snprintf(text, sizeof text, "%.*f", chart_digits(step), v);
        chart_tick(c, v * m->unit, i % 2, text);
    }
    double backward = backward_ns(m);
    text_str(c->t, "<span class=\"cursor\" hidden></span>");
    if (backward > 0)
        text_add(c->t, "<span class=\"top\" style=\"left:%.2f%%\">backward</span>\n",
                 100 * chart_x(c, backward) / CHART_SIZE);
    snprintf(text, sizeof text, "planned time, %s", m->unit_name);
    chart_end(c, text);
}

/* From address `base` of the budget to a bit above what is used, and the budget where that is near.
 */
static Chart begin_chart(Text *t, const Memory *m, uint64_t base, const char *what,
                         const char *title) {
    const Plan *p = m->w->plan;
    double end = (double)m->at_ns[m->nrun], backward = backward_ns(m);
    double used = (double)(p->persistent_bytes + p->arena_bytes - base);
    double budget = (double)(p->budget - base);
    bool near = budget < 1.5 * used;
    Chart c = {.t = t, .hi = end > 0 ? end : 1, .top = 1.12 * (near ? budget : used)};
    if (!(c.top > 0)) c.top = 1;
    double unit;
    char label[96];
    const char *name = chart_unit(c.top, &unit);
    snprintf(label, sizeof label, "%s, %s", what, name);
    chart_begin(&c, "map", label, title);
    chart_grid(&c, unit);
    if (backward > 0)
        text_add(t, "<path class=\"phase\" d=\"M%.2f 0V%d\"/>\n", chart_x(&c, backward),
                 CHART_SIZE);
    return c;
}

/* The drawing ends with the budget; the axis of time. */
static void end_chart(const Chart *c, const Memory *m, uint64_t base) {
    char b1[32];
    double budget = (double)(m->w->plan->budget - base);
    bool inside = budget <= c->top;
    if (inside)
        text_add(c->t, "<path class=\"limit\" d=\"M0 %.1fH%d\"/>\n", chart_y(c, budget),
                 CHART_SIZE);
    chart_labels(c);
    if (inside)
        text_add(c->t,
                 "<span class=\"at\" style=\"right:.4em;top:%.2f%%;transform:translateY(-115%%)\">"
                 "%s %s</span>\n",
                 100 * chart_y(c, budget) / CHART_SIZE, base ? "budget for the arena" : "budget",
                 format_bytes(b1, m->w->plan->budget - base));
    time_axis(m, c);
}

/* The outline between two heights per column, drawn as steps. */
static void draw_band(const Chart *c, Use u, const uint64_t *low, const uint64_t *high) {
    const double wide = (double)CHART_SIZE / COLUMNS;
    text_add(c->t, "<path class=\"m m%d\" d=\"M0 %.1f", u, chart_y(c, (double)low[0]));
    for (uint32_t k = 0; k < COLUMNS; k++)
        if (!k || high[k] != high[k - 1])
            text_add(c->t, "H%.4gV%.1f", k * wide, chart_y(c, (double)high[k]));
    text_add(c->t, "H%d", CHART_SIZE);
    for (uint32_t k = COLUMNS; k-- > 0;)
        if (k + 1 == COLUMNS || low[k] != low[k + 1])
            text_add(c->t, "H%.4gV%.1f", (k + 1) * wide, chart_y(c, (double)low[k]));
    text_str(c->t, "Z\"/>\n");
}

static void draw_stack(Text *t, const Memory *m) {
    Chart c = begin_chart(t, m, 0, "memory", "memory over the time of a step, by use");
    uint64_t low[COLUMNS] = {0}, high[COLUMNS] = {0};
    for (int i = 0; i < M_COUNT; i++) {
        bool any = false;
        for (uint32_t k = 0; k < COLUMNS && m->nrun; k++) {
            high[k] += m->bytes[m->column[k]][stack[i]];
            any |= high[k] > low[k];
        }
        if (any) draw_band(&c, stack[i], low, high);
        memcpy(low, high, sizeof low);
    }
    end_chart(&c, m, 0);
}

typedef struct {
    double area;
    uint32_t stay;
} Block;

static int larger(const void *x, const void *y) {
    const Block *a = x, *b = y;
    if (a->area != b->area) return a->area > b->area ? -1 : 1;
    return (a->stay > b->stay) - (a->stay < b->stay);
}

static int earlier(const void *x, const void *y) {
    const Block *a = x, *b = y;
    return (a->stay > b->stay) - (a->stay < b->stay);
}

static void draw_block(Text *t, const Memory *m, const Chart *c, const PlanStay *x) {
    const Graph *g = m->w->step;
    double from = chart_x(c, (double)x->from_ns), to = chart_x(c, (double)x->to_ns);
    double low = (double)x->offset, top = chart_y(c, low + (double)x->bytes);
    char b1[32];
    text_add(t,
             "<rect class=\"m m%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
             use_of(m->w, x), from, top, to - from < .8 ? .8 : to - from, chart_y(c, low) - top);
    if (x->storage == NO_ID) text_str(t, "workspace of ");
    page_text(t, x->storage == NO_ID ? g->node[x->node].name
                                     : g->value[g->storage[x->storage].root].name);
    text_add(t, ", %s, %.4g to %.4g %s%s</title></rect>\n", format_bytes(b1, x->bytes),
             (double)x->from_ns / m->unit, (double)x->to_ns / m->unit, m->unit_name,
             x->again ? ", made again" : "");
}

static void draw_map(Text *t, Arena *a, const Memory *m) {
    const PlanFacts *f = m->f;
    Block *block = ARENA_ARRAY(a, Block, f->nstay + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->nstay; i++) {
        double ns = (double)(f->stay[i].to_ns - f->stay[i].from_ns);
        if (f->stay[i].bytes) block[n++] = (Block){(double)f->stay[i].bytes * (ns + 1), i};
    }
    qsort(block, n, sizeof *block, larger);
    uint32_t shown = n < BLOCKS ? n : BLOCKS;
    qsort(block, shown, sizeof *block, earlier);
    uint64_t base = m->w->plan->persistent_bytes;
    Chart c = begin_chart(t, m, base, "address in the arena",
                          "where each value lies in the arena, over the time of a step");
    for (uint32_t i = 0; i < shown; i++) draw_block(t, m, &c, &f->stay[block[i].stay]);
    end_chart(&c, m, base);
    text_add(
        t, "<p class=\"dim\">Each rectangle is a value: as high as its bytes, from when it was "
           "made to when it was dropped. Pointing at a moment names the largest that are there. ");
    if (shown < n) text_add(t, "The %u largest of %u (bytes times time) are drawn. ", shown, n);
    text_str(t, "</p>\n<ul class=\"legend now\"></ul>\n");
}

/* ---- numbers ---- */

static void bytes_cell(Text *t, uint64_t bytes) {
    char b1[32];
    text_add(t, "<td>%s</td>", bytes ? format_bytes(b1, bytes) : "");
}

static void moment_row(Text *t, const Memory *m, uint32_t run, bool peak) {
    text_add(t, "<tr%s><td class=\"l\">%.4g %s%s</td>", peak ? " class=\"best\"" : "",
             (double)m->at_ns[run] / m->unit, m->unit_name, peak ? " (peak)" : "");
    bytes_cell(t, sum_at(m, run));
    for (int i = 0; i < M_COUNT; i++) bytes_cell(t, m->bytes[run][stack[i]]);
    text_str(t, "</tr>\n");
}

static void moments(Text *t, const Memory *m) {
    const char *head[2 + M_COUNT] = {"<time", "all"};
    for (int i = 0; i < M_COUNT; i++) head[2 + i] = use_name(m->w, stack[i]);
    page_table(t, head, 2 + M_COUNT);
    uint32_t peak = m->runs_before[m->f->peak_step], last = NO_ID;
    bool seen = false;
    for (uint32_t k = 0; k < MOMENTS && m->nrun; k++) {
        uint32_t run = m->column[k * COLUMNS / MOMENTS];
        if (!seen && peak <= run) moment_row(t, m, peak, true);
        seen |= peak <= run;
        if (run != peak && run != last) moment_row(t, m, run, false);
        last = run;
    }
    if (!seen && m->nrun) moment_row(t, m, peak, true);
    page_table_end(t);
}

static void time_unit(Memory *m) {
    static const char *const name[] = {"ns", "µs", "ms", "s"};
    int u = 0;
    double end = (double)m->at_ns[m->nrun];
    for (m->unit = 1; u < 3 && end / m->unit >= 2000; u++) m->unit *= 1000;
    m->unit_name = name[u];
}

void page_memory(Text *t, Arena *a, const Work *w, const PlanFacts *f) {
    Memory *m = ARENA_NEW(a, Memory);
    m->w = w;
    m->f = f;
    fill_runs(a, m);
    fill_columns(m);
    time_unit(m);
    text_str(t, "<h3>Memory over time</h3>\n<ul class=\"legend\">");
    for (int i = 0; i < M_COUNT; i++)
        text_add(t, "<li class=\"m%d\">%s</li>", stack[i], use_name(w, stack[i]));
    text_str(t, "</ul>\n");
    draw_stack(t, m);
    if (w->plan->placed) draw_map(t, a, m);
    moments(t, m);
}
