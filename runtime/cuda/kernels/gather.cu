// calls: dtrt_gather dtrt_gather_grad
/* gather.cu - Gather along an axis, and its gradient without atomics.
 *
 * data [outer, n, inner], indices [count], y [outer, count, inner]. Forward: a thread moves an item
 * of up to 16 bytes.
 *
 * Gradient: row r of dx is the sum of the rows of dy whose index is r, in order. A block owns a row
 * and 32 (or 128) columns of it; its 8 warps search a stripe of the indices each, 32 at a time, and
 * add what they find. With few rows each is owned by the block of its number; with many of them
 * (an embedding table) dx is zeroed before, and the block of an index owns its row if no earlier
 * index is the same. The work is min(n, count) * count / 32 comparisons of a warp. */

template <typename T>
static __device__ __forceinline__ void gather_items(const CuGather &q, const void *idx,
                                                    const T *data, T *y) {
    const int64_t total = q.outer * q.count * q.inner, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        int64_t row, o, k;
        if (q.small) {
            row = divide((unsigned)i, q.by_inner);
            o = divide((unsigned)row, q.by_count);
        } else {
            row = i / q.inner;
            o = row / q.count;
        }
        k = row - o * q.count;
        const int64_t from = index_of(idx, q.idx_i32, k, q.n);
        if (from < 0) {
            report_range(q.node, index_at(idx, q.idx_i32, k), -q.n, k);
            continue;
        }
        y[i] = data[(o * q.n + from) * q.inner + (i - row * q.inner)];
    }
}
extern "C" __global__ void gather1(const __grid_constant__ CuGather q, const void *idx,
                                   const uint8_t *data, uint8_t *y) {
    gather_items<uint8_t>(q, idx, data, y);
}
extern "C" __global__ void gather4(const __grid_constant__ CuGather q, const void *idx,
                                   const uint32_t *data, uint32_t *y) {
    gather_items<uint32_t>(q, idx, data, y);
}
extern "C" __global__ void gather8(const __grid_constant__ CuGather q, const void *idx,
                                   const uint2 *data, uint2 *y) {
    gather_items<uint2>(q, idx, data, y);
}
extern "C" __global__ void gather16(const __grid_constant__ CuGather q, const void *idx,
                                    const uint4 *data, uint4 *y) {
    gather_items<uint4>(q, idx, data, y);
}

/* ---- gradient ---- */

/* This warp's stripe of the indices [from, count): whole groups of 32. */
struct Stripe {
    int64_t begin, end;
    __device__ __forceinline__ Stripe(int64_t from, int64_t count) {
        const int64_t per = ((count - from + 31) / 32 + STRIPES - 1) / STRIPES * 32;
        const int y = threadIdx.x >> 5;
        begin = from + per * y < count ? from + per * y : count;
        end = begin + per < count ? begin + per : count;
    }
};

/* Bit l: index at + l is row r. */
static __device__ __forceinline__ unsigned same_rows(const CuGather &q, const void *idx, int64_t at,
                                                     int64_t end, int64_t r) {
    const int64_t i = at + (threadIdx.x & 31);
    const bool same = i < end && index_of(idx, q.idx_i32, i, q.n) == r;
    return __ballot_sync(0xffffffffu, same);
}

/* Is one of the first `count` indices row r? All threads of the block get the answer. */
static __device__ __forceinline__ bool row_before(const CuGather &q, const void *idx,
                                                  int64_t count, int64_t r, int *found) {
    const Stripe s(0, count);
    unsigned any = 0;
    for (int64_t at = s.begin; at < s.end && !any; at += 32)
        any = same_rows(q, idx, at, s.end, r);
    if ((threadIdx.x & 31) == 0) found[threadIdx.x >> 5] = any != 0;
    __syncthreads();
    int all = 0;
#pragma unroll
    for (int k = 0; k < STRIPES; k++) all |= found[k];
    __syncthreads();
    return all != 0;
}

/* Columns c, c + 32, .. (V of them) of row r of one outer slice: dy and dx are at it. */
template <int V>
static __device__ __forceinline__ void sum_rows(const CuGather &q, const void *idx, const float *dy,
                                                float *dx, int64_t first, int64_t r, int64_t c,
                                                double (*part)[32]) {
    double sum[V];
#pragma unroll
    for (int v = 0; v < V; v++) sum[v] = 0.0;
    const Stripe s(first, q.count);
    for (int64_t at = s.begin; at < s.end; at += 32) {
        unsigned rows = same_rows(q, idx, at, s.end, r);
        while (rows) {
            const float *from = dy + (at + __ffs(rows) - 1) * q.inner + c;
            rows &= rows - 1;
#pragma unroll
            for (int v = 0; v < V; v++)
                if (c + 32 * v < q.inner) sum[v] += (double)from[32 * v];
        }
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        const double all = stripes_sum(sum[v], part);
        if (threadIdx.x < 32 && c + 32 * v < q.inner) dx[r * q.inner + c + 32 * v] = (float)all;
    }
}

/* by_row: owners are rows, else indices (dx is zeros). Blocks: owners * tiles * outer, tiles of 32 V
 * columns; the owner changes slowest, so that blocks that run together read the same indices. */
template <int V>
static __device__ __forceinline__ void gather_grad_rows(const CuGather &q, const void *idx,
                                                        const float *dy, float *dx, int by_row) {
    __shared__ double part[STRIPES][32];
    __shared__ int found[STRIPES];
    const int64_t tiles = (q.inner + 32 * V - 1) / (32 * V), owners = by_row ? q.n : q.count;
    for (int64_t b = blockIdx.x; b < owners * tiles * q.outer; b += gridDim.x) {
        const int64_t owner = b / (tiles * q.outer), o = b % (tiles * q.outer) / tiles;
        const int64_t c = b % tiles * 32 * V + (threadIdx.x & 31);
        int64_t r = owner, first = 0;
        if (!by_row) {
            r = index_of(idx, q.idx_i32, owner, q.n);
            first = owner;
            if (r < 0 || row_before(q, idx, owner, r, found)) continue;
        }
        sum_rows<V>(q, idx, dy + o * q.count * q.inner, dx + o * q.n * q.inner, first, r, c, part);
    }
}
extern "C" __global__ void __launch_bounds__(256)
    gather_grad_wide(const __grid_constant__ CuGather q, const void *idx, const float *dy,
                     float *dx, int by_row) {
    gather_grad_rows<4>(q, idx, dy, dx, by_row);
}
extern "C" __global__ void __launch_bounds__(256)
    gather_grad_narrow(const __grid_constant__ CuGather q, const void *idx, const float *dy,
                       float *dx, int by_row) {
    gather_grad_rows<1>(q, idx, dy, dx, by_row);
}

/* Few columns or few indices: a thread for each element of dx looks at all indices. */
extern "C" __global__ void gather_grad_items(const __grid_constant__ CuGather q, const void *idx,
                                             const float *dy, float *dx) {
    const int64_t total = q.outer * q.n * q.inner, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const int64_t row = i / q.inner, o = row / q.n, r = row - o * q.n;
        const float *from = dy + o * q.count * q.inner + (i - row * q.inner);
        double sum = 0.0;
        for (int64_t k = 0; k < q.count; k++)
            if (index_of(idx, q.idx_i32, k, q.n) == r) sum += (double)from[k * q.inner];
        dx[i] = (float)sum;
    }
}

extern "C" __global__ void gather_check(const __grid_constant__ CuGather q, const void *idx) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.count; i += step)
        if (index_of(idx, q.idx_i32, i, q.n) < 0)
            report_range(q.node, index_at(idx, q.idx_i32, i), -q.n, i);
}
