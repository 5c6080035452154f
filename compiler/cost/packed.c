/* packed.c - the packed rule. A convolution weight stays in the library's own layout through all
 * steps when nothing but convolutions of one geometry and its update ever look at it:
 *  - its readers are Conv and ConvGradX (as weight) and at most one update that mutates it;
 *  - the update's gradient is made by a ConvGradW and read by the update alone, its states by
 *    nobody else;
 *  - all those convolutions have one geometry, since the layout depends on it;
 *  - none of these values shares its storage with a view.
 * Update kernels run over packed elements as they are: equal layouts, and padding stays zero. */
#include "packed.h"

#include <string.h>

typedef struct {
    const Graph *g;
    Users users;
    uint32_t *values_of; /* per storage: how many values live in it */
} PackCtx;

static bool is_alone(const PackCtx *x, ValueId v) {
    return x->values_of[x->g->value[v].storage] == 1;
}

/* Geometry without what has no say in the layout. */
static bool weight_geometry(const Graph *g, const Node *n, Geometry *q) {
    ConvObject o;
    if (!op_conv_object(g, NULL, n, &o)) return false;
    memset(q, 0, sizeof *q);
    q->nd = o.q.nd;
    q->channels_last = o.q.channels_last;
    q->n = o.q.n, q->ci = o.q.ci, q->co = o.q.co, q->group = o.q.group;
    memcpy(q->in, o.q.in, sizeof q->in);
    memcpy(q->out, o.q.out, sizeof q->out);
    memcpy(q->kernel, o.q.kernel, sizeof q->kernel);
    memcpy(q->stride, o.q.stride, sizeof q->stride);
    memcpy(q->dilation, o.q.dilation, sizeof q->dilation);
    memcpy(q->pad_lo, o.q.pad_lo, sizeof q->pad_lo);
    memcpy(q->pad_hi, o.q.pad_hi, sizeof q->pad_hi);
    return true;
}

static bool same(const PackCtx *x, const Node *n, const Geometry *want) {
    Geometry q;
    return weight_geometry(x->g, n, &q) && !memcmp(&q, want, sizeof q);
}

/* Does n read v as the weight of a convolution, and nowhere else? */
static bool reads_as_weight(const Graph *g, const Node *n, ValueId v) {
    ConvObject o;
    if (!op_conv_object(g, NULL, n, &o) || o.grad_w) return false;
    for (uint32_t i = 0; i < n->nin; i++)
        if ((n->in[i] == v) != (i == 1)) return false;
    return true;
}

static bool is_update_of(const Node *n, ValueId v) {
    return op_node_class(n) == CLS_EFFECT && n->nin > 1 && n->in[0] == v &&
           (op_def(n->op)->mutates & 1);
}

/* Operands of an update besides the weight: the gradient at 1, then states. */
static bool update_fits(const PackCtx *x, NodeId id, const Geometry *q) {
    const Graph *g = x->g;
    const Node *n = &g->node[id];
    for (uint32_t i = 1; i < n->nin; i++) {
        ValueId v = n->in[i];
        if (v == NO_ID) continue;
        if (!shape_eq(&g->value[v].shape, &g->value[n->in[0]].shape) || !is_alone(x, v))
            return false;
        if (x->users.first[v + 1] - x->users.first[v] != 1) return false;
    }
    NodeId def = g->value[n->in[1]].def;
    ConvObject o;
    return def != NO_ID && op_conv_object(g, NULL, &g->node[def], &o) && o.grad_w &&
           same(x, &g->node[def], q);
}

static void consider(const PackCtx *x, ValueId v, bool *packed) {
    const Graph *g = x->g;
    NodeId update = NO_ID, conv = NO_ID;
    Geometry q;
    if (!is_alone(x, v)) return;
    for (uint32_t u = x->users.first[v]; u < x->users.first[v + 1]; u++) {
        NodeId id = x->users.user[u];
        if (is_update_of(&g->node[id], v)) {
            if (update != NO_ID) return;
            update = id;
            continue;
        }
        if (!reads_as_weight(g, &g->node[id], v)) return;
        if (conv == NO_ID && !weight_geometry(g, &g->node[id], &q)) return;
        if (!same(x, &g->node[id], &q)) return;
        conv = id;
    }
    if (conv == NO_ID || (update != NO_ID && !update_fits(x, update, &q))) return;
    packed[v] = true;
    for (uint32_t i = 1; update != NO_ID && i < g->node[update].nin; i++)
        if (g->node[update].in[i] != NO_ID) packed[g->node[update].in[i]] = true;
}

void fill_packed(Arena *scratch, const Graph *g, bool *packed) {
    PackCtx x = {g, ir_users(scratch, g), ARENA_ARRAY(scratch, uint32_t, g->nstorage)};
    for (ValueId v = 0; v < g->nvalue; v++) x.values_of[g->value[v].storage]++;
    for (ValueId v = 0; v < g->nvalue; v++)
        if (g->value[v].role == ROLE_PARAM || g->value[v].role == ROLE_FROZEN)
            consider(&x, v, packed);
    for (uint32_t i = 0; i < g->noutput; i++) packed[g->output[i]] = false;
}
