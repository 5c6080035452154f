/* test_loops.c - generated loops against a naive evaluation: nodes over all forms of loops (flat,
 * rows, sums, columns), in place too, are emitted, compiled, loaded and run; an interpreter that
 * follows the definition (one element at a time, numpy broadcasting, double) says what must come
 * out.
 *
 * With LOOPS_CUDA: the same for the target cuda. The kernels are compiled by NVRTC and run by
 * tests/cudasim with every access checked; kernels with 64-bit indices are tried too, and blocks
 * and threads in other orders must give the same bits. */
#include "gen.h"
#include "test.h"

#ifdef LOOPS_CUDA
#include "dtrt_cuda.h"
#include "params.h"
#include "simt.h"
#endif

#include "dtrt.h"
#include "dtrt_math.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#ifdef LOOPS_CUDA
static const Target target = TARGET_CUDA;
#else
static const Target target = TARGET_CPU;
#endif
enum { THREADS = 3, MAX_OPERANDS = 16 };

static Arena *arena;
static Graph *graph;
static Diag diag;

static Shape shape(uint32_t rank, const int64_t *dim) {
    Shape s = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) s.dim[i] = dim[i];
    return s;
}
#define SHAPE(...)                                                                                 \
    shape(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static ValueId input_of(DType t, Shape s) {
    return ir_value(graph, "x", t, &s, ROLE_INPUT);
}
static ValueId input(Shape s) {
    return input_of(DT_F32, s);
}

/* ---- the naive evaluation ---- */

static double eval(const FusedInst *in, const double *x, uint64_t index) {
    const Attr *at = in->nattr ? &in->attr[0] : NULL;
    double p = at && at->is_float ? at->f[0] : 0;
    switch (in->op) {
    case OP_Relu: return x[0] > 0 ? x[0] : 0;
    case OP_ReluGrad: return x[1] > 0 ? x[0] : 0;
    case OP_Add: return x[0] + x[1];
    case OP_Mul: return x[0] * x[1];
    case OP_Where: return x[0] != 0 ? x[1] : x[2];
    case OP_Greater: return x[0] > x[1];
    case OP_Tanh: return tanh(x[0]);
    case OP_Gelu: return 0.5 * x[0] * (1 + erf(x[0] / sqrt(2)));
    case OP_LeakyRelu: return x[0] > 0 ? x[0] : p * x[0];
    case OP_BnApply: return (x[0] - x[1]) * x[2] * x[3] + x[4];
    case OP_Dropout: return (double)dtrt_dropout((float)x[0], (float)p, 7, 3, in->key, index);
    case OP_Cast: return trunc(x[0]);
    case OP_Expand: return x[0];
    default: CHECK(in->op == OP_NONE); return 0; /* an operator that the test does not know */
    }
}

static double load(const void *p, DType t, uint64_t i) {
    if (t == DT_F32) return (double)((const float *)p)[i];
    if (t == DT_I64) return (double)((const int64_t *)p)[i];
    return ((const uint8_t *)p)[i];
}

/* Linear index of an operand's element at linear index i of the space. */
static uint64_t at(const Shape *space, const Shape *s, uint64_t i) {
    uint64_t off = 0, stride = 1;
    for (uint32_t k = 0; k < space->rank; k++) {
        uint32_t ax = space->rank - 1 - k;
        uint64_t x = i % (uint64_t)space->dim[ax];
        i /= (uint64_t)space->dim[ax];
        if (k >= s->rank) continue;
        int64_t d = s->dim[s->rank - 1 - k];
        if (d > 1) off += x * stride;
        stride *= (uint64_t)d;
    }
    return off;
}

/* Sums of reduction instruction k for one column; what the operators' formulas say. */
static void add_sums(const FusedInst *in, const double *x, double *s) {
    if (in->op == OP_BnStats) {
        s[0] += x[0];
        s[1] += x[0] * x[0];
    } else if (in->op == OP_BnGradReduce) {
        s[0] += x[0];
        s[1] += x[0] * (x[1] - x[2]) * x[3];
    } else {
        s[0] += x[0];
    }
}

static double finish(const FusedInst *in, uint32_t res, const double *s, double rows) {
    if (in->op == OP_BnStats) return res ? s[1] / rows - s[0] / rows * (s[0] / rows) : s[0] / rows;
    if (in->op == OP_ReduceSum) {
        const Attr *sc = attr_find(in->attr, in->nattr, A_scale);
        return s[0] * (sc ? sc->f[0] : 1);
    }
    return s[res];
}

static void naive(const Node *n, const LoopNest *l, void *const *p, double **want) {
    const FusedBody *b = &l->body;
    uint64_t total;
    shape_count(&b->space, &total);
    double *sums = calloc((size_t)(l->kept * b->ninst * 3), sizeof *sums);
    double *r = calloc(b->ninst, sizeof *r);
    for (uint64_t i = 0; i < total; i++) {
        for (uint32_t k = 0; k < b->ninst; k++) {
            const FusedInst *in = &b->inst[k];
            double x[MAX_OPERANDS];
            for (uint32_t j = 0; j < in->narg; j++) {
                uint32_t a = in->arg[j];
                if (a >= n->nin) {
                    x[j] = r[a - n->nin];
                    continue;
                }
                const Value *v = &graph->value[n->in[a]];
                x[j] = load(p[a], v->dtype, at(&b->space, &v->shape, i));
            }
            if (op_def(in->op)->flags & OPF_COLREDUCE)
                add_sums(in, x, &sums[(i % l->kept * b->ninst + k) * 3]);
            else
                r[k] = eval(in, x, i);
        }
        for (uint32_t o = 0; o < n->nout; o++)
            if (!(op_def(b->inst[b->out_inst[o]].op)->flags & OPF_COLREDUCE))
                want[o][i] = r[b->out_inst[o]];
    }
    for (uint32_t o = 0; o < n->nout; o++) {
        uint32_t k = b->out_inst[o];
        if (!(op_def(b->inst[k].op)->flags & OPF_COLREDUCE)) continue;
        for (uint64_t c = 0; c < l->kept; c++)
            want[o][c] = finish(&b->inst[k], b->out_res[o], &sums[(c * b->ninst + k) * 3],
                                (double)total / (double)l->kept);
    }
    free(sums);
    free(r);
}

/* ---- running a node ---- */

static void *fresh(uint64_t n, DType t, uint32_t seed) {
    uint8_t *p = aligned_alloc(256, round_up(n * 8 + 256, 256));
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)(dtrt_random(1, 2, seed, i) % 2001) / 500 - 2;
        if (t == DT_F32) ((float *)p)[i] = (float)x;
        if (t == DT_I64) ((int64_t *)p)[i] = (int64_t)x;
        if (t == DT_BOOL) p[i] = x > 0;
    }
    return p;
}

