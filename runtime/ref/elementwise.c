/* elementwise.c - reference of the operators that work element by element, with numpy broadcasting,
 * and of Dropout. Values at kinks and of NaN follow ONNX; see compiler/ops/elementwise.c for the
 * kernels' side. */
#include "ref.h"

#include <string.h>

#include "dtrt_math.h"

typedef struct {
    double a, b, c; /* operands */
    double p, q;    /* constants */
    DtrtType type;  /* of the result */
} El;

#define F(name, expr)                                                                              \
    static double el_##name(El e) {                                                                \
        return expr;                                                                               \
    }
F(Neg, -e.a)
F(Abs, fabs(e.a))
F(Exp, exp(e.a))
F(Log, log(e.a))
F(Sqrt, sqrt(e.a))
F(Reciprocal, 1 / e.a)
F(Erf, erf(e.a))
F(Sin, sin(e.a))
F(Cos, cos(e.a))
F(Floor, floor(e.a))
F(Ceil, ceil(e.a))
F(Relu, e.a < 0 ? 0 : e.a)
F(LeakyRelu, e.a < 0 ? e.p * e.a : e.a)
F(Elu, e.a < 0 ? e.p * expm1(e.a) : e.a)
F(Sigmoid, 1 / (1 + exp(-e.a)))
F(Tanh, tanh(e.a))
F(Softplus, fmax(e.a, 0) + log1p(exp(-fabs(e.a))))
F(HardSwish, e.a *fmin(fmax(e.a / 6 + 0.5, 0), 1))
F(HardSigmoid, fmin(fmax(e.p *e.a + e.q, 0), 1))
F(Clip, e.a<e.p ? e.p : e.a> e.q ? e.q : e.a)
F(Scale, e.a *e.p + e.q)
F(Gelu, 0.5 * e.a * (1 + erf(e.a * 0.70710678118654752440)))
F(Silu, e.a / (1 + exp(-e.a)))
F(PowScalar, pow(e.a, e.p))
F(Expand, e.a)
F(Add, e.a + e.b)
F(Sub, e.a - e.b)
F(Mul, e.a *e.b)
F(Pow, pow(e.a, e.b))
F(Min, isnan(e.a) || isnan(e.b) ? NAN : fmin(e.a, e.b))
F(Max, isnan(e.a) || isnan(e.b) ? NAN : fmax(e.a, e.b))
F(Equal, e.a == e.b)
F(Less, e.a < e.b)
F(Greater, e.a > e.b)
F(Not, e.a == 0)
F(And, e.a != 0 && e.b != 0)
F(Or, e.a != 0 || e.b != 0)
F(Where, e.a != 0 ? e.b : e.c)

F(Tan, tan(e.a))
F(Asin, asin(e.a))
F(Acos, acos(e.a))
F(Atan, atan(e.a))
F(Sinh, sinh(e.a))
F(Cosh, cosh(e.a))
F(Asinh, asinh(e.a))
F(Acosh, acosh(e.a))
F(Atanh, atanh(e.a))
F(Round, rint(e.a))
F(Sign, e.a > 0 ? 1 : e.a < 0 ? -1 : e.a)
F(Mod, fmod(e.a, e.b))
F(IntDiv, e.b == 0 ? 0 : trunc(e.a / e.b))
F(IntRem, e.b == 0 ? 0 : fmod(e.a, e.b))
F(IntMod, e.b == 0 ? 0 : e.a - e.b * floor(e.a / e.b))
F(ShiftLeft, e.b < 0 || e.b >= e.p ? 0 : fmod(e.a * exp2(e.b), exp2(e.p)))
F(ShiftRight, e.b < 0 || e.b >= e.p ? 0 : floor(e.a * exp2(-e.b)))
F(Root, pow(e.a, e.p))
F(IsNaN, isnan(e.a))
F(IsInf, isinf(e.a) && (e.a < 0 ? e.p != 0 : e.q != 0))
F(Xor, (e.a != 0) != (e.b != 0))
F(EqMask, e.a == e.b)
F(Celu, e.a < 0 ? e.p * expm1(e.a / e.p) : e.a)
F(Mish, e.a *tanh(fmax(e.a, 0) + log1p(exp(-fabs(e.a)))))
F(Softsign, e.a / (1 + fabs(e.a)))
F(ThresholdedRelu, e.a <= e.p ? 0 : e.a)
F(Shrink, e.a<-e.p ? e.a + e.q : e.a> e.p ? e.a - e.q : e.a == e.a ? 0 : e.a)
F(PRelu, e.a < 0 ? e.a * e.b : e.a)
F(GeluTanh, 0.5 * e.a * (1 + tanh(0.79788456080286535588 * (e.a + 0.044715 * e.a * e.a * e.a))))

