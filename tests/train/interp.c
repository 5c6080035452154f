/* interp.c - the interpreter: memory, elementwise operators, reductions, norms, softmax, losses,
 * fused bodies. */
#include "interp.h"

#include "dtrt_math.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IN = 64 }; /* operands of a node */

uint64_t ten_count(const Shape *s) {
    uint64_t n = 1;
    for (uint32_t k = 0; k < s->rank; k++) n *= (uint64_t)s->dim[k];
    return n;
}

void ten_index(const Shape *s, uint64_t i, int64_t *at) {
    for (uint32_t k = s->rank; k-- > 0;) {
        at[k] = (int64_t)(i % (uint64_t)s->dim[k]);
        i /= (uint64_t)s->dim[k];
    }
}

uint64_t ten_flat(const Shape *s, const int64_t *at) {
    uint64_t i = 0;
    for (uint32_t k = 0; k < s->rank; k++) i = i * (uint64_t)s->dim[k] + (uint64_t)at[k];
    return i;
}

uint64_t ten_broadcast(const Shape *s, const Shape *o, const int64_t *at) {
    uint64_t i = 0;
    uint32_t skip = o->rank - s->rank;
    for (uint32_t k = 0; k < s->rank; k++)
        i = i * (uint64_t)s->dim[k] + (s->dim[k] == 1 ? 0 : (uint64_t)at[k + skip]);
    return i;
}

int64_t call_i(const Call *c, AttrKey k, int64_t dflt) {
    const Attr *a = attr_find(c->attr, c->nattr, k);
    return a ? a->i[0] : dflt;
}
double call_f(const Call *c, AttrKey k, double dflt) {
    const Attr *a = attr_find(c->attr, c->nattr, k);
    return !a ? dflt : a->is_float ? a->f[0] : (double)a->i[0];
}
const int64_t *call_ints(const Call *c, AttrKey k) {
    const Attr *a = attr_find(c->attr, c->nattr, k);
    return a && a->n ? a->i : NULL;
}

_Noreturn static void unknown(OpCode op) {
    fprintf(stderr, "the test interpreter does not know %s\n", op_def(op)->name);
    abort();
}

/* ---- elementwise ---- */
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double phi(double x) { /* normal distribution function */
    return 0.5 * (1 + erf(x * 0.70710678118654752));
}

/* (1 + tanh u)/2 = sigmoid(2u) */
static double gelu_u(double x) {
    return sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x);
}

static double unary(OpCode op, double a, double p, double q) {
    switch (op) {
    case OP_Neg: return -a;
    case OP_Abs: return fabs(a);
    case OP_Exp: return exp(a);
    case OP_Log: return log(a);
    case OP_Sqrt: return sqrt(a);
    case OP_Reciprocal: return 1 / a;
    case OP_Erf: return erf(a);
    case OP_Sin: return sin(a);
    case OP_Cos: return cos(a);
    case OP_Floor: return floor(a);
    case OP_Ceil: return ceil(a);
    case OP_Relu: return a > 0 ? a : 0;
    case OP_LeakyRelu: return a > 0 ? a : p * a;
    case OP_Elu: return a > 0 ? a : p * (exp(a) - 1);
    case OP_Sigmoid: return sigmoid(a);
    case OP_Tanh: return tanh(a);
    case OP_Softplus: return log(1 + exp(a));
    case OP_HardSwish: return a * fmax(0, fmin(1, a / 6 + 0.5));
    case OP_HardSigmoid: return fmax(0, fmin(1, p * a + q));
    case OP_Clip: return fmax(p, fmin(q, a));
    case OP_Scale: return a * p + q;
    case OP_Cast: return p == DT_BOOL ? a != 0 : p == DT_F32 ? a : trunc(a);
    case OP_Expand: return a;
    case OP_PowScalar: return pow(a, p);
    case OP_Not: return a == 0;
    case OP_Gelu: return a * phi(a);
    case OP_Silu: return a * sigmoid(a);
    case OP_InvStd: return 1 / sqrt(a + p);
    case OP_Tan: return tan(a);
    case OP_Asin: return asin(a);
    case OP_Acos: return acos(a);
    case OP_Atan: return atan(a);
    case OP_Sinh: return sinh(a);
    case OP_Cosh: return cosh(a);
    case OP_Asinh: return asinh(a);
    case OP_Acosh: return acosh(a);
    case OP_Atanh: return atanh(a);
    case OP_Round: return rint(a);
    case OP_Sign: return (a > 0) - (a < 0);
    case OP_Root: return pow(a, p);
    case OP_IsNaN: return isnan(a);
    case OP_IsInf: return a == INFINITY ? q : a == -INFINITY ? p : 0;
    case OP_Celu: return a > 0 ? a : p * (exp(a / p) - 1);
    case OP_Mish: return a * tanh(log(1 + exp(a)));
    case OP_Softsign: return a / (1 + fabs(a));
    case OP_ThresholdedRelu: return a > p ? a : 0;
    case OP_Shrink: return fabs(a) > p ? (a > 0 ? a - q : a + q) : 0;
    case OP_GeluTanh: return a * sigmoid(2 * gelu_u(a));
    default: unknown(op);
    }
}

