/* make_rnn.c - LSTM, GRU and RNN, unrolled: each step is a product of the state with R and
 * elementwise nodes, which fusion makes one loop of; so every step is a few small nodes that a plan
 * may keep or run again. The inputs of about sqrt(T) steps meet W in one matrix product: all steps
 * at once would keep gates of all steps (and of their gradients) together, which no budget could
 * avoid.
 *
 * The equations are those of the operators' specification (ONNX operator sets 7, 14, 22), with
 * gates in its order: iofc, zrh, i. A state that is zero at the start costs no product. Sequences
 * shorter than the longest keep their state after their end (a reverse direction: before it
 * begins), and their outputs are zero there. The clip applies to the inputs of all activations.
 *
 * Nodes are named after direction and step: "layer.f3.gates". */
#include "rnn.h"

#include <string.h>

#define MAX_STEPS 4096 /* of one node */

/* ---- the parts of a step ---- */

static ValueId make(const Rnn *l, OpCode op, const char *what, uint32_t nin, const ValueId *in,
                    uint32_t nattr, const Attr *attr) {
    for (uint32_t i = 0; i < nin; i++)
        if (in[i] == NO_ID) return NO_ID;
    return emit(l->c, op, arena_printf(l->c->x->tmp, "%s.%s", l->at, what), nin, in, nattr, attr);
}

static ValueId make1(const Rnn *l, OpCode op, const char *what, ValueId a) {
    return make(l, op, what, 1, &a, 0, NULL);
}

static ValueId make2(const Rnn *l, OpCode op, const char *what, ValueId a, ValueId b) {
    return make(l, op, what, 2, (ValueId[]){a, b}, 0, NULL);
}

static ValueId scale(const Rnn *l, const char *what, ValueId v, double alpha, double beta) {
    Attr at[] = {attr_f(l->c->x->tmp, A_alpha, alpha), attr_f(l->c->x->tmp, A_beta, beta)};
    return make(l, OP_Scale, what, 1, &v, 2, at);
}

static ValueId view(const Rnn *l, const char *what, ValueId v, Shape s) {
    if (v == NO_ID || shape_eq(&l->c->x->g->value[v].shape, &s)) return v;
    Attr at = attr_ints(l->c->x->tmp, A_shape, s.dim, s.rank);
    return make(l, OP_Reshape, what, 1, &v, 1, &at);
}

/* Entries lo..lo+n of one axis. */
static ValueId part(const Rnn *l, const char *what, ValueId v, uint32_t axis, int64_t lo,
                    int64_t n) {
    if (v == NO_ID) return NO_ID;
    Shape s = l->c->x->g->value[v].shape;
    if (s.dim[axis] == n) return v;
    int64_t start[IR_MAX_RANK] = {0}, step[IR_MAX_RANK];
    for (uint32_t k = 0; k < s.rank; k++) step[k] = 1;
    start[axis] = lo;
    s.dim[axis] = n;
    Arena *a = l->c->x->tmp;
    Attr at[] = {attr_ints(a, A_starts, start, s.rank), attr_ints(a, A_steps, step, s.rank),
                 attr_ints(a, A_sizes, s.dim, s.rank)};
    return make(l, OP_Slice, what, 1, &v, 3, at);
}

/* v * w^T, with a bias when that is not NO_ID. */
static ValueId product(const Rnn *l, const char *what, ValueId v, ValueId w, ValueId bias) {
    Attr at = attr_i(l->c->x->tmp, A_trans_b, 1);
    return make(l, OP_MatMul, what, bias == NO_ID ? 2 : 3, (ValueId[]){v, w, bias}, 1, &at);
}

static ValueId number(const Rnn *l, const char *what, double v) {
    Tensor t = {.dtype = DT_F32, .count = 1, .data = &(float){(float)v}};
    const char *name = arena_printf(l->c->x->tmp, "%s%s.%s", l->c->n->name, l->at, what);
    return constant(l->c->x, name, &t, ROLE_CONST);
}

/* x if it is above alpha, else 0 */
static ValueId thresholded(const Rnn *l, const char *what, ValueId v, double alpha) {
    ValueId above = make2(l, OP_Greater, "above", v, number(l, "threshold", alpha));
    return make(l, OP_Where, what, 3, (ValueId[]){above, v, number(l, "zero", 0)}, 0, NULL);
}

