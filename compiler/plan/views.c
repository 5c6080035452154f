/* views.c - a plan that also says when views that cost nothing are made, for readers of plans to
 * whom every operator is a run (the planning benchmark). Each runs right before the first run that
 * reads it, and again after its storage was dropped. */
#include "strategy.h"

typedef struct {
    Arena *a;
    const Graph *g;
    const Cost *c;
    bool *there;    /* per value: a free view that was made */
    ValueId *first; /* per storage: a chain of its free views that were made */
    ValueId *next;
    VEC(PlanStep) step;
    VEC(NodeId) stack;
} Views;

static bool is_free_view(const Views *x, NodeId n) {
    return n != NO_ID && op_node_class(&x->g->node[n]) == CLS_VIEW && !x->c->node_ns[n];
}

/* The chain of views up to one that is there, then down again. */
static void make(Views *x, ValueId v) {
    if (v == NO_ID) return;
    for (NodeId n = x->g->value[v].def; is_free_view(x, n) && !x->there[v];) {
        VEC_PUSH(x->a, x->stack, n);
        v = x->g->node[n].in[0];
        n = x->g->value[v].def;
    }
    while (x->stack.n) {
        NodeId n = x->stack.at[--x->stack.n];
        const Node *node = &x->g->node[n];
        PlanStep st = {.kind = STEP_RUN, .id = n, .inplace = NO_ID};
        st.out = ARENA_ARRAY(x->a, PlanOut, node->nout); /* PLACE_NONE */
        VEC_PUSH(x->a, x->step, st);
        for (uint32_t k = 0; k < node->nout; k++) {
            if (node->out[k] == NO_ID) continue;
            ValueId *first = &x->first[x->g->value[node->out[k]].storage];
            x->there[node->out[k]] = true;
            x->next[node->out[k]] = *first;
            *first = node->out[k];
        }
    }
}

static void forget(Views *x, StorageId s) {
    for (; x->first[s] != NO_ID; x->first[s] = x->next[x->first[s]]) x->there[x->first[s]] = false;
}

const Plan *plan_run_views(Arena *a, const Graph *g, const Cost *c, const Plan *p) {
    Views x = {.a = a, .g = g, .c = c};
    bool any = false;
    for (NodeId n = 0; n < g->nnode && !any; n++) any = is_free_view(&x, n);
    if (!any) return p;
    x.there = ARENA_ARRAY(a, bool, g->nvalue);
    x.next = ARENA_ARRAY(a, ValueId, g->nvalue);
    x.first = ARENA_ARRAY(a, ValueId, g->nstorage);
    for (StorageId s = 0; s < g->nstorage; s++) x.first[s] = NO_ID;
    for (uint32_t i = 0; i < p->nstep; i++) {
        const PlanStep *st = &p->step[i];
        const Node *n = st->kind == STEP_RUN ? &g->node[st->id] : NULL;
        for (uint32_t k = 0; n && k < n->nin; k++) make(&x, n->in[k]);
        VEC_PUSH(a, x.step, *st);
        StorageId gone = n ? st->inplace : st->id;
        if (gone != NO_ID) forget(&x, gone);
    }
    for (uint32_t i = 0; i < g->noutput; i++) make(&x, g->output[i]);
    Plan *out = ARENA_NEW(a, Plan);
    *out = *p;
    out->step = x.step.at;
    out->nstep = x.step.n;
    plan_fill_totals(g, c, out);
    return out;
}
