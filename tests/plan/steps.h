/* steps.h - random training steps that try to be everything at once: layers in the shape of chains,
 * residual nets, U-Nets, recurrent nets, parallel branches, or in no order; their gradients and
 * updates; several outputs, some of zero bytes, some unused; views with and without a cost, of
 * views, of parameters, several by one node; keyed random nodes; workspaces larger than anything;
 * several effects that mutate one value, some through a view; sizes and times skewed over six
 * decades. */
#ifndef TEST_STEPS_H
#define TEST_STEPS_H

#include "graphs.h"

#include <math.h>

enum { STEPS_MAX = 400 };

typedef enum {
    SHAPE_CHAIN,
    SHAPE_RESIDUAL,
    SHAPE_UNET,
    SHAPE_RNN,
    SHAPE_BRANCHES,
    SHAPE_ANY,
    SHAPE_COUNT
} StepShape;

/* What a layer made: what others read (a view of it at times), and its gradient. */
typedef struct {
    ValueId value, grad, param;
    uint32_t nin, in[3]; /* layers; NO_ID: the input */
} Layer;

typedef struct {
    Maker m;
    bool skew_bytes, skew_ns, views, tiny;
    ValueId x, param[STEPS_MAX], grad_sum[STEPS_MAX]; /* grad_sum: of shared parameters; NO_ID */
    bool gone[STEPS_MAX];
    uint32_t nparam, nlayer;
    Layer layer[STEPS_MAX];
} Steps;

static inline int64_t steps_skewed(Maker *m, int64_t least) {
    return least + (int64_t)pow(10, (double)maker_rnd(m, 6000) / 1000);
}

static inline int64_t steps_ns(Steps *s) {
    if (s->tiny) return 1 + maker_rnd(&s->m, 9);
    return s->skew_ns ? steps_skewed(&s->m, 0) : 1 + maker_rnd(&s->m, 300);
}

static inline int64_t steps_floats(Steps *s) {
    if (!maker_rnd(&s->m, 30)) return 0;
    if (s->tiny) return 1 + maker_rnd(&s->m, 6);
    return s->skew_bytes ? steps_skewed(&s->m, 0) : 64 * (1 + maker_rnd(&s->m, 12));
}

static inline int64_t steps_count(const Steps *s, ValueId v) {
    return s->m.g->value[v].shape.dim[0];
}

/* Several views of v by one node, or one; the last one. */
static inline ValueId steps_view(Steps *s, ValueId v) {
    Maker *m = &s->m;
    Graph *g = m->g;
    if (maker_rnd(m, 3)) {
        ValueId one = view(m, v);
        if (maker_rnd(m, 2)) ir_attr_i(g, g->nnode - 1, A_cost_ns, 1 + maker_rnd(m, 5));
        return one;
    }
    uint32_t nout = 1 + maker_rnd(m, 3);
    NodeId n = ir_node(g, OP_OpaqueView, PHASE_FORWARD, "views", 1, nout);
    ir_attr_i(g, n, A_cost_ns, maker_rnd(m, 2) * 4);
    g->node[n].in[0] = v;
    for (uint32_t k = 0; k < nout; k++) {
        Shape shape = g->value[v].shape;
        ValueId to = ir_view(g, arena_printf(m->a, "v%u", g->nvalue), &shape, v);
        g->value[to].def = n;
        g->node[n].out[k] = to;
    }
    return g->node[n].out[maker_rnd(m, nout)];
}

/* v itself or, at times, a view of a view of it. */
static inline ValueId steps_maybe_view(Steps *s, ValueId v) {
    while (s->views && !maker_rnd(&s->m, 5)) v = steps_view(s, v);
    return v;
}

/* A node of some kind that reads `in`. The result in place of an operand where all agree. */
static inline ValueId steps_node(Steps *s, Phase ph, int64_t floats, uint32_t nin,
                                 const ValueId *in) {
    Maker *m = &s->m;
    Graph *g = m->g;
    uint32_t kind = maker_rnd(m, 12);
    if (kind < 2) return node(m, OP_Relu, ph, steps_ns(s), steps_count(s, in[0]), 1, in, 1);
    if (kind < 4 && nin > 1 && steps_count(s, in[0]) == steps_count(s, in[1]))
        return node(m, OP_Add, ph, steps_ns(s), steps_count(s, in[0]), 2, in, 1);
    if (kind == 4) {
        ValueId v = node(m, OP_Dropout, ph, steps_ns(s), steps_count(s, in[0]), 1, in, 1);
        ir_attr_f(g, g->nnode - 1, A_ratio, 0.5);
        g->node[g->nnode - 1].key = g->next_key++;
        return v;
    }
    uint32_t nout = maker_rnd(m, 5) ? 1 : 2 + maker_rnd(m, s->tiny ? 1 : 4);
    ValueId v = node(m, OP_Opaque, ph, steps_ns(s), floats, nin, in, nout);
    for (uint32_t k = 0; k < nout; k++) /* outputs of one node differ */
        if (k && maker_rnd(m, 2)) {
            Value *o = &g->value[v + k];
            o->shape.dim[0] = steps_floats(s);
            g->storage[o->storage].bytes = 4 * (uint64_t)o->shape.dim[0];
        }
    if (!maker_rnd(m, 6)) {
        int64_t bytes = s->tiny ? 4 * (int64_t)maker_rnd(m, 4) : maker_rnd(m, 3000);
        if (!maker_rnd(m, 8)) bytes = s->tiny ? 30 : s->skew_bytes ? 8000000 : 60000;
        ir_attr_i(g, g->nnode - 1, A_workspace, bytes);
    }
    return v + maker_rnd(m, nout);
}