static double binary(OpCode op, double a, double b) {
    switch (op) {
    case OP_Add: return a + b;
    case OP_Sub: return a - b;
    case OP_Mul: return a * b;
    case OP_Div: return a / b;
    case OP_Pow: return pow(a, b);
    case OP_Min: return fmin(a, b);
    case OP_Max: return fmax(a, b);
    case OP_Equal: return a == b;
    case OP_Less: return a < b;
    case OP_Greater: return a > b;
    case OP_And: return a != 0 && b != 0;
    case OP_Or: return a != 0 || b != 0;
    case OP_SelectA: return a != 0 ? b : 0;
    case OP_SelectB: return a != 0 ? 0 : b;
    case OP_BceLogits: return log(1 + exp(a)) - a * b;
    case OP_Xor: return (a != 0) != (b != 0);
    case OP_Mod: return a - b * trunc(a / b);
    case OP_IntDiv: return b == 0 ? 0 : trunc(a / b);
    case OP_IntRem: return b == 0 ? 0 : a - b * trunc(a / b);
    case OP_IntMod: return b == 0 ? 0 : a - b * floor(a / b);
    case OP_EqMask: return a == b;
    case OP_PRelu: return a > 0 ? a : a * b;
    default: unknown(op);
    }
}

/* x[0] is dY */
static double gradient(OpCode op, const double *x, double p, double q) {
    double dy = x[0], a = x[1], b = x[2], c = x[3];
    switch (op) {
    case OP_AbsGrad: return dy * ((a > 0) - (a < 0));
    case OP_SqrtGrad: return dy / (2 * a);
    case OP_ErfGrad: return dy * 1.1283791670955126 * exp(-a * a);
    case OP_ReluGrad: return a > 0 ? dy : 0;
    case OP_LeakyReluGrad: return a > 0 ? dy : p * dy;
    case OP_EluGrad: return a > 0 ? dy : dy * (a + p);
    case OP_SigmoidGrad: return dy * a * (1 - a);
    case OP_TanhGrad: return dy * (1 - a * a);
    case OP_SoftplusGrad: return dy * sigmoid(a);
    case OP_HardSwishGrad: return a < -3 ? 0 : a > 3 ? dy : dy * (a / 3 + 0.5);
    case OP_HardSigmoidGrad: return a > 0 && a < 1 ? dy * p : 0;
    case OP_ClipGrad: return a < p || a > q ? 0 : dy;
    case OP_PowScalarGrad: return dy * p * pow(a, p - 1);
    case OP_PowGrad: return dy * b * pow(a, b - 1);
    case OP_PowGradB: return a > 0 ? dy * b * log(a) : 0;
    case OP_DivGradB: return -dy * b / a;
    case OP_EqSelect: return a == c ? (b == c ? dy / 2 : dy) : 0;
    case OP_GeluGrad: return dy * (phi(a) + a * exp(-a * a / 2) / sqrt(2 * 3.14159265358979324));
    case OP_SiluGrad: return dy * sigmoid(a) * (1 + a * (1 - sigmoid(a)));
    case OP_BceLogitsGrad: return dy * (sigmoid(a) - b);
    case OP_TanGrad: return dy * (1 + a * a);
    case OP_AsinGrad: return dy / sqrt(1 - a * a);
    case OP_AcosGrad: return -dy / sqrt(1 - a * a);
    case OP_AtanGrad: return dy / (1 + a * a);
    case OP_AsinhGrad: return dy / sqrt(1 + a * a);
    case OP_AcoshGrad: return dy / sqrt(a * a - 1);
    case OP_AtanhGrad: return dy / (1 - a * a);
    case OP_ModGradB: return -dy * trunc(a / b);
    case OP_RootGrad: return a == 0 ? 0 : dy * p * pow(a, 1 - 1 / p);
    case OP_CeluGrad: return a > 0 ? dy : dy * (a / p + 1);
    case OP_MishGrad: {
        double w = tanh(log(1 + exp(a)));
        return dy * (w + a * sigmoid(a) * (1 - w * w));
    }
    case OP_SoftsignGrad: return dy * (1 - fabs(a)) * (1 - fabs(a));
    case OP_ThresholdedReluGrad: return a > p ? dy : 0;
    case OP_ShrinkGrad: return fabs(a) > p ? dy : 0;
    case OP_PReluGradX: return a > 0 ? dy : dy * b;
    case OP_PReluGradS: return dy * fmin(a, 0);
    case OP_GeluTanhGrad: {
        double h = sigmoid(2 * gelu_u(a)),
               u = sqrt(2 / 3.14159265358979324) * (1 + 0.134145 * a * a);
        return dy * (h + a * 2 * h * (1 - h) * u);
    }
    case OP_BnGradX: {
        double mean = b, inv = c, scale = x[4], sum = x[5], sum_xhat = x[6];
        return scale * inv * (dy - (sum + (a - mean) * inv * sum_xhat) * p);
    }
    default: unknown(op);
    }
}