static bool is_int(DtrtType t) {
    return t == DTRT_I64 || t == DTRT_I32;
}
F(Div, is_int(e.type) ? trunc(e.a / e.b) : e.a / e.b)
F(Cast, e.type == DTRT_BOOL ? e.a != 0 : is_int(e.type) ? trunc(e.a) : e.a)

typedef struct {
    const char *op;
    double (*f)(El);
    const char *p, *q; /* attributes; NULL: none */
    double dp, dq;     /* their defaults */
} Row;

#define E0(op)                                                                                     \
    { #op, el_##op, NULL, NULL, 0, 0 }
static const Row table[] = {
    E0(Neg),
    E0(Abs),
    E0(Exp),
    E0(Log),
    E0(Sqrt),
    E0(Reciprocal),
    E0(Erf),
    E0(Sin),
    E0(Cos),
    E0(Floor),
    E0(Ceil),
    E0(Relu),
    E0(Sigmoid),
    E0(Tanh),
    E0(Gelu),
    E0(Silu),
    E0(Softplus),
    E0(HardSwish),
    E0(Expand),
    E0(Add),
    E0(Sub),
    E0(Mul),
    E0(Div),
    E0(Pow),
    E0(Min),
    E0(Max),
    E0(Equal),
    E0(Less),
    E0(Greater),
    E0(Not),
    E0(And),
    E0(Or),
    E0(Where),
    E0(Cast),
    E0(Tan),
    E0(Asin),
    E0(Acos),
    E0(Atan),
    E0(Sinh),
    E0(Cosh),
    E0(Asinh),
    E0(Acosh),
    E0(Atanh),
    E0(Round),
    E0(Sign),
    E0(Mod),
    E0(IntDiv),
    E0(IntRem),
    E0(IntMod),
    E0(IsNaN),
    E0(Xor),
    E0(EqMask),
    E0(Mish),
    E0(Softsign),
    E0(PRelu),
    E0(GeluTanh),
    {"ShiftLeft", el_ShiftLeft, "k", NULL, 64, 0},
    {"ShiftRight", el_ShiftRight, "k", NULL, 64, 0},
    {"Root", el_Root, "alpha", NULL, 0.5, 0},
    {"IsInf", el_IsInf, "min", "max", 1, 1},
    {"Celu", el_Celu, "alpha", NULL, 1, 0},
    {"ThresholdedRelu", el_ThresholdedRelu, "alpha", NULL, 1, 0},
    {"Shrink", el_Shrink, "alpha", "beta", 0.5, 0},
    {"LeakyRelu", el_LeakyRelu, "alpha", NULL, 0.01, 0},
    {"Elu", el_Elu, "alpha", NULL, 1, 0},
    {"HardSigmoid", el_HardSigmoid, "alpha", "beta", 0.2, 0.5},
    {"Clip", el_Clip, "min", "max", -INFINITY, INFINITY},
    {"Scale", el_Scale, "alpha", "beta", 1, 0},
    {"PowScalar", el_PowScalar, "alpha", NULL, 1, 0},
};

static const Row *find_row(const char *op) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].op, op)) return &table[i];
    return NULL;
}

/* Strides of an operand along the axes of the result; 0 where it broadcasts. */
static void strides(const DtrtRefValue *x, const DtrtRefValue *y, int64_t *stride) {
    int64_t s = 1;
    for (int i = y->rank - 1; i >= 0; i--) {
        int k = i - (y->rank - x->rank);
        stride[i] = k < 0 || x->dim[k] == 1 ? 0 : s;
        if (k >= 0) s *= x->dim[k];
    }
}

static uint64_t operand_index(const DtrtRefValue *y, const int64_t *stride, uint64_t i) {
    uint64_t at = 0;
    for (int k = y->rank - 1; k >= 0; k--) {
        at += i % (uint64_t)y->dim[k] * (uint64_t)stride[k];
        i /= (uint64_t)y->dim[k];
    }
    return at;
}

