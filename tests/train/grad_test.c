/* grad_test.c - every operator's gradient against central finite differences, both computed in
 * double precision by the test interpreter. A case is one operator on random operands; the loss is
 * a random combination of its first result. */
#include "interp.h"
#include "test.h"
#include "train.h"

#include <stdint.h>

/* in: operands, "-" for a scalar. Prefix: + positive, b: bool, iN: index below N, gN: index
 * -N..N-1, IN: index below N or -1, qN: all different in a row of up to N, h: within -0.9..0.9, u:
 * above 1.1, z: some are 0, f: not differentiated, p: not differentiated and positive, ~: absent.
 */
typedef struct {
    const char *op, *in, *attr;
} Case;

static const Case cases[] = {
    /* nothing at all: gradients of no elements, and of what has some */
    {"Exp", "0,4", ""},
    {"Add", "0,3 3", ""},
    {"Mul", "2,0,3 2,1,1", ""},
    {"Where", "b0,4 0,4 1,4", ""},
    {"PRelu", "0,3,4 3,1", ""},
    {"ReduceSum", "3,0,2", "axes=1 keepdims=0"},
    {"ReduceSum", "0,4", ""},
    {"ReduceProd", "3,0", "axes=1"},
    {"CumSum", "0,3", "axis=1"},
    {"GatherElements", "4,5 g4:0,5", "axis=0"},
    {"ScatterElements", "g4:0,5 0,5 4,5", "axis=0 reduction=1"},
    {"GatherND", "4,3 g4:0,1", ""},
    {"Gather", "4,3 g4:0", ""},
    {"MatMul", "0,4 4,3", ""},
    {"MatMul", "2,0 0,3", ""},
    {"LayerNorm", "0,5 5 5", "axis=-1"},
    {"RmsNorm", "0,5 5", "axis=-1"},
    {"Softmax", "0,5", "axis=-1"},
    {"Transpose", "0,3", "perm=1,0"},
    {"Concat", "0,3 2,3", "axis=0"},
    {"Slice", "4,3", "starts=1,0 steps=1,1 sizes=0,3"},
    {"Pad", "0,3", "pads=1,0,1,0"},
    {"Expand", "0,1", "shape=0,4"},
    {"Neg", "3,4", ""},
    {"Abs", "3,4", ""},
    {"Exp", "3,4", ""},
    {"Log", "+3,4", ""},
    {"Sqrt", "+3,4", ""},
    {"Reciprocal", "+3,4", ""},
    {"Erf", "3,4", ""},
    {"Sin", "3,4", ""},
    {"Cos", "3,4", ""},
    {"Floor", "3,4", ""},
    {"Ceil", "3,4", ""},
    {"Relu", "3,4", ""},
    {"LeakyRelu", "3,4", ""},
    {"LeakyRelu", "3,4", "alpha=0.3"},
    {"Elu", "3,4", ""},
    {"Elu", "3,4", "alpha=0.7"},
    {"Elu", "3,4", "alpha=0"},
    {"Sigmoid", "3,4", ""},
    {"Tanh", "3,4", ""},
    {"Softplus", "3,4", ""},
    {"HardSwish", "5,8", ""},
    {"HardSigmoid", "5,8", ""},
    {"HardSigmoid", "5,8", "alpha=0.7 beta=0.4"},
    {"Clip", "3,4", "min=-1.0 max=0.5"},
    {"Clip", "3,4", "min=-1"},
    {"Clip", "3,4", "max=0.5"},
    {"Tan", "h3,4", ""},
    {"Asin", "h3,4", ""},
    {"Acos", "h3,4", ""},
    {"Atan", "3,4", ""},
    {"Sinh", "3,4", ""},
    {"Cosh", "3,4", ""},
    {"Asinh", "3,4", ""},
    {"Acosh", "u3,4", ""},
    {"Atanh", "h3,4", ""},
    {"Round", "3,4", ""},
    {"Sign", "3,4", ""},
    {"Mod", "5,4 +4", ""},
    {"Mod", "- 3", ""},
    {"Root", "+3,4", ""},
    {"Root", "+3,4", "alpha=0.25"},
    {"Celu", "3,4", ""},
    {"Celu", "3,4", "alpha=0.4"},
    {"Mish", "3,4", ""},
    {"Softsign", "3,4", ""},
    {"ThresholdedRelu", "3,4", ""},
    {"ThresholdedRelu", "3,4", "alpha=-0.3"},
    {"Shrink", "3,4", ""},
    {"Shrink", "3,4", "alpha=0.7 beta=0.2"},
    {"PRelu", "2,3,4 3,1", ""},
    {"PRelu", "2,3,4 -", ""},
    {"PRelu", "- -", ""},
    {"GeluTanh", "3,4", ""},
    {"Scale", "3,4", "alpha=-1.5 beta=2.0"},
    {"Cast", "3,4", "to=0"},
    {"Expand", "3,1", "shape=2,3,4"},
    {"Expand", "-", "shape=2,3"},
    {"Expand", "3", "shape=3"},
    {"Add", "2,3,4 3,1", ""},
    {"Add", "1,4 3,1", ""},
    {"Sub", "2,3,4 1,4", ""},
    {"Sub", "4 2,3,4", ""},
    {"Mul", "2,3,4 2,1,1", ""},
    {"Mul", "- 2,3", ""},
    {"Div", "2,3 +2,1", ""},
    {"Div", "1 +2,3", ""},
    {"Pow", "+2,3 3", ""},
    {"Pow", "+1,3 2,1", ""},
    {"PowScalar", "3,4", "alpha=2"},
    {"PowScalar", "3,4", "alpha=3.0"},
    {"PowScalar", "+3,4", "alpha=-0.5"},
    {"PowScalar", "3,4", "alpha=1"},
    {"Min", "2,3 3", ""},
    {"Max", "2,3 2,1", ""},
    {"Where", "b3,4 3,4 1,4", ""},
    {"Where", "b3,1 - 3,4", ""},
    {"Gelu", "3,4", ""},
    {"Silu", "3,4", ""},
    {"InvStd", "p3", "eps=0.1"},
    {"BnApply", "4,2,3 f3 p3 3 3", ""},
    {"BceLogits", "3,4 p3,4", ""},
    {"BceLogits", "3,4 +4", ""},
    {"Dropout", "8,8", "ratio=0.5"},
    {"Dropout", "8,8", "ratio=0.25"},
    {"Dropout", "8", "ratio=1"},
    {"Dropout", "8", "ratio=0"},
    {"ReduceSum", "2,3,4", "axes=0 keepdims=1"},
    {"ReduceSum", "2,3,4", "axes=1 keepdims=0 scale=0.5"},
    {"ReduceSum", "2,3,4", "axes=0,2 keepdims=0"},
    {"ReduceSum", "2,3,4", "axes=2 scale=0.25"},
    {"ReduceSum", "2,3,4", "axes=0,1,2 keepdims=0 scale=2.0"},
    {"ReduceSum", "2,3,4", ""},
    {"ReduceSum", "-", "keepdims=0"},
    {"Bernoulli", "3,4", ""},
    {"ReduceMax", "2,3,4", "axes=0 keepdims=1"},
    {"ReduceMax", "2,3,4", "axes=0,2 keepdims=0"},
    {"ReduceMax", "2,3,4", ""},
    {"ReduceMax", "-", "keepdims=0"},
    {"ReduceMin", "3,5", "axes=1 keepdims=0"},
    {"ReduceProd", "3,5", "axes=1"},
    {"ReduceProd", "2,3,2", "axes=0,2 keepdims=0"},
    {"ReduceProd", "5", ""},
    {"ReduceLogSumExp", "3,5", "axes=0 keepdims=0"},
    {"ReduceLogSumExp", "2,3,4", "axes=1,2"},
    {"GatherElements", "4,5 g4:3,5", "axis=0"},
    {"GatherElements", "2,5,3 g5:2,4,2", "axis=1"},
    {"GatherElements", "5 g5:9", "axis=-1"},
    {"ScatterElements", "q5:3,2 3,2 3,5", "axis=1"},
    {"ScatterElements", "g5:2,4,3 2,4,3 2,5,3", "axis=1 reduction=1"},
    {"ScatterElements", "q8:4,2 4,2", "axis=-2 shape=8,3"},
    {"ScatterElements", "g3:2,4,3 2,4,3 2,3,3", "axis=1 reduction=2"},
    {"ScatterElements", "g3:7 7 3", "reduction=3"},
    {"ScatterElements", "g4:5,3 5,3 4,3", "axis=0 reduction=4"},
    {"ScatterElements", "g4:5,3 z5,3 z4,3", "axis=0 reduction=2"},
    {"ScatterND", "g2:5,2 5,3 2,2,3", "reduction=2"},
    {"ScatterND", "g2:5,2 5,3 2,2,3", "reduction=3"},
    {"ScatterND", "g3:2,4,1 2,4,3 2,3,3", "batch_dims=1 reduction=4"},
    {"GatherND", "4,3,2 g3:5,2", ""},
    {"GatherND", "4,3,2 g2:2,5,3", ""},
    {"GatherND", "2,3,4 g3:2,5,1", "batch_dims=1"},
    {"GatherND", "3 g3:1", ""},
    {"ScatterND", "q4:3,1 3,2 4,2", ""},
    {"ScatterND", "g2:5,2 5,3 2,2,3", "reduction=1"},
    {"ScatterND", "q4:3,1 3,2", "shape=4,2"},
    {"TopK", "3,5", "axis=1 k=2"},
    {"TopK", "3,5,2", "axis=-2 k=3 largest=0"},
    {"TopK", "5", "axis=0 k=5"},
    {"Resize", "1,2,3,4", "sizes=1,2,6,8 scales=1.0,1.0,2.0,2.0 mode=0 coord=1 rounding=2"},
    {"Resize", "1,2,3,4", "sizes=1,2,6,8 scales=1.0,1.0,2.0,2.0 mode=1"},
    {"Resize", "1,2,3,4", "sizes=1,2,5,9 scales=1.0,1.0,1.7,2.3 mode=1 coord=2"},
    {"Resize", "1,3,4,2", "sizes=1,2,7,2 scales=1.0,0.6,1.8,1.0 mode=2"},
    {"Resize", "1,3,4,2",
     "sizes=1,2,7,2 scales=1.0,0.6,1.8,1.0 mode=2 exclude_outside=1 cubic=-0.5"},
    {"Resize", "7", "sizes=3 scales=0.43 mode=1 antialias=1"},
    {"Resize", "9,2", "sizes=3,2 scales=0.35,1.0 mode=2 antialias=1 exclude_outside=1"},
    {"Resize", "5,5",
     "sizes=4,4 scales=0.8,0.8 mode=1 coord=5 first=0.2,0.1 final=0.7,1.3 value=3.0"},
    {"Resize", "2,3,4", "sizes=3,2,1 scales=1.5,0.67,0.25 mode=0 coord=3 rounding=1"},
    {"Resize", "5,3", "sizes=3,7 scales=0.6,2.4 mode=1 coord=6"},
    {"CumSum", "3,5", "axis=1"},
    {"CumSum", "3,5", "axis=-2 exclusive=1"},
    {"CumSum", "2,3,4", "axis=1 reverse=1"},
    {"CumSum", "5", "axis=0 exclusive=1 reverse=1"},
    {"LayerNorm", "3,5 5 5", "axis=-1 eps=0.01"},
    {"LayerNorm", "2,3,4 3,4", "axis=1 eps=0.01"},
    {"LayerNorm", "3,4 3,4 3,4", "axis=0"},
    {"RmsNorm", "3,5 5", "axis=-1 eps=0.01"},
    {"RmsNorm", "2,3,4 3,4", "axis=1"},
    {"RmsNorm", "7 7", "axis=0 eps=0.1"},
    {"GroupNorm", "2,6,5 6 6", "group=3 eps=0.01"},
    {"GroupNorm", "3,4,2,3 4 4", "group=1"},
    {"GroupNorm", "2,3,7 3 3", "group=3 eps=0.1"},
    {"GroupNorm", "3,6 6 6", "group=2 eps=0.01"},
    {"GroupNorm", "2,5,2,6 6 6", "group=3 channels_last=1 eps=0.01"},
    {"GroupNorm", "2,9,4 4 4", "group=4 channels_last=1 eps=0.01"},
    {"GroupNorm", "3,5,4 4 4", "group=1 channels_last=1"},
    {"Attention", "3,4 4,5 5,2", "alpha=0.5"},
    {"Attention", "2,3,4 2,5,4 2,5,2", "alpha=0.5 trans_b=1"},
    {"Attention", "2,2,3,4 2,2,4,5 2,2,5,4 f2,1,1,5", "alpha=0.7"},
    {"Attention", "2,3,4 2,5,4 2,5,2 f2,3,5 b1,3,5", "trans_b=1 value=-0.5"},
    {"Attention", "2,3,4 2,4,5 2,5,2 ~ b5", "alpha=-0.4 mode=1 value=0.25"},
    {"Attention", "1,1,4 1,4,1 1,1,2", ""},
    {"Attention", "2,3,4 2,5,4 2,5,2 2,3,5", "trans_b=1"},
    {"Attention", "2,2,3,4 2,2,4,5 2,2,5,4 2,1,5", "alpha=0.7"},
    {"Attention", "2,3,4 2,5,4 2,5,2 1,5 b1,3,5", "trans_b=1 value=-0.5"},
    {"Attention", "2,3,4 2,4,5 2,5,2", "ratio=0.5"},
    {"Attention", "2,3,4 2,5,4 2,5,2 3,5 b3,5", "trans_b=1 alpha=0.5 value=0.25 ratio=0.25"},
    {"Attention", "f2,3,4 f2,4,5 f2,5,2 2,1,5", "ratio=0.25"},
    {"Softmax", "3,5", "axis=-1"},
    {"Softmax", "3,5,2", "axis=1"},
    {"Softmax", "3,5,2", "axis=0"},
    {"LogSoftmax", "3,5", "axis=-1"},
    {"LogSoftmax", "3,5,2", "axis=1"},
    {"SoftmaxCE", "4,5 i5:4", "axis=1"},
    {"SoftmaxCE", "2,5,3 i5:2,3", "axis=1 smoothing=0.1"},
    {"SoftmaxCE", "4,3,5 I5:4,3", "axis=2 ignore_index=-1"},
    {"SoftmaxCE", "4,3,5 I5:4,3", "axis=-1 ignore_index=-1 smoothing=0.2"},
    {"SoftmaxCE", "5 i5:-", "axis=0"},
    {"NllLoss", "4,5 i5:4", "axis=1"},
    {"NllLoss", "2,5,6 I5:2,6", "axis=1 ignore_index=-1 smoothing=0.3"},
    {"Conv", "2,4,7 6,4,3", "kernel=3"},
    {"Conv", "2,4,7 6,2,3 6", "kernel=3 strides=2 pads=1,2 group=2"},
    {"Conv", "2,4,9 4,1,3 4", "kernel=3 dilations=2 pads=0,3 group=4"},
    {"Conv", "2,3,5,6 4,3,3,2 4", "kernel=3,2 strides=2,1 pads=1,0,0,1"},
    {"Conv", "2,5,6,3 4,3,3,2 4", "kernel=3,2 strides=2,1 pads=1,0,0,1 channels_last=1"},
    {"Conv", "1,6,6,4 4,2,3,3", "kernel=3,3 dilations=1,2 pads=1,2,1,1 group=2 channels_last=1"},
    {"Conv", "2,4,4,3 5,3,2,2 5", "kernel=2,2 relu=1 channels_last=1"},
    {"Conv", "1,2,3,4,4 2,2,2,3,2", "kernel=2,3,2 strides=1,2,1 pads=0,1,0,1,0,1"},
    {"Conv", "1,3,4,4,2 4,1,2,2,3 4",
     "kernel=2,2,3 dilations=1,2,1 pads=1,0,1,0,0,1 group=2 channels_last=1"},
    {"ConvGradX", "2,4,3 4,3,3", "kernel=3 strides=2 pads=1,0 shape=2,3,6"},
    {"ConvGradX", "2,4,4 4,3,2", "kernel=2 strides=2 group=2 shape=2,6,9"},
    {"ConvGradX", "2,2,3,4 4,3,2,3",
     "kernel=2,3 strides=2,2 pads=1,0,0,1 dilations=2,1 channels_last=1 shape=2,5,6,3"},
    {"MatMul", "3,4 4,5", ""},
    {"MatMul", "3,4 4,5 5", "alpha=0.5"},
    {"MatMul", "4,3 4,5", "trans_a=1"},
    {"MatMul", "3,4 5,4 5", "trans_b=1"},
    {"MatMul", "4,3 5,4", "trans_a=1 trans_b=1 alpha=-2.0"},
    {"MatMul", "2,3,4 4,5 5", ""},
    {"MatMul", "2,3,4 5,4", "trans_b=1"},
    {"MatMul", "2,4,3 4,5", "trans_a=1"},
    {"MatMul", "4,3 2,4,5", "trans_a=1"},
    {"MatMul", "2,3,3,4 2,3,4,2", "alpha=0.5"},
    {"MatMul", "2,1,3,4 3,4,2", ""},
    {"MatMul", "3,3,4 2,1,2,4", "trans_b=1"},
    {"MaxPool", "2,3,7", "kernel=3 strides=2"},
    {"MaxPool", "2,2,5,6", "kernel=3,2 strides=2,2 pads=1,0,1,1"},
    {"MaxPool", "2,5,6,2", "kernel=3,2 strides=2,2 pads=1,0,1,1 channels_last=1"},
    {"MaxPool", "1,2,6,6", "kernel=3,3 strides=2,2 ceil_mode=1"},
    {"MaxPool", "1,2,7,7", "kernel=2,2 dilations=2,3"},
    {"MaxPool", "1,1,4,4,4", "kernel=2,2,2 strides=2,1,2"},
    {"AveragePool", "2,3,7", "kernel=3 strides=2"},
    {"AveragePool", "2,2,5,6", "kernel=3,2 strides=2,2 pads=1,0,1,1"},
    {"AveragePool", "2,5,6,2", "kernel=3,2 strides=2,2 pads=1,0,1,1 channels_last=1"},
    {"AveragePool", "2,2,5,6", "kernel=3,2 strides=2,2 pads=1,0,1,1 count_include_pad=1"},
    {"AveragePool", "1,2,6,6", "kernel=3,3 strides=2,2 pads=1,1,1,1 ceil_mode=1"},
    {"AveragePool", "1,2,6,6",
     "kernel=3,3 strides=2,2 pads=1,1,1,1 ceil_mode=1 count_include_pad=1"},
    {"AveragePool", "1,1,4,4,4", "kernel=2,2,2 strides=2,1,2"},
    {"Reshape", "3,4", "shape=2,6"},
    {"Reshape", "1", "shape="},
    {"Copy", "3,4", ""},
    {"Transpose", "3,4", "perm=1,0"},
    {"Transpose", "2,3,4,5", "perm=0,3,1,2"},
    {"Concat", "2,3 2,1 2,4", "axis=1"},
    {"Concat", "2,3,2 1,3,2", "axis=-3"},
    {"Slice", "4,6", "starts=1,0 steps=1,2 sizes=2,3"},
    {"Slice", "4,7", "starts=3,6 steps=-1,-3 sizes=4,3"},
    {"Slice", "4,7", "starts=3,6 steps=-2,1 sizes=1,1"},
    {"Pad", "3,4", "pads=1,2,0,3 value=1.5"},
    {"Pad", "3,4", "pads=1,-1,0,3 mode=0"},
    {"Pad", "3,4", "pads=2,1,1,3 mode=1"},
    {"Pad", "3,4", "pads=2,1,1,5 mode=2"},
    {"Pad", "3,4", "pads=-1,1,2,-2 mode=1"},
    {"Pad", "3,4", "pads=2,-1,-1,0 mode=2"},
    {"Gather", "5,3 g5:4", "axis=0"},
    {"Gather", "2,5,3 g5:2,4", "axis=1"},
    {"Gather", "2,3,5 g5:-", "axis=-1"},
    {"Gather", "3 g3:9", "axis=0"},
};

