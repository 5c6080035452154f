// calls: dtrt_softmax dtrt_softmax_grad
/* softmax.cu - Softmax, LogSoftmax and their gradients over the middle axis of [outer, n, inner]:
 * rows when inner is 1, else columns. Formulas as in runtime/cpu/softmax.c. In place is fine: a
 * thread writes an element after its last read of it. */

template <bool WARP>
static __device__ __forceinline__ void softmax_row(const float *x, float *y, int64_t rows,
                                                   int64_t n, int log_form) {
    __shared__ double part[32];
    __shared__ float tops[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart row(t, x + r * n, n);
        float *to = y + r * n, top = -INFINITY;
        row.each([&](int64_t, float v) { top = v > top ? v : top; });
        top = t.max(top, tops);
        double sum = 0.0;
        row.each([&](int64_t, float v) { sum += (double)dtrt_expf(v - top); });
        sum = t.sum(sum, part);
        if (log_form) {
            const float shift = (float)log(sum);
            row.each([&](int64_t i, float v) { to[i] = (v - top) - shift; });
        } else {
            const float scale = (float)(1.0 / sum);
            row.each([&](int64_t i, float v) { to[i] = dtrt_expf(v - top) * scale; });
        }
    }
}
extern "C" __global__ void softmax_warp(const float *x, float *y, int64_t rows, int64_t n,
                                        int log_form) {
    softmax_row<true>(x, y, rows, n, log_form);
}
extern "C" __global__ void __launch_bounds__(1024)
    softmax_block(const float *x, float *y, int64_t rows, int64_t n, int log_form) {
    softmax_row<false>(x, y, rows, n, log_form);
}

template <bool WARP>
static __device__ __forceinline__ void softmax_grad_row(const float *dy, const float *y, float *dx,
                                                        int64_t rows, int64_t n, int log_form) {
    __shared__ double part[32];
    const Team<WARP> t;
    for (int64_t r = t.row; r < rows; r += t.step) {
        const RowPart g(t, dy + r * n, n);
        const float *out = y + r * n;
        float *to = dx + r * n;
        double sum = 0.0;
        g.each([&](int64_t i, float v) { sum += (double)(log_form ? v : v * out[i]); });
        const float s = (float)t.sum(sum, part);
        g.each([&](int64_t i, float v) {
            const float o = out[i];
            to[i] = log_form ? v - dtrt_expf(o) * s : o * (v - s);
        });
    }
}
extern "C" __global__ void softmax_grad_warp(const float *dy, const float *y, float *dx,
                                             int64_t rows, int64_t n, int log_form) {
    softmax_grad_row<true>(dy, y, dx, rows, n, log_form);
}
extern "C" __global__ void __launch_bounds__(1024)
    softmax_grad_block(const float *dy, const float *y, float *dx, int64_t rows, int64_t n,
                       int log_form) {
    softmax_grad_row<false>(dy, y, dx, rows, n, log_form);
}

/* ---- inner > 1: blocks of 32 columns, number b = outer b / blocks ---- */

extern "C" __global__ void softmax_columns(const float *x, float *y, int64_t outer, int64_t n,
                                           int64_t inner, int log_form) {
    __shared__ double sums[STRIPES][32];
    __shared__ float tops[STRIPES][32];
    const int64_t blocks = (inner + 31) / 32, step = STRIPES * inner;
    for (int64_t b = blockIdx.x; b < outer * blocks; b += gridDim.x) {
        const int64_t j = b % blocks * 32 + (threadIdx.x & 31);
        const int64_t from = b / blocks * n * inner + j;
        const int64_t begin = from + (threadIdx.x >> 5) * inner;
        const int64_t end = j < inner ? from + n * inner : begin;
        float top = -INFINITY;
        for (int64_t i = begin; i < end; i += step) top = x[i] > top ? x[i] : top;
        top = stripes_max(top, tops);
        double sum = 0.0;
        for (int64_t i = begin; i < end; i += step) sum += (double)dtrt_expf(x[i] - top);
        sum = stripes_sum(sum, sums);
        const float shift = (float)(log_form ? log(sum) : 1.0 / sum);
        for (int64_t i = begin; i < end; i += step) {
            const float d = x[i] - top;
            y[i] = log_form ? d - shift : dtrt_expf(d) * shift;
        }
    }
}

extern "C" __global__ void softmax_grad_columns(const float *dy, const float *y, float *dx,
                                                int64_t outer, int64_t n, int64_t inner,
                                                int log_form) {
    __shared__ double sums[STRIPES][32];
    const int64_t blocks = (inner + 31) / 32, step = STRIPES * inner;
    for (int64_t b = blockIdx.x; b < outer * blocks; b += gridDim.x) {
        const int64_t j = b % blocks * 32 + (threadIdx.x & 31);
        const int64_t from = b / blocks * n * inner + j;
        const int64_t begin = from + (threadIdx.x >> 5) * inner;
        const int64_t end = j < inner ? from + n * inner : begin;
        double sum = 0.0;
        for (int64_t i = begin; i < end; i += step)
            sum += (double)(log_form ? dy[i] : dy[i] * y[i]);
        const float s = (float)stripes_sum(sum, sums);
        for (int64_t i = begin; i < end; i += step)
            dx[i] = log_form ? dy[i] - dtrt_expf(y[i]) * s : y[i] * (dy[i] - s);
    }
}
