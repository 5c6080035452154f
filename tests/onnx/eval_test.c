/* eval_test.c - compile-time evaluation: every operator on small constants, expected values by
 * hand. The model's output is the constant; no node may be left. */
#include "model.h"

#include <string.h>

static Model m;

static void begin(int64_t opset) {
    m = model_new(opset);
    model_output(&m, "y");
}

static void reals(const char *name, const char *dims, const float *v) {
    Buf attr = {0}, t = tensor_f32("", dims, v);
    attr_put_tensor(&attr, "value", &t);
    model_node(&m, "Constant", name, "", name, &attr);
}

static void bools(const char *name, const char *dims, const char *v, size_t n) {
    model_init(&m, tensor_raw(name, BOOLS, dims, v, n));
}

static const char *number(char *buf, DType dt, const void *p, uint64_t i) {
    Tensor t = {.dtype = dt, .data = p};
    if (is_real(dt))
        snprintf(buf, 32, "%.6g", tensor_real(&t, i));
    else
        snprintf(buf, 32, "%lld", (long long)tensor_int(&t, i));
    return buf;
}

/* "i64[2]: 3 4" */
static void expect(const char *want) {
    Imported i = import_model(&m);
    Text t;
    text_init(&t, i.a);
    text_str(&t, i.g ? "" : i.d.log.at);
    if (i.g) {
        CHECK_EQ(i.g->nnode, 0);
        const Value *v = &i.g->value[i.g->output[0]];
        char buf[32];
        text_add(&t, "%s%s:", dtype_name(v->dtype), shape_str(i.a, &v->shape));
        for (uint64_t k = 0; v->data && k < value_count(i.g, i.g->output[0]); k++)
            text_add(&t, " %s", number(buf, v->dtype, v->data->bytes, k));
    }
    CHECK_STR(t.at, want);
    imported_free(&i);
}

static void refused(const char *message) {
    Imported i = import_model(&m);
    CHECK(!i.g);
    CHECK(says(&i, message));
    imported_free(&i);
}

static void node(const char *op, const char *in, const Buf *attr) {
    model_node(&m, op, "n", in, "y", attr);
}

/* ---- elementwise ---- */

static void ints2(const char *op, const char *da, const char *a, const char *db, const char *b,
                  const char *want) {
    begin(13);
    model_const(&m, "a", da, a);
    model_const(&m, "b", db, b);
    node(op, "a,b", NULL);
    expect(want);
}

static void reals2(const char *op, float a, float b, const char *want) {
    begin(13);
    reals("a", "", &a);
    reals("b", "1", &b);
    node(op, "a,b", NULL);
    expect(want);
}

