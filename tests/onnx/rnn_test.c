/* rnn_test.c - recurrent layers as they are unrolled, and what is refused. What they compute is
 * tested by tests/onnx_ops (numbers of ONNX's own cases and of later_ops.py). */
#include "model.h"

#include <string.h>

typedef struct {
    const char *op, *x, *w, *r, *b, *in, *out;
} Layer;

static Model layer(const Layer *l, const Buf *attr) {
    Model m = model_new(14);
    model_input(&m, "x", F32, l->x);
    model_input(&m, "lens", 6, "N");
    model_output(&m, l->out[0] == ',' ? "h" : "y");
    model_init(&m, tensor_zeros("w", l->w));
    model_init(&m, tensor_zeros("r", l->r));
    if (l->b) model_init(&m, tensor_zeros("b", l->b));
    model_const(&m, "shape", "3", "1,2,1");
    model_node(&m, "ConstantOfShape", "zeros", "shape", "zero", NULL);
    model_node(&m, l->op, "l", l->in, l->out, attr);
    return m;
}

static const Layer lstm = {"LSTM", "3,N,2", "1,4,2", "1,4,1", "1,8", "x,w,r,b", "y"};
static const Layer plain = {"RNN", "2,N,2", "1,1,2", "1,1,1", NULL, "x,w,r,,,zero", ",h"};

static void refused(const Layer *l, const Buf *attr, const char *message) {
    Model m = layer(l, attr);
    Imported i = import_model(&m);
    CHECK(!i.g);
    CHECK(says(&i, message));
    imported_free(&i);
}

/* A state of known zeros costs no product; only the last state is read, so that nothing is joined.
 */
static void test_unrolled(void) {
    Model m = layer(&plain, NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Reshape(w) shape=1,2 -> l.f.w.out[1,2]\n"
                              "Reshape(r) shape=1,1 -> l.f.r.out[1,1]\n"
                              "Reshape(x) shape=4,2 -> l.f0.rows.out[4,2]\n"
                              "MatMul(l.f0.rows.out,l.f.w.out) trans_b=1 -> l.f0.inputs.out[4,1]\n"
                              "Slice(l.f0.inputs.out) starts=0,0 steps=1,1 sizes=2,1 -> "
                              "l.f0.x.out[2,1]\n"
                              "Tanh(l.f0.x.out) -> l.f0.h.out[2,1]\n"
                              "Slice(l.f0.inputs.out) starts=2,0 steps=1,1 sizes=2,1 -> "
                              "l.f1.x.out[2,1]\n"
                              "MatMul(l.f0.h.out,l.f.r.out) trans_b=1 -> l.f1.product.out[2,1]\n"
                              "Add(l.f1.x.out,l.f1.product.out) -> l.f1.gates.out[2,1]\n"
                              "Tanh(l.f1.gates.out) -> l.f1.h.out[2,1]\n"
                              "Reshape(l.f1.h.out) shape=1,2,1 -> h[1,2,1]\n");
    imported_free(&i);
}

static void attr_put_texts(Buf *b, const char *name, const char *first, const char *second) {
    Buf a = {0};
    field_str(&a, 1, name);
    field_str(&a, 9, first);
    if (second) field_str(&a, 9, second);
    field_int(&a, 20, 8);
    field_buf(b, 5, &a);
}

static void test_refused(void) {
    Layer l = lstm;
    Buf attr = {0};
    l.w = "1,4,3";
    refused(&l, NULL, "node 'l' (LSTM): expected W of shape [1,4,2] (input 1), found [1,4,3]");
    l = lstm;
    l.r = "4,1";
    refused(&l, NULL, "expected 3 axes for input 2, found shape [4,1]");
    l = lstm;
    l.b = "1,7";
    refused(&l, NULL, "expected B of shape [1,8] (input 3), found [1,7]");
    l = lstm;
    l.x = "5000,N,2";
    refused(&l, NULL, "a sequence of 5000 steps (up to 4096 are unrolled)");
    l = lstm;
    l.in = "x,w,r,b,x";
    refused(&l, NULL, "expected sequence_lens of shape [2] (input 4), found [3,2,2]");
    l.in = "x,w,r,b,,zero,x";
    refused(&l, NULL, "expected initial_c of shape [1,2,1] (input 6), found [3,2,2]");
    attr_put_text(&attr, "direction", "up");
    refused(&lstm, &attr, "direction is up, expected forward, reverse or bidirectional");
    attr = (Buf){0};
    attr_put_text(&attr, "direction", "bidirectional");
    refused(&lstm, &attr, "expected W of shape [2,4,2] (input 1), found [1,4,2]");
    attr = (Buf){0};
    attr_put_int(&attr, "layout", 2);
    refused(&lstm, &attr, "layout is 2, expected 0 or 1");
    attr = (Buf){0};
    attr_put_int(&attr, "hidden_size", INT64_MAX);
    refused(&lstm, &attr, "hidden_size is 9223372036854775807, but R has 1 columns");
    attr = (Buf){0};
    attr_put_texts(&attr, "activations", "Tanh", NULL);
    refused(&lstm, &attr, "expected 3 activations, found 1");
    attr = (Buf){0};
    attr_put_texts(&attr, "activations", "No\nSuch", NULL);
    refused(&plain, &attr, "activation No\\x0aSuch");
}

/* Lengths from the data become masks; a constant length is checked. */
static void test_lengths(void) {
    Layer l = plain;
    l.in = "x,w,r,,lens";
    Model m = layer(&l, NULL);
    Imported i = import_model(&m);
    CHECK(i.g != NULL);
    if (i.g) CHECK(strstr(nodes_text(&i), "Less(l.steps,l.lens.out) -> l.mask.out[2,2,1]") != NULL);
    imported_free(&i);
    l.in = "x,w,r,,four";
    m = layer(&l, NULL);
    model_const(&m, "four", "2", "4,1");
    i = import_model(&m);
    CHECK(says(&i, "sequence_lens holds 4, expected 0 to 2"));
    imported_free(&i);
    l.in = "x,w,r,,two";
    m = layer(&l, NULL);
    model_const(&m, "two", "2", "2,2"); /* all of it: no mask */
    i = import_model(&m);
    CHECK(i.g != NULL);
    if (i.g) CHECK(!strstr(nodes_text(&i), "Less"));
    imported_free(&i);
}

int main(void) {
    test_unrolled();
    test_refused();
    test_lengths();
    return test_end();
}
