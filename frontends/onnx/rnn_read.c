/* rnn_read.c - what LSTM, GRU and RNN nodes say: direction, layout, activations with their numbers,
 * the sizes that all inputs must agree on, and the lengths of sequences as masks. */
#include "rnn.h"

#include <string.h>
#include <strings.h>

/* Numbers where the node gives none: those of the operators of the same names. */
static const Activation functions[] = {
    {"Relu", ACT_PLAIN, OP_Relu, 0, 0, 0},
    {"Tanh", ACT_PLAIN, OP_Tanh, 0, 0, 0},
    {"Sigmoid", ACT_PLAIN, OP_Sigmoid, 0, 0, 0},
    {"Softplus", ACT_PLAIN, OP_Softplus, 0, 0, 0},
    {"LeakyRelu", ACT_PLAIN, OP_LeakyRelu, 1, 0.01, 0},
    {"Elu", ACT_PLAIN, OP_Elu, 1, 1, 0},
    {"HardSigmoid", ACT_PLAIN, OP_HardSigmoid, 2, 0.2, 0.5},
    {"Affine", ACT_AFFINE, OP_NONE, 2, 1, 0},
    {"ThresholdedRelu", ACT_THRESHOLDED, OP_NONE, 1, 1, 0},
    {"ScaledTanh", ACT_SCALED_TANH, OP_NONE, 2, 1, 1},
    {"Softsign", ACT_SOFTSIGN, OP_NONE, 0, 0, 0},
};

static Res find_function(const Ctx *c, const char *name, Activation *out) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcasecmp(name, functions[i].name) != 0) continue;
        *out = functions[i];
        return OK;
    }
    return ctx_skip(c, "activation %s", diag_name(c->x->tmp, name));
}

