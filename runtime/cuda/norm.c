/* norm.c - LayerNorm and RmsNorm (a warp or block a row), their input gradients, and the running
 * statistics of batch norm. */
#include "walk.h"

void dtrt_layernorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t rows, int64_t n, float eps) {
    CU_ROWS(layernorm, rows, n, &x, &scale, &bias, &y, &mean, &invstd, &rows, &n, &eps);
}

void dtrt_layernorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t rows, int64_t n) {
    CU_ROWS(layernorm_grad, rows, n, &dy, &x, &scale, &mean, &invstd, &dx, &rows, &n);
}

void dtrt_rmsnorm(const float *x, const float *scale, float *y, float *inv, int64_t rows, int64_t n,
                  float eps) {
    CU_ROWS(rmsnorm, rows, n, &x, &scale, &y, &inv, &rows, &n, &eps);
}

void dtrt_rmsnorm_grad_x(const float *dy, const float *x, const float *scale, const float *inv,
                         float *dx, int64_t rows, int64_t n) {
    CU_ROWS(rmsnorm_grad, rows, n, &dy, &x, &scale, &inv, &dx, &rows, &n);
}

void dtrt_bn_update(float *rmean, float *rvar, const float *mean, const float *var, int64_t n,
                    float momentum) {
    CU_LAUNCH(bn_update, cu_blocks(n, 256), 256, &rmean, &rvar, &mean, &var, &n, &momentum);
}
