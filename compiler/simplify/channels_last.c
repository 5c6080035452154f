/* channels_last.c - images become channels-last, which convolutions, pools and per-channel
 * operators are fastest with; after this pass every tensor is plainly row-major in its new shape.
 *
 * Forward graph with NCHW images -> the same with NHWC. One sweep in node order. Convolutions,
 * pools and batch norm work on twins (twins.h). Operators that treat axes alike, or name them in
 * attributes, follow when that moves fewer elements than bringing their operands back. A Transpose
 * that is itself the change between the two orders costs nothing, and a Reshape that leaves batch,
 * channels and space apart stays within the order (also where it splits channels: channel
 * shuffles). Everything else gets the plain order. Weights of convolutions keep the order of the
 * file. */
#include "twins.h"

#include <assert.h>
#include <string.h>

/* ---- attributes ---- */

typedef struct {
    Attr at[A_COUNT + 1];
    uint32_t n;
} Attrs;

static Attrs copy_attrs(const Node *n) {
    Attrs s = {.n = n->nattr};
    assert(n->nattr <= A_COUNT);
    if (n->nattr) memcpy(s.at, n->attr, n->nattr * sizeof(Attr));
    return s;
}

static void set_attr(Attrs *s, Attr at) {
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->at[i].key != at.key) continue;
        s->at[i] = at;
        return;
    }
    s->at[s->n++] = at;
}

/* A list with one entry for each axis (or `groups` of them), in the order of the twin. */
static void permute_list(Twins *t, Attrs *s, AttrKey key, uint32_t rank, uint32_t k) {
    for (uint32_t i = 0; i < s->n; i++) {
        Attr *at = &s->at[i];
        if (at->key != key || at->n % rank) continue;
        int64_t *v = ARENA_ARRAY(t->r.a, int64_t, at->n), perm[IR_MAX_RANK];
        double *f = ARENA_ARRAY(t->r.a, double, at->n);
        tw_perm(rank, k, perm);
        for (uint32_t j = 0; j < at->n; j++) {
            uint32_t from = j / rank * rank + (uint32_t)perm[j % rank];
            if (at->is_float)
                f[j] = at->f[from];
            else
                v[j] = at->i[from];
        }
        at->i = at->is_float ? NULL : v;
        at->f = at->is_float ? f : NULL;
    }
}

static int64_t positive(int64_t axis, uint32_t rank) {
    return axis < 0 ? axis + (int64_t)rank : axis;
}

static void map_axis(Twins *t, Attrs *s, const Node *n, uint32_t rank, uint32_t k) {
    int64_t axis = positive(ir_get_i(n, A_axis, 0), rank);
    set_attr(s, attr_i(t->r.a, A_axis, tw_axis(rank, k, (uint32_t)axis)));
}

/* ---- choosing ---- */

static uint32_t rank_of(const Twins *t, ValueId v) {
    return t->r.old->value[v].shape.rank;
}

/* Channel axes of the twin form in which the node should run; 0: plain. */
static uint32_t choose(const Twins *t, const Node *n, uint32_t rank) {
    uint32_t k = 0;
    uint64_t last = 0, plain = 0;
    for (uint32_t i = 0; i < n->nin && !k; i++)
        if (n->in[i] != NO_ID && tw_only(t, n->in[i]) && rank_of(t, n->in[i]) == rank)
            k = t->channels[n->in[i]];
    if (!k || rank < 3) return 0;
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NO_ID) continue;
        last += tw_cost_last(t, n->in[i], rank, k);
        plain += tw_cost_plain(t, n->in[i]);
    }
    return last <= plain ? k : 0;
}

/* ---- families ---- */

static void plain_node(Twins *t, NodeId id) {
    const Node *n = &t->r.old->node[id];
    for (uint32_t i = 0; i < n->nin; i++) tw_plain(t, n->in[i]);
    rw_copy(&t->r, id);
}

/* Conv, ConvGradX (a transposed convolution), pools, batch norm: operand 0 is an image. */
static void image_node(Twins *t, const Node *n) {
    uint32_t rank = rank_of(t, n->in[0]);
    ValueId *in = ARENA_ARRAY(t->r.a, ValueId, n->nin);
    in[0] = tw_last(t, n->in[0], rank, 1);
    for (uint32_t i = 1; i < n->nin; i++) in[i] = tw_plain(t, n->in[i]);
    Attrs s = copy_attrs(n);
    permute_list(t, &s, A_shape, rank, 1);
    set_attr(&s, attr_i(t->r.a, A_channels_last, 1));
    tw_node(t, n, in, s.at, s.n, 1);
}