static Res read_activations(Rnn *l) {
    static const char *const standard[3][3] = {
        {"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    const Ctx *c = l->c;
    const AttributeProto *names = attr_of(c, "activations"), *alpha, *beta;
    uint32_t n = l->nact * l->dirs, na = 0, nb = 0;
    alpha = attr_of(c, "activation_alpha");
    beta = attr_of(c, "activation_beta");
    if (names && names->n_strings != n)
        return ctx_fail(c, "expected %u activations, found %zu", n, names->n_strings);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = standard[l->kind][i % l->nact];
        if (names)
            name =
                arena_strn(c->x->tmp, (const char *)names->strings[i].data, names->strings[i].len);
        Activation *f = &l->act[i];
        MUST(find_function(c, name, f));
        if (f->nattr > 0 && alpha && na < alpha->n_floats) f->alpha = (double)alpha->floats[na++];
        if (f->nattr > 1 && beta && nb < beta->n_floats) f->beta = (double)beta->floats[nb++];
        if (f->op == OP_Elu && !(f->alpha > 0)) return ctx_skip(c, "Elu with alpha %g", f->alpha);
    }
    return OK;
}

static Res read_direction(Rnn *l) {
    const char *direction;
    int64_t layout;
    MUST(attr_text(l->c, "direction", "forward", &direction));
    bool both = !strcmp(direction, "bidirectional");
    l->reverse = !strcmp(direction, "reverse");
    l->dirs = both ? 2 : 1;
    if (!both && !l->reverse && strcmp(direction, "forward") != 0)
        return ctx_fail(l->c, "direction is %s, expected forward, reverse or bidirectional",
                        diag_name(l->c->x->tmp, direction));
    MUST(attr_int(l->c, "layout", 0, &layout));
    if (layout != 0 && layout != 1)
        return ctx_fail(l->c, "layout is %lld, expected 0 or 1", (long long)layout);
    l->batch_first = layout == 1;
    return OK;
}

static Res need_shape(const Ctx *c, uint32_t i, const char *what, Shape want) {
    if (!has_in(c, i) || shape_eq(shape_in(c, i), &want)) return OK;
    return ctx_fail(c, "expected %s of shape %s (input %u), found %s", what,
                    shape_str(c->x->tmp, &want), i, shape_str(c->x->tmp, shape_in(c, i)));
}

static Res read_sizes(Rnn *l) {
    const Ctx *c = l->c;
    const Shape *x = shape_in(c, 0), *r = shape_in(c, 2);
    int64_t hidden, d = l->dirs;
    for (uint32_t i = 0; i < 3; i++)
        if (shape_in(c, i)->rank != 3)
            return ctx_fail(c, "expected 3 axes for input %u, found shape %s", i,
                            shape_str(c->x->tmp, shape_in(c, i)));
    l->T = x->dim[l->batch_first ? 1 : 0];
    l->N = x->dim[l->batch_first ? 0 : 1];
    l->I = x->dim[2];
    l->H = r->dim[2];
    if (l->T < 1 || l->N < 1 || l->I < 1 || l->H < 1 || l->H > INT32_MAX)
        return ctx_fail(c, "an input is empty: X %s, R %s", shape_str(c->x->tmp, x),
                        shape_str(c->x->tmp, r));
    MUST(attr_int(c, "hidden_size", l->H, &hidden));
    if (hidden != l->H)
        return ctx_fail(c, "hidden_size is %lld, but R has %lld columns", (long long)hidden,
                        (long long)l->H);
    int64_t gh = l->gates * l->H, first = l->batch_first ? l->N : d;
    MUST(need_shape(c, 1, "W", (Shape){3, {d, gh, l->I}}));
    MUST(need_shape(c, 2, "R", (Shape){3, {d, gh, l->H}}));
    MUST(need_shape(c, 3, "B", (Shape){2, {d, 2 * gh}}));
    MUST(need_shape(c, 4, "sequence_lens", (Shape){1, {l->N}}));
    for (uint32_t i = 5; i < 7; i++)
        MUST(need_shape(c, i, i == 5 ? "initial_h" : "initial_c",
                        (Shape){3, {first, l->batch_first ? d : l->N, l->H}}));
    return need_shape(c, 7, "P", (Shape){2, {d, 3 * l->H}});
}

/* ---- lengths of sequences ---- */

/* Known lengths that are all T are none. */
static Res read_lengths(Rnn *l) {
    const Ctx *c = l->c;
    l->lens = l->mask = NO_ID;
    if (!has_in(c, 4)) return OK;
    DType dt = dtype_in(c, 4);
    const Tensor *t = known_in(c, 4);
    if (dt != DT_I32 && dt != DT_I64)
        return ctx_fail(c, "expected integers for sequence_lens (input 4), found %s",
                        dtype_name(dt));
    bool whole = t && !t->missing;
    for (uint64_t i = 0; t && !t->missing && i < t->count; i++) {
        int64_t n = tensor_int(t, i);
        if (n < 0 || n > l->T)
            return ctx_fail(c, "sequence_lens holds %lld, expected 0 to %lld", (long long)n,
                            (long long)l->T);
        whole &= n == l->T;
    }
    if (!whole) l->lens = value_in(c, 4);
    return OK;
}

/* lens > t for all t at once */
static ValueId make_mask(const Rnn *l) {
    const Ctx *c = l->c;
    DType dt = dtype_in(c, 4);
    Tensor t = {.dtype = dt, .shape = {3, {l->T, 1, 1}}, .count = (uint64_t)l->T};
    t.data = arena_alloc(c->x->tmp, t.count * 8);
    for (uint64_t i = 0; i < t.count; i++) put_int(&t, i, (int64_t)i);
    ValueId in[] = {
        constant(c->x, arena_printf(c->x->tmp, "%s.steps", c->n->name), &t, ROLE_CONST),
        emit_view(c, ".lens", l->lens, &(Shape){3, {1, l->N, 1}}),
    };
    return in[1] == NO_ID ? NO_ID : emit(c, OP_Less, ".mask", 2, in, 0, NULL);
}

ValueId rnn_mask(Rnn *l, int64_t t) {
    if (l->lens == NO_ID) return NO_ID;
    if (l->mask == NO_ID) l->mask = make_mask(l);
    int64_t start[] = {t, 0, 0}, step[] = {1, 1, 1}, size[] = {1, l->N, 1};
    Arena *a = l->c->x->tmp;
    Attr at[] = {attr_ints(a, A_starts, start, 3), attr_ints(a, A_steps, step, 3),
                 attr_ints(a, A_sizes, size, 3)};
    ValueId v = l->mask;
    if (l->T > 1) v = emit(l->c, OP_Slice, arena_printf(a, "%s.mask", l->at), 1, &v, 3, at);
    return emit_view(l->c, arena_printf(a, "%s.has", l->at), v, &(Shape){2, {l->N, 1}});
}

/* ---- the node ---- */

bool rnn_is_zero(const Ctx *c, uint32_t input) {
    if (!has_in(c, input)) return true;
    const Tensor *t = known_in(c, input);
    if (!t || t->missing) return false;
    for (uint64_t i = 0; i < t->count; i++)
        if (tensor_real(t, i) != 0) return false;
    return true;
}

Res rnn_read(Rnn *l) {
    static const uint32_t gates[] = {1, 3, 4}, functions_of[] = {1, 2, 3};
    const char *op = l->c->n->p->op_type;
    int64_t couple, after;
    l->kind = !strcmp(op, "LSTM") ? RNN_LSTM : !strcmp(op, "GRU") ? RNN_GRU : RNN_PLAIN;
    l->gates = gates[l->kind];
    l->nact = functions_of[l->kind];
    MUST(read_direction(l));
    MUST(attr_int(l->c, "input_forget", 0, &couple));
    MUST(attr_int(l->c, "linear_before_reset", 0, &after));
    l->couple = couple != 0;
    l->after = l->kind == RNN_GRU && after != 0;
    MUST(attr_real(l->c, "clip", 0, &l->clip));
    MUST(read_activations(l));
    MUST(read_sizes(l));
    return read_lengths(l);
}
