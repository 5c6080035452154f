/* geometry.c - the sliding-window geometry that convolutions and pools share: from attributes and
 * shapes to numbers, and the text of the runtime objects that carry them.
 *
 * Output size of an axis (ONNX operator specification, Conv and MaxPool; the edge rule of ceil_mode
 * is PyTorch's): floor((in + lo + hi - dilation*(kernel-1) - 1) / stride) + 1; with ceil_mode the
 * division rounds up, but a last window that would start in the trailing padding is dropped.
 * Rounding up also gives a window that is a little larger than the padded image its one place. */
#include "window.h"

#include <string.h>

#define SIZE_LIMIT ((int64_t)1 << 31) /* of attributes: sums of a few of them stay in 64 bits */

/* The attribute's entries into dst, or dflt for each when it is absent. */
static bool read_sizes(const Node *n, AttrKey k, uint32_t count, int64_t dflt, int64_t lo,
                       int64_t *dst, Arena *a, const char **why) {
    const Attr *attr = ir_attr(n, k);
    for (uint32_t i = 0; i < count; i++) dst[i] = dflt;
    if (!attr) return true;
    if (attr->is_float || attr->n != count) {
        *why = arena_printf(a, "expected %u integers in attribute %s, found %u", count,
                            attr_name(k), attr->n);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (attr->i[i] < lo || attr->i[i] >= SIZE_LIMIT) {
            *why = arena_printf(a, "expected at least %lld in attribute %s, found %lld",
                                (long long)lo, attr_name(k), (long long)attr->i[i]);
            return false;
        }
        dst[i] = attr->i[i];
    }
    return true;
}

static bool output_size(const Geometry *q, uint32_t i, int64_t *out, Arena *a, const char **why) {
    int64_t padded = q->in[i] + q->pad_lo[i] + q->pad_hi[i];
    int64_t window = q->dilation[i] * (q->kernel[i] - 1) + 1;
    int64_t room = padded - window, s = q->stride[i], spare = q->ceil_mode ? s - 1 : 0;
    if (room + spare < 0) {
        *why = arena_printf(a, "expected a window of at most %lld on spatial axis %u, found %lld",
                            (long long)(padded + spare), i, (long long)window);
        return false;
    }
    int64_t steps = (room + spare) / s;
    if (q->ceil_mode && steps * s >= q->in[i] + q->pad_lo[i]) steps--;
    *out = steps + 1;
    return true;
}

static void image_shape(Geometry *q, const Shape *x) {
    q->n = x->dim[0];
    q->ci = x->dim[q->channels_last ? x->rank - 1 : 1];
    for (uint32_t i = 0; i < q->nd; i++) q->in[i] = x->dim[i + (q->channels_last ? 1 : 2)];
}

bool window_geometry(const Node *n, const Shape *x, const Shape *w, Geometry *out, Arena *a,
                     const char **why) {
    Geometry q = {.channels_last = ir_get_i(n, A_channels_last, 0) != 0};
    if (x->rank < 3 || x->rank > 5) {
        *why = arena_printf(a, "expected an image of 3 to 5 axes, found %s", shape_str(a, x));
        return false;
    }
    q.nd = x->rank - 2;
    image_shape(&q, x);
    q.co = w ? w->dim[0] : q.ci;
    q.group = w ? ir_get_i(n, A_group, 1) : 1;
    q.ceil_mode = ir_get_i(n, A_ceil_mode, 0) != 0;
    q.count_include_pad = ir_get_i(n, A_count_include_pad, 0) != 0;
    int64_t pads[6];
    TRY(read_sizes(n, A_kernel, q.nd, 0, 1, q.kernel, a, why));
    TRY(read_sizes(n, A_strides, q.nd, 1, 1, q.stride, a, why));
    TRY(read_sizes(n, A_dilations, q.nd, 1, 1, q.dilation, a, why));
    TRY(read_sizes(n, A_pads, 2 * q.nd, 0, 0, pads, a, why));
    for (uint32_t i = 0; i < q.nd; i++) {
        if (w && q.kernel[i] == 0) q.kernel[i] = w->dim[2 + i];
        if (q.kernel[i] <= 0) {
            *why = "expected attribute kernel with positive sizes";
            return false;
        }
        q.pad_lo[i] = pads[i];
        q.pad_hi[i] = pads[q.nd + i];
        TRY(output_size(&q, i, &q.out[i], a, why));
    }
    *out = q;
    return true;
}

Shape window_output(const Geometry *q) {
    Shape s = {.rank = q->nd + 2};
    s.dim[0] = q->n;
    s.dim[q->channels_last ? q->nd + 1 : 1] = q->co;
    for (uint32_t i = 0; i < q->nd; i++) s.dim[i + (q->channels_last ? 1 : 2)] = q->out[i];
    return s;
}

/* The shape that attribute `shape` of a gradient node holds. */
static bool attr_shape(const Node *n, Shape *s) {
    uint32_t rank;
    const int64_t *dim = ir_get_ints(n, A_shape, &rank);
    if (!dim || rank > IR_MAX_RANK) return false;
    s->rank = rank;
    memcpy(s->dim, dim, rank * sizeof *dim);
    return true;
}

bool op_geometry(const Graph *g, const Node *n, Geometry *out) {
    const char *why;
    Shape given = {0};
    const Shape *first = &g->value[n->in[0]].shape;
    switch (n->op) {
    case OP_Conv:
        TRY(window_geometry(n, first, &g->value[n->in[1]].shape, out, g->arena, &why));
        out->bias = n->nin > 2 && n->in[2] != NO_ID;
        out->relu = ir_get_i(n, A_relu, 0) != 0;
        return true;
    case OP_ConvGradX:
        return attr_shape(n, &given) &&
               window_geometry(n, &given, &g->value[n->in[1]].shape, out, g->arena, &why);
    case OP_ConvGradW:
        return attr_shape(n, &given) &&
               window_geometry(n, &g->value[n->in[1]].shape, &given, out, g->arena, &why);
    case OP_MaxPool:
    case OP_MaxPoolPlaces:
    case OP_AveragePool: return window_geometry(n, first, NULL, out, g->arena, &why);
    case OP_MaxPoolGrad:
    case OP_AveragePoolGrad:
        return attr_shape(n, &given) && window_geometry(n, &given, NULL, out, g->arena, &why);
    default: return false;
    }
}

static void add_sizes(Text *t, const char *field, const int64_t *v, uint32_t n) {
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; i < n; i++) text_add(t, i ? ", %lld" : "%lld", (long long)v[i]);
    text_char(t, '}');
}

void window_fields(Text *t, const Geometry *q) {
    add_sizes(t, "in", q->in, q->nd);
    add_sizes(t, "out", q->out, q->nd);
    add_sizes(t, "k", q->kernel, q->nd);
    add_sizes(t, "stride", q->stride, q->nd);
    add_sizes(t, "dil", q->dilation, q->nd);
    add_sizes(t, "pad_lo", q->pad_lo, q->nd);
    add_sizes(t, "pad_hi", q->pad_hi, q->nd);
}
