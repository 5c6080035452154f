/* group_norm.c - GroupNorm and its input gradient, in both orders of channels, and RmsNorm. Sums in
 * double, each by one thread in a fixed order. With channels first a group is contiguous. With
 * channels last the rows of an image are passed over with one accumulator per channel, BLOCK
 * channels at a time; whole groups stay in one unit of work. */
#include "dtrt_kernels.h"
#include "kernel.h"

#define BLOCK 64

typedef struct {
    int64_t c, s, group, per; /* per: channels of a group */
    int64_t unit;             /* groups that are worked on together (channels last) */
} GroupSizes;

static GroupSizes group_sizes(int64_t c, int64_t s, int64_t group) {
    GroupSizes q = {.c = c, .s = s, .group = group, .per = c / group, .unit = 1};
    if (q.per < BLOCK) q.unit = kernel_min(group, BLOCK / q.per);
    return q;
}

/* a[k] = sum of u over space, b[k] = sum of u*v, for channels k of x that starts at the first of
 * n <= BLOCK channels; rows are c apart. With v = NULL: v = u. */
KERNEL_INLINE void column_sums(const float *u, const float *v, int64_t c, int64_t s, int64_t n,
                               double *a, double *b) {
    for (int64_t k = 0; k < n; k++) a[k] = b[k] = 0.0;
    for (int64_t i = 0; i < s; i++) {
        const float *p = u + i * c, *q = v + i * c;
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            a[k] += (double)p[k];
            b[k] += (double)p[k] * (double)q[k];
        }
    }
}

/* ---- forward ---- */

KERNEL_INLINE void put_stats(double sum, double squares, double count, double eps, float *mean,
                             float *inv) {
    double mid = sum / count, var = squares / count - mid * mid;
    *mean = (float)mid;
    *inv = (float)(1.0 / sqrt((var > 0.0 ? var : isnan(var) ? var : 0.0) + eps));
}

KERNEL groupnorm_first(const float *x, const float *scale, const float *bias, float *y, float *mean,
                       float *inv, const GroupSizes *q, double eps, int64_t lo, int64_t hi) {
    int64_t n = q->per * q->s;
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
        float m = (float)mid, v = (float)(1.0 / sqrt(squares / (double)n + eps));
        mean[r] = m;
        inv[r] = v;
        for (int64_t k = 0; k < q->per; k++) {
            int64_t channel = r % q->group * q->per + k;
            float a = v * scale[channel], b = bias[channel];
#pragma omp simd
            for (int64_t i = 0; i < q->s; i++) yr[k * q->s + i] = (xr[k * q->s + i] - m) * a + b;
        }
    }
}

/* Groups g..g+count of one image; x and y at its first element, mean and inv at its first group. */
KERNEL_INLINE void normalize_last(const float *x, const float *scale, const float *bias, float *y,
                                  float *mean, float *inv, const GroupSizes *q, double eps,
                                  int64_t g, int64_t count) {
    double a[BLOCK], b[BLOCK];
    for (int64_t j = g; j < g + count; j++) mean[j] = inv[j] = 0.0f;
    double sum[BLOCK] = {0}, squares[BLOCK] = {0};
    int64_t first = g * q->per, end = (g + count) * q->per;
    for (int64_t k = first; k < end; k += BLOCK) {
        int64_t n = kernel_min(BLOCK, end - k);
        column_sums(x + k, x + k, q->c, q->s, n, a, b);
        for (int64_t i = 0; i < n; i++) {
            sum[(k + i) / q->per - g] += a[i];
            squares[(k + i) / q->per - g] += b[i];
        }
    }
    for (int64_t j = 0; j < count; j++)
        put_stats(sum[j], squares[j], (double)(q->per * q->s), eps, &mean[g + j], &inv[g + j]);
    for (int64_t k = first; k < end; k += BLOCK) {
        int64_t n = kernel_min(BLOCK, end - k);
        float m[BLOCK], f[BLOCK];
        for (int64_t i = 0; i < n; i++) {
            m[i] = mean[(k + i) / q->per];
            f[i] = inv[(k + i) / q->per] * scale[k + i];
        }
        for (int64_t r = 0; r < q->s; r++) {
            const float *xr = x + r * q->c + k;
            float *yr = y + r * q->c + k;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) yr[i] = (xr[i] - m[i]) * f[i] + bias[k + i];
        }
    }
}

