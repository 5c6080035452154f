// calls: dtrt_random_fill
/* random.cu - tensors of random numbers: element i depends on the seed, the step, the node's key and
 * i alone. */

extern "C" __global__ void random_fill(float *y, int64_t n, uint32_t key, int normal, double scale,
                                       double shift) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    const uint64_t seed = cu_now.seed, now = cu_now.step;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const double r = normal ? dtrt_normal(seed, now, key, (uint64_t)i)
                                : (double)dtrt_uniform(seed, now, key, (uint64_t)i);
        y[i] = (float)(scale * r + shift);
    }
}