#ifdef LOOPS_CUDA
static const SimtModule *module;
static SimtOptions options = {.check = true};
static bool wide; /* kernels with 64-bit indices */

/* Buffers of the node that runs: what kernels may touch. */
static struct {
    uint8_t *at[MAX_OPERANDS];
    size_t bytes[MAX_OPERANDS];
    uint32_t n;
} buffers;

static bool may_touch(void *ctx, const void *p, size_t bytes, bool write, const char **why) {
    (void)ctx, (void)write;
    const uint8_t *b = p;
    *why = "outside of the node's operands";
    for (uint32_t i = 0; i < buffers.n; i++)
        if (b >= buffers.at[i] && b + bytes <= buffers.at[i] + buffers.bytes[i]) return true;
    return false;
}

/* Called by the generated code. */
void dtrt_cuda_launch(DtrtLaunch *k, DtrtGrid grid, int block, void **args) {
    static SimtFindings found; /* large */
    char name[64], text[400];
    snprintf(name, sizeof name, "%s%s", k->name, wide ? "_wide" : "");
    const SimtKernel *kernel = simt_kernel(module, name);
    if (!kernel) kernel = simt_kernel(module, k->name);
    CHECK(kernel != NULL);
    if (!kernel) return;
    found = (SimtFindings){0};
    CHECK(simt_launch(kernel, (SimtDim){(uint32_t)grid.x, (uint32_t)grid.y, 1},
                      (SimtDim){(uint32_t)block, 1, 1}, 0, args, &options, &found));
    for (uint32_t i = 0; i < found.count; i++) {
        simt_describe(&found.list[i], text, sizeof text);
        fprintf(stderr, "  %s\n", text);
    }
}

