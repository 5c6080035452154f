/* conv.c - convolution and its two gradients; any group count, 1 to 3 spatial axes.
 *
 *   Y[n,m,o] = sum_{c,k} X[n, c, o*stride + k*dilation - pad] W[m,c,k] (+ bias[m]) (then ReLU)
 *   dX = transposed convolution of dY with W; dW = correlation of X with dY; dbias = sum of dY.
 *
 * ConvGradX is also what ONNX's ConvTranspose becomes: X = ConvGradX(Y, W) as a forward node has
 * dY = Conv(dX, W) and dW = ConvGradW(Y, dX), for <dX, ConvGradX(Y, W)> = <Conv(dX, W), Y>.
 *
 * Each pass of a geometry is a runtime object of its own; where packed weights are kept depends on
 * the geometry alone, so all of them agree on it. */
#include "window.h"

static bool infer_conv(InferCtx *c, NodeId n) {
    for (uint32_t i = 0; i < 3; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    const Value *x = op_input(c->g, n, 0), *w = op_input(c->g, n, 1);
    TRY(op_need_rank(c, n, 0, 3, 5));
    TRY(op_need_rank(c, n, 1, x->shape.rank, x->shape.rank));
    Geometry q;
    const char *why;
    if (!window_geometry(&c->g->node[n], &x->shape, &w->shape, &q, c->d->arena, &why))
        return op_error(c, n, NO_ID, "%s", why);
    if (q.group < 1 || q.ci % q.group || q.co % q.group)
        return op_error(c, n, NO_ID,
                        "expected a group count that divides %lld and %lld channels, found %lld",
                        (long long)q.ci, (long long)q.co, (long long)q.group);
    Shape want = {.rank = q.nd + 2, .dim = {q.co, q.ci / q.group}};
    for (uint32_t i = 0; i < q.nd; i++) want.dim[2 + i] = q.kernel[i];
    TRY(op_need_shape(c, n, 1, &want));
    TRY(op_need_shape(c, n, 2, &(Shape){.rank = 1, .dim = {q.co}}));
    Shape out = window_output(&q);
    return op_out(c, n, 0, DT_F32, &out);
}

/* dY must have the shape that the forward node gives it. */
static bool infer_conv_grad(InferCtx *c, NodeId n) {
    Shape shape;
    Geometry q;
    TRY(op_need_shape_attr(c, n, &shape));
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_dtype(c, n, 1, DT_F32));
    TRY(op_need_rank(c, n, 1, 3, 5));
    if (shape.rank != op_input(c->g, n, 1)->shape.rank || !op_geometry(c->g, &c->g->node[n], &q))
        return op_error(c, n, NO_ID, "expected the geometry of a convolution, found none");
    Shape dy = window_output(&q);
    TRY(op_need_shape(c, n, 0, &dy));
    return op_out(c, n, 0, DT_F32, &shape);
}

