/* prelude.cuh - what all kernels see. Compiled by NVRTC as one text: this, dtrt_math.h and
 * dtrt_vecmath.h, the files of kernels/ that the program's node bodies call, the program's loops.
 *
 * The subset of CUDA (checkers run on it, and it is portable from sm_75 on): 1-D or 2-D blocks of
 * at most 1024 threads, a multiple of 32; full-mask shuffles in warp-uniform flow; __syncthreads in
 * block-uniform flow; static shared memory, every word written before it is read; 64-bit offsets;
 * no atomics on floats, no inline PTX, no textures, no printf. Products and sums are not contracted
 * unless written as fmaf, so that a value has the same bits wherever it is computed. */

extern "C" {
__device__ CuStep cu_now;
__device__ CuReport cu_report;
}

/* Sum over the 32 lanes of a warp, in a fixed tree; every lane has it. */
static __device__ __forceinline__ double warp_sum(double v) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}
static __device__ __forceinline__ float warp_max(float v) {
    for (int d = 16; d > 0; d >>= 1) {
        float o = __shfl_xor_sync(0xffffffffu, v, d);
        v = o > v ? o : v;
    }
    return v;
}
/* Sum over a block of at most 1024 threads; every thread has it. part: 32 doubles of shared memory,
 * free again after the call's last barrier. */
static __device__ __forceinline__ double block_sum(double v, double *part) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warp_sum(v);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < warps ? part[lane] : 0.0;
    v = warp_sum(v);
    __syncthreads();
    return v;
}
/* Maximum, NaN aside, as block_sum. */
static __device__ __forceinline__ float block_max(float v, float *part) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    v = warp_max(v);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < warps ? part[lane] : -INFINITY;
    v = warp_max(v);
    __syncthreads();
    return v;
}

/* A number from the data that must be in [0, limit) is not (a negative limit: in [limit, -limit)):
 * the first one that is found is told by the host, and the run ends with status 1. */
static __device__ __forceinline__ void report_range(int node, long long value, long long limit,
                                                    long long position) {
    if (atomicCAS(&cu_report.bad_node, 0, node + 1) != 0) return;
    cu_report.value = value;
    cu_report.limit = limit;
    cu_report.position = position;
}
/* Updates change nothing in a step that has gone wrong. */
static __device__ __forceinline__ bool step_is_spoiled() {
    return cu_report.nonfinite || cu_report.loss_nonfinite || cu_report.bad_node;
}

/* ---- walks (params.h) ---- */

static __device__ __forceinline__ unsigned divide(unsigned n, CuDivider by) {
    return (__umulhi(n, by.mul) + n) >> by.shift;
}
/* Offsets of item i. */
static __device__ __forceinline__ void walk_at(const CuWalk &w, unsigned i, int64_t &to,
                                               int64_t &from) {
    to = from = 0;
#pragma unroll
    for (int k = 7; k >= 0; k--) {
        if (k < w.first) break;
        const unsigned rest = k > w.first ? divide(i, w.by[k]) : 0;
        const unsigned at = i - rest * (unsigned)w.size[k];
        to += at * w.to[k];
        from += at * w.from[k];
        i = rest;
    }
}
static __device__ __forceinline__ void walk_at(const CuWalk &w, int64_t i, int64_t &to,
                                               int64_t &from) {
    to = from = 0;
#pragma unroll 1
    for (int k = 7; k >= w.first; k--) {
        const int64_t rest = k > w.first ? i / w.size[k] : 0, at = i - rest * w.size[k];
        to += at * w.to[k];
        from += at * w.from[k];
        i = rest;
    }
}
/* I: unsigned for small walks, else int64_t */
template <typename I>
static __device__ __forceinline__ int64_t walk_from(const CuWalk &w, I i) {
    int64_t to, from;
    walk_at(w, i, to, from);
    return from;
}
static __device__ __forceinline__ int64_t walk_any(const CuWalk &w, int64_t i) {
    return w.small ? walk_from<unsigned>(w, (unsigned)i) : walk_from<int64_t>(w, i);
}

/* ---- rows: a warp works on a row, or (WARP false) a block ---- */

/* Which rows are this warp's or block's, and which elements this thread's: lane, lane + size, .. */
template <bool WARP> struct Team {
    int lane, size;
    int64_t row, step;
    __device__ __forceinline__ Team() {
        lane = WARP ? threadIdx.x & 31 : threadIdx.x;
        size = WARP ? 32 : blockDim.x;
        const int warps = WARP ? blockDim.x >> 5 : 1;
        row = (int64_t)blockIdx.x * warps + (WARP ? threadIdx.x >> 5 : 0);
        step = (int64_t)gridDim.x * warps;
    }
    __device__ __forceinline__ double sum(double v, double *part) const {
        return WARP ? warp_sum(v) : block_sum(v, part);
    }
    __device__ __forceinline__ float max(float v, float *part) const {
        return WARP ? warp_max(v) : block_max(v, part);
    }
};

/* A thread's elements of a row of n: the first ROW_CACHE of them are kept in registers, the others
 * are read again each time. each(f) calls f(index, value). */
enum { ROW_CACHE = 8 };
struct RowPart {
    const float *x;
    int64_t n;
    int lane, size;
    float v[ROW_CACHE];
    template <bool WARP>
    __device__ __forceinline__ RowPart(const Team<WARP> &t, const float *row, int64_t length)
        : x(row), n(length), lane(t.lane), size(t.size) {
#pragma unroll
        for (int u = 0; u < ROW_CACHE; u++) {
            int64_t i = lane + (int64_t)u * size;
            v[u] = i < n ? x[i] : 0.0f;
        }
    }
    template <typename F> __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int u = 0; u < ROW_CACHE; u++) {
            int64_t i = lane + (int64_t)u * size;
            if (i < n) f(i, v[u]);
        }
        for (int64_t i = lane + (int64_t)ROW_CACHE * size; i < n; i += size) f(i, x[i]);
    }
};

/* Columns: blocks of 256 threads are 32 neighbouring columns times 8 stripes of rows. These join
 * the stripes' values in order; every thread has the result. */
enum { STRIPES = 8 };
static __device__ __forceinline__ double stripes_sum(double v, double (*part)[32]) {
    const int x = threadIdx.x & 31, y = threadIdx.x >> 5;
    part[y][x] = v;
    __syncthreads();
    v = part[0][x];
#pragma unroll
    for (int k = 1; k < STRIPES; k++) v += part[k][x];
    __syncthreads();
    return v;
}
static __device__ __forceinline__ float stripes_max(float v, float (*part)[32]) {
    const int x = threadIdx.x & 31, y = threadIdx.x >> 5;
    part[y][x] = v;
    __syncthreads();
    v = part[0][x];
#pragma unroll
    for (int k = 1; k < STRIPES; k++) v = part[k][x] > v ? part[k][x] : v;
    __syncthreads();
    return v;
}

/* Index number i of int64 or int32 indices; negative ones count from the end of n. */
static __device__ __forceinline__ int64_t index_at(const void *idx, int idx_i32, int64_t i) {
    return idx_i32 ? (int64_t)((const int32_t *)idx)[i] : ((const int64_t *)idx)[i];
}
static __device__ __forceinline__ int64_t index_of(const void *idx, int idx_i32, int64_t i,
                                                   int64_t n) {
    int64_t k = index_at(idx, idx_i32, i);
    k += k < 0 ? n : 0;
    return k >= 0 && k < n ? k : -1; /* -1: out of range */
}
