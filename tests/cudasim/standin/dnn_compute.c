/* dnn_compute.c - convolutions as matrix products, for any strides.
 *
 * Per image and group, a part of the output positions at a time (im2col: Chellapilla, Puri, Simard,
 * High performance convolutional neural networks for document processing, 2006):
 *   forward   Y[m][k]   = sum_r col(X)[m][r] W[k][r]
 *   data      col(dX) = dY W, added up into dX
 *   filter    dW[k][r] += sum_m dY[m][k] col(X)[m][r]
 * with m the output position, k the channel out, r = (kernel position, channel in). Everything but
 * the column matrix is copied out of and into the tensors, whatever their strides are.
 */
#include <stdlib.h>
#include <string.h>

#include "dnn.h"
#include "gemm.h"

enum { COLUMN_BYTES = 16 << 20 };

typedef struct {
    const DnnConv *c;
    int64_t kernel, inputs, r, m; /* positions of kernel and image; columns; positions of output */
    int64_t part;                 /* positions at a time */
    float *col, *w, *y, *image;   /* [part][r], [kg][r], [part][kg], [inputs][cg] */
    int64_t *source;              /* [part][kernel]: input position or -1 */
} Work;

static float *floats(int64_t n) {
    float *p = malloc((size_t)n * sizeof *p + 1);
    if (!p) abort();
    return p;
}

static int64_t product(const int64_t *d) {
    return d[0] * d[1] * d[2];
}

/* Offset of space position `flat` of dims `d` under space strides `s`. */
static int64_t offset(int64_t flat, const int64_t *d, const int64_t *s) {
    return flat / (d[1] * d[2]) * s[0] + flat / d[2] % d[1] * s[1] + flat % d[2] * s[2];
}

static Work begin(const DnnConv *c) {
    Work k = {.c = c, .kernel = product(c->ker), .inputs = product(c->in), .m = product(c->out)};
    k.r = k.kernel * c->cg;
    k.part = COLUMN_BYTES / ((int64_t)sizeof(float) * k.r) + 1;
    if (k.part > k.m) k.part = k.m;
    k.col = floats(k.part * k.r);
    k.w = floats(c->kg * k.r);
    k.y = floats(k.part * c->kg);
    k.image = floats(k.inputs * c->cg);
    k.source = malloc((size_t)(k.part * k.kernel) * sizeof *k.source + 1);
    if (!k.source) abort();
    return k;
}

static void end(Work *k) {
    free(k->col);
    free(k->w);
    free(k->y);
    free(k->image);
    free(k->source);
}

/* Input position under kernel position q at output position m, or -1 in the padding. */
static int64_t source_of(const DnnConv *c, int64_t m, int64_t q) {
    int64_t flat = 0;
    int64_t o[3] = {m / (c->out[1] * c->out[2]), m / c->out[2] % c->out[1], m % c->out[2]};
    int64_t p[3] = {q / (c->ker[1] * c->ker[2]), q / c->ker[2] % c->ker[1], q % c->ker[2]};
    for (int i = 0; i < DNN_SPATIAL; i++) {
        int64_t at = o[i] * c->step[i] - c->pre[i] + p[i] * c->dil[i];
        if (at < 0 || at >= c->in[i]) return -1;
        flat = flat * c->in[i] + at;
    }
    return flat;
}

static void fill_sources(Work *k, int64_t first, int64_t n) {
    for (int64_t m = 0; m < n; m++)
        for (int64_t q = 0; q < k->kernel; q++)
            k->source[m * k->kernel + q] = source_of(k->c, first + m, q);
}

static void fill_image(Work *k, const float *x, int64_t n, int64_t group) {
    const DnnConv *c = k->c;
    x += n * c->xs[0] + group * c->cg * c->xs[1];
    for (int64_t p = 0; p < k->inputs; p++) {
        const float *from = x + offset(p, c->in, c->xs + 2);
        for (int64_t i = 0; i < c->cg; i++) k->image[p * c->cg + i] = from[i * c->xs[1]];
    }
}

static void fill_columns(Work *k, int64_t n) {
    int64_t cg = k->c->cg;
    for (int64_t i = 0; i < n * k->kernel; i++) {
        float *to = k->col + i * cg;
        if (k->source[i] < 0)
            memset(to, 0, (size_t)cg * sizeof *to);
        else
            memcpy(to, k->image + k->source[i] * cg, (size_t)cg * sizeof *to);
    }
}

static void add_columns(Work *k, int64_t n) {
    int64_t cg = k->c->cg;
    for (int64_t i = 0; i < n * k->kernel; i++) {
        if (k->source[i] < 0) continue;
        float *to = k->image + k->source[i] * cg;
        const float *from = k->col + i * cg;
        for (int64_t q = 0; q < cg; q++) to[q] += from[q];
    }
}

