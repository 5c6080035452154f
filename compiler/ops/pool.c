/* pool.c - maximum and average pooling and their gradients. Max pooling keeps the position of each
 * maximum (an opaque byte array, sized by the runtime), so that its gradient needs neither X nor Y;
 * average pooling keeps nothing.
 *
 *   MaxPoolGrad:     dX[position of the maximum of window o] += dY[o]
 *   AveragePoolGrad: dX[i] += dY[o] / (cells of window o) for each window o over i; cells of the
 *                    padding count only with count_include_pad. */
#include "window.h"

static bool infer_pool(InferCtx *c, NodeId n) {
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(op_need_rank(c, n, 0, 3, 5));
    Geometry q;
    const char *why;
    if (!window_geometry(&c->g->node[n], &op_input(c->g, n, 0)->shape, NULL, &q, c->d->arena, &why))
        return op_error(c, n, NO_ID, "%s", why);
    for (uint32_t i = 0; i < q.nd; i++) {
        int64_t pad = q.pad_lo[i] > q.pad_hi[i] ? q.pad_lo[i] : q.pad_hi[i];
        int64_t window = q.dilation[i] * (q.kernel[i] - 1) + 1;
        if (pad >= window)
            return op_error(
                c, n, NO_ID,
                "expected padding below the window of %lld on spatial axis %u, found %lld",
                (long long)window, i, (long long)pad);
    }
    Shape out = window_output(&q);
    bool places = c->g->node[n].op == OP_MaxPoolPlaces;
    TRY(op_out(c, n, 0, places ? DT_I64 : DT_F32, &out));
    return c->g->node[n].nout < 2 || op_out(c, n, 1, DT_U8, &out);
}

static bool infer_places(InferCtx *c, NodeId n) {
    TRY(infer_pool(c, n));
    if (ir_get_i(&c->g->node[n], A_channels_last, 0))
        return op_error(c, n, NO_ID, "expected channels first");
    return true;
}

static bool infer_pool_grad(InferCtx *c, NodeId n) {
    Shape shape;
    Geometry q;
    TRY(op_need_shape_attr(c, n, &shape));
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_dtype(c, n, 1, DT_U8));
    if (!op_geometry(c->g, &c->g->node[n], &q))
        return op_error(c, n, NO_ID, "expected the geometry of a pool, found none");
    Shape dy = window_output(&q);
    TRY(op_need_shape(c, n, 0, &dy) && op_need_shape(c, n, 1, &dy));
    return op_out(c, n, 0, DT_F32, &shape);
}

static uint64_t flops_pool(const Graph *g, const Node *n) {
    Geometry q;
    if (!op_geometry(g, n, &q)) return 0;
    double work = (double)q.n * (double)q.ci;
    for (uint32_t i = 0; i < q.nd; i++) work *= (double)q.out[i] * (double)q.kernel[i];
    return work < 0x1p63 ? (uint64_t)work : UINT64_MAX / 2;
}

static bool grad_pool(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node pool = g->node[n];
    bool max = pool.op == OP_MaxPool;
    if (!c->need[pool.in[0]]) return true;
    if (max && (pool.nout < 2 || pool.out[1] == NO_ID))
        return diag_error(c->d, ir_place(g, n, NO_ID), "expected the output that keeps positions");
    Attr *attr = ARENA_ARRAY(g->arena, Attr, pool.nattr + 1);
    for (uint32_t i = 0; i < pool.nattr; i++) attr[i] = pool.attr[i];
    const Shape *s = &g->value[pool.in[0]].shape;
    attr[pool.nattr] = attr_ints(g->arena, A_shape, s->dim, s->rank);
    ValueId in[] = {dout[0], max ? pool.out[1] : NO_ID};
    din[0] = op_make_attr(g, PHASE_BACKWARD, max ? OP_MaxPoolGrad : OP_AveragePoolGrad,
                          op_derived(g, n, ".dx"), max ? 2 : 1, in, attr, pool.nattr + 1);
    return true;
}

bool op_pool_object(const Graph *g, const Node *n, PoolObject *out) {
    bool max = n->op == OP_MaxPool || n->op == OP_MaxPoolGrad || n->op == OP_MaxPoolPlaces;
    if (!max && n->op != OP_AveragePool && n->op != OP_AveragePoolGrad) return false;
    *out = (PoolObject){.is_max = max};
    return op_geometry(g, n, &out->q);
}

static bool pool_object(CpuEmit *e, const Node *n, uint32_t *number) {
    PoolObject p;
    TRY(op_pool_object(e->g, n, &p));
    const Geometry *q = &p.q;
    Text t;
    text_init(&t, e->arena);
    text_add(
        &t,
        "{.nd = %u, .channels_last = %d, .is_max = %d, .count_include_pad = %d, .ceil_mode = %d",
        q->nd, q->channels_last, p.is_max, (int)q->count_include_pad, (int)q->ceil_mode);
    text_add(&t, ", .n = %lld, .c = %lld", (long long)q->n, (long long)q->ci);
    window_fields(&t, q);
    text_char(&t, '}');
    *number = e->object(e, "DtrtPool", t.at);
    return true;
}

static bool cpu_pool(CpuEmit *e, const Node *n) {
    uint32_t obj;
    TRY(pool_object(e, n, &obj));
    text_add(e->body, "    dtrt_pool_forward(&DtrtPool_%u[c->slot], p[0], p[1], %s);\n", obj,
             n->nout > 1 ? "p[2]" : "NULL");
    return true;
}

static bool cpu_places(CpuEmit *e, const Node *n) {
    uint32_t obj;
    TRY(pool_object(e, n, &obj));
    text_add(e->body, "    dtrt_pool_places(&DtrtPool_%u[c->slot], p[0], p[1], %d);\n", obj,
             ir_get_i(n, A_mode, 0) != 0);
    return true;
}

static bool cpu_pool_grad(CpuEmit *e, const Node *n) {
    uint32_t obj;
    TRY(pool_object(e, n, &obj));
    text_add(e->body, "    dtrt_pool_grad(&DtrtPool_%u[c->slot], p[0], %s, p[%u]);\n", obj,
             n->nin > 1 ? "p[1]" : "NULL", n->nin);
    return true;
}

const OpDef op_MaxPool = {.name = "MaxPool",
                          .min_in = 1,
                          .max_in = 1,
                          .nout = 2,
                          .infer = infer_pool,
                          .grad = grad_pool,
                          .flops = flops_pool,
                          .cpu = cpu_pool};

/* What ONNX calls Indices; integers, so without a gradient. */
const OpDef op_MaxPoolPlaces = {.name = "MaxPoolPlaces",
                                .min_in = 1,
                                .max_in = 1,
                                .nout = 1,
                                .infer = infer_places,
                                .flops = flops_pool,
                                .cpu = cpu_places};

const OpDef op_MaxPoolGrad = {.name = "MaxPoolGrad",
                              .min_in = 2,
                              .max_in = 2,
                              .nout = 1,
                              .infer = infer_pool_grad,
                              .flops = flops_pool,
                              .cpu = cpu_pool_grad};

const OpDef op_AveragePool = {.name = "AveragePool",
                              .min_in = 1,
                              .max_in = 1,
                              .nout = 1,
                              .infer = infer_pool,
                              .grad = grad_pool,
                              .flops = flops_pool,
                              .cpu = cpu_pool};

const OpDef op_AveragePoolGrad = {.name = "AveragePoolGrad",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .nout = 1,
                                  .infer = infer_pool_grad,
                                  .flops = flops_pool,
                                  .cpu = cpu_pool_grad};
