/* index.c - reading and writing at places that a tensor of indices names: GatherElements,
 * ScatterElements, GatherND, ScatterND, and the largest elements along an axis (TopK).
 *
 * Negative indices count from the end; one outside of its axis ends the run with a message. Where
 * several indices name one place the writes happen in the order of the indices, by one thread: the
 * last one stays, sums have one order. So no result depends on the number of threads. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include <string.h>

static inline int64_t index_at(const void *idx, int idx_i32, int64_t i) {
    return idx_i32 ? (int64_t)((const int32_t *)idx)[i] : ((const int64_t *)idx)[i];
}

static void check_index(DtrtCtx *c, int64_t k, int64_t i, int64_t n) {
    if (k < -n || k >= n)
        dtrt_fail(c, "index %lld at position %lld: expected %lld to %lld", (long long)k,
                  (long long)i, (long long)-n, (long long)n - 1);
}

/* What reductions write for old value a and update b; the first is plain replacement. */
static inline float combine(DtrtScatter how, float a, float b) {
    switch (how) {
    case DTRT_SCATTER_ADD: return a + b;
    case DTRT_SCATTER_MUL: return a * b;
    case DTRT_SCATTER_MAX: return b > a || b != b ? b : a;
    case DTRT_SCATTER_MIN: return b < a || b != b ? b : a;
    default: return b;
    }
}

static void start_from(const void *data, void *y, int64_t n, int elem) {
    if (data == y) return;
    if (data)
        memcpy(y, data, (size_t)(n * elem));
    else
        memset(y, 0, (size_t)(n * elem));
}

/* ---- elements: the indices have as many axes as the data ---- */

/* Item i of the indices, split at the axis; *line: the data's element at place 0 of the axis. */
static int64_t element_line(const DtrtElements *q, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int k = q->nd; k-- > 0;) {
        if (k != q->axis) at += i % q->idim[k] * stride;
        i /= q->idim[k];
        stride *= q->dim[k];
    }
    return at;
}

static int64_t axis_stride(const DtrtElements *q) {
    int64_t s = 1;
    for (int k = q->axis + 1; k < q->nd; k++) s *= q->dim[k];
    return s;
}

static int64_t count_of(int nd, const int64_t *dim) {
    int64_t n = 1;
    for (int k = 0; k < nd; k++) n *= dim[k];
    return n;
}

static void check_elements(DtrtCtx *c, const DtrtElements *q, const void *idx) {
    int64_t n = count_of(q->nd, q->idim);
    for (int64_t i = 0; i < n; i++)
        check_index(c, index_at(idx, q->idx_i32, i), i, q->dim[q->axis]);
}

static int64_t element_place(const DtrtElements *q, const void *idx, int64_t i, int64_t stride) {
    int64_t k = index_at(idx, q->idx_i32, i);
    return element_line(q, i) + (k < 0 ? k + q->dim[q->axis] : k) * stride;
}

void dtrt_gather_elements(DtrtCtx *c, const DtrtElements *q, const void *data, const void *idx,
                          void *y) {
    int64_t n = count_of(q->nd, q->idim), stride = axis_stride(q), elem = q->elem;
    check_elements(c, q, idx);
#pragma omp parallel for schedule(static) if (n > KERNEL_GRAIN)
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)y + i * elem, (const char *)data + element_place(q, idx, i, stride) * elem,
               (size_t)elem);
}

/* Indices of one line along the axis lie `inner` apart: a thread takes whole lines, in order. */
void dtrt_scatter_elements(DtrtCtx *c, const DtrtElements *q, const void *data, const void *idx,
                           const void *updates, void *y) {
    int64_t stride = axis_stride(q), elem = q->elem, inner = 1, outer = 1;
    int64_t along = q->idim[q->axis];
    for (int k = 0; k < q->axis; k++) outer *= q->idim[k];
    for (int k = q->axis + 1; k < q->nd; k++) inner *= q->idim[k];
    check_elements(c, q, idx);
    start_from(data, y, count_of(q->nd, q->dim), q->elem);
#pragma omp parallel for schedule(static) if (outer * inner * along > KERNEL_GRAIN)
    for (int64_t l = 0; l < outer * inner; l++) {
        for (int64_t k = 0; k < along; k++) {
            int64_t i = (l / inner * along + k) * inner + l % inner;
            int64_t to = element_place(q, idx, i, stride);
            if (q->how == DTRT_SCATTER_SET) {
                memcpy((char *)y + to * elem, (const char *)updates + i * elem, (size_t)elem);
            } else {
                float *f = (float *)y + to;
                *f = combine(q->how, *f, ((const float *)updates)[i]);
            }
        }
    }
}

/* ---- tuples: the last axis of the indices names a slice of `inner` elements ---- */

/* Slice that tuple number t (over all batches) names. */
static int64_t slice_at(const DtrtTuples *q, const void *idx, int64_t t) {
    int64_t at = 0;
    for (int k = 0; k < q->k; k++) {
        int64_t v = index_at(idx, q->idx_i32, t * q->k + k);
        at = at * q->dim[k] + (v < 0 ? v + q->dim[k] : v);
    }
    return at;
}

