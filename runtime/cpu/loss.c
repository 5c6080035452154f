/* loss.c - softmax cross-entropy and negative log-likelihood with integer labels, and their
 * gradients.
 *
 * logits [outer, n, inner], labels [outer, inner]. A position with label t costs
 *     L = (1-e) * -logp[t] + e * mean over classes of -logp,    logp = x - logsumexp(x)
 * where e is the smoothing (Szegedy et al., "Rethinking the Inception architecture", CVPR 2016, as
 * PyTorch defines it); NLL takes logp = x. The loss is the mean over positions that are not
 * ignored; none of them gives 0/0 = NaN. Positions are summed in PARTS fixed chunks, in double,
 * then chunk by chunk, so the sum does not depend on the thread count. Labels are checked before
 * anything else runs. */
#include "dtrt_kernels.h"
#include "dtrt_vecmath.h"
#include "kernel.h"

#include <assert.h>

enum { PARTS = 256 };

static inline int64_t label_at(const DtrtLoss *l, const void *labels, int64_t i) {
    return l->label_i32 ? (int64_t)((const int32_t *)labels)[i] : ((const int64_t *)labels)[i];
}

static inline int is_ignored(const DtrtLoss *l, int64_t t) {
    return l->has_ignore && t == l->ignore_index;
}

/* Labels that count; ends the run at the first label out of range. */
static int64_t count_labels(DtrtCtx *c, const DtrtLoss *l, const void *labels) {
    int64_t total = l->outer * l->inner, count = 0;
    for (int64_t i = 0; i < total; i++) {
        int64_t t = label_at(l, labels, i);
        if (is_ignored(l, t)) continue;
        if (t < 0 || t >= l->n) {
            dtrt_fail(c, "label %lld at position %lld: expected 0 to %lld", (long long)t,
                      (long long)i, (long long)l->n - 1);
        }
        count++;
    }
    return count;
}

/* log(sum(exp(x))) of the position at x, classes `inner` apart; is_log: 0. */
KERNEL_INLINE double log_sum(const DtrtLoss *l, const float *x) {
    if (l->is_log) return 0.0;
    int64_t n = l->n, inner = l->inner;
    float top = inner == 1 ? kernel_max(x, n) : x[0];
    double sum = 0.0;
    if (inner == 1) {
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) sum += (double)dtrt_expf(x[i] - top);
    } else {
        for (int64_t i = 0; i < n; i++) top = x[i * inner] > top ? x[i * inner] : top;
        for (int64_t i = 0; i < n; i++) sum += (double)dtrt_expf(x[i * inner] - top);
    }
    return (double)top + log(sum);
}

/* Chunk p of positions: its sum of losses. */
KERNEL loss_parts(const DtrtLoss *l, const float *x, const void *labels, double *part, int64_t lo,
                  int64_t hi) {
    int64_t total = l->outer * l->inner, n = l->n, inner = l->inner;
    double e = (double)l->smoothing;
    for (int64_t p = lo; p < hi; p++) {
        double sum = 0.0;
        for (int64_t i = total * p / PARTS; i < total * (p + 1) / PARTS; i++) {
            int64_t t = label_at(l, labels, i);
            if (is_ignored(l, t)) continue;
            const float *xi = x + i / inner * n * inner + i % inner;
            double shift = log_sum(l, xi), all = 0.0;
            if (e != 0.0) {
                for (int64_t k = 0; k < n; k++) all += (double)xi[k * inner];
            }
            sum += (1.0 - e) * (shift - (double)xi[t * inner]) + e * (shift - all / (double)n);
        }
        part[p] = sum;
    }
}

