/* verify.c - independent check of a plan against plan.h's invariants P1 to P6 by replaying it.
 * Works on the Graph and the Cost alone; shares no code with the strategies. Reports the first
 * violation. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

typedef struct {
    uint64_t from, to;
    uint32_t what; /* storage; NO_ID: scratch or workspace of the current run */
} Span;

typedef struct {
    Diag *d;
    const Graph *g;
    const Cost *c;
    const Plan *p;
    Arena *a;
    bool *there;          /* per storage */
    uint64_t *offset;     /* per storage that is there */
    uint32_t *runs;       /* per node */
    bool *mutated;        /* per storage */
    NodeId *last_mutator; /* per storage */
    bool *view_there;     /* per value: result of a view that costs something */
    bool has_views;       /* there is such a view */
    Span *span;           /* occupied parts of the arena, by address */
    uint32_t nspan;
    uint64_t bytes, peak, high, cost_ns;
    uint32_t step;
} Check;

static bool bad(Check *k, NodeId n, ValueId v, const char *what) {
    Place p = n == NO_ID && v == NO_ID ? (Place){.file = k->g->file} : ir_place(k->g, n, v);
    return diag_error(k->d, p, "plan step %u: %s", k->step, what);
}

static uint64_t rounded(const Check *k, uint64_t bytes) {
    return k->p->placed ? round_up(bytes ? bytes : 1, PLAN_ALIGN) : bytes;
}

static uint64_t storage_size(const Check *k, StorageId s) {
    return rounded(k, k->c->storage_bytes[s]);
}

/* First span that ends above `at`. */
static uint32_t span_at(const Check *k, uint64_t at) {
    uint32_t lo = 0, hi = k->nspan;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (k->span[mid].to <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool occupy(Check *k, NodeId n, ValueId v, uint64_t at, uint64_t bytes, uint32_t what) {
    k->bytes += bytes;
    if (k->bytes > k->peak) k->peak = k->bytes;
    if (!k->p->placed || !bytes) return true;
    uint64_t end;
    if (at % PLAN_ALIGN) return bad(k, n, v, "offset is not aligned (P4)");
    if (!checked_add(at, bytes, &end) || end > k->p->arena_bytes)
        return bad(k, n, v, "lies past the end of the arena (P4)");
    uint32_t i = span_at(k, at);
    if (i < k->nspan && k->span[i].from < end)
        return bad(k, n, v, "overlaps something that is resident (P4)");
    memmove(k->span + i + 1, k->span + i, (k->nspan - i) * sizeof *k->span);
    k->span[i] = (Span){at, end, what};
    k->nspan++;
    if (end > k->high) k->high = end;
    return true;
}

static void vacate(Check *k, uint64_t at, uint64_t bytes) {
    k->bytes -= bytes;
    if (!k->p->placed || !bytes) return;
    uint32_t i = span_at(k, at);
    memmove(k->span + i, k->span + i + 1, (k->nspan - i - 1) * sizeof *k->span);
    k->nspan--;
}

static void forget(Check *k, StorageId s) {
    k->there[s] = false;
    for (ValueId v = 0; v < k->g->nvalue && k->has_views; v++)
        if (k->view_there[v] && k->g->value[v].storage == s) k->view_there[v] = false;
}

/* Is value v there? Views that cost nothing are there with their storage. */
static bool has_value(const Check *k, ValueId v) {
    const Value *x = &k->g->value[v];
    if (!k->g->storage[x->storage].persistent && !k->there[x->storage]) return false;
    for (NodeId def = x->def; def != NO_ID; def = x->def) {
        const Node *n = &k->g->node[def];
        if (op_node_class(n) != CLS_VIEW) return true;
        if (k->c->node_ns[def]) return k->view_there[v];
        v = n->in[0];
        x = &k->g->value[v];
    }
    return true;
}

static bool reads(const Graph *g, const Node *n, StorageId s) {
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NO_ID && g->value[n->in[i]].storage == s) return true;
    return false;
}

static bool mutates_input(const Node *n, uint32_t i) {
    return op_node_class(n) == CLS_EFFECT && i < 32 && op_def(n->op)->mutates >> i & 1;
}

/* P2, P3 */
static bool check_inputs(Check *k, NodeId id) {
    const Node *n = &k->g->node[id];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NO_ID) continue;
        StorageId s = k->g->value[n->in[i]].storage;
        if (!has_value(k, n->in[i]))
            return bad(k, id, n->in[i], "runs while an input is not there (P2)");
        if (!k->mutated[s]) continue;
        if (!mutates_input(n, i))
            return bad(k, id, n->in[i], "reads a value that was updated already (P3)");
        if (k->last_mutator[s] > id)
            return bad(k, id, n->in[i], "updates a value out of order (P3)");
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NO_ID || !mutates_input(n, i)) continue;
        StorageId s = k->g->value[n->in[i]].storage;
        k->mutated[s] = true;
        k->last_mutator[s] = id;
    }
    return true;
}

