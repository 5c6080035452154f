/* eval_index.c - compile-time evaluation of operators that find or follow positions: ArgMax and
 * ArgMin, running sums. */
#include "import.h"

#include <string.h>

/* [outer, n, inner] around an axis of a shape. */
typedef struct {
    uint64_t outer, n, inner;
} Line;

static Line line_of(const Shape *s, uint32_t axis) {
    Line l = {1, (uint64_t)s->dim[axis], 1};
    for (uint32_t k = 0; k < axis; k++) l.outer *= (uint64_t)s->dim[k];
    for (uint32_t k = axis + 1; k < s->rank; k++) l.inner *= (uint64_t)s->dim[k];
    return l;
}

/* Is a before b? Integers exactly. */
static bool is_less(const Tensor *t, uint64_t a, uint64_t b) {
    return is_real(t->dtype) ? tensor_real(t, a) < tensor_real(t, b)
                             : tensor_int(t, a) < tensor_int(t, b);
}

Res eval_arg(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    bool min = c->n->row->code == OP_ArgMin;
    int64_t given, keep, last;
    uint32_t axis;
    MUST(attr_int(c, "axis", 0, &given));
    MUST(axis_of(c, given, in->shape.rank, &axis));
    MUST(attr_int(c, "keepdims", 1, &keep));
    MUST(attr_int(c, "select_last_index", 0, &last));
    Line l = line_of(&in->shape, axis);
    if (!l.n) return ctx_fail(c, "axis %u is empty", axis);
    Shape s = {0};
    for (uint32_t k = 0; k < in->shape.rank; k++)
        if (k != axis || keep) s.dim[s.rank++] = k == axis ? 1 : in->shape.dim[k];
    MUST(count_work(c, in->count));
    MUST(tensor_new(c, DT_I64, &s, out));
    for (uint64_t o = 0; out->data && o < l.outer * l.inner; o++) {
        uint64_t at = o / l.inner * l.n * l.inner + o % l.inner, best = 0;
        for (uint64_t i = 1; i < l.n; i++) {
            uint64_t p = at + i * l.inner, q = at + best * l.inner;
            bool less = is_less(in, p, q), more = is_less(in, q, p);
            if ((min ? less : more) || (last && !less && !more)) best = i;
        }
        put_int(out, o, (int64_t)best);
    }
    return OK;
}

Res eval_cumsum(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    int64_t given, exclusive, reverse;
    uint32_t axis;
    MUST(int_of(c, "", 1, 0, &given));
    MUST(axis_of(c, given, in->shape.rank, &axis));
    MUST(attr_int(c, "exclusive", 0, &exclusive));
    MUST(attr_int(c, "reverse", 0, &reverse));
    if (in->dtype == DT_BOOL) return ctx_fail(c, "does not take bool");
    MUST(tensor_new(c, in->dtype, &in->shape, out));
    Line l = line_of(&in->shape, axis);
    for (uint64_t o = 0; out->data && l.n && o < l.outer * l.inner; o++) {
        double real = 0;
        uint64_t whole = 0, at = o / l.inner * l.n * l.inner + o % l.inner;
        for (uint64_t i = 0; i < l.n; i++) {
            uint64_t p = at + (reverse ? l.n - 1 - i : i) * l.inner, before = whole;
            double real_before = real;
            if (is_real(in->dtype))
                real += tensor_real(in, p);
            else
                whole += (uint64_t)tensor_int(in, p);
            if (is_real(in->dtype))
                put_real(out, p, exclusive ? real_before : real);
            else
                put_int(out, p, (int64_t)(exclusive ? before : whole));
        }
    }
    return OK;
}
