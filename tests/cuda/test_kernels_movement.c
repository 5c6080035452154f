/* test_kernels_movement.c - kernels that move bytes or go by indices, against runtime/cpu: copies,
 * transpositions, slices, pads, gathers and scatters, TopK, fills, random numbers. */
#include <sys/mman.h>

#include "kernels.h"

static int64_t product(int nd, const int64_t *dim) {
    int64_t n = 1;
    for (int i = 0; i < nd; i++) n *= dim[i];
    return n;
}

/* n elements of `elem` random bytes */
static void *elements(int64_t n, int elem) {
    unsigned char *x = bytes((size_t)(n * elem));
    for (int64_t i = 0; i < n * elem; i++) x[i] = (unsigned char)(test_random() >> 40);
    return x;
}

static void test_copies(void) {
    static const int64_t sizes[] = {0, 1, 33, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        static const DtrtType type[] = {DTRT_F32, DTRT_F64, DTRT_I64, DTRT_I32, DTRT_U8, DTRT_BOOL};
        size_t n = (size_t)sizes[i];
        begin("copies of %d", (int)n);
        void *x = elements((int64_t)n, 1);
        Out *y = out_bytes(n), *fill[6];
        for (int t = 0; t < 6; t++)
            fill[t] = out_bytes(n * (t < 1 ? 4 : t < 3 ? 8 : t < 4 ? 4 : 1));
        EACH(k) {
            k->copy(x, at(y), n);
            for (int t = 0; t < 6; t++) k->fill(at(fill[t]), n, t < 5 ? 3.0 : 1.0, type[t]);
        }
        compare_bytes(y);
        for (int t = 0; t < 6; t++) compare_bytes(fill[t]);
        EACH(k) k->fill(at(fill[2]), n, -1.0, DTRT_I64); /* equal halves */
        compare_bytes(fill[2]);
        finish();
    }
}

static void test_transpose(void) {
    static const struct {
        int nd;
        int64_t dim[8], perm[8];
    } t[] = {{2, {33, 65}, {1, 0}},                 /* tiles, with edges */
             {2, {16, 16}, {1, 0}},                 /* the smallest tiles */
             {2, {3, 100}, {1, 0}},                 /* too short for tiles */
             {2, {100, 3}, {1, 0}},                 /* */
             {3, {2, 40, 20}, {0, 2, 1}},           /* tiles in slabs */
             {4, {2, 5, 3, 64}, {0, 2, 1, 3}},      /* heads: runs of 16-byte items */
             {4, {2, 5, 3, 7}, {0, 2, 1, 3}},       /* runs of odd length */
             {4, {2, 3, 20, 30}, {0, 2, 3, 1}},     /* NCHW to NHWC */
             {4, {3, 20, 2, 17}, {3, 2, 1, 0}},     /* */
             {3, {20, 3, 18}, {2, 0, 1}},           /* */
             {5, {2, 1, 3, 1, 4}, {3, 4, 1, 0, 2}}, /* ones */
             {3, {4, 5, 6}, {0, 1, 2}},             /* nothing moves */
             {1, {1}, {0}},                         /* */
             {0, {0}, {0}},                         /* a scalar */
             {8, {2, 2, 2, 2, 2, 2, 2, 2}, {7, 0, 6, 1, 5, 2, 4, 3}}};
    for (size_t i = 0; i < 3 * sizeof t / sizeof *t; i++) {
        static const int elems[] = {1, 4, 8};
        int c = (int)i / 3, elem = elems[i % 3], nd = t[c].nd;
        int64_t n = product(nd, t[c].dim);
        begin("transpose %d, elements of %d", c, elem);
        void *x = elements(n, elem);
        Out *y = out_bytes((size_t)(n * elem));
        EACH(k) k->transpose(x, at(y), nd, t[c].dim, t[c].perm, elem);
        compare_bytes(y);
        finish();
    }
}

static void test_concat(void) {
    static const int64_t inner[][3] = {{64, 32, 16}, {4, 12, 8}, {1, 5, 0}, {100, 4, 3}};
    for (int i = 0; i < 12; i++) {
        const int64_t *b = inner[i / 3];
        int64_t outer = i % 3 ? 7 * (i % 3) : 1, row = b[0] + b[1] + b[2];
        begin("concat %d of %d", i / 3, (int)outer);
        const void *x[3];
        for (int j = 0; j < 3; j++) x[j] = elements(outer * b[j], 1);
        Out *y = out_bytes((size_t)(outer * row));
        EACH(k) k->concat(3, x, at(y), outer, b);
        compare_bytes(y);
        finish();
    }
}

