/* fold.c - reference of extremes, products and log-sum-exp over axes, running sums, positions of
 * extremes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref.h"

/* Result element that element i of x belongs to; mask: axes that are reduced. */
static uint64_t result_of(const DtrtRefValue *x, uint32_t mask, uint64_t i) {
    uint64_t at = 0, stride = 1;
    for (int k = x->rank - 1; k >= 0; k--) {
        uint64_t pos = i % (uint64_t)x->dim[k];
        i /= (uint64_t)x->dim[k];
        if (mask >> k & 1) continue;
        at += pos * stride;
        stride *= (uint64_t)x->dim[k];
    }
    return at;
}

static void run_fold(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0);
    const double *in = dtrt_ref_in(c, 0);
    double *y = c->y[0];
    bool prod = !strcmp(c->n->op, "ReduceProd"), min = !strcmp(c->n->op, "ReduceMin");
    bool lse = !strcmp(c->n->op, "ReduceLogSumExp");
    uint32_t naxes, mask = 0;
    const int64_t *axes = dtrt_ref_ints(c->n, "axes", &naxes);
    for (uint32_t i = 0; i < naxes; i++) mask |= 1u << axes[i];
    if (!naxes) mask = ~0u;
    uint64_t n = dtrt_ref_count(x), ny = dtrt_ref_count(dtrt_ref_out_shape(c, 0));
    for (uint64_t i = 0; i < ny; i++) y[i] = prod ? 1 : min ? INFINITY : -INFINITY;
    for (uint64_t i = 0; i < n; i++) {
        double *to = &y[result_of(x, mask, i)];
        if (prod)
            *to *= in[i];
        else if (isnan(in[i]) || (min ? in[i] < *to : in[i] > *to))
            *to = in[i];
    }
    if (!lse) return;
    double *sum = calloc(ny + 1, sizeof *sum);
    for (uint64_t i = 0; sum && i < n; i++) {
        uint64_t k = result_of(x, mask, i);
        sum[k] += exp(in[i] - (isinf(y[k]) ? 0 : y[k]));
    }
    for (uint64_t i = 0; sum && i < ny; i++) y[i] = (isinf(y[i]) ? 0 : y[i]) + log(sum[i]);
    free(sum);
}

static void run_cumsum(const RefCall *c) {
    const double *x = dtrt_ref_in(c, 0);
    bool exclusive = dtrt_ref_i(c->n, "exclusive", 0) != 0;
    bool reverse = dtrt_ref_i(c->n, "reverse", 0) != 0;
    int64_t outer, n, inner;
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), dtrt_ref_i(c->n, "axis", 0), &outer, &n, &inner);
    for (int64_t r = 0; r < outer * inner; r++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (r / inner * n + (reverse ? n - 1 - i : i)) * inner + r % inner;
            c->y[0][at] = exclusive ? sum : sum + x[at];
            sum += x[at];
        }
    }
}

static void run_arg(const RefCall *c) {
    const double *x = dtrt_ref_in(c, 0);
    bool min = !strcmp(c->n->op, "ArgMin"), last = dtrt_ref_i(c->n, "last", 0) != 0;
    int64_t outer, n, inner;
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), dtrt_ref_i(c->n, "axis", 0), &outer, &n, &inner);
    for (int64_t r = 0; r < outer * inner; r++) {
        const double *line = x + r / inner * n * inner + r % inner;
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) {
            double v = line[i * inner], top = line[best * inner];
            if (isnan(v) ? !isnan(top) || last : v == top ? last : min ? v < top : v > top)
                best = i;
        }
        c->y[0][r] = (double)best;
    }
}

RefOp *dtrt_ref_fold(const char *op) {
    if (!strcmp(op, "CumSum")) return run_cumsum;
    if (!strcmp(op, "ArgMax") || !strcmp(op, "ArgMin")) return run_arg;
    static const char *const folds[] = {"ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"};
    for (size_t i = 0; i < sizeof folds / sizeof *folds; i++)
        if (!strcmp(op, folds[i])) return run_fold;
    return NULL;
}
