/* test_fuse_random.c - random step graphs before and after fusion: the invariants hold and an
 * interpreter that runs nodes in order, updates of weights included, finds the same outputs. */
#include "passes.h"
#include "test.h"

#include <string.h>

enum { GRAPHS = 7000, ROWS = 4, COLS = 3, CELLS = ROWS * COLS };

static uint32_t draw(uint32_t n) {
    return (uint32_t)(test_random() >> 33) % n;
}

/* ---- the interpreter ---- */

static double one(OpCode op, const double *x) {
    switch (op) {
    case OP_Add: return x[0] + x[1];
    case OP_Mul: return x[0] * x[1];
    case OP_Neg: return -x[0];
    case OP_Tanh: return tanh(x[0]);
    default: return x[0]; /* Copy */
    }
}

/* Element i of a value of shape [ROWS, COLS], [COLS] or [1, COLS]. */
static uint64_t cell(const Graph *g, ValueId v, uint64_t i) {
    return value_count(g, v) == CELLS ? i : i % COLS;
}

/* Result of one instruction: r[] holds what it computes for each element, or the column sums. */
static void run_inst(const Graph *g, OpCode op, uint32_t narg, const double *const *arg,
                     const ValueId *value, double *r) {
    bool sum = op == OP_ReduceSum;
    memset(r, 0, CELLS * sizeof *r);
    for (uint64_t i = 0; i < CELLS; i++) {
        double x[2] = {0, 0};
        for (uint32_t k = 0; k < narg; k++)
            x[k] = arg[k][value[k] == NO_ID ? i : cell(g, value[k], i)];
        if (sum)
            r[i % COLS] += x[0];
        else
            r[i] = one(op, x);
    }
}

static void run_node(const Graph *g, const Node *n, double (*val)[CELLS]) {
    const double *arg[2];
    ValueId value[2];
    double r[32][CELLS];
    if (n->op == OP_Sgd) {
        for (uint32_t i = 0; i < COLS; i++) val[n->in[0]][i] -= val[n->in[1]][i];
        return;
    }
    if (n->op != OP_Fused) {
        for (uint32_t i = 0; i < n->nin; i++) arg[i] = val[value[i] = n->in[i]];
        run_inst(g, n->op, n->nin, arg, value, r[0]);
        memcpy(val[n->out[0]], r[0], sizeof r[0]);
        return;
    }
    for (uint32_t k = 0; k < n->body->ninst; k++) {
        const FusedInst *in = &n->body->inst[k];
        for (uint32_t i = 0; i < in->narg; i++) {
            value[i] = in->arg[i] < n->nin ? n->in[in->arg[i]] : NO_ID;
            arg[i] = in->arg[i] < n->nin ? val[value[i]] : r[in->arg[i] - n->nin];
        }
        run_inst(g, in->op, in->narg, arg, value, r[k]);
    }
    for (uint32_t o = 0; o < n->nout; o++)
        memcpy(val[n->out[o]], r[n->body->out_inst[o]], sizeof r[0]);
}

/* All graph outputs one after the other. */
static uint32_t run_graph(const Graph *g, double *out) {
    double(*val)[CELLS] = calloc(g->nvalue, sizeof *val);
    for (ValueId v = 0; v < g->nvalue; v++)
        for (uint32_t i = 0; i < CELLS && g->value[v].def == NO_ID; i++)
            val[v][i] = sin((double)i + 7 * (double)g->value[v].name[0]);
    for (NodeId n = 0; n < g->nnode; n++) run_node(g, &g->node[n], val);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->noutput; i++)
        for (uint64_t k = 0; k < value_count(g, g->output[i]); k++) out[n++] = val[g->output[i]][k];
    free(val);
    return n;
}

/* ---- random graphs ---- */

typedef struct {
    Graph *g;
    VEC(ValueId) wide, row; /* of shape [ROWS, COLS]; of COLS elements */
    bool updated[4];
    ValueId weight[4];
} Maker;

