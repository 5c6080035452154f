/* softmax.c - Softmax, LogSoftmax and their gradients: a warp or block a row, or blocks of 32
 * columns. */
#include "walk.h"

void dtrt_softmax(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int log_form) {
    if (inner == 1) {
        CU_ROWS(softmax, outer, n, &x, &y, &outer, &n, &log_form);
    } else {
        int64_t blocks = outer * ((inner + 31) / 32);
        CU_LAUNCH(softmax_columns, cu_blocks(blocks, 1), 256, &x, &y, &outer, &n, &inner,
                  &log_form);
    }
}

void dtrt_softmax_grad(const float *dy, const float *y, float *dx, int64_t outer, int64_t n,
                       int64_t inner, int log_form) {
    if (inner == 1) {
        CU_ROWS(softmax_grad, outer, n, &dy, &y, &dx, &outer, &n, &log_form);
    } else {
        int64_t blocks = outer * ((inner + 31) / 32);
        CU_LAUNCH(softmax_grad_columns, cu_blocks(blocks, 1), 256, &dy, &y, &dx, &outer, &n, &inner,
                  &log_form);
    }
}
