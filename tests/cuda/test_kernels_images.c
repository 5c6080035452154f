/* test_kernels_images.c - pooling and resizing kernels against runtime/cpu. */
#include "kernels.h"

/* in, kernel, stride, dilation, padding (low, high) of each axis; ceil: windows may start in the
 * padding behind the image */
typedef struct {
    int nd, ceil;
    int64_t n, c, in[3], k[3], stride[3], dil[3], lo[3], hi[3];
} Pool;
static const Pool pools[] = {
    {2, 0, 2, 5, {9, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {2, 0, 1, 3, {8, 8}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {2, 1, 2, 4, {7, 7}, {3, 2}, {2, 3}, {1, 1}, {0, 1}, {0, 0}},
    {2, 0, 2, 3, {12, 11}, {3, 2}, {1, 2}, {2, 3}, {2, 0}, {1, 2}},
    {2, 0, 3, 7, {5, 6}, {5, 6}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}, /* global */
    {1, 0, 2, 3, {400}, {300}, {7}, {1}, {20}, {30}},             /* positions of four bytes */
    {1, 0, 1, 1, {1}, {1}, {1}, {1}, {0}, {0}},
    {3, 0, 1, 2, {5, 6, 7}, {2, 3, 2}, {2, 1, 3}, {1, 2, 1}, {1, 1, 0}, {0, 1, 1}},
    {2, 0, 1, 2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {4, 0}, {0, 0}}, /* windows of nothing */
};

static DtrtPool pool_of(const Pool *p, int variant, int64_t *x, int64_t *y) {
    DtrtPool q = {.nd = p->nd,
                  .channels_last = variant & 1,
                  .is_max = (variant & 2) != 0,
                  .count_include_pad = (variant & 4) != 0,
                  .ceil_mode = p->ceil,
                  .n = p->n,
                  .c = p->c};
    *x = *y = p->n * p->c;
    for (int i = 0; i < p->nd; i++) {
        int64_t reach = p->in[i] + p->lo[i] + p->hi[i] - p->dil[i] * (p->k[i] - 1) - 1;
        q.in[i] = p->in[i];
        q.out[i] = (reach + (p->ceil ? p->stride[i] - 1 : 0)) / p->stride[i] + 1;
        q.k[i] = p->k[i];
        q.stride[i] = p->stride[i];
        q.dil[i] = p->dil[i];
        q.pad_lo[i] = p->lo[i];
        q.pad_hi[i] = p->hi[i];
        *x *= q.in[i];
        *y *= q.out[i];
    }
    return q;
}

static void pool_case(int which, int variant) {
    int64_t in, out;
    DtrtPool q = pool_of(&pools[which], variant, &in, &out);
    size_t places = (size_t)dtrt_pool_index_bytes(&q);
    begin("pool %d variant %d", which, variant);
    float *x = floats(in, -1, 1), *dy = floats(out, -1, 1);
    for (int64_t i = 0; i < in; i++) x[i] = rintf(x[i] * 4); /* equal ones */
    if (in > 30) x[7] = x[20] = NAN;
    Out *y = out_floats(out), *index = out_bytes(places), *dx = out_floats(in);
    bool places_too = q.is_max && !q.channels_last;
    Out *where = places_too ? out_bytes((size_t)out * sizeof(int64_t)) : NULL;
    EACH(k) {
        CHECK_EQ(k->pool_index_bytes(&q), places);
        k->pool_forward(&q, x, at(y), at(index));
        k->pool_grad(&q, dy, at(index), at(dx));
        if (places_too) k->pool_places(&q, x, at(where), which & 1);
    }
    compare(y, 1e-6);
    compare_bytes(index);
    if (places_too) compare_bytes(where);
    compare(dx, 1e-6);
    finish();
}

/* ---- Resize ---- */

typedef struct {
    int nd;
    int64_t in[4], out[4];
    double scale[4];
} Sizes;
static const Sizes sizes[] = {
    {1, {5}, {10}, {2}},
    {1, {10}, {4}, {0.4}},
    {2, {5, 7}, {8, 6}, {1.6, 6.0 / 7}},
    {4, {1, 3, 5, 4}, {1, 3, 10, 8}, {1, 1, 2, 2}}, /* channels first */
    {4, {2, 5, 4, 3}, {2, 3, 7, 3}, {1, 0.6, 1.75, 1}},
    {4, {3, 2, 3, 2}, {2, 3, 2, 3}, {2.0 / 3, 1.5, 2.0 / 3, 1.5}}, /* four axes */
    {2, {1, 3}, {4, 1}, {4, 1.0 / 3}},
    {2, {3, 4}, {3, 4}, {1, 1}}, /* nothing */
};

static void resize_case(const Sizes *s, DtrtResize r) {
    int64_t in = 1, out = 1;
    begin("resize %dd to %d.., mode %d coord %d rounding %d exclude %d antialias %d", s->nd,
          (int)s->out[0], r.mode, r.coord, r.rounding, r.exclude, r.antialias);
    r.nd = s->nd;
    for (int i = 0; i < s->nd; i++) {
        r.in[i] = s->in[i];
        r.out[i] = s->out[i];
        r.scale[i] = s->scale[i];
        r.first[i] = i == 0 ? 0.1 : 0.9; /* backwards along the second axis */
        r.last[i] = i == 0 ? 1.2 : 0.2;
        in *= s->in[i];
        out *= s->out[i];
    }
    r.cubic = -0.75;
    r.value = 10;
    float *x = floats(in, -1, 1), *dy = floats(out, -1, 1);
    Out *y = out_floats(out), *dx = out_floats(in);
    EACH(k) {
        DtrtResize forward = r, grad = r;
        grad.grad = 1;
        CHECK(k->resize_init(&forward, 1) && k->resize_init(&grad, 1));
        k->resize(&forward, x, at(y));
        k->resize(&grad, dy, at(dx));
        k->resize_free(&forward);
        k->resize_free(&grad);
    }
    compare(y, 2e-6); /* the CPU's weights are floats */
    compare(dx, 5e-6);
    finish();
}

static void test_resize(void) {
    enum { COORDS = 7 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int coord = 0; coord < COORDS; coord++) {
            for (int mode = 0; mode < 3; mode++)
                resize_case(
                    &sizes[i],
                    (DtrtResize){.mode = mode, .coord = coord, .rounding = (coord + (int)i) % 4});
            resize_case(&sizes[i], (DtrtResize){.mode = 2, .coord = coord, .exclude = 1});
            resize_case(&sizes[i],
                        (DtrtResize){.mode = 1 + coord % 2, .coord = coord, .antialias = 1});
        }
}

int main(int argc, char **argv) {
    static const char *const file[] = {"pool", "resize", NULL};
    if (!open_kernels(argc, argv, file)) return 77;
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        for (int v = 0; v < 8; v++)
            if ((v & 6) != 6) pool_case((int)i, v);
    test_resize();
    return test_end() | kernels_end();
}