static void test_binary(void) {
    ints2("Add", "2,1", "1,10", "3", "1,2,3", "i64[2,3]: 2 3 4 11 12 13");
    ints2("Sub", "", "1", "2", "5,-5", "i64[2]: -4 6");
    ints2("Mul", "2", "4611686018427387904,3", "2", "4,5", "i64[2]: 0 15"); /* 2^62 * 4 wraps */
    ints2("Div", "4", "7,-7,7,-7", "4", "2,2,-2,-2", "i64[4]: 3 -3 -3 3");  /* towards zero */
    ints2("Div", "1", "-9223372036854775808", "1", "-1", "i64[1]: -9223372036854775808");
    ints2("Mod", "4", "7,-7,7,-7", "4", "3,3,-3,-3", "i64[4]: 1 2 -2 -1"); /* sign of the divisor */
    ints2("Pow", "3", "2,-3,5", "3", "10,3,0", "i64[3]: 1024 -27 1");
    ints2("Min", "2", "1,5", "", "3", "i64[2]: 1 3");
    ints2("Max", "2", "1,5", "", "3", "i64[2]: 3 5");
    ints2("Equal", "2", "1,5", "2", "1,4", "bool[2]: 1 0");
    ints2("Less", "2", "1,5", "2", "2,5", "bool[2]: 1 0");
    ints2("LessOrEqual", "2", "3,5", "2", "2,5", "bool[2]: 0 1");
    ints2("Greater", "2", "1,5", "2", "0,5", "bool[2]: 1 0");
    ints2("GreaterOrEqual", "2", "1,5", "2", "2,5", "bool[2]: 0 1");
    ints2("Add", "2,0", "", "1,1", "7", "i64[2,0]:");
    reals2("Div", 1, 4, "f32[1]: 0.25");
    reals2("Pow", 2, 0.5f, "f32[1]: 1.41421");
    reals2("Mod", -7, 3, "f32[1]: 2");
    reals2("Max", NAN, 3, "f32[1]: nan");
    reals2("Less", NAN, 3, "bool[1]: 0");
    begin(13);
    bools("a", "4", "\0\0\1\1", 4);
    bools("b", "4", "\0\1\0\1", 4);
    node("And", "a,b", NULL);
    expect("bool[4]: 0 0 0 1");
    begin(13);
    bools("a", "2", "\0\1", 2);
    node("Not", "a", NULL);
    expect("bool[2]: 1 0");
    begin(13);
    bools("a", "2", "\0\1", 2);
    bools("b", "2", "\0\0", 2);
    node("Or", "a,b", NULL);
    expect("bool[2]: 0 1");
    begin(13);
    model_const(&m, "a", "2", "1,2");
    model_const(&m, "b", "", "9");
    model_const(&m, "c", "1", "4");
    node("Max", "a,b,c", NULL);
    expect("i64[2]: 9 9");
    ints2("Div", "1", "1", "2", "1,0",
          "error: test.onnx: node 'n' (Div): division by 0 at compile time\n");
    ints2("Add", "2", "1,2", "3", "1,2,3",
          "error: test.onnx: node 'n' (Add): shapes [2] and [3] do not broadcast\n");
}

static void unary(const char *op, float a, const char *want) {
    begin(13);
    reals("a", "1", &a);
    node(op, "a", NULL);
    expect(want);
}

static void test_tests_and_shifts(void) {
    const float v[] = {1, NAN, -INFINITY, INFINITY};
    Buf attr = {0}, way = {0};
    begin(13);
    reals("a", "4", v);
    node("IsNaN", "a", NULL);
    expect("bool[4]: 0 1 0 0");
    begin(13);
    reals("a", "4", v);
    attr_put_int(&attr, "detect_negative", 0);
    node("IsInf", "a", &attr);
    expect("bool[4]: 0 0 0 1");
    begin(13);
    model_const(&m, "a", "3", "1,3,-1");
    model_const(&m, "b", "3", "4,64,60");
    attr_put_text(&way, "direction", "LEFT");
    node("BitShift", "a,b", &way);
    expect("i64[3]: 16 0 -1152921504606846976"); /* -2^60 */
    begin(13);
    bools("a", "4", "\0\0\1\1", 4);
    bools("b", "4", "\0\1\0\1", 4);
    node("Xor", "a,b", NULL);
    expect("bool[4]: 0 1 1 0");
    begin(13);
    reals("a", "4", (const float[]){1, 2, 3, 4});
    reals("b", "1", (const float[]){3});
    node("Mean", "a,b", NULL);
    expect("f32[4]: 2 2.5 3 3.5");
}

static void along(const char *op, int flags, const char *axis, const char *want) {
    Buf attr = {0};
    begin(13);
    reals("a", "2,3", (const float[]){3, 1, 3, 1, 5, 1});
    if (axis) model_const(&m, "k", "", axis);
    if (!axis) attr_put_int(&attr, "axis", 1);
    if (flags & 1) attr_put_int(&attr, axis ? "exclusive" : "keepdims", axis ? 1 : 0);
    if (flags & 2) attr_put_int(&attr, axis ? "reverse" : "select_last_index", 1);
    node(op, axis ? "a,k" : "a", &attr);
    expect(want);
}