/* Multiplications and additions of one pass; all three passes do the same number. */
static uint64_t flops_conv(const Graph *g, const Node *n) {
    Geometry q;
    if (!op_geometry(g, n, &q)) return 0;
    double work = 2.0 * (double)q.n * (double)q.co * (double)(q.ci / q.group);
    for (uint32_t i = 0; i < q.nd; i++) work *= (double)q.out[i] * (double)q.kernel[i];
    return work < 0x1p63 ? (uint64_t)work : UINT64_MAX / 2;
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* A node of the backward pass with n's window; like: the value whose shape it has, NO_ID for a
 * Conv. relu is part of the forward pass only. */
static ValueId conv_grad(Graph *g, NodeId n, OpCode op, const char *suffix, ValueId a, ValueId b,
                         ValueId like) {
    const Node conv = g->node[n];
    Attr *attr = ARENA_ARRAY(g->arena, Attr, conv.nattr + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < conv.nattr; i++)
        if (conv.attr[i].key != A_relu && conv.attr[i].key != A_shape) attr[count++] = conv.attr[i];
    if (like != NO_ID) {
        const Shape *s = &g->value[like].shape;
        attr[count++] = attr_ints(g->arena, A_shape, s->dim, s->rank);
    }
    ValueId in[] = {a, b};
    return op_make_attr(g, PHASE_BACKWARD, op, op_derived(g, n, suffix), 2, in, attr, count);
}

static ValueId bias_grad(Graph *g, NodeId n, ValueId dy) {
    int64_t axes[IR_MAX_RANK];
    uint32_t count = 0, rank = g->value[dy].shape.rank;
    uint32_t channel = ir_get_i(&g->node[n], A_channels_last, 0) ? rank - 1 : 1;
    for (uint32_t i = 0; i < rank; i++)
        if (i != channel) axes[count++] = i;
    Attr attr[] = {attr_ints(g->arena, A_axes, axes, count), attr_i(g->arena, A_keepdims, 0)};
    return op_make_attr(g, PHASE_BACKWARD, OP_ReduceSum, op_derived(g, n, ".db"), 1, &dy, attr, 2);
}

static bool grad_conv(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node conv = g->node[n];
    ValueId x = conv.in[0], w = conv.in[1], dy = dout[0];
    if (ir_get_i(&conv, A_relu, 0))
        dy = op_make2(g, PHASE_BACKWARD, OP_ReluGrad, op_derived(g, n, ".drelu"), dy, conv.out[0]);
    if (conv.nin > 2 && conv.in[2] != NO_ID && c->need[conv.in[2]]) din[2] = bias_grad(g, n, dy);
    if (c->need[w]) din[1] = conv_grad(g, n, OP_ConvGradW, ".dw", dy, x, w);
    if (c->need[x]) din[0] = conv_grad(g, n, OP_ConvGradX, ".dx", dy, w, x);
    return true;
}

/* Of a transposed convolution in the forward graph. */
static bool grad_transposed(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    ValueId y = g->node[n].in[0], w = g->node[n].in[1];
    if (c->need[w]) din[1] = conv_grad(g, n, OP_ConvGradW, ".dw", y, dout[0], w);
    if (c->need[y]) din[0] = conv_grad(g, n, OP_Conv, ".dx", dout[0], w, NO_ID);
    return true;
}

/* ---- emission -------------------------------------------------------------------------------- */

bool op_conv_object(const Graph *g, const bool *packed, const Node *n, ConvObject *out) {
    bool fwd = n->op == OP_Conv, gx = n->op == OP_ConvGradX, gw = n->op == OP_ConvGradW;
    if (!fwd && !gx && !gw) return false;
    *out = (ConvObject){.fwd = fwd, .grad_x = gx, .grad_w = gw};
    out->packed = packed && packed[gw ? n->out[0] : n->in[1]];
    return op_geometry(g, n, &out->q);
}

static bool conv_object(CpuEmit *e, const Node *n, uint32_t *number) {
    ConvObject c;
    TRY(op_conv_object(e->g, e->packed, n, &c));
    const Geometry *q = &c.q;
    Text t;
    text_init(&t, e->arena);
    text_add(&t,
             "{.nd = %u, .channels_last = %d, .group = %lld, .bias = %d, .relu = %d, .packed = %d",
             q->nd, q->channels_last, (long long)q->group, q->bias, q->relu, c.packed);
    text_add(&t, ", .fwd = %d, .grad_x = %d, .grad_w = %d", c.fwd, c.grad_x, c.grad_w);
    text_add(&t, ", .n = %lld, .ci = %lld, .co = %lld", (long long)q->n, (long long)q->ci,
             (long long)q->co);
    window_fields(&t, q);
    text_char(&t, '}');
    *number = e->object(e, "DtrtConv", t.at);
    return true;
}

static bool cpu_conv(CpuEmit *e, const Node *n) {
    uint32_t obj;
    TRY(conv_object(e, n, &obj));
    bool bias = n->nin > 2 && n->in[2] != NO_ID;
    text_add(e->body,
             "    dtrt_conv_forward(&DtrtConv_%u[c->slot], p[0], p[1], %s, p[%u], p[%u]);\n", obj,
             bias ? "p[2]" : "NULL", n->nin, n->nin + n->nout);
    return true;
}

static bool cpu_conv_grad(CpuEmit *e, const Node *n) {
    uint32_t obj;
    TRY(conv_object(e, n, &obj));
    text_add(e->body, "    dtrt_conv_grad_%s(&DtrtConv_%u[c->slot], p[0], p[1], p[2], p[3]);\n",
             n->op == OP_ConvGradX ? "x" : "w", obj);
    return true;
}

const OpDef op_Conv = {.name = "Conv",
                       .min_in = 2,
                       .max_in = 3,
                       .nout = 1,
                       .infer = infer_conv,
                       .grad = grad_conv,
                       .flops = flops_conv,
                       .cpu = cpu_conv};

const OpDef op_ConvGradX = {.name = "ConvGradX",
                            .min_in = 2,
                            .max_in = 2,
                            .nout = 1,
                            .infer = infer_conv_grad,
                            .grad = grad_transposed,
                            .flops = flops_conv,
                            .cpu = cpu_conv_grad};

const OpDef op_ConvGradW = {.name = "ConvGradW",
                            .min_in = 2,
                            .max_in = 2,
                            .nout = 1,
                            .infer = infer_conv_grad,
                            .flops = flops_conv,
                            .cpu = cpu_conv_grad};
