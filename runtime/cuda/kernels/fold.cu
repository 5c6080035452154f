// calls: dtrt_fold dtrt_prod_grad
/* fold.cu - maxima, minima, products and log-sum-exp over any axes, and the gradient of products.
 * Rules as in runtime/cpu/fold.c: NaN wins over every number; log-sum-exp takes the maximum out
 * first. A block folds an output (innermost axis reduced), or 32 of them in 8 stripes; threads'
 * values join in a fixed order. */

enum { FOLD_MAX, FOLD_MIN, FOLD_PROD, FOLD_LSE }; /* DtrtFold */

static __device__ __forceinline__ double fold_start(int kind) {
    return kind == FOLD_PROD ? 1.0 : kind == FOLD_MIN ? (double)INFINITY : -(double)INFINITY;
}
static __device__ __forceinline__ double fold_join(int kind, double acc, double v) {
    if (kind == FOLD_PROD) return acc * v;
    if (kind == FOLD_MIN) return v < acc || v != v ? v : acc;
    return v > acc || v != v ? v : acc;
}

/* The threads that share an output: all of the block, or those of a column. */
struct FoldTeam {
    bool runs;
    int64_t output, step, at, size; /* outputs of this thread; its first element, how far apart */
    __device__ __forceinline__ FoldTeam(const CuReduce &q) {
        runs = q.runs != 0;
        output = runs ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * 32 + (threadIdx.x & 31);
        step = runs ? (int64_t)gridDim.x : (int64_t)gridDim.x * 32;
        at = runs ? threadIdx.x : threadIdx.x >> 5;
        size = runs ? blockDim.x : STRIPES;
    }
    /* The first of the block's outputs, for loops that all threads leave together. */
    __device__ __forceinline__ int64_t first() const {
        return runs ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * 32;
    }
    /* part: 256 doubles. Everybody has the result. */
    template <typename F>
    __device__ __forceinline__ double join(double v, double *part, F f) const {
        part[threadIdx.x] = v;
        __syncthreads();
        for (int d = 128; d >= (runs ? 1 : 32); d >>= 1) {
            if (threadIdx.x < d) part[threadIdx.x] = f(part[threadIdx.x], part[threadIdx.x + d]);
            __syncthreads();
        }
        v = part[runs ? 0 : threadIdx.x & 31];
        __syncthreads();
        return v;
    }
    __device__ __forceinline__ bool leads() const {
        return runs ? threadIdx.x == 0 : threadIdx.x < 32;
    }
};

extern "C" __global__ void __launch_bounds__(256)
    fold(const __grid_constant__ CuReduce q, const float *x, float *y) {
    __shared__ double part[256];
    const FoldTeam t(q);
    int64_t o = t.output;
    for (int64_t o0 = t.first(); o0 < q.keep.total; o0 += t.step, o += t.step) {
        const bool on = o < q.keep.total;
        const float *from = x + walk_any(q.keep, on ? o : 0);
        const int64_t n = on ? q.over.total : 0;
        double acc = fold_start(q.kind);
        for (int64_t i = t.at; i < n; i += t.size)
            acc = fold_join(q.kind, acc, (double)from[walk_any(q.over, i)]);
        acc = t.join(acc, part, [&](double a, double b) { return fold_join(q.kind, a, b); });
        if (q.kind == FOLD_LSE) {
            const double shift = isinf(acc) ? 0.0 : acc;
            double sum = 0.0;
            for (int64_t i = t.at; i < n; i += t.size)
                sum += exp((double)from[walk_any(q.over, i)] - shift);
            sum = t.join(sum, part, [](double a, double b) { return a + b; });
            acc = shift + log(sum);
        }
        if (on && t.leads()) y[o] = (float)acc;
    }
}

/* dY times the product of the others: without zeros Y / x; with one zero only it has a gradient. */
extern "C" __global__ void __launch_bounds__(256)
    prod_grad(const __grid_constant__ CuReduce q, const float *dy, const float *x, float *dx) {
    __shared__ double part[256];
    const FoldTeam t(q);
    int64_t o = t.output;
    for (int64_t o0 = t.first(); o0 < q.keep.total; o0 += t.step, o += t.step) {
        const bool on = o < q.keep.total;
        const int64_t base = walk_any(q.keep, on ? o : 0), n = on ? q.over.total : 0;
        double zeros = 0.0, others = 1.0;
        for (int64_t i = t.at; i < n; i += t.size) {
            const double v = (double)x[base + walk_any(q.over, i)];
            zeros += v == 0.0 ? 1.0 : 0.0;
            others *= v == 0.0 ? 1.0 : v;
        }
        zeros = t.join(zeros, part, [](double a, double b) { return a + b; });
        others = t.join(others, part, [](double a, double b) { return a * b; });
        const double g = on ? (double)dy[o] * others : 0.0;
        for (int64_t i = t.at; i < n; i += t.size) {
            const int64_t at = base + walk_any(q.over, i);
            const double v = (double)x[at];
            dx[at] = (float)(v == 0.0 ? (zeros == 1.0 ? g : 0.0) : zeros != 0.0 ? 0.0 : g / v);
        }
    }
}
