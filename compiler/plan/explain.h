/* explain.h - Graph + Cost + Plan -> facts about the plan: what runs again, what was dropped for
 * how long, what is there when the most bytes are. Reports print them; nothing is decided here.
 * Public, beside plan.h. */
#ifndef DTRC_EXPLAIN_H
#define DTRC_EXPLAIN_H

#include "plan.h"

typedef struct {
    NodeId node;
    uint32_t again;       /* runs after the first */
    uint64_t ns;          /* all of those */
    uint32_t first, last; /* steps of the first and the last of them */
} PlanRerun;

/* A storage was dropped, or another took over its bytes, and it came back. */
typedef struct {
    StorageId storage;
    NodeId node; /* that brought it back */
    uint64_t bytes;
    uint32_t gone, back; /* steps */
    uint64_t idle_ns;    /* time of all runs between those steps */
    uint64_t again_ns;   /* time of the run that brought it back, without what that needed */
} PlanEviction;

typedef struct {
    StorageId storage; /* NO_ID: workspace of the node */
    uint64_t bytes;
    uint32_t since; /* step; persistent ones: 0 */
    bool scratch;   /* written by this run and not kept */
} PlanResident;

/* Something was in the arena from one moment to another. A storage that was dropped and made again
 * has several stays. Runs that take no time may make stays of no time. */
typedef struct {
    StorageId storage;      /* NO_ID: workspace of the node */
    NodeId node;            /* that made it */
    uint64_t offset, bytes; /* offset: when the plan has addresses */
    uint32_t from, to; /* steps: the run, and the step at which it goes; to: nstep at the end */
    uint64_t from_ns, to_ns; /* the clock before the run, and when it goes */
    bool scratch;            /* written by this run and not kept, or workspace */
    bool again;              /* the run is not the node's first */
} PlanStay;

/* Bytes are counted as the plan does: rounded up to PLAN_ALIGN when it has addresses. */
typedef struct {
    uint32_t nrerun, neviction, nresident, nstay;
    PlanRerun *rerun;       /* by node */
    PlanEviction *eviction; /* in the order of going */
    uint32_t peak_step;     /* the first run at which the sum of bytes is largest */
    uint64_t peak_bytes;    /* persistent_bytes + byte_peak */
    PlanResident *resident; /* at peak_step, during the run: largest first */
    PlanStay *stay;         /* by step of coming; nothing persistent */
} PlanFacts;

PlanFacts *plan_explain(Arena *a, const Graph *g, const Cost *c, const Plan *p);

#endif
