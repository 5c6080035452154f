// calls: dtrt_layernorm dtrt_layernorm_grad_x dtrt_rmsnorm dtrt_rmsnorm_grad_x dtrt_bn_update
/* norm.cu - LayerNorm and RmsNorm over rows, their input gradients, and the running statistics of
 * batch norm. Formulas as in runtime/cpu/norm.c and group_norm.c. */

/* bias, mean, invstd may be NULL */
template <bool WARP>
static __device__ __forceinline__ void layernorm_row(const float *x, const float *scale,
                                                     const float *bias, float *y, float *mean,
                                                     float *invstd, int64_t rows, int64_t n,
                                                     float eps) {
    __shared__ double part[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart row(t, x + r * n, n);
        float *to = y + r * n;
        double sum = 0.0, squares = 0.0;
        row.each([&](int64_t, float v) { sum += (double)v; });
        const double mid = t.sum(sum, part) / (double)n;
        row.each([&](int64_t, float v) {
            const double d = (double)v - mid;
            squares += d * d;
        });
        squares = t.sum(squares, part);
        const float m = (float)mid, s = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
        if (t.lane == 0 && mean) mean[r] = m;
        if (t.lane == 0 && invstd) invstd[r] = s;
        if (bias)
            row.each([&](int64_t i, float v) { to[i] = (v - m) * s * scale[i] + bias[i]; });
        else
            row.each([&](int64_t i, float v) { to[i] = (v - m) * s * scale[i]; });
    }
}
extern "C" __global__ void layernorm_warp(const float *x, const float *scale, const float *bias,
                                          float *y, float *mean, float *invstd, int64_t rows,
                                          int64_t n, float eps) {
    layernorm_row<true>(x, scale, bias, y, mean, invstd, rows, n, eps);
}
extern "C" __global__ void __launch_bounds__(1024)
    layernorm_block(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t rows, int64_t n, float eps) {
    layernorm_row<false>(x, scale, bias, y, mean, invstd, rows, n, eps);
}

template <bool WARP>
static __device__ __forceinline__ void layernorm_grad_row(const float *dy, const float *x,
                                                          const float *scale, const float *mean,
                                                          const float *invstd, float *dx,
                                                          int64_t rows, int64_t n) {
    __shared__ double part[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart row(t, x + r * n, n);
        const float *g = dy + r * n, m = mean[r], s = invstd[r];
        float *to = dx + r * n;
        double sum = 0.0, dot = 0.0;
        row.each([&](int64_t i, float v) {
            const float w = g[i] * scale[i];
            sum += (double)w;
            dot += (double)(w * ((v - m) * s));
        });
        const float a = (float)(t.sum(sum, part) / (double)n);
        const float b = (float)(t.sum(dot, part) / (double)n);
        row.each([&](int64_t i, float v) { to[i] = s * (g[i] * scale[i] - a - (v - m) * s * b); });
    }
}
extern "C" __global__ void layernorm_grad_warp(const float *dy, const float *x, const float *scale,
                                               const float *mean, const float *invstd, float *dx,
                                               int64_t rows, int64_t n) {
    layernorm_grad_row<true>(dy, x, scale, mean, invstd, dx, rows, n);
}
extern "C" __global__ void __launch_bounds__(1024)
    layernorm_grad_block(const float *dy, const float *x, const float *scale, const float *mean,
                         const float *invstd, float *dx, int64_t rows, int64_t n) {
    layernorm_grad_row<false>(dy, x, scale, mean, invstd, dx, rows, n);
}

/* inv may be NULL */
template <bool WARP>
static __device__ __forceinline__ void rmsnorm_row(const float *x, const float *scale, float *y,
                                                   float *inv, int64_t rows, int64_t n, float eps) {
    __shared__ double part[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart row(t, x + r * n, n);
        float *to = y + r * n;
        double squares = 0.0;
        row.each([&](int64_t, float v) { squares += (double)v * (double)v; });
        squares = t.sum(squares, part);
        const float s = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
        if (t.lane == 0 && inv) inv[r] = s;
        row.each([&](int64_t i, float v) { to[i] = v * s * scale[i]; });
    }
}
extern "C" __global__ void rmsnorm_warp(const float *x, const float *scale, float *y, float *inv,
                                        int64_t rows, int64_t n, float eps) {
    rmsnorm_row<true>(x, scale, y, inv, rows, n, eps);
}
extern "C" __global__ void __launch_bounds__(1024)
    rmsnorm_block(const float *x, const float *scale, float *y, float *inv, int64_t rows, int64_t n,
                  float eps) {
    rmsnorm_row<false>(x, scale, y, inv, rows, n, eps);
}

template <bool WARP>
static __device__ __forceinline__ void rmsnorm_grad_row(const float *dy, const float *x,
                                                        const float *scale, const float *inv,
                                                        float *dx, int64_t rows, int64_t n) {
    __shared__ double part[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart row(t, x + r * n, n);
        const float *g = dy + r * n, s = inv[r];
        float *to = dx + r * n;
        double dot = 0.0;
        row.each([&](int64_t i, float v) { dot += (double)(g[i] * scale[i] * (v * s)); });
        const float b = (float)(t.sum(dot, part) / (double)n);
        row.each([&](int64_t i, float v) { to[i] = s * (g[i] * scale[i] - v * s * b); });
    }
}
extern "C" __global__ void rmsnorm_grad_warp(const float *dy, const float *x, const float *scale,
                                             const float *inv, float *dx, int64_t rows,
                                             int64_t n) {
    rmsnorm_grad_row<true>(dy, x, scale, inv, dx, rows, n);
}
extern "C" __global__ void __launch_bounds__(1024)
    rmsnorm_grad_block(const float *dy, const float *x, const float *scale, const float *inv,
                       float *dx, int64_t rows, int64_t n) {
    rmsnorm_grad_row<false>(dy, x, scale, inv, dx, rows, n);
}

extern "C" __global__ void bn_update(float *rmean, float *rvar, const float *mean,
                                     const float *var, int64_t n, float momentum) {
    const float rest = (float)(1.0 - (double)momentum);
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    if (step_is_spoiled()) return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        rmean[i] = momentum * rmean[i] + rest * mean[i];
        rvar[i] = momentum * rvar[i] + rest * var[i];
    }
}
