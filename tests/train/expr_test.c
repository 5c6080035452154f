/* expr_test.c - the C expressions of the elementwise operators and column reductions, compiled as
 * generated code would and run on random numbers, against the definitions in the test interpreter;
 * then what they do with NaN, infinities and kinks, against a table. */
#include "interp.h"
#include "test.h"

#include <dlfcn.h>

enum { MAX_ARG = 7, NROW = 6, NCOL = 3 };

typedef double Element(const double *x, double p0, double p1);
typedef void Columns(const float *const *x, double *out, double p0);

/* Operands of all tests are f32, but for bools. */
static bool is_bool_operand(OpCode op, uint32_t i) {
    bool mask = op == OP_Where || op == OP_SelectA || op == OP_SelectB;
    return op == OP_Not || op == OP_And || op == OP_Or || op == OP_Xor || (mask && i == 0);
}

static void emit_element(FILE *f, OpCode op) {
    const OpDef *d = op_def(op);
    fprintf(f, "double ew_%s(const double *x, double p0_, double p1_);\n", d->name);
    fprintf(f, "double ew_%s(const double *x, double p0_, double p1_) {\n", d->name);
    fprintf(f, "    const float p0 = (float)p0_, p1 = (float)p1_; (void)p0; (void)p1; (void)x;\n");
    for (uint32_t i = 0; i < d->max_in; i++)
        fprintf(f, "    const %s %c = (%s)x[%u];\n", is_bool_operand(op, i) ? "uint8_t" : "float",
                'a' + (char)i, is_bool_operand(op, i) ? "uint8_t" : "float", i);
    if (d->cls == CLS_RANDOM)
        fprintf(f, "    const uint64_t seed = 1, step = 0, index = 0; const uint32_t key = 7;\n");
    const char *to = d->out_dtype == DT_BOOL ? "uint8_t" : "float";
    fprintf(f, "    return (%s)(%s);\n}\n", to, d->expr);
}

/* The acc expressions of column j, over operands of shape [NROW, NCOL] or [NCOL], then fin. */
static void emit_columns(FILE *f, OpCode op) {
    const OpDef *d = op_def(op);
    fprintf(f, "void col_%s(const float *const *x, double *out, double p0_);\n", d->name);
    fprintf(f, "void col_%s(const float *const *x, double *out, double p0_) {\n", d->name);
    fprintf(f, "    const float p0 = (float)p0_; const double n = %d; (void)p0; (void)n;\n", NROW);
    fprintf(f, "    for (int j = 0; j < %d; j++) {\n        double s0 = 0, s1 = 0;\n", NCOL);
    fprintf(f, "        for (int i = 0; i < %d; i++) {\n", NROW);
    for (uint32_t i = 0; i < d->max_in; i++)
        fprintf(f, "            const float %c = x[%u][%sj];\n", 'a' + (char)i, i,
                i < 2 ? "i * 3 + " : "");
    for (int k = 0; k < 2 && d->acc[k]; k++) fprintf(f, "            s%d += %s;\n", k, d->acc[k]);
    fprintf(f, "        }\n        (void)s0; (void)s1;\n");
    for (uint32_t r = 0; r < d->nout; r++)
        fprintf(f, "        out[%u * %d + j] = %s;\n", r, NCOL, d->fin[r]);
    fprintf(f, "    }\n}\n");
}

/* Compiles all expressions into a shared object; NULL when there is no compiler. */
static void *compile(const char *dir) {
    Arena *a = arena_new();
    const char *c = arena_printf(a, "%s/test_expr.c", dir);
    const char *so = arena_printf(a, "%s/test_expr.so", dir);
    FILE *f = fopen(c, "w");
    CHECK(f != NULL);
    if (!f) return NULL;
    fprintf(f, "#include \"dtrt_math.h\"\n");
    for (OpCode op = 1; op < OP_COUNT; op++) {
        if (op_def(op)->flags & OPF_EW) emit_element(f, op);
        if (op_def(op)->flags & OPF_COLREDUCE) emit_columns(f, op);
    }
    fclose(f);
    const char *cmd = arena_printf(a,
                                   "cc -std=c11 -O2 -Wall -Wextra -Wpedantic -Werror -shared -fPIC "
                                   "-Iruntime/core '%s' -o '%s' -lm",
                                   c, so);
    CHECK_EQ(system(cmd), 0);
    void *lib = dlopen(so, RTLD_NOW);
    if (!lib) fprintf(stderr, "%s\n", dlerror());
    arena_free(a);
    return lib;
}

