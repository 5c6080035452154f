// One kernel a function of the C library, single and double.
#define SINGLE(name, value)                                                                                            \
    extern "C" __global__ void f_##name(const float *in, float *out, int n)                                            \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i < n) {                                                                                                   \
            float x = in[i];                                                                                           \
            out[i] = value;                                                                                            \
        }                                                                                                              \
    }
#define DOUBLE(name, value)                                                                                            \
    extern "C" __global__ void d_##name(const double *in, double *out, int n)                                          \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i < n) {                                                                                                   \
            double x = in[i];                                                                                          \
            out[i] = value;                                                                                            \
        }                                                                                                              \
    }
SINGLE(exp, expf(x))
SINGLE(log, logf(x))
SINGLE(tanh, tanhf(x))
SINGLE(sqrt, sqrtf(x))
SINGLE(rsqrt, rsqrtf(x))
SINGLE(erf, erff(x))
SINGLE(sin, sinf(x))
SINGLE(cos, cosf(x))
SINGLE(log1p, log1pf(x))
SINGLE(expm1, expm1f(x))
SINGLE(pow, powf(x, 1.7f))
SINGLE(divide, 1.0f / (x + 3.0f))
SINGLE(sigmoid, 1.0f / (1.0f + expf(-x)))
SINGLE(floor, floorf(x))
SINGLE(round, roundf(x))
SINGLE(rint, rintf(x))
SINGLE(fmod, fmodf(x, 1.3f))
SINGLE(atan, atanf(x))
SINGLE(sinh, sinhf(x))
SINGLE(cbrt, cbrtf(x))
SINGLE(exp2, exp2f(x))
SINGLE(log2, log2f(x))
SINGLE(lgamma, lgammaf(x))
SINGLE(erfc, erfcf(x))
DOUBLE(exp, exp(x))
DOUBLE(log, log(x))
DOUBLE(tanh, tanh(x))
DOUBLE(sqrt, sqrt(x))
DOUBLE(rsqrt, rsqrt(x))
DOUBLE(erf, erf(x))
DOUBLE(sin, sin(x))
DOUBLE(cos, cos(x))
DOUBLE(log1p, log1p(x))
DOUBLE(expm1, expm1(x))
DOUBLE(pow, pow(x, 1.7))
DOUBLE(divide, 1.0 / (x + 3.0))
