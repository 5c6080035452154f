/* roles_test.c - what initializers are taken for, and how merged ones come apart. */
#include "model.h"

#include <string.h>

static Model start(void) {
    Model m = model_new(13);
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    return m;
}

static void expect_role(const Imported *i, const char *name, Role role) {
    ValueId v = i->g ? value_named(i->g, name) : NO_ID;
    if (v == NO_ID || i->g->value[v].role != role)
        fprintf(stderr, "role of %s: %s\n", name,
                v == NO_ID ? "-" : role_name(i->g->value[v].role));
    CHECK(v != NO_ID && i->g->value[v].role == role);
}

/* No gradient can flow through Equal: the float mask is a constant, and the comparison is folded.
 */
static void test_compared_mask(void) {
    Model m = start();
    model_init(&m, tensor_f32("table", "4", (float[]){1, 0, 1, 0}));
    model_init(&m, tensor_f32("w", "4", (float[]){1, 2, 3, 4}));
    model_init(&m, tensor_f32("zero", "", (float[]){0}));
    model_node(&m, "Equal", "eq", "table,zero", "e", NULL);
    model_node(&m, "Mul", "mul", "x,w", "p", NULL);
    model_node(&m, "Where", "where", "e,x,p", "y", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Mul(x,w) -> p[2,4]\nWhere(e,x,p) -> y[2,4]\n");
    expect_role(&i, "table", ROLE_CONST);
    expect_role(&i, "zero", ROLE_CONST);
    expect_role(&i, "w", ROLE_PARAM);
    if (i.g) CHECK(!memcmp(i.g->value[value_named(i.g, "e")].data->bytes, "\0\1\0\1", 4));
    imported_free(&i);
}

/* By name: a mask full of zeros and minus infinity; not so a weight that is only called mask.
 * Scalars: those with an exporter's name; exponents are trained like others. By value: what holds
 * an infinity. */
static void test_named(void) {
    Model m = start();
    model_init(&m, tensor_f32("a.mask", "4", (float[]){0, 1, -INFINITY, -1e9f}));
    model_init(&m, tensor_f32("b.mask", "4", (float[]){0, 1, 0.5f, 0}));
    model_init(&m, tensor_f32("far", "4", (float[]){0, -INFINITY, 3, 0}));
    model_init(&m, tensor_f32("onnx::Mul_7", "", (float[]){2}));
    model_init(&m, tensor_f32("logit_scale", "", (float[]){2}));
    model_init(&m, tensor_f32("pool.p", "1", (float[]){3}));
    model_init(&m, tensor_f32("onnx::Pow_9", "1", (float[]){2}));
    model_init(&m, tensor_f32("spare", "4", (float[]){2, 2, 2, 2}));
    model_node(&m, "Add", "1", "x,a.mask", "p", NULL);
    model_node(&m, "Add", "2", "p,b.mask", "q", NULL);
    model_node(&m, "Max", "max", "q,far", "above", NULL);
    model_node(&m, "Mul", "3", "above,onnx::Mul_7", "r", NULL);
    model_node(&m, "Mul", "4", "r,logit_scale", "s", NULL);
    model_node(&m, "Pow", "5", "s,pool.p", "t", NULL);
    model_node(&m, "Pow", "6", "t,onnx::Pow_9", "y", NULL);
    Imported i = import_model(&m);
    expect_role(&i, "a.mask", ROLE_CONST);
    expect_role(&i, "b.mask", ROLE_PARAM);
    expect_role(&i, "far", ROLE_CONST);
    expect_role(&i, "onnx::Mul_7", ROLE_CONST);
    expect_role(&i, "logit_scale", ROLE_PARAM);
    expect_role(&i, "pool.p", ROLE_PARAM);
    expect_role(&i, "onnx::Pow_9", ROLE_CONST);
    expect_role(&i, "spare", ROLE_FROZEN);
    CHECK(notes(&i, "'a.mask' is taken for a constant by its name"));
    CHECK(notes(&i, "initializer 'spare' is not used"));
    imported_free(&i);
}

static void norm(Model *m, const char *name, const char *in, const char *out) {
    char all[64];
    snprintf(all, sizeof all, "%s,mean,var,s1,s2", out);
    model_node(m, "BatchNormalization", name, in, all, NULL);
}

/* Two training norms that share running statistics get their own; scale and bias stay shared. */
static void test_statistics(void) {
    Model m = start();
    for (int k = 0; k < 4; k++)
        model_init(&m, tensor_zeros((const char *[]){"g", "b", "m", "v"}[k], "4"));
    norm(&m, "bn1", "x,g,b,m,v", "p");
    model_node(&m, "BatchNormalization", "bn2", "p,g,b,m,v", "y,m2,v2,s3,s4", NULL);
    Imported i = import_model(&m);
    expect_role(&i, "g", ROLE_PARAM);
    expect_role(&i, "m", ROLE_BUFFER);
    expect_role(&i, "bn1.var", ROLE_BUFFER);
    CHECK(notes(&i, "untied 2"));
    CHECK_STR(nodes_text(&i),
              "BatchNorm(x,g,b,bn1.mean,bn1.var) eps=1e-05 momentum=0.9 training=1 -> p[2,4]\n"
              "BatchNorm(p,g,b,m,v) eps=1e-05 momentum=0.9 training=1 -> y[2,4]\n");
    imported_free(&i);
}

/* An inference export gives one initializer to three places, two of them through Identity. */
static void test_merged(void) {
    Model m = start();
    model_init(&m, tensor_zeros("first.bias", "4"));
    model_node(&m, "Identity", "i1", "first.bias", "second.bias", NULL);
    model_node(&m, "Identity", "i2", "first.bias", "third.bias", NULL);
    model_node(&m, "Add", "1", "x,first.bias", "p", NULL);
    model_node(&m, "Add", "2", "p,second.bias", "q", NULL);
    model_node(&m, "Add", "3", "q,third.bias", "y", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Add(x,first.bias) -> p[2,4]\n"
                              "Add(p,second.bias) -> q[2,4]\n"
                              "Add(q,third.bias) -> y[2,4]\n");
    expect_role(&i, "second.bias", ROLE_PARAM);
    expect_role(&i, "third.bias", ROLE_PARAM);
    CHECK(notes(&i, "untied 2"));
    imported_free(&i);
}

/* The only reader of an initializer may be an Identity: then there is nothing to untie. */
static void test_single_identity(void) {
    Model m = start();
    model_init(&m, tensor_zeros("bias", "4"));
    model_node(&m, "Identity", "i1", "bias", "alias", NULL);
    model_node(&m, "Add", "1", "x,alias", "y", NULL);
    Imported i = import_model(&m);
    CHECK_STR(nodes_text(&i), "Reshape(bias) shape=4 -> alias[4]\nAdd(x,alias) -> y[2,4]\n");
    CHECK_EQ(i.info.nnote, 0);
    imported_free(&i);
}

static void test_inference_export(void) {
    Model m = model_new(13);
    model_input(&m, "x", F32, "N,1,4,4");
    model_output(&m, "y");
    model_init(&m, tensor_zeros("onnx::Conv_12", "2,1,3,3"));
    model_node(&m, "Conv", "c", "x,onnx::Conv_12", "y", NULL);
    Imported i = import_model(&m);
    CHECK(notes(&i, "looks like an inference export: 1 Conv, 0 BatchNormalization"));
    imported_free(&i);
}

/* Doubles are weights too; they are used in single precision, and that is said. */
static void test_double(void) {
    Model m = start();
    model_init(&m, tensor_raw("w", 11, "4", (double[]){0.1, 2, 3, 4}, 32));
    model_node(&m, "Mul", "1", "x,w", "y", NULL);
    Imported i = import_model(&m);
    expect_role(&i, "w", ROLE_PARAM);
    CHECK(notes(&i, "single precision"));
    if (i.g) {
        const Value *w = &i.g->value[value_named(i.g, "w")];
        CHECK_EQ(w->dtype, DT_F32);
        CHECK(!memcmp(w->data->bytes, &(float){0.1f}, 4));
    }
    imported_free(&i);
}

int main(void) {
    test_compared_mask();
    test_named();
    test_statistics();
    test_merged();
    test_single_identity();
    test_inference_export();
    test_double();
    return test_end();
}
