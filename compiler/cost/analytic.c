/* analytic.c - Graph -> Cost without running anything.
 *
 * Time of a node: the larger of arithmetic over peak and bytes moved over bandwidth (the roofline
 * model: Williams, Waterman, Patterson, CACM 52(4), 2009), times a factor of the operator, plus a
 * fixed part for the call and its thread barrier. The constants are a Device; planners need ratios,
 * not seconds.
 * Workspace, packed weight sizes and max-pool indices are asked of the target's runtime through the
 * same objects that emission writes, once per distinct object. A node with the attribute cost_ns
 * keeps what that says. */
#include "measured.h"
#include "packed.h"

#include "cuda_plan.h"
#include "dtrt_kernels.h"

#include <string.h>

/* What the runtime said about one object. */
typedef struct {
    uint64_t workspace, weights; /* bytes; weights: packed */
} Needs;

typedef struct {
    const Graph *g;
    Cost *c;
    const Device *device;
    const CudaTarget *cuda; /* NULL: the target is another one */
    Arena *a;
    Map *known;
    VEC(Needs) needs;
} CostCtx;

/* Objects are compared by their bytes; hexadecimal makes them a key. */
static const char *object_key(Arena *a, char kind, const void *object, size_t n) {
    static const char digit[] = "0123456789abcdef";
    const unsigned char *b = object;
    char *s = arena_alloc(a, 2 * n + 2);
    s[0] = kind;
    for (size_t i = 0; i < n; i++) {
        s[1 + 2 * i] = digit[b[i] >> 4];
        s[2 + 2 * i] = digit[b[i] & 15];
    }
    return s;
}

static bool find(CostCtx *x, const char *key, Needs *out) {
    uint32_t i = map_get(x->known, key);
    if (i != NO_ID) *out = x->needs.at[i];
    return i != NO_ID;
}

static Needs learn(CostCtx *x, const char *key, Needs n) {
    map_put(x->known, key, x->needs.n);
    VEC_PUSH(x->a, x->needs, n);
    return n;
}

static void copy_sizes(int64_t *to, const int64_t *from) {
    memcpy(to, from, 3 * sizeof *to);
}

static Needs conv_needs(CostCtx *x, const ConvObject *o) {
    const Geometry *q = &o->q;
    DtrtConv c;
    memset(&c, 0, sizeof c); /* padding too: the bytes are the key */
    c.nd = (int)q->nd, c.channels_last = q->channels_last, c.group = (int)q->group;
    c.bias = q->bias, c.relu = q->relu, c.packed = o->packed;
    c.fwd = o->fwd, c.grad_x = o->grad_x, c.grad_w = o->grad_w;
    c.n = q->n, c.ci = q->ci, c.co = q->co;
    copy_sizes(c.in, q->in), copy_sizes(c.out, q->out), copy_sizes(c.k, q->kernel);
    copy_sizes(c.stride, q->stride), copy_sizes(c.dil, q->dilation);
    copy_sizes(c.pad_lo, q->pad_lo), copy_sizes(c.pad_hi, q->pad_hi);
    const char *key = object_key(x->a, 'c', &c, sizeof c);
    Needs n;
    if (find(x, key, &n)) return n;
    DtrtConvNeeds r;
    char err[256];
    if (x->cuda)
        cuda_plan_conv(&c, x->cuda, &r);
    else if (!dtrt_conv_needs(&c, x->c->threads, &r, err, sizeof err))
        return learn(x, key, (Needs){0, 0});
    return learn(x, key, (Needs){o->fwd ? r.fwd : o->grad_x ? r.grad_x : r.grad_w, r.weight_bytes});
}

static Needs matmul_needs(CostCtx *x, const MatmulObject *o) {
    DtrtMatmul m;
    memset(&m, 0, sizeof m);
    m.nbatch = (int)o->nbatch, m.trans_a = o->trans_a, m.trans_b = o->trans_b, m.bias = o->bias;
    m.alpha = (float)o->alpha, m.m = o->m, m.n = o->n, m.k = o->k;
    for (uint32_t i = 0; i < o->nbatch; i++) {
        m.batch_a[i] = o->batch_a[i];
        m.batch_b[i] = o->batch_b[i];
    }
    const char *key = object_key(x->a, 'm', &m, sizeof m);
    Needs n;
    if (find(x, key, &n)) return n;
    uint64_t workspace = 0;
    char err[256];
    if (x->cuda)
        workspace = cuda_matmul_workspace(&m);
    else if (!dtrt_matmul_needs(&m, x->c->threads, &workspace, err, sizeof err))
        workspace = 0;
    return learn(x, key, (Needs){workspace, 0});
}

