/* blas.c - stand-in libcublas: products in binary32, queued in the stream of the handle.
 *
 * Checked: leading dimensions, the extent of every operand, that the result overlaps no factor, and
 * that the handle has a workspace of the program: cuBLAS would take memory of its own otherwise.
 * cublasSetStream forgets the workspace, as documented there, so the order of the two calls
 * matters. The workspace is written to with each product, and belongs to its stream meanwhile.
 */
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"
#include "sim.h"

enum { OWN_BYTES = 8 << 20, WORKSPACE_ALIGN = 256, MAX_RANGES = 3 * 256 + 1 };

struct cublasContext {
    CUstream stream;
    void *workspace;
    uint64_t workspace_bytes;
    cublasMath_t math;
};

typedef struct {
    bool ta, tb, tf32;
    int64_t m, n, k, lda, ldb, ldc, sa, sb, sc, batch;
    float alpha, beta;
    const float *a, *b;
    float *c;
    void *workspace;
    uint64_t workspace_bytes;
} Product; /* in cuBLAS's column-major terms */

static void run_product(void *payload, SimOp *op) {
    (void)op;
    const Product *p = payload;
    scribble(p->workspace, p->workspace_bytes);
    for (int64_t i = 0; i < p->batch; i++) /* column-major C is row-major C' = op(B)' op(A)' */
        gemm(p->tb, p->ta, p->n, p->m, p->k, p->alpha, p->b + i * p->sb, p->ldb, p->a + i * p->sa,
             p->lda, p->beta, p->c + i * p->sc, p->ldc, p->tf32);
}

/* Bytes from the first to the last element of a column-major matrix. */
static uint64_t extent(int64_t rows, int64_t cols, int64_t ld) {
    return rows && cols ? (uint64_t)((cols - 1) * ld + rows) * sizeof(float) : 0;
}

/* The bytes of all matrices of an operand: one range, or one each when there are gaps. */
static uint32_t add_ranges(SimRange *ranges, uint32_t n, SimRange one, int64_t stride,
                           int64_t batch) {
    uint64_t step = (uint64_t)stride * sizeof(float);
    if (step <= one.bytes || batch > 256) {
        one.bytes += step * (uint64_t)(batch - 1);
        ranges[n++] = one;
        return n;
    }
    for (int64_t i = 0; i < batch; i++, one.at += step) ranges[n++] = one;
    return n;
}

static bool overlap(const SimRange *x, const SimRange *y) {
    return x->at < y->at + y->bytes && y->at < x->at + x->bytes;
}

static uint32_t fill_ranges(const Product *p, SimRange *ranges) {
    SimRange a = {(uint64_t)(uintptr_t)p->a,
                  extent(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda), false, "A"};
    SimRange b = {(uint64_t)(uintptr_t)p->b,
                  extent(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb), false, "B"};
    SimRange c = {(uint64_t)(uintptr_t)p->c, extent(p->m, p->n, p->ldc), true, "C"};
    uint32_t n = add_ranges(ranges, 0, c, p->sc, p->batch), nc = n;
    if (p->k && p->alpha != 0) {
        n = add_ranges(ranges, n, a, p->sa, p->batch);
        n = add_ranges(ranges, n, b, p->sb, p->batch);
    }
    for (uint32_t i = 0; i < nc; i++)
        for (uint32_t k = nc; k < n; k++)
            if (overlap(&ranges[i], &ranges[k]))
                sim_finding("cublas: C overlaps %s at %s", ranges[k].what, sim_place(ranges[k].at));
    ranges[n++] =
        (SimRange){(uint64_t)(uintptr_t)p->workspace, p->workspace_bytes, true, "workspace"};
    return n;
}

static const char *wrong(const Product *p) {
    if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0) return "a negative size";
    if (p->lda < (p->ta ? p->k : p->m) || p->lda < 1) return "lda is less than the rows of A";
    if (p->ldb < (p->tb ? p->n : p->k) || p->ldb < 1) return "ldb is less than the rows of B";
    if (p->ldc < p->m || p->ldc < 1) return "ldc is less than the rows of C";
    if (p->sa < 0 || p->sb < 0 || p->sc < 0) return "a negative stride";
    if (p->batch > 1 && p->sc < p->m) return "the results of a batch overlap";
    return NULL;
}

static cublasStatus_t status_of(CUresult r) {
    return r == CUDA_SUCCESS               ? CUBLAS_STATUS_SUCCESS
           : r == CUDA_ERROR_INVALID_VALUE ? CUBLAS_STATUS_INVALID_VALUE
                                           : CUBLAS_STATUS_EXECUTION_FAILED;
}

