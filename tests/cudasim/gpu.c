/* gpu.c - see gpu.h. Nothing is kept between launches but modules: slow and simple. */
#include "gpu.h"

#ifdef NVRTC_LIBRARY
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease)                                                                   \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleGetGlobal)                                                                           \
    X(cuMemAlloc)                                                                                  \
    X(cuMemFree)                                                                                   \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemcpyDtoH)                                                                                \
    X(cuLaunchKernel)
/* The header makes macros of some names: cuMemAlloc is cuMemAlloc_v2 in the library. */
#define TEXT(name) #name
#define NAME(name) TEXT(name)
static struct {
#define FIELD(name) __typeof__(&name) name;
    FUNCTIONS(FIELD)
} cu;

enum { MAX_MODULES = 64, MAX_PARAMS = 64, MOST_BUFFERS = 256, PARAM_BYTES = 4352 };
static struct {
    const SimtModule *module;
    CUmodule there;
} modules[MAX_MODULES];
static uint32_t nmodules;
static CUdevice device;
static CUcontext context;
static char device_name[128], message[256];

static const char *failed(CUresult r, const char *what) {
    const char *name = NULL;
    if (cu.cuGetErrorName(r, &name) || !name) name = "unknown error";
    snprintf(message, sizeof message, "%s: %s", what, name);
    return message;
}
#define DO(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = cu.call;                                                                \
        if (result_) return failed(result_, #call);                                                \
    } while (0)

static void *open_library(void) {
    const char *folders = getenv("DTRT_CUDA_PATH");
    while (folders && *folders) {
        size_t n = strcspn(folders, ":");
        char path[4096];
        snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)n, folders);
        void *h = n ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (h) return h;
        folders += n + (folders[n] == ':');
    }
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

const char *gpu_open(void) {
    void *h = open_library(), *p;
    if (!h) return dlerror();
#define GET(name)                                                                                  \
    p = dlsym(h, NAME(name));                                                                      \
    if (!p) return NAME(name) " is not in libcuda.so.1";                                           \
    memcpy(&cu.name, &p, sizeof p);
    FUNCTIONS(GET)
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDeviceGetName(device_name, sizeof device_name, device));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    return NULL;
}

const char *gpu_name(void) {
    return device_name;
}

const char *gpu_add(const SimtModule *module, const void *image) {
    if (nmodules == MAX_MODULES) return "too many modules";
    DO(cuModuleLoadData(&modules[nmodules].there, image));
    modules[nmodules++].module = module;
    return NULL;
}

static CUmodule find_module(const SimtModule *module) {
    for (uint32_t i = 0; i < nmodules; i++)
        if (modules[i].module == module) return modules[i].there;
    return NULL;
}

/* Those that the device's compiler dropped, because nothing uses them, are passed over. */
static const char *copy_variables(const SimtModule *m, CUmodule there, bool back) {
    for (uint32_t i = 0; i < m->nvariables; i++) {
        const SimtVariable *v = &m->variables[i];
        CUdeviceptr at;
        size_t bytes;
        if (v->constant || cu.cuModuleGetGlobal(&at, &bytes, there, v->name)) continue;
        if (back)
            DO(cuMemcpyDtoH(v->address, at, v->bytes));
        else
            DO(cuMemcpyHtoD(at, v->address, v->bytes));
    }
    return NULL;
}

/* ---- launches ---- */

/* The buffers of one launch: those that its parameters point to are copied to the device. */
typedef struct {
    const GpuBuffer *buffer;
    CUdeviceptr there[MOST_BUFFERS];
    uint32_t n;
} Copies;

static const char *copy_in(Copies *c, uint32_t i) {
    const GpuBuffer *b = &c->buffer[i];
    if (c->there[i]) return NULL;
    DO(cuMemAlloc(&c->there[i], b->bytes + 1)); /* an address even for none */
    if (b->bytes) DO(cuMemcpyHtoD(c->there[i], b->at, b->bytes));
    return NULL;
}

