/* libraries.h - cuDNN and cuBLAS of this process: opened when the first object needs them, with one
 * handle each that works on the step's stream. */
#ifndef DTRT_CUDA_LIBRARIES_H
#define DTRT_CUDA_LIBRARIES_H

#include "cu.h"
#include "cuda_plan.h"

/* ---- cudnn.c ---- */
const Dnn *cu_dnn(void); /* NULL after a message */
void cu_dnn_close(void);
/* Enqueues a plan of dnn_plan. Ends the run with a message when that fails. */
void cu_dnn_execute(void *plan, const void *x, const void *w, const void *y, void *workspace);

/* ---- blas.c ---- */
bool cu_blas(void); /* false after a message */
void cu_blas_close(void);
/* count products y = alpha * op(a) op(b), or (sum) added to y, row-major; the next one's operands
 * lie `step` elements further. Nothing is empty. */
typedef struct {
    int64_t m, n, k, count, step_a, step_b, step_y;
    bool trans_a, trans_b, sum;
    float alpha;
} CuProducts;
void cu_blas_products(const CuProducts *p, const float *a, const float *b, float *y,
                      void *workspace, uint64_t bytes);

/* ---- conv.c ---- */
void cu_conv_close(void); /* frees what no dtrt_conv_free has */

/* ---- matmul.c ---- */
/* m without its bias, with so many bytes of workspace. */
void cu_matmul(const DtrtMatmul *m, const float *a, const float *b, float *y, void *workspace,
               uint64_t bytes);
/* y[i] += bias[i / inner % channels], then ReLU; either may be missing (bias NULL). In place. */
void cu_add_bias(float *y, const float *bias, int64_t count, int64_t channels, int64_t inner,
                 bool relu);

#endif
