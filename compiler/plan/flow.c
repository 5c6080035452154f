/* flow.c - minimum cut by push-relabel: highest label first, with exact distances once in a while
 * and gaps (Goldberg and Tarjan, J. ACM 1988; Cherkassky and Goldberg, Algorithmica 1997).
 *
 * Only the first phase: a maximum preflow gives the minimum cut; excess that cannot reach the sink
 * stays where it is. A preflow stays one when capacities grow, so the next cut under larger
 * capacities begins with it: distances are computed anew, and stranded excess that can reach the
 * sink again moves on. */
#include "flow.h"

#include <string.h>

FlowState flow_state_new(Arena *a, uint32_t max_nodes, uint32_t max_arcs) {
    return (FlowState){ARENA_ARRAY(a, int64_t, 2 * (uint64_t)max_arcs),
                       ARENA_ARRAY(a, int64_t, max_nodes)};
}

Flow *flow_new(Arena *a, uint32_t max_nodes, uint32_t max_arcs) {
    Flow *f = ARENA_NEW(a, Flow);
    uint64_t n = (uint64_t)max_nodes + 1, m = 2 * (uint64_t)max_arcs;
    f->from = ARENA_ARRAY(a, uint32_t, max_arcs);
    f->to = ARENA_ARRAY(a, uint32_t, max_arcs);
    f->slot = ARENA_ARRAY(a, uint32_t, max_arcs);
    f->head = ARENA_ARRAY(a, uint32_t, m);
    f->twin = ARENA_ARRAY(a, uint32_t, m);
    f->now = flow_state_new(a, max_nodes, max_arcs);
    f->first = ARENA_ARRAY(a, uint32_t, n);
    uint32_t **per_node[] = {&f->label,  &f->current, &f->active, &f->next_active,
                             &f->bucket, &f->next,    &f->prev,   &f->queue};
    for (size_t i = 0; i < sizeof per_node / sizeof *per_node; i++)
        *per_node[i] = ARENA_ARRAY(a, uint32_t, n);
    return f;
}

void flow_begin(Flow *f) {
    f->narc = 0;
}

uint32_t flow_arc(Flow *f, uint32_t from, uint32_t to) {
    f->from[f->narc] = from;
    f->to[f->narc] = to;
    return f->narc++;
}

void flow_ready(Flow *f, uint32_t nnode) {
    uint32_t n = f->nnode = nnode, *at = f->queue;
    memset(f->first, 0, (n + 1) * sizeof *f->first);
    for (uint32_t k = 0; k < f->narc; k++) f->first[f->from[k] + 1]++, f->first[f->to[k] + 1]++;
    for (uint32_t v = 0; v < n; v++) f->first[v + 1] += f->first[v];
    memcpy(at, f->first, n * sizeof *at);
    for (uint32_t k = 0; k < f->narc; k++) {
        uint32_t out = at[f->from[k]]++, back = at[f->to[k]]++;
        f->slot[k] = out;
        f->head[out] = f->to[k];
        f->head[back] = f->from[k];
        f->twin[out] = back;
        f->twin[back] = out;
    }
    memset(f->now.rest, 0, 2 * (size_t)f->narc * sizeof *f->now.rest);
    memset(f->now.excess, 0, n * sizeof *f->now.excess);
}

void flow_raise(Flow *f, uint32_t arc, int64_t by) {
    f->now.rest[f->slot[arc]] += by;
}

void flow_save(const Flow *f, FlowState *to) {
    memcpy(to->rest, f->now.rest, 2 * (size_t)f->narc * sizeof *to->rest);
    memcpy(to->excess, f->now.excess, f->nnode * sizeof *to->excess);
}

void flow_load(Flow *f, const FlowState *from) {
    memcpy(f->now.rest, from->rest, 2 * (size_t)f->narc * sizeof *from->rest);
    memcpy(f->now.excess, from->excess, f->nnode * sizeof *from->excess);
}

/* ---- lists by label ---- */

static void activate(Flow *f, uint32_t v) {
    uint32_t l = f->label[v];
    f->next_active[v] = f->active[l];
    f->active[l] = v;
    if (l > f->highest) f->highest = l;
}

static void enlist(Flow *f, uint32_t v) {
    uint32_t l = f->label[v], first = f->bucket[l];
    f->prev[v] = NO_ID;
    f->next[v] = first;
    if (first != NO_ID) f->prev[first] = v;
    f->bucket[l] = v;
    if (l > f->top) f->top = l;
}

