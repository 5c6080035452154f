// calls: dtrt_gather_elements dtrt_scatter_elements dtrt_gather_nd dtrt_scatter_nd dtrt_topk
/* index.cu - GatherElements, ScatterElements, GatherND, ScatterND and TopK.
 *
 * Where several indices name one place, their writes happen in the order of the indices. Either one
 * thread takes a line of indices from its first to its last, or the first index of a place owns it:
 * it looks for the others behind it and does their writes as well. */

/* ---- elements ---- */

/* Place in the data of index number i; -1, after a report, when it is out of range. */
static __device__ __forceinline__ int64_t element_place(const CuElements &q, const void *idx,
                                                        int64_t i) {
    const int64_t k = index_of(idx, q.idx_i32, i, q.n);
    if (k >= 0) return walk_any(q.items, i) + k * q.stride;
    report_range(q.node, index_at(idx, q.idx_i32, i), -q.n, i);
    return -1;
}

template <typename T>
static __device__ __forceinline__ void gather_elements(const CuElements &q, const void *idx,
                                                       const T *data, T *y) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.items.total; i += step) {
        const int64_t from = element_place(q, idx, i);
        if (from >= 0) y[i] = data[from];
    }
}
extern "C" __global__ void gather_elements1(const __grid_constant__ CuElements q, const void *idx,
                                            const uint8_t *data, uint8_t *y) {
    gather_elements<uint8_t>(q, idx, data, y);
}
extern "C" __global__ void gather_elements4(const __grid_constant__ CuElements q, const void *idx,
                                            const uint32_t *data, uint32_t *y) {
    gather_elements<uint32_t>(q, idx, data, y);
}
extern "C" __global__ void gather_elements8(const __grid_constant__ CuElements q, const void *idx,
                                            const uint64_t *data, uint64_t *y) {
    gather_elements<uint64_t>(q, idx, data, y);
}

enum { SCATTER_SET, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN }; /* DtrtScatter */

/* What is written for old value a and update b. */
template <typename T> static __device__ __forceinline__ T scatter_join(int, T, T b) {
    return b;
}
template <> __device__ __forceinline__ float scatter_join<float>(int how, float a, float b) {
    switch (how) {
    case SCATTER_ADD: return a + b;
    case SCATTER_MUL: return a * b;
    case SCATTER_MAX: return b > a || b != b ? b : a;
    case SCATTER_MIN: return b < a || b != b ? b : a;
    default: return b;
    }
}

/* A thread takes a line along the axis. */
template <typename T>
static __device__ __forceinline__ void scatter_lines(const CuElements &q, const void *idx,
                                                     const T *updates, T *y) {
    const int64_t lines = q.along ? q.items.total / q.along : 0;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t l = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; l < lines; l += step) {
        int64_t i = l / q.inner * q.along * q.inner + l % q.inner;
        for (int64_t k = 0; k < q.along; k++, i += q.inner) {
            const int64_t to = element_place(q, idx, i);
            if (to >= 0) y[to] = scatter_join<T>(q.how, y[to], updates[i]);
        }
    }
}
/* A thread takes an index, and those of its line that name the same place. */
template <typename T>
static __device__ __forceinline__ void scatter_owned(const CuElements &q, const void *idx,
                                                     const T *updates, T *y) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.items.total; i += step) {
        const int64_t to = element_place(q, idx, i), row = i / q.inner;
        if (to < 0) continue;
        const int64_t here = index_of(idx, q.idx_i32, i, q.n);
        const int64_t begin = row / q.along * q.along * q.inner + (i - row * q.inner);
        const int64_t end = begin + q.along * q.inner;
        int64_t j = begin;
        while (j < i && index_of(idx, q.idx_i32, j, q.n) != here) j += q.inner;
        if (j < i) continue;
        T value = scatter_join<T>(q.how, y[to], updates[i]);
        for (j = i + q.inner; j < end; j += q.inner)
            if (index_of(idx, q.idx_i32, j, q.n) == here)
                value = scatter_join<T>(q.how, value, updates[j]);
        y[to] = value;
    }
}
#define SCATTER(name, T)                                                                           \
    extern "C" __global__ void scatter_lines##name(const __grid_constant__ CuElements q,           \
                                                   const void *idx, const T *updates, T *y) {      \
        scatter_lines<T>(q, idx, updates, y);                                                      \
    }                                                                                              \
    extern "C" __global__ void scatter_owned##name(const __grid_constant__ CuElements q,           \
                                                   const void *idx, const T *updates, T *y) {      \
        scatter_owned<T>(q, idx, updates, y);                                                      \
    }
SCATTER(1, uint8_t)
SCATTER(4, float)
SCATTER(8, uint64_t)
#undef SCATTER

/* ---- tuples ---- */

/* Slice (of its batch) that tuple t names; -1 when an index is out of range. */
static __device__ __forceinline__ int64_t tuple_slice(const CuTuples &q, const void *idx,
                                                      int64_t t) {
    int64_t at = 0;
    for (int k = 0; k < q.k; k++) {
        const int64_t v = index_of(idx, q.idx_i32, t * q.k + k, q.dim[k]);
        if (v < 0) return -1;
        at = at * q.dim[k] + v;
    }
    return at;
}
static __device__ __forceinline__ void tuple_report(const CuTuples &q, const void *idx, int64_t t) {
    for (int k = 0; k < q.k; k++) {
        const int64_t i = t * q.k + k;
        if (index_of(idx, q.idx_i32, i, q.dim[k]) < 0)
            report_range(q.node, index_at(idx, q.idx_i32, i), -q.dim[k], i);
    }
}