static void test_along(void) {
    along("ArgMax", 0, NULL, "i64[2,1]: 0 1");
    along("ArgMax", 3, NULL, "i64[2]: 2 1");
    along("ArgMin", 2, NULL, "i64[2,1]: 1 2");
    along("CumSum", 0, "1", "f32[2,3]: 3 4 7 1 6 7");
    along("CumSum", 1, "-1", "f32[2,3]: 0 3 4 0 1 6");
    along("CumSum", 2, "0", "f32[2,3]: 4 6 4 1 5 1");
    begin(13);
    reals("a", "3", (const float[]){3, 4, 12});
    node("ReduceL2", "a", NULL);
    expect("f32[1]: 13");
    begin(13);
    reals("a", "2", (const float[]){3, 3});
    node("ReduceLogSumExp", "a", NULL);
    expect("f32[1]: 3.69315"); /* 3 + log 2 */
}

static void test_unary(void) {
    unary("Round", 2.5f, "f32[1]: 2");
    unary("Sign", -2.5f, "f32[1]: -1");
    unary("Tan", 1, "f32[1]: 1.55741");
    unary("Asin", 0.5f, "f32[1]: 0.523599"); /* pi/6 */
    unary("Acos", 0.5f, "f32[1]: 1.0472");   /* pi/3 */
    unary("Atan", 1, "f32[1]: 0.785398");    /* pi/4 */
    unary("Sinh", 1, "f32[1]: 1.1752");
    unary("Cosh", 1, "f32[1]: 1.54308");
    unary("Tanh", 1, "f32[1]: 0.761594");     /* sinh/cosh */
    unary("Asinh", 1, "f32[1]: 0.881374");    /* log(1 + sqrt 2) */
    unary("Acosh", 1.5f, "f32[1]: 0.962424"); /* log(1.5 + sqrt 1.25) */
    unary("Atanh", 0.5f, "f32[1]: 0.549306"); /* log(3)/2 */
    unary("Erf", 1, "f32[1]: 0.842701");
    unary("Sigmoid", 1, "f32[1]: 0.731059");
    unary("Relu", -1, "f32[1]: 0");
    unary("Abs", -2, "f32[1]: 2");
    unary("Neg", -2, "f32[1]: 2");
    unary("Exp", 1, "f32[1]: 2.71828");
    unary("Log", 100, "f32[1]: 4.60517");
    unary("Sqrt", 2, "f32[1]: 1.41421");
    unary("Sin", 1, "f32[1]: 0.841471");
    unary("Cos", 1, "f32[1]: 0.540302");
    unary("Floor", -1.5f, "f32[1]: -2");
    unary("Ceil", -1.5f, "f32[1]: -1");
    unary("Reciprocal", 4, "f32[1]: 0.25");
    begin(13);
    model_const(&m, "a", "2", "-3,4");
    node("Abs", "a", NULL);
    expect("i64[2]: 3 4");
}

static void cast(float a, int to, const char *want) {
    Buf attr = {0};
    attr_put_int(&attr, "to", to);
    begin(13);
    reals("a", "", &a);
    node("Cast", "a", &attr);
    expect(want);
}

static void test_cast_where(void) {
    cast(-2.7f, 7, "i64[]: -2");
    cast(0.5f, 9, "bool[]: 1");
    cast(1e30f, 7, "i64[]: 9223372036854775807");
    cast(NAN, 7, "i64[]: 0");
    cast(1.5f, 10, "f32[]: 1.5");
    cast(1.5f, 8,
         "error: test.onnx: 1 of 2 nodes are not supported:\n"
         "  node 'n' (Cast): casts to string\n");
    begin(13);
    bools("c", "2,1", "\1\0", 2);
    model_const(&m, "a", "2", "1,2");
    model_const(&m, "b", "", "9");
    node("Where", "c,a,b", NULL);
    expect("i64[2,2]: 1 2 9 9");
}

/* ---- shapes ---- */