static void delist(Flow *f, uint32_t v) {
    if (f->next[v] != NO_ID) f->prev[f->next[v]] = f->prev[v];
    if (f->prev[v] != NO_ID)
        f->next[f->prev[v]] = f->next[v];
    else
        f->bucket[f->label[v]] = f->next[v];
}

/* Exact distances to the sink in the residual network; what cannot reach it gets label nnode. */
static void measure(Flow *f) {
    uint32_t n = f->nnode, head = 0, tail = 0;
    for (uint32_t v = 0; v <= n; v++) f->active[v] = f->bucket[v] = NO_ID;
    for (uint32_t v = 0; v < n; v++) f->label[v] = n;
    f->highest = f->top = 0;
    f->label[FLOW_SINK] = 0;
    f->queue[tail++] = FLOW_SINK;
    while (head < tail) {
        uint32_t v = f->queue[head++];
        f->work += f->first[v + 1] - f->first[v];
        for (uint32_t e = f->first[v]; e < f->first[v + 1]; e++) {
            uint32_t u = f->head[e];
            if (f->label[u] != n || u == FLOW_SOURCE || !f->now.rest[f->twin[e]]) continue;
            f->label[u] = f->label[v] + 1;
            f->current[u] = f->first[u];
            enlist(f, u);
            if (f->now.excess[u]) activate(f, u);
            f->queue[tail++] = u;
        }
    }
}

/* No node has label `gap`: nodes above it cannot reach the sink. */
static void close_gap(Flow *f, uint32_t gap) {
    for (uint32_t l = gap + 1; l <= f->top; l++) {
        for (uint32_t v = f->bucket[l]; v != NO_ID; v = f->next[v]) f->label[v] = f->nnode;
        f->bucket[l] = f->active[l] = NO_ID;
    }
    f->top = gap;
}

static void relabel(Flow *f, uint32_t v) {
    uint32_t old = f->label[v], low = f->nnode;
    f->work += f->first[v + 1] - f->first[v];
    for (uint32_t e = f->first[v]; e < f->first[v + 1]; e++) {
        if (!f->now.rest[e] || f->label[f->head[e]] + 1 >= low) continue;
        low = f->label[f->head[e]] + 1;
        f->current[v] = e;
    }
    delist(f, v);
    f->label[v] = low;
    if (low < f->nnode) enlist(f, v);
    if (f->bucket[old] == NO_ID) close_gap(f, old);
}

static void push_all(Flow *f, uint32_t v) {
    int64_t *rest = f->now.rest, *excess = f->now.excess;
    while (f->label[v] < f->nnode) {
        uint32_t e = f->current[v], end = f->first[v + 1];
        for (; e < end; e++) {
            uint32_t u = f->head[e];
            if (!rest[e] || f->label[u] + 1 != f->label[v]) continue;
            int64_t by = rest[e] < excess[v] ? rest[e] : excess[v];
            if (!excess[u] && u != FLOW_SINK) activate(f, u);
            rest[e] -= by;
            rest[f->twin[e]] += by;
            excess[u] += by;
            excess[v] -= by;
            if (!excess[v]) break;
        }
        f->work += e - f->current[v] + 1;
        f->current[v] = e;
        if (!excess[v]) return;
        relabel(f, v);
    }
}

static void fill_from_source(Flow *f) {
    for (uint32_t e = f->first[FLOW_SOURCE]; e < f->first[FLOW_SOURCE + 1]; e++) {
        int64_t by = f->now.rest[e];
        f->now.rest[e] = 0;
        f->now.rest[f->twin[e]] += by;
        f->now.excess[f->head[e]] += by;
    }
}

int64_t flow_cut(Flow *f) {
    fill_from_source(f);
    measure(f);
    uint64_t limit = f->work + 6 * (uint64_t)f->nnode + 2 * (uint64_t)f->narc;
    for (;;) {
        while (f->highest && f->active[f->highest] == NO_ID) f->highest--;
        if (!f->highest) break;
        uint32_t v = f->active[f->highest];
        f->active[f->highest] = f->next_active[v];
        if (f->label[v] != f->highest) continue; /* above a gap by now */
        push_all(f, v);
        if (f->work < limit) continue;
        measure(f);
        limit = f->work + 6 * (uint64_t)f->nnode + 2 * (uint64_t)f->narc;
    }
    measure(f);
    return f->now.excess[FLOW_SINK];
}