/* Images are the same when they come from $DTRC_CACHE, and made anew when those there are no good.
 */
static void check_cache(Gen *g, const char *build) {
    char *dir = arena_printf(arena, "%s/tests/cache-XXXXXX", build);
    CHECK(mkdtemp(dir) != NULL);
    setenv("DTRC_CACHE", dir, 1);
    CHECK(cg_cuda_images(g));
    CHECK_EQ(g->image.n, 2); /* a cubin, and the text */
    for (int damaged = 0; damaged < 2; damaged++) {
        g->image.n = 0;
        if (damaged) /* one byte in each file */
            CHECK_EQ(
                system(arena_printf(arena,
                                    "for f in '%s'/*; do printf x | dd of=\"$f\" bs=1 seek=500 "
                                    "conv=notrunc status=none; done",
                                    dir)),
                0);
        GenImage before[2] = {g->image.at[0], g->image.at[1]};
        CHECK(cg_cuda_images(g));
        CHECK_EQ(g->image.n, 2);
        for (uint32_t i = 0; i < g->image.n; i++)
            CHECK(g->image.at[i].n == before[i].n &&
                  !memcmp(g->image.at[i].bytes, before[i].bytes, before[i].n));
    }
    unsetenv("DTRC_CACHE");
    CHECK_EQ(system(arena_printf(arena, "rm -r '%s'", dir)), 0);
}

static bool load_kernels(Gen *g, const char *build) {
    char message[1000] = "";
    g->o = &(const CgOptions){.target = TARGET_CUDA,
                              .include_dir = arena_printf(arena, "%s/include/dtrc", build),
                              .gpu_arch = (const GpuArch[]){{80, .cubin = true, .ptx = true}},
                              .ngpu_arch = 1};
    check_cache(g, build);
    for (uint32_t i = 0; i < g->image.n; i++)
        if (g->image.at[i].is_text)
            module = simt_load(g->image.at[i].bytes, SIMT_CHECKED, NULL, message, sizeof message);
    if (!module) fprintf(stderr, "%s\n", message);
    CHECK(module != NULL);
    if (!module) return false;
    CuStep *now = simt_variable(module, "cu_now")->address;
    now->seed = 7;
    now->step = 3;
    options.may = may_touch;
    return true;
}
#endif

/* Runs the node into p; on the target cuda also with wide indices and in other orders. */
static void call(NodeId id, DtrtKernel *kernel, void *const *p, const uint64_t *bytes) {
    const Node *n = &graph->node[id];
    DtrtCtx c = {.seed = 7, .step = 3, .threads = THREADS};
#ifdef LOOPS_CUDA
    enum { WAYS = 3 };
    uint8_t *before[MAX_OPERANDS], *first[MAX_OPERANDS];
    buffers.n = n->nin + n->nout + 1;
    for (uint32_t i = 0; i < buffers.n; i++) {
        buffers.at[i] = p[i];
        buffers.bytes[i] = bytes[i];
        before[i] = arena_alloc(arena, bytes[i] + 1);
        first[i] = arena_alloc(arena, bytes[i] + 1);
        memcpy(before[i], p[i], bytes[i]);
    }
    for (int way = 0; way < WAYS; way++) {
        static const SimtOrder order[WAYS] = {SIMT_SEEDED, SIMT_DESCENDING, SIMT_ASCENDING};
        options.order = order[way];
        wide = way == 1;
        for (uint32_t i = 0; i < buffers.n; i++) memcpy(p[i], before[i], bytes[i]);
        kernel(&c, p);
        for (uint32_t i = n->nin; i < n->nin + n->nout; i++) {
            if (!way) memcpy(first[i], p[i], bytes[i]);
            CHECK(!memcmp(first[i], p[i], bytes[i]));
        }
    }
#else
    (void)n, (void)bytes;
    kernel(&c, p);
#endif
}

