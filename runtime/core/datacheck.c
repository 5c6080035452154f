/* datacheck.c - what is wrong with the data, said before training starts: missing arrays, shapes,
 * types, labels out of range, lengths that differ; each with what was expected, what was found, and
 * a hint. And the conversion of elements to the types that the program wants. */
#include "core.h"

#include <inttypes.h>
#include <string.h>

static const char *const device_type[] = {"float32", "float64", "int64", "int32", "uint8", "bool"};

/* "float32 [N,3,32,32]": what the file should have for this tensor. */
static const char *expected(const Runtime *rt, const DtrtTensor *t, char *buf, size_t n) {
    int skip = rt->o.batched ? 0 : 1;
    snprintf(buf, n, "%s %s", device_type[t->type],
             dtrt_shape_str(t->rank - skip, t->dim + skip, rt->o.batched ? "batches" : "N"));
    return buf;
}

static Status missing(const Runtime *rt, const DtrtTensor *t) {
    char want[320];
    const Dataset *d = &rt->loader.data;
    dtrt_error("%s: no array named %s; expected %s", rt->o.data, dtrt_name_str(t->name),
               expected(rt, t, want, sizeof want));
    if (d->listing)
        dtrt_hint("the file has %s", *d->listing ? d->listing : "no arrays");
    else
        dtrt_hint("give one file for each input and for the target, in this order, with commas, or "
                  "NAME=FILE");
    return ST_DATA;
}

static bool same_shape(const Runtime *rt, const DtrtTensor *t, const DataArray *a) {
    int skip = rt->o.batched ? 0 : 1;
    if (a->raw) {
        uint64_t per_row = dtrt_tensor_count(t) / (skip ? (uint64_t)t->dim[0] : 1);
        return a->row_bytes == per_row * dtrt_data_size(a->type);
    }
    return a->rank == t->rank - skip &&
           !memcmp(a->dim, t->dim + skip, (size_t)a->rank * sizeof *a->dim);
}

/* The usual reasons for a shape that does not fit. */
static void shape_hint(const Runtime *rt, const DtrtTensor *t, const DataArray *a) {
    int skip = rt->o.batched ? 0 : 1, want = t->rank - skip;
    uint64_t n = a->row_bytes / dtrt_data_size(a->type);
    uint64_t need = dtrt_tensor_count(t) / (skip ? (uint64_t)t->dim[0] : 1);
    bool label = t->role == DTRT_TARGET && rt->p->nclass > 0;
    if (skip && a->rank == t->rank && !memcmp(a->dim, t->dim, (size_t)t->rank * sizeof *t->dim))
        dtrt_hint("the first axis seems to count batches: give --batched");
    else if (!skip && a->rank == t->rank - 1)
        dtrt_hint("the first axis seems to count samples: leave --batched out");
    else if (label && a->rank == want + 1 && a->dim[a->rank - 1] == rt->p->nclass)
        dtrt_hint("these look like one-hot labels: save np.argmax(labels, axis=-1) as int64");
    else if (a->rank == 3 && want == 3 && a->dim[2] == t->dim[skip] &&
             a->dim[0] == t->dim[skip + 1])
        dtrt_hint("the images seem to be stored with channels last: save x.transpose(0, 3, 1, 2)");
    else if (n == need)
        dtrt_hint("the number of elements fits: save a.reshape(%s)",
                  dtrt_shape_str(want, t->dim + skip, "-1"));
}

static bool is_float(DataType t) {
    return t == D_F32 || t == D_F64;
}

static bool type_fits(const DtrtTensor *t, const DataArray *a) {
    switch (t->type) {
    case DTRT_F32: return is_float(a->type) || a->type == D_U8 || t->role == DTRT_TARGET;
    case DTRT_F64: return is_float(a->type);
    case DTRT_I64:
    case DTRT_I32: return !is_float(a->type) && a->type != D_BOOL;
    default: return a->type == D_BOOL || a->type == D_U8;
    }
}

static Status check_array(const Runtime *rt, const DtrtTensor *t, const Feed *f) {
    const DataArray *a = f->array;
    char want[320];
    if (!a) return missing(rt, t);
    if (!same_shape(rt, t, a)) {
        dtrt_error("%s: array %s has the wrong shape: expected %s, found %s", a->file,
                   dtrt_name_str(t->name), expected(rt, t, want, sizeof want), dtrt_dataset_str(a));
        shape_hint(rt, t, a);
        return ST_DATA;
    }
    if (!type_fits(t, a)) {
        dtrt_error("%s: array %s has the wrong type: expected %s, found %s", a->file,
                   dtrt_name_str(t->name), expected(rt, t, want, sizeof want), dtrt_dataset_str(a));
        dtrt_hint("save a.astype('%s')", device_type[t->type]);
        return ST_DATA;
    }
    if (f->divide)
        dtrt_note("%s is uint8: divided by 255", dtrt_name_str(t->name));
    else if (a->type == D_F64 && t->type == DTRT_F32)
        dtrt_note("%s is float64: converted to float32", dtrt_name_str(t->name));
    return ST_OK;
}

Status dtrt_data_check(Runtime *rt) {
    const Loader *l = &rt->loader;
    for (uint32_t i = 0; i < l->nfeed; i++) {
        Status st = check_array(rt, &rt->p->tensor[l->feed[i].tensor], &l->feed[i]);
        if (st) return st;
    }
    for (uint32_t i = 1; i < l->nfeed; i++) {
        const DataArray *a = l->feed[0].array, *b = l->feed[i].array;
        if (a->rows == b->rows) continue;
        dtrt_error("%s: arrays of different lengths: %s is %s, %s is %s", rt->o.data,
                   dtrt_name_str(a->name), dtrt_dataset_str(a), dtrt_name_str(b->name),
                   dtrt_dataset_str(b));
        return ST_DATA;
    }
    return ST_OK;
}

