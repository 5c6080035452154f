/* conv.c - convolution and its two gradients: geometry -> oneDNN primitives -> run.
 *
 * Activations are dense, channels last (or first). Weights are kept in one layout for all passes,
 * the store: plain, or, when packed, what the library prefers. The choice is made from the geometry
 * alone, so every object of one geometry agrees: the layout of the backward-weights pass if the
 * forward pass is fast with it too (same kernels and speed as its own first choice, and neither
 * pass copies weights), else the forward pass's own. A pass whose fast kernel wants another layout
 * reorders the weights through its workspace; a pass uses the store directly if that has a fast
 * kernel, that is, not the library's reference or im2col code. Padding of packed weights is zero:
 * the library fills it after every write.
 *
 * Where the library has only its reference loops for a gradient (or a kernel that is wrong) and
 * windows do not overlap, patches.c makes it a matrix product.
 *
 * Workspace of a pass: [library scratchpad | weights in the pass's layout | patches]. The fused
 * ReLU is our own loop after the convolution, because the library's maps NaN to 0. Bias gradients
 * are reductions and not made here. */
#include "kernel.h"
#include "onednn.h"
#include "patches.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FWD, GRAD_X, GRAD_W, PASSES, ALIGN = 256 };

/* Memory descriptors of one geometry. */
typedef struct {
    dnnl_memory_desc_t x, y, bias, any, plain; /* any, plain: weights */
    dnnl_dims_t stride, dilation, pad_lo, pad_hi;
    dnnl_memory_desc_t store; /* layout in which weights are kept */
} Shapes;

/* A pass before its primitives exist. */
typedef struct {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_desc_t reorder; /* of the weights, NULL: reads or writes the store itself */
    dnnl_memory_desc_t weights;    /* as this pass has them */
    bool product;                  /* over patches, not a convolution of the library */
    Patches patches;
    uint64_t scratch; /* bytes for either one's scratchpad: the weights lie after them */
    uint64_t at;      /* where patches lie in the workspace */
    uint64_t bytes;   /* whole workspace */
} PassPlan;

typedef struct {
    OnednnOp op, reorder;
    bool product;
    uint64_t scratch, at;
} Pass;

typedef struct {
    dnnl_memory_desc_t store, plain;
    int64_t outputs;    /* elements of y */
    uint64_t workspace; /* the largest of the passes */
    Pass pass[PASSES];
} Conv;

/* ---- shapes ---- */

static dnnl_status_t dense_md(dnnl_memory_desc_t *md, const DtrtConv *c, int64_t channels,
                              const int64_t *space) {
    static const dnnl_format_tag_t tag[2][3] = {{dnnl_abc, dnnl_abcd, dnnl_abcde},
                                                {dnnl_acb, dnnl_acdb, dnnl_acdeb}};
    dnnl_dims_t dim = {c->n, channels};
    for (int i = 0; i < c->nd; i++) dim[2 + i] = space[i];
    return dnnl_memory_desc_init_by_tag(md, c->nd + 2, dim, dnnl_f32,
                                        tag[c->channels_last != 0][c->nd - 1]);
}

