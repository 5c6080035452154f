/* movement.c - views and copies that change the order or extent of elements but compute nothing:
 * Reshape, Copy, Transpose, Concat, Slice, Pad, Gather, Fill. */
#include "family.h"

static Attr shape_attr(Graph *g, ValueId like) {
    const Shape *s = &g->value[like].shape;
    return attr_ints(g->arena, A_shape, s->dim, s->rank);
}

/* const int64_t NAME[] = {..}; in the body */
static void emit_sizes(CpuEmit *e, const char *name, const int64_t *v, uint32_t n) {
    text_add(e->body, "    const int64_t %s[] = {", name);
    for (uint32_t i = 0; i < n; i++) text_add(e->body, i ? ", %lld" : "%lld", (long long)v[i]);
    text_str(e->body, n ? "};\n" : "0};\n");
}

static int elem(const CpuEmit *e, ValueId v) {
    return (int)dtype_size(e->g->value[v].dtype);
}

/* ---- Reshape: a view ------------------------------------------------------------------------- */

static bool infer_reshape(InferCtx *c, NodeId n) {
    Shape s;
    TRY(op_need_shape_attr(c, n, &s));
    const Shape *x = &op_input(c->g, n, 0)->shape;
    uint64_t have, want;
    if (!shape_count(&s, &want) || !shape_count(x, &have) || have != want)
        return op_error(c, n, 0, "expected as many elements as shape %s has, found shape %s",
                        shape_str(c->d->arena, &s), shape_str(c->d->arena, x));
    return op_out_view(c, n, &s);
}

static bool grad_reshape(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    ValueId x = g->node[n].in[0];
    if (c->need[x])
        din[0] =
            op_reshape(g, PHASE_BACKWARD, op_derived(g, n, ".dx"), dout[0], &g->value[x].shape);
    return true;
}

const OpDef op_Reshape = {.name = "Reshape",
                          .cls = CLS_VIEW,
                          .min_in = 1,
                          .max_in = 1,
                          .nout = 1,
                          .infer = infer_reshape,
                          .grad = grad_reshape};

/* ---- Copy ------------------------------------------------------------------------------------ */

static bool infer_copy(InferCtx *c, NodeId n) {
    const Value x = *op_input(c->g, n, 0);
    return op_out(c, n, 0, x.dtype, &x.shape);
}

static bool grad_copy(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    if (c->need[c->g->node[n].in[0]]) din[0] = dout[0];
    return true;
}

static bool cpu_copy(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_copy(p[0], p[1], %llu);\n",
             (unsigned long long)value_bytes(e->g, n->out[0]));
    return true;
}

const OpDef op_Copy = {.name = "Copy",
                       .min_in = 1,
                       .max_in = 1,
                       .nout = 1,
                       .infer = infer_copy,
                       .grad = grad_copy,
                       .cpu = cpu_copy};

/* ---- Transpose: Y.dim[i] = X.dim[perm[i]] ---------------------------------------------------- */

static bool infer_transpose(InferCtx *c, NodeId n) {
    const Value x = *op_input(c->g, n, 0);
    const int64_t *perm;
    uint32_t seen = 0;
    TRY(op_need_ints(c, n, A_perm, x.shape.rank, true, &perm));
    Shape s = {.rank = x.shape.rank};
    for (uint32_t i = 0; i < s.rank; i++) {
        if (perm[i] < 0 || perm[i] >= s.rank || seen >> perm[i] & 1)
            return op_error(c, n, NO_ID,
                            "expected a permutation of 0..%u in attribute perm, found %lld at %u",
                            s.rank - 1, (long long)perm[i], i);
        seen |= 1u << perm[i];
        s.dim[i] = x.shape.dim[perm[i]];
    }
    return op_out(c, n, 0, x.dtype, &s);
}

