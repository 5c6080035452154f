// calls: dtrt_pool_forward dtrt_pool_grad dtrt_pool_places
/* pool.cu - max and average pooling and their gradients: a thread for each element of the result,
 * channels (or the last axis) beside each other. Rules, order of sums and format of the positions as
 * in runtime/cpu/pool.c. */

/* Place of element i along the axes (sizes of y, or of x), its channel and its image. */
struct PoolPlace {
    int64_t image, channel;
    int at[3];
};
template <typename I>
static __device__ __forceinline__ PoolPlace pool_place(const CuPool &q, I i, bool of_x) {
    PoolPlace p;
    I rest = sizeof(I) == 4 ? (I)divide((unsigned)i, q.by_c) : i / (I)q.c;
    p.channel = (int64_t)(i - rest * (I)q.c);
    i = rest;
#pragma unroll
    for (int k = 2; k >= 0; k--) {
        const I size = of_x ? q.a[k].in : q.a[k].out;
        rest = sizeof(I) == 4 ? (I)divide((unsigned)i, of_x ? q.a[k].by_in : q.a[k].by_out)
                              : i / size;
        p.at[k] = (int)(i - rest * size);
        i = rest;
    }
    p.image = (int64_t)i;
    return p;
}

/* Cells of the window of output o that lie in [-below, in + above): from `first` up to `end`. */
static __device__ __forceinline__ void pool_window(const CuPoolAxis &a, int o, int below,
                                                   int above, int *first, int *end) {
    const int base = o * a.stride - a.lo;
    int k = 0, e = a.k;
    while (k < e && base + k * a.dil < -below) k++;
    while (e > k && base + (e - 1) * a.dil >= a.in + above) e--;
    *first = k;
    *end = e;
}
struct PoolCells {
    int first[3], end[3];
    __device__ __forceinline__ PoolCells(const CuPool &q, const int *o, bool with_pad) {
#pragma unroll
        for (int k = 0; k < 3; k++)
            pool_window(q.a[k], o[k], with_pad ? q.a[k].lo : 0, with_pad ? q.a[k].hi : 0, &first[k],
                        &end[k]);
    }
    __device__ __forceinline__ int64_t count() const {
        return (int64_t)(end[0] - first[0]) * (end[1] - first[1]) * (end[2] - first[2]);
    }
};
/* 1 / number of cells that count for output o; 0 for none */
static __device__ __forceinline__ double pool_weight(const CuPool &q, const int *o) {
    const int64_t count = PoolCells(q, o, q.include_pad).count();
    return count ? 1.0 / (double)count : 0.0;
}

/* Calls f(value, cell) for the cells inside the image, in order. */
template <typename F>
static __device__ __forceinline__ void pool_each(const CuPool &q, const float *x,
                                                 const PoolPlace &p, F f) {
    const PoolCells r(q, p.at, false);
    int base[3];
#pragma unroll
    for (int k = 0; k < 3; k++) base[k] = p.at[k] * q.a[k].stride - q.a[k].lo;
    const int64_t image = p.image * q.a[0].in;
    for (int d = r.first[0]; d < r.end[0]; d++) {
        const int64_t plane = (image + base[0] + d * q.a[0].dil) * q.a[1].in;
        for (int h = r.first[1]; h < r.end[1]; h++) {
            const int64_t row = (plane + base[1] + h * q.a[1].dil) * q.a[2].in + base[2];
            const int cell = (d * q.a[1].k + h) * q.a[2].k;
            for (int w = r.first[2]; w < r.end[2]; w++)
                f(x[(row + w * q.a[2].dil) * q.c + p.channel], cell + w);
        }
    }
}

/* The cell of the maximum, which is *best; -1 for a window of nothing. */
static __device__ __forceinline__ int pool_max(const CuPool &q, const float *x, const PoolPlace &p,
                                               float *best) {
    int arg = -1;
    *best = -INFINITY;
    pool_each(q, x, p, [&](float v, int cell) {
        if (arg >= 0 && !(v > *best || v != v)) return;
        *best = v;
        arg = cell;
    });
    return arg;
}

template <typename I>
static __device__ __forceinline__ void pool_outputs(const CuPool &q, const float *x, float *y,
                                                    void *index) {
    const I total = (I)(q.n * q.a[0].out * q.a[1].out * q.a[2].out * q.c);
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const PoolPlace p = pool_place<I>(q, i, false);
        if (q.is_max) {
            float best;
            const int arg = pool_max(q, x, p, &best);
            y[i] = best;
            if (q.wide)
                ((int *)index)[i] = arg;
            else
                ((uint8_t *)index)[i] = (uint8_t)arg;
        } else {
            double sum = 0.0;
            pool_each(q, x, p, [&](float v, int) { sum += (double)v; });
            y[i] = (float)(sum * pool_weight(q, p.at));
        }
    }
}
extern "C" __global__ void pool(const __grid_constant__ CuPool q, const float *x, float *y,
                                void *index) {
    pool_outputs<unsigned>(q, x, y, index);
}
extern "C" __global__ void pool_big(const __grid_constant__ CuPool q, const float *x, float *y,
                                    void *index) {
    pool_outputs<int64_t>(q, x, y, index);
}

