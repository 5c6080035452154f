/* opaque.c - the cost of a planning trace: every node says its time and workspace in attributes;
 * storages are as large as their shapes say. */
#include "cost.h"

Cost *cost_opaque(Arena *a, const Graph *g) {
    Cost *c = ARENA_NEW(a, Cost);
    *c = (Cost){ARENA_ARRAY(a, uint64_t, g->nnode), ARENA_ARRAY(a, uint64_t, g->nnode),
                ARENA_ARRAY(a, uint64_t, g->nstorage), ARENA_ARRAY(a, bool, g->nvalue), 1};
    for (StorageId s = 0; s < g->nstorage; s++) c->storage_bytes[s] = g->storage[s].bytes;
    for (NodeId n = 0; n < g->nnode; n++) {
        int64_t ns = ir_get_i(&g->node[n], A_cost_ns, 0),
                ws = ir_get_i(&g->node[n], A_workspace, 0);
        bool view = op_node_class(&g->node[n]) == CLS_VIEW;
        c->node_ns[n] = ns > 0 ? (uint64_t)ns : view ? 0 : 1;
        c->node_workspace[n] = ws > 0 ? (uint64_t)ws : 0;
    }
    return c;
}
