/* Convolutions on the device: the three passes against loops in double, over a table of geometries,
 * each done by the library, as a product or by our own loops, whichever the rules say, and once
 * more by our own loops alone (without workspace for the library). Two runs at other addresses give
 * the same bits. Also bias and ReLU, packing there and back, batches in parts. */
#include "on_device.h"

#include "dnn.h"
#include "libraries.h"
#include "test.h"

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

/* ---- runs ---- */

static uint32_t seed = 12345;
static float *random_floats(int64_t n) {
    float *f = malloc((size_t)n * sizeof *f);
    if (!f) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        f[i] = (float)(int32_t)(seed >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
    }
    return f;
}

/* Largest difference relative to the largest value; infinite when something is not finite. */
static double worst(const float *got, const double *want, int64_t n) {
    double err = 0.0, top = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= err)) err = isnan(d) ? INFINITY : d;
        if (fabs(want[i]) > top) top = fabs(want[i]);
    }
    return err / top;
}

/* Operands on the host, results in double, sizes in elements. */
typedef struct {
    int64_t nx, ny, nw;
    float *x, *w, *b, *dy;
    double *y, *dx, *dw;
} Data;

static Data make_data(const DtrtConv *c) {
    Data d = {.nx = c->n * c->ci * space(c->in), .ny = c->n * c->co * space(c->out)};
    d.nw = c->co * (c->ci / c->group) * space(c->k);
    d.x = random_floats(d.nx), d.w = random_floats(d.nw);
    d.b = random_floats(c->co), d.dy = random_floats(d.ny);
    d.y = calloc((size_t)d.ny, 8), d.dx = calloc((size_t)d.nx, 8), d.dw = calloc((size_t)d.nw, 8);
    if (!d.y || !d.dx || !d.dw) abort();
    reference(c, &(Ref){d.x, d.w, d.dy, d.y, d.dx, d.dw});
    for (int64_t i = 0; c->relu && i < d.ny; i++) {
        int64_t ch = c->channels_last ? i % c->co : i / space(c->out) % c->co;
        double v = d.y[i] + (double)d.b[ch];
        d.y[i] = v < 0.0 ? 0.0 : v;
    }
    return d;
}

