// Elementwise kernels: a fused chain with a grid-stride loop, float4 with a tail, AdamW, Philox dropout.
extern "C" {

// y = gelu(a * b + bias[c]), the tanh form
__global__ __launch_bounds__(256) void gelu_bias(const float *a, const float *b, const float *bias, float *y,
                                                 long long n, int channels)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        float x = a[i] * b[i] + bias[i % channels];
        float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
        y[i] = 0.5f * x * (1.0f + t);
    }
}

// y = relu(scale * x), four at a time; thread 0 of block 0 does the tail
__global__ void relu_scale4(const float *x, float *y, long long n, float scale)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 v = ((const float4 *)x)[i];
        v.x = fmaxf(v.x * scale, 0.0f);
        v.y = fmaxf(v.y * scale, 0.0f);
        v.z = fmaxf(v.z * scale, 0.0f);
        v.w = fmaxf(v.w * scale, 0.0f);
        ((float4 *)y)[i] = v;
    }
    if (i == 0)
        for (long long k = n / 4 * 4; k < n; k++) y[k] = fmaxf(x[k] * scale, 0.0f);
}

__global__ void adamw(float *p, float *m, float *v, const float *g, long long n, float lr, float beta1, float beta2,
                      float eps, float decay, float correct1, float correct2)
{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float gi = g[i];
        float mi = beta1 * m[i] + (1.0f - beta1) * gi;
        float vi = beta2 * v[i] + (1.0f - beta2) * gi * gi;
        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] - lr * (mi / correct1 / (sqrtf(vi / correct2) + eps) + decay * p[i]);
    }
}

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), counter = element, key = seed
__global__ void dropout(const float *x, float *y, unsigned char *mask, long long n, float p, unsigned long long seed)
{
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x) {
        unsigned c0 = (unsigned)i, c1 = (unsigned)(i >> 32), c2 = 0, c3 = 0;
        unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
            unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
            c0 = h1 ^ c1 ^ k0;
            c1 = l1;
            c2 = h0 ^ c3 ^ k1;
            c3 = l0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        bool keep = (float)(c0 >> 8) * 0x1p-24f >= p;
        mask[i] = keep;
        y[i] = keep ? x[i] / (1.0f - p) : 0.0f;
    }
}
}
