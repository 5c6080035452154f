/* attention.c - scaled dot-product attention in one node: Y = softmax(mask(alpha * Q K')) V, with
 * batch axes in front that Q, K and V share (A. Vaswani et al., "Attention is all you need",
 * NeurIPS 2017). Nothing of the size of queries times keys is saved: the gradient reads Q, K, V and
 * two numbers a query and computes probabilities again (T. Dao et al., "FlashAttention", NeurIPS
 * 2022).
 *
 * mask: where the condition says so a score becomes `value`, then the added mask is added. An added
 * mask may be trained: the gradient then has the gradient of the masked scores as a fourth output,
 * as large as these, but for no longer than it takes to sum it up.
 *
 * ratio: probabilities are dropped before the product with V, as by Dropout with the node's key
 * over the scores, in row-major order; both passes draw the same numbers. */
#include "family.h"

#include <string.h>

/* Input numbers of what both nodes read. */
typedef struct {
    uint32_t q, k, v, add, cond;
} Places;

static Places places(OpCode op) {
    return op == OP_Attention ? (Places){0, 1, 2, 3, 4} : (Places){1, 2, 3, 5, 6};
}

static bool has(const Node *n, uint32_t i) {
    return i < n->nin && n->in[i] != NO_ID;
}

/* A mask has axes of the scores or 1, at the end of theirs; the last is the keys'. */
static bool need_mask(InferCtx *c, NodeId n, uint32_t i, const Shape *scores) {
    const Node *node = &c->g->node[n];
    Shape sum;
    if (!has(node, i)) return true;
    const Shape *m = &op_input(c->g, n, i)->shape;
    bool ok = m->rank >= 1 && m->rank <= scores->rank && shape_broadcast(m, scores, &sum) &&
              shape_eq(&sum, scores) && m->dim[m->rank - 1] == scores->dim[scores->rank - 1];
    if (ok) return true;
    return op_error(c, n, i, "expected a mask for scores %s, found %s",
                    shape_str(c->d->arena, scores), shape_str(c->d->arena, m));
}

/* Checks what both nodes read; shapes of the result and of the scores. */
static bool check(InferCtx *c, NodeId n, Shape *y, Shape *all_scores) {
    const Graph *g = c->g;
    const Node *node = &g->node[n];
    Places p = places(node->op);
    for (uint32_t i = p.q; i <= p.v; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    TRY(op_need_rank(c, n, p.q, 2, IR_MAX_RANK));
    TRY(op_need_dtype(c, n, p.add, DT_F32) && op_need_dtype(c, n, p.cond, DT_BOOL));
    const Shape q = op_input(g, n, p.q)->shape, v = op_input(g, n, p.v)->shape;
    uint32_t r = q.rank, last = r - 1;
    TRY(op_need_rank(c, n, p.v, r, r));
    Shape k = q, scores = q, values = q;
    bool rows = ir_get_i(node, A_trans_b, 0) != 0;
    int64_t keys = v.dim[r - 2];
    k.dim[rows ? r - 2 : last] = keys;
    k.dim[rows ? last : r - 2] = q.dim[last];
    scores.dim[last] = values.dim[r - 2] = keys;
    values.dim[last] = v.dim[last];
    TRY(op_need_shape(c, n, p.k, &k) && op_need_shape(c, n, p.v, &values));
    uint64_t count;
    if (!shape_count(&scores, &count) || !count || !shape_count(&values, &count) || !count)
        return op_error(c, n, p.q, "expected scores of a size above 0, found %s",
                        shape_str(c->d->arena, &scores));
    TRY(need_mask(c, n, p.add, &scores) && need_mask(c, n, p.cond, &scores));
    double ratio = ir_get_f(node, A_ratio, 0);
    if (!(ratio >= 0 && ratio < 1))
        return op_error(c, n, NO_ID, "expected a ratio of 0 to less than 1, found %g", ratio);
    *all_scores = scores;
    *y = q;
    y->dim[last] = v.dim[last];
    return true;
}

static Shape stats_shape(const Shape *y) {
    Shape s = *y;
    s.dim[s.rank - 1] = 2;
    return s;
}

static bool infer_attention(InferCtx *c, NodeId n) {
    Shape y, scores;
    TRY(check(c, n, &y, &scores));
    Shape stats = stats_shape(&y);
    TRY(op_out(c, n, 0, DT_F32, &y));
    return op_out(c, n, 1, DT_F32, &stats);
}

static bool infer_attention_grad(InferCtx *c, NodeId n) {
    Shape y, scores;
    TRY(check(c, n, &y, &scores));
    Shape stats = stats_shape(&y);
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_dtype(c, n, 4, DT_F32));
    TRY(op_need_shape(c, n, 0, &y) && op_need_shape(c, n, 4, &stats));
    for (uint32_t i = 0; i < 3; i++) {
        Shape s = op_input(c->g, n, 1 + i)->shape;
        TRY(op_out(c, n, i, DT_F32, &s));
    }
    return op_out(c, n, 3, DT_F32, &scores);
}

