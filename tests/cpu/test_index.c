/* Gathering and scattering by indices, and TopK, against loops over coordinates; the distribution
 * of random numbers. */
#include "cpu_test.h"

enum { MAX = 8 };

static int64_t product(const int64_t *d, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

static Buf indices(int64_t n, int64_t below, int i32, int odd) {
    Buf b = buf_new((size_t)n * (i32 ? 4 : 8), odd);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = (int64_t)floorf(cpu_random() * (float)below);
        if (i32)
            ((int32_t *)(void *)b.at)[i] = (int32_t)v;
        else
            ((int64_t *)(void *)b.at)[i] = v;
    }
    return b;
}

static int64_t index_of(const Buf *b, int i32, int64_t i, int64_t n) {
    int64_t v = i32 ? ((int32_t *)(void *)b->at)[i] : ((int64_t *)(void *)b->at)[i];
    return v < 0 ? v + n : v;
}

static double combine(DtrtScatter how, double a, double b) {
    switch (how) {
    case DTRT_SCATTER_ADD: return a + b;
    case DTRT_SCATTER_MUL: return a * b;
    case DTRT_SCATTER_MAX: return a > b ? a : b;
    case DTRT_SCATTER_MIN: return a < b ? a : b;
    default: return b;
    }
}

/* ---- elements ---- */

static int64_t place(const DtrtElements *q, const Buf *idx, int64_t i) {
    int64_t at = 0, stride = 1, rest = i;
    for (int k = q->nd; k-- > 0;) {
        int64_t pos = rest % q->idim[k];
        rest /= q->idim[k];
        if (k == q->axis) pos = index_of(idx, q->idx_i32, i, q->dim[k]);
        at += pos * stride;
        stride *= q->dim[k];
    }
    return at;
}

