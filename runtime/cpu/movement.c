/* movement.c - Copy, Transpose, Concat, Slice, Gather, Fill and the gradients of Slice and Gather.
 *
 * All tensors are dense row-major, so each operator first merges axes that stay together, then
 * moves contiguous runs with memcpy where there are any; only strided and transposed innermost axes
 * go element by element, the latter in square tiles that stay in cache. Rows are independent: any
 * split over threads gives the same bytes. Pad lives in pad.c. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include <assert.h>
#include <string.h>

enum { MAX_ND = 8, TILE = 32, CHUNK = 1 << 16 };

void dtrt_copy(const void *x, void *y, uint64_t bytes) {
    int64_t chunks = (int64_t)((bytes + CHUNK - 1) / CHUNK);
#pragma omp parallel for schedule(static) if (chunks > 4)
    for (int64_t i = 0; i < chunks; i++) {
        uint64_t at = (uint64_t)i * CHUNK, n = bytes - at < CHUNK ? bytes - at : CHUNK;
        memcpy((char *)y + at, (const char *)x + at, n);
    }
}

/* ---- Transpose ---- */

/* Loop nest over the output: dim and the input's stride of each output axis, in elements. */
typedef struct {
    int nd, elem;
    int64_t dim[MAX_ND], stride[MAX_ND];
} Nest;

/* Drops axes of size 1 and merges output neighbours that are neighbours in the input too. */
static void fill_nest(Nest *t, int nd, const int64_t *dim, const int64_t *perm, int elem) {
    int64_t stride[MAX_ND];
    int64_t size = 1;
    for (int i = nd; i-- > 0;) {
        stride[i] = size;
        size *= dim[i];
    }
    *t = (Nest){.elem = elem};
    for (int i = 0; i < nd; i++) {
        int64_t d = dim[perm[i]], s = stride[perm[i]];
        if (d == 1) continue;
        if (t->nd && t->stride[t->nd - 1] == d * s) {
            t->dim[t->nd - 1] *= d;
            t->stride[t->nd - 1] = s;
        } else {
            t->dim[t->nd] = d;
            t->stride[t->nd++] = s;
        }
    }
    if (t->nd == 0) *t = (Nest){.nd = 1, .elem = elem, .dim = {1}, .stride = {1}};
}

/* Input offset of output row r, where rows run over all axes but `skip` and the last. */
static int64_t nest_offset(const Nest *t, int skip, int64_t r, int64_t *out) {
    int64_t in = 0, size = t->dim[t->nd - 1];
    *out = 0;
    for (int i = t->nd - 1; i-- > 0;) {
        if (i != skip) {
            int64_t k = r % t->dim[i];
            r /= t->dim[i];
            in += k * t->stride[i];
            *out += k * size;
        }
        size *= t->dim[i];
    }
    return in;
}

/* A tile: out[i][j] = in[j][i], i over axis a (contiguous in the input), j over the last axis. */
#define TILE_LOOP(T)                                                                               \
    for (int64_t i = 0; i < h; i++) {                                                              \
        T *o = (T *)y + i * ystride;                                                               \
        const T *s = (const T *)x + i;                                                             \
        for (int64_t j = 0; j < w; j++) o[j] = s[j * xstride];                                     \
    }
KERNEL_INLINE void move_tile(const char *x, char *y, int64_t h, int64_t w, int64_t xstride,
                             int64_t ystride, int elem) {
    if (elem == 4) {
        TILE_LOOP(uint32_t)
    } else if (elem == 8) {
        TILE_LOOP(uint64_t)
    } else {
        TILE_LOOP(uint8_t)
    }
}

/* The input's contiguous axis is output axis a, not the last: tiles of that axis and the last one.
 * Item number = (row, tile of a). */
