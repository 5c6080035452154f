/* elementwise.c - operators that compute each element of the output from the elements of the
 * operands at the same place, after numpy broadcasting. Each is one line: an expression in the
 * operands a, b, c, ... and the constants p0, p1 (attributes), which the generated loops, fusion
 * and every other target use. Forward and gradient stand together; a gradient operator gets dY
 * first.
 *
 * Values and gradients follow ONNX and PyTorch, NaN and infinities included: comparisons are
 * written so that a NaN passes through, derivatives at kinks are PyTorch's (0 for ReLU and |x|; Min
 * and Max halve the gradient of a tie). Gradients read outputs rather than inputs where they can: a
 * convolution's output then dies at its activation. */
#include "ew.h"

#include <math.h>

/* ---- one operand, gradient composed of other operators ---- */
/* (-x)' = -1 */
static bool grad_Neg(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = mk1(c, n, OP_Neg, dout[0]);
    return true;
}
EW(Neg, 1, 1, "-a", grad_Neg)

/* exp' = exp = Y */
static bool grad_Exp(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = mk2(c, n, OP_Mul, dout[0], c->g->node[n].out[0]);
    return true;
}
EW(Exp, 1, 0, "expf(a)", grad_Exp)

/* log' = 1/x */
static bool grad_Log(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = mk2(c, n, OP_Div, dout[0], c->g->node[n].in[0]);
    return true;
}
EW(Log, 1, 0, "logf(a)", grad_Log)

/* (1/x)' = -Y*Y */
static bool grad_Reciprocal(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (!grad_wants(c, n, 0)) return true;
    ValueId y = c->g->node[n].out[0];
    din[0] = mk1(c, n, OP_Neg, mk2(c, n, OP_Mul, mk2(c, n, OP_Mul, dout[0], y), y));
    return true;
}
EW(Reciprocal, 1, 1, "1.0f / a", grad_Reciprocal)

/* sin' = cos */
static bool grad_Sin(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (!grad_wants(c, n, 0)) return true;
    din[0] = mk2(c, n, OP_Mul, dout[0], mk1(c, n, OP_Cos, c->g->node[n].in[0]));
    return true;
}
EW(Sin, 1, 0, "sinf(a)", grad_Sin)

/* cos' = -sin */
static bool grad_Cos(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (!grad_wants(c, n, 0)) return true;
    ValueId s = mk1(c, n, OP_Sin, c->g->node[n].in[0]);
    din[0] = mk1(c, n, OP_Neg, mk2(c, n, OP_Mul, dout[0], s));
    return true;
}
EW(Cos, 1, 0, "cosf(a)", grad_Cos)

EW(Floor, 1, 1, "floorf(a)", no_grad)
EW(Ceil, 1, 1, "ceilf(a)", no_grad)

/* (alpha*x + beta)' = alpha */
static bool grad_Scale(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = mk_scale(c, n, dout[0], ir_get_f(&c->g->node[n], A_alpha, 1));
    return true;
}
EW2(Scale, 1, 1, "a * p0 + p1", grad_Scale, A_alpha, 1, A_beta, 0)

/* ---- one operand, gradient an operator of its own ---- */
/* 0 - a, not -a: |-0| is 0 */
GRAD_OF_X(Abs)
EW(Abs, 1, 1, "a > 0 ? a : 0 - a", grad_Abs)
EW(AbsGrad, 2, 1, "b > 0 ? a : b < 0 ? -a : 0", NULL)

/* dY / (2*Y) */
GRAD_OF_Y(Sqrt)
EW(Sqrt, 1, 1, "sqrtf(a)", grad_Sqrt)
EW(SqrtGrad, 2, 1, "a * 0.5f / b", NULL)

/* 2/sqrt(pi) * exp(-x*x) */
GRAD_OF_X(Erf)
EW(Erf, 1, 0, "erff(a)", grad_Erf)
EW(ErfGrad, 2, 0, "a * (1.12837917f * expf(-b * b))", NULL)

GRAD_OF_Y(Relu)
EW(Relu, 1, 1, "a < 0 ? 0 : a", grad_Relu)
EW(ReluGrad, 2, 1, "b <= 0 ? 0 : a", NULL)

GRAD_OF_X(LeakyRelu)
EW1(LeakyRelu, 1, 1, "a < 0 ? p0 * a : a", grad_LeakyRelu, A_alpha, 0.01)
EW1(LeakyReluGrad, 2, 1, "b > 0 ? a : a * p0", NULL, A_alpha, 0.01)

