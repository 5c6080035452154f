/* matmul.c - matrix products: geometry -> oneDNN matmul primitive -> run.
 *
 * Transposed operands are strides, not copies. Batch axes are merged where both operands have them
 * or both broadcast them; a batch of A against one B becomes rows of A. The library's first choice
 * (a blocked GEMM with the scratchpad in our workspace) was within 10% of its sgemm, or far ahead
 * of it, in every product of training that we timed; the one exception is a row vector times a
 * transposed matrix, where the plain GEMM is three times as fast. alpha is a linear post-op; with
 * both alpha and bias the bias is added after it. */
#include "onednn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { A, B, BIAS, Y, MATS };

/* The product after merging: nd axes of which the last two are the matrix. */
typedef struct {
    int nd;
    bool bias_md, bias_post; /* bias as an operand of the primitive, or as a post-op */
    dnnl_memory_desc_t md[MATS];
} Product;

typedef struct {
    OnednnOp op;
    uint64_t workspace;
} Matmul;

/* Merged batch axes of a and b; rows: A's rows take the batch because B has none. */
static int merge_batch(const DtrtMatmul *m, int64_t a[6], int64_t b[6], int64_t *rows) {
    int n = 0;
    *rows = 1;
    for (int i = 0; i < m->nbatch; i++) {
        int64_t da = m->batch_a[i], db = m->batch_b[i];
        if (da == 1 && db == 1) continue;
        if (n > 0 && (a[n - 1] == 1) == (da == 1) && (b[n - 1] == 1) == (db == 1)) {
            a[n - 1] *= da;
            b[n - 1] *= db;
        } else {
            a[n] = da;
            b[n++] = db;
        }
    }
    if (n == 1 && b[0] == 1 && !m->trans_a) {
        *rows = a[0];
        n = 0;
    }
    return n;
}

static dnnl_status_t matrix_md(dnnl_memory_desc_t *md, int nbatch, const int64_t *batch,
                               int64_t rows, int64_t cols, int trans) {
    dnnl_dims_t dim = {0}, stride = {0};
    int64_t size = rows * cols;
    for (int i = nbatch; i-- > 0;) {
        dim[i] = batch[i];
        stride[i] = size;
        size *= batch[i];
    }
    dim[nbatch] = rows;
    dim[nbatch + 1] = cols;
    stride[nbatch] = trans ? 1 : cols;
    stride[nbatch + 1] = trans ? rows : 1;
    return dnnl_memory_desc_init_by_strides(md, nbatch + 2, dim, dnnl_f32, stride);
}

static dnnl_status_t fill_product(const DtrtMatmul *m, Product *p) {
    int64_t a[6] = {0}, b[6] = {0}, y[6] = {0}, one[6] = {1, 1, 1, 1, 1, 1}, rows;
    int n = merge_batch(m, a, b, &rows);
    for (int i = 0; i < n; i++) y[i] = a[i] > b[i] ? a[i] : b[i];
    *p = (Product){.nd = n + 2};
    p->bias_md = m->bias && m->alpha == 1.0f;
    p->bias_post = m->bias && !p->bias_md;
    dnnl_status_t s = matrix_md(&p->md[A], n, a, rows * m->m, m->k, m->trans_a);
    if (s == dnnl_success) s = matrix_md(&p->md[B], n, b, m->k, m->n, m->trans_b);
    if (s == dnnl_success) s = matrix_md(&p->md[BIAS], n, one, 1, m->n, 0);
    if (s == dnnl_success) s = matrix_md(&p->md[Y], n, y, rows * m->m, m->n, 0);
    return s;
}

static dnnl_status_t fill_attr(const DtrtMatmul *m, const Product *p, dnnl_primitive_attr_t *attr) {
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = onednn_attr(attr);
    if (s != dnnl_success || m->alpha == 1.0f) return s;
    s = dnnl_post_ops_create(&ops);
    if (s == dnnl_success) {
        s = dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_linear, m->alpha, 0.0f);
    }
    if (s == dnnl_success && p->bias_post) {
        s = dnnl_post_ops_append_binary(ops, dnnl_binary_add, &p->md[BIAS]);
    }
    if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops) dnnl_post_ops_destroy(ops);
    return s;
}

/* The library's first implementation, or the named one if it is offered. */
static dnnl_status_t choose(dnnl_primitive_desc_iterator_t it, const char *wanted,
                            dnnl_primitive_desc_t *pd) {
    *pd = dnnl_primitive_desc_iterator_fetch(it);
    while (wanted && *pd && strncmp(onednn_impl(*pd), wanted, strlen(wanted))) {
        if (dnnl_primitive_desc_iterator_next(it) != dnnl_success) return dnnl_unimplemented;
        dnnl_primitive_desc_destroy(*pd);
        *pd = dnnl_primitive_desc_iterator_fetch(it);
    }
    return *pd ? dnnl_success : dnnl_out_of_memory;
}