static void run_node(NodeId id, DtrtKernel *kernel, int inplace) {
    const Node *n = &graph->node[id];
    LoopNest l;
    op_loop_nest(arena, graph, n, &l);
    void *p[MAX_OPERANDS] = {0};
    double *want[MAX_OPERANDS];
    uint64_t bytes[MAX_OPERANDS];
    for (uint32_t i = 0; i < n->nin; i++) {
        p[i] = fresh(value_count(graph, n->in[i]), graph->value[n->in[i]].dtype, i);
        bytes[i] = value_count(graph, n->in[i]) * dtype_size(graph->value[n->in[i]].dtype);
    }
    for (uint32_t o = 0; o < n->nout; o++) {
        uint64_t count = value_count(graph, n->out[o]);
        bytes[n->nin + o] = count * dtype_size(graph->value[n->out[o]].dtype);
        p[n->nin + o] = fresh(count, DT_F32, 99);
        want[o] = calloc(count, sizeof(double));
    }
    bytes[n->nin + n->nout] = op_loop_workspace(graph, n, THREADS);
    p[n->nin + n->nout] = fresh(op_loop_workspace(graph, n, THREADS) / 8 + 1, DT_I64, 98);
    naive(n, &l, p, want);
    void *own = p[n->nin];
    if (inplace >= 0) p[n->nin] = p[inplace];
    call(id, kernel, p, bytes);
    /* Tolerance: chains of float operations of 6e-8 each, and functions of dtrt_vecmath.h, on
     * values up to 4; sums are in double. */
    for (uint32_t o = 0; o < n->nout; o++) {
        uint64_t bad = 0;
        DType t = graph->value[n->out[o]].dtype;
        for (uint64_t i = 0; i < value_count(graph, n->out[o]); i++) {
            double got = load(p[n->nin + o], t, i);
            bad += !(fabs(got - want[o][i]) <= 2e-5 * (1 + fabs(want[o][i])));
        }
        CHECK_EQ(bad, 0);
        if (bad) fprintf(stderr, "  node %u (%s), output %u\n", id, op_def(n->op)->name, o);
        free(want[o]);
    }
    p[n->nin] = own;
    for (uint32_t i = 0; i <= n->nin + n->nout; i++) free(p[i]);
}

/* ---- the nodes ---- */

static NodeId def_of(ValueId v) {
    return graph->value[v].def;
}

