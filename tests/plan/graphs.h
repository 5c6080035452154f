/* graphs.h - planning graphs for tests: small builders over Opaque nodes, and random training steps
 * with several outputs, views, in-place operators, workspace, updates and late readers. */
#ifndef TEST_GRAPHS_H
#define TEST_GRAPHS_H

#include "plan.h"

#include <string.h>

typedef struct {
    Arena *a;
    Graph *g;
    uint32_t seed;
} Maker;

static inline uint32_t maker_rnd(Maker *m, uint32_t n) {
    m->seed = m->seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(m->seed >> 8) * n) >> 24);
}

static inline Maker maker_new(Arena *a, uint32_t seed) {
    return (Maker){a, ir_new(a, "test"), seed};
}

static inline ValueId source(Maker *m, Role role, const char *name, int64_t floats) {
    return ir_value(m->g, name, DT_F32, &(Shape){1, {floats}}, role);
}

/* A node with one output of `floats` elements; more outputs through add_output. */
static inline ValueId node(Maker *m, OpCode op, Phase ph, int64_t ns, int64_t floats, uint32_t nin,
                           const ValueId *in, uint32_t nout) {
    Graph *g = m->g;
    const char *name = arena_printf(m->a, "n%u", g->nnode);
    NodeId n = ir_node(g, op, ph, name, nin, nout);
    ir_attr_i(g, n, A_cost_ns, ns);
    for (uint32_t i = 0; i < nin; i++) g->node[n].in[i] = in[i];
    for (uint32_t k = 0; k < nout; k++) {
        ValueId v = ir_value(g, arena_printf(m->a, "v%u", g->nvalue), DT_F32, &(Shape){1, {floats}},
                             ROLE_TEMP);
        g->value[v].def = n;
        g->node[n].out[k] = v;
    }
    return nout ? g->node[n].out[0] : NO_ID;
}

static inline ValueId view(Maker *m, ValueId of) {
    Graph *g = m->g;
    NodeId n = ir_node(g, OP_Reshape, PHASE_FORWARD, "view", 1, 1);
    Shape shape = g->value[of].shape; /* ir_view moves the array */
    ValueId v = ir_view(g, arena_printf(m->a, "v%u", g->nvalue), &shape, of);
    ir_attr_ints(g, n, A_shape, shape.dim, 1);
    g->node[n].in[0] = of;
    g->node[n].out[0] = v;
    g->value[v].def = n;
    return v;
}

static inline void update(Maker *m, ValueId w, ValueId grad) {
    ValueId in[] = {w, grad};
    node(m, OP_Sgd, PHASE_UPDATE, 5, 0, 2, in, 0);
}

static inline void output(Maker *m, ValueId v) {
    ValueId *o = ARENA_ARRAY(m->a, ValueId, m->g->noutput + 1);
    if (m->g->noutput) memcpy(o, m->g->output, m->g->noutput * sizeof *o);
    o[m->g->noutput++] = v;
    m->g->output = o;
}

/* A random step of about n nodes. Parameters are read by nodes until their update, never after. */
static inline Graph *random_step(Arena *a, uint32_t seed, uint32_t n) {
    Maker m = maker_new(a, seed);
    ValueId param[8], live[4096];
    uint32_t nparam = 1 + maker_rnd(&m, 7), nlive = 0;
    int64_t base = 16 << maker_rnd(&m, 4);
    bool gone[8] = {false};
    for (uint32_t i = 0; i < nparam; i++)
        param[i] = source(&m, ROLE_PARAM, arena_printf(a, "w%u", i), base);
    live[nlive++] = source(&m, ROLE_INPUT, "x", base);
    for (uint32_t i = 0; i < n; i++) {
        ValueId in[4];
        uint32_t nin = 0, reach = 1 + maker_rnd(&m, maker_rnd(&m, 4) ? 4 : nlive);
        uint32_t kind = maker_rnd(&m, 20), p = maker_rnd(&m, nparam);
        ValueId recent = live[nlive - 1 - maker_rnd(&m, reach < nlive ? reach : nlive)];
        in[nin++] = recent;
        for (uint32_t k = maker_rnd(&m, 3); k > 0; k--) in[nin++] = live[maker_rnd(&m, nlive)];
        Phase ph = i < n / 2 ? PHASE_FORWARD : PHASE_BACKWARD;
        if (kind == 0 && i < n / 2) { /* half of the views cost something */
            live[nlive++] = view(&m, recent);
            ir_attr_i(m.g, m.g->nnode - 1, A_cost_ns, maker_rnd(&m, 2) * 3);
        } else if (kind <= 3) {
            live[nlive++] = node(&m, OP_Relu, ph, 10, m.g->value[recent].shape.dim[0], 1, in, 1);
        } else if (kind <= 5 && i >= n / 2 && !gone[p]) {
            ValueId grad = node(&m, OP_Opaque, PHASE_BACKWARD, 50, base, nin, in, 1);
            update(&m, param[p], grad);
            gone[p] = true;
        } else {
            if (!gone[p] && nin < 4 && maker_rnd(&m, 2)) in[nin++] = param[p];
            uint32_t nout = maker_rnd(&m, 5) ? 1 : 2 + maker_rnd(&m, 2);
            int64_t floats = base * (1 + maker_rnd(&m, 12));
            ValueId v = node(&m, OP_Opaque, ph, 1 + maker_rnd(&m, 200), floats, nin, in, nout);
            if (!maker_rnd(&m, 4))
                ir_attr_i(m.g, m.g->nnode - 1, A_workspace, 1 + maker_rnd(&m, 3000));
            for (uint32_t k = 0; k < nout; k++) live[nlive++] = v + k;
        }
    }
    for (uint32_t i = 0; i < 1 + maker_rnd(&m, 3); i++)
        output(&m, live[nlive - 1 - maker_rnd(&m, nlive / 3 + 1)]);
    return m.g;
}

