/* cost.h - time, bytes and workspace of each node, for one target. */
#ifndef DTRC_COST_H
#define DTRC_COST_H

#include "ops.h"

/* TARGET_NULL: the same schedule, kernels without arithmetic. */
typedef enum { TARGET_CPU, TARGET_CUDA, TARGET_NULL } Target;
const char *target_name(Target t); /* cpu, cuda, null */

typedef struct {
    uint64_t *node_ns;        /* time of one run; views 0; at least 1 otherwise */
    uint64_t *node_workspace; /* bytes of scratch during the run */
    /* bytes to allocate: shape bytes; more for packed weights and what is kept in their layout
     * (gradients, optimizer state); max-pool indices as the kernels pack them */
    uint64_t *storage_bytes;
    /* per value: kept in the library's packed weight layout (packed.c says when) */
    bool *packed;
    int threads; /* that workspaces were computed for */
} Cost;

/* Constants of the analytic model. */
typedef struct {
    const char *name;
    double flops_per_ns;      /* of one thread: convolutions and matrix products */
    double loop_flops_per_ns; /* of one thread: everything else */
    double bytes_per_ns;      /* of one thread, up to max_bytes_per_ns for all */
    double max_bytes_per_ns;
    double fixed_ns;         /* of a call */
    double factor[OP_COUNT]; /* measured time over the roofline's, by operator; 0: 1 */
    /* the target cuda: whose workspaces are asked for (a name of runtime/cuda/plan), and whether
     * products may round their inputs to TF32 */
    const char *gpu;
    bool tf32;
} Device;
/* What stands for threads on the target cuda: the shares that sums are split into. */
enum { CUDA_SHARES = 128 };

/* Analytic model: max(flops/peak, bytes/bandwidth) * factor of the operator + a fixed part;
 * workspace and packed sizes asked of the target's runtime (runtime/cpu, runtime/cuda/plan), once
 * per distinct geometry. Attributes cost_ns and workspace of a node go before the model. The device
 * is the built-in one, whose constants cost/README.md derives, or one that was read. */
Cost *cost_analytic(Arena *a, const Graph *g, Target t, int threads);
Cost *cost_on_device(Arena *a, const Graph *g, Target t, int threads, const Device *device);
/* Of the target cuda: there is a convolution, and no cuDNN to ask for its workspace. */
bool cost_lacks_library(const Graph *g, const Device *device);
/* A planning trace: times and workspace are what the attributes say, views may cost something. */
Cost *cost_opaque(Arena *a, const Graph *g);
/* What needs no question to a library: bytes of each storage but packed ones; workspace of calls
 * other than convolutions and matrix products. */
uint64_t *cost_plain_bytes(Arena *a, const Graph *g);
uint64_t cost_plain_workspace(const Graph *g, const Node *n, int threads);

/* ---- device.c, fit.c: --device ---- */
const Device *device_default(void);
/* A GPU that cost/README.md lists, from its data sheet; false when there is none of that name. */
bool device_gpu(const char *name, bool tf32, Device *out);
const char *device_gpu_names(Arena *a);                             /* "h200, a100, ..." */
bool device_read(Arena *a, Diag *d, const char *file, Device *out); /* false after reporting */
void device_print(Text *out, const Device *device);
/* start with its constants changed so that it predicts what was measured: factors of the operators
 * in g, and the rates too when `rates`. */
Device device_fit(const Graph *g, const Cost *measured, const Device *start, bool rates);

/* ---- profile.c: --costs ---- */
/* Replaces node_ns by the times that a trainer's --profile wrote: the least time of each node.
 * Nodes that are not there keep the model's time, times the median ratio of the others. False after
 * reporting: not a profile, or one of another graph, target or number of threads. */
bool cost_read_profile(Arena *a, Diag *d, const char *file, const Graph *g, Target t,
                       const char *model_sha256, Cost *c);

#endif
