/* flow_test.c - control flow that is unrolled, model-local functions, and what both refuse. */
#include "model.h"

#include <string.h>

static void refused(const Model *m, const char *message) {
    Imported i = import_model(m);
    CHECK(!i.g);
    CHECK(says(&i, message));
    if (!says(&i, message)) fprintf(stderr, "%s", i.d.log.at);
    imported_free(&i);
}

static void gives(const Model *m, const char *text) {
    Imported i = import_model(m);
    CHECK_STR(nodes_text(&i), text);
    if (!i.g) fprintf(stderr, "%s", i.d.log.at);
    imported_free(&i);
}

/* An attribute that holds the graph of a model. */
static void attr_put_graph(Buf *b, const char *name, const Model *body) {
    Buf a = {0};
    field_str(&a, 1, name);
    field_buf(&a, 6, &body->graph);
    field_int(&a, 20, 5);
    field_buf(b, 5, &a);
}

static Model start(void) {
    Model m = model_new(15);
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    return m;
}

/* The branch that is taken reads x of the graph around it; "t" is known from "two". */
static void test_if(void) {
    Model m = start(), yes = model_new(15), no = model_new(15);
    Buf attr = {0};
    model_node(&yes, "Exp", "e", "x", "t", NULL);
    model_node(&yes, "Mul", "m", "t,two", "o", NULL);
    model_output(&yes, "o");
    model_node(&no, "NoSuchOperator", "n", "x", "o", NULL);
    model_output(&no, "o");
    attr_put_graph(&attr, "then_branch", &yes);
    attr_put_graph(&attr, "else_branch", &no);
    model_init(&m, tensor_f32("two", "1", (float[]){2}));
    model_const(&m, "c", "", "1");
    model_node(&m, "If", "if", "c", "y", &attr);
    gives(&m, "Exp(x) -> if.then_branch/t[2,4]\n"
              "Mul(if.then_branch/t,two) -> if.then_branch/o[2,4]\n"
              "Reshape(if.then_branch/o) shape=2,4 -> y[2,4]\n");
    m = start();
    model_input(&m, "c", BOOLS, "");
    model_init(&m, tensor_f32("two", "1", (float[]){2}));
    model_node(&m, "If", "if", "c", "y", &attr);
    refused(&m, "node 'if' (If): its condition depends on data");
    m = start();
    model_const(&m, "c", "", "0");
    model_init(&m, tensor_f32("two", "1", (float[]){2}));
    model_node(&m, "If", "if", "c", "y", &attr);
    refused(&m, "node 'if.else_branch/n' (NoSuchOperator): not implemented");
    m = start(); /* nobody defines "two" */
    model_const(&m, "c", "", "1");
    model_node(&m, "If", "if", "c", "y", &attr);
    refused(&m, "node 'if' (If), tensor 'two': this name, read by its sub-graph, is not defined");
}

/* acc = acc * x; scan: acc after each of `trips` runs. */
static Model loop(const char *trips, const char *condition) {
    Model m = start(), body = model_new(15);
    Buf attr = {0};
    model_input(&body, "i", I64, "");
    model_input(&body, "go", BOOLS, "");
    model_input(&body, "acc", F32, "2,4");
    model_node(&body, "Mul", "m", "acc,x", "next", NULL);
    model_node(&body, "Identity", "c", condition, "on", NULL);
    model_node(&body, "Identity", "s", "i", "number", NULL);
    model_output(&body, "on");
    model_output(&body, "next");
    model_output(&body, "number");
    attr_put_graph(&attr, "body", &body);
    model_const(&m, "n", "", trips);
    model_node(&m, "Loop", "l", "n,,x", "y,numbers", &attr);
    return m;
}

static void test_loop(void) {
    Model m = loop("2", "go");
    gives(&m, "Mul(x,x) -> l.0/next[2,4]\n"
              "Mul(l.0/next,x) -> l.1/next[2,4]\n"
              "Reshape(l.1/next) shape=2,4 -> y[2,4]\n");
    m = loop("0", "go");
    gives(&m, "Reshape(x) shape=2,4 -> y[2,4]\n");
    m = loop("9223372036854775807", "go");
    refused(&m, "the model has more than 65536 steps of loops and recurrent layers to unroll");
    m = loop("3", "i"); /* 0 ends it after the first run */
    gives(&m, "Mul(x,x) -> l.0/next[2,4]\n"
              "Reshape(l.0/next) shape=2,4 -> y[2,4]\n");
    m = loop("2", "go"); /* what the runs gather is known: 0, 1 */
    model_node(&m, "Gather", "g", "x,numbers", "z", NULL);
    model_output(&m, "z");
    Imported i = import_model(&m);
    CHECK(i.g != NULL);
    if (i.g) CHECK(strstr(nodes_text(&i), "-> z[2,4]") != NULL);
    imported_free(&i);
}