static dnnl_status_t weights_md(dnnl_memory_desc_t *md, const DtrtConv *c, bool plain) {
    static const dnnl_format_tag_t tag[] = {dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    dnnl_dims_t dim = {c->group, c->co / c->group, c->ci / c->group};
    int g = c->group > 1;
    if (!g) {
        dim[0] = c->co;
        dim[1] = c->ci;
    }
    for (int i = 0; i < c->nd; i++) dim[2 + g + i] = c->k[i];
    return dnnl_memory_desc_init_by_tag(md, c->nd + 2 + g, dim, dnnl_f32,
                                        plain ? tag[c->nd - 1 + g] : dnnl_format_tag_any);
}

static dnnl_status_t fill_shapes(const DtrtConv *c, Shapes *s) {
    dnnl_dims_t co = {c->co};
    assert(c->nd >= 1 && c->nd <= 3 && c->group >= 1);
    assert(c->ci % c->group == 0 && c->co % c->group == 0);
    *s = (Shapes){0};
    for (int i = 0; i < c->nd; i++) {
        s->stride[i] = c->stride[i];
        s->dilation[i] = c->dil[i] - 1;
        s->pad_lo[i] = c->pad_lo[i];
        s->pad_hi[i] = c->pad_hi[i];
    }
    dnnl_status_t st = dense_md(&s->x, c, c->ci, c->in);
    if (st == dnnl_success) st = dense_md(&s->y, c, c->co, c->out);
    if (st == dnnl_success) st = weights_md(&s->any, c, false);
    if (st == dnnl_success) st = weights_md(&s->plain, c, true);
    if (st == dnnl_success) {
        st = dnnl_memory_desc_init_by_tag(&s->bias, 1, co, dnnl_f32, dnnl_a);
    }
    return st;
}

/* ---- choice of kernels ---- */

static dnnl_status_t fill_desc(const Shapes *s, int pass, const dnnl_memory_desc_t *w, bool bias,
                               dnnl_convolution_desc_t *d) {
    switch (pass) {
    case FWD:
        return dnnl_dilated_convolution_forward_desc_init(
            d, dnnl_forward_training, dnnl_convolution_direct, &s->x, w, bias ? &s->bias : NULL,
            &s->y, s->stride, s->dilation, s->pad_lo, s->pad_hi);
    case GRAD_X:
        return dnnl_dilated_convolution_backward_data_desc_init(d, dnnl_convolution_direct, &s->x,
                                                                w, &s->y, s->stride, s->dilation,
                                                                s->pad_lo, s->pad_hi);
    default:
        return dnnl_dilated_convolution_backward_weights_desc_init(
            d, dnnl_convolution_direct, &s->x, w, NULL, &s->y, s->stride, s->dilation, s->pad_lo,
            s->pad_hi);
    }
}

static bool is_reference(const_dnnl_primitive_desc_t pd) {
    return strstr(onednn_impl(pd), "ref") != NULL;
}

static bool is_fast(const_dnnl_primitive_desc_t pd) {
    return !is_reference(pd) && !strstr(onednn_impl(pd), "gemm:");
}

/* The library's first implementation of a pass with weights w, NULL when there is none. */
static dnnl_primitive_desc_t first_pd(const Shapes *s, int pass, const dnnl_memory_desc_t *w,
                                      bool bias, dnnl_status_t *status) {
    dnnl_convolution_desc_t d;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    *status = fill_desc(s, pass, w, bias, &d);
    if (*status == dnnl_success) *status = onednn_attr(&attr);
    if (*status == dnnl_success) {
        *status = dnnl_primitive_desc_create(&pd, &d, attr, onednn_engine(), NULL);
        if (*status != dnnl_success) pd = NULL;
    }
    if (attr) dnnl_primitive_attr_destroy(attr);
    return pd;
}

static const dnnl_memory_desc_t *pass_weights(const_dnnl_primitive_desc_t pd, int pass) {
    return dnnl_primitive_desc_query_md(
        pd, pass == GRAD_W ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

/* Where packed weights are kept. Grouped kernels of few channels have a tight layout for the
 * forward pass and one padded to whole vectors for backward weights: a layout that needs more bytes
 * is not shared. */
static dnnl_status_t choose_store(const DtrtConv *c, const DtrtConv *like, Shapes *s) {
    dnnl_status_t st;
    s->store = s->plain;
    if (!c->packed) return dnnl_success;
    if (like) {
        s->store = ((const Conv *)like->impl)->store;
        return dnnl_success;
    }
    dnnl_primitive_desc_t fwd = first_pd(s, FWD, &s->any, false, &st);
    if (!fwd) return st;
    dnnl_primitive_desc_t back = first_pd(s, GRAD_W, &s->any, false, &st);
    dnnl_primitive_desc_t both = NULL;
    if (is_fast(fwd)) s->store = *pass_weights(fwd, FWD);
    if (back && is_fast(back)) {
        const dnnl_memory_desc_t *w = pass_weights(back, GRAD_W);
        if (c->group == 1 || onednn_md_bytes(w) <= onednn_md_bytes(pass_weights(fwd, FWD))) {
            both = first_pd(s, FWD, w, false, &st);
        }
        if (both && is_fast(both)) s->store = *w;
    }
    dnnl_primitive_desc_destroy(fwd);
    if (back) dnnl_primitive_desc_destroy(back);
    if (both) dnnl_primitive_desc_destroy(both);
    return dnnl_success;
}

static dnnl_status_t plan_reorder(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                  dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_engine_t e = onednn_engine();
    dnnl_status_t st = onednn_attr(&attr);
    if (st == dnnl_success) st = dnnl_reorder_primitive_desc_create(pd, from, e, to, e, attr);
    if (st != dnnl_success) *pd = NULL;
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

static void free_plan(PassPlan *p) {
    if (p->pd) dnnl_primitive_desc_destroy(p->pd);
    if (p->reorder) dnnl_primitive_desc_destroy(p->reorder);
    *p = (PassPlan){0};
}

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The library's kernel of one pass: one that is fast, first of all with the store. */
static dnnl_status_t plan_kernel(const Shapes *s, int pass, bool bias, PassPlan *p) {
    dnnl_status_t st;
    p->pd = first_pd(s, pass, &s->store, bias, &st);
    if (!p->pd || !is_fast(p->pd)) {
        dnnl_primitive_desc_t own = first_pd(s, pass, &s->any, bias, &st);
        if (own && (!p->pd || is_fast(own))) {
            free_plan(p);
            p->pd = own;
        } else if (own) {
            dnnl_primitive_desc_destroy(own);
        }
    }
    if (!p->pd) return st;
    p->weights = *pass_weights(p->pd, pass);
    return dnnl_success;
}

/* The library's 1x1 kernel for backward weights collects the pixels that a stride leaves in blocks
 * of 16 channels, but has reserved room in its scratchpad for as many channels as there are: with
 * other numbers of channels it writes past the end (oneDNN 2.6.3; seen with 3, 8 and 12). */
static bool writes_past_end(const DtrtConv *c, int pass, const_dnnl_primitive_desc_t pd) {
    bool strided = false;
    for (int i = 0; i < c->nd; i++) strided |= c->stride[i] > 1;
    return pass == GRAD_W && strided && c->ci / c->group % 16 != 0 &&
           !strncmp(onednn_impl(pd), "jit_1x1", 7);
}

/* The same pass as a product, if there is one. */
static void plan_product(const DtrtConv *c, int pass, PassPlan *p) {
    dnnl_primitive_desc_t pd;
    Patches patches;
    if (pass == FWD || !patches_fit(c)) return;
    if (patches_plan(c, pass == GRAD_W, &patches, &pd) != dnnl_success) return;
    free_plan(p);
    *p = (PassPlan){.pd = pd, .weights = patches.weights, .product = true, .patches = patches};
}

/* Kernel and workspace of one pass. On failure the plan is empty. */
static dnnl_status_t plan_pass(const DtrtConv *c, const Shapes *s, int pass, PassPlan *p) {
    *p = (PassPlan){0};
    dnnl_status_t st = plan_kernel(s, pass, pass == FWD && c->bias, p);
    if (st != dnnl_success) return st;
    if (is_reference(p->pd) || writes_past_end(c, pass, p->pd)) plan_product(c, pass, p);
    p->scratch = onednn_scratch_bytes(p->pd);
    p->bytes = p->scratch;
    if (!dnnl_memory_desc_equal(&p->weights, &s->store)) {
        st = pass == GRAD_W ? plan_reorder(&p->weights, &s->store, &p->reorder)
                            : plan_reorder(&s->store, &p->weights, &p->reorder);
        if (st != dnnl_success) {
            free_plan(p);
            return st;
        }
        uint64_t own = onednn_scratch_bytes(p->reorder);
        p->scratch = aligned(own > p->scratch ? own : p->scratch);
        p->bytes = p->scratch + onednn_md_bytes(&p->weights);
    }
    if (p->product) {
        p->at = aligned(p->bytes);
        p->bytes = p->at + patches_bytes(&p->patches);
    }
    return dnnl_success;
}

/* Shapes, the store and the plans of the passes asked for. */
static dnnl_status_t plan_conv(const DtrtConv *c, const DtrtConv *like, Shapes *s,
                               PassPlan plan[PASSES]) {
    const int wanted[PASSES] = {c->fwd, c->grad_x, c->grad_w};
    dnnl_status_t st = onednn_engine() ? fill_shapes(c, s) : dnnl_runtime_error;
    memset(plan, 0, PASSES * sizeof *plan);
    if (st == dnnl_success) st = choose_store(c, like, s);
    for (int i = 0; i < PASSES && st == dnnl_success; i++) {
        if (wanted[i]) st = plan_pass(c, s, i, &plan[i]);
    }
    if (st != dnnl_success) {
        for (int i = 0; i < PASSES; i++) free_plan(&plan[i]);
    }
    return st;
}

static void describe(const DtrtConv *c, dnnl_status_t st, char *err, size_t nerr) {
    snprintf(err, nerr, "convolution of %lld to %lld channels, %d axes, kernel %lld, group %d: %s",
             (long long)c->ci, (long long)c->co, c->nd, (long long)c->k[0], c->group,
             onednn_error(st));
}

bool dtrt_conv_needs(const DtrtConv *c, int threads, DtrtConvNeeds *out, char *err, size_t nerr) {
    Shapes s;
    PassPlan plan[PASSES];
    int old = onednn_push_threads(threads);
    dnnl_status_t st = plan_conv(c, NULL, &s, plan);
    onednn_pop_threads(old);
    if (st != dnnl_success) {
        describe(c, st, err, nerr);
        return false;
    }
    *out = (DtrtConvNeeds){.weight_bytes = onednn_md_bytes(&s.store),
                           .fwd = plan[FWD].bytes,
                           .grad_x = plan[GRAD_X].bytes,
                           .grad_w = plan[GRAD_W].bytes};
    for (int i = 0; i < PASSES; i++) free_plan(&plan[i]);
    return true;
}

/* ---- primitives ---- */

/* Arguments in the order of the addresses that the run functions give. */
static bool init_kernel(const DtrtConv *c, const Shapes *s, int pass, const PassPlan *p,
                        OnednnOp *op) {
    static const int args[PASSES][3] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_SRC},
    };
    static const int product[3] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    const dnnl_memory_desc_t *first = pass == FWD ? &s->x : &s->y;
    const dnnl_memory_desc_t *third = pass == FWD ? &s->y : &s->x;
    const dnnl_memory_desc_t *md[3] = {first, &p->weights, third};
    const dnnl_memory_desc_t *mat[3] = {&p->patches.a, &p->patches.b, &p->patches.y};
    if (!onednn_op_init(op, p->pd)) return false;
    for (int i = 0; i < 3; i++) {
        bool ok = p->product ? onednn_op_arg(op, product[i], mat[i])
                             : onednn_op_arg(op, args[pass][i], md[i]);
        if (!ok) return false;
    }
    if (!onednn_op_scratch(op, p->pd)) return false;
    return pass != FWD || !c->bias || onednn_op_arg(op, DNNL_ARG_BIAS, &s->bias);
}

static bool init_pass(const DtrtConv *c, const Shapes *s, int pass, const PassPlan *p, Pass *out) {
    out->scratch = p->scratch;
    out->at = p->at;
    out->product = p->product;
    if (!init_kernel(c, s, pass, p, &out->op)) return false;
    if (!p->reorder) return true;
    const dnnl_memory_desc_t *from = pass == GRAD_W ? &p->weights : &s->store;
    const dnnl_memory_desc_t *to = pass == GRAD_W ? &s->store : &p->weights;
    return onednn_op_init(&out->reorder, p->reorder) &&
           onednn_op_arg(&out->reorder, DNNL_ARG_FROM, from) &&
           onednn_op_arg(&out->reorder, DNNL_ARG_TO, to) &&
           onednn_op_scratch(&out->reorder, p->reorder);
}

static bool report(const DtrtConv *c, dnnl_status_t st) {
    char err[200];
    describe(c, st, err, sizeof err);
    fprintf(stderr, "error: oneDNN: %s\n", err);
    return false;
}

bool dtrt_conv_init(DtrtConv *c, const DtrtConv *like, int threads) {
    Shapes s;
    PassPlan plan[PASSES];
    int old = onednn_push_threads(threads);
    Conv *v = c->impl = calloc(1, sizeof *v);
    dnnl_status_t st = v ? plan_conv(c, like, &s, plan) : dnnl_out_of_memory;
    bool ok = st == dnnl_success || report(c, st);
    for (int i = 0; i < PASSES && st == dnnl_success; i++) {
        if (ok && plan[i].pd && !init_pass(c, &s, i, &plan[i], &v->pass[i])) {
            ok = report(c, dnnl_out_of_memory);
        }
        if (plan[i].bytes > v->workspace) v->workspace = plan[i].bytes;
        free_plan(&plan[i]);
    }
    onednn_pop_threads(old);
    if (!ok) {
        dtrt_conv_free(c);
        return false;
    }
    v->store = s.store;
    v->plain = s.plain;
    v->outputs = c->n * c->co;
    for (int i = 0; i < c->nd; i++) v->outputs *= c->out[i];
    return true;
}

uint64_t dtrt_conv_workspace(const DtrtConv *c) {
    return ((const Conv *)c->impl)->workspace;
}

uint64_t dtrt_conv_weight_bytes(const DtrtConv *c) {
    return onednn_md_bytes(&((const Conv *)c->impl)->store);
}

int64_t dtrt_conv_weight_count(const DtrtConv *c) {
    return (int64_t)(dtrt_conv_weight_bytes(c) / sizeof(float));
}

void dtrt_conv_free(DtrtConv *c) {
    Conv *v = c->impl;
    for (int i = 0; v && i < PASSES; i++) {
        onednn_op_free(&v->pass[i].op);
        onednn_op_free(&v->pass[i].reorder);
    }
    free(v);
    c->impl = NULL;
}

/* ---- runs ---- */

static void *address(const void *p) {
    return (void *)(uintptr_t)p;
}

/* A pass that reads weights. */
static void run_reading(const Pass *p, const void *first, const void *w, void *third, void *ws,
                        const void *bias) {
    void *own = address(w);
    if (p->reorder.prim) {
        own = (char *)ws + p->scratch;
        void *move[] = {address(w), own, ws};
        onednn_run(&p->reorder, move);
    }
    void *addr[] = {address(first), own, third, ws, address(bias)};
    onednn_run(&p->op, addr);
}

KERNEL relu(float *y, int64_t lo, int64_t hi) {
#pragma omp simd
    for (int64_t i = lo; i < hi; i++) y[i] = y[i] < 0.0f ? 0.0f : y[i];
}

void dtrt_conv_forward(const DtrtConv *c, const float *x, const float *w, const float *b, float *y,
                       void *ws) {
    const Conv *v = c->impl;
    assert(v && v->pass[FWD].op.prim && (!c->bias || b));
    run_reading(&v->pass[FWD], x, w, y, ws, b);
    if (c->relu) KERNEL_SPLIT(v->outputs, 16, v->outputs, relu(y, lo, hi));
}

void dtrt_conv_grad_x(const DtrtConv *c, const float *dy, const float *w, float *dx, void *ws) {
    const Conv *v = c->impl;
    const Pass *p = &v->pass[GRAD_X];
    assert(p->op.prim);
    float *patches = p->product ? (float *)((char *)ws + p->at) : NULL;
    run_reading(p, dy, w, p->product ? patches : dx, ws, NULL);
    if (p->product) patches_scatter(c, patches, dx);
}

void dtrt_conv_grad_w(const DtrtConv *c, const float *dy, const float *x, float *dw, void *ws) {
    const Conv *v = c->impl;
    const Pass *p = &v->pass[GRAD_W];
    assert(p->op.prim);
    void *own = p->reorder.prim ? (char *)ws + p->scratch : (void *)dw;
    float *patches = p->product ? (float *)((char *)ws + p->at) : NULL;
    void *kernel[] = {address(dy), own, address(x), ws};
    void *product[] = {address(dy), patches, own, ws};
    if (p->product) patches_gather(c, x, patches);
    onednn_run(&p->op, p->product ? product : kernel);
    if (p->reorder.prim) {
        void *move[] = {own, dw, ws};
        onednn_run(&p->reorder, move);
    }
}

/* ---- packing: at start and at checkpoints, so its primitive lives only during the call ---- */

static bool convert(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, const void *x,
                    void *y) {
    dnnl_primitive_desc_t pd;
    OnednnOp op = {0};
    if (plan_reorder(from, to, &pd) != dnnl_success) return false;
    void *scratch = malloc(onednn_scratch_bytes(pd) + 1);
    bool ok = scratch && onednn_op_init(&op, pd) && onednn_op_arg(&op, DNNL_ARG_FROM, from) &&
              onednn_op_arg(&op, DNNL_ARG_TO, to) && onednn_op_scratch(&op, pd);
    if (ok) {
        void *addr[] = {address(x), y, scratch};
        onednn_run(&op, addr);
    }
    onednn_op_free(&op);
    dnnl_primitive_desc_destroy(pd);
    free(scratch);
    return ok;
}

bool dtrt_conv_pack(const DtrtConv *c, const float *plain, void *packed) {
    const Conv *v = c->impl;
    return convert(&v->plain, &v->store, plain, packed);
}

bool dtrt_conv_unpack(const DtrtConv *c, const void *packed, float *plain) {
    const Conv *v = c->impl;
    return convert(&v->store, &v->plain, packed, plain);
}
