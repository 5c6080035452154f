/* norm.c - BatchNorm as the importer leaves it, the update of its running statistics, and
 * LayerNorm. The lowered form of batch norm is in reduce.c (sums) and elementwise.c (the rest). */
#include "family.h"

#include <assert.h>

/* ---- BatchNorm: X, scale, bias, running mean, running var ---- */
static bool infer_batch_norm(InferCtx *c, NodeId n) {
    TRY(op_need_rank(c, n, 0, 2, IR_MAX_RANK));
    Shape x = op_input(c->g, n, 0)->shape;
    uint32_t axis = ir_get_i(&c->g->node[n], A_channels_last, 0) ? x.rank - 1 : 1;
    Shape channels = {1, {x.dim[axis]}};
    for (uint32_t i = 0; i < 5; i++) {
        TRY(op_need_dtype(c, n, i, DT_F32));
        if (i) TRY(op_need_shape(c, n, i, &channels));
    }
    return op_out(c, n, 0, DT_F32, &x);
}

/* Lowered before the backward pass is built: no gradient, no kernel. */
const OpDef op_BatchNorm = {
    .name = "BatchNorm",
    .flags = OPF_COMPILE,
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .ones = 1 << 1 | 1 << 4,
    .infer = infer_batch_norm,
};

/* ---- BnUpdate: running mean, running var, batch mean, batch var ---- */
static bool infer_bn_update(InferCtx *c, NodeId n) {
    Shape s = op_input(c->g, n, 0)->shape;
    for (uint32_t i = 0; i < 4; i++) {
        TRY(op_need_dtype(c, n, i, DT_F32));
        TRY(op_need_shape(c, n, i, &s));
    }
    return true;
}

static bool cpu_bn_update(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_bn_update(p[0], p[1], p[2], p[3], %llu, %s);\n",
             (unsigned long long)value_count(e->g, n->in[0]),
             op_c_float(e->arena, ir_get_f(n, A_momentum, 0.9)));
    return true;
}

static uint64_t flops_bn_update(const Graph *g, const Node *n) {
    return 6 * value_count(g, n->in[0]);
}

const OpDef op_BnUpdate = {
    .name = "BnUpdate",
    .cls = CLS_EFFECT,
    .min_in = 4,
    .max_in = 4,
    .mutates = 1 << 0 | 1 << 1,
    .infer = infer_bn_update,
    .flops = flops_bn_update,
    .cpu = cpu_bn_update,
};

/* ---- LayerNorm: X, scale, [bias] -> Y, mean, invstd ---- */
/* Checks that input `scale` and the next (if there) have the shape of x from the axis on; `stat` is
 * that of the statistics. */
