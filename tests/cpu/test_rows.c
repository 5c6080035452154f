/* Softmax, losses, layer norm, batch statistics and sums against loops in double. */
#include "cpu_test.h"
#include "dtrt_vecmath.h"

static const int64_t shapes[][3] = {{1, 2, 1},   {3, 10, 1},  {40, 1000, 1}, {5, 3, 7},
                                    {2, 10, 65}, {1, 2, 300}, {2, 17, 64},   {7, 33, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static double *doubles(const Buf *b) {
    double *d = malloc(b->n / 4 * sizeof *d);
    for (size_t i = 0; i < b->n / 4; i++) d[i] = (double)buf_f(b)[i];
    return d;
}

/* ---- softmax ---- */

static void check_softmax(const int64_t *s, int is_log) {
    int64_t total = s[0] * s[1] * s[2], n = s[1], inner = s[2];
    Buf x = buf_random(total, 0), dy = buf_random(total, 0);
    for (int64_t i = 0; i < total; i++) buf_f(&x)[i] *= 30.0f;
    double *y = doubles(&x), *dx = doubles(&dy);
    for (int64_t r = 0; r < s[0] * inner; r++) {
        double *v = y + r / inner * n * inner + r % inner, *d = dx + (v - y), top = v[0], sum = 0.0;
        double dot = 0.0;
        for (int64_t i = 1; i < n; i++) top = fmax(top, v[i * inner]);
        for (int64_t i = 0; i < n; i++) sum += exp(v[i * inner] - top);
        for (int64_t i = 0; i < n; i++) {
            v[i * inner] -= top + log(sum);
            if (!is_log) v[i * inner] = exp(v[i * inner]);
            dot += d[i * inner] * (is_log ? 1.0 : v[i * inner]);
        }
        for (int64_t i = 0; i < n; i++) {
            double a = v[i * inner], g = d[i * inner];
            d[i * inner] = is_log ? g - exp(a) * dot : a * (g - dot);
        }
    }
    Buf out = buf_new(x.n, 0), place = buf_copy(&x, 1), gx = buf_new(x.n, 1),
        gplace = buf_copy(&dy, 0);
    dtrt_softmax(buf_f(&x), buf_f(&out), s[0], n, inner, is_log);
    OTHER_THREADS(dtrt_softmax(buf_f(&place), buf_f(&place), s[0], n, inner, is_log));
    dtrt_softmax_grad(buf_f(&dy), buf_f(&out), buf_f(&gx), s[0], n, inner, is_log);
    OTHER_THREADS(
        dtrt_softmax_grad(buf_f(&gplace), buf_f(&out), buf_f(&gplace), s[0], n, inner, is_log));
    CHECK_CLOSE("softmax", buf_f(&out), y, total, 1e-6);
    CHECK_CLOSE("softmax gradient", buf_f(&gx), dx, total, 3e-6);
    CHECK_SAME("softmax in place", out, place);
    CHECK_SAME("softmax gradient in place", gx, gplace);
    Buf *all[] = {&x, &dy, &out, &place, &gx, &gplace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(y);
    free(dx);
}

/* ---- losses ---- */

static double loss_reference(const DtrtLoss *l, const float *x, const int64_t *t, double dloss,
                             double *dx) {
    int64_t n = l->n, inner = l->inner, count = 0;
    double loss = 0.0, e = (double)l->smoothing;
    for (int64_t r = 0; r < l->outer * inner; r++)
        count += !l->has_ignore || t[r] != l->ignore_index;
    for (int64_t r = 0; r < l->outer * inner; r++) {
        const float *v = x + r / inner * n * inner + r % inner;
        double *d = dx + (v - x), sum = 0.0, shift;
        for (int64_t i = 0; i < n; i++) sum += exp((double)v[i * inner]);
        shift = l->is_log ? 0.0 : log(sum);
        for (int64_t i = 0; i < n; i++) {
            double want = (i == t[r] ? 1.0 - e : 0.0) + e / (double)n;
            double lp = (double)v[i * inner] - shift;
            d[i * inner] = 0.0;
            if (l->has_ignore && t[r] == l->ignore_index) continue;
            loss -= want * lp / (double)count;
            d[i * inner] = dloss / (double)count * ((l->is_log ? 0.0 : exp(lp)) - want);
        }
    }
    return loss;
}

static void check_loss(const int64_t *s, int is_log, int i32, int ignore, float smoothing) {
    DtrtLoss l = {.outer = s[0],
                  .n = s[1],
                  .inner = s[2],
                  .label_i32 = i32,
                  .has_ignore = ignore,
                  .is_log = is_log,
                  .ignore_index = -100,
                  .smoothing = smoothing};
    DtrtCtx c = {0};
    int64_t total = s[0] * s[1] * s[2], places = s[0] * s[2];
    Buf x = buf_random(total, 0), x2 = buf_copy(&x, 1), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    Buf ws = buf_new(dtrt_loss_needs(&l, 2), 0), ws2 = buf_new(ws.n, 1);
    int64_t *t = malloc((size_t)places * 8);
    int32_t *t32 = malloc((size_t)places * 4);
    double *want = malloc((size_t)total * 8);
    float loss, loss2, dloss = 0.75f;
    for (int64_t i = 0; i < places; i++) {
        t[i] = ignore && i % 3 == 1 ? -100 : i * 7 % s[1];
        t32[i] = (int32_t)t[i];
    }
    double ref = loss_reference(&l, buf_f(&x), t, (double)dloss, want);
    const void *labels = i32 ? (const void *)t32 : t;
    dtrt_loss_forward(&c, &l, buf_f(&x), labels, &loss, ws.at);
    OTHER_THREADS(dtrt_loss_forward(&c, &l, buf_f(&x2), labels, &loss2, ws2.at));
    dtrt_loss_grad(&c, &l, &dloss, buf_f(&x), labels, buf_f(&dx), ws.at);
    OTHER_THREADS(dtrt_loss_grad(&c, &l, &dloss, buf_f(&x2), labels, buf_f(&dx2), ws2.at));
    CHECK_NEAR((double)loss, ref, 1e-6 * fmax(1.0, fabs(ref)));
    CHECK(!memcmp(&loss, &loss2, sizeof loss));
    CHECK_CLOSE("loss gradient", buf_f(&dx), want, total, 2e-6);
    CHECK_SAME("loss gradient", dx, dx2);
    Buf *all[] = {&x, &x2, &dx, &dx2, &ws, &ws2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(t);
    free(t32);
    free(want);
}

/* A label that is no class ends the run and says which; nothing but ignored labels gives NaN. */
static void check_labels(void) {
    DtrtLoss l = {.outer = 2, .n = 3, .inner = 1, .has_ignore = 1, .ignore_index = 5};
    DtrtCtx c = {0};
    float x[6] = {0}, loss;
    int64_t bad[2] = {1, 3}, none[2] = {5, 5};
    double ws[256];
    if (setjmp(cpu_failed) == 0) {
        dtrt_loss_forward(&c, &l, x, bad, &loss, ws);
        CHECK(0 && "label 3 of 3 classes was accepted");
    }
    CHECK_STR(cpu_message, "label 3 at position 1: expected 0 to 2");
    dtrt_loss_forward(&c, &l, x, none, &loss, ws);
    CHECK(isnan(loss));
}

/* ---- norms ---- */

static void check_layernorm(int64_t rows, int64_t n, int with_bias) {
    int64_t total = rows * n;
    Buf x = buf_random(total, 0), dy = buf_random(total, 0), scale = buf_random(n, 0),
        bias = buf_random(n, 0);
    Buf y = buf_new(x.n, 0), y2 = buf_new(x.n, 1), mean = buf_new((size_t)rows * 4, 0);
    Buf inv = buf_new((size_t)rows * 4, 0), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    double *wy = malloc((size_t)total * 8), *wx = malloc((size_t)total * 8);
    for (int64_t r = 0; r < rows; r++) {
        const float *v = buf_f(&x) + r * n, *g = buf_f(&dy) + r * n, *s = buf_f(&scale);
        double m = 0.0, q = 0.0, a = 0.0, b = 0.0;
        for (int64_t i = 0; i < n; i++) m += (double)v[i] / (double)n;
        for (int64_t i = 0; i < n; i++) q += pow((double)v[i] - m, 2.0) / (double)n;
        q = 1.0 / sqrt(q + 1e-5);
        for (int64_t i = 0; i < n; i++) {
            double hat = ((double)v[i] - m) * q, h = (double)g[i] * (double)s[i];
            wy[r * n + i] = hat * (double)s[i] + (with_bias ? (double)buf_f(&bias)[i] : 0.0);
            a += h / (double)n;
            b += h * hat / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            double hat = ((double)v[i] - m) * q;
            wx[r * n + i] = q * ((double)g[i] * (double)s[i] - a - hat * b);
        }
    }
    const float *bp = with_bias ? buf_f(&bias) : NULL;
    dtrt_layernorm(buf_f(&x), buf_f(&scale), bp, buf_f(&y), buf_f(&mean), buf_f(&inv), rows, n,
                   1e-5f);
    OTHER_THREADS(
        dtrt_layernorm(buf_f(&x), buf_f(&scale), bp, buf_f(&y2), NULL, NULL, rows, n, 1e-5f));
    dtrt_layernorm_grad_x(buf_f(&dy), buf_f(&x), buf_f(&scale), buf_f(&mean), buf_f(&inv),
                          buf_f(&dx), rows, n);
    dtrt_layernorm_grad_x(buf_f(&dy), buf_f(&x), buf_f(&scale), buf_f(&mean), buf_f(&inv),
                          buf_f(&dx2), rows, n);
    CHECK_CLOSE("layer norm", buf_f(&y), wy, total, 2e-6);
    CHECK_CLOSE("layer norm gradient", buf_f(&dx), wx, total, 3e-6);
    CHECK_SAME("layer norm", y, y2);
    CHECK_SAME("layer norm gradient", dx, dx2);
    Buf *all[] = {&x, &dy, &scale, &bias, &y, &y2, &mean, &inv, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(wy);
    free(wx);
}

/* Both orders of channels; element (b, k, i) of image b, channel k, place i. */
static void check_groupnorm(int64_t n, int64_t c, int64_t s, int64_t group, int last) {
    int64_t total = n * c * s, per = c / group;
    Buf x = buf_random(total, 0), dy = buf_random(total, 0), scale = buf_random(c, 0),
        bias = buf_random(c, 0);
    Buf y = buf_new(x.n, 0), y2 = buf_new(x.n, 1), mean = buf_new((size_t)(n * group) * 4, 0);
    Buf inv = buf_new(mean.n, 0), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    double *wy = malloc((size_t)total * 8), *wx = malloc((size_t)total * 8);
#define AT(j) ((last) ? (b * s + (j) % s) * c + g * per + (j) / s : (b * c + g * per) * s + (j))
    for (int64_t r = 0; r < n * group; r++) {
        int64_t b = r / group, g = r % group, size = per * s;
        double m = 0.0, q = 0.0, sum = 0.0, dot = 0.0;
        for (int64_t j = 0; j < size; j++) m += (double)buf_f(&x)[AT(j)] / (double)size;
        for (int64_t j = 0; j < size; j++)
            q += pow((double)buf_f(&x)[AT(j)] - m, 2.0) / (double)size;
        q = 1.0 / sqrt(q + 1e-5);
        for (int64_t j = 0; j < size; j++) {
            double hat = ((double)buf_f(&x)[AT(j)] - m) * q,
                   w = (double)buf_f(&scale)[g * per + j / s];
            double h = (double)buf_f(&dy)[AT(j)] * w;
            wy[AT(j)] = hat * w + (double)buf_f(&bias)[g * per + j / s];
            sum += h / (double)size;
            dot += h * hat / (double)size;
        }
        for (int64_t j = 0; j < size; j++) {
            double hat = ((double)buf_f(&x)[AT(j)] - m) * q,
                   w = (double)buf_f(&scale)[g * per + j / s];
            wx[AT(j)] = q * ((double)buf_f(&dy)[AT(j)] * w - sum - hat * dot);
        }
    }
#undef AT
    const float *px = buf_f(&x), *ps = buf_f(&scale), *pb = buf_f(&bias), *pd = buf_f(&dy);
    dtrt_groupnorm(px, ps, pb, buf_f(&y), buf_f(&mean), buf_f(&inv), n, c, s, group, last, 1e-5f);
    dtrt_groupnorm_grad_x(pd, px, ps, buf_f(&mean), buf_f(&inv), buf_f(&dx), n, c, s, group, last);
    OTHER_THREADS(dtrt_groupnorm(px, ps, pb, buf_f(&y2), buf_f(&mean), buf_f(&inv), n, c, s, group,
                                 last, 1e-5f));
    OTHER_THREADS(dtrt_groupnorm_grad_x(pd, px, ps, buf_f(&mean), buf_f(&inv), buf_f(&dx2), n, c, s,
                                        group, last));
    CHECK_CLOSE("group norm", buf_f(&y), wy, total, 3e-6);
    CHECK_CLOSE("group norm gradient", buf_f(&dx), wx, total, 1e-5);
    CHECK_SAME("group norm", y, y2);
    CHECK_SAME("group norm gradient", dx, dx2);
    Buf *all[] = {&x, &dy, &scale, &bias, &y, &y2, &mean, &inv, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(wy);
    free(wx);
}

static void check_rmsnorm(int64_t rows, int64_t n) {
    int64_t total = rows * n;
    Buf x = buf_random(total, 0), dy = buf_random(total, 0), scale = buf_random(n, 0);
    Buf y = buf_new(x.n, 0), inv = buf_new((size_t)rows * 4, 0), dx = buf_new(x.n, 0);
    Buf y2 = buf_new(x.n, 1), dx2 = buf_new(x.n, 1);
    double *wy = malloc((size_t)total * 8), *wx = malloc((size_t)total * 8);
    for (int64_t r = 0; r < rows; r++) {
        const float *v = buf_f(&x) + r * n, *g = buf_f(&dy) + r * n, *s = buf_f(&scale);
        double q = 0.0, dot = 0.0;
        for (int64_t i = 0; i < n; i++) q += pow((double)v[i], 2.0) / (double)n;
        q = 1.0 / sqrt(q + 1e-5);
        for (int64_t i = 0; i < n; i++) {
            wy[r * n + i] = (double)v[i] * q * (double)s[i];
            dot += (double)g[i] * (double)s[i] * (double)v[i] * q / (double)n;
        }
        for (int64_t i = 0; i < n; i++)
            wx[r * n + i] = q * ((double)g[i] * (double)s[i] - (double)v[i] * q * dot);
    }
    const float *px = buf_f(&x), *ps = buf_f(&scale), *pd = buf_f(&dy);
    dtrt_rmsnorm(px, ps, buf_f(&y), buf_f(&inv), rows, n, 1e-5f);
    dtrt_rmsnorm_grad_x(pd, px, ps, buf_f(&inv), buf_f(&dx), rows, n);
    OTHER_THREADS(dtrt_rmsnorm(px, ps, buf_f(&y2), NULL, rows, n, 1e-5f));
    OTHER_THREADS(dtrt_rmsnorm_grad_x(pd, px, ps, buf_f(&inv), buf_f(&dx2), rows, n));
    CHECK_CLOSE("rms norm", buf_f(&y), wy, total, 2e-6);
    CHECK_CLOSE("rms norm gradient", buf_f(&dx), wx, total, 3e-6);
    CHECK_SAME("rms norm", y, y2);
    CHECK_SAME("rms norm gradient", dx, dx2);
    Buf *all[] = {&x, &dy, &scale, &y, &inv, &dx, &y2, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(wy);
    free(wx);
}

static void check_bn_update(void) {
    float rm[2] = {1.0f, 2.0f}, rv[2] = {4.0f, 8.0f}, m[2] = {3.0f, 0.0f}, v[2] = {0.0f, 4.0f};
    dtrt_bn_update(rm, rv, m, v, 2, 0.75f); /* 0.75 * old + 0.25 * new */
    CHECK(rm[0] == 1.5f && rm[1] == 1.5f && rv[0] == 3.0f && rv[1] == 7.0f);
}

/* ---- sums ---- */

static void check_sum(int nd, const int64_t *dim, unsigned mask) {
    int64_t total = 1, outs = 1;
    uint8_t red[8];
    for (int i = 0; i < nd; i++) {
        red[i] = mask >> i & 1;
        total *= dim[i];
        outs *= red[i] ? 1 : dim[i];
    }
    Buf x = buf_random(total, 0), x2 = buf_copy(&x, 1), y = buf_new((size_t)outs * 4, 0),
        y2 = buf_new(y.n, 1);
    double *want = calloc((size_t)outs, 8);
    for (int64_t i = 0; i < total; i++) {
        int64_t o = 0, rest = i, stride = 1;
        for (int k = nd; k-- > 0;) {
            if (!red[k]) {
                o += rest % dim[k] * stride;
                stride *= dim[k];
            }
            rest /= dim[k];
        }
        want[o] += 0.5 * (double)buf_f(&x)[i];
    }
    dtrt_reduce_sum(buf_f(&x), buf_f(&y), nd, dim, red, 0.5f, NULL);
    OTHER_THREADS(dtrt_reduce_sum(buf_f(&x2), buf_f(&y2), nd, dim, red, 0.5f, NULL));
    CHECK_CLOSE("sum", buf_f(&y), want, outs, 1e-6);
    CHECK_SAME("sum", y, y2);
    Buf *all[] = {&x, &x2, &y, &y2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(want);
}

/* ---- vector math ---- */

/* Largest error in units of the last place of the exact value, over all exponents. */
static double worst_ulp(float (*f)(float), double (*g)(double)) {
    double top = 0.0;
    for (uint64_t u = 0; u < 0x100000000u; u += 49999) {
        float x = dtrt_float((uint32_t)u), y = f(x);
        double want = g((double)x);
        int e;
        if (isnan(want) || fabs(want) > 3.4028235e38) {
            CHECK(isnan(want) ? isnan(y) : isinf(y));
            continue;
        }
        frexp(want, &e);
        double ulp = ldexp(1.0, e - 24 < -149 ? -149 : e - 24), err = fabs((double)y - want) / ulp;
        if (!(err <= top)) top = err;
    }
    return top;
}

static double sigmoid_ref(double x) {
    double y = 1.0 / (1.0 + exp(-x));
    return y < 1.2e-38 ? 0.0 : y;
}

int main(void) {
    const int64_t dims[] = {3, 4, 1, 5, 70}, wide[] = {70000}, tall[] = {2000, 3, 40};
    omp_set_num_threads(2);
    for (int i = 0; i < SHAPES; i++) {
        for (int log_form = 0; log_form < 2; log_form++) {
            check_softmax(shapes[i], log_form);
            check_loss(shapes[i], log_form, 0, 0, 0.0f);
            check_loss(shapes[i], log_form, 1, shapes[i][0] * shapes[i][2] > 1, 0.1f);
        }
    }
    check_labels();
    check_layernorm(50, 768, 1);
    check_layernorm(3, 5, 0);
    check_layernorm(1, 1, 1);
    check_rmsnorm(50, 768);
    check_rmsnorm(2, 5);
    for (int last = 0; last < 2; last++) {
        check_groupnorm(3, 32, 100, 4, last);
        check_groupnorm(2, 6, 37, 6, last);   /* instance norm */
        check_groupnorm(2, 200, 50, 2, last); /* groups wider than a block */
        check_groupnorm(2, 200, 50, 200, last);
        check_groupnorm(1, 130, 3, 1, last);
        check_groupnorm(1, 1, 20, 1, last);
    }
    check_bn_update();
    for (unsigned mask = 0; mask < 32; mask++) check_sum(5, dims, mask);
    for (unsigned mask = 0; mask < 8; mask++) check_sum(3, tall, mask);
    check_sum(1, wide, 1);
    CHECK(worst_ulp(dtrt_expf, exp) < 1.5);
    CHECK(worst_ulp(dtrt_logf, log) < 1.5);
    CHECK(worst_ulp(dtrt_log1pf, log1p) < 2.5);
    CHECK(worst_ulp(dtrt_tanhf, tanh) < 2.5);
    CHECK(worst_ulp(dtrt_erff, erf) < 2.5);
    CHECK(worst_ulp(dtrt_sigmoidf, sigmoid_ref) < 2.5);
    return test_end();
}
