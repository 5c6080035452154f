/* softmax.c - Softmax and LogSoftmax along one axis. The gradients read the output:
 *   softmax:     dX = Y * (dY - sum(dY*Y))
 *   log softmax: dX = dY - exp(Y) * sum(dY) */
#include "family.h"

static bool infer_softmax(InferCtx *c, NodeId n) {
    Shape s = op_input(c->g, n, 0)->shape;
    int64_t axis;
    TRY(op_need_axis(c, n, s.rank, -1, &axis));
    for (uint32_t i = 0; i < c->g->node[n].nin; i++) {
        TRY(op_need_dtype(c, n, i, DT_F32));
        TRY(op_need_shape(c, n, i, &s));
    }
    return op_out(c, n, 0, DT_F32, &s);
}

static bool grad_op(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din, OpCode op) {
    const Node *f = &c->g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    ValueId in[2] = {dout[0], f->out[0]};
    din[0] = op_make_attr(c->g, PHASE_BACKWARD, op, grad_name(c, n), 2, in, f->attr, f->nattr);
    return true;
}
static bool grad_softmax(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    return grad_op(c, n, dout, din, OP_SoftmaxGrad);
}
static bool grad_log_softmax(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    return grad_op(c, n, dout, din, OP_LogSoftmaxGrad);
}

static void emit(CpuEmit *e, const Node *n, const char *call, int is_log) {
    const Shape *s = &e->g->value[n->in[0]].shape;
    int64_t axis = ir_get_i(n, A_axis, -1);
    uint32_t at = (uint32_t)(axis < 0 ? axis + s->rank : axis);
    text_add(e->body, "    %s, %lld, %lld, %lld, %d);\n", call, (long long)shape_span(s, 0, at),
             (long long)s->dim[at], (long long)shape_span(s, at + 1, s->rank), is_log);
}
static bool cpu_softmax(CpuEmit *e, const Node *n) {
    emit(e, n, "dtrt_softmax(p[0], p[1]", n->op == OP_LogSoftmax);
    return true;
}
static bool cpu_softmax_grad(CpuEmit *e, const Node *n) {
    emit(e, n, "dtrt_softmax_grad(p[0], p[1], p[2]", n->op == OP_LogSoftmaxGrad);
    return true;
}

/* An exponential is worth about ten simple operations. */
static uint64_t flops_softmax(const Graph *g, const Node *n) {
    return 14 * value_count(g, n->in[0]);
}
static uint64_t flops_grad(const Graph *g, const Node *n) {
    return (n->op == OP_SoftmaxGrad ? 4 : 14) * value_count(g, n->in[0]);
}

#define SOFTMAX(NAME, NIN, GRAD, FLOPS, CPU)                                                       \
    const OpDef op_##NAME = {                                                                      \
        .name = #NAME,                                                                             \
        .min_in = NIN,                                                                             \
        .max_in = NIN,                                                                             \
        .nout = 1,                                                                                 \
        .inplace = 1,                                                                              \
        .infer = infer_softmax,                                                                    \
        .grad = GRAD,                                                                              \
        .flops = FLOPS,                                                                            \
        .cpu = CPU,                                                                                \
    };
SOFTMAX(Softmax, 1, grad_softmax, flops_softmax, cpu_softmax)
SOFTMAX(LogSoftmax, 1, grad_log_softmax, flops_softmax, cpu_softmax)
SOFTMAX(SoftmaxGrad, 2, NULL, flops_grad, cpu_softmax_grad)
SOFTMAX(LogSoftmaxGrad, 2, NULL, flops_grad, cpu_softmax_grad)