static void test_slice(void) {
    static const struct {
        int nd;
        int64_t dim[8], start[8], step[8], size[8];
    } t[] = {{1, {100}, {10}, {1}, {50}},
             {1, {100}, {3}, {7}, {14}},
             {1, {50}, {49}, {-1}, {50}}, /* backwards */
             {2, {40, 30}, {3, 0}, {2, 1}, {10, 30}},
             {2, {40, 32}, {0, 8}, {1, 1}, {40, 16}}, /* items of 16 bytes */
             {3, {5, 6, 768}, {0, 2, 256}, {1, 1, 1}, {5, 3, 256}},
             {3, {5, 6, 7}, {4, 5, 6}, {-2, -2, -3}, {3, 3, 3}},
             {4, {2, 3, 4, 5}, {0, 0, 0, 0}, {1, 1, 1, 1}, {2, 3, 4, 5}}, /* all of it */
             {2, {4, 5}, {0, 0}, {1, 1}, {0, 5}},
             {0, {0}, {0}, {0}, {0}}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        int nd = t[i].nd;
        int64_t n = product(nd, t[i].dim), m = product(nd, t[i].size);
        const int64_t *dim = t[i].dim, *start = t[i].start, *step = t[i].step, *size = t[i].size;
        begin("slice %d", (int)i);
        void *wide = elements(n, 8), *narrow = elements(n, 1);
        float *x = floats(n, -1, 1), *dy = floats(m, -1, 1);
        Out *y4 = out_floats(m), *y8 = out_bytes((size_t)m * 8), *y1 = out_bytes((size_t)m);
        Out *dx = out_floats(n), *add = out_floats(n), *place = out_copy(x, (size_t)n * 4);
        EACH(k) {
            k->slice(x, at(y4), nd, dim, start, step, size, 4);
            k->slice(wide, at(y8), nd, dim, start, step, size, 8);
            k->slice(narrow, at(y1), nd, dim, start, step, size, 1);
            k->slice_grad(dy, at(dx), nd, dim, start, step, size);
            k->slice_add(x, dy, at(add), nd, dim, start, step, size);
            k->slice_add(at(place), dy, at(place), nd, dim, start, step, size);
        }
        Out *all[] = {y4, y8, y1, dx, add, place};
        for (int j = 0; j < 6; j++) compare_bytes(all[j]);
        finish();
    }
}

static void test_pad(void) {
    static const struct {
        int nd;
        int64_t dim[8], lo[8], hi[8];
    } t[] = {{1, {5}, {2}, {3}},
             {1, {7}, {-2}, {4}},
             {1, {1}, {2}, {2}}, /* nothing to reflect at */
             {1, {3}, {7}, {8}}, /* there and back again */
             {2, {4, 5}, {1, 2}, {2, 0}},
             {2, {4, 8}, {3, 0}, {0, 0}}, /* items of 16 bytes */
             {2, {6, 7}, {-1, -2}, {-3, 2}},
             {4, {2, 3, 5, 6}, {0, 0, 2, 1}, {0, 0, 1, 3}},
             {4, {2, 5, 6, 4}, {0, 2, 1, 0}, {0, 1, 3, 0}},
             {3, {3, 1, 4}, {0, 1, 0}, {0, 0, 0}},
             {8, {2, 2, 1, 2, 2, 1, 2, 2}, {1, 0, 1, 0, 1, 0, 1, 0}, {0, 0, 0, 1, 0, 1, 0, 1}}};
    for (size_t i = 0; i < 3 * sizeof t / sizeof *t; i++) {
        int c = (int)i / 3, mode = (int)i % 3, nd = t[c].nd;
        int64_t n = product(nd, t[c].dim), m = 1;
        const int64_t *dim = t[c].dim, *lo = t[c].lo, *hi = t[c].hi;
        for (int k = 0; k < nd; k++) m *= dim[k] + lo[k] + hi[k];
        begin("pad %d mode %d", c, mode);
        float *x = floats(n, -1, 1), *dy = floats(m, -1, 1);
        void *wide = elements(n, 8), *narrow = elements(n, 1);
        Out *y = out_floats(m), *dx = out_floats(n), *y8 = out_bytes((size_t)m * 8);
        Out *y1 = out_bytes((size_t)m);
        EACH(k) {
            k->pad(x, at(y), nd, dim, lo, hi, mode, 0.5, DTRT_F32);
            k->pad(wide, at(y8), nd, dim, lo, hi, mode, -3, DTRT_I64);
            k->pad(narrow, at(y1), nd, dim, lo, hi, mode, 1, DTRT_BOOL);
            k->pad_grad(dy, at(dx), nd, dim, lo, hi, mode);
        }
        compare_bytes(y);
        compare_bytes(y8);
        compare_bytes(y1);
        compare(dx, 1e-6);
        finish();
    }
}