static bool grad_transpose(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    const Node node = c->g->node[n];
    uint32_t rank;
    const int64_t *perm = ir_get_ints(&node, A_perm, &rank);
    int64_t inverse[IR_MAX_RANK];
    for (uint32_t i = 0; i < rank; i++) inverse[perm[i]] = i;
    if (c->need[node.in[0]])
        din[0] = op_transpose(c->g, PHASE_BACKWARD, op_derived(c->g, n, ".dx"), dout[0], inverse);
    return true;
}

static bool cpu_transpose(CpuEmit *e, const Node *n) {
    const Shape *x = &e->g->value[n->in[0]].shape;
    uint32_t rank;
    const int64_t *perm = ir_get_ints(n, A_perm, &rank);
    emit_sizes(e, "dim", x->dim, rank);
    emit_sizes(e, "perm", perm, rank);
    text_add(e->body, "    dtrt_transpose(p[0], p[1], %u, dim, perm, %d);\n", rank,
             elem(e, n->in[0]));
    return true;
}

const OpDef op_Transpose = {.name = "Transpose",
                            .min_in = 1,
                            .max_in = 1,
                            .nout = 1,
                            .infer = infer_transpose,
                            .grad = grad_transpose,
                            .cpu = cpu_transpose};

/* ---- Concat: its gradient cuts dY where the inputs met --------------------------------------- */

static bool infer_concat(InferCtx *c, NodeId n) {
    const Node node = c->g->node[n];
    const Value first = *op_input(c->g, n, 0);
    int64_t axis;
    TRY(op_need_axis(c, n, first.shape.rank, 0, &axis));
    Shape s = first.shape;
    for (uint32_t i = 1; i < node.nin; i++) {
        const Value *v = op_input(c->g, n, i);
        TRY(op_need_dtype(c, n, i, first.dtype));
        TRY(op_need_rank(c, n, i, s.rank, s.rank));
        Shape want = first.shape;
        want.dim[axis] = v->shape.dim[axis];
        TRY(op_need_shape(c, n, i, &want));
        if (__builtin_add_overflow(s.dim[axis], v->shape.dim[axis], &s.dim[axis]))
            return op_error(c, n, i, "expected a sum of sizes below 2^63 on axis %lld",
                            (long long)axis);
    }
    return op_out(c, n, 0, first.dtype, &s);
}

static bool grad_concat(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    uint32_t rank = g->value[dout[0]].shape.rank;
    int64_t axis = ir_get_i(&node, A_axis, 0), starts[IR_MAX_RANK] = {0}, steps[IR_MAX_RANK];
    if (axis < 0) axis += rank;
    for (uint32_t i = 0; i < rank; i++) steps[i] = 1;
    for (uint32_t i = 0; i < node.nin; i++) {
        const Shape s = g->value[node.in[i]].shape;
        Attr attr[] = {attr_ints(g->arena, A_starts, starts, rank),
                       attr_ints(g->arena, A_steps, steps, rank),
                       attr_ints(g->arena, A_sizes, s.dim, rank)};
        const char *name = op_derived(g, n, arena_printf(g->arena, ".dx%u", i));
        if (c->need[node.in[i]])
            din[i] = op_make_attr(g, PHASE_BACKWARD, OP_Slice, name, 1, &dout[0], attr, 3);
        starts[axis] += s.dim[axis];
    }
    return true;
}

static bool cpu_concat(CpuEmit *e, const Node *n) {
    const Graph *g = e->g;
    const Shape *y = &g->value[n->out[0]].shape;
    int64_t axis = ir_get_i(n, A_axis, 0), *inner = ARENA_ARRAY(e->arena, int64_t, n->nin);
    if (axis < 0) axis += y->rank;
    for (uint32_t i = 0; i < n->nin; i++)
        inner[i] =
            shape_span(&g->value[n->in[i]].shape, (uint32_t)axis, y->rank) * elem(e, n->in[i]);
    emit_sizes(e, "inner", inner, n->nin);
    text_add(e->body, "    dtrt_concat(%u, (const void *const *)p, p[%u], %lld, inner);\n", n->nin,
             n->nin, (long long)shape_span(y, 0, (uint32_t)axis));
    return true;
}