static const char *copy_out(const Copies *c) {
    for (uint32_t i = 0; i < c->n; i++)
        if (c->there[i] && c->buffer[i].bytes && c->buffer[i].writable)
            DO(cuMemcpyDtoH(c->buffer[i].at, c->there[i], c->buffer[i].bytes));
    return NULL;
}

/* The buffer that an address lies in, or (a pointer past the last element) at the end of; n: none.
 */
static uint32_t buffer_at(const Copies *c, uint64_t address) {
    uint32_t end = c->n;
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t from = (uint64_t)(uintptr_t)c->buffer[i].at, to = from + c->buffer[i].bytes;
        if (address >= from && address < to) return i;
        if (address == to) end = i;
    }
    return end;
}

/* Pointers in a parameter, which may be a struct: words that are addresses of buffers. (No other
 * number is by accident as large as an address.) */
static const char *translate(Copies *c, unsigned char *param, uint32_t bytes) {
    for (uint32_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, param + at, sizeof word);
        uint32_t i = buffer_at(c, word);
        if (i == c->n) continue;
        const char *bad = copy_in(c, i);
        if (bad) return bad;
        word = c->there[i] + (word - (uint64_t)(uintptr_t)c->buffer[i].at);
        memcpy(param + at, &word, sizeof word);
    }
    return NULL;
}

static const char *launch(const SimtKernel *k, SimtDim g, SimtDim b, uint32_t shared,
                          void *const *args, Copies *c) {
    _Alignas(16) static unsigned char block[PARAM_BYTES];
    CUmodule module = find_module(k->module);
    CUfunction f;
    if (!module) return "the module was not added";
    if (k->nparams > MAX_PARAMS || k->param_bytes > sizeof block) return "too many parameters";
    DO(cuModuleGetFunction(&f, module, k->name));
    void *params[MAX_PARAMS];
    const char *bad = NULL;
    for (uint32_t i = 0; i < k->nparams && !bad; i++) {
        params[i] = block + k->params[i].offset;
        memcpy(params[i], args[i], k->params[i].bytes);
        bad = translate(c, params[i], k->params[i].bytes);
    }
    if (!bad) bad = copy_variables(k->module, module, false);
    if (bad) return bad;
    DO(cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, shared, NULL, params, NULL));
    DO(cuCtxSynchronize());
    return copy_variables(k->module, module, true);
}

const char *gpu_launch(const SimtKernel *k, SimtDim grid, SimtDim block, uint32_t dynamic_shared,
                       void *const *args, const GpuBuffer *buffers, uint32_t n) {
    Copies c = {.buffer = buffers, .n = n};
    if (n > MOST_BUFFERS) return "too many buffers";
    const char *bad = launch(k, grid, block, dynamic_shared, args, &c);
    if (!bad) bad = copy_out(&c);
    for (uint32_t i = 0; i < n; i++)
        if (c.there[i]) cu.cuMemFree(c.there[i]);
    return bad;
}

void gpu_close(void) {
    for (uint32_t i = 0; i < nmodules; i++) cu.cuModuleUnload(modules[i].there);
    nmodules = 0;
    if (context) cu.cuDevicePrimaryCtxRelease(device);
    context = NULL;
}

#else

const char *gpu_open(void) {
    return "no CUDA headers were found when this was built";
}
const char *gpu_name(void) {
    return "";
}
const char *gpu_add(const SimtModule *module, const void *image) {
    (void)module, (void)image;
    return gpu_open();
}
const char *gpu_launch(const SimtKernel *k, SimtDim grid, SimtDim block, uint32_t dynamic_shared,
                       void *const *args, const GpuBuffer *buffers, uint32_t n) {
    (void)k, (void)grid, (void)block, (void)dynamic_shared, (void)args, (void)buffers, (void)n;
    return gpu_open();
}
void gpu_close(void) {
}

#endif
