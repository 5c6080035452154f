/* reduce.c - reductions over any set of axes (sum, maximum, minimum, product, log-sum-exp, the
 * gradient of products), running sums and positions of extremes: shapes for the kernels of
 * reduce.cu, fold.cu and scan.cu. */
#include "walk.h"

enum {
    FEW = 16,        /* elements that one thread adds up */
    PARTS = 1 << 17, /* REDUCE_PARTS of reduce.cu */
    BLOCKS = 1024,   /* that keep a device busy */
    RUN = 4096,
    ROWS = 256, /* elements of an output that are worth a block of their own */
};

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

/* Parts of each output's elements, so that there are enough blocks. */
static int splits_of(const CuReduce *q, int64_t blocks) {
    int64_t by_size = q->over.total / (q->runs ? RUN : ROWS);
    int64_t by_place = PARTS / (q->keep.total ? q->keep.total : 1);
    int64_t n = (BLOCKS + blocks - 1) / (blocks ? blocks : 1);
    if (n > by_size) n = by_size;
    if (n > by_place) n = by_place;
    return n > 1 ? (int)n : 1;
}

void dtrt_reduce_sum(const float *x, float *y, int nd, const int64_t *dim, const uint8_t *red,
                     float scale) {
    CuReduce q = reduce_of(nd, dim, red);
    int64_t outputs = q.keep.total, columns = (outputs + 31) / 32;
    q.scale = scale;
    if (q.over.total <= FEW) {
        CU_LAUNCH(reduce_each, cu_blocks(outputs, 256), 256, &q, &x, &y);
        return;
    }
    q.splits = splits_of(&q, q.runs ? outputs : columns);
    if (q.runs && q.over.total <= CU_WARP_ROW) {
        CU_LAUNCH(reduce_runs_warp, cu_blocks(outputs, 8), 256, &q, &x, &y);
    } else if (q.runs) {
        CU_LAUNCH(reduce_runs_block, cu_blocks(outputs * q.splits, 1), 256, &q, &x, &y);
    } else {
        CU_LAUNCH(reduce_columns, cu_blocks(columns * q.splits, 1), 256, &q, &x, &y);
    }
    if (q.splits > 1) CU_LAUNCH(reduce_parts, cu_blocks(outputs, 256), 256, &q, &y);
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
