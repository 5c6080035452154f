/* interp_resize.c - Resize and its gradient for the test interpreter: a dense matrix for each axis,
 * whose entry (o, i) is the weight of input place i in output place o. */
#include "interp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double real_at(const Call *c, AttrKey k, uint32_t axis) {
    const Attr *a = attr_find(c->attr, c->nattr, k);
    return a && a->is_float ? a->f[axis] : 0;
}

static double place(const Call *c, uint32_t axis, double o, double in, double out) {
    double s = real_at(c, A_scales, axis), a = real_at(c, A_first, axis),
           b = real_at(c, A_final, axis);
    switch (call_i(c, A_coord, 0)) {
    case 1: return o / s;
    case 2: return out == 1 ? 0 : o * (in - 1) / (s * in - 1);
    case 3: return out == 1 ? 0 : (o + 0.5) / s - 0.5;
    case 4: return (o + 0.5) / s;
    case 5:
        return out == 1 ? (a + b) * (in - 1) / 2
                        : a * (in - 1) + o * (b - a) * (in - 1) / (s * in - 1);
    case 6: return (o + 0.5) / s - 0.5 + in / 2 - out / (2 * s);
    default: return (o + 0.5) / s - 0.5;
    }
}

static double weight(const Call *c, double d) {
    double a = call_f(c, A_cubic, -0.75);
    d = fabs(d);
    if (call_i(c, A_mode, 0) == 1) return d < 1 ? 1 - d : 0;
    return d < 1   ? (a + 2) * d * d * d - (a + 3) * d * d + 1
           : d < 2 ? a * (d * d * d - 5 * d * d + 8 * d - 4)
                   : 0;
}

/* Row of the matrix. False outside of the region of tf_crop_and_resize. */
static bool row(const Call *c, uint32_t axis, int64_t o, int64_t in, int64_t out, double *w) {
    double x = place(c, axis, (double)o, (double)in, (double)out), sum = 0;
    double s = real_at(c, A_scales, axis), shrink = call_i(c, A_antialias, 0) && s < 1 ? s : 1;
    memset(w, 0, (size_t)in * sizeof *w);
    if (call_i(c, A_coord, 0) == 5 && (x < 0 || x > (double)in - 1)) return false;
    if (call_i(c, A_mode, 0) == 0) {
        double r[] = {ceil(x - 0.5), floor(x + 0.5), floor(x), ceil(x)};
        double at = r[call_i(c, A_rounding, 0)];
        w[at < 0 ? 0 : at > (double)in - 1 ? in - 1 : (int64_t)at] = 1;
        return true;
    }
    for (int64_t i = -200; i < in + 200; i++) {
        double v = weight(c, ((double)i - x) * shrink);
        if (call_i(c, A_exclude_outside, 0) && (i < 0 || i >= in)) continue;
        w[i < 0 ? 0 : i >= in ? in - 1 : i] += v;
        sum += v;
    }
    if (call_i(c, A_exclude_outside, 0) || call_i(c, A_antialias, 0))
        for (int64_t i = 0; i < in; i++) w[i] /= sum;
    return true;
}

/* Along one axis: y = W x, or (grad) x = W^T y; both [outer, n, inner]. */
static double *along(const Call *c, uint32_t axis, const double *from, int64_t in, int64_t out,
                     int64_t outer, int64_t inner) {
    bool grad = c->op == OP_ResizeGrad;
    int64_t n = grad ? in : out, m = grad ? out : in;
    double *to = calloc((size_t)(outer * n * inner) + 1, sizeof *to);
    double *w = calloc((size_t)in, sizeof *w);
    for (int64_t o = 0; o < out; o++) {
        bool inside = row(c, axis, o, in, out, w);
        for (int64_t r = 0; r < outer * inner; r++) {
            int64_t q = r / inner, j = r % inner;
            if (!inside && !grad) to[(q * n + o) * inner + j] = call_f(c, A_value, 0);
            for (int64_t i = 0; inside && i < in; i++)
                to[(q * n + (grad ? i : o)) * inner + j] +=
                    w[i] * from[(q * m + (grad ? o : i)) * inner + j];
        }
    }
    free(w);
    return to;
}

bool interp_resize(const Call *c) {
    if (c->op != OP_Resize && c->op != OP_ResizeGrad) return false;
    bool grad = c->op == OP_ResizeGrad;
    const Shape *x = grad ? &c->out[0].s : &c->in[0].s, *y = grad ? &c->in[0].s : &c->out[0].s;
    Shape now = c->in[0].s;
    double *v = malloc((ten_count(&now) + 1) * sizeof *v);
    memcpy(v, c->in[0].x, ten_count(&now) * sizeof *v);
    for (uint32_t k = 0; k < x->rank; k++) {
        int64_t outer = 1, inner = 1;
        for (uint32_t i = 0; i < k; i++) outer *= now.dim[i];
        for (uint32_t i = k + 1; i < x->rank; i++) inner *= now.dim[i];
        double *next = along(c, k, v, x->dim[k], y->dim[k], outer, inner);
        free(v);
        v = next;
        now.dim[k] = grad ? x->dim[k] : y->dim[k];
    }
    memcpy(c->out[0].x, v, ten_count(&now) * sizeof *v);
    free(v);
    return true;
}