KERNEL transpose_tiles(const char *x, char *y, const Nest *t, int a, int64_t lo, int64_t hi) {
    int64_t tiles = (t->dim[a] + TILE - 1) / TILE, w = t->dim[t->nd - 1], ystride = 1;
    int elem = t->elem;
    for (int i = a + 1; i < t->nd; i++) ystride *= t->dim[i];
    for (int64_t r = lo; r < hi; r++) {
        int64_t out, i = r % tiles * TILE, h = kernel_min(TILE, t->dim[a] - i);
        int64_t in = nest_offset(t, a, r / tiles, &out) + i;
        out += i * ystride;
        for (int64_t j = 0; j < w; j += TILE) {
            int64_t xs = t->stride[t->nd - 1];
            move_tile(x + (in + j * xs) * elem, y + (out + j) * elem, h, kernel_min(TILE, w - j),
                      xs, ystride, elem);
        }
    }
}

/* The last axis is contiguous in both: runs. */
KERNEL transpose_runs(const char *x, char *y, const Nest *t, int64_t lo, int64_t hi) {
    int64_t run = t->dim[t->nd - 1];
    for (int64_t r = lo; r < hi; r++) {
        int64_t out, in = nest_offset(t, -1, r, &out);
        memcpy(y + out * t->elem, x + in * t->elem, (size_t)(run * t->elem));
    }
}

void dtrt_transpose(const void *x, void *y, int nd, const int64_t *dim, const int64_t *perm,
                    int elem) {
    Nest t;
    int64_t total = 1, a = -1;
    assert(nd <= MAX_ND);
    for (int i = 0; i < nd; i++)
        if (!dim[i]) return;
    fill_nest(&t, nd, dim, perm, elem);
    for (int i = 0; i < t.nd; i++) {
        total *= t.dim[i];
        if (t.stride[i] == 1) a = i;
    }
    assert(a >= 0);
    if (t.nd == 1) {
        dtrt_copy(x, y, (uint64_t)(total * elem));
    } else if (a == t.nd - 1) {
        KERNEL_SPLIT(total / t.dim[a], 1, total, transpose_runs(x, y, &t, lo, hi));
    } else {
        int64_t items = total / t.dim[a] / t.dim[t.nd - 1] * ((t.dim[a] + TILE - 1) / TILE);
        KERNEL_SPLIT(items, 1, total, transpose_tiles(x, y, &t, (int)a, lo, hi));
    }
}

/* ---- Concat ---- */

void dtrt_concat(int n, const void *const *x, void *y, int64_t outer, const int64_t *inner_bytes) {
    int64_t row = 0;
    for (int i = 0; i < n; i++) row += inner_bytes[i];
    if (outer == 1) {
        char *to = y;
        for (int i = 0; i < n; i++) {
            dtrt_copy(x[i], to, (uint64_t)inner_bytes[i]);
            to += inner_bytes[i];
        }
        return;
    }
#pragma omp parallel for schedule(static) if (outer * row > 4 * KERNEL_GRAIN)
    for (int64_t o = 0; o < outer; o++) {
        char *to = (char *)y + o * row;
        for (int i = 0; i < n; i++) {
            memcpy(to, (const char *)x[i] + o * inner_bytes[i], (size_t)inner_bytes[i]);
            to += inner_bytes[i];
        }
    }
}

/* ---- Slice ---- */

/* A slice after merging: row-major sizes, and of each axis where it starts and steps in x. */
typedef struct {
    int nd;
    int64_t size[MAX_ND], start[MAX_ND], step[MAX_ND], xdim[MAX_ND];
    int64_t rows; /* product of all sizes but the last */
} SliceNest;

/* A whole axis with step 1 joins the axis before it when that has step 1 as well. */
static void fill_slice(SliceNest *t, int nd, const int64_t *xdim, const int64_t *start,
                       const int64_t *step, const int64_t *size) {
    *t = (SliceNest){.nd = 0, .rows = 1};
    assert(nd <= MAX_ND);
    for (int i = 0; i < nd; i++) {
        int whole = start[i] == 0 && step[i] == 1 && size[i] == xdim[i];
        if (t->nd && whole && t->step[t->nd - 1] == 1) {
            t->size[t->nd - 1] *= xdim[i];
            t->start[t->nd - 1] *= xdim[i];
            t->xdim[t->nd - 1] *= xdim[i];
            continue;
        }
        t->size[t->nd] = size[i];
        t->start[t->nd] = start[i];
        t->step[t->nd] = step[i];
        t->xdim[t->nd++] = xdim[i];
    }
    if (t->nd == 0) *t = (SliceNest){.nd = 1, .size = {1}, .step = {1}, .xdim = {1}, .rows = 1};
    for (int i = 0; i + 1 < t->nd; i++) t->rows *= t->size[i];
}