/* ---- from the table to a graph ---- */
typedef struct {
    ValueId v;
    char kind; /* prefix, or ' ' */
    int below;
} Operand;

static const char *read_shape(const char *s, Shape *out) {
    *out = (Shape){0};
    if (*s == '-') return s + 1;
    while (*s >= '0' && *s <= '9') {
        char *end;
        out->dim[out->rank++] = strtoll(s, &end, 10);
        s = *end == ',' ? end + 1 : end;
    }
    return s;
}

static const char *read_operand(Graph *g, const char *s, Operand *o) {
    Shape shape;
    *o = (Operand){.kind = ' ', .v = NO_ID};
    if (*s == '~') return s + (s[1] == ' ' ? 2 : 1);
    if (strchr("+bigIfphuqz", *s)) o->kind = *s++;
    if (strchr("igIq", o->kind)) {
        char *end;
        o->below = (int)strtol(s, &end, 10);
        s = end + 1; /* the colon */
    }
    s = read_shape(s, &shape);
    DType dt = o->kind == 'b' ? DT_BOOL : strchr("igIq", o->kind) ? DT_I64 : DT_F32;
    Role role = dt != DT_F32 ? ROLE_INPUT : strchr("fp", o->kind) ? ROLE_FROZEN : ROLE_PARAM;
    o->v = ir_value(g, arena_printf(g->arena, "x%u", g->nvalue), dt, &shape, role);
    while (*s == ' ') s++;
    return s;
}

