// calls: dtrt_conv_forward dtrt_matmul
/* bias.cu - y[i] += bias[i / inner % channels], then ReLU, in place; bias may be missing. */

template <typename I>
static __device__ __forceinline__ void bias_items(float *y, const float *bias, I count, I channels,
                                                  I inner, int relu) {
    const I step = (I)gridDim.x * blockDim.x;
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        float v = y[i];
        if (bias) v += bias[(inner == 1 ? i : i / inner) % channels];
        y[i] = relu && v < 0.0f ? 0.0f : v;
    }
}

/* Divisions of 32 bits where they do: the sum of an index and a grid stays below 2^32. */
extern "C" __global__ void add_bias(float *y, const float *bias, long long count,
                                    long long channels, long long inner, int relu) {
    if (count <= 0x7fffffff)
        bias_items<unsigned>(y, bias, (unsigned)count, (unsigned)channels, (unsigned)inner, relu);
    else
        bias_items<long long>(y, bias, count, channels, inner, relu);
}
