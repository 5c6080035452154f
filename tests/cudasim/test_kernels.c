/* test_kernels.c - CUDA C++ kernels of the kinds that training needs, through NVRTC, ptx2c and the
 * C compiler: results against double, checked runs without findings, the same bits in every order.
 * Skipped where there is no NVRTC. */
#include "bench.h"
#include "compile.h"
#include "ptx2c.h"
#include "test.h"

#include <sys/stat.h>

uint32_t philox(uint64_t counter, uint64_t key);

static const struct {
    bool check;
    SimtOrder order;
    uint64_t seed;
} modes[] = {{false, SIMT_ASCENDING, 0}, {true, SIMT_ASCENDING, 0}, {true, SIMT_DESCENDING, 0},
             {true, SIMT_SEEDED, 1},     {true, SIMT_SEEDED, 2},    {false, SIMT_SEEDED, 3}};

static void run_case(const KernelCase *c, const SimtModule *m, const char *arch) {
    static const int sizes[] = {1, 31, 32, 33, 255, 256, 257};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t first = 0;
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            Bench b;
            bench_begin(&b, m, modes[k].check, modes[k].order, modes[k].seed);
            c->run(&b, sizes[s]);
            bench_end(&b);
            char text[400] = "";
            if (b.found.count) simt_describe(&b.found.list[0], text, sizeof text);
            if (!k) first = b.hash;
            if (b.wrong || b.found.total || b.hash != first)
                fprintf(stderr, "%s, %s, size %d, mode %zu: %u wrong, %u findings, bits %s\n%s\n",
                        c->name, arch, sizes[s], k, b.wrong, (unsigned)b.found.total,
                        b.hash == first ? "equal" : "differ", text);
            CHECK(!b.wrong && !b.found.total && b.hash == first);
        }
    }
}

static SimtModule *load(Arena *a, const char *file, const char *arch, const char *option,
                        const char *cache) {
    char message[8000];
    const char *text = bench_text(a, file);
    const char *ptx =
        text ? compile_cuda(a, file, text, arch, option, message, sizeof message) : NULL;
    SimtModule *m =
        ptx ? simt_load(ptx, SIMT_FAST | SIMT_CHECKED, cache, message, sizeof message) : NULL;
    if (!m) fprintf(stderr, "%s, %s: %s\n", file, arch, message);
    CHECK(m != NULL);
    return m;
}

/* The functions of the C library at points of a range: |error| <= ulps of float (or double).
 * Limits: "CUDA C++ Programming Guide", "Mathematical Functions", and one more for .approx of the
 * host. */
static const struct {
    const char *name;
    double lo, hi, ulps, (*want)(double);
} functions[] = {
    {"exp", -20, 20, 3, exp},   {"log", 0.01, 100, 2, log},    {"tanh", -4, 4, 3, tanh},
    {"sqrt", 0, 100, 1, sqrt},  {"erf", -3, 3, 3, erf},        {"sin", -1e6, 1e6, 3, sin},
    {"cos", -100, 100, 3, cos}, {"log1p", -0.9, 10, 2, log1p}, {"expm1", -3, 3, 2, expm1},
    {"floor", -9, 9, 0, floor}, {"round", -9, 9, 0, round},    {"rint", -9, 9, 0, rint},
    {"atan", -9, 9, 3, atan},   {"sinh", -4, 4, 4, sinh},      {"cbrt", -9, 9, 2, cbrt},
    {"exp2", -20, 20, 3, exp2}, {"log2", 0.01, 100, 2, log2},  {"lgamma", 3, 20, 7, lgamma},
    {"erfc", -2, 2, 5, erfc},
};