static void read_attrs(Graph *g, NodeId n, const char *s) {
    while (*s) {
        size_t len = strcspn(s, "="), end;
        AttrKey key = attr_by_name(arena_strn(g->arena, s, len));
        CHECK(key != A_COUNT);
        s += len + 1;
        end = strcspn(s, " ");
        bool is_float = memchr(s, '.', end) != NULL;
        int64_t ints[16];
        double reals[16];
        uint32_t count = 0;
        const char *p = s;
        while (p < s + end) {
            char *q;
            if (is_float)
                reals[count++] = strtod(p, &q);
            else
                ints[count++] = strtoll(p, &q, 10);
            p = *q == ',' ? q + 1 : q;
        }
        if (is_float)
            ir_attr_copy(g, n, &(Attr){key, true, count, NULL, reals}, 1);
        else
            ir_attr_ints(g, n, key, ints, count);
        s += end;
        while (*s == ' ') s++;
    }
}

/* loss = sum(first result * random): the value of the random tensor is returned */
static ValueId append_loss(Graph *g, ValueId y) {
    Shape s = g->value[y].shape;
    ValueId r = ir_value(g, "r", DT_F32, &s, ROLE_CONST);
    ValueId p = op_make2(g, PHASE_FORWARD, OP_Mul, "dot", y, r);
    Attr at = attr_i(g->arena, A_keepdims, 0);
    g->output = ARENA_NEW(g->arena, ValueId);
    g->output[0] = op_make_attr(g, PHASE_FORWARD, OP_ReduceSum, "sum", 1, &p, &at, 1);
    g->noutput = 1;
    return r;
}

