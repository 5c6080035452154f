/* import.h - private to the importer: its state, and the prototypes of its files.
 *
 * Every tensor name of the file is a Slot. A slot is known (its value is computed at compile time),
 * has a run-time value in the graph, both (a constant that a run-time node reads), or is lost (an
 * unsupported node would have made it). Nodes are visited in topological order; one whose inputs
 * are all known is evaluated (eval*.c), the others become IR nodes (make*.c). */
#ifndef DTRC_ONNX_IMPORT_H
#define DTRC_ONNX_IMPORT_H

#include "onnx.h"
#include "onnx.pb-c.h"

typedef Onnx__ModelProto ModelProto;
typedef Onnx__GraphProto GraphProto;
typedef Onnx__NodeProto NodeProto;
typedef Onnx__AttributeProto AttributeProto;
typedef Onnx__TensorProto TensorProto;
typedef Onnx__ValueInfoProto ValueInfoProto;

typedef struct {
    const uint8_t *at;
    uint64_t n;
} Span;

/* ---- wire.c ------------------------------------------------------------------------------- */
typedef struct {
    Span message; /* the ModelProto without the fields that nobody reads; raw_data of tensor t holds
                     a 4-byte little-endian index into payload */
    Span *payload; /* raw_data as it lies in the file */
    uint32_t npayload;
    uint32_t nsparse; /* sparse tensors that were left out */
} Wire;
enum { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 5 };
typedef struct {
    uint32_t number, wire;
    uint64_t varint;
    const uint8_t *tag, *body, *end; /* the whole field, and the contents */
} WireField;
/* The field at *at, which moves behind it; or what is wrong with it. */
const char *wire_field(const uint8_t **at, const uint8_t *end, WireField *f);
/* Checks the wire format of a serialized ModelProto within limits and writes the short message. */
bool wire_shrink(Arena *a, Diag *d, const char *file, Span model, Wire *out);

/* No tensor is larger; sums of a few stay far from overflow. */
#define MAX_TENSOR_BYTES ((uint64_t)1 << 40)

/* ---- tensor.c ----------------------------------------------------------------------------- */
/* A tensor known at compile time. f16 and bf16 are widened to f32; 8- and 16-bit integers to i32,
 * unsigned 32- and 64-bit ones to i64. */
typedef struct {
    DType dtype;
    Shape shape;
    uint64_t count;
    const void *data; /* row-major, possibly unaligned; NULL when missing or empty */
    bool missing;     /* the values are in an external file that is not there */
    bool kept;        /* data lives as long as the result of the import */
    void *heap;       /* data, when eval allocated it outside the arenas */
} Tensor;

/* Where the bytes of tensors may lie. */
typedef struct {
    const char *file;    /* model path, for messages */
    const char *folder;  /* of the model; NULL: bytes in memory, no external data */
    bool need;           /* missing external data is an error */
    const Span *payload; /* Wire.payload */
    uint32_t npayload;
    Map *maps;        /* external files by location, index into mapped */
    VEC(Span) mapped; /* at == NULL: not there */
    uint64_t missing_bytes;
} Sources;

/* a: the arena of the result, where widened values go. */
bool tensor_read(Arena *a, Diag *d, Sources *s, Place p, const TensorProto *t, Tensor *out);
/* The dtype that stands for an ONNX element type; false for strings, complex numbers, unknown ones.
 */
bool elem_dtype(int32_t elem, DType *out);
const char *elem_name(int32_t elem);
/* The bytes of a tensor with external data, as they lie there. *missing: the file is not there. */
bool tensor_external(Arena *a, Diag *d, Sources *s, const TensorProto *t, Span *out, bool *missing);
/* ---- external.c --------------------------------------------------------------------------- */
/* The bytes of a tensor with external data, mapped. *missing: the file is not there. */
bool external_read(Arena *a, Diag *d, Sources *s, Place p, const TensorProto *t, uint64_t bytes,
                   Span *out, bool *missing);
void external_unmap(Sources *s);

/* ---- the import ---------------------------------------------------------------------------- */
typedef struct Ctx Ctx;
typedef enum {
    FAIL, /* an error was reported */
    OK,
    SKIP /* the node was recorded as unsupported; the import goes on to find the others */
} Res;
#define MUST(call)                                                                                 \
    do {                                                                                           \
        Res res_ = (call);                                                                         \
        if (res_ != OK) return res_;                                                               \
    } while (0)

