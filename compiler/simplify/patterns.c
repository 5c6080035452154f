/* patterns.c - chains of small operators that exporters write for one function become that
 * function:
 *
 *   k*x*(1 + erf(x/sqrt 2))                     -> 2k Gelu       (D. Hendrycks, K. Gimpel, 2016)
 *   k*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))  -> 2k GeluTanh
 *   x*sigmoid(x)                                -> Silu          (S. Elfwing et al., 2018)
 *   k*x*clip(x + 3, 0, 6)                       -> 6k HardSwish  (A. Howard et al., ICCV 2019)
 *   d/sqrt(mean(d*d) + eps), d = x - mean(x)    -> LayerNorm     (J. Ba et al., 2016), also with
 *                                                  the scale and bias that follow
 *   x/sqrt(mean(x*x) + eps)                     -> RmsNorm       (B. Zhang, R. Sennrich, 2019)
 *   conv, then relu; nobody else reads conv     -> Conv with relu
 *
 * Factors may stand anywhere and be written as Mul, Div, Add, Sub or Scale with a constant: a value
 * is seen as alpha*base + beta. Matching reads the old graph; what a match leaves unread is dead
 * code. */
#include "passes.h"

#include <math.h>
#include <string.h>

typedef struct {
    Rewrite r;
    Users users;
    ValueId activation; /* the last one that was put under a leftover factor */
} Patterns;

/* alpha*base + beta */
typedef struct {
    ValueId base;
    double alpha, beta;
} Affine;

static const Node *def_of(const Graph *g, ValueId v, OpCode op) {
    if (v == NO_ID || g->value[v].def == NO_ID) return NULL;
    const Node *n = &g->node[g->value[v].def];
    return n->op == op ? n : NULL;
}

/* A constant with one element that no training changes. */
static bool scalar_constant(const Graph *g, ValueId v, double *out) {
    const Value *x = &g->value[g->storage[g->value[v].storage].root];
    bool fixed = x->role == ROLE_CONST || x->role == ROLE_FROZEN;
    if (!fixed || x->dtype != DT_F32 || !x->data || x->data->n != sizeof(float)) return false;
    float f;
    memcpy(&f, x->data->bytes, sizeof f);
    *out = (double)f;
    return true;
}

/* One step: v = alpha*base + beta. A constant of higher rank would change the shape: not taken. */
static bool affine_step(const Graph *g, ValueId v, Affine *o) {
    if (g->value[v].def == NO_ID) return false;
    const Node *n = &g->node[g->value[v].def];
    double c;
    if (n->op == OP_Scale) {
        *o = (Affine){n->in[0], ir_get_f(n, A_alpha, 1), ir_get_f(n, A_beta, 0)};
        return true;
    }
    if (n->op != OP_Mul && n->op != OP_Add && n->op != OP_Div && n->op != OP_Sub) return false;
    bool second = scalar_constant(g, n->in[1], &c);
    if (!second && (n->op == OP_Div || n->op == OP_Sub || !scalar_constant(g, n->in[0], &c)))
        return false;
    ValueId base = n->in[second ? 0 : 1];
    if (!shape_eq(&g->value[base].shape, &g->value[v].shape)) return false;
    switch (n->op) {
    case OP_Mul: *o = (Affine){base, c, 0}; return true;
    case OP_Div: *o = (Affine){base, 1 / c, 0}; return true;
    case OP_Add: *o = (Affine){base, 1, c}; return true;
    default: *o = (Affine){base, 1, -c}; return true;
    }
}

static Affine affine(const Graph *g, ValueId v) {
    Affine a = {v, 1, 0}, s;
    while (affine_step(g, a.base, &s))
        a = (Affine){s.base, a.alpha * s.alpha, a.alpha * s.beta + a.beta};
    return a;
}

static bool near(double x, double y) {
    return fabs(x - y) <= 1e-5 * fabs(y);
}

/* A product of two or three constants that were rounded to f32. */
static bool is_one(double x) {
    return fabs(x - 1) <= 5e-7;
}

/* ---- activations: all are a product of x and a function of x ---- */

