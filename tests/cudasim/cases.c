/* cases.c - each kernel of kernels/ with inputs and the same computed in double (or with the same
 * integers). Tolerances: a few float roundings, and the size of the sum where one is made in
 * float. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(Arena *a, int n) {
    return ARENA_ARRAY(a, double, (size_t)n);
}

static int blocks(int n, int size) {
    return n ? (n + size - 1) / size : 1;
}

static void run_gelu(Bench *b, int n) {
    Arena *m = arena_new();
    int channels = 7;
    long long count = n;
    float *x = bench_floats(b, (size_t)n, -3, 3), *s = bench_floats(b, (size_t)n, -2, 2);
    float *bias = bench_floats(b, 7, -1, 1), *y = bench_output(b, (size_t)n * 4);
    bench_launch(b, "gelu_bias", D1(2), D1(96), 0, ARGS(&x, &s, &bias, &y, &count, &channels));
    double *want = doubles(m, n);
    for (int i = 0; i < n; i++) {
        double v = (double)x[i] * s[i] + bias[i % 7];
        want[i] = 0.5 * v * (1 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)));
    }
    bench_compare(b, "gelu_bias", y, want, (size_t)n, 1e-5, 1e-6);
    arena_free(m);
}

static void run_relu4(Bench *b, int n) {
    Arena *m = arena_new();
    long long count = n;
    float scale = 1.25f, *x = bench_floats(b, (size_t)n, -3, 3),
          *y = bench_output(b, (size_t)n * 4);
    bench_launch(b, "relu_scale4", D1(blocks(n, 256)), D1(64), 0, ARGS(&x, &y, &count, &scale));
    double *want = doubles(m, n);
    for (int i = 0; i < n; i++) want[i] = fmax(1.25 * x[i], 0);
    bench_compare(b, "relu_scale4", y, want, (size_t)n, 1e-6, 0);
    arena_free(m);
}

static void run_adamw(Bench *b, int n) {
    Arena *a = arena_new();
    long long count = n;
    float lr = 0.01f, beta1 = 0.9f, beta2 = 0.99f, eps = 1e-8f, decay = 0.1f, c1 = 0.19f,
          c2 = 0.0199f;
    float *g = bench_floats(b, (size_t)n, -1, 1), *p0 = bench_floats(b, (size_t)n, -1, 1);
    float *v0 = bench_floats(b, (size_t)n, 0, 1);
    float *p = bench_state(b, p0, (size_t)n * 4), *m = bench_state(b, g, (size_t)n * 4);
    float *v = bench_state(b, v0, (size_t)n * 4);
    double *want = doubles(a, n);
    for (int i = 0; i < n; i++) {
        double mi = (double)beta1 * m[i] + (1 - (double)beta1) * g[i];
        double vi = (double)beta2 * v[i] + (1 - (double)beta2) * g[i] * g[i];
        want[i] = p[i] - (double)lr * (mi / (double)c1 / (sqrt(vi / (double)c2) + (double)eps) +
                                       (double)decay * p[i]);
    }
    bench_launch(b, "adamw", D1(blocks(n, 128)), D1(128), 0,
                 ARGS(&p, &m, &v, &g, &count, &lr, &beta1, &beta2, &eps, &decay, &c1, &c2));
    bench_compare(b, "adamw", p, want, (size_t)n, 1e-6, 1e-7);
    arena_free(a);
}

/* Philox4x32-10, the first word; the known answer for zeros is checked by test_kernels.c. */
uint32_t philox(uint64_t counter, uint64_t key);
uint32_t philox(uint64_t counter, uint64_t key) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return c[0];
}

static void run_dropout(Bench *b, int n) {
    Arena *m = arena_new();
    long long count = n;
    float p = 0.3f, *x = bench_floats(b, (size_t)n, -1, 1), *y = bench_output(b, (size_t)n * 4);
    uint8_t *mask = bench_output(b, (size_t)n), *keep = arena_alloc(m, (size_t)n);
    unsigned long long seed = 0x123456789abcdefu;
    bench_launch(b, "dropout", D1(3), D1(32), 0, ARGS(&x, &y, &mask, &count, &p, &seed));
    double *want = doubles(m, n);
    for (int i = 0; i < n; i++) {
        keep[i] = (float)(philox((uint64_t)i, seed) >> 8) * 0x1p-24f >= p;
        want[i] = keep[i] ? x[i] / (1 - (double)p) : 0;
    }
    bench_compare(b, "dropout", y, want, (size_t)n, 1e-6, 0);
    bench_compare_ints(b, "mask", mask, keep, (size_t)n, 1);
    arena_free(m);
}