/* Channels first: q.c is 1. */
template <typename I>
static __device__ __forceinline__ void pool_all_places(const CuPool &q, const float *x,
                                                       int64_t *place, int by_columns) {
    const I total = (I)(q.n * q.a[0].out * q.a[1].out * q.a[2].out);
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const PoolPlace p = pool_place<I>(q, i, false);
        float best;
        int cell = pool_max(q, x, p, &best), at[3];
        const bool none = cell < 0;
#pragma unroll
        for (int k = 2; k >= 0; k--) {
            const int rest = cell / q.a[k].k;
            at[k] = p.at[k] * q.a[k].stride - q.a[k].lo + (cell - rest * q.a[k].k) * q.a[k].dil;
            cell = rest;
        }
        int64_t to = p.image;
#pragma unroll
        for (int k = 0; k < 3; k++) to = by_columns ? to * q.a[k].in : to * q.a[k].in + at[k];
        if (by_columns) to += at[0] + q.a[0].in * (at[1] + (int64_t)q.a[1].in * at[2]);
        place[i] = none ? 0 : to;
    }
}
extern "C" __global__ void pool_places(const __grid_constant__ CuPool q, const float *x,
                                       int64_t *place, int by_columns) {
    pool_all_places<unsigned>(q, x, place, by_columns);
}
extern "C" __global__ void pool_places_big(const __grid_constant__ CuPool q, const float *x,
                                           int64_t *place, int by_columns) {
    pool_all_places<int64_t>(q, x, place, by_columns);
}

/* ---- gradients: an element of dx gathers its shares, in order of outputs ---- */

/* Outputs whose windows may hold input i: [first, end). */
static __device__ __forceinline__ void pool_covering(const CuPoolAxis &a, int i, int *first,
                                                     int *end) {
    const int reach = i + a.lo - (a.k - 1) * a.dil, last = (i + a.lo) / a.stride + 1;
    *first = reach <= 0 ? 0 : (reach + a.stride - 1) / a.stride;
    *end = last < a.out ? last : a.out;
}
/* Cell of output o's window that is input i; -1 for none. */
static __device__ __forceinline__ int pool_cell(const CuPoolAxis &a, int i, int o) {
    const int d = i + a.lo - o * a.stride, cell = a.dil == 1 ? d : d / a.dil;
    return d >= 0 && cell * a.dil == d && cell < a.k ? cell : -1;
}

/* What output o (its element is at q) gives to an input that is `cell` of its window. */
static __device__ __forceinline__ float pool_share(const CuPool &q, const float *dy,
                                                   const void *index, int64_t at, const int *o,
                                                   int cell) {
    if (!q.is_max) return dy[at] * (float)pool_weight(q, o);
    const int arg = q.wide ? ((const int *)index)[at] : (int)((const uint8_t *)index)[at];
    return arg == cell ? dy[at] : 0.0f;
}

static __device__ __forceinline__ float pool_gather(const CuPool &q, const float *dy,
                                                    const void *index, const PoolPlace &p) {
    int first[3], end[3], o[3];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 3; k++) pool_covering(q.a[k], p.at[k], &first[k], &end[k]);
    for (o[0] = first[0]; o[0] < end[0]; o[0]++) {
        const int d = pool_cell(q.a[0], p.at[0], o[0]);
        for (o[1] = first[1]; d >= 0 && o[1] < end[1]; o[1]++) {
            const int h = pool_cell(q.a[1], p.at[1], o[1]);
            const int64_t row =
                ((p.image * q.a[0].out + o[0]) * q.a[1].out + o[1]) * q.a[2].out;
            for (o[2] = first[2]; h >= 0 && o[2] < end[2]; o[2]++) {
                const int w = pool_cell(q.a[2], p.at[2], o[2]);
                if (w < 0) continue;
                const int cell = (d * q.a[1].k + h) * q.a[2].k + w;
                sum += pool_share(q, dy, index, (row + o[2]) * q.c + p.channel, o, cell);
            }
        }
    }
    return sum;
}

template <typename I>
static __device__ __forceinline__ void pool_inputs(const CuPool &q, const float *dy,
                                                   const void *index, float *dx) {
    const I total = (I)(q.n * q.a[0].in * q.a[1].in * q.a[2].in * q.c);
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step)
        dx[i] = pool_gather(q, dy, index, pool_place<I>(q, i, true));
}
extern "C" __global__ void pool_grad(const __grid_constant__ CuPool q, const float *dy,
                                     const void *index, float *dx) {
    pool_inputs<unsigned>(q, dy, index, dx);
}
extern "C" __global__ void pool_grad_big(const __grid_constant__ CuPool q, const float *dy,
                                         const void *index, float *dx) {
    pool_inputs<int64_t>(q, dy, index, dx);
}
