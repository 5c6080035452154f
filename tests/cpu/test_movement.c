/* Transpose, Concat, Slice, Pad, Gather, Fill and gradients against index arithmetic; optimizers
 * against formulas in double. */
#include "cpu_test.h"

enum { MAX = 8 };

static int64_t product(const int64_t *d, int n) {
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= d[i];
    return p;
}

/* Coordinates of element i. */
static void coordinates(int nd, const int64_t *dim, int64_t i, int64_t *at) {
    for (int k = nd; k-- > 0;) {
        at[k] = i % dim[k];
        i /= dim[k];
    }
}
static int64_t linear(int nd, const int64_t *dim, const int64_t *at) {
    int64_t i = 0;
    for (int k = 0; k < nd; k++) i = i * dim[k] + at[k];
    return i;
}

static Buf bytes_random(int64_t n) {
    Buf b = buf_new((size_t)n, 0);
    for (int64_t i = 0; i < n; i++) b.at[i] = (char)(cpu_random() * 127.0f);
    return b;
}

/* ---- transpose ---- */

static void check_transpose(int nd, const int64_t *dim, const int64_t *perm, int elem) {
    int64_t n = product(dim, nd), ydim[MAX];
    Buf x = bytes_random(n * elem), y = buf_new(x.n, 1), want = buf_new(x.n, 0);
    for (int i = 0; i < nd; i++) ydim[i] = dim[perm[i]];
    for (int64_t i = 0; i < n; i++) {
        int64_t o[MAX], in[MAX];
        coordinates(nd, ydim, i, o);
        for (int k = 0; k < nd; k++) in[perm[k]] = o[k];
        memcpy(want.at + i * elem, x.at + linear(nd, dim, in) * elem, (size_t)elem);
    }
    dtrt_transpose(x.at, y.at, nd, dim, perm, elem);
    CHECK_SAME("transpose", y, want);
    buf_free(&x);
    buf_free(&y);
    buf_free(&want);
}

static void check_transposes(void) {
    const int64_t nchw[] = {2, 3, 17, 19}, to_nhwc[] = {0, 2, 3, 1}, to_nchw[] = {0, 3, 1, 2};
    const int64_t heads[] = {4, 65, 6, 32}, swap[] = {0, 2, 1, 3}, keys[] = {0, 2, 3, 1};
    const int64_t big[] = {200, 130}, two[] = {1, 0}, ones[] = {1, 5, 1, 1, 7},
                  mix[] = {4, 3, 0, 2, 1};
    const int64_t six[] = {2, 3, 4, 5, 2, 3}, rev[] = {5, 4, 3, 2, 1, 0},
                  same[] = {0, 1, 2, 3, 4, 5}, none[] = {3, 0, 5}, turn[] = {2, 0, 1};
    for (int e = 1; e <= 8; e = e == 1 ? 4 : e * 2) {
        check_transpose(4, nchw, to_nhwc, e);
        check_transpose(4, nchw, to_nchw, e);
        check_transpose(4, heads, swap, e);
        check_transpose(4, heads, keys, e);
        check_transpose(2, big, two, e);
        check_transpose(5, ones, mix, e);
        check_transpose(6, six, rev, e);
        check_transpose(6, six, same, e);
        check_transpose(0, NULL, NULL, e);
        check_transpose(3, none, turn, e);
    }
}

/* ---- concat ---- */

static void check_concat(int64_t outer) {
    const int64_t part[] = {12, 4, 400};
    Buf x[3], y = buf_new((size_t)(outer * 416), 1);
    const void *in[3];
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        x[i] = bytes_random(outer * part[i]);
        in[i] = x[i].at;
    }
    dtrt_concat(3, in, y.at, outer, part);
    for (int64_t o = 0; o < outer; o++) {
        for (int i = 0; i < 3; at += part[i], i++) {
            CHECK(!memcmp(y.at + at, x[i].at + o * part[i], (size_t)part[i]));
        }
    }
    for (int i = 0; i < 3; i++) buf_free(&x[i]);
    buf_free(&y);
}

/* ---- slice ---- */

