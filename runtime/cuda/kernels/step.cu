// calls: *
/* step.cu - what a step's frame does on the device: the loss, accuracy. In every program. */

extern "C" __global__ void step_loss(const float *loss) {
    if (threadIdx.x) return;
    cu_report.loss = loss[0];
    if (!isfinite(loss[0])) cu_report.loss_nonfinite = 1;
}

/* How often the largest of n scores (the first of equal ones) is at the label: scores [outer, n,
 * inner], labels [outer, inner]. */
extern "C" __global__ void step_accuracy(const float *x, const void *labels, int label_i32,
                                         int has_ignore, long long ignore, long long outer,
                                         long long n, long long inner) {
    const long long total = outer * inner, stride = (long long)gridDim.x * blockDim.x;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < total; k += stride) {
        const float *row = x + k / inner * n * inner + k % inner;
        const long long label = label_i32 ? ((const int *)labels)[k] : ((const long long *)labels)[k];
        long long best = 0;
        if (has_ignore && label == ignore) continue;
        for (long long c = 1; c < n; c++)
            if (row[c * inner] > row[best * inner]) best = c;
        if (best == label) atomicAdd(&cu_report.hits, 1ULL);
        atomicAdd(&cu_report.counted, 1ULL);
    }
}
