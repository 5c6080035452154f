/* loopnest.c - the iteration space of an elementwise node, a column reduction or a Fused node, with
 * as few axes as its operands allow.
 *
 * Node -> LoopNest. Axes of size 1 disappear; neighbours merge when every operand either moves
 * along both or along neither, so that most kernels end as one flat loop or as rows x channels. A
 * reduction keeps the boundary between the axes that it sums over and those that stay. Code
 * generation and the workspace formula both stand on this, so they agree by construction. */
#include "ops.h"

#include <assert.h>

/* A lone node as a body of one instruction. */
static void fill_lone_body(Arena *a, const Graph *g, const Node *n, FusedBody *b) {
    b->ninst = 1;
    b->inst = ARENA_NEW(a, FusedInst);
    FusedInst *in = b->inst;
    uint32_t *arg = ARENA_ARRAY(a, uint32_t, n->nin);
    for (uint32_t i = 0; i < n->nin; i++) arg[i] = i;
    *in = (FusedInst){.op = n->op, .nattr = n->nattr, .narg = n->nin, .attr = n->attr, .arg = arg};
    in->key = n->key;
    in->name = n->name;
    in->dtype = g->value[n->out[0]].dtype;
    b->out_inst = ARENA_ARRAY(a, uint32_t, n->nout);
    b->out_res = ARENA_ARRAY(a, uint32_t, n->nout);
    for (uint32_t i = 0; i < n->nout; i++) b->out_res[i] = i;
    b->space = g->value[op_is_colreduce(n) ? n->in[0] : n->out[0]].shape;
}

/* Which axes of `space` an operand of shape s moves along (right-aligned, numpy rules). */
static uint32_t moving_axes(const Shape *space, const Shape *s) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint32_t axis = space->rank - s->rank + i;
        if (s->dim[i] > 1) bits |= 1u << axis;
    }
    return bits;
}

static bool inst_reduces(const FusedInst *in) {
    return (op_def(in->op)->flags & OPF_COLREDUCE) != 0;
}

static void fill_accumulators(const FusedBody *b, LoopNest *l) {
    for (uint32_t k = 0; k < b->ninst; k++) {
        if (!inst_reduces(&b->inst[k])) continue;
        const OpDef *d = op_def(b->inst[k].op);
        for (uint32_t i = 0; i < 3 && d->acc[i]; i++) l->nacc++;
    }
}

/* First axis that a reduction keeps: the trailing axes whose sizes multiply to its result. */
static uint32_t kept_axis(const Shape *space, uint64_t kept) {
    uint32_t axis = space->rank;
    uint64_t n = 1;
    while (axis > 0 && n < kept) n *= (uint64_t)space->dim[--axis];
    assert(n == kept);
    return axis;
}

static void merge_axes(const Shape *space, uint32_t split, LoopNest *l, uint32_t noperand) {
    uint32_t from[IR_MAX_RANK]; /* first original axis of each merged one */
    l->naxis = l->nlead = 0;
    for (uint32_t ax = 0; ax < space->rank; ax++) {
        if (space->dim[ax] == 1) continue;
        bool same = l->naxis > 0 && !(l->nacc && ax >= split && from[l->naxis - 1] < split);
        for (uint32_t k = 0; same && k < noperand; k++)
            same = (l->moves[k] >> ax & 1) == (l->moves[k] >> from[l->naxis - 1] & 1);
        if (same) {
            l->size[l->naxis - 1] *= space->dim[ax];
            continue;
        }
        from[l->naxis] = ax;
        l->size[l->naxis++] = space->dim[ax];
        if (l->nacc && ax < split) l->nlead++;
    }
    for (uint32_t k = 0; k < noperand; k++) {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < l->naxis; i++) bits |= (l->moves[k] >> from[i] & 1) << i;
        l->moves[k] = bits;
    }
}

/* A space of one element, or a reduction with one side empty, still gets an axis there. */
static void add_unit_axes(LoopNest *l) {
    if (l->naxis == 0) {
        l->size[0] = 1;
        l->naxis = 1;
        l->nlead = l->nacc ? 1 : 0;
    }
}

bool op_is_loop(const Node *n) {
    if (n->op == OP_Fused || (op_def(n->op)->flags & OPF_EW)) return true;
    return op_is_colreduce(n);
}

void op_loop_nest(Arena *a, const Graph *g, const Node *n, LoopNest *l) {
    assert(op_is_loop(n));
    *l = (LoopNest){0};
    if (n->op == OP_Fused)
        l->body = *n->body;
    else
        fill_lone_body(a, g, n, &l->body);
    const FusedBody *b = &l->body;
    fill_accumulators(b, l);
    l->kept = 1;
    uint32_t split = b->space.rank;
    l->moves = ARENA_ARRAY(a, uint32_t, n->nin + n->nout);
    for (uint32_t i = 0; i < n->nin; i++)
        if (n->in[i] != NO_ID) l->moves[i] = moving_axes(&b->space, &g->value[n->in[i]].shape);
    for (uint32_t i = 0; i < n->nout; i++) {
        if (n->out[i] == NO_ID || !inst_reduces(&b->inst[b->out_inst[i]])) continue;
        l->kept = value_count(g, n->out[i]);
        split = kept_axis(&b->space, l->kept);
    }
    for (uint32_t i = 0; i < n->nout; i++) {
        bool reduced = inst_reduces(&b->inst[b->out_inst[i]]);
        for (uint32_t ax = reduced ? split : 0; ax < b->space.rank; ax++)
            if (b->space.dim[ax] > 1) l->moves[n->nin + i] |= 1u << ax;
    }
    merge_axes(&b->space, split, l, n->nin + n->nout);
    add_unit_axes(l);
    l->lead = 1;
    for (uint32_t i = 0; i < l->nlead; i++) l->lead *= (uint64_t)l->size[i];
    l->by_columns =
        l->nacc && l->nlead < l->naxis && (l->lead < LOOP_FEW_ROWS || l->kept > LOOP_MANY_COLUMNS);
}

uint64_t op_loop_workspace(const Graph *g, const Node *n, int threads) {
    Arena *scratch = arena_new();
    LoopNest l;
    op_loop_nest(scratch, g, n, &l);
    arena_free(scratch);
    if (!l.nacc || l.by_columns) return 0;
    return (uint64_t)threads * l.nacc * l.kept * sizeof(double);
}
