/* eval_scatter.c - compile-time evaluation of the Gather and Scatter families beyond Gather, and of
 * OneHot, EyeLike, Compress, NonZero and the window functions. */
#include "import.h"

#include <math.h>
#include <string.h>

static uint8_t *bytes_at(const Tensor *t, uint64_t i) {
    return (uint8_t *)(uintptr_t)t->data + i * dtype_size(t->dtype);
}

static void copy_element(const Tensor *to, uint64_t i, const Tensor *from, uint64_t k) {
    memcpy(bytes_at(to, i), bytes_at(from, k), dtype_size(to->dtype));
}

/* Index i of a tensor of indices, within an axis; false after reporting. */
static bool index_in(Ctx *c, const Tensor *t, uint64_t i, int64_t dim, uint64_t *out) {
    int64_t v = tensor_int(t, i);
    if (v < -dim || v >= dim) {
        ctx_fail(c, "index %lld is outside of an axis of size %lld", (long long)v, (long long)dim);
        return false;
    }
    *out = (uint64_t)(v < 0 ? v + dim : v);
    return true;
}

static Res check_indices(Ctx *c, const Tensor *t) {
    if (t->dtype == DT_I64 || t->dtype == DT_I32) return OK;
    return ctx_fail(c, "indices must be integers, found %s", dtype_name(t->dtype));
}

/* ---- elements ---- */

static Res elements_fit(Ctx *c, const Shape *data, const Shape *index, uint32_t axis) {
    bool fits = data->rank == index->rank;
    for (uint32_t k = 0; fits && k < data->rank; k++)
        fits = k == axis || index->dim[k] <= data->dim[k];
    if (fits) return OK;
    return ctx_fail(c, "indices of shape %s do not fit data of shape %s",
                    shape_str(c->x->tmp, index), shape_str(c->x->tmp, data));
}

/* Element of the data that index i names. */
static bool element_at(Ctx *c, const Shape *data, const Tensor *index, uint32_t axis, uint64_t i,
                       uint64_t *out) {
    uint64_t stride = 1, rest = i, pos;
    *out = 0;
    for (uint32_t k = data->rank; k-- > 0;) {
        pos = rest % (uint64_t)index->shape.dim[k];
        rest /= (uint64_t)index->shape.dim[k];
        if (k == axis && !index_in(c, index, i, data->dim[k], &pos)) return false;
        *out += pos * stride;
        stride *= (uint64_t)data->dim[k];
    }
    return true;
}

