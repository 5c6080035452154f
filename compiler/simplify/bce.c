/* bce.c - binary cross-entropy of logits written with logarithms becomes one node, which neither
 * loses digits where the sigmoid is near 0 or 1 nor keeps what stands in between:
 *
 *   -(t*log(s) + (1-t)*log(1-s)),  s = sigmoid(z)      as PyTorch exports it, also without the
 * minus max(z, 0) - z*t + log(1 + exp(-|z|))               written by hand; the terms in any order
 *   log(sigmoid(z))  -> -softplus(-z)                  where they stand alone, as with weights of
 *   log(1 - sigmoid(z)) -> -softplus(z)                classes
 *
 * PyTorch's loss of probabilities has max(log(.), -100) for each logarithm. With logits that is the
 * same as clipping z to -100..100 first: softplus(100) is 100, softplus(-100) is 0 in single
 * precision. Of other probabilities,
 *
 *   max(log(p), c) -> max(log(p == 0 ? tiny : p), c)   has the same value and the gradient 0 where
 * p is 0, not 0 times infinity
 *
 * The forms on the right of the arrow and of the node have the same value in exact arithmetic. */
#include "passes.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TERMS = 4 };

typedef struct {
    ValueId v;
    int sign;
} Term;

typedef struct {
    Rewrite r;
    bool *trained;
    Bits clipped; /* per value: a logarithm that is clipped from below */
} Pass;

typedef struct {
    ValueId z, t;
    int sign;
    double clip; /* z is clipped to -clip..clip; infinite: it is not */
} Match;

/* Per value: some weight that is trained has a part in it. */
static bool *trained_values(Arena *a, const Graph *g) {
    bool *is = ARENA_ARRAY(a, bool, g->nvalue + 1);
    for (ValueId v = 0; v < g->nvalue; v++) is[v] = g->value[v].role == ROLE_PARAM;
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        bool any = false;
        for (uint32_t i = 0; i < x->nin; i++) any = any || (x->in[i] != NO_ID && is[x->in[i]]);
        for (uint32_t k = 0; k < x->nout; k++)
            if (x->out[k] != NO_ID) is[x->out[k]] = any;
    }
    return is;
}

static const Node *def_of(const Graph *g, ValueId v, OpCode op) {
    if (v == NO_ID || g->value[v].def == NO_ID) return NULL;
    const Node *n = &g->node[g->value[v].def];
    return n->op == op ? n : NULL;
}

/* Is v a constant of a single number? */
static bool number(const Graph *g, ValueId v, double *c) {
    const Value *x = &g->value[g->storage[g->value[v].storage].root];
    float f;
    if (x->role != ROLE_CONST || x->dtype != DT_F32 || !x->data || x->data->n != sizeof f)
        return false;
    memcpy(&f, x->data->bytes, sizeof f);
    *c = (double)f;
    return true;
}

static bool is_number(const Graph *g, ValueId v, double c) {
    double x;
    return number(g, v, &x) && x == c;
}

static bool is_scale(const Graph *g, ValueId v, double alpha, double beta, ValueId *x) {
    const Node *n = def_of(g, v, OP_Scale);
    if (!n || ir_get_f(n, A_alpha, 1) != alpha || ir_get_f(n, A_beta, 0) != beta) return false;
    *x = n->in[0];
    return true;
}

/* v = -x */
static bool negated(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Neg);
    if (!n) return is_scale(g, v, -1, 0, x);
    *x = n->in[0];
    return true;
}

/* v = 1 + x */
static bool one_plus(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Add);
    for (uint32_t i = 0; n && i < 2; i++)
        if (is_number(g, n->in[i], 1)) {
            *x = n->in[1 - i];
            return true;
        }
    return is_scale(g, v, 1, 1, x);
}

/* v = 1 - x */
static bool one_minus(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Sub);
    ValueId sum;
    if (!n || !is_number(g, n->in[0], 1))
        return is_scale(g, v, -1, 1, x) || (one_plus(g, v, &sum) && negated(g, sum, x));
    *x = n->in[1];
    return true;
}

/* v = x - 1 */
static bool minus_one(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Sub), *add = def_of(g, v, OP_Add);
    for (uint32_t i = 0; add && i < 2; i++)
        if (is_number(g, add->in[i], -1)) {
            *x = add->in[1 - i];
            return true;
        }
    if (!n || !is_number(g, n->in[1], 1)) return is_scale(g, v, 1, -1, x);
    *x = n->in[0];
    return true;
}

/* v = max(x, c), c a negative number */
static bool clipped(const Graph *g, ValueId v, ValueId *x, double *c) {
    const Node *clip = def_of(g, v, OP_Clip), *max = def_of(g, v, OP_Max);
    for (uint32_t i = 0; max && i < 2; i++)
        if (number(g, max->in[i], c) && *c < 0) {
            *x = max->in[1 - i];
            return true;
        }
    if (!clip || ir_get_f(clip, A_max, INFINITY) < 0) return false;
    *c = ir_get_f(clip, A_min, -INFINITY);
    *x = clip->in[0];
    return *c < 0 && *c > -INFINITY;
}