/* x <= 0: alpha*exp(x) = Y + alpha. The sign of x shows in Y only when alpha >= 0. */
static bool grad_Elu(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node *nd = &c->g->node[n];
    double alpha = ir_get_f(nd, A_alpha, 1);
    if (alpha < 0)
        return diag_error(c->d, ir_place(c->g, n, NO_ID),
                          "no gradient for a negative alpha: expected alpha >= 0, found %g", alpha);
    return unary(c, n, dout[0], OP_EluGrad, nd->out[0], din);
}
EW1(Elu, 1, 0, "a < 0 ? p0 * expm1f(a) : a", grad_Elu, A_alpha, 1)
EW1(EluGrad, 2, 1, "b <= 0 ? a * (b + p0) : a", NULL, A_alpha, 1)

/* Stable as it stands: expf(-a) = inf gives 0. */
GRAD_OF_Y(Sigmoid)
EW(Sigmoid, 1, 0, "1.0f / (1.0f + expf(-a))", grad_Sigmoid)
EW(SigmoidGrad, 2, 1, "a * b * (1.0f - b)", NULL)

GRAD_OF_Y(Tanh)
EW(Tanh, 1, 0, "tanhf(a)", grad_Tanh)
EW(TanhGrad, 2, 1, "a * (1.0f - b * b)", NULL)

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)); its derivative is the sigmoid */
GRAD_OF_X(Softplus)
EW(Softplus, 1, 0, "fmaxf(a, 0.0f) + log1pf(expf(-fabsf(a)))", grad_Softplus)
EW(SoftplusGrad, 2, 0, "a / (1.0f + expf(-b))", NULL)

/* x * hardsigmoid(x), alpha = 1/6, beta = 1/2 */
GRAD_OF_X(HardSwish)
EW(HardSwish, 1, 1, "a * fminf(fmaxf(a * 0.166666667f + 0.5f, 0.0f), 1.0f)", grad_HardSwish)
EW(HardSwishGrad, 2, 1, "b < -3.0f ? 0 : b <= 3.0f ? a * (b * 0.333333333f + 0.5f) : a", NULL)

/* The kinks lie where Y is 0 or 1 (PyTorch: gradient 0 there). */
GRAD_OF_Y(HardSigmoid)
EW2(HardSigmoid, 1, 1, "p0 * a + p1 < 0 ? 0 : p0 * a + p1 > 1.0f ? 1.0f : p0 * a + p1",
    grad_HardSigmoid, A_alpha, 0.2, A_beta, 0.5)
EW2(HardSigmoidGrad, 2, 1, "b > 0 && b < 1.0f ? a * p0 : 0", NULL, A_alpha, 0.2, A_beta, 0.5)

/* Passes where min <= x <= max. */
GRAD_OF_X(Clip)
EW2(Clip, 1, 1, "a < p0 ? p0 : a > p1 ? p1 : a", grad_Clip, A_min, -INFINITY, A_max, INFINITY)
EW2(ClipGrad, 2, 1, "b >= p0 && b <= p1 ? a : 0", NULL, A_min, -INFINITY, A_max, INFINITY)

/* 0.5*x*(1 + erf(x/sqrt 2)); derivative Phi(x) + x*phi(x) */
GRAD_OF_X(Gelu)
EW(Gelu, 1, 0, "0.5f * a * (1.0f + erff(a * 0.707106781f))", grad_Gelu)
EW(GeluGrad, 2, 0,
   "a * (0.5f * (1.0f + erff(b * 0.707106781f)) + b * (0.398942280f * expf(-0.5f * b * b)))", NULL)

/* x*s(x); derivative s*(1 + x*(1 - s)), with 1 - s(x) = s(-x) */
GRAD_OF_X(Silu)
EW(Silu, 1, 0, "a / (1.0f + expf(-a))", grad_Silu)
EW(SiluGrad, 2, 0, "a / (1.0f + expf(-b)) * (1.0f + b / (1.0f + expf(b)))", NULL)

/* a^alpha: alpha*x^(alpha-1). PyTorch: 0 for alpha = 0 whatever x is. */
GRAD_OF_X(PowScalar)
EW1(PowScalar, 1, 0, "p0 == 2.0f ? a * a : p0 == 3.0f ? a * a * a : powf(a, p0)", grad_PowScalar,
    A_alpha, 1)