static cublasStatus_t product(cublasHandle_t h, const char *name, Product p) {
    static SimRange ranges[MAX_RANGES];
    if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
    const char *why = wrong(&p);
    if (why) {
        sim_finding("%s: %s (m %lld n %lld k %lld, %lld %lld %lld)", name, why, (long long)p.m,
                    (long long)p.n, (long long)p.k, (long long)p.lda, (long long)p.ldb,
                    (long long)p.ldc);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!p.m || !p.n || !p.batch) return CUBLAS_STATUS_SUCCESS;
    if (!h->workspace_bytes)
        sim_finding("%s: the handle has no workspace (cublasSetStream forgets it)", name);
    p.workspace = h->workspace;
    p.workspace_bytes = h->workspace_bytes;
    p.tf32 |= h->math == CUBLAS_TF32_TENSOR_OP_MATH;
    SimWork work = {name, run_product, &p, sizeof p, ranges, fill_ranges(&p, ranges), false};
    return status_of(sim_enqueue(h->stream, &work));
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    SIM_ENTER(CUBLAS_STATUS_NOT_INITIALIZED);
    if (!sim_legal_in_capture(__func__)) return CUBLAS_STATUS_INTERNAL_ERROR;
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return CUBLAS_STATUS_ALLOC_FAILED;
    sim_overhead(OWN_BYTES);
    sim_object("cuBLAS handles", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    SIM_ENTER_SURE;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    sim_drain();
    free(handle);
    sim_overhead(-OWN_BYTES);
    sim_object("cuBLAS handles", -1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    SIM_ENTER(CUBLAS_STATUS_NOT_INITIALIZED);
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = (CUstream)stream;
    handle->workspace = NULL;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    SIM_ENTER(CUBLAS_STATUS_INVALID_VALUE);
    uint64_t at = (uint64_t)(uintptr_t)workspace;
    const SimAlloc *a = bytes ? sim_alloc_at(at, bytes) : NULL;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (bytes && (!a || a->freed || a->host || at % WORKSPACE_ALIGN)) {
        sim_finding("cublasSetWorkspace: %zu bytes at %s are no device memory aligned to %d", bytes,
                    sim_place(at), WORKSPACE_ALIGN);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    SIM_ENTER(CUBLAS_STATUS_INVALID_VALUE);
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (mode != CUBLAS_DEFAULT_MATH && mode != CUBLAS_PEDANTIC_MATH &&
        mode != CUBLAS_TF32_TENSOR_OP_MATH)
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    SIM_ENTER_SURE;
    (void)handle;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    SIM_ENTER_SURE;
    *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
             : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                     : CUBLAS_VER_PATCH;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status) {
    switch ((int)status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid numerical value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "an internal operation failed";
    default: return "unknown status";
    }
}

cublasStatus_t cublasSgemmStridedBatched_64(cublasHandle_t handle, cublasOperation_t ta,
                                            cublasOperation_t tb, int64_t m, int64_t n, int64_t k,
                                            const float *alpha, const float *a, int64_t lda,
                                            long long sa, const float *b, int64_t ldb, long long sb,
                                            const float *beta, float *c, int64_t ldc, long long sc,
                                            int64_t batch) {
    SIM_ENTER(CUBLAS_STATUS_EXECUTION_FAILED);
    return product(handle, "cublasSgemmStridedBatched",
                   (Product){.ta = ta != CUBLAS_OP_N,
                             .tb = tb != CUBLAS_OP_N,
                             .m = m,
                             .n = n,
                             .k = k,
                             .lda = lda,
                             .ldb = ldb,
                             .ldc = ldc,
                             .sa = sa,
                             .sb = sb,
                             .sc = sc,
                             .batch = batch,
                             .alpha = *alpha,
                             .beta = *beta,
                             .a = a,
                             .b = b,
                             .c = c});
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda, long long sa,
                                         const float *b, int ldb, long long sb, const float *beta,
                                         float *c, int ldc, long long sc, int batch) {
    return cublasSgemmStridedBatched_64(handle, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb,
                                        beta, c, ldc, sc, batch);
}

cublasStatus_t cublasSgemm_v2_64(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                 int64_t m, int64_t n, int64_t k, const float *alpha,
                                 const float *a, int64_t lda, const float *b, int64_t ldb,
                                 const float *beta, float *c, int64_t ldc) {
    SIM_ENTER(CUBLAS_STATUS_EXECUTION_FAILED);
    return product(handle, "cublasSgemm",
                   (Product){.ta = ta != CUBLAS_OP_N,
                             .tb = tb != CUBLAS_OP_N,
                             .m = m,
                             .n = n,
                             .k = k,
                             .lda = lda,
                             .ldb = ldb,
                             .ldc = ldc,
                             .batch = 1,
                             .alpha = *alpha,
                             .beta = *beta,
                             .a = a,
                             .b = b,
                             .c = c});
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int m, int n, int k, const float *alpha, const float *a, int lda,
                              const float *b, int ldb, const float *beta, float *c, int ldc) {
    return cublasSgemm_v2_64(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