/* v = max(x, 0) */
static bool rectified(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Relu), *max = def_of(g, v, OP_Max);
    for (uint32_t i = 0; max && i < 2; i++)
        if (is_number(g, max->in[i], 0)) {
            *x = max->in[1 - i];
            return true;
        }
    if (!n) n = def_of(g, v, OP_Clip);
    if (!n || (n->op == OP_Clip && (!ir_attr(n, A_min) || ir_get_f(n, A_min, 0) != 0 ||
                                    ir_get_f(n, A_max, INFINITY) != INFINITY)))
        return false;
    *x = n->in[0];
    return true;
}

/* v = log(1 + exp(-|z|)) */
static bool is_tail(const Graph *g, ValueId v, ValueId z) {
    const Node *n = def_of(g, v, OP_Softplus), *exp;
    ValueId x;
    if (n) {
        x = n->in[0];
    } else {
        n = def_of(g, v, OP_Log);
        if (!n || !one_plus(g, n->in[0], &x) || !(exp = def_of(g, x, OP_Exp))) return false;
        x = exp->in[0];
    }
    const Node *abs = negated(g, x, &x) ? def_of(g, x, OP_Abs) : NULL;
    return abs && abs->in[0] == z;
}

/* v = log(sigmoid(z)), or log(1 - sigmoid(z)): *other */
static bool is_log_sigmoid(const Graph *g, ValueId v, ValueId *z, bool *other) {
    const Node *n = def_of(g, v, OP_Log);
    ValueId x;
    if (!n) return false;
    *other = one_minus(g, n->in[0], &x);
    const Node *s = def_of(g, *other ? x : n->in[0], OP_Sigmoid);
    if (!s) return false;
    *z = s->in[0];
    return true;
}

/* The terms of a sum of values of one shape; more than TERMS: not of interest. */
static uint32_t collect(const Graph *g, ValueId v, int sign, const Shape *s, Term *t, uint32_t n) {
    const Node *add = def_of(g, v, OP_Add), *sub = def_of(g, v, OP_Sub);
    const Node *sum = add ? add : sub;
    ValueId x;
    if (n > TERMS) return n;
    if (shape_eq(&g->value[v].shape, s)) {
        if (sum) {
            n = collect(g, sum->in[0], sign, s, t, n);
            return collect(g, sum->in[1], sub ? -sign : sign, s, t, n);
        }
        if (negated(g, v, &x)) return collect(g, x, -sign, s, t, n);
    }
    if (n < TERMS) t[n] = (Term){v, sign};
    return n + 1;
}

typedef struct {
    ValueId z, t;
    bool other;  /* (1-t)*log(1-s) */
    int sign;    /* of the term */
    double clip; /* the logarithm is at least -clip */
} Weighted;

/* t*log(s) or (1-t)*log(1-s), or minus these; logarithms may be clipped. */
static bool is_weighted_log(const Graph *g, const Term *x, Weighted *w) {
    const Node *mul = def_of(g, x->v, OP_Mul);
    for (uint32_t i = 0; mul && i < 2; i++) {
        ValueId v = mul->in[i], weight = mul->in[1 - i];
        *w = (Weighted){.t = weight, .sign = x->sign, .clip = INFINITY};
        if (clipped(g, v, &v, &w->clip)) w->clip = -w->clip;
        if (!is_log_sigmoid(g, v, &w->z, &w->other)) continue;
        bool minus = minus_one(g, weight, &w->t);
        if (minus && w->other) w->sign = -w->sign;
        if (!w->other) w->t = weight;
        if (!w->other || minus || one_minus(g, weight, &w->t)) return true;
    }
    return false;
}

/* What clipping at c leaves out of softplus, exp(-c), is below single precision from here on. */
#define CLIP_LEAST 30.0

static bool match_logs(const Graph *g, const Term *x, Match *m) {
    Weighted a, b;
    if (!is_weighted_log(g, &x[0], &a) || !is_weighted_log(g, &x[1], &b)) return false;
    if (a.sign != b.sign || a.z != b.z || a.t != b.t || a.other == b.other || a.clip != b.clip ||
        a.clip < CLIP_LEAST)
        return false;
    *m = (Match){a.z, a.t, -a.sign, a.clip};
    return true;
}

static bool match_stable(const Graph *g, const Term *x, Match *m) {
    for (int i = 0; i < 3; i++) {
        ValueId z;
        if (!rectified(g, x[i].v, &z)) continue;
        for (int j = 0; j < 3; j++) {
            const Term *tail = &x[j], *rest = &x[3 - i - j];
            const Node *mul = j == i ? NULL : def_of(g, rest->v, OP_Mul);
            if (!mul || tail->sign != x[i].sign || rest->sign != -x[i].sign) continue;
            if ((mul->in[0] != z && mul->in[1] != z) || !is_tail(g, tail->v, z)) continue;
            *m = (Match){z, mul->in[mul->in[0] == z], x[i].sign, INFINITY};
            return true;
        }
    }
    return false;
}

