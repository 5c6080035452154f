/* loop_parts.c - what the loops of all targets share: the operands of a node, its instructions as
 * expressions, and the results of its reductions. */
#include "loop.h"

bool loop_is_given(const Loop *w, uint32_t k) {
    return (k < w->n->nin ? w->n->in[k] : w->n->out[k - w->n->nin]) != NO_ID;
}

DType loop_type(const Loop *w, uint32_t k) {
    return w->g->value[k < w->n->nin ? w->n->in[k] : w->n->out[k - w->n->nin]].dtype;
}

static bool is_sum(const FusedInst *in) {
    return (op_def(in->op)->flags & OPF_COLREDUCE) != 0;
}

bool loop_out_is_sum(const Loop *w, uint32_t o) {
    return is_sum(&w->l.body.inst[w->l.body.out_inst[o]]);
}

/* Operands that the walking code points at: all inputs and elementwise outputs. */
bool loop_is_walked(const Loop *w, uint32_t k) {
    return loop_is_given(w, k) && (k < w->n->nin || !loop_out_is_sum(w, k - w->n->nin));
}

bool loop_moves(const Loop *w, uint32_t k, uint32_t axis) {
    return w->l.moves[k] >> axis & 1;
}

bool loop_moves_everywhere(const Loop *w, uint32_t k) {
    return w->l.moves[k] == (1u << w->l.naxis) - 1;
}

static uint32_t acc_count(const FusedInst *in) {
    uint32_t n = 0;
    while (n < 3 && op_def(in->op)->acc[n]) n++;
    return n;
}

/* "n1 * n2" for axes from..to; "1" when empty. */
const char *loop_product(const Loop *w, uint32_t from, uint32_t to) {
    Text t;
    text_init(&t, w->a);
    for (uint32_t i = from; i < to; i++) text_add(&t, "%sn%u", i > from ? " * " : "", i);
    return from < to ? t.at : "1";
}

/* Operand of an instruction as text: an input or an earlier result. */
static const char *arg_name(const Loop *w, uint32_t arg) {
    if (arg < w->n->nin) return arena_printf(w->a, "v%u", arg);
    return arena_printf(w->a, "t%u", arg - w->n->nin);
}

static ExprNames inst_names(const Loop *w, uint32_t k, bool is_float) {
    const FusedInst *in = &w->l.body.inst[k];
    const OpDef *d = op_def(in->op);
    const char **arg = ARENA_ARRAY(w->a, const char *, in->narg + 1);
    for (uint32_t i = 0; i < in->narg; i++) arg[i] = arg_name(w, in->arg[i]);
    ExprNames e = {.arg = arg, .narg = in->narg};
    for (uint32_t i = 0; i < 3; i++) {
        if (d->p[i] == A_COUNT) continue;
        const Attr *at = attr_find(in->attr, in->nattr, d->p[i]);
        double v = !at ? d->dflt[i] : at->is_float ? at->f[0] : (double)at->i[0];
        e.p[i] = cg_number(w->a, v, is_float);
    }
    e.key = arena_printf(w->a, "key%u", k);
    e.index = w->index;
    return e;
}

void loop_compute(const Loop *w, const char *pad) {
    const FusedBody *b = &w->l.body;
    uint32_t acc = 0;
    for (uint32_t k = 0; k < b->ninst; k++) {
        const OpDef *d = op_def(b->inst[k].op);
        ExprNames e = inst_names(w, k, true);
        if (!is_sum(&b->inst[k])) {
            text_add(w->t, "%sconst %s t%u = ", pad, cg_ctype(b->inst[k].dtype), k);
            cg_expr(w->t, d->expr, &e);
            text_add(w->t, "; /* %s */\n", d->name);
            continue;
        }
        for (uint32_t i = 0; i < acc_count(&b->inst[k]); i++, acc++) {
            text_add(w->t, "%ssum%u%s += (double)(", pad, acc, w->scalar_sums ? "" : "[e]");
            cg_expr(w->t, d->acc[i], &e);
            text_add(w->t, "); /* %s */\n", d->name);
        }
    }
}

/* Results of all reductions for column `at`, from sums that are in scope under the given suffix. */
void loop_finish_sums(const Loop *w, const char *pad, const char *suffix, const char *at) {
    Arena *a = w->a;
    const FusedBody *b = &w->l.body;
    for (uint32_t o = 0; o < w->n->nout; o++) {
        if (!loop_is_given(w, w->n->nin + o) || !loop_out_is_sum(w, o)) continue;
        uint32_t base = 0;
        for (uint32_t k = 0; k < b->out_inst[o]; k++)
            if (is_sum(&b->inst[k])) base += acc_count(&b->inst[k]);
        const char *sum[3];
        for (uint32_t i = 0; i < 3; i++) sum[i] = arena_printf(a, "sum%u%s", base + i, suffix);
        ExprNames e = inst_names(w, b->out_inst[o], false);
        e.narg = 0;
        e.sum = sum;
        e.rows = "rows";
        text_add(w->t, "%sa%u[%s] = (float)(", pad, w->n->nin + o, at);
        cg_expr(w->t, op_def(b->inst[b->out_inst[o]].op)->fin[b->out_res[o]], &e);
        text_str(w->t, ");\n");
    }
}

static Form form_of(const LoopNest *l, bool by_columns) {
    if (l->nacc) return by_columns ? COLUMNS : SUMS;
    return l->naxis > 1 ? ROWS : FLAT;
}

void loop_open(Loop *w, Arena *a, const Graph *g, const Node *n, bool by_columns, Text *t) {
    *w = (Loop){.a = a, .g = g, .n = n, .t = t, .nop = n->nin + n->nout};
    op_loop_nest(a, g, n, &w->l);
    w->form = form_of(&w->l, by_columns);
    w->last = w->l.naxis - 1;
    w->index = w->form == FLAT ? "(uint64_t)i" : "(uint64_t)(i + e)";
    w->in_at = w->form == FLAT ? "i" : "e";
    w->scalar_sums = w->form == SUMS && w->l.nlead == w->l.naxis;
}

/* Parameters of the loop function and the arguments of one node's call. */
void loop_parameters(const Loop *w, Text *params, Text *args) {
    text_str(params, "(DtrtCtx *c, void *const *p");
    text_str(args, "(c, p");
    for (uint32_t i = 0; i < w->l.naxis; i++) {
        text_add(params, ", int64_t n%u", i);
        text_add(args, ", %lld", (long long)w->l.size[i]);
    }
    for (uint32_t k = 0; k < w->l.body.ninst; k++) {
        if (op_def(w->l.body.inst[k].op)->cls != CLS_RANDOM) continue;
        text_add(params, ", uint32_t key%u", k);
        text_add(args, ", %uu", w->l.body.inst[k].key);
    }
    text_str(params, ")");
    text_str(args, ")");
}
