/* resize.c - interpolation along any axes (ONNX Resize) and its gradient, the transposed map. The
 * attributes say how places of the output become places of the input:
 *
 *   sizes          output size of each axis; input sizes are X's (gradient: attribute shape)
 *   mode           0 nearest, 1 linear, 2 cubic (Keys, with coefficient cubic)
 *   coord          0 half_pixel, 1 asymmetric, 2 align_corners, 3 pytorch_half_pixel,
 *                  4 tf_half_pixel_for_nn, 5 tf_crop_and_resize, 6 half_pixel_symmetric
 *   scales         one number for each axis; first, final: the region of tf_crop_and_resize
 *   rounding       nearest: 0 round_prefer_floor, 1 round_prefer_ceil, 2 floor, 3 ceil
 *   exclude_outside, antialias; value: what tf_crop_and_resize writes outside of the input */
#include "family.h"

#include <math.h>

static bool need_floats(InferCtx *c, NodeId n, AttrKey k, uint32_t count, bool required) {
    const Attr *a = ir_attr(&c->g->node[n], k);
    if (!a && !required) return true;
    if (!a || a->n != count || !a->is_float)
        return op_error(c, n, NO_ID, "expected %u numbers in attribute %s", count, attr_name(k));
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(a->f[i]) || (k == A_scales && !(a->f[i] > 1e-6 && a->f[i] < 1e6)))
            return op_error(c, n, NO_ID, "expected another number in attribute %s than %g",
                            attr_name(k), a->f[i]);
    return true;
}

static bool in_range(InferCtx *c, NodeId n, AttrKey k, int64_t top) {
    int64_t v = ir_get_i(&c->g->node[n], k, 0);
    if (v >= 0 && v <= top) return true;
    return op_error(c, n, NO_ID, "expected 0..%lld in attribute %s, found %lld", (long long)top,
                    attr_name(k), (long long)v);
}

/* The output's shape for input x, all attributes checked. */
static bool resized(InferCtx *c, NodeId n, const Shape *x, Shape *out) {
    const int64_t *size;
    TRY(op_need_ints(c, n, A_sizes, x->rank, true, &size));
    TRY(need_floats(c, n, A_scales, x->rank, true));
    TRY(in_range(c, n, A_mode, 2) && in_range(c, n, A_coord, 6) && in_range(c, n, A_rounding, 3));
    bool crop = ir_get_i(&c->g->node[n], A_coord, 0) == 5;
    TRY(need_floats(c, n, A_first, x->rank, crop) && need_floats(c, n, A_final, x->rank, crop));
    *out = (Shape){.rank = x->rank};
    for (uint32_t k = 0; k < x->rank; k++) {
        if (size[k] < 1 || size[k] > INT32_MAX || x->dim[k] < 1 || x->dim[k] > INT32_MAX)
            return op_error(c, n, NO_ID, "expected sizes of 1 to 2^31 - 1 on axis %u", k);
        out->dim[k] = size[k];
    }
    return true;
}

static bool infer_resize(InferCtx *c, NodeId n) {
    Shape x = op_input(c->g, n, 0)->shape, y;
    TRY(op_need_dtype(c, n, 0, DT_F32));
    TRY(resized(c, n, &x, &y));
    return op_out(c, n, 0, DT_F32, &y);
}

static bool infer_resize_grad(InferCtx *c, NodeId n) {
    Shape x, y;
    TRY(op_need_dtype(c, n, 0, DT_F32) && op_need_shape_attr(c, n, &x));
    TRY(resized(c, n, &x, &y) && op_need_shape(c, n, 0, &y));
    return op_out(c, n, 0, DT_F32, &x);
}

