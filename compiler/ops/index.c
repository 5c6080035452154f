/* index.c - elements and slices at places that a tensor of indices names, and the largest elements
 * along an axis. Gathering and scattering are each other's gradients. A scatter has its data last,
 * because there may be none: it then writes into zeros of attribute shape.
 *
 * Where several indices of a scatter name one place, the last one's update stays, but each update
 * gets that place's gradient, as in PyTorch. Gradients of scatters that compute, for the data d and
 * the updates u of one place with the result y:
 *
 *   add        all get dY
 *   max, min   those equal to y share dY
 *   mul        each gets dY times the product of the others, right where some are 0 */
#include "family.h"

#define BWD PHASE_BACKWARD

enum { SET, ADD, MUL, MAX, MIN };

static Attr attr_shape(Graph *g, ValueId like) {
    const Shape *s = &g->value[like].shape;
    return attr_ints(g->arena, A_shape, s->dim, s->rank);
}

/* Attribute reduction; those that compute need floats. */
static bool check_reduction(InferCtx *c, NodeId n) {
    int64_t how = ir_get_i(&c->g->node[n], A_reduction, SET);
    if (how < SET || how > MIN)
        return op_error(c, n, NO_ID, "expected a reduction in 0..4, found %lld", (long long)how);
    return how == SET || op_need_dtype(c, n, 1, DT_F32);
}

/* Shape that a scatter (indices, updates, [data]) writes into. */
static bool scatter_shape(InferCtx *c, NodeId n, Shape *out) {
    const Value *data = op_input(c->g, n, 2);
    if (!data) return op_need_shape_attr(c, n, out);
    *out = data->shape;
    return op_need_dtype(c, n, 2, op_input(c->g, n, 1)->dtype);
}

/* A zero for each update. */
static ValueId zeros_like(GradCtx *c, NodeId n, ValueId v) {
    Attr attr[] = {attr_f(c->g->arena, A_value, 0), attr_shape(c->g, v)};
    return op_make_attr(c->g, BWD, OP_Fill, grad_name(c, n), 0, NULL, attr, 2);
}

/* Scatter at work: the node, its gather, what both say about places. */
typedef struct {
    GradCtx *c;
    NodeId n;
    OpCode gather;
    Attr where;
    ValueId index;
} Places;

static ValueId at_places(const Places *p, ValueId data) {
    ValueId in[] = {data, p->index};
    return op_make_attr(p->c->g, BWD, p->gather, grad_name(p->c, p->n), 2, in, &p->where, 1);
}

static ValueId into_places(const Places *p, ValueId updates, ValueId data, int64_t how) {
    Attr attr[] = {p->where, attr_i(p->c->g->arena, A_reduction, how)};
    ValueId in[] = {p->index, updates, data};
    OpCode op = p->c->g->node[p->n].op;
    return op_make_attr(p->c->g, BWD, op, grad_name(p->c, p->n), 3, in, attr, 2);
}

static ValueId two(const Places *p, OpCode op, ValueId a, ValueId b) {
    return op_make2(p->c->g, BWD, op, grad_name(p->c, p->n), a, b);
}

/* Of max and min. */
static void grad_extreme(const Places *p, ValueId updates, ValueId data, ValueId y, ValueId dy,
                         ValueId *dupdates, ValueId *ddata) {
    ValueId mine = two(p, OP_EqMask, updates, at_places(p, y));
    ValueId kept = two(p, OP_EqMask, data, y);
    ValueId share = two(p, OP_Div, dy, into_places(p, mine, kept, ADD));
    *dupdates = two(p, OP_Mul, mine, at_places(p, share));
    *ddata = two(p, OP_Mul, kept, share);
}

/* Of mul: zeros are counted apart from the product of what is not 0. */
static void grad_product(const Places *p, ValueId updates, ValueId data, ValueId dy,
                         ValueId *dupdates, ValueId *ddata) {
    GradCtx *c = p->c;
    ValueId none = zeros_like(c, p->n, updates), zero = two(p, OP_EqMask, updates, none);
    ValueId nonzero = two(p, OP_Add, updates, zero); /* 1 instead of 0 */
    ValueId nothing = zeros_like(c, p->n, data), gap = two(p, OP_EqMask, data, nothing);
    ValueId filled = two(p, OP_Add, data, gap);
    ValueId zeros = into_places(p, zero, gap, ADD);         /* how many of a place are 0 */
    ValueId product = into_places(p, nonzero, filled, MUL); /* of the others */
    ValueId part = two(p, OP_Mul, dy, product);
    /* an element counts where all zeros of its place are itself */
    ValueId alone = two(p, OP_EqMask, at_places(p, zeros), zero);
    *dupdates = two(p, OP_Mul, alone, two(p, OP_Div, at_places(p, part), nonzero));
    *ddata = two(p, OP_Mul, two(p, OP_EqMask, zeros, gap), two(p, OP_Div, part, filled));
}

