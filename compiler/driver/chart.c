/* chart.c - axes: where ticks stand, and the frame of a chart whose drawing is stretched and whose
 * text is not. */
#include "page.h"

#include <math.h>

double chart_step(double range, int max) {
    double step = pow(10, floor(log10(range / max)));
    static const double grow[] = {1, 2, 5, 10};
    for (int i = 0; i < 4; i++)
        if (range / (step * grow[i]) <= max) return step * grow[i];
    return step * 10;
}

int chart_digits(double step) {
    return step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
}

const char *chart_unit(double most, double *unit) {
    static const char *const name[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (*unit = 1; u < 4 && most / *unit >= 2048; u++) *unit *= 1024;
    return name[u];
}

static double between(double v) {
    return fmin(fmax(v, 0), CHART_SIZE);
}

double chart_x(const Chart *c, double x) {
    return between(CHART_SIZE * (x - c->lo) / (c->hi - c->lo));
}

double chart_y(const Chart *c, double y) {
    return between(CHART_SIZE * (1 - y / c->top));
}

void chart_begin(const Chart *c, const char *kind, const char *y_label, const char *title) {
    text_add(c->t,
             "<figure><div class=\"yl\">%s</div><div class=\"plot %s\">"
             "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" "
             "aria-label=\"%s\">\n",
             y_label, kind, CHART_SIZE, CHART_SIZE, title);
}

enum { Y_STEPS = 6 };

void chart_grid(const Chart *c, double unit) {
    double step = chart_step(c->top / unit, Y_STEPS) * unit;
    text_str(c->t, "<path class=\"grid\" d=\"");
    for (double v = step; v <= c->top * 1.0001; v += step)
        text_add(c->t, "M0 %.1fH%d", chart_y(c, v), CHART_SIZE);
    text_add(c->t, "\"/>\n<path class=\"axis\" d=\"M0 0V%dH%d\"/>\n</svg>\n", CHART_SIZE,
             CHART_SIZE);
    for (double v = 0; v <= c->top * 1.0001; v += step)
        text_add(c->t, "<span class=\"y%s\" style=\"top:%.2f%%\">%.*f</span>", v > 0 ? "" : " y0",
                 100 * chart_y(c, v) / CHART_SIZE, chart_digits(step / unit), v / unit);
    text_str(c->t, "\n<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">\n");
}

void chart_labels(const Chart *c) {
    text_str(c->t, "</svg>\n");
}

void chart_tick(const Chart *c, double x, bool minor, const char *text) {
    text_add(c->t, "<span class=\"x%s\" style=\"left:%.2f%%\">%s</span>\n", minor ? " minor" : "",
             100 * chart_x(c, x) / CHART_SIZE, text);
}

void chart_end(const Chart *c, const char *x_label) {
    text_add(c->t, "<span class=\"xl\">%s</span></div></figure>\n", x_label);
}
