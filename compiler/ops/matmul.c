/* matmul.c - batched matrix product Y = alpha * op(A) op(B) + bias, where op swaps the last two
 * axes of an operand with trans_a / trans_b, and batch axes broadcast.
 *
 *   no trans_a: dA = alpha * dY op(B)'    trans_a: dA = alpha * op(B) dY'
 *   no trans_b: dB = alpha * op(A)' dY    trans_b: dB = alpha * dY' op(A)
 *
 * summed over broadcast batch axes. For a weight (B of two axes under an A of more) the leading
 * axes of A and dY are one long row axis, so dB is a single product and no batch of gradients
 * exists. */
#include "family.h"

/* One product: rows, columns, depth and the batch axes of both operands, right-aligned to nbatch.
 */
typedef struct {
    bool trans_a, trans_b;
    int64_t m, n, k;
    uint32_t nbatch;
    int64_t batch_a[IR_MAX_RANK], batch_b[IR_MAX_RANK];
} Product;

static Product read_product(const Graph *g, const Node *node) {
    const Shape *a = &g->value[node->in[0]].shape, *b = &g->value[node->in[1]].shape;
    Product p = {.trans_a = ir_get_i(node, A_trans_a, 0) != 0,
                 .trans_b = ir_get_i(node, A_trans_b, 0) != 0};
    p.m = a->dim[a->rank - (p.trans_a ? 1 : 2)];
    p.k = a->dim[a->rank - (p.trans_a ? 2 : 1)];
    p.n = b->dim[b->rank - (p.trans_b ? 2 : 1)];
    uint32_t ba = a->rank - 2, bb = b->rank - 2;
    p.nbatch = ba > bb ? ba : bb;
    for (uint32_t i = 0; i < p.nbatch; i++) {
        p.batch_a[i] = i + ba < p.nbatch ? 1 : a->dim[i + ba - p.nbatch];
        p.batch_b[i] = i + bb < p.nbatch ? 1 : b->dim[i + bb - p.nbatch];
    }
    return p;
}

static bool infer_matmul(InferCtx *c, NodeId n) {
    for (uint32_t i = 0; i < 3; i++) TRY(op_need_dtype(c, n, i, DT_F32));
    TRY(op_need_rank(c, n, 0, 2, IR_MAX_RANK) && op_need_rank(c, n, 1, 2, IR_MAX_RANK));
    const Node *node = &c->g->node[n];
    const Shape *a = &op_input(c->g, n, 0)->shape, *b = &op_input(c->g, n, 1)->shape;
    Product p = read_product(c->g, node);
    int64_t depth = b->dim[b->rank - (p.trans_b ? 1 : 2)];
    if (depth != p.k)
        return op_error(c, n, 1, "expected %lld rows to multiply with %s, found %lld in %s",
                        (long long)p.k, shape_str(c->d->arena, a), (long long)depth,
                        shape_str(c->d->arena, b));
    Shape out = {.rank = p.nbatch + 2};
    for (uint32_t i = 0; i < p.nbatch; i++) {
        if (p.batch_a[i] != p.batch_b[i] && p.batch_a[i] != 1 && p.batch_b[i] != 1)
            return op_error(c, n, 1, "expected batch axes that broadcast with %s, found %s",
                            shape_str(c->d->arena, a), shape_str(c->d->arena, b));
        out.dim[i] = p.batch_a[i] == 1 ? p.batch_b[i] : p.batch_a[i];
    }
    out.dim[p.nbatch] = p.m;
    out.dim[p.nbatch + 1] = p.n;
    TRY(op_need_shape(c, n, 2, &(Shape){.rank = 1, .dim = {p.n}}));
    return op_out(c, n, 0, DT_F32, &out);
}

static uint64_t flops_matmul(const Graph *g, const Node *n) {
    double work = 2.0 * (double)value_count(g, n->out[0]) * (double)read_product(g, n).k;
    return work < 0x1p63 ? (uint64_t)work : UINT64_MAX / 2;
}

/* ---- gradient -------------------------------------------------------------------------------- */

static ValueId product(Graph *g, const char *name, ValueId a, ValueId b, bool trans_a, bool trans_b,
                       double alpha) {
    Attr attr[3];
    uint32_t n = 0;
    if (trans_a) attr[n++] = attr_i(g->arena, A_trans_a, 1);
    if (trans_b) attr[n++] = attr_i(g->arena, A_trans_b, 1);
    if (alpha != 1) attr[n++] = attr_f(g->arena, A_alpha, alpha);
    return op_make_attr(g, PHASE_BACKWARD, OP_MatMul, name, 2, (ValueId[]){a, b}, attr, n);
}

/* v with all axes but the last made one. */
static ValueId as_rows(Graph *g, const char *name, ValueId v) {
    const Shape *s = &g->value[v].shape;
    Shape rows = {.rank = 2, .dim = {shape_span(s, 0, s->rank - 1), s->dim[s->rank - 1]}};
    return op_reshape(g, PHASE_BACKWARD, name, v, &rows);
}

static ValueId grad_a(Graph *g, NodeId n, ValueId dy, double alpha) {
    const Node mm = g->node[n];
    Product p = read_product(g, &mm);
    const char *name = op_derived(g, n, ".da");
    ValueId b = mm.in[1];
    ValueId da = p.trans_a ? product(g, name, b, dy, p.trans_b, true, alpha)
                           : product(g, name, dy, b, false, !p.trans_b, alpha);
    return op_reduce_to(g, PHASE_BACKWARD, op_derived(g, n, ".da.sum"), da,
                        &g->value[mm.in[0]].shape);
}