static bool check_norm(InferCtx *c, NodeId n, uint32_t at, uint32_t scale, uint32_t nscale,
                       Shape *x, Shape *stat) {
    int64_t axis;
    for (uint32_t i = 0; i < c->g->node[n].nin; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    *stat = *x = op_input(c->g, n, at)->shape;
    TRY(op_need_axis(c, n, x->rank, -1, &axis));
    Shape inner = {0};
    for (int64_t k = axis; k < x->rank; k++) {
        inner.dim[inner.rank++] = x->dim[k];
        stat->dim[k] = 1;
    }
    for (uint32_t i = scale; i < scale + nscale; i++) TRY(op_need_shape(c, n, i, &inner));
    return true;
}

static bool infer_layer_norm(InferCtx *c, NodeId n) {
    Shape x, stat;
    TRY(check_norm(c, n, 0, 1, 2, &x, &stat));
    TRY(op_out(c, n, 0, DT_F32, &x));
    TRY(op_out(c, n, 1, DT_F32, &stat));
    return op_out(c, n, 2, DT_F32, &stat);
}

/* dbias = sum of dY over the rows, dscale = sum of dY*(X - mean)*invstd */
static bool grad_layer_norm(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const ValueId *in = g->node[n].in, *out = g->node[n].out;
    const char *name = grad_name(c, n);
    for (uint32_t k = 1; k < g->node[n].nout; k++)
        if (dout[k] != NO_ID)
            return diag_error(c->d, ir_place(g, n, out[k]),
                              "no gradient through the saved statistics of LayerNorm");
    if (dout[0] == NO_ID) return true;
    assert(g->node[n].nout == 3 && out[1] != NO_ID && out[2] != NO_ID);
    if (grad_wants(c, n, 2)) din[2] = grad_fit(c, n, dout[0], 2);
    if (grad_wants(c, n, 1)) {
        ValueId v = op_make2(g, PHASE_BACKWARD, OP_Sub, name, in[0], out[1]);
        v = op_make2(g, PHASE_BACKWARD, OP_Mul, name, v, out[2]);
        v = op_make2(g, PHASE_BACKWARD, OP_Mul, name, v, dout[0]);
        din[1] = grad_fit(c, n, v, 1);
    }
    if (grad_wants(c, n, 0)) {
        Attr at = attr_i(g->arena, A_axis, ir_get_i(&g->node[n], A_axis, -1));
        ValueId a[5] = {dout[0], in[0], in[1], out[1], out[2]};
        din[0] = op_make_attr(g, PHASE_BACKWARD, OP_LayerNormGradX, name, 5, a, &at, 1);
    }
    return true;
}

void op_rows_of(const Node *n, const Shape *x, long long *rows, long long *len) {
    int64_t axis = ir_get_i(n, A_axis, -1);
    uint32_t at = (uint32_t)(axis < 0 ? axis + x->rank : axis);
    *rows = shape_span(x, 0, at);
    *len = shape_span(x, at, x->rank);
}

static bool cpu_layer_norm(CpuEmit *e, const Node *n) {
    const Shape *x = &e->g->value[n->in[0]].shape;
    long long rows, len;
    op_rows_of(n, x, &rows, &len);
    uint32_t o = n->nin;
    text_add(e->body, "    dtrt_layernorm(p[0], p[1], %s, p[%u], ", n->nin > 2 ? "p[2]" : "NULL",
             o);
    for (uint32_t k = 1; k < 3; k++) {
        if (k < n->nout)
            text_add(e->body, "p[%u], ", o + k);
        else
            text_add(e->body, "NULL, ");
    }
    text_add(e->body, "%lld, %lld, %s);\n", rows, len,
             op_c_float(e->arena, ir_get_f(n, A_eps, 1e-5)));
    return true;
}

static uint64_t flops_layer_norm(const Graph *g, const Node *n) {
    return 8 * value_count(g, n->in[0]);
}

const OpDef op_LayerNorm = {
    .name = "LayerNorm",
    .min_in = 2,
    .max_in = 3,
    .nout = 3,
    .ones = 1 << 1,
    .infer = infer_layer_norm,
    .grad = grad_layer_norm,
    .flops = flops_layer_norm,
    .cpu = cpu_layer_norm,
};

/* With g = dY*scale and xhat = (X - mean)*invstd, over each row of n elements:
 * dX = invstd * (g - sum(g)/n - xhat*sum(g*xhat)/n). Ba, Kiros, Hinton, arXiv 1607.06450. */
static bool infer_layer_norm_grad(InferCtx *c, NodeId n) {
    Shape x, stat;
    TRY(check_norm(c, n, 1, 2, 1, &x, &stat));
    for (uint32_t i = 3; i < 5; i++) TRY(op_need_shape(c, n, i, &stat));
    TRY(op_need_shape(c, n, 0, &x));
    return op_out(c, n, 0, DT_F32, &x);
}

static bool cpu_layer_norm_grad(CpuEmit *e, const Node *n) {
    const Shape *x = &e->g->value[n->in[1]].shape;
    long long rows, len;
    op_rows_of(n, x, &rows, &len);
    text_add(e->body,
             "    dtrt_layernorm_grad_x(p[0], p[1], p[2], p[3], p[4], p[5], %lld, %lld);\n", rows,
             len);
    return true;
}

static uint64_t flops_layer_norm_grad(const Graph *g, const Node *n) {
    return 12 * value_count(g, n->in[0]);
}

const OpDef op_LayerNormGradX = {
    .name = "LayerNormGradX",
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .infer = infer_layer_norm_grad,
    .flops = flops_layer_norm_grad,
    .cpu = cpu_layer_norm_grad,
};
