// calls: dtrt_resize
/* resize.cu - interpolation along any axes and its gradient; rules as in runtime/cpu/resize.c.
 *
 * A thread makes an element of the result. The weights are computed on the spot, in double: an axis
 * has one (nearest), two (linear), four (cubic) or, with antialiasing, some more taps. The gradient
 * of a source place gathers the outputs that have a tap on it: the coordinate is an affine function
 * of the output's number, so they are few, next to each other. */

enum {
    RESIZE_HALF_PIXEL,
    RESIZE_ASYMMETRIC,
    RESIZE_ALIGN_CORNERS,
    RESIZE_PYTORCH_HALF_PIXEL,
    RESIZE_TF_HALF_PIXEL,
    RESIZE_CROP,
    RESIZE_SYMMETRIC
};
enum { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };

static __device__ __forceinline__ double resize_source(const CuResize &q, const CuResizeAxis &a,
                                                       double x) {
    const double in = (double)a.in, out = (double)a.out, exact = a.scale * in;
    switch (q.coord) {
    case RESIZE_ASYMMETRIC: return x / a.scale;
    case RESIZE_ALIGN_CORNERS: return out > 1 ? x * (in - 1) / (exact - 1) : 0;
    case RESIZE_PYTORCH_HALF_PIXEL: return out > 1 ? (x + 0.5) / a.scale - 0.5 : 0;
    case RESIZE_TF_HALF_PIXEL: return (x + 0.5) / a.scale;
    case RESIZE_CROP:
        if (out > 1) return a.first * (in - 1) + x * (a.last - a.first) * (in - 1) / (exact - 1);
        return 0.5 * (a.first + a.last) * (in - 1);
    case RESIZE_SYMMETRIC: return in / 2 * (1 - out / exact) + (x + 0.5) / a.scale - 0.5;
    default: return (x + 0.5) / a.scale - 0.5;
    }
}

static __device__ __forceinline__ double resize_nearest(const CuResize &q, double x) {
    switch (q.rounding) {
    case 0: return ceil(x - 0.5);
    case 1: return floor(x + 0.5);
    case 2: return floor(x);
    default: return ceil(x);
    }
}

/* The taps of an output along an axis: places from, from + 1, .., which the edges limit. */
struct ResizeTaps {
    double x, from, stretch, sum;
    int count;
};

