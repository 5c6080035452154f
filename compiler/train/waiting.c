/* waiting.c - updates that wait for each other: the step with small updates side by side, for
 * targets where a launch costs more than a small update (the runtime makes one launch of
 * neighbours).
 *
 * An update may stand anywhere behind its place (I5: nobody reads the weight any more), but its
 * gradient waits with it. So updates are collected in order for as long as their gradients are
 * together no more than 1 / SHARE of all gradients; the one that would make them more stands where
 * it did, and those that wait go with it. All gradients together are as large as the weights, and
 * a step has these, optimizer states and activations at its peak: what waits is a percent of it at
 * most. The order depends on the sizes of parameters alone: on no budget, and not on the batch. */
#include "step.h"

#include <assert.h>
#include <string.h>

enum { SHARE = 64 };

/* Bytes that an update's operands hold until it runs; 0 for other nodes. */
static uint64_t gradient_bytes(const Graph *g, const Node *n) {
    uint64_t bytes = 0;
    if (n->phase != PHASE_UPDATE) return 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        const Storage *s = n->in[i] == NO_ID ? NULL : &g->storage[g->value[n->in[i]].storage];
        if (s && !s->persistent) bytes += s->bytes;
    }
    return bytes;
}

typedef struct {
    Graph *g;
    const Node *old;
    NodeId at;
} Order;

static void put(Order *o, NodeId id) {
    const Node *n = &o->old[id];
    for (uint32_t k = 0; k < n->nout; k++)
        if (n->out[k] != NO_ID) o->g->value[n->out[k]].def = o->at;
    o->g->node[o->at++] = *n;
}

Graph *train_join_updates(Arena *a, const Graph *g) {
    Arena *scratch = arena_new();
    Order o = {step_copy(a, g), g->node, 0};
    uint64_t all = 0, waits = 0;
    VEC(NodeId) waiting = {0};
    for (NodeId n = 0; n < g->nnode; n++) all += gradient_bytes(g, &g->node[n]);
    for (NodeId n = 0; n < g->nnode; n++) {
        uint64_t bytes = gradient_bytes(g, &g->node[n]);
        if (bytes && waits + bytes <= all / SHARE) {
            waits += bytes;
            VEC_PUSH(scratch, waiting, n);
            continue;
        }
        if (bytes) {
            for (uint32_t i = 0; i < waiting.n; i++) put(&o, waiting.at[i]);
            waiting.n = 0;
            waits = 0;
        }
        put(&o, n);
    }
    for (uint32_t i = 0; i < waiting.n; i++) put(&o, waiting.at[i]);
    assert(o.at == g->nnode);
    arena_free(scratch);
    return o.g;
}
