/* functions.c - elementwise operators that are functions of mathematics: trigonometric and
 * hyperbolic ones with their inverses, rounding, signs, remainders, tests for NaN and infinity.
 * Written as in elementwise.c: one line each, gradient operators get dY first. Derivatives of
 * rounding and sign are zero, as in PyTorch. */
#include "ew.h"

/* tan' = 1 + Y^2 */
GRAD_OF_Y(Tan)
EW(Tan, 1, 0, "tanf(a)", grad_Tan)
EW(TanGrad, 2, 1, "a * (1.0f + b * b)", NULL)

/* 1/sqrt(1 - x^2), and its negative */
GRAD_OF_X(Asin)
EW(Asin, 1, 0, "asinf(a)", grad_Asin)
EW(AsinGrad, 2, 1, "a / sqrtf(1.0f - b * b)", NULL)
GRAD_OF_X(Acos)
EW(Acos, 1, 0, "acosf(a)", grad_Acos)
EW(AcosGrad, 2, 1, "-a / sqrtf(1.0f - b * b)", NULL)

/* 1/(1 + x^2) */
GRAD_OF_X(Atan)
EW(Atan, 1, 0, "atanf(a)", grad_Atan)
EW(AtanGrad, 2, 1, "a / (1.0f + b * b)", NULL)

/* sinh' = cosh, cosh' = sinh */
static bool grad_hyperbolic(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node *nd = &c->g->node[n];
    OpCode other = nd->op == OP_Sinh ? OP_Cosh : OP_Sinh;
    if (!grad_wants(c, n, 0)) return true;
    din[0] = mk2(c, n, OP_Mul, dout[0], mk1(c, n, other, nd->in[0]));
    return true;
}
EW(Sinh, 1, 0, "sinhf(a)", grad_hyperbolic)
EW(Cosh, 1, 0, "coshf(a)", grad_hyperbolic)

/* 1/sqrt(x^2 + 1), 1/sqrt(x^2 - 1), 1/(1 - x^2) */
GRAD_OF_X(Asinh)
EW(Asinh, 1, 0, "asinhf(a)", grad_Asinh)
EW(AsinhGrad, 2, 1, "a / sqrtf(b * b + 1.0f)", NULL)
GRAD_OF_X(Acosh)
EW(Acosh, 1, 0, "acoshf(a)", grad_Acosh)
EW(AcoshGrad, 2, 1, "a / sqrtf(b * b - 1.0f)", NULL)
GRAD_OF_X(Atanh)
EW(Atanh, 1, 0, "atanhf(a)", grad_Atanh)
EW(AtanhGrad, 2, 1, "a / (1.0f - b * b)", NULL)

/* Halves go to the even neighbour. */
EW(Round, 1, 1, "rintf(a)", no_grad)
EW(Sign, 1, 1, "a > 0 ? 1 : a < 0 ? -1 : a", no_grad)

/* The remainder has the sign of a: a - b*trunc(a/b). */
static bool grad_Mod(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const ValueId a = c->g->node[n].in[0], b = c->g->node[n].in[1];
    if (grad_wants(c, n, 0)) din[0] = grad_fit(c, n, dout[0], 0);
    if (grad_wants(c, n, 1)) din[1] = grad_fit(c, n, mk3(c, n, OP_ModGradB, dout[0], a, b), 1);
    return true;
}
EW(Mod, 2, 0, "fmodf(a, b)", grad_Mod)
EW(ModGradB, 3, 1, "-a * truncf(b / c)", NULL)

/* Of integers that come with the data: defined for all operands. */
EW(IntDiv, 2, 1, "dtrt_int_div(a, b)", NULL)
EW(IntMod, 2, 1, "dtrt_int_mod(a, b)", NULL)
EW(IntRem, 2, 1, "dtrt_int_rem(a, b)", NULL)

EW1(ShiftLeft, 2, 1, "dtrt_shift_left(a, b, (int)p0)", NULL, A_k, 64)
EW1(ShiftRight, 2, 1, "dtrt_shift_right(a, b, (int)p0)", NULL, A_k, 64)

/* a^alpha of a norm, alpha > 0: where the norm is 0 its derivative counts as 0, as PyTorch's norm
 * has it, and not as infinite. */
GRAD_OF_Y(Root)
EW1(Root, 1, 0, "p0 == 0.5f ? sqrtf(a) : powf(a, p0)", grad_Root, A_alpha, 0.5)
EW1(RootGrad, 2, 0, "b == 0 ? 0 : p0 == 0.5f ? a * 0.5f / b : a * p0 * powf(b, 1.0f - 1.0f / p0)",
    NULL, A_alpha, 0.5)

EW_BOOL(IsNaN, 1, "a != a")
EW_FULL(IsInf, 1, 1, "(p0 != 0 && a == -INFINITY) || (p1 != 0 && a == INFINITY)", no_grad, A_min, 1,
        A_max, 1, DT_BOOL, NULL)
EW_BOOL(Xor, 2, "a != b")

/* 1 where a is the extreme b of its reduction. */
EW(EqMask, 2, 1, "a == b ? 1.0f : 0", NULL)
