/* conv.c - reference of Conv and of the transposed convolution (ConvGradX): the sums as they stand
 * in the definition. */
#include <string.h>

#include "window.h"

/* One output element: channel m of image n at o. w: the weights of channel m. */
static double element(const Window *q, const double *x, const double *w, int64_t channels,
                      const int64_t *o) {
    double sum = 0;
    for (int64_t c = 0; c < channels; c++, x += q->in[0] * q->in[1] * q->in[2])
        for (int64_t i = 0; i < q->k[0]; i++)
            for (int64_t j = 0; j < q->k[1]; j++)
                for (int64_t k = 0; k < q->k[2]; k++, w++) {
                    int64_t a = window_at(q, 0, o[0], i), b = window_at(q, 1, o[1], j);
                    int64_t d = window_at(q, 2, o[2], k);
                    if (a >= 0 && b >= 0 && d >= 0)
                        sum += x[(a * q->in[1] + b) * q->in[2] + d] * *w;
                }
    return sum;
}

static void run_conv(const RefCall *c) {
    const Window q = ref_window(c);
    const double *x = dtrt_ref_in(c, 0), *w = dtrt_ref_in(c, 1), *bias = dtrt_ref_in(c, 2);
    int64_t group = dtrt_ref_i(c->n, "group", 1), per = q.ci / group;
    int64_t pixels = q.in[0] * q.in[1] * q.in[2], cells = q.out[0] * q.out[1] * q.out[2];
    int64_t taps = per * q.k[0] * q.k[1] * q.k[2];
    bool relu = dtrt_ref_i(c->n, "relu", 0) != 0;
#pragma omp parallel for schedule(dynamic)
    for (int64_t nm = 0; nm < q.n * q.co; nm++) {
        int64_t m = nm % q.co, first = m / (q.co / group) * per;
        const double *image = x + (nm / q.co * q.ci + first) * pixels;
        double *y = c->y[0] + nm * cells;
        for (int64_t i = 0; i < cells; i++) {
            int64_t o[3] = {i / (q.out[1] * q.out[2]), i / q.out[2] % q.out[1], i % q.out[2]};
            y[i] = element(&q, image, w + m * taps, per, o) + (bias ? bias[m] : 0);
            if (relu && y[i] < 0) y[i] = 0;
        }
    }
}

/* One image of a transposed convolution: each cell of the operand spreads over its window. */
static void spread(const Window *q, const double *cell, const double *w, int64_t channels,
                   double *x) {
    int64_t pixels = q->in[0] * q->in[1] * q->in[2];
    for (int64_t a = 0; a < q->out[0]; a++)
        for (int64_t b = 0; b < q->out[1]; b++)
            for (int64_t d = 0; d < q->out[2]; d++, cell++)
                for (int64_t t = 0; t < channels * q->k[0] * q->k[1] * q->k[2]; t++) {
                    int64_t k = t % q->k[2], j = t / q->k[2] % q->k[1];
                    int64_t i = t / q->k[2] / q->k[1] % q->k[0];
                    int64_t c = t / q->k[2] / q->k[1] / q->k[0];
                    int64_t at[3] = {window_at(q, 0, a, i), window_at(q, 1, b, j),
                                     window_at(q, 2, d, k)};
                    if (at[0] < 0 || at[1] < 0 || at[2] < 0) continue;
                    x[c * pixels + (at[0] * q->in[1] + at[1]) * q->in[2] + at[2]] += *cell * w[t];
                }
}

static void run_transposed(const RefCall *c) {
    const Window q = ref_window_of(c, dtrt_ref_out_shape(c, 0), dtrt_ref_in_shape(c, 0));
    const double *y = dtrt_ref_in(c, 0), *w = dtrt_ref_in(c, 1);
    int64_t group = dtrt_ref_i(c->n, "group", 1), per = q.ci / group;
    int64_t pixels = q.in[0] * q.in[1] * q.in[2], cells = q.out[0] * q.out[1] * q.out[2];
    int64_t taps = per * q.k[0] * q.k[1] * q.k[2];
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < q.n; n++) {
        memset(c->y[0] + n * q.ci * pixels, 0, (size_t)(q.ci * pixels) * sizeof(double));
        for (int64_t m = 0; m < q.co; m++)
            spread(&q, y + (n * q.co + m) * cells, w + m * taps, per,
                   c->y[0] + (n * q.ci + m / (q.co / group) * per) * pixels);
    }
}

RefOp *dtrt_ref_conv(const char *op) {
    if (!strcmp(op, "ConvGradX")) return run_transposed;
    return !strcmp(op, "Conv") ? run_conv : NULL;
}