const OpDef op_Concat = {.name = "Concat",
                         .min_in = 1,
                         .max_in = 255,
                         .nout = 1,
                         .infer = infer_concat,
                         .grad = grad_concat,
                         .cpu = cpu_concat};

/* ---- Slice: Y[i..] = X[start + i*step ..] ---------------------------------------------------- */

bool op_check_cut(InferCtx *c, NodeId n, const Shape *x, const int64_t *start, const int64_t *step,
                  const int64_t *size) {
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t last = 0, dim = x->dim[i];
        bool fits = size[i] >= 0 && size[i] <= dim;
        if (fits && size[i] > 0) /* size - 1 <= dim <= 2^40, but the step may be anything */
            fits = !__builtin_mul_overflow(size[i] - 1, step[i], &last) &&
                   !__builtin_add_overflow(last, start[i], &last) && start[i] >= 0 &&
                   start[i] < dim && last >= 0 && last < dim;
        if (!fits)
            return op_error(c, n, NO_ID,
                            "expected a slice inside 0..%lld on axis %u, found start %lld, step "
                            "%lld, size %lld",
                            (long long)dim - 1, i, (long long)start[i], (long long)step[i],
                            (long long)size[i]);
    }
    return true;
}

static bool infer_slice(InferCtx *c, NodeId n) {
    const Value x = *op_input(c->g, n, 0);
    const int64_t *start, *step, *size;
    TRY(op_need_ints(c, n, A_starts, x.shape.rank, true, &start));
    TRY(op_need_ints(c, n, A_steps, x.shape.rank, true, &step));
    TRY(op_need_ints(c, n, A_sizes, x.shape.rank, true, &size));
    TRY(op_check_cut(c, n, &x.shape, start, step, size));
    Shape s = {.rank = x.shape.rank};
    for (uint32_t i = 0; i < s.rank; i++) s.dim[i] = size[i];
    return op_out(c, n, 0, x.dtype, &s);
}

static bool grad_slice(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!c->need[node.in[0]]) return true;
    Attr attr[] = {*ir_attr(&node, A_starts), *ir_attr(&node, A_steps), shape_attr(g, node.in[0])};
    din[0] = op_make_attr(g, PHASE_BACKWARD, OP_SliceGrad, op_derived(g, n, ".dx"), 1, &dout[0],
                          attr, 3);
    return true;
}

static bool infer_slice_grad(InferCtx *c, NodeId n) {
    Shape s;
    const int64_t *start, *step;
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(op_need_shape_attr(c, n, &s));
    TRY(op_need_rank(c, n, 0, s.rank, s.rank));
    TRY(op_need_ints(c, n, A_starts, s.rank, true, &start));
    TRY(op_need_ints(c, n, A_steps, s.rank, true, &step));
    TRY(op_check_cut(c, n, &s, start, step, op_input(c->g, n, 0)->shape.dim));
    return op_out(c, n, 0, DT_F32, &s);
}

static bool cpu_slice(CpuEmit *e, const Node *n) {
    bool grad = n->op == OP_SliceGrad;
    const Shape *in = &e->g->value[n->in[0]].shape, *out = &e->g->value[n->out[0]].shape;
    emit_sizes(e, "xdim", grad ? out->dim : in->dim, in->rank);
    emit_sizes(e, "start", ir_get_ints(n, A_starts, NULL), in->rank);
    emit_sizes(e, "step", ir_get_ints(n, A_steps, NULL), in->rank);
    emit_sizes(e, "size", grad ? in->dim : out->dim, in->rank);
    if (grad)
        text_add(e->body, "    dtrt_slice_grad(p[0], p[1], %u, xdim, start, step, size);\n",
                 in->rank);
    else
        text_add(e->body, "    dtrt_slice(p[0], p[1], %u, xdim, start, step, size, %d);\n",
                 in->rank, elem(e, n->in[0]));
    return true;
}

