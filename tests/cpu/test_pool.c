/* Pooling against loops over windows: strides, dilation, ceil_mode's loose ends, asymmetric
 * padding, one to three axes, both channel orders, windows of more than 255 cells; ties and NaN.
 * Gradients against scattering. */
#include "cpu_test.h"

typedef struct {
    const char *name;
    int nd;
    int64_t n, c, in[3], out[3], k[3], stride[3], dil[3], lo[3], hi[3];
} Row;

/* out is given where ceil_mode adds a window; 0 stands for the plain (floor) size */
static const Row rows[] = {
    {"2x2", 2, 2, 5, {6, 6}, {0}, {2, 2}, {2, 2}, {1, 1}, {0}, {0}},
    {"3x3 padded", 2, 2, 70, {9, 8}, {0}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"overlap", 2, 1, 16, {7, 7}, {0}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"ceil", 2, 1, 8, {6, 6}, {3, 3}, {3, 3}, {2, 2}, {1, 1}, {0}, {0}},
    {"ceil padded", 2, 1, 8, {6, 6}, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"ceil, larger window", 2, 1, 8, {2, 5}, {1, 2}, {3, 4}, {2, 3}, {1, 1}, {0}, {0}},
    {"lopsided", 2, 2, 3, {5, 6}, {0}, {3, 2}, {2, 1}, {1, 1}, {1, 0}, {0, 1}},
    {"dilated", 2, 1, 4, {9, 9}, {0}, {3, 3}, {1, 1}, {2, 2}, {1, 1}, {1, 1}},
    {"dilated, stride 2", 2, 1, 4, {9, 9}, {0}, {2, 3}, {2, 2}, {3, 2}, {0}, {0}},
    {"global", 2, 3, 20, {7, 7}, {0}, {7, 7}, {1, 1}, {1, 1}, {0}, {0}},
    {"stride beyond kernel", 2, 1, 4, {9, 9}, {0}, {2, 2}, {3, 3}, {1, 1}, {0}, {0}},
    {"1-d", 1, 2, 6, {15}, {0}, {3}, {2}, {1}, {1}, {1}},
    {"3-d", 3, 1, 6, {4, 5, 6}, {0}, {2, 3, 2}, {2, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 1, 0}},
    {"256 cells", 2, 1, 3, {17, 16}, {0}, {16, 16}, {1, 1}, {1, 1}, {0}, {0}},
    {"255 cells", 2, 1, 3, {17, 16}, {0}, {17, 15}, {1, 1}, {1, 1}, {0}, {0}},
};

static DtrtPool pool_of(const Row *r, int channels_last, int is_max, int include_pad) {
    DtrtPool p = {.nd = r->nd,
                  .channels_last = channels_last,
                  .is_max = is_max,
                  .count_include_pad = include_pad,
                  .n = r->n,
                  .c = r->c};
    for (int i = 0; i < 3; i++) {
        int on = i < r->nd;
        p.in[i] = on ? r->in[i] : 1;
        p.k[i] = on ? r->k[i] : 1;
        p.stride[i] = on ? r->stride[i] : 1;
        p.dil[i] = on ? r->dil[i] : 1;
        p.pad_lo[i] = on ? r->lo[i] : 0;
        p.pad_hi[i] = on ? r->hi[i] : 0;
        p.out[i] =
            (p.in[i] + p.pad_lo[i] + p.pad_hi[i] - (p.k[i] - 1) * p.dil[i] - 1) / p.stride[i] + 1;
        if (on && r->out[i]) p.out[i] = r->out[i];
    }
    return p;
}

static int64_t at(const DtrtPool *p, const int64_t *d, int64_t n, int64_t c, int64_t pos) {
    int64_t space = d[0] * d[1] * d[2];
    return p->channels_last ? (n * space + pos) * p->c + c : (n * p->c + c) * space + pos;
}

/* One output: its value, and its share of dx. */
static void reference_at(const DtrtPool *p, const float *x, const float *dy, double *y, double *dx,
                         int64_t n, int64_t c, int64_t o) {
    int64_t od[3] = {o / (p->out[1] * p->out[2]), o / p->out[2] % p->out[1], o % p->out[2]};
    int64_t iy = at(p, p->out, n, c, o), best = -1, inside[512], ninside = 0, count = 0;
    double sum = 0.0;
    for (int64_t k = 0; k < p->k[0] * p->k[1] * p->k[2]; k++) {
        int64_t kd[3] = {k / (p->k[1] * p->k[2]), k / p->k[2] % p->k[1], k % p->k[2]}, in = 0;
        int ok = 1, padded = 1;
        for (int a = 0; a < 3; a++) {
            int64_t q = od[a] * p->stride[a] - p->pad_lo[a] + kd[a] * p->dil[a];
            ok &= q >= 0 && q < p->in[a];
            padded &= q >= -p->pad_lo[a] && q < p->in[a] + p->pad_hi[a];
            in = in * p->in[a] + q;
        }
        count += p->count_include_pad ? padded : ok;
        if (!ok) continue;
        int64_t ix = at(p, p->in, n, c, in);
        inside[ninside++] = ix;
        sum += (double)x[ix];
        if (best < 0 || x[ix] > x[best] || isnan(x[ix])) best = ix;
    }
    if (p->is_max) {
        y[iy] = (double)x[best];
        dx[best] += (double)dy[iy];
    } else {
        y[iy] = sum / (double)count;
        for (int64_t i = 0; i < ninside; i++) dx[inside[i]] += (double)dy[iy] / (double)count;
    }
}

