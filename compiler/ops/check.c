/* check.c - does a graph that came as text say what the operators say? Each node's outputs are
 * inferred again on a scratch copy and compared; the body of a Fused node is checked instruction by
 * instruction the same way. Later stages may then rely on what inference promises. */
#include "family.h"

#include <string.h>

typedef struct {
    Diag *d;
    const Graph *g;
    Graph scratch; /* g's values and nodes, then what is being inferred */
} Check;

static void *copy_array(Arena *a, const void *from, uint32_t n, size_t elem) {
    void *p = arena_alloc(a, checked_array((uint64_t)n + 1, elem));
    if (n) memcpy(p, from, n * elem);
    return p;
}

static Graph scratch_of(Arena *a, const Graph *g) {
    Graph s = *g;
    s.arena = a;
    s.value = copy_array(a, g->value, g->nvalue, sizeof *g->value);
    s.node = copy_array(a, g->node, g->nnode, sizeof *g->node);
    s.storage = copy_array(a, g->storage, g->nstorage, sizeof *g->storage);
    s.value_cap = g->nvalue + 1;
    s.node_cap = g->nnode + 1;
    s.storage_cap = g->nstorage + 1;
    return s;
}

static void rewind_scratch(Check *c) {
    c->scratch.nvalue = c->g->nvalue;
    c->scratch.nnode = c->g->nnode;
    c->scratch.nstorage = c->g->nstorage;
}

/* An instruction as a node of its own: its result goes to val[i]. */
static bool check_inst(Check *c, NodeId n, uint32_t i, ValueId *val) {
    const Node *x = &c->g->node[n];
    const FusedInst *f = &x->body->inst[i];
    const OpDef *def = op_def(f->op);
    InferCtx err = {&c->scratch, c->d};
    if (!(def->flags & (OPF_EW | OPF_COLREDUCE)) || f->narg == 0)
        return op_error(&err, n, NO_ID,
                        "instruction %u: expected an elementwise operator or a column "
                        "reduction, found %s with %u operands",
                        i, def->name, f->narg);
    NodeId t = ir_node(&c->scratch, f->op, x->phase, x->name, f->narg, def->nout);
    Node *node = &c->scratch.node[t];
    for (uint32_t k = 0; k < f->narg; k++) {
        uint32_t arg = f->arg[k];
        node->in[k] = arg < x->nin ? x->in[arg] : val[arg - x->nin];
        if (node->in[k] == NO_ID)
            return op_error(&err, n, NO_ID,
                            "instruction %u: expected an elementwise operand, found a "
                            "column reduction or nothing",
                            i);
    }
    ir_attr_copy(&c->scratch, t, f->attr, f->nattr);
    TRY(op_infer(&c->scratch, c->d, t));
    node = &c->scratch.node[t];
    ValueId out = node->out[0];
    if (c->scratch.value[out].dtype != f->dtype)
        return op_error(&err, n, NO_ID, "instruction %u: expected dtype %s, found %s", i,
                        dtype_name(c->scratch.value[out].dtype), dtype_name(f->dtype));
    bool column = def->flags & OPF_COLREDUCE;
    if (column && !op_is_colreduce(node))
        return op_error(&err, n, NO_ID, "instruction %u: expected leading axes, found others", i);
    const Shape *operand = &c->scratch.value[node->in[0]].shape;
    if (column && (!shape_eq(operand, &x->body->space) || operand->rank == 0))
        return op_error(&err, n, NO_ID, "instruction %u: expected an operand of shape %s, found %s",
                        i, shape_str(c->d->arena, &x->body->space),
                        shape_str(c->d->arena, operand));
    val[i] = column ? NO_ID : out; /* nothing reads a column reduction */
    return true;
}

static bool check_body(Check *c, NodeId n) {
    const FusedBody *b = c->g->node[n].body;
    ValueId *val = ARENA_ARRAY(c->d->arena, ValueId, b->ninst);
    InferCtx err = {&c->scratch, c->d};
    for (uint32_t i = 0; i < b->ninst; i++) TRY(check_inst(c, n, i, val));
    for (uint32_t k = 0; k < c->g->node[n].nout; k++) {
        const FusedInst *f = &b->inst[b->out_inst[k]];
        const OpDef *def = op_def(f->op);
        uint32_t results = def->flags & OPF_COLREDUCE ? def->nout : 1;
        if (b->out_res[k] >= results)
            return op_error(&err, n, NO_ID, "output %u: expected one of %u results of %s, found %u",
                            k, results, def->name, b->out_res[k]);
    }
    return true;
}

static bool check_outputs(Check *c, NodeId n, NodeId t) {
    const Node *x = &c->g->node[n], *y = &c->scratch.node[t];
    for (uint32_t k = 0; k < x->nout; k++) {
        if (x->out[k] == NO_ID || y->out[k] == NO_ID) continue;
        const Value *found = &c->g->value[x->out[k]], *want = &c->scratch.value[y->out[k]];
        if (found->dtype != want->dtype || !shape_eq(&found->shape, &want->shape))
            return diag_error(c->d, ir_place(c->g, n, x->out[k]), "expected %s%s, found %s%s",
                              dtype_name(want->dtype), shape_str(c->d->arena, &want->shape),
                              dtype_name(found->dtype), shape_str(c->d->arena, &found->shape));
    }
    return true;
}

static bool check_node(Check *c, NodeId n) {
    const Node *x = &c->g->node[n];
    const OpDef *def = op_def(x->op);
    if (x->op == OP_Opaque) return true;
    if (def->nout != 255 && (x->nout > def->nout || x->nout + def->spare < def->nout))
        return diag_error(c->d, ir_place(c->g, n, NO_ID), "expected %u outputs, found %u",
                          def->nout, x->nout);
    if (x->nout && x->out[0] == NO_ID)
        return diag_error(c->d, ir_place(c->g, n, NO_ID), "expected output 0, found none");
    NodeId t = ir_node(&c->scratch, x->op, x->phase, x->name, 0, x->nout);
    ValueId *out = c->scratch.node[t].out;
    c->scratch.node[t] = *x;
    c->scratch.node[t].out = out;
    TRY(op_infer(&c->scratch, c->d, t));
    if (x->body) TRY(check_body(c, n));
    return check_outputs(c, n, t);
}

bool op_check(Diag *d, const Graph *g) {
    Check c = {.d = d, .g = g, .scratch = scratch_of(d->arena, g)};
    bool ok = true;
    for (NodeId n = 0; n < g->nnode; n++) {
        ok = check_node(&c, n) && ok;
        rewind_scratch(&c);
    }
    return ok;
}