static double element(const Call *c, const double *x, uint64_t index) {
    const OpDef *def = op_def(c->op);
    double p[2] = {0, 0};
    for (int k = 0; k < 2; k++)
        if (def->p[k] != A_COUNT) p[k] = call_f(c, def->p[k], def->dflt[k]);
    if (c->op == OP_Dropout)
        return dtrt_dropout(1, (float)p[0], 1, 0, c->key, index) > 0 ? x[0] / (1 - p[0]) : 0;
    if (c->op == OP_Bernoulli) return (double)dtrt_bernoulli((float)x[0], 1, 0, c->key, index);
    if (c->op == OP_Where) return x[0] != 0 ? x[1] : x[2];
    if (c->op == OP_BnApply) return (x[0] - x[1]) * x[2] * x[3] + x[4];
    if (c->op == OP_ShiftLeft || c->op == OP_ShiftRight) {
        bool left = c->op == OP_ShiftLeft, none = x[1] < 0 || x[1] >= p[0];
        return none   ? 0
               : left ? fmod(ldexp(x[0], (int)x[1]), exp2(p[0]))
                      : floor(x[0] / exp2(x[1]));
    }
    if (c->nin == 1) return unary(c->op, x[0], p[0], p[1]);
    bool grad = strstr(def->name, "Grad") || c->op == OP_EqSelect;
    return grad ? gradient(c->op, x, p[0], p[1]) : binary(c->op, x[0], x[1]);
}

static void elementwise(const Call *c) {
    uint64_t n = ten_count(&c->out[0].s);
    int64_t at[IR_MAX_RANK];
    for (uint64_t i = 0; i < n; i++) {
        double x[8] = {0};
        ten_index(&c->out[0].s, i, at);
        for (uint32_t k = 0; k < c->nin; k++)
            x[k] = c->in[k].x[ten_broadcast(&c->in[k].s, &c->out[0].s, at)];
        c->out[0].x[i] = element(c, x, i);
    }
}