static void check_slice(int nd, const int64_t *dim, const int64_t *start, const int64_t *step,
                        const int64_t *size) {
    int64_t nx = product(dim, nd), ny = product(size, nd);
    Buf x = buf_random(nx, 0), y = buf_new((size_t)ny * 4, 1), want = buf_new((size_t)ny * 4, 0);
    Buf dx = buf_new(x.n, 1), wdx = buf_new(x.n, 0);
    memset(wdx.at, 0, wdx.n);
    for (int64_t i = 0; i < ny; i++) {
        int64_t o[MAX];
        coordinates(nd, size, i, o);
        for (int k = 0; k < nd; k++) o[k] = start[k] + o[k] * step[k];
        int64_t from = linear(nd, dim, o);
        buf_f(&want)[i] = buf_f(&x)[from];
        buf_f(&wdx)[from] = buf_f(&x)[from];
    }
    dtrt_slice(x.at, y.at, nd, dim, start, step, size, 4);
    dtrt_slice_grad(buf_f(&y), buf_f(&dx), nd, dim, start, step, size);
    CHECK_SAME("slice", y, want);
    CHECK_SAME("slice gradient", dx, wdx);
    dtrt_slice_add(buf_f(&x), buf_f(&y), buf_f(&dx), nd, dim, start, step, size);
    for (int64_t i = 0; i < nx; i++) buf_f(&wdx)[i] += buf_f(&x)[i];
    CHECK_SAME("sum with a slice", dx, wdx);
    dtrt_slice_add(buf_f(&x), buf_f(&y), buf_f(&x), nd, dim, start, step, size);
    CHECK_SAME("sum with a slice, in place", x, wdx);
    Buf *all[] = {&x, &y, &want, &dx, &wdx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
}

static void check_slices(void) {
    const int64_t d[] = {4, 6, 5, 8}, zero[] = {0, 0, 0, 0}, one[] = {1, 1, 1, 1};
    check_slice(4, d, zero, one, d);
    check_slice(4, d, (int64_t[]){0, 2, 0, 0}, one, (int64_t[]){4, 3, 5, 8});
    check_slice(4, d, (int64_t[]){1, 0, 1, 3}, one, (int64_t[]){2, 6, 3, 4});
    check_slice(4, d, (int64_t[]){0, 5, 0, 7}, (int64_t[]){1, -1, 1, -2}, (int64_t[]){4, 6, 5, 4});
    check_slice(4, d, (int64_t[]){0, 0, 1, 0}, (int64_t[]){2, 3, 2, 1}, (int64_t[]){2, 2, 2, 8});
    check_slice(1, (int64_t[]){50000}, (int64_t[]){49999}, (int64_t[]){-1}, (int64_t[]){50000});
}

/* ---- pad ---- */

/* Where output coordinate o comes from, walking into the image; -1 constant. */
static int64_t pad_source(int64_t o, int64_t n, int mode) {
    if (mode == 0) return o < 0 || o >= n ? -1 : o;
    while (o < 0 || o >= n) {
        if (mode == 2 || n == 1) return o < 0 ? 0 : n - 1;
        o = o < 0 ? -o : 2 * (n - 1) - o;
    }
    return o;
}

static void check_pad(int nd, const int64_t *dim, const int64_t *lo, const int64_t *hi, int mode) {
    int64_t ydim[MAX], nx = product(dim, nd);
    for (int i = 0; i < nd; i++) ydim[i] = dim[i] + lo[i] + hi[i];
    int64_t ny = product(ydim, nd);
    Buf x = buf_random(nx, 0), y = buf_new((size_t)ny * 4, 1), want = buf_new((size_t)ny * 4, 0);
    Buf dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    double *wdx = calloc((size_t)nx, 8);
    for (int64_t i = 0; i < ny; i++) {
        int64_t o[MAX];
        int inside = 1;
        coordinates(nd, ydim, i, o);
        for (int k = 0; k < nd; k++) {
            o[k] = pad_source(o[k] - lo[k], dim[k], mode);
            inside &= o[k] >= 0;
        }
        int64_t from = inside ? linear(nd, dim, o) : 0;
        buf_f(&want)[i] = inside ? buf_f(&x)[from] : 2.5f;
        if (inside) wdx[from] += (double)buf_f(&x)[from];
    }
    dtrt_pad(x.at, y.at, nd, dim, lo, hi, mode, 2.5, DTRT_F32);
    CHECK_SAME("pad", y, want);
    dtrt_pad_grad(buf_f(&y), buf_f(&dx), nd, dim, lo, hi, mode);
    OTHER_THREADS(dtrt_pad_grad(buf_f(&y), buf_f(&dx2), nd, dim, lo, hi, mode));
    CHECK_CLOSE("pad gradient", buf_f(&dx), wdx, nx, 1e-6);
    CHECK_SAME("pad gradient", dx, dx2);
    Buf *all[] = {&x, &y, &want, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(wdx);
}

static void check_pads(void) {
    const int64_t d[] = {2, 5, 6, 3};
    for (int mode = 0; mode < 3; mode++) {
        check_pad(4, d, (int64_t[]){0, 1, 2, 0}, (int64_t[]){0, 3, 1, 0}, mode);
        check_pad(4, d, (int64_t[]){0, 0, 0, 2}, (int64_t[]){0, 0, 0, 1}, mode);
        check_pad(4, d, (int64_t[]){0, -1, 2, 0}, (int64_t[]){0, 2, -3, 0}, mode);
        check_pad(4, d, (int64_t[]){1, 0, 0, 0}, (int64_t[]){0, 0, 0, 0}, mode);
        check_pad(4, d, (int64_t[]){0, 0, 0, 0}, (int64_t[]){0, 0, 0, 0}, mode);
        check_pad(1, (int64_t[]){7}, (int64_t[]){6}, (int64_t[]){6}, mode);
        check_pad(1, (int64_t[]){1}, (int64_t[]){2}, (int64_t[]){3}, mode);
        check_pad(1, (int64_t[]){9}, (int64_t[]){-4}, (int64_t[]){-3}, mode);
    }
    int64_t x[3] = {1, 2, 3}, y[5], lo = 1, hi = 1, n = 3;
    dtrt_pad(x, y, 1, &n, &lo, &hi, 0, -7.0, DTRT_I64);
    CHECK(y[0] == -7 && y[1] == 1 && y[3] == 3 && y[4] == -7);
}

/* ---- gather ---- */

static void check_gather(int64_t outer, int64_t n, int64_t inner, int64_t count, int i32) {
    DtrtCtx c = {0};
    Buf x = buf_random(outer * n * inner, 0), dy = buf_random(outer * count * inner, 0);
    Buf y = buf_new(dy.n, 1), want = buf_new(dy.n, 0), dx = buf_new(x.n, 0), dx2 = buf_new(x.n, 1);
    int64_t *ix = malloc((size_t)count * 8);
    int32_t *ix32 = malloc((size_t)count * 4);
    double *wdx = calloc((size_t)(outer * n * inner), 8);
    for (int64_t i = 0; i < count; i++) {
        ix[i] = i * i * 5 % n - (i % 2 ? n : 0);
        ix32[i] = (int32_t)ix[i];
    }
    for (int64_t i = 0; i < outer * count * inner; i++) {
        int64_t o = i / inner / count, k = ix[i / inner % count], from;
        from = (o * n + (k < 0 ? k + n : k)) * inner + i % inner;
        buf_f(&want)[i] = buf_f(&x)[from];
        wdx[from] += (double)buf_f(&dy)[i];
    }
    const void *idx = i32 ? (const void *)ix32 : ix;
    dtrt_gather(&c, x.at, idx, i32, y.at, outer, n, inner, count, 4);
    dtrt_gather_grad(&c, buf_f(&dy), idx, i32, buf_f(&dx), outer, n, inner, count, NULL);
    OTHER_THREADS(
        dtrt_gather_grad(&c, buf_f(&dy), idx, i32, buf_f(&dx2), outer, n, inner, count, NULL));
    CHECK_SAME("gather", y, want);
    CHECK_CLOSE("gather gradient", buf_f(&dx), wdx, outer * n * inner, 2e-6);
    CHECK_SAME("gather gradient", dx, dx2);
    Buf *all[] = {&x, &dy, &y, &want, &dx, &dx2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buf_free(all[i]);
    free(ix);
    free(ix32);
    free(wdx);
}

static void check_bad_index(void) {
    DtrtCtx c = {0};
    float x[3] = {0}, y[2];
    int32_t ix[2] = {2, -4};
    if (setjmp(cpu_failed) == 0) {
        dtrt_gather(&c, x, ix, 1, y, 1, 3, 1, 2, 4);
        CHECK(0 && "index -4 of 3 was accepted");
    }
    CHECK_STR(cpu_message, "index -4 at position 1: expected -3 to 2");
}

static void check_fill(void) {
    int64_t i64[3];
    int32_t i32[3];
    float f[3];
    double d[3];
    uint8_t u[3], b[3];
    dtrt_fill(i64, 3, -3.0, DTRT_I64);
    dtrt_fill(i32, 3, -3.0, DTRT_I32);
    dtrt_fill(f, 3, 0.1, DTRT_F32);
    dtrt_fill(d, 3, 0.1, DTRT_F64);
    dtrt_fill(u, 3, 200.0, DTRT_U8);
    dtrt_fill(b, 3, 5.0, DTRT_BOOL);
    CHECK(i64[2] == -3 && i32[2] == -3 && f[2] == 0.1f && d[2] == 0.1 && u[2] == 200 && b[2] == 1);
    Buf x = bytes_random(1000003), y = buf_new(x.n, 1);
    dtrt_copy(x.at, y.at, x.n);
    CHECK_SAME("copy", x, y);
    buf_free(&x);
    buf_free(&y);
}

int main(void) {
    omp_set_num_threads(2);
    check_transposes();
    check_concat(1);
    check_concat(500);
    check_slices();
    check_pads();
    check_gather(1, 10, 7, 40, 0);
    check_gather(1, 50, 768, 100, 1);
    check_gather(3, 4, 100, 9, 0);
    check_gather(20, 5, 33, 30, 0);
    check_gather(1, 100, 1, 5000, 0);
    check_bad_index();
    check_fill();
    return test_end();
}
