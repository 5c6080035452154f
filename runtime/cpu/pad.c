/* pad.c - Pad (constant, reflect, edge; negative pads crop) and its gradient.
 *
 * Trailing axes without padding form a unit that moves by memcpy. Each output coordinate of an axis
 * comes from one input coordinate (source) or from none. Forward: rows over all axes but the
 * innermost padded one. Gradient: adds each output back to its source, in order of outputs; leading
 * axes without padding are independent and shared among threads, so the order of additions is
 * fixed. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include <assert.h>
#include <string.h>

enum { MAX_ND = 8, CONSTANT = 0, REFLECT = 1 };

typedef struct {
    int nd, mode;
    int64_t unit; /* elements of the trailing unpadded axes */
    int64_t in[MAX_ND], out[MAX_ND], lo[MAX_ND];
} Plan;

static Plan plan_of(int nd, const int64_t *xdim, const int64_t *lo, const int64_t *hi, int mode) {
    Plan t = {.nd = nd, .mode = mode, .unit = 1};
    assert(nd <= MAX_ND);
    while (t.nd > 1 && lo[t.nd - 1] == 0 && hi[t.nd - 1] == 0) t.unit *= xdim[--t.nd];
    for (int i = 0; i < t.nd; i++) {
        t.in[i] = xdim[i];
        t.lo[i] = lo[i];
        t.out[i] = xdim[i] + lo[i] + hi[i];
    }
    return t;
}

/* Input coordinate of output coordinate o in axis i; -1: the constant. */
static inline int64_t source(const Plan *t, int i, int64_t o) {
    int64_t p = o - t->lo[i], n = t->in[i];
    if (p >= 0 && p < n) return p;
    if (t->mode == CONSTANT) return -1;
    if (t->mode != REFLECT || n == 1) return p < 0 ? 0 : n - 1;
    p %= 2 * (n - 1);
    if (p < 0) p += 2 * (n - 1);
    return p < n ? p : 2 * (n - 1) - p;
}

/* First element of the input row that output row r (over axes 0..nd-2) comes from; -1: the
 * constant. */
static inline int64_t source_row(const Plan *t, int64_t r) {
    int64_t at = 0, stride = t->in[t->nd - 1];
    for (int i = t->nd - 1; i-- > 0;) {
        int64_t s = source(t, i, r % t->out[i]);
        if (s < 0) return -1;
        at += s * stride;
        r /= t->out[i];
        stride *= t->in[i];
    }
    return at * t->unit;
}

/* n elements of `elem` bytes set to the bytes at v. */
static inline void fill_with(char *y, const void *v, int64_t n, int64_t elem) {
    for (int64_t i = 0; i < n; i++) memcpy(y + i * elem, v, (size_t)elem);
}

KERNEL pad_rows(const Plan *t, const char *x, char *y, const void *value, int64_t elem, int64_t lo,
                int64_t hi) {
    int last = t->nd - 1;
    int64_t out = t->out[last], unit = t->unit, row = out * unit * elem;
    /* outputs [a, b) of a row are the inputs from a - lo on */
    int64_t a = kernel_min(t->lo[last] > 0 ? t->lo[last] : 0, out);
    int64_t b = kernel_min(t->lo[last] + t->in[last], out);
    for (int64_t r = lo; r < hi; r++) {
        int64_t from = source_row(t, r);
        char *yr = y + r * row;
        if (from < 0) {
            fill_with(yr, value, out * unit, elem);
            continue;
        }
        for (int64_t o = 0; o < out; o++) {
            int64_t s = source(t, last, o), n = o == a && b > a ? b - a : 1;
            char *to = yr + o * unit * elem;
            if (s < 0) {
                fill_with(to, value, unit, elem);
            } else {
                memcpy(to, x + (from + s * unit) * elem, (size_t)(n * unit * elem));
            }
            o += n - 1;
        }
    }
}

void dtrt_pad(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *before,
              const int64_t *after, int mode, double value, DtrtType type) {
    Plan t = plan_of(nd, xdim, before, after, mode);
    int64_t rows = 1, elem = 0;
    _Alignas(8) char v[8];
    dtrt_fill(v, 1, value, type);
    switch (type) {
    case DTRT_F64:
    case DTRT_I64: elem = 8; break;
    case DTRT_F32:
    case DTRT_I32: elem = 4; break;
    case DTRT_U8:
    case DTRT_BOOL: elem = 1; break;
    }
    for (int i = 0; i + 1 < t.nd; i++) rows *= t.out[i];
    KERNEL_SPLIT(rows, 1, rows * t.out[t.nd - 1] * t.unit, pad_rows(&t, x, y, v, elem, lo, hi));
}

/* Outer slices [lo, hi): the leading axes without padding; t describes one slice. */
KERNEL pad_grad_slices(const Plan *t, const float *dy, float *dx, int64_t lo, int64_t hi) {
    int last = t->nd - 1;
    int64_t rows = 1, in = t->unit, out = t->out[last] * t->unit;
    for (int i = 0; i < t->nd; i++) in *= t->in[i];
    for (int i = 0; i < last; i++) rows *= t->out[i];
    for (int64_t s = lo; s < hi; s++) {
        float *d = dx + s * in;
        memset(d, 0, (size_t)in * sizeof *d);
        for (int64_t r = 0; r < rows; r++) {
            int64_t to = source_row(t, r);
            for (int64_t o = 0; to >= 0 && o < t->out[last]; o++) {
                int64_t p = source(t, last, o);
                if (p < 0) continue;
                float *sum = d + to + p * t->unit;
                const float *g = dy + (s * rows + r) * out + o * t->unit;
#pragma omp simd
                for (int64_t j = 0; j < t->unit; j++) sum[j] += g[j];
            }
        }
    }
}

void dtrt_pad_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *before,
                   const int64_t *after, int mode) {
    int64_t slices = 1, total = 1;
    int skip = 0;
    while (skip + 1 < nd && before[skip] == 0 && after[skip] == 0) slices *= xdim[skip++];
    for (int i = 0; i < nd; i++) total *= xdim[i];
    Plan t = plan_of(nd - skip, xdim + skip, before + skip, after + skip, mode);
    KERNEL_SPLIT(slices, 1, total, pad_grad_slices(&t, dy, dx, lo, hi));
}
