/* loss.c - reference of the losses, over the model's output or within the model, in the definitions
 * of PyTorch: means over all elements, or over the labels that are not ignored. */
#include "ref.h"

#include <math.h>
#include <string.h>

/* Scores [outer, n, inner] and labels [outer, inner]. */
typedef struct {
    int64_t outer, n, inner, ignore_index;
    bool is_log, has_ignore;
    double smoothing;
} Classes;

/* Cross-entropy (is_log: of log-probabilities) with smoothing s: the target distribution is (1-s)
 * at the label plus s/n everywhere. */
static double class_loss(const Classes *c, const double *x, const double *labels) {
    int64_t n = c->n, inner = c->inner, counted = 0;
    double total = 0;
    for (int64_t k = 0; k < c->outer * inner; k++) {
        const double *row = x + k / inner * n * inner + k % inner;
        int64_t label = (int64_t)labels[k];
        double max = -INFINITY, sum = 0, mean = 0, norm = 0;
        if (c->has_ignore && label == c->ignore_index) continue;
        for (int64_t i = 0; i < n; i++) max = fmax(max, row[i * inner]);
        for (int64_t i = 0; i < n; i++) sum += exp(row[i * inner] - max);
        if (!c->is_log) norm = max + log(sum);
        for (int64_t i = 0; i < n; i++) mean += (row[i * inner] - norm) / (double)n;
        if (label < 0 || label >= n) return NAN;
        double s = c->smoothing;
        total -= (1 - s) * (row[label * inner] - norm) + (s != 0 ? s * mean : 0);
        counted++;
    }
    return total / (double)counted;
}

static double output_classes(const Ref *r, const double *x, bool is_log) {
    const DtrtProgram *p = r->p;
    Classes c = {.is_log = is_log,
                 .has_ignore = p->has_ignore,
                 .ignore_index = p->ignore_index,
                 .smoothing = p->label_smoothing};
    dtrt_ref_split(&p->refvalue[p->ref_output], p->class_axis, &c.outer, &c.n, &c.inner);
    return class_loss(&c, x, r->target);
}

/* A loss that is a node of the model. Labels out of range are refused by the program. */
static void run_classes(const RefCall *call) {
    uint32_t given = 0;
    Classes c = {.is_log = !strcmp(call->n->op, "NllLoss"),
                 .ignore_index = dtrt_ref_i(call->n, "ignore_index", 0),
                 .smoothing = dtrt_ref_f(call->n, "smoothing", 0)};
    dtrt_ref_ints(call->n, "ignore_index", &given);
    c.has_ignore = given > 0;
    dtrt_ref_split(dtrt_ref_in_shape(call, 0), dtrt_ref_i(call->n, "axis", 1), &c.outer, &c.n,
                   &c.inner);
    call->y[0][0] = class_loss(&c, dtrt_ref_in(call, 0), dtrt_ref_in(call, 1));
}

RefOp *dtrt_ref_class_loss(const char *op) {
    return !strcmp(op, "SoftmaxCE") || !strcmp(op, "NllLoss") ? run_classes : NULL;
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
    if (!strcmp(p->loss_kind, "cross-entropy")) return output_classes(r, x, false);
    if (!strcmp(p->loss_kind, "nll")) return output_classes(r, x, true);
    bool plain = !strcmp(p->loss_kind, "output");
    for (uint64_t i = 0; i < n; i++)
        total += plain ? x[i] : element_loss(p->loss_kind, x[i], r->target[i]);
    return total / (double)n;
}