static ValueId grad_b(Graph *g, NodeId n, ValueId dy, double alpha) {
    const Node mm = g->node[n];
    Product p = read_product(g, &mm);
    ValueId a = mm.in[0];
    if (g->value[mm.in[1]].shape.rank == 2 && p.nbatch > 0 && !p.trans_a) {
        a = as_rows(g, op_derived(g, n, ".a.rows"), a);
        dy = as_rows(g, op_derived(g, n, ".dy.rows"), dy);
    }
    const char *name = op_derived(g, n, ".db");
    ValueId db = p.trans_b ? product(g, name, dy, a, true, p.trans_a, alpha)
                           : product(g, name, a, dy, !p.trans_a, false, alpha);
    return op_reduce_to(g, PHASE_BACKWARD, op_derived(g, n, ".db.sum"), db,
                        &g->value[mm.in[1]].shape);
}

static bool grad_matmul(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node mm = g->node[n];
    double alpha = ir_get_f(&mm, A_alpha, 1);
    if (mm.nin > 2 && mm.in[2] != NO_ID && c->need[mm.in[2]])
        din[2] = op_reduce_to(g, PHASE_BACKWARD, op_derived(g, n, ".dbias"), dout[0],
                              &g->value[mm.in[2]].shape);
    if (c->need[mm.in[1]]) din[1] = grad_b(g, n, dout[0], alpha);
    if (c->need[mm.in[0]]) din[0] = grad_a(g, n, dout[0], alpha);
    return true;
}

/* ---- emission -------------------------------------------------------------------------------- */

/* Without batch axes in B the rows of all batches of A are rows of one product. */
static void collapse_rows(Product *p) {
    if (p->trans_a) return;
    int64_t rows = p->m;
    for (uint32_t i = 0; i < p->nbatch; i++) {
        if (p->batch_b[i] != 1) return;
        rows *= p->batch_a[i];
    }
    p->m = rows;
    p->nbatch = 0;
}

/* Neighbouring batch axes that both operands have are one axis; axes of size 1 go. */
static void merge_batch(Product *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->nbatch; i++) {
        int64_t a = p->batch_a[i], b = p->batch_b[i];
        if (a == 1 && b == 1) continue;
        bool both = a == b && n && p->batch_a[n - 1] == p->batch_b[n - 1];
        bool only_a = b == 1 && n && p->batch_b[n - 1] == 1;
        bool only_b = a == 1 && n && p->batch_a[n - 1] == 1;
        if (both || only_a || only_b) {
            p->batch_a[n - 1] *= a;
            p->batch_b[n - 1] *= b;
        } else {
            p->batch_a[n] = a;
            p->batch_b[n++] = b;
        }
    }
    p->nbatch = n;
}

static void add_batch(Text *t, const char *field, const int64_t *v, uint32_t n) {
    if (n == 0) return;
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; i < n; i++) text_add(t, i ? ", %lld" : "%lld", (long long)v[i]);
    text_char(t, '}');
}

bool op_matmul_object(const Graph *g, const Node *n, MatmulObject *out) {
    if (n->op != OP_MatMul) return false;
    Product p = read_product(g, n);
    collapse_rows(&p);
    merge_batch(&p);
    *out = (MatmulObject){.trans_a = p.trans_a,
                          .trans_b = p.trans_b,
                          .bias = n->nin > 2 && n->in[2] != NO_ID,
                          .alpha = ir_get_f(n, A_alpha, 1),
                          .m = p.m,
                          .n = p.n,
                          .k = p.k,
                          .nbatch = p.nbatch};
    for (uint32_t i = 0; i < p.nbatch; i++) {
        out->batch_a[i] = p.batch_a[i];
        out->batch_b[i] = p.batch_b[i];
    }
    return true;
}

static bool cpu_matmul(CpuEmit *e, const Node *n) {
    MatmulObject p;
    TRY(op_matmul_object(e->g, n, &p));
    Text t;
    text_init(&t, e->arena);
    text_add(&t, "{.nbatch = %u, .trans_a = %d, .trans_b = %d, .bias = %d, .alpha = %s", p.nbatch,
             p.trans_a, p.trans_b, p.bias, op_c_float(e->arena, p.alpha));
    add_batch(&t, "batch_a", p.batch_a, p.nbatch);
    add_batch(&t, "batch_b", p.batch_b, p.nbatch);
    text_add(&t, ", .m = %lld, .n = %lld, .k = %lld", (long long)p.m, (long long)p.n,
             (long long)p.k);
    text_char(&t, '}');
    uint32_t obj = e->object(e, "DtrtMatmul", t.at);
    text_add(e->body, "    dtrt_matmul(&DtrtMatmul_%u[c->slot], p[0], p[1], %s, p[%u], p[%u]);\n",
             obj, p.bias ? "p[2]" : "NULL", n->nin, n->nin + 1);
    return true;
}

const OpDef op_MatMul = {.name = "MatMul",
                         .min_in = 2,
                         .max_in = 3,
                         .nout = 1,
                         .infer = infer_matmul,
                         .grad = grad_matmul,
                         .flops = flops_matmul,
                         .cpu = cpu_matmul};
