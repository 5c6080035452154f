/* reduce.c - sums over axes, and the statistics of batch norm. Sums over leading axes leave one
 * number per column; codegen makes loops for them (and fuses them with what feeds them) from the
 * acc and fin expressions. Other sums call the runtime. All accumulate in double. */
#include "family.h"

#include <assert.h>

/* Bit k: axis k is reduced. Without attribute axes, or with an empty one, all are. */
uint32_t op_reduced_axes(const Node *n, uint32_t rank) {
    uint32_t count, mask = 0;
    const int64_t *axis = ir_get_ints(n, A_axes, &count);
    for (uint32_t k = 0; k < count; k++) mask |= 1u << axis[k];
    return count ? mask : (1u << rank) - 1;
}

bool op_reduced_shape(InferCtx *c, NodeId n, const Shape *x, Shape *out) {
    uint32_t count;
    const int64_t *axis = ir_get_ints(&c->g->node[n], A_axes, &count);
    for (uint32_t k = 0; k < count; k++)
        if (axis[k] < 0 || axis[k] >= x->rank || (k && axis[k] <= axis[k - 1]))
            return op_error(c, n, 0, "expected rising axes of %s, found %lld",
                            shape_str(c->d->arena, x), (long long)axis[k]);
    uint32_t mask = op_reduced_axes(&c->g->node[n], x->rank);
    bool keep = ir_get_i(&c->g->node[n], A_keepdims, 1) != 0;
    *out = (Shape){0};
    for (uint32_t k = 0; k < x->rank; k++) {
        if (!(mask & 1u << k))
            out->dim[out->rank++] = x->dim[k];
        else if (keep)
            out->dim[out->rank++] = 1;
    }
    return true;
}

bool op_infer_reduce(InferCtx *c, NodeId n) {
    Shape s = op_input(c->g, n, 0)->shape, o;
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(op_reduced_shape(c, n, &s, &o));
    return op_out(c, n, 0, DT_F32, &o);
}

/* dX = scale * dY at every element that was summed: dY with its axes kept, broadcast to X. */
static bool grad_sum(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    if (!grad_wants(c, n, 0)) return true;
    const char *name = grad_name(c, n);
    double scale = ir_get_f(&g->node[n], A_scale, 1);
    Shape s = op_input(g, n, 0)->shape, kept = s;
    uint32_t mask = op_reduced_axes(&g->node[n], s.rank);
    for (uint32_t k = 0; k < s.rank; k++)
        if (mask & 1u << k) kept.dim[k] = 1;
    ValueId v = op_reshape(g, PHASE_BACKWARD, name, dout[0], &kept);
    if (scale != 1) {
        Attr at = attr_f(g->arena, A_alpha, scale);
        v = op_make_attr(g, PHASE_BACKWARD, OP_Scale, name, 1, &v, &at, 1);
    }
    if (!shape_eq(&s, &kept)) {
        Attr at = attr_ints(g->arena, A_shape, s.dim, s.rank);
        v = op_make_attr(g, PHASE_BACKWARD, OP_Expand, name, 1, &v, &at, 1);
    }
    din[0] = v;
    return true;
}

static uint64_t flops_in(const Graph *g, const Node *n) {
    return value_count(g, n->in[0]);
}

void op_emit_reduced(CpuEmit *e, const Node *n, const Shape *s) {
    uint32_t mask = op_reduced_axes(n, s->rank);
    text_str(e->body, "    const int64_t dim[] = {");
    for (uint32_t k = 0; k < s->rank; k++)
        text_add(e->body, "%s%lld", k ? ", " : "", (long long)s->dim[k]);
    text_str(e->body, s->rank ? "};\n" : "1};\n");
    text_str(e->body, "    const uint8_t red[] = {");
    for (uint32_t k = 0; k < s->rank; k++) text_add(e->body, "%s%u", k ? ", " : "", mask >> k & 1);
    text_str(e->body, s->rank ? "};\n" : "0};\n");
}

bool op_sum_geometry(const Graph *g, const Node *n, SumGeometry *out) {
    if (n->op != OP_ReduceSum || op_is_loop(n)) return false;
    const Shape *s = &g->value[n->in[0]].shape;
    uint32_t mask = op_reduced_axes(n, s->rank);
    *out = (SumGeometry){.nd = s->rank};
    for (uint32_t k = 0; k < s->rank; k++) {
        out->dim[k] = s->dim[k];
        out->red[k] = mask >> k & 1;
    }
    return true;
}