static void test_scan(void) {
    Model m = start(), body = model_new(15);
    Buf attr = {0};
    model_input(&body, "sum", F32, "4");
    model_input(&body, "row", F32, "4");
    model_node(&body, "Add", "a", "sum,row", "next", NULL);
    model_node(&body, "Identity", "i", "next", "out", NULL);
    model_output(&body, "next");
    model_output(&body, "out");
    attr_put_graph(&attr, "body", &body);
    attr_put_int(&attr, "num_scan_inputs", 1);
    attr_put_ints(&attr, "scan_input_directions", "1");
    model_init(&m, tensor_zeros("z", "4"));
    model_node(&m, "Scan", "s", "z,x", "last,y", &attr);
    gives(&m, "Slice(x) starts=1,0 steps=1,1 sizes=1,4 -> s.0.in1.slice.out[1,4]\n"
              "Reshape(s.0.in1.slice.out) shape=4 -> s.0.in1.out[4]\n"
              "Add(z,s.0.in1.out) -> s.0/next[4]\n"
              "Reshape(s.0/next) shape=4 -> s.0/out[4]\n"
              "Slice(x) starts=0,0 steps=1,1 sizes=1,4 -> s.1.in1.slice.out[1,4]\n"
              "Reshape(s.1.in1.slice.out) shape=4 -> s.1.in1.out[4]\n"
              "Add(s.0/next,s.1.in1.out) -> s.1/next[4]\n"
              "Reshape(s.1/next) shape=4 -> s.1/out[4]\n"
              "Reshape(s.0/out) shape=1,4 -> s.0.out1.out[1,4]\n"
              "Reshape(s.1/out) shape=1,4 -> s.1.out1.out[1,4]\n"
              "Concat(s.0.out1.out,s.1.out1.out) axis=0 -> y[2,4]\n");
}

/* ---- functions ---- */

/* A FunctionProto of the nodes of a model. */
static Buf function(const char *name, const char *in, const char *out, const Model *body) {
    Buf f = {0};
    field_str(&f, 1, name);
    field_str(&f, 4, in);
    field_str(&f, 5, out);
    put(&f, NULL, 0);
    for (size_t at = 0; at < body->graph.n;) { /* node is field 1 of a graph, 7 of a function */
        const uint8_t *p = body->graph.at + at + 1;
        size_t n = 0;
        int shift = 0;
        do n |= (size_t)(*p & 0x7F) << shift, shift += 7;
        while (*p++ & 0x80);
        if (body->graph.at[at] == (1 << 3 | 2)) field_bytes(&f, 7, p, n);
        at = (size_t)(p - body->graph.at) + n;
    }
    field_str(&f, 10, "my");
    return f;
}

static void call(Model *m, const char *op, const char *name, const char *in, const char *out,
                 const Buf *attr) {
    Buf with = {0};
    if (attr) put(&with, attr->at, attr->n);
    field_str(&with, 7, "my");
    model_node(m, op, name, in, out, &with);
}

static Buf with_functions(const Model *m, const Buf *f, int n) {
    Buf b = model_bytes(m);
    for (int k = 0; k < n; k++) field_buf(&b, 25, &f[k]);
    return b;
}

/* Leaky(v; slope): its node takes alpha from the call, or has a default of 0.5. */
static Buf leaky(bool dflt) {
    Model body = model_new(15);
    Buf attr = {0}, a = {0}, d = {0};
    field_str(&a, 1, "alpha");
    field_str(&a, 21, "slope");
    field_int(&a, 20, 1);
    field_buf(&attr, 5, &a);
    model_node(&body, "LeakyRelu", "r", "v", "w", &attr);
    Buf f = function("Leaky", "v", "w", &body);
    attr_put_real(&d, "slope", 0.5f);
    const uint8_t *p = d.at; /* field 5 of a node: its bytes are field 11 of a function */
    if (dflt) field_bytes(&f, 11, p + 2, d.n - 2);
    return f;
}

static void test_functions(void) {
    Model m = start(), twice = model_new(15);
    Buf slope = {0};
    attr_put_real(&slope, "slope", 0.25f);
    call(&twice, "Leaky", "one", "a", "b", &slope);
    call(&twice, "Leaky", "two", "b", "c", NULL);
    Buf f[] = {leaky(true), function("Twice", "a", "c", &twice)};
    call(&m, "Twice", "t", "x", "y", NULL);
    Imported i = import_buf(with_functions(&m, f, 2));
    CHECK_STR(nodes_text(&i), "LeakyRelu(x) alpha=0.25 -> t/b[2,4]\n"
                              "LeakyRelu(t/b) alpha=0.5 -> y[2,4]\n");
    if (!i.g) fprintf(stderr, "%s", i.d.log.at);
    imported_free(&i);
    m = start(); /* two calls of one name keep their tensors apart; without a default: 0.01 */
    f[0] = leaky(false);
    call(&twice, "Leaky", "two", "b", "c", NULL);
    call(&m, "Leaky", "same", "x", "p", NULL);
    call(&m, "Leaky", "same", "p", "y", &slope);
    i = import_buf(with_functions(&m, f, 1));
    CHECK_STR(nodes_text(&i), "LeakyRelu(x) alpha=0.01 -> p[2,4]\n"
                              "LeakyRelu(p) alpha=0.25 -> y[2,4]\n");
    imported_free(&i);
    m = start(); /* calls itself */
    Model self = model_new(15);
    call(&self, "Self", "s", "a", "b", NULL);
    f[0] = function("Self", "a", "b", &self);
    call(&m, "Self", "s", "x", "y", NULL);
    i = import_buf(with_functions(&m, f, 1));
    CHECK(!i.g && says(&i, "functions call each other more than 16 deep"));
    imported_free(&i);
}

int main(void) {
    test_if();
    test_loop();
    test_scan();
    test_functions();
    return test_end();
}