Res eval_gather_elements(Ctx *c, Tensor *out) {
    const Tensor *data = known_in(c, 0), *index = known_in(c, 1);
    uint32_t axis;
    uint64_t at;
    MUST(check_indices(c, index));
    MUST(elements_axis(c, &axis));
    MUST(elements_fit(c, &data->shape, &index->shape, axis));
    MUST(tensor_new(c, data->dtype, &index->shape, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        if (!element_at(c, &data->shape, index, axis, i, &at)) return FAIL;
        copy_element(out, i, data, at);
    }
    return OK;
}

/* Writes update k at element i. */
static void write_update(const Tensor *out, uint64_t i, const Tensor *update, uint64_t k,
                         int64_t how) {
    if (how == 0) {
        copy_element(out, i, update, k);
    } else if (is_real(out->dtype)) {
        double a = tensor_real(out, i), b = tensor_real(update, k);
        double both[] = {b, a + b, a * b, a > b ? a : b, a < b ? a : b};
        put_real(out, i, both[how]);
    } else {
        int64_t a = tensor_int(out, i), b = tensor_int(update, k);
        uint64_t sum = (uint64_t)a + (uint64_t)b, product = (uint64_t)a * (uint64_t)b;
        int64_t both[] = {b, (int64_t)sum, (int64_t)product, a > b ? a : b, a < b ? a : b};
        put_int(out, i, both[how]);
    }
}

/* A copy of the data, whose type the updates have. */
static Res start_scatter(Ctx *c, const Tensor *data, const Tensor *update, Tensor *out) {
    if (update->dtype != data->dtype)
        return ctx_fail(c, "updates are %s, the data %s", dtype_name(update->dtype),
                        dtype_name(data->dtype));
    MUST(tensor_new(c, data->dtype, &data->shape, out));
    if (out->data) memcpy(bytes_at(out, 0), data->data, data->count * dtype_size(data->dtype));
    return OK;
}

Res eval_scatter_elements(Ctx *c, Tensor *out) {
    const Tensor *data = known_in(c, 0), *index = known_in(c, 1), *update = known_in(c, 2);
    uint32_t axis;
    int64_t how;
    uint64_t at;
    MUST(check_indices(c, index));
    MUST(elements_axis(c, &axis));
    MUST(reduction_of(c, &how));
    MUST(elements_fit(c, &data->shape, &index->shape, axis));
    if (!shape_eq(&index->shape, &update->shape))
        return ctx_fail(c, "%llu updates for %llu indices", (unsigned long long)update->count,
                        (unsigned long long)index->count);
    MUST(start_scatter(c, data, update, out));
    for (uint64_t i = 0; out->data && i < index->count; i++) {
        if (!element_at(c, &data->shape, index, axis, i, &at)) return FAIL;
        write_update(out, at, update, i, how);
    }
    return OK;
}

/* ---- tuples ---- */

typedef struct {
    uint32_t batch, k;
    uint64_t tuples, count, slices, inner;
    Shape picked;
} Tuples;

static Res tuples_of(Ctx *c, int64_t batch, Tuples *t) {
    const Shape *data = shape_in(c, 0), *index = shape_in(c, 1);
    bool fits = index->rank >= 1 && batch >= 0 && batch < index->rank && batch <= data->rank;
    int64_t k = index->rank ? index->dim[index->rank - 1] : 0;
    fits = fits && k >= 1 && k <= data->rank - batch;
    for (uint32_t i = 0; fits && i < batch; i++) fits = index->dim[i] == data->dim[i];
    fits = fits && index->rank - 1 + data->rank - batch - k <= IR_MAX_RANK;
    if (!fits)
        return ctx_fail(c, "indices of shape %s do not fit data of shape %s",
                        shape_str(c->x->tmp, index), shape_str(c->x->tmp, data));
    *t = (Tuples){.batch = (uint32_t)batch, .k = (uint32_t)k, 1, 1, 1, 1, {0}};
    for (uint32_t i = 0; i + 1 < index->rank; i++) {
        t->picked.dim[t->picked.rank++] = index->dim[i];
        t->tuples *= (uint64_t)index->dim[i];
        if (i >= batch) t->count *= (uint64_t)index->dim[i];
    }
    for (uint32_t i = t->batch; i < data->rank; i++) {
        *(i < t->batch + t->k ? &t->slices : &t->inner) *= (uint64_t)data->dim[i];
        if (i >= t->batch + t->k) t->picked.dim[t->picked.rank++] = data->dim[i];
    }
    return OK;
}

/* First element of the slice that tuple i names. */
static bool slice_at(Ctx *c, const Tuples *t, uint64_t i, uint64_t *out) {
    const Shape *data = shape_in(c, 0);
    uint64_t at = 0, pos;
    for (uint32_t j = 0; j < t->k; j++) {
        int64_t dim = data->dim[t->batch + j];
        if (!index_in(c, known_in(c, 1), i * t->k + j, dim, &pos)) return false;
        at = at * (uint64_t)dim + pos;
    }
    *out = (i / t->count * t->slices + at) * t->inner;
    return true;
}

Res eval_gather_nd(Ctx *c, Tensor *out) {
    const Tensor *data = known_in(c, 0);
    int64_t batch;
    Tuples t;
    uint64_t at;
    MUST(check_indices(c, known_in(c, 1)));
    MUST(attr_int(c, "batch_dims", 0, &batch));
    MUST(tuples_of(c, batch, &t));
    MUST(tensor_new(c, data->dtype, &t.picked, out));
    for (uint64_t i = 0; out->data && i < t.tuples; i++) {
        if (!slice_at(c, &t, i, &at)) return FAIL;
        memcpy(bytes_at(out, i * t.inner), bytes_at(data, at), t.inner * dtype_size(data->dtype));
    }
    return OK;
}

Res eval_scatter_nd(Ctx *c, Tensor *out) {
    const Tensor *data = known_in(c, 0), *update = known_in(c, 2);
    int64_t how;
    Tuples t;
    uint64_t at;
    MUST(check_indices(c, known_in(c, 1)));
    MUST(reduction_of(c, &how));
    MUST(tuples_of(c, 0, &t));
    if (!shape_eq(&t.picked, &update->shape))
        return ctx_fail(c, "expected updates of shape %s, found %s",
                        shape_str(c->x->tmp, &t.picked), shape_str(c->x->tmp, &update->shape));
    MUST(start_scatter(c, data, update, out));
    for (uint64_t i = 0; out->data && i < t.tuples; i++) {
        if (!slice_at(c, &t, i, &at)) return FAIL;
        for (uint64_t j = 0; j < t.inner; j++)
            write_update(out, at + j, update, i * t.inner + j, how);
    }
    return OK;
}

/* ---- from positions ---- */

Res eval_one_hot(Ctx *c, Tensor *out) {
    const Tensor *index = known_in(c, 0), *values = known_in(c, 2);
    int64_t given, depth;
    uint32_t axis, rank = index->shape.rank;
    MUST(attr_int(c, "axis", -1, &given));
    if (rank + 1 > IR_MAX_RANK) return ctx_fail(c, "the result would have %u axes", rank + 1);
    MUST(axis_of(c, given, rank + 1, &axis));
    MUST(int_of(c, "", 1, 0, &depth));
    if (values->count != 2 || depth < 1)
        return ctx_fail(c, "expected two values and a depth of at least 1, found %llu and %lld",
                        (unsigned long long)values->count, (long long)depth);
    Shape s = index->shape;
    memmove(s.dim + axis + 1, s.dim + axis, (rank - axis) * sizeof *s.dim);
    s.dim[axis] = depth;
    s.rank++;
    MUST(tensor_new(c, values->dtype, &s, out));
    uint64_t inner = 1, n = (uint64_t)depth;
    for (uint32_t k = axis; k < rank; k++) inner *= (uint64_t)index->shape.dim[k];
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        int64_t v = tensor_int(index, i / (n * inner) * inner + i % inner);
        int64_t place = (int64_t)(i / inner % n);
        copy_element(out, i, values, (v < 0 ? v + depth : v) == place);
    }
    return OK;
}

