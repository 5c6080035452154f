/* page.h - what the pages of --report and the picture of --sweep are made of: one style, one way to
 * escape names, and charts.
 *
 * A page is one file without links, with tables of every number that a picture shows. A chart is an
 * SVG that is stretched to the width at hand; its text is HTML beside it, so that it stays as large
 * on a phone. The horizontal axis goes from lo (left) to hi (right), which may be smaller. */
#ifndef DTRC_PAGE_H
#define DTRC_PAGE_H

#include "driver.h"

/* ---- page.c ---- */
void page_text(Text *t, const char *s); /* escaped for HTML and SVG, on one line */
void page_colors(Text *t);              /* of the light and the dark scheme, as CSS variables */
void page_begin(Text *t, const char *title, const char *model);
bool page_end(Text *t, Diag *d, const char *file); /* writes it; false after reporting */
/* head: titles; one that starts with '<' is left-aligned, others are numbers. */
void page_table(Text *t, const char *const *head, uint32_t n);
void page_table_end(Text *t);

/* ---- chart.c ---- */
/* 1, 2 or 5 times a power of ten: at most `max` steps over the range. */
double chart_step(double range, int max);
int chart_digits(double step); /* after the point */
/* KiB, MiB ...: so that `most` is below 2048. */
const char *chart_unit(double most, double *unit);

typedef struct {
    Text *t;
    double lo, hi, top; /* left, right; bottom is 0 */
} Chart;

enum { CHART_SIZE = 1000 }; /* user units of a chart's SVG, both ways */

double chart_x(const Chart *c, double x); /* 0 to CHART_SIZE */
double chart_y(const Chart *c, double y);
/* `title` says what the picture shows, in words, for those who cannot see it. */
void chart_begin(const Chart *c, const char *kind, const char *y_label, const char *title);
void chart_grid(const Chart *c, double unit); /* and numbers at the left, counted in units */
void chart_labels(const Chart *c);            /* the drawing ends, HTML begins */
/* minor: not shown where room is short. */
void chart_tick(const Chart *c, double x, bool minor, const char *text);
void chart_end(const Chart *c, const char *x_label);

/* ---- memory.c, html.c ---- */
/* Memory over time of w->plan: two pictures and a table. */
void page_memory(Text *t, Arena *a, const Work *w, const PlanFacts *f);
/* That, and what is there at the peak, what runs again, what was dropped. */
void page_plan(Text *t, Arena *a, const Work *w);

#endif