static bool match(const Pass *p, const Node *n, Match *m) {
    const Graph *g = p->r.old;
    Term t[TERMS];
    ValueId x;
    if (n->op != OP_Add && n->op != OP_Sub && !(n->nout == 1 && negated(g, n->out[0], &x)))
        return false;
    const Shape *s = &g->value[n->out[0]].shape;
    uint32_t count = collect(g, n->out[0], 1, s, t, 0);
    if (!(count == 2 && match_logs(g, t, m)) && !(count == 3 && match_stable(g, t, m)))
        return false;
    Shape sum;
    return !p->trained[m->t] && g->value[m->t].dtype == DT_F32 &&
           shape_broadcast(&g->value[m->z].shape, &g->value[m->t].shape, &sum) && shape_eq(&sum, s);
}

static ValueId opposite(Pass *p, const Node *n, ValueId v) {
    Attr at = attr_f(p->r.a, A_alpha, -1);
    return op_make_attr(p->r.g, n->phase, OP_Scale, n->name, 1, &v, &at, 1);
}

static void put(Pass *p, const Node *n, ValueId y) {
    p->r.g->node[p->r.g->value[y].def].onnx = n->onnx;
    rw_rename(&p->r, y, n->out[0]);
    rw_replace(&p->r, n->out[0], y);
}

static ValueId constant(Rewrite *r, const Node *n, const char *what, const float *x) {
    ValueId v =
        ir_value(r->g, arena_printf(r->a, "%s.%s", n->name, what), DT_F32, &(Shape){0}, ROLE_CONST);
    Data *d = ARENA_NEW(r->a, Data);
    *d = (Data){.bytes = x, .n = sizeof *x};
    r->g->value[v].data = d;
    return v;
}

/* max(log(p), c): p, but the smallest number instead of 0. */
static void put_log(Pass *p, const Node *n, ValueId of) {
    Rewrite *r = &p->r;
    static const float zero = 0, tiny = FLT_TRUE_MIN;
    ValueId x = r->map[of];
    ValueId none = constant(r, n, "zero", &zero), least = constant(r, n, "tiny", &tiny);
    ValueId is = op_make2(r->g, n->phase, OP_Equal, n->name, x, none);
    x = op_make3(r->g, n->phase, OP_Where, n->name, is, least, x);
    put(p, n, op_make1(r->g, n->phase, OP_Log, n->name, x));
}

static bool put_entropy(Pass *p, const Node *n) {
    Match m;
    if (!match(p, n, &m)) return false;
    ValueId z = p->r.map[m.z];
    if (m.clip < INFINITY) {
        Attr at[] = {attr_f(p->r.a, A_min, -m.clip), attr_f(p->r.a, A_max, m.clip)};
        z = op_make_attr(p->r.g, n->phase, OP_Clip, n->name, 1, &z, at, 2);
    }
    ValueId y = op_make2(p->r.g, n->phase, OP_BceLogits, n->name, z, p->r.map[m.t]);
    put(p, n, m.sign < 0 ? opposite(p, n, y) : y);
    return true;
}

static bool put_pattern(Pass *p, const Node *n) {
    ValueId z;
    bool other;
    if (put_entropy(p, n)) return true;
    if (n->op != OP_Log) return false;
    if (!is_log_sigmoid(p->r.old, n->out[0], &z, &other)) {
        if (!bits_get(p->clipped, n->out[0])) return false;
        put_log(p, n, n->in[0]);
        return true;
    }
    ValueId x = p->r.map[z];
    if (!other) x = opposite(p, n, x);
    put(p, n, opposite(p, n, op_make1(p->r.g, n->phase, OP_Softplus, n->name, x)));
    return true;
}

/* Logarithms all of whose readers clip them from below. */
static Bits clipped_logs(Arena *a, const Graph *g) {
    Bits is = bits_new(a, g->nvalue + 1), other = bits_new(a, g->nvalue + 1);
    for (NodeId n = 0; n < g->nnode; n++) {
        ValueId x = NO_ID;
        double c;
        if (g->node[n].nout != 1 || !clipped(g, g->node[n].out[0], &x, &c)) x = NO_ID;
        for (uint32_t i = 0; i < g->node[n].nin; i++) {
            ValueId v = g->node[n].in[i];
            if (v != NO_ID) bits_set(v == x ? is : other, v);
        }
    }
    for (ValueId v = 0; v < g->nvalue; v++)
        if (bits_get(other, v)) bits_clear(is, v);
    return is;
}

static bool has_log(const Graph *g) {
    for (NodeId n = 0; n < g->nnode; n++)
        if (g->node[n].op == OP_Log || g->node[n].op == OP_Softplus) return true;
    return false;
}

/* What a match leaves unread is dead code. */
const Graph *join_entropies(Arena *a, const Graph *g) {
    if (!has_log(g)) return g;
    Pass p;
    rw_begin(&p.r, a, g, NULL);
    p.trained = trained_values(a, g);
    p.clipped = clipped_logs(a, g);
    for (NodeId id = 0; id < g->nnode; id++)
        if (!put_pattern(&p, &g->node[id])) rw_copy(&p.r, id);
    return rw_end(&p.r);
}
