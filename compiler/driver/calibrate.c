/* calibrate.c - dtrc calibrate: times that a trainer measured -> the constants of the cost model as
 * a device file, and a table of how far the model was off before and is after.
 *
 * Several models: start the next from the file of the last (--device), which keeps the rates and
 * the factors of operators that the next one does not have. */
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    OpCode op;
    uint32_t n;
    double measured, before, after;     /* sums, ns */
    double *ratio_before, *ratio_after; /* measured over modelled, per node */
} OpRow;

static int by_double(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static int by_time(const void *x, const void *y) {
    const OpRow *a = x, *b = y;
    if (a->measured != b->measured) return a->measured > b->measured ? -1 : 1;
    return a->op < b->op ? -1 : a->op > b->op;
}

static void print_row(const char *name, OpRow *r) {
    qsort(r->ratio_before, r->n, sizeof(double), by_double);
    qsort(r->ratio_after, r->n, sizeof(double), by_double);
    printf("%-16s %5u %10.2f  %10.2f %7.2f  %10.2f %7.2f   %.2f .. %.2f\n", name, r->n,
           r->measured / 1e6, r->before / 1e6, r->ratio_before[r->n / 2], r->after / 1e6,
           r->ratio_after[r->n / 2], r->ratio_after[r->n / 10], r->ratio_after[r->n * 9 / 10]);
}

static void add_node(OpRow *r, double measured, double before, double after) {
    r->measured += measured;
    r->before += before;
    r->after += after;
    r->ratio_before[r->n] = measured / before;
    r->ratio_after[r->n++] = measured / after;
}

static OpRow row_new(Arena *a, OpCode op, uint32_t n) {
    return (OpRow){.op = op,
                   .ratio_before = ARENA_ARRAY(a, double, n + 1),
                   .ratio_after = ARENA_ARRAY(a, double, n + 1)};
}

static void print_table(Arena *a, const Graph *g, const Cost *measured, const Cost *before,
                        const Cost *after) {
    uint32_t count[OP_COUNT] = {0}, n = 0;
    OpRow row[OP_COUNT], *of[OP_COUNT], all = row_new(a, OP_NONE, g->nnode);
    for (NodeId i = 0; i < g->nnode; i++) count[g->node[i].op] += measured->node_ns[i] > 0;
    for (OpCode op = 0; op < OP_COUNT; op++) {
        of[op] = &row[n];
        if (count[op]) row[n++] = row_new(a, op, count[op]);
    }
    for (NodeId i = 0; i < g->nnode; i++) {
        if (!measured->node_ns[i]) continue;
        double m = (double)measured->node_ns[i], b = (double)before->node_ns[i],
               f = (double)after->node_ns[i];
        add_node(of[g->node[i].op], m, b, f);
        add_node(&all, m, b, f);
    }
    qsort(row, n, sizeof *row, by_time);
    printf("%-16s %5s %10s  %10s %7s  %10s %7s   %s\n", "operator", "nodes", "ms", "model", "ratio",
           "fitted", "ratio", "10 .. 90 % of ratios");
    for (uint32_t i = 0; i < n; i++) print_row(op_def(row[i].op)->name, &row[i]);
    if (all.n) print_row("all", &all);
}

int calibrate(Arena *a, Diag *d, const Options *o) {
    Work w = {0};
    int status = pipeline_run(a, d, o, ST_COST, &w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_COST)) return status;
    Device fitted = device_fit(w.step, w.cost, &w.device, !o->device);
    fitted.name = o->model;
    const Cost *before = cost_on_device(a, w.step, o->target, w.cost->threads, &w.device);
    const Cost *after = cost_on_device(a, w.step, o->target, w.cost->threads, &fitted);
    print_table(a, w.step, w.cost, before, after);
    if (!o->out) return EXIT_DONE;
    Text t;
    text_init(&t, a);
    device_print(&t, &fitted);
    if (file_write(o->out, t.at, t.n)) return EXIT_DONE;
    diag_error(d, (Place){.file = o->out}, "cannot write the device file: %s", strerror(errno));
    return EXIT_MACHINE;
}
