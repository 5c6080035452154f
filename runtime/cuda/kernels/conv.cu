// calls: dtrt_conv_forward dtrt_conv_grad_x dtrt_conv_grad_w
/* conv.cu - convolutions as loops, for depthwise ones and for those that the library has no plan
 * for. Any group count; strides say where channels and cells lie.
 *
 * Blocks walk over rows of pixels (one image, two places), threads over the pixels of a row and
 * their channels, channels fastest where they are in memory, so that a warp reads runs of it.
 * Weight gradients: threads over weights, output channels fastest; the cells of all images are
 * shared by gridDim.y blocks, whose sums are added in order by a second kernel. Sums of many cells
 * are f32 over 32 of them and double beyond. */


/* Place of item i in a row of `width` cells with `channels` channels. */
static __device__ __forceinline__ void conv_split(unsigned i, int width, int channels, bool last,
                                                  int &cell, int &channel) {
    const unsigned by = (unsigned)(last ? channels : width), over = i / by, rest = i - over * by;
    cell = (int)(last ? over : rest);
    channel = (int)(last ? rest : over);
}

static __device__ __forceinline__ bool conv_inside(int at, int size) {
    return (unsigned)at < (unsigned)size;
}

/* One output: x and w begin at its image and weights. at: its window's first cell, which may be
 * outside. */
static __device__ __forceinline__ float conv_window(const CuConv &q, const float *x, const float *w,
                                                    const int at[3]) {
    float sum = 0.0f;
    for (int k0 = 0, i0 = at[0]; k0 < q.k[0]; k0++, i0 += q.dil[0]) {
        if (!conv_inside(i0, q.in[0])) continue;
        for (int k1 = 0, i1 = at[1]; k1 < q.k[1]; k1++, i1 += q.dil[1]) {
            if (!conv_inside(i1, q.in[1])) continue;
            const float *line = x + (i0 * q.in[1] + i1) * q.in[2] * q.x_cell;
            const float *cells = w + (k0 * q.k[1] + k1) * q.k[2] * q.w_cell;
            for (int k2 = 0, i2 = at[2]; k2 < q.k[2]; k2++, i2 += q.dil[2]) {
                if (!conv_inside(i2, q.in[2])) continue;
                const float *from = line + i2 * q.x_cell, *by = cells + k2 * q.w_cell;
                for (int c = 0; c < q.group_in; c++)
                    sum = fmaf(from[c * q.x_channel], by[c * q.w_in], sum);
            }
        }
    }
    return sum;
}

extern "C" __global__ void conv_forward(const __grid_constant__ CuConv q, const float *x,
                                        const float *w, float *y) {
    const unsigned width = (unsigned)(q.out[2] * q.co), step = gridDim.x * blockDim.x;
    const long long rows = (long long)q.n * q.out[0] * q.out[1];
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const long long n = row / (q.out[0] * q.out[1]);
        const int place = (int)(row - n * (q.out[0] * q.out[1]));
        const int o0 = place / q.out[1], o1 = place - o0 * q.out[1];
        float *to = y + n * q.y_image + place * q.out[2] * q.y_cell;
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += step) {
            int o2, m;
            conv_split(i, q.out[2], q.co, q.y_channel == 1, o2, m);
            const int at[3] = {o0 * q.stride[0] - q.lo[0], o1 * q.stride[1] - q.lo[1],
                               o2 * q.stride[2] - q.lo[2]};
            const float *image = x + n * q.x_image + m / q.group_out * q.group_in * q.x_channel;
            to[o2 * q.y_cell + m * q.y_channel] = conv_window(q, image, w + m * q.w_out, at);
        }
    }
}

/* The output cell along one axis that cell k of its window lays on input cell `at`; -1: none. */
static __device__ __forceinline__ int conv_source(const CuConv &q, int axis, int at, int k) {
    const int t = at + q.lo[axis] - k * q.dil[axis], by = q.stride[axis];
    if (t < 0) return -1;
    const int o = by == 1 ? t : t / by;
    return o * by == t && o < q.out[axis] ? o : -1;
}