static void run_elementwise(const RefCall *c) {
    const Row *row = find_row(c->n->op);
    const DtrtRefValue *y = dtrt_ref_out_shape(c, 0);
    const double *x[3] = {dtrt_ref_in(c, 0), dtrt_ref_in(c, 1), dtrt_ref_in(c, 2)};
    double p = row->p ? dtrt_ref_f(c->n, row->p, row->dp) : 0;
    double q = row->q ? dtrt_ref_f(c->n, row->q, row->dq) : 0;
    int64_t n = (int64_t)dtrt_ref_count(y), stride[3][DTRT_MAX_RANK] = {{0}};
    bool whole[3] = {false};
    for (uint32_t k = 0; k < 3; k++) {
        if (!x[k]) continue;
        strides(dtrt_ref_in_shape(c, k), y, stride[k]);
        whole[k] = (int64_t)dtrt_ref_count(dtrt_ref_in_shape(c, k)) == n;
    }
#pragma omp parallel for if (n > 4096)
    for (int64_t i = 0; i < n; i++) {
        double v[3] = {0};
        for (int k = 0; k < 3; k++)
            if (x[k])
                v[k] = x[k][whole[k] ? (uint64_t)i : operand_index(y, stride[k], (uint64_t)i)];
        c->y[0][i] = row->f((El){v[0], v[1], v[2], p, q, y->type});
    }
}

/* The program numbers elements in the order in which it keeps the tensor: with attribute
 * channels_last the channel axis (1) comes last there. */
static uint64_t dropout_index(const DtrtRefValue *x, bool channels_last, uint64_t i) {
    if (!channels_last) return i;
    uint64_t channels = (uint64_t)x->dim[1], inner = 1;
    for (int k = 2; k < x->rank; k++) inner *= (uint64_t)x->dim[k];
    uint64_t image = i / (channels * inner), channel = i / inner % channels, pixel = i % inner;
    return (image * inner + pixel) * channels + channel;
}

static void run_dropout(const RefCall *c) {
    const DtrtRefValue *s = dtrt_ref_in_shape(c, 0);
    const double *x = dtrt_ref_in(c, 0);
    float ratio = (float)dtrt_ref_f(c->n, "ratio", 0.5);
    bool last = dtrt_ref_i(c->n, "channels_last", 0) && s->rank > 2;
    uint64_t n = dtrt_ref_count(s);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = dropout_index(s, last, i);
        bool kept = dtrt_dropout(1, ratio, c->r->seed, c->r->step, c->n->key, index) != 0;
        c->y[0][i] = kept ? x[i] / (1 - (double)ratio) : 0;
    }
}

static void run_bernoulli(const RefCall *c) {
    const DtrtRefValue *s = dtrt_ref_in_shape(c, 0);
    const double *p = dtrt_ref_in(c, 0);
    bool last = dtrt_ref_i(c->n, "channels_last", 0) && s->rank > 2;
    uint64_t n = dtrt_ref_count(s);
    for (uint64_t i = 0; i < n; i++)
        c->y[0][i] = (double)dtrt_uniform(c->r->seed, c->r->step, c->n->key,
                                          dropout_index(s, last, i)) < p[i];
}

static void run_random(const RefCall *c) {
    double scale = dtrt_ref_f(c->n, "alpha", 1), shift = dtrt_ref_f(c->n, "beta", 0);
    bool normal = !strcmp(c->n->op, "RandomNormal");
    uint64_t n = dtrt_ref_count(dtrt_ref_out_shape(c, 0));
    for (uint64_t i = 0; i < n; i++) {
        double r = normal ? dtrt_normal(c->r->seed, c->r->step, c->n->key, i)
                          : (double)dtrt_uniform(c->r->seed, c->r->step, c->n->key, i);
        c->y[0][i] = scale * r + shift;
    }
}

RefOp *dtrt_ref_elementwise(const char *op) {
    if (!strcmp(op, "Dropout")) return run_dropout;
    if (!strcmp(op, "Bernoulli")) return run_bernoulli;
    if (!strcmp(op, "RandomNormal") || !strcmp(op, "RandomUniform")) return run_random;
    return find_row(op) ? run_elementwise : NULL;
}
