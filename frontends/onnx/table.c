/* table.c - one row per ONNX operator that is understood, sorted by name: arity, through which
 * inputs a gradient flows (the others are shapes, indices and conditions), and how it is evaluated
 * or made. Rows hold for operator sets 1 to 28; where the sets differ, the functions accept both
 * forms. */
#include "import.h"

#include <stdlib.h>
#include <string.h>

#define ALL UINT32_MAX
#define FIRST 1u
#define ANY 255

/* name, inputs from..to, outputs, diff, eval, make, IR operator, arithmetic */
static const OpRow rows[] = {
    {"Abs", 1, 1, 1, ALL, eval_unary, make_unary, OP_Abs, K_ABS},
    {"Acos", 1, 1, 1, ALL, eval_unary, make_unary, OP_Acos, K_ACOS},
    {"Acosh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Acosh, K_ACOSH},
    {"Add", 2, 2, 1, ALL, eval_binary, make_binary, OP_Add, K_ADD},
    {"And", 2, 2, 1, 0, eval_binary, make_binary, OP_And, K_AND},
    {"ArgMax", 1, 1, 1, 0, eval_arg, make_arg, OP_ArgMax, K_NONE},
    {"ArgMin", 1, 1, 1, 0, eval_arg, make_arg, OP_ArgMin, K_NONE},
    {"Asin", 1, 1, 1, ALL, eval_unary, make_unary, OP_Asin, K_ASIN},
    {"Asinh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Asinh, K_ASINH},
    {"Atan", 1, 1, 1, ALL, eval_unary, make_unary, OP_Atan, K_ATAN},
    {"Atanh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Atanh, K_ATANH},
    {"Attention", 3, 6, 4, 15, NULL, make_attention, OP_MatMul, K_NONE},
    {"AveragePool", 1, 1, 1, FIRST, NULL, make_pool, OP_AveragePool, K_NONE},
    {"BatchNormalization", 5, 5, 5, 7, NULL, make_batch_norm, OP_BatchNorm, K_NONE},
    {"Bernoulli", 1, 1, 1, 0, NULL, make_bernoulli, OP_Bernoulli, K_NONE},
    {"BitShift", 2, 2, 1, 0, eval_bit_shift, make_bit_shift, OP_ShiftLeft, K_NONE},
    {"BlackmanWindow", 1, 1, 1, 0, eval_window, NULL, OP_NONE, K_NONE},
    {"Cast", 1, 1, 1, FIRST, eval_cast, make_cast, OP_Cast, K_NONE},
    {"CastLike", 2, 2, 1, FIRST, eval_cast, make_cast, OP_Cast, K_NONE},
    {"Ceil", 1, 1, 1, 0, eval_unary, make_unary, OP_Ceil, K_CEIL},
    {"Celu", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_Celu, K_NONE},
    {"Clip", 1, 3, 1, FIRST, NULL, make_clip, OP_Clip, K_NONE},
    {"Compress", 2, 2, 1, FIRST, eval_compress, make_compress, OP_Gather, K_NONE},
    {"Concat", 1, ANY, 1, ALL, eval_concat, make_concat, OP_Concat, K_NONE},
    {"Constant", 0, 0, 1, 0, eval_constant, NULL, OP_NONE, K_NONE},
    {"ConstantOfShape", 1, 1, 1, 0, eval_constant_of_shape, NULL, OP_NONE, K_NONE},
    {"Conv", 2, 3, 1, ALL, NULL, make_conv, OP_Conv, K_NONE},
    {"ConvTranspose", 2, 3, 1, ALL, NULL, make_conv_transpose, OP_ConvGradX, K_NONE},
    {"Cos", 1, 1, 1, ALL, eval_unary, make_unary, OP_Cos, K_COS},
    {"Cosh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Cosh, K_COSH},
    {"CumSum", 2, 2, 1, FIRST, eval_cumsum, make_cumsum, OP_CumSum, K_NONE},
    {"DepthToSpace", 1, 1, 1, FIRST, NULL, make_depth_to_space, OP_Transpose, K_NONE},
    {"Div", 2, 2, 1, ALL, eval_binary, make_div, OP_Div, K_DIV},
    {"Dropout", 1, 3, 2, FIRST, NULL, make_dropout, OP_Dropout, K_NONE},
    {"Einsum", 1, ANY, 1, ALL, NULL, make_einsum, OP_MatMul, K_NONE},
    {"Elu", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_Elu, K_NONE},
    {"Equal", 2, 2, 1, 0, eval_binary, make_binary, OP_Equal, K_EQUAL},
    {"Erf", 1, 1, 1, ALL, eval_unary, make_unary, OP_Erf, K_ERF},
    {"Exp", 1, 1, 1, ALL, eval_unary, make_unary, OP_Exp, K_EXP},
    {"Expand", 2, 2, 1, FIRST, eval_expand, make_expand, OP_Expand, K_NONE},
    {"EyeLike", 1, 1, 1, 0, eval_eye_like, NULL, OP_NONE, K_NONE},
    {"Flatten", 1, 1, 1, FIRST, eval_flatten, make_flatten, OP_Reshape, K_NONE},
    {"Floor", 1, 1, 1, 0, eval_unary, make_unary, OP_Floor, K_FLOOR},
    {"GRU", 3, 6, 2, 47, NULL, make_rnn, OP_MatMul, K_NONE},
    {"Gather", 2, 2, 1, FIRST, eval_gather, make_gather, OP_Gather, K_NONE},
    {"GatherElements", 2, 2, 1, FIRST, eval_gather_elements, make_gather_elements,
     OP_GatherElements, K_NONE},
    {"GatherND", 2, 2, 1, FIRST, eval_gather_nd, make_gather_nd, OP_GatherND, K_NONE},
    {"Gelu", 1, 1, 1, ALL, NULL, make_gelu, OP_Gelu, K_NONE},
    {"Gemm", 2, 3, 1, ALL, NULL, make_gemm, OP_MatMul, K_NONE},
    {"GlobalAveragePool", 1, 1, 1, FIRST, NULL, make_global, OP_ReduceSum, K_MEAN},
    {"GlobalLpPool", 1, 1, 1, FIRST, NULL, make_global, OP_ReduceSum, K_L2},
    {"GlobalMaxPool", 1, 1, 1, FIRST, NULL, make_global, OP_ReduceMax, K_RMAX},
    {"Greater", 2, 2, 1, 0, eval_binary, make_binary, OP_Greater, K_GREATER},
    {"GreaterOrEqual", 2, 2, 1, 0, eval_binary, make_or_equal, OP_Greater, K_GREATER_EQUAL},
    {"GroupNormalization", 3, 3, 1, ALL, NULL, make_group_norm, OP_GroupNorm, K_NONE},
    {"HammingWindow", 1, 1, 1, 0, eval_window, NULL, OP_NONE, K_NONE},
    {"HannWindow", 1, 1, 1, 0, eval_window, NULL, OP_NONE, K_NONE},
    {"HardSigmoid", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_HardSigmoid, K_NONE},
    {"HardSwish", 1, 1, 1, ALL, NULL, make_unary, OP_HardSwish, K_NONE},
    {"Hardmax", 1, 1, 1, 0, NULL, make_hardmax, OP_ArgMax, K_NONE},
    {"Identity", 1, 1, 1, ALL, eval_identity, make_identity, OP_Reshape, K_NONE},
    {"If", 1, 1, ANY, 0, NULL, make_if, OP_Reshape, K_NONE},
    {"InstanceNormalization", 3, 3, 1, ALL, NULL, make_instance_norm, OP_GroupNorm, K_NONE},
    {"IsInf", 1, 1, 1, 0, eval_is, make_is_inf, OP_IsInf, K_NONE},
    {"IsNaN", 1, 1, 1, 0, eval_is, make_unary, OP_IsNaN, K_NONE},
    {"LRN", 1, 1, 1, FIRST, NULL, make_lrn, OP_Mul, K_NONE},
    {"LSTM", 3, 8, 3, 239, NULL, make_rnn, OP_MatMul, K_NONE},
    {"LayerNormalization", 2, 3, 3, ALL, NULL, make_layer_norm, OP_LayerNorm, K_NONE},
    {"LeakyRelu", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_LeakyRelu, K_NONE},
    {"Less", 2, 2, 1, 0, eval_binary, make_binary, OP_Less, K_LESS},
    {"LessOrEqual", 2, 2, 1, 0, eval_binary, make_or_equal, OP_Less, K_LESS_EQUAL},
    {"Log", 1, 1, 1, ALL, eval_unary, make_unary, OP_Log, K_LOG},
    {"LogSoftmax", 1, 1, 1, ALL, NULL, make_softmax, OP_LogSoftmax, K_NONE},
    {"Loop", 0, ANY, ANY, ALL, NULL, make_loop, OP_Reshape, K_NONE},
    {"LpNormalization", 1, 1, 1, ALL, NULL, make_lp_norm, OP_Div, K_NONE},
    {"LpPool", 1, 1, 1, FIRST, NULL, make_lp_pool, OP_Root, K_NONE},
    {"MatMul", 2, 2, 1, ALL, NULL, make_matmul, OP_MatMul, K_NONE},
    {"Max", 1, ANY, 1, ALL, eval_variadic, make_variadic, OP_Max, K_MAX},
    {"MaxPool", 1, 1, 2, FIRST, NULL, make_pool, OP_MaxPool, K_NONE},
    {"MaxUnpool", 2, 3, 1, FIRST, NULL, make_max_unpool, OP_ScatterElements, K_NONE},
    {"Mean", 1, ANY, 1, ALL, eval_variadic, make_variadic, OP_Add, K_MEAN},
    {"MeanVarianceNormalization", 1, 1, 1, ALL, NULL, make_mean_variance_norm, OP_Div, K_NONE},
    {"Min", 1, ANY, 1, ALL, eval_variadic, make_variadic, OP_Min, K_MIN},
    {"Mish", 1, 1, 1, ALL, NULL, make_unary, OP_Mish, K_NONE},
    {"Mod", 2, 2, 1, ALL, eval_binary, make_mod, OP_Mod, K_MOD},
    {"Mul", 2, 2, 1, ALL, eval_binary, make_binary, OP_Mul, K_MUL},
    {"Neg", 1, 1, 1, ALL, eval_unary, make_unary, OP_Neg, K_NEG},
    {"NegativeLogLikelihoodLoss", 2, 3, 1, FIRST, NULL, make_loss, OP_NllLoss, K_NONE},
    {"NonZero", 1, 1, 1, 0, eval_non_zero, NULL, OP_NONE, K_NONE},
    {"Not", 1, 1, 1, 0, eval_unary, make_unary, OP_Not, K_NOT},
    {"OneHot", 3, 3, 1, 0, eval_one_hot, make_one_hot, OP_Where, K_NONE},
    {"Or", 2, 2, 1, 0, eval_binary, make_binary, OP_Or, K_OR},
    {"PRelu", 2, 2, 1, ALL, NULL, make_prelu, OP_PRelu, K_NONE},
    {"Pad", 1, 4, 1, FIRST, NULL, make_pad, OP_Pad, K_NONE},
    {"Pow", 2, 2, 1, ALL, eval_binary, make_pow, OP_Pow, K_POW},
    {"RMSNormalization", 2, 2, 1, ALL, NULL, make_layer_norm, OP_RmsNorm, K_NONE},
    {"RNN", 3, 6, 2, 47, NULL, make_rnn, OP_MatMul, K_NONE},
    {"RandomNormal", 0, 0, 1, 0, NULL, make_random, OP_RandomNormal, K_NONE},
    {"RandomNormalLike", 1, 1, 1, 0, NULL, make_random, OP_RandomNormal, K_NONE},
    {"RandomUniform", 0, 0, 1, 0, NULL, make_random, OP_RandomUniform, K_NONE},
    {"RandomUniformLike", 1, 1, 1, 0, NULL, make_random, OP_RandomUniform, K_NONE},
    {"Range", 3, 3, 1, 0, eval_range, NULL, OP_NONE, K_NONE},
    {"Reciprocal", 1, 1, 1, ALL, eval_unary, make_unary, OP_Reciprocal, K_RECIPROCAL},
    {"ReduceL1", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_L1},
    {"ReduceL2", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_L2},
    {"ReduceLogSum", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_LOG_SUM},
    {"ReduceLogSumExp", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceLogSumExp,
     K_LOG_SUM_EXP},
    {"ReduceMax", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceMax, K_RMAX},
    {"ReduceMean", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_MEAN},
    {"ReduceMin", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceMin, K_RMIN},
    {"ReduceProd", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceProd, K_PROD},
    {"ReduceSum", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_SUM},
    {"ReduceSumSquare", 1, 2, 1, FIRST, eval_reduce, make_reduce, OP_ReduceSum, K_SUM_SQUARE},
    {"Relu", 1, 1, 1, ALL, eval_unary, make_unary, OP_Relu, K_RELU},
    {"Reshape", 2, 2, 1, FIRST, eval_reshape, make_reshape, OP_Reshape, K_NONE},
    {"Resize", 1, 4, 1, FIRST, NULL, make_resize, OP_Resize, K_NONE},
    {"RotaryEmbedding", 3, 4, 1, 7, NULL, make_rotary, OP_Mul, K_NONE},
    {"Round", 1, 1, 1, 0, eval_unary, make_unary, OP_Round, K_ROUND},
    {"Scan", 0, ANY, ANY, ALL, NULL, make_scan, OP_Reshape, K_NONE},
    {"Scatter", 3, 3, 1, 5, eval_scatter_elements, make_scatter_elements, OP_ScatterElements,
     K_NONE},
    {"ScatterElements", 3, 3, 1, 5, eval_scatter_elements, make_scatter_elements,
     OP_ScatterElements, K_NONE},
    {"ScatterND", 3, 3, 1, 5, eval_scatter_nd, make_scatter_nd, OP_ScatterND, K_NONE},
    {"Selu", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_Elu, K_NONE},
    {"Shape", 1, 1, 1, 0, eval_shape, NULL, OP_NONE, K_NONE},
    {"Shrink", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_Shrink, K_NONE},
    {"Sigmoid", 1, 1, 1, ALL, eval_unary, make_unary, OP_Sigmoid, K_SIGMOID},
    {"Sign", 1, 1, 1, 0, eval_unary, make_unary, OP_Sign, K_SIGN},
    {"SimplifiedLayerNormalization", 2, 2, 2, ALL, NULL, make_layer_norm, OP_RmsNorm, K_NONE},
    {"Sin", 1, 1, 1, ALL, eval_unary, make_unary, OP_Sin, K_SIN},
    {"Sinh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Sinh, K_SINH},
    {"Size", 1, 1, 1, 0, eval_size, NULL, OP_NONE, K_NONE},
    {"Slice", 1, 5, 1, FIRST, eval_slice, make_slice, OP_Slice, K_NONE},
    {"Softmax", 1, 1, 1, ALL, NULL, make_softmax, OP_Softmax, K_NONE},
    {"SoftmaxCrossEntropyLoss", 2, 3, 2, FIRST, NULL, make_loss, OP_SoftmaxCE, K_NONE},
    {"Softplus", 1, 1, 1, ALL, NULL, make_unary, OP_Softplus, K_NONE},
    {"Softsign", 1, 1, 1, ALL, NULL, make_unary, OP_Softsign, K_NONE},
    {"SpaceToDepth", 1, 1, 1, FIRST, NULL, make_space_to_depth, OP_Transpose, K_NONE},
    {"Split", 1, 2, ANY, FIRST, eval_split, make_split, OP_Slice, K_NONE},
    {"Sqrt", 1, 1, 1, ALL, eval_unary, make_unary, OP_Sqrt, K_SQRT},
    {"Squeeze", 1, 2, 1, FIRST, eval_squeeze, make_squeeze, OP_Reshape, K_NONE},
    {"Sub", 2, 2, 1, ALL, eval_binary, make_binary, OP_Sub, K_SUB},
    {"Sum", 1, ANY, 1, ALL, eval_variadic, make_variadic, OP_Add, K_ADD},
    {"Swish", 1, 1, 1, ALL, NULL, make_swish, OP_Silu, K_NONE},
    {"Tan", 1, 1, 1, ALL, eval_unary, make_unary, OP_Tan, K_TAN},
    {"Tanh", 1, 1, 1, ALL, eval_unary, make_unary, OP_Tanh, K_TANH},
    {"ThresholdedRelu", 1, 1, 1, ALL, NULL, make_alpha_beta, OP_ThresholdedRelu, K_NONE},
    {"Tile", 2, 3, 1, FIRST, eval_tile, make_tile, OP_Expand, K_NONE},
    {"TopK", 1, 2, 2, FIRST, NULL, make_topk, OP_TopK, K_NONE},
    {"Transpose", 1, 1, 1, ALL, eval_transpose, make_transpose, OP_Transpose, K_NONE},
    {"Trilu", 1, 2, 1, FIRST, eval_trilu, make_trilu, OP_Where, K_NONE},
    {"Unsqueeze", 1, 2, 1, FIRST, eval_unsqueeze, make_unsqueeze, OP_Reshape, K_NONE},
    {"Upsample", 1, 2, 1, FIRST, NULL, make_resize, OP_Resize, K_NONE},
    {"Where", 3, 3, 1, 6, eval_where, make_where, OP_Where, K_NONE},
    {"Xor", 2, 2, 1, 0, eval_binary, make_binary, OP_Xor, K_XOR},
};

static int compare_row(const void *name, const void *row) {
    return strcmp(name, ((const OpRow *)row)->name);
}

const OpRow *op_row(const char *op_type) {
    return bsearch(op_type, rows, sizeof rows / sizeof *rows, sizeof *rows, compare_row);
}

uint32_t onnx_support(const OnnxSupport **out, Arena *a) {
    enum { NROW = sizeof rows / sizeof *rows };
    OnnxSupport *s = ARENA_ARRAY(a, OnnxSupport, NROW);
    for (uint32_t i = 0; i < NROW; i++)
        s[i] = (OnnxSupport){.op = rows[i].name,
                             .run = rows[i].make != NULL,
                             .gradient = rows[i].make != NULL && rows[i].diff != 0};
    *out = s;
    return NROW;
}

const char *op_why_not(const char *op_type) {
    if (!strcmp(op_type, "Multinomial")) return "drawing from distributions is not supported";
    if (!strncmp(op_type, "Sequence", 8) || !strncmp(op_type, "Optional", 8))
        return "sequences and optional values are not supported";
    if (strstr(op_type, "Quantize") || !strncmp(op_type, "QLinear", 7) ||
        strstr(op_type, "Integer"))
        return "quantized models cannot be trained; use the float model";
    return "not implemented; dtrc ops lists what is";
}

const char *domain_why_not(const char *domain) {
    if (!strcmp(domain, "com.microsoft"))
        return "written by ONNX Runtime's optimizer; use the model as it was exported";
    if (!strcmp(domain, "ai.onnx.ml")) return "classical machine learning is not supported";
    if (!strncmp(domain, "ai.onnx.preview.training", 24))
        return "gradients and optimizers are made by dtrc itself; use the forward model";
    return "only the ai.onnx domain is supported";
}
