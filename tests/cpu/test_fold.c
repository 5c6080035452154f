/* Extremes, products, log-sum-exp over axes, their gradients where the runtime has one, running
 * sums and positions of extremes, against loops over coordinates in double. */
#include "cpu_test.h"

enum { MAX = 8 };

static int64_t product(const int64_t *d, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

/* Result that element i of x belongs to. */
static int64_t result_of(int nd, const int64_t *dim, const uint8_t *red, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int k = nd; k-- > 0;) {
        int64_t pos = i % dim[k];
        i /= dim[k];
        if (red[k]) continue;
        at += pos * stride;
        stride *= dim[k];
    }
    return at;
}

static double reference(DtrtFold kind, const float *x, int nd, const int64_t *dim,
                        const uint8_t *red, int64_t o) {
    double max = -INFINITY, min = INFINITY, prod = 1, sum = 0;
    for (int64_t i = 0; i < product(dim, nd); i++) {
        if (result_of(nd, dim, red, i) != o) continue;
        double v = (double)x[i];
        max = v > max ? v : max;
        min = v < min ? v : min;
        prod *= v;
        sum += exp(v);
    }
    return kind == DTRT_FOLD_MAX    ? max
           : kind == DTRT_FOLD_MIN  ? min
           : kind == DTRT_FOLD_PROD ? prod
                                    : log(sum);
}

