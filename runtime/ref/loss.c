/* loss.c - reference of the losses over the model's output, in the definitions of PyTorch: means
 * over all elements, or over the labels that are not ignored. */
#include "ref.h"

#include <math.h>
#include <string.h>

/* Cross-entropy (is_log: of log-probabilities) with smoothing s: the target distribution is (1-s)
 * at the label plus s/n everywhere. */
static double class_loss(const Ref *r, const double *x, bool is_log) {
    const DtrtProgram *p = r->p;
    int64_t outer, n, inner, counted = 0;
    double total = 0;
    dtrt_ref_split(&p->refvalue[p->ref_output], p->class_axis, &outer, &n, &inner);
    for (int64_t k = 0; k < outer * inner; k++) {
        const double *row = x + k / inner * n * inner + k % inner;
        int64_t label = (int64_t)r->target[k];
        double max = -INFINITY, sum = 0, mean = 0, norm = 0;
        if (p->has_ignore && label == p->ignore_index) continue;
        for (int64_t i = 0; i < n; i++) max = fmax(max, row[i * inner]);
        for (int64_t i = 0; i < n; i++) sum += exp(row[i * inner] - max);
        if (!is_log) norm = max + log(sum);
        for (int64_t i = 0; i < n; i++) mean += (row[i * inner] - norm) / (double)n;
        double s = p->label_smoothing;
        total -= (1 - s) * (row[label * inner] - norm) + (s != 0 ? s * mean : 0);
        counted++;
    }
    return total / (double)counted;
}

static double element_loss(const char *kind, double y, double t) {
    if (!strcmp(kind, "mse")) return (y - t) * (y - t);
    if (!strcmp(kind, "l1")) return fabs(y - t);
    return fmax(y, 0) - y * t + log1p(exp(-fabs(y))); /* bce-logits */
}

double dtrt_ref_loss(const Ref *r) {
    const DtrtProgram *p = r->p;
    const double *x = r->now[p->ref_output];
    uint64_t n = dtrt_ref_count(&p->refvalue[p->ref_output]);
    double total = 0;
    if (!strcmp(p->loss_kind, "cross-entropy")) return class_loss(r, x, false);
    if (!strcmp(p->loss_kind, "nll")) return class_loss(r, x, true);
    bool plain = !strcmp(p->loss_kind, "output");
    for (uint64_t i = 0; i < n; i++)
        total += plain ? x[i] : element_loss(p->loss_kind, x[i], r->target[i]);
    return total / (double)n;
}
