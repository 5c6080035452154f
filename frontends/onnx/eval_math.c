/* eval_math.c - compile-time arithmetic: elementwise operators with broadcasting, Cast, Where,
 * reductions. Floats are computed in double and rounded to the result's type, which gives the
 * correctly rounded f32 for + - * / and sqrt; integers are exact and wrap like the device's. */
#include "import.h"

#include <math.h>
#include <string.h>

/* Index of an operand's element for each element of a broadcast result. */
typedef struct {
    uint32_t rank, n;
    int64_t dim[IR_MAX_RANK], at[IR_MAX_RANK];
    int64_t stride[3][IR_MAX_RANK];
    int64_t pos[3];
} Cursor;

static void cursor_add(Cursor *w, const Shape *s) {
    int64_t n = 1;
    for (uint32_t i = 0; i < s->rank; i++) { /* from the last axis */
        uint32_t k = s->rank - 1 - i;
        w->stride[w->n][w->rank - 1 - i] = s->dim[k] == 1 ? 0 : n;
        n *= s->dim[k];
    }
    w->n++;
}

static Cursor cursor_new(const Shape *result) {
    Cursor w = {.rank = result->rank};
    memcpy(w.dim, result->dim, sizeof w.dim);
    return w;
}

static void cursor_next(Cursor *w) {
    for (uint32_t k = w->rank; k--;) {
        bool wrap = ++w->at[k] == w->dim[k];
        for (uint32_t i = 0; i < w->n; i++)
            w->pos[i] += w->stride[i][k] - (wrap ? w->stride[i][k] * w->dim[k] : 0);
        if (!wrap) return;
        w->at[k] = 0;
    }
}

static Res broadcast(Ctx *c, const Shape *a, const Shape *b, Shape *out) {
    if (shape_broadcast(a, b, out)) return OK;
    return ctx_fail(c, "shapes %s and %s do not broadcast", shape_str(c->x->tmp, a),
                    shape_str(c->x->tmp, b));
}

/* ---- one operand ---- */

static double unary_real(uint8_t kind, double a) {
    switch (kind) {
    case K_NEG: return -a;
    case K_ABS: return fabs(a);
    case K_EXP: return exp(a);
    case K_LOG: return log(a);
    case K_SQRT: return sqrt(a);
    case K_SIN: return sin(a);
    case K_COS: return cos(a);
    case K_FLOOR: return floor(a);
    case K_CEIL: return ceil(a);
    case K_TAN: return tan(a);
    case K_ASIN: return asin(a);
    case K_ACOS: return acos(a);
    case K_ATAN: return atan(a);
    case K_SINH: return sinh(a);
    case K_COSH: return cosh(a);
    case K_ASINH: return asinh(a);
    case K_ACOSH: return acosh(a);
    case K_ATANH: return atanh(a);
    case K_TANH: return tanh(a);
    case K_ERF: return erf(a);
    case K_SIGMOID: return 1 / (1 + exp(-a));
    case K_RELU: return a < 0 ? 0 : a;
    case K_ROUND: return rint(a);
    case K_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a;
    default: return 1 / a;
    }
}

static int64_t unary_int(uint8_t kind, int64_t v) {
    switch (kind) {
    case K_NOT: return !v;
    case K_SIGN: return (v > 0) - (v < 0);
    case K_RELU: return v < 0 ? 0 : v;
    default: return kind == K_NEG || v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
    }
}