static ValueId pick(Maker *m) {
    if (draw(4)) return m->wide.at[m->wide.n - 1 - draw(m->wide.n < 6 ? m->wide.n : 6)];
    uint32_t w = draw(4);
    if (draw(2) && !m->updated[w]) return m->weight[w];
    return m->row.n ? m->row.at[draw(m->row.n)] : m->wide.at[0];
}

static void add_node(Maker *m, Arena *a, Phase ph) {
    static const OpCode two[] = {OP_Add, OP_Mul}, single[] = {OP_Neg, OP_Tanh, OP_Copy};
    ValueId x = m->wide.at[draw(m->wide.n)], y = pick(m), v;
    uint32_t kind = draw(10);
    if (kind < 5) {
        v = op_make2(m->g, ph, two[draw(2)], "two", x, y);
    } else if (kind < 8) {
        v = op_make1(m->g, ph, single[draw(3)], "one", x);
    } else {
        Attr at[2] = {attr_ints(a, A_axes, (const int64_t[]){0}, 1), attr_i(a, A_keepdims, 0)};
        v = op_make_attr(m->g, ph, OP_ReduceSum, "sum", 1, &x, at, 2);
        VEC_PUSH(a, m->row, v);
        return;
    }
    VEC_PUSH(a, m->wide, v);
}

static void add_update(Maker *m) {
    uint32_t w = draw(4);
    if (m->updated[w] || !m->row.n) return;
    NodeId u = ir_node(m->g, OP_Sgd, PHASE_UPDATE, "update", 2, 0);
    m->g->node[u].in[0] = m->weight[w];
    m->g->node[u].in[1] = m->row.at[draw(m->row.n)];
    m->updated[w] = true;
}

static Graph *random_graph(Arena *a) {
    Maker m = {.g = ir_new(a, "random")};
    Shape wide = {2, {ROWS, COLS}}, row = {1, {COLS}};
    for (uint32_t i = 0; i < 4; i++)
        m.weight[i] = ir_value(m.g, arena_printf(a, "%cw", 'a' + (int)i), DT_F32, &row, ROLE_PARAM);
    for (uint32_t i = 0; i < 2; i++)
        VEC_PUSH(a, m.wide,
                 ir_value(m.g, arena_printf(a, "%cx", 'e' + (int)i), DT_F32, &wide, ROLE_INPUT));
    uint32_t size = 5 + draw(40);
    for (uint32_t i = 0; i < size; i++) {
        add_node(&m, a, i < size / 3 ? PHASE_FORWARD : PHASE_BACKWARD);
        if (i > size / 3 && !draw(4)) add_update(&m);
    }
    VEC(ValueId) out = {0};
    VEC_PUSH(a, out, m.wide.at[m.wide.n - 1]);
    VEC_PUSH(a, out, m.wide.at[draw(m.wide.n)]);
    for (uint32_t i = 0; i < m.row.n; i++)
        if (draw(2)) VEC_PUSH(a, out, m.row.at[i]);
    for (uint32_t i = 0; i < 4; i++) VEC_PUSH(a, out, m.weight[i]);
    m.g->output = out.at;
    m.g->noutput = out.n;
    return m.g;
}

int main(void) {
    uint32_t fused = 0;
    for (uint64_t seed = 1; seed <= GRAPHS && !test_failed; seed++) {
        Arena *a = arena_new();
        Diag d;
        diag_init(&d, a, stderr);
        test_random_state = seed;
        Graph *g = random_graph(a), *f = fuse_graph(a, g);
        CHECK(ir_verify(&d, g) && ir_verify(&d, f) && op_check(&d, f));
        double want[512], got[512];
        uint32_t n = run_graph(g, want);
        CHECK_EQ(run_graph(f, got), n);
        CHECK(!memcmp(want, got, n * sizeof *got));
        fused += g->nnode - f->nnode;
        if (test_failed) fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        arena_free(a);
    }
    CHECK(fused > GRAPHS); /* the test would prove nothing if little was fused */
    return test_end();
}
