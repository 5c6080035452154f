/* loss.c - softmax cross-entropy and negative log-likelihood with integer labels, and their
 * gradients. The first kernel counts and checks the labels, for both directions. */
#include "walk.h"

enum { PARTS = 256 }; /* LOSS_PARTS of loss.cu */

static CuLoss loss_of(const DtrtLoss *l) {
    int64_t positions = l->outer * l->inner;
    return (CuLoss){.outer = l->outer,
                    .n = l->n,
                    .inner = l->inner,
                    .ignore_index = l->ignore_index,
                    .smoothing = l->smoothing,
                    .label_i32 = l->label_i32,
                    .has_ignore = l->has_ignore,
                    .is_log = l->is_log,
                    .node = cu_node(),
                    .parts = (int)(positions < 1       ? 1
                                   : positions < PARTS ? positions
                                                       : PARTS)};
}

static void count_labels(const CuLoss *l, const void *labels) {
    CuLoss q = *l;
    int threads = q.outer * q.inner <= 32 * PARTS ? 32 : 256;
    CU_LAUNCH(loss_count, q.parts, threads, &q, &labels);
}

uint64_t dtrt_loss_needs(const DtrtLoss *l, int threads) {
    (void)l;
    (void)threads;
    return PARTS * sizeof(double);
}

void dtrt_loss_forward(DtrtCtx *c, const DtrtLoss *l, const float *x, const void *labels,
                       float *loss, void *ws) {
    CuLoss q = loss_of(l);
    (void)c;
    count_labels(&q, labels);
    if (l->inner == 1) {
        CU_LAUNCH(loss_rows, q.parts, cu_row_threads(l->n), &q, &x, &labels, &ws);
    } else {
        CU_LAUNCH(loss_columns, q.parts, 256, &q, &x, &labels, &ws);
    }
    CU_LAUNCH(loss_mean, 1, PARTS, &ws, &q.parts, &loss);
}

void dtrt_loss_grad(DtrtCtx *c, const DtrtLoss *l, const float *dloss, const float *x,
                    const void *labels, float *dx, void *ws) {
    CuLoss q = loss_of(l);
    (void)c;
    (void)ws;
    count_labels(&q, labels);
    if (l->inner == 1) {
        CU_LAUNCH(loss_grad_rows, cu_blocks(l->outer, 1), cu_row_threads(l->n), &q, &dloss, &x,
                  &labels, &dx);
    } else {
        int64_t total = l->outer * l->inner;
        CU_LAUNCH(loss_grad_columns, cu_blocks(total, 32), 256, &q, &dloss, &x, &labels, &dx);
    }
}