template <typename T>
static __device__ __forceinline__ void gather_tuples(const CuTuples &q, const void *idx,
                                                     const T *data, T *y) {
    const int64_t total = q.batch * q.count * q.inner, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const int64_t t = i / q.inner, from = tuple_slice(q, idx, t);
        if (from >= 0)
            y[i] = data[(t / q.count * q.slices + from) * q.inner + (i - t * q.inner)];
        else
            tuple_report(q, idx, t);
    }
}
extern "C" __global__ void gather_nd1(const __grid_constant__ CuTuples q, const void *idx,
                                      const uint8_t *data, uint8_t *y) {
    gather_tuples<uint8_t>(q, idx, data, y);
}
extern "C" __global__ void gather_nd4(const __grid_constant__ CuTuples q, const void *idx,
                                      const uint32_t *data, uint32_t *y) {
    gather_tuples<uint32_t>(q, idx, data, y);
}
extern "C" __global__ void gather_nd8(const __grid_constant__ CuTuples q, const void *idx,
                                      const uint64_t *data, uint64_t *y) {
    gather_tuples<uint64_t>(q, idx, data, y);
}

/* Bit l: tuple at + l names the slice. */
static __device__ __forceinline__ unsigned same_slices(const CuTuples &q, const void *idx,
                                                       int64_t at, int64_t end, int64_t slice) {
    const int64_t t = at + (threadIdx.x & 31);
    return __ballot_sync(0xffffffffu, t < end && tuple_slice(q, idx, t) == slice);
}

/* A warp takes a tuple and 32 columns of its slice, if no tuple before it names that slice. */
template <typename T>
static __device__ __forceinline__ void scatter_tuples(const CuTuples &q, const void *idx,
                                                      const T *updates, T *y) {
    const Team<true> team;
    const int64_t tiles = (q.inner + 31) / 32;
    for (int64_t item = team.row; item < q.batch * q.count * tiles; item += team.step) {
        const int64_t t = item / tiles, c = item % tiles * 32 + team.lane, batch = t / q.count;
        const int64_t begin = batch * q.count, end = begin + q.count;
        const int64_t slice = tuple_slice(q, idx, t);
        unsigned same = 0;
        if (slice < 0) {
            if (team.lane == 0) tuple_report(q, idx, t);
            continue;
        }
        for (int64_t at = begin; at < t && !same; at += 32)
            same = same_slices(q, idx, at, t, slice);
        if (same) continue;
        T *to = y + (batch * q.slices + slice) * q.inner + c;
        T value = c < q.inner ? *to : (T)0;
        for (int64_t at = t; at < end; at += 32) {
            same = same_slices(q, idx, at, end, slice);
            for (; same; same &= same - 1) {
                const int64_t from = (at + __ffs(same) - 1) * q.inner + c;
                if (c < q.inner) value = scatter_join<T>(q.how, value, updates[from]);
            }
        }
        if (c < q.inner) *to = value;
    }
}
extern "C" __global__ void scatter_nd1(const __grid_constant__ CuTuples q, const void *idx,
                                       const uint8_t *updates, uint8_t *y) {
    scatter_tuples<uint8_t>(q, idx, updates, y);
}
extern "C" __global__ void scatter_nd4(const __grid_constant__ CuTuples q, const void *idx,
                                       const float *updates, float *y) {
    scatter_tuples<float>(q, idx, updates, y);
}
extern "C" __global__ void scatter_nd8(const __grid_constant__ CuTuples q, const void *idx,
                                       const uint64_t *updates, uint64_t *y) {
    scatter_tuples<uint64_t>(q, idx, updates, y);
}

/* ---- TopK ---- */

/* Does (a, i) come before (b, j)? Of equal values the first one does; NaN counts as the largest. */
static __device__ __forceinline__ bool topk_before(float a, int64_t i, float b, int64_t j,
                                                   int largest) {
    const bool a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return largest ? a_nan : b_nan;
    if (!a_nan && a != b) return largest ? a > b : a < b;
    return i < j;
}

/* A thread counts what comes before its element: that is its place in the result. */
extern "C" __global__ void topk(const float *x, float *v, int64_t *at, int64_t outer, int64_t n,
                                int64_t inner, int64_t k, int largest) {
    const int64_t total = outer * n * inner, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < total; e += step) {
        const int64_t row = e / inner, o = row / n, i = row - o * n, c = e - row * inner;
        const float *line = x + o * n * inner + c;
        const float mine = x[e];
        int64_t rank = 0;
        for (int64_t j = 0; j < n && rank < k; j++)
            rank += topk_before(line[j * inner], j, mine, i, largest);
        if (rank >= k) continue;
        v[(o * k + rank) * inner + c] = mine;
        at[(o * k + rank) * inner + c] = i;
    }
}