static void fill(const Ten *t, char kind, int below) {
    for (uint64_t i = 0; i < ten_count(&t->s); i++) {
        switch (kind) {
        case '+':
        case 'p': t->x[i] = test_uniform(0.5, 2); break;
        case 'q': t->x[i] = (double)(i % (uint64_t)below); break;
        case 'h': t->x[i] = test_uniform(-0.9, 0.9); break;
        case 'u': t->x[i] = test_uniform(1.1, 3); break;
        case 'z': t->x[i] = i % 3 ? test_uniform(-2, 2) : 0; break;
        case 'b': t->x[i] = test_uniform(0, 1) < 0.5; break;
        case 'i': t->x[i] = floor(test_uniform(0, below)); break;
        case 'I': t->x[i] = floor(test_uniform(-1, below)); break;
        case 'g': t->x[i] = floor(test_uniform(-below, below)); break;
        default: t->x[i] = test_uniform(-2, 2); break;
        }
    }
}

/* ---- the check ---- */
static double loss_at(const Graph *g, Ten *val, NodeId nfwd, double *x, double v) {
    double old = *x;
    *x = v;
    interp_run(g, val, 0, nfwd);
    *x = old;
    return val[g->loss].x[0];
}

static ValueId gradient_of(const Graph *g, ValueId w) {
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].param == w && g->value[v].role == ROLE_TEMP) return v;
    return NO_ID;
}

