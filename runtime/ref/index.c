/* index.c - reference of gathering and scattering by indices, and of the largest elements along an
 * axis. Indices were checked by the program's own kernel, which ran first. */
#include <math.h>
#include <string.h>

#include "ref.h"

static double combine(int64_t how, double a, double b) {
    switch (how) {
    case 1: return a + b;
    case 2: return a * b;
    case 3: return fmax(a, b);
    case 4: return fmin(a, b);
    default: return b;
    }
}

static int64_t wrap(double index, int64_t n) {
    return index < 0 ? (int64_t)index + n : (int64_t)index;
}

/* Element of `data` that element i of the indices names. */
static uint64_t element_at(const RefCall *c, const DtrtRefValue *data, const DtrtRefValue *index,
                           const double *value, uint64_t i) {
    int64_t axis = dtrt_ref_i(c->n, "axis", 0);
    if (axis < 0) axis += data->rank;
    uint64_t at = 0, stride = 1, rest = i;
    for (int k = data->rank - 1; k >= 0; k--) {
        uint64_t pos = rest % (uint64_t)index->dim[k];
        rest /= (uint64_t)index->dim[k];
        if (k == axis) pos = (uint64_t)wrap(value[i], data->dim[k]);
        at += pos * stride;
        stride *= (uint64_t)data->dim[k];
    }
    return at;
}

static void run_gather_elements(const RefCall *c) {
    const double *data = dtrt_ref_in(c, 0), *index = dtrt_ref_in(c, 1);
    const DtrtRefValue *d = dtrt_ref_in_shape(c, 0), *s = dtrt_ref_in_shape(c, 1);
    uint64_t n = dtrt_ref_count(s);
    for (uint64_t i = 0; i < n; i++) c->y[0][i] = data[element_at(c, d, s, index, i)];
}

static void start_from_data(const RefCall *c) {
    const double *data = dtrt_ref_in(c, 2);
    uint64_t n = dtrt_ref_count(dtrt_ref_out_shape(c, 0));
    for (uint64_t i = 0; i < n; i++) c->y[0][i] = data ? data[i] : 0;
}

static void run_scatter_elements(const RefCall *c) {
    const double *index = dtrt_ref_in(c, 0), *update = dtrt_ref_in(c, 1);
    const DtrtRefValue *d = dtrt_ref_out_shape(c, 0), *s = dtrt_ref_in_shape(c, 0);
    uint64_t n = dtrt_ref_count(s);
    start_from_data(c);
    for (uint64_t i = 0; i < n; i++) {
        double *y = &c->y[0][element_at(c, d, s, index, i)];
        *y = combine(dtrt_ref_i(c->n, "reduction", 0), *y, update[i]);
    }
}

/* Indices [batch.., count.., k] into data [batch.., d1..dk, inner..]. */
typedef struct {
    uint64_t tuples, count, k, inner, slices;
    const int64_t *dim;
} Tuples;

static Tuples tuples_of(const RefCall *c, const DtrtRefValue *data, const DtrtRefValue *index) {
    int batch = (int)dtrt_ref_i(c->n, "batch_dims", 0);
    Tuples t = {1, 1, (uint64_t)index->dim[index->rank - 1], 1, 1, data->dim + batch};
    for (int i = 0; i < index->rank - 1; i++) t.tuples *= (uint64_t)index->dim[i];
    for (int i = batch; i < index->rank - 1; i++) t.count *= (uint64_t)index->dim[i];
    for (int i = batch; i < data->rank; i++)
        *(i < batch + (int)t.k ? &t.slices : &t.inner) *= (uint64_t)data->dim[i];
    return t;
}

static uint64_t slice_at(const Tuples *t, const double *index, uint64_t i) {
    uint64_t at = 0;
    for (uint64_t k = 0; k < t->k; k++)
        at = at * (uint64_t)t->dim[k] + (uint64_t)wrap(index[i * t->k + k], t->dim[k]);
    return (i / t->count * t->slices + at) * t->inner;
}

static void run_gather_nd(const RefCall *c) {
    const double *data = dtrt_ref_in(c, 0), *index = dtrt_ref_in(c, 1);
    Tuples t = tuples_of(c, dtrt_ref_in_shape(c, 0), dtrt_ref_in_shape(c, 1));
    for (uint64_t i = 0; i < t.tuples; i++)
        memcpy(c->y[0] + i * t.inner, data + slice_at(&t, index, i), t.inner * sizeof(double));
}

static void run_scatter_nd(const RefCall *c) {
    const double *index = dtrt_ref_in(c, 0), *update = dtrt_ref_in(c, 1);
    Tuples t = tuples_of(c, dtrt_ref_out_shape(c, 0), dtrt_ref_in_shape(c, 0));
    start_from_data(c);
    for (uint64_t i = 0; i < t.tuples; i++)
        for (uint64_t j = 0; j < t.inner; j++) {
            double *y = &c->y[0][slice_at(&t, index, i) + j];
            *y = combine(dtrt_ref_i(c->n, "reduction", 0), *y, update[i * t.inner + j]);
        }
}

/* How many elements of the line come before element i: its place in the result. */
static int64_t rank_of(const double *x, int64_t n, int64_t inner, int64_t i, bool largest) {
    int64_t rank = 0;
    for (int64_t j = 0; j < n; j++) {
        double a = x[j * inner], b = x[i * inner];
        bool both = isnan(a) && isnan(b), better = largest ? a > b : a < b;
        if (isnan(a) != isnan(b)) better = isnan(a) == largest;
        rank += better || ((a == b || both) && j < i);
    }
    return rank;
}

static void run_topk(const RefCall *c) {
    const double *x = dtrt_ref_in(c, 0);
    bool largest = dtrt_ref_i(c->n, "largest", 1) != 0;
    int64_t outer, n, inner, k = dtrt_ref_i(c->n, "k", 1);
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), dtrt_ref_i(c->n, "axis", -1), &outer, &n, &inner);
    for (int64_t r = 0; r < outer * inner; r++) {
        const double *line = x + r / inner * n * inner + r % inner;
        for (int64_t i = 0; i < n; i++) {
            int64_t rank = rank_of(line, n, inner, i, largest);
            if (rank >= k) continue;
            int64_t to = (r / inner * k + rank) * inner + r % inner;
            c->y[0][to] = line[i * inner];
            if (c->y[1]) c->y[1][to] = (double)i;
        }
    }
}

RefOp *dtrt_ref_index(const char *op) {
    static const struct {
        const char *op;
        RefOp *f;
    } table[] = {{"GatherElements", run_gather_elements},
                 {"ScatterElements", run_scatter_elements},
                 {"GatherND", run_gather_nd},
                 {"ScatterND", run_scatter_nd},
                 {"TopK", run_topk}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].op, op)) return table[i].f;
    return NULL;
}
