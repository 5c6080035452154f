/* make_loss.c - losses that are part of the model: SoftmaxCrossEntropyLoss and
 * NegativeLogLikelihoodLoss over class indices, axis 1 the classes. The plain mean is an operator
 * of its own; weights and other reductions are loss = -w[t] * logp[t]      (0 where t is ignored),
 * sum over it, or sum / sum of w[t] with the entries that labels pick taken by a comparison with
 * all class numbers and a sum. */
#include "import.h"

#include <string.h>

typedef struct {
    const Ctx *c;
    bool softmax; /* scores, not log-probabilities */
    const char *reduction;
    bool has_ignore;
    int64_t ignore;
    int64_t classes;
    Shape flat; /* labels with an axis of size 1 for the classes */
    ValueId scores, labels;
} Loss;

static ValueId make(const Loss *l, OpCode op, const char *suffix, uint32_t nin, const ValueId *in,
                    uint32_t nattr, const Attr *attr) {
    for (uint32_t i = 0; i < nin; i++)
        if (in[i] == NO_ID) return NO_ID;
    return emit(l->c, op, suffix, nin, in, nattr, attr);
}

static ValueId make2(const Loss *l, OpCode op, const char *suffix, ValueId a, ValueId b) {
    return make(l, op, suffix, 2, (ValueId[]){a, b}, 0, NULL);
}

static ValueId number(const Loss *l, const char *what, DType dt, int64_t v) {
    Tensor t = {.dtype = dt, .count = 1};
    t.data = arena_alloc(l->c->x->tmp, 8);
    put_int(&t, 0, v);
    const char *name = arena_printf(l->c->x->tmp, "%s.%s", l->c->n->name, what);
    return constant(l->c->x, name, &t, ROLE_CONST);
}

static Res read_loss(Loss *l) {
    const Ctx *c = l->c;
    l->softmax = !strcmp(c->n->p->op_type, "SoftmaxCrossEntropyLoss");
    MUST(attr_text(c, "reduction", "mean", &l->reduction));
    if (strcmp(l->reduction, "mean") != 0 && strcmp(l->reduction, "sum") != 0 &&
        strcmp(l->reduction, "none") != 0)
        return ctx_fail(c, "reduction is %s, expected mean, sum or none",
                        diag_name(c->x->tmp, l->reduction));
    l->has_ignore = attr_of(c, "ignore_index") != NULL;
    MUST(attr_int(c, "ignore_index", 0, &l->ignore));
    if (dtype_in(c, 1) == DT_I32 && l->ignore != (int32_t)l->ignore) l->has_ignore = false;
    const Shape *s = shape_in(c, 0), *t = shape_in(c, 1);
    Shape want = {.rank = s->rank - 1};
    if (s->rank < 2)
        return ctx_fail(c, "expected scores of at least 2 axes, found shape %s",
                        shape_str(c->x->tmp, s));
    for (uint32_t k = 0; k < want.rank; k++) want.dim[k] = s->dim[k ? k + 1 : 0];
    if (!shape_eq(t, &want))
        return ctx_fail(c, "expected labels of shape %s (input 1), found %s",
                        shape_str(c->x->tmp, &want), shape_str(c->x->tmp, t));
    if (has_in(c, 2) && !shape_eq(shape_in(c, 2), &(Shape){1, {s->dim[1]}}))
        return ctx_fail(c, "expected %lld weights (input 2), found shape %s", (long long)s->dim[1],
                        shape_str(c->x->tmp, shape_in(c, 2)));
    l->classes = s->dim[1];
    l->flat = *s;
    l->flat.dim[1] = 1;
    l->scores = value_in(c, 0);
    l->labels = value_in(c, 1);
    return OK;
}

/* One operator: the mean over the labels that are not ignored. */
static ValueId plain_mean(const Loss *l) {
    Attr at[2] = {attr_i(l->c->x->tmp, A_axis, 1)};
    uint32_t n = 1;
    if (l->has_ignore) at[n++] = attr_i(l->c->x->tmp, A_ignore_index, l->ignore);
    return make(l, l->softmax ? OP_SoftmaxCE : OP_NllLoss, "", 2, (ValueId[]){l->scores, l->labels},
                n, at);
}

static ValueId log_probabilities(const Loss *l) {
    Attr at = attr_i(l->c->x->tmp, A_axis, 1);
    return l->softmax ? make(l, OP_LogSoftmax, ".log", 1, &l->scores, 1, &at) : l->scores;
}