/* ---- labels ------------------------------------------------------------------------------- */

static bool label_ok(const DtrtProgram *p, int64_t v) {
    return (v >= 0 && v < p->nclass) || (p->has_ignore && v == p->ignore_index);
}

/* v: n labels as the program sees them, from row `row` of the array. */
Status dtrt_labels_check(const DtrtProgram *p, const DataArray *a, DtrtType type, const void *v,
                         uint64_t row, uint64_t n) {
    if (p->nclass <= 0 || (type != DTRT_I64 && type != DTRT_I32)) return ST_OK;
    for (uint64_t i = 0; i < n; i++) {
        int64_t x = type == DTRT_I64 ? ((const int64_t *)v)[i] : ((const int32_t *)v)[i];
        if (label_ok(p, x)) continue;
        uint64_t per_row = a->row_bytes / dtrt_data_size(a->type);
        dtrt_error("%s: label %lld in row %" PRIu64 " of %s is outside the %lld classes [0,%lld)",
                   a->file, (long long)x, row + i / per_row, dtrt_name_str(a->name),
                   (long long)p->nclass, (long long)p->nclass);
        if (x == p->nclass)
            dtrt_hint("do the labels count from 1? The program's count from 0");
        else if (x < 0)
            dtrt_hint("labels to leave out are named at compile time: --loss %s:ignore_index=%lld",
                      p->loss_kind, (long long)x);
        return ST_DATA;
    }
    return ST_OK;
}

/* All labels, before training starts. The raw rows and the converted ones share the scratch
 * buffer's worth of device memory: the target's own place in the block takes the converted labels.
 */
Status dtrt_labels_scan(Runtime *rt) {
    Loader *l = &rt->loader;
    for (uint32_t i = 0; i < l->nfeed; i++) {
        const DtrtTensor *t = &rt->p->tensor[l->feed[i].tensor];
        const DataArray *a = l->feed[i].array;
        if (t->role != DTRT_TARGET || rt->p->nclass <= 0) continue;
        uint64_t per_row = a->row_bytes / dtrt_data_size(a->type);
        uint8_t *to = dtrt_staging(rt, t);
        uint64_t room = dtrt_tensor_count(t) / per_row;
        for (uint64_t row = 0, n; row < a->rows; row += n) {
            n = dtrt_dataset_span(a, row);
            if (n > l->scratch_bytes / a->row_bytes) n = l->scratch_bytes / a->row_bytes;
            if (n > room) n = room;
            Status st = dtrt_dataset_rows(a, row, n, l->scratch);
            if (st) return st;
            dtrt_convert(a->type, l->scratch, t->type, to, n * per_row, false);
            st = dtrt_labels_check(rt->p, a, t->type, to, row, n * per_row);
            if (st) return st;
        }
    }
    return ST_OK;
}

/* ---- conversion --------------------------------------------------------------------------- */

static int64_t int_at(DataType type, const void *src, uint64_t i) {
    switch (type) {
    case D_I8: return ((const int8_t *)src)[i];
    case D_U16: return ((const uint16_t *)src)[i];
    case D_I16: return ((const int16_t *)src)[i];
    case D_U32: return ((const uint32_t *)src)[i];
    case D_I32: return ((const int32_t *)src)[i];
    case D_I64: return ((const int64_t *)src)[i];
    default: return ((const uint8_t *)src)[i];
    }
}

static double float_at(DataType type, const void *src, uint64_t i) {
    if (type == D_F64) return ((const double *)src)[i];
    return type == D_F32 ? (double)((const float *)src)[i] : (double)int_at(type, src, i);
}

/* Large int64 labels must not become small int32 ones. */
static int32_t clamp_i32(int64_t v) {
    return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
}

bool dtrt_same_type(DataType type, DtrtType want) {
    return (type == D_F32 && want == DTRT_F32) || (type == D_F64 && want == DTRT_F64) ||
           (type == D_I64 && want == DTRT_I64) || (type == D_I32 && want == DTRT_I32) ||
           (type == D_U8 && want == DTRT_U8);
}

void dtrt_convert(DataType type, const void *src, DtrtType want, void *dst, uint64_t n,
                  bool divide) {
    if (dtrt_same_type(type, want)) {
        memcpy(dst, src, n * dtrt_type_bytes(want));
        return;
    }
    if (divide) {
        for (uint64_t i = 0; i < n; i++) ((float *)dst)[i] = ((const uint8_t *)src)[i] / 255.0f;
        return;
    }
    for (uint64_t i = 0; i < n; i++) switch (want) {
        case DTRT_F32: ((float *)dst)[i] = (float)float_at(type, src, i); break;
        case DTRT_F64: ((double *)dst)[i] = float_at(type, src, i); break;
        case DTRT_I64: ((int64_t *)dst)[i] = int_at(type, src, i); break;
        case DTRT_I32: ((int32_t *)dst)[i] = clamp_i32(int_at(type, src, i)); break;
        case DTRT_U8: ((uint8_t *)dst)[i] = (uint8_t)int_at(type, src, i); break;
        case DTRT_BOOL: ((uint8_t *)dst)[i] = int_at(type, src, i) != 0; break;
        }
}
