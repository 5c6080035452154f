/* test_infer.c - shape inference as a table: inputs and attributes in, output types or the message
 * out. */
#include "test_ops.h"

typedef struct {
    OpCode op;
    const char *in[5];  /* types; NULL ends the list, "-" is an absent input */
    const char *attr;   /* attributes as in the text form */
    const char *expect; /* "f32[2,3]", several joined by a blank, or "! message" */
} Row;

static const Row rows[] = {
    /* elementwise: numpy broadcasting, one dtype */
    {OP_Add, {"f32[8,1,5]", "f32[3,1]"}, "", "f32[8,3,5]"},
    {OP_Add, {"i64[2]", "i64[]"}, "", "i64[2]"},
    {OP_Add,
     {"f32[2]", "f32[3]"},
     "",
     "! node 'n' (Add), tensor 'x1': expected a shape that broadcasts with [2] for input 1, found "
     "[3]"},
    {OP_Add,
     {"f32[2]", "i64[2]"},
     "",
     "! node 'n' (Add), tensor 'x1': expected dtype f32 for input 1, found i64"},
    {OP_Add, {"f32[2]"}, "", "! node 'n' (Add): expected 2 inputs, found 1"},
    {OP_Add, {"f32[2]", "-"}, "", "! node 'n' (Add): input 1 is required, found none"},
    {OP_Exp,
     {"i64[2]"},
     "",
     "! node 'n' (Exp), tensor 'x0': expected dtype f32 for input 0, found i64"},
    {OP_Less, {"i64[2,1]", "i64[3]"}, "", "bool[2,3]"},
    {OP_Not, {"bool[2]"}, "", "bool[2]"},
    {OP_And,
     {"bool[2]", "f32[2]"},
     "",
     "! node 'n' (And), tensor 'x1': expected dtype bool for input 1, found f32"},
    {OP_Where, {"bool[2,1]", "i64[3]", "i64[]"}, "", "i64[2,3]"},
    {OP_Where,
     {"f32[2]", "f32[2]", "f32[2]"},
     "",
     "! node 'n' (Where), tensor 'x0': expected dtype bool for input 0, found f32"},
    {OP_Cast, {"f32[2]"}, "to=2", "i64[2]"},
    {OP_Expand, {"f32[3,1]"}, "shape=[2,3,4]", "f32[2,3,4]"},
    {OP_BnApply,
     {"f32[2,8,3]", "f32[3]", "f32[1]", "f32[3]", "f32[3]"},
     "",
     "! node 'n' (BnApply), tensor 'x2': expected shape [3] for input 2, found [1]"},
    {OP_BnGradX, {"f32[2,3]", "f32[2,3]"}, "", "! node 'n' (BnGradX): expected 7 inputs, found 2"},
    /* convolution: (10 + 1 + 1 - 3) / 2 + 1 = 5; dilated window 5 of 3: (10 - 5) + 1 = 6 */
    {OP_Conv,
     {"f32[2,6,10,10]", "f32[4,6,3,3]", "f32[4]"},
     "strides=[2,2], pads=[1,1,1,1]",
     "f32[2,4,5,5]"},
    {OP_Conv, {"f32[2,6,10]", "f32[4,3,3]"}, "group=2, dilations=2", "f32[2,4,6]"},
    {OP_Conv, {"f32[2,10,10,6]", "f32[4,6,3,1]"}, "channels_last=1", "f32[2,8,10,4]"},
    {OP_Conv,
     {"f32[2,6,10,10]", "f32[4,3,3,3]"},
     "",
     "! node 'n' (Conv), tensor 'x1': expected shape [4,6,3,3] for input 1, found [4,3,3,3]"},
    {OP_Conv,
     {"f32[2,6,10,10]", "f32[4,6,3,3]", "f32[5]"},
     "",
     "! node 'n' (Conv), tensor 'x2': expected shape [4] for input 2, found [5]"},
    {OP_Conv,
     {"f32[2,6,10,10]", "f32[4,6,3]"},
     "",
     "! node 'n' (Conv), tensor 'x1': expected 4 axes for input 1, found shape [4,6,3]"},
    {OP_Conv,
     {"f32[2,6,2,2]", "f32[4,6,3,3]"},
     "",
     "! node 'n' (Conv): expected a window of at most 2 on spatial axis 0, found 3"},
    {OP_Conv,
     {"f32[2,6,8,8]", "f32[4,6,3,3]"},
     "strides=[0,1]",
     "! node 'n' (Conv): expected at least 1 in attribute strides, found 0"},
    {OP_Conv,
     {"f32[2,6,8,8]", "f32[4,6,3,3]"},
     "group=4",
     "! node 'n' (Conv): expected a group count that divides 6 and 4 channels, found 4"},
    {OP_ConvGradX,
     {"f32[2,4,5,5]", "f32[4,6,3,3]"},
     "strides=[2,2], pads=[1,1,1,1], shape=[2,6,10,10]",
     "f32[2,6,10,10]"},
    {OP_ConvGradX,
     {"f32[2,4,5,6]", "f32[4,6,3,3]"},
     "strides=[2,2], pads=[1,1,1,1], shape=[2,6,10,10]",
     "! node 'n' (ConvGradX), tensor 'x0': expected shape [2,4,5,5] for input 0, found [2,4,5,6]"},
    {OP_ConvGradW,
     {"f32[2,4,5,5]", "f32[2,6,10,10]"},
     "strides=[2,2], pads=[1,1,1,1], shape=[4,6,3,3]",
     "f32[4,6,3,3]"},
    /* matrix product */
    {OP_MatMul, {"f32[5,2,3]", "f32[3,4]", "f32[4]"}, "", "f32[5,2,4]"},
    {OP_MatMul, {"f32[7,1,3,2]", "f32[5,4,3]"}, "trans_a=1, trans_b=1", "f32[7,5,2,4]"},
    {OP_MatMul,
     {"f32[2,3]", "f32[4,5]"},
     "",
     "! node 'n' (MatMul), tensor 'x1': expected 3 rows to multiply with [2,3], found 4 in [4,5]"},
    {OP_MatMul,
     {"f32[2,2,3]", "f32[3,3,4]"},
     "",
     "! node 'n' (MatMul), tensor 'x1': expected batch axes that broadcast with [2,2,3], found "
     "[3,3,4]"},
    {OP_MatMul,
     {"f32[3]", "f32[3,4]"},
     "",
     "! node 'n' (MatMul), tensor 'x0': expected 2 to 8 axes for input 0, found shape [3]"},
    /* pools. Size 6, window 3, stride 2: floor(3/2)+1 = 2, ceil(3/2)+1 = 3 (starts at 4 < 6).
     * Size 5, window 2, stride 3, pad 1: ceil(5/3)+1 = 3, but the third starts at 6 = 5 + 1, in the
     * trailing padding: 2. */
    {OP_MaxPool, {"f32[1,4,6,6]"}, "kernel=[3,3], strides=[2,2]", "f32[1,4,2,2] u8[1,4,2,2]"},
    {OP_MaxPool,
     {"f32[1,4,6,6]"},
     "kernel=[3,3], strides=[2,2], ceil_mode=1",
     "f32[1,4,3,3] u8[1,4,3,3]"},
    {OP_MaxPool,
     {"f32[1,4,5]"},
     "kernel=2, strides=3, pads=[1,1], ceil_mode=1",
     "f32[1,4,2] u8[1,4,2]"},
    /* size 2, window 3: ceil(-1/2)+1 = 1 with stride 2; window 4: ceil(-2/2)+1 = 0 */
    {OP_AveragePool, {"f32[1,4,2]"}, "kernel=3, strides=2, ceil_mode=1", "f32[1,4,1]"},
    {OP_AveragePool,
     {"f32[1,4,2]"},
     "kernel=4, strides=2, ceil_mode=1",
     "! node 'n' (AveragePool): expected a window of at most 3 on spatial axis 0, found 4"},
    {OP_AveragePool, {"f32[1,6,6,4]"}, "kernel=[6,6], channels_last=1", "f32[1,1,1,4]"},
    {OP_MaxPool,
     {"f32[1,4,6]"},
     "kernel=2, pads=[2,0]",
     "! node 'n' (MaxPool): expected padding below the window of 2 on spatial axis 0, found 2"},
    {OP_MaxPool,
     {"f32[1,4,6]"},
     "",
     "! node 'n' (MaxPool): expected attribute kernel with positive sizes"},
    {OP_MaxPool,
     {"f32[1,4,6]"},
     "kernel=[2,2]",
     "! node 'n' (MaxPool): expected 1 integers in attribute kernel, found 2"},
    {OP_MaxPool,
     {"i64[1,4,6]"},
     "kernel=2",
     "! node 'n' (MaxPool), tensor 'x0': expected dtype f32 for input 0, found i64"},
    {OP_MaxPoolGrad,
     {"f32[1,4,2,2]", "u8[1,4,2,2]"},
     "kernel=[3,3], strides=[2,2], shape=[1,4,6,6]",
     "f32[1,4,6,6]"},
    {OP_AveragePoolGrad,
     {"f32[1,4,2,2]"},
     "kernel=[3,3], shape=[1,4,6,6]",
     "! node 'n' (AveragePoolGrad), tensor 'x0': expected shape [1,4,4,4] for input 0, found "
     "[1,4,2,2]"},
    /* movement */
    {OP_Reshape, {"i64[2,3]"}, "shape=[3,2,1]", "i64[3,2,1]"},
    {OP_Reshape,
     {"f32[2,3]"},
     "shape=[4]",
     "! node 'n' (Reshape), tensor 'x0': expected as many elements as shape [4] has, found shape "
     "[2,3]"},
    {OP_Reshape,
     {"f32[2,3]"},
     "shape=-1",
     "! node 'n' (Reshape): expected sizes in attribute shape, found -1"},
    {OP_Reshape, {"f32[2,3]"}, "", "! node 'n' (Reshape): expected attribute shape, found none"},
    {OP_Transpose, {"f32[2,3,4]"}, "perm=[2,0,1]", "f32[4,2,3]"},
    {OP_Transpose,
     {"f32[2,3]"},
     "perm=[1,1]",
     "! node 'n' (Transpose): expected a permutation of 0..1 in attribute perm, found 1 at 1"},
    {OP_Concat, {"f32[2,3]", "f32[2,5]", "f32[2,0]"}, "axis=-1", "f32[2,8]"},
    {OP_Concat,
     {"f32[2,3]", "f32[3,3]"},
     "axis=1",
     "! node 'n' (Concat), tensor 'x1': expected shape [2,3] for input 1, found [3,3]"},
    {OP_Concat,
     {"f32[2]", "f32[2]"},
     "axis=1",
     "! node 'n' (Concat): expected an axis in -1..0, found 1"},
    {OP_Slice, {"f32[10,4]"}, "starts=[9,0], steps=[-3,1], sizes=[4,0]", "f32[4,0]"},
    {OP_Slice,
     {"f32[10]"},
     "starts=9, steps=-3, sizes=5",
     "! node 'n' (Slice): expected a slice inside 0..9 on axis 0, found start 9, step -3, size 5"},
    {OP_Slice,
     {"f32[10]"},
     "starts=0, steps=9223372036854775807, sizes=3",
     "! node 'n' (Slice): expected a slice inside 0..9 on axis 0, found start 0, step "
     "9223372036854775807, size 3"},
    {OP_SliceGrad, {"f32[4]"}, "starts=9, steps=-3, shape=10", "f32[10]"},
    {OP_SliceAdd, {"f32[10]", "f32[4]"}, "starts=9, steps=-3", "f32[10]"},
    {OP_SliceAdd,
     {"f32[10]", "f32[5]"},
     "starts=9, steps=-3",
     "! node 'n' (SliceAdd): expected a slice inside 0..9 on axis 0, found start 9, step -3, size "
     "5"},
    {OP_Pad, {"f32[3,4]"}, "pads=[1,0,-1,2], value=0.5", "f32[3,6]"},
    {OP_Pad,
     {"f32[3]"},
     "pads=[3,0], mode=1",
     "! node 'n' (Pad): expected pads that fit size 3 of axis 0, found 3 and 0"},
    {OP_Pad,
     {"f32[3]"},
     "pads=[-2,-2]",
     "! node 'n' (Pad): expected pads that fit size 3 of axis 0, found -2 and -2"},
    {OP_PadGrad, {"f32[6]"}, "pads=[2,1], mode=2, shape=3", "f32[3]"},
    {OP_Gather, {"f32[9,5]", "i64[2,3]"}, "axis=0", "f32[2,3,5]"},
    {OP_Gather, {"f32[9,5]", "i32[]"}, "axis=1", "f32[9]"},
    {OP_Gather,
     {"f32[9,5]", "f32[2]"},
     "axis=0",
     "! node 'n' (Gather), tensor 'x1': expected integers (i64 or i32) for input 1, found f32"},
    {OP_GatherGrad, {"f32[9,2,3]", "i64[2,3]"}, "axis=1, shape=[9,5]", "f32[9,5]"},
    {OP_GatherGrad,
     {"f32[2,3,9]", "i64[2,3]"},
     "axis=1, shape=[9,5]",
     "! node 'n' (GatherGrad), tensor 'x0': expected the shape of Gather over [9,5] with indices "
     "[2,3], "
     "found [2,3,9]"},
    {OP_Fill, {0}, "shape=[2,2], value=1.5", "f32[2,2]"},
    {OP_Fill,
     {0},
     "shape=[1048576,1048577]",
     "! node 'n' (Fill): output 0 of shape [1048576,1048577] is too large"},

    /* sums and statistics over columns */
    {OP_ReduceSum, {"f32[2,3,4]"}, "axes=[0,2]", "f32[1,3,1]"},
    {OP_ReduceSum, {"f32[2,3,4]"}, "axes=1, keepdims=0", "f32[2,4]"},
    {OP_ReduceSum, {"f32[2,3]"}, "keepdims=0", "f32[]"},
    {OP_ReduceSum,
     {"f32[2,3]"},
     "axes=[1,0]",
     "! node 'n' (ReduceSum), tensor 'x0': expected rising axes of [2,3], found 0"},
    {OP_ReduceSum,
     {"i64[2,3]"},
     "",
     "! node 'n' (ReduceSum), tensor 'x0': expected dtype f32 for input 0, found i64"},
    {OP_GatherElements, {"f32[4,5]", "i64[7,2]"}, "axis=0", "f32[7,2]"},
    {OP_GatherElements,
     {"f32[4,5]", "i64[4,6]"},
     "axis=0",
     "! node 'n' (GatherElements), tensor 'x1': expected at most 5 on axis 1, found shape [4,6]"},
    {OP_ScatterElements, {"i32[2,2]", "f32[2,2]", "f32[3,5]"}, "axis=1", "f32[3,5]"},
    {OP_ScatterElements, {"i64[2,2]", "i64[2,2]"}, "axis=1, shape=[2,9]", "i64[2,9]"},
    {OP_ScatterElements,
     {"i64[2,2]", "i64[2,2]"},
     "reduction=1, shape=[2,9]",
     "! node 'n' (ScatterElements), tensor 'x1': expected dtype f32 for input 1, found i64"},
    {OP_ScatterElements,
     {"i64[2]", "f32[2]"},
     "reduction=5, shape=[2]",
     "! node 'n' (ScatterElements): expected a reduction in 0..4, found 5"},
    {OP_GatherND, {"f32[2,3,4]", "i64[2,5,1]"}, "batch_dims=1", "f32[2,5,4]"},
    {OP_GatherND,
     {"f32[2,3]", "i64[5,3]"},
     "",
     "! node 'n' (GatherND), tensor 'x1': expected indices into shape [2,3] over 0 batch axes, "
     "found shape [5,3]"},
    {OP_ScatterND, {"i64[5,2]", "f32[5,4]", "f32[2,3,4]"}, "", "f32[2,3,4]"},
    {OP_ScatterND,
     {"i64[5,2]", "f32[4]", "f32[2,3,4]"},
     "",
     "! node 'n' (ScatterND), tensor 'x1': expected shape [5,4] for input 1, found [4]"},
    {OP_TopK, {"f32[2,5]"}, "axis=-1, k=3", "f32[2,3] i64[2,3]"},
    {OP_TopK, {"f32[2,5]"}, "k=6", "! node 'n' (TopK), tensor 'x0': expected a k of 0..5, found 6"},
    {OP_Resize, {"f32[2,3]"}, "sizes=[2,6], scales=[1.0,2.0]", "f32[2,6]"},
    {OP_Resize,
     {"f32[2,3]"},
     "sizes=[2,6], scales=[1.0,0.0]",
     "! node 'n' (Resize): expected another number in attribute scales than 0"},
    {OP_Resize,
     {"f32[2,3]"},
     "sizes=[2,-6], scales=[1.0,2.0]",
     "! node 'n' (Resize): expected sizes of 1 to 2^31 - 1 on axis 1"},
    {OP_Resize,
     {"f32[2,3]"},
     "sizes=[2,6], scales=[1.0,2.0], coord=9",
     "! node 'n' (Resize): expected 0..6 in attribute coord, found 9"},
    {OP_ResizeGrad, {"f32[2,6]"}, "sizes=[2,6], scales=[1.0,2.0], shape=[2,3]", "f32[2,3]"},
    {OP_RandomNormal, {0}, "shape=[2,3]", "f32[2,3]"},
    {OP_Bernoulli, {"f32[2,3]"}, "", "f32[2,3]"},
    {OP_ReduceMax, {"f32[2,3,4]"}, "axes=[1], keepdims=0", "f32[2,4]"},
    {OP_ReduceMax,
     {"f32[2,0]"},
     "axes=[1]",
     "! node 'n' (ReduceMax), tensor 'x0': expected elements to take an extreme of, found shape "
     "[2,0]"},
    {OP_ReduceLogSumExp, {"f32[2,3]"}, "keepdims=0", "f32[]"},
    {OP_ReduceProdGrad, {"f32[2,1]", "f32[2,3]"}, "axes=[1]", "f32[2,3]"},
    {OP_ReduceProdGrad,
     {"f32[2]", "f32[2,3]"},
     "axes=[1]",
     "! node 'n' (ReduceProdGrad), tensor 'x0': expected shape [2,1] for input 0, found [2]"},
    {OP_CumSum, {"f32[2,3]"}, "axis=-1", "f32[2,3]"},
    {OP_CumSum, {"f32[2,3]"}, "axis=2", "! node 'n' (CumSum): expected an axis in -2..1, found 2"},
    {OP_ArgMax, {"f32[2,3]"}, "axis=1", "i64[2,1]"},
    {OP_ArgMin, {"f32[2,3]"}, "axis=0, keepdims=0", "i64[3]"},
    {OP_PRelu,
     {"f32[2,3]", "f32[4,1,1]"},
     "",
     "! node 'n' (PRelu), tensor 'x1': expected a slope that broadcasts to [2,3], found [4,1,1]"},
    {OP_IsNaN, {"f32[2,3]"}, "", "bool[2,3]"},
    {OP_MaxPoolPlaces, {"f32[2,3,8,8]"}, "kernel=[2,2], strides=[2,2]", "i64[2,3,4,4]"},
    {OP_ShiftLeft, {"i32[2,3]", "i32[3]"}, "k=8", "i32[2,3]"},
    {OP_IntMod, {"i64[2,3]", "i64[3]"}, "", "i64[2,3]"},
    {OP_IntDiv,
     {"f32[2,3]", "f32[3]"},
     "",
     "! node 'n' (IntDiv), tensor 'x0': expected integers (i64 or i32) for input 0, found f32"},
    {OP_GroupNorm, {"f32[2,6,5]", "f32[6]", "f32[6]"}, "group=3", "f32[2,6,5] f32[2,3] f32[2,3]"},
    {OP_GroupNorm,
     {"f32[2,6,5]", "f32[6]", "f32[6]"},
     "group=4",
     "! node 'n' (GroupNorm), tensor 'x0': expected groups that divide 6 channels, found 4"},
    {OP_GroupNorm,
     {"f32[2,6,5]", "f32[5]", "f32[5]"},
     "group=2",
     "! node 'n' (GroupNorm), tensor 'x1': expected shape [6] for input 1, found [5]"},
    {OP_RmsNorm, {"f32[2,6,5]", "f32[6,5]"}, "axis=1", "f32[2,6,5] f32[2,1,1]"},
    {OP_Attention, {"f32[2,5,4]", "f32[2,4,6]", "f32[2,6,3]"}, "", "f32[2,5,3] f32[2,5,2]"},
    {OP_Attention,
     {"f32[2,5,4]", "f32[2,6,4]", "f32[2,6,3]", "f32[1,6]", "bool[2,5,6]"},
     "trans_b=1",
     "f32[2,5,3] f32[2,5,2]"},
    {OP_Attention,
     {"f32[2,5,4]", "f32[2,6,4]", "f32[2,6,3]"},
     "",
     "! node 'n' (Attention), tensor 'x1': expected shape [2,4,6] for input 1, found [2,6,4]"},
    {OP_Attention,
     {"f32[2,5,4]", "f32[2,4,6]", "f32[2,6,3]", "f32[5,1]"},
     "",
     "! node 'n' (Attention), tensor 'x3': expected a mask for scores [2,5,6], found [5,1]"},
    {OP_Attention,
     {"f32[0,5,4]", "f32[0,4,6]", "f32[0,6,3]"},
     "",
     "! node 'n' (Attention), tensor 'x0': expected scores of a size above 0, found [0,5,6]"},
    {OP_Attention,
     {"f32[5,4]", "f32[4,6]", "f32[6,3]"},
     "ratio=1.0",
     "! node 'n' (Attention): expected a ratio of 0 to less than 1, found 1"},
    {OP_AttentionGrad,
     {"f32[5,3]", "f32[5,4]", "f32[4,6]", "f32[6,3]", "f32[5,2]"},
     "",
     "f32[5,4] f32[4,6] f32[6,3] f32[5,6]"},
    {OP_BnStats, {"f32[2,3,4]"}, "", "f32[4] f32[4]"},
    {OP_BnGradReduce,
     {"f32[2,4]", "f32[2,4]", "f32[4]", "f32[2]"},
     "",
     "! node 'n' (BnGradReduce), tensor 'x3': expected shape [4] for input 3, found [2]"},
    {OP_BnUpdate, {"f32[4]", "f32[4]", "f32[4]", "f32[4]"}, "", ""},

    /* layer norm: statistics keep their axes */
    {OP_LayerNorm,
     {"f32[2,3,4]", "f32[3,4]", "f32[3,4]"},
     "axis=1",
     "f32[2,3,4] f32[2,1,1] f32[2,1,1]"},
    {OP_LayerNorm,
     {"f32[2,3,4]", "f32[3,4]"},
     "axis=-1",
     "! node 'n' (LayerNorm), tensor 'x1': expected shape [4] for input 1, found [3,4]"},
    {OP_Softmax, {"f32[2,3]"}, "axis=0", "f32[2,3]"},
    {OP_Softmax, {"f32[]"}, "", "! node 'n' (Softmax): expected an axis in 0..-1, found -1"},

    /* losses: labels without the class axis */
    {OP_SoftmaxCE, {"f32[2,5,3]", "i64[2,3]"}, "axis=1", "f32[]"},
    {OP_NllLoss, {"f32[5]", "i32[]"}, "axis=0", "f32[]"},
    {OP_SoftmaxCEGrad, {"f32[]", "f32[2,5]", "i64[2]"}, "axis=-1", "f32[2,5]"},
    {OP_SoftmaxCE,
     {"f32[2,5]", "i64[5]"},
     "axis=1",
     "! node 'n' (SoftmaxCE), tensor 'x1': expected shape [2] for input 1, found [5]"},
    {OP_SoftmaxCE,
     {"f32[2,5]", "f32[2]"},
     "axis=1",
     "! node 'n' (SoftmaxCE), tensor 'x1': expected integers (i64 or i32) for input 1, found "
     "f32"},

    {OP_Dropout,
     {"f32[2]"},
     "ratio=1.5",
     "! node 'n' (Dropout): expected a ratio of 0 to 1, found 1.5"},
    {OP_Adam, {"f32[2]", "f32[2]", "f32[2]", "f32[2]"}, "", ""},
    {OP_Sgd,
     {"f32[2]", "f32[1]"},
     "",
     "! node 'n' (Sgd), tensor 'x1': expected shape [2] for input 1, found [1]"},
};

