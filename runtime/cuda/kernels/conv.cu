// calls: dtrt_conv_forward dtrt_conv_grad_x dtrt_conv_grad_w
/* conv.cu - convolutions as loops, for depthwise ones and for those that the library has no plan
 * for. Any group count; strides say where channels and cells lie.
 *
 * Blocks walk over rows of pixels (one image, two places), threads over runs of CONV_RUN pixels of a
 * row and their channels, channels fastest where they are in memory, so that a warp reads runs of
 * it; a weight that is read serves the whole run. Weight gradients: threads over weights, output
 * channels fastest; rows of outputs are shared by gridDim.y blocks, whose sums are added in order by
 * a second kernel. Sums of many cells are f32 over 32 of them and double beyond. */

enum { CONV_RUN = 4 };

/* Place of item i among those of a row: runs of cells times channels. */
static __device__ __forceinline__ void conv_split(unsigned i, int runs, int channels, bool last,
                                                  int &cell, int &channel) {
    const unsigned by = (unsigned)(last ? channels : runs), over = i / by, rest = i - over * by;
    cell = (int)(last ? over : rest) * CONV_RUN;
    channel = (int)(last ? rest : over);
}

static __device__ __forceinline__ int conv_runs(int cells) {
    return (cells + CONV_RUN - 1) / CONV_RUN;
}

static __device__ __forceinline__ bool conv_inside(int at, int size) {
    return (unsigned)at < (unsigned)size;
}

/* f(image, at, channel) for this thread's runs of `images` of that size; at: the first cell of the
 * run. */
template <typename F>
static __device__ __forceinline__ void conv_each_run(long long images, const int size[3],
                                                     int channels, bool last, F f) {
    const int runs = conv_runs(size[2]), plane = size[0] * size[1];
    const unsigned width = (unsigned)(runs * channels), step = gridDim.x * blockDim.x;
    for (long long row = blockIdx.y; row < images * plane; row += gridDim.y) {
        const long long n = row / plane;
        const int place = (int)(row - n * plane);
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += step) {
            int at[3] = {place / size[1], 0, 0}, channel;
            at[1] = place - at[0] * size[1];
            conv_split(i, runs, channels, last, at[2], channel);
            f(n, at, channel);
        }
    }
}

/* The sums of a run that begins at cell at[2] of the row at `to`. */
static __device__ __forceinline__ void conv_put(float *to, int stride, int at, int cells,
                                                const float sum[CONV_RUN]) {
#pragma unroll
    for (int u = 0; u < CONV_RUN; u++)
        if (at + u < cells) to[(at + u) * stride] = sum[u];
}

/* A run of outputs: x and w begin at its image and weights. at: its first window's first cell,
 * which may be outside. */
static __device__ __forceinline__ void conv_windows(const CuConv &q, const float *x, const float *w,
                                                    const int at[3], float sum[CONV_RUN]) {
    for (int k0 = 0, i0 = at[0]; k0 < q.k[0]; k0++, i0 += q.dil[0]) {
        if (!conv_inside(i0, q.in[0])) continue;
        for (int k1 = 0, i1 = at[1]; k1 < q.k[1]; k1++, i1 += q.dil[1]) {
            if (!conv_inside(i1, q.in[1])) continue;
            const float *line = x + (i0 * q.in[1] + i1) * q.in[2] * q.x_cell;
            const float *cells = w + (k0 * q.k[1] + k1) * q.k[2] * q.w_cell;
            for (int k2 = 0, i2 = at[2]; k2 < q.k[2]; k2++, i2 += q.dil[2], cells += q.w_cell)
                for (int c = 0; c < q.group_in; c++) {
                    const float by = cells[c * q.w_in];
#pragma unroll
                    for (int u = 0; u < CONV_RUN; u++) {
                        const int i = i2 + u * q.stride[2];
                        if (conv_inside(i, q.in[2]))
                            sum[u] = fmaf(line[i * q.x_cell + c * q.x_channel], by, sum[u]);
                    }
                }
        }
    }
}

