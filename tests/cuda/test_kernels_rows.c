/* test_kernels_rows.c - kernels that work along rows and columns, against runtime/cpu: softmax,
 * losses, norms, reductions, running sums, positions of extremes, updates. */
#include "kernels.h"

#include "cu.h"

/* Sums in double and rounded once, on both sides: a few units in the last place. */
static const double ROUNDING = 1e-6;

typedef struct {
    int64_t outer, n, inner;
} Shape;
/* Around the warp, the register cache (256 a warp), the block, and with columns. */
static const Shape shapes[] = {{1, 1, 1},   {3, 5, 1},   {9, 31, 1},  {2, 32, 1},   {17, 33, 1},
                               {3, 256, 1}, {3, 257, 1}, {2, 513, 1}, {2, 1025, 1}, {1, 9000, 1},
                               {1, 5, 2},   {2, 7, 31},  {2, 9, 33},  {1, 40, 64},  {3, 1, 3},
                               {0, 5, 1},   {2, 3, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_softmax(void) {
    for (int i = 0; i < 2 * SHAPES; i++) {
        Shape s = shapes[i / 2];
        int64_t total = s.outer * s.n * s.inner;
        int is_log = i % 2;
        begin("softmax %d x %d x %d log %d", (int)s.outer, (int)s.n, (int)s.inner, is_log);
        float *x = floats(total, -6, 6), *dy = floats(total, -1, 1);
        Out *y = out_floats(total), *place = out_copy(x, (size_t)total * 4);
        Out *dx = out_floats(total), *dplace = out_copy(dy, (size_t)total * 4);
        EACH(k) {
            k->softmax(x, at(y), s.outer, s.n, s.inner, is_log);
            k->softmax(at(place), at(place), s.outer, s.n, s.inner, is_log);
            k->softmax_grad(dy, x, at(dx), s.outer, s.n, s.inner, is_log);
            k->softmax_grad(at(dplace), x, at(dplace), s.outer, s.n, s.inner, is_log);
        }
        compare(y, ROUNDING);
        compare(place, ROUNDING);
        compare(dx, 1e-5); /* e^6 times a sum */
        compare(dplace, 1e-5);
        finish();
    }
}

/* Infinite and absurd numbers: nothing overflows on the way. */
static void test_softmax_extremes(void) {
    begin("softmax of extremes");
    float *x = bytes(8 * sizeof *x);
    const float rows[8] = {3e38f, -3e38f, 1, -INFINITY, NAN, 1, 2, 3};
    memcpy(x, rows, sizeof rows);
    Out *y = out_floats(8);
    EACH(k) k->softmax(x, at(y), 2, 4, 1, 0);
    const double want[8] = {1, 0, 0, 0, NAN, NAN, NAN, NAN};
    expect_floats(y, want, 0);
    finish();
}

/* ---- losses ---- */

static void loss_case(Shape s, int variant) {
    DtrtLoss l = {.outer = s.outer,
                  .n = s.n,
                  .inner = s.inner,
                  .label_i32 = variant & 1,
                  .has_ignore = (variant & 2) != 0,
                  .is_log = (variant & 4) != 0,
                  .ignore_index = variant & 8 ? -100 : 0,
                  .smoothing = variant & 8 ? 0.1f : 0};
    int64_t positions = s.outer * s.inner, total = positions * s.n;
    begin("loss %d x %d x %d variant %d", (int)s.outer, (int)s.n, (int)s.inner, variant);
    float *x = floats(total, -6, 6), *dloss = floats(1, 0.5, 2);
    int64_t *labels = integers(positions, 0, s.n);
    if (variant & 8 && positions > 1) labels[1] = l.has_ignore ? -100 : 0;
    if (variant & 1) /* narrow them in place */
        for (int64_t i = 0; i < positions; i++) {
            int32_t v = (int32_t)labels[i];
            memcpy((int32_t *)labels + i, &v, sizeof v);
        }
    Out *loss = out_floats(1), *dx = out_floats(total), *ws = out_bytes(4096);
    DtrtCtx c = {0};
    EACH(k) {
        CHECK(k->loss_needs(&l, 1) <= 4096);
        k->loss_forward(&c, &l, x, labels, at(loss), at(ws));
        k->loss_grad(&c, &l, dloss, x, labels, at(dx), at(ws));
    }
    compare(loss, ROUNDING);
    compare(dx, ROUNDING);
    finish();
}

static void test_loss(void) {
    static const Shape s[] = {{1, 1, 1},  {5, 10, 1},  {2, 1000, 1}, {1, 5, 2},
                              {2, 7, 33}, {1, 300, 1}, {260, 3, 1},  {2, 2, 140}};
    for (int i = 0; i < 8; i++)
        for (int v = 0; v < 16; v += i < 2 ? 1 : i < 6 ? 3 : 15) loss_case(s[i], v);
}

static void test_label_range(void) {
    const int64_t bad[] = {5, -1, 1LL << 40};
    for (int i = 0; i < 6; i++) {
        DtrtLoss l = {.outer = 4, .n = 5, .inner = i % 2 ? 3 : 1};
        int64_t last = 4 * l.inner - 1;
        long long value, limit, position;
        begin("label %lld", (long long)bad[i / 2]);
        float *x = floats(60, -1, 1), *dloss = floats(1, 1, 2);
        int64_t *labels = integers(12, 0, 5);
        Out *loss = out_floats(1), *dx = out_floats(60), *ws = out_bytes(4096);
        DtrtCtx c = {0};
        labels[last] = bad[i / 2];
        EACH(k) {
            if (on_cpu()) continue; /* which would end the run */
            k->loss_forward(&c, &l, x, labels, at(loss), at(ws));
            k->loss_grad(&c, &l, dloss, x, labels, at(dx), at(ws));
        }
        CHECK(reported(&value, &limit, &position));
        CHECK_EQ(value, bad[i / 2]);
        CHECK_EQ(limit, 5);
        CHECK_EQ(position, last);
        finish();
    }
}

/* ---- norms ---- */

static void norm_case(int64_t rows, int64_t n, int variant) {
    int64_t total = rows * n;
    begin("layernorm %d x %d variant %d", (int)rows, (int)n, variant);
    float *x = floats(total, -3, 5), *scale = floats(n, 0.5, 2), *bias = floats(n, -1, 1);
    float *dy = floats(total, -1, 1), *m = floats(rows, 0, 2), *inv = floats(rows, 0.2, 1);
    Out *y = out_floats(total), *mean = out_floats(rows), *std = out_floats(rows);
    Out *dx = out_floats(total), *r = out_floats(total), *rinv = out_floats(rows);
    Out *rdx = out_floats(total);
    bool stats = variant & 1;
    EACH(k) {
        k->layernorm(x, scale, variant & 2 ? bias : NULL, at(y), stats ? at(mean) : NULL,
                     stats ? at(std) : NULL, rows, n, 1e-5f);
        k->layernorm_grad_x(dy, x, scale, m, inv, at(dx), rows, n);
        k->rmsnorm(x, scale, at(r), stats ? at(rinv) : NULL, rows, n, 1e-5f);
        k->rmsnorm_grad_x(dy, x, scale, inv, at(rdx), rows, n);
    }
    compare(y, ROUNDING);
    compare(mean, ROUNDING);
    compare(std, ROUNDING);
    compare(dx, ROUNDING);
    compare(r, ROUNDING);
    compare(rinv, ROUNDING);
    compare(rdx, ROUNDING);
    finish();
}

static void group_case(int64_t n, int64_t c, int64_t s, int64_t group, int last) {
    int64_t total = n * c * s;
    begin("groupnorm %d x %d x %d, %d groups, last %d", (int)n, (int)c, (int)s, (int)group, last);
    float *x = floats(total, -3, 5), *scale = floats(c, 0.5, 2), *bias = floats(c, -1, 1);
    float *dy = floats(total, -1, 1), *m = floats(n * group, 0, 2), *v = floats(n * group, 0.2, 1);
    Out *y = out_floats(total), *mean = out_floats(n * group), *inv = out_floats(n * group);
    Out *dx = out_floats(total);
    EACH(k) {
        k->groupnorm(x, scale, bias, at(y), at(mean), at(inv), n, c, s, group, last, 1e-5f);
        k->groupnorm_grad_x(dy, x, scale, m, v, at(dx), n, c, s, group, last);
    }
    compare(y, 2 * ROUNDING);
    compare(mean, ROUNDING);
    compare(inv, ROUNDING);
    compare(dx, 2 * ROUNDING);
    finish();
}

static void test_norms(void) {
    static const int64_t sizes[][2] = {{1, 1},   {5, 31},  {9, 32},   {3, 256},
                                       {2, 257}, {3, 768}, {1, 9000}, {0, 4}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int v = 0; v < 4; v += 3) norm_case(sizes[i][0], sizes[i][1], v);
    for (int last = 0; last < 2; last++) {
        group_case(2, 6, 5, 3, last);
        group_case(1, 32, 49, 32, last);
        group_case(3, 8, 100, 1, last);
        group_case(1, 130, 3, 2, last);
    }
}

static void test_bn_update(void) {
    begin("bn_update");
    float *m = floats(300, -1, 1), *v = floats(300, 0, 2);
    float *rm = floats(300, -1, 1), *rv = floats(300, 0, 2);
    Out *mean = out_copy(rm, 1200), *var = out_copy(rv, 1200);
    EACH(k) k->bn_update(at(mean), at(var), m, v, 300, 0.9f);
    compare(mean, 0);
    compare(var, 0);
    finish();
}

/* ---- reductions ---- */

static const struct {
    int nd;
    int64_t dim[8];
    uint8_t red[8];
} reductions[] = {
    {1, {1}, {1}},
    {1, {100}, {1}},
    {1, {20000}, {1}}, /* in parts */
    {1, {7}, {0}},
    {2, {40, 17}, {0, 1}},
    {2, {3, 300}, {0, 1}},
    {2, {2, 9000}, {0, 1}}, /* in parts */
    {2, {300, 40}, {1, 0}},
    {2, {2100, 33}, {1, 0}}, /* in parts */
    {2, {5, 70}, {1, 0}},
    {3, {4, 3, 5}, {0, 1, 0}},
    {3, {4, 30, 5}, {1, 0, 1}},
    {4, {3, 4, 5, 40}, {1, 0, 1, 0}},
    {4, {3, 4, 5, 33}, {0, 1, 0, 1}},
    {6, {2, 3, 2, 3, 2, 3}, {1, 0, 1, 0, 1, 0}},
    {8, {2, 2, 2, 2, 2, 2, 2, 2}, {1, 0, 1, 0, 1, 0, 1, 0}},
    {8, {1, 2, 1, 3, 1, 1, 4, 1}, {1, 1, 0, 0, 1, 0, 1, 1}},
    {2, {0, 5}, {1, 0}},
    {2, {5, 0}, {1, 0}},
};
enum { REDUCTIONS = sizeof reductions / sizeof *reductions };

static int64_t sizes_of(int r, int64_t *outputs) {
    int64_t total = *outputs = 1;
    for (int i = 0; i < reductions[r].nd; i++) {
        total *= reductions[r].dim[i];
        if (!reductions[r].red[i]) *outputs *= reductions[r].dim[i];
    }
    return total;
}

static void test_reductions(void) {
    for (int i = 0; i < REDUCTIONS; i++) {
        int nd = reductions[i].nd;
        const int64_t *dim = reductions[i].dim;
        const uint8_t *red = reductions[i].red;
        int64_t outputs, total = sizes_of(i, &outputs);
        begin("reduction %d", i);
        float *x = floats(total, -2, 3), *dy = floats(outputs, -1, 1);
        if (total > 40) x[7] = x[12] = NAN;
        Out *y = out_floats(outputs), *f[4], *dx = out_floats(total);
        for (int k = 0; k < 4; k++) f[k] = out_floats(outputs);
        Out *ws = out_bytes(cuda_reduce_sum_needs(nd, dim, red));
        EACH(k) {
            k->reduce_sum(x, at(y), nd, dim, red, 0.25f, at(ws));
            for (int j = 0; j < 4 && total; j++) k->fold((DtrtFold)j, x, at(f[j]), nd, dim, red);
        }
        compare(y, ROUNDING);
        for (int j = 0; j < 4; j++) compare(f[j], j == 2 ? 1e-5 : ROUNDING);
        /* products of a moderate size, one zero, two zeros */
        for (int64_t j = 0; j < total; j++) x[j] = 1 + x[j] / 100;
        if (total > 40) x[7] = x[12] = x[13] = 0;
        EACH(k) k->prod_grad(dy, x, at(dx), nd, dim, red);
        compare(dx, 1e-5);
        finish();
    }
}

static void test_scans(void) {
    for (int i = 0; i < SHAPES * 4; i++) {
        Shape s = shapes[i / 4];
        int64_t total = s.outer * s.n * s.inner, lines = s.outer * s.inner;
        begin("scan %d x %d x %d variant %d", (int)s.outer, (int)s.n, (int)s.inner, i % 4);
        float *x = floats(total, -2, 3);
        for (int64_t j = 0; j < total; j++) x[j] = rintf(x[j] * 3); /* with equal ones */
        if (total > 9) x[8] = x[9] = NAN;
        Out *sum = out_floats(total), *place = out_bytes((size_t)lines * 8);
        EACH(k) {
            k->cumsum(x, at(sum), s.outer, s.n, s.inner, i & 1, i & 2);
            k->arg(x, at(place), s.outer, s.n, s.inner, i & 1, i & 2);
        }
        compare(sum, 1e-6);
        compare_bytes(place);
        finish();
    }
}

/* ---- updates ---- */

static void update_case(int64_t n, uint64_t step, int variant) {
    DtrtCtx c = {.step = step,
                 .lr = 0.1f,
                 .momentum = variant & 1 ? 0.9f : 0,
                 .dampening = variant & 2 ? 0 : 0.1f,
                 .weight_decay = 0.01f,
                 .beta1 = 0.9f,
                 .beta2 = 0.999f,
                 .eps = variant & 2 ? 0 : 1e-8f,
                 .nesterov = variant & 2};
    size_t size = (size_t)n * 4;
    begin("updates of %d, step %d variant %d", (int)n, (int)step, variant);
    float *w = floats(n, -1, 1), *g = floats(n, -1, 1), *m = floats(n, -1, 1);
    float *v = floats(n, 0, 1);
    if (n > 2) g[2] = w[2] = m[2] = v[2] = 0; /* padding */
    Out *plain = out_copy(w, size), *sw = out_copy(w, size), *sv = out_copy(m, size);
    Out *aw = out_copy(w, size), *am = out_copy(m, size), *av = out_copy(v, size);
    set_step(&c);
    spoil(variant & 4);
    EACH(k) {
        DtrtCtx none = {0}; /* the CUDA target does not look here */
        if (on_cpu() && variant & 4) continue;
        const DtrtCtx *now = on_cpu() ? &c : &none;
        k->sgd(now, at(plain), g, NULL, n);
        k->sgd(now, at(sw), g, at(sv), n);
        k->adam(now, at(aw), g, at(am), at(av), n, variant & 1);
    }
    Out *all[] = {plain, sw, sv, aw, am, av};
    for (int i = 0; i < 6; i++) compare(all[i], variant & 4 ? 0 : 1e-6);
    finish();
}

/* Many tensors a launch, some empty, some of several chunks; more of them than one launch holds. */
static void updates_case(int count, int variant) {
    static const int64_t sizes[] = {3, 0, 2048, 40, 2049, 1};
    DtrtCtx c = {.step = 3, .lr = 0.1f, .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f};
    int64_t total = 0, size = 0;
    begin("%d updates, variant %d", count, variant);
    for (int i = 0; i < count; i++) total += sizes[i % 6];
    float *x = floats(total, -1, 1), *g = floats(total, -1, 1), *zero = floats(total, 0, 1);
    Out *w = out_copy(x, (size_t)total * 4), *m = out_copy(zero, (size_t)total * 4);
    Out *v = out_copy(zero, (size_t)total * 4);
    c.eps = 1e-8f;
    set_step(&c);
    EACH(k) {
        float *wi = at(w), *mi = at(m), *vi = at(v), *gi = g;
        if (!on_cpu()) cu_updates_begin();
        for (int i = 0; i < count; i++, wi += size, mi += size, vi += size, gi += size) {
            size = sizes[i % 6];
            if (!on_cpu()) cu_updates_order(count - i);
            if (variant == 0 || (variant == 2 && i % 2))
                k->sgd(&c, wi, gi, mi, size);
            else
                k->adam(&c, wi, gi, mi, vi, size, 1);
        }
        if (!on_cpu()) cu_updates_end();
    }
    compare(w, 1e-6);
    compare(m, 1e-6);
    compare(v, 1e-6);
    finish();
}

/* Two of the gradients are not finite: the earlier one is told, and no weight of theirs or of what
 * comes later changes. */
static void bad_gradient_case(void) {
    enum { COUNT = 5, N = 3000 };
    begin("gradients that are not finite");
    float *good = floats(N, -1, 1), *bad = floats(N, -1, 1);
    bad[2500] = INFINITY;
    Out *w[COUNT], *later = out_copy(good, N * 4);
    DtrtCtx c = {.lr = 0.1f};
    for (int i = 0; i < COUNT; i++) w[i] = out_copy(good, N * 4);
    set_step(&c);
    EACH(k) {
        if (on_cpu()) continue; /* its driver checks gradients */
        cu_updates_begin();
        for (int i = 0; i < COUNT; i++) {
            cu_updates_order(COUNT - i);
            k->sgd(&c, at(w[i]), i == 1 || i == 3 ? bad : good, NULL, N);
        }
        cu_updates_end();
        CHECK_EQ(nonfinite_reported(), COUNT - 1);
        k->sgd(&c, at(later), good, NULL, N);
    }
    for (int i = 0; i < COUNT; i++) compare_bytes(w[i]);
    compare_bytes(later);
    finish();
}

static void test_updates(void) {
    for (int v = 0; v < 3; v++) updates_case(6, v);
    updates_case(CU_UPDATES + 1, 0);
    bad_gradient_case();
    for (int v = 0; v < 5; v++) {
        update_case(1, 0, v);
        update_case(300, 0, v);
        update_case(2049, 7, v);
    }
}

int main(int argc, char **argv) {
    static const char *const file[] = {"softmax", "loss", "norm",  "group_norm", "reduce",
                                       "fold",    "scan", "optim", NULL};
    if (!open_kernels(argc, argv, file)) return 77;
    test_softmax();
    test_softmax_extremes();
    test_loss();
    test_label_range();
    test_norms();
    test_bn_update();
    test_reductions();
    test_scans();
    test_updates();
    return test_end() | kernels_end();
}