static Needs attention_needs(CostCtx *x, const AttentionObject *o) {
    DtrtAttention m;
    memset(&m, 0, sizeof m);
    m.grad = o->grad, m.nbatch = (int)o->nbatch, m.trans_k = o->trans_k, m.add = o->add;
    m.cond = !o->cond   ? DTRT_ATTENTION_NO_COND
             : o->shows ? DTRT_ATTENTION_SHOWS
                        : DTRT_ATTENTION_HIDES;
    m.rows = o->rows, m.keys = o->keys, m.depth = o->depth, m.width = o->width;
    for (uint32_t i = 0; i < o->nbatch; i++) m.batch[i] = o->batch[i];
    const char *key = object_key(x->a, 'a', &m, sizeof m);
    Needs n;
    if (find(x, key, &n)) return n;
    uint64_t workspace = 0;
    char err[256];
    if (x->cuda) {
        CudaAttention how;
        cuda_attention(&m, &how);
        workspace = how.bytes;
    } else if (!dtrt_attention_needs(&m, x->c->threads, &workspace, err, sizeof err)) {
        workspace = 0;
    }
    return learn(x, key, (Needs){workspace, 0});
}

static uint64_t index_bytes(const PoolObject *o) {
    const Geometry *q = &o->q;
    DtrtPool p = {.nd = (int)q->nd, .is_max = o->is_max, .n = q->n, .c = q->ci};
    copy_sizes(p.out, q->out), copy_sizes(p.k, q->kernel);
    return dtrt_pool_index_bytes(&p);
}

static uint64_t loss_needs(const LossGeometry *q, int threads) {
    DtrtLoss l = {.outer = q->outer,
                  .n = q->n,
                  .inner = q->inner,
                  .label_i32 = q->label_i32,
                  .has_ignore = q->has_ignore,
                  .is_log = q->is_log,
                  .ignore_index = q->ignore_index,
                  .smoothing = (float)q->smoothing};
    return dtrt_loss_needs(&l, threads);
}

uint64_t cost_plain_workspace(const Graph *g, const Node *n, int threads) {
    LossGeometry loss;
    if (ir_attr(n, A_workspace)) return (uint64_t)ir_get_i(n, A_workspace, 0);
    if (op_is_loop(n)) return op_loop_workspace(g, n, threads);
    return op_loss_geometry(g, n, &loss) ? loss_needs(&loss, threads) : 0;
}

/* Library objects belong to operators, so that the operator tells which one is asked. */
static uint64_t node_workspace(CostCtx *x, NodeId id) {
    const Graph *g = x->g;
    const Node *n = &g->node[id];
    ConvObject conv;
    MatmulObject mm;
    AttentionObject at;
    SumGeometry sum;
    GatherGeometry gather;
    if (ir_attr(n, A_workspace)) return cost_plain_workspace(g, n, x->c->threads);
    if (op_conv_object(g, x->c->packed, n, &conv)) return conv_needs(x, &conv).workspace;
    if (op_matmul_object(g, n, &mm)) return matmul_needs(x, &mm).workspace;
    if (op_attention_object(g, n, &at)) return attention_needs(x, &at).workspace;
    if (x->cuda && op_sum_geometry(g, n, &sum)) {
        CudaSum how;
        cuda_sum((int)sum.nd, sum.dim, sum.red, &how);
        return how.bytes;
    }
    if (x->cuda && n->op == OP_GatherGrad && op_gather_geometry(g, n, &gather)) {
        CudaGatherSort how;
        cuda_gather_sort(gather.n, gather.inner, gather.count, &how);
        return how.bytes;
    }
    return cost_plain_workspace(g, n, x->c->threads);
}

double cost_bytes_moved(const Graph *g, const Cost *c, const Node *n) {
    double in = 0, out = 0, bytes;
    if (op_def(n->op)->flags & OPF_PATCHES) /* reads the patch and what lies there, writes it */
        return 3 * (double)c->storage_bytes[g->value[n->in[1]].storage];
    for (uint32_t i = 0; i < n->nout; i++)
        if (n->out[i] != NO_ID) out += (double)c->storage_bytes[g->value[n->out[i]].storage];
    for (uint32_t i = 0; i < n->nin; i++) {
        if (n->in[i] == NO_ID) continue;
        bytes = (double)c->storage_bytes[g->value[n->in[i]].storage];
        in += op_def(n->op)->flags & OPF_PICKS && bytes > out ? out : bytes;
    }
    return in + out;
}

/* Convolutions and matrix products reach another rate than loops. */
static bool is_product(const Graph *g, const Node *n) {
    ConvObject conv;
    MatmulObject mm;
    AttentionObject at;
    return op_conv_object(g, NULL, n, &conv) || op_matmul_object(g, n, &mm) ||
           op_attention_object(g, n, &at);
}