enum { ROWS = 3 };

static void run_softmax(Bench *b, int n) {
    Arena *m = arena_new();
    float *x = bench_floats(b, (size_t)n * ROWS, -5, 5), *y = bench_output(b, (size_t)n * ROWS * 4);
    bench_launch(b, "softmax", D1(ROWS), D1(256), 0, ARGS(&x, &y, &n));
    double *want = doubles(m, n * ROWS);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < n; c++) sum += exp((double)x[r * n + c]);
        for (int c = 0; c < n; c++) want[r * n + c] = exp((double)x[r * n + c]) / sum;
    }
    bench_compare(b, "softmax", y, want, (size_t)n * ROWS, 1e-5, 0);
    arena_free(m);
}

static void run_cross_entropy(Bench *b, int n) {
    Arena *m = arena_new();
    float *x = bench_floats(b, (size_t)n * ROWS, -5, 5),
          *dx = bench_output(b, (size_t)n * ROWS * 4);
    float *loss = bench_output(b, ROWS * 4), scale = 0.25f;
    long long target[ROWS] = {0, n - 1, n / 2}, *t = bench_input(b, target, sizeof target);
    bench_launch(b, "cross_entropy", D1(ROWS), D1(128), 0, ARGS(&x, &t, &loss, &dx, &n, &scale));
    double *want = doubles(m, n * ROWS), losses[ROWS];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int c = 0; c < n; c++) sum += exp((double)x[r * n + c]);
        losses[r] = log(sum) - (double)x[r * n + target[r]];
        for (int c = 0; c < n; c++)
            want[r * n + c] = (exp((double)x[r * n + c]) / sum - (c == target[r])) * 0.25;
    }
    bench_compare(b, "cross_entropy", dx, want, (size_t)n * ROWS, 1e-5, 1e-7);
    bench_compare(b, "loss", loss, losses, ROWS, 1e-5, 2e-6);
    arena_free(m);
}

static void row_moments(const float *x, int n, double *mean, double *rstd) {
    double sum = 0, square = 0;
    for (int c = 0; c < n; c++) sum += x[c];
    *mean = sum / n;
    for (int c = 0; c < n; c++) square += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1 / sqrt(square / n + 1e-5);
}

static void run_layernorm(Bench *b, int n) {
    Arena *m = arena_new();
    float *x = bench_floats(b, (size_t)n * ROWS, -1, 3), *gamma = bench_floats(b, (size_t)n, 0, 2);
    float *beta = bench_floats(b, (size_t)n, -1, 1), *y = bench_output(b, (size_t)n * ROWS * 4);
    float *mean = bench_output(b, ROWS * 4), *rstd = bench_output(b, ROWS * 4), eps = 1e-5f;
    bench_launch(b, "layernorm", D1(ROWS), D1(256), 0,
                 ARGS(&x, &gamma, &beta, &y, &mean, &rstd, &n, &eps));
    double *want = doubles(m, n * ROWS), means[ROWS], rstds[ROWS];
    for (int r = 0; r < ROWS; r++) {
        row_moments(x + r * n, n, &means[r], &rstds[r]);
        for (int c = 0; c < n; c++)
            want[r * n + c] = (x[r * n + c] - means[r]) * rstds[r] * gamma[c] + beta[c];
    }
    /* One column: x - mean is a rounding error, times 1 / sqrt(eps). */
    bench_compare(b, "layernorm", y, want, (size_t)n * ROWS, 1e-5, n == 1 ? 1e-4 : 4e-6);
    bench_compare(b, "mean", mean, means, ROWS, 1e-6, 1e-6);
    bench_compare(b, "rstd", rstd, rstds, ROWS, 1e-5, 0);
    arena_free(m);
}

