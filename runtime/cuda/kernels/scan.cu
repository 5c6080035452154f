// calls: dtrt_cumsum dtrt_arg
/* scan.cu - along the middle axis of [outer, n, inner]: running sums, and positions of extremes. A
 * warp a line where inner is 1, else a thread a line. */

extern "C" __global__ void cumsum_lines(const float *x, float *y, int64_t outer, int64_t n,
                                        int64_t inner, int exclusive, int reverse) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t l = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; l < outer * inner; l += step) {
        const int64_t start = l / inner * n * inner + l % inner;
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = start + (reverse ? n - 1 - i : i) * inner;
            const double before = sum;
            sum += (double)x[at];
            y[at] = (float)(exclusive ? before : sum);
        }
    }
}

/* 32 elements at a time: sums of the lanes below (W. D. Hillis and G. L. Steele, "Data parallel
 * algorithms", CACM 29(12), 1986), and the sum of all before. */
extern "C" __global__ void cumsum_rows(const float *x, float *y, int64_t rows, int64_t n,
                                       int exclusive, int reverse) {
    const Team<true> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        double before = 0.0;
        for (int64_t i0 = 0; i0 < n; i0 += 32) {
            const int64_t i = i0 + t.lane, at = r * n + (reverse ? n - 1 - i : i);
            const double v = i < n ? (double)x[at] : 0.0;
            double sum = v;
            for (int d = 1; d < 32; d <<= 1) {
                const double low = __shfl_up_sync(0xffffffffu, sum, d);
                if (t.lane >= d) sum += low;
            }
            double below = __shfl_up_sync(0xffffffffu, sum, 1);
            if (t.lane == 0) below = 0.0;
            if (i < n) y[at] = (float)(before + (exclusive ? below : sum));
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
    }
}

/* Is (v, i) to be preferred to (top, at)? at < 0: there is nothing yet. */
static __device__ __forceinline__ bool arg_better(float v, int64_t i, float top, int64_t at,
                                                  int min, int last) {
    if (at < 0 || i < 0) return at < 0;
    const bool v_nan = v != v, top_nan = top != top;
    if (v_nan != top_nan) return v_nan;
    if (v_nan || v == top) return last ? i > at : i < at;
    return min ? v < top : v > top;
}

extern "C" __global__ void arg_lines(const float *x, int64_t *y, int64_t outer, int64_t n,
                                     int64_t inner, int min, int last) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t l = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; l < outer * inner; l += step) {
        const float *from = x + l / inner * n * inner + l % inner;
        float top = 0.0f;
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            const float v = from[i * inner];
            if (!arg_better(v, i, top, best, min, last)) continue;
            top = v;
            best = i;
        }
        y[l] = best < 0 ? 0 : best;
    }
}

extern "C" __global__ void arg_rows(const float *x, int64_t *y, int64_t rows, int64_t n, int min,
                                    int last) {
    const Team<true> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        float top = 0.0f;
        int64_t best = -1;
        for (int64_t i = t.lane; i < n; i += 32) {
            const float v = x[r * n + i];
            if (!arg_better(v, i, top, best, min, last)) continue;
            top = v;
            best = i;
        }
        for (int d = 16; d > 0; d >>= 1) {
            const float v = __shfl_xor_sync(0xffffffffu, top, d);
            const int64_t i = __shfl_xor_sync(0xffffffffu, best, d);
            if (!arg_better(v, i, top, best, min, last)) continue;
            top = v;
            best = i;
        }
        if (t.lane == 0) y[r] = best < 0 ? 0 : best;
    }
}
