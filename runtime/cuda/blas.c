/* blas.c - cuBLAS: library, handle, batches of products.
 *
 * The library's matrices are column-major: a row-major y = a b is its y' = b' a', so operands
 * change places and what is stored transposed stays marked as such. Every call gets the workspace
 * of its node, so that the library allocates nothing and, with one stream, gives the same bits
 * again (cuBLAS documentation, "Results reproducibility"); atomics are off unless asked for.
 * Default math is f32 throughout; TF32 only when the user allows it. */
#include "libraries.h"

#include <cublas_v2.h>
#include <string.h>

#define BLAS_FUNCTIONS(F)                                                                          \
    F(cublasCreate)                                                                                \
    F(cublasDestroy)                                                                               \
    F(cublasSetStream)                                                                             \
    F(cublasSetMathMode)                                                                           \
    F(cublasSetWorkspace)                                                                          \
    F(cublasGetStatusString)                                                                       \
    F(cublasSgemm_64)                                                                              \
    F(cublasSgemmStridedBatched_64)

static struct {
#define F(name) __typeof__(&name) name;
    BLAS_FUNCTIONS(F)
#undef F
    cublasHandle_t handle;
} blas;

#define STR2(x) #x
#define STR(x) STR2(x) /* of what the header's macros make of a name */

static bool open_library(void) {
    static const char *const file[] = {"libcublas.so.13", "libcublas.so.12", NULL};
#define F(name) STR(name),
    static const char *const name[] = {BLAS_FUNCTIONS(F)};
#undef F
    enum { COUNT = sizeof name / sizeof *name };
    void *to[COUNT];
    void *lib = cu_library("cuBLAS (libcublas.so.13)", file);
    if (!lib) {
        dtrt_hint("matrix products on the GPU need cuBLAS of CUDA 12 or 13; folders of libraries "
                  "can be named in the environment variable DTRT_CUDA_PATH");
        return false;
    }
    if (!cu_symbols(lib, "cuBLAS", name, to, COUNT)) return false;
    memcpy(&blas, to, sizeof to);
    return true;
}

bool cu_blas(void) {
    if (blas.handle) return true;
    if (!blas.cublasCreate && !open_library()) return false;
    cublasStatus_t s = blas.cublasCreate(&blas.handle);
    if (!s) s = blas.cublasSetStream(blas.handle, (cudaStream_t)cu_device.stream);
    if (!s)
        s = blas.cublasSetMathMode(blas.handle, cu_device.tf32 ? CUBLAS_TF32_TENSOR_OP_MATH
                                                               : CUBLAS_DEFAULT_MATH);
    if (s) {
        dtrt_error("cuBLAS cannot be used: %s", blas.cublasGetStatusString(s));
        blas.handle = NULL;
    }
    return s == CUBLAS_STATUS_SUCCESS;
}

void cu_blas_close(void) {
    if (blas.handle) blas.cublasDestroy(blas.handle);
    blas.handle = NULL;
}

void cu_blas_products(const CuProducts *p, const float *a, const float *b, float *y,
                      void *workspace, uint64_t bytes) {
    const float beta = p->sum ? 1.0f : 0.0f;
    const cublasOperation_t of_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t of_b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t row_a = p->trans_a ? p->m : p->k, row_b = p->trans_b ? p->k : p->n;
    cublasStatus_t s = blas.cublasSetWorkspace(blas.handle, workspace, bytes);
    if (!s && p->count == 1)
        s = blas.cublasSgemm_64(blas.handle, of_b, of_a, p->n, p->m, p->k, &p->alpha, b, row_b, a,
                                row_a, &beta, y, p->n);
    else if (!s)
        s = blas.cublasSgemmStridedBatched_64(blas.handle, of_b, of_a, p->n, p->m, p->k, &p->alpha,
                                              b, row_b, p->step_b, a, row_a, p->step_a, &beta, y,
                                              p->n, p->step_y, p->count);
    if (s)
        cu_fail("a matrix product of cuBLAS, [%lld,%lld] x [%lld,%lld]: %s", (long long)p->m,
                (long long)p->k, (long long)p->k, (long long)p->n, blas.cublasGetStatusString(s));
}