static void free_data(Data *d) {
    void *all[] = {d->x, d->w, d->b, d->dy, d->y, d->dx, d->dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* What one pass gives, on the host; weights unpacked. */
static float *run_pass(const DtrtConv *c, const Data *d, int64_t *n) {
    float *packed = malloc((size_t)d->nw * 4), *out;
    if (!packed) abort();
    CHECK(dtrt_conv_pack(c, d->w, packed));
    *n = c->fwd ? d->ny : c->grad_x ? d->nx : d->nw;
    uint64_t workspace = dtrt_conv_workspace(c);
    void *x = device_put(d->x, (uint64_t)d->nx * 4), *dy = device_put(d->dy, (uint64_t)d->ny * 4);
    void *w = device_put(c->packed ? packed : d->w, (uint64_t)d->nw * 4);
    void *b = device_put(d->b, (uint64_t)c->co * 4), *to = device_room((uint64_t)*n * 4);
    void *ws = device_room(workspace);
    if (c->fwd) dtrt_conv_forward(c, x, w, c->bias ? b : NULL, to, workspace ? ws : NULL);
    if (c->grad_x) dtrt_conv_grad_x(c, dy, w, to, workspace ? ws : NULL);
    if (c->grad_w) dtrt_conv_grad_w(c, dy, x, to, workspace ? ws : NULL);
    out = malloc((size_t)*n * 4);
    if (!out) abort();
    device_get(out, to, (uint64_t)*n * 4);
    if (c->grad_w && c->packed) {
        memcpy(packed, out, (size_t)d->nw * 4);
        CHECK(dtrt_conv_unpack(c, packed, out));
    }
    void *all[] = {x, dy, w, b, to, ws};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_drop(all[i]);
    free(packed);
    return out;
}

/* How far results may be off, and how far they must be: products of inputs rounded to TF32, 11
 * bits, are off by 2^-11 of a product at most, and sums by less. */
static double off_most = 2e-6, off_least = 0.0;

static void check_pass(DtrtConv c, const Data *d, int pass, const char *name) {
    const double *want[] = {d->y, d->dx, d->dw};
    int64_t n;
    c.fwd = pass == 0, c.grad_x = pass == 1, c.grad_w = pass == 2;
    CHECK(dtrt_conv_init(&c, NULL, 1));
    CHECK_EQ(dtrt_conv_weight_count(&c), d->nw);
    float *one = run_pass(&c, d, &n);
    void *gap = device_room(1 << 20); /* so that others lie elsewhere */
    float *two = run_pass(&c, d, &n);
    double off = worst(one, want[pass], n);
    CHECK(off >= off_least && off <= off_most);
    CHECK(!memcmp(one, two, (size_t)n * 4));
    if (!(off >= off_least && off <= off_most))
        fprintf(stderr, "   %s, pass %d: off by %g\n", name, pass, off);
    device_drop(gap);
    dtrt_conv_free(&c);
    free(one);
    free(two);
}

static void check_row(const Row *row, int channels_last, int packed, int relu) {
    DtrtConv c = geometry(row, channels_last, packed);
    char name[100];
    c.bias = c.relu = relu;
    snprintf(name, sizeof name, "%s%s%s%s", row->name, channels_last ? "" : ", channels first",
             packed ? ", packed" : "", relu ? ", bias, relu" : "");
    Data d = make_data(&c);
    for (int pass = 0; pass < 3; pass++) check_pass(c, &d, pass, name);
    free_data(&d);
}

/* ---- own loops ---- */

static cudnnStatus_t refuse(cudnnBackendDescriptor_t d) {
    (void)d;
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* Where the library has no plan for anything: first as many partial sums as there may be, then
 * none. */
static void check_own_loops(void) {
    Dnn *d = (Dnn *)(uintptr_t)cu_dnn(), whole = *d;
    d->cudnnBackendFinalize = refuse;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        DtrtConv c = geometry(&rows[i], i % 3 != 0, i % 2);
        Data data = make_data(&c);
        for (int pass = 0; pass < 3; pass++) {
            c.limit = 0;
            check_pass(c, &data, pass, rows[i].name);
            c.limit = 1;
            if (pass == 2) check_pass(c, &data, pass, rows[i].name);
        }
        free_data(&data);
    }
    *d = whole;
}

/* ---- parts of a batch ---- */

/* A limit that takes the library's favourite engine for one image but not for all eight: the pass
 * runs over parts, and uses no more than it may. */
static void check_parts(void) {
    DtrtConv c = geometry(&rows[0], 1, 1);
    CudaConvPass whole, part;
    c.n = 8;
    cuda_conv_pass(cu_dnn(), &c, PASS_FWD, false, 0, &whole);
    dnn_drop(cu_dnn(), whole.plan);
    CHECK_EQ(whole.way, WAY_LIBRARY);
    CHECK_EQ(whole.images, 8);
    Data d = make_data(&c);
    for (int pass = 0; pass < 2; pass++) {
        c.limit = 1 + whole.bytes / 2;
        cuda_conv_pass(cu_dnn(), &c, (CudaPass)pass, false, c.limit, &part);
        dnn_drop(cu_dnn(), part.plan);
        CHECK(part.bytes <= whole.bytes / 2);
        if (whole.bytes) CHECK(part.images < 8);
        check_pass(c, &d, pass, "in parts");
    }
    free_data(&d);
}

/* NaN survives ReLU. */
static void check_nan(void) {
    DtrtConv c = geometry(&rows[0], 1, 1);
    int64_t n;
    c.relu = c.fwd = 1;
    c.grad_x = c.grad_w = 0;
    Data d = make_data(&c);
    for (int64_t i = 0; i < d.nx; i++) d.x[i] = NAN;
    CHECK(dtrt_conv_init(&c, NULL, 1));
    float *y = run_pass(&c, &d, &n);
    int64_t numbers = 0;
    for (int64_t i = 0; i < n; i++) numbers += !isnan(y[i]);
    CHECK_EQ(numbers, 0);
    dtrt_conv_free(&c);
    free(y);
    free_data(&d);
}

/* A convolution of the library's, and one that is a product. */
static void check_tf32(void) {
    off_most = 1e-3;
    off_least = 1e-5;
    check_row(&rows[0], 1, 1, 0);
    check_row(&rows[4], 1, 1, 0);
}

int main(int argc, char **argv) {
    static const char *const kernels[] = {"bias", "conv", NULL};
    bool tf32 = argc > 2;
    if (argc < 2 || !device_open(argv[1], kernels, tf32)) return 77;
    if (tf32) check_tf32();
    for (size_t i = 0; !tf32 && i < sizeof rows / sizeof *rows; i++)
        for (int packed = 0; packed < 2; packed++) {
            check_row(&rows[i], 1, packed, packed);
            check_row(&rows[i], 0, packed, !packed);
        }
    if (!tf32) {
        check_own_loops();
        check_parts();
        check_nan();
    }
    device_close();
    return test_end();
}
