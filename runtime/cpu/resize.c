/* resize.c - interpolation along any axes (ONNX Resize: nearest, linear, cubic; all coordinate
 * modes, antialiasing) and its gradient.
 *
 * The interpolation is a product of one sparse matrix an axis. dtrt_resize_init computes these as
 * lists: for each place of the result the places of the source with their weights. The gradient is
 * the same loop over the transposed lists, so that every result element is a sum in a fixed order,
 * made by one thread, in double. Weights as in the operator's specification; cubic: R. Keys, IEEE
 * Trans. ASSP 29(6), 1981. */
#include "dtrt_kernels.h"
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ND = 8, BLOCK = 64 };
enum { HALF_PIXEL, ASYMMETRIC, ALIGN_CORNERS, PYTORCH_HALF_PIXEL, TF_HALF_PIXEL, CROP, SYMMETRIC };
enum { NEAREST, LINEAR, CUBIC };

/* Result place p is the sum of w[k] * source[at[k]], k from start[p] to start[p + 1] - 1. */
typedef struct {
    int64_t n;      /* places of the result; an axis without lists is copied place by place */
    int64_t stride; /* of the source along this axis */
    int64_t *start;
    int32_t *at;
    float *w;
    uint8_t *outside; /* places that get the extrapolation value; NULL: none */
} Axis;

typedef struct {
    int naxis; /* the last one has lists; `inner` elements lie behind it */
    Axis axis[MAX_ND];
    int64_t rows, inner;
    double value;
} Impl;

/* ---- weights of one axis ---- */

static double source_of(const DtrtResize *r, int k, int64_t o) {
    double scale = r->scale[k], in = (double)r->in[k], x = (double)o;
    double out = (double)r->out[k], exact = scale * in; /* before it was rounded down to out */
    switch (r->coord) {
    case ASYMMETRIC: return x / scale;
    case ALIGN_CORNERS: return out > 1 ? x * (in - 1) / (exact - 1) : 0;
    case PYTORCH_HALF_PIXEL: return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
    case TF_HALF_PIXEL: return (x + 0.5) / scale;
    case CROP:
        if (out > 1)
            return r->first[k] * (in - 1) + x * (r->last[k] - r->first[k]) * (in - 1) / (exact - 1);
        return 0.5 * (r->first[k] + r->last[k]) * (in - 1);
    case SYMMETRIC: return in / 2 * (1 - out / exact) + (x + 0.5) / scale - 0.5;
    default: return (x + 0.5) / scale - 0.5;
    }
}

static double nearest(const DtrtResize *r, double x) {
    switch (r->rounding) {
    case 0: return ceil(x - 0.5);
    case 1: return floor(x + 0.5);
    case 2: return floor(x);
    default: return ceil(x);
    }
}

