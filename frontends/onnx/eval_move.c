/* eval_move.c - compile-time evaluation of what moves elements and computes none: Reshape and its
 * kin, Transpose, Slice, Split, Concat, Expand, Tile, Gather, Trilu. All but Gather and Trilu are
 * one strided copy: for every element of the result, a place in the source given by a stride per
 * axis. */
#include "import.h"

#include <string.h>

#define MAX_AXES (2 * IR_MAX_RANK) /* Tile splits every axis in two */

typedef struct {
    uint32_t rank;
    int64_t dim[MAX_AXES];  /* of the result */
    int64_t from[MAX_AXES]; /* stride in the source, in elements */
    int64_t to[MAX_AXES];   /* stride in the result */
    int64_t from_start, to_start;
} Move;

static uint8_t *bytes_of(const Tensor *t) {
    return (uint8_t *)(uintptr_t)t->data;
}

static void strides_of(const Shape *s, int64_t *stride) {
    int64_t n = 1;
    for (uint32_t k = s->rank; k--;) {
        stride[k] = n;
        n *= s->dim[k];
    }
}

/* Walks the axes like an odometer. */
static void move_elements(const Move *m, const Tensor *in, const Tensor *out) {
    if (!in->data || !out->data) return;
    int64_t at[MAX_AXES] = {0}, from = m->from_start, to = m->to_start,
            size = (int64_t)dtype_size(in->dtype);
    uint64_t n = 1;
    for (uint32_t k = 0; k < m->rank; k++) n *= (uint64_t)m->dim[k];
    while (n--) {
        memcpy(bytes_of(out) + to * size, bytes_of(in) + from * size, (size_t)size);
        for (uint32_t k = m->rank; k--;) {
            from += m->from[k];
            to += m->to[k];
            if (++at[k] < m->dim[k]) break;
            at[k] = 0;
            from -= m->from[k] * m->dim[k];
            to -= m->to[k] * m->dim[k];
        }
    }
}

/* A move whose result is written front to back. */
static Move dense_move(const Shape *result) {
    Move m = {.rank = result->rank};
    memcpy(m.dim, result->dim, sizeof result->dim);
    strides_of(result, m.to);
    return m;
}

static Res copy_as(Ctx *c, const Shape *s, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    if (!in->heap) { /* shares the bytes, which stay */
        *out = *in;
        out->shape = *s;
        return OK;
    }
    MUST(tensor_new(c, in->dtype, s, out));
    if (out->data && in->data) memcpy(bytes_of(out), in->data, in->count * dtype_size(in->dtype));
    return OK;
}

Res eval_identity(Ctx *c, Tensor *out) {
    return copy_as(c, &known_in(c, 0)->shape, out);
}

Res eval_reshape(Ctx *c, Tensor *out) {
    Shape s;
    MUST(shape_reshape(c, &s));
    return copy_as(c, &s, out);
}

Res eval_squeeze(Ctx *c, Tensor *out) {
    Shape s;
    MUST(shape_squeeze(c, &s));
    return copy_as(c, &s, out);
}

Res eval_unsqueeze(Ctx *c, Tensor *out) {
    Shape s;
    MUST(shape_unsqueeze(c, &s));
    return copy_as(c, &s, out);
}

Res eval_flatten(Ctx *c, Tensor *out) {
    Shape s;
    MUST(shape_flatten(c, &s));
    return copy_as(c, &s, out);
}

Res eval_transpose(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    int64_t perm[IR_MAX_RANK], stride[IR_MAX_RANK];
    MUST(perm_of(c, in->shape.rank, perm));
    Shape s = {.rank = in->shape.rank};
    for (uint32_t k = 0; k < s.rank; k++) s.dim[k] = in->shape.dim[perm[k]];
    MUST(tensor_new(c, in->dtype, &s, out));
    Move m = dense_move(&s);
    strides_of(&in->shape, stride);
    for (uint32_t k = 0; k < s.rank; k++) m.from[k] = stride[perm[k]];
    move_elements(&m, in, out);
    return OK;
}

Res eval_slice(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    SliceSpec spec;
    MUST(slice_spec(c, &spec));
    if (is_whole_slice(&in->shape, &spec)) return eval_identity(c, out);
    int64_t stride[IR_MAX_RANK];
    strides_of(&in->shape, stride);
    Shape s = {.rank = in->shape.rank};
    memcpy(s.dim, spec.size, sizeof s.dim);
    MUST(tensor_new(c, in->dtype, &s, out));
    Move m = dense_move(&s);
    for (uint32_t k = 0; k < s.rank; k++) {
        m.from_start += out->count ? stride[k] * spec.start[k] : 0;
        m.from[k] = stride[k] * (s.dim[k] > 1 ? spec.step[k] : 1);
    }
    move_elements(&m, in, out);
    return OK;
}