/* ---- reductions and norms ---- */
static void reduce_sum(const Call *c) {
    const Attr *axes = attr_find(c->attr, c->nattr, A_axes);
    Shape s = c->in[0].s, kept = s;
    for (uint32_t k = 0; k < s.rank; k++) {
        bool gone = !axes || !axes->n;
        for (uint32_t i = 0; axes && i < axes->n; i++) gone |= axes->i[i] == (int64_t)k;
        if (gone) kept.dim[k] = 1;
    }
    int64_t at[IR_MAX_RANK];
    memset(c->out[0].x, 0, ten_count(&kept) * sizeof(double));
    for (uint64_t i = 0; i < ten_count(&s); i++) {
        ten_index(&s, i, at);
        c->out[0].x[ten_broadcast(&kept, &s, at)] += call_f(c, A_scale, 1) * c->in[0].x[i];
    }
}

/* Extremes, products, log-sum-exp: every result element looks at all of X. */
static void fold(const Call *c) {
    const Attr *axes = attr_find(c->attr, c->nattr, A_axes);
    const Ten *x = &c->in[c->nin - 1];
    Shape kept = x->s;
    for (uint32_t k = 0; k < x->s.rank; k++) {
        bool gone = !axes || !axes->n;
        for (uint32_t i = 0; axes && i < axes->n; i++) gone |= axes->i[i] == (int64_t)k;
        if (gone) kept.dim[k] = 1;
    }
    uint64_t n = ten_count(&x->s);
    int64_t at[IR_MAX_RANK];
    for (uint64_t o = 0; o < ten_count(&kept); o++) {
        double max = -INFINITY, min = INFINITY, prod = 1, sum = 0;
        for (uint64_t i = 0; i < n; i++) {
            ten_index(&x->s, i, at);
            if (ten_broadcast(&kept, &x->s, at) != o) continue;
            max = fmax(max, x->x[i]);
            min = fmin(min, x->x[i]);
            prod *= x->x[i];
            sum += exp(x->x[i]);
            double others = 1;
            for (uint64_t j = 0; c->op == OP_ReduceProdGrad && j < n; j++) {
                ten_index(&x->s, j, at);
                if (j != i && ten_broadcast(&kept, &x->s, at) == o) others *= x->x[j];
            }
            if (c->op == OP_ReduceProdGrad) c->out[0].x[i] = c->in[0].x[o] * others;
        }
        if (c->op == OP_ReduceMax) c->out[0].x[o] = max;
        if (c->op == OP_ReduceMin) c->out[0].x[o] = min;
        if (c->op == OP_ReduceProd) c->out[0].x[o] = prod;
        if (c->op == OP_ReduceLogSumExp) c->out[0].x[o] = log(sum);
    }
}

/* Over all axes but the last: BnStats (mean, variance), BnGradReduce (sum dY, sum dY*xhat). */
static void columns(const Call *c) {
    Shape s = c->in[0].s;
    uint64_t nc = (uint64_t)s.dim[s.rank - 1], n = ten_count(&s);
    for (uint64_t k = 0; k < nc; k++) {
        double s0 = 0, s1 = 0, rows = (double)(n / nc);
        for (uint64_t i = k; i < n; i += nc) s0 += c->in[0].x[i];
        for (uint64_t i = k; i < n; i += nc) {
            double v = c->in[0].x[i];
            if (c->op == OP_BnStats)
                s1 += (v - s0 / rows) * (v - s0 / rows) / rows;
            else
                s1 += v * (c->in[1].x[i] - c->in[2].x[k]) * c->in[3].x[k];
        }
        if (c->out[0].x) c->out[0].x[k] = c->op == OP_BnStats ? s0 / rows : s0;
        if (c->out[1].x) c->out[1].x[k] = s1;
    }
}

