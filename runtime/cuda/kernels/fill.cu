// calls: dtrt_fill
/* fill.cu - numbers of eight bytes whose halves differ: the driver fills with all others. */

extern "C" __global__ void fill8(uint64_t *y, int64_t n, uint64_t value) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = value;
}