/* Operators over aligned axes: elementwise, Concat, Slice, Pad, Resize, Softmax. */
static bool aligned_node(Twins *t, const Node *n) {
    uint32_t rank = rank_of(t, n->out[0]), k = choose(t, n, rank);
    bool random = op_class(n) == CLS_RANDOM;
    if (!k || (random && k > 1)) return false;
    ValueId *in = ARENA_ARRAY(t->r.a, ValueId, n->nin + 1);
    for (uint32_t i = 0; i < n->nin; i++)
        in[i] = n->in[i] == NO_ID ? NO_ID : tw_last(t, n->in[i], rank, k);
    Attrs s = copy_attrs(n);
    static const AttrKey list[] = {A_shape, A_starts, A_steps, A_sizes,
                                   A_pads,  A_scales, A_first, A_final};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) permute_list(t, &s, list[i], rank, k);
    if (ir_attr(n, A_axis)) map_axis(t, &s, n, rank, k);
    if (random)
        set_attr(&s, attr_i(t->r.a, A_channels_last, 1)); /* its indices count in that order */
    tw_node(t, n, in, s.at, s.n, k);
    return true;
}

/* Rows along one axis by a list of indices (nearest-neighbour resizing). */
static bool gather_node(Twins *t, const Node *n) {
    ValueId x = n->in[0];
    if (!tw_only(t, x) || rank_of(t, n->in[1]) != 1) return false;
    Attrs s = copy_attrs(n);
    map_axis(t, &s, n, rank_of(t, x), t->channels[x]);
    ValueId in[2] = {t->twin[x], tw_plain(t, n->in[1])};
    tw_node(t, n, in, s.at, s.n, t->channels[x]);
    return true;
}

/* A sum: without keepdims the result is plain when either the channel axes or the others are gone.
 */
static bool reduce_node(Twins *t, const Node *n) {
    ValueId x = n->in[0];
    uint32_t rank = rank_of(t, x), k = t->channels[x], naxes, space = 0, channels = 0;
    const int64_t *axes = ir_get_ints(n, A_axes, &naxes);
    if (!tw_only(t, x) || !naxes) return false;
    bool gone[IR_MAX_RANK] = {false}, keep = ir_get_i(n, A_keepdims, 1) != 0;
    for (uint32_t i = 0; i < naxes; i++) gone[tw_axis(rank, k, (uint32_t)axes[i])] = true;
    int64_t now[IR_MAX_RANK];
    uint32_t m = 0;
    for (uint32_t i = 0; i < rank; i++)
        if (gone[i]) now[m++] = i;
    for (uint32_t i = 1; i < rank; i++) {
        space += i < rank - k && !gone[i];
        channels += i >= rank - k && !gone[i];
    }
    bool plain = !keep && (!space || !channels);
    if (!keep && !plain && gone[0]) return false;
    Attrs s = copy_attrs(n);
    set_attr(&s, attr_ints(t->r.a, A_axes, now, m));
    NodeId id = tw_node(t, n, &t->twin[x], s.at, s.n, keep ? k : channels);
    if (!plain) return true;
    t->twin[n->out[0]] = NO_ID;
    t->r.map[n->out[0]] = t->r.g->node[id].out[0];
    rw_rename(&t->r, t->r.map[n->out[0]], n->out[0]);
    return true;
}

/* Batch, channels and space stay apart: the twin is reshaped. */
static bool reshape_node(Twins *t, const Node *n) {
    ValueId x = n->in[0], y = n->out[0];
    const Shape *from = &t->r.old->value[x].shape, *to = &t->r.old->value[y].shape;
    if (!tw_only(t, x) || to->rank < 3 || to->dim[0] != from->dim[0]) return false;
    int64_t want = 1, have = 1;
    for (uint32_t i = 1; i <= t->channels[x]; i++) want *= from->dim[i];
    uint32_t k = 0;
    while (k + 2 < to->rank && (k == 0 || have != want)) have *= to->dim[++k];
    if (have != want) return false;
    Shape s = tw_shape(to, k);
    ValueId now = op_reshape(t->r.g, n->phase, n->name, t->twin[x], &s);
    if (now == t->twin[x])
        tw_set(t, y, now, k);
    else
        tw_make(t, y, now, k);
    return true;
}

