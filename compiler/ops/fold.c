/* fold.c - reductions that are no sums: extremes, products, log-sum-exp; running sums and positions
 * of extremes along an axis. All call the runtime.
 *
 * Where several elements are the extreme each gets an equal share of the gradient, as in PyTorch's
 * amax and amin (its max along an axis gives everything to one of them; files do not tell the two
 * apart). */
#include "family.h"

#define BWD PHASE_BACKWARD

static bool infer_fold(InferCtx *c, NodeId n) {
    uint64_t count = 0;
    OpCode op = c->g->node[n].op;
    Shape s = op_input(c->g, n, 0)->shape;
    if ((op == OP_ReduceMax || op == OP_ReduceMin) && shape_count(&s, &count) && !count)
        return op_error(c, n, 0, "expected elements to take an extreme of, found shape %s",
                        shape_str(c->d->arena, &s));
    return op_infer_reduce(c, n);
}

/* Result or gradient of output 0 with its reduced axes kept, to broadcast against X. */
static ValueId kept(GradCtx *c, NodeId n, ValueId v) {
    Shape s = op_input(c->g, n, 0)->shape;
    uint32_t mask = op_reduced_axes(&c->g->node[n], s.rank);
    for (uint32_t k = 0; k < s.rank; k++)
        if (mask >> k & 1) s.dim[k] = 1;
    return op_reshape(c->g, BWD, grad_name(c, n), v, &s);
}

/* dX = mask * dY / (number of ones in mask), mask = (X == Y) */
static bool grad_extreme(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    if (!grad_wants(c, n, 0)) return true;
    const char *name = grad_name(c, n);
    const Node node = g->node[n];
    uint32_t rank = g->value[node.in[0]].shape.rank, count = 0;
    uint32_t mask = op_reduced_axes(&node, rank);
    int64_t axes[IR_MAX_RANK];
    for (uint32_t k = 0; k < rank; k++)
        if (mask >> k & 1) axes[count++] = k;
    Attr attr[] = {attr_ints(g->arena, A_axes, axes, count), attr_i(g->arena, A_keepdims, 1)};
    ValueId ones = op_make2(g, BWD, OP_EqMask, name, node.in[0], kept(c, n, node.out[0]));
    ValueId many = count ? op_make_attr(g, BWD, OP_ReduceSum, name, 1, &ones, attr, 2) : ones;
    ValueId share = op_make2(g, BWD, OP_Div, name, kept(c, n, dout[0]), many);
    din[0] = op_make2(g, BWD, OP_Mul, name, ones, share);
    return true;
}

/* dX = dY * exp(X - Y) */
static bool grad_log_sum_exp(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    if (!grad_wants(c, n, 0)) return true;
    const char *name = grad_name(c, n);
    const ValueId x = g->node[n].in[0], y = g->node[n].out[0];
    ValueId p = op_make1(g, BWD, OP_Exp, name, op_make2(g, BWD, OP_Sub, name, x, kept(c, n, y)));
    din[0] = op_make2(g, BWD, OP_Mul, name, p, kept(c, n, dout[0]));
    return true;
}

/* dX = dY * product of the others */
static bool grad_prod(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node node = c->g->node[n];
    ValueId in[] = {dout[0], node.in[0]};
    if (!grad_wants(c, n, 0)) return true;
    din[0] =
        op_make_attr(c->g, BWD, OP_ReduceProdGrad, grad_name(c, n), 2, in, node.attr, node.nattr);
    return true;
}

static bool infer_prod_grad(InferCtx *c, NodeId n) {
    Shape y, x;
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_dtype(c, n, 1, DT_F32));
    x = op_input(c->g, n, 1)->shape;
    TRY(op_reduced_shape(c, n, &x, &y));
    TRY(op_need_shape(c, n, 0, &y));
    return op_out(c, n, 0, DT_F32, &x);
}

static uint64_t flops_in(const Graph *g, const Node *n) {
    uint64_t per = n->op == OP_ReduceLogSumExp ? 24 : 1;
    return per * value_count(g, n->in[n->nin - 1]);
}

static bool cpu_fold(CpuEmit *e, const Node *n) {
    op_emit_reduced(e, n, &e->g->value[n->in[n->nin - 1]].shape);
    uint32_t rank = e->g->value[n->in[n->nin - 1]].shape.rank;
    const char *kind = n->op == OP_ReduceMax    ? "MAX"
                       : n->op == OP_ReduceMin  ? "MIN"
                       : n->op == OP_ReduceProd ? "PROD"
                                                : "LSE";
    if (n->op == OP_ReduceProdGrad)
        text_add(e->body, "    dtrt_prod_grad(p[0], p[1], p[2], %u, dim, red);\n", rank);
    else
        text_add(e->body, "    dtrt_fold(DTRT_FOLD_%s, p[0], p[1], %u, dim, red);\n", kind, rank);
    return true;
}

