/* flow.h - minimum cut by push-relabel, for networks that are solved again and again under growing
 * capacities. Internal to the room.
 *
 * Use: flow_begin, flow_arc for each arc, flow_ready; then flow_raise and flow_cut any number of
 * times. Only capacities change, and only upwards; flow_save and flow_load go back to an earlier
 * state. Node 0 is the source, node 1 the sink. */
#ifndef DTRC_FLOW_H
#define DTRC_FLOW_H

#include "base.h"

enum { FLOW_SOURCE, FLOW_SINK, FLOW_NODES /* the first free number */ };
/* Capacities and the sum of those that enter one node must stay below this. */
#define FLOW_INFINITE (INT64_C(1) << 60)

typedef struct {
    int64_t *rest, *excess; /* per arc entry: residual capacity; per node */
} FlowState;

typedef struct {
    uint32_t nnode, narc;
    uint32_t *from, *to; /* per arc, as given */
    uint32_t *slot;      /* per arc: its entry; arc entries of node v are first[v] .. first[v+1) */
    uint32_t *first, *head, *twin; /* head and opposite entry, per entry */
    FlowState now;
    uint32_t *label, *current; /* per node: lower bound on the distance to the sink; next entry */
    uint32_t *active, *next_active; /* stacks of active nodes, per label */
    uint32_t *bucket, *next, *prev; /* lists of all nodes, per label */
    uint32_t *queue;
    uint32_t highest, top; /* highest label that is active; that is in use */
    uint64_t work;         /* entries looked at since flow_new */
} Flow;

Flow *flow_new(Arena *a, uint32_t max_nodes, uint32_t max_arcs);
void flow_begin(Flow *f);
uint32_t flow_arc(Flow *f, uint32_t from, uint32_t to); /* its number; capacity 0 */
void flow_ready(Flow *f, uint32_t nnode);
void flow_raise(Flow *f, uint32_t arc, int64_t by);
/* Value of a minimum cut. */
int64_t flow_cut(Flow *f);
FlowState flow_state_new(Arena *a, uint32_t max_nodes, uint32_t max_arcs);
void flow_save(const Flow *f, FlowState *to);
void flow_load(Flow *f, const FlowState *from);

/* After flow_cut, of the minimum cuts the one with the most nodes beside the source. */
static inline bool flow_beside_source(const Flow *f, uint32_t node) {
    return f->label[node] >= f->nnode;
}

#endif
