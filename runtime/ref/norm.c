/* norm.c - reference of sums over axes, BatchNorm, LayerNorm, Softmax and LogSoftmax. Variances in
 * two passes. */
#include "ref.h"

#include <math.h>
#include <string.h>

static void run_reduce_sum(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0);
    const double *in = dtrt_ref_in(c, 0);
    uint32_t naxes, mask = 0;
    const int64_t *axes = dtrt_ref_ints(c->n, "axes", &naxes);
    double scale = dtrt_ref_f(c->n, "scale", 1);
    for (uint32_t i = 0; i < naxes; i++) mask |= 1u << (axes[i] < 0 ? axes[i] + x->rank : axes[i]);
    if (!naxes) mask = ~0u;
    uint64_t n = dtrt_ref_count(x), ny = dtrt_ref_count(dtrt_ref_out_shape(c, 0));
    memset(c->y[0], 0, ny * sizeof(double));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i, at = 0, stride = 1;
        for (int k = x->rank - 1; k >= 0; k--) {
            uint64_t pos = rest % (uint64_t)x->dim[k];
            rest /= (uint64_t)x->dim[k];
            if (mask >> k & 1) continue;
            at += pos * stride;
            stride *= (uint64_t)x->dim[k];
        }
        c->y[0][at] += in[i];
    }
    for (uint64_t i = 0; i < ny; i++) c->y[0][i] *= scale;
}

/* Statistics of channel k of x [outer, channels, inner]. */
static void channel_stats(const double *x, int64_t outer, int64_t channels, int64_t inner,
                          int64_t k, double *mean, double *var) {
    double sum = 0, square = 0, count = (double)(outer * inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) sum += x[(o * channels + k) * inner + i];
    *mean = sum / count;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double d = x[(o * channels + k) * inner + i] - *mean;
            square += d * d;
        }
    *var = square / count;
}

static void run_batch_norm(const RefCall *c) {
    const double *x = dtrt_ref_in(c, 0), *scale = dtrt_ref_in(c, 1), *bias = dtrt_ref_in(c, 2);
    const double *rmean = dtrt_ref_in(c, 3), *rvar = dtrt_ref_in(c, 4);
    double eps = dtrt_ref_f(c->n, "eps", 1e-5);
    bool training = dtrt_ref_i(c->n, "training", 0) != 0;
    int64_t axis = dtrt_ref_i(c->n, "channels_last", 0) ? -1 : 1, outer, channels, inner;
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), axis, &outer, &channels, &inner);
#pragma omp parallel for
    for (int64_t k = 0; k < channels; k++) {
        double mean = rmean[k], var = rvar[k];
        if (training) channel_stats(x, outer, channels, inner, k, &mean, &var);
        double factor = scale[k] / sqrt(var + eps);
        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < inner; i++) {
                int64_t at = (o * channels + k) * inner + i;
                c->y[0][at] = (x[at] - mean) * factor + bias[k];
            }
    }
}

static void run_layer_norm(const RefCall *c) {
    const DtrtRefValue *s = dtrt_ref_in_shape(c, 0);
    const double *x = dtrt_ref_in(c, 0), *scale = dtrt_ref_in(c, 1), *bias = dtrt_ref_in(c, 2);
    int64_t axis = dtrt_ref_i(c->n, "axis", -1), rows = 1, n = 1;
    double eps = dtrt_ref_f(c->n, "eps", 1e-5);
    if (axis < 0) axis += s->rank;
    for (int i = 0; i < s->rank; i++) *(i < axis ? &rows : &n) *= s->dim[i];
    for (int64_t r = 0; r < rows; r++) {
        double mean, var;
        channel_stats(x, 1, rows, n, r, &mean, &var);
        double invstd = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < n; i++)
            c->y[0][r * n + i] = (x[r * n + i] - mean) * invstd * scale[i] + (bias ? bias[i] : 0);
        if (c->y[1]) c->y[1][r] = mean;
        if (c->y[2]) c->y[2][r] = invstd;
    }
}

static void run_rms_norm(const RefCall *c) {
    const DtrtRefValue *s = dtrt_ref_in_shape(c, 0);
    const double *x = dtrt_ref_in(c, 0), *scale = dtrt_ref_in(c, 1);
    int64_t axis = dtrt_ref_i(c->n, "axis", -1), rows = 1, n = 1;
    if (axis < 0) axis += s->rank;
    for (int i = 0; i < s->rank; i++) *(i < axis ? &rows : &n) *= s->dim[i];
    for (int64_t r = 0; r < rows; r++) {
        double square = 0;
        for (int64_t i = 0; i < n; i++) square += x[r * n + i] * x[r * n + i];
        double inv = 1 / sqrt(square / (double)n + dtrt_ref_f(c->n, "eps", 1e-5));
        for (int64_t i = 0; i < n; i++) c->y[0][r * n + i] = x[r * n + i] * inv * scale[i];
        if (c->y[1]) c->y[1][r] = inv;
    }
}

/* Channels first: a group of an image is a channel of [images, groups, rest]. */
static void run_group_norm(const RefCall *c) {
    const DtrtRefValue *s = dtrt_ref_in_shape(c, 0);
    const double *x = dtrt_ref_in(c, 0), *scale = dtrt_ref_in(c, 1), *bias = dtrt_ref_in(c, 2);
    int64_t group = dtrt_ref_i(c->n, "group", 1), channels = s->dim[1], inner = 1;
    double eps = dtrt_ref_f(c->n, "eps", 1e-5);
    for (int k = 2; k < s->rank; k++) inner *= s->dim[k];
    int64_t per = channels / group * inner;
    for (int64_t r = 0; r < s->dim[0] * group; r++) {
        double mean, var;
        channel_stats(x, 1, s->dim[0] * group, per, r, &mean, &var);
        double invstd = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < per; i++) {
            int64_t k = r % group * (channels / group) + i / inner;
            c->y[0][r * per + i] = (x[r * per + i] - mean) * invstd * scale[k] + bias[k];
        }
        if (c->y[1]) c->y[1][r] = mean;
        if (c->y[2]) c->y[2][r] = invstd;
    }
}

static void run_softmax(const RefCall *c) {
    const double *x = dtrt_ref_in(c, 0);
    bool log_form = !strcmp(c->n->op, "LogSoftmax");
    int64_t outer, n, inner;
    dtrt_ref_split(dtrt_ref_in_shape(c, 0), dtrt_ref_i(c->n, "axis", -1), &outer, &n, &inner);
    for (int64_t r = 0; r < outer * inner; r++) {
        const double *row = x + r / inner * n * inner + r % inner;
        double *y = c->y[0] + (row - x), max = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) max = fmax(max, row[i * inner]);
        for (int64_t i = 0; i < n; i++) sum += exp(row[i * inner] - max);
        for (int64_t i = 0; i < n; i++) {
            double z = row[i * inner] - max;
            y[i * inner] = log_form ? z - log(sum) : exp(z) / sum;
        }
    }
}

RefOp *dtrt_ref_norm(const char *op) {
    if (!strcmp(op, "ReduceSum")) return run_reduce_sum;
    if (!strcmp(op, "BatchNorm")) return run_batch_norm;
    if (!strcmp(op, "LayerNorm")) return run_layer_norm;
    if (!strcmp(op, "GroupNorm")) return run_group_norm;
    if (!strcmp(op, "RmsNorm")) return run_rms_norm;
    return !strcmp(op, "Softmax") || !strcmp(op, "LogSoftmax") ? run_softmax : NULL;
}
