/* make_attention.c - run-time nodes of the operators of later sets that stand for parts of
 * transformers, by their definitions (ONNX operator sets 23 and 24): Attention, RotaryEmbedding,
 * Swish. Heads that share keys and values broadcast in the matrix products, so that nothing is
 * copied for them. */
#include "import.h"

#include <math.h>
#include <string.h>

static ValueId make(const Ctx *c, OpCode op, const char *suffix, uint32_t nin, const ValueId *in,
                    uint32_t nattr, const Attr *attr) {
    for (uint32_t i = 0; i < nin; i++)
        if (in[i] == NO_ID) return NO_ID;
    return emit(c, op, suffix, nin, in, nattr, attr);
}

static ValueId make1(const Ctx *c, OpCode op, const char *suffix, ValueId a) {
    return make(c, op, suffix, 1, &a, 0, NULL);
}

static ValueId make2(const Ctx *c, OpCode op, const char *suffix, ValueId a, ValueId b) {
    return make(c, op, suffix, 2, (ValueId[]){a, b}, 0, NULL);
}

static ValueId scale(const Ctx *c, const char *suffix, ValueId v, double alpha) {
    Attr at = attr_f(c->x->tmp, A_alpha, alpha);
    return alpha == 1 ? v : make(c, OP_Scale, suffix, 1, &v, 1, &at);
}

static ValueId view(const Ctx *c, const char *suffix, ValueId v, Shape s) {
    return v == NO_ID ? NO_ID : emit_view(c, suffix, v, &s);
}

static ValueId turn(const Ctx *c, const char *suffix, ValueId v, uint32_t rank,
                    const int64_t *perm) {
    Attr at = attr_ints(c->x->tmp, A_perm, perm, rank);
    return make(c, OP_Transpose, suffix, 1, &v, 1, &at);
}

static ValueId number(const Ctx *c, const char *what, double v) {
    Tensor t = {.dtype = DT_F32, .count = 1, .data = &(float){(float)v}};
    return constant(c->x, arena_printf(c->x->tmp, "%s.%s", c->n->name, what), &t, ROLE_CONST);
}

/* x * sigmoid(alpha*x) */
Res make_swish(Ctx *c) {
    double alpha;
    MUST(attr_real(c, "alpha", 1, &alpha));
    ValueId x = value_in(c, 0);
    if (alpha == 1) return bind(c, 0, make1(c, OP_Silu, "", x));
    ValueId s = make1(c, OP_Sigmoid, ".sigmoid", scale(c, ".alpha", x, alpha));
    return bind(c, 0, make2(c, OP_Mul, "", x, s));
}

/* ---- Attention ---- */

typedef struct {
    const Ctx *c;
    bool flat; /* inputs [batch, length, heads*size]: 3 axes */
    int64_t n, heads, groups, queries, keys, size, values; /* groups: heads of K and V */
    double factor, cap;
    bool causal;
} Attention;

static Res read_heads(Attention *t) {
    const Ctx *c = t->c;
    const Shape *q = shape_in(c, 0), *k = shape_in(c, 1), *v = shape_in(c, 2);
    t->flat = q->rank == 3;
    if (q->rank != k->rank || q->rank != v->rank || (q->rank != 3 && q->rank != 4))
        return ctx_fail(c, "expected Q, K, V of 3 or of 4 axes, found shapes %s, %s, %s",
                        shape_str(c->x->tmp, q), shape_str(c->x->tmp, k), shape_str(c->x->tmp, v));
    int64_t heads = t->flat ? 0 : q->dim[1], groups = t->flat ? 0 : k->dim[1];
    MUST(attr_int(c, "q_num_heads", heads, &t->heads));
    MUST(attr_int(c, "kv_num_heads", groups, &t->groups));
    if (!t->flat) t->heads = heads, t->groups = groups;
    uint32_t last = q->rank - 1, length = last - 1;
    int64_t hq = t->flat ? t->heads : 1, hk = t->flat ? t->groups : 1;
    bool fits = t->heads > 0 && t->groups > 0 && t->heads % t->groups == 0;
    fits = fits && q->dim[last] % hq == 0 && k->dim[last] % hk == 0 && v->dim[last] % hk == 0;
    fits = fits && q->dim[0] == k->dim[0] && q->dim[0] == v->dim[0];
    fits = fits && k->dim[length] == v->dim[length] && (t->flat || v->dim[1] == t->groups);
    if (fits) {
        t->n = q->dim[0];
        t->queries = q->dim[length];
        t->keys = k->dim[length];
        t->size = q->dim[last] / hq;
        t->values = v->dim[last] / hk;
        fits = k->dim[last] / hk == t->size;
    }
    if (fits) return OK;
    return ctx_fail(c, "Q, K, V of shapes %s, %s, %s do not fit %lld and %lld heads",
                    shape_str(c->x->tmp, q), shape_str(c->x->tmp, k), shape_str(c->x->tmp, v),
                    (long long)t->heads, (long long)t->groups);
}