static bool permutes_channels_alone(const int64_t *perm, uint32_t k) {
    bool alone = perm[0] == 0;
    for (uint32_t i = 1; i <= k; i++) alone &= perm[i] >= 1 && perm[i] <= (int64_t)k;
    return alone;
}

/* A Transpose of a value of which only the twin exists. */
static void transpose_twin(Twins *t, const Node *n, const int64_t *perm) {
    ValueId x = n->in[0], y = n->out[0];
    uint32_t rank = rank_of(t, x), k = t->channels[x];
    int64_t now[IR_MAX_RANK], last[IR_MAX_RANK];
    if (permutes_channels_alone(perm, k)) {
        tw_perm(rank, k, last);
        for (uint32_t i = 0; i < rank; i++) now[i] = tw_axis(rank, k, (uint32_t)perm[last[i]]);
        tw_make(t, y, op_transpose(t->r.g, n->phase, n->name, t->twin[x], now), k);
        return;
    }
    for (uint32_t i = 0; i < rank; i++) now[i] = tw_axis(rank, k, (uint32_t)perm[i]);
    t->r.map[y] = op_transpose(t->r.g, n->phase, n->name, t->twin[x], now);
    rw_rename(&t->r, t->r.map[y], y);
}

static bool transpose_node(Twins *t, const Node *n) {
    ValueId x = n->in[0], y = n->out[0];
    uint32_t rank;
    const int64_t *perm = ir_get_ints(n, A_perm, &rank);
    if (bits_get(t->r.kept, y)) return false;
    if (tw_only(t, x)) {
        transpose_twin(t, n, perm);
        return true;
    }
    if (rank < 3) return false;
    for (uint32_t i = 0; i < rank; i++) /* [N, H, W, C] -> [N, C, H, W]: the operand is the twin */
        if (perm[i] != tw_axis(rank, 1, i)) return false;
    tw_set(t, y, t->r.map[x], 1);
    return true;
}

/* An operator on images that are not channels-last yet. */
static bool is_image_op(const Graph *g, const Node *n) {
    if (ir_get_i(n, A_channels_last, 0)) return false;
    switch (n->op) {
    case OP_Conv:
    case OP_ConvGradX:
    case OP_MaxPool:
    case OP_AveragePool: return true;
    case OP_BatchNorm: return g->value[n->in[0]].shape.rank >= 3;
    default: return false;
    }
}

static bool follow(Twins *t, const Node *n) {
    switch (n->op) {
    case OP_Concat:
    case OP_Slice:
    case OP_Pad:
    case OP_Resize:
    case OP_Softmax:
    case OP_LogSoftmax: return aligned_node(t, n);
    case OP_Gather: return gather_node(t, n);
    case OP_GroupNorm:
        if (!tw_only(t, n->in[0]) || t->channels[n->in[0]] != 1) return false;
        image_node(t, n);
        return true;
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd:
    case OP_ReduceLogSumExp:
    case OP_ReduceSum: return reduce_node(t, n);
    case OP_Reshape: return reshape_node(t, n);
    case OP_Transpose: return transpose_node(t, n);
    default: return (op_def(n->op)->flags & OPF_EW) && aligned_node(t, n);
    }
}

static bool has_images(const Graph *g) {
    for (NodeId n = 0; n < g->nnode; n++)
        if (is_image_op(g, &g->node[n])) return true;
    return false;
}

const Graph *channels_last(Arena *a, Diag *d, const Graph *g) {
    if (!has_images(g)) return g;
    Twins t;
    tw_begin(&t, a, d, g);
    for (NodeId id = 0; id < g->nnode; id++) {
        const Node *n = &g->node[id];
        if (is_image_op(g, n))
            image_node(&t, n);
        else if (!follow(&t, n))
            plain_node(&t, id);
    }
    for (ValueId v = 0; v < g->nvalue; v++)
        if (bits_get(t.r.kept, v)) tw_plain(&t, v);
    return rw_end(&t.r);
}