/* Of a scatter: dUpdates = dY at the places; dData = dY with zeros written there (sums: dY). */
static bool grad_scatter(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din, OpCode gather,
                         Attr where) {
    Graph *g = c->g;
    const Node node = g->node[n];
    const Places p = {c, n, gather, where, node.in[0]};
    int64_t how = ir_get_i(&node, A_reduction, SET);
    ValueId data = node.nin > 2 ? node.in[2] : NO_ID, d[2] = {NO_ID, NO_ID};
    if (how > ADD) {
        if (data == NO_ID) data = zeros_like(c, n, node.out[0]);
        if (how == MUL)
            grad_product(&p, node.in[1], data, dout[0], &d[0], &d[1]);
        else
            grad_extreme(&p, node.in[1], data, node.out[0], dout[0], &d[0], &d[1]);
        for (uint32_t i = 1; i < 3; i++)
            if (grad_wants(c, n, i)) din[i] = d[i - 1];
        return true;
    }
    if (grad_wants(c, n, 1)) din[1] = at_places(&p, dout[0]);
    if (!grad_wants(c, n, 2)) return true;
    din[2] = how == ADD ? dout[0] : into_places(&p, zeros_like(c, n, node.in[1]), dout[0], SET);
    return true;
}

static void put_sizes(Text *t, const char *field, const int64_t *v, uint32_t n) {
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; i < n; i++) text_add(t, i ? ", %lld" : "%lld", (long long)v[i]);
    text_str(t, n ? "}" : "1}");
}

static const char *reduction_name(const Node *n) {
    static const char *const name[] = {"SET", "ADD", "MUL", "MAX", "MIN"};
    return name[ir_get_i(n, A_reduction, SET)];
}

static bool is_scatter(const Node *n) {
    return n->op == OP_ScatterElements || n->op == OP_ScatterND;
}

/* The call, with the operands of a gather (data, indices) or scatter (indices, updates, [data]). */
static bool emit_call(CpuEmit *e, const Node *n, const char *type, const char *what, Text *init) {
    text_char(init, '}');
    uint32_t obj = e->object(e, type, init->at);
    bool scatter = is_scatter(n), data = n->nin > 2 && n->in[2] != NO_ID;
    text_add(e->body, "    dtrt_%s_%s(c, &%s_%u[c->slot], ", scatter ? "scatter" : "gather", what,
             type, obj);
    if (scatter)
        text_add(e->body, "%s, p[0], p[1], p[%u]);\n", data ? "p[2]" : "NULL", n->nin);
    else
        text_str(e->body, "p[0], p[1], p[2]);\n");
    return true;
}

static ValueId indices_of(const Node *n) {
    return n->in[is_scatter(n) ? 0 : 1];
}

/* ---- elements: Y[i] = data with the coordinate of `axis` taken from indices[i] ----------------
 */

/* Indices of the data's rank, and no larger away from the axis. */
static bool check_elements(InferCtx *c, NodeId n, const Shape *data, uint32_t index) {
    int64_t axis;
    TRY(op_need_index(c, n, index));
    if (data->rank == 0) return op_error(c, n, NO_ID, "expected at least one axis, found none");
    TRY(op_need_axis(c, n, data->rank, 0, &axis));
    TRY(op_need_rank(c, n, index, data->rank, data->rank));
    const Shape *s = &op_input(c->g, n, index)->shape;
    for (uint32_t k = 0; k < s->rank; k++)
        if (k != axis && s->dim[k] > data->dim[k])
            return op_error(c, n, index, "expected at most %lld on axis %u, found shape %s",
                            (long long)data->dim[k], k, shape_str(c->d->arena, s));
    return true;
}

static bool infer_gather_elements(InferCtx *c, NodeId n) {
    const Value data = *op_input(c->g, n, 0);
    TRY(check_elements(c, n, &data.shape, 1));
    Shape s = op_input(c->g, n, 1)->shape;
    return op_out(c, n, 0, data.dtype, &s);
}

static bool infer_scatter_elements(InferCtx *c, NodeId n) {
    Shape s;
    TRY(check_reduction(c, n) && scatter_shape(c, n, &s));
    TRY(check_elements(c, n, &s, 0));
    TRY(op_need_shape(c, n, 1, &op_input(c->g, n, 0)->shape));
    return op_out(c, n, 0, op_input(c->g, n, 1)->dtype, &s);
}

static Attr attr_axis(Graph *g, const Node *n) {
    return attr_i(g->arena, A_axis, ir_get_i(n, A_axis, 0));
}

