/* pool.c - reference of MaxPool and AveragePool. Averages divide by the cells inside the image, or
 * with count_include_pad by those inside the padded image (a window that ceil_mode lets stick out
 * of the padding does not count what is outside of it; as in PyTorch). */
#include <math.h>
#include <string.h>

#include "window.h"

typedef struct {
    double sum, max;
    int64_t place[3];       /* of the maximum */
    int64_t inside, padded; /* cells of the window in the image, in the padded image */
} Cells;

static Cells look(const Window *q, const double *x, const int64_t *o) {
    Cells r = {0, -INFINITY, {0, 0, 0}, 0, 1};
    for (int64_t i = 0; i < q->k[0]; i++)
        for (int64_t j = 0; j < q->k[1]; j++)
            for (int64_t k = 0; k < q->k[2]; k++) {
                int64_t a = window_at(q, 0, o[0], i), b = window_at(q, 1, o[1], j);
                int64_t d = window_at(q, 2, o[2], k);
                if (a < 0 || b < 0 || d < 0) continue;
                double v = x[(a * q->in[1] + b) * q->in[2] + d];
                r.sum += v;
                if (r.inside++ && !(v > r.max || isnan(v))) continue;
                r.max = v;
                r.place[0] = a, r.place[1] = b, r.place[2] = d;
            }
    for (int i = 0; i < 3; i++) {
        int64_t start = o[i] * q->stride[i], end = start + q->k[i],
                limit = q->in[i] + q->lo[i] + q->hi[i];
        r.padded *= (end < limit ? end : limit) - start;
    }
    return r;
}

static void run_pool(const RefCall *c) {
    const Window q = ref_window(c);
    const double *x = dtrt_ref_in(c, 0);
    bool max = !strcmp(c->n->op, "MaxPool"), all = dtrt_ref_i(c->n, "count_include_pad", 0) != 0;
    int64_t pixels = q.in[0] * q.in[1] * q.in[2], cells = q.out[0] * q.out[1] * q.out[2];
#pragma omp parallel for
    for (int64_t nc = 0; nc < q.n * q.ci; nc++)
        for (int64_t i = 0; i < cells; i++) {
            int64_t o[3] = {i / (q.out[1] * q.out[2]), i / q.out[2] % q.out[1], i % q.out[2]};
            Cells r = look(&q, x + nc * pixels, o);
            c->y[0][nc * cells + i] = max ? r.max : r.sum / (double)(all ? r.padded : r.inside);
        }
}

static void run_places(const RefCall *c) {
    const Window q = ref_window(c);
    const double *x = dtrt_ref_in(c, 0);
    bool columns = dtrt_ref_i(c->n, "mode", 0) != 0;
    int64_t pixels = q.in[0] * q.in[1] * q.in[2], cells = q.out[0] * q.out[1] * q.out[2];
    for (int64_t i = 0; i < q.n * q.ci * cells; i++) {
        int64_t p = i % cells, image = i / cells * pixels;
        int64_t o[3] = {p / (q.out[1] * q.out[2]), p / q.out[2] % q.out[1], p % q.out[2]};
        Cells r = look(&q, x + image, o);
        int64_t row = (r.place[0] * q.in[1] + r.place[1]) * q.in[2] + r.place[2];
        int64_t column = r.place[0] + q.in[0] * (r.place[1] + q.in[1] * r.place[2]);
        c->y[0][i] = r.inside ? (double)(image + (columns ? column : row)) : 0;
    }
}

RefOp *dtrt_ref_pool(const char *op) {
    if (!strcmp(op, "MaxPoolPlaces")) return run_places;
    return !strcmp(op, "MaxPool") || !strcmp(op, "AveragePool") ? run_pool : NULL;
}
