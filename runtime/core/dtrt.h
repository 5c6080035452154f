/* dtrt.h - the program interface: what a generated program hands to the runtime, and what its
 * kernels get. Generated code defines `const DtrtProgram dtrt_program` and main() calls dtrt_main.
 *
 * Device memory is one block: [persistent | arena]. Offsets of persistent tensors are from the
 * start of the block; arena offsets have persistent_bytes added already. */
#ifndef DTRT_H
#define DTRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Scalars and settings of the current step, read by kernels (Dropout, updates). */
typedef struct DtrtCtx {
    uint64_t seed;
    uint64_t step; /* 0-based, counts on over resumes */
    int threads;
    /* optimizer, for this step */
    float lr, momentum, dampening, weight_decay, beta1, beta2, eps;
    bool nesterov;
    const int64_t *dim; /* values of the program's symbols in this step */
    int slot;           /* which set of library objects is for them: 0 or 1 */
    void *user;         /* runtime's own */
} DtrtCtx;

typedef enum { DTRT_F32, DTRT_F64, DTRT_I64, DTRT_I32, DTRT_U8, DTRT_BOOL } DtrtType;
typedef enum {
    DTRT_INPUT,
    DTRT_TARGET,
    DTRT_PARAM,
    DTRT_FROZEN,
    DTRT_BUFFER,
    DTRT_CONST,
    DTRT_STATE
} DtrtRole;

/* A persistent tensor. */
typedef struct {
    const char *name; /* ONNX name */
    DtrtRole role;
    DtrtType type;
    int rank;
    int64_t dim[8];
    uint64_t offset, bytes; /* device bytes (packed: larger than the shape) */
    int conv;               /* >= 0: packed by conv object number; -1: plain row-major */
    int param;              /* STATE: index of its parameter; state_kind 'm' or 'v' */
    char state_kind;
    uint64_t file_offset; /* in the weights payload: plain row-major bytes */
    uint64_t file_bytes;  /* 0: starts as zeros */
} DtrtTensor;

typedef void DtrtKernel(DtrtCtx *c, void *const *p);

/* What nodes read and write: a persistent tensor, or a range of the arena for as long as it is
 * needed. */
typedef struct {
    uint64_t bytes;
    int32_t tensor; /* the persistent tensor that it is, or -1 */
    DtrtType type;  /* opaque contents: DTRT_U8 */
} DtrtStorage;

/* A node of the training step. Nodes are numbered in the order in which they run for the first
 * time. */
typedef struct {
    DtrtKernel *run;
    const char *name; /* ONNX node name, for messages and profiles */
    const char *op;
    uint32_t graph_node; /* its number in the compiler's graph */
    uint32_t first;      /* its storages: operand[first ..), nin inputs, then nout outputs */
    uint32_t nin, nout;
    uint8_t phase;    /* 0 forward, 1 backward, 2 update */
    int32_t param;    /* update nodes: tensor index of the parameter, input 1 is the gradient; else
                         -1 */
    uint64_t inplace; /* bit i: output 0 may take over the storage of input i */
    uint64_t mutates; /* bit i: input i is changed. Such a node runs exactly once a step */
    uint64_t workspace, ns; /* bytes; time that the cost model expects */
} DtrtNode;

/* One run of a node. Kernels get nin + nout + 1 pointers: the last is the workspace. */
typedef struct {
    uint32_t node;
    uint32_t first; /* addr[first ..) */
} DtrtRun;

/* Steps in order: runs and drops. A dropped storage's bytes may be anything's from there on. */
typedef struct {
    int32_t run;     /* index into runs, or -1: a drop */
    int32_t storage; /* drop: which */
    uint64_t offset; /* drop: where it was */
} DtrtStep;

#define DTRT_NOWHERE UINT64_MAX /* addr entry: NULL */

/* One training step in memory: what runs when, and where everything lies. */
typedef struct {
    uint64_t arena_bytes;
    uint32_t nrun, naddr, nstep;
    const DtrtRun *run;
    const uint64_t *addr;
    const DtrtStep *step;
    uint32_t recomputed_runs, evictions;
} DtrtSchedule;

/* The forward graph as imported, for the reference interpreter (--check-grad): see runtime/ref.
 * Attribute names are those of attrs.def. Dropout with attribute channels_last = 1: the random
 * index of an element is its linear index after the channel axis (1) was moved to the end, because
 * the program keeps that tensor channels-last. */
typedef struct {
    const char *op, *name;
    uint32_t nin, nout;
    const int32_t *in, *out; /* value numbers, -1: absent */
    const char *const *attr_name;
    const int64_t *const *attr_i; /* per attribute: integer entries or NULL */
    const double *const *attr_f;
    const uint32_t *attr_n;
    uint32_t nattr;
    uint32_t key; /* keyed random */
} DtrtRefNode;
typedef struct {
    const char *name;
    DtrtType type;
    int rank;
    int64_t dim[8];
    int tensor;                       /* index of the persistent tensor it starts from, or -1 */
    uint64_t file_offset, file_bytes; /* tensor -1: a constant that only this graph has, in the
                                         payload; bytes 0: computed */
} DtrtRefValue;

