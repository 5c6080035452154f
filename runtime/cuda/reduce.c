/* reduce.c - reductions over any set of axes (sum, maximum, minimum, product, log-sum-exp, the
 * gradient of products), running sums and positions of extremes: shapes for the kernels of
 * reduce.cu, fold.cu and scan.cu. */
#include "cuda_plan.h"
#include "walk.h"

enum { FEW = 16 }; /* elements that one thread adds up */

/* Outputs and elements as walks; neighbours of one kind merge. */
static CuReduce reduce_of(int nd, const int64_t *dim, const uint8_t *red) {
    CuReduce q = {.keep = cu_walk(), .over = cu_walk(), .splits = 1};
    int64_t stride = 1;
    assert(nd <= 8);
    for (int i = nd; i-- > 0;) {
        cu_walk_push(red[i] ? &q.over : &q.keep, dim[i], 0, stride);
        stride *= dim[i];
    }
    q.runs = q.over.first < 8 && q.over.from[7] == 1;
    cu_walk_close(&q.keep);
    cu_walk_close(&q.over);
    return q;
}

uint64_t dtrt_reduce_sum_needs(int nd, const int64_t *dim, const uint8_t *red) {
    CudaSum sum;
    cuda_sum(nd, dim, red, &sum);
    return sum.bytes;
}

void dtrt_reduce_sum(const float *x, float *y, int nd, const int64_t *dim, const uint8_t *red,
                     float scale, void *ws) {
    CuReduce q = reduce_of(nd, dim, red);
    CudaSum sum;
    double *part = ws;
    int64_t outputs = q.keep.total, columns = (outputs + 31) / 32;
    cuda_sum(nd, dim, red, &sum);
    q.scale = scale;
    q.splits = sum.splits;
    if (q.over.total <= FEW) {
        CU_LAUNCH(reduce_each, cu_blocks(outputs, 256), 256, &q, &x, &y);
    } else if (q.runs && q.over.total <= CU_WARP_ROW) {
        CU_LAUNCH(reduce_runs_warp, cu_blocks(outputs, 8), 256, &q, &x, &y, &part);
    } else if (q.runs) {
        CU_LAUNCH(reduce_runs_block, cu_blocks(outputs * q.splits, 1), 256, &q, &x, &y, &part);
    } else {
        CU_LAUNCH(reduce_columns, cu_blocks(columns * q.splits, 1), 256, &q, &x, &y, &part);
    }
    if (q.splits > 1) CU_LAUNCH(reduce_parts, cu_blocks(outputs, 256), 256, &q, &part, &y);
}

static int64_t fold_blocks(const CuReduce *q) {
    return cu_blocks(q->keep.total, q->runs ? 1 : 32);
}

void dtrt_fold(DtrtFold kind, const float *x, float *y, int nd, const int64_t *dim,
               const uint8_t *red) {
    CuReduce q = reduce_of(nd, dim, red);
    q.kind = (int)kind;
    CU_LAUNCH(fold, fold_blocks(&q), 256, &q, &x, &y);
}

void dtrt_prod_grad(const float *dy, const float *x, float *dx, int nd, const int64_t *dim,
                    const uint8_t *red) {
    CuReduce q = reduce_of(nd, dim, red);
    CU_LAUNCH(prod_grad, fold_blocks(&q), 256, &q, &dy, &x, &dx);
}

void dtrt_cumsum(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int exclusive,
                 int reverse) {
    int64_t lines = outer * inner;
    if (inner == 1) {
        CU_LAUNCH(cumsum_rows, cu_blocks(outer, 8), 256, &x, &y, &outer, &n, &exclusive, &reverse);
    } else {
        CU_LAUNCH(cumsum_lines, cu_blocks(lines, 256), 256, &x, &y, &outer, &n, &inner, &exclusive,
                  &reverse);
    }
}

void dtrt_arg(const float *x, int64_t *y, int64_t outer, int64_t n, int64_t inner, int min,
              int last) {
    int64_t lines = outer * inner;
    if (inner == 1) {
        CU_LAUNCH(arg_rows, cu_blocks(outer, 8), 256, &x, &y, &outer, &n, &min, &last);
    } else {
        CU_LAUNCH(arg_lines, cu_blocks(lines, 256), 256, &x, &y, &outer, &n, &inner, &min, &last);
    }
}
