/* Attention and its gradient on the device against loops in double: both layouts of K, masks of
 * several shapes, sizes that make one block, several groups of heads, several blocks of queries
 * with fewer rows in the last. Twice, at other addresses: the same bits. */
#include "on_device.h"

#include "dtrt_kernels.h"
#include "test.h"

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
};

/* Blocks have 2^22 scores: 4 of 5 heads; 1501 of 3001 rows, for 2796 would fit. */
static const Case large[] = {
    {"groups of heads", 1, {5}, 100, 9000, 4, 3, 1, 0, 1, {0}, {1, 100}, MINUS},
    {"blocks of queries", 1, {1}, 3001, 1500, 4, 3, 0, 1, 0, {1, 1}, {0}, 0},
};

enum { Q, K, V, DY, INPUTS, Y = 0, STATS, DQ, DK, DV, OUTPUTS };

/* What is on the host. */
typedef struct {
    int64_t nin[INPUTS], nout[OUTPUTS], nadd, ncond;
    float *in[INPUTS], *add;
    uint8_t *cond;
    double *want[OUTPUTS];
} Host;

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
static void probabilities(const Case *c, const Host *x, int64_t h, int64_t i, double *p,
                          int *hidden) {
    double top = -INFINITY, sum = 0;
    const float *q = x->in[Q] + (h * c->rows + i) * c->depth;
    for (int64_t j = 0; j < c->keys; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < c->depth; d++)
            p[j] += 0.25 * (double)q[d] * key_at(c, x->in[K], h, j, d);
        bool is = c->cond && x->cond[mask_at(c, c->cond_dim, h, i, j)];
        hidden[j] = c->cond && is == (c->cond == DTRT_ATTENTION_HIDES);
        if (hidden[j]) p[j] = (double)c->fill;
        if (c->add) p[j] += (double)x->add[mask_at(c, c->add_dim, h, i, j)];
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < c->keys; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = 0; j < c->keys; j++) p[j] /= sum;
}

