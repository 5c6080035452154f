/* eval.c - compile-time evaluation: nodes whose inputs are all known are computed on the host, so
 * that the shape arithmetic of exporters (Shape, Gather, Concat, Reshape ..) is gone before the
 * graph is built, and masks and position tables become constants. Nothing that stems from a weight
 * is known.
 *
 * A file may ask for tensors of any size, so results have a limit, each and together; large ones
 * are given back after their last reader. A value in a missing external file has a shape but no
 * data: what is computed from it has none either. */
#include "import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT ((uint64_t)1 << 25)      /* elements of one result */
#define MAX_BYTES ((uint64_t)128 << 20)    /* of one result */
#define MAX_TOGETHER ((uint64_t)192 << 20) /* of the results alive */
#define MAX_WORK ((uint64_t)1 << 27)       /* elements that all nodes together compute */
#define MAX_STEPS (1 << 16)                /* of loops and recurrent layers together */
#define SMALL 512                          /* bytes that the arena may keep */

static bool any_missing(const Ctx *c) {
    for (uint32_t i = 0; i < c->n->nin; i++) {
        const Tensor *t = known_in(c, i);
        if (t && t->missing) return true;
    }
    return false;
}

Res count_work(const Ctx *c, uint64_t elements) {
    c->x->work += elements;
    if (c->x->work <= MAX_WORK) return OK;
    return ctx_fail(c, "the model computes more than %llu elements at compile time",
                    (unsigned long long)MAX_WORK);
}

Res count_steps(const Ctx *c, uint64_t steps) {
    c->x->steps += steps;
    if (c->x->steps <= MAX_STEPS) return OK;
    return ctx_fail(c, "the model has more than %d steps of loops and recurrent layers to unroll",
                    MAX_STEPS);
}

Res tensor_new(const Ctx *c, DType dt, const Shape *s, Tensor *out) {
    Import *x = c->x;
    *out = (Tensor){.dtype = dt, .shape = *s};
    bool fits = shape_count(s, &out->count);
    if (!fits || out->count > MAX_COUNT || out->count * dtype_size(dt) > MAX_BYTES)
        return ctx_fail(c,
                        "the result at compile time would have shape %s, expected at most %llu "
                        "elements and %llu MiB",
                        shape_str(x->tmp, s), (unsigned long long)MAX_COUNT,
                        (unsigned long long)(MAX_BYTES >> 20));
    MUST(count_work(c, out->count));
    out->missing = any_missing(c);
    uint64_t bytes = out->count * dtype_size(dt);
    if (out->missing || bytes == 0) return OK;
    if (bytes <= SMALL) {
        out->data = arena_alloc(x->tmp, bytes);
        return OK;
    }
    if (bytes > MAX_TOGETHER - x->live_bytes)
        return ctx_fail(c, "values at compile time need more than %llu MiB together",
                        (unsigned long long)(MAX_TOGETHER >> 20));
    out->heap = malloc(bytes);
    if (!out->heap) return ctx_fail(c, "no memory for %llu bytes", (unsigned long long)bytes);
    x->live_bytes += bytes;
    out->data = out->heap;
    return OK;
}

void tensor_release(Import *x, Tensor *t) {
    if (!t->heap) return;
    x->live_bytes -= t->count * dtype_size(t->dtype);
    free(t->heap);
    t->heap = NULL;
    t->data = NULL;
}

/* ---- sources ---- */

static Res list_constant(Ctx *c, const AttributeProto *a, Tensor *out) {
    bool floats = !strcmp(a->name, "value_floats"), ints = !strcmp(a->name, "value_ints");
    Shape s = {.rank = floats || ints ? 1 : 0};
    if (floats) s.dim[0] = (int64_t)a->n_floats;
    if (ints) s.dim[0] = (int64_t)a->n_ints;
    bool real = floats || !strcmp(a->name, "value_float");
    MUST(tensor_new(c, real ? DT_F32 : DT_I64, &s, out));
    for (uint64_t i = 0; i < out->count; i++) {
        if (real)
            put_real(out, i, floats ? (double)a->floats[i] : (double)a->f);
        else
            put_int(out, i, ints ? a->ints[i] : a->i);
    }
    return OK;
}

Res eval_constant(Ctx *c, Tensor *out) {
    static const char *const lists[] = {"value_float", "value_floats", "value_int", "value_ints"};
    const AttributeProto *a = attr_of(c, "value");
    if (a && a->t) {
        Place p = ctx_place(c);
        p.tensor = c->n->nout && c->n->p->output[0][0] ? c->n->p->output[0] : NULL;
        return tensor_read(c->x->a, c->x->d, &c->x->src, p, a->t, out) ? OK : FAIL;
    }
    for (int i = 0; i < 4; i++)
        if ((a = attr_of(c, lists[i]))) return list_constant(c, a, out);
    return ctx_skip(
        c, "only constants of numbers are supported (value, value_float(s), value_int(s))");
}