static NodeId reduce(ValueId x, uint32_t naxes, double scale) {
    int64_t axes[IR_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    Attr at[2] = {attr_ints(arena, A_axes, axes, naxes), attr_f(arena, A_scale, scale)};
    return def_of(op_make_attr(graph, PHASE_FORWARD, OP_ReduceSum, "sum", 1, &x, at, 2));
}

static FusedInst inst(OpCode op, uint32_t narg, const uint32_t *arg) {
    FusedInst in = {.op = op, .narg = narg, .dtype = DT_F32, .name = "i"};
    uint32_t *copy = ARENA_ARRAY(arena, uint32_t, narg);
    memcpy(copy, arg, narg * sizeof *arg);
    in.arg = copy;
    return in;
}

/* r = ReluGrad(dy[8,1,40] broadcast + dz, z); sums of r and r*xhat over rows; r is an output too.
 */
static NodeId fused_bn_grad(Shape space, Shape small) {
    int64_t c = space.dim[space.rank - 1];
    ValueId in[6] = {input(small), input(space),    input(space),
                     input(space), input(SHAPE(c)), input(SHAPE(c))};
    FusedBody *b = ARENA_NEW(arena, FusedBody);
    b->space = space;
    b->ninst = 3;
    b->inst = ARENA_ARRAY(arena, FusedInst, 3);
    b->inst[0] = inst(OP_Add, 2, (const uint32_t[]){0, 1});
    b->inst[1] = inst(OP_ReluGrad, 2, (const uint32_t[]){6, 2});
    b->inst[2] = inst(OP_BnGradReduce, 4, (const uint32_t[]){7, 3, 4, 5});
    NodeId n = ir_node(graph, OP_Fused, PHASE_BACKWARD, "fused", 6, 3);
    memcpy(graph->node[n].in, in, sizeof in);
    b->out_inst = ARENA_ARRAY(arena, uint32_t, 3);
    b->out_res = ARENA_ARRAY(arena, uint32_t, 3);
    b->out_inst[0] = 1;
    b->out_inst[1] = b->out_inst[2] = 2;
    b->out_res[2] = 1;
    graph->node[n].body = b;
    CHECK(op_infer(graph, &diag, n));
    return n;
}

/* Sum over axis 0 of x * s, where s stands still along some kept axis. */
static void fused_sum(Shape space, Shape small) {
    Shape kept = space;
    kept.dim[0] = 1;
    ValueId in[2] = {input(space), input(small)};
    FusedBody *b = ARENA_NEW(arena, FusedBody);
    b->space = space;
    b->ninst = 2;
    b->inst = ARENA_ARRAY(arena, FusedInst, 2);
    b->inst[0] = inst(OP_Mul, 2, (const uint32_t[]){0, 1});
    b->inst[1] = inst(OP_ReduceSum, 1, (const uint32_t[]){2});
    Attr *at = ARENA_NEW(arena, Attr);
    *at = attr_ints(arena, A_axes, (const int64_t[]){0}, 1);
    b->inst[1].attr = at;
    b->inst[1].nattr = 1;
    NodeId n = ir_node(graph, OP_Fused, PHASE_BACKWARD, "fused", 2, 1);
    memcpy(graph->node[n].in, in, sizeof in);
    b->out_inst = ARENA_ARRAY(arena, uint32_t, 1);
    b->out_res = ARENA_ARRAY(arena, uint32_t, 1);
    b->out_inst[0] = 1;
    graph->node[n].body = b;
    CHECK(op_infer(graph, &diag, n));
    CHECK(shape_eq(&graph->value[graph->node[n].out[0]].shape, &kept));
}

static void make_nodes(void) {
    const Phase F = PHASE_FORWARD;
    ValueId big = input(SHAPE(70001)), img = input(SHAPE(8, 50, 40)), c = input(SHAPE(40));
    op_make1(graph, F, OP_Relu, "n", big);
    op_make1(graph, F, OP_Tanh, "n", big);
    op_make1(graph, F, OP_Gelu, "n", input(SHAPE(3, 7)));
    op_make2(graph, F, OP_Add, "n", big, input(SHAPE(1)));
    op_make2(graph, F, OP_Add, "n", img, c);
    op_make2(graph, F, OP_Mul, "n", img, input(SHAPE(8, 1, 40)));
    op_make2(graph, F, OP_Mul, "n", img, input(SHAPE(8, 50, 1)));
    op_make2(graph, F, OP_Add, "n", input(SHAPE(5, 1, 6)), input(SHAPE(1, 700, 6)));
    op_make2(graph, F, OP_Add, "n", input(SHAPE(4, 1, 5, 1)), input(SHAPE(3, 1, 2)));
    op_make2(graph, F, OP_Mul, "n", input(SHAPE(1)), input(SHAPE(1, 1)));
    ValueId bn[5] = {img, c, c, input(SHAPE(40)), input(SHAPE(40))};
    op_make(graph, F, OP_BnApply, "n", 5, bn);
    op_make3(graph, F, OP_Where, "n", input_of(DT_BOOL, SHAPE(50, 1)), img, c);
    op_make2(graph, F, OP_Greater, "n", img, c);
    Attr to = attr_i(arena, A_to, DT_I64);
    op_make_attr(graph, F, OP_Cast, "n", 1, &img, &to, 1);
    Attr alpha = attr_f(arena, A_alpha, 0.25), ratio = attr_f(arena, A_ratio, 0.5);
    op_make_attr(graph, F, OP_LeakyRelu, "n", 1, &img, &alpha, 1);
    ValueId drop = op_make_attr(graph, F, OP_Dropout, "n", 1, &img, &ratio, 1);
    graph->node[def_of(drop)].key = 5;
    int64_t to_shape[] = {8, 50, 40};
    Attr sh = attr_ints(arena, A_shape, to_shape, 3);
    op_make_attr(graph, F, OP_Expand, "n", 1, &c, &sh, 1);
    op_make1(graph, F, OP_BnStats, "n", img);
    ValueId bg[4] = {img, img, c, c};
    op_make(graph, F, OP_BnGradReduce, "n", 4, bg);
    reduce(input(SHAPE(1000, 33)), 1, 1);
    reduce(input(SHAPE(100, 33, 21)), 2, 0.5);
    reduce(big, 1, 1.0 / 70001);
    reduce(input(SHAPE(4, 9000)), 1, 1);     /* few rows: columns */
    reduce(input(SHAPE(70, 3, 4001)), 1, 1); /* many columns */
    reduce(input(SHAPE(1, 12)), 1, 1);
    reduce(input(SHAPE(1, 1)), 2, 3);
    fused_bn_grad(SHAPE(8, 50, 40), SHAPE(8, 1, 40));
    fused_bn_grad(SHAPE(8, 1, 4, 700), SHAPE(8, 1, 1, 700));
    fused_bn_grad(SHAPE(3, 5000), SHAPE(1));
    fused_bn_grad(SHAPE(90, 1300), SHAPE(90, 1));
    fused_sum(SHAPE(70, 3, 5), SHAPE(70, 1, 5)); /* sums with two kept axes */
    fused_sum(SHAPE(70, 3, 700), SHAPE(1, 3, 1));
    fused_sum(SHAPE(4, 3, 700), SHAPE(4, 1, 700)); /* columns with two kept axes */
}

static void *compile_and_load(Gen *g, const char *build) {
    Text t;
    text_init(&t, arena);
    text_add(&t,
             "#include \"dtrt_kernels.h\"\n#include \"dtrt_vecmath.h\"\n#include "
             "\"dtrt_cuda.h\"\n"
             "#define LOOP __attribute__((noinline))\n#define THREADS INT64_C(%d)\n"
             "enum { SLOTS = 1 };\n",
             THREADS);
    cg_print_kernels(g, &t);
    text_str(&t, "DtrtKernel *const kernels[] = {");
    for (NodeId n = 0; n < graph->nnode; n++) text_add(&t, "k%u, ", g->node_body[n]);
    text_str(&t, "0};\n");
    const char *base =
        arena_printf(arena, "%s/tests/loops%d-%ld", build, (int)target, (long)getpid());
    const char *c = arena_printf(arena, "%s.c", base), *so = arena_printf(arena, "%s.so", base);
    CHECK(file_write(c, t.at, t.n));
    const char *cmd = arena_printf(
        arena,
        "cc -std=c11 -O2 -march=native -fno-math-errno -fno-trapping-math -fopenmp -Wall -Wextra "
        "-Wno-unused-parameter -Wno-unused-function -Werror -shared -fPIC -Iruntime/core "
        "-Iruntime/cuda "
        "'%s' -o '%s'",
        c, so);
    CHECK_EQ(system(cmd), 0);
    void *lib = dlopen(so, RTLD_NOW);
    if (!lib) fprintf(stderr, "%s\n", dlerror());
    unlink(so);
    if (!test_failed && !getenv("KEEP")) unlink(c);
    return lib;
}

int main(int argc, char **argv) {
    (void)argc;
    arena = arena_new();
    diag_init(&diag, arena, stderr);
    graph = ir_new(arena, "test");
    make_nodes();
    Cost cost = {.threads = THREADS};
    CgOptions o = {.target = target};
    Gen g = {.a = arena, .d = &diag, .g = graph, .c = &cost, .o = &o, .wide = true};
    CHECK(cg_kernels(&g));
    void *lib = compile_and_load(&g, argv[1]);
    CHECK(lib != NULL);
    if (!lib) return test_end();
#ifdef LOOPS_CUDA
    if (!load_kernels(&g, argv[1])) return test_end();
#endif
    DtrtKernel *const *kernel = (DtrtKernel *const *)dlsym(lib, "kernels");
    for (NodeId n = 0; n < graph->nnode; n++) {
        run_node(n, kernel[n], -1);
        const Node *x = &graph->node[n];
        for (uint32_t i = 0; i < x->nin; i++)
            if (graph->value[x->in[i]].dtype == graph->value[x->out[0]].dtype &&
                value_count(graph, x->in[i]) == value_count(graph, x->out[0]) &&
                !op_is_colreduce(x))
                run_node(n, kernel[n], (int)i);
    }
    /* Nodes that differ in size only share a loop: Relu and nothing else has the first one. */
    CHECK(g.loop.n < graph->nnode);
    return test_end();
}
