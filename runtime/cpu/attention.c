/* attention.c - scaled dot-product attention, Y = D(softmax(mask(alpha * Q K'))) V for each head,
 * where D is dropout or nothing, and its gradient, without a matrix of all queries and keys.
 *
 * A block of heads and queries is worked on at a time: its scores, [heads, queries, all keys], fit
 * into BLOCK floats of workspace. Forward saves two numbers a query, the largest score and the
 * inverse of the sum of exponentials; the gradient computes the scores of a block again and gets
 * the very probabilities P of the forward pass from them:
 *
 *   dP = D(dY V'),  dS = alpha * P (dP - sum(dP P)),  dQ = dS K,  dK += dS' Q,  dV += D(P)' dY
 *
 * After M. Rabe, C. Staats, "Self-attention does not need O(n^2) memory" (2021), and T. Dao et al.,
 * "FlashAttention" (NeurIPS 2022). Unlike there keys are not divided, because the rows of a block
 * fit into a CPU's cache, so that no softmax has to be corrected and the sum of dP P needs no Y.
 *
 * Threads share the groups of heads; a thread works through its groups alone, with products of
 * oneDNN that were made for one thread, so that nobody waits for another within the node. Blocks
 * follow from the shape alone and are added up in their order: the bits do not depend on the number
 * of threads. */
#include "attention_rows.h"
#include "onednn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 1 << 17, /* floats: half a megabyte, twice for the gradient */
    GROUPS = 32,     /* of heads, at least, where there is enough work to share */
    ALIGN = 64
};

/* The products of the two passes. */
enum { SCORES, RESULT, FORWARD_PRODUCTS };
enum { DPROB = SCORES + 1, DQUERY, DKEY, DVALUE, PRODUCTS };

/* y[heads, m, n] (+)= a[heads, m, k] b[heads, k, n]; strides of the three axes. */
typedef struct {
    int64_t m, n, k, a[3], b[3], y[3];
    bool sum;
} Product;

typedef struct {
    int64_t heads, rows; /* of a block; the last rows of a head may be fewer */
    int64_t blocks, last;
} Blocks;

/* What a thread works with. */
typedef struct {
    OnednnOp op[2][PRODUCTS]; /* [1]: the last rows, where they are fewer */
    dnnl_stream_t stream;
} Worker;

typedef struct {
    Blocks b;
    int threads;
    uint64_t scratch; /* of one product */
    Worker *worker;
} Attention;

static int64_t heads_of(const DtrtAttention *m) {
    int64_t n = 1;
    for (int i = 0; i < m->nbatch; i++) n *= m->batch[i];
    return n;
}

static int64_t at_least(int64_t x, int64_t lo) {
    return x < lo ? lo : x;
}

static Blocks blocks_of(const DtrtAttention *m) {
    int64_t all = heads_of(m), rows = at_least(m->rows, 1), keys = at_least(m->keys, 1);
    int64_t fit = at_least(BLOCK / keys, 1); /* rows that fit */
    Blocks b = {.heads = 1, .rows = rows};
    if (rows <= fit) {
        int64_t share = all * rows * keys > KERNEL_GRAIN ? all / GROUPS : all;
        b.heads = at_least(kernel_min(fit / rows, share), 1);
        while (all % b.heads) b.heads--;
    } else {
        int64_t parts = (rows + fit - 1) / fit;
        b.rows = (rows + parts - 1) / parts;
    }
    b.blocks = (rows + b.rows - 1) / b.rows;
    b.last = rows - (b.blocks - 1) * b.rows;
    return b;
}

static void set3(int64_t to[3], int64_t batch, int64_t row, int64_t col) {
    to[0] = batch;
    to[1] = row;
    to[2] = col;
}

/* K as a matrix [keys, depth], or transposed. */
static void key_strides(const DtrtAttention *m, bool transposed, int64_t to[3]) {
    int64_t key = m->trans_k ? 1 : m->depth, part = m->trans_k ? m->keys : 1;
    set3(to, m->keys * m->depth, transposed ? part : key, transposed ? key : part);
}