/* ---- indices ---- */

/* In [-n, n); as int32 when narrow. */
static void *indices(int64_t count, int64_t n, int narrow) {
    int64_t *wide = integers(count, -n, n);
    int32_t *few = bytes((size_t)count * sizeof *few);
    for (int64_t i = 0; i < count; i++) few[i] = (int32_t)wide[i];
    return narrow ? (void *)few : (void *)wide;
}

static void test_gather(void) {
    static const struct {
        int64_t outer, n, inner, count;
    } t[] = {{1, 5, 1, 7},    {1, 100, 64, 40},  {1, 40, 128, 100}, {1, 300, 20, 50},
             {2, 7, 130, 65}, {3, 50, 17, 33},   {1, 3, 16, 400},   {4, 6, 3, 5},
             {2, 9, 200, 1},  {1, 1000, 32, 17}, {1, 4, 5, 0},      {1, 3000, 4, 5000}};
    for (size_t i = 0; i < 2 * sizeof t / sizeof *t; i++) {
        int64_t outer = t[i / 2].outer, n = t[i / 2].n, inner = t[i / 2].inner;
        int64_t count = t[i / 2].count, x_size = outer * n * inner, y_size = outer * count * inner;
        int narrow = i % 2;
        begin("gather %d x %d x %d, %d", (int)outer, (int)n, (int)inner, (int)count);
        float *x = floats(x_size, -1, 1), *dy = floats(y_size, -1, 1);
        void *idx = indices(count, n, narrow), *wide = elements(x_size, 8);
        void *bits = elements(x_size, 1);
        Out *y = out_floats(y_size), *y8 = out_bytes((size_t)y_size * 8);
        Out *y1 = out_bytes((size_t)y_size), *dx = out_floats(x_size);
        Out *ws = out_bytes(cuda_gather_grad_needs(n, inner, count));
        DtrtCtx c = {0};
        EACH(k) {
            k->gather(&c, x, idx, narrow, at(y), outer, n, inner, count, 4);
            k->gather(&c, wide, idx, narrow, at(y8), outer, n, inner, count, 8);
            k->gather(&c, bits, idx, narrow, at(y1), outer, n, inner, count, 1);
            k->gather_grad(&c, dy, idx, narrow, at(dx), outer, n, inner, count, at(ws));
        }
        compare_bytes(y);
        compare_bytes(y8);
        compare_bytes(y1);
        compare(dx, 1e-5); /* sums of up to a hundred: the CPU's in float */
        finish();
    }
}

static void elements_case(const DtrtElements *q, bool from_zero) {
    int64_t n = product(q->nd, q->dim), m = product(q->nd, q->idim);
    begin("elements %d axis %d how %d", (int)m, q->axis, (int)q->how);
    void *x = q->elem == 4 ? (void *)floats(n, -1, 1) : elements(n, q->elem);
    void *u = q->elem == 4 ? (void *)floats(m, -1, 1) : elements(m, q->elem);
    void *idx = indices(m, q->dim[q->axis], q->idx_i32);
    size_t size = (size_t)(n * q->elem);
    Out *y = out_bytes((size_t)(m * q->elem)), *z = out_bytes(size), *place = out_copy(x, size);
    DtrtCtx c = {0};
    EACH(k) {
        k->gather_elements(&c, q, x, idx, at(y));
        k->scatter_elements(&c, q, from_zero ? NULL : x, idx, u, at(z));
        k->scatter_elements(&c, q, at(place), idx, u, at(place));
    }
    compare_bytes(y);
    compare_bytes(z);
    compare_bytes(place);
    finish();
}

