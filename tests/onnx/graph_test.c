/* graph_test.c - names, order and dimensions: what is repaired and what is refused, with its
 * message. */
#include "model.h"

#include <string.h>

static void refused(const Model *m, const char *message) {
    Imported i = import_model(m);
    CHECK(!i.g);
    CHECK(says(&i, message));
    imported_free(&i);
}

static Model start(void) {
    Model m = model_new(13);
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    return m;
}

/* File order c, b, a; a feeds b, b feeds c. */
static void test_unsorted(void) {
    Model m = start();
    model_node(&m, "Tanh", "c", "q", "y", NULL);
    model_node(&m, "Exp", "b", "p", "q", NULL);
    model_node(&m, "Relu", "a", "x", "p", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Relu(x) -> p[2,4]\nExp(p) -> q[2,4]\nTanh(q) -> y[2,4]\n");
    imported_free(&i);
}

static void test_cycles(void) {
    Model m = start();
    model_node(&m, "Relu", "free", "x", "p", NULL);
    model_node(&m, "Add", "one", "p,s", "q", NULL);
    model_node(&m, "Exp", "two", "q", "r", NULL);
    model_node(&m, "Tanh", "three", "r", "s", NULL);
    model_node(&m, "Neg", "end", "s", "y", NULL);
    refused(&m, "the graph has a cycle: 'one' <- 'three' <- 'two'");
    m = start();
    model_node(&m, "Add", "own", "x,y", "y", NULL);
    refused(&m, "the graph has a cycle: 'own'");
    m = start();
    for (int k = 0; k < 20; k++) {
        char in[8], out[8];
        snprintf(in, sizeof in, "v%d", k);
        snprintf(out, sizeof out, "v%d", (k + 1) % 20);
        model_node(&m, "Neg", out, in, out, NULL);
    }
    model_node(&m, "Neg", "end", "v3", "y", NULL);
    refused(&m, "'v14' <- ...");
}

static void test_names(void) {
    Model m = start();
    model_node(&m, "Relu", "r", "nowhere", "y", NULL);
    refused(&m, "node 'r' (Relu), tensor 'nowhere': input 0 is not defined");
    m = start();
    model_node(&m, "Relu", "a", "x", "y", NULL);
    model_node(&m, "Relu", "b", "x", "y", NULL);
    refused(&m, "node 'b' (Relu), tensor 'y': a second definition; node 'a' has the first");
    m = start();
    model_node(&m, "Relu", "a", "x", "x", NULL);
    refused(&m, "this name is that of a model input");
    m = start();
    model_node(&m, "Relu", "a", "x", "z", NULL);
    refused(&m, "tensor 'y': this model output is not defined");
    m = start();
    model_init(&m, tensor_zeros("w", "4"));
    model_init(&m, tensor_zeros("w", "4"));
    refused(&m, "two initializers of one name");
    m = model_new(13);
    refused(&m, "the graph has no output");
    m = start();
    model_node(&m, "Add", "a", "x,,x", "y", NULL);
    refused(&m, "expected 2 to 2 inputs, found 3");
    m = start();
    model_node(&m, "Add", "a", "x,", "y", NULL);
    refused(&m, "expected 2 to 2 inputs, found 1");
}

/* An unnamed node goes by its number; one with hostile letters is shown escaped. */
static void test_shown_names(void) {
    Model m = start();
    model_node(&m, "Relu", "", "nowhere", "y", NULL);
    refused(&m, "node '#0' (Relu)");
    m = start();
    model_node(&m, "Relu", "a\n*/ \"b' \x1b[31m", "nowhere", "y", NULL);
    refused(&m, "node 'a\\x0a*/ \\\"b\\' \\x1b[31m' (Relu)");
}

/* Before IR version 4 initializers are inputs too. */
static void test_old_inputs(void) {
    Model m = start();
    m.ir = 3;
    model_input(&m, "w", F32, "4,3");
    model_init(&m, tensor_zeros("w", "4,3"));
    model_node(&m, "MatMul", "mm", "x,w", "y", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "MatMul(x,w) -> y[2,3]\n");
    if (i.g) CHECK_EQ(i.g->value[value_named(i.g, "w")].role, ROLE_PARAM);
    imported_free(&i);
}

static void test_unused(void) {
    Model m = start();
    model_input(&m, "spare", F32, "N");
    model_node(&m, "Relu", "a", "x", "y", NULL);
    model_node(&m, "Exp", "dead", "x", "z", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Relu(x) -> y[2,4]\n");
    CHECK(notes(&i, "input 'spare' is not used"));
    imported_free(&i);
}

/* ---- dimensions ---- */

static Imported import_dims(const char *dims, const OnnxOptions *o) {
    Model m = model_new(13);
    model_input(&m, "x", F32, dims);
    model_output(&m, "y");
    model_node(&m, "Relu", "a", "x", "y", NULL);
    OnnxOptions saved = test_options;
    test_options = *o;
    Imported i = import_model(&m);
    test_options = saved;
    return i;
}

static void expect_shape(const char *dims, const OnnxOptions *o, const char *shape) {
    Imported i = import_dims(dims, o);
    CHECK(i.g != NULL);
    if (i.g) CHECK_STR(shape_str(i.a, &i.g->value[i.g->output[0]].shape), shape);
    imported_free(&i);
}

static void refuse_dims(const char *dims, const OnnxOptions *o, const char *message) {
    Imported i = import_dims(dims, o);
    CHECK(!i.g);
    CHECK(says(&i, message));
    imported_free(&i);
}

static void test_dims(void) {
    DimBinding t = {"T", 7}, both[] = {{"N", 3}, {"T", 7}}, third = {"x[2]", 5};
    OnnxOptions none = {0}, batch = {.batch = 4}, seq = {.batch = 4, .dim = &t, .ndim = 1};
    OnnxOptions named = {.dim = both, .ndim = 2}, one = {.inference_default = true};
    OnnxOptions anon = {.batch = 4, .dim = &third, .ndim = 1};
    expect_shape("N,3", &batch, "[4,3]");
    expect_shape("N,T,N", &seq, "[4,7,4]");
    expect_shape("N,T", &named, "[3,7]");
    expect_shape("N,T", &one, "[1,1]");
    expect_shape("0,3", &batch, "[4,3]");  /* sizes that some exporters write */
    expect_shape("-1,3", &batch, "[4,3]"); /* for an unknown batch */
    expect_shape("?,3,?", &anon, "[4,3,5]");
    expect_shape("4,3", &batch, "[4,3]");
    refuse_dims("N,T,U", &none, "dimensions without a size: N, T, U");
    refuse_dims("N,T", &batch, "hint: give them sizes, for example --dim 'T=128'");
    refuse_dims("N,T", &none, "hint: give them sizes, for example --batch 32 --dim 'T=128'");
    refuse_dims("8,3", &batch, "axis 0 is fixed to 8 in the model, --batch asks for 4");
    refuse_dims("4611686018427387904,4", &none, "is too large");
    refuse_dims("1,1,1,1,1,1,1,1,1", &none, "expected at most 8 axes, found 9");
}

static void test_symbols(void) {
    OnnxOptions none = {0};
    Imported i = import_dims("N,T,N", &none);
    CHECK_EQ(i.info.nsymbol, 2);
    if (i.info.nsymbol == 2) {
        CHECK_STR(i.info.symbol[0], "N");
        CHECK_STR(i.info.symbol[1], "T");
    }
    imported_free(&i);
}

/* ---- versions and what is not supported ---- */

static void test_versions(void) {
    for (int64_t v = -1; v <= 30; v++) {
        Model m = start();
        m.opset = v;
        model_node(&m, "Relu", "a", "x", "y", NULL);
        Imported i = import_model(&m);
        CHECK_EQ(i.g != NULL, v >= 1 && v <= 28);
        if (!i.g) CHECK(says(&i, "expected operator set 1 to 28"));
        imported_free(&i);
    }
}

static void test_unsupported(void) {
    Model m = start();
    Buf domain = {0};
    field_str(&domain, 7, "com.microsoft"); /* a field of the node */
    model_node(&m, "Loop", "l", "x", "p", NULL);
    model_node(&m, "Relu", "r", "p", "q", NULL);
    model_node(&m, "FusedConv", "f", "q", "s", &domain);
    model_node(&m, "NoSuchThing", "n", "s", "y", NULL);
    model_node(&m, "Scan", "unread", "x", "z", NULL); /* not looked at */
    Imported i = import_model(&m);
    CHECK(!i.g);
    CHECK_EQ(i.d.errors, 1);
    CHECK(says(&i, "3 of 5 nodes are not supported:\n  node 'l' (Loop): its number of iterations "
                   "depends on data"));
    CHECK(says(&i, "node 'f' (com.microsoft::FusedConv): written by ONNX Runtime's optimizer"));
    CHECK(says(&i, "node 'n' (NoSuchThing): not implemented"));
    CHECK_EQ(i.info.nunsupported, 3);
    imported_free(&i);
}

/* Ten different things that are not supported: one report with all of them, in the order of the
 * file, each with its place and what to do. */
static void test_ten(void) {
    Model m = start();
    Buf microsoft = {0}, ml = {0}, pad = {0}, norm = {0}, to = {0}, scan = {0};
    field_str(&microsoft, 7, "com.microsoft");
    field_str(&ml, 7, "ai.onnx.ml");
    attr_put_text(&pad, "mode", "wrap_twice");
    attr_put_int(&norm, "spatial", 0);
    attr_put_int(&to, "to", 8);
    attr_put_int(&scan, "num_scan_inputs", 1);
    model_const(&m, "pads", "4", "1,1,1,1");
    for (int k = 0; k < 4; k++)
        model_init(&m, tensor_zeros((const char *[]){"g", "b", "m", "v"}[k], "4"));
    model_node(&m, "Relu", "fine", "x", "h", NULL);
    model_node(&m, "NoSuchThing", "a", "h", "y1", NULL);
    model_node(&m, "SkipLayerNormalization", "b", "h", "y2", &microsoft);
    model_node(&m, "TreeEnsembleClassifier", "c", "h", "y3", &ml);
    model_node(&m, "Loop", "d", "h", "y4", NULL);
    model_node(&m, "If", "e", "h", "y5", NULL);
    model_node(&m, "QuantizeLinear", "f", "h", "y6", NULL);
    model_node(&m, "SequenceAt", "i", "h", "y7", NULL);
    model_node(&m, "Pad", "j", "h,pads", "y8", &pad);
    model_node(&m, "BatchNormalization", "k", "h,g,b,m,v", "y9", &norm);
    model_node(&m, "Cast", "l", "h", "y10", &to);
    for (int k = 1; k <= 10; k++) {
        char name[8];
        snprintf(name, sizeof name, "y%d", k);
        model_output(&m, name);
    }
    model_node(&m, "Relu", "last", "h", "y", NULL);
    Imported i = import_model(&m);
    CHECK(!i.g);
    CHECK_EQ(i.d.errors, 1);
    CHECK(says(&i, "10 of 13 nodes are not supported:\n"
                   "  node 'a' (NoSuchThing): not implemented; dtrc ops lists what is\n"
                   "  node 'b' (com.microsoft::SkipLayerNormalization): written by ONNX Runtime's "
                   "optimizer; use the model as it was exported\n"
                   "  node 'c' (ai.onnx.ml::TreeEnsembleClassifier): classical machine learning is "
                   "not supported\n"
                   "  node 'd' (Loop): its number of iterations depends on data"));
    CHECK(says(&i,
               "  node 'e' (If): its condition depends on data; export the model with the branch "
               "taken decided (tracing instead of scripting)\n"
               "  node 'f' (QuantizeLinear): quantized models cannot be trained; use the float "
               "model\n"
               "  node 'i' (SequenceAt): sequences and optional values are not supported"));
    CHECK(says(&i, "  node 'j' (Pad): mode wrap_twice (constant, reflect"));
    CHECK(says(&i, "  node 'k' (BatchNormalization): statistics per element (spatial = 0)\n"
                   "  node 'l' (Cast): casts to string"));
    imported_free(&i);
}

static void test_info(void) {
    Model m = start();
    model_node(&m, "Relu", "a", "x", "p", NULL);
    model_node(&m, "Exp", "b", "p", "q", NULL);
    model_node(&m, "Relu", "c", "q", "y", NULL);
    Buf b = model_bytes(&m);
    field_str(&b, 2, "hand");
    Imported i = import_buf(b);
    CHECK(i.g != NULL);
    CHECK_EQ(i.info.ir_version, 8);
    CHECK_EQ(i.info.opset, 13);
    CHECK_EQ(i.info.file_bytes, b.n);
    CHECK_EQ(i.info.nop, 2);
    if (i.info.nop == 2) {
        CHECK_STR(i.info.op_name[0], "Exp");
        CHECK_EQ(i.info.op_count[1], 2);
    }
    CHECK_STR(i.info.producer, "hand");
    imported_free(&i);
    /* FIPS 180-2, appendix B.1 */
    Arena *a = arena_new();
    CHECK_STR(load_digest(a, (Span){(const uint8_t *)"abc", 3}),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    arena_free(a);
}

int main(void) {
    test_unsorted();
    test_cycles();
    test_names();
    test_shown_names();
    test_old_inputs();
    test_unused();
    test_dims();
    test_symbols();
    test_versions();
    test_unsupported();
    test_ten();
    test_info();
    return test_end();
}
