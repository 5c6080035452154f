/* helper.h - what the files of this room share and no other room sees: creating outputs, names of
 * gradient nodes, constants for emitted code. */
#ifndef DTRC_OPS_HELPER_H
#define DTRC_OPS_HELPER_H

#include "ops.h"

/* Creates output k of node n. Pointers into g->value are invalid afterwards. */
static inline ValueId out_value(Graph *g, NodeId n, uint32_t k, DType dt, const Shape *s) {
    const char *name = g->node[n].name;
    name = k ? arena_printf(g->arena, "%s.out%u", name, k) : arena_printf(g->arena, "%s.out", name);
    ValueId v = ir_value(g, name, dt, s, ROLE_TEMP);
    g->value[v].def = n;
    g->node[n].out[k] = v;
    return v;
}

/* A copy, because ir_value may move g->value. */
static inline Shape in_shape(const Graph *g, NodeId n, uint32_t i) {
    return g->value[g->node[n].in[i]].shape;
}

static inline bool in_given(const Node *n, uint32_t i) {
    return i < n->nin && n->in[i] != NO_ID;
}

/* ---- for gradient functions ---- */
static inline bool grad_wants(const GradCtx *c, NodeId n, uint32_t i) {
    const Node *nd = &c->g->node[n];
    return in_given(nd, i) && c->need[nd->in[i]];
}

static inline const char *grad_name(GradCtx *c, NodeId n) {
    return arena_printf(c->g->arena, "%s.grad", c->g->node[n].name);
}

/* v summed down to the shape of input i: the inverse of broadcasting. */
static inline ValueId grad_fit(GradCtx *c, NodeId n, ValueId v, uint32_t i) {
    Shape s = in_shape(c->g, n, i);
    return op_reduce_to(c->g, PHASE_BACKWARD, grad_name(c, n), v, &s);
}

/* ---- for cpu functions ---- */
/* A C constant of type float: "0.5f", "-INFINITY". */
static inline const char *c_float(Arena *a, double v) {
    float f = (float)v;
    if (f != f) return "NAN";
    if (f - f != 0) return f > 0 ? "INFINITY" : "-INFINITY";
    const char *s = arena_printf(a, "%.9g", (double)f);
    for (const char *p = s; *p; p++)
        if (*p == '.' || *p == 'e') return arena_printf(a, "%sf", s);
    return arena_printf(a, "%s.0f", s);
}

/* [outer, n, inner] of a row-major shape around one axis. */
static inline void split_axis(const Shape *s, int64_t axis, int64_t *outer, int64_t *n,
                              int64_t *inner) {
    *outer = *inner = 1;
    *n = s->rank ? s->dim[axis] : 1;
    for (int64_t k = 0; k < (int64_t)s->rank; k++) {
        if (k < axis) *outer *= s->dim[k];
        if (k > axis) *inner *= s->dim[k];
    }
}

#endif