static Res read_attention(Attention *t) {
    const Ctx *c = t->c;
    int64_t causal;
    MUST(read_heads(t));
    MUST(attr_real(c, "scale", 1 / sqrt((double)t->size), &t->factor));
    MUST(attr_real(c, "softcap", 0, &t->cap));
    MUST(attr_int(c, "is_causal", 0, &causal));
    t->causal = causal != 0;
    if (has_in(c, 4) || has_in(c, 5))
        return ctx_skip(c, "past keys and values (training sees whole sequences; export without "
                           "a cache)");
    for (uint32_t k = 1; k < c->n->nout; k++)
        if (has_out(c, k)) return ctx_skip(c, "its output %u is used", k);
    return OK;
}

/* [N, groups, heads of a group, length, size] */
static ValueId heads_of(const Attention *t, uint32_t i, const char *suffix, int64_t heads,
                        int64_t length, int64_t size) {
    const int64_t perm[] = {0, 2, 1, 3};
    ValueId v = value_in(t->c, i);
    const char *apart = arena_printf(t->c->x->tmp, "%s.heads", suffix);
    if (t->flat) {
        v = view(t->c, apart, v, (Shape){4, {t->n, length, heads, size}});
        v = turn(t->c, arena_printf(t->c->x->tmp, "%s.turned", suffix), v, 4, perm);
    }
    return view(t->c, suffix, v, (Shape){5, {t->n, t->groups, heads / t->groups, length, size}});
}

/* The mask broadcasts to [N, heads, queries, keys]; with the heads in groups. */
static Res mask_of(const Attention *t, ValueId *out) {
    const Ctx *c = t->c;
    const Shape *s = shape_in(c, 3), full = {4, {t->n, t->heads, t->queries, t->keys}};
    Shape m = {.rank = 4, .dim = {1, 1, 1, 1}}, sum;
    if (s->rank > 4 || s->rank < 2 || !shape_broadcast(s, &full, &sum) || !shape_eq(&sum, &full))
        return ctx_fail(c, "expected a mask that broadcasts to %s, found shape %s",
                        shape_str(c->x->tmp, &full), shape_str(c->x->tmp, s));
    for (uint32_t k = 0; k < s->rank; k++) m.dim[4 - s->rank + k] = s->dim[k];
    bool all = m.dim[1] == 1;
    *out = view(c, ".mask", value_in(c, 3),
                (Shape){5,
                        {m.dim[0], all ? 1 : t->groups, all ? 1 : t->heads / t->groups, m.dim[2],
                         m.dim[3]}});
    return *out == NO_ID ? FAIL : OK;
}

/* 0 where a query sees a key, -inf behind it */
static Res causal_mask(const Attention *t, ValueId *out) {
    Tensor m;
    MUST(tensor_new(t->c, DT_F32, &(Shape){2, {t->queries, t->keys}}, &m));
    m.missing = false;
    if (!m.data) m.data = arena_alloc(t->c->x->tmp, checked_array(m.count, sizeof(float)));
    for (uint64_t i = 0; i < m.count; i++) {
        int64_t query = (int64_t)i / t->keys, key = (int64_t)i % t->keys;
        put_real(&m, i, key > query ? -INFINITY : 0);
    }
    *out =
        constant(t->c->x, arena_printf(t->c->x->tmp, "%s.causal", t->c->n->name), &m, ROLE_CONST);
    tensor_release(t->c->x, &m);
    return OK;
}