static void test_shapes(void) {
    Buf attr = {0};
    begin(15);
    model_input(&m, "x", F32, "N,3,4");
    node("Shape", "x", NULL);
    expect("i64[3]: 2 3 4");
    begin(15);
    model_input(&m, "x", F32, "N,3,4");
    attr_put_int(&attr, "start", -2);
    attr_put_int(&attr, "end", 2);
    node("Shape", "x", &attr);
    expect("i64[1]: 3");
    begin(15);
    model_input(&m, "x", F32, "N,3,4");
    node("Size", "x", NULL);
    expect("i64[]: 24");
    begin(13);
    model_const(&m, "s", "2", "2,3");
    Buf value = {0}, one = tensor_i64("", "1", "7");
    attr_put_tensor(&value, "value", &one);
    node("ConstantOfShape", "s", &value);
    expect("i64[2,3]: 7 7 7 7 7 7");
    begin(13);
    model_const(&m, "s", "0", "");
    node("ConstantOfShape", "s", NULL);
    expect("f32[]: 0");
    begin(13);
    model_const(&m, "a", "", "3");
    model_const(&m, "b", "", "-4");
    model_const(&m, "c", "", "-2");
    node("Range", "a,b,c", NULL);
    expect("i64[4]: 3 1 -1 -3");
    Buf list = {0};
    attr_put_ints(&list, "value_ints", "4,5");
    begin(13);
    node("Constant", "", &list);
    expect("i64[2]: 4 5");
    list.n = 0;
    attr_put_real(&list, "value_float", 0.5f);
    begin(13);
    node("Constant", "", &list);
    expect("f32[]: 0.5");
}

static void move(int64_t opset, const char *op, const char *dims, const char *values,
                 const char *second, const Buf *attr, const char *want) {
    begin(opset);
    model_const(&m, "a", dims, values);
    if (second) {
        char d[16];
        int n = *second ? 1 : 0;
        for (const char *p = second; *p; p++) n += *p == ',';
        snprintf(d, sizeof d, "%d", n);
        model_const(&m, "b", d, second);
    }
    node(op, second ? "a,b" : "a", attr);
    expect(want);
}

static void test_moves(void) {
    const char *six = "1,2,3,4,5,6";
    Buf attr = {0};
    move(13, "Reshape", "2,3", six, "3,-1", NULL, "i64[3,2]: 1 2 3 4 5 6");
    move(13, "Reshape", "2,3", six, "0,3,1", NULL, "i64[2,3,1]: 1 2 3 4 5 6");
    move(13, "Transpose", "2,3", six, NULL, NULL, "i64[3,2]: 1 4 2 5 3 6");
    attr_put_ints(&attr, "perm", "1,2,0");
    move(13, "Transpose", "1,2,3", six, NULL, &attr, "i64[2,3,1]: 1 2 3 4 5 6");
    move(13, "Unsqueeze", "2", "1,2", "-1,0", NULL, "i64[1,2,1]: 1 2");
    move(13, "Squeeze", "1,2,1", "1,2", "-1", NULL, "i64[1,2]: 1 2");
    move(13, "Squeeze", "1,2,1", "1,2", NULL, NULL, "i64[2]: 1 2");
    attr.n = 0;
    attr_put_ints(&attr, "axes", "0");
    move(11, "Unsqueeze", "2", "1,2", NULL, &attr, "i64[1,2]: 1 2"); /* attribute before set 13 */
    move(13, "Expand", "2,1", "1,2", "2,1,3", NULL, "i64[2,2,3]: 1 1 1 2 2 2 1 1 1 2 2 2");
    move(13, "Tile", "2,2", "1,2,3,4", "1,2", NULL, "i64[2,4]: 1 2 1 2 3 4 3 4");
    move(13, "Flatten", "2,3", six, NULL, NULL, "i64[2,3]: 1 2 3 4 5 6");
    attr.n = 0;
    attr_put_int(&attr, "axis", 1);
    move(13, "Gather", "2,3", six, "-1,0", &attr, "i64[2,2]: 3 1 6 4");
    move(13, "Trilu", "2,3", six, NULL, NULL, "i64[2,3]: 1 2 3 0 5 6");
    begin(14);
    model_const(&m, "a", "2,3", six);
    model_const(&m, "k", "", "-1");
    attr.n = 0;
    attr_put_int(&attr, "upper", 0);
    node("Trilu", "a,k", &attr);
    expect("i64[2,3]: 0 0 0 4 0 0");
    begin(13);
    model_const(&m, "a", "1,2", "1,2");
    model_const(&m, "b", "2,2", "3,4,5,6");
    attr.n = 0;
    attr_put_int(&attr, "axis", 0);
    node("Concat", "a,b", &attr);
    expect("i64[3,2]: 1 2 3 4 5 6");
    move(13, "Gather", "2", "1,2", "2", NULL,
         "error: test.onnx: node 'n' (Gather): index 2 is outside of axis 0 of size 2\n");
    move(13, "Reshape", "2,3", six, "4,-1", NULL,
         "error: test.onnx: node 'n' (Reshape): a tensor of shape [2,3] does not fit into [4,1]; "
         "was the "
         "model exported with another batch size?\n");
}