static void check_param(const Graph *g, Ten *val, ValueId w, const char *what) {
    const double h = 1e-5; /* truncation h^2 = 1e-10, rounding 1e-16 / h = 1e-11: 2e-7 is ample */
    ValueId dw = gradient_of(g, w);
    CHECK(dw != NO_ID);
    if (dw == NO_ID) return;
    NodeId nfwd = 0;
    while (nfwd < g->nnode && g->node[nfwd].phase == PHASE_FORWARD) nfwd++;
    for (uint64_t i = 0; i < ten_count(&val[w].s); i++) {
        double *x = &val[w].x[i], at = *x, got = val[dw].x[i];
        double want =
            (loss_at(g, val, nfwd, x, at + h) - loss_at(g, val, nfwd, x, at - h)) / (2 * h);
        test_checks++;
        if (fabs(got - want) <= 2e-7 * (1 + fabs(want))) continue;
        test_failed++;
        fprintf(stderr, "%s: %s[%llu]: gradient %.9g, by differences %.9g\n", what,
                g->value[w].name, (unsigned long long)i, got, want);
        return;
    }
}

/* Builds the step for the loss, runs it, and checks the gradient of every parameter. in[i] says how
 * source v is filled. */
static void check_graph(Arena *a, Diag *d, const Graph *g, const char *loss, const char *kinds,
                        const int *below, const char *what) {
    LossSpec spec;
    OptSpec opt = {.kind = OPT_SGD};
    CHECK(train_parse_loss(d, a, loss, &spec));
    Graph *step = train_build(a, d, g, &spec, &opt);
    CHECK(step != NULL);
    if (!step) return;
    CHECK(ir_verify(d, step));
    Ten *val = interp_new(a, step);
    for (ValueId v = 0; v < step->nvalue; v++) {
        if (step->value[v].def != NO_ID || step->value[v].data) continue;
        bool known = v < g->nvalue && kinds;
        char kind = step->value[v].dtype == DT_F32 ? ' ' : 'i'; /* labels: three classes at least */
        fill(&val[v], known ? kinds[v] : kind, known ? below[v] : 3);
    }
    interp_run(step, val, 0, step->nnode);
    for (ValueId v = 0; v < g->nvalue; v++)
        if (step->value[v].role == ROLE_PARAM) check_param(step, val, v, what);
}

