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

enum { MAX_MODULES = 64, MAX_PARAMS = 64, MOST_BUFFERS = 256 };
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

static const char *launch(const SimtKernel *k, SimtDim g, SimtDim b, uint32_t shared,
                          void *const *args, const GpuBuffer *buffers, const CUdeviceptr *there,
                          uint32_t n) {
    CUmodule module = find_module(k->module);
    CUfunction f;
    if (!module || k->nparams > MAX_PARAMS) return "the module was not added";
    DO(cuModuleGetFunction(&f, module, k->name));
    uint64_t pointers[MAX_PARAMS];
    void *params[MAX_PARAMS];
    for (uint32_t i = 0; i < k->nparams; i++) {
        params[i] = args[i];
        if (k->params[i].bytes != sizeof(void *)) continue;
        for (uint32_t j = 0; j < n; j++) {
            uint64_t value;
            memcpy(&value, args[i], sizeof value);
            if (!buffers[j].bytes || value != (uint64_t)(uintptr_t)buffers[j].at) continue;
            pointers[i] = there[j];
            params[i] = &pointers[i];
        }
    }
    const char *bad = copy_variables(k->module, module, false);
    if (bad) return bad;
    DO(cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, shared, NULL, params, NULL));
    DO(cuCtxSynchronize());
    return copy_variables(k->module, module, true);
}

static const char *copy_in(const GpuBuffer *buffers, CUdeviceptr *there, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!buffers[i].bytes) continue;
        DO(cuMemAlloc(&there[i], buffers[i].bytes));
        DO(cuMemcpyHtoD(there[i], buffers[i].at, buffers[i].bytes));
    }
    return NULL;
}

static const char *copy_out(const GpuBuffer *buffers, const CUdeviceptr *there, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (buffers[i].bytes && buffers[i].writable)
            DO(cuMemcpyDtoH(buffers[i].at, there[i], buffers[i].bytes));
    return NULL;
}

const char *gpu_launch(const SimtKernel *k, SimtDim grid, SimtDim block, uint32_t dynamic_shared,
                       void *const *args, const GpuBuffer *buffers, uint32_t n) {
    CUdeviceptr there[MOST_BUFFERS] = {0};
    if (n > MOST_BUFFERS) return "too many buffers";
    const char *bad = copy_in(buffers, there, n);
    if (!bad) bad = launch(k, grid, block, dynamic_shared, args, buffers, there, n);
    if (!bad) bad = copy_out(buffers, there, n);
    for (uint32_t i = 0; i < n; i++)
        if (there[i]) cu.cuMemFree(there[i]);
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
