// calls: dtrt_reduce_sum
/* reduce.cu - y = scale * sum of x over any axes, in double.
 *
 * Three shapes of work: a thread an output (few elements each), a warp or block an output (the
 * innermost axis is reduced), blocks of 32 outputs times 8 stripes (the innermost axis is kept).
 * With few outputs of many elements the elements are split into parts of their own blocks, whose
 * sums a second kernel adds in order. How many parts depends on the shape alone, so the bits are
 * the same on every device. */

/* part: splits x outputs */
static __device__ __forceinline__ void reduce_put(const CuReduce &q, float *y, double *part,
                                                  int64_t o, int64_t s, double sum) {
    if (q.splits == 1)
        y[o] = (float)(sum * (double)q.scale);
    else
        part[s * q.keep.total + o] = sum;
}

/* Elements begin, begin + by, .. of an output. Along a single axis, as nearly always, nothing stands
 * between the loads, so that several are on their way at a time. */
template <typename I>
static __device__ __forceinline__ double reduce_range(const CuReduce &q, const float *from,
                                                      int64_t begin, int64_t end, int by) {
    double sum = 0.0;
    if (q.over.first >= 7) {
        const int64_t stride = q.over.first == 7 ? q.over.from[7] : 0;
#pragma unroll 4
        for (int64_t i = begin; i < end; i += by) sum += (double)from[i * stride];
        return sum;
    }
    for (int64_t i = begin; i < end; i += by) sum += (double)from[walk_from<I>(q.over, (I)i)];
    return sum;
}

extern "C" __global__ void reduce_each(const __grid_constant__ CuReduce q, const float *x,
                                       float *y) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; o < q.keep.total; o += step) {
        const float *from = x + walk_any(q.keep, o);
        double sum = 0.0;
        for (int64_t i = 0; i < q.over.total; i++) sum += (double)from[walk_any(q.over, i)];
        y[o] = (float)(sum * (double)q.scale);
    }
}

/* Items: output, part. Neighbouring elements of a run go to neighbouring lanes. */
template <bool WARP, typename I>
static __device__ __forceinline__ void reduce_runs(const CuReduce &q, const float *x, float *y,
                                                   double *part) {
    __shared__ double warps[32];
    const Team<WARP> t;
    for (int64_t item = t.row; item < q.keep.total * q.splits; item += t.step) {
        const int64_t o = item / q.splits, s = item - o * q.splits;
        const float *from = x + walk_any(q.keep, o);
        const int64_t end = q.over.total * (s + 1) / q.splits;
        const int64_t begin = q.over.total * s / q.splits + t.lane;
        const double sum = t.sum(reduce_range<I>(q, from, begin, end, t.size), warps);
        if (t.lane == 0) reduce_put(q, y, part, o, s, sum);
    }
}
extern "C" __global__ void reduce_runs_warp(const __grid_constant__ CuReduce q, const float *x,
                                            float *y, double *part) {
    reduce_runs<true, unsigned>(q, x, y, part);
}
extern "C" __global__ void reduce_runs_block(const __grid_constant__ CuReduce q, const float *x,
                                             float *y, double *part) {
    if (q.over.small)
        reduce_runs<false, unsigned>(q, x, y, part);
    else
        reduce_runs<false, int64_t>(q, x, y, part);
}

/* Items: block of 32 outputs, part. */
template <typename I>
static __device__ __forceinline__ void reduce_stripes(const CuReduce &q, const float *x, float *y,
                                                      double *part) {
    __shared__ double stripe[STRIPES][32];
    const int64_t blocks = (q.keep.total + 31) / 32;
    for (int64_t item = blockIdx.x; item < blocks * q.splits; item += gridDim.x) {
        const int64_t s = item / blocks, o = (item - s * blocks) * 32 + (threadIdx.x & 31);
        const bool on = o < q.keep.total;
        const float *from = x + walk_any(q.keep, on ? o : 0);
        const int64_t end = on ? q.over.total * (s + 1) / q.splits : 0;
        const int64_t begin = q.over.total * s / q.splits + (threadIdx.x >> 5);
        const double sum = stripes_sum(reduce_range<I>(q, from, begin, end, STRIPES), stripe);
        if (threadIdx.x < 32 && on) reduce_put(q, y, part, o, s, sum);
    }
}
extern "C" __global__ void reduce_columns(const __grid_constant__ CuReduce q, const float *x,
                                          float *y, double *part) {
    if (q.over.small)
        reduce_stripes<unsigned>(q, x, y, part);
    else
        reduce_stripes<int64_t>(q, x, y, part);
}

extern "C" __global__ void reduce_parts(const __grid_constant__ CuReduce q, const double *part,
                                        float *y) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; o < q.keep.total; o += step) {
        double sum = 0.0;
        for (int s = 0; s < q.splits; s++) sum += part[s * q.keep.total + o];
        y[o] = (float)(sum * (double)q.scale);
    }
}