EW1(PowScalarGrad, 2, 0, "p0 == 2.0f ? a * 2.0f * b : p0 == 0 ? 0 : a * p0 * powf(b, p0 - 1.0f)",
    NULL, A_alpha, 1)

/* ---- one operand, changed type or shape ---- */
static bool infer_cast(InferCtx *c, NodeId n) {
    int64_t to = ir_get_i(&c->g->node[n], A_to, DT_COUNT);
    if (to != DT_F32 && to != DT_I64 && to != DT_I32 && to != DT_BOOL)
        return op_error(c, n, NO_ID, "expected attribute to of f32, i64, i32 or bool");
    Shape s = op_input(c->g, n, 0)->shape;
    return op_out(c, n, 0, (DType)to, &s);
}
/* Asked for only between float types, where it is the identity. */
static bool grad_Cast(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = dout[0];
    return true;
}
/* p0 is the DType; DT_BOOL is != 0. Assignment to the output's type does the rest. */
_Static_assert(DT_BOOL == 5, "the expression of Cast names it");
EW_FULL(Cast, 1, 1, "p0 == 5.0f ? (a != 0) : a", grad_Cast, A_to, 0, A_COUNT, 0, DT_COUNT,
        infer_cast)

static bool infer_expand(InferCtx *c, NodeId n) {
    Shape in = op_input(c->g, n, 0)->shape, to, both;
    TRY(op_need_shape_attr(c, n, &to));
    if (!shape_broadcast(&in, &to, &both) || !shape_eq(&both, &to))
        return op_error(c, n, 0, "expected a shape that %s broadcasts to, found %s",
                        shape_str(c->d->arena, &in), shape_str(c->d->arena, &to));
    return op_out(c, n, 0, op_input(c->g, n, 0)->dtype, &to);
}
static bool grad_Expand(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, dout[0], 0);
    return true;
}
EW_FULL(Expand, 1, 1, "a", grad_Expand, A_COUNT, 0, A_COUNT, 0, DT_COUNT, infer_expand)

/* ---- two operands ---- */
static bool grad_Add(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    for (uint32_t i = 0; i < 2; i++)
        if (grad_wants(c, n, i)) din[i] = grad_fit(c, n, dout[0], i);
    return true;
}
EW(Add, 2, 1, "a + b", grad_Add)

static bool grad_Sub(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, dout[0], 0);
    if (grad_wants(c, n, 1)) din[1] = mk1(c, n, OP_Neg, grad_fit(c, n, dout[0], 1));
    return true;
}
EW(Sub, 2, 1, "a - b", grad_Sub)

/* dA = dY*B, dB = dY*A */
static bool grad_Mul(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId *in = c->g->node[n].in;
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, mk2(c, n, OP_Mul, dout[0], in[1]), 0);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk2(c, n, OP_Mul, dout[0], in[0]), 1);
    return true;
}
EW(Mul, 2, 1, "a * b", grad_Mul)

/* dA = dY/B, dB = -dY*Y/B */
static bool grad_Div(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId b = c->g->node[n].in[1], y = c->g->node[n].out[0];
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, mk2(c, n, OP_Div, dout[0], b), 0);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk3(c, n, OP_DivGradB, dout[0], b, y), 1);
    return true;
}
EW(Div, 2, 1, "a / b", grad_Div)
EW(DivGradB, 3, 1, "-a * c / b", NULL)

/* dA = dY*b*a^(b-1), dB = dY*Y*log a */
static bool grad_Pow(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId a = c->g->node[n].in[0], b = c->g->node[n].in[1], y = c->g->node[n].out[0];
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, mk3(c, n, OP_PowGrad, dout[0], a, b), 0);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk3(c, n, OP_PowGradB, dout[0], a, y), 1);
    return true;
}
EW(Pow, 2, 0, "powf(a, b)", grad_Pow)
EW(PowGrad, 3, 0, "c == 0 ? 0 : a * c * powf(b, c - 1.0f)", NULL)
EW(PowGradB, 3, 0, "b > 0 ? a * c * logf(b) : b <= 0 ? 0 : b", NULL)

/* Where both operands are equal each gets half of the gradient. A NaN gets none. */
static bool grad_MinMax(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId a = c->g->node[n].in[0], b = c->g->node[n].in[1], y = c->g->node[n].out[0];
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, mk4(c, n, OP_EqSelect, dout[0], a, b, y), 0);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk4(c, n, OP_EqSelect, dout[0], b, a, y), 1);
    return true;
}
/* The sum carries a NaN of either operand. */
EW(Min, 2, 1, "a < b ? a : a >= b ? b : a + b", grad_MinMax)
EW(Max, 2, 1, "a > b ? a : a <= b ? b : a + b", grad_MinMax)
EW(EqSelect, 4, 1, "b == d ? (c == d ? 0.5f * a : a) : 0", NULL)

