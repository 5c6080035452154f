/* ops.h - what the compiler knows of each operator. One row in ops.def, one `const OpDef op_NAME`
 * in the family file: attributes, shape inference, gradient, cost, CPU emission. Whatever a stage
 * must know of an operator is a column here; an `op ==` test outside this room means that a column
 * is missing (lowering passes that exist for one operator excepted). */
#ifndef DTRC_OPS_H
#define DTRC_OPS_H

#include "ir.h"

/* OpDef.flags */
enum {
    OPF_EW = 1,        /* elementwise with broadcasting: `expr` over operands a, b, c, d, e, f, g */
    OPF_COLREDUCE = 2, /* can be a column reduction of a Fused node: acc/fin; op_is_colreduce() asks
                          whether this node's axes allow it */
    OPF_CHEAP = 4,   /* elementwise without transcendental functions: fusion may compute it twice */
    OPF_COMPILE = 8, /* must be gone after simplify (BatchNorm) */
    OPF_PICKS = 16,  /* reads no more of input 0 than it writes (Slice, Gather) */
    OPF_PATCHES = 32 /* changes no more of input 0 than input 1 has, in place (SliceAdd) */
};

typedef struct {
    Graph *g;
    Diag *d;
} InferCtx;

/* State of autodiff, passed to gradient functions. */
typedef struct {
    Graph *g;
    Diag *d;
    Arena *scratch;
    const bool *need; /* per value: a gradient is wanted */
} GradCtx;

/* What a cpu function writes into. Generated functions look like
 *     static void kN(DtrtCtx *c, void *const *p) { BODY }
 * p[0..nin) inputs (NULL when absent), p[nin..nin+nout) outputs (NULL when unused), p[nin+nout] the
 * workspace. Bodies use no names of the model, so that equal bodies become one function. A number
 * that depends on a size may become an expression (compiler/sizes): arrays of numbers are not
 * static, and what is decided by looking at a size must be decided the same way for all sizes. */
typedef struct CpuEmit CpuEmit;
struct CpuEmit {
    Arena *arena;
    Text *body; /* the function's body; 4 spaces of indentation */
    const Graph *g;
    const bool *packed; /* per value: kept in the library's packed layout (Cost.packed) */
    int threads;
    /* Adds a file-scope object of C type `type` with initialiser text `init` and returns its
     * number: the body refers to it as `&type_N[c->slot]` (say &DtrtConv_3[c->slot]; a program
     * may run at two sizes in turn); equal (type, init) share one object. */
    uint32_t (*object)(CpuEmit *e, const char *type, const char *init);
    /* The DtrtConv whose packed layout value v has; NO_ID: it is plain. */
    uint32_t (*packed_by)(CpuEmit *e, ValueId v);
    /* Set by functions whose call asks for workspace: a C expression of its bytes. */
    const char *needs;
    void *priv;
};

typedef struct OpDef {
    const char *name;
    NodeClass cls;
    uint32_t flags;
    uint8_t min_in, max_in, nout; /* max_in 255: any number; nout counts optional outputs too */
    uint8_t spare;                /* so many of the last outputs a node need not have */
    uint32_t mutates;             /* bit i: input i is written (CLS_EFFECT) */
    uint32_t ones; /* bit i: a weight at input i starts at 1 where the file has no values (scales,
                      variances), not at 0 */
    uint32_t inplace; /* bit i: output 0 may take over the storage of input i when the bytes
                         are equal and input i dies there. EW nodes: every full-size input */
    /* OPF_EW: a C expression over operands a.. and attribute constants p0, p1, p2 (float). The
     * emitter declares operands as `real` (f32), int64_t, int32_t or uint8_t by dtype. Functions
     * allowed: the C99 float math names with an f suffix (expf, erff, ...) and those of
     * dtrt_math.h. Must keep NaN and inf as the ONNX operator does. */
    const char *expr;
    AttrKey p[3]; /* attribute of p0..p2; A_COUNT: none. Defaults in dflt */
    double dflt[3];
    DType out_dtype; /* EW: DT_COUNT = that of the operands (Where: of b; Cast: attribute) */
    /* OPF_COLREDUCE: per element, acc[k] (an expression like expr) is added in double to s<k>;
     * afterwards result r is fin[r], a double expression over s0, s1, s2, n (the number of rows as
     * double), p0.. */
    const char *acc[3];
    const char *fin[3];
    /* Creates the output values (all nout that the node has; absent ones stay NO_ID) from inputs
     * and attributes. False after reporting expected and found. NULL for EW: broadcast. */
    bool (*infer)(InferCtx *c, NodeId n);
    /* Appends backward nodes that compute the gradient of each input i with c->need[input i] set
     * and stores it in din[i] (NO_ID: zero or not wanted). dout[k] is the gradient of output k or
     * NO_ID. NULL: the operator has no gradient. */
    bool (*grad)(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din);
    uint64_t (*flops)(const Graph *g,
                      const Node *n);       /* NULL: op_element_flops per output element */
    bool (*cpu)(CpuEmit *e, const Node *n); /* NULL for EW, COLREDUCE and Fused: codegen */
} OpDef;

