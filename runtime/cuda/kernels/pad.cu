// calls: dtrt_pad dtrt_pad_grad
/* pad.cu - Pad (constant, reflect, edge; negative pads crop), and the gradient of the last two: an
 * element of dx gathers the outputs that came from it, in their order. */

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE };

/* Input coordinate of output coordinate o; -1: the constant. */
static __device__ __forceinline__ int64_t pad_source(const CuPad &q, int k, int64_t o) {
    const int64_t n = q.in[k];
    int64_t p = o - q.lo[k];
    if (p >= 0 && p < n) return p;
    if (q.mode == PAD_CONSTANT) return -1;
    if (q.mode == PAD_EDGE || n == 1) return p < 0 ? 0 : n - 1;
    p %= 2 * (n - 1);
    if (p < 0) p += 2 * (n - 1);
    return p < n ? p : 2 * (n - 1) - p;
}

template <typename T>
static __device__ __forceinline__ void pad_items(const CuPad &q, const T *x, T *y, T value) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.total_out; i += step) {
        int64_t rest = i, from = 0;
        bool inside = true;
#pragma unroll
        for (int k = 7; k >= 0; k--) {
            if (k < q.first) break;
            int64_t up = 0;
            if (k > q.first)
                up = q.small ? (int64_t)divide((unsigned)rest, q.by_out[k]) : rest / q.out[k];
            const int64_t s = pad_source(q, k, rest - up * q.out[k]);
            inside = inside && s >= 0;
            from += s * q.stride[k];
            rest = up;
        }
        y[i] = inside ? x[from] : value;
    }
}
extern "C" __global__ void pad1(const __grid_constant__ CuPad q, const uint8_t *x, uint8_t *y,
                                uint8_t value) {
    pad_items<uint8_t>(q, x, y, value);
}
extern "C" __global__ void pad4(const __grid_constant__ CuPad q, const uint32_t *x, uint32_t *y,
                                uint32_t value) {
    pad_items<uint32_t>(q, x, y, value);
}
extern "C" __global__ void pad8(const __grid_constant__ CuPad q, const uint2 *x, uint2 *y,
                                uint2 value) {
    pad_items<uint2>(q, x, y, value);
}
extern "C" __global__ void pad16(const __grid_constant__ CuPad q, const uint4 *x, uint4 *y,
                                 uint4 value) {
    pad_items<uint4>(q, x, y, value);
}

/* The first output after o that comes from input i of axis k; q.out[k]: none. */
static __device__ __forceinline__ int64_t pad_next(const CuPad &q, int k, int64_t i, int64_t o) {
    const int64_t n = q.in[k], lo = q.lo[k], out = q.out[k], next = o + 1;
    if (q.mode == PAD_EDGE || n == 1) {
        const int64_t first = i == 0 ? 0 : lo + i, last = i == n - 1 ? out - 1 : lo + i;
        const int64_t at = next > first ? next : first;
        return at <= last && at < out ? at : out;
    }
    const int64_t period = 2 * (n - 1);
    int64_t r = (next - lo) % period;
    if (r < 0) r += period;
    int64_t up = (i - r) % period, down = (-i - r) % period;
    if (up < 0) up += period;
    if (down < 0) down += period;
    const int64_t at = next + (up < down ? up : down);
    return at < out ? at : out;
}

/* at: the place in dx. Outputs are counted through like the digits of a number, last axis fastest. */
static __device__ float pad_gather(const CuPad &q, const float *dy, const int64_t *at) {
    int64_t o[8];
    float sum = 0.0f;
    int k = q.first;
    for (int a = q.first; a < 8; a++) {
        o[a] = pad_next(q, a, at[a], -1);
        if (o[a] == q.out[a]) return sum;
    }
    while (k >= q.first) {
        int64_t from = 0;
        for (int a = q.first; a < 8; a++) from = from * q.out[a] + o[a];
        sum += dy[from];
        for (k = 7; k >= q.first; k--) {
            o[k] = pad_next(q, k, at[k], o[k]);
            if (o[k] < q.out[k]) break;
            o[k] = pad_next(q, k, at[k], -1);
        }
    }
    return sum;
}

extern "C" __global__ void pad_grad(const __grid_constant__ CuPad q, const float *dy, float *dx) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.total_in; i += step) {
        int64_t at[8], rest = i;
        for (int k = 7; k >= q.first; k--) {
            at[k] = rest % q.in[k];
            rest /= q.in[k];
        }
        dx[i] = pad_gather(q, dy, at);
    }
}