static void check_fold(DtrtFold kind, int nd, const int64_t *dim, const uint8_t *red) {
    int64_t n = product(dim, nd), outs = 1;
    for (int k = 0; k < nd; k++) outs *= red[k] ? 1 : dim[k];
    Buf x = buf_random(n, 1), x2 = buf_copy(&x, 0), y = buf_new((size_t)outs * 4, 0),
        y2 = buf_new((size_t)outs * 4, 1);
    double *want = calloc((size_t)outs, sizeof *want);
    for (int64_t o = 0; o < outs; o++) want[o] = reference(kind, buf_f(&x), nd, dim, red, o);
    dtrt_fold(kind, buf_f(&x), buf_f(&y), nd, dim, red);
    OTHER_THREADS(dtrt_fold(kind, buf_f(&x2), buf_f(&y2), nd, dim, red));
    CHECK_CLOSE("fold", buf_f(&y), want, outs, 1e-6);
    CHECK_SAME("fold", y, y2);
    Buf *all[] = {&x, &x2, &y, &y2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(want);
}

/* zeros: how many elements of result 0 are zero */
static void check_prod_grad(int nd, const int64_t *dim, const uint8_t *red, int zeros) {
    int64_t n = product(dim, nd), outs = 1;
    for (int k = 0; k < nd; k++) outs *= red[k] ? 1 : dim[k];
    Buf x = buf_random(n, 0), dy = buf_random(outs, 1);
    for (int64_t i = 0; i < n && zeros; i++)
        if (!result_of(nd, dim, red, i)) buf_f(&x)[i] = 0, zeros--;
    Buf x2 = buf_copy(&x, 1), dx = buf_new(x.n, 1), dx2 = buf_new(x.n, 0);
    double *want = calloc((size_t)n, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        int64_t o = result_of(nd, dim, red, i);
        want[i] = (double)buf_f(&dy)[o];
        for (int64_t j = 0; j < n; j++)
            if (j != i && result_of(nd, dim, red, j) == o) want[i] *= (double)buf_f(&x)[j];
    }
    dtrt_prod_grad(buf_f(&dy), buf_f(&x), buf_f(&dx), nd, dim, red);
    OTHER_THREADS(dtrt_prod_grad(buf_f(&dy), buf_f(&x2), buf_f(&dx2), nd, dim, red));
    CHECK_CLOSE("prod grad", buf_f(&dx), want, n, 1e-6);
    CHECK_SAME("prod grad", dx, dx2);
    Buf *all[] = {&x, &x2, &dy, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(want);
}

static void check_folds(void) {
    static const int64_t image[] = {3, 5, 7, 70}, odd[] = {4, 1, 9, 3}, list[] = {40001};
    static const uint8_t last[] = {0, 0, 0, 1}, space[] = {0, 1, 1, 0}, both[] = {1, 0, 1, 0},
                         all[] = {1, 1, 1, 1}, none[] = {0, 0, 0, 0};
    const uint8_t *const red[] = {last, space, both, all, none};
    for (DtrtFold kind = DTRT_FOLD_MAX; kind <= DTRT_FOLD_LSE; kind++) {
        for (size_t i = 0; i < sizeof red / sizeof *red; i++) {
            check_fold(kind, 4, odd, red[i]);
            if (i < 2) check_fold(kind, 4, image, red[i]);
        }
        check_fold(kind, 1, list, all);
        check_fold(kind, 0, NULL, NULL);
    }
    for (int zeros = 0; zeros < 3; zeros++)
        for (size_t i = 0; i < sizeof red / sizeof *red; i++)
            check_prod_grad(4, odd, red[i], zeros);
}

static void check_special(void) {
    float x[] = {1, NAN, 3, 2, -INFINITY, -INFINITY}, y[3];
    static const int64_t dim[] = {3, 2};
    static const uint8_t red[] = {0, 1};
    dtrt_fold(DTRT_FOLD_MAX, x, y, 2, dim, red);
    CHECK(isnan(y[0]) && y[1] == 3 && isinf(y[2]));
    dtrt_fold(DTRT_FOLD_MIN, x, y, 2, dim, red);
    CHECK(isnan(y[0]) && y[1] == 2);
    dtrt_fold(DTRT_FOLD_LSE, x, y, 2, dim, red);
    CHECK(isnan(y[0]) && isinf(y[2]) && y[2] < 0);
    float big[] = {1000, 1000}; /* 1000 + log 2 */
    dtrt_fold(DTRT_FOLD_LSE, big, y, 1, dim + 1, red + 1);
    CHECK_NEAR((double)y[0], 1000.693147, 1e-4);
}

static void check_lines(int64_t outer, int64_t n, int64_t inner, int flags) {
    int64_t total = outer * n * inner;
    int exclusive = flags & 1, reverse = flags >> 1;
    Buf x = buf_random(total, 0), y = buf_new(x.n, 1), y2 = buf_new(x.n, 0);
    for (int64_t i = 0; i < total; i++) buf_f(&x)[i] = floorf(buf_f(&x)[i] * 4); /* ties */
    double *want = calloc((size_t)total, sizeof *want);
    for (int64_t i = 0; i < total; i++) {
        int64_t k = i / inner % n, start = i - k * inner;
        for (int64_t j = 0; j < n; j++)
            if ((reverse ? j > k : j < k) || (j == k && !exclusive))
                want[i] += (double)buf_f(&x)[start + j * inner];
    }
    dtrt_cumsum(buf_f(&x), buf_f(&y), outer, n, inner, exclusive, reverse);
    OTHER_THREADS(dtrt_cumsum(buf_f(&x), buf_f(&y2), outer, n, inner, exclusive, reverse));
    CHECK_CLOSE("cumsum", buf_f(&y), want, total, 1e-6);
    CHECK_SAME("cumsum", y, y2);
    int64_t *at = calloc((size_t)(outer * inner), sizeof *at), bad = 0;
    dtrt_arg(buf_f(&x), at, outer, n, inner, exclusive, reverse);
    for (int64_t o = 0; o < outer * inner; o++) {
        const float *line = buf_f(&x) + o / inner * n * inner + o % inner;
        for (int64_t j = 0; j < n; j++) {
            float v = line[j * inner], top = line[at[o] * inner];
            bad += exclusive ? v < top : v > top;
            bad += v == top && (reverse ? j > at[o] : j < at[o]);
        }
    }
    CHECK_EQ(bad, 0);
    free(at);
    free(want);
    Buf *all[] = {&x, &y, &y2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

int main(void) {
    omp_set_num_threads(2);
    check_folds();
    check_special();
    for (int flags = 0; flags < 4; flags++) {
        check_lines(3, 7, 130, flags);
        check_lines(1, 20000, 1, flags);
        check_lines(5, 1, 3, flags);
    }
    return test_end();
}
