/* test_gpu.c - the kernels of kernels/ on a device against their translation: the results are right
 * (against double), and the same bits where a kernel uses no approximate function and its result
 * does not depend on the order of blocks; else at most some units in the last place. Compiled
 * without contraction, so that the device's compiler may not fuse what the translation does not.
 *
 * Prints a table. Skipped (77) where there is no NVRTC or no driver. With the stand-in of libcuda
 * in DTRT_CUDA_PATH this tests itself. */
#include "bench.h"
#include "compile.h"
#include "gpu.h"
#include "test.h"

#include <sys/stat.h>

/* Most units in the last place between device and translation; 0: the same bits. Where numbers of
 * nearly the same size are subtracted, units of the result say nothing: ANY, and `compare` against
 * double decides. */
#define ANY UINT32_MAX
static uint32_t allowed(const char *name) {
    static const struct {
        const char *name;
        uint32_t ulps;
    } approximate[] = {
        {"softmax", 8},     {"gelu_bias", ANY},     {"cross_entropy", ANY},
        {"layernorm", ANY}, {"embed_scatter", ANY},
    };
    for (size_t i = 0; i < sizeof approximate / sizeof *approximate; i++)
        if (!strcmp(approximate[i].name, name)) return approximate[i].ulps;
    return 0;
}

static size_t floats, differing; /* of all kernels */
static uint32_t worst;           /* of functions.cu */

static void count(const char *name, Record *r) {
    printf("%-20s %8zu floats, %6zu differ, by %u ulp at most\n", name, r->n, r->different,
           r->worst);
    floats += r->n;
    differing += r->different;
    free(r->at);
}

static void compare(const KernelCase *c, const SimtModule *m) {
    static const int sizes[] = {1, 32, 33, 257, 1000};
    Record r = {0};
    uint64_t hashes[2] = {0};
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        r.again = on_gpu;
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            Bench b;
            bench_begin(&b, m, false, SIMT_ASCENDING, 0);
            b.on_gpu = on_gpu;
            b.record = &r;
            c->run(&b, sizes[s]);
            bench_end(&b);
            CHECK(!b.wrong && !b.found.total);
            hashes[on_gpu] ^= b.hash * (s + 1);
        }
    }
    CHECK(r.next == r.n);
    CHECK(r.worst <= allowed(c->name));
    if (!allowed(c->name)) CHECK(hashes[0] == hashes[1]); /* whole numbers too */
    count(c->name, &r);
}

/* Each function of functions.cu at 4000 points: 4 ulp from the device's approximation and as many
 * from ours. */
static void compare_functions(const SimtModule *m) {
    for (uint32_t k = 0; k < m->nkernels; k++) {
        if (strncmp(m->kernels[k].name, "f_", 2)) continue;
        Record r = {0};
        for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
            Bench b;
            int n = 4000;
            bench_begin(&b, m, false, SIMT_ASCENDING, 0);
            b.on_gpu = r.again = on_gpu;
            b.record = &r;
            float *x = bench_floats(&b, (size_t)n, 0.01, 4), *y = bench_output(&b, (size_t)n * 4);
            bench_launch(&b, m->kernels[k].name, D1(16), D1(256), 0, ARGS(&x, &y, &n));
            bench_record(&b, y, (size_t)n);
            bench_end(&b);
            CHECK(!b.wrong && !b.found.total);
        }
        CHECK(r.next == r.n && r.worst <= 8);
        if (r.worst > worst) worst = r.worst;
        count(m->kernels[k].name, &r);
    }
}

static void compare_file(Arena *a, const char *file, const char *cache) {
    char message[8000] = "";
    const char *text = bench_text(a, file), *bad = NULL;
    const char *ptx =
        text ? compile_cuda(a, file, text, "compute_75", "--fmad=false", message, sizeof message)
             : NULL;
    SimtModule *m = ptx ? simt_load(ptx, SIMT_FAST, cache, message, sizeof message) : NULL;
    if (m) bad = gpu_add(m, ptx);
    if (!m || bad) fprintf(stderr, "%s: %s\n", file, m ? bad : message);
    CHECK(m && !bad);
    for (uint32_t i = 0; m && !bad && i < nkernel_cases; i++)
        if (!strcmp(kernel_cases[i].file, file)) compare(&kernel_cases[i], m);
    if (m && !bad) compare_functions(m);
}

int main(int argc, char **argv) {
    const char *why = compile_missing();
    if (!why) why = gpu_open();
    if (why) {
        fprintf(stderr, "skipped: %s\n", why);
        return 77;
    }
    Arena *a = arena_new();
    const char *cache = arena_printf(a, "%s/tests/cudasim-objects", argc > 1 ? argv[1] : ".");
    mkdir(cache, 0777);
    printf("device: %s\n", gpu_name());
    static const char *const files[] = {"elementwise.cu", "softmax.cu", "layernorm.cu",
                                        "move.cu",        "reduce.cu",  "functions.cu"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) compare_file(a, files[i], cache);
    gpu_close();
    arena_free(a);
    int status = test_end();
    printf("%zu of %zu results differ, library functions by %u ulp at most\n", differing, floats,
           worst);
    return status;
}
