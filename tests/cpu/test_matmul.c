/* Matrix products against loops in double: transposes, batches and their broadcasting, bias, alpha,
 * thin shapes. Twice, at other addresses: the same bits. */
#include "cpu_test.h"

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

static void check_row(const Row *r, int trans, int bias, float alpha) {
    DtrtMatmul p = {.nbatch = r->nbatch,
                    .trans_a = trans & 1,
                    .trans_b = trans >> 1,
                    .bias = bias,
                    .alpha = alpha,
                    .m = r->m,
                    .n = r->n,
                    .k = r->k};
    int64_t ny = 1, na = product(r->a, r->nbatch), nb = product(r->b, r->nbatch), mn = r->m * r->n;
    uint64_t need;
    char err[200], name[80];
    snprintf(name, sizeof name, "%s, trans %d, bias %d, alpha %g", r->name, trans, bias,
             (double)alpha);
    for (int i = 0; i < r->nbatch; i++) {
        p.batch_a[i] = r->a[i];
        p.batch_b[i] = r->b[i];
        ny *= r->a[i] > r->b[i] ? r->a[i] : r->b[i];
    }
    CHECK(dtrt_matmul_needs(&p, 2, &need, err, sizeof err) && dtrt_matmul_init(&p, 2));
    Buf a = buf_random(na * r->m * r->k, 0), b = buf_random(nb * r->k * r->n, 0);
    Buf c = buf_random(r->n, 0), a2 = buf_copy(&a, 1), b2 = buf_copy(&b, 1);
    Buf y = buf_new((size_t)(ny * mn) * 4, 0), y2 = buf_new(y.n, 1);
    Buf ws = buf_new(need, 0), ws2 = buf_new(need, 1);
    double *want = calloc((size_t)(ny * mn), sizeof *want);
    for (int64_t q = 0; q < ny * mn; q++) {
        const float *ma = buf_f(&a) + matrix_at(r, r->a, q / mn) * r->m * r->k;
        const float *mb = buf_f(&b) + matrix_at(r, r->b, q / mn) * r->k * r->n;
        int64_t i = q % mn / r->n, j = q % r->n;
        for (int64_t k = 0; k < r->k; k++) {
            double va = (double)(p.trans_a ? ma[k * r->m + i] : ma[i * r->k + k]);
            want[q] += va * (double)(p.trans_b ? mb[j * r->k + k] : mb[k * r->n + j]);
        }
        want[q] = (double)alpha * want[q] + (bias ? (double)buf_f(&c)[j] : 0.0);
    }
    dtrt_matmul(&p, buf_f(&a), buf_f(&b), bias ? buf_f(&c) : NULL, buf_f(&y), need ? ws.at : NULL);
    dtrt_matmul(&p, buf_f(&a2), buf_f(&b2), bias ? buf_f(&c) : NULL, buf_f(&y2), ws2.at);
    CHECK_CLOSE(name, buf_f(&y), want, ny * mn, 2e-6);
    CHECK_SAME(name, y, y2);
    Buf *all[] = {&a, &b, &c, &a2, &b2, &y, &y2, &ws, &ws2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(want);
    dtrt_matmul_free(&p);
}

int main(void) {
    omp_set_num_threads(2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int trans = 0; trans < 4; trans++) {
            check_row(&rows[i], trans, 0, 1.0f);
            check_row(&rows[i], trans, 1, 1.0f);
            check_row(&rows[i], trans, 0, 0.125f);
            check_row(&rows[i], trans, 1, -2.5f);
        }
    }
    return test_end();
}
