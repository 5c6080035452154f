/* ir.h - the Graph: one struct for the forward graph that importers build, the training step, and
 * the fused step that is planned and compiled.
 *
 * Arrays addressed by 32-bit ids. A Value is a tensor in SSA form, row-major, with a storage; views
 * (class CLS_VIEW) share the storage of their input. Nodes stand in execution order: every input is
 * defined by an earlier node or is a source (role != ROLE_TEMP).
 *
 * Invariants (checked by ir_verify, cited as I1.. in asserts):
 *  I1 node order is topological; every value has at most one defining node.
 *  I2 a value without a defining node has a role other than ROLE_TEMP.
 *  I3 outputs of a CLS_VIEW node have the storage of input 0; all other outputs have a storage of
 *     their own, of exactly their byte size (padded weights: see Cost.storage_bytes).
 *  I4 only CLS_EFFECT nodes mutate: OpDef.mutates says which inputs; those are persistent.
 *  I5 a node that reads a persistent value and does not mutate it stands before every node that
 *     does. Nodes that mutate the same value (running statistics of a layer that is used twice)
 *     happen in their order.
 *  I6 phases do not go back: forward < backward <= update, except that an update may stand amid
 *     backward nodes. */
#ifndef DTRC_IR_H
#define DTRC_IR_H

#include "base.h"

#define IR_MAX_RANK 8

typedef uint32_t ValueId, NodeId, StorageId;

typedef enum { DT_F32, DT_F64, DT_I64, DT_I32, DT_U8, DT_BOOL, DT_COUNT } DType;
/* Device values are F32, I64, I32, BOOL (one byte), or U8 (opaque max-pool indices). F64 occurs in
 * compile-time constants only. */

typedef struct {
    uint32_t rank;
    int64_t dim[IR_MAX_RANK];
} Shape;

typedef enum {
    ROLE_TEMP,   /* computed within a step */
    ROLE_INPUT,  /* model input, staged from the data file each step */
    ROLE_TARGET, /* labels, staged each step */
    ROLE_PARAM,  /* trained initializer */
    ROLE_FROZEN, /* weight-like float initializer that is not trained */
    ROLE_BUFFER, /* running statistic, written back by an effectful node */
    ROLE_CONST,  /* constant: mask, index, table */
    ROLE_STATE,  /* optimizer state, zero at the start; Value.param is the parameter */
    ROLE_SCALAR, /* run-time scalar set by the runtime each step: "lr", "step", ... (f32[]) */
    ROLE_COUNT
} Role;
/* Persistent: every role but ROLE_TEMP. Persistent storages live outside the arena of the plan. */

typedef enum { PHASE_FORWARD, PHASE_BACKWARD, PHASE_UPDATE } Phase;

typedef enum {
    CLS_PURE,   /* may run again */
    CLS_RANDOM, /* keyed random: may run again, numbers come from (seed, step, Node.key, index) */
    CLS_VIEW,   /* no work, output shares the storage of input 0 */
    CLS_EFFECT  /* exactly once a step */
} NodeClass;

typedef struct {
    const void *bytes; /* row-major, little-endian; may point into a mapped file */
    uint64_t n;        /* bytes */
} Data;

typedef struct {
    const char *name; /* ONNX name; derived values append a suffix such as ".grad"; never NULL */
    DType dtype;
    Role role;
    Shape shape;
    StorageId storage;
    NodeId def;       /* defining node or NO_ID */
    ValueId param;    /* STATE, and gradients of parameters: the parameter; else NO_ID */
    const Data *data; /* initial value (PARAM, FROZEN, BUFFER, CONST); NULL: not there (missing
                         external file) or not a source */
    /* Conv weights may be kept in the channels-first order of the file ([M,C/g,k..]) whatever the
     * order of images; the library's packed layout is a matter of Cost and codegen. */
} Value;

typedef struct {
    uint64_t bytes; /* shape product times element size; never rounded here */
    ValueId root;   /* the value that is not a view */
    bool persistent;
} Storage;

/* Attributes: attrs.def lists the keys; the text form prints key=value. */
typedef enum {
#define ATTR(name) A_##name,
#include "attrs.def"
#undef ATTR
    A_COUNT
} AttrKey;

typedef struct {
    AttrKey key;
    bool is_float;
    uint32_t n;       /* number of entries; scalars have 1 */
    const int64_t *i; /* when !is_float */
    const double *f;  /* when is_float */
} Attr;

typedef uint16_t OpCode; /* ops.def; OP_NONE is 0 */
enum {
    OP_NONE,
#define OP(name, what) OP_##name,
#include "ops.def"
#undef OP
    OP_COUNT
};

/* Body of a Fused node: straight-line code over one iteration space. Operand k of an instruction is
 * fused input k when k < nin, else the (first) result of instruction k - nin. Operands broadcast
 * (numpy rules) to `space`. The last instructions may be column reductions (OPF_COLREDUCE rows of
 * the op table): they sum over the leading axes of the space and leave the trailing ones. */
typedef struct {
    OpCode op;
    uint32_t nattr, narg;
    const Attr *attr;
    const uint32_t *arg;
    DType dtype;      /* of the result */
    uint32_t key;     /* keyed random: as Node.key */
    const char *name; /* ONNX name of the node it came from, for comments */
} FusedInst;