static void test_elements(void) {
    for (int how = 0; how < 5; how++) {
        /* one line of many indices; short lines; lines beside each other */
        DtrtElements a = {
            .nd = 1, .axis = 0, .elem = 4, .how = (DtrtScatter)how, .dim = {20}, .idim = {200}};
        DtrtElements b = {.nd = 3,
                          .axis = 1,
                          .elem = 4,
                          .how = (DtrtScatter)how,
                          .idx_i32 = 1,
                          .dim = {4, 6, 5},
                          .idim = {3, 9, 5}};
        DtrtElements d = {.nd = 3,
                          .axis = 1,
                          .elem = 4,
                          .how = (DtrtScatter)how,
                          .dim = {2, 6, 5},
                          .idim = {2, 40, 4}};
        elements_case(&a, how % 2);
        elements_case(&b, how % 2 == 0);
        elements_case(&d, how % 2);
    }
    for (int elem = 1; elem <= 8; elem *= 8) {
        DtrtElements a = {.nd = 2, .axis = 1, .elem = elem, .dim = {3, 7}, .idim = {2, 50}};
        DtrtElements b = {.nd = 2, .axis = 0, .elem = elem, .dim = {9, 7}, .idim = {4, 7}};
        elements_case(&a, false);
        elements_case(&b, true);
    }
}

static void tuples_case(const DtrtTuples *q) {
    int64_t slices = product(q->k, q->dim), n = q->batch * slices * q->inner;
    int64_t tuples = q->batch * q->count, m = tuples * q->inner;
    begin("tuples %d of %d how %d", (int)tuples, q->k, (int)q->how);
    void *x = q->elem == 4 ? (void *)floats(n, -1, 1) : elements(n, q->elem);
    void *u = q->elem == 4 ? (void *)floats(m, -1, 1) : elements(m, q->elem);
    int64_t *idx = integers(tuples * q->k, 0, 1);
    for (int64_t i = 0; i < tuples * q->k; i++) {
        int64_t d = q->dim[i % q->k];
        idx[i] = (int64_t)(test_random() >> 33) % (2 * d) - d;
    }
    size_t size = (size_t)(n * q->elem);
    Out *y = out_bytes((size_t)(m * q->elem)), *z = out_bytes(size), *zero = out_bytes(size);
    DtrtCtx c = {0};
    EACH(k) {
        k->gather_nd(&c, q, x, idx, at(y));
        k->scatter_nd(&c, q, x, idx, u, at(z));
        k->scatter_nd(&c, q, NULL, idx, u, at(zero));
    }
    compare_bytes(y);
    compare_bytes(z);
    compare_bytes(zero);
    finish();
}

static void test_tuples(void) {
    for (int how = 0; how < 5; how++) {
        DtrtTuples a = {.k = 1,
                        .elem = 4,
                        .how = (DtrtScatter)how,
                        .batch = 1,
                        .count = 100,
                        .inner = 33,
                        .dim = {9}};
        DtrtTuples b = {.k = 2,
                        .elem = 4,
                        .how = (DtrtScatter)how,
                        .batch = 3,
                        .count = 40,
                        .inner = 1,
                        .dim = {3, 4}};
        tuples_case(&a);
        tuples_case(&b);
    }
    for (int elem = 1; elem <= 8; elem *= 8) {
        DtrtTuples a = {
            .k = 3, .elem = elem, .batch = 2, .count = 20, .inner = 5, .dim = {2, 3, 4}};
        tuples_case(&a);
    }
}

static void check_report(long long want_value, long long want_limit, long long want_position) {
    long long value, limit, position;
    CHECK(reported(&value, &limit, &position));
    CHECK_EQ(value, want_value);
    CHECK_EQ(limit, want_limit);
    CHECK_EQ(position, want_position);
}

/* The CPU's functions end the run: these are not called. */
static void test_index_range(void) {
    static const int64_t bad[] = {5, -6, 1LL << 40};
    DtrtCtx c = {0};
    for (int i = 0; i < 3; i++)
        for (int what = 0; what < 7; what++) {
            begin("index %lld, function %d", (long long)bad[i], what);
            float *x = floats(5 * 40, -1, 1), *u = floats(20 * 40, -1, 1);
            int64_t *idx = integers(20, -5, 5);
            Out *y = out_floats(20 * 40), *ws = out_bytes(cuda_gather_grad_needs(5, 40, 20));
            DtrtElements e = {.nd = 1, .elem = 4, .dim = {5}, .idim = {20}};
            DtrtElements lines = {.nd = 2, .elem = 4, .dim = {5, 4}, .idim = {5, 4}};
            DtrtTuples t = {.k = 1, .elem = 4, .batch = 1, .count = 20, .inner = 40, .dim = {5}};
            idx[3] = bad[i];
            EACH(k) {
                if (on_cpu()) continue;
                switch (what) {
                case 0: k->gather(&c, x, idx, 0, at(y), 1, 5, 40, 20, 4); break;
                case 1: k->gather_grad(&c, u, idx, 0, at(y), 1, 5, 40, 20, at(ws)); break;
                case 2: k->gather_elements(&c, &e, x, idx, at(y)); break;
                case 3: k->scatter_elements(&c, &e, x, idx, u, at(y)); break;
                case 4: k->scatter_elements(&c, &lines, x, idx, u, at(y)); break;
                case 5: k->gather_nd(&c, &t, x, idx, at(y)); break;
                default: k->scatter_nd(&c, &t, x, idx, u, at(y)); break;
                }
            }
            check_report(bad[i], -5, 3); /* [-5, 5) */
            finish();
        }
}