/* A dimension of the model's inputs that need not have the size that the program was compiled for.
 * Dimensions that vary together are one symbol. */
typedef struct {
    const char *name[4]; /* as in the model; the rest NULL */
    bool batch;          /* axis 0 of inputs */
    int64_t value;       /* compiled for */
    int64_t lo, hi;      /* what it may be */
} DtrtSymbol;

/* Kernels of a device, compiled: in the payload of the executable. */
typedef struct {
    int arch;     /* compute capability, 90 for 9.0: cubins run on it and on later minor versions */
    bool is_text; /* PTX: for this architecture and all later ones, compiled when it is loaded */
    uint64_t file_offset, file_bytes;
} DtrtImage;

/* A piece of the model's file, which --export writes with other weights: bytes of the payload, or
 * the elements of a tensor, rounded to nearest where the file has a shorter type. */
typedef enum { DTRT_AS_IT_IS, DTRT_AS_F16, DTRT_AS_BF16 } DtrtPieceForm;
typedef struct {
    int32_t tensor; /* or -1: bytes */
    DtrtPieceForm as;
    uint64_t payload_offset, bytes; /* in the file */
} DtrtPiece;

typedef struct {
    uint64_t interface; /* DTRT_INTERFACE (dtrt_interface.h) of the dtrc that wrote the tables.
                           First, where every version looks for it */
    const char *model, *model_sha256, *command, *target;
    uint64_t graph_digest; /* of the compiler's step graph, for profiles */
    uint64_t budget_bytes; /* 0: compiled without one */
    uint64_t persistent_bytes;
    double planned_overhead;
    int threads; /* that workspaces were computed for */
    uint32_t ntensor;
    const DtrtTensor *tensor;
    uint32_t nstorage, noperand, nnode;
    const DtrtStorage *storage;
    const int32_t *operand; /* storages of each node; -1: absent */
    const DtrtNode *node;
    DtrtSchedule plan;      /* the compiled schedule */
    int32_t loss_storage;   /* f32 scalar, resident at the end of a step */
    int32_t logits_storage; /* of the model output; -1: it cannot be read */
    int logits_rank;
    int64_t logits_dim[8];
    const char *loss_kind;      /* "cross-entropy", ... */
    int64_t class_axis, nclass; /* label range check; nclass 0: labels are floats */
    bool has_ignore;
    int64_t ignore_index;
    double label_smoothing;
    const char *optimizer; /* "sgd", "adam", "adamw" */
    bool momentum_state;
    float lr, momentum, dampening, weight_decay, beta1, beta2, eps; /* defaults */
    bool nesterov;
    /* other sizes: the tables' numbers for given values of the symbols, and a bound on them */
    uint32_t nsymbol;
    const DtrtSymbol *symbol;
    const char *one_size; /* why there are none */
    void (*resize)(const int64_t *dim, DtrtTensor *tensor, DtrtStorage *storage, DtrtNode *node,
                   int64_t *logits_dim);
    double (*largest)(const int64_t *dim);
    /* library objects of c->slot: conv and matmul primitives. init returns false after printing to
     * stderr. The library's own memory growth is measured around it. needs: the workspace and
     * packed bytes that these objects use; NULL: as in the tables. */
    bool (*init)(DtrtCtx *c);
    void (*needs)(const DtrtCtx *c, DtrtStorage *storage, DtrtNode *node);
    /* packed weights: plain row-major <-> packed for conv object n */
    bool (*pack)(int conv, const float *plain, void *packed);
    bool (*unpack)(int conv, const void *packed, float *plain);
    uint32_t nrefnode, nrefvalue;
    const DtrtRefNode *refnode;
    const DtrtRefValue *refvalue;
    int ref_output; /* value number of the model output that the loss reads */
    /* A target whose memory the host does not see; NULL: the processor itself. */
    const struct DtrtDevice *device;
    uint32_t nimage;
    const DtrtImage *image; /* by architecture */
    bool tf32;              /* convolutions and products may round their inputs to TF32 */
    uint32_t npiece;
    const DtrtPiece *piece; /* of the model's file, in order */
    const char *no_export;  /* why there are none */
} DtrtProgram;

int dtrt_main(const DtrtProgram *p, int argc, char **argv);
/* Ends the run because of the data (a label or an index out of range): prints "error: ..." with the
 * name of the node that runs, then longjmps into dtrt_main, which returns 1. Never called inside an
 * OpenMP parallel region. */
void dtrt_fail(DtrtCtx *c, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

#endif