static Product product_of(const DtrtAttention *m, const Blocks *b, int which, int64_t rows) {
    int64_t t = m->keys, d = m->depth, w = m->width;
    Product p = {0};
    int64_t block = b->rows * t; /* of the scores of a head */
    if (which == SCORES || which == DQUERY) {
        bool back = which == DQUERY;
        p.m = rows, p.n = back ? d : t, p.k = back ? t : d;
        set3(back ? p.y : p.a, m->rows * d, d, 1);
        key_strides(m, !back, p.b);
        set3(back ? p.a : p.y, block, t, 1);
    } else if (which == DPROB && m->grad) { /* dY V' */
        p.m = rows, p.n = t, p.k = w;
        set3(p.a, m->rows * w, w, 1), set3(p.b, t * w, 1, w), set3(p.y, block, t, 1);
    } else if (which == RESULT && !m->grad) { /* P V */
        p.m = rows, p.n = w, p.k = t;
        set3(p.a, block, t, 1), set3(p.b, t * w, w, 1), set3(p.y, m->rows * w, w, 1);
    } else if (which == DVALUE) { /* P' dY */
        p.m = t, p.n = w, p.k = rows;
        set3(p.a, block, 1, t), set3(p.b, m->rows * w, w, 1), set3(p.y, t * w, w, 1);
    } else if (m->trans_k) { /* Q' dS: K is [depth, keys] */
        p.m = d, p.n = t, p.k = rows;
        set3(p.a, m->rows * d, 1, d), set3(p.b, block, t, 1), set3(p.y, t * d, t, 1);
    } else { /* dS' Q */
        p.m = t, p.n = d, p.k = rows;
        set3(p.a, block, 1, t), set3(p.b, m->rows * d, d, 1), set3(p.y, t * d, d, 1);
    }
    p.sum = (which == DKEY || which == DVALUE) && b->blocks > 1;
    return p;
}

static dnnl_status_t matrix_md(dnnl_memory_desc_t *md, int64_t heads, int64_t rows, int64_t cols,
                               const int64_t stride[3]) {
    dnnl_dims_t dim = {heads, rows, cols}, step = {stride[0], stride[1], stride[2]};
    bool one = heads == 1;
    return dnnl_memory_desc_init_by_strides(md, 3 - one, dim + one, dnnl_f32, step + one);
}

/* Descriptors of the operands and of the primitive. */
static dnnl_status_t make_pd(const Product *p, int64_t heads, dnnl_memory_desc_t md[3],
                             dnnl_primitive_desc_t *pd) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_matmul_desc_t desc;
    *pd = NULL;
    dnnl_engine_t engine = onednn_engine();
    dnnl_status_t s = engine ? onednn_attr(&attr) : dnnl_runtime_error;
    if (s == dnnl_success && p->sum) {
        s = dnnl_post_ops_create(&ops);
        if (s == dnnl_success) s = dnnl_post_ops_append_sum(ops, 1.0f);
        if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(attr, ops);
    }
    if (s == dnnl_success) s = matrix_md(&md[0], heads, p->m, p->k, p->a);
    if (s == dnnl_success) s = matrix_md(&md[1], heads, p->k, p->n, p->b);
    if (s == dnnl_success) s = matrix_md(&md[2], heads, p->m, p->n, p->y);
    if (s == dnnl_success) s = dnnl_matmul_desc_init(&desc, &md[0], &md[1], NULL, &md[2]);
    if (s == dnnl_success) s = dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL);
    if (ops) dnnl_post_ops_destroy(ops);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return s;
}

static dnnl_status_t make_op(OnednnOp *op, const_dnnl_primitive_desc_t pd,
                             const dnnl_memory_desc_t md[3]) {
    bool ok = onednn_op_init(op, pd) && onednn_op_arg(op, DNNL_ARG_SRC, &md[0]) &&
              onednn_op_arg(op, DNNL_ARG_WEIGHTS, &md[1]) &&
              onednn_op_arg(op, DNNL_ARG_DST, &md[2]) && onednn_op_scratch(op, pd);
    return ok ? dnnl_success : dnnl_out_of_memory;
}

