/* element.h - reading and writing single elements of known tensors, whatever their type. Part of
 * import.h; inlined because evaluation does it for every element. */
#ifndef DTRC_ONNX_ELEMENT_H
#define DTRC_ONNX_ELEMENT_H

#include <math.h>
#include <string.h>

static inline bool is_real(DType d) {
    return d == DT_F32 || d == DT_F64;
}

/* Floats to integers: towards zero, the nearest one when out of range, NaN to 0. */
static inline int64_t saturate(double v) {
    if (isnan(v)) return 0;
    if (v >= 9223372036854775808.0) return INT64_MAX;
    if (v < -9223372036854775808.0) return INT64_MIN;
    return (int64_t)v;
}

static inline double tensor_real(const Tensor *t, uint64_t i) {
    const uint8_t *at = t->data;
    float f;
    double d;
    int32_t w;
    int64_t l;
    switch (t->dtype) {
    case DT_F32: memcpy(&f, at + 4 * i, 4); return (double)f;
    case DT_F64: memcpy(&d, at + 8 * i, 8); return d;
    case DT_I64: memcpy(&l, at + 8 * i, 8); return (double)l;
    case DT_I32: memcpy(&w, at + 4 * i, 4); return (double)w;
    default: return (double)at[i];
    }
}

/* Any type; floats as above. */
static inline int64_t tensor_int(const Tensor *t, uint64_t i) {
    const uint8_t *at = t->data;
    int32_t w;
    int64_t l;
    switch (t->dtype) {
    case DT_I64: memcpy(&l, at + 8 * i, 8); return l;
    case DT_I32: memcpy(&w, at + 4 * i, 4); return w;
    case DT_F32:
    case DT_F64: return saturate(tensor_real(t, i));
    default: return at[i];
    }
}

static inline void put_real(const Tensor *t, uint64_t i, double v) {
    uint8_t *at = (uint8_t *)(uintptr_t)t->data;
    float f = (float)v;
    if (t->dtype == DT_F32)
        memcpy(at + 4 * i, &f, 4);
    else
        memcpy(at + 8 * i, &v, 8);
}

/* Any type; bool: whether v is not 0. */
static inline void put_int(const Tensor *t, uint64_t i, int64_t v) {
    uint8_t *at = (uint8_t *)(uintptr_t)t->data;
    int32_t w = (int32_t)v;
    switch (t->dtype) {
    case DT_I64: memcpy(at + 8 * i, &v, 8); break;
    case DT_I32: memcpy(at + 4 * i, &w, 4); break;
    case DT_F32:
    case DT_F64: put_real(t, i, (double)v); break;
    default: at[i] = v != 0;
    }
}

#endif