/* dx = scale * (softmax - target), for NLL -scale * target; target = (1-e) onehot + e/n */
KERNEL loss_grad_rows(const DtrtLoss *l, const float *x, const void *labels, float *dx, float scale,
                      int64_t lo, int64_t hi) {
    int64_t n = l->n;
    float each = scale * l->smoothing / (float)n, hit = scale * (1.0f - l->smoothing);
    for (int64_t i = lo; i < hi; i++) {
        const float *xi = x + i * n;
        float *d = dx + i * n;
        int64_t t = label_at(l, labels, i);
        if (is_ignored(l, t)) {
            for (int64_t k = 0; k < n; k++) d[k] = 0.0f;
            continue;
        }
        if (l->is_log) {
            for (int64_t k = 0; k < n; k++) d[k] = -each;
        } else {
            float shift = (float)log_sum(l, xi);
#pragma omp simd
            for (int64_t k = 0; k < n; k++) d[k] = scale * dtrt_expf(xi[k] - shift) - each;
        }
        d[t] -= hit;
    }
}

/* The same with inner > 1: number i stands for outer i / blocks and a block of inner positions. */
enum { BLOCK = 64 };
KERNEL loss_grad_columns(const DtrtLoss *l, const float *x, const void *labels, float *dx,
                         float scale, int64_t lo, int64_t hi) {
    int64_t n = l->n, inner = l->inner, blocks = (inner + BLOCK - 1) / BLOCK;
    float each = scale * l->smoothing / (float)n, hit = scale * (1.0f - l->smoothing);
    float shift[BLOCK], on[BLOCK], of_exp = l->is_log ? 0.0f : scale;
    for (int64_t b = lo; b < hi; b++) {
        int64_t first = b / blocks * inner + b % blocks * BLOCK;
        int64_t w = kernel_min(BLOCK, inner - b % blocks * BLOCK);
        int64_t from = b / blocks * n * inner + b % blocks * BLOCK;
        for (int64_t j = 0; j < w; j++) {
            on[j] = is_ignored(l, label_at(l, labels, first + j)) ? 0.0f : 1.0f;
            shift[j] = (float)log_sum(l, x + from + j);
        }
        for (int64_t k = 0; k < n; k++) {
            const float *xk = x + from + k * inner;
            float *d = dx + from + k * inner;
#pragma omp simd
            for (int64_t j = 0; j < w; j++) {
                float v = of_exp * dtrt_expf(xk[j] - shift[j]) - each;
                d[j] = on[j] != 0.0f ? v : 0.0f;
            }
        }
        for (int64_t j = 0; j < w; j++) {
            if (on[j] != 0.0f) dx[from + label_at(l, labels, first + j) * inner + j] -= hit;
        }
    }
}

uint64_t dtrt_loss_needs(const DtrtLoss *l, int threads) {
    (void)l;
    (void)threads;
    return PARTS * sizeof(double);
}

void dtrt_loss_forward(DtrtCtx *c, const DtrtLoss *l, const float *x, const void *labels,
                       float *loss, void *ws) {
    int64_t count = count_labels(c, l, labels);
    double *part = ws, sum = 0.0;
    KERNEL_SPLIT(PARTS, 1, l->outer * l->n * l->inner, loss_parts(l, x, labels, part, lo, hi));
    for (int p = 0; p < PARTS; p++) sum += part[p];
    *loss = (float)(sum / (double)count);
}

void dtrt_loss_grad(DtrtCtx *c, const DtrtLoss *l, const float *dloss, const float *x,
                    const void *labels, float *dx, void *ws) {
    (void)ws;
    int64_t count = count_labels(c, l, labels), work = l->outer * l->n * l->inner;
    float scale = (float)((double)*dloss / (double)count);
    if (l->inner == 1) {
        KERNEL_SPLIT(l->outer, 1, work, loss_grad_rows(l, x, labels, dx, scale, lo, hi));
    } else {
        int64_t blocks = l->outer * ((l->inner + BLOCK - 1) / BLOCK);
        KERNEL_SPLIT(blocks, 1, work, loss_grad_columns(l, x, labels, dx, scale, lo, hi));
    }
}