static Res shape_from(Ctx *c, const Ints *v, Shape *out) {
    if (v->n > IR_MAX_RANK)
        return ctx_fail(c, "expected at most %d axes, found %u", IR_MAX_RANK, v->n);
    *out = (Shape){.rank = v->n};
    for (uint32_t i = 0; i < v->n; i++) {
        if (v->at[i] < 0)
            return ctx_fail(c, "expected sizes in the shape, found %lld", (long long)v->at[i]);
        out->dim[i] = v->at[i];
    }
    return OK;
}

Res eval_constant_of_shape(Ctx *c, Tensor *out) {
    Ints dims;
    Shape s;
    MUST(ints_of(c, "", 0, &dims));
    MUST(shape_from(c, &dims, &s));
    const AttributeProto *a = attr_of(c, "value");
    Tensor one = {.dtype = DT_F32};
    if (a && a->t) {
        if (!tensor_read(c->x->tmp, c->x->d, &c->x->src, ctx_place(c), a->t, &one)) return FAIL;
        if (one.count != 1 || one.missing) return ctx_fail(c, "attribute value must be one number");
    }
    MUST(tensor_new(c, one.dtype, &s, out));
    size_t size = dtype_size(one.dtype);
    for (uint64_t i = 0; one.data && i < out->count; i++)
        memcpy((uint8_t *)(uintptr_t)out->data + i * size, one.data, size);
    if (!one.data && out->data) memset((void *)(uintptr_t)out->data, 0, out->count * size);
    return OK;
}

/* Shape and Size need no values, so a missing or run-time input does not matter. */
static Res new_ints(Ctx *c, uint32_t rank, int64_t n, Tensor *out) {
    Shape s = {.rank = rank, .dim = {n}};
    *out = (Tensor){.dtype = DT_I64, .shape = s};
    shape_count(&s, &out->count);
    out->data = arena_alloc(c->x->tmp, out->count * 8);
    return OK;
}

static int64_t clamp_axis(int64_t v, int64_t rank) {
    if (v < 0) v += rank;
    return v < 0 ? 0 : v > rank ? rank : v;
}

Res eval_shape(Ctx *c, Tensor *out) {
    const Shape *s = shape_in(c, 0);
    int64_t from, to, rank = (int64_t)s->rank;
    MUST(attr_int(c, "start", 0, &from));
    MUST(attr_int(c, "end", rank, &to));
    from = clamp_axis(from, rank);
    to = clamp_axis(to, rank);
    MUST(new_ints(c, 1, to > from ? to - from : 0, out));
    for (int64_t i = from; i < to; i++) put_int(out, (uint64_t)(i - from), s->dim[i]);
    return OK;
}

Res eval_size(Ctx *c, Tensor *out) {
    uint64_t n = 0;
    shape_count(shape_in(c, 0), &n);
    MUST(new_ints(c, 0, 0, out));
    put_int(out, 0, (int64_t)n);
    return OK;
}

Res eval_range(Ctx *c, Tensor *out) {
    const Tensor *in[3];
    double v[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = known_in(c, i);
        if (in[i]->missing || in[i]->count != 1 || in[i]->dtype != in[0]->dtype)
            return ctx_fail(c, "start, limit and delta must be single numbers of one type");
        v[i] = tensor_real(in[i], 0);
    }
    if (v[2] == 0) return ctx_fail(c, "delta is 0");
    double n = ceil((v[1] - v[0]) / v[2]);
    if (!(n > 0)) n = 0;
    if (n > (double)MAX_COUNT)
        return ctx_fail(c, "a range of %.0f numbers, expected at most %llu", n,
                        (unsigned long long)MAX_COUNT);
    Shape s = {.rank = 1, .dim = {(int64_t)n}};
    MUST(tensor_new(c, in[0]->dtype, &s, out));
    int64_t first = tensor_int(in[0], 0), step = tensor_int(in[2], 0);
    for (uint64_t i = 0; i < out->count; i++) {
        if (is_real(out->dtype))
            put_real(out, i, v[0] + (double)i * v[2]);
        else
            put_int(out, i, (int64_t)((uint64_t)first + i * (uint64_t)step));
    }
    return OK;
}

/* ---- the node ---- */

Res eval_node(Ctx *c) {
    Import *x = c->x;
    uint32_t nout = c->n->nout ? c->n->nout : 1;
    Tensor *out = ARENA_ARRAY(x->tmp, Tensor, nout);
    Res r = c->n->row->eval(c, out);
    for (uint32_t k = 0; k < nout; k++) {
        if (out[k].heap) VEC_PUSH(x->tmp, x->heap, &out[k]);
        if (r != OK || k >= c->n->nout || c->n->out[k] == NO_ID) continue;
        x->slot.at[c->n->out[k]].known = &out[k];
    }
    return r;
}
