// calls: dtrt_loss_forward dtrt_loss_grad
/* loss.cu - softmax cross-entropy and negative log-likelihood, and their gradients. Formulas as in
 * runtime/cpu/loss.c. The positions are summed in `parts` fixed chunks, one a block, then chunk by
 * chunk. */

enum { LOSS_PARTS = 256 }; /* at most */

/* Labels that count, chunk by chunk. */
static __device__ double loss_counted[LOSS_PARTS];

/* Label of position i; -1 when it does not count: ignored, or out of range. */
static __device__ __forceinline__ int64_t loss_label(const CuLoss &l, const void *labels,
                                                     int64_t i) {
    const int64_t t = index_at(labels, l.label_i32, i);
    if (l.has_ignore && t == l.ignore_index) return -1;
    return t >= 0 && t < l.n ? t : -1;
}

/* The labels are counted and checked: chunk blockIdx.x. */
extern "C" __global__ void loss_count(const CuLoss l, const void *labels) {
    __shared__ double part[32];
    const int64_t total = l.outer * l.inner, p = blockIdx.x;
    double count = 0.0;
    for (int64_t i = total * p / l.parts + threadIdx.x; i < total * (p + 1) / l.parts;
         i += blockDim.x) {
        const int64_t t = index_at(labels, l.label_i32, i);
        if (l.has_ignore && t == l.ignore_index) continue;
        if (t < 0 || t >= l.n) report_range(l.node, t, l.n, i);
        count += 1.0;
    }
    count = block_sum(count, part);
    if (threadIdx.x == 0) loss_counted[p] = count;
}

/* One block of LOSS_PARTS threads. */
extern "C" __global__ void loss_mean(const double *part, int parts, float *loss) {
    __shared__ double shared[32];
    const bool on = threadIdx.x < parts;
    const double sum = block_sum(on ? part[threadIdx.x] : 0.0, shared);
    const double count = block_sum(on ? loss_counted[threadIdx.x] : 0.0, shared);
    if (threadIdx.x == 0) loss[0] = (float)(sum / count);
}

/* The loss of a position: lse = log(sum(exp(x))) of its classes, all: their sum, hit: the label's */
static __device__ __forceinline__ double loss_of(const CuLoss &l, double lse, double all,
                                                 float hit) {
    const double e = (double)l.smoothing;
    return (1.0 - e) * (lse - (double)hit) + e * (lse - all / (double)l.n);
}

/* ---- inner == 1: a block works on a row ---- */

static __device__ __forceinline__ double row_log_sum(const Team<false> &t, const RowPart &row,
                                                     float *tops, double *part) {
    float top = -INFINITY;
    row.each([&](int64_t, float v) { top = v > top ? v : top; });
    top = t.max(top, tops);
    double sum = 0.0;
    row.each([&](int64_t, float v) { sum += (double)dtrt_expf(v - top); });
    return (double)top + log(t.sum(sum, part));
}

extern "C" __global__ void __launch_bounds__(1024)
    loss_rows(const CuLoss l, const float *x, const void *labels, double *parts) {
    __shared__ double part[32];
    __shared__ float tops[32];
    const Team<false> team;
    const int64_t p = blockIdx.x;
    double sum = 0.0;
    for (int64_t i = l.outer * p / l.parts; i < l.outer * (p + 1) / l.parts; i++) {
        const int64_t t = loss_label(l, labels, i);
        if (t < 0) continue;
        const RowPart row(team, x + i * l.n, l.n);
        double lse = 0.0, all = 0.0;
        if (!l.is_log) lse = row_log_sum(team, row, tops, part);
        if (l.smoothing != 0.0f) {
            row.each([&](int64_t, float v) { all += (double)v; });
            all = team.sum(all, part);
        }
        sum += loss_of(l, lse, all, x[i * l.n + t]);
    }
    if (threadIdx.x == 0) parts[p] = sum;
}

/* dloss / count; every thread of the block has it */
static __device__ __forceinline__ float loss_scale(const CuLoss &l, const float *dloss,
                                                   double *part) {
    double count = 0.0;
    for (int p = threadIdx.x; p < l.parts; p += blockDim.x) count += loss_counted[p];
    return (float)((double)dloss[0] / block_sum(count, part));
}