/* Reads the layers l->in and perhaps a parameter. */
static inline void steps_forward(Steps *s, Layer *l, bool shared) {
    Maker *m = &s->m;
    ValueId in[4];
    for (uint32_t i = 0; i < l->nin; i++)
        in[i] = steps_maybe_view(s, l->in[i] == NO_ID ? s->x : s->layer[l->in[i]].value);
    uint32_t nin = l->nin;
    l->param = NO_ID;
    if (shared || maker_rnd(m, 2)) {
        l->param = shared ? 0 : maker_rnd(m, s->nparam);
        in[nin++] = steps_maybe_view(s, s->param[l->param]);
    }
    l->value = steps_node(s, PHASE_FORWARD, steps_floats(s), nin, in);
    l->grad = NO_ID;
}

static inline void steps_wire(Steps *s, StepShape shape, uint32_t i, uint32_t n) {
    Layer *l = &s->layer[i];
    uint32_t before = i ? i - 1 : NO_ID;
    l->nin = 1;
    l->in[0] = before;
    switch (shape) {
    case SHAPE_CHAIN: break;
    case SHAPE_RESIDUAL:
        if (i > 2 && i % 3 == 0) l->in[l->nin++] = i - 3;
        break;
    case SHAPE_UNET:
        if (i > n / 2) l->in[l->nin++] = n - i;
        break;
    case SHAPE_RNN:
        if (i > 1) l->in[l->nin++] = maker_rnd(&s->m, i < 3 ? i : 3);
        break;
    case SHAPE_BRANCHES: /* five branches, joined at the end */
        l->in[0] = i >= 5 ? i - 5 : NO_ID;
        if (i + 1 == n && i) l->in[l->nin++] = i - 1;
        if (i + 1 == n && i > 1) l->in[l->nin++] = i - 2;
        break;
    default:
        for (l->nin = 0; l->nin < 1 + maker_rnd(&s->m, 3);)
            l->in[l->nin++] = i ? maker_rnd(&s->m, i) : NO_ID;
    }
}

/* An effect on a parameter: one of several kinds, at times through a view, twice, or reading a
 * second value that is mutated. */
static inline void steps_update(Steps *s, uint32_t p, ValueId grad) {
    Maker *m = &s->m;
    ValueId w = s->param[p];
    if (s->views && !s->gone[p] && !maker_rnd(m, 8)) {
        w = view(m, w);
        m->g->node[m->g->nnode - 1].phase = PHASE_BACKWARD;
    }
    uint32_t kind = s->tiny ? 0 : maker_rnd(m, 5);
    int64_t n = steps_count(s, s->param[p]);
    if (kind == 1) {
        ValueId in[] = {w, grad, source(m, ROLE_STATE, arena_printf(m->a, "m%u", m->g->nvalue), n)};
        node(m, OP_Sgd, PHASE_UPDATE, steps_ns(s), 0, 3, in, 0);
    } else if (kind == 2) {
        ValueId in[] = {w, grad, source(m, ROLE_STATE, arena_printf(m->a, "m%u", m->g->nvalue), n),
                        NO_ID};
        in[3] = source(m, ROLE_STATE, arena_printf(m->a, "m%u", m->g->nvalue), n);
        node(m, OP_Adam, PHASE_UPDATE, steps_ns(s), 0, 4, in, 0);
    } else {
        ValueId in[] = {w, grad};
        node(m, OP_Sgd, PHASE_UPDATE, steps_ns(s), 0, 2, in, 0);
    }
    s->gone[p] = true;
}

/* The gradient of layer i for one of its inputs, added to what is there. */
static inline void steps_add_grad(Steps *s, uint32_t to, ValueId grad) {
    Layer *l = &s->layer[to];
    ValueId in[] = {l->grad, grad};
    if (l->grad == NO_ID)
        l->grad = grad;
    else
        l->grad =
            node(&s->m, OP_Opaque, PHASE_BACKWARD, steps_ns(s), steps_count(s, grad), 2, in, 1);
}

