/* node_model.h - a model of one node and the comparison of what it becomes, for tests of run-time
 * nodes. */
#ifndef TEST_ONNX_NODE_MODEL_H
#define TEST_ONNX_NODE_MODEL_H

#include "model.h"

#include <string.h>

static Model m;
static Buf attr;

static inline void begin_with(int64_t opset, const char *dims) {
    m = model_new(opset);
    model_input(&m, "x", F32, dims);
    model_output(&m, "y");
    attr.n = 0;
}

static inline void begin(int64_t opset) {
    begin_with(opset, "N,3,8");
}

static inline void weight(const char *name, const char *dims) {
    model_init(&m, tensor_zeros(name, dims));
}

/* Adds the node and compares: nodes for a model that imports, messages for one that does not. */
static inline void run(const char *op, const char *in, const char *out, const char *want) {
    model_node(&m, op, "n", in, out, attr.n ? &attr : NULL);
    Imported i = import_model(&m);
    if (i.g)
        CHECK_STR(nodes_text(&i), want);
    else
        CHECK(says(&i, want));
    imported_free(&i);
}

#endif
