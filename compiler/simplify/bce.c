/* bce.c - binary cross-entropy of logits written with logarithms becomes one node, which neither
 * loses digits where the sigmoid is near 0 or 1 nor keeps what stands in between:
 *
 *   -(t*log(s) + (1-t)*log(1-s)),  s = sigmoid(z)      as PyTorch exports it, also without the
 * minus max(z, 0) - z*t + log(1 + exp(-|z|))               written by hand; the terms in any order
 *   log(sigmoid(z))  -> -softplus(-z)                  where they stand alone, as with weights of
 *   log(1 - sigmoid(z)) -> -softplus(z)                classes
 *
 * The forms on the right of the arrow and of the node have the same value in exact arithmetic. */
#include "passes.h"

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
} Pass;

typedef struct {
    ValueId z, t;
    int sign;
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

/* Is v a constant whose single number is c? */
static bool is_number(const Graph *g, ValueId v, float c) {
    const Value *x = &g->value[g->storage[g->value[v].storage].root];
    float f;
    if (x->role != ROLE_CONST || x->dtype != DT_F32 || !x->data || x->data->n != sizeof f)
        return false;
    memcpy(&f, x->data->bytes, sizeof f);
    return f == c;
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

/* v = 1 - x */
static bool one_minus(const Graph *g, ValueId v, ValueId *x) {
    const Node *n = def_of(g, v, OP_Sub);
    if (!n || !is_number(g, n->in[0], 1)) return is_scale(g, v, -1, 1, x);
    *x = n->in[1];
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

/* t*log(s) or (1-t)*log(1-s) */
static bool is_weighted_log(const Graph *g, ValueId v, ValueId *z, ValueId *t, bool *other) {
    const Node *mul = def_of(g, v, OP_Mul);
    for (uint32_t i = 0; mul && i < 2; i++) {
        if (!is_log_sigmoid(g, mul->in[i], z, other)) continue;
        *t = mul->in[1 - i];
        if (!*other || one_minus(g, mul->in[1 - i], t)) return true;
    }
    return false;
}

static bool match_logs(const Graph *g, const Term *x, Match *m) {
    ValueId z[2], t[2];
    bool other[2];
    for (int i = 0; i < 2; i++)
        if (!is_weighted_log(g, x[i].v, &z[i], &t[i], &other[i])) return false;
    if (x[0].sign != x[1].sign || z[0] != z[1] || t[0] != t[1] || other[0] == other[1])
        return false;
    *m = (Match){z[0], t[0], -x[0].sign};
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
            *m = (Match){z, mul->in[mul->in[0] == z], x[i].sign};
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

static bool put_pattern(Pass *p, const Node *n) {
    Match m;
    ValueId z;
    bool other;
    if (match(p, n, &m)) {
        ValueId y = op_make2(p->r.g, n->phase, OP_BceLogits, n->name, p->r.map[m.z], p->r.map[m.t]);
        put(p, n, m.sign < 0 ? opposite(p, n, y) : y);
        return true;
    }
    if (n->op != OP_Log || !is_log_sigmoid(p->r.old, n->out[0], &z, &other)) return false;
    ValueId x = p->r.map[z];
    if (!other) x = opposite(p, n, x);
    put(p, n, opposite(p, n, op_make1(p->r.g, n->phase, OP_Softplus, n->name, x)));
    return true;
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
    for (NodeId id = 0; id < g->nnode; id++)
        if (!put_pattern(&p, &g->node[id])) rw_copy(&p.r, id);
    return rw_end(&p.r);
}