static Res add_masks(const Attention *t, ValueId *scores) {
    const Ctx *c = t->c;
    ValueId mask = NO_ID;
    if (t->causal) {
        MUST(causal_mask(t, &mask));
        *scores = make2(c, OP_Add, ".causal", *scores, mask);
    }
    if (!has_in(c, 3)) return OK;
    MUST(mask_of(t, &mask));
    if (dtype_in(c, 3) == DT_BOOL)
        *scores = make(c, OP_Where, ".masked", 3,
                       (ValueId[]){mask, *scores, number(c, "hidden", -INFINITY)}, 0, NULL);
    else
        *scores = make2(c, OP_Add, ".masked", *scores, mask);
    return OK;
}

/* softmax(cap(q * k^T * scale) + mask) * v */
Res make_attention(Ctx *c) {
    Attention t = {.c = c};
    MUST(read_attention(&t));
    Arena *a = c->x->tmp;
    ValueId q = heads_of(&t, 0, ".q", t.heads, t.queries, t.size);
    ValueId k = heads_of(&t, 1, ".k", t.groups, t.keys, t.size);
    ValueId v = heads_of(&t, 2, ".v", t.groups, t.keys, t.values);
    Attr product[] = {attr_i(a, A_trans_b, 1), attr_f(a, A_alpha, t.factor)};
    ValueId s = make(c, OP_MatMul, ".scores", 2, (ValueId[]){q, k}, 2, product);
    if (t.cap > 0)
        s = scale(c, ".capped", make1(c, OP_Tanh, ".cap", scale(c, ".uncapped", s, 1 / t.cap)),
                  t.cap);
    MUST(add_masks(&t, &s));
    Attr last = attr_i(a, A_axis, 4);
    s = make(c, OP_Softmax, ".softmax", 1, &s, 1, &last);
    ValueId y = make2(c, OP_MatMul, ".sum", s, v);
    Shape full = {4, {t.n, t.heads, t.queries, t.values}};
    if (!t.flat) return bind(c, 0, view(c, "", y, full));
    const int64_t perm[] = {0, 2, 1, 3};
    y = turn(c, ".turned", view(c, ".joined", y, full), 4, perm);
    return bind(c, 0, view(c, "", y, (Shape){3, {t.n, t.queries, t.heads * t.values}}));
}

/* ---- RotaryEmbedding ---- */

static ValueId part(const Ctx *c, const char *suffix, ValueId v, int64_t lo, int64_t step,
                    int64_t n) {
    if (v == NO_ID) return NO_ID;
    Shape s = c->x->g->value[v].shape;
    uint32_t last = s.rank - 1;
    int64_t start[IR_MAX_RANK] = {0}, steps[IR_MAX_RANK];
    for (uint32_t k = 0; k < s.rank; k++) steps[k] = 1;
    start[last] = lo;
    steps[last] = step;
    s.dim[last] = n;
    Arena *a = c->x->tmp;
    Attr at[] = {attr_ints(a, A_starts, start, s.rank), attr_ints(a, A_steps, steps, s.rank),
                 attr_ints(a, A_sizes, s.dim, s.rank)};
    return make(c, OP_Slice, suffix, 1, &v, 3, at);
}

/* Row of the table for each position, as [N, 1, S, half] or, heads behind the length, [N, S, 1,
 * half]. */