#define FOLD(NAME, GRAD)                                                                           \
    const OpDef op_##NAME = {.name = #NAME,                                                        \
                             .min_in = 1,                                                          \
                             .max_in = 1,                                                          \
                             .nout = 1,                                                            \
                             .infer = infer_fold,                                                  \
                             .grad = GRAD,                                                         \
                             .flops = flops_in,                                                    \
                             .cpu = cpu_fold};
FOLD(ReduceMax, grad_extreme)
FOLD(ReduceMin, grad_extreme)
FOLD(ReduceProd, grad_prod)
FOLD(ReduceLogSumExp, grad_log_sum_exp)

const OpDef op_ReduceProdGrad = {.name = "ReduceProdGrad",
                                 .min_in = 2,
                                 .max_in = 2,
                                 .nout = 1,
                                 .infer = infer_prod_grad,
                                 .flops = flops_in,
                                 .cpu = cpu_fold};

/* ---- along one axis: [outer, n, inner] ------------------------------------------------------- */

static bool infer_cumsum(InferCtx *c, NodeId n) {
    int64_t axis;
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    Shape s = op_input(c->g, n, 0)->shape;
    TRY(op_need_axis(c, n, s.rank, 0, &axis));
    return op_out(c, n, 0, DT_F32, &s);
}

/* Y[i] = sum of X[j], j <= i: dX[j] = sum of dY[i], i >= j; exclusive sums likewise. */
static bool grad_cumsum(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node node = c->g->node[n];
    Arena *a = c->g->arena;
    if (!grad_wants(c, n, 0)) return true;
    Attr attr[] = {attr_i(a, A_axis, ir_get_i(&node, A_axis, 0)),
                   attr_i(a, A_exclusive, ir_get_i(&node, A_exclusive, 0)),
                   attr_i(a, A_reverse, !ir_get_i(&node, A_reverse, 0))};
    din[0] = op_make_attr(c->g, BWD, OP_CumSum, grad_name(c, n), 1, dout, attr, 3);
    return true;
}

/* "outer, n, inner" of the axis */
static const char *emit_axis(CpuEmit *e, const Node *n) {
    const Shape *s = &e->g->value[n->in[0]].shape;
    int64_t axis = ir_get_i(n, A_axis, 0);
    if (axis < 0) axis += s->rank;
    return arena_printf(e->arena, "%lld, %lld, %lld", (long long)shape_span(s, 0, (uint32_t)axis),
                        (long long)s->dim[axis],
                        (long long)shape_span(s, (uint32_t)axis + 1, s->rank));
}

static bool cpu_cumsum(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_cumsum(p[0], p[1], %s, %d, %d);\n", emit_axis(e, n),
             ir_get_i(n, A_exclusive, 0) != 0, ir_get_i(n, A_reverse, 0) != 0);
    return true;
}

const OpDef op_CumSum = {.name = "CumSum",
                         .min_in = 1,
                         .max_in = 1,
                         .nout = 1,
                         .infer = infer_cumsum,
                         .grad = grad_cumsum,
                         .cpu = cpu_cumsum};

static bool infer_arg(InferCtx *c, NodeId n) {
    int64_t axis;
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    Shape s = op_input(c->g, n, 0)->shape, o = {0};
    TRY(op_need_axis(c, n, s.rank, 0, &axis));
    if (s.dim[axis] == 0)
        return op_error(c, n, 0, "expected elements on axis %lld, found none", (long long)axis);
    for (uint32_t k = 0; k < s.rank; k++) {
        if (k != axis)
            o.dim[o.rank++] = s.dim[k];
        else if (ir_get_i(&c->g->node[n], A_keepdims, 1))
            o.dim[o.rank++] = 1;
    }
    return op_out(c, n, 0, DT_I64, &o);
}

static bool cpu_arg(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_arg(p[0], p[1], %s, %d, %d);\n", emit_axis(e, n),
             n->op == OP_ArgMin, ir_get_i(n, A_last, 0) != 0);
    return true;
}

#define ARG(NAME)                                                                                  \
    const OpDef op_##NAME = {.name = #NAME,                                                        \
                             .min_in = 1,                                                          \
                             .max_in = 1,                                                          \
                             .nout = 1,                                                            \
                             .infer = infer_arg,                                                   \
                             .flops = flops_in,                                                    \
                             .cpu = cpu_arg};
ARG(ArgMax)
ARG(ArgMin)
