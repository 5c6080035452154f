/* twin.c - a libcuda in front of libcuda: every launch of a program's own kernels runs on the
 * device and, translated from the same PTX, on the CPU, from the same memory, and all memory must
 * have the same bits afterwards. So each kernel of a whole program is compared, generated ones
 * included, with the arguments and data of a training step.
 *
 *     DTRT_CUDA_PATH=BUILD/cudasim/twin ./program ... --graph off
 *
 * Only what is defined here is in this library; the linker's rules find all else in the libcuda
 * that it needs, the driver's or (with LD_LIBRARY_PATH) the stand-in. Cubins are refused, so that
 * the driver gets the PTX that is translated here. DTRC_TWIN_RZ=1: a device that rounds products
 * towards zero, to see that it is found. The last line on stderr says how many launches of how many
 * kernels were compared; a process in which one differed ends with status 86. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simt.h"
#include "watch.h"

enum { BLOCKS = 64, MODULES = 16, KERNELS = 4096, PARAMS = 64, PARAM_BYTES = 4352, SHOWN = 20 };

typedef struct {
    CUdeviceptr at;
    size_t bytes;
    unsigned char *here, *there; /* what the CPU makes of it; what the device did */
} Block;
typedef struct {
    CUmodule there;
    SimtModule *here;
} Module;
typedef struct {
    CUfunction there;
    const SimtKernel *here;
    CUmodule module;
    unsigned launches;
} Kernel;

static Block block[BLOCKS];
static Module module[MODULES];
static Kernel kernel[KERNELS];
static unsigned nmodule, nkernel, launches, differing, shown;

/* The functions of the libcuda behind this one that have a name here, too. The header makes macros
 * of some: cuMemAlloc is cuMemAlloc_v2 in the library. */
#define BEHIND(F)                                                                                  \
    F(cuMemAlloc) F(cuMemFree) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel)
#define TEXT(name) #name
#define NAME(name) TEXT(name)
static struct {
#define F(name) __typeof__(&name) name;
    BEHIND(F)
#undef F
} cu;

__attribute__((constructor)) static void find_behind(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *f;
#define F(name)                                                                                    \
    f = library ? dlsym(library, NAME(name)) : NULL;                                               \
    if (f) memcpy(&cu.name, &f, sizeof f);
    BEHIND(F)
#undef F
    if (cu.cuMemAlloc && cu.cuMemFree && cu.cuModuleLoadData && cu.cuLaunchKernel) return;
    fprintf(stderr, "twin: %s\n", dlerror());
    _exit(86);
}

static void fail(const char *what, CUresult r) {
    fprintf(stderr, "twin: %s failed: %d\n", what, (int)r);
    _exit(86);
}
#define DO(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = call;                                                                   \
        if (result_) fail(#call, result_);                                                         \
    } while (0)

/* ---- memory ---- */

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *at, size_t bytes) {
    CUresult r = cu.cuMemAlloc(at, bytes);
    unsigned i = 0;
    while (i < BLOCKS && block[i].at) i++;
    if (r) return r;
    if (i == BLOCKS) fail("remembering a block", 0);
    block[i] = (Block){*at, bytes, malloc(bytes + 1), malloc(bytes + 1)};
    if (!block[i].here || !block[i].there) fail("memory for a block", 0);
    return r;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr at) {
    for (unsigned i = 0; i < BLOCKS; i++)
        if (at && block[i].at == at) {
            free(block[i].here);
            free(block[i].there);
            block[i] = (Block){0};
        }
    return cu.cuMemFree(at);
}

/* ---- modules ---- */