static void slice(const char *starts, const char *ends, const char *axes, const char *steps,
                  const char *want) {
    begin(13);
    model_const(&m, "a", "2,4", "1,2,3,4,5,6,7,8");
    model_const(&m, "s", "1", starts);
    model_const(&m, "e", "1", ends);
    model_const(&m, "x", "1", axes);
    model_const(&m, "t", "1", steps);
    node("Slice", "a,s,e,x,t", NULL);
    expect(want);
}

static void test_slices(void) {
    slice("1", "3", "1", "1", "i64[2,2]: 2 3 6 7");
    slice("-1", "9223372036854775807", "0", "1", "i64[1,4]: 5 6 7 8");
    slice("0", "2147483647", "-1", "3", "i64[2,2]: 1 4 5 8");
    slice("-1", "-9223372036854775808", "1", "-2", "i64[2,2]: 4 2 8 6");
    slice("100", "-100", "0", "-1", "i64[2,4]: 5 6 7 8 1 2 3 4");
    slice("3", "1", "1", "1", "i64[2,0]:");
    slice("0", "4", "1", "9223372036854775807", "i64[2,1]: 1 5");
    slice("0", "1", "2", "1",
          "error: test.onnx: node 'n' (Slice): axis 2 is outside of a tensor with 2 axes\n");
    slice("0", "1", "0", "0", "error: test.onnx: node 'n' (Slice): step 0 on axis 0\n");
    Buf attr = {0};
    attr_put_ints(&attr, "starts", "0,1");
    attr_put_ints(&attr, "ends", "1,-1");
    begin(9); /* attributes before set 10 */
    model_const(&m, "a", "2,4", "1,2,3,4,5,6,7,8");
    node("Slice", "a", &attr);
    expect("i64[1,2]: 2 3");
}

static void test_split(void) {
    begin(13);
    model_const(&m, "a", "5", "1,2,3,4,5");
    model_const(&m, "s", "2", "2,3");
    model_node(&m, "Split", "n", "a,s", "p,y", NULL);
    expect("i64[3]: 3 4 5");
    Buf attr = {0};
    attr_put_int(&attr, "num_outputs", 2);
    begin(18); /* the last part may be smaller */
    model_const(&m, "a", "5", "1,2,3,4,5");
    model_node(&m, "Split", "n", "a", "p,y", &attr);
    expect("i64[2]: 4 5");
    begin(13);
    model_const(&m, "a", "5", "1,2,3,4,5");
    model_node(&m, "Split", "n", "a", "p,y", NULL);
    refused("the parts do not add up to the 5 of axis 0");
}

static void reduce(const char *op, const char *axes, int64_t keep, const char *want) {
    Buf attr = {0};
    attr_put_int(&attr, "keepdims", keep);
    begin(18); /* axes as an input, for all reductions */
    model_const(&m, "a", "2,3", "1,2,3,4,5,6");
    if (axes) model_const(&m, "x", "1", axes);
    node(op, axes ? "a,x" : "a", &attr);
    expect(want);
}