/* f as alpha*x + beta for the given x, which may itself be such a form of something. */
static bool affine_of(const Graph *g, ValueId f, ValueId x, double *alpha, double *beta) {
    Affine a = affine(g, f), b = affine(g, x);
    if (a.base != b.base || b.alpha == 0) return false;
    *alpha = a.alpha / b.alpha;
    *beta = a.beta - *alpha * b.beta;
    if (fabs(*beta) <= 1e-6 * fabs(a.beta)) *beta = 0; /* rounding */
    return true;
}

typedef struct {
    OpCode op;
    ValueId x;
    double factor; /* of op(x) */
} Activation;

/* The factor p of a product p*q, as k*x without an offset. */
static bool scaled_operand(const Graph *g, ValueId p, ValueId x, double *k) {
    double beta;
    return affine_of(g, p, x, k, &beta) && beta == 0;
}

static bool match_gelu(const Graph *g, ValueId p, ValueId q, Activation *o) {
    Affine f = affine(g, q);
    const Node *erf = def_of(g, f.base, OP_Erf);
    double k, inner, beta;
    if (!erf || !near(f.alpha, f.beta)) return false;
    Affine x = affine(g, p);
    if (x.beta != 0) x = (Affine){p, 1, 0};
    if (!affine_of(g, erf->in[0], x.base, &inner, &beta) || beta != 0) return false;
    if (!near(inner, sqrt(0.5)) || !scaled_operand(g, p, x.base, &k)) return false;
    *o = (Activation){OP_Gelu, x.base, 2 * k * f.alpha};
    return true;
}

static bool is_square_of(const Graph *g, ValueId v, ValueId d) {
    const Node *pow = def_of(g, v, OP_PowScalar), *mul = def_of(g, v, OP_Mul);
    if (pow) return pow->in[0] == d && ir_get_f(pow, A_alpha, 1) == 2;
    return mul && mul->in[0] == d && mul->in[1] == d;
}

/* x*x*x */
static bool is_cube_of(const Graph *g, ValueId v, ValueId x) {
    const Node *pow = def_of(g, v, OP_PowScalar), *mul = def_of(g, v, OP_Mul);
    if (pow) return pow->in[0] == x && ir_get_f(pow, A_alpha, 1) == 3;
    for (uint32_t i = 0; i < 2 && mul; i++)
        if (mul->in[i] == x && is_square_of(g, mul->in[1 - i], x)) return true;
    return false;
}

/* u = sqrt(2/pi) * (x + 0.044715*x^3), as a sum or as a product with 1 + 0.044715*x^2 */
static bool is_tanh_argument(const Graph *g, ValueId u, ValueId x) {
    const double root = 0.7978845608028654, small = 0.044715;
    Affine a = affine(g, u);
    const Node *add = def_of(g, a.base, OP_Add), *mul = def_of(g, a.base, OP_Mul);
    for (uint32_t i = 0; i < 2 && a.beta == 0; i++) {
        if (add) {
            Affine one = affine(g, add->in[i]), cube = affine(g, add->in[1 - i]);
            if (one.base == x && one.beta == 0 && cube.beta == 0 && is_cube_of(g, cube.base, x))
                return near(a.alpha * one.alpha, root) && near(a.alpha * cube.alpha, root * small);
        }
        if (mul) {
            Affine one = affine(g, mul->in[i]), two = affine(g, mul->in[1 - i]);
            if (one.base == x && one.beta == 0 && is_square_of(g, two.base, x))
                return near(a.alpha * one.alpha * two.beta, root) &&
                       near(a.alpha * one.alpha * two.alpha, root * small);
        }
    }
    return false;
}

static bool match_gelu_tanh(const Graph *g, ValueId p, ValueId q, Activation *o) {
    Affine f = affine(g, q), x = affine(g, p);
    const Node *t = def_of(g, f.base, OP_Tanh);
    double k;
    if (!t || !near(f.alpha, f.beta)) return false;
    if (x.beta != 0) x = (Affine){p, 1, 0};
    if (!is_tanh_argument(g, t->in[0], x.base) || !scaled_operand(g, p, x.base, &k)) return false;
    *o = (Activation){OP_GeluTanh, x.base, 2 * k * f.alpha};
    return true;
}

