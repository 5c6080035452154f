/* conv.c - reference of Conv: the sum as it stands in the definition. */
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

RefOp *dtrt_ref_conv(const char *op) {
    return !strcmp(op, "Conv") ? run_conv : NULL;
}
