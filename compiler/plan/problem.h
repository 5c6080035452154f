/* problem.h - a planning problem: graph, cost and accounting rule flattened to the arrays of the
 * engine's DtrGraph (runtime/dtr), in the order in which nodes run for the first time. Internal to
 * the room; built once, read by every strategy. NO_ID is DTR_NONE. */
#ifndef DTRC_PROBLEM_H
#define DTRC_PROBLEM_H

#include "dtr.h"
#include "plan.h"

typedef DtrLists Lists;
#define EACH DTR_EACH

typedef struct {
    const Graph *g;
    const Cost *c;
    uint64_t persistent_bytes;
    NodeId *node; /* per run: in the graph */
    union {
        DtrGraph
            dtr; /* for the engine; its align is PLAN_ALIGN, or 1 when only bytes are counted */
        struct {
            DTR_GRAPH_MEMBERS
        };
    };
} Problem;

/* order: the graph's nodes as they run for the first time (views may be left out), or NULL. */
Problem *problem_new(Arena *a, const Graph *g, const Cost *c, const NodeId *order, bool bytes_only);
/* The order with every effect moved to the end: what waits for all gradients. NULL when that
 * changes nothing. */
NodeId *problem_deferred_order(Arena *a, const Graph *g);

/* Per run: the first run after which it must not run again, since it mutates what this one reads
 * (P3); an effect's own number; NO_ID: none. */
uint32_t *problem_frozen(Arena *a, const Problem *p);

static inline uint32_t list_len(const Lists *l, uint32_t i) {
    return dtr_len(l, i);
}

#endif
