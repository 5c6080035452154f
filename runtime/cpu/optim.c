/* optim.c - parameter updates: SGD with momentum, Adam, AdamW, in PyTorch's formulation.
 *
 * Elementwise over n floats; packed weights are updated with their padding, which is zero in
 * weight, gradient and state and stays zero. The formulas are those of PyTorch's torch.optim (SGD
 * after Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
 * 2013; Adam after Kingma and Ba, ICLR 2015; AdamW after Loshchilov and Hutter, "Decoupled weight
 * decay regularization", ICLR 2019). Bias corrections are computed in double, once a call. */
#include "dtrt_kernels.h"
#include "kernel.h"

/* v = g at the first step, then momentum*v + (1-dampening)*g; w -= lr * (nesterov ? g + momentum*v
 * : v) */
KERNEL sgd_momentum(float *restrict w, const float *restrict g, float *restrict v, int64_t lo,
                    int64_t hi, const DtrtCtx *c) {
    float lr = c->lr, decay = c->weight_decay, mu = c->momentum;
    float keep = c->step ? mu : 0.0f, take = c->step && mu != 0.0f ? 1.0f - c->dampening : 1.0f;
    float ahead = c->nesterov ? 1.0f : 0.0f, of_v = c->nesterov ? mu : 1.0f;
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) {
        float d = g[i] + decay * w[i];
        v[i] = keep * v[i] + take * d;
        w[i] -= lr * (ahead * d + of_v * v[i]);
    }
}

KERNEL sgd_plain(float *restrict w, const float *restrict g, int64_t lo, int64_t hi, float lr,
                 float decay) {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) w[i] -= lr * (g[i] + decay * w[i]);
}

void dtrt_sgd(const DtrtCtx *c, float *w, const float *g, float *v, int64_t n) {
    if (v) {
        KERNEL_SPLIT(n, 16, n, sgd_momentum(w, g, v, lo, hi, c));
    } else {
        KERNEL_SPLIT(n, 16, n, sgd_plain(w, g, lo, hi, c->lr, c->weight_decay));
    }
}

typedef struct {
    float shrink; /* AdamW: w *= shrink first */
    float decay;  /* Adam: g += decay*w */
    float b1, take1, b2, take2;
    float rate; /* lr / (1 - b1^t) */
    float root; /* 1 / sqrt(1 - b2^t) */
    float eps;
} AdamStep;

/* 0 / 0 (no gradient so far and eps = 0) counts as no step, so that padding stays zero. */
KERNEL adam(float *restrict w, const float *restrict g, float *restrict m, float *restrict v,
            int64_t lo, int64_t hi, const AdamStep *step) {
    AdamStep a = *step;
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) {
        float x = w[i] * a.shrink;
        float d = g[i] + a.decay * x;
        float mi = a.b1 * m[i] + a.take1 * d;
        float vi = a.b2 * v[i] + a.take2 * (d * d);
        float q = mi / (__builtin_sqrtf(vi) * a.root + a.eps);
        m[i] = mi;
        v[i] = vi;
        w[i] = x - a.rate * (mi == 0.0f ? 0.0f : q);
    }
}

void dtrt_adam(const DtrtCtx *c, float *w, const float *g, float *m, float *v, int64_t n,
               int decoupled) {
    double b1 = (double)c->beta1, b2 = (double)c->beta2, t = (double)c->step + 1.0;
    AdamStep a = {.shrink =
                      decoupled ? (float)(1.0 - (double)c->lr * (double)c->weight_decay) : 1.0f,
                  .decay = decoupled ? 0.0f : c->weight_decay,
                  .b1 = c->beta1,
                  .take1 = (float)(1.0 - b1),
                  .b2 = c->beta2,
                  .take2 = (float)(1.0 - b2),
                  .rate = (float)((double)c->lr / (1.0 - pow(b1, t))),
                  .root = (float)(1.0 / sqrt(1.0 - pow(b2, t))),
                  .eps = c->eps};
    KERNEL_SPLIT(n, 16, n, adam(w, g, m, v, lo, hi, &a));
}