/* What the importer knows of an ONNX operator (table.c). */
typedef struct {
    const char *name;
    uint8_t min_in, max_in, max_out; /* max_in 255: any number */
    uint32_t diff; /* bit i: a gradient flows into input i; bit 31 stands for 31 and above */
    Res (*eval)(Ctx *c,
                Tensor *out); /* all inputs known; out[k] for output k. NULL: run time only */
    Res (*make)(Ctx *c);      /* appends IR nodes. NULL: compile time only */
    OpCode code;              /* of the IR operator for make_unary and make_binary */
    uint8_t kind;             /* of the arithmetic for eval_unary, eval_binary, eval_reduce */
} OpRow;
const OpRow *op_row(const char *op_type);
/* Why an operator without a row, or of another domain, is not supported. */
const char *op_why_not(const char *op_type);
const char *domain_why_not(const char *domain);

typedef struct {
    const char *name;
    uint32_t node;  /* node that makes it, or NO_ID */
    uint32_t init;  /* initializer, or NO_ID */
    uint32_t input; /* model input, or NO_ID */
    uint32_t uses;  /* reads by live nodes that are still to come, plus one for a model output */
    uint32_t nread; /* reads by live nodes in all */
    ValueId value;  /* run-time value or NO_ID */
    Tensor *known;  /* value at compile time or NULL */
    bool is_output, lost;
} Slot;

typedef struct {
    const NodeProto *p;
    const OpRow *row; /* NULL: unsupported */
    const char *name; /* "#12" when the file gives none */
    uint32_t nin, nout, ncap;
    uint32_t *in, *out; /* slots; NO_ID: empty name. After the inputs stand ncap slots that its
                           sub-graphs read */
    bool live;          /* a model output depends on it */
    bool refused;       /* recorded as unsupported by its name alone */
} FileNode;

/* An initializer, or a private copy of one that the exporter had merged with others. */
typedef struct {
    const TensorProto *proto;
    uint32_t slot;
    Tensor tensor;
    Role role;
} Init;

typedef struct {
    Arena *a;   /* of the result */
    Arena *tmp; /* of the import */
    Diag *d;
    const char *file;
    const OnnxOptions *opt;
    OnnxInfo *info;
    const ModelProto *model;
    const GraphProto *graph;
    int64_t opset;
    Sources src;
    Graph *g;
    Map *names;
    VEC(Slot) slot;
    uint32_t nnode; /* functions inlined */
    FileNode *node;
    Map *calls;        /* names of calls of functions */
    uint32_t expanded; /* nodes after inlining, sub-graphs counted for each of their runs */
    uint32_t *order;   /* nodes in topological order */
    VEC(Init) init;
    uint64_t live_bytes; /* of heap tensors */
    uint64_t steps;      /* of loops and recurrent layers, unrolled */
    uint64_t work;       /* elements that evaluation has touched */
    VEC(Tensor *) heap;
    uint32_t at; /* position in the file of the node that is looked at */
    VEC(OnnxUnsupported) unsupported;
    VEC(const char *) notes;
    bool narrowed; /* the note on double precision was given */
} Import;

/* ---- load.c -------------------------------------------------------------------------------- */
/* Shrinks and unpacks a serialized model into x->model and checks versions; fills x->info. */
bool load_model(Import *x, Span bytes);
typedef struct {
    Span bytes;
    bool mapped;
} LoadedFile;
/* The default of a function's attribute, or NULL. */
const AttributeProto *load_default(Import *x, const Onnx__FunctionProto *f, const char *name);
bool load_file(Arena *a, Diag *d, const char *path, LoadedFile *out);
void load_drop(const LoadedFile *f);
/* SHA-256 in hex. */
const char *load_digest(Arena *a, Span bytes);
/* As onnx_import, from memory; folder NULL: external data counts as missing. */
/* Of a path; "." where it has none. */
const char *import_folder(Arena *a, const char *path);
Graph *import_bytes(Arena *a, Diag *d, const char *file, const char *folder, Span bytes,
                    const OnnxOptions *o, OnnxInfo *info);

/* ---- import.c: evaluates or makes one node whose inputs are there. False: the import ends. ----
 */
bool convert_node(Import *x, FileNode *f);

/* ---- names.c -------------------------------------------------------------------------------- */
/* Fills slots and nodes: every name defined once, every input defined; order is topological with
 * ties in file order. Marks what the outputs depend on. */