static inline ValueId view_ns(Maker *m, ValueId of, int64_t ns) {
    ValueId v = view(m, of);
    ir_attr_i(m->g, m->g->nnode - 1, A_cost_ns, ns);
    return v;
}

/* Up to ten runs: several outputs, views that cost something, workspace, in-place operators,
 * updates with readers before and after. */
static inline Graph *tiny_step(Arena *a, uint32_t seed) {
    Maker m = maker_new(a, seed * 2654435761u);
    ValueId live[64], w[2] = {source(&m, ROLE_PARAM, "w0", 1), source(&m, ROLE_PARAM, "w1", 1)};
    bool gone[2] = {false, false};
    uint32_t n = 6 + maker_rnd(&m, 4), nlive = 0, unread = 0;
    live[nlive++] = source(&m, ROLE_INPUT, "x", 1);
    for (uint32_t i = 0; i < n; i++) {
        ValueId in[4];
        uint32_t nin = 0, kind = maker_rnd(&m, 12), k = maker_rnd(&m, 2);
        in[nin++] = live[nlive - 1 - maker_rnd(&m, nlive > 2 ? 2 : nlive)];
        if (maker_rnd(&m, 3)) in[nin++] = live[maker_rnd(&m, nlive)];
        bool root = m.g->storage[m.g->value[in[0]].storage].root == in[0] && nlive > 1;
        if (kind < 2 && (root || kind)) {
            live[nlive++] = view_ns(&m, in[0], 1 + maker_rnd(&m, 4));
        } else if (kind == 2) {
            live[nlive++] = node(&m, OP_Relu, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                                 m.g->value[in[0]].shape.dim[0], 1, in, 1);
        } else if (kind == 3 && !gone[k] && i > 2) {
            update(&m, w[k], node(&m, OP_Opaque, PHASE_BACKWARD, 3, 1, nin, in, 1));
            gone[k] = true;
        } else {
            if (!gone[k] && maker_rnd(&m, 2)) in[nin++] = w[k];
            uint32_t nout = maker_rnd(&m, 4) ? 1 : 2;
            ValueId v = node(&m, OP_Opaque, PHASE_FORWARD, 1 + maker_rnd(&m, 9),
                             1 + maker_rnd(&m, 6), nin, in, nout);
            if (!maker_rnd(&m, 4)) ir_attr_i(m.g, m.g->nnode - 1, A_workspace, 4);
            for (uint32_t o = 0; o < nout; o++) live[nlive++] = v + o;
        }
        if (maker_rnd(&m, 3) == 0) unread = nlive - 1;
    }
    output(&m, live[nlive - 1]);
    if (unread && unread != nlive - 1) output(&m, live[unread]);
    return m.g;
}

/* A training step of a chain: y_i = f(y_{i-1}, w_i); loss; then per layer dw_i from (y_{i-1},
 * dy_i), dy_{i-1} from (y_i, dy_i, w_i), update of w_i at once. Activations of `floats` elements.
 */
static inline Graph *chain_step(Arena *a, uint32_t layers, int64_t floats) {
    Maker m = maker_new(a, 1);
    ValueId y[256], w[256];
    y[0] = source(&m, ROLE_INPUT, "x", floats);
    for (uint32_t i = 1; i <= layers; i++)
        w[i] = source(&m, ROLE_PARAM, arena_printf(a, "w%u", i), 64);
    for (uint32_t i = 1; i <= layers; i++) {
        ValueId in[] = {y[i - 1], w[i]};
        y[i] = node(&m, OP_Opaque, PHASE_FORWARD, 100, floats, 2, in, 1);
    }
    ValueId loss = node(&m, OP_Opaque, PHASE_FORWARD, 10, 1, 1, &y[layers], 1);
    output(&m, loss);
    ValueId dy = node(&m, OP_Opaque, PHASE_BACKWARD, 10, floats, 1, &y[layers], 1);
    for (uint32_t i = layers; i >= 1; i--) {
        ValueId for_w[] = {y[i - 1], dy}, for_x[] = {y[i], dy, w[i]};
        ValueId dw = node(&m, OP_Opaque, PHASE_BACKWARD, 100, 64, 2, for_w, 1);
        if (i > 1) dy = node(&m, OP_Opaque, PHASE_BACKWARD, 100, floats, 3, for_x, 1);
        update(&m, w[i], dw);
    }
    return m.g;
}

#endif
