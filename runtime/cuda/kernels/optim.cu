// calls: dtrt_sgd dtrt_adam
/* optim.cu - parameter updates, as runtime/cpu/optim.c. The settings of the step come from cu_now,
 * so that a captured step can be replayed. */

/* v NULL: no momentum */
extern "C" __global__ void sgd(float *w, const float *g, float *v, int64_t n) {
    const float lr = cu_now.lr, decay = cu_now.weight_decay, mu = cu_now.momentum;
    const bool begun = cu_now.step != 0, nesterov = cu_now.nesterov != 0;
    const float keep = begun ? mu : 0.0f;
    const float take = begun && mu != 0.0f ? 1.0f - cu_now.dampening : 1.0f;
    const float ahead = nesterov ? 1.0f : 0.0f, of_v = nesterov ? mu : 1.0f;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    if (step_is_spoiled()) return;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const float d = g[i] + decay * w[i];
        if (v) {
            const float vi = keep * v[i] + take * d;
            v[i] = vi;
            w[i] -= lr * (ahead * d + of_v * vi);
        } else {
            w[i] -= lr * d;
        }
    }
}

/* What all elements share: computed once a block, in double. */
struct AdamStep {
    float shrink, decay, b1, take1, b2, take2, rate, root, eps;
};
static __device__ AdamStep adam_step(bool decoupled) {
    const double lr = (double)cu_now.lr, decay = (double)cu_now.weight_decay;
    AdamStep a;
    a.shrink = decoupled ? (float)(1.0 - lr * decay) : 1.0f;
    a.decay = decoupled ? 0.0f : cu_now.weight_decay;
    a.b1 = cu_now.beta1;
    a.take1 = (float)(1.0 - (double)cu_now.beta1);
    a.b2 = cu_now.beta2;
    a.take2 = (float)(1.0 - (double)cu_now.beta2);
    a.rate = (float)(lr / cu_now.left1);
    a.root = (float)(1.0 / sqrt(cu_now.left2));
    a.eps = cu_now.eps;
    return a;
}

/* 0 / 0 (no gradient so far and eps = 0) counts as no step, so that padding stays zero. */
extern "C" __global__ void adam(float *w, const float *g, float *m, float *v, int64_t n,
                                int decoupled) {
    __shared__ AdamStep shared;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    if (step_is_spoiled()) return;
    if (threadIdx.x == 0) shared = adam_step(decoupled != 0);
    __syncthreads();
    const AdamStep a = shared;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const float x = w[i] * a.shrink;
        const float d = g[i] + a.decay * x;
        const float mi = a.b1 * m[i] + a.take1 * d;
        const float vi = a.b2 * v[i] + a.take2 * (d * d);
        const float q = mi / (sqrtf(vi) * a.root + a.eps);
        m[i] = mi;
        v[i] = vi;
        w[i] = x - a.rate * (mi == 0.0f ? 0.0f : q);
    }
}