/* One input's gradient: dy and w begin at its image, group and weights. */
static __device__ __forceinline__ float conv_transposed(const CuConv &q, const float *dy,
                                                        const float *w, const int at[3]) {
    float sum = 0.0f;
    for (int k0 = 0; k0 < q.k[0]; k0++) {
        const int o0 = conv_source(q, 0, at[0], k0);
        if (o0 < 0) continue;
        for (int k1 = 0; k1 < q.k[1]; k1++) {
            const int o1 = conv_source(q, 1, at[1], k1);
            if (o1 < 0) continue;
            const float *line = dy + (o0 * q.out[1] + o1) * q.out[2] * q.y_cell;
            const float *cells = w + (k0 * q.k[1] + k1) * q.k[2] * q.w_cell;
            for (int k2 = 0; k2 < q.k[2]; k2++) {
                const int o2 = conv_source(q, 2, at[2], k2);
                if (o2 < 0) continue;
                const float *from = line + o2 * q.y_cell, *by = cells + k2 * q.w_cell;
                for (int m = 0; m < q.group_out; m++)
                    sum = fmaf(from[m * q.y_channel], by[m * q.w_out], sum);
            }
        }
    }
    return sum;
}

extern "C" __global__ void conv_grad_x(const __grid_constant__ CuConv q, const float *dy,
                                       const float *w, float *dx) {
    const unsigned width = (unsigned)(q.in[2] * q.ci), step = gridDim.x * blockDim.x;
    const long long rows = (long long)q.n * q.in[0] * q.in[1];
    for (long long row = blockIdx.y; row < rows; row += gridDim.y) {
        const long long n = row / (q.in[0] * q.in[1]);
        const int place = (int)(row - n * (q.in[0] * q.in[1]));
        const int i0 = place / q.in[1], i1 = place - i0 * q.in[1];
        float *to = dx + n * q.x_image + place * q.in[2] * q.x_cell;
        for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < width; i += step) {
            int i2, c;
            conv_split(i, q.in[2], q.ci, q.x_channel == 1, i2, c);
            const int at[3] = {i0, i1, i2}, group = c / q.group_in, inner = c - group * q.group_in;
            const float *image = dy + n * q.y_image + group * q.group_out * q.y_channel;
            const float *weight = w + group * q.group_out * q.w_out + inner * q.w_in;
            to[i2 * q.x_cell + c * q.x_channel] = conv_transposed(q, image, weight, at);
        }
    }
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

/* Sum over the output cells lo .. hi-1, counted through all images, for one weight. first: where
 * its window's cell lies for the first output. */
static __device__ __forceinline__ double conv_weight_sum(const CuConv &q, const float *dy,
                                                         const float *x, const int first[3],
                                                         long long lo, long long hi) {
    const long long cells = (long long)q.out[0] * q.out[1] * q.out[2], n = lo / cells;
    const int place = (int)(lo - n * cells), row = place / q.out[2];
    int o2 = place - row * q.out[2], o0 = row / q.out[1], o1 = row - o0 * q.out[1], some = 0;
    double total = 0.0;
    float sum = 0.0f;
    dy += n * q.y_image, x += n * q.x_image;
    for (long long at = lo; at < hi; at++) {
        const int i0 = o0 * q.stride[0] + first[0], i1 = o1 * q.stride[1] + first[1];
        const int i2 = o2 * q.stride[2] + first[2];
        if (conv_inside(i0, q.in[0]) && conv_inside(i1, q.in[1]) && conv_inside(i2, q.in[2])) {
            const int from = ((i0 * q.in[1] + i1) * q.in[2] + i2) * q.x_cell;
            const int by = ((o0 * q.out[1] + o1) * q.out[2] + o2) * q.y_cell;
            sum = fmaf(dy[by], x[from], sum);
            if (++some == 32) {
                total += sum;
                sum = 0.0f;
                some = 0;
            }
        }
        if (++o2 < q.out[2]) continue;
        o2 = 0;
        if (++o1 < q.out[1]) continue;
        o1 = 0;
        if (++o0 < q.out[0]) continue;
        o0 = 0;
        dy += q.y_image, x += q.x_image;
    }
    return total + sum;
}

/* part [gridDim.y, weights], or NULL with one block: the sum is dw's. */
extern "C" __global__ void conv_grad_w(const __grid_constant__ CuConv q, const float *dy,
                                       const float *x, float *dw, double *part) {
    const unsigned weights = (unsigned)(q.co * q.w_out), step = gridDim.x * blockDim.x;
    const long long places = (long long)q.n * q.out[0] * q.out[1] * q.out[2];
    const long long share = (places + gridDim.y - 1) / gridDim.y, lo = blockIdx.y * share;
    const long long hi = lo + share < places ? lo + share : places;
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