/* "dtrt_reduce_sum_needs(2, (const int64_t[]){3, 4}, (const uint8_t[]){0, 1})" */
static const char *sum_needs(Arena *a, const SumGeometry *q) {
    Text t;
    text_init(&t, a);
    text_add(&t, "dtrt_reduce_sum_needs(%u, (const int64_t[]){", q->nd);
    for (uint32_t k = 0; k < q->nd; k++)
        text_add(&t, "%s%lld", k ? ", " : "", (long long)q->dim[k]);
    text_str(&t, "}, (const uint8_t[]){");
    for (uint32_t k = 0; k < q->nd; k++) text_add(&t, "%s%u", k ? ", " : "", q->red[k]);
    text_str(&t, "})");
    return t.at;
}

static bool cpu_sum(CpuEmit *e, const Node *n) {
    const Shape *s = &e->g->value[n->in[0]].shape;
    SumGeometry q;
    if (op_sum_geometry(e->g, n, &q)) e->needs = sum_needs(e->arena, &q);
    assert(s->rank > 0); /* a sum without axes, or over all, is a column reduction */
    op_emit_reduced(e, n, s);
    text_add(e->body, "    dtrt_reduce_sum(p[0], p[1], %u, dim, red, %s, p[2]);\n", s->rank,
             op_c_float(e->arena, ir_get_f(n, A_scale, 1)));
    return true;
}

const OpDef op_ReduceSum = {
    .name = "ReduceSum",
    .flags = OPF_COLREDUCE,
    .min_in = 1,
    .max_in = 1,
    .nout = 1,
    .p = {A_scale, A_COUNT, A_COUNT},
    .dflt = {1},
    .acc = {"a"},
    .fin = {"s0 * p0"},
    .infer = op_infer_reduce,
    .grad = grad_sum,
    .flops = flops_in,
    .cpu = cpu_sum,
};

/* ---- batch norm: X[.., C] ---- */
/* Operands `first`.. are [C], those before have the shape of X; `nout` outputs [C]. */
static bool infer_columns(InferCtx *c, NodeId n, uint32_t first, uint32_t nout) {
    TRY(op_need_rank(c, n, 0, 1, IR_MAX_RANK));
    Shape x = op_input(c->g, n, 0)->shape, col = {1, {x.dim[x.rank - 1]}};
    for (uint32_t i = 0; i < c->g->node[n].nin; i++) {
        TRY(op_need_dtype(c, n, i, DT_F32));
        TRY(op_need_shape(c, n, i, i < first ? &x : &col));
    }
    for (uint32_t k = 0; k < nout; k++) TRY(op_out(c, n, k, DT_F32, &col));
    return true;
}
static bool infer_stats(InferCtx *c, NodeId n) {
    return infer_columns(c, n, 1, 2);
}
static bool infer_bn_grad(InferCtx *c, NodeId n) {
    return infer_columns(c, n, 2, 2);
}

static uint64_t flops_stats(const Graph *g, const Node *n) {
    return 3 * value_count(g, n->in[0]);
}
static uint64_t flops_bn_grad(const Graph *g, const Node *n) {
    return 5 * value_count(g, n->in[0]);
}

/* No gradient of its own: BnApply's takes the way through mean and variance in (elementwise.c). The
 * variance is that of the population; in exact arithmetic it is not negative. */
const OpDef op_BnStats = {
    .name = "BnStats",
    .flags = OPF_COLREDUCE,
    .min_in = 1,
    .max_in = 1,
    .nout = 2,
    .p = {A_COUNT, A_COUNT, A_COUNT},
    .acc = {"a", "(double)a * a"},
    .fin = {"s0 / n", "fmax(s1 / n - s0 / n * (s0 / n), 0)"},
    .infer = infer_stats,
    .flops = flops_stats,
};

const OpDef op_BnGradReduce = {
    .name = "BnGradReduce",
    .flags = OPF_COLREDUCE,
    .min_in = 4,
    .max_in = 4,
    .nout = 2,
    .p = {A_COUNT, A_COUNT, A_COUNT},
    .acc = {"a", "a * ((b - c) * d)"},
    .fin = {"s0", "s1"},
    .infer = infer_bn_grad,
    .flops = flops_bn_grad,
};
