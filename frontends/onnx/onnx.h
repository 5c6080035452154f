/* onnx.h - ONNX file -> forward Graph. The only door to protobuf-c. */
#ifndef DTRC_ONNX_H
#define DTRC_ONNX_H

#include "ops.h"

typedef struct {
    const char *name; /* symbolic dimension */
    int64_t size;
} DimBinding;

typedef struct {
    int64_t batch;         /* --batch: binds the symbol of axis 0 of the inputs; 0: not given */
    const DimBinding *dim; /* --dim NAME=N */
    uint32_t ndim;
    bool dropout;           /* --dropout on (default): Dropout nodes in training mode stay */
    bool need_weights;      /* false: missing external data is no error (inspect, plan) */
    bool init_given;        /* --init kaiming/xavier: missing weights are filled later */
    bool inference_default; /* unbound symbolic dimensions become 1 (inspect) instead of an error */
} OnnxOptions;

typedef struct {
    const char *op, *domain, *node, *why;
    uint32_t at; /* position of the node in the file */
} OnnxUnsupported;

typedef struct {
    int64_t ir_version, opset;
    const char *producer;
    uint64_t file_bytes;
    uint32_t nsymbol;
    const char **symbol;  /* dimensions to bind */
    int64_t *symbol_size; /* what they were bound to; 0: nothing */
    bool *symbol_batch;   /* stands on axis 0 of an input */
    uint32_t nop;
    const char **op_name; /* op histogram of the file, sorted by name */
    uint32_t *op_count;
    uint32_t nunsupported;
    OnnxUnsupported *unsupported;
    uint32_t nnote;
    const char **note; /* repairs and warnings: "untied 12", "looks like an inference export" */
    uint64_t missing_bytes; /* external data that is not there */
    const char *sha256;     /* of the file */
    const void *bytes;      /* of the file: mapped, or in the arena */
} OnnxInfo;

/* Loads and imports. NULL after reporting (all unsupported nodes at once). info may be NULL; it is
 * filled as far as the import came, also on failure. The file stays mapped for the life of the
 * arena. Values of the result: model inputs ROLE_INPUT (f32, i64, i32, bool), float initializers
 * ROLE_PARAM, ROLE_FROZEN or ROLE_BUFFER by slot, everything else folded or ROLE_CONST. */
Graph *onnx_import(Arena *a, Diag *d, const char *path, const OnnxOptions *o, OnnxInfo *info);

/* ---- export.c: the model's file with other weights, in inference form ---- */
/* The file is written piece by piece: bytes as they are, or the elements of a value. */
typedef enum { ONNX_AS_IT_IS, ONNX_AS_F16, ONNX_AS_BF16 } OnnxElements;
typedef struct {
    const void *bytes;
    uint64_t n;    /* bytes in the file */
    ValueId value; /* or NO_ID: bytes */
    OnnxElements as;
} OnnxPiece;
typedef struct {
    uint32_t n;
    const OnnxPiece *piece;
    const char *none; /* why there are no pieces */
} OnnxExport;
/* For the weights and statistics of g, which comes from the file that info describes. The pieces
 * live as long as a and the file's mapping. */
void onnx_export(Arena *a, const char *path, const OnnxInfo *info, const Graph *g, OnnxExport *out);

/* ---- table.c: the support table, sorted by operator name ---- */
/* Operator sets that are understood; above 17 where nothing that is read changed. */
#define OPSET_MIN 1
#define OPSET_MAX 28
typedef struct {
    const char *op;
    bool run;      /* may depend on data; else only where its inputs are constants */
    bool gradient; /* something upstream of it can be trained */
} OnnxSupport;
uint32_t onnx_support(const OnnxSupport **out, Arena *a);

#endif