extern "C" __global__ void conv_forward(const __grid_constant__ CuConv q, const float *x,
                                        const float *w, float *y) {
    conv_each_run(q.n, q.out, q.co, q.y_channel == 1, [&](long long n, const int o[3], int m) {
        const int at[3] = {o[0] * q.stride[0] - q.lo[0], o[1] * q.stride[1] - q.lo[1],
                           o[2] * q.stride[2] - q.lo[2]};
        const float *image = x + n * q.x_image + m / q.group_out * q.group_in * q.x_channel;
        const int row = (o[0] * q.out[1] + o[1]) * q.out[2] * q.y_cell;
        float sum[CONV_RUN] = {};
        conv_windows(q, image, w + m * q.w_out, at, sum);
        conv_put(y + n * q.y_image + row + m * q.y_channel, q.y_cell, o[2], q.out[2], sum);
    });
}

/* The output cell along one axis that cell k of its window lays on input cell `at`; -1: none. */
static __device__ __forceinline__ int conv_source(const CuConv &q, int axis, int at, int k) {
    const int t = at + q.lo[axis] - k * q.dil[axis], by = q.stride[axis];
    if (t < 0) return -1;
    const int o = by == 1 ? t : t / by;
    return o * by == t && o < q.out[axis] ? o : -1;
}

/* The gradients of a run of inputs: dy and w begin at its image, group and weights. */
static __device__ __forceinline__ void conv_transposed(const CuConv &q, const float *dy,
                                                       const float *w, const int at[3],
                                                       float sum[CONV_RUN]) {
    for (int k0 = 0; k0 < q.k[0]; k0++) {
        const int o0 = conv_source(q, 0, at[0], k0);
        if (o0 < 0) continue;
        for (int k1 = 0; k1 < q.k[1]; k1++) {
            const int o1 = conv_source(q, 1, at[1], k1);
            if (o1 < 0) continue;
            const float *line = dy + (o0 * q.out[1] + o1) * q.out[2] * q.y_cell;
            const float *cells = w + (k0 * q.k[1] + k1) * q.k[2] * q.w_cell;
            for (int k2 = 0; k2 < q.k[2]; k2++, cells += q.w_cell) {
                int o2[CONV_RUN];
#pragma unroll
                for (int u = 0; u < CONV_RUN; u++) o2[u] = conv_source(q, 2, at[2] + u, k2);
                for (int m = 0; m < q.group_out; m++) {
                    const float by = cells[m * q.w_out];
#pragma unroll
                    for (int u = 0; u < CONV_RUN; u++)
                        if (o2[u] >= 0)
                            sum[u] = fmaf(line[o2[u] * q.y_cell + m * q.y_channel], by, sum[u]);
                }
            }
        }
    }
}

extern "C" __global__ void conv_grad_x(const __grid_constant__ CuConv q, const float *dy,
                                       const float *w, float *dx) {
    conv_each_run(q.n, q.in, q.ci, q.x_channel == 1, [&](long long n, const int i[3], int c) {
        const int group = c / q.group_in, inner = c - group * q.group_in;
        const float *image = dy + n * q.y_image + group * q.group_out * q.y_channel;
        const float *weight = w + group * q.group_out * q.w_out + inner * q.w_in;
        const int row = (i[0] * q.in[1] + i[1]) * q.in[2] * q.x_cell;
        float sum[CONV_RUN] = {};
        conv_transposed(q, image, weight, i, sum);
        conv_put(dx + n * q.x_image + row + c * q.x_channel, q.x_cell, i[2], q.in[2], sum);
    });
}

/* Weight i, output channels fastest. */
typedef struct {
    int m, c, cell; /* output channel, input channel in the group, cell */
    int at;         /* where it lies */
} ConvWeight;
static __device__ __forceinline__ ConvWeight conv_weight(const CuConv &q, int i) {
    ConvWeight w;
    const int rest = i / q.co;
    w.m = i - rest * q.co;
    w.cell = rest / q.group_in;
    w.c = rest - w.cell * q.group_in;
    w.at = w.m * q.w_out + w.c * q.w_in + w.cell * q.w_cell;
    return w;
}

