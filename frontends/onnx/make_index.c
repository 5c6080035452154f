/* make_index.c - run-time nodes of operators that read or write at given places: the Gather and
 * Scatter families, TopK, OneHot, Trilu, Compress, Tile. What depends on sizes alone (masks,
 * positions) becomes a constant. */
#include "import.h"

#include <string.h>

enum { MAX_MADE = 1 << 24 }; /* elements of a constant that an operator needs */

/* An empty tensor for a constant; data NULL after reporting that it would be too large. */
static Tensor new_constant(const Ctx *c, DType dt, const Shape *s) {
    Tensor t = {.dtype = dt, .shape = *s};
    if (shape_count(s, &t.count) && t.count <= MAX_MADE)
        t.data = arena_alloc(c->x->tmp, t.count * dtype_size(dt) + 1);
    else
        ctx_fail(c, "a constant of shape %s is too large", shape_str(c->x->tmp, s));
    return t;
}

static ValueId emit_constant(const Ctx *c, const char *suffix, const Tensor *t) {
    const char *name = arena_printf(c->x->tmp, "%s%s", c->n->name, suffix);
    return constant(c->x, name, t, ROLE_CONST);
}

static ValueId emit_number(const Ctx *c, const char *suffix, DType dt, double v) {
    Tensor t = new_constant(c, dt, &(Shape){0});
    if (is_real(dt))
        put_real(&t, 0, v);
    else
        put_int(&t, 0, (int64_t)v);
    return emit_constant(c, suffix, &t);
}

/* ---- gathering and scattering ---- */

/* Known indices must lie within the axis; the program checks the others when it runs. */
static Res check_known(const Ctx *c, uint32_t i, int64_t dim) {
    const Tensor *t = known_in(c, i);
    for (uint64_t k = 0; t && !t->missing && k < t->count; k++) {
        int64_t v = tensor_int(t, k);
        if (v < -dim || v >= dim)
            return ctx_fail(c, "index %lld is outside of an axis of size %lld", (long long)v,
                            (long long)dim);
    }
    return OK;
}

Res reduction_of(const Ctx *c, int64_t *out) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *text;
    MUST(attr_text(c, "reduction", "none", &text));
    for (*out = 0; *out < 5; ++*out)
        if (!strcmp(text, names[*out])) return OK;
    return ctx_fail(c, "reduction is %s, expected none, add, mul, max or min",
                    diag_name(c->x->tmp, text));
}

Res elements_axis(const Ctx *c, uint32_t *axis) {
    int64_t given;
    MUST(attr_int(c, "axis", 0, &given));
    MUST(axis_of(c, given, shape_in(c, 0)->rank, axis));
    return check_known(c, 1, shape_in(c, 0)->dim[*axis]);
}

Res make_gather_elements(Ctx *c) {
    uint32_t axis;
    MUST(elements_axis(c, &axis));
    Attr attr = attr_i(c->x->tmp, A_axis, axis);
    ValueId in[] = {value_in(c, 0), value_in(c, 1)};
    return bind(c, 0, emit(c, OP_GatherElements, "", 2, in, 1, &attr));
}

Res make_scatter_elements(Ctx *c) {
    uint32_t axis;
    int64_t how;
    MUST(elements_axis(c, &axis));
    MUST(reduction_of(c, &how));
    Attr attr[] = {attr_i(c->x->tmp, A_axis, axis), attr_i(c->x->tmp, A_reduction, how)};
    ValueId in[] = {value_in(c, 1), value_in(c, 2), value_in(c, 0)};
    return bind(c, 0, emit(c, OP_ScatterElements, "", 3, in, 2, attr));
}

Res make_gather_nd(Ctx *c) {
    int64_t batch;
    MUST(attr_int(c, "batch_dims", 0, &batch));
    Attr attr = attr_i(c->x->tmp, A_batch_dims, batch);
    ValueId in[] = {value_in(c, 0), value_in(c, 1)};
    return bind(c, 0, emit(c, OP_GatherND, "", 2, in, 1, &attr));
}

Res make_scatter_nd(Ctx *c) {
    int64_t how;
    MUST(reduction_of(c, &how));
    Attr attr = attr_i(c->x->tmp, A_reduction, how);
    ValueId in[] = {value_in(c, 1), value_in(c, 2), value_in(c, 0)};
    return bind(c, 0, emit(c, OP_ScatterND, "", 3, in, 1, &attr));
}