/* P5: may output 0 of the node overwrite storage s? */
static bool may_overwrite(const Check *k, const Node *n, StorageId s) {
    const Graph *g = k->g;
    if (!n->nout || n->out[0] == NO_ID) return false;
    const Value *y = &g->value[n->out[0]];
    uint64_t elements = value_count(g, n->out[0]), space = elements;
    if (n->body) {
        const FusedInst *made_by = &n->body->inst[n->body->out_inst[0]];
        if (op_def(made_by->op)->flags & OPF_COLREDUCE) return false;
        if (!shape_count(&n->body->space, &space) || space != elements) return false;
    }
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NO_ID || g->value[n->in[i]].storage != s) continue;
        const OpDef *def = op_def(n->op);
        bool allowed = n->body || def->flags & OPF_EW || (i < 32 && def->inplace >> i & 1);
        if (!allowed || value_count(g, n->in[i]) != elements) return false;
        if (g->value[n->in[i]].dtype != y->dtype) return false;
    }
    return reads(g, n, s) && k->c->storage_bytes[s] == k->c->storage_bytes[y->storage];
}

static bool check_inplace(Check *k, NodeId id, const PlanStep *st) {
    const Node *n = &k->g->node[id];
    StorageId s = st->inplace;
    if (s >= k->g->nstorage || k->g->storage[s].persistent || !k->there[s])
        return bad(k, id, NO_ID, "in place of something that is not in the arena (P5)");
    if (!may_overwrite(k, n, s))
        return bad(k, id, n->nout ? n->out[0] : NO_ID, "may not work in place here (P5)");
    if (st->out[0].place != PLACE_RESIDENT)
        return bad(k, id, n->out[0], "works in place but its result does not stay (P5)");
    if (k->p->placed && st->out[0].offset != k->offset[s])
        return bad(k, id, n->out[0], "works in place at another offset (P5)");
    return true;
}

/* P4, P5. Scratch and workspace are held until all of the run is placed. */
static bool check_outputs(Check *k, NodeId id, const PlanStep *st) {
    const Node *n = &k->g->node[id];
    for (uint32_t o = 0; o < n->nout; o++) {
        ValueId v = n->out[o];
        bool bytes = v != NO_ID && !k->g->storage[k->g->value[v].storage].persistent &&
                     op_node_class(n) != CLS_VIEW;
        PlanOut out = st->out[o];
        if (!bytes) {
            if (out.place != PLACE_NONE) return bad(k, id, v, "has no bytes to place (P4)");
            if (v != NO_ID) k->view_there[v] = true;
            continue;
        }
        StorageId s = k->g->value[v].storage;
        if (out.place != PLACE_RESIDENT && out.place != PLACE_SCRATCH)
            return bad(k, id, v, "has no place (P4)");
        if (out.place == PLACE_RESIDENT && k->there[s])
            return bad(k, id, v, "is resident already (P4)");
        if (o == 0 && st->inplace != NO_ID) {
            vacate(k, k->offset[st->inplace], storage_size(k, st->inplace));
            forget(k, st->inplace);
        }
        if (!occupy(k, id, v, out.offset, storage_size(k, s),
                    out.place == PLACE_RESIDENT ? s : NO_ID))
            return false;
        if (out.place == PLACE_RESIDENT) {
            k->there[s] = true;
            k->offset[s] = out.offset;
        }
    }
    uint64_t ws = k->c->node_workspace[id];
    if (ws && !occupy(k, id, NO_ID, st->workspace, rounded(k, ws), NO_ID)) return false;
    for (uint32_t o = 0; o < n->nout; o++)
        if (st->out[o].place == PLACE_SCRATCH)
            vacate(k, st->out[o].offset, storage_size(k, k->g->value[n->out[o]].storage));
    if (ws) vacate(k, st->workspace, rounded(k, ws));
    return true;
}