KERNEL groupnorm_last(const float *x, const float *scale, const float *bias, float *y, float *mean,
                      float *inv, const GroupSizes *q, double eps, int64_t lo, int64_t hi) {
    int64_t units = (q->group + q->unit - 1) / q->unit, image = q->c * q->s;
    for (int64_t r = lo; r < hi; r++) {
        int64_t n = r / units, g = r % units * q->unit;
        normalize_last(x + n * image, scale, bias, y + n * image, mean + n * q->group,
                       inv + n * q->group, q, eps, g, kernel_min(q->unit, q->group - g));
    }
}

void dtrt_groupnorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t n, int64_t c, int64_t s, int64_t group,
                    int channels_last, float eps) {
    GroupSizes q = group_sizes(c, s, group);
    int64_t units = (group + q.unit - 1) / q.unit;
    if (channels_last) {
        KERNEL_SPLIT(n * units, 1, n * c * s,
                     groupnorm_last(x, scale, bias, y, mean, invstd, &q, (double)eps, lo, hi));
    } else {
        KERNEL_SPLIT(n * group, 1, n * c * s,
                     groupnorm_first(x, scale, bias, y, mean, invstd, &q, (double)eps, lo, hi));
    }
}

/* ---- gradient: dx = inv * (dy*scale - a - xhat*b) with a = mean of dy*scale, b = mean of
 * dy*scale*xhat. The sums of dy and of dy*x over space give both:
 * sum(dy*xhat) = (sum(dy*x) - mean*sum(dy)) * inv ---- */

KERNEL groupnorm_grad_first(const float *dy, const float *x, const float *scale, const float *mean,
                            const float *inv, float *dx, const GroupSizes *q, int64_t lo,
                            int64_t hi) {
    int64_t n = q->per * q->s;
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n, *gr = dy + r * n, *w = scale + r % q->group * q->per;
        float *dr = dx + r * n, m = mean[r], v = inv[r];
        double sum = 0.0, dot = 0.0;
        for (int64_t k = 0; k < q->per; k++) {
            double a = 0.0, b = 0.0;
#pragma omp simd reduction(+ : a, b)
            for (int64_t i = k * q->s; i < (k + 1) * q->s; i++) {
                a += (double)gr[i];
                b += (double)(gr[i] * ((xr[i] - m) * v));
            }
            sum += a * (double)w[k];
            dot += b * (double)w[k];
        }
        float a = (float)(sum / (double)n), b = (float)(dot / (double)n);
        for (int64_t k = 0; k < q->per; k++) {
            float wk = w[k];
#pragma omp simd
            for (int64_t i = k * q->s; i < (k + 1) * q->s; i++)
                dr[i] = v * (gr[i] * wk - a - (xr[i] - m) * v * b);
        }
    }
}