Res eval_split(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    uint32_t axis;
    int64_t *size = ARENA_ARRAY(c->x->tmp, int64_t, c->n->nout), start = 0;
    MUST(split_spec(c, &axis, size));
    for (uint32_t k = 0; k < c->n->nout; k++) {
        Shape s = in->shape;
        s.dim[axis] = size[k];
        MUST(tensor_new(c, in->dtype, &s, &out[k]));
        Move m = dense_move(&s);
        strides_of(&in->shape, m.from);
        m.from_start = m.from[axis] * start;
        move_elements(&m, in, &out[k]);
        start += size[k];
    }
    return OK;
}

Res eval_concat(Ctx *c, Tensor *out) {
    uint32_t axis;
    Shape s;
    int64_t start = 0;
    MUST(concat_spec(c, &axis, &s));
    MUST(tensor_new(c, known_in(c, 0)->dtype, &s, out));
    for (uint32_t i = 0; i < c->n->nin; i++) {
        const Tensor *in = known_in(c, i);
        Move m = dense_move(&in->shape);
        strides_of(&in->shape, m.from);
        strides_of(&s, m.to);
        m.to_start = m.to[axis] * start;
        move_elements(&m, in, out);
        start += in->shape.dim[axis];
    }
    return OK;
}

Res eval_expand(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    Shape s;
    MUST(shape_expand(c, &s));
    MUST(tensor_new(c, in->dtype, &s, out));
    Move m = dense_move(&s);
    int64_t stride[IR_MAX_RANK];
    strides_of(&in->shape, stride);
    for (uint32_t k = 0; k < in->shape.rank; k++)
        m.from[s.rank - in->shape.rank + k] = in->shape.dim[k] == 1 ? 0 : stride[k];
    move_elements(&m, in, out);
    return OK;
}

/* Axis k of n elements repeated r times is read as the two axes r, n with stride 0 along r. */
Res eval_tile(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    Ints reps;
    MUST(ints_of(c, "", 1, &reps));
    if (reps.n != in->shape.rank)
        return ctx_fail(c, "expected %u repeats, found %u", in->shape.rank, reps.n);
    Shape s = in->shape;
    for (uint32_t k = 0; k < s.rank; k++) {
        uint64_t n;
        if (reps.at[k] < 0 || !checked_mul((uint64_t)s.dim[k], (uint64_t)reps.at[k], &n) ||
            n > INT64_MAX)
            return ctx_fail(c, "repeat %lld is out of range", (long long)reps.at[k]);
        s.dim[k] = (int64_t)n;
    }
    MUST(tensor_new(c, in->dtype, &s, out));
    int64_t from[IR_MAX_RANK], to[IR_MAX_RANK];
    strides_of(&in->shape, from);
    strides_of(&s, to);
    Move m = {.rank = 2 * s.rank};
    for (uint32_t k = 0; k < s.rank; k++) {
        m.dim[2 * k] = reps.at[k];
        m.to[2 * k] = to[k] * in->shape.dim[k];
        m.dim[2 * k + 1] = in->shape.dim[k];
        m.from[2 * k + 1] = from[k];
        m.to[2 * k + 1] = to[k];
    }
    move_elements(&m, in, out);
    return OK;
}

/* Result [outer, indices, inner] from data [outer, n, inner]. */
Res eval_gather(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0), *index = known_in(c, 1);
    uint32_t axis;
    Shape s;
    MUST(gather_axis(c, &axis, &s));
    MUST(tensor_new(c, in->dtype, &s, out));
    if (!out->data) return OK;
    uint64_t outer = 1, inner = dtype_size(in->dtype), n = (uint64_t)in->shape.dim[axis];
    for (uint32_t k = 0; k < axis; k++) outer *= (uint64_t)in->shape.dim[k];
    for (uint32_t k = axis + 1; k < in->shape.rank; k++) inner *= (uint64_t)in->shape.dim[k];
    for (uint64_t o = 0; o < outer; o++)
        for (uint64_t i = 0; i < index->count; i++) {
            int64_t at = tensor_int(index, i);
            if (at < 0) at += (int64_t)n;
            memcpy(bytes_of(out) + (o * index->count + i) * inner,
                   bytes_of(in) + (o * n + (uint64_t)at) * inner, inner);
        }
    return OK;
}

Res eval_trilu(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    int64_t upper, k;
    MUST(attr_int(c, "upper", 1, &upper));
    MUST(int_of(c, "", 1, 0, &k));
    if (in->shape.rank < 2)
        return ctx_fail(c, "expected at least 2 axes, found %u", in->shape.rank);
    MUST(tensor_new(c, in->dtype, &in->shape, out));
    uint64_t rows = (uint64_t)in->shape.dim[in->shape.rank - 2];
    uint64_t cols = (uint64_t)in->shape.dim[in->shape.rank - 1], size = dtype_size(in->dtype);
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        double past = (double)(i % cols) - (double)(i / cols % rows) - (double)k;
        bool keep = upper ? past >= 0 : past <= 0;
        if (keep)
            memcpy(bytes_of(out) + i * size, bytes_of(in) + i * size, size);
        else
            memset(bytes_of(out) + i * size, 0, size);
    }
    return OK;
}
