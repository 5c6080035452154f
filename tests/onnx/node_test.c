/* node_test.c - run-time nodes: what each ONNX operator becomes, over operator sets where they
 * differ. Input x is [2,3,8] unless a test says otherwise; weights are zeros. */
#include "node_model.h"

static void reals(const char *name, float v) {
    Buf a = {0}, t = tensor_f32("", "", &v);
    attr_put_tensor(&a, "value", &t);
    model_node(&m, "Constant", name, "", name, &a);
}

/* ---- elementwise ---- */

static void test_math(void) {
    static const char *const same[] = {
        "Neg",   "Abs",     "Exp",   "Log",      "Sqrt",     "Reciprocal", "Erf",   "Sin",
        "Cos",   "Tan",     "Asin",  "Acos",     "Atan",     "Sinh",       "Cosh",  "Asinh",
        "Acosh", "Atanh",   "Round", "Sign",     "Mish",     "Softsign",   "Floor", "Ceil",
        "Relu",  "Sigmoid", "Tanh",  "Softplus", "HardSwish"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
        char want[64];
        snprintf(want, sizeof want, "%s(x) -> y[2,3,8]\n", same[k]);
        begin(17);
        run(same[k], "x", "y", want);
    }
    begin(17);
    run("LeakyRelu", "x", "y", "LeakyRelu(x) alpha=0.01 -> y[2,3,8]\n");
    begin(17);
    attr_put_real(&attr, "alpha", 0.5f);
    run("Elu", "x", "y", "Elu(x) alpha=0.5 -> y[2,3,8]\n");
    begin(17);
    run("HardSigmoid", "x", "y", "HardSigmoid(x) alpha=0.2 beta=0.5 -> y[2,3,8]\n");
    begin(17);
    weight("w", "8");
    run("Sub", "x,w", "y", "Sub(x,w) -> y[2,3,8]\n");
    begin(17);
    weight("w", "7");
    run("Sub", "x,w", "y", "expected a shape that broadcasts with [2,3,8] for input 1, found [7]");
    begin(17);
    weight("w", "8");
    run("Sum", "x,w,x", "y", "Add(x,w) -> n.1.out[2,3,8]\nAdd(n.1.out,x) -> y[2,3,8]\n");
    begin(17);
    run("Max", "x", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
    begin(17);
    run("Mod", "x,x", "y",
        "node 'n' (Mod): of data only with integers, or with floats and fmod = 1");
    begin(17);
    attr_put_int(&attr, "fmod", 1);
    run("Mod", "x,x", "y", "Mod(x,x) -> y[2,3,8]\n");
    begin(20);
    run("Gelu", "x", "y", "Gelu(x) -> y[2,3,8]\n");
    begin(17);
    weight("s", "3,1");
    run("PRelu", "x,s", "y", "PRelu(x,s) -> y[2,3,8]\n");
    begin(6); /* a slope a channel, as a list */
    weight("s", "3");
    run("PRelu", "x,s", "y",
        "Reshape(s) shape=3,1 -> n.slope.out[3,1]\nPRelu(x,n.slope.out) -> y[2,3,8]\n");
    begin(6); /* axis says where the operand's axes lie */
    weight("w", "3");
    attr_put_int(&attr, "axis", 1);
    attr_put_int(&attr, "broadcast", 1);
    run("Add", "x,w", "y",
        "Reshape(w) shape=3,1 -> n.aligned.out[3,1]\nAdd(x,n.aligned.out) -> y[2,3,8]\n");
    begin(17);
    attr_put_real(&attr, "alpha", 2);
    attr_put_real(&attr, "gamma", 3);
    run("Selu", "x", "y",
        "Elu(x) alpha=2 -> n.elu.out[2,3,8]\nScale(n.elu.out) alpha=3 -> y[2,3,8]\n");
    begin(17);
    attr_put_real(&attr, "lambd", 2);
    attr_put_real(&attr, "bias", 3);
    run("Shrink", "x", "y", "Shrink(x) alpha=2 beta=3 -> y[2,3,8]\n");
    begin(17);
    attr_put_int(&attr, "detect_positive", 0);
    run("IsInf", "x", "y", "IsInf(x) min=1 max=0 -> y[2,3,8]\n");
    begin(20);
    attr_put_text(&attr, "approximate", "tanh");
    run("Gelu", "x", "y", "GeluTanh(x) -> y[2,3,8]\n");
    begin(17);
    run("Mean", "x,x", "y", "Add(x,x) -> n.1.out[2,3,8]\nScale(n.1.out) alpha=0.5 -> y[2,3,8]\n");
    begin(17);
    weight("w", "8");
    run("CastLike", "x,w", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
}

static void test_pow_clip(void) {
    begin(17);
    reals("e", 2);
    run("Pow", "x,e", "y", "PowScalar(x) alpha=2 -> y[2,3,8]\n");
    begin(17);
    model_const(&m, "e", "1", "3"); /* an integer exponent */
    run("Pow", "x,e", "y", "PowScalar(x) alpha=3 -> y[2,3,8]\n");
    begin(17);
    run("Pow", "x,x", "y", "Pow(x,x) -> y[2,3,8]\n");
    begin(9);
    attr_put_real(&attr, "max", 6);
    run("Clip", "x", "y", "Clip(x) max=6 -> y[2,3,8]\n");
    begin(13);
    reals("lo", 0);
    reals("hi", 6);
    run("Clip", "x,lo,hi", "y", "Clip(x) min=0 max=6 -> y[2,3,8]\n");
    begin(13);
    reals("hi", 6);
    run("Clip", "x,,hi", "y", "Clip(x) max=6 -> y[2,3,8]\n");
    begin(13);
    run("Clip", "x", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
}

static void test_logic(void) {
    begin(17);
    model_node(&m, "Less", "l", "x,x", "c", NULL);
    run("Where", "c,x,x", "y", "Less(x,x) -> c[2,3,8]\nWhere(c,x,x) -> y[2,3,8]\n");
    begin(17);
    run("LessOrEqual", "x,x", "y",
        "Less(x,x) -> n.strict.out[2,3,8]\nEqual(x,x) -> n.equal.out[2,3,8]\n"
        "Or(n.strict.out,n.equal.out) -> y[2,3,8]\n");
    begin(17);
    attr_put_int(&attr, "to", 7);
    run("Cast", "x", "y", "Cast(x) to=2 -> y[2,3,8]\n"); /* DT_I64 */
    begin(17);
    attr_put_int(&attr, "to", 10); /* half precision is computed in f32 */
    run("Cast", "x", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
    begin(17);
    attr_put_int(&attr, "to", 11);
    run("Cast", "x", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
}

static void test_reduce(void) {
    begin(13);
    attr_put_ints(&attr, "axes", "-1");
    run("ReduceMean", "x", "y", "ReduceSum(x) axes=2 keepdims=1 scale=0.125 -> y[2,3,1]\n");
    begin(18);
    model_const(&m, "a", "2", "2,1");
    attr_put_int(&attr, "keepdims", 0);
    run("ReduceMean", "x,a", "y", "ReduceSum(x) axes=1,2 keepdims=0 scale=0.0416667 -> y[2]\n");
    begin(13);
    model_const(&m, "a", "0", "");
    attr_put_int(&attr, "noop_with_empty_axes", 1);
    run("ReduceSum", "x,a", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
    begin(13);
    run("ReduceSum", "x", "y", "ReduceSum(x) axes=0,1,2 keepdims=1 -> y[1,1,1]\n");
    begin(13);
    attr_put_ints(&attr, "axes", "1,1");
    run("ReduceMean", "x", "y", "axis 1 occurs twice");
}

static void test_other_reductions(void) {
    begin(13);
    attr_put_ints(&attr, "axes", "1");
    run("ReduceMax", "x", "y", "ReduceMax(x) axes=1 keepdims=1 -> y[2,1,8]\n");
    begin(18);
    model_const(&m, "a", "1", "-1");
    attr_put_int(&attr, "keepdims", 0);
    run("ReduceLogSumExp", "x,a", "y", "ReduceLogSumExp(x) axes=2 keepdims=0 -> y[2,3]\n");
    begin(13);
    attr_put_ints(&attr, "axes", "2");
    run("ReduceL1", "x", "y",
        "Abs(x) -> n.abs.out[2,3,8]\nReduceSum(n.abs.out) axes=2 keepdims=1 -> y[2,3,1]\n");
    begin(13);
    attr_put_ints(&attr, "axes", "2");
    run("ReduceL2", "x", "y",
        "PowScalar(x) alpha=2 -> n.power.out[2,3,8]\n"
        "ReduceSum(n.power.out) axes=2 keepdims=1 -> n.sum.out[2,3,1]\n"
        "Root(n.sum.out) alpha=0.5 -> y[2,3,1]\n");
    begin(13);
    attr_put_ints(&attr, "axes", "0,1,2");
    run("ReduceLogSum", "x", "y",
        "ReduceSum(x) axes=0,1,2 keepdims=1 -> n.sum.out[1,1,1]\nLog(n.sum.out) -> y[1,1,1]\n");
    begin(13);
    run("GlobalMaxPool", "x", "y", "ReduceMax(x) axes=2 keepdims=1 -> y[2,3,1]\n");
    begin(13);
    attr_put_int(&attr, "p", 3);
    run("GlobalLpPool", "x", "y",
        "Abs(x) -> n.abs.out[2,3,8]\nPowScalar(n.abs.out) alpha=3 -> n.power.out[2,3,8]\n"
        "ReduceSum(n.power.out) axes=2 keepdims=1 -> n.sum.out[2,3,1]\n"
        "Root(n.sum.out) alpha=0.333333 -> y[2,3,1]\n");
    begin(13);
    model_const(&m, "a", "", "-2");
    attr_put_int(&attr, "reverse", 1);
    run("CumSum", "x,a", "y", "CumSum(x) axis=1 exclusive=0 reverse=1 -> y[2,3,8]\n");
    begin(13);
    model_const(&m, "a", "", "3");
    run("CumSum", "x,a", "y", "axis 3 is outside of a tensor with 3 axes");
    begin(13);
    attr_put_int(&attr, "axis", -1);
    attr_put_int(&attr, "keepdims", 0);
    attr_put_int(&attr, "select_last_index", 1);
    run("ArgMin", "x", "y", "ArgMin(x) axis=2 keepdims=0 last=1 -> y[2,3]\n");
    begin(13);
    run("Hardmax", "x", "y",
        "ArgMax(x) axis=2 keepdims=1 last=0 -> n.max.out[2,3,1]\n"
        "Equal(n.max.out,n.place) -> n.equal.out[2,3,8]\nCast(n.equal.out) to=0 -> "
        "n.hot.out[2,3,8]\n"
        "Reshape(n.hot.out) shape=2,3,8 -> y[2,3,8]\n");
}

/* ---- moves ---- */

static void test_views(void) {
    begin(13);
    model_const(&m, "s", "2", "0,-1");
    run("Reshape", "x,s", "y", "Reshape(x) shape=2,24 -> y[2,24]\n");
    begin(13);
    model_const(&m, "s", "2", "4,-1");
    run("Reshape", "x,s", "y", "Reshape(x) shape=4,12 -> y[4,12]\n");
    begin(14);
    model_const(&m, "s", "1", "48");
    attr_put_int(&attr, "allowzero", 1);
    run("Reshape", "x,s", "y", "Reshape(x) shape=48 -> y[48]\n");
    begin(13);
    model_node(&m, "Cast", "c", "x", "s", NULL);
    run("Flatten", "x", "y", "Reshape(x) shape=2,24 -> y[2,24]\n");
    begin(13);
    attr_put_int(&attr, "axis", -1);
    run("Flatten", "x", "y", "Reshape(x) shape=6,8 -> y[6,8]\n");
    begin(13);
    model_const(&m, "a", "2", "0,-1");
    run("Unsqueeze", "x,a", "y", "Reshape(x) shape=1,2,3,8,1 -> y[1,2,3,8,1]\n");
    begin_with(11, "1,3,1");
    attr_put_ints(&attr, "axes", "2");
    test_options.batch = 0;
    run("Squeeze", "x", "y", "Reshape(x) shape=1,3 -> y[1,3]\n");
    test_options.batch = 2;
    begin(13);
    attr_put_ints(&attr, "perm", "0,2,1");
    run("Transpose", "x", "y", "Transpose(x) perm=0,2,1 -> y[2,8,3]\n");
    begin(13);
    attr_put_ints(&attr, "perm", "0,1,2");
    run("Transpose", "x", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
    begin(13);
    model_node(&m, "Shape", "s", "x", "dims", NULL);
    model_node(&m, "Mul", "m", "dims,dims", "square", NULL);
    run("Expand", "x,square", "y", "does not expand to [4,9,64]");
    begin(13);
    model_const(&m, "s", "4", "5,1,1,1");
    run("Expand", "x,s", "y", "Expand(x) shape=5,2,3,8 -> y[5,2,3,8]\n");
}

/* A shape that depends on data cannot be compiled. */
static void test_data_shapes(void) {
    begin(13);
    model_input(&m, "s", I64, "2");
    run("Reshape", "x,s", "y",
        "node 'n' (Reshape): shape (input 1) depends on data; it must be constant");
}

static void test_slices(void) {
    begin(13);
    model_const(&m, "s", "1", "1");
    model_const(&m, "e", "1", "9223372036854775807");
    model_const(&m, "a", "1", "2");
    run("Slice", "x,s,e,a", "y", "Slice(x) starts=0,0,1 steps=1,1,1 sizes=2,3,7 -> y[2,3,7]\n");
    begin(13);
    model_const(&m, "s", "1", "-1");
    model_const(&m, "e", "1", "-9223372036854775808");
    model_const(&m, "a", "1", "1");
    model_const(&m, "t", "1", "-2");
    run("Slice", "x,s,e,a,t", "y", "Slice(x) starts=0,2,0 steps=1,-2,1 sizes=2,2,8 -> y[2,2,8]\n");
    begin(13);
    model_const(&m, "s", "1", "3");
    model_const(&m, "e", "1", "3");
    model_const(&m, "a", "1", "2");
    run("Slice", "x,s,e,a", "y", "the result is empty: shape [2,3,0]");
    begin(11);
    attr_put_int(&attr, "axis", 2);
    attr_put_ints(&attr, "split", "2,6");
    run("Split", "x", "y,z", "Slice(x) starts=0,0,0 steps=1,1,1 sizes=2,3,2 -> y[2,3,2]\n");
    begin(13);
    model_const(&m, "i", "", "-1");
    attr_put_int(&attr, "axis", 1);
    run("Gather", "x,i", "y",
        "Slice(x) starts=0,2,0 steps=1,1,1 sizes=2,1,8 -> n.slice.out[2,1,8]\n"
        "Reshape(n.slice.out) shape=2,8 -> y[2,8]\n");
    begin(13);
    model_const(&m, "i", "2", "0,2");
    attr_put_int(&attr, "axis", 1);
    run("Gather", "x,i", "y", "Gather(x,i) axis=1 -> y[2,2,8]\n");
    begin_with(13, "N,5");
    model_input(&m, "ids", I64, "N");
    weight("w", "10,4");
    run("Gather", "w,ids", "y", "Gather(w,ids) axis=0 -> y[2,4]\n");
    begin(13);
    attr_put_int(&attr, "axis", -1);
    run("Concat", "x,x", "y", "Concat(x,x) axis=2 -> y[2,3,16]\n");
    begin(13);
    attr_put_int(&attr, "axis", 0);
    model_init(&m, tensor_raw("none", F32, "0,3,8", "", 0));
    run("Concat", "x,none", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
}

static void test_pad(void) {
    begin(13);
    model_const(&m, "p", "6", "0,0,1,0,0,2");
    run("Pad", "x,p", "y", "Pad(x) pads=0,0,1,0,0,2 mode=0 value=0 -> y[2,3,11]\n");
    begin(9);
    attr_put_ints(&attr, "pads", "0,0,1,0,0,1");
    attr_put_text(&attr, "mode", "reflect");
    run("Pad", "x", "y", "Pad(x) pads=0,0,1,0,0,1 mode=1 value=0 -> y[2,3,10]\n");
    begin(18);
    model_const(&m, "p", "2", "-1,1");
    model_const(&m, "a", "1", "-1");
    attr_put_text(&attr, "mode", "edge");
    run("Pad", "x,p,,a", "y", "Pad(x) pads=0,0,-1,0,0,1 mode=2 value=0 -> y[2,3,8]\n");
    begin(13);
    model_const(&m, "p", "6", "0,0,0,0,0,0");
    run("Pad", "x,p,,", "y", "Reshape(x) shape=2,3,8 -> y[2,3,8]\n");
    begin(19);
    model_const(&m, "p", "6", "0,0,1,0,0,1");
    attr_put_text(&attr, "mode", "wrap");
    run("Pad", "x,p", "y", "node 'n' (Pad): mode wrap");
}

/* ---- layers ---- */

static void test_conv(void) {
    begin(17);
    weight("w", "4,3,3");
    weight("b", "4");
    attr_put_ints(&attr, "pads", "1,1");
    run("Conv", "x,w,b", "y",
        "Conv(x,w,b) kernel=3 strides=1 pads=1,1 dilations=1 group=1 -> y[2,4,8]\n");
    /* SAME_UPPER: 3 outputs, (3-1)*3 + 3 - 8 = 1 of padding, at the end; LOWER: at the start */
    for (int lower = 0; lower < 2; lower++) {
        begin(17);
        weight("w", "4,3,3");
        attr_put_ints(&attr, "strides", "3");
        attr_put_text(&attr, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
        run("Conv", "x,w", "y",
            lower ? "Conv(x,w) kernel=3 strides=3 pads=1,0 dilations=1 group=1 -> y[2,4,3]\n"
                  : "Conv(x,w) kernel=3 strides=3 pads=0,1 dilations=1 group=1 -> y[2,4,3]\n");
    }
    begin_with(17, "N,4,6,6");
    weight("w", "8,2,3,1");
    attr_put_ints(&attr, "kernel_shape", "3,1");
    attr_put_ints(&attr, "dilations", "2,1");
    attr_put_ints(&attr, "pads", "0,0,2,0");
    attr_put_int(&attr, "group", 2);
    run("Conv", "x,w", "y",
        "Conv(x,w) kernel=3,1 strides=1,1 pads=0,0,2,0 dilations=2,1 group=2 -> y[2,8,4,6]\n");
    begin(17);
    weight("w", "4,3,3");
    attr_put_ints(&attr, "kernel_shape", "5");
    run("Conv", "x,w", "y", "kernel_shape says 5 on axis 0, the weight has 3");
    begin(17);
    weight("w", "4,3,3");
    attr_put_ints(&attr, "strides", "0");
    run("Conv", "x,w", "y", "strides holds 0, expected at least 1");
    begin_with(17, "N,1,2,2,2,2");
    weight("w", "1,1,1,1,1,1");
    run("Conv", "x,w", "y", "node 'n' (Conv): 6-d input");
}

static void test_conv_transpose(void) {
    /* 2 * (8-1) + 3 + 1 - 2 = 16 */
    begin(17);
    weight("w", "3,4,3");
    weight("b", "4");
    attr_put_ints(&attr, "strides", "2");
    attr_put_ints(&attr, "pads", "1,1");
    attr_put_ints(&attr, "output_padding", "1");
    run("ConvTranspose", "x,w,b", "y",
        "ConvGradX(x,w) kernel=3 strides=2 pads=1,1 dilations=1 group=1 shape=2,4,16 -> "
        "n.conv.out[2,4,16]\nReshape(b) shape=4,1 -> n.bias.out[4,1]\n"
        "Add(n.conv.out,n.bias.out) -> y[2,4,16]\n");
    /* to 8 * 2 = 16 places of 17: 1 of padding, at the end or (LOWER) at the start */
    for (int lower = 0; lower < 2; lower++) {
        begin(17);
        weight("w", "3,4,3");
        attr_put_ints(&attr, "strides", "2");
        attr_put_text(&attr, "auto_pad", lower ? "SAME_LOWER" : "SAME_UPPER");
        run("ConvTranspose", "x,w", "y",
            lower ? "ConvGradX(x,w) kernel=3 strides=2 pads=1,0 dilations=1 group=1 shape=2,4,16 "
                    "-> y[2,4,16]\n"
                  : "ConvGradX(x,w) kernel=3 strides=2 pads=0,1 dilations=1 group=1 shape=2,4,16 "
                    "-> y[2,4,16]\n");
    }
    /* 3 groups of one channel each; 3 * 7 + 2 = 23 places by themselves, 24 asked for */
    begin(17);
    weight("w", "3,2,2");
    attr_put_ints(&attr, "strides", "3");
    attr_put_ints(&attr, "output_shape", "24");
    attr_put_int(&attr, "group", 3);
    run("ConvTranspose", "x,w", "y",
        "ConvGradX(x,w) kernel=2 strides=3 pads=0,0 dilations=1 group=3 shape=2,6,24 -> "
        "y[2,6,24]\n");
    begin(17);
    weight("w", "3,4,3");
    attr_put_ints(&attr, "output_padding", "1");
    run("ConvTranspose", "x,w", "y", "1 of output padding with a stride of 1");
    begin(17);
    weight("w", "3,4,3");
    attr_put_ints(&attr, "pads", "5,5");
    run("ConvTranspose", "x,w", "y", "the result has 0 places on spatial axis 0");
    begin(17);
    weight("w", "3,4,3");
    attr_put_ints(&attr, "output_shape", "9223372036854775807");
    run("ConvTranspose", "x,w", "y", "spatial axis 0 of the result is too large or empty");
    begin(17);
    weight("w", "3,4,3");
    weight("b", "3");
    run("ConvTranspose", "x,w,b", "y", "expected a bias of shape [4], found [3]");
    begin(17);
    weight("w", "4,4,3");
    run("ConvTranspose", "x,w", "y", "expected shape [2,4,8] for input 0, found [2,3,8]");
}

static void test_pool(void) {
    begin_with(17, "N,3,8,8");
    attr_put_ints(&attr, "kernel_shape", "3,3");
    attr_put_ints(&attr, "strides", "2,2");
    attr_put_int(&attr, "ceil_mode", 1);
    run("MaxPool", "x", "y",
        "MaxPool(x) kernel=3,3 strides=2,2 pads=0,0,0,0 dilations=1,1 ceil_mode=1 -> y[2,3,4,4]\n");
    begin_with(17, "N,3,8,8");
    attr_put_ints(&attr, "kernel_shape", "2,2");
    attr_put_int(&attr, "count_include_pad", 1);
    run("AveragePool", "x", "y",
        "AveragePool(x) kernel=2,2 strides=1,1 pads=0,0,0,0 ceil_mode=0 count_include_pad=1 -> "
        "y[2,3,7,7]\n");
    begin_with(17, "N,3,8,4");
    run("GlobalAveragePool", "x", "y",
        "ReduceSum(x) axes=2,3 keepdims=1 scale=0.03125 -> y[2,3,1,1]\n");
    begin_with(17, "N,3,8,8");
    attr_put_ints(&attr, "kernel_shape", "2,2");
    model_output(&m, "at");
    run("MaxPool", "x", "y,at",
        "MaxPoolPlaces(x) kernel=2,2 strides=1,1 pads=0,0,0,0 dilations=1,1 ceil_mode=0 mode=0 -> "
        "at[2,3,7,7]\n"
        "MaxPool(x) kernel=2,2 strides=1,1 pads=0,0,0,0 dilations=1,1 ceil_mode=0 -> y[2,3,7,7]\n");
}

static void test_gemm(void) {
    begin_with(13, "N,4");
    weight("w", "3,4");
    weight("b", "3");
    attr_put_int(&attr, "transB", 1);
    run("Gemm", "x,w,b", "y", "MatMul(x,w,b) trans_b=1 -> y[2,3]\n");
    begin_with(13, "N,4");
    weight("w", "4,3");
    weight("b", "1,3");
    attr_put_real(&attr, "alpha", 0.5f);
    run("Gemm", "x,w,b", "y",
        "Reshape(b) shape=3 -> n.bias.out[3]\nMatMul(x,w,n.bias.out) alpha=0.5 -> y[2,3]\n");
    begin_with(13, "N,4");
    weight("w", "4,3");
    weight("b", "2,1");
    attr_put_real(&attr, "beta", 2);
    run("Gemm", "x,w,b", "y",
        "MatMul(x,w) -> n.product.out[2,3]\nScale(b) alpha=2 -> n.beta.out[2,1]\n"
        "Add(n.product.out,n.beta.out) -> y[2,3]\n");
    begin_with(13, "N,4");
    weight("w", "4,3");
    weight("b", "5,3");
    run("Gemm", "x,w,b", "y", "C of shape [5,3] does not broadcast to [2,3]");
    begin_with(13, "N,4");
    weight("w", "5,3");
    run("Gemm", "x,w", "y", "expected 4 rows to multiply with [2,4], found 5 in [5,3]");
    begin(13);
    weight("v", "8");
    run("MatMul", "x,v", "y",
        "Reshape(v) shape=8,1 -> n.column.out[8,1]\nMatMul(x,n.column.out) -> "
        "n.product.out[2,3,1]\n"
        "Reshape(n.product.out) shape=2,3 -> y[2,3]\n");
    begin(13);
    weight("v", "3");
    run("MatMul", "v,x", "y",
        "Reshape(v) shape=1,3 -> n.row.out[1,3]\nMatMul(n.row.out,x) -> n.product.out[2,1,8]\n"
        "Reshape(n.product.out) shape=2,8 -> y[2,8]\n");
}

static void norm(int64_t opset, const char *out, int64_t mode, const char *want) {
    begin(opset);
    for (int k = 0; k < 4; k++) weight((const char *[]){"g", "b", "m", "v"}[k], "3");
    if (mode >= 0) attr_put_int(&attr, "training_mode", mode);
    run("BatchNormalization", "x,g,b,m,v", out, want);
}

static void test_norms(void) {
    const char *train = "BatchNorm(x,g,b,m,v) eps=1e-05 momentum=0.9 training=1 -> y[2,3,8]\n";
    const char *apply = "BatchNorm(x,g,b,m,v) eps=1e-05 momentum=0.9 training=0 -> y[2,3,8]\n";
    norm(15, "y,m2,v2", 1, train);
    norm(15, "y", 0, apply);
    norm(15, "y", -1, apply);
    norm(13, "y,m2,v2,s1,s2", -1, train); /* five outputs mean training before set 14 */
    norm(9, "y", -1, apply);
    begin(17);
    weight("g", "8");
    run("LayerNormalization", "x,g", "y", "LayerNorm(x,g) axis=2 eps=1e-05 -> y[2,3,8]\n");
    begin(17);
    weight("g", "3,8");
    weight("b", "3,8");
    attr_put_int(&attr, "axis", 1);
    run("LayerNormalization", "x,g,b", "y", "LayerNorm(x,g,b) axis=1 eps=1e-05 -> y[2,3,8]\n");
    begin(17);
    weight("g", "1,8");
    run("LayerNormalization", "x,g", "y",
        "Reshape(g) shape=8 -> n.scale.out[8]\nLayerNorm(x,n.scale.out) axis=2 eps=1e-05 -> "
        "y[2,3,8]\n");
}

/* Before set 13 softmax is over all axes from `axis` on, 1 when absent. */
static void test_softmax(void) {
    begin(13);
    run("Softmax", "x", "y", "Softmax(x) axis=2 -> y[2,3,8]\n");
    begin(13);
    attr_put_int(&attr, "axis", 1);
    run("LogSoftmax", "x", "y", "LogSoftmax(x) axis=1 -> y[2,3,8]\n");
    begin(11);
    run("Softmax", "x", "y",
        "Reshape(x) shape=2,24 -> n.rows.out[2,24]\nSoftmax(n.rows.out) axis=1 -> "
        "n.flat.out[2,24]\n"
        "Reshape(n.flat.out) shape=2,3,8 -> y[2,3,8]\n");
    begin(11);
    attr_put_int(&attr, "axis", -1);
    run("Softmax", "x", "y", "Softmax(x) axis=2 -> y[2,3,8]\n");
}

static void dropout(int64_t opset, const char *flag, const char *out, const char *want) {
    begin(opset);
    reals("r", 0.25f);
    if (flag) model_init(&m, tensor_raw("t", BOOLS, "", *flag == '1' ? "\1" : "\0", 1));
    run("Dropout", flag ? "x,r,t" : "x,r", out, want);
}

static void test_dropout(void) {
    const char *drops = "Dropout(x) ratio=0.25 -> y[2,3,8]\n";
    const char *passes = "Reshape(x) shape=2,3,8 -> y[2,3,8]\n";
    dropout(13, "1", "y,mask", drops);
    dropout(13, "0", "y", passes);
    dropout(13, NULL, "y", passes); /* no flag: inference */
    test_options.dropout = false;
    dropout(13, "1", "y,mask", passes);
    test_options.dropout = true;
    begin(11); /* a mask output: a training export of that time */
    attr_put_real(&attr, "ratio", 0.25f);
    run("Dropout", "x", "y,mask", drops);
    begin(11);
    attr_put_real(&attr, "ratio", 0.25f);
    run("Dropout", "x", "y", passes);
    begin(11);
    attr_put_real(&attr, "ratio", 0);
    run("Dropout", "x", "y,mask", passes);
    begin(13);
    reals("r", 1.5f);
    run("Dropout", "x,r", "y", "ratio is 1.5, expected 0 to below 1");
}

/* Two dropouts draw from two streams. */
static void test_keys(void) {
    begin(11);
    attr_put_real(&attr, "ratio", 0.5f);
    model_node(&m, "Dropout", "d1", "x", "p,m1", &attr);
    model_node(&m, "Dropout", "d2", "p", "y,m2", &attr);
    Imported i = import_model(&m);
    CHECK(i.g && i.g->nnode == 2 && i.g->node[0].key != i.g->node[1].key && i.g->next_key == 2);
    imported_free(&i);
}

int main(void) {
    test_math();
    test_pow_clip();
    test_logic();
    test_reduce();
    test_other_reductions();
    test_views();
    test_data_shapes();
    test_slices();
    test_pad();
    test_conv();
    test_conv_transpose();
    test_pool();
    test_gemm();
    test_norms();
    test_softmax();
    test_dropout();
    test_keys();
    return test_end();
}
