/* kernels.c - see kernels.h: what runtime/cuda/cu.h promises, on the simulator or a device; buffers
 * whose every byte is watched; passes. */
#include "kernels.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>

#include "cu.h"
#include "gpu.h"
#include "kernel_text.h"
#include "simt.h"

static const Calls cpu_calls = {
#define F(name) dtrt_##name,
    KERNEL_CALLS(F)
#undef F
};
static const Calls cuda_calls = {
#define F(name) cuda_##name,
    KERNEL_CALLS(F)
#undef F
};

/* ---- buffers ---- */

enum { BUFFERS = 128, PASSES = 1 + CUDA_PASSES, ON_GPU = 2, SHOWN = 4 };

typedef struct {
    unsigned char *at, *written; /* one byte for each; NULL: all, and not ours */
    size_t n;
} Buffer;
struct Out {
    size_t n;
    void *copy[PASSES];
};
static Buffer buffer[BUFFERS];
static Out outs[BUFFERS];
static int nbuffer, nout, pass;
static char name[200];
static int compared, different; /* results on the device */
static bool other_rounding;     /* of the device */
static bool with_gpu;           /* passes are the CPU's, one of the simulator, and ON_GPU */

static unsigned char *new_buffer(size_t n, bool written) {
    assert(nbuffer < BUFFERS);
    Buffer *b = &buffer[nbuffer++];
    *b = (Buffer){aligned_alloc(64, (n + 127) / 64 * 64), malloc(n + 1), n};
    memset(b->at, 0xff, (n + 127) / 64 * 64);
    memset(b->written, written, n + 1);
    return b->at;
}

static Buffer *buffer_of(const void *p, size_t n) {
    for (int i = 0; i < nbuffer; i++) {
        const unsigned char *at = p;
        if (at >= buffer[i].at && at < buffer[i].at + buffer[i].n + 1)
            return at + n <= buffer[i].at + buffer[i].n ? &buffer[i] : NULL;
    }
    return NULL;
}
static bool may(void *ctx, const void *p, size_t n, bool write, const char **why) {
    (void)ctx;
    (void)write;
    *why = "outside of the buffers";
    return buffer_of(p, n) != NULL;
}
static bool initialised(void *ctx, const void *p, size_t n) {
    (void)ctx;
    const Buffer *b = buffer_of(p, n);
    return b && (!b->written || !memchr(b->written + ((const unsigned char *)p - b->at), 0, n));
}
static void wrote(void *ctx, const void *p, size_t n) {
    (void)ctx;
    const Buffer *b = buffer_of(p, n);
    if (b && b->written) memset(b->written + ((const unsigned char *)p - b->at), 1, n);
}

