/* tensor.c - TensorProto -> Tensor: checks the shape against the payload to the byte and points at
 * the values where they lie, in the mapped model, in an external file, or in the unpacked message.
 * Element types without an IR dtype are widened into the arena: half precision to f32, small
 * integers to i32, unsigned ones to i64. */
#include "import.h"

#include <math.h>
#include <string.h>

#define ELEM(x) ONNX__TENSOR_PROTO__DATA_TYPE__##x

typedef enum {
    FIELD_NONE,
    FIELD_FLOAT,
    FIELD_DOUBLE,
    FIELD_INT32,
    FIELD_INT64,
    FIELD_UINT64
} Field;

typedef struct {
    const char *name;
    bool ok;
    DType dtype;  /* that it becomes */
    uint8_t size; /* bytes of a raw element */
    Field field;  /* typed field that may hold it */
} Elem;

#define NELEM 17
static const Elem elems[NELEM] = {
    [ELEM(FLOAT)] = {"float", true, DT_F32, 4, FIELD_FLOAT},
    [ELEM(UINT8)] = {"uint8", true, DT_I32, 1, FIELD_INT32},
    [ELEM(INT8)] = {"int8", true, DT_I32, 1, FIELD_INT32},
    [ELEM(UINT16)] = {"uint16", true, DT_I32, 2, FIELD_INT32},
    [ELEM(INT16)] = {"int16", true, DT_I32, 2, FIELD_INT32},
    [ELEM(INT32)] = {"int32", true, DT_I32, 4, FIELD_INT32},
    [ELEM(INT64)] = {"int64", true, DT_I64, 8, FIELD_INT64},
    [ELEM(STRING)] = {"string", false, DT_U8, 0, FIELD_NONE},
    [ELEM(BOOL)] = {"bool", true, DT_BOOL, 1, FIELD_INT32},
    [ELEM(FLOAT16)] = {"float16", true, DT_F32, 2, FIELD_INT32},
    [ELEM(DOUBLE)] = {"double", true, DT_F64, 8, FIELD_DOUBLE},
    [ELEM(UINT32)] = {"uint32", true, DT_I64, 4, FIELD_UINT64},
    [ELEM(UINT64)] = {"uint64", true, DT_I64, 8, FIELD_UINT64},
    [ELEM(COMPLEX64)] = {"complex64", false, DT_U8, 0, FIELD_NONE},
    [ELEM(COMPLEX128)] = {"complex128", false, DT_U8, 0, FIELD_NONE},
    [ELEM(BFLOAT16)] = {"bfloat16", true, DT_F32, 2, FIELD_INT32},
};

bool elem_dtype(int32_t elem, DType *out) {
    if (elem < 0 || elem >= NELEM || !elems[elem].ok) return false;
    *out = elems[elem].dtype;
    return true;
}

const char *elem_name(int32_t elem) {
    bool known = elem > 0 && elem < NELEM && elems[elem].name;
    return known ? elems[elem].name : "an unknown element type";
}

/* IEEE 754 half precision: 1 sign, 5 exponent, 10 fraction bits. */
static float half_to_float(uint16_t h) {
    int exponent = h >> 10 & 31, fraction = h & 1023;
    float v;
    if (exponent == 31)
        v = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        v = ldexpf((float)fraction, -24);
    else
        v = ldexpf((float)(1024 + fraction), exponent - 25);
    return h >> 15 ? -v : v;
}