Roofline cost_roofline(const Graph *g, const Cost *c, const Node *n, const Device *x) {
    double threads = c->threads, bandwidth = x->bytes_per_ns * threads;
    if (bandwidth > x->max_bytes_per_ns) bandwidth = x->max_bytes_per_ns;
    double rate = is_product(g, n) ? x->flops_per_ns : x->loop_flops_per_ns;
    double work = (double)op_flops(g, n) / (rate * threads);
    double move = cost_bytes_moved(g, c, n) / bandwidth;
    return (Roofline){work > move ? work : move, work > move, is_product(g, n)};
}

static uint64_t node_time(const CostCtx *x, const Node *n) {
    if (op_node_class(n) == CLS_VIEW) return 0;
    if (ir_attr(n, A_cost_ns)) {
        int64_t ns = ir_get_i(n, A_cost_ns, 1);
        return ns < 1 ? 1 : (uint64_t)ns;
    }
    double factor = x->device->factor[n->op];
    double ns = cost_roofline(x->g, x->c, n, x->device).ns * (factor ? factor : 1);
    ns += x->device->fixed_ns;
    return ns < 1 ? 1 : ns > 1e18 ? (uint64_t)1e18 : (uint64_t)ns;
}

/* Packed weights and gradients have the bytes that the object says, states those of their weight.
 */
static void fill_packed_bytes(CostCtx *x) {
    const Graph *g = x->g;
    uint64_t *bytes = x->c->storage_bytes;
    for (NodeId i = 0; i < g->nnode; i++) {
        ConvObject o;
        const Node *n = &g->node[i];
        if (!op_conv_object(g, x->c->packed, n, &o) || !o.packed) continue;
        ValueId w = o.grad_w ? n->out[0] : n->in[1];
        bytes[g->value[w].storage] = conv_needs(x, &o).weights;
    }
    for (NodeId i = 0; i < g->nnode; i++) {
        const Node *n = &g->node[i];
        if (op_node_class(n) != CLS_EFFECT || !n->nin || n->in[0] == NO_ID ||
            !x->c->packed[n->in[0]])
            continue;
        for (uint32_t k = 1; k < n->nin; k++)
            if (n->in[k] != NO_ID)
                bytes[g->value[n->in[k]].storage] = bytes[g->value[n->in[0]].storage];
    }
}

/* Positions that max pooling saves. */
static void fill_index_bytes(const Graph *g, uint64_t *bytes) {
    for (NodeId i = 0; i < g->nnode; i++) {
        const Node *n = &g->node[i];
        PoolObject p;
        if (n->nout > 1 && n->out[1] != NO_ID && op_pool_object(g, n, &p))
            bytes[g->value[n->out[1]].storage] = index_bytes(&p);
    }
}

uint64_t *cost_plain_bytes(Arena *a, const Graph *g) {
    uint64_t *bytes = ARENA_ARRAY(a, uint64_t, g->nstorage + 1);
    for (StorageId s = 0; s < g->nstorage; s++) bytes[s] = g->storage[s].bytes;
    fill_index_bytes(g, bytes);
    return bytes;
}

const char *target_name(Target t) {
    return t == TARGET_CPU ? "cpu" : t == TARGET_CUDA ? "cuda" : "null";
}

Cost *cost_analytic(Arena *a, const Graph *g, Target t, int threads) {
    return cost_on_device(a, g, t, threads, device_default());
}

Cost *cost_on_device(Arena *a, const Graph *g, Target t, int threads, const Device *device) {
    Cost *c = ARENA_NEW(a, Cost);
    *c = (Cost){ARENA_ARRAY(a, uint64_t, g->nnode), ARENA_ARRAY(a, uint64_t, g->nnode),
                cost_plain_bytes(a, g), ARENA_ARRAY(a, bool, g->nvalue), threads};
    Arena *scratch = arena_new();
    CudaTarget cuda = {.device = device->gpu ? cuda_device_named(device->gpu) : NULL,
                       .tf32 = device->tf32};
    if (!cuda.device) cuda.device = cuda_device(0);
    CostCtx x = {.g = g,
                 .c = c,
                 .device = device,
                 .cuda = t == TARGET_CUDA ? &cuda : NULL,
                 .a = scratch,
                 .known = map_new(scratch)};
    if (t != TARGET_NULL) {
        fill_packed(scratch, g, c->packed);
        fill_packed_bytes(&x);
    }
    for (NodeId n = 0; n < g->nnode; n++) c->node_workspace[n] = node_workspace(&x, n);
    for (NodeId n = 0; n < g->nnode; n++) c->node_ns[n] = node_time(&x, &g->node[n]);
    arena_free(scratch);
    return c;
}

bool cost_lacks_library(const Graph *g, const Device *device) {
    if (!device->gpu || cuda_plan_library()) return false;
    for (NodeId n = 0; n < g->nnode; n++) {
        OpCode op = g->node[n].op;
        if (op == OP_Conv || op == OP_ConvGradX || op == OP_ConvGradW) return true;
    }
    return false;
}
