/* resize.c - reference of interpolation, one axis after the other: every place of the result asks
 * every place of the source for its weight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref.h"

typedef struct {
    int64_t mode, coord, rounding, in, out;
    double scale, first, last, cubic;
    bool exclude, antialias;
} Line;

static double number(const DtrtRefNode *n, const char *attr, int k) {
    for (uint32_t i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr_name[i], attr) && n->attr_f[i]) return n->attr_f[i][k];
    return 0;
}

static Line line_of(const RefCall *c, int k) {
    const DtrtRefNode *n = c->n;
    return (Line){.mode = dtrt_ref_i(n, "mode", 0),
                  .coord = dtrt_ref_i(n, "coord", 0),
                  .rounding = dtrt_ref_i(n, "rounding", 0),
                  .in = dtrt_ref_in_shape(c, 0)->dim[k],
                  .out = dtrt_ref_out_shape(c, 0)->dim[k],
                  .scale = number(n, "scales", k),
                  .first = number(n, "first", k),
                  .last = number(n, "final", k),
                  .cubic = dtrt_ref_f(n, "cubic", -0.75),
                  .exclude = dtrt_ref_i(n, "exclude_outside", 0) != 0,
                  .antialias = dtrt_ref_i(n, "antialias", 0) != 0};
}

static double coordinate(const Line *l, double o) {
    double half = (o + 0.5) / l->scale - 0.5, top = (double)l->in - 1,
           end = l->out > 1 ? l->scale * (double)l->in - 1 : 0;
    switch (l->coord) {
    case 1: return o / l->scale;
    case 2: return end > 0 ? o * top / end : 0;
    case 3: return end > 0 ? half : 0;
    case 4: return half + 0.5;
    case 5:
        return end > 0 ? (l->first + o / end * (l->last - l->first)) * top
                       : (l->first + l->last) / 2 * top;
    case 6: return (double)l->in / 2 * (1 - (double)l->out / (l->scale * (double)l->in)) + half;
    default: return half;
    }
}

static double bump(const Line *l, double d) {
    double a = l->cubic, x = fabs(d);
    if (l->mode == 1) return fmax(0, 1 - x);
    if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

/* Weights w[0..in) of result place o; false outside of the region. */
static bool weights(const Line *l, int64_t o, double *w) {
    double x = coordinate(l, (double)o), sum = 0, stretch = 1;
    int64_t top = l->in - 1;
    memset(w, 0, (size_t)l->in * sizeof *w);
    if (l->coord == 5 && !(x >= 0 && x <= (double)top)) return false;
    if (l->mode == 0) {
        double r[] = {ceil(x - 0.5), floor(x + 0.5), floor(x), ceil(x)};
        w[(int64_t)fmin(fmax(r[l->rounding], 0), (double)top)] = 1;
        return true;
    }
    if (l->antialias) stretch = fmin(l->scale, 1);
    double reach = 2 / stretch + 1;
    for (double at = floor(x - reach); at <= x + reach; at++) {
        bool inside = at >= 0 && at <= (double)top;
        double v = bump(l, (at - x) * stretch);
        if (l->exclude && !inside) continue;
        w[(int64_t)fmin(fmax(at, 0), (double)top)] += v;
        sum += v;
    }
    for (int64_t i = 0; i <= top && (l->exclude || l->antialias) && sum != 0; i++) w[i] /= sum;
    return true;
}

/* x [outer, in, inner] -> y [outer, out, inner] */
static void along(const Line *l, const double *x, double *y, int64_t outer, int64_t inner,
                  double value) {
    double *w = malloc((size_t)l->in * sizeof *w);
    for (int64_t o = 0; w && o < l->out; o++) {
        bool inside = weights(l, o, w);
        for (int64_t r = 0; r < outer * inner; r++) {
            double *to = &y[(r / inner * l->out + o) * inner + r % inner];
            *to = inside ? 0 : value;
            for (int64_t i = 0; inside && i < l->in; i++)
                if (w[i] != 0) *to += w[i] * x[(r / inner * l->in + i) * inner + r % inner];
        }
    }
    free(w);
}

static void run_resize(const RefCall *c) {
    const DtrtRefValue *x = dtrt_ref_in_shape(c, 0);
    double value = dtrt_ref_f(c->n, "value", 0), *now = NULL;
    int64_t inner = 1;
    for (int k = x->rank; k-- > 0;) {
        Line l = line_of(c, k);
        int64_t outer = 1;
        for (int i = 0; i < k; i++) outer *= x->dim[i];
        double *next = malloc((size_t)(outer * l.out * inner) * sizeof *next);
        if (next) along(&l, now ? now : dtrt_ref_in(c, 0), next, outer, inner, value);
        free(now);
        now = next;
        if (!now) return;
        inner *= l.out;
    }
    memcpy(c->y[0], now ? now : dtrt_ref_in(c, 0), (size_t)inner * sizeof *now);
    free(now);
}

RefOp *dtrt_ref_resize(const char *op) {
    return !strcmp(op, "Resize") ? run_resize : NULL;
}