KERNEL_INLINE void gradient_last(const float *dy, const float *x, const float *scale,
                                 const float *mean, const float *inv, float *dx,
                                 const GroupSizes *q, int64_t g, int64_t count) {
    double a[BLOCK], b[BLOCK], sum[BLOCK] = {0}, dot[BLOCK] = {0};
    int64_t first = g * q->per, end = (g + count) * q->per;
    for (int64_t k = first; k < end; k += BLOCK) {
        int64_t n = kernel_min(BLOCK, end - k);
        column_sums(dy + k, x + k, q->c, q->s, n, a, b);
        for (int64_t i = 0; i < n; i++) {
            int64_t j = (k + i) / q->per;
            double w = (double)scale[k + i];
            sum[j - g] += a[i] * w;
            dot[j - g] += (b[i] - (double)mean[j] * a[i]) * (double)inv[j] * w;
        }
    }
    double size = (double)(q->per * q->s);
    for (int64_t k = first; k < end; k += BLOCK) {
        int64_t n = kernel_min(BLOCK, end - k);
        float m[BLOCK], v[BLOCK], mid[BLOCK], slope[BLOCK];
        for (int64_t i = 0; i < n; i++) {
            int64_t j = (k + i) / q->per;
            m[i] = mean[j];
            v[i] = inv[j];
            mid[i] = (float)(sum[j - g] / size);
            slope[i] = (float)(dot[j - g] / size);
        }
        for (int64_t r = 0; r < q->s; r++) {
            const float *xr = x + r * q->c + k, *gr = dy + r * q->c + k;
            float *dr = dx + r * q->c + k;
#pragma omp simd
            for (int64_t i = 0; i < n; i++)
                dr[i] = v[i] * (gr[i] * scale[k + i] - mid[i] - (xr[i] - m[i]) * v[i] * slope[i]);
        }
    }
}

KERNEL groupnorm_grad_last(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *inv, float *dx, const GroupSizes *q, int64_t lo,
                           int64_t hi) {
    int64_t units = (q->group + q->unit - 1) / q->unit, image = q->c * q->s;
    for (int64_t r = lo; r < hi; r++) {
        int64_t n = r / units, g = r % units * q->unit;
        gradient_last(dy + n * image, x + n * image, scale, mean + n * q->group, inv + n * q->group,
                      dx + n * image, q, g, kernel_min(q->unit, q->group - g));
    }
}

void dtrt_groupnorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t n, int64_t c, int64_t s,
                           int64_t group, int channels_last) {
    GroupSizes q = group_sizes(c, s, group);
    int64_t units = (group + q.unit - 1) / q.unit;
    if (channels_last) {
        KERNEL_SPLIT(n * units, 1, n * c * s,
                     groupnorm_grad_last(dy, x, scale, mean, invstd, dx, &q, lo, hi));
    } else {
        KERNEL_SPLIT(n * group, 1, n * c * s,
                     groupnorm_grad_first(dy, x, scale, mean, invstd, dx, &q, lo, hi));
    }
}

/* ---- RmsNorm over rows ---- */

KERNEL rmsnorm_rows(const float *x, const float *scale, float *y, float *inv, int64_t n, double eps,
                    int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n;
        float *yr = y + r * n;
        double squares = 0.0;
#pragma omp simd reduction(+ : squares)
        for (int64_t i = 0; i < n; i++) squares += (double)xr[i] * (double)xr[i];
        float s = (float)(1.0 / sqrt(squares / (double)n + eps));
        if (inv) inv[r] = s;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) yr[i] = xr[i] * s * scale[i];
    }
}

void dtrt_rmsnorm(const float *x, const float *scale, float *y, float *inv, int64_t rows, int64_t n,
                  float eps) {
    KERNEL_SPLIT(rows, 1, rows * n, rmsnorm_rows(x, scale, y, inv, n, (double)eps, lo, hi));
}

KERNEL rmsnorm_grad_rows(const float *dy, const float *x, const float *scale, const float *inv,
                         float *dx, int64_t n, int64_t lo, int64_t hi) {
    for (int64_t r = lo; r < hi; r++) {
        const float *xr = x + r * n, *gr = dy + r * n;
        float *dr = dx + r * n, s = inv[r];
        double dot = 0.0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < n; i++) dot += (double)(gr[i] * scale[i] * (xr[i] * s));
        float b = (float)(dot / (double)n);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) dr[i] = s * (gr[i] * scale[i] - xr[i] * s * b);
    }
}

void dtrt_rmsnorm_grad_x(const float *dy, const float *x, const float *scale, const float *inv,
                         float *dx, int64_t rows, int64_t n) {
    KERNEL_SPLIT(rows, 1, rows * n, rmsnorm_grad_rows(dy, x, scale, inv, dx, n, lo, hi));
}