CUresult CUDAAPI cuModuleLoadData(CUmodule *to, const void *image) {
    char message[4000] = "", folder[] = "/tmp/dtrc-twin";
    const char *cache = getenv("DTRC_SIM_CACHE");
    if (!memcmp(image, "\177ELF", 4)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (nmodule == MODULES) fail("remembering a module", 0);
    if (!cache) mkdir(folder, 0700);
    SimtModule *here = simt_load(image, SIMT_FAST, cache ? cache : folder, message, sizeof message);
    if (!here) {
        fprintf(stderr, "twin: %s\n", message);
        _exit(86);
    }
    char *ptx = strdup(image);
    for (char *p = getenv("DTRC_TWIN_RZ") ? ptx : NULL; p && (p = strstr(p, "mul.rn.f32")); p++)
        p[5] = 'z';
    CUresult r = cu.cuModuleLoadData(to, ptx);
    free(ptx);
    if (!r) module[nmodule++] = (Module){*to, here};
    return r;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *to, CUmodule m, const char *name) {
    CUresult r = cu.cuModuleGetFunction(to, m, name);
    const SimtKernel *here = NULL;
    for (unsigned i = 0; i < nmodule; i++)
        if (module[i].there == m) here = simt_kernel(module[i].here, name);
    if (r || !here) return r;
    for (unsigned i = 0; i < nkernel; i++)
        if (kernel[i].there == *to) return r;
    if (nkernel == KERNELS) fail("remembering a kernel", 0);
    kernel[nkernel++] = (Kernel){*to, here, m, 0};
    return r;
}

/* ---- launches ---- */

/* The device's variables of a module: f(host address, device address, bytes). */
static void each_variable(const Kernel *k,
                          void f(const SimtVariable *, CUdeviceptr, const char *)) {
    for (uint32_t i = 0; i < k->here->module->nvariables; i++) {
        const SimtVariable *v = &k->here->module->variables[i];
        CUdeviceptr at;
        size_t bytes;
        if (!v->constant && !cuModuleGetGlobal(&at, &bytes, k->module, v->name))
            f(v, at, k->here->name);
    }
}

static void take_variable(const SimtVariable *v, CUdeviceptr at, const char *name) {
    (void)name;
    DO(cuMemcpyDtoH(v->address, at, v->bytes));
}

/* The same bits, or NaN twice: processors make different ones. */
static bool is_same(uint32_t a, uint32_t b) {
    return a == b || ((a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000);
}

static void compare(const char *name, const char *what, const unsigned char *here,
                    const unsigned char *there, size_t bytes) {
    size_t count = 0, first = 0;
    uint32_t a = 0, b = 0, first_a = 0, first_b = 0;
    if (!memcmp(here, there, bytes)) return;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        memcpy(&a, here + i, 4);
        memcpy(&b, there + i, 4);
        if (is_same(a, b)) continue;
        if (!count++) first = i, first_a = a, first_b = b;
    }
    if (bytes % 4 && memcmp(here + bytes / 4 * 4, there + bytes / 4 * 4, bytes % 4)) count++;
    if (!count) return;
    differing++;
    if (shown++ < SHOWN)
        fprintf(stderr,
                "twin: %s: %zu words of %s, the first at %zu: 0x%08x, on the device 0x%08x\n", name,
                count, what, first, (unsigned)first_a, (unsigned)first_b);
}

static void compare_variable(const SimtVariable *v, CUdeviceptr at, const char *name) {
    unsigned char *there = malloc(v->bytes + 1);
    DO(cuMemcpyDtoH(there, at, v->bytes));
    compare(name, v->name, v->address, there, v->bytes);
    free(there);
}

/* Addresses of blocks among the words of a parameter become those of our copies. */
static void translate(unsigned char *param, uint32_t bytes) {
    for (uint32_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, param + at, sizeof word);
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (!block[i].at || word < block[i].at || word > block[i].at + block[i].bytes) continue;
            word = (uint64_t)(uintptr_t)block[i].here + (word - block[i].at);
            memcpy(param + at, &word, sizeof word);
            break;
        }
    }
}

static void run_here(const Kernel *k, SimtDim grid, SimtDim threads, uint32_t shared, void **args) {
    _Alignas(16) static unsigned char bytes[PARAM_BYTES];
    static SimtFindings found;
    void *params[PARAMS];
    SimtOptions options = {0};
    if (k->here->nparams > PARAMS || k->here->param_bytes > sizeof bytes) fail("parameters", 0);
    for (uint32_t i = 0; i < k->here->nparams; i++) {
        params[i] = bytes + k->here->params[i].offset;
        memcpy(params[i], args[i], k->here->params[i].bytes);
        translate(params[i], k->here->params[i].bytes);
    }
    if (!simt_launch(k->here, grid, threads, shared, params, &options, &found)) differing++;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                void **args, void **extra) {
    Kernel *k = NULL;
    for (unsigned i = 0; i < nkernel && !k; i++)
        if (kernel[i].there == f) k = &kernel[i];
    if (!k) return cu.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, args, extra);
    DO(cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++)
        if (block[i].at) DO(cuMemcpyDtoH(block[i].here, block[i].at, block[i].bytes));
    each_variable(k, take_variable);
    CUresult r = cu.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, args, extra);
    if (r) return r;
    DO(cuCtxSynchronize());
    run_here(k, (SimtDim){gx, gy, gz}, (SimtDim){bx, by, bz}, shared, args);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (!block[i].at) continue;
        DO(cuMemcpyDtoH(block[i].there, block[i].at, block[i].bytes));
        compare(k->here->name, "memory", block[i].here, block[i].there, block[i].bytes);
    }
    each_variable(k, compare_variable);
    k->launches++;
    launches++;
    return r;
}

/* What the stand-in would be told of a program's memory (runtime/cuda/watch.h): the copies above
 * read all of it. */
DtrtWatchArena dtrt_watch_arena;
DtrtWatchLive dtrt_watch_live;
DtrtWatchDead dtrt_watch_dead;
DtrtWatchStep dtrt_watch_step;
void dtrt_watch_arena(uint64_t at, uint64_t bytes) {
    (void)at, (void)bytes;
}
void dtrt_watch_live(void *stream, uint64_t at, uint64_t bytes, uint32_t flags, const char *name) {
    (void)stream, (void)at, (void)bytes, (void)flags, (void)name;
}
void dtrt_watch_dead(void *stream, uint64_t at, uint64_t bytes, uint32_t flags) {
    (void)stream, (void)at, (void)bytes, (void)flags;
}
void dtrt_watch_step(void *stream, const char *name, const DtrtWatchRange *ranges, uint32_t n) {
    (void)stream, (void)name, (void)ranges, (void)n;
}

__attribute__((destructor)) static void finish(void) {
    unsigned used = 0;
    for (unsigned i = 0; i < nkernel; i++) used += kernel[i].launches > 0;
    if (!launches) return;
    fprintf(stderr, "twin: %u launches of %u kernels, %u differ\n", launches, used, differing);
    if (differing) _exit(86);
}