static bool grad_gather_elements(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    Attr attr[] = {attr_axis(g, &node), attr_i(g->arena, A_reduction, ADD),
                   attr_shape(g, node.in[0])};
    ValueId in[] = {node.in[1], dout[0]};
    din[0] = op_make_attr(g, BWD, OP_ScatterElements, grad_name(c, n), 2, in, attr, 3);
    return true;
}

static bool grad_scatter_elements(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    return grad_scatter(c, n, dout, din, OP_GatherElements, attr_axis(c->g, &c->g->node[n]));
}

static bool cpu_elements(CpuEmit *e, const Node *n) {
    const Graph *g = e->g;
    const Value *data = &g->value[is_scatter(n) ? n->out[0] : n->in[0]];
    const Value *index = &g->value[indices_of(n)];
    int64_t axis = ir_get_i(n, A_axis, 0);
    if (axis < 0) axis += data->shape.rank;
    Text t;
    text_init(&t, e->arena);
    text_add(&t, "{.nd = %u, .axis = %lld, .idx_i32 = %d, .elem = %zu, .how = DTRT_SCATTER_%s",
             data->shape.rank, (long long)axis, index->dtype == DT_I32, dtype_size(data->dtype),
             reduction_name(n));
    put_sizes(&t, "dim", data->shape.dim, data->shape.rank);
    put_sizes(&t, "idim", index->shape.dim, index->shape.rank);
    return emit_call(e, n, "DtrtElements", "elements", &t);
}

const OpDef op_GatherElements = {.name = "GatherElements",
                                 .flags = OPF_PICKS,
                                 .min_in = 2,
                                 .max_in = 2,
                                 .nout = 1,
                                 .infer = infer_gather_elements,
                                 .grad = grad_gather_elements,
                                 .cpu = cpu_elements};

const OpDef op_ScatterElements = {.name = "ScatterElements",
                                  .min_in = 2,
                                  .max_in = 3,
                                  .nout = 1,
                                  .inplace = 1 << 2,
                                  .infer = infer_scatter_elements,
                                  .grad = grad_scatter_elements,
                                  .cpu = cpu_elements};

/* ---- tuples: data [batch.., d1..dk, inner..], indices [batch.., count.., k] -------------------
 */

/* k, after checking that the indices fit the data. */
static bool check_tuples(InferCtx *c, NodeId n, const Shape *data, uint32_t index, uint32_t *k) {
    int64_t batch = ir_get_i(&c->g->node[n], A_batch_dims, 0);
    TRY(op_need_index(c, n, index) && op_need_rank(c, n, index, 1, IR_MAX_RANK));
    const Shape *s = &op_input(c->g, n, index)->shape;
    bool fits = batch >= 0 && batch < s->rank && batch <= data->rank;
    int64_t last = s->dim[s->rank - 1];
    fits = fits && last >= 1 && last <= data->rank - batch;
    for (uint32_t i = 0; fits && i < batch; i++) fits = s->dim[i] == data->dim[i];
    if (!fits)
        return op_error(c, n, index,
                        "expected indices into shape %s over %lld batch axes, found shape %s",
                        shape_str(c->d->arena, data), (long long)batch, shape_str(c->d->arena, s));
    *k = (uint32_t)last;
    return true;
}

/* Shape of what the tuples pick. */
static bool picked_shape(InferCtx *c, NodeId n, const Shape *data, uint32_t index, Shape *out) {
    uint32_t k = 0, batch = (uint32_t)ir_get_i(&c->g->node[n], A_batch_dims, 0);
    TRY(check_tuples(c, n, data, index, &k));
    const Shape *s = &op_input(c->g, n, index)->shape;
    uint32_t rank = s->rank - 1 + data->rank - batch - k;
    if (rank > IR_MAX_RANK)
        return op_error(c, n, index, "expected an output of at most %d axes, found %u", IR_MAX_RANK,
                        rank);
    *out = (Shape){0};
    for (uint32_t i = 0; i + 1 < s->rank; i++) out->dim[out->rank++] = s->dim[i];
    for (uint32_t i = batch + k; i < data->rank; i++) out->dim[out->rank++] = data->dim[i];
    return true;
}

static bool infer_gather_nd(InferCtx *c, NodeId n) {
    const Value data = *op_input(c->g, n, 0);
    Shape s;
    TRY(picked_shape(c, n, &data.shape, 1, &s));
    return op_out(c, n, 0, data.dtype, &s);
}

static bool infer_scatter_nd(InferCtx *c, NodeId n) {
    Shape s, picked;
    TRY(check_reduction(c, n) && scatter_shape(c, n, &s));
    TRY(picked_shape(c, n, &s, 0, &picked));
    TRY(op_need_shape(c, n, 1, &picked));
    return op_out(c, n, 0, op_input(c->g, n, 1)->dtype, &s);
}

