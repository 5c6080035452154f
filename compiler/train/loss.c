/* loss.c - appends the loss to the forward graph. Cross-entropy and negative log-likelihood over
 * class indices are operators; the others are compositions that fusion makes one loop of:
 *   mse         mean of (y - t)^2
 *   l1          mean of |y - t|
 *   bce-logits  mean of max(y,0) - y*t + log(1 + exp(-|y|))
 *   output      a scalar output is the loss already
 * The labels become a source of role ROLE_TARGET. */
#include "step.h"

#include <assert.h>
#include <string.h>

static bool no_output(const Graph *g, Diag *d, const char *name) {
    Place p = {.file = g->file};
    if (name)
        diag_error(d, p, "the loss reads output '%s', which the model does not have",
                   diag_name(d->arena, name));
    else
        diag_error(d, p, "the model has %u outputs, expected one or --loss KIND:output=NAME",
                   g->noutput);
    for (uint32_t i = 0; i < g->noutput; i++) {
        const Value *v = &g->value[g->output[i]];
        diag_hint(d, "an output is '%s', %s%s", diag_name(d->arena, v->name), dtype_name(v->dtype),
                  shape_str(d->arena, &v->shape));
    }
    return false;
}

static bool find_output(const Graph *g, Diag *d, const LossSpec *spec, ValueId *out) {
    if (!spec->output && g->noutput == 1) {
        *out = g->output[0];
        return true;
    }
    for (uint32_t i = 0; spec->output && i < g->noutput; i++)
        if (!strcmp(g->value[g->output[i]].name, spec->output)) {
            *out = g->output[i];
            return true;
        }
    return no_output(g, d, spec->output);
}

static bool check_output(const Graph *g, Diag *d, const LossSpec *spec, ValueId y) {
    const Value *v = &g->value[y];
    Place p = ir_place(g, v->def, y);
    if (v->dtype != DT_F32)
        return diag_error(d, p, "the loss expects an output of type f32, found %s",
                          dtype_name(v->dtype));
    uint64_t n = value_count(g, y);
    if (n == 0)
        return diag_error(d, p, "the loss expects an output with elements, found shape %s",
                          shape_str(d->arena, &v->shape));
    if (spec->kind == LOSS_OUTPUT && g->storage[v->storage].persistent)
        return diag_error(d, p,
                          "an output that is the loss must be computed by the model, found %s",
                          role_name(g->value[g->storage[v->storage].root].role));
    if (spec->kind == LOSS_OUTPUT && n != 1) {
        diag_error(d, p, "an output that is the loss must be a scalar, found shape %s",
                   shape_str(d->arena, &v->shape));
        diag_hint(d, "choose a loss over this output, such as --loss cross-entropy or --loss mse");
        return false;
    }
    return true;
}

/* The labels: named by the spec, or "target". */
static bool make_target(Graph *g, Diag *d, const LossSpec *spec, DType dt, const Shape *s,
                        ValueId *out) {
    const char *name = spec->label ? spec->label : "target";
    for (ValueId v = 0; v < g->nvalue; v++) {
        if (g->value[v].def != NO_ID || strcmp(g->value[v].name, name)) continue;
        diag_error(d, ir_place(g, NO_ID, v), "the name of the labels is taken by %s of the model",
                   role_name(g->value[v].role));
        diag_hint(d, "name the labels otherwise: --loss KIND:label=NAME");
        return false;
    }
    *out = ir_value(g, name, dt, s, ROLE_TARGET);
    return true;
}

/* Where images are channels-last, y may be a transposed copy whose axes other than the class axis
 * kept their order. The loss is the same over the original, which spares the gradient the way back;
 * the copy is then there for metrics only. */
static ValueId before_transpose(const Graph *g, ValueId y, int64_t *axis) {
    NodeId n = g->value[y].def;
    if (n == NO_ID || g->node[n].op != OP_Transpose) return y;
    uint32_t rank;
    const int64_t *perm = ir_get_ints(&g->node[n], A_perm, &rank);
    int64_t last = -1;
    for (int64_t k = 0; k < rank; k++) {
        if (k == *axis) continue;
        if (perm[k] < last) return y;
        last = perm[k];
    }
    *axis = perm[*axis];
    return g->node[n].in[0];
}