static ValueId activate(const Rnn *l, uint32_t k, const char *what, ValueId v) {
    const Activation *f = &l->act[l->dir * l->nact + k];
    Arena *a = l->c->x->tmp;
    if (l->clip > 0) {
        Attr at[] = {attr_f(a, A_min, -l->clip), attr_f(a, A_max, l->clip)};
        v = make(l, OP_Clip, arena_printf(a, "%s.clip", what), 1, &v, 2, at);
    }
    Attr at[] = {attr_f(a, A_alpha, f->alpha), attr_f(a, A_beta, f->beta)};
    switch (f->kind) {
    case ACT_AFFINE: return scale(l, what, v, f->alpha, f->beta);
    case ACT_THRESHOLDED: return thresholded(l, what, v, f->alpha);
    case ACT_SCALED_TANH:
        v = make1(l, OP_Tanh, arena_printf(a, "%s.tanh", what), scale(l, "scaled", v, f->beta, 0));
        return scale(l, what, v, f->alpha, 0);
    case ACT_SOFTSIGN:
        return make2(l, OP_Div, what, v,
                     scale(l, "softsign", make1(l, OP_Abs, "magnitude", v), 1, 1));
    default: return make(l, f->op, what, 1, &v, f->nattr, at);
    }
}

/* ---- one step ---- */

static ValueId gate(const Rnn *l, const char *what, ValueId v, int64_t k) {
    return part(l, what, v, 1, k * l->H, l->H);
}

/* The state's part of all gates is added, where there is a state. */
static ValueId gates(const Rnn *l, ValueId x, ValueId h) {
    if (h == NO_ID) return x;
    return make2(l, OP_Add, "gates", x, product(l, "product", h, l->r, NO_ID));
}

/* v + p * c: peepholes are no gates where there is no cell state yet. */
static ValueId peep(const Rnn *l, const char *what, ValueId v, uint32_t k, ValueId c) {
    if (l->peep[k] == NO_ID || c == NO_ID) return v;
    ValueId term = make2(l, OP_Mul, arena_printf(l->c->x->tmp, "%s.term", what), c, l->peep[k]);
    return make2(l, OP_Add, arena_printf(l->c->x->tmp, "%s.sum", what), v, term);
}

/* c' = f*c + i*g(c part), h' = o * tanh(c'); gates i o f c, peepholes i o f */
static void step_lstm(Rnn *l, ValueId x) {
    ValueId c = l->cell, all = gates(l, x, l->h);
    ValueId i = activate(l, 0, "i", peep(l, "pi", gate(l, "i.in", all, 0), 0, c));
    ValueId g = activate(l, 1, "g", gate(l, "g.in", all, 3));
    l->cell = make2(l, OP_Mul, "new", i, g);
    if (c != NO_ID) {
        ValueId f = l->couple ? scale(l, "f", i, -1, 1)
                              : activate(l, 0, "f", peep(l, "pf", gate(l, "f.in", all, 2), 2, c));
        l->cell = make2(l, OP_Add, "c", make2(l, OP_Mul, "old", f, c), l->cell);
    }
    ValueId o = activate(l, 0, "o", peep(l, "po", gate(l, "o.in", all, 1), 1, l->cell));
    l->h = make2(l, OP_Mul, "h", o, activate(l, 2, "squashed", l->cell));
}

/* h' = (1 - z)*n + z*h; gates z r n, where r scales the state before its product or after it */
static void step_gru(Rnn *l, ValueId x) {
    ValueId h = l->h, hr = NO_ID, n = gate(l, "n.in", x, 2);
    ValueId zr = part(l, "zr.in", x, 1, 0, 2 * l->H);
    if (l->after && h == NO_ID && l->rb != NO_ID)
        hr = view(l, "rb", l->rb, (Shape){2, {1, 3 * l->H}});
    if (l->after && h != NO_ID) hr = product(l, "product", h, l->r, l->rb);
    if (hr != NO_ID) zr = make2(l, OP_Add, "zr.sum", zr, part(l, "zr.h", hr, 1, 0, 2 * l->H));
    if (!l->after && h != NO_ID)
        zr = make2(l, OP_Add, "zr.sum", zr, product(l, "product", h, l->r, NO_ID));
    ValueId z = activate(l, 0, "z", gate(l, "z.in", zr, 0));
    if (hr != NO_ID || h != NO_ID) {
        ValueId r = activate(l, 0, "r", gate(l, "r.in", zr, 1));
        ValueId old = hr != NO_ID ? make2(l, OP_Mul, "n.h", r, gate(l, "n.part", hr, 2))
                                  : product(l, "n.h", make2(l, OP_Mul, "rh", r, h), l->rn, NO_ID);
        n = make2(l, OP_Add, "n.sum", n, old);
    }
    n = activate(l, 1, "n", n);
    if (h == NO_ID) {
        l->h = make2(l, OP_Mul, "h", scale(l, "rest", z, -1, 1), n);
        return;
    }
    /* (1 - z)*n + z*h = n + z*(h - n) */
    l->h = make2(l, OP_Add, "h", n, make2(l, OP_Mul, "keep", z, make2(l, OP_Sub, "diff", h, n)));
}