static Attr attr_batch(Graph *g, const Node *n) {
    return attr_i(g->arena, A_batch_dims, ir_get_i(n, A_batch_dims, 0));
}

static bool grad_gather_nd(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    Attr attr[] = {attr_batch(g, &node), attr_i(g->arena, A_reduction, ADD),
                   attr_shape(g, node.in[0])};
    ValueId in[] = {node.in[1], dout[0]};
    din[0] = op_make_attr(g, BWD, OP_ScatterND, grad_name(c, n), 2, in, attr, 3);
    return true;
}

static bool grad_scatter_nd(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    return grad_scatter(c, n, dout, din, OP_GatherND, attr_batch(c->g, &c->g->node[n]));
}

static bool cpu_tuples(CpuEmit *e, const Node *n) {
    const Graph *g = e->g;
    const Value *data = &g->value[is_scatter(n) ? n->out[0] : n->in[0]];
    const Value *index = &g->value[indices_of(n)];
    const Shape *s = &index->shape;
    uint32_t batch = (uint32_t)ir_get_i(n, A_batch_dims, 0), k = (uint32_t)s->dim[s->rank - 1];
    Text t;
    text_init(&t, e->arena);
    text_add(&t, "{.k = %u, .idx_i32 = %d, .elem = %zu, .how = DTRT_SCATTER_%s", k,
             index->dtype == DT_I32, dtype_size(data->dtype), reduction_name(n));
    text_add(&t, ", .batch = %lld, .count = %lld, .inner = %lld",
             (long long)shape_span(s, 0, batch), (long long)shape_span(s, batch, s->rank - 1),
             (long long)shape_span(&data->shape, batch + k, data->shape.rank));
    put_sizes(&t, "dim", data->shape.dim + batch, k);
    return emit_call(e, n, "DtrtTuples", "nd", &t);
}

const OpDef op_GatherND = {.name = "GatherND",
                           .flags = OPF_PICKS,
                           .min_in = 2,
                           .max_in = 2,
                           .nout = 1,
                           .infer = infer_gather_nd,
                           .grad = grad_gather_nd,
                           .cpu = cpu_tuples};

const OpDef op_ScatterND = {.name = "ScatterND",
                            .min_in = 2,
                            .max_in = 3,
                            .nout = 1,
                            .inplace = 1 << 2,
                            .infer = infer_scatter_nd,
                            .grad = grad_scatter_nd,
                            .cpu = cpu_tuples};

/* ---- TopK: X -> the k largest (or smallest) along the axis, best first, and their positions ---
 */

static bool infer_topk(InferCtx *c, NodeId n) {
    int64_t axis, k = ir_get_i(&c->g->node[n], A_k, 1);
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    Shape s = op_input(c->g, n, 0)->shape;
    TRY(op_need_axis(c, n, s.rank, -1, &axis));
    if (k < 0 || k > s.dim[axis])
        return op_error(c, n, 0, "expected a k of 0..%lld, found %lld", (long long)s.dim[axis],
                        (long long)k);
    s.dim[axis] = k;
    TRY(op_out(c, n, 0, DT_F32, &s));
    return op_out(c, n, 1, DT_I64, &s);
}

/* dX[position] = dY */
static bool grad_topk(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    if (node.nout < 2 || node.out[1] == NO_ID)
        return diag_error(c->d, ir_place(g, n, NO_ID), "expected the output that keeps positions");
    Attr attr[] = {attr_i(g->arena, A_axis, ir_get_i(&node, A_axis, -1)),
                   attr_shape(g, node.in[0])};
    ValueId in[] = {node.out[1], dout[0]};
    din[0] = op_make_attr(g, BWD, OP_ScatterElements, grad_name(c, n), 2, in, attr, 2);
    return true;
}

static uint64_t flops_topk(const Graph *g, const Node *n) {
    return 4 * value_count(g, n->in[0]);
}

static bool cpu_topk(CpuEmit *e, const Node *n) {
    const Shape *s = &e->g->value[n->in[0]].shape;
    int64_t axis = ir_get_i(n, A_axis, -1);
    if (axis < 0) axis += s->rank;
    text_add(e->body, "    dtrt_topk(p[0], p[1], p[2], %lld, %lld, %lld, %lld, %d);\n",
             (long long)shape_span(s, 0, (uint32_t)axis), (long long)s->dim[axis],
             (long long)shape_span(s, (uint32_t)axis + 1, s->rank), (long long)ir_get_i(n, A_k, 1),
             ir_get_i(n, A_largest, 1) != 0);
    return true;
}

const OpDef op_TopK = {.name = "TopK",
                       .min_in = 1,
                       .max_in = 1,
                       .nout = 2,
                       .infer = infer_topk,
                       .grad = grad_topk,
                       .flops = flops_topk,
                       .cpu = cpu_topk};
