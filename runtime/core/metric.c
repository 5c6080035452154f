/* metric.c - accuracy of one batch: how often the largest logit (the first of equal ones) is at the
 * label. Reads the model's output where it lies right after the node that made it. */
#include "core.h"

void dtrt_metric_shape(const DtrtProgram *p, int64_t *outer, int64_t *n, int64_t *inner) {
    int64_t axis = p->class_axis < 0 ? p->class_axis + p->logits_rank : p->class_axis;
    *outer = *inner = 1;
    *n = p->logits_dim[axis];
    for (int i = 0; i < axis; i++) *outer *= p->logits_dim[i];
    for (int64_t i = axis + 1; i < p->logits_rank; i++) *inner *= p->logits_dim[i];
}

void dtrt_metric_accuracy(Runtime *rt) {
    const DtrtProgram *p = rt->p;
    const DtrtTensor *t = dtrt_program_target(p);
    const float *x = rt->logits_at;
    int64_t outer, n, inner;
    dtrt_metric_shape(p, &outer, &n, &inner);
    if (!t || dtrt_tensor_count(t) != (uint64_t)(outer * inner)) return;
    uint64_t hits = 0, counted = 0;
#pragma omp parallel for reduction(+ : hits, counted)
    for (int64_t k = 0; k < outer * inner; k++) {
        const float *row = x + k / inner * n * inner + k % inner;
        const void *labels = rt->block + t->offset;
        int64_t label =
            t->type == DTRT_I64 ? ((const int64_t *)labels)[k] : ((const int32_t *)labels)[k];
        int64_t best = 0;
        if (p->has_ignore && label == p->ignore_index) continue;
        for (int64_t c = 1; c < n; c++)
            if (row[c * inner] > row[best * inner]) best = c;
        hits += best == label;
        counted++;
    }
    rt->hits = hits;
    rt->counted = counted;
}