static void run_case(const Case *k) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    const char *what = arena_printf(a, "%s %s %s", k->op, k->in, k->attr);
    Graph *g = ir_new(a, "case");
    Operand in[8];
    uint32_t nin = 0;
    for (const char *s = k->in; *s;) s = read_operand(g, s, &in[nin++]);
    OpCode op = ir_op_by_name(k->op);
    CHECK(op != OP_NONE);
    NodeId n = ir_node(g, op, PHASE_FORWARD, "op", nin, op_def(op)->nout);
    for (uint32_t i = 0; i < nin; i++) g->node[n].in[i] = in[i].v;
    g->node[n].key = 7;
    read_attrs(g, n, k->attr);
    bool ok = op_infer(g, &d, n);
    CHECK(ok);
    if (ok) {
        append_loss(g, g->node[n].out[0]);
        char *kinds = memset(arena_alloc(a, g->nvalue), ' ', g->nvalue);
        int *below = ARENA_ARRAY(a, int, g->nvalue);
        for (uint32_t i = 0; i < nin; i++) {
            if (in[i].v == NO_ID) continue;
            kinds[in[i].v] = in[i].kind;
            below[in[i].v] = in[i].below;
        }
        check_graph(a, &d, g, "output", kinds, below, what);
    }
    if (!ok) fprintf(stderr, "in case %s\n", what);
    arena_free(a);
}