static bool match_hard_swish(const Graph *g, ValueId p, ValueId q, Activation *o) {
    Affine f = affine(g, q);
    const Node *clip = def_of(g, f.base, OP_Clip);
    double k, one, three;
    if (!clip || f.beta != 0) return false;
    if (ir_get_f(clip, A_min, -INFINITY) != 0 || ir_get_f(clip, A_max, INFINITY) != 6) return false;
    Affine x = affine(g, p);
    if (x.beta != 0) x = (Affine){p, 1, 0};
    if (!affine_of(g, clip->in[0], x.base, &one, &three) || one != 1 || three != 3) return false;
    if (!scaled_operand(g, p, x.base, &k)) return false;
    *o = (Activation){OP_HardSwish, x.base, 6 * k * f.alpha};
    return true;
}

static bool match_hard_sigmoid(const Graph *g, ValueId p, ValueId q, Activation *o) {
    const Node *s = def_of(g, q, OP_HardSigmoid);
    if (!s || s->in[0] != p) return false;
    *o = (Activation){OP_HardSwish, p, 1};
    return near(ir_get_f(s, A_alpha, 0.2), 1.0 / 6) && near(ir_get_f(s, A_beta, 0.5), 0.5);
}

static bool match_silu(const Graph *g, ValueId p, ValueId q, Activation *o) {
    const Node *s = def_of(g, q, OP_Sigmoid);
    if (!s || s->in[0] != p) return false;
    *o = (Activation){OP_Silu, p, 1};
    return true;
}

static bool match_activation(const Graph *g, const Node *n, Activation *o) {
    if (n->op != OP_Mul) return false;
    for (uint32_t i = 0; i < 2; i++) {
        ValueId p = n->in[i], q = n->in[1 - i];
        if (match_gelu(g, p, q, o) || match_gelu_tanh(g, p, q, o) || match_silu(g, p, q, o) ||
            match_hard_swish(g, p, q, o) || match_hard_sigmoid(g, p, q, o))
            return shape_eq(&g->value[o->x].shape, &g->value[n->out[0]].shape);
    }
    return false;
}

static void finish(Patterns *t, const Node *n, ValueId old, ValueId now) {
    Node *made = &t->r.g->node[t->r.g->value[now].def];
    made->onnx = n->onnx;
    rw_rename(&t->r, now, old);
    rw_replace(&t->r, old, now);
}

static void put_activation(Patterns *t, const Node *n, const Activation *x) {
    Graph *g = t->r.g;
    ValueId y = op_make1(g, n->phase, x->op, n->name, t->r.map[x->x]);
    if (!is_one(x->factor)) {
        Attr k = attr_f(t->r.a, A_alpha, x->factor);
        t->activation = y;
        y = op_make_attr(g, n->phase, OP_Scale, n->name, 1, &y, &k, 1);
    }
    finish(t, n, n->out[0], y);
}

/* A product with a constant is a Scale, and Scales of Scales are one: leftover factors meet. */
static bool put_scale(Patterns *t, const Node *n) {
    if (n->op != OP_Mul && n->op != OP_Div && n->op != OP_Scale) return false;
    Affine s;
    if (!affine_step(t->r.old, n->out[0], &s)) return false;
    if (t->r.old->value[s.base].dtype != DT_F32) return false;
    ValueId x = t->r.map[s.base];
    const Node *inner = def_of(t->r.g, x, OP_Scale);
    if (inner && ir_get_f(inner, A_beta, 0) == 0) {
        s.alpha *= ir_get_f(inner, A_alpha, 1);
        x = inner->in[0];
    }
    bool one = x == t->activation ? is_one(s.alpha) : (float)s.alpha == 1;
    if (one && s.beta == 0 && !bits_get(t->r.kept, n->out[0])) {
        if (x == t->activation) rw_rename(&t->r, x, n->out[0]);
        rw_replace(&t->r, n->out[0], x);
        return true;
    }
    Attr at[2] = {attr_f(t->r.a, A_alpha, s.alpha), attr_f(t->r.a, A_beta, s.beta)};
    finish(t, n, n->out[0],
           op_make_attr(t->r.g, n->phase, OP_Scale, n->name, 1, &x, at, s.beta != 0 ? 2 : 1));
    return true;
}

/* ---- LayerNorm ---- */

