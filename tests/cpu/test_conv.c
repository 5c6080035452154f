/* Convolutions: the three passes against loops in double, over a table of geometries; packing there
 * and back; two runs at other addresses give the same bits; nothing reads what was there before. */
#include "cpu_test.h"

typedef struct {
    const char *name;
    int nd, group;
    int64_t n, ci, co, in[3], k[3], stride[3], dil[3], lo[3], hi[3];
} Row;

static const Row rows[] = {
    {"3x3", 2, 1, 2, 16, 32, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"first layer", 2, 1, 2, 3, 16, {20, 20}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
    {"lenet", 2, 1, 3, 1, 6, {12, 12}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {"odd channels", 2, 1, 2, 5, 7, {6, 8}, {3, 2}, {1, 2}, {1, 1}, {1, 0}, {1, 0}},
    {"1x1", 2, 1, 2, 24, 40, {5, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {"1x1 to 1000", 2, 1, 1, 32, 1000, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {"1x1 stride 2", 2, 1, 2, 32, 16, {7, 7}, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {"3x3 stride 2, loose end", 2, 1, 2, 16, 16, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"asymmetric pads", 2, 1, 2, 8, 8, {7, 6}, {3, 3}, {2, 2}, {1, 1}, {0, 0}, {1, 1}},
    {"dilated", 2, 1, 1, 16, 16, {11, 11}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
    {"1x7", 2, 1, 1, 16, 16, {6, 9}, {1, 7}, {1, 1}, {1, 1}, {0, 3}, {0, 3}},
    {"depthwise", 2, 24, 2, 24, 24, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise stride 2", 2, 17, 2, 17, 17, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise 5x5", 2, 32, 1, 32, 32, {10, 10}, {5, 5}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {"depthwise, two each", 2, 8, 2, 8, 16, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 4", 2, 8, 2, 32, 32, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 16", 2, 2, 2, 32, 32, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 3", 2, 3, 2, 9, 12, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"1-d", 1, 1, 3, 8, 16, {33}, {5}, {2}, {1}, {2}, {2}},
    {"1-d dilated", 1, 1, 2, 16, 16, {30}, {3}, {1}, {4}, {4}, {4}},
    {"1-d one channel", 1, 1, 2, 1, 8, {40}, {9}, {4}, {1}, {4}, {4}},
    {"1-d depthwise", 1, 16, 2, 16, 16, {20}, {3}, {1}, {1}, {1}, {1}},
    {"3-d", 3, 1, 2, 4, 16, {5, 6, 7}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {"3-d first layer",
     3,
     1,
     1,
     3,
     8,
     {4, 9, 9},
     {3, 7, 7},
     {1, 2, 2},
     {1, 1, 1},
     {1, 3, 3},
     {1, 3, 3}},
    /* windows apart, which the library has only reference loops for */
    {"patches", 2, 1, 2, 3, 40, {34, 35}, {16, 16}, {16, 16}, {1, 1}, {0, 0}, {0, 0}},
    {"patches, padded", 2, 1, 2, 4, 8, {30, 31}, {16, 15}, {17, 16}, {1, 1}, {2, 1}, {3, 0}},
    {"patches, dilated", 2, 1, 1, 3, 8, {64, 66}, {16, 16}, {31, 31}, {2, 2}, {0, 1}, {1, 0}},
    {"1-d patches", 1, 1, 2, 5, 8, {70}, {32}, {32}, {1}, {1}, {2}},
    {"3-d patches",
     3,
     1,
     2,
     2,
     8,
     {4, 17, 33},
     {2, 16, 16},
     {2, 16, 16},
     {1, 1, 1},
     {0, 0, 0},
     {0, 1, 0}},
    {"3-d 1x1", 3, 1, 1, 16, 32, {3, 4, 4}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
};

/* A row with every missing axis of size 1, so that the reference has three loops only. */
static DtrtConv geometry(const Row *r, int channels_last, int packed) {
    DtrtConv c = {.nd = r->nd,
                  .channels_last = channels_last,
                  .group = r->group,
                  .packed = packed,
                  .fwd = 1,
                  .grad_x = 1,
                  .grad_w = 1,
                  .n = r->n,
                  .ci = r->ci,
                  .co = r->co};
    for (int i = 0; i < 3; i++) {
        int on = i < r->nd;
        c.in[i] = on ? r->in[i] : 1;
        c.k[i] = on ? r->k[i] : 1;
        c.stride[i] = on ? r->stride[i] : 1;
        c.dil[i] = on ? r->dil[i] : 1;
        c.pad_lo[i] = on ? r->lo[i] : 0;
        c.pad_hi[i] = on ? r->hi[i] : 0;
        int64_t reach = (c.k[i] - 1) * c.dil[i] + 1;
        c.out[i] = (c.in[i] + c.pad_lo[i] + c.pad_hi[i] - reach) / c.stride[i] + 1;
    }
    return c;
}

static int64_t space(const int64_t *d) {
    return d[0] * d[1] * d[2];
}

static int64_t at(const DtrtConv *c, int64_t channels, const int64_t *d, int64_t n, int64_t ch,
                  int64_t pos) {
    return c->channels_last ? (n * space(d) + pos) * channels + ch
                            : (n * channels + ch) * space(d) + pos;
}

/* Calls body for every (n, co, output, ci in group, kernel cell) whose input lies inside. */
typedef struct {
    const float *x, *w, *dy;
    double *y, *dx, *dw;
} Ref;

static void reference_at(const DtrtConv *c, const Ref *r, int64_t n, int64_t o, int64_t out) {
    int64_t cig = c->ci / c->group, g = o / (c->co / c->group);
    int64_t od[3] = {out / (c->out[1] * c->out[2]), out / c->out[2] % c->out[1], out % c->out[2]};
    int64_t iy = at(c, c->co, c->out, n, o, out);
    for (int64_t i = 0; i < cig; i++) {
        for (int64_t k = 0; k < space(c->k); k++) {
            int64_t kd[3] = {k / (c->k[1] * c->k[2]), k / c->k[2] % c->k[1], k % c->k[2]};
            int64_t in = 0;
            int inside = 1;
            for (int a = 0; a < 3; a++) {
                int64_t p = od[a] * c->stride[a] - c->pad_lo[a] + kd[a] * c->dil[a];
                inside &= p >= 0 && p < c->in[a];
                in = in * c->in[a] + p;
            }
            if (!inside) continue;
            int64_t ix = at(c, c->ci, c->in, n, g * cig + i, in);
            int64_t iw = (o * cig + i) * space(c->k) + k;
            r->y[iy] += (double)r->x[ix] * (double)r->w[iw];
            r->dx[ix] += (double)r->dy[iy] * (double)r->w[iw];
            r->dw[iw] += (double)r->dy[iy] * (double)r->x[ix];
        }
    }
}

static void reference(const DtrtConv *c, const Ref *r) {
    for (int64_t n = 0; n < c->n; n++) {
        for (int64_t o = 0; o < c->co; o++) {
            for (int64_t p = 0; p < space(c->out); p++) reference_at(c, r, n, o, p);
        }
    }
}

/* Everything one run of the three passes writes. */
typedef struct {
    Buf y, dx, dw, plain_dw;
} Run;

static Run run_passes(DtrtConv *c, const DtrtConvNeeds *need, const Buf *x, const Buf *w,
                      const Buf *b, const Buf *dy, int odd) {
    Run r = {buf_new(dy->n, odd), buf_new(x->n, odd), buf_new(need->weight_bytes, odd),
             buf_new(w->n, odd)};
    Buf xs = buf_copy(x, odd), dys = buf_copy(dy, odd), packed = buf_new(need->weight_bytes, odd);
    CHECK(dtrt_conv_pack(c, buf_f(w), packed.at));
    const uint64_t bytes[] = {need->fwd, need->grad_x, need->grad_w};
    for (int pass = 0; pass < 3; pass++) {
        Buf ws = buf_new(bytes[pass], odd);
        void *at_ws = bytes[pass] ? ws.at : NULL;
        if (pass == 0)
            dtrt_conv_forward(c, buf_f(&xs), buf_f(&packed), buf_f(b), buf_f(&r.y), at_ws);
        if (pass == 1) dtrt_conv_grad_x(c, buf_f(&dys), buf_f(&packed), buf_f(&r.dx), at_ws);
        if (pass == 2) dtrt_conv_grad_w(c, buf_f(&dys), buf_f(&xs), buf_f(&r.dw), at_ws);
        buf_free(&ws);
    }
    CHECK(dtrt_conv_unpack(c, r.dw.at, buf_f(&r.plain_dw)));
    /* what pads a packed gradient is zero: packing the unpacked one gives the same bytes */
    CHECK(dtrt_conv_pack(c, buf_f(&r.plain_dw), packed.at));
    CHECK(!memcmp(packed.at, r.dw.at, need->weight_bytes));
    buf_free(&xs);
    buf_free(&dys);
    buf_free(&packed);
    return r;
}

static void free_run(Run *r) {
    buf_free(&r->y);
    buf_free(&r->dx);
    buf_free(&r->dw);
    buf_free(&r->plain_dw);
}

static void check_row(const Row *row, int channels_last, int packed, int relu) {
    DtrtConv c = geometry(row, channels_last, packed);
    DtrtConvNeeds need;
    char name[100], err[200] = "";
    int threads = omp_get_max_threads();
    c.bias = c.relu = relu;
    snprintf(name, sizeof name, "%s%s%s%s", row->name, channels_last ? "" : ", channels first",
             packed ? ", packed" : "", relu ? ", bias, relu" : "");
    int64_t nx = c.n * c.ci * space(c.in), ny = c.n * c.co * space(c.out);
    int64_t nw = c.co * (c.ci / c.group) * space(c.k);
    CHECK(dtrt_conv_needs(&c, threads, &need, err, sizeof err));
    CHECK_EQ(omp_get_max_threads(), threads);
    CHECK(need.weight_bytes >= (uint64_t)nw * 4 &&
          (packed || need.weight_bytes == (uint64_t)nw * 4));
    CHECK(dtrt_conv_init(&c, NULL, threads));
    Buf x = buf_random(nx, 0), w = buf_random(nw, 0), b = buf_random(c.co, 0),
        dy = buf_random(ny, 0);
    Ref r = {buf_f(&x),
             buf_f(&w),
             buf_f(&dy),
             calloc((size_t)ny, 8),
             calloc((size_t)nx, 8),
             calloc((size_t)nw, 8)};
    reference(&c, &r);
    for (int64_t i = 0; relu && i < ny; i++) {
        int64_t ch = channels_last ? i % c.co : i / space(c.out) % c.co;
        double v = r.y[i] + (double)buf_f(&b)[ch];
        r.y[i] = v < 0.0 ? 0.0 : v;
    }
    Run one = run_passes(&c, &need, &x, &w, &b, &dy, 0),
        two = run_passes(&c, &need, &x, &w, &b, &dy, 1);
    CHECK_CLOSE(name, buf_f(&one.y), r.y, ny, 2e-6);
    CHECK_CLOSE(name, buf_f(&one.dx), r.dx, nx, 2e-6);
    CHECK_CLOSE(name, buf_f(&one.plain_dw), r.dw, nw, 2e-6);
    CHECK_SAME(name, one.y, two.y);
    CHECK_SAME(name, one.dx, two.dx);
    CHECK_SAME(name, one.dw, two.dw);
    free_run(&one);
    free_run(&two);
    dtrt_conv_free(&c);
    buf_free(&x);
    buf_free(&w);
    buf_free(&b);
    buf_free(&dy);
    free(r.y);
    free(r.dx);
    free(r.dw);
}

/* NaN survives the fused ReLU. */
static void check_nan(void) {
    DtrtConv c = geometry(&rows[0], 1, 1);
    DtrtConvNeeds need;
    char err[200];
    c.relu = 1;
    CHECK(dtrt_conv_needs(&c, 1, &need, err, sizeof err) && dtrt_conv_init(&c, NULL, 1));
    Buf x = buf_new((size_t)(c.n * c.ci * space(c.in)) * 4, 0), w = buf_random(c.co * c.ci * 9, 0);
    Buf packed = buf_new(need.weight_bytes, 0), ws = buf_new(need.fwd, 0);
    Buf y = buf_new((size_t)(c.n * c.co * space(c.out)) * 4, 0);
    CHECK(dtrt_conv_pack(&c, buf_f(&w), packed.at));
    memset(y.at, 0, y.n);
    dtrt_conv_forward(&c, buf_f(&x), buf_f(&packed), NULL, buf_f(&y), ws.at);
    for (size_t i = 0; i < y.n / 4; i++) {
        if (!isnan(buf_f(&y)[i])) {
            CHECK(0 && "NaN became a number");
            break;
        }
    }
    buf_free(&x);
    buf_free(&w);
    buf_free(&packed);
    buf_free(&ws);
    buf_free(&y);
    dtrt_conv_free(&c);
    dtrt_conv_free(&c);
}

/* Every object of one geometry keeps weights in one layout, whatever passes and extras it has. */
static void check_one_layout(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        DtrtConv all = geometry(&rows[i], 1, 1), one = all;
        DtrtConvNeeds a, b;
        char err[200];
        one.fwd = one.grad_x = 0;
        all.bias = all.relu = 1;
        CHECK(dtrt_conv_needs(&all, 2, &a, err, sizeof err));
        CHECK(dtrt_conv_needs(&one, 2, &b, err, sizeof err));
        CHECK_EQ(a.weight_bytes, b.weight_bytes);
        CHECK_EQ(a.grad_w, b.grad_w);
        CHECK_EQ(b.fwd, 0);
        CHECK(dtrt_conv_init(&all, NULL, 2) && dtrt_conv_init(&one, NULL, 2));
        int64_t nw = all.co * (all.ci / all.group) * space(all.k);
        Buf w = buf_random(nw, 0), pa = buf_new(a.weight_bytes, 0), pb = buf_new(a.weight_bytes, 1);
        CHECK(dtrt_conv_pack(&all, buf_f(&w), pa.at) && dtrt_conv_pack(&one, buf_f(&w), pb.at));
        CHECK_SAME(rows[i].name, pa, pb);
        buf_free(&w);
        buf_free(&pa);
        buf_free(&pb);
        dtrt_conv_free(&all);
        dtrt_conv_free(&one);
    }
}

/* An object says what it uses as dtrt_conv_needs does, and one for another batch that is told to
 * can work on the same packed weights, with the results that it has with its own layout. */
static void check_other_batch(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        DtrtConv c = geometry(&rows[i], 1, 1), d = c, e = c;
        DtrtConvNeeds need;
        char err[200];
        c.fwd = d.fwd = e.fwd = 1;
        c.grad_x = c.grad_w = d.grad_x = d.grad_w = e.grad_x = e.grad_w = 0;
        d.n = e.n = c.n + 3;
        CHECK(dtrt_conv_needs(&c, 2, &need, err, sizeof err));
        CHECK(dtrt_conv_init(&c, NULL, 2) && dtrt_conv_init(&d, &c, 2) &&
              dtrt_conv_init(&e, NULL, 2));
        CHECK(dtrt_conv_workspace(&c) == need.fwd &&
              dtrt_conv_weight_bytes(&c) == need.weight_bytes);
        CHECK(dtrt_conv_weight_bytes(&d) == need.weight_bytes);
        int64_t nw = c.co * (c.ci / c.group) * space(c.k), ny = d.n * d.co * space(d.out);
        Buf x = buf_random(d.n * d.ci * space(d.in), 0), w = buf_random(nw, 0);
        Buf b = buf_random(d.co, 0), yd = buf_new((uint64_t)ny * 4, 0),
            ye = buf_new((uint64_t)ny * 4, 1);
        Buf pc = buf_new(need.weight_bytes, 0), pe = buf_new(dtrt_conv_weight_bytes(&e), 1);
        Buf wd = buf_new(dtrt_conv_workspace(&d) + 1, 0),
            we = buf_new(dtrt_conv_workspace(&e) + 1, 1);
        CHECK(dtrt_conv_pack(&c, buf_f(&w), pc.at) && dtrt_conv_pack(&e, buf_f(&w), pe.at));
        dtrt_conv_forward(&d, buf_f(&x), buf_f(&pc), buf_f(&b), buf_f(&yd), wd.at);
        dtrt_conv_forward(&e, buf_f(&x), buf_f(&pe), buf_f(&b), buf_f(&ye), we.at);
        for (int64_t k = 0; k < ny; k++)
            CHECK_NEAR((double)buf_f(&yd)[k], (double)buf_f(&ye)[k], 1e-3);
        Buf *all[] = {&x, &w, &b, &yd, &ye, &pc, &pe, &wd, &we};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) buf_free(all[k]);
        dtrt_conv_free(&c);
        dtrt_conv_free(&d);
        dtrt_conv_free(&e);
    }
}

/* Nothing is written past the workspace: 1x1 with a stride and few channels, a batch that two
 * threads share unevenly. */
static void check_bounds(void) {
    for (int64_t ci = 3; ci <= 12; ci += 3) {
        DtrtConv c = {.nd = 2, .channels_last = 1, .group = 1, .packed = 1, .grad_w = 1, .n = 5};
        c.ci = ci, c.co = 16;
        for (int i = 0; i < 2; i++)
            c.in[i] = 16, c.out[i] = 8, c.k[i] = 1, c.stride[i] = 2, c.dil[i] = 1;
        CHECK(dtrt_conv_init(&c, NULL, 2));
        uint64_t n = dtrt_conv_workspace(&c), slack = 1 << 16, bad = 0;
        Buf x = buf_random(c.n * 256 * ci, 0), dy = buf_random(c.n * 64 * 16, 0);
        Buf dw = buf_new(dtrt_conv_weight_bytes(&c), 0), ws = buf_new(n + slack, 0);
        memset((char *)ws.at + n, 0x5a, slack);
        dtrt_conv_grad_w(&c, buf_f(&dy), buf_f(&x), buf_f(&dw), ws.at);
        for (uint64_t i = n; i < n + slack; i++) bad += ((unsigned char *)ws.at)[i] != 0x5a;
        CHECK_EQ(bad, 0);
        Buf *all[] = {&x, &dy, &dw, &ws};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) buf_free(all[k]);
        dtrt_conv_free(&c);
    }
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_row(&rows[i], 1, 1, 0);
        check_row(&rows[i], 1, 1, 1);
        check_row(&rows[i], 1, 0, 1);
        check_row(&rows[i], 0, 1, 0);
        check_row(&rows[i], 0, 0, 1);
    }
    check_nan();
    check_other_batch();
    check_bounds();
    check_one_layout();
    return test_end();
}