static Res table_of(const Ctx *c, uint32_t i, bool flat, int64_t n, int64_t length, int64_t half,
                    ValueId *out) {
    const char *suffix = i == 1 ? ".cos" : ".sin";
    ValueId v = value_in(c, i);
    const Shape *s = shape_in(c, i);
    bool rows = has_in(c, 3);
    Shape want = rows ? (Shape){2, {s->dim[0], half}} : (Shape){3, {n, length, half}};
    if (!shape_eq(s, &want))
        return ctx_fail(c, "expected a table of shape %s (input %u), found %s",
                        shape_str(c->x->tmp, &want), i, shape_str(c->x->tmp, s));
    if (rows) {
        Attr axis = attr_i(c->x->tmp, A_axis, 0);
        v = make(c, OP_Gather, arena_printf(c->x->tmp, "%s.rows", suffix), 2,
                 (ValueId[]){v, value_in(c, 3)}, 1, &axis);
    }
    *out = view(c, suffix, v,
                flat ? (Shape){4, {n, length, 1, half}} : (Shape){4, {n, 1, length, half}});
    return *out == NO_ID ? FAIL : OK;
}

static ValueId join(const Ctx *c, const char *suffix, ValueId a, ValueId b) {
    Attr at = attr_i(c->x->tmp, A_axis, c->x->g->value[a].shape.rank - 1);
    return make(c, OP_Concat, suffix, 2, (ValueId[]){a, b}, 1, &at);
}

/* Pairs of entries of each head turn by the angle of their position; the entries behind the
 * rotated part stay. A pair is (i, i + half), interleaved (2i, 2i + 1). */
Res make_rotary(Ctx *c) {
    const Shape x = *shape_in(c, 0);
    int64_t heads, turned, interleaved;
    bool flat = x.rank == 3;
    MUST(attr_int(c, "num_heads", 0, &heads));
    MUST(attr_int(c, "rotary_embedding_dim", 0, &turned));
    MUST(attr_int(c, "interleaved", 0, &interleaved));
    if ((x.rank != 3 && x.rank != 4) || (flat && (heads < 1 || x.dim[2] % heads)))
        return ctx_fail(c, "input of shape %s with %lld heads", shape_str(c->x->tmp, &x),
                        (long long)heads);
    int64_t n = x.dim[0], length = flat ? x.dim[1] : x.dim[2];
    int64_t size = flat ? x.dim[2] / heads : x.dim[3];
    if (!turned) turned = size;
    if (turned < 2 || turned % 2 || turned > size)
        return ctx_fail(c, "rotary_embedding_dim is %lld for heads of %lld", (long long)turned,
                        (long long)size);
    int64_t half = turned / 2, step = interleaved ? 2 : 1;
    ValueId v = value_in(c, 0), cos_, sin_;
    MUST(table_of(c, 1, flat, n, length, half, &cos_));
    MUST(table_of(c, 2, flat, n, length, half, &sin_));
    if (flat) v = view(c, ".heads", v, (Shape){4, {n, length, heads, size}});
    ValueId a = part(c, ".first", v, 0, step, half);
    ValueId b = part(c, ".second", v, interleaved ? 1 : half, step, half);
    ValueId p = make2(c, OP_Sub, ".real", make2(c, OP_Mul, ".ac", a, cos_),
                      make2(c, OP_Mul, ".bs", b, sin_));
    ValueId q = make2(c, OP_Add, ".imaginary", make2(c, OP_Mul, ".as", a, sin_),
                      make2(c, OP_Mul, ".bc", b, cos_));
    if (p == NO_ID || q == NO_ID) return FAIL;
    Shape s = c->x->g->value[p].shape;
    if (interleaved) {
        Shape pair = s;
        pair.dim[pair.rank++] = 1;
        p = view(c, ".even", p, pair);
        q = view(c, ".odd", q, pair);
        if (p == NO_ID || q == NO_ID) return FAIL;
    }
    ValueId y = join(c, ".pairs", p, q);
    s.dim[s.rank - 1] = turned;
    if (interleaved) y = view(c, ".rotated", y, s);
    if (turned < size && y != NO_ID)
        y = join(c, ".whole", y, part(c, ".rest", v, turned, 1, size - turned));
    return bind(c, 0, view(c, "", y, x));
}
