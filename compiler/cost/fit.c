/* fit.c - measured times -> constants of the analytic model.
 *
 * The fixed part is the median time of the nodes whose roofline is far below it. A rate (of
 * products, of loops, of bytes) is the total over the total time of the nodes that it bounds; the
 * factor of an operator is total measured over total predicted time. Quotients of sums meet the
 * total and let long nodes, which plans are about, count most. Operators that the fixed part
 * dominates keep their factor. */
#include "measured.h"

#include <stdlib.h>

static bool is_timed(const Node *n) {
    return op_node_class(n) != CLS_VIEW;
}

static int by_u64(const void *x, const void *y) {
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

static double fit_fixed(const Graph *g, const Cost *c, const Device *x) {
    Arena *t = arena_new();
    uint64_t *ns = ARENA_ARRAY(t, uint64_t, g->nnode + 1);
    uint32_t n = 0;
    for (NodeId i = 0; i < g->nnode; i++)
        if (is_timed(&g->node[i]) && cost_roofline(g, c, &g->node[i], x).ns < x->fixed_ns / 4)
            ns[n++] = c->node_ns[i];
    qsort(ns, n, sizeof *ns, by_u64);
    double fixed = n ? (double)ns[n / 2] : x->fixed_ns;
    arena_free(t);
    return fixed;
}

/* Time that the roofline has to explain; at least 1 ns. */
static double share(const Cost *c, NodeId i, const Device *x) {
    double ns = (double)c->node_ns[i] - x->fixed_ns;
    return ns > 1 ? ns : 1;
}

/* Sums over the nodes that something bounds. */
typedef struct {
    double amount, ns;
} Sums;

static double rate(const Sums *s, double otherwise) {
    return s->ns > 0 ? s->amount / s->ns : otherwise;
}

static void fit_rates(const Graph *g, const Cost *c, Device *x) {
    Sums product = {0}, loop = {0}, bytes = {0};
    for (NodeId i = 0; i < g->nnode; i++) {
        const Node *n = &g->node[i];
        if (!is_timed(n)) continue;
        Roofline r = cost_roofline(g, c, n, x);
        Sums *s = !r.arithmetic ? &bytes : r.product ? &product : &loop;
        s->amount += r.arithmetic ? (double)op_flops(g, n) : cost_bytes_moved(g, c, n);
        s->ns += share(c, i, x);
    }
    double threads = c->threads;
    x->flops_per_ns = rate(&product, x->flops_per_ns * threads) / threads;
    x->loop_flops_per_ns = rate(&loop, x->loop_flops_per_ns * threads) / threads;
    x->bytes_per_ns = rate(&bytes, x->bytes_per_ns * threads) / threads;
    if (x->max_bytes_per_ns < x->bytes_per_ns * threads)
        x->max_bytes_per_ns = x->bytes_per_ns * threads;
}

static double within(double x, double lo, double hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

Device device_fit(const Graph *g, const Cost *measured, const Device *start, bool rates) {
    Device x = *start;
    double predicted[OP_COUNT] = {0}, time[OP_COUNT] = {0}, fixed[OP_COUNT] = {0};
    if (rates) {
        x.fixed_ns = within(fit_fixed(g, measured, start), 0, 1e6);
        fit_rates(g, measured, &x);
        x.flops_per_ns = within(x.flops_per_ns, 1e-3, 1e6);
        x.loop_flops_per_ns = within(x.loop_flops_per_ns, 1e-3, 1e6);
        x.bytes_per_ns = within(x.bytes_per_ns, 1e-3, 1e6);
        x.max_bytes_per_ns = within(x.max_bytes_per_ns, 1e-3, 1e6);
    }
    for (NodeId i = 0; i < g->nnode; i++) {
        const Node *n = &g->node[i];
        if (!is_timed(n)) continue;
        predicted[n->op] += cost_roofline(g, measured, n, &x).ns;
        time[n->op] += share(measured, i, &x);
        fixed[n->op] += x.fixed_ns;
    }
    for (OpCode op = 0; op < OP_COUNT; op++)
        if (predicted[op] > fixed[op]) x.factor[op] = within(time[op] / predicted[op], 1e-3, 1e3);
    return x;
}