/* Where row r of the slice starts in x, in elements. */
static int64_t slice_offset(const SliceNest *t, int64_t r) {
    int64_t at = t->start[t->nd - 1], stride = t->xdim[t->nd - 1];
    for (int i = t->nd - 1; i-- > 0;) {
        at += (t->start[i] + r % t->size[i] * t->step[i]) * stride;
        r /= t->size[i];
        stride *= t->xdim[i];
    }
    return at;
}

KERNEL slice_rows(const char *x, char *y, const SliceNest *t, int elem, int64_t lo, int64_t hi) {
    int64_t n = t->size[t->nd - 1], step = t->step[t->nd - 1];
    for (int64_t r = lo; r < hi; r++) {
        const char *from = x + slice_offset(t, r) * elem;
        char *to = y + r * n * elem;
        if (step == 1) {
            memcpy(to, from, (size_t)(n * elem));
        } else {
            for (int64_t i = 0; i < n; i++) {
                memcpy(to + i * elem, from + i * step * elem, (size_t)elem);
            }
        }
    }
}

void dtrt_slice(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *start,
                const int64_t *step, const int64_t *size, int elem) {
    SliceNest t;
    fill_slice(&t, nd, xdim, start, step, size);
    KERNEL_SPLIT(t.rows, 1, t.rows * t.size[t.nd - 1], slice_rows(x, y, &t, elem, lo, hi));
}

KERNEL slice_grad_rows(const float *dy, float *dx, const SliceNest *t, int64_t lo, int64_t hi) {
    int64_t n = t->size[t->nd - 1], step = t->step[t->nd - 1];
    for (int64_t r = lo; r < hi; r++) {
        float *to = dx + slice_offset(t, r);
        const float *from = dy + r * n;
        for (int64_t i = 0; i < n; i++) to[i * step] = from[i];
    }
}

void dtrt_slice_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *start,
                     const int64_t *step, const int64_t *size) {
    SliceNest t;
    uint64_t total = 1;
    for (int i = 0; i < nd; i++) total *= (uint64_t)xdim[i];
    dtrt_fill(dx, total, 0.0, DTRT_F32);
    fill_slice(&t, nd, xdim, start, step, size);
    KERNEL_SPLIT(t.rows, 1, t.rows * t.size[t.nd - 1], slice_grad_rows(dy, dx, &t, lo, hi));
}

KERNEL slice_add_rows(const float *dy, float *y, const SliceNest *t, int64_t lo, int64_t hi) {
    int64_t n = t->size[t->nd - 1], step = t->step[t->nd - 1];
    for (int64_t r = lo; r < hi; r++) {
        float *to = y + slice_offset(t, r);
        const float *from = dy + r * n;
        for (int64_t i = 0; i < n; i++) to[i * step] += from[i];
    }
}

void dtrt_slice_add(const float *x, const float *dy, float *y, int nd, const int64_t *xdim,
                    const int64_t *start, const int64_t *step, const int64_t *size) {
    SliceNest t;
    uint64_t total = 1;
    for (int i = 0; i < nd; i++) total *= (uint64_t)xdim[i];
    if (x != y) dtrt_copy(x, y, total * sizeof *x);
    fill_slice(&t, nd, xdim, start, step, size);
    KERNEL_SPLIT(t.rows, 1, t.rows * t.size[t.nd - 1], slice_add_rows(dy, y, &t, lo, hi));
}

/* ---- Gather ---- */

static inline int64_t index_at(const void *idx, int idx_i32, int64_t i) {
    return idx_i32 ? (int64_t)((const int32_t *)idx)[i] : ((const int64_t *)idx)[i];
}