static bool grad_attention(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node f = g->node[n];
    if (dout[0] == NO_ID) return true;
    if (f.nout < 2 || f.out[1] == NO_ID)
        return diag_error(c->d, ir_place(g, n, NO_ID), "expected the output of row statistics");
    ValueId in[7] = {dout[0], f.in[0], f.in[1], f.in[2], f.out[1], NO_ID, NO_ID};
    uint32_t nin = 5;
    for (uint32_t i = 3; i < f.nin; i++)
        if (f.in[i] != NO_ID) in[i + 2] = f.in[i], nin = i + 3;
    NodeId b = ir_node(g, OP_AttentionGrad, PHASE_BACKWARD, grad_name(c, n), nin,
                       grad_wants(c, n, 3) ? 4 : 3);
    memcpy(g->node[b].in, in, nin * sizeof *in);
    g->node[b].key = f.key;
    ir_attr_copy(g, b, f.attr, f.nattr);
    TRY(op_infer(g, c->d, b));
    const Node made = g->node[b];
    for (uint32_t i = 0; i < 3; i++)
        if (grad_wants(c, n, i)) din[i] = made.out[i];
    if (made.nout > 3) din[3] = grad_fit(c, n, made.out[3], 3);
    return true;
}

/* Products of depth and of width for each score, about twenty operations for its exponential, and
 * a random number where some are dropped (64 operations: four come at once). */
static uint64_t flops_attention(const Graph *g, const Node *n) {
    AttentionObject o;
    op_attention_object(g, n, &o);
    double scores = (double)o.rows * (double)o.keys, d = (double)o.depth, w = (double)o.width;
    for (uint32_t i = 0; i < o.nbatch; i++) scores *= (double)o.batch[i];
    double work = scores * (o.grad ? 6 * d + 4 * w + 30 : 2 * d + 2 * w + 20);
    if (o.ratio > 0) work += 64 * scores;
    return work < 0x1p63 ? (uint64_t)work : UINT64_MAX / 2;
}

static void read_mask(const Graph *g, const Node *n, uint32_t i, uint32_t axes, int64_t *dim) {
    const Shape *m = &g->value[n->in[i]].shape;
    for (uint32_t k = 0; k < axes; k++) {
        uint32_t extra = axes + 1 - m->rank;
        dim[k] = k < extra ? 1 : m->dim[k - extra];
    }
}

bool op_attention_object(const Graph *g, const Node *n, AttentionObject *out) {
    if (n->op != OP_Attention && n->op != OP_AttentionGrad) return false;
    Places p = places(n->op);
    const Shape *q = &g->value[n->in[p.q]].shape, *v = &g->value[n->in[p.v]].shape;
    uint32_t r = q->rank;
    *out = (AttentionObject){.grad = n->op == OP_AttentionGrad,
                             .trans_k = !ir_get_i(n, A_trans_b, 0),
                             .add = has(n, p.add),
                             .cond = has(n, p.cond),
                             .shows = ir_get_i(n, A_mode, 0) != 0,
                             .alpha = ir_get_f(n, A_alpha, 1),
                             .fill = ir_get_f(n, A_value, 0),
                             .ratio = ir_get_f(n, A_ratio, 0),
                             .nbatch = r - 2,
                             .rows = q->dim[r - 2],
                             .keys = v->dim[r - 2],
                             .depth = q->dim[r - 1],
                             .width = v->dim[r - 1]};
    for (uint32_t i = 0; i + 2 < r; i++) out->batch[i] = q->dim[i];
    if (out->add) read_mask(g, n, p.add, r - 1, out->add_dim);
    if (out->cond) read_mask(g, n, p.cond, r - 1, out->cond_dim);
    return true;
}