/* Sum over the rows of outputs lo .. hi-1, counted through all images, for one weight. first: where
 * its window's cell lies for the first output. */
static __device__ __forceinline__ double conv_weight_sum(const CuConv &q, const float *dy,
                                                         const float *x, const int first[3],
                                                         long long lo, long long hi) {
    const int plane = q.out[0] * q.out[1], by = q.stride[2];
    const int from = first[2] < 0 ? (by - 1 - first[2]) / by : 0; /* outputs whose cell is inside */
    const int last = q.in[2] - 1 - first[2], fit = last < 0 ? 0 : last / by + 1;
    const int end = fit < q.out[2] ? fit : q.out[2];
    double total = 0.0;
    for (long long row = lo; row < hi; row++) {
        const long long n = row / plane;
        const int place = (int)(row - n * plane), o0 = place / q.out[1];
        const int i0 = o0 * q.stride[0] + first[0];
        const int i1 = (place - o0 * q.out[1]) * q.stride[1] + first[1];
        if (!conv_inside(i0, q.in[0]) || !conv_inside(i1, q.in[1])) continue;
        const float *outputs = dy + n * q.y_image + place * q.out[2] * q.y_cell;
        const float *inputs =
            x + n * q.x_image + ((i0 * q.in[1] + i1) * q.in[2] + first[2]) * q.x_cell;
        for (int some = from; some < end; some += 32) {
            const int stop = some + 32 < end ? some + 32 : end;
            float sum = 0.0f;
            for (int o = some; o < stop; o++)
                sum = fmaf(outputs[o * q.y_cell], inputs[o * by * q.x_cell], sum);
            total += sum;
        }
    }
    return total;
}

/* part [gridDim.y, weights], or NULL with one block: the sum is dw's. */
extern "C" __global__ void conv_grad_w(const __grid_constant__ CuConv q, const float *dy,
                                       const float *x, float *dw, double *part) {
    const unsigned weights = (unsigned)(q.co * q.w_out), step = gridDim.x * blockDim.x;
    const long long rows = (long long)q.n * q.out[0] * q.out[1];
    const long long share = (rows + gridDim.y - 1) / gridDim.y, lo = blockIdx.y * share;
    const long long hi = lo + share < rows ? lo + share : rows;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < weights; i += step) {
        const ConvWeight w = conv_weight(q, (int)i);
        const int row = w.cell / q.k[2], k2 = w.cell - row * q.k[2];
        const int k0 = row / q.k[1], k1 = row - k0 * q.k[1];
        const int first[3] = {k0 * q.dil[0] - q.lo[0], k1 * q.dil[1] - q.lo[1],
                              k2 * q.dil[2] - q.lo[2]};
        const int input = w.m / q.group_out * q.group_in + w.c;
        const double sum =
            conv_weight_sum(q, dy + w.m * q.y_channel, x + input * q.x_channel, first, lo, hi);
        if (part)
            part[(long long)blockIdx.y * weights + i] = sum;
        else
            dw[w.at] = (float)sum;
    }
}

extern "C" __global__ void conv_add_parts(const __grid_constant__ CuConv q, const double *part,
                                          long long parts, float *dw) {
    const unsigned weights = (unsigned)(q.co * q.w_out), step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < weights; i += step) {
        double sum = 0.0;
        for (long long p = 0; p < parts; p++) sum += part[p * weights + i];
        dw[conv_weight(q, (int)i).at] = (float)sum;
    }
}

/* from [outer, rows, cols] to [outer, cols, rows], count elements in all. */
extern "C" __global__ void conv_turn(const float *from, float *to, long long count, long long rows,
                                     long long cols) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const long long r = i % rows, k = i / rows % cols, outer = i / rows / cols;
        to[i] = from[(outer * rows + r) * cols + k];
    }
}