/* Row of the table that index number i names; negative indices count from the end. */
static inline int64_t row_at(const void *idx, int idx_i32, int64_t i, int64_t n) {
    int64_t k = index_at(idx, idx_i32, i);
    return k < 0 ? k + n : k;
}

static void check_indices(DtrtCtx *c, const void *idx, int idx_i32, int64_t count, int64_t n) {
    for (int64_t i = 0; i < count; i++) {
        int64_t k = index_at(idx, idx_i32, i);
        if (k < -n || k >= n) {
            dtrt_fail(c, "index %lld at position %lld: expected %lld to %lld", (long long)k,
                      (long long)i, (long long)-n, (long long)n - 1);
        }
    }
}

void dtrt_gather(DtrtCtx *c, const void *data, const void *idx, int idx_i32, void *y, int64_t outer,
                 int64_t n, int64_t inner, int64_t count, int elem) {
    int64_t run = inner * elem;
    check_indices(c, idx, idx_i32, count, n);
#pragma omp parallel for schedule(static) if (outer * count * run > 4 * KERNEL_GRAIN)
    for (int64_t r = 0; r < outer * count; r++) {
        int64_t row = r / count * n + row_at(idx, idx_i32, r % count, n);
        memcpy((char *)y + r * run, (const char *)data + row * run, (size_t)run);
    }
}

/* Columns [from, to) of one outer slice; every index in order, so the sum has one order. */
KERNEL gather_grad_columns(const float *dy, const void *idx, int idx_i32, float *dx, int64_t n,
                           int64_t inner, int64_t count, int64_t from, int64_t to) {
    for (int64_t i = 0; i < count; i++) {
        float *d = dx + row_at(idx, idx_i32, i, n) * inner;
        const float *g = dy + i * inner;
#pragma omp simd
        for (int64_t j = from; j < to; j++) d[j] += g[j];
    }
}

uint64_t dtrt_gather_grad_needs(int64_t n, int64_t inner, int64_t count) {
    (void)n, (void)inner, (void)count;
    return 0;
}

/* Threads share the work by outer slices or, when these are few, by blocks of 64 columns as well.
 */
void dtrt_gather_grad(DtrtCtx *c, const float *dy, const void *idx, int idx_i32, float *dx,
                      int64_t outer, int64_t n, int64_t inner, int64_t count, void *ws) {
    (void)ws;
    int64_t work = outer * inner * count, per = outer < 8 ? 64 : inner;
    int64_t cuts = (inner + per - 1) / per;
    check_indices(c, idx, idx_i32, count, n);
    dtrt_fill(dx, (uint64_t)(outer * n * inner), 0.0, DTRT_F32);
#pragma omp parallel for schedule(static) if (work > KERNEL_GRAIN)
    for (int64_t p = 0; p < outer * cuts; p++) {
        int64_t o = p / cuts, from = p % cuts * per;
        gather_grad_columns(dy + o * count * inner, idx, idx_i32, dx + o * n * inner, n, inner,
                            count, from, kernel_min(from + per, inner));
    }
}

/* ---- Fill ---- */

void dtrt_fill(void *y, uint64_t n, double value, DtrtType type) {
    int64_t m = (int64_t)n;
#define FILL(T)                                                                                    \
    do {                                                                                           \
        T v = (T)value;                                                                            \
        _Pragma("omp parallel for schedule(static) if (m > KERNEL_GRAIN)") for (int64_t i = 0;     \
                                                                                i < m; i++)(       \
            (T *)y)[i] = v;                                                                        \
    } while (0)
    switch (type) {
    case DTRT_F32: FILL(float); break;
    case DTRT_F64: FILL(double); break;
    case DTRT_I64: FILL(int64_t); break;
    case DTRT_I32: FILL(int32_t); break;
    case DTRT_U8: FILL(uint8_t); break;
    case DTRT_BOOL: memset(y, value != 0.0, n); break;
    }
#undef FILL
}