/* Needs the shape only. */
Res eval_eye_like(Ctx *c, Tensor *out) {
    const Shape *s = shape_in(c, 0);
    int64_t elem, k;
    DType dt = dtype_in(c, 0);
    MUST(attr_int(c, "dtype", 0, &elem));
    MUST(attr_int(c, "k", 0, &k));
    if (elem && (elem < 0 || elem > INT32_MAX || !elem_dtype((int32_t)elem, &dt)))
        return ctx_skip(c, "of type %s", elem_name(elem > 0 && elem < 100 ? (int32_t)elem : 0));
    if (s->rank != 2) return ctx_fail(c, "expected 2 axes, found %u", s->rank);
    MUST(tensor_new(c, dt, s, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        double column = (double)(i % (uint64_t)s->dim[1]), row = (double)(i / (uint64_t)s->dim[1]);
        put_int(out, i, column - row == (double)k);
    }
    return OK;
}

Res eval_compress(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    Shape s = in->shape;
    uint32_t axis = 0;
    Tensor at;
    if (attr_of(c, "axis")) {
        int64_t given;
        MUST(attr_int(c, "axis", 0, &given));
        MUST(axis_of(c, given, s.rank, &axis));
    } else {
        s = (Shape){.rank = 1, .dim = {(int64_t)in->count}};
    }
    uint64_t n = (uint64_t)s.dim[axis], inner = 1;
    MUST(places_of(c, known_in(c, 1), n, &at));
    for (uint32_t k = axis + 1; k < s.rank; k++) inner *= (uint64_t)s.dim[k];
    s.dim[axis] = (int64_t)at.count;
    MUST(tensor_new(c, in->dtype, &s, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        uint64_t o = i / (at.count * inner), k = i / inner % at.count;
        copy_element(out, i, in, (o * n + (uint64_t)tensor_int(&at, k)) * inner + i % inner);
    }
    return OK;
}

Res eval_non_zero(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    uint64_t n = 0, found = 0;
    if (in->missing) return ctx_fail(c, "the values are in an external file that is not there");
    for (uint64_t i = 0; i < in->count; i++) n += tensor_real(in, i) != 0;
    uint32_t rank = in->shape.rank ? in->shape.rank : 1;
    Shape s = {.rank = 2, .dim = {rank, (int64_t)n}};
    MUST(tensor_new(c, DT_I64, &s, out));
    for (uint64_t i = 0; out->data && i < in->count; i++) {
        if (tensor_real(in, i) == 0) continue;
        uint64_t rest = i;
        for (uint32_t k = rank; k-- > 0;) {
            uint64_t dim = in->shape.rank ? (uint64_t)in->shape.dim[k] : 1;
            put_int(out, k * n + found, (int64_t)(rest % dim));
            rest /= dim;
        }
        found++;
    }
    return OK;
}

/* HannWindow, HammingWindow, BlackmanWindow: a0 - a1 cos(2 pi i/N) + a2 cos(4 pi i/N). */
Res eval_window(Ctx *c, Tensor *out) {
    static const double factors[3][3] = {
        {0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const char *op = c->n->row->name;
    const double *f = factors[!strcmp(op, "HannWindow") ? 0 : !strcmp(op, "HammingWindow") ? 1 : 2];
    int64_t periodic, elem, size;
    DType dt;
    MUST(attr_int(c, "periodic", 1, &periodic));
    MUST(attr_int(c, "output_datatype", 1, &elem));
    MUST(int_of(c, "", 0, 0, &size));
    if (elem < 1 || elem > INT32_MAX || !elem_dtype((int32_t)elem, &dt) || !is_real(dt))
        return ctx_skip(c, "of a type that is no float");
    if (size < 0) return ctx_fail(c, "a window of %lld", (long long)size);
    MUST(tensor_new(c, dt, &(Shape){.rank = 1, .dim = {size}}, out));
    double n = (double)(periodic ? size : size - 1), turn = 2 * 3.14159265358979323846 / n;
    for (uint64_t i = 0; out->data && i < out->count; i++)
        put_real(out, i, f[0] - f[1] * cos(turn * (double)i) + f[2] * cos(2 * turn * (double)i));
    return OK;
}