static void rows_of(const Call *c, const Shape *s, int64_t dflt, uint64_t *rows, uint64_t *n) {
    int64_t axis = call_i(c, A_axis, dflt);
    if (axis < 0) axis += s->rank;
    *rows = *n = 1;
    for (int64_t k = 0; k < s->rank; k++) *(k < axis ? rows : n) *= (uint64_t)s->dim[k];
}

static void layer_norm(const Call *c) {
    uint64_t rows, n;
    rows_of(c, &c->in[0].s, -1, &rows, &n);
    for (uint64_t r = 0; r < rows; r++) {
        const double *x = c->in[0].x + r * n;
        double mean = 0, var = 0;
        for (uint64_t i = 0; i < n; i++) mean += x[i] / (double)n;
        for (uint64_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean) / (double)n;
        double inv = 1 / sqrt(var + call_f(c, A_eps, 1e-5));
        for (uint64_t i = 0; i < n; i++)
            c->out[0].x[r * n + i] = (x[i] - mean) * inv * c->in[1].x[i] +
                                     (c->nin > 2 && c->in[2].x ? c->in[2].x[i] : 0);
        c->out[1].x[r] = mean;
        c->out[2].x[r] = inv;
    }
}

static void layer_norm_grad(const Call *c) {
    uint64_t rows, n;
    rows_of(c, &c->in[1].s, -1, &rows, &n);
    for (uint64_t r = 0; r < rows; r++) {
        const double *dy = c->in[0].x + r * n, *x = c->in[1].x + r * n, *w = c->in[2].x;
        double mean = c->in[3].x[r], inv = c->in[4].x[r], sum = 0, sum_xhat = 0;
        for (uint64_t i = 0; i < n; i++) {
            sum += dy[i] * w[i] / (double)n;
            sum_xhat += dy[i] * w[i] * (x[i] - mean) * inv / (double)n;
        }
        for (uint64_t i = 0; i < n; i++)
            c->out[0].x[r * n + i] = inv * (dy[i] * w[i] - sum - (x[i] - mean) * inv * sum_xhat);
    }
}

static void rms_norm(const Call *c) {
    bool grad = c->op == OP_RmsNormGradX;
    uint64_t rows, n;
    rows_of(c, &c->in[grad].s, -1, &rows, &n);
    for (uint64_t r = 0; r < rows; r++) {
        const double *x = c->in[grad].x + r * n, *w = c->in[grad + 1].x;
        double sum = 0, inv = grad ? c->in[3].x[r] : 0;
        for (uint64_t i = 0; i < n; i++)
            sum += (grad ? c->in[0].x[r * n + i] * w[i] * inv : x[i]) * x[i] / (double)n;
        if (!grad) c->out[1].x[r] = inv = 1 / sqrt(sum + call_f(c, A_eps, 1e-5));
        for (uint64_t i = 0; i < n; i++)
            c->out[0].x[r * n + i] =
                grad ? inv * (c->in[0].x[r * n + i] * w[i] - x[i] * inv * sum) : x[i] * inv * w[i];
    }
}

/* ---- group norm: elements of group g of image b, one after another ---- */
typedef struct {
    uint64_t c, s, per;
    bool last;
} Grouping;

static Grouping grouping(const Call *c, const Shape *x) {
    Grouping q = {.s = 1, .last = call_i(c, A_channels_last, 0) != 0};
    uint32_t axis = q.last ? x->rank - 1 : 1;
    for (uint32_t k = 1; k < x->rank; k++)
        if (k != axis) q.s *= (uint64_t)x->dim[k];
    q.c = (uint64_t)x->dim[axis];
    q.per = q.c / (uint64_t)call_i(c, A_group, 1);
    return q;
}

/* Place of element i of group g; *k its channel. */
static uint64_t group_at(Grouping q, uint64_t b, uint64_t g, uint64_t i, uint64_t *k) {
    uint64_t s = i % q.s;
    *k = g * q.per + i / q.s;
    return q.last ? (b * q.s + s) * q.c + *k : (b * q.c + *k) * q.s + s;
}

