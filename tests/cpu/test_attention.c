/* Attention and its gradient against loops in double: both layouts of K, masks of several shapes,
 * sizes that make one block, several groups of heads, several blocks of queries with fewer rows in
 * the last. Twice, at other addresses: the same bits. */
#include "cpu_test.h"

typedef struct {
    const char *name;
    int nbatch;
    int64_t batch[6], rows, keys, depth, width;
    int trans_k, add, cond;
    int64_t add_dim[7], cond_dim[7];
    float fill;
} Case;

#define MINUS (-INFINITY)
static const Case table[] = {
    {"plain", 0, {0}, 5, 7, 4, 3, 0, 0, 0, {0}, {0}, 0},
    {"one key", 1, {3}, 4, 1, 2, 5, 1, 0, 0, {0}, {0}, 0},
    {"one query", 1, {3}, 1, 9, 8, 8, 0, 0, 0, {0}, {0}, 0},
    {"heads", 2, {2, 3}, 17, 17, 8, 8, 1, 0, 0, {0}, {0}, 0},
    {"mask of all", 2, {2, 3}, 6, 9, 8, 4, 1, 1, 0, {2, 3, 6}, {0}, 0},
    {"mask of a batch", 2, {2, 3}, 6, 9, 8, 4, 0, 1, 0, {2, 1, 1}, {0}, 0},
    {"mask of a head", 2, {2, 3}, 6, 9, 8, 4, 0, 1, 0, {1, 3, 6}, {0}, 0},
    {"causal", 2, {2, 3}, 11, 11, 8, 8, 1, 0, 1, {0}, {1, 1, 11}, MINUS},
    {"shown", 2, {2, 3}, 11, 11, 8, 8, 1, 0, 2, {0}, {2, 1, 1}, -1e9f},
    {"finite fill", 1, {4}, 7, 6, 5, 4, 0, 0, 1, {0}, {4, 7}, 0.5f},
    {"both", 3, {2, 2, 2}, 7, 6, 5, 4, 1, 1, 1, {1, 2, 1, 7}, {2, 1, 1, 1}, MINUS},
    {"groups of heads", 1, {12}, 160, 300, 8, 8, 1, 0, 1, {0}, {1, 160}, MINUS},
    {"blocks of queries", 1, {2}, 500, 1000, 8, 4, 0, 1, 0, {2, 1}, {0}, 0},
    {"uneven blocks", 1, {2}, 527, 1000, 4, 8, 1, 0, 1, {0}, {1, 527}, MINUS},
};

enum { Q, K, V, DY, INPUTS, Y = 0, STATS, DQ, DK, DV, OUTPUTS };

static int64_t heads_of(const Case *c) {
    int64_t n = 1;
    for (int i = 0; i < c->nbatch; i++) n *= c->batch[i];
    return n;
}

static int64_t mask_rows(const Case *c, const int64_t *dim) {
    int64_t n = 1;
    for (int i = 0; i <= c->nbatch; i++) n *= dim[i];
    return n;
}

/* The element of a mask for a score. */
static int64_t mask_at(const Case *c, const int64_t *dim, int64_t head, int64_t row, int64_t key) {
    int64_t at = 0, pos[7], stride = 1;
    for (int i = c->nbatch; i-- > 0; head /= c->batch[i]) pos[i] = head % c->batch[i];
    pos[c->nbatch] = row;
    for (int i = c->nbatch; i >= 0; i--) {
        at += dim[i] == 1 ? 0 : pos[i] * stride;
        stride *= dim[i];
    }
    return at * c->keys + key;
}

static double key_at(const Case *c, const float *k, int64_t head, int64_t key, int64_t part) {
    k += head * c->keys * c->depth;
    return (double)k[c->trans_k ? part * c->keys + key : key * c->depth + part];
}

/* Probabilities of one query; hidden[j]: key j was filled. */
static void probabilities(const Case *c, const Buf *in, const Buf *add, const Buf *cond, int64_t h,
                          int64_t i, double *p, int *hidden) {
    double top = -INFINITY, sum = 0;
    const float *q = buf_f(&in[Q]) + (h * c->rows + i) * c->depth;
    for (int64_t j = 0; j < c->keys; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < c->depth; d++)
            p[j] += 0.25 * (double)q[d] * key_at(c, buf_f(&in[K]), h, j, d);
        bool is = c->cond && cond->at[mask_at(c, c->cond_dim, h, i, j)];
        hidden[j] = c->cond && is == (c->cond == DTRT_ATTENTION_HIDES);
        if (hidden[j]) p[j] = (double)c->fill;
        if (c->add) p[j] += (double)buf_f(add)[mask_at(c, c->add_dim, h, i, j)];
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < c->keys; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = 0; j < c->keys; j++) p[j] /= sum;
}

