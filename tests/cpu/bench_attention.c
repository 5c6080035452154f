/* Times attention as one node against its parts (two products, scaling and masking in one loop,
 * softmax, and their gradients), as the runtime runs both: bench_attention [threads]. One line a
 * shape: milliseconds of forward and gradient, best of the runs. Not a test: timings need a quiet
 * machine. */
#include "dtrt_kernels.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const struct {
    int64_t heads, rows, depth;
} shapes[] = {{16, 17, 8},    {64, 64, 64},  {8, 64, 16},    {96, 128, 64}, {24, 197, 64},
              {192, 197, 64}, {24, 512, 64}, {12, 1024, 64}, {12, 2048, 64}};

void dtrt_fail(DtrtCtx *c, const char *fmt, ...) {
    (void)c;
    (void)fmt;
    abort();
}

static double now(void) {
    struct timespec t;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + 1e-6 * (double)t.tv_nsec;
}

static float *numbers(int64_t n) {
    float *p = aligned_alloc(256, ((size_t)n * 4 + 255) / 256 * 256 + 256);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(i % 17 - 8) * 0.125f;
    return p;
}

typedef struct {
    int64_t scores;
    float *q, *k, *v, *dy, *y, *stats, *dq, *dk, *dv, *s, *p, *dp;
    uint8_t *cond;
    void *ws;
    DtrtAttention whole[2];
    DtrtMatmul part[6];
} Bench;

/* What generated loops do to the scores and to their gradients: rows of t, a mask [t, t]. */
static void mask(const Bench *b, float *s, float fill, int64_t rows, int64_t t) {
#pragma omp parallel for
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *cond = b->cond + r % t * t;
#pragma omp simd
        for (int64_t j = 0; j < t; j++) s[r * t + j] = cond[j] ? fill : s[r * t + j] * 0.125f;
    }
}

static void run(const Bench *b, int what, int64_t h, int64_t t) {
    const DtrtCtx ctx = {.seed = 1};
    if (what == 0)
        dtrt_attention_forward(&ctx, &b->whole[0], 1, b->q, b->k, b->v, NULL, b->cond, b->y,
                               b->stats, b->ws);
    if (what == 1)
        dtrt_attention_grad(&ctx, &b->whole[1], 1, b->dy, b->q, b->k, b->v, NULL, b->cond, b->stats,
                            b->dq, b->dk, b->dv, NULL, b->ws);
    if (what == 2) {
        dtrt_matmul(&b->part[0], b->q, b->k, NULL, b->s, b->ws);
        mask(b, b->s, -INFINITY, h * t, t);
        dtrt_softmax(b->s, b->p, h * t, t, 1, 0);
        dtrt_matmul(&b->part[1], b->p, b->v, NULL, b->y, b->ws);
    }
    if (what == 3) {
        dtrt_matmul(&b->part[2], b->dy, b->v, NULL, b->dp, b->ws);
        dtrt_matmul(&b->part[3], b->p, b->dy, NULL, b->dv, b->ws);
        dtrt_softmax_grad(b->dp, b->p, b->dp, h * t, t, 1, 0);
        mask(b, b->dp, 0, h * t, t);
        dtrt_matmul(&b->part[4], b->dp, b->k, NULL, b->dq, b->ws);
        dtrt_matmul(&b->part[5], b->q, b->dp, NULL, b->dk, b->ws);
    }
}

static double best(const Bench *b, int what, int64_t h, int64_t t) {
    double least = 1e9, start = now();
    for (int i = 0; i < 3 || now() - start < 400; i++) {
        double at = now();
        run(b, what, h, t);
        at = now() - at;
        if (at < least) least = at;
    }
    return least;
}

static void bench(int64_t h, int64_t t, int64_t d, int threads) {
    Bench b = {.scores = h * t * t};
    int64_t n = h * t * d;
    float **all[] = {&b.q, &b.k, &b.v, &b.dy, &b.y, &b.dq, &b.dk, &b.dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = numbers(n);
    b.s = numbers(b.scores), b.p = numbers(b.scores), b.dp = numbers(b.scores);
    b.stats = numbers(2 * h * t);
    b.cond = malloc((size_t)(t * t));
    for (int64_t i = 0; i < t * t; i++) b.cond[i] = i % t > i / t;
    uint64_t most = 0, need[2];
    char err[100];
    for (int g = 0; g < 2; g++) {
        b.whole[g] = (DtrtAttention){.grad = g, .nbatch = 1, .trans_k = 1, .batch = {h}};
        b.whole[g].cond = DTRT_ATTENTION_HIDES, b.whole[g].fill = -INFINITY;
        b.whole[g].alpha = 0.125f, b.whole[g].cond_dim[0] = 1, b.whole[g].cond_dim[1] = t;
        b.whole[g].rows = b.whole[g].keys = t, b.whole[g].depth = b.whole[g].width = d;
        if (!dtrt_attention_needs(&b.whole[g], threads, &need[g], err, sizeof err)) abort();
        if (need[g] > most) most = need[g];
        if (!dtrt_attention_init(&b.whole[g], threads)) abort();
    }
    const struct {
        int64_t m, n, k;
        int ta, tb;
    } part[] = {{t, t, d, 0, 0}, {t, d, t, 0, 0}, {t, t, d, 0, 1},
                {t, d, t, 1, 0}, {t, d, t, 0, 1}, {d, t, t, 1, 0}};
    for (int i = 0; i < 6; i++) {
        b.part[i] = (DtrtMatmul){.nbatch = 1, .trans_a = part[i].ta, .trans_b = part[i].tb};
        b.part[i].batch_a[0] = b.part[i].batch_b[0] = h, b.part[i].alpha = 1;
        b.part[i].m = part[i].m, b.part[i].n = part[i].n, b.part[i].k = part[i].k;
        uint64_t ws;
        if (!dtrt_matmul_needs(&b.part[i], threads, &ws, err, sizeof err)) abort();
        if (ws > most) most = ws;
        if (!dtrt_matmul_init(&b.part[i], threads)) abort();
    }
    b.ws = numbers((int64_t)most / 4 + 16);
    double at[4];
    for (int i = 0; i < 4; i++) at[i] = best(&b, i, h, t);
    printf("%4lld heads %5lld rows %3lld: forward %8.3f (parts %8.3f)  gradient %8.3f (%8.3f)  both"
           " %.2f of the parts; %6.2f MiB of workspace, scores %6.2f\n",
           (long long)h, (long long)t, (long long)d, at[0], at[2], at[1], at[3],
           (at[0] + at[1]) / (at[2] + at[3]),
           (double)(need[0] > need[1] ? need[0] : need[1]) / 1048576,
           (double)b.scores * 4 / 1048576);
    fflush(stdout);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(*all[i]);
    free(b.s), free(b.p), free(b.dp), free(b.stats), free(b.cond), free(b.ws);
    for (int i = 0; i < 6; i++) dtrt_matmul_free(&b.part[i]);
    for (int i = 0; i < 2; i++) dtrt_attention_free(&b.whole[i]);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    omp_set_num_threads(threads);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        bench(shapes[i].heads, shapes[i].rows, shapes[i].depth, threads);
    return 0;
}
