/* problem.h - a planning problem: graph, cost and accounting rule flattened to arrays, in the order
 * in which nodes run for the first time. Internal to the room; built once, read by every strategy.
 *
 * Runs: nodes that do something. Views that cost nothing are not runs: whoever reads one reads the
 * storage. (A view with a cost, which traces have, is a run, and must run again after its storage
 * was dropped.) Tensors: what runs read and make. Tensor t < nstorage is the contents of storage t;
 * the tensors after that are views with a cost. Persistent storages are always there and have no
 * bytes here. */
#ifndef DTRC_PROBLEM_H
#define DTRC_PROBLEM_H

#include "plan.h"

/* at[first[i] .. first[i+1]) belongs to i. */
typedef struct {
    uint32_t *first, *at;
} Lists;

#define EACH(l, i, x)                                                                              \
    for (uint32_t x##_i = (l).first[i], x;                                                         \
         x##_i < (l).first[(i) + 1] && (x = (l).at[x##_i], true); x##_i++)

typedef struct {
    const Graph *g;
    const Cost *c;
    uint64_t align; /* PLAN_ALIGN, or 1 when only bytes are counted */
    uint64_t persistent_bytes, base_ns, floor_bytes; /* floor: largest working set of a run */
    uint32_t nrun, nstorage, ntensor;
    /* per run */
    NodeId *node; /* in the graph */
    bool *effect;
    uint64_t *ns, *workspace;
    Lists in;      /* distinct tensors read; persistent storages left out, views with cost not */
    Lists out;     /* one entry per output of the graph's node: tensor or NO_ID */
    Lists inplace; /* storages whose bytes output 0 may take over */
    Lists writes;  /* persistent storages it mutates */
    /* per storage */
    uint64_t *bytes; /* rounded up; 0 for persistent ones */
    double *cost;    /* time of the runs that make it and its views */
    bool *is_output; /* must be there at the end */
    uint32_t noutput;
    uint32_t *output; /* tensors that must be there at the end */
    bool *is_temp;
    Lists users;  /* runs that read it, ascending */
    Lists makers; /* runs that make it and its views; the storage's own first */
    Lists views;  /* tensors after nstorage that live in it */
    /* storages one run up and down, without itself, without persistent ones */
    Lists parents, children;
    Lists readers; /* persistent and mutated: runs that read it and do not mutate it */
    /* per tensor */
    StorageId *storage;
    uint32_t *def; /* run that makes it; NO_ID for persistent storages */
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
    return l->first[i + 1] - l->first[i];
}

#endif