void *bytes(size_t n) {
    return new_buffer(n, true);
}
void allow(void *p, size_t n) {
    assert(nbuffer < BUFFERS);
    buffer[nbuffer++] = (Buffer){p, NULL, n};
}
float *floats(int64_t n, double lo, double hi) {
    float *x = bytes((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (float)test_uniform(lo, hi);
    return x;
}
int64_t *integers(int64_t n, int64_t lo, int64_t end) {
    int64_t *x = bytes((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = lo + (int64_t)(test_random() >> 33) % (end - lo);
    return x;
}
Out *out_bytes(size_t n) {
    Out *o = &outs[nout++];
    o->n = n;
    for (int i = 0; i < PASSES; i++) o->copy[i] = new_buffer(n, false);
    return o;
}
Out *out_floats(int64_t n) {
    return out_bytes((size_t)n * sizeof(float));
}
Out *out_copy(const void *from, size_t n) {
    Out *o = out_bytes(n);
    for (int i = 0; i < PASSES; i++) {
        memcpy(o->copy[i], from, n);
        wrote(NULL, o->copy[i], n);
    }
    return o;
}
void *at(Out *o) {
    return o->copy[pass];
}

/* ---- the device ---- */

enum { MODULES = 32 };
static SimtModule *module[MODULES];
static int nmodule;
static SimtFindings found;
static CuReport last_report;

CuDriver cu;
CuDevice cu_device;

static CUresult CUDAAPI copy_async(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
    (void)s;
    const char *why;
    CHECK(may(NULL, (void *)(uintptr_t)to, n, true, &why));
    CHECK(may(NULL, (void *)(uintptr_t)from, n, false, &why));
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
    wrote(NULL, (void *)(uintptr_t)to, n);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI set8_async(CUdeviceptr to, unsigned char v, size_t n, CUstream s) {
    (void)s;
    const char *why;
    CHECK(may(NULL, (void *)(uintptr_t)to, n, true, &why));
    memset((void *)(uintptr_t)to, v, n);
    wrote(NULL, (void *)(uintptr_t)to, n);
    return CUDA_SUCCESS;
}
static CUresult CUDAAPI set32_async(CUdeviceptr to, unsigned v, size_t n, CUstream s) {
    (void)s;
    const char *why;
    CHECK(to % 4 == 0 && may(NULL, (void *)(uintptr_t)to, 4 * n, true, &why));
    for (size_t i = 0; i < n; i++) memcpy((char *)(uintptr_t)to + 4 * i, &v, 4);
    wrote(NULL, (void *)(uintptr_t)to, 4 * n);
    return CUDA_SUCCESS;
}

void cu_check(CUresult r, const char *what) {
    (void)what;
    CHECK_EQ(r, CUDA_SUCCESS);
}
int cu_node(void) {
    return 7;
}

static const SimtKernel *find_kernel(const char *kernel) {
    for (int i = 0; i < nmodule; i++) {
        const SimtKernel *k = simt_kernel(module[i], kernel);
        if (k) return k;
    }
    return NULL;
}

/* Where the first argument of these kernels says that 32 bits are enough; by the start of the name,
 * the first that fits. */
enum { NONE = 1 << 20, ARGUMENT = 4096 };
static const struct {
    const char *kernel;
    size_t flag[2];
} flags[] = {{"reduce_runs_warp", {NONE, NONE}}, /* always small */
             {"reduce_", {offsetof(CuReduce, keep.small), offsetof(CuReduce, over.small)}},
             {"fold", {offsetof(CuReduce, keep.small), offsetof(CuReduce, over.small)}},
             {"prod_grad", {offsetof(CuReduce, keep.small), offsetof(CuReduce, over.small)}},
             {"gather_elements", {offsetof(CuElements, items.small), NONE}},
             {"scatter_lines", {offsetof(CuElements, items.small), NONE}},
             {"scatter_owned", {offsetof(CuElements, items.small), NONE}},
             {"gather_nd", {NONE, NONE}},
             {"gather", {offsetof(CuGather, small), NONE}},
             {"pad", {offsetof(CuPad, small), NONE}},
             {"groupnorm", {offsetof(CuGroups, small), NONE}},
             {"resize", {offsetof(CuResize, rest.small), NONE}}};

/* The kernel with 64-bit indices in place of the fast one, and no flags in its argument. */
static const SimtKernel *go_big(const char *kernel, const SimtKernel *k, void **args,
                                unsigned char *argument) {
    char big[128];
    size_t i = 0, count = sizeof flags / sizeof *flags;
    snprintf(big, sizeof big, "%s_big", kernel);
    const SimtKernel *other = find_kernel(big);
    while (i < count && strncmp(kernel, flags[i].kernel, strlen(flags[i].kernel))) i++;
    if (i == count) return other ? other : k;
    assert(k->params[0].bytes <= ARGUMENT);
    memcpy(argument, args[0], k->params[0].bytes);
    for (int f = 0; f < 2; f++)
        if (flags[i].flag[f] != NONE) memset(argument + flags[i].flag[f], 0, sizeof(int));
    args[0] = argument;
    return k;
}

/* Kernels walk on in strides of the grid, but for those whose blocks are chunks of a sum. */
static unsigned few_blocks(const char *kernel, int64_t blocks) {
    static const char *const fixed[] = {"loss_count", "loss_rows", "loss_columns"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (!strcmp(kernel, fixed[i])) return (unsigned)blocks;
    return blocks < 2 ? (unsigned)blocks : 2;
}

/* What the kernels of a launch have to say goes into the module's own variables. */
static void take_report(const SimtModule *m) {
    const SimtVariable *v = simt_variable(m, "cu_report");
    const CuReport *r = v ? v->address : NULL;
    if (r && (r->bad_node || r->nonfinite)) last_report = *r;
}

static void launch_on_gpu(const SimtKernel *k, DtrtGrid grid, int block, void **args) {
    GpuBuffer list[BUFFERS];
    for (int i = 0; i < nbuffer; i++) list[i] = (GpuBuffer){buffer[i].at, buffer[i].n, true};
    const char *bad =
        gpu_launch(k, (SimtDim){(unsigned)grid.x, (unsigned)grid.y, 1},
                   (SimtDim){(unsigned)block, 1, 1}, 0, args, list, (uint32_t)nbuffer);
    if (bad) fprintf(stderr, "%s: %s: %s\n", name, k->name, bad);
    CHECK(!bad);
    take_report(k->module);
}

void dtrt_cuda_launch(DtrtLaunch *which, DtrtGrid grid, int block, void **args) {
    static const SimtOrder order[PASSES] = {0, SIMT_ASCENDING, SIMT_DESCENDING, SIMT_SEEDED,
                                            SIMT_ASCENDING};
    SimtOptions o = {.check = !with_gpu,
                     .order = order[pass],
                     .seed = (uint64_t)pass,
                     .may = may,
                     .initialised = initialised,
                     .wrote = wrote};
    const SimtKernel *k = find_kernel(which->name);
    _Alignas(16) unsigned char argument[ARGUMENT];
    if (!k) fprintf(stderr, "%s: no kernel %s\n", name, which->name);
    CHECK(k != NULL);
    if (!k || grid.x <= 0 || grid.y <= 0) return;
    CHECK(grid.x <= 65535 && grid.y <= 65535);
    CHECK(block <= 256 || k->max_threads >= (unsigned)block);
    if (with_gpu && pass == ON_GPU) {
        launch_on_gpu(k, grid, block, args);
        return;
    }
    if (pass == PASSES - 1) k = go_big(which->name, k, args, argument);
    if (o.order == SIMT_SEEDED) grid.x = few_blocks(which->name, grid.x);
    simt_launch(k, (SimtDim){(unsigned)grid.x, (unsigned)grid.y, 1},
                (SimtDim){(unsigned)block, 1, 1}, 0, args, &o, &found);
    take_report(k->module);
}

/* ---- passes ---- */

void begin(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    last_report = (CuReport){0};
}

void finish(void) {
    for (int i = 0; i < nbuffer; i++) {
        if (buffer[i].written) free(buffer[i].at);
        free(buffer[i].written);
    }
    nbuffer = nout = 0;
    spoil(false);
}

static void check_findings(void) {
    for (uint32_t i = 0; i < found.count && i < SHOWN; i++) {
        char text[400];
        simt_describe(&found.list[i], text, sizeof text);
        fprintf(stderr, "%s, pass %d: %s\n", name, pass, text);
    }
    CHECK_EQ(found.total, 0);
    found = (SimtFindings){0};
}

const Calls *first_pass(void) {
    pass = 0;
    return &cpu_calls;
}
const Calls *next_pass(void) {
    if (pass) check_findings();
    if (++pass < (with_gpu ? ON_GPU + 1 : PASSES)) return &cuda_calls;
    pass = 0;
    return NULL;
}

bool on_cpu(void) {
    return pass == 0;
}

/* The same bits; as floats, where a device and this processor make different NaN. */
static bool is_same(const void *x, const void *y, size_t n, bool is_float) {
    if (!memcmp(x, y, n)) return true;
    const float *a = x, *b = y;
    for (size_t i = 0; i < n / sizeof *a; i++)
        if (memcmp(a + i, b + i, sizeof *a) && (a[i] == a[i] || b[i] == b[i])) return false;
    return is_float;
}

/* The passes of CUDA among each other. */
static void compare_passes(const Out *o, bool is_float) {
    for (int i = 2; i < (with_gpu ? ON_GPU + 1 : PASSES); i++) {
        bool same = is_same(o->copy[1], o->copy[i], o->n, is_float && with_gpu);
        if (!same) fprintf(stderr, "%s: pass %d differs from pass 1\n", name, i);
        CHECK(same);
        compared += with_gpu;
        different += with_gpu && !same;
    }
}

void expect_floats(Out *o, const double *want, double tolerance) {
    const float *got = o->copy[1];
    int shown = 0;
    bool good = true;
    compare_passes(o, true);
    for (size_t i = 0; i < o->n / sizeof *got; i++) {
        double x = (double)got[i], y = want[i];
        if (x == y || (x != x && y != y)) continue;
        if (fabs(x - y) <= tolerance * (1 + fabs(y))) continue;
        good = false;
        if (shown++ < SHOWN)
            fprintf(stderr, "%s: element %zu is %.9g, expected %.9g\n", name, i, x, y);
    }
    CHECK(good);
}

void compare(Out *o, double tolerance) {
    size_t n = o->n / sizeof(float);
    double *want = malloc((n + 1) * sizeof *want);
    for (size_t i = 0; i < n; i++) want[i] = (double)((const float *)o->copy[0])[i];
    expect_floats(o, want, tolerance);
    free(want);
}

void compare_bytes(Out *o) {
    bool same = !memcmp(o->copy[0], o->copy[1], o->n);
    compare_passes(o, false);
    if (!same) fprintf(stderr, "%s: bytes differ from those of the CPU\n", name);
    CHECK(same);
}

/* ---- settings ---- */

bool reported(long long *value, long long *limit, long long *position) {
    *value = last_report.value;
    *limit = last_report.limit;
    *position = last_report.position;
    return last_report.bad_node == 1 + cu_node();
}

int nonfinite_reported(void) {
    return last_report.nonfinite;
}

static void set_variable(const char *variable, const void *value, size_t n) {
    for (int i = 0; i < nmodule; i++) {
        const SimtVariable *v = simt_variable(module[i], variable);
        if (v && v->bytes == n) memcpy(v->address, value, n);
    }
}

void set_step(const DtrtCtx *c) {
    double t = (double)c->step + 1;
    CuStep now = {.seed = c->seed,
                  .step = c->step,
                  .lr = c->lr,
                  .momentum = c->momentum,
                  .dampening = c->dampening,
                  .weight_decay = c->weight_decay,
                  .beta1 = c->beta1,
                  .beta2 = c->beta2,
                  .eps = c->eps,
                  .nesterov = c->nesterov,
                  .left1 = 1 - pow((double)c->beta1, t),
                  .left2 = 1 - pow((double)c->beta2, t)};
    set_variable("cu_now", &now, sizeof now);
}

void spoil(bool spoilt) {
    CuReport r = {.loss_nonfinite = spoilt};
    set_variable("cu_report", &r, sizeof r);
}

/* Another device for a test of this test: it rounds products towards zero. */
static void round_otherwise(char *ptx) {
    for (char *p = ptx; (p = strstr(p, "mul.rn.f32")); p++) p[5] = 'z';
}

static bool open_module(Arena *a, const char *build_dir, const char *file) {
    char message[4000] = "", *log;
    char *cache = arena_printf(a, "%s/cudasim/cache", build_dir);
    Text t;
    text_init(&t, a);
    CHECK(kernel_head(&t, a));
    CHECK(kernel_add(&t, a, arena_printf(a, "runtime/cuda/kernels/%s.cu", file)));
    char *ptx = kernel_compile(a, t.at, "compute_75", &log);
    if (!ptx) fprintf(stderr, "%s.cu: %s\n", file, log);
    if (!ptx) return false;
    module[nmodule] =
        simt_load(ptx, with_gpu ? SIMT_FAST : SIMT_CHECKED, cache, message, sizeof message);
    const char *bad = module[nmodule] ? NULL : message;
    if (other_rounding) round_otherwise(ptx);
    if (!bad && with_gpu) bad = gpu_add(module[nmodule], ptx);
    if (bad) fprintf(stderr, "%s.cu: %s\n", file, bad);
    return module[nmodule++] && !bad;
}

bool open_kernels(int argc, char **argv, const char *const *file) {
    Arena *a = arena_new();
    const char *why = NULL;
    if (argc < 2) return false;
    with_gpu = argc > 2 && !strncmp(argv[2], "gpu", 3);
    other_rounding = argc > 2 && !strcmp(argv[2], "gpu-rz");
    if (with_gpu) why = gpu_open();
    if (why) {
        printf("skipped: %s\n", why);
        return false;
    }
    if (!kernel_open_nvrtc()) {
        printf("skipped: libnvrtc.so cannot be opened\n");
        arena_free(a);
        return false;
    }
    cu.cuMemcpyDtoDAsync = copy_async;
    cu.cuMemsetD8Async = set8_async;
    cu.cuMemsetD32Async = set32_async;
    for (; *file; file++) {
        assert(nmodule < MODULES);
        CHECK(open_module(a, argv[1], *file));
    }
    arena_free(a);
    return true;
}

bool on_gpu(void) {
    return with_gpu;
}

int kernels_end(void) {
    if (with_gpu) {
        printf("%d results on %s, %d are not those of the translation\n", compared, gpu_name(),
               different);
        gpu_close();
    }
    return test_end();
}