static void reference(const Case *c, const Host *x, double *const *want) {
    int64_t t = c->keys, w = c->width;
    double *p = calloc((size_t)t, sizeof *p), *d = calloc((size_t)t, sizeof *d);
    int *hidden = calloc((size_t)t, sizeof *hidden);
    for (int64_t r = 0; r < heads_of(c) * c->rows; r++) {
        int64_t h = r / c->rows;
        const float *dy = x->in[DY] + r * w, *v = x->in[V] + h * t * w;
        double sum = 0;
        probabilities(c, x, h, r % c->rows, p, hidden);
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
                want[DQ][r * c->depth + e] += ds * key_at(c, x->in[K], h, j, e);
                want[DK][at] += ds * (double)x->in[Q][r * c->depth + e];
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

static float draw(void) {
    static uint32_t seed = 12345;
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)(seed >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
}

static float *random_floats(int64_t n) {
    float *f = malloc((size_t)n * sizeof *f);
    if (!f) abort();
    for (int64_t i = 0; i < n; i++) f[i] = draw();
    return f;
}

static Host make_host(const Case *c) {
    Host x = {.nadd = c->add ? mask_rows(c, c->add_dim) * c->keys : 1,
              .ncond = c->cond ? mask_rows(c, c->cond_dim) * c->keys : 1};
    int64_t h = heads_of(c), nq = h * c->rows * c->depth, ny = h * c->rows * c->width;
    int64_t nk = h * c->keys * c->depth, nv = h * c->keys * c->width;
    memcpy(x.nin, (int64_t[]){nq, nk, nv, ny}, sizeof x.nin);
    memcpy(x.nout, (int64_t[]){ny, 2 * h * c->rows, nq, nk, nv}, sizeof x.nout);
    for (int i = 0; i < INPUTS; i++) x.in[i] = random_floats(x.nin[i]);
    for (int i = 0; i < OUTPUTS; i++) {
        x.want[i] = calloc((size_t)x.nout[i], sizeof *x.want[i]);
        if (!x.want[i]) abort();
    }
    x.add = random_floats(x.nadd);
    x.cond = malloc((size_t)x.ncond);
    if (!x.cond) abort();
    for (int64_t i = 0; i < x.ncond; i++) { /* the first key of a row is never hidden */
        bool hide = i % c->keys && draw() < 0;
        x.cond[i] = hide == (c->cond == DTRT_ATTENTION_HIDES);
    }
    return x;
}

static void free_host(Host *x) {
    for (int i = 0; i < INPUTS; i++) free(x->in[i]);
    for (int i = 0; i < OUTPUTS; i++) free(x->want[i]);
    free(x->add);
    free(x->cond);
}

static void run(const Case *c, const Host *x, float **out) {
    DtrtAttention fwd = object_of(c, 0), bwd = object_of(c, 1);
    CHECK(dtrt_attention_init(&fwd, 1) && dtrt_attention_init(&bwd, 1));
    void *in[INPUTS], *to[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) in[i] = device_put(x->in[i], (uint64_t)x->nin[i] * 4);
    for (int i = 0; i < OUTPUTS; i++) to[i] = device_room((uint64_t)x->nout[i] * 4);
    void *add = device_put(x->add, (uint64_t)x->nadd * 4), *a = c->add ? add : NULL;
    void *cond = device_put(x->cond, (uint64_t)x->ncond), *b = c->cond ? cond : NULL;
    void *ws = device_room(dtrt_attention_workspace(&fwd));
    dtrt_attention_forward(&fwd, in[Q], in[K], in[V], a, b, to[Y], to[STATS], ws);
    device_drop(ws);
    ws = device_room(dtrt_attention_workspace(&bwd));
    dtrt_attention_grad(&bwd, in[DY], in[Q], in[K], in[V], a, b, to[STATS], to[DQ], to[DK], to[DV],
                        ws);
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = malloc((size_t)x->nout[i] * 4);
        if (!out[i]) abort();
        device_get(out[i], to[i], (uint64_t)x->nout[i] * 4);
        device_drop(to[i]);
    }
    for (int i = 0; i < INPUTS; i++) device_drop(in[i]);
    void *all[] = {add, cond, ws};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) device_drop(all[i]);
    dtrt_attention_free(&fwd);
    dtrt_attention_free(&bwd);
}

/* Largest difference relative to the largest value; infinite when something is not finite. */
static double worst(const float *got, const double *want, int64_t n) {
    double err = 0.0, top = 1e-3;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= err)) err = isnan(d) ? INFINITY : d;
        if (fabs(want[i]) > top) top = fabs(want[i]);
    }
    return err / top;
}

static void check_case(const Case *c, bool twice) {
    Host x = make_host(c);
    float *one[OUTPUTS], *two[OUTPUTS];
    reference(c, &x, x.want);
    run(c, &x, one);
    void *gap = device_room(1 << 20);
    if (twice) run(c, &x, two);
    device_drop(gap);
    for (int i = 0; i < OUTPUTS; i++) {
        double off = i == STATS ? 0 : worst(one[i], x.want[i], x.nout[i]);
        CHECK(off <= 3e-6);
        if (!(off <= 3e-6)) fprintf(stderr, "   %s, output %d: off by %g\n", c->name, i, off);
        if (twice) {
            CHECK(!memcmp(one[i], two[i], (size_t)x.nout[i] * 4));
            free(two[i]);
        }
        free(one[i]);
    }
    free_host(&x);
}

int main(int argc, char **argv) {
    static const char *const kernels[] = {"attention", NULL};
    bool all = argc > 2; /* large ones: without the check of every access, which takes a minute */
    if (all) setenv("DTRC_SIM_CHECK", "0", 1);
    if (argc < 2 || !device_open(argv[1], kernels, false)) return 77;
    for (size_t i = 0; !all && i < sizeof table / sizeof *table; i++) check_case(&table[i], true);
    for (size_t i = 0; all && i < sizeof large / sizeof *large; i++) check_case(&large[i], false);
    device_close();
    return test_end();
}