static bool check_run(Check *k, const PlanStep *st) {
    if (st->id >= k->g->nnode) return bad(k, NO_ID, NO_ID, "no such node");
    const Node *n = &k->g->node[st->id];
    bool effect = op_node_class(n) == CLS_EFFECT;
    if (effect && k->runs[st->id])
        return bad(k, st->id, NO_ID, "has an effect but runs twice (P1)");
    TRY(check_inputs(k, st->id));
    if (st->inplace != NO_ID) TRY(check_inplace(k, st->id, st));
    TRY(check_outputs(k, st->id, st));
    k->runs[st->id]++;
    if (__builtin_add_overflow(k->cost_ns, k->c->node_ns[st->id], &k->cost_ns))
        return bad(k, st->id, NO_ID, "time overflows");
    return true;
}

static bool check_drop(Check *k, const PlanStep *st) {
    StorageId s = st->id;
    if (s >= k->g->nstorage || k->g->storage[s].persistent || !k->there[s])
        return bad(k, NO_ID, NO_ID, "drops something that is not in the arena");
    vacate(k, k->offset[s], storage_size(k, s));
    forget(k, s);
    return true;
}

/* P1, P6 and the totals of the header */
static bool check_end(Check *k) {
    const Plan *p = k->p;
    uint64_t persistent = 0, need, runs = 0;
    uint32_t again = 0;
    for (NodeId n = 0; n < k->g->nnode; n++) {
        bool free_view = op_node_class(&k->g->node[n]) == CLS_VIEW && !k->c->node_ns[n];
        if (!k->runs[n] && !free_view) return bad(k, n, NO_ID, "never runs (P1)");
        if (k->runs[n]) again += k->runs[n] - 1;
        if (!free_view) runs += k->c->node_ns[n];
    }
    for (uint32_t i = 0; i < k->g->noutput; i++)
        if (!has_value(k, k->g->output[i]))
            return bad(k, NO_ID, k->g->output[i], "is not there at the end (P6)");
    for (StorageId s = 0; s < k->g->nstorage; s++)
        if (k->g->storage[s].persistent) {
            uint64_t b = k->c->storage_bytes[s];
            if (!checked_add(persistent, p->placed ? round_up(b, PLAN_ALIGN) : b, &persistent))
                return bad(k, NO_ID, NO_ID, "persistent bytes overflow");
        }
    if (p->persistent_bytes != persistent) return bad(k, NO_ID, NO_ID, "persistent_bytes is wrong");
    if (p->cost_ns != k->cost_ns || p->base_ns != runs)
        return bad(k, NO_ID, NO_ID, "cost is wrong");
    if (p->recomputed_runs != again) return bad(k, NO_ID, NO_ID, "recomputed_runs is wrong");
    if (p->byte_peak != k->peak) return bad(k, NO_ID, NO_ID, "byte_peak is wrong");
    if (p->arena_bytes != (p->placed ? k->high : k->peak))
        return bad(k, NO_ID, NO_ID, "arena_bytes is wrong");
    if (!checked_add(persistent, p->arena_bytes, &need) || need > p->budget)
        return bad(k, NO_ID, NO_ID, "persistent and arena bytes are over the budget (P4)");
    return true;
}

bool plan_verify(Diag *d, const Graph *g, const Cost *c, const Plan *p) {
    Arena *a = arena_new();
    Check k = {.d = d, .g = g, .c = c, .p = p, .a = a};
    k.there = ARENA_ARRAY(a, bool, g->nstorage);
    k.offset = ARENA_ARRAY(a, uint64_t, g->nstorage);
    k.mutated = ARENA_ARRAY(a, bool, g->nstorage);
    k.last_mutator = ARENA_ARRAY(a, NodeId, g->nstorage);
    k.view_there = ARENA_ARRAY(a, bool, g->nvalue);
    k.runs = ARENA_ARRAY(a, uint32_t, g->nnode);
    uint32_t most = 1; /* outputs of one node, and its workspace */
    for (NodeId n = 0; n < g->nnode; n++) {
        if (g->node[n].nout >= most) most = g->node[n].nout + 1;
        k.has_views |= op_node_class(&g->node[n]) == CLS_VIEW && c->node_ns[n];
    }
    k.span = ARENA_ARRAY(a, Span, (uint64_t)g->nstorage + most + 1);
    bool ok = true;
    for (k.step = 0; k.step < p->nstep && ok; k.step++) {
        const PlanStep *st = &p->step[k.step];
        ok = st->kind == STEP_RUN ? check_run(&k, st) : check_drop(&k, st);
    }
    ok = ok && check_end(&k);
    arena_free(a);
    return ok;
}
