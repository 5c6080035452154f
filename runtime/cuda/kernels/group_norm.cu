// calls: dtrt_groupnorm dtrt_groupnorm_grad_x
/* group_norm.cu - GroupNorm and its input gradient, in both orders of channels: a block a group. */

/* Item i of a group: where it is (from the group's first element on) and its channel of the group. */
static __device__ __forceinline__ int64_t group_item(const CuGroups &q, int64_t i, int64_t *k) {
    const int64_t by = q.channels_last ? q.per : q.s;
    const int64_t row = q.small ? (int64_t)divide((unsigned)i, q.by) : i / by;
    *k = q.channels_last ? i - row * by : row;
    return q.channels_last ? row * q.c + *k : i;
}
/* First element of group r, over all images. */
static __device__ __forceinline__ int64_t group_start(const CuGroups &q, int64_t r) {
    if (!q.channels_last) return r * q.per * q.s;
    return r / q.groups * q.c * q.s + r % q.groups * q.per;
}

extern "C" __global__ void __launch_bounds__(256)
    groupnorm(const __grid_constant__ CuGroups q, const float *x, const float *scale,
              const float *bias, float *y, float *mean, float *inv, float eps) {
    __shared__ double part[32];
    const int64_t n = q.per * q.s;
    for (int64_t r = blockIdx.x; r < q.n * q.groups; r += gridDim.x) {
        const int64_t start = group_start(q, r), channel = r % q.groups * q.per;
        double sum = 0.0, squares = 0.0;
        int64_t k;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            sum += (double)x[start + group_item(q, i, &k)];
        const double mid = block_sum(sum, part) / (double)n;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const double d = (double)x[start + group_item(q, i, &k)] - mid;
            squares += d * d;
        }
        squares = block_sum(squares, part);
        const float m = (float)mid, v = (float)(1.0 / sqrt(squares / (double)n + (double)eps));
        if (threadIdx.x == 0) mean[r] = m;
        if (threadIdx.x == 0) inv[r] = v;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t at = start + group_item(q, i, &k);
            y[at] = (x[at] - m) * (v * scale[channel + k]) + bias[channel + k];
        }
    }
}

/* dx = inv * (dy*scale - a - xhat*b), a = mean of dy*scale, b = mean of dy*scale*xhat */
extern "C" __global__ void __launch_bounds__(256)
    groupnorm_grad(const __grid_constant__ CuGroups q, const float *dy, const float *x,
                   const float *scale, const float *mean, const float *inv, float *dx) {
    __shared__ double part[32];
    const int64_t n = q.per * q.s;
    for (int64_t r = blockIdx.x; r < q.n * q.groups; r += gridDim.x) {
        const int64_t start = group_start(q, r), channel = r % q.groups * q.per;
        const float m = mean[r], v = inv[r];
        double sum = 0.0, dot = 0.0;
        int64_t k;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t at = start + group_item(q, i, &k);
            const double w = (double)scale[channel + k];
            sum += (double)dy[at] * w;
            dot += (double)(dy[at] * ((x[at] - m) * v)) * w;
        }
        const float a = (float)(block_sum(sum, part) / (double)n);
        const float b = (float)(block_sum(dot, part) / (double)n);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t at = start + group_item(q, i, &k);
            dx[at] = v * (dy[at] * scale[channel + k] - a - (x[at] - m) * v * b);
        }
    }
}
