// calls: dtrt_sgd dtrt_adam
/* optim.cu - parameter updates, as runtime/cpu/optim.c, of many tensors at once. The settings of the
 * step come from cu_now, so that a captured step can be replayed. */

/* The tensor of a chunk. */
static __device__ __forceinline__ int update_of(const CuUpdates &u, int chunk) {
    int lo = 0, hi = u.count;
    while (hi - lo > 1) {
        const int mid = (lo + hi) >> 1;
        if (u.at[mid].first <= chunk)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
/* f(tensor, element) for this thread's elements of this block's chunks. */
template <typename F>
static __device__ __forceinline__ void update_each(const CuUpdates &u, F f) {
    for (int chunk = blockIdx.x; chunk < u.chunks; chunk += gridDim.x) {
        const CuUpdate t = u.at[update_of(u, chunk)];
        const int64_t begin = (int64_t)(chunk - t.first) * CU_UPDATE_CHUNK;
        const int64_t end = begin + CU_UPDATE_CHUNK < t.n ? begin + CU_UPDATE_CHUNK : t.n;
        for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) f(t, i);
    }
}

/* Of several gradients that are not finite the first one of the schedule is told. */
extern "C" __global__ void update_check(const __grid_constant__ CuUpdates u) {
    int bad = 0;
    update_each(u, [&](const CuUpdate &t, int64_t i) {
        if (!isfinite(t.g[i]) && t.order > bad) bad = t.order;
    });
    if (bad) atomicMax(&cu_report.nonfinite, bad);
}

extern "C" __global__ void update_sgd(const __grid_constant__ CuUpdates u) {
    const float lr = cu_now.lr, decay = cu_now.weight_decay, mu = cu_now.momentum;
    const bool begun = cu_now.step != 0, nesterov = cu_now.nesterov != 0;
    const float keep = begun ? mu : 0.0f;
    const float take = begun && mu != 0.0f ? 1.0f - cu_now.dampening : 1.0f;
    const float ahead = nesterov ? 1.0f : 0.0f, of_v = nesterov ? mu : 1.0f;
    if (step_is_spoiled()) return;
    update_each(u, [&](const CuUpdate &t, int64_t i) {
        const float d = t.g[i] + decay * t.w[i];
        if (t.m) {
            const float vi = keep * t.m[i] + take * d;
            t.m[i] = vi;
            t.w[i] -= lr * (ahead * d + of_v * vi);
        } else {
            t.w[i] -= lr * d;
        }
    });
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
extern "C" __global__ void update_adam(const __grid_constant__ CuUpdates u) {
    __shared__ AdamStep shared;
    if (step_is_spoiled()) return;
    if (threadIdx.x == 0) shared = adam_step(u.decoupled != 0);
    __syncthreads();
    const AdamStep a = shared;
    update_each(u, [&](const CuUpdate &t, int64_t i) {
        const float x = t.w[i] * a.shrink;
        const float d = t.g[i] + a.decay * x;
        const float mi = a.b1 * t.m[i] + a.take1 * d;
        const float vi = a.b2 * t.v[i] + a.take2 * (d * d);
        const float q = mi / (sqrtf(vi) * a.root + a.eps);
        t.m[i] = mi;
        t.v[i] = vi;
        t.w[i] = x - a.rate * (mi == 0.0f ? 0.0f : q);
    });
}
