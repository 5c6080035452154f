/* matmul.c - matrix products: batch axes -> as few calls of cuBLAS as possible; bias after it.
 *
 * Batch axes are strides, 0 where an operand is broadcast. Neighbours join where both operands
 * move on as along one axis; a batch of A against one B becomes rows of A. The last axis that is
 * left is the library's batch, the others are loops of the host. */
#include "libraries.h"

#include <string.h>

typedef struct {
    int n;
    int64_t size[6], a[6], b[6], y[6]; /* steps in elements */
} Batch;

/* Axes from the last to the first, joined and without those of size 1; batch.size[0] is the
 * innermost. */
static Batch batch_of(const DtrtMatmul *m) {
    Batch t = {0};
    int64_t a = m->m * m->k, b = m->k * m->n, y = m->m * m->n;
    for (int i = m->nbatch; i-- > 0;) {
        int64_t da = m->batch_a[i], db = m->batch_b[i], size = da > db ? da : db;
        int64_t step_a = da == 1 ? 0 : a, step_b = db == 1 ? 0 : b;
        if (size == 1) continue;
        int last = t.n - 1;
        if (t.n && step_a == t.a[last] * t.size[last] && step_b == t.b[last] * t.size[last]) {
            t.size[last] *= size;
        } else {
            t.size[t.n] = size, t.a[t.n] = step_a, t.b[t.n] = step_b, t.y[t.n] = y;
            t.n++;
        }
        a *= da, b *= db, y *= size;
    }
    return t;
}

static void drop_first(Batch *t) {
    t->n--;
    for (int i = 0; i < t->n; i++) {
        t->size[i] = t->size[i + 1], t->a[i] = t->a[i + 1];
        t->b[i] = t->b[i + 1], t->y[i] = t->y[i + 1];
    }
}

/* Axes after the first, as a counter that the host turns. */
static void run_batches(const Batch *t, const CuProducts *p, const float *a, const float *b,
                        float *y, void *workspace, uint64_t bytes) {
    int64_t at[6] = {0};
    for (;;) {
        cu_blas_products(p, a, b, y, workspace, bytes);
        int i = 0;
        for (; i < t->n; i++) {
            a += t->a[i], b += t->b[i], y += t->y[i];
            if (++at[i] < t->size[i]) break;
            a -= t->a[i] * at[i], b -= t->b[i] * at[i], y -= t->y[i] * at[i];
            at[i] = 0;
        }
        if (i == t->n) return;
    }
}

static int64_t result_count(const DtrtMatmul *m) {
    int64_t n = m->m * m->n;
    for (int i = 0; i < m->nbatch; i++) n *= m->batch_a[i] == 1 ? m->batch_b[i] : m->batch_a[i];
    return n;
}

void cu_matmul(const DtrtMatmul *m, const float *a, const float *b, float *y, void *workspace,
               uint64_t bytes) {
    CuProducts p = {.m = m->m,
                    .n = m->n,
                    .k = m->k,
                    .count = 1,
                    .trans_a = m->trans_a != 0,
                    .trans_b = m->trans_b != 0,
                    .alpha = m->alpha};
    int64_t count = result_count(m);
    if (count == 0) return;
    if (m->k == 0) { /* a sum of nothing */
        cu_check(cu.cuMemsetD32Async((CUdeviceptr)(uintptr_t)y, 0, (size_t)count, cu_device.stream),
                 "cuMemsetD32Async");
        return;
    }
    Batch t = batch_of(m);
    if (t.n && t.b[0] == 0 && t.a[0] == p.m * p.k && !m->trans_a) {
        p.m *= t.size[0];
        drop_first(&t);
    }
    if (t.n) {
        p.count = t.size[0], p.step_a = t.a[0], p.step_b = t.b[0], p.step_y = t.y[0];
        drop_first(&t);
    }
    run_batches(&t, &p, a, b, y, workspace, bytes);
}

void cu_add_bias(float *y, const float *bias, int64_t count, int64_t channels, int64_t inner,
                 bool relu) {
    int clamp = relu;
    if (!bias && !relu) return;
    CU_LAUNCH(add_bias, cu_blocks(count, 256), 256, &y, &bias, &count, &channels, &inner, &clamp);
}

bool dtrt_matmul_init(DtrtMatmul *m, int threads) {
    (void)threads;
    m->impl = NULL;
    return cu_blas();
}

uint64_t dtrt_matmul_workspace(const DtrtMatmul *m) {
    return cuda_matmul_workspace(m);
}

void dtrt_matmul_free(DtrtMatmul *m) {
    (void)m;
}

void dtrt_matmul(const DtrtMatmul *m, const float *a, const float *b, const float *bias, float *y,
                 void *ws) {
    cu_matmul(m, a, b, y, ws, cuda_matmul_workspace(m));
    if (m->bias) cu_add_bias(y, bias, result_count(m), m->n, 1, false);
}
