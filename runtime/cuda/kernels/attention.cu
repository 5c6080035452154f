// calls: dtrt_attention_forward dtrt_attention_grad
/* attention.cu - rows of scores: to probabilities, and (gradient) to those and the gradient of the
 * scores. Formulas as in runtime/cpu/attention.c, marks of dropout as in attention_rows.h there.
 * Blocks of at most 512 threads, whose registers hold
 * a row's part and the places of its masks. In place: a thread writes an element after its
 * last read of it. */

/* The row of a mask whose axes `dim` are those of the scores or 1. */
static __device__ __forceinline__ int64_t attention_mask(const CuAttention &q, const long long *dim,
                                                         int64_t head, int64_t row) {
    int64_t at = dim[q.nbatch] > 1 ? row : 0, stride = dim[q.nbatch];
    for (int i = q.nbatch - 1; i >= 0; i--) {
        const int64_t rest = head / q.batch[i];
        if (dim[i] > 1) at += (head - rest * q.batch[i]) * stride;
        stride *= dim[i];
        head = rest;
    }
    return at * q.keys;
}

/* Row r of the block. */
struct AttentionRow {
    const float *add;    /* NULL: none */
    const uint8_t *cond; /* as add */
    float alpha, fill;
    bool hides;
    int64_t all; /* its number among all rows */
    uint64_t first; /* and that of its first score */
    __device__ __forceinline__ AttentionRow(const CuAttention &q, int64_t r, const float *plus,
                                            const uint8_t *when)
        : add(nullptr), cond(nullptr), alpha(q.alpha), fill(q.fill), hides(q.hides) {
        const int64_t of = r / q.rows, head = q.head + of, row = q.row + r - of * q.rows;
        if (plus) add = plus + attention_mask(q, q.add_dim, head, row);
        if (when) cond = when + attention_mask(q, q.cond_dim, head, row);
        all = head * q.all_rows + row;
        first = (uint64_t)(all * q.keys);
    }
    __device__ __forceinline__ bool is_filled(int64_t i) const {
        return cond && (cond[i] != 0) == hides;
    }
    __device__ __forceinline__ float score(int64_t i, float product) const {
        float s = alpha * product;
        if (is_filled(i)) s = fill;
        return add ? s + add[i] : s;
    }
    __device__ __forceinline__ bool keeps(const CuAttention &q, int64_t i) const {
        return dtrt_keep(cu_now.seed, cu_now.step, q.key, first + (uint64_t)i, q.threshold);
    }
};

template <bool WARP>
static __device__ __forceinline__ void attention_row(const CuAttention &q, float *scores,
                                                     const float *add, const uint8_t *cond,
                                                     float *stats) {
    __shared__ double part[32];
    __shared__ float tops[32];
    const Team<WARP> t;
    const bool drops = q.scale > 0.0f;
    for (int64_t r = t.row; r < q.count; r += t.step) {
        float *to = scores + r * q.keys, top = -INFINITY;
        const RowPart row(t, to, q.keys);
        const AttentionRow a(q, r, add, cond);
        row.each([&](int64_t i, float v) {
            const float s = a.score(i, v);
            top = s > top ? s : top;
        });
        top = t.max(top, tops);
        double sum = 0.0;
        row.each([&](int64_t i, float v) { sum += (double)dtrt_expf(a.score(i, v) - top); });
        sum = t.sum(sum, part);
        const float scale = (float)(1.0 / sum);
        row.each([&](int64_t i, float v) {
            const float prob = dtrt_expf(a.score(i, v) - top) * scale;
            to[i] = !drops ? prob : a.keeps(q, i) ? prob * q.scale : 0.0f;
        });
        if (t.lane == 0) {
            stats[2 * a.all] = top;
            stats[2 * a.all + 1] = scale;
        }
    }
}
extern "C" __global__ void attention_rows_warp(const __grid_constant__ CuAttention q, float *scores,
                                               const float *add, const uint8_t *cond,
                                               float *stats) {
    attention_row<true>(q, scores, add, cond, stats);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    attention_rows_block(const __grid_constant__ CuAttention q, float *scores, const float *add,
                         const uint8_t *cond, float *stats) {
    attention_row<false>(q, scores, add, cond, stats);
}

/* scores: to probabilities P, dropped; d: dY V' to dP and to the gradient of the products, P (dP -
 * sum(dP P)) alpha; all: without alpha, for the mask's gradient, where it is wanted. */
template <bool WARP>
static __device__ __forceinline__ void attention_grad_row(const CuAttention &q, float *scores,
                                                          float *d, const float *add,
                                                          const uint8_t *cond, const float *stats,
                                                          float *all) {
    __shared__ double part[32];
    const Team<WARP> t;
    const bool drops = q.scale > 0.0f;
    for (int64_t r = t.row; r < q.count; r += t.step) {
        float *p = scores + r * q.keys, *dp = d + r * q.keys;
        const RowPart row(t, p, q.keys);
        const AttentionRow a(q, r, add, cond);
        const float top = stats[2 * a.all], scale = stats[2 * a.all + 1];
        double sum = 0.0;
        row.each([&](int64_t i, float v) {
            const float prob = dtrt_expf(a.score(i, v) - top) * scale;
            float d = dp[i];
            const bool keep = !drops || a.keeps(q, i);
            if (drops) dp[i] = d = keep ? d * q.scale : 0.0f;
            p[i] = keep ? prob : -prob;
            sum += (double)(prob * d);
        });
        const float mean = (float)t.sum(sum, part);
        for (int64_t i = t.lane; i < q.keys; i += t.size) {
            const float prob = p[i], d = fabsf(prob) * (dp[i] - mean);
            if (all) all[a.first + (uint64_t)i] = d;
            if (drops) p[i] = prob < 0.0f ? 0.0f : prob * q.scale;
            dp[i] = a.is_filled(i) ? 0.0f : d * q.alpha;
        }
    }
}
extern "C" __global__ void attention_grad_rows_warp(const __grid_constant__ CuAttention q,
                                                    float *scores, float *d, const float *add,
                                                    const uint8_t *cond, const float *stats,
                                                    float *all) {
    attention_grad_row<true>(q, scores, d, add, cond, stats, all);
}
extern "C" __global__ void __launch_bounds__(512, 1)
    attention_grad_rows_block(const __grid_constant__ CuAttention q, float *scores, float *d,
                              const float *add, const uint8_t *cond, const float *stats,
                              float *all) {
    attention_grad_row<false>(q, scores, d, add, cond, stats, all);
}