bool names_resolve(Import *x);
uint32_t slot_of(Import *x, const char *name); /* NO_ID when there is none */
uint32_t slot_new(Import *x, const char *name);
void import_note(Import *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- dims.c ---------------------------------------------------------------------------------- */
/* Creates the model inputs as values, symbolic dimensions bound. */
bool dims_bind(Import *x);

/* ---- repair.c ---- */
/* Undoes the merging of equal weights; before tensors are read. */
void repair_merged(Import *x);
/* Notes on what an export has lost; afterwards. */
void repair_notes(Import *x);

/* ---- roles.c ---- */
/* Reads the initializers, undoes merging by value, decides roles, creates their values. */
bool roles_assign(Import *x);

/* ---- node.c: what eval and make functions see of a node ---- */
struct Ctx {
    Import *x;
    const FileNode *n;
};
Place ctx_place(const Ctx *c);
Res ctx_fail(const Ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Records the node as unsupported. */
Res ctx_skip(const Ctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool has_in(const Ctx *c, uint32_t i);
bool has_out(const Ctx *c, uint32_t k);           /* somebody reads output k */
const Tensor *known_in(const Ctx *c, uint32_t i); /* NULL: absent or not known */
const Shape *shape_in(const Ctx *c, uint32_t i);  /* of a known or run-time input that is there */
DType dtype_in(const Ctx *c, uint32_t i);
ValueId value_in(const Ctx *c, uint32_t i); /* a constant gets a value; NO_ID when absent */

const AttributeProto *attr_of(const Ctx *c, const char *name);
/* Attributes with defaults; another type than expected is an error. */
Res attr_int(const Ctx *c, const char *name, int64_t dflt, int64_t *out);
Res attr_real(const Ctx *c, const char *name, double dflt, double *out);
Res attr_text(const Ctx *c, const char *name, const char *dflt, const char **out);
/* A list of integers from an attribute, or else from a known input (slot NO_ID: never). */
typedef struct {
    bool given;
    uint32_t n;
    const int64_t *at;
} Ints;
Res ints_of(const Ctx *c, const char *attr, uint32_t slot, Ints *out);
/* Like attr_int and attr_real, but the value may be a known one-element input too. */
Res int_of(const Ctx *c, const char *attr, uint32_t slot, int64_t dflt, int64_t *out);
Res real_of(const Ctx *c, const char *attr, uint32_t slot, double dflt, double *out);
/* axis in -rank..rank-1 made non-negative. */
Res axis_of(const Ctx *c, int64_t axis, uint32_t rank, uint32_t *out);
/* Sorted distinct axes; none given: all of them. */
Res axes_of(const Ctx *c, const Ints *given, uint32_t rank, uint32_t *n, uint32_t *axes);

/* IR nodes. emit: NO_ID after reporting. bind: output k of the node is value v, which emit made. */
ValueId emit(const Ctx *c, OpCode op, const char *suffix, uint32_t nin, const ValueId *in,
             uint32_t nattr, const Attr *attr);
ValueId emit_view(const Ctx *c, const char *suffix, ValueId v, const Shape *s);
/* make_math.c: the same for common nodes; an operand NO_ID gives NO_ID, so that calls nest. */
ValueId emit_unary(const Ctx *c, OpCode op, const char *suffix, ValueId a);
ValueId emit_binary(const Ctx *c, OpCode op, const char *suffix, ValueId a, ValueId b);
ValueId emit_scaled(const Ctx *c, const char *suffix, ValueId v, double by);
ValueId emit_cast(const Ctx *c, const char *suffix, ValueId v, DType dt); /* v itself if it is */
/* make_reduce.c: 0, 1, .. n-1 as a constant along `axis` of `rank` axes. */
ValueId emit_positions(const Ctx *c, const char *suffix, int64_t n, uint32_t rank, uint32_t axis,
                       DType dt);
Res bind(const Ctx *c, uint32_t k, ValueId v);
/* The value of a known tensor. */
ValueId constant(Import *x, const char *name, const Tensor *t, Role role);

/* ---- what eval and make share: the type that a cast makes (make_math.c), shapes (make_move.c)
 * ----
 */
Res cast_target(const Ctx *c, DType *out);
Res shape_reshape(const Ctx *c, Shape *out);
Res shape_squeeze(const Ctx *c, Shape *out);
Res shape_unsqueeze(const Ctx *c, Shape *out);
Res shape_expand(const Ctx *c, Shape *out);
Res shape_flatten(const Ctx *c, Shape *out);
Res perm_of(const Ctx *c, uint32_t rank, int64_t *perm);
typedef struct {
    int64_t start[IR_MAX_RANK], step[IR_MAX_RANK], size[IR_MAX_RANK];
} SliceSpec;
Res slice_spec(const Ctx *c, SliceSpec *out);
bool is_whole_slice(const Shape *in, const SliceSpec *s); /* all of it, in order */
/* Sizes of the parts along the axis. */
Res split_spec(const Ctx *c, uint32_t *axis, int64_t *sizes);
Res gather_axis(const Ctx *c, uint32_t *axis, Shape *out);
Res concat_spec(const Ctx *c, uint32_t *axis, Shape *out);

/* ---- elements (element.h): inlined, for they are read by the million ---- */
#include "element.h"

/* ---- eval.c ---- */
/* Room for a result at compile time. Its data stays NULL when an input is missing or it is empty.
 */
Res tensor_new(const Ctx *c, DType dt, const Shape *s, Tensor *out);
/* Adds to the steps that were unrolled so far; an error past the limit. */
Res count_steps(const Ctx *c, uint64_t steps);
/* Adds to the elements computed so far; an error past the limit. tensor_new counts the result. */
Res count_work(const Ctx *c, uint64_t elements);
void tensor_release(Import *x, Tensor *t);
/* Evaluates a node whose inputs are known (or Shape, Size of anything) into its output slots. */
Res eval_node(Ctx *c);

Res eval_constant(Ctx *c, Tensor *out);
Res eval_constant_of_shape(Ctx *c, Tensor *out);
Res eval_shape(Ctx *c, Tensor *out);
Res eval_size(Ctx *c, Tensor *out);
Res eval_range(Ctx *c, Tensor *out);
/* eval_move.c */
Res eval_identity(Ctx *c, Tensor *out);
Res eval_reshape(Ctx *c, Tensor *out);
Res eval_squeeze(Ctx *c, Tensor *out);
Res eval_unsqueeze(Ctx *c, Tensor *out);
Res eval_flatten(Ctx *c, Tensor *out);
Res eval_transpose(Ctx *c, Tensor *out);
Res eval_slice(Ctx *c, Tensor *out);
Res eval_split(Ctx *c, Tensor *out);
Res eval_concat(Ctx *c, Tensor *out);
Res eval_expand(Ctx *c, Tensor *out);
Res eval_tile(Ctx *c, Tensor *out);
Res eval_gather(Ctx *c, Tensor *out);
Res eval_trilu(Ctx *c, Tensor *out);
/* eval_math.c */
Res eval_cast(Ctx *c, Tensor *out);
Res eval_unary(Ctx *c, Tensor *out);
Res eval_binary(Ctx *c, Tensor *out);
Res eval_variadic(Ctx *c, Tensor *out);
Res eval_where(Ctx *c, Tensor *out);
Res eval_is(Ctx *c, Tensor *out);
Res eval_bit_shift(Ctx *c, Tensor *out);
/* LEFT or RIGHT, and how many bits the operands have. */
Res shift_of(const Ctx *c, bool *left, int *bits);
Res eval_reduce(Ctx *c, Tensor *out);
/* eval_index.c */
Res eval_arg(Ctx *c, Tensor *out);
Res eval_cumsum(Ctx *c, Tensor *out);
/* eval_scatter.c */
Res eval_gather_elements(Ctx *c, Tensor *out);
Res eval_scatter_elements(Ctx *c, Tensor *out);
Res eval_gather_nd(Ctx *c, Tensor *out);
Res eval_scatter_nd(Ctx *c, Tensor *out);
Res eval_one_hot(Ctx *c, Tensor *out);
Res eval_eye_like(Ctx *c, Tensor *out);
Res eval_compress(Ctx *c, Tensor *out);
Res eval_non_zero(Ctx *c, Tensor *out);
Res eval_window(Ctx *c, Tensor *out);

/* Arithmetic of eval_math.c, by OpRow.kind. */
enum {
    K_NONE,
    K_NEG,
    K_ABS,
    K_EXP,
    K_LOG,
    K_SQRT,
    K_SIN,
    K_COS,
    K_FLOOR,
    K_CEIL,
    K_RECIPROCAL,
    K_TAN,
    K_ASIN,
    K_ACOS,
    K_ATAN,
    K_SINH,
    K_COSH,
    K_ASINH,
    K_ACOSH,
    K_ATANH,
    K_TANH,
    K_ERF,
    K_SIGMOID,
    K_RELU,
    K_ROUND,
    K_SIGN,
    K_NOT,
    K_ADD,
    K_SUB,
    K_MUL,
    K_DIV,
    K_POW,
    K_MOD,
    K_MIN,
    K_MAX,
    K_EQUAL,
    K_LESS,
    K_GREATER,
    K_LESS_EQUAL,
    K_GREATER_EQUAL,
    K_AND,
    K_OR,
    K_XOR,
    K_SUM,
    K_MEAN,
    K_PROD,
    K_RMAX,
    K_RMIN,
    K_L1,
    K_L2,
    K_SUM_SQUARE,
    K_LOG_SUM,
    K_LOG_SUM_EXP
};

/* ---- sliding windows (make_nn.c) ---- */
typedef struct {
    uint32_t nd;
    int64_t kernel[3], stride[3], dilation[3], pads[6];
} Window;
/* kernel: the weight's sizes, or NULL when kernel_shape must be there. */
Res read_window(const Ctx *c, const int64_t *kernel, Window *w);
Res auto_pad(const Ctx *c, const Shape *in, Window *w);

/* ---- places (make_index.c) ---- */
/* Attribute reduction: 0 none, 1 add, 2 mul, 3 max, 4 min. */
Res reduction_of(const Ctx *c, int64_t *out);
/* Axis of GatherElements and ScatterElements; indices that are known lie within it. */
Res elements_axis(const Ctx *c, uint32_t *axis);
/* Positions of the true elements of a known list; at most `limit` elements. */
Res places_of(const Ctx *c, const Tensor *cond, uint64_t limit, Tensor *out);

/* ---- make_*.c: run-time nodes ---- */
Res make_unary(Ctx *c);
Res make_alpha_beta(Ctx *c);
Res make_is_inf(Ctx *c);
Res make_div(Ctx *c);
Res make_mod(Ctx *c);
Res make_bit_shift(Ctx *c);
Res make_binary(Ctx *c);
Res make_variadic(Ctx *c);
Res make_pow(Ctx *c);
Res make_or_equal(Ctx *c);
Res make_clip(Ctx *c);
Res make_gelu(Ctx *c);
Res make_prelu(Ctx *c);
Res make_cast(Ctx *c);
Res make_where(Ctx *c);

Res make_reduce(Ctx *c);
Res make_global(Ctx *c);
Res make_cumsum(Ctx *c);
Res make_arg(Ctx *c);
Res make_hardmax(Ctx *c);

Res make_gather_elements(Ctx *c);
Res make_scatter_elements(Ctx *c);
Res make_gather_nd(Ctx *c);
Res make_scatter_nd(Ctx *c);
Res make_topk(Ctx *c);
Res make_one_hot(Ctx *c);
Res make_trilu(Ctx *c);
Res make_compress(Ctx *c);
Res make_tile(Ctx *c);
Res make_einsum(Ctx *c);

Res make_resize(Ctx *c);
Res make_depth_to_space(Ctx *c);
Res make_space_to_depth(Ctx *c);
Res make_lrn(Ctx *c);
Res make_lp_pool(Ctx *c);
Res make_max_unpool(Ctx *c);

Res make_identity(Ctx *c);
Res make_reshape(Ctx *c);
Res make_squeeze(Ctx *c);
Res make_unsqueeze(Ctx *c);
Res make_flatten(Ctx *c);
Res make_transpose(Ctx *c);
Res make_slice(Ctx *c);
Res make_split(Ctx *c);
Res make_concat(Ctx *c);
Res make_expand(Ctx *c);
Res make_gather(Ctx *c);
Res make_pad(Ctx *c);

Res make_conv(Ctx *c);
Res make_conv_transpose(Ctx *c);
Res make_gemm(Ctx *c);
Res make_matmul(Ctx *c);
Res make_pool(Ctx *c);
Res make_batch_norm(Ctx *c);
Res make_softmax(Ctx *c);
Res make_dropout(Ctx *c);
Res make_random(Ctx *c);
Res make_bernoulli(Ctx *c);

Res make_layer_norm(Ctx *c);
Res make_instance_norm(Ctx *c);
Res make_group_norm(Ctx *c);
Res make_lp_norm(Ctx *c);
Res make_mean_variance_norm(Ctx *c);

Res make_attention(Ctx *c);
Res make_rotary(Ctx *c);
Res make_swish(Ctx *c);
Res make_if(Ctx *c);
Res make_loop(Ctx *c);
Res make_scan(Ctx *c);
Res make_loss(Ctx *c);
Res make_rnn(Ctx *c);

#endif