const OpDef op_Slice = {.name = "Slice",
                        .flags = OPF_PICKS,
                        .min_in = 1,
                        .max_in = 1,
                        .nout = 1,
                        .infer = infer_slice,
                        .grad = grad_slice,
                        .cpu = cpu_slice};

const OpDef op_SliceGrad = {.name = "SliceGrad",
                            .min_in = 1,
                            .max_in = 1,
                            .nout = 1,
                            .infer = infer_slice_grad,
                            .cpu = cpu_slice};

/* ---- Pad: negative pads crop ----------------------------------------------------------------- */

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE };

/* Shape of x padded. Reflection needs the cells it mirrors, the edge needs one. */
static bool padded_shape(InferCtx *c, NodeId n, const Shape *x, Shape *out) {
    const int64_t *pads, limit = (int64_t)1 << 40;
    int64_t mode = ir_get_i(&c->g->node[n], A_mode, PAD_CONSTANT);
    TRY(op_need_ints(c, n, A_pads, 2 * x->rank, true, &pads));
    if (mode < PAD_CONSTANT || mode > PAD_EDGE)
        return op_error(c, n, NO_ID, "expected mode 0, 1 or 2, found %lld", (long long)mode);
    *out = (Shape){.rank = x->rank};
    for (uint32_t i = 0; i < x->rank; i++) {
        int64_t lo = pads[i], hi = pads[x->rank + i], most = lo > hi ? lo : hi;
        bool fits =
            lo > -limit && lo < limit && hi > -limit && hi < limit && x->dim[i] + lo + hi >= 0;
        if (mode == PAD_REFLECT) fits = fits && most < x->dim[i];
        if (mode == PAD_EDGE) fits = fits && (most <= 0 || x->dim[i] > 0);
        if (!fits)
            return op_error(c, n, NO_ID,
                            "expected pads that fit size %lld of axis %u, found %lld and %lld",
                            (long long)x->dim[i], i, (long long)lo, (long long)hi);
        out->dim[i] = x->dim[i] + lo + hi;
    }
    return true;
}

static bool infer_pad(InferCtx *c, NodeId n) {
    const Value x = *op_input(c->g, n, 0);
    Shape s;
    TRY(padded_shape(c, n, &x.shape, &s));
    return op_out(c, n, 0, x.dtype, &s);
}

static bool infer_pad_grad(InferCtx *c, NodeId n) {
    Shape x, dy;
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(op_need_shape_attr(c, n, &x));
    TRY(padded_shape(c, n, &x, &dy));
    TRY(op_need_shape(c, n, 0, &dy));
    return op_out(c, n, 0, DT_F32, &x);
}

/* Constant padding has no gradient of its own: what is left is a slice. */
static bool grad_pad(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    const char *name = op_derived(g, n, ".dx");
    if (!c->need[node.in[0]]) return true;
    const Shape x = g->value[node.in[0]].shape;
    const int64_t *pads = ir_get_ints(&node, A_pads, NULL);
    int64_t ones[IR_MAX_RANK];
    bool crops = false;
    for (uint32_t i = 0; i < x.rank; i++) {
        ones[i] = 1;
        crops = crops || pads[i] < 0 || pads[x.rank + i] < 0;
    }
    if (ir_get_i(&node, A_mode, PAD_CONSTANT) == PAD_CONSTANT && !crops) {
        Attr attr[] = {attr_ints(g->arena, A_starts, pads, x.rank),
                       attr_ints(g->arena, A_steps, ones, x.rank),
                       attr_ints(g->arena, A_sizes, x.dim, x.rank)};
        din[0] = op_make_attr(g, PHASE_BACKWARD, OP_Slice, name, 1, &dout[0], attr, 3);
        return true;
    }
    Attr attr[] = {attr_ints(g->arena, A_pads, pads, 2 * x.rank),
                   attr_i(g->arena, A_mode, ir_get_i(&node, A_mode, PAD_CONSTANT)),
                   shape_attr(g, node.in[0])};
    din[0] = op_make_attr(g, PHASE_BACKWARD, OP_PadGrad, name, 1, &dout[0], attr, 3);
    return true;
}

