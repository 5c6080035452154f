/* verify.c - checks the invariants I1..I6 of ir.h and the ranges of every id, on its own: it uses
 * nothing of the code that builds graphs. All violations are reported; checks that would read past
 * a broken id are left out. */
#include "ir.h"

#include <string.h>

typedef struct {
    Diag *d;
    const Graph *g;
    bool ok;
} Check;

static void __attribute__((format(printf, 4, 5)))
fault(Check *c, NodeId n, ValueId v, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *msg = arena_vprintf(c->d->arena, fmt, ap);
    va_end(ap);
    Place p = {.file = c->g->file};
    if (n != NO_ID) {
        p.node = c->g->node[n].name;
        p.op = ir_op_name(c->g->node[n].op);
    }
    if (v != NO_ID) p.tensor = c->g->value[v].name;
    c->ok = diag_error(c->d, p, "%s", msg);
}

/* ---- ids and values ----------------------------------------------------------------------- */

static bool is_value(const Graph *g, ValueId v, bool optional) {
    return v < g->nvalue || (optional && v == NO_ID);
}

static void check_value_ids(Check *c, ValueId v) {
    const Graph *g = c->g;
    const Value *x = &g->value[v];
    if (!x->name) fault(c, NO_ID, NO_ID, "value %u has no name", v);
    if (x->dtype >= DT_COUNT || x->role >= ROLE_COUNT)
        fault(c, NO_ID, v, "value %u has dtype %d and role %d", v, (int)x->dtype, (int)x->role);
    if (x->storage >= g->nstorage)
        fault(c, NO_ID, v, "value %u has storage %u of %u", v, x->storage, g->nstorage);
    if (x->def != NO_ID && x->def >= g->nnode)
        fault(c, NO_ID, v, "value %u has defining node %u of %u", v, x->def, g->nnode);
    if (!is_value(g, x->param, true))
        fault(c, NO_ID, v, "value %u belongs to value %u of %u", v, x->param, g->nvalue);
    if (x->shape.rank > IR_MAX_RANK) fault(c, NO_ID, v, "value %u has %u axes", v, x->shape.rank);
    for (uint32_t i = 0; i < x->shape.rank && i < IR_MAX_RANK; i++)
        if (x->shape.dim[i] < 0)
            fault(c, NO_ID, v, "value %u has size %lld on axis %u", v, (long long)x->shape.dim[i],
                  i);
}

static void check_body_ids(Check *c, NodeId n) {
    const Node *x = &c->g->node[n];
    const FusedBody *b = x->body;
    if ((x->op == OP_Fused) != (b != NULL)) {
        fault(c, n, NO_ID, "node %u: only Fused nodes have a body", n);
        return;
    }
    if (!b) return;
    for (uint32_t i = 0; i < b->ninst; i++) {
        if (b->inst[i].op == OP_NONE || b->inst[i].op >= OP_COUNT)
            fault(c, n, NO_ID, "node %u: instruction %u has operator %u", n, i, b->inst[i].op);
        for (uint32_t k = 0; k < b->inst[i].narg; k++)
            if (b->inst[i].arg[k] >= x->nin + i)
                fault(c, n, NO_ID, "node %u: instruction %u reads operand %u, expected below %u", n,
                      i, b->inst[i].arg[k], x->nin + i);
    }
    for (uint32_t k = 0; k < x->nout; k++)
        if (b->out_inst[k] >= b->ninst || b->out_res[k] > 2)
            fault(c, n, NO_ID, "node %u: output %u is result %u of instruction %u of %u", n, k,
                  b->out_res[k], b->out_inst[k], b->ninst);
}

static void check_node_ids(Check *c, NodeId n) {
    const Graph *g = c->g;
    const Node *x = &g->node[n];
    if (!x->name) fault(c, NO_ID, NO_ID, "node %u has no name", n);
    if (x->op == OP_NONE || x->op >= OP_COUNT)
        fault(c, NO_ID, NO_ID, "node %u has operator %u", n, x->op);
    if (x->phase > PHASE_UPDATE) fault(c, NO_ID, NO_ID, "node %u has phase %d", n, (int)x->phase);
    for (uint32_t i = 0; i < x->nin; i++)
        if (!is_value(g, x->in[i], true))
            fault(c, n, NO_ID, "node %u: input %u is value %u", n, i, x->in[i]);
    for (uint32_t i = 0; i < x->nout; i++)
        if (!is_value(g, x->out[i], true))
            fault(c, n, NO_ID, "node %u: output %u is value %u", n, i, x->out[i]);
    for (uint32_t i = 0; i < x->nattr; i++)
        if (x->attr[i].key >= A_COUNT) fault(c, n, NO_ID, "node %u: attribute %u is unknown", n, i);
    check_body_ids(c, n);
}

static bool check_ids(Check *c) {
    const Graph *g = c->g;
    for (ValueId v = 0; v < g->nvalue; v++) check_value_ids(c, v);
    for (NodeId n = 0; n < g->nnode; n++) check_node_ids(c, n);
    for (StorageId s = 0; s < g->nstorage; s++)
        if (g->storage[s].root >= g->nvalue)
            fault(c, NO_ID, NO_ID, "storage %u has root %u of %u", s, g->storage[s].root,
                  g->nvalue);
    for (uint32_t i = 0; i < g->noutput; i++)
        if (!is_value(g, g->output[i], false))
            fault(c, NO_ID, NO_ID, "graph output %u is value %u", i, g->output[i]);
    if (!is_value(g, g->loss, true) || !is_value(g, g->logits, true))
        fault(c, NO_ID, NO_ID, "loss is value %u and logits value %u of %u", g->loss, g->logits,
              g->nvalue);
    return c->ok;
}

/* ---- I1, I2: order and definitions -------------------------------------------------------- */