/* [N, C, ..] bool: is this the label's class? */
static ValueId one_hot(const Loss *l, ValueId labels) {
    const Ctx *c = l->c;
    DType dt = dtype_in(c, 1);
    Tensor t = {.dtype = dt, .shape = {.rank = l->flat.rank - 1}, .count = (uint64_t)l->classes};
    t.data = arena_alloc(c->x->tmp, checked_array(t.count, 8));
    for (uint32_t k = 0; k < t.shape.rank; k++) t.shape.dim[k] = k ? 1 : l->classes;
    for (uint64_t i = 0; i < t.count; i++) put_int(&t, i, (int64_t)i);
    const char *name = arena_printf(c->x->tmp, "%s.classes", c->n->name);
    return make2(l, OP_Equal, ".hot", labels, constant(c->x, name, &t, ROLE_CONST));
}

/* Per label: the entry of v (broadcast to the scores' shape) at its class. */
static ValueId pick(const Loss *l, const char *suffix, ValueId hot, ValueId v) {
    Arena *a = l->c->x->tmp;
    int64_t axis = 1;
    Attr at[] = {attr_ints(a, A_axes, &axis, 1), attr_i(a, A_keepdims, 1)};
    ValueId zero = number(l, arena_printf(a, "%s.zero", suffix + 1), DT_F32, 0);
    v = make(l, OP_Where, arena_printf(a, "%s.masked", suffix), 3, (ValueId[]){hot, v, zero}, 0,
             NULL);
    return make(l, OP_ReduceSum, suffix, 1, &v, 2, at);
}

static ValueId sum_all(const Loss *l, const char *suffix, ValueId v) {
    Attr at = attr_i(l->c->x->tmp, A_keepdims, 0);
    return make(l, OP_ReduceSum, suffix, 1, &v, 1, &at);
}

/* Weight of each label: 0 where it is ignored. */
static ValueId label_weights(const Loss *l, ValueId labels, ValueId hot) {
    const Ctx *c = l->c;
    Shape column = {.rank = l->flat.rank - 1, .dim = {l->classes}};
    for (uint32_t k = 1; k < column.rank; k++) column.dim[k] = 1;
    ValueId w = number(l, "one", DT_F32, 1);
    if (has_in(c, 2)) {
        w = value_in(c, 2);
        if (column.rank > 1) w = emit_view(c, ".weights", w, &column);
        w = w == NO_ID ? w : pick(l, ".weight", hot, w);
    }
    if (!l->has_ignore) return w;
    ValueId skip = number(l, "ignored", dtype_in(c, 1), l->ignore);
    ValueId gone = make2(l, OP_Equal, ".gone", labels, skip);
    ValueId zero = number(l, "gone.zero", DT_F32, 0);
    return make(l, OP_Where, ".counts", 3, (ValueId[]){gone, zero, w}, 0, NULL);
}

static ValueId weighted(const Loss *l, ValueId logp) {
    Arena *a = l->c->x->tmp;
    Shape out = *shape_in(l->c, 1);
    ValueId labels = emit_view(l->c, ".labels", l->labels, &l->flat);
    if (labels == NO_ID) return NO_ID;
    ValueId hot = one_hot(l, labels), w = label_weights(l, labels, hot);
    Attr minus = attr_f(a, A_alpha, -1);
    ValueId v = pick(l, ".picked", hot, logp);
    v = make(l, OP_Scale, ".negative", 1, &v, 1, &minus);
    v = make2(l, OP_Mul, ".weighted", v, w);
    if (v == NO_ID) return NO_ID;
    if (!strcmp(l->reduction, "none")) return emit_view(l->c, "", v, &out);
    bool mean = !strcmp(l->reduction, "mean");
    v = sum_all(l, mean ? ".sum" : "", v);
    if (!mean || v == NO_ID) return v;
    Attr shape = attr_ints(a, A_shape, l->flat.dim, l->flat.rank);
    w = make(l, OP_Expand, ".all", 1, &w, 1, &shape);
    return make2(l, OP_Div, "", v, sum_all(l, ".total", w));
}

Res make_loss(Ctx *c) {
    Loss l = {.c = c};
    MUST(read_loss(&l));
    bool plain = !strcmp(l.reduction, "mean") && !has_in(c, 2);
    ValueId logp = NO_ID;
    if (!plain || has_out(c, 1)) logp = log_probabilities(&l);
    if (has_out(c, 1)) MUST(bind(c, 1, logp));
    return has_out(c, 0) ? bind(c, 0, plain ? plain_mean(&l) : weighted(&l, logp)) : OK;
}