static void group_norm(const Call *c) {
    bool grad = c->op == OP_GroupNormGradX;
    const Ten *x = &c->in[grad];
    const double *w = c->in[grad + 1].x;
    Grouping q = grouping(c, &x->s);
    uint64_t groups = q.c / q.per, n = q.per * q.s, k;
    for (uint64_t r = 0; r < (uint64_t)x->s.dim[0] * groups; r++) {
        uint64_t b = r / groups, g = r % groups;
        double mean = 0, var = 0, inv, sum = 0, dot = 0;
        for (uint64_t i = 0; i < n; i++) mean += x->x[group_at(q, b, g, i, &k)] / (double)n;
        for (uint64_t i = 0; i < n; i++)
            var += pow(x->x[group_at(q, b, g, i, &k)] - mean, 2) / (double)n;
        inv = grad ? c->in[4].x[r] : 1 / sqrt(var + call_f(c, A_eps, 1e-5));
        for (uint64_t i = 0; i < n && grad; i++) {
            uint64_t at = group_at(q, b, g, i, &k);
            sum += c->in[0].x[at] * w[k] / (double)n;
            dot += c->in[0].x[at] * w[k] * (x->x[at] - mean) * inv / (double)n;
        }
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = group_at(q, b, g, i, &k);
            double xhat = (x->x[at] - mean) * inv;
            c->out[0].x[at] = grad ? inv * (c->in[0].x[at] * w[k] - sum - xhat * dot)
                                   : xhat * w[k] + c->in[2].x[k];
        }
        if (!grad) c->out[1].x[r] = mean;
        if (!grad) c->out[2].x[r] = inv;
    }
}

/* ---- softmax, losses: [outer, n, inner] ---- */
typedef struct {
    uint64_t outer, n, inner;
} Span;

static Span span_of(const Call *c, const Shape *s, int64_t dflt) {
    int64_t axis = call_i(c, A_axis, dflt);
    if (axis < 0) axis += s->rank;
    Span p = {1, (uint64_t)s->dim[axis], 1};
    for (int64_t k = 0; k < s->rank; k++) {
        if (k < axis) p.outer *= (uint64_t)s->dim[k];
        if (k > axis) p.inner *= (uint64_t)s->dim[k];
    }
    return p;
}

static double log_sum_exp(const double *x, Span p) {
    double max = -INFINITY, sum = 0;
    for (uint64_t k = 0; k < p.n; k++) max = fmax(max, x[k * p.inner]);
    for (uint64_t k = 0; k < p.n; k++) sum += exp(x[k * p.inner] - max);
    return max + log(sum);
}

static void softmax(const Call *c) {
    Span p = span_of(c, &c->in[0].s, -1);
    for (uint64_t o = 0; o < p.outer * p.inner; o++) {
        uint64_t at = o / p.inner * p.n * p.inner + o % p.inner;
        double sum = 0, lse = log_sum_exp(c->in[0].x + at, p);
        for (uint64_t k = 0; k < p.n; k++) {
            uint64_t i = at + k * p.inner;
            double x = c->in[0].x[i];
            if (c->op == OP_Softmax) c->out[0].x[i] = exp(x - lse);
            if (c->op == OP_LogSoftmax) c->out[0].x[i] = x - lse;
            if (c->op == OP_SoftmaxGrad) sum += x * c->in[1].x[i];
            if (c->op == OP_LogSoftmaxGrad) sum += x;
        }
        for (uint64_t k = 0; k < p.n && c->nin == 2; k++) {
            uint64_t i = at + k * p.inner;
            double dy = c->in[0].x[i], y = c->in[1].x[i];
            c->out[0].x[i] = c->op == OP_SoftmaxGrad ? y * (dy - sum) : dy - exp(y) * sum;
        }
    }
}

