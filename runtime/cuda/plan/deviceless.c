/* deviceless.c - plans of cuDNN for a GPU that is not here.
 *
 * Since version 9.8 cuDNN takes a description of a device in place of one (NVIDIA cuDNN
 * documentation, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) and gives the heuristics' list and the exact
 * workspace of each plan, without a driver. A program that finds another version of the library, or
 * another device, chooses again within the workspace that was planned (passes.c). */
#include "dnn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folders of $DTRT_CUDA_PATH, colons between, then where the loader looks. */
static void *open_library(const char *name) {
    const char *folder = getenv("DTRT_CUDA_PATH");
    char path[4096];
    while (folder && *folder) {
        size_t n = strcspn(folder, ":");
        if (n > 0 && n + strlen(name) + 2 <= sizeof path) {
            snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, name);
            void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (lib) return lib;
        }
        folder += n + (folder[n] == ':');
    }
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

static bool load(Dnn *d) {
    void *lib = open_library("libcudnn.so.9");
    if (!lib) return false;
#define F(name)                                                                                    \
    void *name##_ = dlsym(lib, #name);                                                             \
    if (!name##_) return false;                                                                    \
    memcpy(&d->name, &name##_, sizeof d->name);
    DNN_FUNCTIONS(F)
#undef F
    return true;
}

/* Opened once; NULL: not here, or too old to plan for a described device. */
static Dnn *library(void) {
    static Dnn d;
    static int state; /* 1: there, -1: not */
    if (!state) state = load(&d) && d.cudnnGetVersion() >= 90800 ? 1 : -1;
    return state > 0 ? &d : NULL;
}

static bool describe(Dnn *d, const CudaDevice *device) {
    static const CudaDevice *described;
    char json[2048];
    if (described == device) return true;
    size_t n = cuda_device_json(device, json, sizeof json);
    if (d->device) d->cudnnBackendDestroyDescriptor(d->device);
    d->device = NULL;
    described = NULL;
    if (!n || d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->device) ||
        d->cudnnBackendSetAttribute(d->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                    CUDNN_TYPE_CHAR, (int64_t)n, json) ||
        d->cudnnBackendFinalize(d->device))
        return false;
    described = device;
    return true;
}

const Dnn *dnn_for(const CudaDevice *device) {
    Dnn *d = library();
    return d && describe(d, device) ? d : NULL;
}

const char *cuda_plan_library(void) {
    static char text[40];
    const Dnn *d = library();
    if (!d) return NULL;
    size_t v = d->cudnnGetVersion();
    snprintf(text, sizeof text, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return text;
}