static bool grad_resize(GradCtx *c, NodeId n, const ValueId *dout, ValueId *din) {
    Graph *g = c->g;
    const Node node = g->node[n];
    if (!grad_wants(c, n, 0)) return true;
    Attr *attr = ARENA_ARRAY(g->arena, Attr, node.nattr + 1);
    for (uint32_t i = 0; i < node.nattr; i++) attr[i] = node.attr[i];
    const Shape *s = &g->value[node.in[0]].shape;
    attr[node.nattr] = attr_ints(g->arena, A_shape, s->dim, s->rank);
    din[0] = op_make_attr(g, PHASE_BACKWARD, OP_ResizeGrad, grad_name(c, n), 1, dout, attr,
                          node.nattr + 1);
    return true;
}

/* Taps of linear and cubic interpolation in each resized axis. */
static uint64_t flops_resize(const Graph *g, const Node *n) {
    bool grad = n->op == OP_ResizeGrad;
    const Shape *x = &g->value[grad ? n->out[0] : n->in[0]].shape;
    const Shape *y = &g->value[grad ? n->in[0] : n->out[0]].shape;
    static const double taps[] = {1, 2, 4};
    double work = 2;
    for (uint32_t k = 0; k < x->rank; k++) {
        work *= (double)y->dim[k];
        if (x->dim[k] != y->dim[k]) work *= taps[ir_get_i(n, A_mode, 0)];
    }
    return work < 0x1p62 ? (uint64_t)work : (uint64_t)1 << 62;
}

static void put_ints(Text *t, const char *field, const int64_t *v, uint32_t n) {
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; i < n; i++) text_add(t, i ? ", %lld" : "%lld", (long long)v[i]);
    text_str(t, n ? "}" : "1}");
}

static void put_reals(CpuEmit *e, Text *t, const char *field, const Attr *a) {
    text_add(t, ", .%s = {", field);
    for (uint32_t i = 0; a && i < a->n; i++)
        text_add(t, i ? ", %s" : "%s", op_c_double(e->arena, a->f[i]));
    text_str(t, a && a->n ? "}" : "0}");
}

static bool cpu_resize(CpuEmit *e, const Node *n) {
    bool grad = n->op == OP_ResizeGrad;
    const Shape *x = &e->g->value[grad ? n->out[0] : n->in[0]].shape;
    const Shape *y = &e->g->value[grad ? n->in[0] : n->out[0]].shape;
    Text t;
    text_init(&t, e->arena);
    text_add(&t, "{.nd = %u, .mode = %d, .coord = %d, .rounding = %d", x->rank,
             (int)ir_get_i(n, A_mode, 0), (int)ir_get_i(n, A_coord, 0),
             (int)ir_get_i(n, A_rounding, 0));
    text_add(&t, ", .exclude = %d, .antialias = %d, .grad = %d, .cubic = %s, .value = %s",
             ir_get_i(n, A_exclude_outside, 0) != 0, ir_get_i(n, A_antialias, 0) != 0, grad,
             op_c_double(e->arena, ir_get_f(n, A_cubic, -0.75)),
             op_c_double(e->arena, ir_get_f(n, A_value, 0)));
    put_ints(&t, "in", x->dim, x->rank);
    put_ints(&t, "out", y->dim, y->rank);
    put_reals(e, &t, "scale", ir_attr(n, A_scales));
    put_reals(e, &t, "first", ir_attr(n, A_first));
    put_reals(e, &t, "last", ir_attr(n, A_final));
    text_char(&t, '}');
    text_add(e->body, "    dtrt_resize(&DtrtResize_%u[c->slot], p[0], p[1]);\n",
             e->object(e, "DtrtResize", t.at));
    return true;
}

const OpDef op_Resize = {.name = "Resize",
                         .min_in = 1,
                         .max_in = 1,
                         .nout = 1,
                         .infer = infer_resize,
                         .grad = grad_resize,
                         .flops = flops_resize,
                         .cpu = cpu_resize};

const OpDef op_ResizeGrad = {.name = "ResizeGrad",
                             .min_in = 1,
                             .max_in = 1,
                             .nout = 1,
                             .infer = infer_resize_grad,
                             .flops = flops_resize,
                             .cpu = cpu_resize};
