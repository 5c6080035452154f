/* rewrite.h - copying a graph node by node, for the passes of this room: the pass decides what
 * becomes of each node, the copy keeps names, roles, data, storages and views right. */
#ifndef DTRC_REWRITE_H
#define DTRC_REWRITE_H

#include "simplify.h"

typedef struct {
    Arena *a;
    const Graph *old;
    Graph *g;     /* the copy */
    ValueId *map; /* per old value: its new value; NO_ID until its node was treated */
    Bits kept;    /* old values that must keep their node: outputs, loss, logits */
} Rewrite;

/* A copy with the sources of `old` that are not in `drop` (NULL: all of them), in the same order.
 */
void rw_begin(Rewrite *r, Arena *a, const Graph *old, const Bits *drop);
/* Copies node n with the new values of its inputs; its outputs get the old names. */
NodeId rw_copy(Rewrite *r, NodeId n);
/* Instead of copying old value v, `now` stands for it. */
void rw_replace(Rewrite *r, ValueId v, ValueId now);
/* New value `now` was made for old value `old` and gets its name. */
void rw_rename(Rewrite *r, ValueId now, ValueId old);
/* Does the permutation keep the order of all axes longer than 1? Then it moves no byte. */
bool perm_moves_nothing(const Shape *s, const int64_t *perm);
/* Maps outputs, loss, logits and parameters of gradients; returns the copy. */
Graph *rw_end(Rewrite *r);

#endif