/* CumSum, ArgMax, ArgMin */
static void along(const Call *c) {
    Span p = span_of(c, &c->in[0].s, 0);
    bool reverse = call_i(c, A_reverse, 0), exclusive = call_i(c, A_exclusive, 0);
    for (uint64_t o = 0; o < p.outer * p.inner; o++) {
        uint64_t at = o / p.inner * p.n * p.inner + o % p.inner, best = 0;
        const double *x = c->in[0].x + at;
        for (uint64_t k = 0; k < p.n; k++) {
            double sum = 0, d = x[k * p.inner] - x[best * p.inner];
            for (uint64_t j = 0; j < p.n; j++)
                if ((reverse ? j > k : j < k) || (j == k && !exclusive)) sum += x[j * p.inner];
            if (c->op == OP_CumSum) c->out[0].x[at + k * p.inner] = sum;
            if (c->op == OP_ArgMin) d = -d;
            if (d > 0 || (d == 0 && call_i(c, A_last, 0))) best = k;
        }
        if (c->op != OP_CumSum) c->out[0].x[o] = (double)best;
    }
}

/* q = target probability of class k */
static double target(const Call *c, Span p, uint64_t k, double label) {
    double e = call_f(c, A_smoothing, 0);
    return e / (double)p.n + ((double)k == label ? 1 - e : 0);
}

static void class_loss(const Call *c) {
    bool grad = c->op == OP_SoftmaxCEGrad || c->op == OP_NllLossGrad;
    bool is_log = c->op == OP_NllLoss || c->op == OP_NllLossGrad;
    const Ten *x = &c->in[grad], *labels = &c->in[grad + 1];
    Span p = span_of(c, &x->s, 1);
    const Attr *ignore = attr_find(c->attr, c->nattr, A_ignore_index);
    double count = 0, loss = 0;
    for (uint64_t o = 0; o < p.outer * p.inner; o++)
        count += !ignore || labels->x[o] != (double)ignore->i[0];
    for (uint64_t o = 0; o < p.outer * p.inner; o++) {
        uint64_t at = o / p.inner * p.n * p.inner + o % p.inner;
        bool skip = ignore && labels->x[o] == (double)ignore->i[0];
        double lse = is_log ? 0 : log_sum_exp(x->x + at, p);
        for (uint64_t k = 0; k < p.n; k++) {
            uint64_t i = at + k * p.inner;
            double q = skip ? 0 : target(c, p, k, labels->x[o]);
            double prob = is_log || skip ? 0 : exp(x->x[i] - lse);
            loss -= q * (x->x[i] - lse) / count;
            if (grad) c->out[0].x[i] = c->in[0].x[0] * (prob - q) / count;
        }
    }
    if (!grad) c->out[0].x[0] = loss;
}

/* ---- dispatch ---- */
void interp_call(const Call *c) {
    if (op_def(c->op)->flags & OPF_EW) {
        elementwise(c);
        return;
    }
    switch (c->op) {
    case OP_RandomUniform:
    case OP_RandomNormal: {
        bool normal = c->op == OP_RandomNormal;
        for (uint64_t i = 0; i < ten_count(&c->out[0].s); i++)
            c->out[0].x[i] =
                call_f(c, A_beta, 0) +
                call_f(c, A_alpha, 1) *
                    (normal ? dtrt_normal(1, 0, c->key, i) : (double)dtrt_uniform(1, 0, c->key, i));
        return;
    }
    case OP_ReduceSum: reduce_sum(c); return;
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd:
    case OP_ReduceLogSumExp:
    case OP_ReduceProdGrad: fold(c); return;
    case OP_CumSum:
    case OP_ArgMax:
    case OP_ArgMin: along(c); return;
    case OP_BnStats:
    case OP_BnGradReduce: columns(c); return;
    case OP_LayerNorm: layer_norm(c); return;
    case OP_LayerNormGradX: layer_norm_grad(c); return;
    case OP_GroupNorm:
    case OP_GroupNormGradX: group_norm(c); return;
    case OP_RmsNorm:
    case OP_RmsNormGradX: rms_norm(c); return;
    case OP_Softmax:
    case OP_LogSoftmax:
    case OP_SoftmaxGrad:
    case OP_LogSoftmaxGrad: softmax(c); return;
    case OP_SoftmaxCE:
    case OP_SoftmaxCEGrad:
    case OP_NllLoss:
    case OP_NllLossGrad: class_loss(c); return;
    default: break;
    }
    if (interp_window(c) || interp_movement(c) || interp_index(c) || interp_resize(c) ||
        interp_attention(c))
        return;
    unknown(c->op);
}

