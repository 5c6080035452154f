/* movement.c - Copy, Transpose, Concat, Slice, the gradients of Slice, and Fill on the device.
 *
 * Each is a copy (or addition) between two strided boxes: axes that stay together merge, and where
 * the innermost one is contiguous on both sides the items are of 16 bytes. A transposition whose
 * innermost axes differ goes through square tiles of shared memory, so that both sides are
 * accessed in runs (G. Ruetsch and P. Micikevicius, "Optimizing matrix transpose in CUDA", NVIDIA
 * 2009), unless one of the two axes is too short for that. */
#include "walk.h"

void dtrt_copy(const void *x, void *y, uint64_t bytes) {
    if (!bytes || x == y) return;
    cu_check(cu.cuMemcpyDtoDAsync(cu_ptr(y), cu_ptr(x), bytes, cu_device.stream),
             "cuMemcpyDtoDAsync");
}

/* ---- walks ---- */

/* Can items of `unit` bytes be moved instead of elements? */
static bool fits_unit(const CuWalk *w, const void *to, const void *from, int elem, int unit) {
    int64_t n = unit / elem;
    if (((uintptr_t)to | (uintptr_t)from) % (uintptr_t)unit) return false;
    if (w->first == 8) return false;
    if (w->to[7] != 1 || w->from[7] != 1 || w->size[7] % n) return false;
    for (int k = w->first; k < 7; k++)
        if (w->to[k] % n || w->from[k] % n) return false;
    return true;
}

void cu_walk_copy(CuWalk w, void *to, const void *from, int elem) {
    int unit = elem;
    for (int u = 16; u > elem && unit == elem; u /= 2)
        if (u >= 4 && fits_unit(&w, to, from, elem, u)) unit = u;
    if (unit > elem) {
        int64_t n = unit / elem;
        w.total /= n;
        w.size[7] /= n;
        for (int k = w.first; k < 7; k++) {
            w.to[k] /= n;
            w.from[k] /= n;
        }
    }
    cu_walk_close(&w);
    int64_t blocks = cu_blocks(w.total, 256);
    switch (unit) {
    case 1: CU_WALK(walk_copy1, &w, blocks, &w, &to, &from); break;
    case 4: CU_WALK(walk_copy4, &w, blocks, &w, &to, &from); break;
    case 8: CU_WALK(walk_copy8, &w, blocks, &w, &to, &from); break;
    default: CU_WALK(walk_copy16, &w, blocks, &w, &to, &from); break;
    }
}

/* ---- Transpose ---- */

/* Below this many items along both axes of a tile most of its threads would be idle. */
enum { TILE = 32, SHORT = 16 };

/* The walk without its axes a and 7 becomes slabs of tiles; false: too many of them. */
static bool tiles_of(const CuWalk *w, int a, CuTiles *q) {
    *q = (CuTiles){.slabs = cu_walk(),
                   .height = w->size[a],
                   .width = w->size[7],
                   .from = w->from[7],
                   .to = w->to[a]};
    for (int k = 7; k-- > w->first;)
        if (k != a) cu_walk_push(&q->slabs, w->size[k], w->to[k], w->from[k]);
    cu_walk_close(&q->slabs);
    int64_t across = (q->width + TILE - 1) / TILE, down = (q->height + TILE - 1) / TILE;
    int64_t total = across * down * q->slabs.total;
    if (total > INT32_MAX || q->slabs.total > INT32_MAX) return false;
    for (int k = q->slabs.first; k < 8; k++)
        q->slabs.by[k] = cu_divider((uint64_t)q->slabs.size[k]);
    q->total = (unsigned)total;
    q->tiles = (unsigned)(across * down);
    q->across = (unsigned)across;
    q->by_tiles = cu_divider(q->tiles);
    q->by_across = cu_divider(q->across);
    return true;
}

static void move_tiles(const CuTiles *t, const void *x, void *y, int elem) {
    CuTiles q = *t;
    int64_t blocks = cu_blocks(q.total, 1);
    if (elem == 4) {
        CU_LAUNCH(move_tiles4, blocks, 256, &q, &y, &x);
    } else if (elem == 8) {
        CU_LAUNCH(move_tiles8, blocks, 256, &q, &y, &x);
    } else {
        CU_LAUNCH(move_tiles1, blocks, 256, &q, &y, &x);
    }
}

void dtrt_transpose(const void *x, void *y, int nd, const int64_t *dim, const int64_t *perm,
                    int elem) {
    int64_t stride[8], to = 1, from = 1;
    CuTiles tiles;
    CuWalk w = cu_walk();
    int a = 7;
    assert(nd <= 8);
    for (int i = nd; i-- > 0; from *= dim[i]) stride[i] = from;
    for (int i = nd; i-- > 0; to *= dim[perm[i]])
        cu_walk_push(&w, dim[perm[i]], to, stride[perm[i]]);
    if (w.total == 0) return;
    for (int k = w.first; k < 8; k++)
        if (w.from[k] == 1) a = k;
    bool tiled = a != 7 && w.size[a] >= SHORT && w.size[7] >= SHORT && tiles_of(&w, a, &tiles);
    if (tiled)
        move_tiles(&tiles, x, y, elem);
    else if (w.first >= 7 && a == 7)
        dtrt_copy(x, y, (uint64_t)w.total * (uint64_t)elem);
    else
        cu_walk_copy(w, y, x, elem);
}

