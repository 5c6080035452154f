// calls: dtrt_gather dtrt_gather_grad
/* gather.cu - Gather along an axis, and its gradient without atomics.
 *
 * data [outer, n, inner], indices [count], y [outer, count, inner]. Forward: a thread moves an item
 * of up to 16 bytes.
 *
 * Gradient: row r of dx is the sum of the rows of dy whose index is r, in order. Indices are sorted as
 * numbers of a row and a place, all different, by a bitonic network (Batcher, AFIPS 1968), so the
 * work is count log^2 count whatever the indices are, and has one result. Then a warp takes a place
 * of the sorted indices and 32 (or 128) columns, and adds up if its row begins there; the block adds
 * up long rows together. */

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

enum { GATHER_CHUNK = 2048, GATHER_LONG = 32 };
#define GATHER_NONE (~0ULL) /* the key of no row */

/* The last steps of a sort in runs of `run` keys, from distance `far` on, of a chunk of `size` keys
 * that begins at `base`. */
static __device__ __forceinline__ void gather_sort_steps(unsigned long long *s, int64_t base,
                                                         int size, int64_t run, int far) {
    for (; far > 0; far >>= 1) {
        for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {
            const int i = 2 * t - (t & (far - 1)), j = i + far;
            const bool rising = ((base + i) & run) == 0;
            const unsigned long long a = s[i], b = s[j];
            if ((a > b) == rising) {
                s[i] = b;
                s[j] = a;
            }
        }
        __syncthreads();
    }
}

/* A thread fills and empties the same places of s: between chunks nothing waits. */
extern "C" __global__ void gather_sort_chunks(const __grid_constant__ CuGather q, const void *idx,
                                              unsigned long long *key, int64_t keys) {
    __shared__ unsigned long long s[GATHER_CHUNK];
    const int size = keys < GATHER_CHUNK ? (int)keys : GATHER_CHUNK;
    for (int64_t base = (int64_t)blockIdx.x * size; base < keys; base += (int64_t)gridDim.x * size) {
        for (int t = threadIdx.x; t < size; t += blockDim.x) {
            const int64_t i = base + t, r = i < q.count ? index_of(idx, q.idx_i32, i, q.n) : -1;
            if (i < q.count && r < 0) report_range(q.node, index_at(idx, q.idx_i32, i), -q.n, i);
            s[t] = r < 0 ? GATHER_NONE : (unsigned long long)r << q.bits | (unsigned long long)i;
        }
        __syncthreads();
        for (int run = 2; run <= size; run <<= 1) gather_sort_steps(s, base, size, run, run / 2);
        for (int t = threadIdx.x; t < size; t += blockDim.x) key[base + t] = s[t];
    }
}
extern "C" __global__ void gather_sort_far(unsigned long long *key, int64_t keys, int64_t run,
                                           int64_t far) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < keys / 2; t += step) {
        const int64_t i = 2 * t - (t & (far - 1)), j = i + far;
        const unsigned long long a = key[i], b = key[j];
        if ((a > b) == ((i & run) == 0)) {
            key[i] = b;
            key[j] = a;
        }
    }
}
extern "C" __global__ void gather_sort_near(unsigned long long *key, int64_t keys, int64_t run) {
    __shared__ unsigned long long s[GATHER_CHUNK];
    for (int64_t base = (int64_t)blockIdx.x * GATHER_CHUNK; base < keys;
         base += (int64_t)gridDim.x * GATHER_CHUNK) {
        for (int t = threadIdx.x; t < GATHER_CHUNK; t += blockDim.x) s[t] = key[base + t];
        __syncthreads();
        gather_sort_steps(s, base, GATHER_CHUNK, run, GATHER_CHUNK / 2);
        for (int t = threadIdx.x; t < GATHER_CHUNK; t += blockDim.x) key[base + t] = s[t];
    }
}

