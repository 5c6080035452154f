/* twins.h - values in two axis orders, for channels_last.c. The twin of a value of rank >= 3 has
 * axes 1..k, its channel axes, moved to the end: [N, C, H, W] -> [N, H, W, C] for k = 1. k > 1
 * occurs where a reshape has split the channels. A value has a plain form (Rewrite.map), a twin, or
 * both; the missing one is made when somebody asks for it. */
#ifndef DTRC_TWINS_H
#define DTRC_TWINS_H

#include "passes.h"

typedef struct {
    Rewrite r;
    Diag *d;
    ValueId *twin;     /* per old value, or NO_ID */
    uint8_t *channels; /* per old value: k of its twin */
} Twins;

void tw_begin(Twins *t, Arena *a, Diag *d, const Graph *old);
/* Twin axis i is plain axis perm[i]. */
void tw_perm(uint32_t rank, uint32_t k, int64_t *perm);
/* Where plain axis `axis` is in the twin. */
uint32_t tw_axis(uint32_t rank, uint32_t k, uint32_t axis);
Shape tw_shape(const Shape *plain, uint32_t k);
/* Only the twin exists: whoever wants the plain form must have it made. */
bool tw_only(const Twins *t, ValueId v);
ValueId tw_plain(Twins *t, ValueId v);
/* Operand v of an operator over `rank` axes, with k channel axes last (numpy broadcasting). */
ValueId tw_last(Twins *t, ValueId v, uint32_t rank, uint32_t k);
/* Elements that would be moved to make the operand for either order; 0 when it is there or a view.
 */
uint64_t tw_cost_last(const Twins *t, ValueId v, uint32_t rank, uint32_t k);
uint64_t tw_cost_plain(const Twins *t, ValueId v);
/* The value `twin` is there already (tw_set), or was made for this (tw_make: it gets v's name). */
void tw_set(Twins *t, ValueId v, ValueId twin, uint32_t k);
void tw_make(Twins *t, ValueId v, ValueId twin, uint32_t k);
/* Appends old node n over the given operands and attributes; its outputs become twins. */
NodeId tw_node(Twins *t, const Node *n, const ValueId *in, const Attr *attr, uint32_t nattr,
               uint32_t k);

#endif
