/* pad.c - Pad and its gradient. Axes without padding join their neighbours; items are of 16 bytes
 * where the innermost axis is one of them. The gradient of a constant border is a copy of a box. */
#include <string.h>

#include "walk.h"

enum { CONSTANT = 0 };

/* Puts an axis in front of the others; one without padding joins another without. */
static void push_axis(CuPad *q, int64_t in, int64_t lo, int64_t hi) {
    int k = q->first;
    if (k < 8 && lo == 0 && hi == 0 && q->lo[k] == 0 && q->out[k] == q->in[k]) {
        q->in[k] *= in;
        q->out[k] *= in;
        return;
    }
    q->first = --k;
    q->in[k] = in;
    q->out[k] = in + lo + hi;
    q->lo[k] = lo;
}

static CuPad pad_of(int nd, const int64_t *xdim, const int64_t *lo, const int64_t *hi, int mode,
                    int unit) {
    CuPad q = {.first = 8, .mode = mode, .total_in = 1, .total_out = 1};
    assert(nd <= 8);
    for (int i = nd; i-- > 0;) push_axis(&q, xdim[i], lo[i], hi[i]);
    if (unit > 1) {
        q.in[7] /= unit;
        q.out[7] /= unit;
    }
    for (int k = 7; k >= q.first; k--) {
        q.stride[k] = q.total_in;
        q.total_in *= q.in[k];
        q.total_out *= q.out[k];
    }
    q.small = q.total_out <= INT32_MAX;
    for (int k = q.first; q.small && q.total_out && k < 8; k++)
        q.by_out[k] = cu_divider((uint64_t)q.out[k]);
    return q;
}

/* Elements that move together. */
static int unit_of(int nd, const int64_t *xdim, const int64_t *lo, const int64_t *hi, int elem,
                   const void *x, const void *y) {
    int64_t inner = 1;
    for (int i = nd; i-- > 0 && lo[i] == 0 && hi[i] == 0;) inner *= xdim[i];
    for (int unit = 16 / elem; unit > 1; unit /= 2)
        if (unit * elem >= 4 && inner % unit == 0 &&
            ((uintptr_t)x | (uintptr_t)y) % (uintptr_t)(unit * elem) == 0)
            return unit;
    return 1;
}

static int size_of(DtrtType type) {
    switch (type) {
    case DTRT_F64:
    case DTRT_I64: return 8;
    case DTRT_F32:
    case DTRT_I32: return 4;
    case DTRT_U8:
    case DTRT_BOOL: return 1;
    }
    return 1;
}

/* 16 bytes of the value over and over */
static void repeat_value(unsigned char *to, double value, DtrtType type) {
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        unsigned char u8, bytes[8];
    } v = {.bytes = {0}};
    switch (type) {
    case DTRT_F64: v.f64 = value; break;
    case DTRT_I64: v.i64 = (int64_t)value; break;
    case DTRT_F32: v.f32 = (float)value; break;
    case DTRT_I32: v.i32 = (int32_t)value; break;
    case DTRT_U8: v.u8 = (unsigned char)value; break;
    case DTRT_BOOL: v.u8 = value != 0.0; break;
    }
    for (int i = 0; i < 16; i += size_of(type)) memcpy(to + i, v.bytes, (size_t)size_of(type));
}

void dtrt_pad(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *lo,
              const int64_t *hi, int mode, double value, DtrtType type) {
    _Alignas(16) unsigned char v[16];
    int elem = size_of(type), unit = unit_of(nd, xdim, lo, hi, elem, x, y);
    CuPad q = pad_of(nd, xdim, lo, hi, mode, unit);
    int64_t blocks = cu_blocks(q.total_out, 256);
    repeat_value(v, value, type);
    switch (unit * elem) {
    case 1: CU_LAUNCH(pad1, blocks, 256, &q, &x, &y, v); break;
    case 4: CU_LAUNCH(pad4, blocks, 256, &q, &x, &y, v); break;
    case 8: CU_LAUNCH(pad8, blocks, 256, &q, &x, &y, v); break;
    default: CU_LAUNCH(pad16, blocks, 256, &q, &x, &y, v); break;
    }
}

/* The inputs that were not cropped, from the outputs that they went to. */
static void copy_back(const CuPad *q, const float *dy, float *dx) {
    CuWalk w = cu_walk();
    int64_t in = 1, out = 1, to = 0, from = 0;
    for (int k = 7; k >= q->first; k--) {
        int64_t lo = q->lo[k], first = lo < 0 ? -lo : 0;
        int64_t end = q->out[k] - lo < q->in[k] ? q->out[k] - lo : q->in[k];
        cu_walk_push(&w, end > first ? end - first : 0, in, out);
        to += first * in;
        from += (first + lo) * out;
        in *= q->in[k];
        out *= q->out[k];
    }
    if (w.total != q->total_in) dtrt_fill(dx, (uint64_t)q->total_in, 0.0, DTRT_F32);
    cu_walk_copy(w, dx + to, dy + from, 4);
}

void dtrt_pad_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *lo,
                   const int64_t *hi, int mode) {
    CuPad q = pad_of(nd, xdim, lo, hi, mode, 1);
    if (mode == CONSTANT) {
        copy_back(&q, dy, dx);
    } else {
        CU_LAUNCH(pad_grad, cu_blocks(q.total_in, 256), 256, &q, &dy, &dx);
    }
}