Res eval_unary(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    uint8_t kind = c->n->row->kind;
    bool real = is_real(in->dtype);
    bool whole = kind == K_NEG || kind == K_ABS || kind == K_SIGN || kind == K_RELU;
    if (kind == K_NOT ? in->dtype != DT_BOOL : !real && (!whole || in->dtype == DT_BOOL))
        return ctx_fail(c, "does not take %s", dtype_name(in->dtype));
    MUST(tensor_new(c, in->dtype, &in->shape, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        if (real)
            put_real(out, i, unary_real(kind, tensor_real(in, i)));
        else
            put_int(out, i, unary_int(kind, tensor_int(in, i)));
    }
    return OK;
}

/* IsNaN, IsInf */
Res eval_is(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    int64_t low, high;
    MUST(attr_int(c, "detect_negative", 1, &low));
    MUST(attr_int(c, "detect_positive", 1, &high));
    bool nan = c->n->row->code == OP_IsNaN;
    if (!is_real(in->dtype)) return ctx_fail(c, "does not take %s", dtype_name(in->dtype));
    MUST(tensor_new(c, DT_BOOL, &in->shape, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        double v = tensor_real(in, i);
        put_int(out, i, nan ? isnan(v) : isinf(v) && (v < 0 ? low != 0 : high != 0));
    }
    return OK;
}

Res eval_cast(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    DType dt;
    MUST(cast_target(c, &dt));
    MUST(tensor_new(c, dt, &in->shape, out));
    for (uint64_t i = 0; out->data && i < out->count; i++) {
        if (is_real(dt))
            put_real(out, i, tensor_real(in, i));
        else if (dt == DT_BOOL && is_real(in->dtype))
            put_int(out, i, tensor_real(in, i) != 0);
        else
            put_int(out, i, tensor_int(in, i));
    }
    return OK;
}

/* ---- two operands ---- */

static bool is_comparison(uint8_t kind) {
    return kind == K_EQUAL || kind == K_LESS || kind == K_GREATER || kind == K_LESS_EQUAL ||
           kind == K_GREATER_EQUAL;
}

/* numpy.minimum and maximum: NaN wins. */
static double pick(double a, double b, bool larger) {
    if (isnan(a) || isnan(b)) return NAN;
    return (a > b) == larger ? a : b;
}

static double binary_real(uint8_t kind, double a, double b, bool c_mod) {
    double m;
    switch (kind) {
    case K_ADD: return a + b;
    case K_SUB: return a - b;
    case K_MUL: return a * b;
    case K_DIV: return a / b;
    case K_POW: return pow(a, b);
    case K_MIN: return pick(a, b, false);
    case K_MAX: return pick(a, b, true);
    case K_EQUAL: return a == b;
    case K_LESS: return a < b;
    case K_GREATER: return a > b;
    case K_LESS_EQUAL: return a <= b;
    case K_GREATER_EQUAL: return a >= b;
    default: m = fmod(a, b); return !c_mod && m != 0 && (m < 0) != (b < 0) ? m + b : m;
    }
}

static int64_t power(int64_t a, int64_t n) {
    uint64_t r = 1, base = (uint64_t)a;
    if (n < 0) return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;
    for (; n; n >>= 1, base *= base)
        if (n & 1) r *= base;
    return (int64_t)r;
}

/* b == 0 was ruled out for Div and Mod. INT64_MIN / -1 wraps. */
static int64_t divide(uint8_t kind, int64_t a, int64_t b, bool c_mod) {
    if (b == -1) return kind == K_DIV ? (int64_t)(0 - (uint64_t)a) : 0;
    if (kind == K_DIV) return a / b;
    int64_t m = a % b;
    return !c_mod && m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static int64_t binary_int(uint8_t kind, int64_t a, int64_t b, bool c_mod) {
    switch (kind) {
    case K_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case K_SUB: return (int64_t)((uint64_t)a - (uint64_t)b);
    case K_MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case K_POW: return power(a, b);
    case K_MIN: return a < b ? a : b;
    case K_MAX: return a > b ? a : b;
    case K_EQUAL: return a == b;
    case K_LESS: return a < b;
    case K_GREATER: return a > b;
    case K_LESS_EQUAL: return a <= b;
    case K_GREATER_EQUAL: return a >= b;
    case K_AND: return a && b;
    case K_OR: return a || b;
    case K_XOR: return !a != !b;
    default: return divide(kind, a, b, c_mod);
    }
}

static Res check_operands(Ctx *c, uint8_t kind, const Tensor *a, const Tensor *b) {
    bool logic = kind == K_AND || kind == K_OR || kind == K_XOR;
    if (a->dtype != b->dtype && kind != K_POW)
        return ctx_fail(c, "operands are %s and %s, expected one type", dtype_name(a->dtype),
                        dtype_name(b->dtype));
    if (logic ? a->dtype != DT_BOOL : a->dtype == DT_BOOL && kind != K_EQUAL)
        return ctx_fail(c, "does not take %s", dtype_name(a->dtype));
    if ((kind != K_DIV && kind != K_MOD) || is_real(a->dtype) || b->missing) return OK;
    for (uint64_t i = 0; i < b->count; i++)
        if (tensor_int(b, i) == 0) return ctx_fail(c, "division by 0 at compile time");
    return OK;
}

static Res binary(Ctx *c, uint8_t kind, const Tensor *a, const Tensor *b, Tensor *out) {
    Shape s;
    int64_t c_mod;
    MUST(attr_int(c, "fmod", 0, &c_mod));
    MUST(check_operands(c, kind, a, b));
    MUST(broadcast(c, &a->shape, &b->shape, &s));
    MUST(tensor_new(c, is_comparison(kind) ? DT_BOOL : a->dtype, &s, out));
    bool real = is_real(a->dtype) || is_real(b->dtype);
    Cursor w = cursor_new(&s);
    cursor_add(&w, &a->shape);
    cursor_add(&w, &b->shape);
    for (uint64_t i = 0; out->data && i < out->count; i++, cursor_next(&w)) {
        uint64_t p = (uint64_t)w.pos[0], q = (uint64_t)w.pos[1];
        if (!real) {
            put_int(out, i, binary_int(kind, tensor_int(a, p), tensor_int(b, q), c_mod));
            continue;
        }
        double v = binary_real(kind, tensor_real(a, p), tensor_real(b, q), c_mod);
        if (is_real(out->dtype))
            put_real(out, i, v);
        else
            put_int(out, i, (int64_t)(v > 9e18 ? 9e18 : v < -9e18 ? -9e18 : v == v ? v : 0));
    }
    return OK;
}

Res eval_binary(Ctx *c, Tensor *out) {
    return binary(c, c->n->row->kind, known_in(c, 0), known_in(c, 1), out);
}

/* Of integers without a sign; what is shifted out is lost. */
/* The element type in the file, where it says so at once: of a model input, of an initializer, of
 * what Cast makes; else 0. Tensors here are of wider signed types. */
static int32_t elem_of(const Ctx *c, uint32_t i) {
    const Slot *s = &c->x->slot.at[c->n->in[i]];
    if (s->input != NO_ID && s->input < c->x->graph->n_input) {
        const Onnx__TypeProto *t = c->x->graph->input[s->input]->type;
        return t && t->tensor_type ? (int32_t)t->tensor_type->elem_type : 0;
    }
    if (s->init < c->x->init.n) return (int32_t)c->x->init.at[s->init].proto->data_type;
    const NodeProto *p = s->node < c->x->nnode ? c->x->node[s->node].p : NULL;
    for (size_t k = 0; p && !strcmp(p->op_type, "Cast") && k < p->n_attribute; k++)
        if (!strcmp(p->attribute[k]->name, "to")) return (int32_t)p->attribute[k]->i;
    return 0;
}

Res shift_of(const Ctx *c, bool *left, int *bits) {
    const char *way;
    MUST(attr_text(c, "direction", "", &way));
    *left = !strcmp(way, "LEFT");
    if (!*left && strcmp(way, "RIGHT") != 0)
        return ctx_fail(c, "direction is %s, expected LEFT or RIGHT", diag_name(c->x->tmp, way));
    int32_t elem = elem_of(c, 0);
    if (!elem) elem = elem_of(c, 1);
    *bits = elem == ONNX__TENSOR_PROTO__DATA_TYPE__UINT8    ? 8
            : elem == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16 ? 16
            : elem == ONNX__TENSOR_PROTO__DATA_TYPE__UINT32 ? 32
            : dtype_in(c, 0) == DT_I32                      ? 32
                                                            : 64;
    return OK;
}

Res eval_bit_shift(Ctx *c, Tensor *out) {
    const Tensor *a = known_in(c, 0), *b = known_in(c, 1);
    bool left;
    int bits;
    Shape s;
    MUST(shift_of(c, &left, &bits));
    if (is_real(a->dtype) || a->dtype == DT_BOOL || a->dtype != b->dtype)
        return ctx_fail(c, "does not take %s and %s", dtype_name(a->dtype), dtype_name(b->dtype));
    MUST(broadcast(c, &a->shape, &b->shape, &s));
    MUST(tensor_new(c, a->dtype, &s, out));
    Cursor w = cursor_new(&s);
    cursor_add(&w, &a->shape);
    cursor_add(&w, &b->shape);
    for (uint64_t i = 0; out->data && i < out->count; i++, cursor_next(&w)) {
        uint64_t v = (uint64_t)tensor_int(a, (uint64_t)w.pos[0]);
        uint64_t by = (uint64_t)tensor_int(b, (uint64_t)w.pos[1]);
        uint64_t to = by >= (uint64_t)bits ? 0 : left ? v << by : v >> by;
        put_int(out, i, (int64_t)(bits < 64 ? to & ((UINT64_C(1) << bits) - 1) : to));
    }
    return OK;
}

/* Min, Max, Sum, Mean of any number of operands. */
Res eval_variadic(Ctx *c, Tensor *out) {
    bool mean = c->n->row->kind == K_MEAN;
    uint8_t kind = mean ? K_ADD : c->n->row->kind;
    Tensor sum = *known_in(c, 0);
    if (mean && !is_real(sum.dtype)) return ctx_fail(c, "does not take integers");
    if (c->n->nin == 1) return eval_identity(c, out);
    bool own = false;
    for (uint32_t i = 1; i < c->n->nin; i++) {
        Tensor next = {0};
        Res r = binary(c, kind, &sum, known_in(c, i), &next);
        if (own) tensor_release(c->x, &sum);
        if (r != OK) tensor_release(c->x, &next);
        MUST(r);
        sum = next;
        own = true;
    }
    *out = sum;
    for (uint64_t i = 0; mean && sum.data && i < sum.count; i++)
        put_real(&sum, i, tensor_real(&sum, i) / c->n->nin);
    return OK;
}

Res eval_where(Ctx *c, Tensor *out) {
    const Tensor *cond = known_in(c, 0), *a = known_in(c, 1), *b = known_in(c, 2);
    Shape s;
    if (cond->dtype != DT_BOOL)
        return ctx_fail(c, "the condition must be bool, found %s", dtype_name(cond->dtype));
    if (a->dtype != b->dtype)
        return ctx_fail(c, "operands are %s and %s, expected one type", dtype_name(a->dtype),
                        dtype_name(b->dtype));
    MUST(broadcast(c, &a->shape, &b->shape, &s));
    MUST(broadcast(c, &s, &cond->shape, &s));
    MUST(tensor_new(c, a->dtype, &s, out));
    size_t size = dtype_size(a->dtype);
    Cursor w = cursor_new(&s);
    cursor_add(&w, &cond->shape);
    cursor_add(&w, &a->shape);
    cursor_add(&w, &b->shape);
    for (uint64_t i = 0; out->data && i < out->count; i++, cursor_next(&w)) {
        bool first = tensor_int(cond, (uint64_t)w.pos[0]) != 0;
        const uint8_t *from = first ? a->data : b->data;
        memcpy((uint8_t *)(uintptr_t)out->data + i * size,
               from + (size_t)w.pos[first ? 1 : 2] * size, size);
    }
    return OK;
}

/* ---- reductions ---- */

/* What is done to each element before, and to the result afterwards. */
static double before_real(uint8_t kind, double v) {
    if (kind == K_L1) return fabs(v);
    if (kind == K_L2 || kind == K_SUM_SQUARE) return v * v;
    return kind == K_LOG_SUM_EXP ? exp(v) : v;
}

static double after_real(uint8_t kind, double v, double n) {
    if (kind == K_MEAN) return v / n;
    if (kind == K_L2) return sqrt(v);
    return kind == K_LOG_SUM || kind == K_LOG_SUM_EXP ? log(v) : v;
}

/* Of integers only L1 and SumSquare: the others have results that are no integers. */
static int64_t before_int(uint8_t kind, int64_t v) {
    if (kind == K_SUM_SQUARE) return (int64_t)((uint64_t)v * (uint64_t)v);
    return kind == K_L1 && v < 0 ? (int64_t)(0 - (uint64_t)v) : v;
}

static double combine_real(uint8_t kind, double a, double b) {
    switch (kind) {
    case K_PROD: return a * b;
    case K_RMAX: return pick(a, b, true);
    case K_RMIN: return pick(a, b, false);
    default: return a + b;
    }
}

static int64_t combine_int(uint8_t kind, int64_t a, int64_t b) {
    switch (kind) {
    case K_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case K_RMAX: return a > b ? a : b;
    case K_RMIN: return a < b ? a : b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* One result element: the source is walked along the reduced axes from `from`. */
static void reduce_one(const Tensor *in, uint8_t kind, const Shape *over, const int64_t *stride,
                       int64_t from, const Tensor *out, uint64_t i) {
    uint64_t n = 0;
    shape_count(over, &n);
    Cursor w = cursor_new(over);
    memcpy(w.stride[0], stride, sizeof w.stride[0]);
    w.n = 1;
    double real = kind == K_PROD;
    int64_t whole = kind == K_PROD;
    for (uint64_t k = 0; k < n; k++, cursor_next(&w)) {
        uint64_t p = (uint64_t)(from + w.pos[0]);
        bool start = k == 0 && kind != K_PROD;
        if (is_real(in->dtype)) {
            double v = before_real(kind, tensor_real(in, p));
            real = start ? v : combine_real(kind, real, v);
        } else {
            int64_t v = before_int(kind, tensor_int(in, p));
            whole = start ? v : combine_int(kind, whole, v);
        }
    }
    if (is_real(in->dtype))
        put_real(out, i, after_real(kind, real, (double)n));
    else
        put_int(out, i, kind == K_MEAN && n ? whole / (int64_t)n : whole);
}

Res eval_reduce(Ctx *c, Tensor *out) {
    const Tensor *in = known_in(c, 0);
    uint8_t kind = c->n->row->kind;
    int64_t keep, noop, stride[IR_MAX_RANK], n = 1;
    uint32_t naxes, axes[IR_MAX_RANK];
    Ints given;
    MUST(attr_int(c, "keepdims", 1, &keep));
    MUST(attr_int(c, "noop_with_empty_axes", 0, &noop));
    MUST(ints_of(c, "axes", 1, &given));
    if (noop && !given.n) return eval_identity(c, out);
    MUST(axes_of(c, &given, in->shape.rank, &naxes, axes));
    for (uint32_t k = in->shape.rank; k--; n *= in->shape.dim[k]) stride[k] = n;
    bool reduced[IR_MAX_RANK] = {0};
    for (uint32_t i = 0; i < naxes; i++) reduced[axes[i]] = true;
    Shape over = {0}, rest = {0}, s = {0};
    int64_t over_stride[IR_MAX_RANK] = {0}, rest_stride[IR_MAX_RANK] = {0};
    for (uint32_t k = 0; k < in->shape.rank; k++) {
        int64_t d = in->shape.dim[k];
        if (reduced[k])
            over_stride[over.rank] = stride[k], over.dim[over.rank++] = d;
        else
            rest_stride[rest.rank] = stride[k], rest.dim[rest.rank++] = d;
        if (!reduced[k] || keep) s.dim[s.rank++] = reduced[k] ? 1 : d;
    }
    bool real_only = kind == K_L2 || kind == K_LOG_SUM || kind == K_LOG_SUM_EXP;
    if (in->dtype == DT_BOOL || (real_only && !is_real(in->dtype)))
        return ctx_fail(c, "does not take %s", dtype_name(in->dtype));
    if ((kind == K_RMAX || kind == K_RMIN) && !in->count)
        return ctx_fail(c, "an empty tensor has no extreme value");
    MUST(count_work(c, in->count));
    MUST(tensor_new(c, in->dtype, &s, out));
    Cursor w = cursor_new(&rest);
    memcpy(w.stride[0], rest_stride, sizeof w.stride[0]);
    w.n = 1;
    for (uint64_t i = 0; out->data && i < out->count; i++, cursor_next(&w))
        reduce_one(in, kind, &over, over_stride, w.pos[0], out, i);
    return OK;
}