static void run_layernorm_dx(Bench *b, int n) {
    Arena *m = arena_new();
    float *x = bench_floats(b, (size_t)n * ROWS, -1, 3),
          *dy = bench_floats(b, (size_t)n * ROWS, -1, 1);
    float *gamma = bench_floats(b, (size_t)n, 0, 2), *dx = bench_output(b, (size_t)n * ROWS * 4);
    float *mean = bench_floats(b, ROWS, 0.5, 1.5), *rstd = bench_floats(b, ROWS, 0.5, 1);
    bench_launch(b, "layernorm_dx", D1(ROWS), D1(256), 0,
                 ARGS(&dy, &x, &gamma, &mean, &rstd, &dx, &n));
    double *want = doubles(m, n * ROWS);
    for (int r = 0; r < ROWS; r++) {
        double s1 = 0, s2 = 0, mu = mean[r], rs = rstd[r];
        for (int c = 0; c < n; c++) {
            double d = (double)dy[r * n + c] * gamma[c];
            s1 += d, s2 += d * (x[r * n + c] - mu) * rs;
        }
        for (int c = 0; c < n; c++)
            want[r * n + c] = rs * ((double)dy[r * n + c] * gamma[c] - s1 / n -
                                    (x[r * n + c] - mu) * rs * s2 / n);
    }
    bench_compare(b, "layernorm_dx", dx, want, (size_t)n * ROWS, 1e-5, 3e-6);
    arena_free(m);
}

static void run_layernorm_dgamma(Bench *b, int n) {
    Arena *m = arena_new();
    int rows = 19;
    float *x = bench_floats(b, (size_t)(n * rows), -1, 3),
          *dy = bench_floats(b, (size_t)(n * rows), -1, 1);
    float *mean = bench_floats(b, 19, 0.5, 1.5), *rstd = bench_floats(b, 19, 0.5, 1);
    float *dgamma = bench_output(b, (size_t)n * 4);
    bench_launch(b, "layernorm_dgamma", D1(blocks(n, 32)), D2(32, 8), 0,
                 ARGS(&dy, &x, &mean, &rstd, &dgamma, &rows, &n));
    double *want = doubles(m, n);
    for (int c = 0; c < n; c++)
        for (int r = 0; r < rows; r++)
            want[c] += dy[r * n + c] * (x[r * n + c] - (double)mean[r]) * rstd[r];
    bench_compare(b, "layernorm_dgamma", dgamma, want, (size_t)n, 1e-5, 4e-6);
    arena_free(m);
}

static void run_transpose(Bench *b, int n) {
    Arena *m = arena_new();
    int rows = n, columns = 37;
    float *x = bench_floats(b, (size_t)(n * 37), -1, 1), *y = bench_output(b, (size_t)(n * 37) * 4);
    bench_launch(b, "transpose", D2(2, blocks(n, 32)), D2(32, 8), 0, ARGS(&x, &y, &rows, &columns));
    double *want = doubles(m, n * 37);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < 37; c++) want[c * n + r] = x[r * 37 + c];
    bench_compare(b, "transpose", y, want, (size_t)(n * 37), 0, 0);
    arena_free(m);
}

enum { TOKENS = 23, WORDS = 9 };

static void run_embed(Bench *b, int n) {
    Arena *m = arena_new();
    float *table = bench_floats(b, (size_t)(n * WORDS), -1, 1),
          *y = bench_output(b, (size_t)(n * TOKENS) * 4);
    int *token = bench_ints(b, TOKENS, WORDS);
    bench_launch(b, "embed", D1(TOKENS), D1(64), 0, ARGS(&table, &token, &y, &n));
    double *want = doubles(m, n * TOKENS);
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < n; c++) want[t * n + c] = table[token[t] * n + c];
    bench_compare(b, "embed", y, want, (size_t)(n * TOKENS), 0, 0);
    arena_free(m);
}

static void run_embed_gradient(Bench *b, int n) {
    Arena *m = arena_new();
    float *dy = bench_floats(b, (size_t)(n * TOKENS), -1, 1),
          *dtable = bench_state(b, NULL, (size_t)(n * WORDS) * 4);
    int *token = bench_ints(b, TOKENS, WORDS), tokens = TOKENS;
    bench_launch(b, "embed_gradient", D1(TOKENS), D1(64), 0,
                 ARGS(&dy, &token, &dtable, &tokens, &n));
    double *want = doubles(m, n * WORDS);
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < n; c++) want[token[t] * n + c] += dy[t * n + c];
    bench_compare(b, "embed_gradient", dtable, want, (size_t)(n * WORDS), 1e-6, 1e-6);
    arena_free(m);
}

/* The sums depend on the order of the blocks, so only their values are compared, not their bits. */
static void run_embed_scatter(Bench *b, int n) {
    Arena *m = arena_new();
    float *dy = bench_floats(b, (size_t)(n * TOKENS), -1, 1),
          *dtable = bench_state(b, NULL, (size_t)(n * WORDS) * 4);
    int *token = bench_ints(b, TOKENS, WORDS);
    bench_launch(b, "embed_scatter", D1(TOKENS), D1(64), 0, ARGS(&dy, &token, &dtable, &n));
    double *want = doubles(m, n * WORDS);
    for (int t = 0; t < TOKENS; t++)
        for (int c = 0; c < n; c++) want[token[t] * n + c] += dy[t * n + c];
    uint64_t hash = b->hash;
    bench_compare(b, "embed_scatter", dtable, want, (size_t)(n * WORDS), 1e-6, 1e-6);
    b->hash = hash;
    arena_free(m);
}