typedef struct {
    ValueId x, scale, bias;
    uint32_t axis;
    double eps;
    bool rms; /* RmsNorm */
} Norm;

/* v = mean of u over the last axes, kept as 1. */
static bool match_mean(const Graph *g, ValueId v, ValueId *u, uint32_t *axis) {
    const Node *n = def_of(g, v, OP_ReduceSum);
    if (!n || !ir_get_i(n, A_keepdims, 1)) return false;
    uint32_t count;
    const int64_t *axes = ir_get_ints(n, A_axes, &count);
    const Shape *s = &g->value[n->in[0]].shape;
    double size = 1;
    for (uint32_t i = 0; i < count; i++) {
        if (axes[i] != (int64_t)(s->rank - count + i)) return false;
        size *= (double)s->dim[axes[i]];
    }
    *u = n->in[0];
    *axis = s->rank - count;
    return count && near(ir_get_f(n, A_scale, 1), 1 / size);
}

static bool match_norm(const Graph *g, const Node *n, Norm *o) {
    if (n->op != OP_Div) return false;
    const Node *sub = def_of(g, n->in[0], OP_Sub), *root = def_of(g, n->in[1], OP_Sqrt);
    ValueId of, square;
    uint32_t axis;
    if (!sub || !root || !match_mean(g, sub->in[1], &of, &o->axis) || of != sub->in[0])
        return false;
    Affine var = affine(g, root->in[0]);
    if (var.alpha != 1 || var.beta < 0 || !match_mean(g, var.base, &square, &axis)) return false;
    if (axis != o->axis || !is_square_of(g, square, n->in[0])) return false;
    *o = (Norm){.x = of, .scale = NO_ID, .bias = NO_ID, .axis = axis, .eps = var.beta};
    return true;
}

/* x / sqrt(mean(x*x) + eps), also as a product with the reciprocal or with a power of -1/2. */
static bool match_rms(const Graph *g, const Node *n, Norm *o) {
    if (n->op != OP_Div && n->op != OP_Mul) return false;
    for (uint32_t i = 0; i < 2; i++) {
        ValueId x = n->in[i], by = n->in[1 - i], square;
        if (n->op == OP_Div && i) return false;
        const Node *inv = def_of(g, by, OP_Reciprocal), *pow = def_of(g, by, OP_PowScalar), *div;
        const Node *root = NULL;
        double c;
        if (n->op == OP_Div) root = def_of(g, by, OP_Sqrt);
        if (n->op == OP_Mul && inv) root = def_of(g, inv->in[0], OP_Sqrt);
        if (n->op == OP_Mul && (div = def_of(g, by, OP_Div)) &&
            scalar_constant(g, div->in[0], &c) && c == 1)
            root = def_of(g, div->in[1], OP_Sqrt);
        if (n->op == OP_Mul && pow && ir_get_f(pow, A_alpha, 1) == -0.5) root = pow;
        if (!root) continue;
        Affine mean = affine(g, root->in[0]);
        if (mean.alpha != 1 || mean.beta < 0) continue;
        if (!match_mean(g, mean.base, &square, &o->axis) || !is_square_of(g, square, x)) continue;
        *o = (Norm){
            .x = x, .scale = NO_ID, .bias = NO_ID, .axis = o->axis, .eps = mean.beta, .rms = true};
        return true;
    }
    return false;
}

/* The only reader of v, when it is of the given kind and its other operand varies along the
 * normalized axes alone, as a weight does. */
static const Node *weight_step(const Patterns *t, ValueId v, OpCode op, uint32_t axis,
                               ValueId *weight) {
    const Graph *g = t->r.old;
    if (t->users.first[v + 1] - t->users.first[v] != 1 || bits_get(t->r.kept, v)) return NULL;
    const Node *n = &g->node[t->users.user[t->users.first[v]]];
    if (n->op != op || n->in[0] == n->in[1]) return NULL;
    *weight = n->in[n->in[0] == v];
    const Shape *x = &g->value[v].shape, *w = &g->value[*weight].shape;
    if (g->value[g->storage[g->value[*weight].storage].root].role == ROLE_TEMP || w->rank > x->rank)
        return NULL;
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t d = i < x->rank - w->rank ? 1 : w->dim[i - (x->rank - w->rank)];
        if (d != (i < axis ? 1 : x->dim[i])) return NULL;
    }
    return n;
}