static int64_t slices(const DtrtTuples *q) {
    return count_of(q->k, q->dim);
}

static void check_tuples(DtrtCtx *c, const DtrtTuples *q, const void *idx) {
    for (int64_t i = 0; i < q->batch * q->count * q->k; i++)
        check_index(c, index_at(idx, q->idx_i32, i), i, q->dim[i % q->k]);
}

void dtrt_gather_nd(DtrtCtx *c, const DtrtTuples *q, const void *data, const void *idx, void *y) {
    int64_t run = q->inner * q->elem, per = slices(q), n = q->batch * q->count;
    check_tuples(c, q, idx);
#pragma omp parallel for schedule(static) if (n * run > 4 * KERNEL_GRAIN)
    for (int64_t t = 0; t < n; t++) {
        int64_t from = t / q->count * per + slice_at(q, idx, t);
        memcpy((char *)y + t * run, (const char *)data + from * run, (size_t)run);
    }
}

/* Columns [lo, hi) of all slices of one batch, tuple after tuple. */
static void scatter_columns(const DtrtTuples *q, const void *idx, const void *updates, void *y,
                            int64_t b, int64_t lo, int64_t hi) {
    int64_t per = slices(q), elem = q->elem;
    for (int64_t i = 0; i < q->count; i++) {
        int64_t t = b * q->count + i, to = (b * per + slice_at(q, idx, t)) * q->inner;
        if (q->how == DTRT_SCATTER_SET) {
            memcpy((char *)y + (to + lo) * elem, (const char *)updates + (t * q->inner + lo) * elem,
                   (size_t)((hi - lo) * elem));
            continue;
        }
        float *f = (float *)y + to;
        const float *u = (const float *)updates + t * q->inner;
        for (int64_t j = lo; j < hi; j++) f[j] = combine(q->how, f[j], u[j]);
    }
}

/* Threads share batches, or blocks of 64 columns where these are few. */
void dtrt_scatter_nd(DtrtCtx *c, const DtrtTuples *q, const void *data, const void *idx,
                     const void *updates, void *y) {
    int64_t block = q->batch < 8 ? 64 : q->inner, cuts = (q->inner + block - 1) / block;
    check_tuples(c, q, idx);
    start_from(data, y, q->batch * slices(q) * q->inner, q->elem);
#pragma omp parallel for schedule(static) if (q->batch * q->count * q->inner > KERNEL_GRAIN)
    for (int64_t p = 0; p < q->batch * cuts; p++) {
        int64_t lo = p % cuts * block;
        scatter_columns(q, idx, updates, y, p / cuts, lo, kernel_min(lo + block, q->inner));
    }
}

/* ---- TopK ---- */

/* Does (a, i) come before (b, j)? Of equal values the first one does; NaN counts as the largest. */
static inline int before(float a, int64_t i, float b, int64_t j, int largest) {
    int a_nan = a != a, b_nan = b != b;
    if (a_nan != b_nan) return largest ? a_nan : b_nan;
    if (!a_nan && a != b) return largest ? a > b : a < b;
    return i < j;
}

/* The k best so far lie in v and at, `inner` apart, as a heap with the worst on top. */
static void sift_down(float *v, int64_t *at, int64_t n, int64_t inner, int64_t i, int largest) {
    float value = v[i * inner];
    int64_t place = at[i * inner];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        int64_t other = child + 1;
        if (other < n && before(v[child * inner], at[child * inner], v[other * inner],
                                at[other * inner], largest))
            child = other;
        if (!before(value, place, v[child * inner], at[child * inner], largest)) break;
        v[i * inner] = v[child * inner];
        at[i * inner] = at[child * inner];
        i = child;
    }
    v[i * inner] = value;
    at[i * inner] = place;
}

/* A heap of the first k elements, into which better ones go, is then sorted in place. */
static void topk_line(const float *x, float *v, int64_t *at, int64_t n, int64_t k, int64_t inner,
                      int largest) {
    for (int64_t i = 0; i < k; i++) {
        v[i * inner] = x[i * inner];
        at[i * inner] = i;
    }
    for (int64_t i = k / 2; i-- > 0;) sift_down(v, at, k, inner, i, largest);
    for (int64_t i = k; i < n && k; i++) {
        if (!before(x[i * inner], i, v[0], at[0], largest)) continue;
        v[0] = x[i * inner];
        at[0] = i;
        sift_down(v, at, k, inner, 0, largest);
    }
    for (int64_t m = k - 1; m > 0; m--) {
        float value = v[0];
        int64_t place = at[0];
        v[0] = v[m * inner];
        at[0] = at[m * inner];
        v[m * inner] = value;
        at[m * inner] = place;
        sift_down(v, at, m, inner, 0, largest);
    }
}

void dtrt_topk(const float *x, float *v, int64_t *at, int64_t outer, int64_t n, int64_t inner,
               int64_t k, int largest) {
#pragma omp parallel for schedule(static) if (outer * n * inner > KERNEL_GRAIN)
    for (int64_t l = 0; l < outer * inner; l++) {
        int64_t o = l / inner, j = l % inner, to = o * k * inner + j;
        topk_line(x + o * n * inner + j, v + to, at + to, n, k, inner, largest);
    }
}