static void step_rnn(Rnn *l, ValueId x) {
    l->h = activate(l, 0, "h", gates(l, x, l->h));
}

/* Sequences that ended keep the state they had; *y is the output, zero for them. */
static void hold(Rnn *l, ValueId h, ValueId c, int64_t t, ValueId *y) {
    ValueId mask = rnn_mask(l, t), zero;
    *y = l->h;
    if (mask == NO_ID) return;
    zero = number(l, "zero", 0);
    *y = make(l, OP_Where, "y", 3, (ValueId[]){mask, l->h, zero}, 0, NULL);
    l->h = h == NO_ID ? *y : make(l, OP_Where, "hold", 3, (ValueId[]){mask, l->h, h}, 0, NULL);
    if (l->kind != RNN_LSTM) return;
    ValueId old = c == NO_ID ? zero : c;
    l->cell = make(l, OP_Where, "hold.c", 3, (ValueId[]){mask, l->cell, old}, 0, NULL);
}

/* ---- a direction ---- */

static ValueId of_direction(const Rnn *l, const char *what, uint32_t input, Shape s) {
    ValueId v = part(l, what, value_in(l->c, input), 0, l->dir, 1);
    return view(l, what, v, s);
}

/* Weights of direction l->dir. Before the state's product only W's bias is added when r scales the
 * product. */
static bool read_weights(Rnn *l, ValueId *w, ValueId *bias) {
    const Ctx *c = l->c;
    int64_t gh = l->gates * l->H;
    *w = of_direction(l, "w", 1, (Shape){2, {gh, l->I}});
    l->r = of_direction(l, "r", 2, (Shape){2, {gh, l->H}});
    *bias = l->rb = NO_ID;
    if (has_in(c, 3)) {
        ValueId both = of_direction(l, "b", 3, (Shape){1, {2 * gh}});
        *bias = part(l, "wb", both, 0, 0, gh);
        l->rb = part(l, "rb", both, 0, gh, gh);
        if (l->rb == NO_ID) return false;
        if (!l->after) *bias = make2(l, OP_Add, "bias", *bias, l->rb);
        if (*bias == NO_ID) return false;
    }
    l->rn = NO_ID;
    if (l->kind == RNN_GRU && !l->after) {
        l->rn = part(l, "rn", l->r, 0, 2 * l->H, l->H);
        l->r = part(l, "rzr", l->r, 0, 0, 2 * l->H);
        if (l->rn == NO_ID) return false;
    }
    for (int64_t k = 0; k < 3; k++) {
        l->peep[k] = NO_ID;
        if (l->kind != RNN_LSTM || !has_in(c, 7)) continue;
        ValueId p = of_direction(l, "p", 7, (Shape){1, {3 * l->H}});
        l->peep[k] = part(l, arena_printf(c->x->tmp, "p%lld", (long long)k), p, 0, k * l->H, l->H);
        if (l->peep[k] == NO_ID) return false;
    }
    return *w != NO_ID && l->r != NO_ID;
}

/* The state at the start; NO_ID: zero. */
static bool read_state(const Rnn *l, uint32_t input, ValueId *out) {
    *out = NO_ID;
    if (rnn_is_zero(l->c, input)) return true;
    uint32_t axis = l->batch_first ? 1 : 0;
    const char *what = input == 5 ? "h0" : "c0";
    ValueId v = part(l, what, value_in(l->c, input), axis, l->dir, 1);
    *out = view(l, what, v, (Shape){2, {l->N, l->H}});
    return *out != NO_ID;
}

/* The input's part of the gates at step t: [N, gates*H]. chunk, all: the steps from chunk on that
 * were multiplied last. */
static ValueId input_part(Rnn *l, int64_t t, ValueId w, ValueId bias, int64_t *chunk,
                          ValueId *all) {
    int64_t n = 1;
    while (n * n < l->T) n++;
    int64_t lo = t / n * n, steps = l->T - lo < n ? l->T - lo : n;
    if (*chunk != lo) {
        ValueId rows = part(l, "steps", l->x, 0, lo, steps);
        rows = view(l, "rows", rows, (Shape){2, {steps * l->N, l->I}});
        *all = product(l, "inputs", rows, w, bias);
    }
    *chunk = lo;
    return part(l, "x", *all, 0, (t - lo) * l->N, l->N);
}