static void check_elements(DtrtElements q) {
    int64_t n = product(q.dim, q.nd), m = product(q.idim, q.nd);
    Buf data = buf_random(n, 0), up = buf_random(m, 1),
        idx = indices(m, q.dim[q.axis], q.idx_i32, 1);
    Buf y = buf_new((size_t)m * 4, 0), y2 = buf_new((size_t)m * 4, 1);
    Buf z = buf_new((size_t)n * 4, 1), z2 = buf_new((size_t)n * 4, 0);
    double *want = calloc((size_t)(n + m), sizeof *want);
    for (int64_t i = 0; i < m; i++) want[i] = (double)buf_f(&data)[place(&q, &idx, i)];
    dtrt_gather_elements(NULL, &q, data.at, idx.at, y.at);
    OTHER_THREADS(dtrt_gather_elements(NULL, &q, data.at, idx.at, y2.at));
    CHECK_CLOSE("gather elements", buf_f(&y), want, m, 0);
    CHECK_SAME("gather elements", y, y2);
    for (DtrtScatter how = DTRT_SCATTER_SET; how <= DTRT_SCATTER_MIN; how++) {
        q.how = how;
        for (int64_t i = 0; i < n; i++)
            want[i] = how == DTRT_SCATTER_ADD ? 0 : (double)buf_f(&data)[i];
        for (int64_t i = 0; i < m; i++) {
            double *w = &want[place(&q, &idx, i)];
            *w = (double)(float)combine(how, *w, (double)buf_f(&up)[i]);
        }
        const void *from = how == DTRT_SCATTER_ADD ? NULL : data.at;
        dtrt_scatter_elements(NULL, &q, from, idx.at, up.at, z.at);
        if (from) memcpy(z2.at, from, z2.n); /* in place */
        OTHER_THREADS(dtrt_scatter_elements(NULL, &q, from ? z2.at : NULL, idx.at, up.at, z2.at));
        CHECK_CLOSE("scatter elements", buf_f(&z), want, n, 0);
        CHECK_SAME("scatter elements", z, z2);
    }
    free(want);
    Buf *all[] = {&data, &up, &idx, &y, &y2, &z, &z2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

/* ---- tuples ---- */

static int64_t slice(const DtrtTuples *q, const Buf *idx, int64_t t) {
    int64_t at = t / q->count;
    for (int k = 0; k < q->k; k++)
        at = at * q->dim[k] + index_of(idx, q->idx_i32, t * q->k + k, q->dim[k]);
    return at * q->inner;
}

static void check_tuples(DtrtTuples q) {
    int64_t n = q.batch * product(q.dim, q.k) * q.inner, m = q.batch * q.count, least = q.dim[0];
    for (int k = 1; k < q.k; k++) least = q.dim[k] < least ? q.dim[k] : least;
    Buf data = buf_random(n, 1), up = buf_random(m * q.inner, 0);
    Buf idx = indices(m * q.k, least, q.idx_i32, 0), y = buf_new(up.n, 1), y2 = buf_new(up.n, 0);
    Buf z = buf_new(data.n, 0), z2 = buf_new(data.n, 1);
    double *want = calloc((size_t)(n + m * q.inner), sizeof *want);
    for (int64_t i = 0; i < m * q.inner; i++)
        want[i] = (double)buf_f(&data)[slice(&q, &idx, i / q.inner) + i % q.inner];
    dtrt_gather_nd(NULL, &q, data.at, idx.at, y.at);
    OTHER_THREADS(dtrt_gather_nd(NULL, &q, data.at, idx.at, y2.at));
    CHECK_CLOSE("gather nd", buf_f(&y), want, m * q.inner, 0);
    CHECK_SAME("gather nd", y, y2);
    for (DtrtScatter how = DTRT_SCATTER_SET; how <= DTRT_SCATTER_MIN; how++) {
        q.how = how;
        for (int64_t i = 0; i < n; i++)
            want[i] = how == DTRT_SCATTER_ADD ? 0 : (double)buf_f(&data)[i];
        for (int64_t i = 0; i < m * q.inner; i++) {
            double *w = &want[slice(&q, &idx, i / q.inner) + i % q.inner];
            *w = (double)(float)combine(how, *w, (double)buf_f(&up)[i]);
        }
        const void *from = how == DTRT_SCATTER_ADD ? NULL : data.at;
        dtrt_scatter_nd(NULL, &q, from, idx.at, up.at, z.at);
        OTHER_THREADS(dtrt_scatter_nd(NULL, &q, from, idx.at, up.at, z2.at));
        CHECK_CLOSE("scatter nd", buf_f(&z), want, n, 0);
        CHECK_SAME("scatter nd", z, z2);
    }
    free(want);
    Buf *all[] = {&data, &up, &idx, &y, &y2, &z, &z2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

static void check_bad_index(void) {
    float data[6] = {0}, y[6];
    int64_t idx[] = {0, 3, -4};
    DtrtElements e = {.nd = 1, .elem = 4, .dim = {3}, .idim = {3}};
    DtrtTuples t = {.k = 1, .elem = 4, .batch = 1, .count = 3, .inner = 2, .dim = {3}};
    volatile int failures = 0;
    if (setjmp(cpu_failed))
        failures++;
    else
        dtrt_gather_elements(NULL, &e, data, idx, y);
    CHECK_STR(cpu_message, "index 3 at position 1: expected -3 to 2");
    idx[1] = 2;
    if (setjmp(cpu_failed))
        CHECK_STR(cpu_message, "index -4 at position 2: expected -3 to 2");
    else
        dtrt_scatter_nd(NULL, &t, NULL, idx, data, y);
    CHECK_EQ(failures, 1);
}

/* ---- TopK ---- */

/* Every value must have as many before it as its place says. */
static void check_topk(int64_t outer, int64_t n, int64_t inner, int64_t k, int largest) {
    Buf x = buf_random(outer * n * inner, 0), v = buf_new((size_t)(outer * k * inner) * 4, 1);
    Buf at = buf_new(2 * v.n, 0), v2 = buf_new(v.n, 0), at2 = buf_new(at.n, 1);
    for (int64_t i = 0; i < outer * n * inner; i++)
        buf_f(&x)[i] = i % 97 == 5 ? NAN : floorf(buf_f(&x)[i] * 8); /* ties */
    dtrt_topk(buf_f(&x), buf_f(&v), (int64_t *)(void *)at.at, outer, n, inner, k, largest);
    OTHER_THREADS(
        dtrt_topk(buf_f(&x), buf_f(&v2), (int64_t *)(void *)at2.at, outer, n, inner, k, largest));
    CHECK_SAME("topk", v, v2);
    CHECK_SAME("topk", at, at2);
    int64_t bad = 0;
    for (int64_t l = 0; l < outer * inner; l++) {
        const float *line = buf_f(&x) + l / inner * n * inner + l % inner;
        for (int64_t r = 0; r < k; r++) {
            int64_t to = (l / inner * k + r) * inner + l % inner, before = 0;
            int64_t i = ((int64_t *)(void *)at.at)[to];
            float mine = line[i * inner];
            bad += memcmp(&buf_f(&v)[to], &mine, 4) != 0;
            for (int64_t j = 0; j < n; j++) {
                float o = line[j * inner];
                int better = largest ? o > mine : o < mine;
                if (isnan(o) != isnan(mine)) better = isnan(o) ? largest : !largest;
                before += better || ((o == mine || (isnan(o) && isnan(mine))) && j < i);
            }
            bad += before != r;
        }
    }
    CHECK_EQ(bad, 0);
    Buf *all[] = {&x, &v, &at, &v2, &at2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

/* ---- random numbers ---- */

/* 100,000 numbers: the mean of n is off by 1/sqrt(n) of a deviation, the variance by sqrt(2/n);
 * bounds are five times that. Two keys are not correlated; one key gives the same again. */
static void check_random(int normal) {
    enum { N = 100000 };
    DtrtCtx c = {.seed = 11, .step = 3};
    Buf a = buf_new(N * 4, 0), b = buf_new(N * 4, 1), a2 = buf_new(N * 4, 1);
    double sum = 0, square = 0, product = 0;
    dtrt_random_fill(&c, buf_f(&a), N, 5, normal, 2, 1);
    dtrt_random_fill(&c, buf_f(&b), N, 6, normal, 2, 1);
    OTHER_THREADS(dtrt_random_fill(&c, buf_f(&a2), N, 5, normal, 2, 1));
    CHECK_SAME("random", a, a2);
    double mean = normal ? 1 : 2, deviation = normal ? 2 : 2 / sqrt(12.0);
    for (int i = 0; i < N; i++) {
        double x = ((double)buf_f(&a)[i] - mean) / deviation;
        sum += x;
        square += x * x;
        product += x * ((double)buf_f(&b)[i] - mean) / deviation;
        if (!normal) CHECK(buf_f(&a)[i] >= 1 && buf_f(&a)[i] < 3);
    }
    CHECK(fabs(sum / N) < 5 / sqrt((double)N));
    CHECK(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    CHECK(fabs(product / N) < 5 / sqrt((double)N));
    buf_free(&a);
    buf_free(&b);
    buf_free(&a2);
}

int main(void) {
    omp_set_num_threads(2);
    check_elements((DtrtElements){.nd = 1, .elem = 4, .dim = {7}, .idim = {40}});
    check_elements((DtrtElements){
        .nd = 3, .axis = 1, .idx_i32 = 1, .elem = 4, .dim = {4, 9, 3}, .idim = {3, 5, 2}});
    check_elements(
        (DtrtElements){.nd = 2, .axis = 0, .elem = 4, .dim = {50, 300}, .idim = {70, 299}});
    check_tuples(
        (DtrtTuples){.k = 1, .elem = 4, .batch = 1, .count = 50, .inner = 700, .dim = {20}});
    check_tuples((DtrtTuples){
        .k = 2, .idx_i32 = 1, .elem = 4, .batch = 3, .count = 11, .inner = 5, .dim = {4, 6}});
    check_tuples(
        (DtrtTuples){.k = 3, .elem = 4, .batch = 9, .count = 400, .inner = 1, .dim = {3, 2, 5}});
    check_bad_index();
    for (int largest = 0; largest < 2; largest++) {
        check_topk(3, 50, 4, 7, largest);
        check_topk(1, 400, 1, 400, largest);
        check_topk(200, 120, 1, 1, largest);
        check_topk(2, 5, 3, 0, largest);
    }
    check_random(0);
    check_random(1);
    return test_end();
}