/* dx = scale * (softmax - target), for NLL -scale * target; target = (1-e) onehot + e/n */
extern "C" __global__ void __launch_bounds__(1024)
    loss_grad_rows(const CuLoss l, const float *dloss, const float *x, const void *labels,
                   float *dx) {
    __shared__ double part[32];
    __shared__ float tops[32];
    const Team<false> team;
    const float scale = loss_scale(l, dloss, part);
    const float each = scale * l.smoothing / (float)l.n, hit = scale * (1.0f - l.smoothing);
    for (int64_t i = team.row; i < l.outer; i += team.step) {
        const int64_t t = loss_label(l, labels, i);
        const RowPart row(team, x + i * l.n, l.n);
        float *to = dx + i * l.n;
        if (t < 0) {
            row.each([&](int64_t k, float) { to[k] = 0.0f; });
            continue;
        }
        const float shift = l.is_log ? 0.0f : (float)row_log_sum(team, row, tops, part);
        row.each([&](int64_t k, float v) {
            const float d = l.is_log ? -each : scale * dtrt_expf(v - shift) - each;
            to[k] = k == t ? d - hit : d;
        });
    }
}

/* ---- inner > 1: 32 positions at a time, the classes in stripes ---- */

/* This thread's classes of position i: x[begin], x[begin + step] .. below end. */
struct LossColumn {
    int64_t begin, end, step;
    __device__ __forceinline__ LossColumn(const CuLoss &l, int64_t i, bool on) {
        const int64_t from = on ? i / l.inner * l.n * l.inner + i % l.inner : 0;
        begin = from + (threadIdx.x >> 5) * l.inner;
        end = on ? from + l.n * l.inner : begin;
        step = STRIPES * l.inner;
    }
};

static __device__ __forceinline__ double column_log_sum(const LossColumn &q, const float *x,
                                                        float (*tops)[32], double (*sums)[32]) {
    float top = -INFINITY;
    for (int64_t k = q.begin; k < q.end; k += q.step) top = x[k] > top ? x[k] : top;
    top = stripes_max(top, tops);
    double sum = 0.0;
    for (int64_t k = q.begin; k < q.end; k += q.step) sum += (double)dtrt_expf(x[k] - top);
    return (double)top + log(stripes_sum(sum, sums));
}

extern "C" __global__ void loss_columns(const CuLoss l, const float *x, const void *labels,
                                        double *parts) {
    __shared__ double sums[STRIPES][32], part[32];
    __shared__ float tops[STRIPES][32];
    const int64_t total = l.outer * l.inner, p = blockIdx.x;
    const int64_t end = total * (p + 1) / l.parts;
    double sum = 0.0;
    for (int64_t i0 = total * p / l.parts; i0 < end; i0 += 32) {
        const int64_t i = i0 + (threadIdx.x & 31);
        const int64_t t = i < end ? loss_label(l, labels, i) : -1;
        const LossColumn q(l, i, t >= 0);
        double lse = 0.0, all = 0.0;
        if (!l.is_log) lse = column_log_sum(q, x, tops, sums);
        if (l.smoothing != 0.0f) {
            for (int64_t k = q.begin; k < q.end; k += q.step) all += (double)x[k];
            all = stripes_sum(all, sums);
        }
        if (t >= 0 && threadIdx.x < 32) sum += loss_of(l, lse, all, x[q.begin + t * l.inner]);
    }
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) parts[p] = sum;
}

extern "C" __global__ void loss_grad_columns(const CuLoss l, const float *dloss, const float *x,
                                             const void *labels, float *dx) {
    __shared__ double sums[STRIPES][32], part[32];
    __shared__ float tops[STRIPES][32];
    const int64_t total = l.outer * l.inner, step = (int64_t)gridDim.x * 32;
    const float scale = loss_scale(l, dloss, part);
    const float each = scale * l.smoothing / (float)l.n, hit = scale * (1.0f - l.smoothing);
    for (int64_t i0 = (int64_t)blockIdx.x * 32; i0 < total; i0 += step) {
        const int64_t i = i0 + (threadIdx.x & 31);
        const int64_t t = i < total ? loss_label(l, labels, i) : -1;
        const LossColumn q(l, i, i < total);
        const float shift = l.is_log ? 0.0f : (float)column_log_sum(q, x, tops, sums);
        int64_t c = threadIdx.x >> 5;
        for (int64_t k = q.begin; k < q.end; k += q.step, c += STRIPES) {
            float d = l.is_log ? -each : scale * dtrt_expf(x[k] - shift) - each;
            if (c == t) d -= hit;
            dx[k] = t < 0 ? 0.0f : d;
        }
    }
}