/* How many of the sorted indices from p on name the row of that one; the warp asks together. */
static __device__ __forceinline__ int64_t gather_length(const CuGather &q,
                                                        const unsigned long long *key, int64_t p) {
    const unsigned long long r = key[p] >> q.bits;
    const int64_t i = p + (threadIdx.x & 31);
    const unsigned same =
        __ballot_sync(0xffffffffu, i < q.count && key[i < q.count ? i : p] >> q.bits == r);
    if (same != 0xffffffffu) return __ffs(~same) - 1;
    int64_t lo = p + 32, hi = q.count;
    while (lo < hi) {
        const int64_t mid = (lo + hi) >> 1;
        if (key[mid] >> q.bits == r)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo - p;
}

/* Adds columns c, c + 32, .. (V of them) of the rows of dy that the sorted indices [lo, hi) name. */
template <int V>
static __device__ __forceinline__ void gather_add(const CuGather &q, const unsigned long long *key,
                                                  const float *dy, int64_t lo, int64_t hi,
                                                  int64_t c, double (&sum)[V]) {
    const unsigned long long mask = (1ULL << q.bits) - 1;
#pragma unroll 4
    for (int64_t i = lo; i < hi; i++) {
        const float *from = dy + (int64_t)(key[i] & mask) * q.inner + c;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (c + 32 * v < q.inner) sum[v] += (double)from[32 * v];
    }
}

/* Blocks: 8 places of the sorted indices, an outer slice, and a tile of 32 V columns. */
template <int V>
static __device__ __forceinline__ void gather_grad_rows(const CuGather &q,
                                                        const unsigned long long *key,
                                                        const float *dy, float *dx) {
    __shared__ double part[STRIPES][32];
    __shared__ int64_t length[STRIPES];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int64_t tiles = (q.inner + 32 * V - 1) / (32 * V), groups = (q.count + 7) / 8;
    for (int64_t b = blockIdx.x; b < groups * tiles * q.outer; b += gridDim.x) {
        const int64_t group = b / (tiles * q.outer), o = b % (tiles * q.outer) / tiles;
        const int64_t p = group * 8 + warp, c = b % tiles * 32 * V + lane;
        const float *slice = dy + o * q.count * q.inner;
        float *to = dx + o * q.n * q.inner + c;
        const unsigned long long mine = p < q.count ? key[p] : GATHER_NONE;
        const bool begins =
            mine != GATHER_NONE && (p == 0 || key[p - 1] >> q.bits != mine >> q.bits);
        const int64_t n = begins ? gather_length(q, key, p) : 0;
        if (lane == 0) length[warp] = n;
        if (n && n <= GATHER_LONG) {
            double sum[V] = {};
            gather_add<V>(q, key, slice, p, p + n, c, sum);
#pragma unroll
            for (int v = 0; v < V; v++)
                if (c + 32 * v < q.inner)
                    to[(int64_t)(mine >> q.bits) * q.inner + 32 * v] = (float)sum[v];
        }
        __syncthreads();
        for (int w = 0; w < STRIPES; w++) {
            const int64_t many = length[w], from = group * 8 + w;
            if (many <= GATHER_LONG) continue;
            double sum[V] = {};
            gather_add<V>(q, key, slice, from + many * warp / STRIPES,
                          from + many * (warp + 1) / STRIPES, c, sum);
            const int64_t r = (int64_t)(key[from] >> q.bits);
#pragma unroll
            for (int v = 0; v < V; v++) {
                const double all = stripes_sum(sum[v], part);
                if (warp == 0 && c + 32 * v < q.inner) to[r * q.inner + 32 * v] = (float)all;
            }
        }
        __syncthreads();
    }
}
extern "C" __global__ void __launch_bounds__(256)
    gather_grad_wide(const __grid_constant__ CuGather q, const unsigned long long *key,
                     const float *dy, float *dx) {
    gather_grad_rows<4>(q, key, dy, dx);
}
extern "C" __global__ void __launch_bounds__(256)
    gather_grad_narrow(const __grid_constant__ CuGather q, const unsigned long long *key,
                       const float *dy, float *dx) {
    gather_grad_rows<1>(q, key, dy, dx);
}

/* Few indices: a thread for each element of dx looks at all of them. */
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
