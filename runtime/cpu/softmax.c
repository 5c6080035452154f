/* softmax.c - Softmax, LogSoftmax and their gradients over the middle axis of [outer, n, inner].
 *
 * Subtracts the maximum first; sums in double. With inner == 1 a row is contiguous and the loops
 * run along it; otherwise they run across a block of up to BLOCK neighbouring inner positions. In
 * place is allowed: a row (or block of columns) is read whole before it is written. */
#include "dtrt_kernels.h"
#include "dtrt_vecmath.h"
#include "kernel.h"

enum { BLOCK = 64 };

KERNEL softmax_rows(const float *x, float *y, int64_t n, int log_form, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        float top = kernel_max(xr, n);
        double sum = 0.0;
        if (log_form) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < n; i++) sum += (double)dtrt_expf(xr[i] - top);
            float shift = (float)log(sum);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) yr[i] = (xr[i] - top) - shift;
            continue;
        }
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            float e = dtrt_expf(xr[i] - top);
            yr[i] = e;
            sum += (double)e;
        }
        float scale = (float)(1.0 / sum);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) yr[i] *= scale;
    }
}

/* Blocks of columns: number b stands for outer b / blocks, inner from (b % blocks) * BLOCK. */
KERNEL softmax_columns(const float *x, float *y, int64_t n, int64_t inner, int log_form, int64_t lo,
                       int64_t hi) {
    int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    float top[BLOCK], shift[BLOCK];
    double sum[BLOCK];
    for (int64_t b = lo; b < hi; b++) {
        int64_t from = b / blocks * n * inner + b % blocks * BLOCK;
        int64_t w = kernel_min(BLOCK, inner - b % blocks * BLOCK);
        const float *xb = x + from;
        float *yb = y + from;
        for (int64_t j = 0; j < w; j++) {
            top[j] = xb[j];
            sum[j] = 0.0;
        }
        for (int64_t i = 1; i < n; i++) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++)
                top[j] = xb[i * inner + j] > top[j] ? xb[i * inner + j] : top[j];
        }
        for (int64_t i = 0; i < n; i++) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) sum[j] += (double)dtrt_expf(xb[i * inner + j] - top[j]);
        }
        for (int64_t j = 0; j < w; j++) shift[j] = (float)(log_form ? log(sum[j]) : 1.0 / sum[j]);
        for (int64_t i = 0; i < n; i++) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                float d = xb[i * inner + j] - top[j];
                yb[i * inner + j] = log_form ? d - shift[j] : dtrt_expf(d) * shift[j];
            }
        }
    }
}

/* Softmax: dx = y (dy - sum(dy y)). LogSoftmax: dx = dy - e^y sum(dy). */
KERNEL softmax_grad_rows(const float *dy, const float *y, float *dx, int64_t n, int log_form,
                         int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *g = dy + r * n, *yr = y + r * n;
        float *d = dx + r * n;
        double sum = 0.0;
        if (log_form) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < n; i++) sum += (double)g[i];
            float s = (float)sum;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) d[i] = g[i] - dtrt_expf(yr[i]) * s;
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < n; i++) sum += (double)(g[i] * yr[i]);
            float s = (float)sum;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) d[i] = yr[i] * (g[i] - s);
        }
    }
}

KERNEL softmax_grad_columns(const float *dy, const float *y, float *dx, int64_t n, int64_t inner,
                            int log_form, int64_t lo, int64_t hi) {
    int64_t blocks = (inner + BLOCK - 1) / BLOCK;
    double sum[BLOCK];
    float s[BLOCK];
    for (int64_t b = lo; b < hi; b++) {
        int64_t from = b / blocks * n * inner + b % blocks * BLOCK;
        int64_t w = kernel_min(BLOCK, inner - b % blocks * BLOCK);
        const float *g = dy + from, *yb = y + from;
        float *d = dx + from;
        for (int64_t j = 0; j < w; j++) sum[j] = 0.0;
        for (int64_t i = 0; i < n; i++) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                float t = g[i * inner + j];
                sum[j] += (double)(log_form ? t : t * yb[i * inner + j]);
            }
        }
        for (int64_t j = 0; j < w; j++) s[j] = (float)sum[j];
        for (int64_t i = 0; i < n; i++) {
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                float t = g[i * inner + j], v = yb[i * inner + j];
                d[i * inner + j] = log_form ? t - dtrt_expf(v) * s[j] : v * (t - s[j]);
            }
        }
    }
}

void dtrt_softmax(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int log_form) {
    int64_t work = outer * n * inner, blocks = outer * ((inner + BLOCK - 1) / BLOCK);
    if (inner == 1) {
        KERNEL_SPLIT(outer, 1, work, softmax_rows(x, y, n, log_form, lo, hi));
    } else {
        KERNEL_SPLIT(blocks, 1, work, softmax_columns(x, y, n, inner, log_form, lo, hi));
    }
}

void dtrt_softmax_grad(const float *dy, const float *y, float *dx, int64_t outer, int64_t n,
                       int64_t inner, int log_form) {
    int64_t work = outer * n * inner, blocks = outer * ((inner + BLOCK - 1) / BLOCK);
    if (inner == 1) {
        KERNEL_SPLIT(outer, 1, work, softmax_grad_rows(dy, y, dx, n, log_form, lo, hi));
    } else {
        KERNEL_SPLIT(blocks, 1, work, softmax_grad_columns(dy, y, dx, n, inner, log_form, lo, hi));
    }
}
