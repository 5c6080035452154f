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

/* A number from the data that must be in [0, limit) is not: the first one that is found is told by
 * the host, and the run ends with status 1. */
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
