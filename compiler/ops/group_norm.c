/* group_norm.c - GroupNorm (Y. Wu, K. He, ECCV 2018): the channels of each image are normalized in
 * groups, over the group and space; with as many groups as channels it is InstanceNorm (D. Ulyanov
 * et al., 2016). Only X and two numbers a group are kept for the gradient:
 *   g = dY*scale, xhat = (X - mean)*invstd, over each group of n elements
 *   dX = invstd * (g - sum(g)/n - xhat*sum(g*xhat)/n)
 *   dscale = sum of dY*xhat, dbias = sum of dY over batch and space. */
#include "family.h"

#include <assert.h>

/* X as [n, c, s] or [n, s, c] */
typedef struct {
    int64_t n, c, s, group;
    bool last;
} Groups;

static bool check_groups(InferCtx *c, NodeId n, uint32_t at, Groups *q) {
    const Node *node = &c->g->node[n];
    for (uint32_t i = 0; i < node->nin; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    TRY(op_need_rank(c, n, at, 2, IR_MAX_RANK));
    const Shape *x = &op_input(c->g, n, at)->shape;
    q->last = ir_get_i(node, A_channels_last, 0) != 0;
    q->group = ir_get_i(node, A_group, 1);
    q->n = x->dim[0];
    q->c = x->dim[q->last ? x->rank - 1 : 1];
    q->s = q->last ? shape_span(x, 1, x->rank - 1) : shape_span(x, 2, x->rank);
    if (q->group < 1 || q->group > q->c || q->c % q->group)
        return op_error(c, n, at, "expected groups that divide %lld channels, found %lld",
                        (long long)q->c, (long long)q->group);
    return true;
}

static Groups groups_of(const Graph *g, const Node *n, uint32_t at) {
    const Shape *x = &g->value[n->in[at]].shape;
    bool last = ir_get_i(n, A_channels_last, 0) != 0;
    return (Groups){.n = x->dim[0],
                    .c = x->dim[last ? x->rank - 1 : 1],
                    .s = last ? shape_span(x, 1, x->rank - 1) : shape_span(x, 2, x->rank),
                    .group = ir_get_i(n, A_group, 1),
                    .last = last};
}

static bool infer_group_norm(InferCtx *c, NodeId n) {
    Groups q;
    TRY(check_groups(c, n, 0, &q));
    const Shape x = op_input(c->g, n, 0)->shape, channels = {1, {q.c}}, stat = {2, {q.n, q.group}};
    for (uint32_t i = 1; i < 3; i++) TRY(op_need_shape(c, n, i, &channels));
    TRY(op_out(c, n, 0, DT_F32, &x));
    TRY(op_out(c, n, 1, DT_F32, &stat));
    return op_out(c, n, 2, DT_F32, &stat);
}

/* v, of the channels of X, summed over batch and space: [C] */
static ValueId sum_channels(GradCtx *c, NodeId n, ValueId v, const Groups *q) {
    Shape s = q->last ? (Shape){4, {q->n, q->s, q->group, q->c / q->group}}
                      : (Shape){4, {q->n, q->group, q->c / q->group, q->s}};
    int64_t axes[2] = {0, q->last ? 1 : 3};
    Attr at[2] = {attr_ints(c->g->arena, A_axes, axes, 2), attr_i(c->g->arena, A_keepdims, 0)};
    v = op_reshape(c->g, PHASE_BACKWARD, grad_name(c, n), v, &s);
    v = op_make_attr(c->g, PHASE_BACKWARD, OP_ReduceSum, grad_name(c, n), 1, &v, at, 2);
    return op_reshape(c->g, PHASE_BACKWARD, grad_name(c, n), v, &(Shape){1, {q->c}});
}

static ValueId scale_gradient(GradCtx *c, NodeId n, ValueId dy, const Groups *q) {
    Graph *g = c->g;
    const ValueId *in = g->node[n].in, *out = g->node[n].out;
    const char *name = grad_name(c, n);
    Shape s = q->last ? (Shape){4, {q->n, q->s, q->group, q->c / q->group}}
                      : (Shape){4, {q->n, q->group, q->c / q->group, q->s}};
    Shape stat = q->last ? (Shape){4, {q->n, 1, q->group, 1}} : (Shape){4, {q->n, q->group, 1, 1}};
    ValueId x = op_reshape(g, PHASE_BACKWARD, name, in[0], &s);
    ValueId mean = op_reshape(g, PHASE_BACKWARD, name, out[1], &stat);
    ValueId inv = op_reshape(g, PHASE_BACKWARD, name, out[2], &stat);
    ValueId v = op_make2(g, PHASE_BACKWARD, OP_Sub, name, x, mean);
    v = op_make2(g, PHASE_BACKWARD, OP_Mul, name, v, inv);
    v = op_make2(g, PHASE_BACKWARD, OP_Mul, name, v, op_reshape(g, PHASE_BACKWARD, name, dy, &s));
    return sum_channels(c, n, v, q);
}

static bool grad_group_norm(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    Groups q = groups_of(g, &g->node[n], 0);
    if (dout[0] == NO_ID) return true;
    assert(g->node[n].nout == 3);
    if (grad_wants(c, n, 2)) din[2] = sum_channels(c, n, dout[0], &q);
    if (grad_wants(c, n, 1)) din[1] = scale_gradient(c, n, dout[0], &q);
    if (!grad_wants(c, n, 0)) return true;
    const Node f = g->node[n];
    ValueId in[5] = {dout[0], f.in[0], f.in[1], f.out[1], f.out[2]};
    Attr at[2] = {attr_i(g->arena, A_group, q.group), attr_i(g->arena, A_channels_last, q.last)};
    din[0] = op_make_attr(g, PHASE_BACKWARD, OP_GroupNormGradX, grad_name(c, n), 5, in, at, 2);
    return true;
}

static bool cpu_group_norm(CpuEmit *e, const Node *n) {
    Groups q = groups_of(e->g, n, 0);
    text_add(e->body,
             "    dtrt_groupnorm(p[0], p[1], p[2], p[3], p[4], p[5], %lld, %lld, %lld, %lld, %d, "
             "%s);\n",
             (long long)q.n, (long long)q.c, (long long)q.s, (long long)q.group, q.last,
             op_c_float(e->arena, ir_get_f(n, A_eps, 1e-5)));
    return true;
}

static uint64_t flops_group_norm(const Graph *g, const Node *n) {
    return 8 * value_count(g, n->in[0]);
}

const OpDef op_GroupNorm = {
    .name = "GroupNorm",
    .min_in = 3,
    .max_in = 3,
    .nout = 3,
    .ones = 1 << 1,
    .infer = infer_group_norm,
    .grad = grad_group_norm,
    .flops = flops_group_norm,
    .cpu = cpu_group_norm,
};

static bool infer_group_norm_grad(InferCtx *c, NodeId n) {
    Groups q;
    TRY(check_groups(c, n, 1, &q));
    const Shape x = op_input(c->g, n, 1)->shape, channels = {1, {q.c}}, stat = {2, {q.n, q.group}};
    TRY(op_need_shape(c, n, 0, &x));
    TRY(op_need_shape(c, n, 2, &channels));
    for (uint32_t i = 3; i < 5; i++) TRY(op_need_shape(c, n, i, &stat));
    return op_out(c, n, 0, DT_F32, &x);
}

static bool cpu_group_norm_grad(CpuEmit *e, const Node *n) {
    Groups q = groups_of(e->g, n, 1);
    text_add(e->body,
             "    dtrt_groupnorm_grad_x(p[0], p[1], p[2], p[3], p[4], p[5], %lld, %lld, %lld, "
             "%lld, %d);\n",
             (long long)q.n, (long long)q.c, (long long)q.s, (long long)q.group, q.last);
    return true;
}

static uint64_t flops_group_norm_grad(const Graph *g, const Node *n) {
    return 12 * value_count(g, n->in[0]);
}

const OpDef op_GroupNormGradX = {
    .name = "GroupNormGradX",
    .min_in = 5,
    .max_in = 5,
    .nout = 1,
    .infer = infer_group_norm_grad,
    .flops = flops_group_norm_grad,
    .cpu = cpu_group_norm_grad,
};
