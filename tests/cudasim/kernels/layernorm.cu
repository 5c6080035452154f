// Layer normalization: forward, gradient of x (a block a row, shuffles), gradient of the weights in two fixed phases.
extern "C" {

__device__ __forceinline__ float block_sum(float v, float *part)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    float sum = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) sum += part[w];
    __syncthreads();
    return sum;
}

__global__ __launch_bounds__(256) void layernorm(const float *x, const float *gamma, const float *beta, float *y,
                                                 float *mean, float *rstd, int columns, float eps)
{
    __shared__ float part[8];
    const float *row = x + (long long)blockIdx.x * columns;
    float *out = y + (long long)blockIdx.x * columns;
    float sum = 0.0f, square = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += row[c];
    float mu = block_sum(sum, part) / (float)columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) square += (row[c] - mu) * (row[c] - mu);
    float inverse = rsqrtf(block_sum(square, part) / (float)columns + eps);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) out[c] = (row[c] - mu) * inverse * gamma[c] + beta[c];
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = mu;
        rstd[blockIdx.x] = inverse;
    }
}

__global__ __launch_bounds__(256) void layernorm_dx(const float *dy, const float *x, const float *gamma,
                                                    const float *mean, const float *rstd, float *dx, int columns)
{
    __shared__ float first[8];
    __shared__ float second[8];
    long long at = (long long)blockIdx.x * columns;
    float mu = mean[blockIdx.x], inverse = rstd[blockIdx.x], s1 = 0.0f, s2 = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float d = dy[at + c] * gamma[c];
        s1 += d;
        s2 += d * (x[at + c] - mu) * inverse;
    }
    for (int k = 16; k > 0; k /= 2) {
        s1 += __shfl_xor_sync(0xffffffffu, s1, k);
        s2 += __shfl_xor_sync(0xffffffffu, s2, k);
    }
    if ((threadIdx.x & 31) == 0) {
        first[threadIdx.x >> 5] = s1;
        second[threadIdx.x >> 5] = s2;
    }
    __syncthreads();
    s1 = s2 = 0.0f;
    for (int w = 0; w < blockDim.x / 32; w++) {
        s1 += first[w];
        s2 += second[w];
    }
    s1 /= (float)columns;
    s2 /= (float)columns;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        dx[at + c] = inverse * (dy[at + c] * gamma[c] - s1 - (x[at + c] - mu) * inverse * s2);
}

// 32 columns and 8 lines of threads a block: every line sums its rows, then line 0 sums the lines in order
__global__ __launch_bounds__(256) void layernorm_dgamma(const float *dy, const float *x, const float *mean,
                                                        const float *rstd, float *dgamma, int rows, int columns)
{
    __shared__ float lines[8][32];
    int c = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int r = threadIdx.y; r < rows && c < columns; r += 8) {
        long long at = (long long)r * columns + c;
        sum += dy[at] * (x[at] - mean[r]) * rstd[r];
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < columns) {
        sum = 0.0f;
        for (int k = 0; k < 8; k++) sum += lines[k][threadIdx.x];
        dgamma[c] = sum;
    }
}
}
