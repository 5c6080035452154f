/* autodiff.c - reverse-mode differentiation. Nodes are visited backwards; when a node comes up, the
 * gradients of its outputs are complete, and its operator appends nodes for the gradients of its
 * inputs. Only values that depend on a trained parameter and on which the loss depends get one. A
 * value with several consumers adds up their contributions at once, so that at most one partial sum
 * lives.
 *
 * A gradient that never arrives although there is a path (through Floor, say) is zero, as in
 * PyTorch; a trained parameter without any path is left alone, with a warning. */
#include "step.h"

#include <assert.h>

typedef struct {
    Graph *g;
    Diag *d;
    uint32_t nvalue; /* of the forward graph */
    bool *need;      /* per value */
    ValueId *grad;   /* per value: sum of the contributions so far, or NO_ID */
    bool failed;
} Ad;

/* The gradient flows through floats only. */
static bool is_trained(const Value *v) {
    return v->role == ROLE_PARAM && v->dtype == DT_F32;
}

/* need = depends on a trained parameter, and the loss depends on it */
static void fill_need(Ad *ad, Arena *scratch) {
    const Graph *g = ad->g;
    bool *above = ARENA_ARRAY(scratch, bool, ad->nvalue);
    for (ValueId v = 0; v < ad->nvalue; v++) ad->need[v] = is_trained(&g->value[v]);
    for (NodeId n = 0; n < g->nnode; n++) {
        const Node *nd = &g->node[n];
        bool any = false;
        for (uint32_t i = 0; i < nd->nin; i++) any |= nd->in[i] != NO_ID && ad->need[nd->in[i]];
        for (uint32_t k = 0; k < nd->nout; k++)
            if (nd->out[k] != NO_ID)
                ad->need[nd->out[k]] = any && g->value[nd->out[k]].dtype == DT_F32;
    }
    above[g->loss] = true;
    for (NodeId n = g->nnode; n-- > 0;) {
        const Node *nd = &g->node[n];
        bool any = false;
        for (uint32_t k = 0; k < nd->nout; k++) any |= nd->out[k] != NO_ID && above[nd->out[k]];
        for (uint32_t i = 0; any && i < nd->nin; i++)
            if (nd->in[i] != NO_ID) above[nd->in[i]] = true;
    }
    for (ValueId v = 0; v < ad->nvalue; v++) ad->need[v] &= above[v];
}

static ValueId constant(Graph *g, const char *name, double value, const Shape *s) {
    Attr attr[2] = {attr_f(g->arena, A_value, value),
                    attr_ints(g->arena, A_shape, s->dim, s->rank)};
    return op_make_attr(g, PHASE_BACKWARD, OP_Fill, name, 0, NULL, attr, 2);
}

static void add_to(Ad *ad, NodeId n, ValueId v, ValueId contribution) {
    Graph *g = ad->g;
    if (contribution == NO_ID) return;
    assert(shape_eq(&g->value[v].shape, &g->value[contribution].shape));
    if (ad->grad[v] != NO_ID) {
        const char *name = arena_printf(g->arena, "%s.grad", g->node[n].name);
        contribution = op_make2(g, PHASE_BACKWARD, OP_Add, name, ad->grad[v], contribution);
    }
    ad->grad[v] = contribution;
}

/* Reports, and goes on with zeros, so that operators further up are reported too. */
static void no_gradient(Ad *ad, NodeId n, ValueId *din) {
    const Graph *g = ad->g;
    ad->failed = true;
    diag_error(ad->d, ir_place(g, n, NO_ID),
               "no gradient is known for this operator, and the loss depends on trained weights "
               "through it");
    for (uint32_t i = 0; i < g->node[n].nin; i++) {
        ValueId v = g->node[n].in[i];
        if (v == NO_ID || !ad->need[v]) continue;
        Shape s = g->value[v].shape;
        din[i] = constant(ad->g, g->node[n].name, 0, &s);
    }
}