static double kernel_at(const DtrtResize *r, double x) {
    double a = r->cubic;
    x = fabs(x);
    if (r->mode == LINEAR) return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

typedef struct {
    int64_t n, cap;
    int32_t *at;
    double *w;
} Taps;

/* `first`: where the taps of this place begin. */
static bool add_tap(Taps *t, int64_t first, int64_t at, double w) {
    if (t->n > first && t->at[t->n - 1] == at) { /* the edge again */
        t->w[t->n - 1] += w;
        return true;
    }
    if (t->n == t->cap) {
        int64_t cap = t->cap ? 2 * t->cap : 16;
        int32_t *places = realloc(t->at, (size_t)cap * sizeof *places);
        if (places) t->at = places;
        double *weights = realloc(t->w, (size_t)cap * sizeof *weights);
        if (weights) t->w = weights;
        if (!places || !weights) return false;
        t->cap = cap;
    }
    t->at[t->n] = (int32_t)at;
    t->w[t->n++] = w;
    return true;
}

/* Appends the taps of result place o. Beyond the edge the edge counts, or (exclude) nothing. */
static bool append_taps(const DtrtResize *r, int k, int64_t o, Taps *t) {
    int64_t n = r->in[k], first = t->n;
    double x = source_of(r, k, o), top = (double)(n - 1), sum = 0;
    if (r->coord == CROP && !(x >= 0 && x <= top)) return true;
    if (r->mode == NEAREST) {
        double at = nearest(r, x);
        return add_tap(t, first, at < 0 ? 0 : at > top ? n - 1 : (int64_t)at, 1);
    }
    double stretch = r->antialias && r->scale[k] < 1 ? r->scale[k] : 1;
    double reach = (r->mode == LINEAR ? 1 : 2) / stretch, low = floor(x);
    double from = low + floor(-reach) + 1, to = low + 1 - (floor(-reach) + 1);
    for (double at = from; at <= to; at++) {
        double w = kernel_at(r, (at - x) * stretch);
        if (w == 0 || (r->exclude && (at < 0 || at > top))) continue;
        sum += w;
        if (!add_tap(t, first, at < 0 ? 0 : at > top ? n - 1 : (int64_t)at, w)) return false;
    }
    for (int64_t i = first; i < t->n && sum != 0 && (r->exclude || r->antialias); i++)
        t->w[i] /= sum;
    return true;
}

static bool forward_lists(const DtrtResize *r, int k, Taps *t, int64_t *start) {
    for (int64_t o = 0; o < r->out[k]; o++) {
        start[o] = t->n;
        if (!append_taps(r, k, o, t)) return false;
    }
    start[r->out[k]] = t->n;
    return true;
}

static bool store_lists(Axis *a, const Taps *t, const int64_t *start, int64_t nout, int64_t nin,
                        bool transposed) {
    a->n = transposed ? nin : nout;
    a->start = calloc((size_t)a->n + 2, sizeof *a->start);
    a->at = malloc(((size_t)t->n + 1) * sizeof *a->at);
    a->w = malloc(((size_t)t->n + 1) * sizeof *a->w);
    if (!a->start || !a->at || !a->w) return false;
    if (!transposed) {
        memcpy(a->start, start, (size_t)(nout + 1) * sizeof *start);
        for (int64_t i = 0; i < t->n; i++) a->at[i] = t->at[i], a->w[i] = (float)t->w[i];
        return true;
    }
    for (int64_t i = 0; i < t->n; i++) a->start[t->at[i] + 2]++; /* counted one place further */
    for (int64_t p = 2; p <= nin + 1; p++) a->start[p] += a->start[p - 1];
    for (int64_t o = 0; o < nout; o++)
        for (int64_t i = start[o]; i < start[o + 1]; i++) {
            int64_t to = a->start[t->at[i] + 1]++;
            a->at[to] = (int32_t)o;
            a->w[to] = (float)t->w[i];
        }
    return true;
}

static bool fill_axis(const DtrtResize *r, int k, Axis *a) {
    Taps t = {0};
    int64_t *start = calloc((size_t)r->out[k] + 1, sizeof *start);
    bool ok = start && forward_lists(r, k, &t, start);
    ok = ok && store_lists(a, &t, start, r->out[k], r->in[k], r->grad);
    if (ok && r->coord == CROP && !r->grad) {
        a->outside = calloc((size_t)r->out[k] + 1, 1);
        ok = a->outside != NULL;
        for (int64_t o = 0; ok && o < r->out[k]; o++) a->outside[o] = start[o] == start[o + 1];
    }
    free(start);
    free(t.at);
    free(t.w);
    return ok;
}

static bool is_copied(const DtrtResize *r, int k) {
    return r->in[k] == r->out[k] && r->scale[k] == 1 && r->coord != CROP &&
           r->coord != TF_HALF_PIXEL;
}

bool dtrt_resize_init(DtrtResize *r, int threads) {
    (void)threads;
    Impl *m = calloc(1, sizeof *m);
    bool ok = m != NULL;
    r->impl = m;
    if (!ok) return false;
    m->rows = m->inner = 1;
    m->value = r->value;
    for (int k = 0; k < r->nd && ok; k++) {
        Axis *a = &m->axis[m->naxis++];
        a->n = r->in[k];
        if (!is_copied(r, k)) ok = fill_axis(r, k, a);
    }
    int64_t stride = 1;
    for (int k = r->nd; k-- > 0;) { /* the source of the gradient is the output */
        m->axis[k].stride = stride;
        stride *= r->grad ? r->out[k] : r->in[k];
    }
    while (m->naxis && !m->axis[m->naxis - 1].start) m->inner *= m->axis[--m->naxis].n;
    for (int k = 0; k + 1 < m->naxis; k++) m->rows *= m->axis[k].n;
    return ok;
}

void dtrt_resize_free(DtrtResize *r) {
    Impl *m = r->impl;
    for (int k = 0; m && k < MAX_ND; k++) {
        free(m->axis[k].start);
        free(m->axis[k].at);
        free(m->axis[k].w);
        free(m->axis[k].outside);
    }
    free(m);
    r->impl = NULL;
}

/* ---- the loop ---- */

/* What the axes before the last one contribute to a row of the result. */
typedef struct {
    int n; /* axes with lists */
    const Axis *axis[MAX_ND];
    int64_t from[MAX_ND], count[MAX_ND]; /* the lists' entries */
    int64_t base, total;                 /* source offset; product of count */
    bool outside;
} Lead;

static void open_row(const Impl *m, int64_t row, Lead *l) {
    *l = (Lead){.total = 1};
    for (int k = m->naxis - 1; k-- > 0;) {
        const Axis *a = &m->axis[k];
        int64_t p = row % a->n;
        row /= a->n;
        if (!a->start) {
            l->base += p * a->stride;
            continue;
        }
        l->axis[l->n] = a;
        l->from[l->n] = a->start[p];
        l->count[l->n] = a->start[p + 1] - a->start[p];
        l->total *= l->count[l->n++];
        l->outside = l->outside || (a->outside && a->outside[p]);
    }
}

/* Combination q of entries: where its source row starts, and its weight. */
static inline int64_t lead_at(const Lead *l, int64_t q, double *w) {
    int64_t at = l->base;
    *w = 1;
    for (int i = 0; i < l->n; i++) {
        int64_t e = l->from[i] + q % l->count[i];
        q /= l->count[i];
        at += l->axis[i]->at[e] * l->axis[i]->stride;
        *w *= (double)l->axis[i]->w[e];
    }
    return at;
}

/* Places p0 .. p0+n-1 of a row of single elements. */
KERNEL_INLINE void single_places(const float *x, float *y, const Axis *a, const Lead *l, int64_t p0,
                                 int64_t n) {
    double acc[BLOCK] = {0}, w;
    for (int64_t q = 0; q < l->total; q++) {
        const float *from = x + lead_at(l, q, &w);
        for (int64_t p = 0; p < n; p++) {
            double sum = 0;
            for (int64_t e = a->start[p0 + p]; e < a->start[p0 + p + 1]; e++)
                sum += (double)a->w[e] * (double)from[a->at[e]];
            acc[p] += w * sum;
        }
    }
    for (int64_t p = 0; p < n; p++) y[p0 + p] = (float)acc[p];
}

/* Elements c0 .. c0+n-1 behind place p. */
KERNEL_INLINE void columns(const float *x, float *y, const Axis *a, const Lead *l, int64_t inner,
                           int64_t p, int64_t c0, int64_t n) {
    double acc[BLOCK] = {0}, w;
    for (int64_t q = 0; q < l->total; q++) {
        const float *row = x + lead_at(l, q, &w) + c0;
        for (int64_t e = a->start[p]; e < a->start[p + 1]; e++) {
            const float *from = row + a->at[e] * inner;
            double we = w * (double)a->w[e];
#pragma omp simd
            for (int64_t j = 0; j < n; j++) acc[j] += we * (double)from[j];
        }
    }
    for (int64_t j = 0; j < n; j++) y[p * inner + c0 + j] = (float)acc[j];
}

KERNEL resize_rows(const float *x, float *y, const Impl *m, int64_t lo, int64_t hi) {
    const Axis *a = &m->axis[m->naxis - 1];
    for (int64_t r = lo; r < hi; r++) {
        Lead l;
        float *row = y + r * a->n * m->inner;
        open_row(m, r, &l);
        for (int64_t p = 0; m->inner == 1 && p < a->n; p += BLOCK)
            single_places(x, row, a, &l, p, kernel_min(BLOCK, a->n - p));
        for (int64_t p = 0; m->inner > 1 && p < a->n; p++)
            for (int64_t c = 0; c < m->inner; c += BLOCK)
                columns(x, row, a, &l, m->inner, p, c, kernel_min(BLOCK, m->inner - c));
        for (int64_t p = 0; p < a->n; p++)
            for (int64_t c = 0; (l.outside || (a->outside && a->outside[p])) && c < m->inner; c++)
                row[p * m->inner + c] = (float)m->value;
    }
}

void dtrt_resize(const DtrtResize *r, const float *x, float *y) {
    const Impl *m = r->impl;
    if (!m->naxis) { /* nothing is interpolated */
        memcpy(y, x, (size_t)m->inner * sizeof *y);
        return;
    }
    int64_t work = m->rows * m->axis[m->naxis - 1].n * m->inner;
    KERNEL_SPLIT(m->rows, 1, 4 * work, resize_rows(x, y, m, lo, hi));
}