static const char *runtime_type(DType d) {
    static const char *const name[DT_COUNT] = {
        [DT_F32] = "DTRT_F32", [DT_F64] = "DTRT_F64", [DT_I64] = "DTRT_I64",
        [DT_I32] = "DTRT_I32", [DT_U8] = "DTRT_U8",   [DT_BOOL] = "DTRT_BOOL"};
    return name[d];
}

static bool cpu_pad(CpuEmit *e, const Node *n) {
    bool grad = n->op == OP_PadGrad;
    const Value *x = &e->g->value[grad ? n->out[0] : n->in[0]];
    const int64_t *pads = ir_get_ints(n, A_pads, NULL);
    long long mode = (long long)ir_get_i(n, A_mode, PAD_CONSTANT);
    emit_sizes(e, "xdim", x->shape.dim, x->shape.rank);
    emit_sizes(e, "lo", pads, x->shape.rank);
    emit_sizes(e, "hi", pads + x->shape.rank, x->shape.rank);
    text_add(e->body, "    dtrt_pad%s(p[0], p[1], %u, xdim, lo, hi, %lld", grad ? "_grad" : "",
             x->shape.rank, mode);
    if (!grad)
        text_add(e->body, ", %s, %s", op_c_double(e->arena, ir_get_f(n, A_value, 0)),
                 runtime_type(x->dtype));
    text_str(e->body, ");\n");
    return true;
}

const OpDef op_Pad = {.name = "Pad",
                      .min_in = 1,
                      .max_in = 1,
                      .nout = 1,
                      .infer = infer_pad,
                      .grad = grad_pad,
                      .cpu = cpu_pad};

const OpDef op_PadGrad = {.name = "PadGrad",
                          .min_in = 1,
                          .max_in = 1,
                          .nout = 1,
                          .infer = infer_pad_grad,
                          .cpu = cpu_pad};

/* ---- Gather: data [outer, n, inner], indices [count] -> [outer, count, inner] ---------------- */

static bool infer_gather(InferCtx *c, NodeId n) {
    TRY(op_need_index(c, n, 1));
    const Value x = *op_input(c->g, n, 0), index = *op_input(c->g, n, 1);
    int64_t axis;
    TRY(op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    TRY(op_need_axis(c, n, x.shape.rank, 0, &axis));
    uint32_t rank = x.shape.rank + index.shape.rank - 1, k = 0;
    if (rank > IR_MAX_RANK)
        return op_error(c, n, 1, "expected an output of at most %d axes, found %u", IR_MAX_RANK,
                        rank);
    Shape s = {.rank = rank};
    for (uint32_t i = 0; i < axis; i++) s.dim[k++] = x.shape.dim[i];
    for (uint32_t i = 0; i < index.shape.rank; i++) s.dim[k++] = index.shape.dim[i];
    for (uint32_t i = (uint32_t)axis + 1; i < x.shape.rank; i++) s.dim[k++] = x.shape.dim[i];
    return op_out(c, n, 0, x.dtype, &s);
}

static bool grad_gather(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!c->need[node.in[0]]) return true;
    Attr attr[] = {attr_i(g->arena, A_axis, ir_get_i(&node, A_axis, 0)), shape_attr(g, node.in[0])};
    ValueId in[] = {dout[0], node.in[1]};
    din[0] =
        op_make_attr(g, PHASE_BACKWARD, OP_GatherGrad, op_derived(g, n, ".dx"), 2, in, attr, 2);
    return true;
}