static void check_row(const Row *r) {
    Text t;
    Arena *a = arena_new();
    text_init(&t, a);
    uint32_t nin = 0;
    for (; nin < 5 && r->in[nin]; nin++)
        if (*r->in[nin] != '-') text_add(&t, "%%%u input %s \"x%u\"\n", nin, r->in[nin], nin);
    text_add(&t, "fwd %s(", ir_op_name(r->op));
    for (uint32_t i = 0; i < nin; i++) {
        if (i) text_char(&t, ',');
        if (*r->in[i] == '-')
            text_char(&t, '-');
        else
            text_add(&t, "%%%u", i);
    }
    text_add(&t, *r->attr ? ") {%s} \"n\"\n" : ")%s \"n\"\n", r->attr);
    Bench b = bench_new("");
    b.g = ir_parse(b.arena, &b.diag, "t.ir", arena_printf(a, "graph \"\" %s", t.at));
    CHECK(b.g != NULL);
    if (!b.g) {
        fprintf(stderr, "%s%s\n", t.at, b.diag.log.at);
        return;
    }
    /* The text gives no outputs: make room for all that the operator has. */
    NodeId n = ir_node(b.g, r->op, PHASE_FORWARD, "n", 0, op_def(r->op)->nout);
    b.g->node[n].nin = b.g->node[0].nin;
    b.g->node[n].in = b.g->node[0].in;
    ir_attr_copy(b.g, n, b.g->node[0].attr, b.g->node[0].nattr);
    Text got;
    text_init(&got, a);
    text_str(&got, "");
    if (!op_infer(b.g, &b.diag, n)) {
        text_add(&got, "! %s", b.diag.log.at + strlen("error: "));
        got.at[got.n - 1] = 0; /* the newline */
    } else {
        for (uint32_t k = 0; k < b.g->node[n].nout; k++) {
            const Value *v = &b.g->value[b.g->node[n].out[k]];
            text_add(&got, "%s%s%s", k ? " " : "", dtype_name(v->dtype), shape_str(a, &v->shape));
        }
    }
    CHECK_STR(got.at, r->expect);
    bench_free(&b);
    arena_free(a);
}

int test_infer(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_row(&rows[i]);
    return test_failed;
}