static void check_row(const Row *r, int channels_last, int is_max, int include_pad) {
    DtrtPool p = pool_of(r, channels_last, is_max, include_pad);
    char name[80];
    int64_t si = p.in[0] * p.in[1] * p.in[2], so = p.out[0] * p.out[1] * p.out[2];
    int64_t nx = p.n * p.c * si, ny = p.n * p.c * so, cells = p.k[0] * p.k[1] * p.k[2];
    snprintf(name, sizeof name, "%s, %s%s", r->name, is_max ? "max" : "average",
             include_pad ? " with padding" : "");
    uint64_t index_bytes = dtrt_pool_index_bytes(&p);
    CHECK_EQ(index_bytes, is_max ? ny * (cells < 256 ? 1 : 4) : 0);
    Buf x = buf_random(nx, 0), dy = buf_random(ny, 0), x2 = buf_copy(&x, 1), dy2 = buf_copy(&dy, 1);
    for (int64_t i = 0; i < nx; i++) buf_f(&x)[i] = roundf(4.0f * buf_f(&x)[i]); /* ties */
    memcpy(x2.at, x.at, x.n);
    Buf y = buf_new(dy.n, 0), y2 = buf_new(dy.n, 1), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    Buf ix = buf_new(index_bytes, 0), ix2 = buf_new(index_bytes, 1);
    double *wy = calloc((size_t)ny, 8), *wx = calloc((size_t)nx, 8);
    for (int64_t i = 0; i < ny; i++) {
        reference_at(&p, buf_f(&x), buf_f(&dy), wy, wx, i / so / p.c, i / so % p.c, i % so);
    }
    dtrt_pool_forward(&p, buf_f(&x), buf_f(&y), ix.at);
    OTHER_THREADS(dtrt_pool_forward(&p, buf_f(&x2), buf_f(&y2), ix2.at));
    dtrt_pool_grad(&p, buf_f(&dy), ix.at, buf_f(&dx));
    OTHER_THREADS(dtrt_pool_grad(&p, buf_f(&dy2), ix2.at, buf_f(&dx2)));
    if (is_max && !channels_last) { /* the value at each place; by columns: the other way round */
        int64_t *place = calloc((size_t)ny, 8), *turned = calloc((size_t)ny, 8);
        dtrt_pool_places(&p, buf_f(&x), place, 0);
        dtrt_pool_places(&p, buf_f(&x), turned, 1);
        for (int64_t i = 0; i < ny; i++) {
            int64_t at = place[i] % si, d = at / (p.in[1] * p.in[2]), h = at / p.in[2] % p.in[1];
            CHECK(isinf(wy[i]) || (double)buf_f(&x)[place[i]] == wy[i]);
            CHECK(isinf(wy[i]) || place[i] / si == i / so);
            CHECK_EQ(turned[i], isinf(wy[i])
                                    ? 0
                                    : place[i] - at + d + p.in[0] * (h + p.in[1] * (at % p.in[2])));
        }
        free(place);
        free(turned);
    }
    CHECK_CLOSE(name, buf_f(&y), wy, ny, is_max ? 0.0 : 1e-6);
    CHECK_CLOSE(name, buf_f(&dx), wx, nx, 1e-6);
    CHECK_SAME(name, y, y2);
    CHECK_SAME(name, ix, ix2);
    CHECK_SAME(name, dx, dx2);
    Buf *all[] = {&x, &dy, &x2, &dy2, &y, &y2, &dx, &dx2, &ix, &ix2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(wy);
    free(wx);
}

/* 1-d, window 2, stride 2: {1, NaN}, {-inf, -inf}: NaN wins; the first of equals gets the gradient.
 */
static void check_special(void) {
    DtrtPool p = {.nd = 1,
                  .is_max = 1,
                  .n = 1,
                  .c = 1,
                  .in = {4},
                  .out = {2},
                  .k = {2},
                  .stride = {2},
                  .dil = {1}};
    float x[4] = {1.0f, NAN, -INFINITY, -INFINITY}, y[2], dy[2] = {3.0f, 5.0f}, dx[4];
    uint8_t index[2];
    dtrt_pool_forward(&p, x, y, index);
    CHECK(isnan(y[0]) && index[0] == 1);
    CHECK(isinf(y[1]) && y[1] < 0.0f && index[1] == 0);
    dtrt_pool_grad(&p, dy, index, dx);
    CHECK(dx[0] == 0.0f && dx[1] == 3.0f && dx[2] == 5.0f && dx[3] == 0.0f);
}

int main(void) {
    omp_set_num_threads(2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int last = 0; last < 2; last++) {
            check_row(&rows[i], last, 1, 0);
            check_row(&rows[i], last, 0, 0);
            check_row(&rows[i], last, 0, 1);
        }
    }
    check_special();
    return test_end();
}
