/* matmul.c - reference of MatMul: alpha * op(A) op(B) + bias, batch axes broadcast. */
#include "ref.h"

#include <string.h>

/* Offset of batch number i (of the result) in an operand whose leading axes broadcast. */
static uint64_t batch_offset(const DtrtRefValue *x, const DtrtRefValue *y, uint64_t i) {
    uint64_t at = 0, stride = (uint64_t)(x->dim[x->rank - 1] * x->dim[x->rank - 2]);
    for (int k = y->rank - 3; k >= 0; k--) {
        uint64_t pos = i % (uint64_t)y->dim[k];
        int own = k - (y->rank - x->rank);
        i /= (uint64_t)y->dim[k];
        if (own < 0) continue;
        if (x->dim[own] > 1) at += pos * stride;
        stride *= (uint64_t)x->dim[own];
    }
    return at;
}

static void run_matmul(const RefCall *c) {
    const DtrtRefValue *sa = dtrt_ref_in_shape(c, 0), *sb = dtrt_ref_in_shape(c, 1);
    const DtrtRefValue *sy = dtrt_ref_out_shape(c, 0);
    const double *a = dtrt_ref_in(c, 0), *b = dtrt_ref_in(c, 1), *bias = dtrt_ref_in(c, 2);
    bool ta = dtrt_ref_i(c->n, "trans_a", 0) != 0, tb = dtrt_ref_i(c->n, "trans_b", 0) != 0;
    double alpha = dtrt_ref_f(c->n, "alpha", 1);
    int64_t m = sy->dim[sy->rank - 2], n = sy->dim[sy->rank - 1];
    int64_t depth = sa->dim[sa->rank - (ta ? 2 : 1)];
    int64_t rows = (int64_t)dtrt_ref_count(sy) / n;
#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++) {
        uint64_t batch = (uint64_t)(r / m);
        const double *x = a + batch_offset(sa, sy, batch), *w = b + batch_offset(sb, sy, batch);
        int64_t i = r % m;
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += x[ta ? k * m + i : i * depth + k] * w[tb ? j * depth + k : k * n + j];
            c->y[0][r * n + j] = alpha * sum + (bias ? bias[j] : 0);
        }
    }
}

RefOp *dtrt_ref_matmul(const char *op) {
    return !strcmp(op, "MatMul") ? run_matmul : NULL;
}