static float bfloat_to_float(uint16_t b) {
    uint32_t bits = (uint32_t)b << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static float widen_half(int32_t elem, uint16_t bits) {
    return elem == ELEM(FLOAT16) ? half_to_float(bits) : bfloat_to_float(bits);
}

/* One raw little-endian integer of 1, 2, 4 or 8 bytes. */
static int64_t raw_int(int32_t elem, const uint8_t *at) {
    uint64_t v = 0;
    uint32_t size = elems[elem].size;
    for (uint32_t i = 0; i < size; i++) v |= (uint64_t)at[i] << (8 * i);
    switch (elem) {
    case ELEM(INT8): return (int8_t)v;
    case ELEM(INT16): return (int16_t)v;
    case ELEM(INT32): return (int32_t)v;
    case ELEM(BOOL): return v != 0;
    default: return (int64_t)v;
    }
}

/* True when raw elements are those of the dtype as they are. */
static bool is_plain(int32_t elem, Span raw) {
    if (elem == ELEM(FLOAT) || elem == ELEM(DOUBLE) || elem == ELEM(INT32) || elem == ELEM(INT64))
        return true;
    if (elem != ELEM(BOOL)) return false;
    for (uint64_t i = 0; i < raw.n; i++)
        if (raw.at[i] > 1) return false;
    return true;
}

static bool store_int(Diag *d, Place p, Tensor *t, uint8_t *data, uint64_t i, int64_t v,
                      bool wrapped) {
    if (wrapped)
        return diag_error(d, p,
                          "element %llu is above the largest signed 64-bit integer, found an "
                          "unsigned one that does not fit",
                          (unsigned long long)i);
    int32_t w = (int32_t)v;
    if (t->dtype == DT_I64)
        memcpy(data + 8 * i, &v, 8);
    else if (t->dtype == DT_I32)
        memcpy(data + 4 * i, &w, 4);
    else
        data[i] = v != 0;
    return true;
}

static bool from_raw(Arena *a, Diag *d, Place p, int32_t elem, Span raw, Tensor *out) {
    if (is_plain(elem, raw)) {
        out->data = raw.at;
        return true;
    }
    uint8_t *data = arena_alloc(a, checked_array(out->count, dtype_size(out->dtype)));
    out->data = data;
    for (uint64_t i = 0; i < out->count; i++) {
        int64_t v = raw_int(elem, raw.at + i * elems[elem].size);
        if (out->dtype == DT_F32) {
            float f = widen_half(elem, (uint16_t)v);
            memcpy(data + 4 * i, &f, 4);
        } else {
            TRY(store_int(d, p, out, data, i, v, elem == ELEM(UINT64) && v < 0));
        }
    }
    return true;
}

static uint64_t typed_count(const TensorProto *t, Field f) {
    switch (f) {
    case FIELD_FLOAT: return t->n_float_data;
    case FIELD_DOUBLE: return t->n_double_data;
    case FIELD_INT32: return t->n_int32_data;
    case FIELD_INT64: return t->n_int64_data;
    case FIELD_UINT64: return t->n_uint64_data;
    default: return 0;
    }
}

static bool from_typed(Arena *a, Diag *d, Place p, const TensorProto *t, Tensor *out) {
    Field field = elems[t->data_type].field;
    uint8_t *data = arena_alloc(a, checked_array(out->count, dtype_size(out->dtype)));
    out->data = data;
    if (field == FIELD_FLOAT) memcpy(data, t->float_data, out->count * 4);
    if (field == FIELD_DOUBLE) memcpy(data, t->double_data, out->count * 8);
    if (field == FIELD_FLOAT || field == FIELD_DOUBLE) return true;
    for (uint64_t i = 0; i < out->count; i++) {
        int64_t v = field == FIELD_INT32   ? t->int32_data[i]
                    : field == FIELD_INT64 ? t->int64_data[i]
                                           : (int64_t)t->uint64_data[i];
        if (out->dtype == DT_F32) {
            float f = widen_half(t->data_type, (uint16_t)v);
            memcpy(data + 4 * i, &f, 4);
        } else {
            TRY(store_int(d, p, out, data, i, v, field == FIELD_UINT64 && v < 0));
        }
    }
    return true;
}

static bool read_shape(Diag *d, Place p, const TensorProto *t, Tensor *out) {
    if (t->n_dims > IR_MAX_RANK)
        return diag_error(d, p, "expected at most %d axes, found %zu", IR_MAX_RANK, t->n_dims);
    out->shape = (Shape){.rank = (uint32_t)t->n_dims};
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0)
            return diag_error(d, p, "expected sizes, found dimension %lld at axis %zu",
                              (long long)t->dims[i], i);
        out->shape.dim[i] = t->dims[i];
    }
    if (!shape_count(&out->shape, &out->count) || out->count > MAX_TENSOR_BYTES / 8)
        return diag_error(d, p, "shape %s has too many elements", shape_str(d->arena, &out->shape));
    return true;
}

static bool payload_of(Diag *d, const Sources *s, Place p, const TensorProto *t, Span *out) {
    uint32_t i = 0;
    bool whole = t->raw_data.len == 4;
    for (uint32_t k = 0; whole && k < 4; k++) i |= (uint32_t)t->raw_data.data[k] << (8 * k);
    if (!whole || i >= s->npayload) return diag_error(d, p, "raw_data is damaged");
    *out = s->payload[i];
    return true;
}

static bool size_error(Diag *d, Place p, const Tensor *t, const char *unit, uint64_t want,
                       uint64_t found) {
    return diag_error(d, p, "shape %s needs %llu %s, found %llu", shape_str(d->arena, &t->shape),
                      (unsigned long long)want, unit, (unsigned long long)found);
}

bool tensor_read(Arena *a, Diag *d, Sources *s, Place p, const TensorProto *t, Tensor *out) {
    *out = (Tensor){.kept = true};
    TRY(read_shape(d, p, t, out));
    if (!elem_dtype(t->data_type, &out->dtype))
        return diag_error(d, p, "tensors of element type %d (%s) are not supported", t->data_type,
                          elem_name(t->data_type));
    if (t->segment) return diag_error(d, p, "tensors in segments are not supported");
    const Elem *e = &elems[t->data_type];
    uint64_t bytes, typed = typed_count(t, e->field);
    if (!checked_mul(out->count, e->size, &bytes))
        return diag_error(d, p, "shape %s has too many bytes", shape_str(d->arena, &out->shape));
    Span raw = {NULL, 0};
    if (t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) {
        TRY(external_read(a, d, s, p, t, bytes, &raw, &out->missing));
        return out->missing || out->count == 0 || from_raw(a, d, p, t->data_type, raw, out);
    }
    if (t->has_raw_data) {
        TRY(payload_of(d, s, p, t, &raw));
        if (typed) return diag_error(d, p, "expected values in one field, found them in two");
        if (raw.n != bytes) return size_error(d, p, out, "bytes", bytes, raw.n);
        return out->count == 0 || from_raw(a, d, p, t->data_type, raw, out);
    }
    if (typed != out->count) return size_error(d, p, out, "elements", out->count, typed);
    return out->count == 0 || from_typed(a, d, p, t, out);
}

bool tensor_external(Arena *a, Diag *d, Sources *s, const TensorProto *t, Span *out,
                     bool *missing) {
    DType dtype;
    Tensor shape;
    uint64_t bytes;
    Place p = {.file = s->file, .tensor = t->name};
    return elem_dtype(t->data_type, &dtype) && read_shape(d, p, t, &shape) &&
           checked_mul(shape.count, elems[t->data_type].size, &bytes) &&
           external_read(a, d, s, p, t, bytes, out, missing);
}