static void add_dims(Text *t, const char *field, const int64_t *v, uint32_t n) {
    if (n == 0) return;
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; i < n; i++) text_add(t, i ? ", %lld" : "%lld", (long long)v[i]);
    text_char(t, '}');
}

static const char *pointer(const CpuEmit *e, const Node *n, uint32_t i) {
    return has(n, i) ? arena_printf(e->arena, "p[%u]", i) : "NULL";
}

static bool cpu_attention(CpuEmit *e, const Node *n) {
    AttentionObject o;
    TRY(op_attention_object(e->g, n, &o));
    Places p = places(n->op);
    Text t;
    text_init(&t, e->arena);
    text_add(&t, "{.grad = %d, .nbatch = %u, .trans_k = %d, .add = %d, .cond = %s", o.grad,
             o.nbatch, o.trans_k, o.add,
             !o.cond   ? "DTRT_ATTENTION_NO_COND"
             : o.shows ? "DTRT_ATTENTION_SHOWS"
                       : "DTRT_ATTENTION_HIDES");
    text_add(&t, ", .alpha = %s, .fill = %s", op_c_float(e->arena, o.alpha),
             op_c_float(e->arena, o.fill));
    if (o.ratio > 0) text_add(&t, ", .ratio = %s", op_c_float(e->arena, o.ratio));
    add_dims(&t, "batch", o.batch, o.nbatch);
    text_add(&t, ", .rows = %lld, .keys = %lld, .depth = %lld, .width = %lld", (long long)o.rows,
             (long long)o.keys, (long long)o.depth, (long long)o.width);
    if (o.add) add_dims(&t, "add_dim", o.add_dim, o.nbatch + 1);
    if (o.cond) add_dims(&t, "cond_dim", o.cond_dim, o.nbatch + 1);
    text_char(&t, '}');
    uint32_t obj = e->object(e, "DtrtAttention", t.at), out = n->nin;
    const char *masks =
        arena_printf(e->arena, "%s, %s", pointer(e, n, p.add), pointer(e, n, p.cond));
    if (!o.grad) {
        text_add(e->body,
                 "    dtrt_attention_forward(c, &DtrtAttention_%u[c->slot], %u, p[0], p[1], p[2], "
                 "%s, p[%u], p[%u], p[%u]);\n",
                 obj, n->key, masks, out, out + 1, out + 2);
        return true;
    }
    const char *dscores = n->nout > 3 ? arena_printf(e->arena, "p[%u]", out + 3) : "NULL";
    text_add(e->body,
             "    dtrt_attention_grad(c, &DtrtAttention_%u[c->slot], %u, p[0], p[1], p[2], p[3], "
             "%s, p[4], p[%u], p[%u], p[%u], %s, p[%u]);\n",
             obj, n->key, masks, out, out + 1, out + 2, dscores, out + n->nout);
    return true;
}

const OpDef op_Attention = {.name = "Attention",
                            .min_in = 3,
                            .max_in = 5,
                            .nout = 2,
                            .infer = infer_attention,
                            .grad = grad_attention,
                            .flops = flops_attention,
                            .cpu = cpu_attention};

const OpDef op_AttentionGrad = {.name = "AttentionGrad",
                                .min_in = 5,
                                .max_in = 7,
                                .nout = 4,
                                .spare = 1,
                                .infer = infer_attention_grad,
                                .flops = flops_attention,
                                .cpu = cpu_attention};