static void reference(const Case *c, const Buf *in, const Buf *add, const Buf *cond,
                      double *const *want) {
    int64_t t = c->keys, w = c->width;
    double *p = calloc((size_t)t, sizeof *p), *d = calloc((size_t)t, sizeof *d);
    int *hidden = calloc((size_t)t, sizeof *hidden);
    for (int64_t r = 0; r < heads_of(c) * c->rows; r++) {
        int64_t h = r / c->rows;
        const float *dy = buf_f(&in[DY]) + r * w, *v = buf_f(&in[V]) + h * t * w;
        double sum = 0;
        probabilities(c, in, add, cond, h, r % c->rows, p, hidden);
        for (int64_t j = 0; j < t; j++) {
            d[j] = 0;
            for (int64_t e = 0; e < w; e++) {
                want[Y][r * w + e] += p[j] * (double)v[j * w + e];
                want[DV][(h * t + j) * w + e] += p[j] * (double)dy[e];
                d[j] += (double)dy[e] * (double)v[j * w + e];
            }
            sum += d[j] * p[j];
        }
        for (int64_t j = 0; j < t; j++) {
            double ds = hidden[j] ? 0 : 0.25 * p[j] * (d[j] - sum);
            for (int64_t e = 0; e < c->depth; e++) {
                int64_t at = h * t * c->depth + (c->trans_k ? e * t + j : j * c->depth + e);
                want[DQ][r * c->depth + e] += ds * key_at(c, buf_f(&in[K]), h, j, e);
                want[DK][at] += ds * (double)buf_f(&in[Q])[r * c->depth + e];
            }
        }
    }
    free(p);
    free(d);
    free(hidden);
}

static DtrtAttention object_of(const Case *c, int grad) {
    DtrtAttention m = {.grad = grad, .nbatch = c->nbatch, .trans_k = c->trans_k, .add = c->add};
    m.cond = c->cond, m.alpha = 0.25f, m.fill = c->fill;
    m.rows = c->rows, m.keys = c->keys, m.depth = c->depth, m.width = c->width;
    memcpy(m.batch, c->batch, sizeof m.batch);
    memcpy(m.add_dim, c->add_dim, sizeof m.add_dim);
    memcpy(m.cond_dim, c->cond_dim, sizeof m.cond_dim);
    return m;
}

static void run(const Case *c, const Buf *in, const Buf *add, const Buf *cond, Buf *out, int odd) {
    DtrtAttention fwd = object_of(c, 0), bwd = object_of(c, 1);
    uint64_t need[2];
    char err[200];
    CHECK(dtrt_attention_needs(&fwd, 2, &need[0], err, sizeof err));
    CHECK(dtrt_attention_needs(&bwd, 2, &need[1], err, sizeof err));
    CHECK(dtrt_attention_init(&fwd, 2) && dtrt_attention_init(&bwd, 2));
    CHECK(dtrt_attention_workspace(&fwd) == need[0] && dtrt_attention_workspace(&bwd) == need[1]);
    Buf ws = buf_new(need[0], odd), ws2 = buf_new(need[1], odd);
    const float *a = c->add ? buf_f(add) : NULL;
    const void *b = c->cond ? cond->at : NULL;
    dtrt_attention_forward(&fwd, buf_f(&in[Q]), buf_f(&in[K]), buf_f(&in[V]), a, b, buf_f(&out[Y]),
                           buf_f(&out[STATS]), ws.at);
    dtrt_attention_grad(&bwd, buf_f(&in[DY]), buf_f(&in[Q]), buf_f(&in[K]), buf_f(&in[V]), a, b,
                        buf_f(&out[STATS]), buf_f(&out[DQ]), buf_f(&out[DK]), buf_f(&out[DV]),
                        ws2.at);
    dtrt_attention_free(&fwd);
    dtrt_attention_free(&bwd);
    buf_free(&ws);
    buf_free(&ws2);
}

static void check_case(const Case *c) {
    int64_t h = heads_of(c), nq = h * c->rows * c->depth, ny = h * c->rows * c->width;
    int64_t nk = h * c->keys * c->depth, nv = h * c->keys * c->width;
    const int64_t nin[] = {nq, nk, nv, ny}, nout[] = {ny, 2 * h * c->rows, nq, nk, nv};
    int64_t nadd = c->add ? mask_rows(c, c->add_dim) * c->keys : 1;
    int64_t ncond = c->cond ? mask_rows(c, c->cond_dim) * c->keys : 1;
    Buf in[2][INPUTS], out[2][OUTPUTS], add = buf_random(nadd, 0), cond = buf_new((size_t)ncond, 0);
    /* the first key of a row is never hidden */
    for (int64_t i = 0; i < ncond; i++) {
        bool hide = i % c->keys && cpu_random() < 0;
        cond.at[i] = hide == (c->cond == DTRT_ATTENTION_HIDES);
    }
    double *want[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) in[0][i] = buf_random(nin[i], 0);
    for (int i = 0; i < INPUTS; i++) in[1][i] = buf_copy(&in[0][i], 1);
    for (int i = 0; i < OUTPUTS; i++) {
        want[i] = calloc((size_t)nout[i], sizeof *want[i]);
        for (int k = 0; k < 2; k++) out[k][i] = buf_new((size_t)nout[i] * 4, k);
    }
    reference(c, in[0], &add, &cond, want);
    for (int k = 0; k < 2; k++) run(c, in[k], &add, &cond, out[k], k);
    for (int i = 0; i < OUTPUTS; i++) {
        if (i != STATS) CHECK_CLOSE(c->name, buf_f(&out[0][i]), want[i], nout[i], 3e-6);
        CHECK_SAME(c->name, out[0][i], out[1][i]);
        free(want[i]);
        for (int k = 0; k < 2; k++) buf_free(&out[k][i]);
    }
    for (int i = 0; i < 2 * INPUTS; i++) buf_free(&in[i / INPUTS][i % INPUTS]);
    buf_free(&add);
    buf_free(&cond);
}

int main(void) {
    omp_set_num_threads(2);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) check_case(&table[i]);
    return test_end();
}
