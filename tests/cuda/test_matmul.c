/* Matrix products on the device against loops in double: transposes, batches and their
 * broadcasting, bias, alpha, thin and empty shapes. Twice, at other addresses: the same bits. */
#include "on_device.h"

#include "dtrt_kernels.h"
#include "test.h"

typedef struct {
    const char *name;
    int nbatch;
    int64_t a[6], b[6], m, n, k;
} Row;

static const Row rows[] = {
    {"plain", 0, {0}, {0}, 17, 33, 20},
    {"row vector", 0, {0}, {0}, 1, 40, 50},
    {"column", 0, {0}, {0}, 30, 1, 50},
    {"dot", 0, {0}, {0}, 1, 1, 70},
    {"outer product", 0, {0}, {0}, 9, 12, 1},
    {"long k", 0, {0}, {0}, 4, 5, 3000},
    {"batch", 1, {6}, {6}, 10, 12, 8},
    {"batch of A", 1, {6}, {1}, 10, 12, 8},
    {"batch of B", 1, {1}, {6}, 10, 12, 8},
    {"heads", 2, {2, 3}, {2, 3}, 16, 16, 24},
    {"heads over one", 2, {2, 3}, {1, 1}, 7, 9, 11},
    {"crossed", 2, {2, 1}, {1, 3}, 7, 9, 11},
    {"middle", 3, {2, 1, 3}, {2, 4, 3}, 5, 6, 7},
    {"six", 6, {1, 2, 1, 2, 1, 2}, {2, 1, 1, 2, 2, 1}, 3, 4, 5},
    {"sum of nothing", 1, {3}, {3}, 4, 5, 0},
    {"no rows", 1, {3}, {1}, 0, 5, 6},
    {"no columns", 0, {0}, {0}, 4, 0, 6},
    {"no batch", 2, {2, 0}, {2, 0}, 4, 5, 6},
};

static int64_t product(const int64_t *d, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

/* Matrix number of result batch q in an operand with axes d (1: broadcast). */
static int64_t matrix_at(const Row *r, const int64_t *d, int64_t q) {
    int64_t at = 0, stride = 1;
    for (int i = r->nbatch; i-- > 0;) {
        int64_t y = r->a[i] > r->b[i] ? r->a[i] : r->b[i];
        at += d[i] == 1 ? 0 : q % y * stride;
        stride *= d[i];
        q /= y;
    }
    return at;
}

static float *random_floats(int64_t n) {
    static uint32_t seed = 12345;
    float *f = malloc((size_t)n * sizeof *f + 1);
    if (!f) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        f[i] = (float)(int32_t)(seed >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
    }
    return f;
}

static void run(const DtrtMatmul *p, const float *a, int64_t na, const float *b, int64_t nb,
                const float *bias, float *y, int64_t ny) {
    uint64_t workspace = dtrt_matmul_workspace(p);
    void *da = device_put(a, (uint64_t)na * 4), *db = device_put(b, (uint64_t)nb * 4);
    void *dbias = device_put(bias, (uint64_t)p->n * 4), *ws = device_room(workspace);
    void *dy = device_room((uint64_t)ny * 4);
    dtrt_matmul(p, da, db, p->bias ? dbias : NULL, dy, ws);
    device_get(y, dy, (uint64_t)ny * 4);
    void *all[] = {da, db, dbias, ws, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_drop(all[i]);
}

/* Result q of the whole batch, in double; size: the sum of what was added, without signs. */
static double result(const Row *r, const DtrtMatmul *p, const float *a, const float *b,
                     const float *bias, int64_t q, double *size) {
    int64_t mn = r->m * r->n, i = q % mn / r->n, j = q % r->n;
    const float *ma = a + matrix_at(r, r->a, q / mn) * r->m * r->k;
    const float *mb = b + matrix_at(r, r->b, q / mn) * r->k * r->n;
    double sum = 0.0, add = p->bias ? (double)bias[j] : 0.0;
    *size = fabs(add);
    for (int64_t k = 0; k < r->k; k++) {
        double va = (double)(p->trans_a ? ma[k * r->m + i] : ma[i * r->k + k]);
        double v =
            (double)p->alpha * va * (double)(p->trans_b ? mb[j * r->k + k] : mb[k * r->n + j]);
        sum += v;
        *size += fabs(v);
    }
    return sum + add;
}

static void check_row(const Row *r, int trans, int bias, float alpha) {
    DtrtMatmul p = {.nbatch = r->nbatch,
                    .trans_a = trans & 1,
                    .trans_b = trans >> 1,
                    .bias = bias,
                    .alpha = alpha,
                    .m = r->m,
                    .n = r->n,
                    .k = r->k};
    int64_t ny = r->m * r->n, na = product(r->a, r->nbatch) * r->m * r->k;
    int64_t nb = product(r->b, r->nbatch) * r->k * r->n;
    for (int i = 0; i < r->nbatch; i++) {
        p.batch_a[i] = r->a[i];
        p.batch_b[i] = r->b[i];
        ny *= r->a[i] == 1 ? r->b[i] : r->a[i];
    }
    CHECK(dtrt_matmul_init(&p, 1));
    float *a = random_floats(na), *b = random_floats(nb), *c = random_floats(r->n);
    float *y = malloc((size_t)ny * 4 + 1), *again = malloc((size_t)ny * 4 + 1);
    if (!y || !again) abort();
    run(&p, a, na, b, nb, c, y, ny);
    void *gap = device_room(1 << 20);
    run(&p, a, na, b, nb, c, again, ny);
    device_drop(gap);
    double off = 0.0; /* a sum of k products in f32 is off by k roundings of its size at most */
    for (int64_t q = 0; q < ny; q++) {
        double size, want = result(r, &p, a, b, c, q, &size), d = fabs((double)y[q] - want);
        if (!(d <= off * size)) off = isnan(d) ? INFINITY : d / size;
    }
    CHECK(off <= 1e-6);
    CHECK(!memcmp(y, again, (size_t)ny * 4));
    if (!(off <= 1e-6))
        fprintf(stderr, "   %s, trans %d, bias %d, alpha %g: off by %g\n", r->name, trans, bias,
                (double)alpha, off);
    dtrt_matmul_free(&p);
    void *all[] = {a, b, c, y, again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

int main(int argc, char **argv) {
    static const char *const kernels[] = {"bias", NULL};
    if (argc < 2 || !device_open(argv[1], kernels, false)) return 77;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int trans = 0; trans < 4; trans++) {
            check_row(&rows[i], trans, 0, 1.0f);
            check_row(&rows[i], trans, 1, 1.0f);
            check_row(&rows[i], trans, trans & 1, -2.5f);
        }
    }
    device_close();
    return test_end();
}
