// Moving data: transposition through a tile, embedding rows and their gradient (in order, and with atomics), histogram.
extern "C" {

// 32 x 32 tiles, 32 x 8 threads; the column more keeps banks apart
__global__ void transpose(const float *x, float *y, int rows, int columns)
{
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < rows && c < columns) tile[threadIdx.y + k][threadIdx.x] = x[(long long)(r + k) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (r + k < columns && c < rows) y[(long long)(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void embed(const float *table, const int *token, float *y, int width)
{
    long long from = (long long)token[blockIdx.x] * width, to = (long long)blockIdx.x * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) y[to + c] = table[from + c];
}

// A block a token: the first occurrence of a word owns its row and adds all in the order of the tokens.
__global__ void embed_gradient(const float *dy, const int *token, float *dtable, int tokens, int width)
{
    __shared__ int owner;
    int t = blockIdx.x, word = token[t];
    if (threadIdx.x == 0) owner = 1;
    __syncthreads();
    for (int k = threadIdx.x; k < t; k += blockDim.x)
        if (token[k] == word) atomicAnd(&owner, 0);
    __syncthreads();
    if (!owner) return;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        float sum = 0.0f;
        for (int k = t; k < tokens; k++)
            if (token[k] == word) sum += dy[(long long)k * width + c];
        dtable[(long long)word * width + c] += sum;
    }
}

__global__ void embed_scatter(const float *dy, const int *token, float *dtable, int width)
{
    long long to = (long long)token[blockIdx.x] * width, from = (long long)blockIdx.x * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) atomicAdd(&dtable[to + c], dy[from + c]);
}

__global__ void histogram(const unsigned *x, unsigned *bins, int n)
{
    __shared__ unsigned mine[64];
    if (threadIdx.x < 64) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[x[i] & 63], 1u);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
}
