/* fuse.h - groups of loop nodes that become one Fused node each: fuse.c decides, fuse_build.c
 * applies. */
#ifndef DTRC_FUSE_H
#define DTRC_FUSE_H

#include "passes.h"

enum { FUSE_INPUTS = 12, FUSE_MEMBERS = 24, FUSE_OUTPUTS = 4, FUSE_COPIES = 3 };

typedef struct {
    Shape space;
    Phase phase;
    uint32_t pos;       /* where in the node order it runs: the index of one of its members */
    uint64_t kept;      /* columns of its reductions; 0: no reduction */
    uint32_t nelem;     /* elementwise outputs */
    VEC(NodeId) member; /* no order */
    bool dead;          /* merged into another one */
} Group;

typedef struct {
    uint32_t n;               /* 0: no loop node */
    uint32_t at[FUSE_COPIES]; /* groups that compute the node */
    bool stored;              /* its output is an output of group at[0] */
} Member;

typedef struct {
    Arena *a;
    const Graph *g;
    VEC(Group) group;
    Member *of; /* per node */
    /* per node: an update that runs after this place of the order; NO_ID: in its own */
    uint32_t *delay;
} Groups;

/* Distinct values that the group reads from outside; at most max are written to out. */
uint32_t group_inputs(const Groups *s, const Group *x, ValueId *out, uint32_t max);
Graph *fuse_build(const Groups *s); /* fuse_build.c */

#endif
