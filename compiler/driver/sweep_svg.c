/* sweep_svg.c - the curve of plan --sweep as a picture that stands alone: overhead in percent over
 * the budget in binary units. The region that is proven impossible is shaded: what lies under the
 * lower bound, and what is left of the largest working set. Both curves are steps, since a plan
 * holds for every larger budget and a bound for every smaller one. Crosses: budgets without a plan.
 * Hollow points: the plan of a smaller budget. Colors follow the reader's light or dark scheme. */
#include "page.h"
#include "sweep.h"

#include <math.h>

enum { WIDTH = 880, HEIGHT = 520, LEFT = 74, RIGHT = 24, TOP = 64, BOTTOM = 64 };

typedef struct {
    Text *t;
    double lo, hi, top; /* bytes at both ends, percent at the upper end */
    double unit;        /* bytes */
    const char *unit_name;
} Curve;

static double at_x(const Curve *c, double bytes) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (bytes - c->lo) / (c->hi - c->lo);
}

static double at_y(const Curve *c, double percent) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / c->top;
}

static void axis_label(const Curve *c, double x, double y, const char *anchor, double value,
                       double step) {
    text_add(c->t, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.*f</text>\n", x, y, anchor,
             chart_digits(step), value);
}

static void draw_axes(const Curve *c) {
    double base = HEIGHT - BOTTOM;
    double step = chart_step((c->hi - c->lo) / c->unit, 9);
    for (double v = ceil(c->lo / c->unit / step) * step; v * c->unit <= c->hi; v += step) {
        double x = at_x(c, v * c->unit);
        text_add(c->t, "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/>\n", x, TOP, base);
        axis_label(c, x, base + 20, "middle", v, step);
    }
    step = chart_step(c->top, 8);
    for (double v = 0; v <= c->top * 1.0001; v += step) {
        double y = at_y(c, v);
        text_add(c->t, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, y, WIDTH - RIGHT);
        axis_label(c, LEFT - 8, y + 4, "end", v, step);
    }
    text_add(c->t, "<path class=\"axis\" d=\"M%d %dV%.1fH%d\"/>\n", LEFT, TOP, base, WIDTH - RIGHT);
    text_add(c->t,
             "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">budget, %s</text>\n"
             "<text x=\"18\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 18 %d)\">"
             "overhead, %% of compute time</text>\n",
             (LEFT + WIDTH - RIGHT) / 2, base + 44, c->unit_name, (TOP + HEIGHT - BOTTOM) / 2,
             (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw_impossible(const Curve *c, const Work *w, const SweepRows *s) {
    if ((double)w->floor > c->lo)
        text_add(c->t,
                 "<rect class=\"bound\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\">"
                 "<title>no schedule exists below the largest working set</title></rect>\n",
                 LEFT, TOP, at_x(c, (double)w->floor) - LEFT, HEIGHT - TOP - BOTTOM);
    double from = (double)w->floor > c->lo ? (double)w->floor : c->lo;
    bool open = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const SweepRow *r = &s->at[i];
        if (r->budget < w->floor) continue;
        if (!open)
            text_add(c->t, "<path class=\"bound\" d=\"M%.1f %.1f", at_x(c, from), at_y(c, 0));
        open = true;
        text_add(c->t, "V%.1fH%.1f", at_y(c, fmin(100 * r->bound, c->top)),
                 at_x(c, (double)r->budget));
    }
    if (open)
        text_add(c->t, "V%.1fZ\"><title>proven: no plan is here</title></path>\n", at_y(c, 0));
}

static void draw_plans(const Curve *c, const SweepRows *s) {
    char b1[32], b2[32];
    bool open = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const SweepRow *r = &s->at[i];
        if (!r->plan) continue;
        double x = at_x(c, (double)r->budget), y = at_y(c, 100 * plan_overhead(r->plan));
        if (open)
            text_add(c->t, "H%.1fV%.1f", x, y);
        else
            text_add(c->t, "<path class=\"plan\" d=\"M%.1f %.1f", x, y);
        open = true;
    }
    if (open) text_str(c->t, "\"/>\n");
    for (uint32_t i = 0; i < s->n; i++) {
        const SweepRow *r = &s->at[i];
        double x = at_x(c, (double)r->budget);
        if (!r->plan) {
            text_add(c->t,
                     "<path class=\"none\" d=\"M%.1f %.1fl10 10m0 -10l-10 10\"><title>%s: no "
                     "plan</title></path>\n",
                     x - 5, at_y(c, 0) - 15, format_bytes(b1, r->budget));
            continue;
        }
        double over = 100 * plan_overhead(r->plan);
        text_add(
            c->t,
            "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>%s: %.2f %%, at least "
            "%.2f %%, %u runs again",
            r->from == r->budget ? "point" : "point lent", x, at_y(c, over),
            format_bytes(b1, r->budget), over, 100 * r->bound, r->plan->recomputed_runs);
        if (r->from != r->budget) text_add(c->t, " (plan of %s)", format_bytes(b2, r->from));
        text_str(c->t, "</title></circle>\n");
    }
}

static void draw_head(const Curve *c, const Options *o, const Work *w, const SweepRows *s,
                      uint64_t min) {
    static const char style[] =
        "text{font:13px sans-serif;fill:var(--ink)}.title{font-size:15px;font-weight:bold}\n"
        ".paper{fill:var(--paper)}.grid{stroke:var(--faint);fill:none}\n"
        ".axis{stroke:var(--ink);fill:none}.plan{stroke:var(--blue);fill:none;stroke-width:2}\n"
        ".point{fill:var(--blue);stroke:var(--blue);stroke-width:1.5}.lent{fill:var(--paper)}\n"
        ".bound{fill:var(--bound);fill-opacity:.3;stroke:none}\n"
        ".none{stroke:var(--red);stroke-width:2;fill:none}\n"
        "</style>\n";
    char b1[32], b2[32], b3[32];
    text_add(c->t,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
             "height=\"%d\" role=\"img\">\n",
             WIDTH, HEIGHT, WIDTH, HEIGHT);
    text_str(c->t, "<style>\n");
    page_colors(c->t);
    text_str(c->t, style);
    text_add(c->t, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    text_add(c->t, "<text class=\"title\" x=\"%d\" y=\"24\">", LEFT);
    page_text(c->t, o->model);
    text_add(c->t,
             "</text>\n<text x=\"%d\" y=\"44\">planner %s; peak without recomputation %s, smallest "
             "budget %s, no schedule below %s</text>\n",
             LEFT, o->plan.planner ? o->plan.planner : "static", format_bytes(b1, w->peak),
             format_bytes(b2, min), format_bytes(b3, w->floor));
    int x = WIDTH - RIGHT - 190, y = TOP + 16;
    text_add(c->t,
             "<path class=\"plan\" d=\"M%d %dh22\"/><circle class=\"point\" cx=\"%d\" cy=\"%d\" "
             "r=\"4\"/><text x=\"%d\" y=\"%d\">this planner</text>\n",
             x, y, x + 11, y, x + 30, y + 4);
    text_add(c->t,
             "<rect class=\"bound\" x=\"%d\" y=\"%d\" width=\"22\" height=\"12\"/><text "
             "x=\"%d\" y=\"%d\">proven impossible</text>\n",
             x, y + 14, x + 30, y + 24);
    y += 40;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!s->at[i].plan || s->at[i].from == s->at[i].budget) continue;
        text_add(c->t,
                 "<circle class=\"point lent\" cx=\"%d\" cy=\"%d\" r=\"4\"/><text x=\"%d\" "
                 "y=\"%d\">plan of a smaller budget</text>\n",
                 x + 11, y, x + 30, y + 4);
        y += 20;
        break;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->at[i].plan) continue;
        text_add(c->t,
                 "<path class=\"none\" d=\"M%d %dl10 10m0 -10l-10 10\"/><text x=\"%d\" "
                 "y=\"%d\">no plan</text>\n",
                 x + 6, y - 5, x + 30, y + 4);
        break;
    }
}

void sweep_svg(Text *t, const Options *o, const Work *w, const SweepRows *s, uint64_t min) {
    double lo = (double)(w->floor < min ? w->floor : min), hi = (double)w->peak, top = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const SweepRow *r = &s->at[i];
        if ((double)r->budget < lo) lo = (double)r->budget;
        if ((double)r->budget > hi) hi = (double)r->budget;
        double over = r->plan ? 100 * plan_overhead(r->plan) : 0;
        if (over > top) top = over;
    }
    if (hi <= lo) hi = lo + 1;
    double margin = (hi - lo) / 40;
    Curve c = {.t = t, .lo = lo > margin ? lo - margin : 0, .hi = hi + margin};
    c.top = top > 0 ? top * 1.08 : 1;
    c.unit_name = chart_unit(c.hi, &c.unit);
    draw_head(&c, o, w, s, min);
    draw_impossible(&c, w, s);
    draw_axes(&c);
    draw_plans(&c, s);
    text_str(t, "</svg>\n");
}