static Element *element_of(void *lib, OpCode op) {
    char name[64];
    Element *e;
    snprintf(name, sizeof name, "ew_%s", op_def(op)->name);
    *(void **)&e = dlsym(lib, name);
    CHECK(e != NULL);
    return e;
}

/* ---- against the interpreter ---- */
/* Operands that must be positive: of logarithms, roots, powers, divisions. */
static bool is_positive(OpCode op, uint32_t i) {
    switch (op) {
    case OP_Log:
    case OP_Sqrt:
    case OP_PowScalar:
    case OP_Root:
    case OP_InvStd: return true;
    case OP_Pow:
    case OP_PowGrad:
    case OP_PowGradB:
    case OP_PowScalarGrad:
    case OP_RootGrad:
    case OP_SqrtGrad: return i <= 1;
    default: return false;
    }
}

/* Its first attribute must not be 0. */
static bool divides(OpCode op) {
    return op == OP_Celu || op == OP_CeluGrad || op == OP_Root || op == OP_RootGrad;
}

static bool has_domain(OpCode op) {
    return op == OP_AsinGrad || op == OP_AcosGrad || op == OP_AtanhGrad || op == OP_AcoshGrad;
}

/* The operand's range: where the function is defined, away from the ends that have no derivative.
 */
static double operand(OpCode op, uint32_t i) {
    switch (op) {
    case OP_Asin:
    case OP_Acos:
    case OP_Atanh: return test_uniform(-0.9, 0.9);
    case OP_Acosh: return test_uniform(1.1, 4);
    case OP_AsinGrad:
    case OP_AcosGrad:
    case OP_AtanhGrad: return i ? test_uniform(-0.9, 0.9) : test_uniform(-4, 4);
    case OP_AcoshGrad: return i ? test_uniform(1.1, 4) : test_uniform(-4, 4);
    case OP_IntDiv:
    case OP_IntMod:
    case OP_IntRem: return floor(test_uniform(-20, 20) / (i ? 4 : 1)); /* 0 is one of them */
    case OP_ShiftLeft:
    case OP_ShiftRight: return floor(i ? test_uniform(-2, 20) : test_uniform(0, 256));
    default: return test_uniform(is_positive(op, i) ? 0.1 : -4, 4);
    }
}

static void compare_element(void *lib, OpCode op) {
    const OpDef *d = op_def(op);
    Element *e = element_of(lib, op);
    Arena *arena = arena_new();
    for (int round = 0; e && round < 200; round++) {
        double x[MAX_ARG], p[2] = {d->dflt[0], d->dflt[1]}, want;
        Ten in[MAX_ARG], out = {.x = &want};
        Attr attr[2];
        uint32_t nattr = 0;
        for (uint32_t i = 0; i < d->max_in; i++) {
            x[i] = (double)(float)operand(op, i);
            if (is_bool_operand(op, i)) x[i] = x[i] > 0;
            bool free = !is_bool_operand(op, i) && !has_domain(op);
            if (i && test_uniform(0, 1) < 0.1 && free) x[i] = x[0];
            in[i] = (Ten){.x = &x[i]};
        }
        for (uint32_t k = 0; k < 2 && d->p[k] != A_COUNT; k++) {
            if (op == OP_Cast)
                p[k] = test_uniform(0, 1) < 0.5 ? DT_F32 : DT_BOOL;
            else if (op == OP_ShiftLeft || op == OP_ShiftRight)
                p[k] = round & 1 ? 8 : 64;
            else if (round & 1)
                p[k] = op == OP_Clip || op == OP_ClipGrad ? (k ? 1.5 : -0.75)
                                                          : (round % 9 + divides(op)) * 0.125;
            attr[nattr++] = attr_f(arena, d->p[k], p[k]);
        }
        Call call = {op, nattr, d->max_in, 1, attr, in, &out, 7};
        interp_call(&call);
        double got = e(x, p[0], p[1]);
        test_checks++;
        /* Float arithmetic of up to ten roundings of 6e-8, against double. */
        if (fabs(got - want) <= 4e-6 * (1 + fabs(want)) || (isnan(got) && isnan(want))) continue;
        test_failed++;
        fprintf(stderr, "%s(%g, %g, %g; %g, %g): %.9g, expected %.9g\n", d->name, x[0], x[1], x[2],
                p[0], p[1], got, want);
        break;
    }
    arena_free(arena);
}