#define OP(name, what) extern const OpDef op_##name;
#include "ops.def"
#undef OP

/* ---- ops.c ------------------------------------------------------------------------------- */
const OpDef *op_def(OpCode op);
static inline NodeClass op_class(const Node *n) {
    return op_def(n->op)->cls;
}
/* True when node n, with its axes, can stand as a column reduction in a Fused node. */
bool op_is_colreduce(const Node *n);
/* Class of a node: Fused nodes are random when a member is, attention when it drops. */
NodeClass op_node_class(const Node *n);
/* Bit i: output 0 of n may take over the storage of input i, where both have as many bytes and the
 * storage dies there. The first operand of a storage stands for it. */
uint64_t op_inplace_inputs(const Graph *g, const Node *n);
uint64_t op_flops(const Graph *g, const Node *n);
uint64_t op_element_flops(OpCode op); /* elementwise or column reduction: of one element */
/* Runs infer on a node whose inputs and attributes are set: creates its outputs. Checks arity. */
bool op_infer(Graph *g, Diag *d, NodeId n);

/* Builders for lowering passes and gradients. Names: the caller's `name`; output values get
 * name ".out" unless renamed. Each appends a node in phase ph, infers, and returns output 0. They
 * assert that inference succeeds. */
ValueId op_make(Graph *g, Phase ph, OpCode op, const char *name, uint32_t nin, const ValueId *in);
ValueId op_make1(Graph *g, Phase ph, OpCode op, const char *name, ValueId a);
ValueId op_make2(Graph *g, Phase ph, OpCode op, const char *name, ValueId a, ValueId b);
ValueId op_make3(Graph *g, Phase ph, OpCode op, const char *name, ValueId a, ValueId b, ValueId c);
/* With attributes: set `attr` entries before inference. */
ValueId op_make_attr(Graph *g, Phase ph, OpCode op, const char *name, uint32_t nin,
                     const ValueId *in, const Attr *attr, uint32_t nattr);
Attr attr_i(Arena *a, AttrKey k, int64_t v);
Attr attr_f(Arena *a, AttrKey k, double v);
Attr attr_ints(Arena *a, AttrKey k, const int64_t *v, uint32_t n);
ValueId op_reshape(Graph *g, Phase ph, const char *name, ValueId v,
                   const Shape *s); /* v itself if equal */
ValueId op_transpose(Graph *g, Phase ph, const char *name, ValueId v, const int64_t *perm);
/* Sums v down to shape s (the inverse of broadcasting); v itself when equal. */
ValueId op_reduce_to(Graph *g, Phase ph, const char *name, ValueId v, const Shape *s);

/* ---- check.c: for graphs that came as text, after ir_verify ---- */
/* Every node has the outputs, dtypes and shapes that inference gives it, and Fused bodies make
 * sense. Reports each fault. */
bool op_check(Diag *d, const Graph *g);

/* ---- geometry.c: shared by conv.c, pool.c and cost ------------------------------------------ */
typedef struct {
    uint32_t nd; /* spatial axes, 1..3 */
    bool channels_last, bias, relu;
    int64_t n, ci, co, group;
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3], pad_hi[3];
    int64_t ceil_mode, count_include_pad;
} Geometry;
/* Geometry of Conv, ConvGradX, ConvGradW, MaxPool(Grad), AveragePool(Grad). */
bool op_geometry(const Graph *g, const Node *n, Geometry *out);