static void fill_filter(Work *k, const float *w, int64_t group) {
    const DnnConv *c = k->c;
    w += group * c->kg * c->ws[0];
    for (int64_t o = 0; o < c->kg; o++)
        for (int64_t q = 0; q < k->kernel; q++)
            for (int64_t i = 0; i < c->cg; i++)
                k->w[o * k->r + q * c->cg + i] =
                    w[o * c->ws[0] + i * c->ws[1] + offset(q, c->ker, c->ws + 2)];
}

static void fill_gradient(Work *k, const float *y, int64_t n, int64_t group, int64_t first,
                          int64_t count) {
    const DnnConv *c = k->c;
    y += n * c->ys[0] + group * c->kg * c->ys[1];
    for (int64_t m = 0; m < count; m++) {
        const float *from = y + offset(first + m, c->out, c->ys + 2);
        for (int64_t o = 0; o < c->kg; o++) k->y[m * c->kg + o] = from[o * c->ys[1]];
    }
}

static void store(float *to, float value, const DnnConv *c) {
    *to = c->beta == 0 ? c->alpha * value : c->alpha * value + c->beta * *to;
}

static void forward(Work *k, bool tf32, const float *x, const float *w, float *y) {
    const DnnConv *c = k->c;
    for (int64_t g = 0; g < c->groups; g++) {
        fill_filter(k, w, g);
        for (int64_t n = 0; n < c->n; n++) {
            fill_image(k, x, n, g);
            float *to = y + n * c->ys[0] + g * c->kg * c->ys[1];
            for (int64_t first = 0; first < k->m; first += k->part) {
                int64_t count = k->m - first < k->part ? k->m - first : k->part;
                fill_sources(k, first, count);
                fill_columns(k, count);
                gemm(false, true, count, c->kg, k->r, 1, k->col, k->r, k->w, k->r, 0, k->y, c->kg,
                     tf32);
                for (int64_t m = 0; m < count; m++) {
                    float *at = to + offset(first + m, c->out, c->ys + 2);
                    for (int64_t o = 0; o < c->kg; o++)
                        store(at + o * c->ys[1], k->y[m * c->kg + o], c);
                }
            }
        }
    }
}

static void backward_data(Work *k, bool tf32, const float *w, const float *y, float *x) {
    const DnnConv *c = k->c;
    for (int64_t g = 0; g < c->groups; g++) {
        fill_filter(k, w, g);
        for (int64_t n = 0; n < c->n; n++) {
            memset(k->image, 0, (size_t)(k->inputs * c->cg) * sizeof *k->image);
            for (int64_t first = 0; first < k->m; first += k->part) {
                int64_t count = k->m - first < k->part ? k->m - first : k->part;
                fill_sources(k, first, count);
                fill_gradient(k, y, n, g, first, count);
                gemm(false, false, count, k->r, c->kg, 1, k->y, c->kg, k->w, k->r, 0, k->col, k->r,
                     tf32);
                add_columns(k, count);
            }
            float *to = x + n * c->xs[0] + g * c->cg * c->xs[1];
            for (int64_t p = 0; p < k->inputs; p++) {
                float *at = to + offset(p, c->in, c->xs + 2);
                for (int64_t i = 0; i < c->cg; i++)
                    store(at + i * c->xs[1], k->image[p * c->cg + i], c);
            }
        }
    }
}

static void backward_filter(Work *k, bool tf32, const float *x, const float *y, float *w) {
    const DnnConv *c = k->c;
    for (int64_t g = 0; g < c->groups; g++) {
        memset(k->w, 0, (size_t)(c->kg * k->r) * sizeof *k->w);
        for (int64_t n = 0; n < c->n; n++) {
            fill_image(k, x, n, g);
            for (int64_t first = 0; first < k->m; first += k->part) {
                int64_t count = k->m - first < k->part ? k->m - first : k->part;
                fill_sources(k, first, count);
                fill_columns(k, count);
                fill_gradient(k, y, n, g, first, count);
                gemm(true, false, c->kg, k->r, count, 1, k->y, c->kg, k->col, k->r, 1, k->w, k->r,
                     tf32);
            }
        }
        float *to = w + g * c->kg * c->ws[0];
        for (int64_t o = 0; o < c->kg; o++)
            for (int64_t q = 0; q < k->kernel; q++)
                for (int64_t i = 0; i < c->cg; i++)
                    store(to + o * c->ws[0] + i * c->ws[1] + offset(q, c->ker, c->ws + 2),
                          k->w[o * k->r + q * c->cg + i], c);
    }
}

void dnn_compute(const DnnConv *conv, bool tf32, const float *x, const float *w, const float *y,
                 float *result) {
    Work k = begin(conv);
    if (conv->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        forward(&k, tf32, x, w, result);
    else if (conv->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        backward_data(&k, tf32, w, y, result);
    else
        backward_filter(&k, tf32, x, y, result);
    end(&k);
}