static void test_topk(void) {
    static const int64_t t[][4] = {{1, 1, 1, 1},  {3, 10, 1, 4}, {2, 300, 1, 300},
                                   {2, 20, 5, 3}, {40, 8, 1, 2}, {1, 5, 1, 0}};
    for (size_t i = 0; i < 2 * sizeof t / sizeof *t; i++) {
        int64_t outer = t[i / 2][0], n = t[i / 2][1], inner = t[i / 2][2], k = t[i / 2][3];
        int64_t total = outer * n * inner, best = outer * k * inner;
        begin("topk %d x %d x %d, %d", (int)outer, (int)n, (int)inner, (int)k);
        float *x = floats(total, -3, 3);
        for (int64_t j = 0; j < total; j++) x[j] = rintf(x[j] * 2) + 0.0f; /* equal ones */
        if (total > 9) x[2] = x[7] = NAN;
        Out *v = out_floats(best), *place = out_bytes((size_t)best * 8);
        EACH(f) f->topk(x, at(v), at(place), outer, n, inner, k, i % 2);
        compare(v, 0);
        compare_bytes(place);
        finish();
    }
}

static void test_random_fill(void) {
    DtrtCtx c = {.seed = 0x123456789abcdefULL, .step = 41};
    begin("random");
    Out *u = out_floats(1000), *g = out_floats(1001);
    set_step(&c);
    EACH(k) {
        DtrtCtx none = {0}; /* the CUDA target does not look here */
        k->random_fill(on_cpu() ? &c : &none, at(u), 1000, 5, 0, 2.0, -1.0);
        k->random_fill(on_cpu() ? &c : &none, at(g), 1001, 6, 1, 0.5, 3.0);
    }
    compare_bytes(u);
    compare(g, 1e-6); /* logarithms and cosines */
    finish();
}

/* Offsets beyond 2^32: a column of an array of 17 GiB, most of which is never touched. */
static void test_far(void) {
    enum { ROWS = 65537, ROW = 65536 };
    const int64_t dim[] = {ROWS, ROW}, start[] = {0, 5}, step[] = {16384, 1}, size[] = {5, 2};
    size_t all = (size_t)ROWS * ROW * 4;
    float *x =
        mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) {
        printf("no address space for offsets beyond 2^32\n");
        return;
    }
    begin("far");
    for (int64_t i = 0; i < 10; i++) x[i / 2 * 16384 * ROW + 5 + i % 2] = (float)i;
    allow(x, all);
    Out *y = out_floats(10);
    float *dy = floats(10, 1, 2);
    const double want[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    EACH(k) if (!on_cpu()) k->slice(x, at(y), 2, dim, start, step, size, 4);
    expect_floats(y, want, 0);
    EACH(k) if (!on_cpu()) k->slice_add(x, dy, x, 2, dim, start, step, size);
    for (int i = 0; i < 10; i++) {
        float sum = (float)i;
        for (int pass = 0; pass < CUDA_PASSES; pass++) sum += dy[i];
        CHECK_NEAR((double)x[i / 2 * (int64_t)16384 * ROW + 5 + i % 2], (double)sum, 0);
    }
    finish();
    munmap(x, all);
}

int main(int argc, char **argv) {
    static const char *const file[] = {"movement", "fill",   "pad", "gather",
                                       "index",    "random", NULL};
    if (!open_kernels(argc, argv, file)) return 77;
    test_copies();
    test_transpose();
    test_concat();
    test_slice();
    test_pad();
    test_gather();
    test_elements();
    test_tuples();
    test_index_range();
    test_topk();
    test_random_fill();
    if (!on_gpu()) test_far(); /* its memory is reserved, not there */
    return test_end() | kernels_end();
}
