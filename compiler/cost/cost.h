/* cost.h - time, bytes and workspace of each node, for one target. */
#ifndef DTRC_COST_H
#define DTRC_COST_H

#include "ops.h"

/* TARGET_NULL: the same schedule, kernels without arithmetic. */
typedef enum { TARGET_CPU, TARGET_NULL } Target;
const char *target_name(Target t); /* cpu, null */

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

/* Analytic model: max(flops/peak, bytes/bandwidth) + a fixed part, with constants that
 * cost/README.md derives; workspace and packed sizes asked of the CPU runtime (runtime/cpu, query),
 * once per distinct geometry. Attributes cost_ns and workspace of a node go before the model. */
Cost *cost_analytic(Arena *a, const Graph *g, Target t, int threads);
/* A planning trace: times and workspace are what the attributes say, views may cost something. */
Cost *cost_opaque(Arena *a, const Graph *g);

#endif
