// One block a row: softmax by a tree in shared memory; cross entropy with its gradient by shuffles.
extern "C" {

__global__ __launch_bounds__(256) void softmax(const float *x, float *y, int columns)
{
    __shared__ float tree[256];
    const float *row = x + (long long)blockIdx.x * columns;
    float *out = y + (long long)blockIdx.x * columns;
    int t = threadIdx.x;
    float most = -3.402823466e38f, sum = 0.0f;
    for (int c = t; c < columns; c += blockDim.x) most = fmaxf(most, row[c]);
    tree[t] = most;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) tree[t] = fmaxf(tree[t], tree[t + half]);
        __syncthreads();
    }
    most = tree[0];
    __syncthreads();
    for (int c = t; c < columns; c += blockDim.x) sum += expf(row[c] - most);
    tree[t] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) tree[t] += tree[t + half];
        __syncthreads();
    }
    sum = tree[0];
    for (int c = t; c < columns; c += blockDim.x) out[c] = expf(row[c] - most) / sum;
}

// loss[row] = log(sum exp) - x[target]; dx = (softmax - onehot) * scale
__global__ __launch_bounds__(128) void cross_entropy(const float *x, const long long *target, float *loss, float *dx,
                                                     int classes, float scale)
{
    __shared__ float part[4];
    const float *row = x + (long long)blockIdx.x * classes;
    float *out = dx + (long long)blockIdx.x * classes;
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    float most = -3.402823466e38f, sum = 0.0f;
    for (int c = t; c < classes; c += 128) most = fmaxf(most, row[c]);
    for (int k = 16; k > 0; k /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, k));
    if (lane == 0) part[warp] = most;
    __syncthreads();
    most = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    __syncthreads();
    for (int c = t; c < classes; c += 128) sum += expf(row[c] - most);
    for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, k);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = part[0] + part[1] + part[2] + part[3];
    int hit = (int)target[blockIdx.x];
    for (int c = t; c < classes; c += 128) out[c] = (expf(row[c] - most) / sum - (c == hit ? 1.0f : 0.0f)) * scale;
    if (t == 0) loss[blockIdx.x] = logf(sum) + most - row[hit];
}
}