typedef struct {
    Shape space;
    uint32_t ninst;
    FusedInst *inst;
    /* per output of the node: which instruction, and which of its results (0 unless a reduction) */
    uint32_t *out_inst, *out_res;
} FusedBody;

typedef struct {
    OpCode op;
    Phase phase;
    uint32_t nin, nout, nattr;
    ValueId *in;  /* NO_ID: absent optional input */
    ValueId *out; /* NO_ID: unused optional output */
    Attr *attr;
    const char
        *name; /* ONNX node name, "#i" for an unnamed one; derived nodes append; never NULL */
    const char *onnx; /* ONNX operator it came from, for messages; may be NULL */
    uint32_t key;     /* keyed random: same for the forward node and its gradient */
    FusedBody *body;  /* OP_Fused only */
} Node;

typedef struct {
    Arena *arena;
    const char *file; /* model path, for messages */
    uint32_t nvalue, nnode, nstorage;
    Value *value;
    Node *node;
    Storage *storage;
    uint32_t value_cap, node_cap, storage_cap;
    uint32_t noutput;
    ValueId *output; /* what must be there at the end of a step (model outputs; the loss) */
    ValueId loss;    /* scalar f32, or NO_ID before train_build */
    ValueId logits;  /* model output that the loss reads (metrics), or NO_ID */
    uint32_t next_key;
} Graph;

/* ---- build.c ------------------------------------------------------------------------------ */
Graph *ir_new(Arena *a, const char *file);
/* New value with a storage of its own. name is copied. */
ValueId ir_value(Graph *g, const char *name, DType dt, const Shape *s, Role role);
/* New value that shares the storage of `of` (its dtype and role; equal element count): output of a
 * CLS_VIEW node. */
ValueId ir_view(Graph *g, const char *name, const Shape *s, ValueId of);
/* Appends a node with room for nin inputs and nout outputs; arrays start as NO_ID. The caller (or
 * ops: op_infer) adds output values. Pointers into g->node are invalid after the next ir_node. */
NodeId ir_node(Graph *g, OpCode op, Phase ph, const char *name, uint32_t nin, uint32_t nout);
void ir_attr_i(Graph *g, NodeId n, AttrKey k, int64_t v);
void ir_attr_f(Graph *g, NodeId n, AttrKey k, double v);
void ir_attr_ints(Graph *g, NodeId n, AttrKey k, const int64_t *v, uint32_t count);
void ir_attr_copy(Graph *g, NodeId to, const Attr *attr, uint32_t nattr);

/* ---- copy.c ---- */
/* A copy in `a` that outlives `from`: what lies in that arena is copied, what lies elsewhere is
 * shared with g. */
Graph *ir_copy(Arena *a, const Graph *g, const Arena *from);

/* ---- query.c ------------------------------------------------------------------------------ */
const Attr *ir_attr(const Node *n, AttrKey k); /* NULL when absent */
const Attr *attr_find(const Attr *attr, uint32_t nattr, AttrKey k);
int64_t ir_get_i(const Node *n, AttrKey k, int64_t dflt);
double ir_get_f(const Node *n, AttrKey k, double dflt); /* an int attribute converts */
const int64_t *ir_get_ints(const Node *n, AttrKey k, uint32_t *count); /* NULL, 0 when absent */
const char *attr_name(AttrKey k);
AttrKey attr_by_name(const char *s); /* A_COUNT when unknown */
size_t dtype_size(DType d);
const char *dtype_name(DType d); /* f32 f64 i64 i32 u8 bool */
const char *role_name(Role r);
bool is_persistent(Role r);
bool shape_eq(const Shape *a, const Shape *b);
bool shape_count(const Shape *s, uint64_t *n); /* false on a negative dim or past 2^40 elements */
uint64_t value_count(const Graph *g, ValueId v);
uint64_t value_bytes(const Graph *g, ValueId v);
/* "[8,64,56,56]" into the arena */
const char *shape_str(Arena *a, const Shape *s);
/* numpy broadcasting of two shapes; false when they do not match */
bool shape_broadcast(const Shape *a, const Shape *b, Shape *out);
Place ir_place(const Graph *g, NodeId n, ValueId v); /* for diag; either may be NO_ID */
/* Consumers in CSR form: users of value v are user[first[v] .. first[v+1]) in node order, a node
 * that reads v twice once. */
typedef struct {
    uint32_t *first;
    NodeId *user;
} Users;
Users ir_users(Arena *a, const Graph *g);

/* ---- opcode.c: what this room knows of operators (ops checks that its rows agree) ------------ */
const char *ir_op_name(OpCode op);
OpCode ir_op_by_name(const char *s); /* OP_NONE when unknown */
NodeClass ir_op_class(OpCode op);
uint32_t ir_op_mutates(OpCode op); /* bit i: input i is written */

/* ---- print.c, parse.c, verify.c ------------------------------------------------------------ */
void ir_print(Text *out, const Graph *g);
/* Text form back to a graph (syntax: compiler/ir/README.md). NULL after reporting with line
 * numbers. Source values without data may be given as fill(x) or data [..]. */
Graph *ir_parse(Arena *a, Diag *d, const char *file, const char *text);
/* All invariants; reports each violation to d and returns false. Shares no code with producers. */
bool ir_verify(Diag *d, const Graph *g);

/* ---- digest.c: the same number for the same graph; weights and the path do not count ---- */
uint64_t ir_digest(const Graph *g);

#endif