static inline bool steps_read_before(const Steps *s, uint32_t param, uint32_t layer) {
    for (uint32_t i = 0; i < layer; i++)
        if (s->layer[i].param == param) return true;
    return false;
}

static inline void steps_backward(Steps *s, uint32_t i) {
    Maker *m = &s->m;
    Layer *l = &s->layer[i];
    if (l->grad == NO_ID) return;
    for (uint32_t k = 0; k < l->nin; k++) {
        if (l->in[k] == NO_ID) continue;
        ValueId in[4] = {l->grad, maker_rnd(m, 2) ? l->value : s->layer[l->in[k]].value};
        uint32_t nin = 2;
        if (l->param != NO_ID && !s->gone[l->param]) in[nin++] = s->param[l->param];
        ValueId g = node(m, OP_Opaque, PHASE_BACKWARD, steps_ns(s),
                         steps_count(s, s->layer[l->in[k]].value), nin, in, 1);
        steps_add_grad(s, l->in[k], g);
    }
    if (l->param == NO_ID || s->gone[l->param]) return;
    ValueId *sum = &s->grad_sum[l->param];
    ValueId in[] = {l->grad, l->in[0] == NO_ID ? s->x : s->layer[l->in[0]].value, *sum};
    int64_t n = steps_count(s, s->param[l->param]);
    *sum = node(m, OP_Opaque, PHASE_BACKWARD, steps_ns(s), n, *sum == NO_ID ? 2 : 3, in, 1);
    if (steps_read_before(s, l->param, i)) return;
    steps_update(s, l->param, *sum);
    if (!maker_rnd(m, 6)) steps_update(s, l->param, *sum);
}

/* A running statistic: mutated by one or two effects of the forward part, read before at times. */
static inline void steps_statistic(Steps *s, ValueId from) {
    Maker *m = &s->m;
    ValueId in[] = {source(m, ROLE_BUFFER, arena_printf(m->a, "mean%u", m->g->nvalue), 8), NO_ID,
                    from, from};
    in[1] = source(m, ROLE_BUFFER, arena_printf(m->a, "var%u", m->g->nvalue), 8);
    if (maker_rnd(m, 2)) {
        ValueId read[] = {from, in[maker_rnd(m, 2)]};
        s->layer[s->nlayer - 1].value =
            node(m, OP_Opaque, PHASE_FORWARD, steps_ns(s), steps_floats(s), 2, read, 1);
    }
    for (uint32_t k = 1 + !maker_rnd(m, 3); k > 0; k--)
        node(m, OP_BnUpdate, PHASE_FORWARD, steps_ns(s), 0, 4, in, 0);
}

static inline void steps_outputs(Steps *s) {
    Maker *m = &s->m;
    output(m, s->layer[s->nlayer - 1].value);
    for (uint32_t k = maker_rnd(m, 3); k > 0; k--) {
        ValueId v = maker_rnd(m, m->g->nvalue);
        if (m->g->value[v].role != ROLE_TEMP) continue;
        output(m, v); /* views among them, and outputs that nobody else reads */
    }
}

/* About 2.5 nodes a layer. The same seed, the same step. */
static inline Graph *steps_make(Arena *a, uint32_t seed, StepShape shape, uint32_t layers) {
    Steps *s = ARENA_NEW(a, Steps);
    *s = (Steps){.m = maker_new(a, seed * 2654435761u + 12345)};
    Maker *m = &s->m;
    for (int i = 0; i < 5; i++) maker_rnd(m, 2);
    s->skew_bytes = !maker_rnd(m, 3);
    s->skew_ns = !maker_rnd(m, 3);
    s->views = maker_rnd(m, 3) > 0;
    s->tiny = layers < 5;
    s->nparam = shape == SHAPE_RNN ? 1 : 1 + maker_rnd(m, layers);
    for (uint32_t p = 0; p < s->nparam; p++) {
        s->param[p] = source(m, ROLE_PARAM, arena_printf(a, "w%u", p), steps_floats(s));
        s->grad_sum[p] = NO_ID;
    }
    s->x = source(m, ROLE_INPUT, "x", steps_floats(s));
    for (uint32_t i = 0; i < layers; i++) {
        s->nlayer = i + 1;
        steps_wire(s, shape, i, layers);
        steps_forward(s, &s->layer[i], shape == SHAPE_RNN);
        if (!maker_rnd(m, s->tiny ? 12 : 6)) steps_statistic(s, s->layer[i].value);
    }
    Layer *last = &s->layer[layers - 1];
    last->grad = node(m, OP_Opaque, PHASE_BACKWARD, steps_ns(s), steps_count(s, last->value), 1,
                      &last->value, 1);
    for (uint32_t i = layers; i-- > 0;) steps_backward(s, i);
    steps_outputs(s);
    return m->g;
}

#endif