static void test_reduce(void) {
    reduce("ReduceSum", "1", 0, "i64[2]: 6 15");
    reduce("ReduceL1", "1", 0, "i64[2]: 6 15");
    reduce("ReduceSumSquare", "1", 0, "i64[2]: 14 77");
    reduce("ReduceSum", NULL, 1, "i64[1,1]: 21");
    reduce("ReduceProd", "-1", 1, "i64[2,1]: 6 120");
    reduce("ReduceMax", "0", 0, "i64[3]: 4 5 6");
    reduce("ReduceMin", "0", 0, "i64[3]: 1 2 3");
    reduce("ReduceMean", "0", 0, "i64[3]: 2 3 4"); /* 2.5, 3.5, 4.5 towards zero */
    Buf attr = {0};
    attr_put_ints(&attr, "axes", "0");
    attr_put_int(&attr, "keepdims", 0);
    begin(13);
    reals("a", "2,2", (float[]){1, 2, 4, 8});
    node("ReduceMean", "a", &attr);
    expect("f32[2]: 2.5 5");
}

/* ---- limits ---- */

static void test_limits(void) {
    begin(13);
    model_const(&m, "s", "1", "1099511627776");
    node("ConstantOfShape", "s", NULL);
    refused("would have shape [1099511627776], expected at most 33554432 elements");
    begin(13);
    model_const(&m, "a", "", "1");
    model_const(&m, "s", "2", "1048576,1048576");
    node("Expand", "a,s", NULL);
    refused("would have shape [1048576,1048576]");
    begin(13);
    model_const(&m, "s", "3", "4611686018427387904,4,4");
    node("ConstantOfShape", "s", NULL);
    refused("expected at most");
    begin(13);
    model_const(&m, "a", "", "0");
    model_const(&m, "b", "", "1099511627776");
    model_const(&m, "c", "", "1");
    node("Range", "a,b,c", NULL);
    refused("a range of 1099511627776 numbers");
    begin(13);
    model_const(&m, "a", "1", "1");
    model_const(&m, "r", "1", "4611686018427387904");
    node("Tile", "a,r", NULL);
    refused("would have shape");
    begin(13);
    model_const(&m, "s", "1", "16777216"); /* 64 MiB of f32 each */
    for (int k = 0; k < 4; k++) {
        char name[8];
        snprintf(name, sizeof name, "v%d", k);
        model_node(&m, "ConstantOfShape", name, "s", name, NULL);
    }
    node("Sum", "v0,v1,v2,v3", NULL);
    refused("values at compile time need more than 192 MiB together");
}

/* v0 = 2^23 zeros (32 MiB of f32), then a chain of n nodes. */
static void chain(int n) {
    begin(13);
    model_const(&m, "s", "1", "8388608");
    model_node(&m, "ConstantOfShape", "v0", "s", "v0", NULL);
    for (int k = 0; k < n; k++) {
        char in[16], out[16];
        snprintf(in, sizeof in, "v%d", k);
        snprintf(out, sizeof out, "v%d", k + 1);
        model_node(&m, "Abs", out, in, out, NULL);
    }
    char last[16];
    snprintf(last, sizeof last, "v%d", n);
    node("Shape", last, NULL);
}

/* Each value is given back after its last reader: nine of 32 MiB fit under 192 MiB. All the work
 * has a limit too: 2^27 elements are sixteen values, the first one included. */
static void test_chains(void) {
    chain(8);
    expect("i64[1]: 8388608");
    chain(16);
    refused("node 'v16' (Abs): the model computes more than 134217728 elements at compile time");
}

int main(void) {
    test_tests_and_shifts();
    test_along();
    test_binary();
    test_unary();
    test_cast_where();
    test_shapes();
    test_moves();
    test_slices();
    test_split();
    test_reduce();
    test_limits();
    test_chains();
    return test_end();
}