Res make_topk(Ctx *c) {
    int64_t given, largest, k;
    uint32_t axis;
    MUST(attr_int(c, "axis", -1, &given));
    MUST(axis_of(c, given, shape_in(c, 0)->rank, &axis));
    MUST(attr_int(c, "largest", 1, &largest));
    MUST(int_of(c, "k", 1, 1, &k));
    Attr attr[] = {attr_i(c->x->tmp, A_axis, axis), attr_i(c->x->tmp, A_k, k),
                   attr_i(c->x->tmp, A_largest, largest != 0)};
    ValueId v = value_in(c, 0), y = emit(c, OP_TopK, "", 1, &v, 3, attr);
    if (y == NO_ID) return FAIL;
    MUST(bind(c, 0, y));
    return bind(c, 1, c->x->g->node[c->x->g->value[y].def].out[1]);
}

/* ---- made of comparisons with constants ---- */

/* values[1] where the index is the position along the new axis, else values[0]; negative indices
 * count from the end, those outside of the depth give values[0] everywhere. */
Res make_one_hot(Ctx *c) {
    int64_t given, depth;
    uint32_t axis, rank = shape_in(c, 0)->rank;
    const Tensor *values = known_in(c, 2);
    MUST(attr_int(c, "axis", -1, &given));
    if (rank + 1 > IR_MAX_RANK) return ctx_fail(c, "the result would have %u axes", rank + 1);
    MUST(axis_of(c, given, rank + 1, &axis));
    MUST(int_of(c, "", 1, 0, &depth));
    if (!values || values->missing) return ctx_skip(c, "values (input 2) must be constant");
    if (values->count != 2 || depth < 1)
        return ctx_fail(c, "expected two values and a depth of at least 1, found %llu and %lld",
                        (unsigned long long)values->count, (long long)depth);
    Shape s = *shape_in(c, 0);
    memmove(s.dim + axis + 1, s.dim + axis, (rank - axis) * sizeof *s.dim);
    s.dim[axis] = 1;
    s.rank++;
    ValueId at = emit_view(c, ".index", emit_cast(c, ".int", value_in(c, 0), DT_I64), &s);
    ValueId place = emit_positions(c, ".place", depth, rank + 1, axis, DT_I64);
    ValueId from_end = emit_number(c, ".depth", DT_I64, (double)depth);
    ValueId zero = emit_number(c, ".zero", DT_I64, 0);
    ValueId negative = emit_binary(c, OP_Less, ".negative", at, zero);
    ValueId pick[] = {negative, emit_binary(c, OP_Add, ".wrapped", at, from_end), at};
    if (pick[1] == NO_ID || negative == NO_ID || place == NO_ID) return FAIL;
    at = emit(c, OP_Where, ".at", 3, pick, 0, NULL);
    DType dt = values->dtype == DT_F64 ? DT_F32 : values->dtype;
    ValueId hot[] = {emit_binary(c, OP_Equal, ".hot", at, place),
                     emit_number(c, ".on", dt, tensor_real(values, 1)),
                     emit_number(c, ".off", dt, tensor_real(values, 0))};
    return hot[0] == NO_ID ? FAIL : bind(c, 0, emit(c, OP_Where, "", 3, hot, 0, NULL));
}

/* The last two axes as a mask of the triangle. */
Res make_trilu(Ctx *c) {
    const Shape *x = shape_in(c, 0);
    int64_t upper, k;
    MUST(attr_int(c, "upper", 1, &upper));
    MUST(int_of(c, "", 1, 0, &k));
    if (x->rank < 2) return ctx_fail(c, "expected at least 2 axes, found %u", x->rank);
    Shape s = {.rank = 2, .dim = {x->dim[x->rank - 2], x->dim[x->rank - 1]}};
    Tensor mask = new_constant(c, DT_BOOL, &s);
    if (!mask.data) return FAIL;
    for (uint64_t i = 0; i < mask.count; i++) {
        double past =
            (double)(i % (uint64_t)s.dim[1]) - (double)(i / (uint64_t)s.dim[1]) - (double)k;
        put_int(&mask, i, upper ? past >= 0 : past <= 0);
    }
    ValueId in[] = {emit_constant(c, ".mask", &mask), value_in(c, 0),
                    emit_number(c, ".zero", dtype_in(c, 0), 0)};
    return bind(c, 0, emit(c, OP_Where, "", 3, in, 0, NULL));
}

/* ---- made of gathers and views ---- */

