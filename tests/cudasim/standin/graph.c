/* graph.c - graphs: captured work that is launched again and again.
 *
 * A launch is one piece of work in its stream; its nodes run in an order that respects their edges
 * and is otherwise the seed's. Nodes that touch the same bytes and are not ordered by edges are
 * found when the graph is instantiated, whatever order they would run in.
 */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

enum { MAGIC = 0x47724170, EXEC_MAGIC = 0x45784563, MAX_RANGES = 1024 };

typedef struct {
    uint32_t magic;
    Graph *graph;
} Exec;

Graph *graph_new(void) {
    Graph *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->magic = MAGIC;
    g->refs = 1;
    return g;
}

void graph_drop(Graph *graph) {
    if (--graph->refs) return;
    for (uint32_t i = 0; i < graph->count; i++) {
        op_free(graph->nodes[i].op);
        free(graph->nodes[i].needs);
    }
    free(graph->nodes);
    free(graph);
}

CUgraph graph_handle(Graph *graph) {
    return (CUgraph)(void *)graph;
}

uint32_t graph_add(Graph *graph, SimOp *op, const uint32_t *needs, uint32_t nneeds) {
    if (graph->count == graph->capacity) {
        graph->capacity = graph->capacity ? 2 * graph->capacity : 64;
        graph->nodes = realloc(graph->nodes, graph->capacity * sizeof *graph->nodes);
        if (!graph->nodes) abort();
    }
    Node *node = &graph->nodes[graph->count];
    *node = (Node){.op = op, .nneeds = nneeds, .needs = malloc((nneeds + 1) * sizeof *needs)};
    if (!node->needs) abort();
    if (nneeds) memcpy(node->needs, needs, nneeds * sizeof *needs);
    return graph->count++;
}

void graph_reach(const Graph *graph, const uint32_t *from, uint32_t n, bool *reached) {
    for (uint32_t i = 0; i < n; i++) reached[from[i]] = true;
    for (uint32_t i = graph->count; i-- > 0;) { /* edges go to lower indices */
        const Node *node = &graph->nodes[i];
        for (uint32_t k = 0; reached[i] && k < node->nneeds; k++) reached[node->needs[k]] = true;
    }
}

static uint32_t ranges_of(const SimOp *op, SimRange *ranges) {
    if (!op->nranges) return sim_step_ranges(op->step, ranges, MAX_RANGES);
    for (uint32_t i = 0; i < op->nranges; i++) ranges[i] = op->ranges[i].range;
    return op->nranges;
}

static void compare(const SimOp *a, const SimOp *b) {
    static SimRange of_a[MAX_RANGES], of_b[MAX_RANGES];
    uint32_t na = ranges_of(a, of_a), nb = ranges_of(b, of_b);
    for (uint32_t i = 0; i < na; i++) {
        for (uint32_t k = 0; k < nb; k++) {
            const SimRange *x = &of_a[i], *y = &of_b[k];
            if (x->at >= y->at + y->bytes || y->at >= x->at + x->bytes || !(x->write || y->write))
                continue;
            sim_finding("race in a graph: %s and %s touch %s and no edge orders them", a->name,
                        b->name, sim_place(x->at > y->at ? x->at : y->at));
            return;
        }
    }
}

/* Every pair of nodes of which neither is before the other. */
static void find_races(const Graph *graph) {
    bool *before = malloc(graph->count + 1);
    if (!before) abort();
    for (uint32_t i = 0; i < graph->count; i++) {
        memset(before, 0, graph->count + 1);
        graph_reach(graph, &i, 1, before);
        for (uint32_t k = 0; k < i; k++)
            if (!before[k]) compare(graph->nodes[k].op, graph->nodes[i].op);
    }
    free(before);
}

/* Who needs node i: list[from[i]] to list[from[i + 1] - 1]. */
typedef struct {
    uint32_t *from, *list;
} Users;

static Users users_of(const Graph *graph) {
    uint32_t n = graph->count, edges = 0;
    for (uint32_t i = 0; i < n; i++) edges += graph->nodes[i].nneeds;
    Users u = {calloc(n + 2, sizeof *u.from), calloc(edges + 1, sizeof *u.list)};
    if (!u.from || !u.list) abort();
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < graph->nodes[i].nneeds; k++)
            u.from[graph->nodes[i].needs[k] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++) u.from[i] += u.from[i - 1];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < graph->nodes[i].nneeds; k++)
            u.list[u.from[graph->nodes[i].needs[k] + 1]++] = i;
    return u;
}

static void run_graph(void *payload, SimOp *op) {
    Graph *graph;
    memcpy(&graph, payload, sizeof graph);
    Users users = users_of(graph);
    uint32_t *ready = malloc((graph->count + 1) * sizeof *ready), n = 0;
    uint32_t *open = calloc(graph->count + 1, sizeof *open);
    if (!ready || !open) abort();
    for (uint32_t i = 0; i < graph->count; i++) {
        open[i] = graph->nodes[i].nneeds;
        if (!open[i]) ready[n++] = i;
    }
    while (n) {
        uint32_t pick = sim_random(n), node = ready[pick];
        ready[pick] = ready[--n];
        op_run(graph->nodes[node].op, op->stream);
        for (uint32_t i = users.from[node]; i < users.from[node + 1]; i++)
            if (--open[users.list[i]] == 0) ready[n++] = users.list[i];
    }
    free(ready);
    free(open);
    free(users.from);
    free(users.list);
    graph_drop(graph);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph handle, unsigned long long flags) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    Graph *graph = (Graph *)(void *)handle;
    if (!graph || graph->magic != MAGIC || flags) return CUDA_ERROR_INVALID_VALUE;
    find_races(graph);
    Exec *e = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    *e = (Exec){EXEC_MAGIC, graph};
    graph->refs++;
    *exec = (CUgraphExec)(void *)e;
    sim_object("executable graphs", 1);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    const Exec *e = (const Exec *)(void *)handle;
    SimStream *s = stream_of(stream);
    if (!s || !e || e->magic != EXEC_MAGIC) return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = capture_forbids(s, __func__);
    if (r != CUDA_SUCCESS) return r;
    if (s->capture) {
        sim_finding("cuGraphLaunch inside a capture");
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < e->graph->count; i++) op_pin(e->graph->nodes[i].op);
    e->graph->refs++;
    SimOp *op = op_new(&(SimWork){.name = "cuGraphLaunch",
                                  .run = run_graph,
                                  .payload = &e->graph,
                                  .payload_bytes = sizeof(Graph *)});
    return stream_append(s, op);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
    SIM_ENTER_SURE;
    Exec *e = (Exec *)(void *)handle;
    if (!e || e->magic != EXEC_MAGIC) return CUDA_ERROR_INVALID_HANDLE;
    e->magic = 0;
    sim_keep(e);
    graph_drop(e->graph);
    sim_object("executable graphs", -1);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
    SIM_ENTER_SURE;
    Graph *graph = (Graph *)(void *)handle;
    if (!graph || graph->magic != MAGIC) return CUDA_ERROR_INVALID_HANDLE;
    graph_drop(graph);
    sim_object("graphs", -1);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    SIM_ENTER(CUDA_ERROR_UNKNOWN);
    const Graph *graph = (const Graph *)(void *)handle;
    if (!graph || graph->magic != MAGIC || nodes) return CUDA_ERROR_INVALID_VALUE;
    *count = 0;
    for (uint32_t i = 0; i < graph->count; i++) *count += !graph->nodes[i].op->watch;
    return CUDA_SUCCESS;
}