static __device__ __forceinline__ double resize_curve(const CuResize &q, double x) {
    const double a = q.cubic;
    x = fabs(x);
    if (q.mode == RESIZE_LINEAR) return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

static __device__ __forceinline__ double resize_weight(const CuResize &q, const CuResizeAxis &a,
                                                       const ResizeTaps &t, int e) {
    const double at = t.from + e;
    if (q.mode == RESIZE_NEAREST) return 1;
    if (q.exclude && (at < 0 || at > (double)(a.in - 1))) return 0;
    return resize_curve(q, (at - t.x) * t.stretch) / t.sum;
}

static __device__ __forceinline__ int64_t resize_place(const CuResizeAxis &a, const ResizeTaps &t,
                                                       int e) {
    const double at = t.from + e;
    return at < 0 ? 0 : at > (double)(a.in - 1) ? a.in - 1 : (int64_t)at;
}

static __device__ __forceinline__ ResizeTaps resize_taps(const CuResize &q, const CuResizeAxis &a,
                                                         int64_t o) {
    ResizeTaps t;
    t.x = resize_source(q, a, (double)o);
    t.stretch = q.antialias && a.scale < 1 ? a.scale : 1;
    t.sum = 1;
    t.count = 0;
    if (q.coord == RESIZE_CROP && !(t.x >= 0 && t.x <= (double)(a.in - 1))) return t;
    if (q.mode == RESIZE_NEAREST) {
        t.from = resize_nearest(q, t.x);
        t.count = 1;
        return t;
    }
    const double reach = (q.mode == RESIZE_LINEAR ? 1 : 2) / t.stretch, low = floor(t.x);
    t.from = low + floor(-reach) + 1;
    t.count = (int)(low + 1 - (floor(-reach) + 1) - t.from) + 1;
    if (!q.exclude && !q.antialias) return t;
    double sum = 0;
    for (int e = 0; e < t.count; e++) sum += resize_weight(q, a, t, e);
    if (sum != 0) t.sum = sum;
    return t;
}

/* ---- forward ---- */

static __device__ __forceinline__ float resize_output(const CuResize &q, const float *x,
                                                      int64_t i) {
    ResizeTaps t[8];
    int e[8], total = 1;
    double sum = 0;
    for (int k = 0; k < q.naxis; k++) {
        const CuResizeAxis &a = q.axis[k];
        t[k] = resize_taps(q, a, i / a.below % a.n);
        e[k] = 0;
        total *= t[k].count;
    }
    if (total == 0) return (float)q.value;
    const float *from = x + walk_any(q.rest, i);
    for (; total > 0; total--) {
        double w = 1;
        int64_t at = 0;
        bool carry = true;
        for (int k = 0; k < q.naxis; k++) {
            w *= resize_weight(q, q.axis[k], t[k], e[k]);
            at += resize_place(q.axis[k], t[k], e[k]) * q.axis[k].stride;
            e[k] += carry;
            carry = e[k] == t[k].count;
            if (carry) e[k] = 0;
        }
        if (w != 0) sum += w * (double)from[at];
    }
    return (float)sum;
}

/* ---- gradient ---- */

/* What output o takes from place p. */
static __device__ __forceinline__ double resize_share(const CuResize &q, const CuResizeAxis &a,
                                                      int64_t o, int64_t p) {
    const ResizeTaps t = resize_taps(q, a, o);
    double w = 0;
    for (int e = 0; e < t.count; e++)
        if (resize_place(a, t, e) == p) w += resize_weight(q, a, t, e);
    return w;
}

/* Outputs [lo, hi] that may take something from place p. */
static __device__ __forceinline__ void resize_range(const CuResize &q, const CuResizeAxis &a,
                                                    int64_t p, int64_t *lo, int64_t *hi) {
    const double x0 = resize_source(q, a, 0), slope = resize_source(q, a, 1) - x0;
    const double stretch = q.antialias && a.scale < 1 ? a.scale : 1, top = (double)(a.out - 1);
    const double reach = q.mode == RESIZE_NEAREST ? 1 : (q.mode == RESIZE_LINEAR ? 1 : 2) / stretch;
    double from = 0, to = top;
    if (slope != 0) {
        const double below = ((double)p - reach - 1 - x0) / slope;
        const double above = ((double)p + reach + 1 - x0) / slope;
        const bool first = p == 0, last = p == a.in - 1; /* beyond an edge the edge counts */
        if (slope > 0) {
            from = first ? 0 : floor(below) - 1;
            to = last ? top : ceil(above) + 1;
        } else {
            from = last ? 0 : floor(above) - 1;
            to = first ? top : ceil(below) + 1;
        }
    }
    *lo = from <= 0 ? 0 : from >= top ? a.out - 1 : (int64_t)from;
    *hi = to <= 0 ? 0 : to >= top ? a.out - 1 : (int64_t)to;
}

/* The first output from o on that takes something from p, and its weight; after hi: none. */
static __device__ __forceinline__ int64_t resize_next(const CuResize &q, const CuResizeAxis &a,
                                                      int64_t p, int64_t o, int64_t hi, double *w) {
    for (*w = 0; o <= hi; o++) {
        *w = resize_share(q, a, o, p);
        if (*w != 0) break;
    }
    return o;
}

/* Outputs are counted through like the digits of a number, last axis fastest. */
static __device__ __forceinline__ float resize_input(const CuResize &q, const float *dy,
                                                     int64_t i) {
    int64_t p[8], lo[8], hi[8], o[8];
    double w[8], sum = 0;
    for (int k = 0; k < q.naxis; k++) {
        const CuResizeAxis &a = q.axis[k];
        p[k] = i / a.below % a.n;
        resize_range(q, a, p[k], &lo[k], &hi[k]);
        lo[k] = o[k] = resize_next(q, a, p[k], lo[k], hi[k], &w[k]);
        if (o[k] > hi[k]) return 0.0f;
    }
    const float *from = dy + walk_any(q.rest, i);
    for (bool more = true; more;) {
        double weight = 1;
        int64_t at = 0;
        for (int k = 0; k < q.naxis; k++) {
            weight *= w[k];
            at += o[k] * q.axis[k].stride;
        }
        sum += weight * (double)from[at];
        more = false;
        for (int k = q.naxis - 1; k >= 0 && !more; k--) {
            const CuResizeAxis &a = q.axis[k];
            o[k] = resize_next(q, a, p[k], o[k] + 1, hi[k], &w[k]);
            more = o[k] <= hi[k];
            if (!more) o[k] = resize_next(q, a, p[k], lo[k], hi[k], &w[k]);
        }
    }
    return (float)sum;
}

extern "C" __global__ void __launch_bounds__(256)
    resize(const __grid_constant__ CuResize q, const float *x, float *y) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.rest.total; i += step)
        y[i] = resize_output(q, x, i);
}
extern "C" __global__ void __launch_bounds__(256)
    resize_grad(const __grid_constant__ CuResize q, const float *dy, float *dx) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < q.rest.total; i += step)
        dx[i] = resize_input(q, dy, i);
}
