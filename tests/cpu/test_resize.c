/* Interpolation against numbers worked out by hand, and its gradient against the transposed map:
 * <dY, resize(X)> = <resize_grad(dY), X> for all X and dY when nothing is extrapolated. */
#include "cpu_test.h"

static void check_values(const char *what, DtrtResize r, const float *x, const double *want) {
    int64_t n = 1;
    for (int k = 0; k < r.nd; k++) n *= r.out[k];
    Buf y = buf_new((size_t)n * 4, 1);
    CHECK(dtrt_resize_init(&r, 2));
    dtrt_resize(&r, x, buf_f(&y));
    CHECK_CLOSE(what, buf_f(&y), want, n, 1e-6);
    dtrt_resize_free(&r);
    buf_free(&y);
}

static void check_by_hand(void) {
    const float x[] = {1, 2, 3, 4}, ten[] = {0, 10};
    /* places -0.25 0.25 0.75 1.25 of 0 10 */
    check_values("half pixel",
                 (DtrtResize){.nd = 1, .mode = 1, .in = {2}, .out = {4}, .scale = {2}}, ten,
                 (double[]){0, 2.5, 7.5, 10});
    /* places 0 1/3 2/3 1 */
    check_values("align corners",
                 (DtrtResize){.nd = 1, .mode = 1, .coord = 2, .in = {2}, .out = {4}, .scale = {2}},
                 ten, (double[]){0, 10.0 / 3, 20.0 / 3, 10});
    /* places 0 0.5 1 1.5: below, the nearer with halves up */
    check_values(
        "nearest",
        (DtrtResize){.nd = 1, .coord = 1, .rounding = 2, .in = {2}, .out = {4}, .scale = {2}}, ten,
        (double[]){0, 0, 10, 10});
    check_values(
        "nearest up",
        (DtrtResize){.nd = 1, .coord = 1, .rounding = 1, .in = {2}, .out = {4}, .scale = {2}}, ten,
        (double[]){0, 10, 10, 10});
    /* columns 1.5 and 3.5 in between, rows likewise: 2x2 to 1x2 */
    check_values("two axes",
                 (DtrtResize){.nd = 2, .mode = 1, .in = {2, 2}, .out = {1, 2}, .scale = {0.5, 1}},
                 x, (double[]){2, 3});
    /* place 1.5: -1/16 9/16 9/16 -1/16 with a = -1/2 */
    check_values(
        "cubic",
        (DtrtResize){.nd = 1, .mode = 2, .cubic = -0.5, .in = {4}, .out = {1}, .scale = {0.25}}, x,
        (double[]){2.5});
    /* the region from 0.5 to 1.5 of 0..1: 5, then outside */
    check_values("crop",
                 (DtrtResize){.nd = 1,
                              .mode = 1,
                              .coord = 5,
                              .value = -1,
                              .in = {2},
                              .out = {2},
                              .scale = {1},
                              .first = {0.5},
                              .last = {1.5}},
                 ten, (double[]){5, -1});
    /* halved with a triangle of half-width 2 at places 0.5 and 2.5: weights 1/8 3/8 3/8 1/8, of
     * which the edge takes those beyond it: (4*1 + 3*2 + 1*3)/8, (1*2 + 3*3 + 4*4)/8 */
    check_values(
        "antialias",
        (DtrtResize){.nd = 1, .mode = 1, .antialias = 1, .in = {4}, .out = {2}, .scale = {0.5}}, x,
        (double[]){13.0 / 8, 27.0 / 8});
}

static void check_transposed(DtrtResize r) {
    DtrtResize b = r;
    int64_t n = 1, m = 1;
    for (int k = 0; k < r.nd; k++) n *= r.in[k], m *= r.out[k];
    b.grad = 1;
    CHECK(dtrt_resize_init(&r, 2) && dtrt_resize_init(&b, 2));
    Buf x = buf_random(n, 0), dy = buf_random(m, 1), y = buf_new((size_t)m * 4, 0);
    Buf y2 = buf_new(y.n, 1), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    dtrt_resize(&r, buf_f(&x), buf_f(&y));
    dtrt_resize(&b, buf_f(&dy), buf_f(&dx));
    OTHER_THREADS(dtrt_resize(&r, buf_f(&x), buf_f(&y2)));
    OTHER_THREADS(dtrt_resize(&b, buf_f(&dy), buf_f(&dx2)));
    CHECK_SAME("resize", y, y2);
    CHECK_SAME("resize grad", dx, dx2);
    double left = 0, right = 0, size = 0;
    for (int64_t i = 0; i < m; i++) left += (double)buf_f(&dy)[i] * (double)buf_f(&y)[i];
    for (int64_t i = 0; i < n; i++) {
        right += (double)buf_f(&dx)[i] * (double)buf_f(&x)[i];
        size += fabs((double)buf_f(&dx)[i] * (double)buf_f(&x)[i]);
    }
    CHECK(fabs(left - right) <= 1e-6 * size);
    dtrt_resize_free(&r);
    dtrt_resize_free(&b);
    Buf *all[] = {&x, &dy, &y, &y2, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

int main(void) {
    omp_set_num_threads(2);
    check_by_hand();
    for (int mode = 0; mode < 3; mode++)
        for (int coord = 0; coord < 7; coord++) {
            DtrtResize r = {.nd = 4, .mode = mode, .coord = coord, .cubic = -0.75};
            DtrtResize nchw = r, nhwc = r, deep = r, down = r;
            static const int64_t in[][4] = {
                {2, 3, 20, 33}, {1, 20, 33, 70}, {3, 4, 5, 6}, {1, 2, 40, 37}};
            static const int64_t out[][4] = {
                {2, 3, 40, 99}, {1, 30, 40, 70}, {4, 8, 5, 3}, {1, 2, 9, 11}};
            DtrtResize *const all[] = {&nchw, &nhwc, &deep, &down};
            for (int i = 0; i < 4; i++) {
                for (int k = 0; k < 4; k++) {
                    all[i]->in[k] = in[i][k];
                    all[i]->out[k] = out[i][k];
                    all[i]->scale[k] = (double)out[i][k] / (double)in[i][k];
                    all[i]->last[k] = 0.9;
                    all[i]->exclude = i & 1;
                    all[i]->antialias = i == 3;
                }
                check_transposed(*all[i]);
            }
        }
    check_transposed((DtrtResize){.nd = 2, .in = {3, 4}, .out = {3, 4}, .scale = {1, 1}});
    return test_end();
}