/* ---- several operators, and the losses ---- */
typedef struct {
    const char *what, *loss, *text;
} Net;

static const Net nets[] = {
    {"batch norm with statistics of the batch", "mse",
     "%0 param f32[2,3,2,4] \"x\" %1 param f32[4] \"g\" %2 param f32[4] \"b\"\n"
     "fwd %3 f32[4] \"m\", %4 f32[4] \"v\" = BnStats(%0) \"s\"\n"
     "fwd %5 f32[4] \"i\" = InvStd(%4) {eps=0.01} \"i\"\n"
     "fwd %6 f32[2,3,2,4] \"y\" = BnApply(%0, %3, %5, %1, %2) \"a\"\n"
     "fwd %7 f32[2,3,2,4] \"z\" = Tanh(%6) \"t\"\noutput %7\n"},
    {"batch norm, only the bias trained", "mse",
     "%0 frozen f32[6,4] \"x\" %1 frozen f32[4] \"g\" %2 param f32[4] \"b\"\n"
     "fwd %3 f32[4] \"m\", %4 f32[4] \"v\" = BnStats(%0) \"s\"\n"
     "fwd %5 f32[4] \"i\" = InvStd(%4) {eps=0.01} \"i\"\n"
     "fwd %6 f32[6,4] \"y\" = BnApply(%0, %3, %5, %1, %2) \"a\"\noutput %6\n"},
    {"a weight read twice, and a view of it", "mse",
     "%0 input f32[3,4] \"x\" %1 param f32[4,4] \"w\"\n"
     "fwd %2 f32[3,4] \"h\" = MatMul(%0, %1) \"h\"\n"
     "fwd %3 f32[3,4] \"k\" = MatMul(%2, %1) {trans_b=1} \"k\"\n"
     "fwd %4 f32[16] \"flat\" = Reshape(%1) {shape=[16]} \"flat\"\n"
     "fwd %5 f32[4] \"four\" = Slice(%4) {starts=[1], steps=[3], sizes=[4]} \"four\"\n"
     "fwd %6 f32[3,4] \"y\" = Mul(%3, %5) \"y\"\noutput %6\n"},
    {"a value with three consumers, one twice", "l1",
     "%0 param f32[3,4] \"w\"\n"
     "fwd %1 f32[3,4] \"s\" = Sigmoid(%0) \"s\"\n"
     "fwd %2 f32[3,4] \"q\" = Mul(%1, %1) \"q\"\n"
     "fwd %3 f32[3,4] \"e\" = Exp(%1) \"e\"\n"
     "fwd %4 f32[3,4] \"d\" = Div(%3, %1) \"d\"\n"
     "fwd %5 f32[3,4] \"y\" = Sub(%4, %2) \"y\"\noutput %5\n"},
    {"two weights with one gradient", "mse",
     "%0 param f32[4] \"u\" %1 param f32[4] \"v\"\n"
     "fwd %2 f32[4] \"y\" = Add(%0, %1) \"y\"\noutput %2\n"},
    {"a derivative that is zero", "mse",
     "%0 param f32[4] \"u\" %1 param f32[4] \"v\"\n"
     "fwd %2 f32[4] \"f\" = Floor(%0) \"f\"\n"
     "fwd %3 f32[4] \"y\" = Mul(%2, %1) \"y\"\noutput %3\n"},
    {"cross-entropy", "cross-entropy:class_axis=-1,label_smoothing=0.1",
     "%0 param f32[3,2,4] \"w\"\nfwd %1 f32[3,2,4] \"y\" = Tanh(%0) \"y\"\noutput %1\n"},
    {"cross-entropy of a channels-last image", "cross-entropy:ignore_index=1",
     "%0 param f32[2,3,2,4] \"w\"\n"
     "fwd %1 f32[2,3,2,4] \"h\" = Tanh(%0) \"h\"\n"
     "fwd %2 f32[2,4,3,2] \"y\" = Transpose(%1) {perm=[0,3,1,2]} \"y\"\noutput %2\n"},
    {"nll", "nll:ignore_index=1",
     "%0 param f32[3,4,2] \"w\"\n"
     "fwd %1 f32[3,4,2] \"y\" = LogSoftmax(%0) {axis=1} \"y\"\noutput %1\n"},
    {"bce-logits", "bce-logits",
     "%0 param f32[3,2,4] \"w\"\nfwd %1 f32[3,2,4] \"y\" = Neg(%0) \"y\"\noutput %1\n"},
    {"a scalar output that is the loss", "output",
     "%0 param f32[3] \"w\"\n"
     "fwd %1 f32[1,3] \"r\" = Reshape(%0) {shape=[1,3]} \"r\"\n"
     "fwd %2 f32[1,1] \"y\" = MatMul(%1, %1) {trans_b=1} \"y\"\noutput %2\n"},
    {"mean of a scalar", "mse",
     "%0 param f32[] \"w\"\nfwd %1 f32[] \"y\" = Sin(%0) \"y\"\noutput %1\n"},
};

static void run_net(const Net *n) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, stderr);
    Graph *g = ir_parse(a, &d, n->what, arena_printf(a, "graph \"net\"\n%s", n->text));
    CHECK(g != NULL);
    if (g) check_graph(a, &d, g, n->loss, NULL, NULL, n->what);
    arena_free(a);
}

/* Every operator that has a gradient must stand in the table. */
static void check_complete(void) {
    for (OpCode op = 1; op < OP_COUNT; op++) {
        bool there = !op_def(op)->grad || op_def(op)->out_dtype == DT_BOOL;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            there |= !strcmp(cases[i].op, op_def(op)->name);
        if (!there) fprintf(stderr, "no case for %s\n", op_def(op)->name);
        CHECK(there);
    }
}

int main(void) {
    check_complete();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) run_net(&nets[i]);
    return test_end();
}
