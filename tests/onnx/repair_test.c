/* repair_test.c - what inference exports do to weights: what is undone, what is said, and what is
 * meant and stays. */
#include "model.h"

#include <string.h>

static Model start(void) {
    Model m = model_new(13);
    model_input(&m, "ids", I64, "N");
    model_output(&m, "y");
    return m;
}

/* The embedding [3,2] of numbers 0, 1 .., and an output [2,3] of a product with its matrix. */
static Model language_model(const char *matrix) {
    Model m = start();
    char in[64];
    snprintf(in, sizeof in, "e,%s", matrix);
    model_init(&m, tensor_f32("wte", "3,2", (float[]){0, 1, 2, 3, 4, 5}));
    model_node(&m, "Gather", "g", "wte,ids", "e", NULL);
    model_node(&m, "MatMul", "head", in, "y", NULL);
    return m;
}

/* One weight read twice, through an Identity: an embedding that is the output matrix too. */
static void test_tied(void) {
    Model m = start();
    model_init(&m, tensor_f32("wte", "3,2", (float[]){0, 1, 2, 3, 4, 5}));
    model_node(&m, "Gather", "g", "wte,ids", "e", NULL);
    model_node(&m, "Identity", "i", "wte", "head.weight", NULL);
    model_node(&m, "Transpose", "t", "head.weight", "turned", NULL);
    model_node(&m, "MatMul", "head", "e,turned", "y", NULL);
    Imported i = import_model(&m);
    CHECK(notes(&i, "'wte' is an embedding and a matrix: kept tied, one weight"));
    CHECK(!notes(&i, "untied"));
    CHECK_EQ(value_named(i.g, "wte") != NO_ID, 1);
    CHECK(strstr(nodes_text(&i), "Reshape(wte)") != NULL);
    imported_free(&i);
}

/* Constant folding has made a transposed copy of it. */
static void test_split(void) {
    Model m = language_model("onnx::MatMul_9");
    model_init(&m, tensor_f32("onnx::MatMul_9", "2,3", (float[]){0, 2, 4, 1, 3, 5}));
    Imported i = import_model(&m);
    CHECK(notes(&i, "'wte' and 'onnx::MatMul_9' hold the same numbers"));
    CHECK(notes(&i, "looks like an inference export: 1 weights named onnx::MatMul_*, 0 Dropout"));
    imported_free(&i);
    m = language_model("other"); /* one number differs */
    model_init(&m, tensor_f32("other", "2,3", (float[]){0, 2, 4, 1, 3, 6}));
    i = import_model(&m);
    CHECK(!notes(&i, "hold the same numbers"));
    CHECK_EQ(i.info.nnote, 0);
    imported_free(&i);
    m = start(); /* equal because both are zero: no weights that were tied */
    model_init(&m, tensor_zeros("wte", "3,2"));
    model_init(&m, tensor_zeros("w", "2,3"));
    model_node(&m, "Gather", "g", "wte,ids", "e", NULL);
    model_node(&m, "MatMul", "head", "e,w", "y", NULL);
    i = import_model(&m);
    CHECK_EQ(i.info.nnote, 0);
    imported_free(&i);
}

static void test_dropout(void) {
    Model m = model_new(13);
    uint8_t on = 1;
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    model_init(&m, tensor_raw("on", BOOLS, "", &on, 1));
    model_init(&m, tensor_f32("ratio", "", (float[]){0.25f}));
    model_node(&m, "Dropout", "d1", "x,ratio", "p", NULL);
    model_node(&m, "Dropout", "d2", "p,ratio,on", "q", NULL);
    model_node(&m, "Dropout", "d3", "q", "y", NULL);
    Imported i = import_model(&m);
    CHECK(notes(&i, "2 Dropout nodes are in inference mode and do nothing; re-export with "
                    "training=TrainingMode.TRAINING"));
    imported_free(&i);
}

int main(void) {
    test_tied();
    test_split();
    test_dropout();
    return test_end();
}
