/* norm.c - LayerNorm over rows, its input gradient, and the running statistics of batch norm.
 *
 * LayerNorm (Ba, Kiros and Hinton, "Layer normalization", 2016): y = (x - mean) * invstd * scale +
 * bias with the population variance, taken in a second pass over the row, sums in double. The
 * gradients of scale and bias are column reductions and made elsewhere. */
#include "dtrt_kernels.h"
#include "kernel.h"

KERNEL layernorm_rows(const float *x, const float *scale, const float *bias, float *y, float *mean,
                      float *invstd, int64_t n, double eps, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)xr[i];
        double mid = sum / (double)n;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < n; i++) {
            double d = (double)xr[i] - mid;
            squares += d * d;
        }
        float m = (float)mid, s = (float)(1.0 / sqrt(squares / (double)n + eps));
        if (mean) mean[r] = m;
        if (invstd) invstd[r] = s;
        if (bias) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) yr[i] = (xr[i] - m) * s * scale[i] + bias[i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) yr[i] = (xr[i] - m) * s * scale[i];
        }
    }
}

void dtrt_layernorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t rows, int64_t n, float eps) {
    KERNEL_SPLIT(rows, 1, rows * n,
                 layernorm_rows(x, scale, bias, y, mean, invstd, n, (double)eps, lo, hi));
}

/* With g = dy * scale and xhat = (x - mean) * invstd:
 * dx = invstd * (g - mean(g) - xhat * mean(g * xhat)) */
KERNEL layernorm_grad_rows(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t n, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n, *gr = dy + r * n;
        float *dr = dx + r * n;
        float m = mean[r], s = invstd[r];
        double sum = 0.0, dot = 0.0;
#pragma omp simd reduction(+ : sum, dot)
        for (int64_t i = 0; i < n; i++) {
            float g = gr[i] * scale[i];
            sum += (double)g;
            dot += (double)(g * ((xr[i] - m) * s));
        }
        float a = (float)(sum / (double)n), b = (float)(dot / (double)n);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dr[i] = s * (gr[i] * scale[i] - a - (xr[i] - m) * s * b);
        }
    }
}

void dtrt_layernorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t rows, int64_t n) {
    KERNEL_SPLIT(rows, 1, rows * n, layernorm_grad_rows(dy, x, scale, mean, invstd, dx, n, lo, hi));
}

void dtrt_bn_update(float *rmean, float *rvar, const float *mean, const float *var, int64_t n,
                    float momentum) {
    float rest = (float)(1.0 - (double)momentum);
    for (int64_t i = 0; i < n; i++) {
        rmean[i] = momentum * rmean[i] + rest * mean[i];
        rvar[i] = momentum * rvar[i] + rest * var[i];
    }
}