/* ---- Concat and Slice ---- */

void dtrt_concat(int n, const void *const *x, void *y, int64_t outer, const int64_t *inner_bytes) {
    int64_t row = 0;
    char *to = y;
    for (int i = 0; i < n; i++) row += inner_bytes[i];
    for (int i = 0; i < n; to += inner_bytes[i++]) {
        CuWalk w = cu_walk();
        int64_t bytes = inner_bytes[i];
        if (outer == 1) {
            dtrt_copy(x[i], to, (uint64_t)bytes);
            continue;
        }
        cu_walk_push(&w, bytes, 1, 1);
        cu_walk_push(&w, outer, row, bytes);
        cu_walk_copy(w, to, x[i], 1);
    }
}

/* The slice as a walk in which `strided` is the array it is cut out of, the other one is dense;
 * *base: where it starts. */
static CuWalk slice_walk(int nd, const int64_t *xdim, const int64_t *start, const int64_t *step,
                         const int64_t *size, bool to_strided, int64_t *base) {
    CuWalk w = cu_walk();
    int64_t stride = 1, dense = 1;
    assert(nd <= 8);
    *base = 0;
    for (int i = nd; i-- > 0;) {
        int64_t by = step[i] * stride;
        *base += start[i] * stride;
        cu_walk_push(&w, size[i], to_strided ? by : dense, to_strided ? dense : by);
        stride *= xdim[i];
        dense *= size[i];
    }
    return w;
}

static int64_t count_of(int nd, const int64_t *dim) {
    int64_t n = 1;
    for (int i = 0; i < nd; i++) n *= dim[i];
    return n;
}

void dtrt_slice(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *start,
                const int64_t *step, const int64_t *size, int elem) {
    int64_t base;
    CuWalk w = slice_walk(nd, xdim, start, step, size, false, &base);
    cu_walk_copy(w, y, (const char *)x + base * elem, elem);
}

void dtrt_slice_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *start,
                     const int64_t *step, const int64_t *size) {
    int64_t base, total = count_of(nd, xdim);
    CuWalk w = slice_walk(nd, xdim, start, step, size, true, &base);
    if (w.total != total) dtrt_fill(dx, (uint64_t)total, 0.0, DTRT_F32);
    cu_walk_copy(w, dx + base, dy, 4);
}

void dtrt_slice_add(const float *x, const float *dy, float *y, int nd, const int64_t *xdim,
                    const int64_t *start, const int64_t *step, const int64_t *size) {
    int64_t base;
    dtrt_copy(x, y, (uint64_t)count_of(nd, xdim) * sizeof *x);
    CuWalk w = slice_walk(nd, xdim, start, step, size, true, &base);
    float *to = y + base;
    cu_walk_close(&w);
    CU_WALK(walk_add, &w, cu_blocks(w.total, 256), &w, &to, &dy);
}

/* ---- Fill ---- */

static void fill_bytes(void *y, uint64_t n, unsigned char value) {
    cu_check(cu.cuMemsetD8Async(cu_ptr(y), value, n, cu_device.stream), "cuMemsetD8Async");
}
static void fill_words(void *y, uint64_t n, unsigned value) {
    cu_check(cu.cuMemsetD32Async(cu_ptr(y), value, n, cu_device.stream), "cuMemsetD32Async");
}
static void fill_pairs(void *y, uint64_t n, uint64_t value) {
    int64_t count = (int64_t)n;
    if (value >> 32 == (value & UINT32_MAX))
        fill_words(y, 2 * n, (unsigned)value);
    else
        CU_LAUNCH(fill8, cu_blocks(count, 256), 256, &y, &count, &value);
}

void dtrt_fill(void *y, uint64_t n, double value, DtrtType type) {
    union {
        float f32;
        double f64;
        uint32_t u32;
        uint64_t u64;
    } v = {.u64 = 0};
    if (!n) return;
    switch (type) {
    case DTRT_F32:
        v.f32 = (float)value;
        fill_words(y, n, v.u32);
        break;
    case DTRT_F64:
        v.f64 = value;
        fill_pairs(y, n, v.u64);
        break;
    case DTRT_I64: fill_pairs(y, n, (uint64_t)(int64_t)value); break;
    case DTRT_I32: fill_words(y, n, (uint32_t)(int32_t)value); break;
    case DTRT_U8: fill_bytes(y, n, (unsigned char)value); break;
    case DTRT_BOOL: fill_bytes(y, n, value != 0.0); break;
    }
}