static void run_histogram(Bench *b, int n) {
    uint32_t want[64] = {0}, *bins = bench_state(b, NULL, sizeof want);
    int *x = bench_ints(b, (size_t)n, 1 << 30);
    bench_launch(b, "histogram", D1(3), D1(128), 0, ARGS(&x, &bins, &n));
    for (int i = 0; i < n; i++) want[x[i] & 63]++;
    bench_compare_ints(b, "histogram", bins, want, 64, 4);
}

static void run_sum_parts(Bench *b, int n) {
    long long count = n;
    float *x = bench_floats(b, (size_t)n, -1, 1);
    double *part = bench_output(b, 3 * sizeof *part), want[3] = {0};
    bench_launch(b, "sum_parts", D1(3), D1(64), 64 * sizeof(double), ARGS(&x, &part, &count));
    for (int i = 0; i < n; i++) want[i / 64 % 3] += x[i];
    float got[3];
    for (int i = 0; i < 3; i++) got[i] = (float)part[i];
    bench_compare(b, "sum_parts", got, want, 3, 1e-7, 1e-12);
}

static void run_row_facts(Bench *b, int n) {
    int rows = 5, best[5], where[5], positive[5];
    float *x = bench_floats(b, (size_t)(n * 5), -1, 1), *largest = bench_output(b, 20);
    int *at = bench_output(b, 20), *count = bench_output(b, 20);
    bench_launch(b, "row_facts", D1(2), D1(128), 0, ARGS(&x, &largest, &at, &count, &rows, &n));
    for (int r = 0; r < 5; r++) {
        where[r] = positive[r] = 0;
        for (int c = 0; c < n; c++) {
            if (x[r * n + c] > x[r * n + where[r]]) where[r] = c;
            positive[r] += x[r * n + c] > 0;
        }
        memcpy(&best[r], &x[r * n + where[r]], 4);
    }
    bench_compare_ints(b, "largest", largest, best, 5, 4);
    bench_compare_ints(b, "where", at, where, 5, 4);
    bench_compare_ints(b, "positive", count, positive, 5, 4);
}

static void run_product(Bench *b, int n) {
    Arena *m = arena_new();
    int rows = 21, inner = 19;
    float *x = bench_floats(b, 21 * 19, -1, 1), *y = bench_floats(b, (size_t)(19 * n), -1, 1);
    float *z = bench_output(b, (size_t)(21 * n) * 4);
    bench_launch(b, "product", D2(blocks(n, 16), 2), D2(16, 16), 0,
                 ARGS(&x, &y, &z, &rows, &n, &inner));
    double *want = doubles(m, 21 * n);
    for (int r = 0; r < 21; r++)
        for (int c = 0; c < n; c++)
            for (int k = 0; k < 19; k++) want[r * n + c] += (double)x[r * 19 + k] * y[k * n + c];
    bench_compare(b, "product", z, want, (size_t)(21 * n), 1e-6, 2e-6);
    arena_free(m);
}

const KernelCase kernel_cases[] = {
    {"gelu_bias", "elementwise.cu", run_gelu},
    {"relu_scale4", "elementwise.cu", run_relu4},
    {"adamw", "elementwise.cu", run_adamw},
    {"dropout", "elementwise.cu", run_dropout},
    {"softmax", "softmax.cu", run_softmax},
    {"cross_entropy", "softmax.cu", run_cross_entropy},
    {"layernorm", "layernorm.cu", run_layernorm},
    {"layernorm_dx", "layernorm.cu", run_layernorm_dx},
    {"layernorm_dgamma", "layernorm.cu", run_layernorm_dgamma},
    {"transpose", "move.cu", run_transpose},
    {"embed", "move.cu", run_embed},
    {"embed_gradient", "move.cu", run_embed_gradient},
    {"embed_scatter", "move.cu", run_embed_scatter},
    {"histogram", "move.cu", run_histogram},
    {"sum_parts", "reduce.cu", run_sum_parts},
    {"row_facts", "reduce.cu", run_row_facts},
    {"product", "reduce.cu", run_product},
};
const uint32_t nkernel_cases = sizeof kernel_cases / sizeof *kernel_cases;