static void differentiate(Ad *ad, GradCtx *c, NodeId n) {
    const Graph *g = ad->g;
    uint32_t nin = g->node[n].nin, nout = g->node[n].nout;
    ValueId *dout = ARENA_ARRAY(c->scratch, ValueId, nout),
            *din = ARENA_ARRAY(c->scratch, ValueId, nin);
    bool any_out = false, any_in = false;
    for (uint32_t k = 0; k < nout; k++) {
        ValueId v = g->node[n].out[k];
        dout[k] = v == NO_ID ? NO_ID : ad->grad[v];
        any_out |= dout[k] != NO_ID;
    }
    for (uint32_t i = 0; i < nin; i++) {
        ValueId v = g->node[n].in[i];
        din[i] = NO_ID;
        any_in |= v != NO_ID && ad->need[v];
    }
    if (!any_out || !any_in) return;
    const OpDef *def = op_def(g->node[n].op);
    if (!def->grad)
        no_gradient(ad, n, din);
    else if (!def->grad(c, n, dout, din))
        ad->failed = true;
    for (uint32_t i = 0; i < nin; i++) {
        ValueId v = g->node[n].in[i];
        if (v != NO_ID && ad->need[v]) add_to(ad, n, v, din[i]);
    }
}

/* Names the gradients of parameters. A value that is the gradient of another parameter already, or
 * that is no temporary, is copied. */
static ValueId finish(Ad *ad, ValueId w) {
    Graph *g = ad->g;
    const char *name = arena_printf(g->arena, "%s.grad", g->value[w].name);
    Shape s = g->value[w].shape;
    ValueId dw = ad->grad[w];
    if (dw == NO_ID) dw = constant(g, name, 0, &s);
    if (g->value[dw].param != NO_ID || g->value[dw].role != ROLE_TEMP)
        dw = op_make1(g, PHASE_BACKWARD, OP_Copy, name, dw);
    g->value[dw].param = w;
    g->value[dw].name = name;
    return dw;
}

/* Trained weights that the loss does not depend on: one warning for all. */
static void warn_apart(const Ad *ad) {
    const Graph *g = ad->g;
    uint32_t count = 0;
    ValueId first = NO_ID;
    for (ValueId v = ad->nvalue; v-- > 0;) {
        if (!is_trained(&g->value[v]) || ad->need[v]) continue;
        first = v;
        count++;
    }
    if (count == 1)
        diag_warn(ad->d, ir_place(g, NO_ID, first),
                  "the loss does not depend on this weight: it stays as it is");
    if (count > 1)
        diag_warn(ad->d, ir_place(g, NO_ID, first),
                  "the loss does not depend on this weight and %u others: they stay as they are",
                  count - 1);
}

bool ad_build(Graph *g, Diag *d, Arena *scratch, ValueId **grad) {
    Ad ad = {.g = g, .d = d, .nvalue = g->nvalue};
    ad.need = ARENA_ARRAY(scratch, bool, g->nvalue);
    ad.grad = ARENA_ARRAY(scratch, ValueId, g->nvalue);
    for (ValueId v = 0; v < g->nvalue; v++) ad.grad[v] = NO_ID;
    fill_need(&ad, scratch);
    GradCtx c = {.g = g, .d = d, .scratch = scratch, .need = ad.need};
    NodeId last = g->nnode;
    if (ad.need[g->loss]) ad.grad[g->loss] = constant(g, "loss.grad", 1, &(Shape){0});
    for (NodeId n = last; n-- > 0;) differentiate(&ad, &c, n);
    if (ad.failed) {
        diag_hint(d, "freeze the weights above with --freeze GLOB, or choose another output");
        return false;
    }
    for (ValueId v = 0; v < ad.nvalue; v++) {
        bool wanted = is_trained(&g->value[v]) && ad.need[v];
        ad.grad[v] = wanted ? finish(&ad, v) : NO_ID;
    }
    warn_apart(&ad);
    *grad = ad.grad;
    return true;
}