static ValueId ones(Patterns *t, const char *name, const Shape *s) {
    uint64_t n = 0;
    shape_count(s, &n);
    float *x = ARENA_ARRAY(t->r.a, float, n);
    for (uint64_t i = 0; i < n; i++) x[i] = 1;
    Data *data = ARENA_NEW(t->r.a, Data);
    *data = (Data){x, n * sizeof *x};
    ValueId v = ir_value(t->r.g, arena_printf(t->r.a, "%s.ones", name), DT_F32, s, ROLE_CONST);
    t->r.g->value[v].data = data;
    return v;
}

/* The source behind v in the given shape; v itself may be a view that stands later in the order. */
static ValueId weight(Patterns *t, const Node *n, ValueId v, const Shape *s) {
    ValueId root = t->r.old->storage[t->r.old->value[v].storage].root;
    return op_reshape(t->r.g, n->phase, n->name, t->r.map[root], s);
}

static void put_norm(Patterns *t, const Node *n, Norm *x) {
    const Graph *old = t->r.old;
    const Shape *s = &old->value[x->x].shape;
    Shape inner = {.rank = s->rank - x->axis};
    for (uint32_t i = 0; i < inner.rank; i++) inner.dim[i] = s->dim[x->axis + i];
    const Node *mul = weight_step(t, n->out[0], OP_Mul, x->axis, &x->scale);
    const Node *add =
        mul && !x->rms ? weight_step(t, mul->out[0], OP_Add, x->axis, &x->bias) : NULL;
    ValueId in[3] = {t->r.map[x->x], NO_ID, NO_ID};
    in[1] = mul ? weight(t, n, x->scale, &inner) : ones(t, n->name, &inner);
    if (add) in[2] = weight(t, n, x->bias, &inner);
    Attr at[2] = {attr_i(t->r.a, A_axis, x->axis), attr_f(t->r.a, A_eps, x->eps)};
    OpCode op = x->rms ? OP_RmsNorm : OP_LayerNorm;
    ValueId y = op_make_attr(t->r.g, n->phase, op, n->name, add ? 3 : 2, in, at, 2);
    const Node *last = add ? add : mul ? mul : n;
    rw_replace(&t->r, n->out[0], y);
    if (mul) rw_replace(&t->r, mul->out[0], y);
    finish(t, n, last->out[0], y);
}

/* ---- what a library call can do at the end ---- */

static bool only_reader(const Patterns *t, ValueId v) {
    return t->users.first[v + 1] - t->users.first[v] == 1 && !bits_get(t->r.kept, v);
}

/* Relu(Conv): the convolution was copied already; nobody else wants its plain result. */
static bool put_conv_relu(Patterns *t, const Node *n) {
    const Node *conv = n->op == OP_Relu ? def_of(t->r.old, n->in[0], OP_Conv) : NULL;
    if (!conv || !only_reader(t, n->in[0])) return false;
    ValueId y = t->r.map[n->in[0]];
    ir_attr_i(t->r.g, t->r.g->value[y].def, A_relu, 1);
    rw_rename(&t->r, y, n->out[0]);
    rw_replace(&t->r, n->out[0], y);
    return true;
}

static bool put_pattern(Patterns *t, const Node *n) {
    Activation act;
    Norm norm;
    if (n->nout && n->out[0] != NO_ID && t->r.map[n->out[0]] != NO_ID)
        return true; /* part of a norm */
    if (match_activation(t->r.old, n, &act)) {
        put_activation(t, n, &act);
        return true;
    }
    if (match_norm(t->r.old, n, &norm) || match_rms(t->r.old, n, &norm)) {
        put_norm(t, n, &norm);
        return true;
    }
    return put_conv_relu(t, n) || put_scale(t, n);
}

Graph *match_patterns(Arena *a, const Graph *g) {
    Patterns t;
    rw_begin(&t.r, a, g, NULL);
    t.users = ir_users(a, g);
    t.activation = NO_ID;
    for (NodeId n = 0; n < g->nnode; n++)
        if (!put_pattern(&t, &g->node[n])) rw_copy(&t.r, n);
    return rw_end(&t.r);
}
