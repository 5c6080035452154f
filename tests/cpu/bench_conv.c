/* Times the convolutions of ResNet-50 (He et al., CVPR 2016), all three passes, as the runtime runs
 * them: bench_conv [batch] [seconds per pass] One line a layer: milliseconds of each pass, best of
 * the runs, and how often the network has the layer; then the totals of one training step. Not a
 * test: timings need a quiet machine. */
#include "dtrt_kernels.h"

#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int ci, co, in, k, stride, times;
} Layer;

static const Layer layers[] = {
    {3, 64, 224, 7, 2, 1},    {64, 64, 56, 1, 1, 1},     {64, 64, 56, 3, 1, 3},
    {64, 256, 56, 1, 1, 4},   {256, 64, 56, 1, 1, 2},    {256, 128, 56, 1, 1, 1},
    {128, 128, 56, 3, 2, 1},  {256, 512, 56, 1, 2, 1},   {128, 512, 28, 1, 1, 4},
    {512, 128, 28, 1, 1, 3},  {128, 128, 28, 3, 1, 3},   {512, 256, 28, 1, 1, 1},
    {256, 256, 28, 3, 2, 1},  {512, 1024, 28, 1, 2, 1},  {256, 1024, 14, 1, 1, 6},
    {1024, 256, 14, 1, 1, 5}, {256, 256, 14, 3, 1, 5},   {1024, 512, 14, 1, 1, 1},
    {512, 512, 14, 3, 2, 1},  {1024, 2048, 14, 1, 2, 1}, {512, 2048, 7, 1, 1, 3},
    {2048, 512, 7, 1, 1, 2},  {512, 512, 7, 3, 1, 2},
};

void dtrt_fail(DtrtCtx *c, const char *fmt, ...) {
    (void)c;
    (void)fmt;
    abort();
}

static double now(void) {
    struct timespec t;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(int64_t n) {
    float *p = aligned_alloc(256, ((size_t)n * 4 + 255) / 256 * 256 + 256);
    for (int64_t i = 0; i < n; i++) p[i] = (float)(i % 17 - 8) * 0.125f;
    return p;
}

/* Milliseconds of the fastest run of one pass. */
static double time_pass(const DtrtConv *c, int pass, float *x, float *y, float *w, void *ws,
                        double limit) {
    double best = 1e9, start = now();
    for (int i = 0; i < 3 || now() - start < limit; i++) {
        double t = now();
        if (pass == 0) dtrt_conv_forward(c, x, w, NULL, y, ws);
        if (pass == 1) dtrt_conv_grad_x(c, y, w, x, ws);
        if (pass == 2) dtrt_conv_grad_w(c, y, x, w, ws);
        t = now() - t;
        if (t < best) best = t;
    }
    return best * 1e3;
}

int main(int argc, char **argv) {
    int64_t batch = argc > 1 ? atoi(argv[1]) : 8;
    double limit = argc > 2 ? atof(argv[2]) : 0.2, total[3] = {0};
    char err[200];
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const Layer *l = &layers[i];
        DtrtConv c = {.nd = 2,
                      .channels_last = 1,
                      .group = 1,
                      .packed = 1,
                      .fwd = 1,
                      .grad_x = i > 0,
                      .grad_w = 1,
                      .n = batch,
                      .ci = l->ci,
                      .co = l->co};
        DtrtConvNeeds need;
        double ms[3] = {0};
        for (int a = 0; a < 2; a++) {
            c.in[a] = l->in;
            c.k[a] = l->k;
            c.stride[a] = l->stride;
            c.dil[a] = 1;
            c.pad_lo[a] = c.pad_hi[a] = l->k / 2;
            c.out[a] = (l->in - 1) / l->stride + 1;
        }
        if (!dtrt_conv_needs(&c, omp_get_max_threads(), &need, err, sizeof err) ||
            !dtrt_conv_init(&c, NULL, omp_get_max_threads())) {
            return 1;
        }
        uint64_t bytes = need.fwd > need.grad_x ? need.fwd : need.grad_x;
        if (need.grad_w > bytes) bytes = need.grad_w;
        float *x = numbers(batch * l->ci * l->in * l->in),
              *y = numbers(batch * l->co * c.out[0] * c.out[1]);
        float *w = numbers((int64_t)need.weight_bytes / 4), *ws = numbers((int64_t)bytes / 4);
        for (int pass = 0; pass < 3; pass++) {
            if (pass == 1 && i == 0) continue; /* nobody wants the gradient of the image */
            ms[pass] = time_pass(&c, pass, x, y, w, ws, limit);
            total[pass] += ms[pass] * l->times;
        }
        printf("%4d %4d %3d %d/%d  forward %8.3f  grad_x %8.3f  grad_w %8.3f  x%d\n", l->ci, l->co,
               l->in, l->k, l->stride, ms[0], ms[1], ms[2], l->times);
        dtrt_conv_free(&c);
        free(x);
        free(y);
        free(w);
        free(ws);
    }
    printf("step: forward %.1f  grad_x %.1f  grad_w %.1f  all %.1f ms\n", total[0], total[1],
           total[2], total[0] + total[1] + total[2]);
    return 0;
}
