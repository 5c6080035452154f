/* attention.c - scaled dot-product attention and its gradient, without a matrix of all queries and
 * keys.
 *
 * A block of heads, or of rows of one head, is worked on at a time: its scores lie in the workspace
 * (plan/products.c says how many). Products are cuBLAS's, a batch over the heads of the block; what
 * is between them is a kernel over rows of scores. As in runtime/cpu/attention.c, whose formulas
 * and sources these are, forward saves two numbers a row and the gradient makes the scores of a
 * block again, by the same product, so that it has the same probabilities. Blocks follow from the
 * shape alone; where a head has several, dK and dV are added up in their order. */
#include "libraries.h"
#include "walk.h"

#include <assert.h>

typedef struct {
    const DtrtAttention *m;
    CudaAttention plan;
    int64_t heads, head, row, rows; /* of the block at hand */
    float *scores, *dprob;
    void *library;
} Block;

static int64_t heads_of(const DtrtAttention *m) {
    int64_t n = 1;
    for (int i = 0; i < m->nbatch; i++) n *= m->batch[i];
    return n;
}

static Block block_of(const DtrtAttention *m, void *ws) {
    Block b = {.m = m, .scores = ws};
    cuda_attention(m, &b.plan);
    char *behind = (char *)ws + b.plan.scores;
    b.dprob = (float *)(void *)behind;
    b.library = behind + (m->grad ? b.plan.scores : 0);
    return b;
}

/* The block after this one; false: there is none. The first has heads 0. */
static bool next_block(Block *b) {
    const int64_t heads = heads_of(b->m);
    b->row += b->rows;
    if (!b->heads || b->row >= b->m->rows) {
        b->head += b->heads;
        b->row = 0;
    }
    b->heads = heads - b->head < b->plan.heads ? heads - b->head : b->plan.heads;
    b->rows = b->m->rows - b->row < b->plan.rows ? b->m->rows - b->row : b->plan.rows;
    return b->heads > 0 && b->rows > 0;
}

/* One product for each head of the block. */
static void multiply(const Block *b, CuProducts p, const float *x, const float *y, float *to) {
    p.count = b->heads;
    p.alpha = 1.0f;
    cu_blas_products(&p, x, y, to, b->library, b->plan.library);
}

static CuAttention rows_of(const Block *b, uint32_t key) {
    const DtrtAttention *m = b->m;
    const bool drops = m->ratio > 0.0f;
    CuAttention q = {.head = b->head,
                     .row = b->row,
                     .rows = b->rows,
                     .count = b->heads * b->rows,
                     .all_rows = m->rows,
                     .keys = m->keys,
                     .nbatch = m->nbatch,
                     .hides = m->cond == DTRT_ATTENTION_HIDES,
                     .alpha = m->alpha,
                     .fill = m->fill,
                     .scale = drops ? 1.0f / (1.0f - m->ratio) : 0.0f,
                     .key = key,
                     .threshold = drops ? dtrt_threshold(m->ratio) : 0};
    for (int i = 0; i < m->nbatch; i++) q.batch[i] = m->batch[i];
    for (int i = 0; i <= m->nbatch; i++) {
        q.add_dim[i] = m->add_dim[i];
        q.cond_dim[i] = m->cond_dim[i];
    }
    return q;
}

