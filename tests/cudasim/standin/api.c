/* api.c - the libraries, opened from a folder, and NVRTC, from where it is. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

Api api;

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

static void *open_library(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library) fprintf(stderr, "program: %s\n", dlerror());
    return library;
}

static bool find(void *library, const char *name, void *to) {
    void *at = library ? dlsym(library, name) : NULL;
    if (!at) fprintf(stderr, "program: no %s\n", name);
    memcpy(to, &at, sizeof at);
    return at != NULL;
}

bool api_open(const char *folder) {
    void *cuda = open_library(folder, "libcuda.so.1");
    void *blas = open_library(folder, "libcublas.so.13");
    void *dnn = open_library(folder, "libcudnn.so.9");
    bool all = true;
#define F(name) all &= find(cuda, TEXT(name), &api.name);
    CUDA_FUNCTIONS(F)
#undef F
#define F(name) all &= find(blas, TEXT(name), &api.name);
    BLAS_FUNCTIONS(F)
#undef F
#define F(name) all &= find(dnn, TEXT(name), &api.name);
    DNN_FUNCTIONS(F)
#undef F
#define F(name, symbol) all &= find(cuda, symbol, &api.watch##name);
    WATCH_FUNCTIONS(F)
#undef F
    return all;
}

void check_call(int status, const char *what, int line) {
    if (!status) return;
    char text[256] = "";
    if (strncmp(what, "api.cudnn", 9) == 0) api.cudnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "program: line %d: %.80s gave %d %s\n", line, what, status, text);
    exit(4);
}

char *compile_kernels(const char *source) {
    void *library = dlopen(NVRTC_LIBRARY, RTLD_NOW);
    if (!library) return NULL;
#define F(name)                                                                                    \
    __typeof__(&name) name##_;                                                                     \
    if (!find(library, #name, &name##_)) return NULL;
    F(nvrtcCreateProgram)
    F(nvrtcCompileProgram)
    F(nvrtcGetPTXSize)
    F(nvrtcGetPTX)
    F(nvrtcDestroyProgram)
#undef F
    nvrtcProgram program;
    const char *options[] = {"--gpu-architecture=compute_80"};
    size_t size;
    CALL(nvrtcCreateProgram_(&program, source, "program.cu", 0, NULL, NULL));
    CALL(nvrtcCompileProgram_(program, 1, options));
    CALL(nvrtcGetPTXSize_(program, &size));
    char *ptx = malloc(size);
    if (!ptx) abort();
    CALL(nvrtcGetPTX_(program, ptx));
    CALL(nvrtcDestroyProgram_(&program));
    return ptx;
}
