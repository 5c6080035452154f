/* gen.h - what the files of code generation share. */
#ifndef DTRC_GEN_H
#define DTRC_GEN_H

#include "codegen.h"

/* A file-scope object of a generated program, such as DtrtConv_3. */
typedef struct {
    const char *type, *init;
    uint32_t number;
    uint32_t symbols; /* that its numbers depend on: bit i for symbol i */
    uint64_t limit;   /* DtrtConv.limit at the compiled sizes */
} GenObject;

/* Kernels compiled for one architecture. */
typedef struct {
    int arch;
    bool is_text;
    const void *bytes;
    uint64_t n, file_offset;
} GenImage;

/* Text with expressions in the program's symbols. */
typedef struct {
    const char *text;
    uint32_t symbols;
} GenText;

/* A loop function (parameters, body) and the arguments of a node's call; for a device, the body
 * launches kernels. In both texts KERNEL_NUMBER stands for the number of the loop, and behind the
 * parameters of a kernel, and the arguments of a launch, SYMBOL_ for those of the program's symbols
 * that the kernel uses. */
typedef struct {
    const char *params, *text, *args, *kernels;
} GenLoop;
#define KERNEL_NUMBER '@'
#define SYMBOL_PARAMS '\1'
#define SYMBOL_ARGS '\2'

typedef struct {
    Arena *a;
    Diag *d;
    const Graph *fwd, *g;
    const Cost *c;
    const Plan *p;
    const CgOptions *o;
    /* The step at each point that the code is written for and compared at: g itself where the
     * program has one size. */
    const Sizes *sizes;
    const char *one_size; /* why sizes is NULL */
    uint32_t npoint;
    const Graph *const *at;
    bool wide; /* device: all loops for 2^31 elements and more, too */
    /* kernels.c */
    VEC(GenText) loop;         /* generic loops: text after the name, parameters first */
    VEC(GenText) loop_kernels; /* of each loop, for a device */
    VEC(GenText) body;         /* node functions k0, k1, ... */
    VEC(GenObject) object;
    Map *loop_by_text, *body_by_text, *object_by_text;
    uint32_t *node_body; /* per node; NO_ID: no code (views) */
    GenText *node_needs; /* per node: its workspace, as an expression; text NULL: as planned */
    uint32_t *conv_of;   /* per value: DtrtConv object that knows its packed layout, or NO_ID */
    /* tables.c */
    uint32_t ntensor;
    ValueId *tensor;         /* persistent values in table order */
    uint32_t *tensor_of;     /* per value, or NO_ID */
    uint64_t *tensor_offset; /* per tensor, in the block */
    uint64_t *file_offset;   /* per tensor, in the payload */
    uint32_t *ref_tensor;    /* per value of fwd: its persistent tensor, or NO_ID */
    uint64_t *ref_offset;    /* per value of fwd: payload offset of a constant that is no tensor */
    uint64_t payload_bytes;
    uint64_t *piece_offset; /* per piece of the model's file: payload offset of bytes */
    /* cuda_kernels.c */
    const char *kernels; /* the text of all kernels */
    VEC(GenImage) image;
    uint32_t nnode, noperand, nrun, naddr, nstep;
    NodeId *graph_node; /* per node of the program */
} Gen;

/* ---- expr.c ---- */
/* Rewrites an expression of the operator table: operands a.. become arg[0].., p0.. the texts in p,
 * s0.. sum[0].., n rows, index index; functions that dtrt_vecmath.h has take its names. */
typedef struct {
    const char *const *arg;
    uint32_t narg;
    const char *p[3];
    const char *const *sum;
    const char *rows, *index, *key;
} ExprNames;
void cg_expr(Text *t, const char *expr, const ExprNames *n);
/* A number as a C constant: "0.5f" (is_float), "0.5", "INFINITY". */
const char *cg_number(Arena *a, double v, bool is_float);
const char *cg_ctype(DType d); /* float, int64_t, int32_t, uint8_t */

/* ---- loops.c ---- */
/* The loop of node n (op_is_loop). by_columns: how a reduction goes, where there is a choice. */
void cg_loop(Arena *a, const Graph *g, const Node *n, bool by_columns, GenLoop *out);

/* ---- cuda_loops.c ---- */
/* wide: also kernels for 2^31 elements and more. */
void cg_cuda_loop(Arena *a, const Graph *g, const Node *n, bool by_columns, bool wide,
                  GenLoop *out);

/* ---- cuda_kernels.c ---- */
/* Fills kernels and image; after cg_kernels. False after a message. */
bool cg_cuda_images(Gen *g);
void cg_print_images(Gen *g, Text *t);
/* nvrtc.c: fills image from kernels. */
bool cg_nvrtc(Gen *g);

/* ---- several.c: one text for several sizes ---- */
/* One text from those at each point; false with the reason in g->one_size. */
bool cg_merge(Gen *g, const char *const *text, GenText *out);
/* "    const int64_t N = FROM[0];" for each symbol. */
void cg_declare_symbols(const Gen *g, uint32_t symbols, const char *from, Text *t);
void cg_print_sizes(Gen *g, Text *t); /* resize, needs, largest, symbols */
void cg_print_size_fields(const Gen *g, Text *t);

/* ---- kernels.c ---- */
bool cg_kernels(Gen *g); /* fills the tables above */
/* A loop's text or its kernels, with what stands for numbers and symbols filled in. */
void cg_print_loop(const Gen *g, const char *text, uint32_t number, Text *t);
void cg_print_kernels(Gen *g, Text *t); /* objects, loops, node functions, init, pack, unpack */

/* ---- tables.c ---- */
const char *cg_type_name(DType d);           /* DTRT_F32, ... */
void cg_print_dims(Text *t, const Shape *s); /* {8, 64} */
void cg_tensors(Gen *g);                     /* persistent tensors: order, offsets */
void cg_print_tensors(Gen *g, Text *t);
void cg_print_schedule(Gen *g, Text *t); /* storages, nodes, runs, addresses, steps */
int cg_logits_storage(const Gen *g);     /* -1: nothing computes the model's output */

/* ---- reference.c ---- */
void cg_print_reference(Gen *g, Text *t);

/* ---- weights.c ---- */
void cg_place_weights(Gen *g); /* file offsets; before printing tables */
bool cg_write_weights(Gen *g, const char *path);

/* ---- export.c: the model's file with holes ---- */
void cg_print_pieces(const Gen *g, Text *t);

/* ---- manifest.c ---- */
void cg_print_manifest(Gen *g, Text *t);

/* ---- build.c ---- */
void cg_print_makefile(Gen *g, Text *t);

#endif