static uint64_t aligned(uint64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Learns the scratch memory of all products; makes them too for a worker. */
static dnnl_status_t prepare(const DtrtAttention *m, Attention *x, Worker *w) {
    int count = m->grad ? PRODUCTS : FORWARD_PRODUCTS;
    dnnl_status_t s = dnnl_success;
    x->b = blocks_of(m);
    int variants = x->b.last == x->b.rows ? 1 : 2;
    for (int i = 0; i < variants * count && s == dnnl_success; i++) {
        Product p = product_of(m, &x->b, i % count, i / count ? x->b.last : x->b.rows);
        dnnl_memory_desc_t md[3];
        dnnl_primitive_desc_t pd;
        s = make_pd(&p, x->b.heads, md, &pd);
        if (s != dnnl_success) break;
        uint64_t scratch = aligned(onednn_scratch_bytes(pd));
        if (scratch > x->scratch) x->scratch = scratch;
        if (w) s = make_op(&w->op[i / count][i % count], pd, md);
        dnnl_primitive_desc_destroy(pd);
    }
    return s;
}

static uint64_t block_bytes(const DtrtAttention *m, const Blocks *b) {
    return aligned((uint64_t)b->heads * (uint64_t)b->rows * (uint64_t)m->keys * sizeof(float));
}

static uint64_t worker_bytes(const DtrtAttention *m, const Attention *x) {
    return block_bytes(m, &x->b) * (m->grad ? 2 : 1) + x->scratch;
}

/* No more threads than there are groups of heads. */
static int threads_of(const DtrtAttention *m, const Attention *x, int threads) {
    int64_t groups = heads_of(m) / x->b.heads;
    return groups < threads ? (int)groups : threads > 1 ? threads : 1;
}

bool dtrt_attention_needs(const DtrtAttention *m, int threads, uint64_t *workspace, char *err,
                          size_t nerr) {
    Attention x = {0};
    int old = onednn_push_threads(1);
    dnnl_status_t s = prepare(m, &x, NULL);
    onednn_pop_threads(old);
    *workspace = worker_bytes(m, &x) * (uint64_t)threads_of(m, &x, threads);
    if (s == dnnl_success) return true;
    snprintf(err, nerr, "attention of %lld queries, %lld keys: %s", (long long)m->rows,
             (long long)m->keys, onednn_error(s));
    return false;
}

static dnnl_status_t make_workers(const DtrtAttention *m, Attention *x, int threads) {
    x->b = blocks_of(m);
    int count = threads_of(m, x, threads);
    x->worker = calloc((size_t)count, sizeof *x->worker);
    if (!x->worker) return dnnl_out_of_memory;
    dnnl_status_t s = dnnl_success;
    for (; x->threads < count && s == dnnl_success; x->threads++) {
        s = prepare(m, x, &x->worker[x->threads]);
        if (s == dnnl_success) s = onednn_stream_new(&x->worker[x->threads].stream);
    }
    return s;
}

bool dtrt_attention_init(DtrtAttention *m, int threads) {
    m->impl = calloc(1, sizeof(Attention));
    int old = onednn_push_threads(1);
    dnnl_status_t s = m->impl ? make_workers(m, m->impl, threads) : dnnl_out_of_memory;
    onednn_pop_threads(old);
    if (s == dnnl_success) return true;
    fprintf(stderr, "error: oneDNN: attention: %s\n", onednn_error(s));
    dtrt_attention_free(m);
    return false;
}

uint64_t dtrt_attention_workspace(const DtrtAttention *m) {
    const Attention *x = m->impl;
    return worker_bytes(m, x) * (uint64_t)x->threads;
}

void dtrt_attention_free(DtrtAttention *m) {
    Attention *x = m->impl;
    for (int k = 0; x && k < x->threads; k++) {
        Worker *w = &x->worker[k];
        for (int i = 0; i < 2 * PRODUCTS; i++) onednn_op_free(&w->op[i / PRODUCTS][i % PRODUCTS]);
        if (w->stream) dnnl_stream_destroy(w->stream);
    }
    if (x) free(x->worker);
    free(x);
    m->impl = NULL;
}

/* ---- the two passes ---- */

/* A thread at work: what all share, its own products and memory. */
typedef struct {
    const DtrtAttention *m;
    const Attention *x;
    const float *q, *k, *v, *dy;
    float *y, *dq, *dk, *dv;
    Rows r; /* of the block at hand */
    int variant;
    const Worker *w;
    float *scores, *dprob;
    void *scratch;
} Job;

static void run(const Job *j, int which, const float *a, const float *w, float *y) {
    void *addr[] = {(void *)(uintptr_t)a, (void *)(uintptr_t)w, y, j->scratch};
    onednn_run_on(&j->w->op[j->variant][which], addr, j->w->stream);
}

static void set_worker(Job *j, int number, void *ws) {
    uint64_t block = block_bytes(j->m, &j->x->b);
    char *mine = (char *)ws + (uint64_t)number * worker_bytes(j->m, j->x);
    j->w = &j->x->worker[number];
    j->scores = (float *)(void *)mine;
    j->dprob = (float *)(void *)(mine + block);
    j->scratch = mine + block * (j->m->grad ? 2 : 1);
}

static void set_block(Job *j, int64_t i) {
    const Blocks *b = &j->x->b;
    j->variant = i == b->blocks - 1 && b->last != b->rows;
    j->r.row = i * b->rows;
    j->r.rows = j->variant ? b->last : b->rows;
}

static void forward_group(Job *j) {
    const DtrtAttention *m = j->m;
    int64_t row = j->r.head * m->rows, key = j->r.head * m->keys;
    for (int64_t i = 0; i < j->x->b.blocks; i++) {
        set_block(j, i);
        int64_t at = row + j->r.row;
        run(j, SCORES, j->q + at * m->depth, j->k + key * m->depth, j->scores);
        probability_rows(j->scores, &j->r, 0, j->x->b.heads * j->r.rows);
        run(j, RESULT, j->scores, j->v + key * m->width, j->y + at * m->width);
    }
}

static void gradient_group(Job *j) {
    const DtrtAttention *m = j->m;
    int64_t row = j->r.head * m->rows, key = j->r.head * m->keys, n = j->x->b.heads * m->keys;
    const float *k = j->k + key * m->depth, *v = j->v + key * m->width;
    float *dk = j->dk + key * m->depth, *dv = j->dv + key * m->width;
    if (j->x->b.blocks > 1) {
        memset(dk, 0, (size_t)(n * m->depth) * sizeof *dk);
        memset(dv, 0, (size_t)(n * m->width) * sizeof *dv);
    }
    for (int64_t i = 0; i < j->x->b.blocks; i++) {
        set_block(j, i);
        int64_t at = row + j->r.row;
        const float *q = j->q + at * m->depth, *dy = j->dy + at * m->width;
        run(j, SCORES, q, k, j->scores);
        run(j, DPROB, dy, v, j->dprob);
        gradient_rows(j->scores, j->dprob, &j->r, 0, j->x->b.heads * j->r.rows);
        run(j, DVALUE, j->scores, dy, dv);
        run(j, DQUERY, j->dprob, k, j->dq + at * m->depth);
        run(j, DKEY, m->trans_k ? q : j->dprob, m->trans_k ? j->dprob : q, dk);
    }
}

static void all_groups(const Job *all, void *ws) {
    int64_t heads = heads_of(all->m), groups = heads / all->x->b.heads;
#pragma omp parallel num_threads(all->x->threads) if (heads * all->m->rows * all->m->keys >        \
                                                      KERNEL_GRAIN / 16)
    {
        Job j = *all;
        int64_t lo, hi;
        kernel_part(groups, 1, &lo, &hi);
        set_worker(&j, omp_get_thread_num(), ws);
        for (int64_t g = lo; g < hi; g++) {
            j.r.head = g * j.x->b.heads;
            if (j.m->grad)
                gradient_group(&j);
            else
                forward_group(&j);
        }
    }
}