/* t broadcast to shape s, in memory of its own */
static Ten expanded(Arena *a, const Ten *t, const Shape *s) {
    Ten e = {*s, ARENA_ARRAY(a, double, ten_count(s))};
    int64_t at[IR_MAX_RANK];
    for (uint64_t i = 0; i < ten_count(s); i++) {
        ten_index(s, i, at);
        e.x[i] = t->x[ten_broadcast(&t->s, s, at)];
    }
    return e;
}

static void fused(const Node *n, const Ten *in, Ten *out) {
    Arena *a = arena_new();
    const FusedBody *b = n->body;
    Ten *res = ARENA_ARRAY(a, Ten, 2 * (uint64_t)b->ninst); /* two per instruction */
    for (uint32_t k = 0; k < b->ninst; k++) {
        const FusedInst *p = &b->inst[k];
        bool ew = op_def(p->op)->flags & OPF_EW;
        Ten arg[8];
        for (uint32_t i = 0; i < p->narg; i++) {
            arg[i] = p->arg[i] < n->nin ? in[p->arg[i]] : res[2 * (p->arg[i] - n->nin)];
            if (ew || i == 0 || (i == 1 && p->op == OP_BnGradReduce))
                arg[i] = expanded(a, &arg[i], &b->space);
        }
        for (uint32_t r = 0; r < 2; r++) {
            res[2 * k + r].s = b->space;
            res[2 * k + r].x = ARENA_ARRAY(a, double, ten_count(&b->space));
        }
        interp_call(&(Call){p->op, p->nattr, p->narg, 2, p->attr, arg, &res[2 * k], p->key});
    }
    for (uint32_t k = 0; k < n->nout; k++)
        if (out[k].x)
            memcpy(out[k].x, res[2 * b->out_inst[k] + b->out_res[k]].x,
                   ten_count(&out[k].s) * sizeof(double));
    arena_free(a);
}

void interp_run(const Graph *g, Ten *val, NodeId from, NodeId to) {
    for (NodeId n = from; n < to; n++) {
        const Node *nd = &g->node[n];
        if (op_class(nd) == CLS_EFFECT) continue;
        Ten in[MAX_IN], out[8];
        assert(nd->nin <= MAX_IN && nd->nout <= 8);
        for (uint32_t i = 0; i < nd->nin; i++)
            in[i] = nd->in[i] == NO_ID ? (Ten){0} : val[nd->in[i]];
        for (uint32_t k = 0; k < nd->nout; k++)
            out[k] = nd->out[k] == NO_ID ? (Ten){0} : val[nd->out[k]];
        if (nd->op == OP_Fused)
            fused(nd, in, out);
        else
            interp_call(&(Call){nd->op, nd->nattr, nd->nin, nd->nout, nd->attr, in, out, nd->key});
    }
}

/* Data may lie unaligned in a mapped file. */
static double read_data(DType d, const void *bytes, uint64_t i) {
    union {
        float f;
        double d;
        int64_t l;
        int32_t i;
        uint8_t b;
    } u;
    memcpy(&u, (const char *)bytes + i * dtype_size(d), dtype_size(d));
    switch (d) {
    case DT_F32: return (double)u.f;
    case DT_F64: return u.d;
    case DT_I64: return (double)u.l;
    case DT_I32: return u.i;
    default: return u.b;
    }
}

Ten *interp_new(Arena *a, const Graph *g) {
    Ten *val = ARENA_ARRAY(a, Ten, g->nvalue);
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        uint64_t n = ten_count(&x->shape);
        val[v] = (Ten){x->shape, ARENA_ARRAY(a, double, n + 1)};
        for (uint64_t i = 0; i < n && x->data; i++)
            val[v].x[i] = read_data(x->dtype, x->data->bytes, i);
    }
    return val;
}