static void compare_columns(void *lib, OpCode op) {
    const OpDef *d = op_def(op);
    char name[64];
    Columns *col;
    snprintf(name, sizeof name, "col_%s", d->name);
    *(void **)&col = dlsym(lib, name);
    CHECK(col != NULL);
    Arena *a = arena_new();
    float data[4][NROW * NCOL];
    const float *x[4] = {data[0], data[1], data[2], data[3]};
    double wide[4][NROW * NCOL], got[2 * NCOL], want[2][NCOL];
    Ten in[4], out[2] = {{.x = want[0]}, {.x = want[1]}};
    for (uint32_t i = 0; i < 4; i++) {
        in[i] = (Ten){{2, {NROW, NCOL}}, wide[i]};
        if (i >= 2) in[i].s = (Shape){1, {NCOL}};
        for (int k = 0; k < NROW * NCOL; k++) wide[i][k] = data[i][k] = (float)test_uniform(-2, 2);
    }
    out[0].s = out[1].s = (Shape){1, {NCOL}};
    Attr attr[2] = {attr_i(a, A_axes, 0), attr_f(a, A_scale, 0.375)};
    Call call = {op, 2, d->max_in, d->nout, attr, in, out, 0};
    interp_call(&call);
    if (col) col(x, got, 0.375);
    /* Sums of a few products up to 8, of operands rounded to float. */
    for (uint32_t r = 0; r < d->nout; r++)
        for (uint32_t k = 0; k < NCOL; k++) CHECK_NEAR(got[r * NCOL + k], want[r][k], 1e-5);
    arena_free(a);
}

/* ---- special values: NaN passes, kinks have PyTorch's derivative ---- */
typedef struct {
    OpCode op;
    double x[4], p0, p1, want;
} Special;