EW_BOOL(Equal, 2, "a == b")
EW_BOOL(Less, 2, "a < b")
EW_BOOL(Greater, 2, "a > b")
EW_BOOL(Not, 1, "!a")
EW_BOOL(And, 2, "a && b")
EW_BOOL(Or, 2, "a || b")

/* ---- selection by a bool, the first operand ---- */
static bool grad_Where(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId cond = c->g->node[n].in[0];
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk2(c, n, OP_SelectA, cond, dout[0]), 1);
    if (grad_wants(c, n, 2)) din[2] = grad_fit(c, n, mk2(c, n, OP_SelectB, cond, dout[0]), 2);
    return true;
}
EW(Where, 3, 1, "a ? b : c", grad_Where)
EW(SelectA, 2, 1, "a ? b : 0", NULL)
EW(SelectB, 2, 1, "a ? 0 : b", NULL)

/* ---- batch norm: X[.., C]; mean, invstd, scale, bias [C]. The sums are in reduce.c ---- */
EW1(InvStd, 1, 1, "1.0f / sqrtf(a + p0)", NULL, A_eps, 1e-5)

/* xhat = (X - mean)*invstd, dbias = sum dY, dscale = sum dY*xhat. With statistics of this batch
 * (mean made by BnStats of the same X) the gradient through mean and variance is part of
 * dX = scale*invstd*(dY - (dbias + xhat*dscale)/count), so that nothing flows into mean and invstd;
 * with running statistics dX = scale*invstd*dY. Ioffe and Szegedy, ICML 2015, section 3. */
static bool grad_BnApply(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const ValueId *in = g->node[n].in;
    NodeId stats = g->value[in[1]].def;
    bool batch = stats != NO_ID && g->node[stats].op == OP_BnStats && g->node[stats].in[0] == in[0];
    ValueId sum_dy = NO_ID, sum_dy_xhat = NO_ID;
    if (grad_wants(c, n, 3) || grad_wants(c, n, 4) || (batch && grad_wants(c, n, 0))) {
        ValueId r[4] = {dout[0], in[0], in[1], in[2]};
        sum_dy = op_make(g, BWD, OP_BnGradReduce, grad_name(c, n), 4, r);
        sum_dy_xhat = g->node[g->value[sum_dy].def].out[1];
    }
    if (grad_wants(c, n, 3)) din[3] = sum_dy_xhat;
    if (grad_wants(c, n, 4)) din[4] = sum_dy;
    if (!grad_wants(c, n, 0)) return true;
    if (batch) {
        double rows = (double)value_count(g, in[0]) / (double)value_count(g, in[1]);
        ValueId x[7] = {dout[0], in[0], in[1], in[2], in[3], sum_dy, sum_dy_xhat};
        Attr at = attr_f(g->arena, A_scale, 1 / rows);
        din[0] = op_make_attr(g, BWD, OP_BnGradX, grad_name(c, n), 7, x, &at, 1);
    } else {
        din[0] = mk2(c, n, OP_Mul, dout[0], mk2(c, n, OP_Mul, in[3], in[2]));
    }
    return true;
}
EW(BnApply, 5, 1, "(a - b) * (c * d) + e", grad_BnApply)
EW1(BnGradX, 7, 1, "e * d * (a - p0 * (f + (b - c) * d * g))", NULL, A_scale, 1)

/* ---- binary cross-entropy of a logit z and a target t ---- */
/* dz = sigmoid(z) - t, dt = -z */
static bool grad_BceLogits(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId z = c->g->node[n].in[0], t = c->g->node[n].in[1];
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, mk3(c, n, OP_BceLogitsGrad, dout[0], z, t), 0);
    if (grad_wants(c, n, 1))
        din[1] = grad_fit(c, n, mk1(c, n, OP_Neg, mk2(c, n, OP_Mul, dout[0], z)), 1);
    return true;
}
EW(BceLogits, 2, 0, "fmaxf(a, 0.0f) - a * b + log1pf(expf(-fabsf(a)))", grad_BceLogits)
EW(BceLogitsGrad, 3, 0, "a * (1.0f / (1.0f + expf(-b)) - c)", NULL)
