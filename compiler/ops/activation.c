/* activation.c - activation functions beyond those of elementwise.c, written in the same way. Selu
 * is Elu times a constant; the importer says so. */
#include "ew.h"

/* x < 0: alpha*(exp(x/alpha) - 1), whose derivative is Y/alpha + 1 */
GRAD_OF_Y(Celu)
EW1(Celu, 1, 0, "a < 0 ? p0 * expm1f(a / p0) : a", grad_Celu, A_alpha, 1)
EW1(CeluGrad, 2, 1, "b <= 0 ? a * (b / p0 + 1.0f) : a", NULL, A_alpha, 1)

/* x*w, w = tanh(softplus(x)); derivative w + x*sigmoid(x)*(1 - w^2). Misra, BMVC 2020. */
#define SOFTPLUS(x) "(fmaxf(" x ", 0.0f) + log1pf(expf(-fabsf(" x "))))"
#define MISH_W(x) "tanhf(" SOFTPLUS(x) ")"
GRAD_OF_X(Mish)
EW(Mish, 1, 0, "a * " MISH_W("a"), grad_Mish)
EW(MishGrad, 2, 0,
   "a * (" MISH_W("b") " + b / (1.0f + expf(-b)) * (1.0f - " MISH_W("b") " * " MISH_W("b") "))",
   NULL)

/* x/(1 + |x|); derivative (1 - |Y|)^2 */
GRAD_OF_Y(Softsign)
EW(Softsign, 1, 1, "a / (1.0f + fabsf(a))", grad_Softsign)
EW(SoftsignGrad, 2, 1, "a * (1.0f - fabsf(b)) * (1.0f - fabsf(b))", NULL)

GRAD_OF_X(ThresholdedRelu)
EW1(ThresholdedRelu, 1, 1, "a <= p0 ? 0 : a", grad_ThresholdedRelu, A_alpha, 1)
EW1(ThresholdedReluGrad, 2, 1, "b > p0 ? a : 0", NULL, A_alpha, 1)

/* Nothing between -alpha and alpha, beta nearer to zero outside. */
GRAD_OF_X(Shrink)
EW2(Shrink, 1, 1, "a < -p0 ? a + p1 : a > p0 ? a - p1 : a == a ? 0 : a", grad_Shrink, A_alpha, 0.5,
    A_beta, 0)
EW2(ShrinkGrad, 2, 1, "b < -p0 || b > p0 ? a : 0", NULL, A_alpha, 0.5, A_beta, 0)

/* A slope below zero that is trained. PyTorch: at 0 the gradient is the slope's. */
static bool grad_PRelu(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId x = c->g->node[n].in[0], slope = c->g->node[n].in[1];
    if (grad_wants(c, n, 0)) din[0] = mk3(c, n, OP_PReluGradX, dout[0], x, slope);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk2(c, n, OP_PReluGradS, dout[0], x), 1);
    return true;
}
static bool infer_PRelu(InferCtx *c, NodeId n) {
    Shape x = op_input(c->g, n, 0)->shape, s = op_input(c->g, n, 1)->shape, both;
    if (!shape_broadcast(&x, &s, &both) || !shape_eq(&both, &x))
        return op_error(c, n, 1, "expected a slope that broadcasts to %s, found %s",
                        shape_str(c->d->arena, &x), shape_str(c->d->arena, &s));
    return op_infer_ew(c, n);
}
EW_FULL(PRelu, 2, 1, "a < 0 ? a * b : a", grad_PRelu, A_COUNT, 0, A_COUNT, 0, DT_COUNT, infer_PRelu)
EW(PReluGradX, 3, 1, "b > 0 ? a : a * c", NULL)
EW(PReluGradS, 2, 1, "b < 0 ? a * b : 0", NULL)

/* 0.5*x*(1 + tanh(u)), u = sqrt(2/pi)*(x + 0.044715*x^3); Hendrycks and Gimpel, 2016, section 2 */
#define GELU_TANH(x) "tanhf(0.797884561f * (" x " + 0.044715f * " x " * " x " * " x "))"
GRAD_OF_X(GeluTanh)
EW(GeluTanh, 1, 0, "0.5f * a * (1.0f + " GELU_TANH("a") ")", grad_GeluTanh)
EW(GeluTanhGrad, 2, 0,
   "a * (0.5f * (1.0f + " GELU_TANH("b") ") + 0.5f * b * (1.0f - " GELU_TANH("b") " * " GELU_TANH(
       "b") ") * (0.797884561f + 0.107032223f * b * b))",
   NULL)