/* Places where the condition is true, in order. */
Res places_of(const Ctx *c, const Tensor *cond, uint64_t limit, Tensor *out) {
    uint64_t n = 0;
    if (cond->dtype != DT_BOOL || cond->shape.rank != 1 || cond->missing)
        return ctx_fail(c, "the condition must be a list of bool, found %s%s",
                        dtype_name(cond->dtype), shape_str(c->x->tmp, &cond->shape));
    for (uint64_t i = 0; i < cond->count; i++) n += tensor_int(cond, i) != 0;
    if (cond->count > limit)
        return ctx_fail(c, "a condition of %llu for %llu places", (unsigned long long)cond->count,
                        (unsigned long long)limit);
    *out = new_constant(c, DT_I64, &(Shape){.rank = 1, .dim = {(int64_t)n}});
    if (!out->data) return FAIL;
    n = 0;
    for (uint64_t i = 0; i < cond->count; i++)
        if (tensor_int(cond, i)) put_int(out, n++, (int64_t)i);
    return OK;
}

Res make_compress(Ctx *c) {
    const Tensor *cond = known_in(c, 1);
    Shape s = *shape_in(c, 0);
    ValueId v = value_in(c, 0);
    uint32_t axis = 0;
    uint64_t total = 0;
    Tensor at;
    if (!cond) return ctx_skip(c, "the condition (input 1) must be constant");
    shape_count(&s, &total);
    if (attr_of(c, "axis")) {
        int64_t given;
        MUST(attr_int(c, "axis", 0, &given));
        MUST(axis_of(c, given, s.rank, &axis));
    } else {
        s = (Shape){.rank = 1, .dim = {(int64_t)total}};
        v = emit_view(c, ".flat", v, &s);
    }
    MUST(places_of(c, cond, (uint64_t)s.dim[axis], &at));
    Attr attr = attr_i(c->x->tmp, A_axis, axis);
    ValueId in[] = {v, emit_constant(c, ".places", &at)};
    return v == NO_ID ? FAIL : bind(c, 0, emit(c, OP_Gather, "", 2, in, 1, &attr));
}

/* One axis: [outer, 1, n*inner] expanded to [outer, times, n*inner]. */
static ValueId repeat(const Ctx *c, ValueId v, uint32_t axis, int64_t times) {
    Shape s = c->x->g->value[v].shape, three = {.rank = 3, .dim = {1, 1, 1}};
    for (uint32_t k = 0; k < s.rank; k++) three.dim[k < axis ? 0 : 2] *= s.dim[k];
    const char *suffix = arena_printf(c->x->tmp, ".axis%u", axis);
    v = emit_view(c, arena_printf(c->x->tmp, "%s.rows", suffix), v, &three);
    three.dim[1] = times;
    Attr to = attr_ints(c->x->tmp, A_shape, three.dim, 3);
    v = v == NO_ID ? v : emit(c, OP_Expand, suffix, 1, &v, 1, &to);
    if (v == NO_ID || __builtin_mul_overflow(s.dim[axis], times, &s.dim[axis])) return NO_ID;
    return emit_view(c, arena_printf(c->x->tmp, "%s.view", suffix), v, &s);
}

/* Operator set 1 had one axis and the number of tiles as inputs. */
Res make_tile(Ctx *c) {
    uint32_t rank = shape_in(c, 0)->rank;
    int64_t times[IR_MAX_RANK];
    for (uint32_t k = 0; k < rank; k++) times[k] = 1;
    if (has_in(c, 2)) {
        int64_t n, given;
        uint32_t axis;
        MUST(int_of(c, "", 1, 1, &n));
        MUST(int_of(c, "", 2, 0, &given));
        MUST(axis_of(c, given, rank, &axis));
        times[axis] = n;
    } else {
        Ints reps;
        MUST(ints_of(c, "", 1, &reps));
        if (reps.n != rank) return ctx_fail(c, "expected %u repeats, found %u", rank, reps.n);
        memcpy(times, reps.at, rank * sizeof *times);
    }
    ValueId v = value_in(c, 0);
    for (uint32_t k = rank; k-- > 0;) {
        if (times[k] < 1 || times[k] > INT32_MAX)
            return ctx_fail(c, "repeat %lld is out of range", (long long)times[k]);
        if (times[k] > 1) v = repeat(c, v, k, times[k]);
        if (v == NO_ID) return FAIL;
    }
    Shape s = c->x->g->value[v].shape;
    return bind(c, 0, emit_view(c, "", v, &s));
}