/* Rows of scores: kernel_warp or kernel_block (walk.h), of at most 512 threads. */
#define ATTENTION_ROWS(kernel, q, ...)                                                             \
    do {                                                                                           \
        if ((q).keys <= CU_WARP_ROW) {                                                             \
            CU_LAUNCH(kernel##_warp, cu_blocks((q).count, 8), 256, &(q), __VA_ARGS__);             \
        } else {                                                                                   \
            int threads_ = cu_row_threads((q).keys);                                               \
            CU_LAUNCH(kernel##_block, cu_blocks((q).count, 1), threads_ < 512 ? threads_ : 512,    \
                      &(q), __VA_ARGS__);                                                          \
        }                                                                                          \
    } while (0)

/* Q K' of the block. Rows of all heads lie as far apart as those of the heads in memory do. */
static void make_scores(const Block *b, const float *q, const float *k) {
    const DtrtAttention *m = b->m;
    multiply(b,
             (CuProducts){.m = b->rows,
                          .n = m->keys,
                          .k = m->depth,
                          .step_a = m->rows * m->depth,
                          .step_b = m->keys * m->depth,
                          .step_y = b->rows * m->keys,
                          .trans_b = !m->trans_k},
             q, k, b->scores);
}

bool dtrt_attention_init(DtrtAttention *m, int threads) {
    (void)threads;
    m->impl = NULL;
    return cu_blas();
}

uint64_t dtrt_attention_workspace(const DtrtAttention *m) {
    CudaAttention plan;
    cuda_attention(m, &plan);
    return plan.bytes;
}

void dtrt_attention_free(DtrtAttention *m) {
    (void)m;
}

void dtrt_attention_forward(const DtrtCtx *ctx, const DtrtAttention *m, uint32_t number,
                            const float *q, const float *k, const float *v, const float *add,
                            const void *cond, float *y, float *stats, void *ws) {
    (void)ctx; /* seed and step are read on the device */
    Block b = block_of(m, ws);
    const float *plus = m->add ? add : NULL;
    const void *when = m->cond ? cond : NULL;
    assert(!m->grad && (!m->cond || cond) && (!m->add || add));
    while (next_block(&b)) {
        const int64_t row = b.head * m->rows + b.row, key = b.head * m->keys;
        CuAttention c = rows_of(&b, number);
        make_scores(&b, q + row * m->depth, k + key * m->depth);
        ATTENTION_ROWS(attention_rows, c, &b.scores, &plus, &when, &stats);
        multiply(&b,
                 (CuProducts){.m = b.rows,
                              .n = m->width,
                              .k = m->keys,
                              .step_a = b.rows * m->keys,
                              .step_b = m->keys * m->width,
                              .step_y = m->rows * m->width},
                 b.scores, v + key * m->width, y + row * m->width);
    }
}

/* dP = dY V' */
static void make_dprob(const Block *b, const float *dy, const float *v) {
    const DtrtAttention *m = b->m;
    multiply(b,
             (CuProducts){.m = b->rows,
                          .n = m->keys,
                          .k = m->width,
                          .step_a = m->rows * m->width,
                          .step_b = m->keys * m->width,
                          .step_y = b->rows * m->keys,
                          .trans_b = true},
             dy, v, b->dprob);
}

/* dV (+)= P' dY */
static void make_dv(const Block *b, const float *dy, float *dv) {
    const DtrtAttention *m = b->m;
    multiply(b,
             (CuProducts){.m = m->keys,
                          .n = m->width,
                          .k = b->rows,
                          .step_a = b->rows * m->keys,
                          .step_b = m->rows * m->width,
                          .step_y = m->keys * m->width,
                          .trans_a = true,
                          .sum = b->row > 0},
             b->scores, dy, dv);
}

/* dQ = dS K */
static void make_dq(const Block *b, const float *k, float *dq) {
    const DtrtAttention *m = b->m;
    multiply(b,
             (CuProducts){.m = b->rows,
                          .n = m->depth,
                          .k = m->keys,
                          .step_a = b->rows * m->keys,
                          .step_b = m->keys * m->depth,
                          .step_y = m->rows * m->depth,
                          .trans_b = m->trans_k},
             b->dprob, k, dq);
}

/* dK (+)= dS' Q, or its transpose Q' dS */
static void make_dk(const Block *b, const float *q, float *dk) {
    const DtrtAttention *m = b->m;
    const int64_t scores = b->rows * m->keys, queries = m->rows * m->depth;
    multiply(b,
             (CuProducts){.m = m->trans_k ? m->depth : m->keys,
                          .n = m->trans_k ? m->keys : m->depth,
                          .k = b->rows,
                          .step_a = m->trans_k ? queries : scores,
                          .step_b = m->trans_k ? scores : queries,
                          .step_y = m->keys * m->depth,
                          .trans_a = true,
                          .sum = b->row > 0},
             m->trans_k ? q : b->dprob, m->trans_k ? b->dprob : q, dk);
}

void dtrt_attention_grad(const DtrtCtx *ctx, const DtrtAttention *m, uint32_t number,
                         const float *dy, const float *q, const float *k, const float *v,
                         const float *add, const void *cond, const float *stats, float *dq,
                         float *dk, float *dv, float *dscores, void *ws) {
    (void)ctx;
    Block b = block_of(m, ws);
    const float *plus = m->add ? add : NULL;
    const void *when = m->cond ? cond : NULL;
    assert(m->grad && (!m->cond || cond) && (!m->add || add));
    while (next_block(&b)) {
        const int64_t row = b.head * m->rows + b.row, key = b.head * m->keys;
        CuAttention c = rows_of(&b, number);
        make_scores(&b, q + row * m->depth, k + key * m->depth);
        make_dprob(&b, dy + row * m->width, v + key * m->width);
        ATTENTION_ROWS(attention_grad_rows, c, &b.scores, &b.dprob, &plus, &when, &stats, &dscores);
        make_dv(&b, dy + row * m->width, dv + key * m->width);
        make_dq(&b, k + key * m->depth, dq + row * m->depth);
        make_dk(&b, q + row * m->depth, dk + key * m->depth);
    }
}