static double pow17(double x) {
    return pow(x, (double)1.7f);
}
static double pow17_double(double x) {
    return pow(x, 1.7);
}
static double inverse3(double x) {
    return 1 / (x + 3);
}
static double inverse_root(double x) {
    return 1 / sqrt(x);
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double fmod13(double x) {
    return fmod(x, (double)1.3f);
}

enum { POINTS = 200 };

static void check_single(const SimtModule *m, const char *name, double lo, double hi, double ulps,
                         double (*want)(double)) {
    Bench b;
    bench_begin(&b, m, true, SIMT_ASCENDING, 0);
    int n = POINTS;
    float *x = bench_floats(&b, POINTS, lo, hi), *y = bench_output(&b, POINTS * 4);
    char kernel[40];
    snprintf(kernel, sizeof kernel, "f_%s", name);
    bench_launch(&b, kernel, D1(1), D1(256), 0, ARGS(&x, &y, &n));
    double wants[POINTS], scale = 0;
    for (int i = 0; i < POINTS; i++) wants[i] = want((double)x[i]);
    /* Relative to the value, but for sums near zero to the least step of their terms. */
    for (int i = 0; i < POINTS; i++) scale = fmax(scale, fabs(wants[i]));
    bench_compare(&b, kernel, y, wants, POINTS, (ulps + 0.51) * 0x1p-23, scale * 0x1p-40);
    CHECK(!b.wrong && !b.found.total);
    bench_end(&b);
}

static void check_double(const SimtModule *m, const char *name, double lo, double hi,
                         double (*want)(double)) {
    Bench b;
    bench_begin(&b, m, true, SIMT_ASCENDING, 0);
    int n = POINTS;
    double in[POINTS], *y = bench_output(&b, sizeof in);
    for (int i = 0; i < POINTS; i++) in[i] = lo + (hi - lo) * (i + 0.37) / POINTS;
    double *x = bench_input(&b, in, sizeof in);
    char kernel[40];
    snprintf(kernel, sizeof kernel, "d_%s", name);
    bench_launch(&b, kernel, D1(1), D1(256), 0, ARGS(&x, &y, &n));
    CHECK(!b.found.total);
    for (int i = 0; i < POINTS; i++)
        CHECK_NEAR(y[i], want(in[i]), 3 * 0x1p-52 * (fabs(want(in[i])) + 0x1p-20));
    bench_end(&b);
}

static void run_functions(const SimtModule *m) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        check_single(m, functions[i].name, functions[i].lo, functions[i].hi, functions[i].ulps,
                     functions[i].want);
    check_single(m, "pow", 0.01, 50, 4, pow17);
    check_single(m, "divide", -2, 50, 1, inverse3);
    check_single(m, "rsqrt", 0.01, 50, 2, inverse_root);
    check_single(m, "sigmoid", -20, 20, 4, sigmoid);
    check_single(m, "fmod", -20, 20, 0, fmod13);
    check_double(m, "exp", -20, 20, exp);
    check_double(m, "log", 0.01, 100, log);
    check_double(m, "tanh", -4, 4, tanh);
    check_double(m, "sqrt", 0, 100, sqrt);
    check_double(m, "rsqrt", 0.01, 50, inverse_root);
    check_double(m, "erf", -3, 3, erf);
    check_double(m, "sin", -1e7, 1e7, sin);
    check_double(m, "cos", -100, 100, cos);
    check_double(m, "log1p", -0.9, 10, log1p);
    check_double(m, "expm1", -3, 3, expm1);
    check_double(m, "pow", 0.01, 50, pow17_double);
    check_double(m, "divide", -2, 50, inverse3);
}

static void run_all(Arena *a, const char *arch, const char *option, const char *cache) {
    const char *file = "";
    SimtModule *m = NULL;
    for (uint32_t i = 0; i < nkernel_cases; i++) {
        if (strcmp(file, kernel_cases[i].file)) {
            if (m) simt_unload(m);
            file = kernel_cases[i].file;
            m = load(a, file, arch, option, cache);
        }
        if (m) run_case(&kernel_cases[i], m, arch);
    }
    if (m) simt_unload(m);
    m = load(a, "functions.cu", arch, option, cache);
    if (m) run_functions(m);
    if (m) simt_unload(m);
}

/* The newer compiler behind compute_100 writes other PTX: it is known too. */
static void translate_only(Arena *a, const char *arch) {
    static const char *const files[] = {"elementwise.cu", "softmax.cu", "layernorm.cu",
                                        "move.cu",        "reduce.cu",  "functions.cu"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char message[8000];
        const char *text = bench_text(a, files[i]);
        const char *ptx =
            text ? compile_cuda(a, files[i], text, arch, NULL, message, sizeof message) : NULL;
        Text c;
        text_init(&c, a);
        bool ok = ptx && ptx2c(a, ptx, &c, message, sizeof message);
        if (!ok) fprintf(stderr, "%s, %s: %s\n", files[i], arch, message);
        CHECK(ok);
    }
}

int main(int argc, char **argv) {
    if (compile_missing()) {
        fprintf(stderr, "skipped: %s\n", compile_missing());
        return 77;
    }
    Arena *a = arena_new();
    const char *cache = arena_printf(a, "%s/tests/cudasim-objects", argc > 1 ? argv[1] : ".");
    mkdir(cache, 0777);
    /* Known answer of the Random123 distribution: counter 0, key 0. */
    CHECK_EQ(philox(0, 0), 0x6627e8d5u);
    run_all(a, "compute_75", NULL, cache);
    run_all(a, "compute_80", "--fmad=false", cache);
    run_all(a, "compute_90", NULL, cache);
    translate_only(a, "compute_100");
    arena_free(a);
    return test_end();
}
