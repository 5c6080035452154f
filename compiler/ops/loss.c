/* loss.c - cross-entropy over class indices: of logits (SoftmaxCE, softmax included) or of
 * log-probabilities (NllLoss). The labels have the shape of the scores without the class axis; the
 * loss is the mean over the labels that are not ignored. With smoothing s and n classes the target
 * distribution is (1-s) at the label plus s/n everywhere (Szegedy et al., CVPR 2016, section 7; as
 * in PyTorch). Gradients with q = target distribution, N = labels that count, 0 for ignored ones:
 *   SoftmaxCE: dlogits = dloss * (softmax - q) / N,   NllLoss: -dloss * q / N
 * They read the scores again, so that no probabilities are kept. */
#include "family.h"

#include <assert.h>

/* Which operand holds the scores; the labels follow. */
static uint32_t scores_at(OpCode op) {
    return op == OP_SoftmaxCE || op == OP_NllLoss ? 0 : 1;
}

bool op_loss_geometry(const Graph *g, const Node *n, LossGeometry *out) {
    if (n->op != OP_SoftmaxCE && n->op != OP_SoftmaxCEGrad && n->op != OP_NllLoss &&
        n->op != OP_NllLossGrad)
        return false;
    uint32_t at = scores_at(n->op);
    const Shape *s = &g->value[n->in[at]].shape;
    int64_t axis = ir_get_i(n, A_axis, 1);
    uint32_t k = (uint32_t)(axis < 0 ? axis + s->rank : axis);
    *out = (LossGeometry){
        .outer = shape_span(s, 0, k),
        .n = s->dim[k],
        .inner = shape_span(s, k + 1, s->rank),
        .label_i32 = g->value[n->in[at + 1]].dtype == DT_I32,
        .has_ignore = ir_attr(n, A_ignore_index) != NULL,
        .is_log = n->op == OP_NllLoss || n->op == OP_NllLossGrad,
        .ignore_index = ir_get_i(n, A_ignore_index, 0),
        .smoothing = ir_get_f(n, A_smoothing, 0),
    };
    return true;
}

static bool infer_loss(InferCtx *c, NodeId n) {
    uint32_t at = scores_at(c->g->node[n].op);
    Shape s = op_input(c->g, n, at)->shape, labels = {0}, scalar = {0};
    int64_t axis;
    TRY(op_need_dtype(c, n, at, DT_F32));
    TRY(op_need_axis(c, n, s.rank, 1, &axis));
    for (int64_t k = 0; k < s.rank; k++)
        if (k != axis) labels.dim[labels.rank++] = s.dim[k];
    TRY(op_need_index(c, n, at + 1));
    TRY(op_need_shape(c, n, at + 1, &labels));
    if (at) TRY(op_need_shape(c, n, 0, &scalar));
    return op_out(c, n, 0, DT_F32, at ? &s : &scalar);
}

static bool grad_loss(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node *f = &c->g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    ValueId in[3] = {dout[0], f->in[0], f->in[1]};
    OpCode op = f->op == OP_SoftmaxCE ? OP_SoftmaxCEGrad : OP_NllLossGrad;
    din[0] = op_make_attr(c->g, PHASE_BACKWARD, op, grad_name(c, n), 3, in, f->attr, f->nattr);
    return true;
}

/* The object that both kernels of one loss share. */
static uint32_t loss_object(CpuEmit *e, const Node *n) {
    LossGeometry l = {0};
    bool is_loss = op_loss_geometry(e->g, n, &l);
    assert(is_loss);
    (void)is_loss;
    const char *init = arena_printf(
        e->arena,
        "{.outer = %lld, .n = %lld, .inner = %lld, .label_i32 = %d, .has_ignore = %d, "
        ".is_log = %d, .ignore_index = INT64_C(%lld), .smoothing = %s}",
        (long long)l.outer, (long long)l.n, (long long)l.inner, l.label_i32, l.has_ignore, l.is_log,
        (long long)l.ignore_index, op_c_float(e->arena, l.smoothing));
    return e->object(e, "DtrtLoss", init);
}
static bool cpu_loss(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_loss_forward(c, &DtrtLoss_%u[c->slot], p[0], p[1], p[2], p[3]);\n",
             loss_object(e, n));
    return true;
}
static bool cpu_loss_grad(CpuEmit *e, const Node *n) {
    text_add(e->body,
             "    dtrt_loss_grad(c, &DtrtLoss_%u[c->slot], p[0], p[1], p[2], p[3], p[4]);\n",
             loss_object(e, n));
    return true;
}

static uint64_t flops_loss(const Graph *g, const Node *n) {
    bool is_log = n->op == OP_NllLoss || n->op == OP_NllLossGrad;
    return (is_log ? 1 : 14) * value_count(g, n->in[scores_at(n->op)]);
}

#define LOSS(NAME, NIN, GRAD, CPU)                                                                 \
    const OpDef op_##NAME = {                                                                      \
        .name = #NAME,                                                                             \
        .min_in = NIN,                                                                             \
        .max_in = NIN,                                                                             \
        .nout = 1,                                                                                 \
        .infer = infer_loss,                                                                       \
        .grad = GRAD,                                                                              \
        .flops = flops_loss,                                                                       \
        .cpu = CPU,                                                                                \
    };
LOSS(SoftmaxCE, 2, grad_loss, cpu_loss)
LOSS(SoftmaxCEGrad, 3, NULL, cpu_loss_grad)
LOSS(NllLoss, 2, grad_loss, cpu_loss)
LOSS(NllLossGrad, 3, NULL, cpu_loss_grad)