/* y[t]: [N, H] for every t; the last states stay in l. */
static bool run_direction(Rnn *l, ValueId *y) {
    ValueId w, bias, inputs = NO_ID;
    int64_t chunk = -1;
    const char *letter = l->backward ? "b" : "f";
    l->at = arena_printf(l->c->x->tmp, ".%s", letter);
    if (!read_weights(l, &w, &bias) || !read_state(l, 5, &l->h)) return false;
    l->cell = NO_ID;
    if (l->kind == RNN_LSTM && !read_state(l, 6, &l->cell)) return false;

    for (int64_t k = 0; k < l->T; k++) {
        int64_t t = l->backward ? l->T - 1 - k : k;
        l->at = arena_printf(l->c->x->tmp, ".%s%lld", letter, (long long)t);
        ValueId h = l->h, cell = l->cell, now = input_part(l, t, w, bias, &chunk, &inputs);
        if (now == NO_ID) return false;
        if (l->kind == RNN_LSTM) step_lstm(l, now);
        if (l->kind == RNN_GRU) step_gru(l, now);
        if (l->kind == RNN_PLAIN) step_rnn(l, now);
        if (l->h == NO_ID) return false;
        hold(l, h, cell, t, &y[t]);
        if (y[t] == NO_ID || l->h == NO_ID) return false;
    }
    return true;
}

/* ---- the node ---- */

static ValueId join(const Rnn *l, const char *what, uint32_t axis, uint32_t n, ValueId *in) {
    Attr at = attr_i(l->c->x->tmp, A_axis, axis);
    return n == 1 ? in[0] : make(l, OP_Concat, what, n, in, 1, &at);
}

/* Y [T, D, N, H], or [N, T, D, H] with the batch first; y[d*T + t]: [N, H] */
static Res bind_outputs(Rnn *l, ValueId *y) {
    if (!has_out(l->c, 0)) return OK;
    uint32_t first = l->batch_first, at = first ? 1 : 0;
    for (int64_t k = 0; k < l->T * l->dirs; k++) {
        Shape s = first ? (Shape){4, {l->N, 1, 1, l->H}} : (Shape){4, {1, 1, l->N, l->H}};
        y[k] = view(l, "row", y[k], s);
    }
    ValueId dir[2] = {NO_ID, NO_ID};
    for (uint32_t d = 0; d < l->dirs; d++)
        dir[d] = join(l, d ? "y1" : "y0", at, (uint32_t)l->T, y + d * l->T);
    return bind(l->c, 0, join(l, "y", at + 1, l->dirs, dir));
}

/* Y_h and Y_c: [D, N, H] or [N, D, H]; last[d]: [N, H] */
static Res bind_state(const Rnn *l, uint32_t output, ValueId *last) {
    if (!has_out(l->c, output)) return OK;
    uint32_t axis = l->batch_first ? 1 : 0;
    Shape s = l->batch_first ? (Shape){3, {l->N, 1, l->H}} : (Shape){3, {1, l->N, l->H}};
    for (uint32_t d = 0; d < l->dirs; d++) last[d] = view(l, "last", last[d], s);
    return bind(l->c, output, join(l, output == 1 ? "h" : "c", axis, l->dirs, last));
}

/* The inputs with the steps first. */
static bool read_input(Rnn *l) {
    l->at = ".x";
    l->x = value_in(l->c, 0);
    if (l->batch_first) {
        int64_t perm[] = {1, 0, 2};
        Attr at = attr_ints(l->c->x->tmp, A_perm, perm, 3);
        l->x = make(l, OP_Transpose, "steps", 1, &l->x, 1, &at);
    }
    return l->x != NO_ID;
}

Res make_rnn(Ctx *c) {
    Rnn l = {.c = c};
    MUST(rnn_read(&l));
    if (l.T > MAX_STEPS)
        return ctx_skip(c, "a sequence of %lld steps (up to %d are unrolled)", (long long)l.T,
                        MAX_STEPS);
    MUST(count_steps(c, (uint64_t)l.T * l.dirs));
    if (!read_input(&l)) return FAIL;
    ValueId *y = ARENA_ARRAY(c->x->tmp, ValueId, (uint64_t)l.T * l.dirs), h[2], cell[2];
    for (uint32_t d = 0; d < l.dirs; d++) {
        l.dir = d;
        l.backward = d == 1 || l.reverse;
        if (!run_direction(&l, y + d * l.T)) return FAIL;
        h[d] = l.h;
        cell[d] = l.cell;
    }
    l.at = ".out";
    MUST(bind_outputs(&l, y));
    MUST(bind_state(&l, 1, h));
    return l.kind == RNN_LSTM ? bind_state(&l, 2, cell) : OK;
}