static const Special special[] = {
    {OP_Relu, {NAN}, 0, 0, NAN},
    {OP_Relu, {INFINITY}, 0, 0, INFINITY},
    {OP_LeakyRelu, {NAN}, 0.01, 0, NAN},
    {OP_Elu, {-INFINITY}, 1, 0, -1},
    {OP_Sigmoid, {-1000}, 0, 0, 0},
    {OP_Sigmoid, {1000}, 0, 0, 1},
    {OP_Sigmoid, {NAN}, 0, 0, NAN},
    {OP_Softplus, {1000}, 0, 0, 1000},
    {OP_Softplus, {-1000}, 0, 0, 0},
    {OP_Softplus, {NAN}, 0, 0, NAN},
    {OP_HardSigmoid, {NAN}, 0.2, 0.5, NAN},
    {OP_HardSwish, {NAN}, 0, 0, NAN},
    {OP_Clip, {NAN}, -1, 1, NAN},
    {OP_Clip, {-INFINITY}, -INFINITY, 1, -INFINITY},
    {OP_Min, {NAN, 1}, 0, 0, NAN},
    {OP_Min, {1, NAN}, 0, 0, NAN},
    {OP_Max, {NAN, 1}, 0, 0, NAN},
    {OP_Max, {1, NAN}, 0, 0, NAN},
    {OP_Max, {-INFINITY, INFINITY}, 0, 0, INFINITY},
    {OP_Abs, {NAN}, 0, 0, NAN},
    {OP_Abs, {-INFINITY}, 0, 0, INFINITY},
    {OP_Silu, {-200}, 0, 0, 0},
    {OP_Gelu, {NAN}, 0, 0, NAN},
    {OP_Where, {1, 2, NAN}, 0, 0, 2},
    {OP_SelectA, {0, NAN}, 0, 0, 0},
    {OP_ReluGrad, {3, 0}, 0, 0, 0},
    {OP_ReluGrad, {3, NAN}, 0, 0, 3},
    {OP_AbsGrad, {3, 0}, 0, 0, 0},
    {OP_LeakyReluGrad, {3, 0}, 0.5, 0, 1.5},
    {OP_EluGrad, {3, 0}, 0.5, 0, 1.5},
    {OP_ClipGrad, {3, 1}, -1, 1, 3},
    {OP_ClipGrad, {3, -1}, -1, 1, 3},
    {OP_HardSigmoidGrad, {3, 0}, 0.2, 0, 0},
    {OP_HardSigmoidGrad, {3, 1}, 0.2, 0, 0},
    {OP_EqSelect, {3, 1, 1, 1}, 0, 0, 1.5},
    {OP_PowScalar, {-2}, 3, 0, -8},
    {OP_PowScalarGrad, {3, 0}, 0, 0, 0},
    {OP_PowScalarGrad, {3, 0}, 1, 0, 3},
    {OP_PowGradB, {3, 0, 0}, 0, 0, 0},
    {OP_SoftplusGrad, {3, -1000}, 0, 0, 0},
    {OP_SiluGrad, {3, 1000}, 0, 0, 3},
    {OP_SiluGrad, {3, -1000}, 0, 0, 0},
    {OP_GeluGrad, {3, -1000}, 0, 0, 0},
    {OP_BceLogits, {1000, 1}, 0, 0, 0},
    {OP_BceLogits, {-1000, 1}, 0, 0, 1000},
    {OP_Round, {2.5}, 0, 0, 2},
    {OP_Round, {-1.5}, 0, 0, -2},
    {OP_Sign, {NAN}, 0, 0, NAN},
    {OP_Sign, {0}, 0, 0, 0},
    {OP_Mod, {-7, 3}, 0, 0, -1},
    {OP_RootGrad, {3, 0}, 0.5, 0, 0},
    {OP_RootGrad, {3, 0}, 0.25, 0, 0},
    {OP_IsNaN, {NAN}, 0, 0, 1},
    {OP_IsNaN, {INFINITY}, 0, 0, 0},
    {OP_IsInf, {INFINITY}, 1, 0, 0},
    {OP_IsInf, {INFINITY}, 0, 1, 1},
    {OP_IsInf, {-INFINITY}, 1, 0, 1},
    {OP_IsInf, {NAN}, 1, 1, 0},
    {OP_Mish, {1000}, 0, 0, 1000},
    {OP_Mish, {-1000}, 0, 0, 0},
    {OP_MishGrad, {3, 1000}, 0, 0, 3},
    {OP_MishGrad, {3, -1000}, 0, 0, 0},
    {OP_GeluTanhGrad, {3, -1000}, 0, 0, 0},
    {OP_GeluTanhGrad, {3, 1000}, 0, 0, 3},
    {OP_ThresholdedRelu, {NAN}, 1, 0, NAN},
    {OP_ThresholdedReluGrad, {3, 1}, 1, 0, 0},
    {OP_Shrink, {NAN}, 1, 0, NAN},
    {OP_Shrink, {1}, 1, 0, 0},
    {OP_PRelu, {NAN, 2}, 0, 0, NAN},
    {OP_PReluGradX, {3, 0, 2}, 0, 0, 6},
    {OP_PReluGradS, {3, 0}, 0, 0, 0},
    {OP_Dropout, {5}, 1, 0, 0},
    {OP_Dropout, {5}, 0, 0, 5},
    {OP_Cast, {NAN}, DT_BOOL, 0, 1},
};

static void check_special(void *lib, const Special *s) {
    Element *e = element_of(lib, s->op);
    double got = e ? e(s->x, s->p0, s->p1) : 0;
    test_checks++;
    if (got == s->want || (isnan(got) && isnan(s->want))) return;
    test_failed++;
    fprintf(stderr, "%s(%g, %g; %g): %g, expected %g\n", op_def(s->op)->name, s->x[0], s->x[1],
            s->p0, got, s->want);
}

int main(int argc, char **argv) {
    test_random_state = 5;
    void *lib = compile(argc > 1 ? argv[1] : "/tmp");
    CHECK(lib != NULL);
    for (OpCode op = 1; lib && op < OP_COUNT; op++) {
        if (op_def(op)->flags & OPF_EW) compare_element(lib, op);
        if (op_def(op)->flags & OPF_COLREDUCE) compare_columns(lib, op);
    }
    for (size_t i = 0; lib && i < sizeof special / sizeof *special; i++)
        check_special(lib, &special[i]);
    if (lib) dlclose(lib);
    return test_end();
}
