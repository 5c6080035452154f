// Sums: of a vector in a fixed order (blocks, then one block), of rows by warp, a product of matrices in tiles.
extern "C" {

extern __shared__ double sums[];

// partial[block] = sum of its part, in double; as many dynamic shared doubles as threads
__global__ void sum_parts(const float *x, double *partial, long long n)
{
    double sum = 0.0;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x)
        sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

// A warp a row: largest value, where it is (the first), and how many are positive.
__global__ void row_facts(const float *x, float *largest, int *where, int *positive, int rows, int columns)
{
    int lane = threadIdx.x & 31, r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    float best = -3.402823466e38f;
    int at = 0x7fffffff, count = 0;
    for (int c0 = 0; r < rows && c0 < columns; c0 += 32) {
        int c = c0 + lane;
        float v = c < columns ? x[(long long)r * columns + c] : -3.402823466e38f;
        count += __popc(__ballot_sync(0xffffffffu, c < columns && v > 0.0f));
        if (v > best) {
            best = v;
            at = c;
        }
    }
    for (int k = 16; k > 0; k /= 2) {
        float other = __shfl_down_sync(0xffffffffu, best, k);
        int there = __shfl_down_sync(0xffffffffu, at, k);
        if (other > best || (other == best && there < at)) {
            best = other;
            at = there;
        }
    }
    if (lane == 0 && r < rows) {
        largest[r] = best;
        where[r] = at;
        positive[r] = count;
    }
}

// c = a b, 16 x 16 tiles
__global__ void product(const float *a, const float *b, float *c, int m, int n, int k)
{
    __shared__ float left[16][16];
    __shared__ float right[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[(long long)row * k + ka] : 0.0f;
        right[threadIdx.y][threadIdx.x] = column < n && kb < k ? b[(long long)kb * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[(long long)row * n + column] = sum;
}
}