static bool infer_gather_grad(InferCtx *c, NodeId n) {
    Shape s;
    int64_t axis;
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(op_need_index(c, n, 1));
    TRY(op_need_shape_attr(c, n, &s));
    TRY(op_need_axis(c, n, s.rank, 0, &axis));
    const Shape dy = op_input(c->g, n, 0)->shape, index = op_input(c->g, n, 1)->shape;
    bool fits = dy.rank == s.rank + index.rank - 1;
    for (uint32_t i = 0; fits && i < dy.rank; i++) {
        int64_t want = i < axis                ? s.dim[i]
                       : i < axis + index.rank ? index.dim[i - (uint32_t)axis]
                                               : s.dim[i - index.rank + 1];
        fits = dy.dim[i] == want;
    }
    if (!fits)
        return op_error(c, n, 0, "expected the shape of Gather over %s with indices %s, found %s",
                        shape_str(c->d->arena, &s), shape_str(c->d->arena, &index),
                        shape_str(c->d->arena, &dy));
    return op_out(c, n, 0, DT_F32, &s);
}

bool op_gather_geometry(const Graph *g, const Node *n, GatherGeometry *out) {
    bool grad = n->op == OP_GatherGrad;
    if (!grad && n->op != OP_Gather) return false;
    const Shape *data = &g->value[grad ? n->out[0] : n->in[0]].shape;
    int64_t axis = ir_get_i(n, A_axis, 0);
    uint32_t at = (uint32_t)(axis < 0 ? axis + data->rank : axis);
    *out =
        (GatherGeometry){shape_span(data, 0, at), data->dim[at],
                         shape_span(data, at + 1, data->rank), (int64_t)value_count(g, n->in[1])};
    return true;
}

static bool cpu_gather(CpuEmit *e, const Node *n) {
    bool grad = n->op == OP_GatherGrad;
    GatherGeometry q;
    op_gather_geometry(e->g, n, &q);
    text_add(e->body, "    dtrt_gather%s(c, p[0], p[1], %d, p[2], %lld, %lld, %lld, %lld",
             grad ? "_grad" : "", e->g->value[n->in[1]].dtype == DT_I32, (long long)q.outer,
             (long long)q.n, (long long)q.inner, (long long)q.count);
    if (grad)
        text_str(e->body, ", p[3]);\n");
    else
        text_add(e->body, ", %d);\n", elem(e, n->in[0]));
    if (grad)
        e->needs = arena_printf(e->arena, "dtrt_gather_grad_needs(%lld, %lld, %lld)",
                                (long long)q.n, (long long)q.inner, (long long)q.count);
    return true;
}

const OpDef op_Gather = {.name = "Gather",
                         .flags = OPF_PICKS,
                         .min_in = 2,
                         .max_in = 2,
                         .nout = 1,
                         .infer = infer_gather,
                         .grad = grad_gather,
                         .cpu = cpu_gather};

const OpDef op_GatherGrad = {.name = "GatherGrad",
                             .min_in = 2,
                             .max_in = 2,
                             .nout = 1,
                             .infer = infer_gather_grad,
                             .cpu = cpu_gather};

/* ---- Fill: attribute value everywhere; dtype in attribute `to`, f32 by default --------------- */

static bool infer_fill(InferCtx *c, NodeId n) {
    Shape s;
    TRY(op_need_shape_attr(c, n, &s));
    int64_t to = ir_get_i(&c->g->node[n], A_to, DT_F32);
    if (to < 0 || to >= DT_COUNT)
        return op_error(c, n, NO_ID, "expected a dtype in attribute to, found %lld", (long long)to);
    return op_out(c, n, 0, (DType)to, &s);
}

static bool cpu_fill(CpuEmit *e, const Node *n) {
    text_add(e->body, "    dtrt_fill(p[0], %llu, %s, %s);\n",
             (unsigned long long)value_count(e->g, n->out[0]),
             op_c_double(e->arena, ir_get_f(n, A_value, 0)),
             runtime_type(e->g->value[n->out[0]].dtype));
    return true;
}

const OpDef op_Fill = {
    .name = "Fill", .min_in = 0, .max_in = 0, .nout = 1, .infer = infer_fill, .cpu = cpu_fill};