static dnnl_status_t make_pd(const DtrtMatmul *m, Product *p, dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_matmul_desc_t desc;
    *pd = NULL;
    dnnl_engine_t engine = onednn_engine();
    dnnl_status_t s = engine ? fill_product(m, p) : dnnl_runtime_error;
    if (s == dnnl_success) s = fill_attr(m, p, &attr);
    if (s == dnnl_success) {
        s = dnnl_matmul_desc_init(&desc, &p->md[A], &p->md[B], p->bias_md ? &p->md[BIAS] : NULL,
                                  &p->md[Y]);
    }
    bool gemv = m->m == 1 && m->trans_b && p->nd == 2;
    for (int plain = gemv; s == dnnl_success && plain >= 0 && !*pd; plain--) {
        s = dnnl_primitive_desc_iterator_create(&it, &desc, attr, engine, NULL);
        if (s == dnnl_success) s = choose(it, plain ? "gemm:" : NULL, pd);
        if (it) dnnl_primitive_desc_iterator_destroy(it);
        it = NULL;
        if (s != dnnl_success && *pd) {
            dnnl_primitive_desc_destroy(*pd);
            *pd = NULL;
        }
        if (plain && !*pd) s = dnnl_success; /* not offered: the first choice then */
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    return s;
}

bool dtrt_matmul_needs(const DtrtMatmul *m, int threads, uint64_t *workspace, char *err,
                       size_t nerr) {
    Product p;
    dnnl_primitive_desc_t pd;
    int old = onednn_push_threads(threads);
    dnnl_status_t s = make_pd(m, &p, &pd);
    onednn_pop_threads(old);
    if (s != dnnl_success) {
        snprintf(err, nerr, "matrix product [%lld,%lld] x [%lld,%lld]: %s", (long long)m->m,
                 (long long)m->k, (long long)m->k, (long long)m->n, onednn_error(s));
        return false;
    }
    *workspace = onednn_scratch_bytes(pd);
    dnnl_primitive_desc_destroy(pd);
    return true;
}

static bool init_op(const DtrtMatmul *m, const Product *p, const_dnnl_primitive_desc_t pd,
                    OnednnOp *op) {
    int bias = p->bias_post ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS;
    if (onednn_op_init(op, pd) && onednn_op_arg(op, DNNL_ARG_SRC, &p->md[A]) &&
        onednn_op_arg(op, DNNL_ARG_WEIGHTS, &p->md[B]) &&
        onednn_op_arg(op, DNNL_ARG_DST, &p->md[Y]) && onednn_op_scratch(op, pd) &&
        (!m->bias || onednn_op_arg(op, bias, &p->md[BIAS]))) {
        return true;
    }
    fprintf(stderr, "error: oneDNN: no memory for a matrix product\n");
    return false;
}

bool dtrt_matmul_init(DtrtMatmul *m, int threads) {
    Product p;
    dnnl_primitive_desc_t pd = NULL;
    int old = onednn_push_threads(threads);
    m->impl = calloc(1, sizeof(Matmul));
    dnnl_status_t s = m->impl ? make_pd(m, &p, &pd) : dnnl_out_of_memory;
    bool ok = s == dnnl_success;
    if (ok) {
        ((Matmul *)m->impl)->workspace = onednn_scratch_bytes(pd);
        ok = init_op(m, &p, pd, &((Matmul *)m->impl)->op);
    } else {
        fprintf(stderr, "error: oneDNN: matrix product: %s\n", onednn_error(s));
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    onednn_pop_threads(old);
    if (!ok) dtrt_matmul_free(m);
    return ok;
}

uint64_t dtrt_matmul_workspace(const DtrtMatmul *m) {
    return ((const Matmul *)m->impl)->workspace;
}

void dtrt_matmul_free(DtrtMatmul *m) {
    if (m->impl) onednn_op_free(&((Matmul *)m->impl)->op);
    free(m->impl);
    m->impl = NULL;
}

void dtrt_matmul(const DtrtMatmul *m, const float *a, const float *b, const float *bias, float *y,
                 void *ws) {
    assert(m->impl && (!m->bias || bias));
    void *addr[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)b, y, ws, (void *)(uintptr_t)bias};
    onednn_run(&((const Matmul *)m->impl)->op, addr);
}
