/* model.h - writes ONNX models for the tests, straight in the wire format, so that broken ones can
 * be written too. Buffers live as long as the process. */
#ifndef TEST_ONNX_MODEL_H
#define TEST_ONNX_MODEL_H

#include "import.h"
#include "test.h"

typedef struct {
    uint8_t *at;
    size_t n, cap;
} Buf;

/* ---- fields ---- */
void put(Buf *b, const void *p, size_t n);
void put_varint(Buf *b, uint64_t v);
void field_int(Buf *b, uint32_t field, int64_t v);
void field_bytes(Buf *b, uint32_t field, const void *p, size_t n);
void field_str(Buf *b, uint32_t field, const char *s);
void field_buf(Buf *b, uint32_t field, const Buf *child);

/* ---- attributes of a node, collected in a Buf ---- */
void attr_put_int(Buf *b, const char *name, int64_t v);
void attr_put_real(Buf *b, const char *name, float v);
void attr_put_text(Buf *b, const char *name, const char *v);
void attr_put_ints(Buf *b, const char *name, const char *list); /* "1,2,3" */
void attr_put_tensor(Buf *b, const char *name, const Buf *tensor);

/* ---- tensors: raw_data ---- */
enum { F32 = 1, I64 = 7, BOOLS = 9 };
Buf tensor_raw(const char *name, int elem, const char *dims, const void *data, size_t bytes);
Buf tensor_f32(const char *name, const char *dims, const float *v);
/* Values listed as text; dims "" is a scalar. */
Buf tensor_i64(const char *name, const char *dims, const char *values);
Buf tensor_zeros(const char *name, const char *dims); /* f32, at most 256 */

/* ---- models ---- */
typedef struct {
    Buf graph;
    int64_t ir, opset;
} Model;
Model model_new(int64_t opset);
/* dims: "2,N,?": sizes, symbols, or an axis without a name */
void model_input(Model *m, const char *name, int elem, const char *dims);
void model_output(Model *m, const char *name);
void model_init(Model *m, Buf tensor);
/* in, out: names separated by commas, an empty one is absent. attr may be NULL. */
void model_node(Model *m, const char *op, const char *name, const char *in, const char *out,
                const Buf *attr);
/* A Constant node with int64 values; dims "" is a scalar. */
void model_const(Model *m, const char *out, const char *dims, const char *values);
Buf model_bytes(const Model *m);

/* ---- importing ---- */
typedef struct {
    Arena *a;
    Diag d;
    Graph *g;
    OnnxInfo info;
} Imported;
extern OnnxOptions test_options; /* batch 2 */
Imported import_buf(Buf bytes);
Imported import_model(const Model *m);
void imported_free(Imported *i);
/* The nodes of the graph as text, one a line: "Op(inputs) {attributes} -> names". */
const char *nodes_text(Imported *i);
bool says(const Imported *i, const char *part); /* diagnostics hold it */
bool notes(const Imported *i, const char *part);
ValueId value_named(const Graph *g, const char *name);

#endif