static void check_order(Check *c) {
    const Graph *g = c->g;
    NodeId *def = ARENA_ARRAY(c->d->arena, NodeId, g->nvalue); /* node + 1, as met so far */
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        for (uint32_t i = 0; i < x->nin; i++) {
            ValueId v = x->in[i];
            if (v != NO_ID && g->value[v].def != NO_ID && !def[v])
                fault(c, n, v, "I1: node %u reads value %u before its definition", n, v);
        }
        for (uint32_t i = 0; i < x->nout; i++) {
            ValueId v = x->out[i];
            if (v == NO_ID) continue;
            if (def[v])
                fault(c, n, v, "I1: value %u is defined by nodes %u and %u", v, def[v] - 1, n);
            if (g->value[v].def != n)
                fault(c, n, v, "I1: node %u defines value %u, which names node %u", n, v,
                      g->value[v].def);
            def[v] = n + 1;
        }
    }
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].def != NO_ID && !def[v])
            fault(c, g->value[v].def, v, "I1: value %u names a node that does not define it", v);
}

/* Values that nothing reads or defines are left over from rewriting and do not count. */
static void check_sources(Check *c) {
    const Graph *g = c->g;
    for (NodeId n = 0; n < g->nnode; n++)
        for (uint32_t i = 0; i < g->node[n].nin; i++) {
            ValueId v = g->node[n].in[i];
            if (v != NO_ID && g->value[v].def == NO_ID && g->value[v].role == ROLE_TEMP)
                fault(c, n, v, "I2: value %u has no definition and is no source", v);
        }
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].def != NO_ID && g->value[v].role != ROLE_TEMP)
            fault(c, g->value[v].def, v, "I2: value %u is computed but has role %s", v,
                  role_name(g->value[v].role));
}

/* ---- I3: storages ------------------------------------------------------------------------- */

static uint64_t bytes_of(const Value *v) {
    static const uint64_t size[DT_COUNT] = {4, 8, 8, 4, 1, 1};
    uint64_t n = size[v->dtype];
    for (uint32_t i = 0; i < v->shape.rank; i++)
        if (!checked_mul(n, (uint64_t)v->shape.dim[i], &n)) return UINT64_MAX;
    return n;
}

static void check_storages(Check *c) {
    const Graph *g = c->g;
    for (ValueId v = 0; v < g->nvalue; v++) {
        const Value *x = &g->value[v];
        const Storage *s = &g->storage[x->storage];
        const Node *def = x->def == NO_ID ? NULL : &g->node[x->def];
        bool view = def && ir_op_class(def->op) == CLS_VIEW;
        if (s->bytes != bytes_of(x))
            fault(c, x->def, v, "I3: value %u has %llu bytes, its storage %llu", v,
                  (unsigned long long)bytes_of(x), (unsigned long long)s->bytes);
        if (!view && s->root != v)
            fault(c, x->def, v, "I3: value %u is no view but has the storage of value %u", v,
                  s->root);
        if (view &&
            (def->nin < 1 || def->in[0] == NO_ID || g->value[def->in[0]].storage != x->storage))
            fault(c, x->def, v, "I3: view %u does not have the storage of its input", v);
        if (s->root == v && s->persistent != (x->role != ROLE_TEMP))
            fault(c, x->def, v, "I3: storage %u must be persistent if and only if its value is",
                  x->storage);
        if (x->data && x->data->n != bytes_of(x))
            fault(c, x->def, v, "I3: value %u has %llu bytes of data, expected %llu", v,
                  (unsigned long long)x->data->n, (unsigned long long)bytes_of(x));
    }
}

/* ---- I4, I5: effects ---------------------------------------------------------------------- */

static bool mutates_storage(const Graph *g, const Node *x, uint32_t writes, StorageId s) {
    for (uint32_t i = 0; i < x->nin && i < 32; i++)
        if (writes >> i & 1 && x->in[i] != NO_ID && g->value[x->in[i]].storage == s) return true;
    return false;
}

static void check_effects(Check *c) {
    const Graph *g = c->g;
    NodeId *mutated = ARENA_ARRAY(c->d->arena, NodeId, g->nstorage); /* by node + 1 */
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *x = &g->node[n];
        uint32_t writes = ir_op_mutates(x->op);
        for (uint32_t i = 0; i < x->nin; i++) {
            ValueId v = x->in[i];
            if (v == NO_ID) continue;
            StorageId s = g->value[v].storage;
            if (mutated[s] && !mutates_storage(g, x, writes, s))
                fault(c, n, v, "I5: node %u reads value %u after node %u changed it", n, v,
                      mutated[s] - 1);
            if (i < 32 && writes >> i & 1 && !g->storage[s].persistent)
                fault(c, n, v, "I4: node %u changes value %u, which is not persistent", n, v);
        }
        for (uint32_t i = 0; i < x->nin && i < 32; i++)
            if (x->in[i] != NO_ID && writes >> i & 1) mutated[g->value[x->in[i]].storage] = n + 1;
    }
}

/* ---- I6: phases --------------------------------------------------------------------------- */

static void check_phases(Check *c) {
    bool backward = false;
    for (NodeId n = 0; n < c->g->nnode; n++) {
        Phase ph = c->g->node[n].phase;
        if (ph == PHASE_FORWARD && backward)
            fault(c, n, NO_ID, "I6: forward node %u stands after the backward pass began", n);
        backward = backward || ph != PHASE_FORWARD;
    }
}

bool ir_verify(Diag *d, const Graph *g) {
    Check c = {.d = d, .g = g, .ok = true};
    if (!check_ids(&c)) return false;
    check_order(&c);
    check_sources(&c);
    check_storages(&c);
    check_effects(&c);
    check_phases(&c);
    return c.ok;
}