/* ---- conv.c, matmul.c, attention.c, pool.c: the object of a node; emission writes it, cost asks
 * it ---- */
typedef struct {
    Geometry q;
    bool packed, fwd, grad_x, grad_w; /* one of the three passes is set */
} ConvObject;
/* False when n is no convolution. packed as in CpuEmit; may be NULL. */
bool op_conv_object(const Graph *g, const bool *packed, const Node *n, ConvObject *out);
typedef struct {
    bool trans_a, trans_b, bias;
    double alpha;
    uint32_t nbatch;
    int64_t batch_a[IR_MAX_RANK], batch_b[IR_MAX_RANK], m, n, k;
} MatmulObject;
bool op_matmul_object(const Graph *g, const Node *n, MatmulObject *out);
typedef struct {
    bool grad, trans_k, add, cond, shows; /* cond: there is one; shows: true means a score stays */
    double alpha, fill, ratio;            /* ratio 0: nothing is dropped */
    uint32_t nbatch;
    int64_t batch[IR_MAX_RANK], rows, keys, depth, width;
    int64_t add_dim[IR_MAX_RANK], cond_dim[IR_MAX_RANK]; /* batch axes and rows, 1: broadcast */
} AttentionObject;
bool op_attention_object(const Graph *g, const Node *n, AttentionObject *out);
typedef struct {
    Geometry q;
    bool is_max;
} PoolObject;
bool op_pool_object(const Graph *g, const Node *n, PoolObject *out);

/* ---- loopnest.c: the iteration space of elementwise nodes, column reductions, Fused nodes ---- */
typedef struct {
    FusedBody body; /* the node's, or one instruction for a lone node (operand k = input k) */
    uint32_t naxis; /* after merging axes, outermost first; at least 1 */
    int64_t size[IR_MAX_RANK];
    uint32_t nlead;      /* reductions: axes 0..nlead are summed over, the others kept; else 0 */
    uint64_t lead, kept; /* products of the two groups (1 when empty) */
    uint32_t nacc;       /* accumulators of all reductions; 0: purely elementwise */
    bool by_columns; /* threads share the kept axes, each sums its columns alone; else they share
                        the leading axes and keep partial sums in the workspace */
    uint32_t *moves; /* per operand (inputs, then outputs): bit i: it moves along axis i */
} LoopNest;
/* Is the node run by a generated loop? */
bool op_is_loop(const Node *n);
/* Reductions with few rows, or with so many columns that partial sums of each thread would be
 * large, sum by columns. */
enum { LOOP_FEW_ROWS = 16, LOOP_MANY_COLUMNS = 4096 };
void op_loop_nest(Arena *a, const Graph *g, const Node *n, LoopNest *l);
/* Bytes of scratch that such a node's kernel uses: threads * accumulators * columns doubles. */
uint64_t op_loop_workspace(const Graph *g, const Node *n, int threads);

/* ---- reduce.c, movement.c: what the workspace of calls depends on ---- */
typedef struct {
    uint32_t nd;
    int64_t dim[IR_MAX_RANK];
    uint8_t red[IR_MAX_RANK];
} SumGeometry;
/* False when n is no sum, or one that a generated loop does. */
bool op_sum_geometry(const Graph *g, const Node *n, SumGeometry *out);
typedef struct {
    int64_t outer, n, inner, count;
} GatherGeometry;
/* False when n is neither Gather nor its gradient. */
bool op_gather_geometry(const Graph *g, const Node *n, GatherGeometry *out);

/* ---- loss.c: what its kernels and their workspace depend on ---- */
typedef struct {
    int64_t outer, n, inner; /* scores [outer, classes, inner] */
    bool label_i32, has_ignore, is_log;
    int64_t ignore_index;
    double smoothing;
} LossGeometry;
/* False when n is none of SoftmaxCE, NllLoss and their gradients. */
bool op_loss_geometry(const Graph *g, const Node *n, LossGeometry *out);

#endif