/* cross-entropy, nll: class indices over the shape without the class axis */
static bool class_loss(Graph *g, Diag *d, const LossSpec *spec, ValueId y) {
    Shape s = g->value[y].shape, labels = {0};
    int64_t rank = s.rank, axis = spec->class_axis < 0 ? spec->class_axis + rank : spec->class_axis;
    if (axis < 0 || axis >= rank)
        return diag_error(d, ir_place(g, g->value[y].def, y),
                          "class_axis %lld is not an axis of shape %s", (long long)spec->class_axis,
                          shape_str(d->arena, &s));
    for (int64_t k = 0; k < rank; k++)
        if (k != axis) labels.dim[labels.rank++] = s.dim[k];
    ValueId in[2] = {before_transpose(g, y, &axis), NO_ID};
    TRY(make_target(g, d, spec, DT_I64, &labels, &in[1]));
    Attr attr[3] = {attr_i(g->arena, A_axis, axis)};
    uint32_t n = 1;
    if (spec->has_ignore) attr[n++] = attr_i(g->arena, A_ignore_index, spec->ignore_index);
    if (spec->label_smoothing != 0)
        attr[n++] = attr_f(g->arena, A_smoothing, spec->label_smoothing);
    OpCode op = spec->kind == LOSS_NLL ? OP_NllLoss : OP_SoftmaxCE;
    g->loss = op_make_attr(g, PHASE_FORWARD, op, "loss", 2, in, attr, n);
    return true;
}

static ValueId mean(Graph *g, ValueId v) {
    Attr attr[2] = {attr_i(g->arena, A_keepdims, 0),
                    attr_f(g->arena, A_scale, 1 / (double)value_count(g, v))};
    return op_make_attr(g, PHASE_FORWARD, OP_ReduceSum, "loss", 1, &v, attr, 2);
}

/* mse, l1, bce-logits: targets of the output's shape */
static bool element_loss(Graph *g, Diag *d, const LossSpec *spec, ValueId y) {
    Shape s = g->value[y].shape;
    ValueId t, v;
    TRY(make_target(g, d, spec, DT_F32, &s, &t));
    if (spec->kind == LOSS_BCE_LOGITS) {
        v = op_make2(g, PHASE_FORWARD, OP_BceLogits, "loss", y, t);
    } else {
        v = op_make2(g, PHASE_FORWARD, OP_Sub, "loss", y, t);
        Attr two = attr_f(g->arena, A_alpha, 2);
        v = spec->kind == LOSS_L1
                ? op_make1(g, PHASE_FORWARD, OP_Abs, "loss", v)
                : op_make_attr(g, PHASE_FORWARD, OP_PowScalar, "loss", 1, &v, &two, 1);
    }
    g->loss = mean(g, v);
    return true;
}

bool loss_build(Graph *g, Diag *d, const LossSpec *spec) {
    ValueId y;
    TRY(find_output(g, d, spec, &y));
    TRY(check_output(g, d, spec, y));
    switch (spec->kind) {
    case LOSS_CROSS_ENTROPY:
    case LOSS_NLL: TRY(class_loss(g, d, spec, y)); break;
    case LOSS_MSE:
    case LOSS_L1:
    case LOSS_BCE_LOGITS: TRY(element_loss(g, d, spec, y)); break;
    case LOSS_OUTPUT: g->loss = op_reshape(g, PHASE_FORWARD, "loss", y, &(Shape){0}); break;
    }
    if (spec->kind != LOSS_OUTPUT) {
        g->logits = y;
        g->value[g->loss].name = "loss";
    }
    g->output = ARENA_NEW(g->arena, ValueId);
    g->output[0] = g->loss;
    g->noutput = 1;
    return true;
}