static Rows rows_of(const DtrtCtx *c, const DtrtAttention *m, uint32_t key, const float *add,
                    const void *cond, float *stats) {
    Rows r = {.m = m, .add = m->add ? add : NULL, .cond = m->cond ? cond : NULL, .stats = stats};
    if (m->ratio > 0.0f)
        r.drop = (Drop){c->seed, c->step, key, dtrt_threshold(m->ratio), 1.0f / (1.0f - m->ratio)};
    return r;
}

void dtrt_attention_forward(const DtrtCtx *c, const DtrtAttention *m, uint32_t key, const float *q,
                            const float *k, const float *v, const float *add, const void *cond,
                            float *y, float *stats, void *ws) {
    assert(m->impl && !m->grad && (!m->cond || cond) && (!m->add || add));
    Job j = {.m = m, .x = m->impl, .q = q, .k = k, .v = v, .y = y};
    j.r = rows_of(c, m, key, add, cond, stats);
    all_groups(&j, ws);
}

void dtrt_attention_grad(const DtrtCtx *c, const DtrtAttention *m, uint32_t key, const float *dy,
                         const float *q, const float *k, const float *v, const float *add,
                         const void *cond, const float *stats, float *dq, float *dk, float *dv,
                         float *dscores, void *ws) {
    assert(m->impl && m->grad && (!m->cond || cond) && (!m->add || add));
    Job j = {.m = m, .x = m->impl, .q = q, .k = k, .v = v, .dy = dy, .dq = dq, .dk = dk, .dv = dv};
    j.r = rows_of(c, m, key, add, cond, (float *)(uintptr_t)stats); /* only read there */
    j.r.dscores = dscores;
    all_groups(&j, ws);
}
