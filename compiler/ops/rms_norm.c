/* rms_norm.c - RmsNorm (B. Zhang, R. Sennrich, NeurIPS 2019): y = x / rms(x) * scale over the last
 * axes. X and one number a row are kept:
 *   g = dY*scale, xhat = X*inv, over each row of n elements
 *   dX = inv * (g - xhat*sum(g*xhat)/n),   dscale = sum of dY*xhat over the rows. */
#include "family.h"

#include <assert.h>

static bool check_rows(InferCtx *c, NodeId n, uint32_t at, Shape *x, Shape *stat) {
    int64_t axis;
    for (uint32_t i = 0; i < c->g->node[n].nin; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    *stat = *x = op_input(c->g, n, at)->shape;
    TRY(op_need_axis(c, n, x->rank, -1, &axis));
    Shape inner = {0};
    for (int64_t k = axis; k < x->rank; k++) {
        inner.dim[inner.rank++] = x->dim[k];
        stat->dim[k] = 1;
    }
    return op_need_shape(c, n, at + 1, &inner);
}

static bool infer_rms_norm(InferCtx *c, NodeId n) {
    Shape x, stat;
    TRY(check_rows(c, n, 0, &x, &stat));
    TRY(op_out(c, n, 0, DT_F32, &x));
    return op_out(c, n, 1, DT_F32, &stat);
}

static bool grad_rms_norm(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node f = g->node[n];
    const char *name = grad_name(c, n);
    if (dout[0] == NO_ID) return true;
    assert(f.nout == 2);
    if (grad_wants(c, n, 1)) {
        ValueId v = op_make2(g, PHASE_BACKWARD, OP_Mul, name, f.in[0], f.out[1]);
        din[1] = grad_fit(c, n, op_make2(g, PHASE_BACKWARD, OP_Mul, name, v, dout[0]), 1);
    }
    if (!grad_wants(c, n, 0)) return true;
    Attr at = attr_i(g->arena, A_axis, ir_get_i(&f, A_axis, -1));
    ValueId in[4] = {dout[0], f.in[0], f.in[1], f.out[1]};
    din[0] = op_make_attr(g, PHASE_BACKWARD, OP_RmsNormGradX, name, 4, in, &at, 1);
    return true;
}

static bool cpu_rms_norm(CpuEmit *e, const Node *n) {
    long long rows, len;
    op_rows_of(n, &e->g->value[n->in[0]].shape, &rows, &len);
    text_add(e->body, "    dtrt_rmsnorm(p[0], p[1], p[2], p[3], %lld, %lld, %s);\n", rows, len,
             op_c_float(e->arena, ir_get_f(n, A_eps, 1e-5)));
    return true;
}

static uint64_t flops_rms_norm(const Graph *g, const Node *n) {
    return 5 * value_count(g, n->in[0]);
}

const OpDef op_RmsNorm = {
    .name = "RmsNorm",
    .min_in = 2,
    .max_in = 2,
    .nout = 2,
    .ones = 1 << 1,
    .infer = infer_rms_norm,
    .grad = grad_rms_norm,
    .flops = flops_rms_norm,
    .cpu = cpu_rms_norm,
};

static bool infer_rms_norm_grad(InferCtx *c, NodeId n) {
    Shape x, stat;
    TRY(check_rows(c, n, 1, &x, &stat));
    TRY(op_need_shape(c, n, 0, &x));
    TRY(op_need_shape(c, n, 3, &stat));
    return op_out(c, n, 0, DT_F32, &x);
}

static bool cpu_rms_norm_grad(CpuEmit *e, const Node *n) {
    long long rows, len;
    op_rows_of(n, &e->g->value[n->in[1]].shape, &rows, &len);
    text_add(e->body, "    dtrt_rmsnorm_grad_x(p[0], p[1], p[2], p[3], p[4], %lld, %lld);\n", rows,
             len);
    return true;
}

static uint64_t flops_rms_norm_grad(const Graph *g, const Node *n) {
    return 8 * value_count(g, n->in[0]);
}

const OpDef op_RmsNormGradX = {
    .name = "RmsNormGradX",
    .min_in = 4,
    .max_in = 4,
    .nout = 1,
    .infer = infer_rms_norm_grad,
    .flops = flops_rms_norm_grad,
    .cpu = cpu_rms_norm_grad,
};
