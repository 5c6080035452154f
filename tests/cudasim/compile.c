/* compile.c - the one place of these tests that knows NVRTC ("NVRTC", NVIDIA, 13.0). */
#include "compile.h"

#ifdef NVRTC_LIBRARY
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
    X(nvrtcCreateProgram)                                                                          \
    X(nvrtcCompileProgram)                                                                         \
    X(nvrtcDestroyProgram)                                                                         \
    X(nvrtcGetProgramLogSize)                                                                      \
    X(nvrtcGetProgramLog)                                                                          \
    X(nvrtcGetPTXSize)                                                                             \
    X(nvrtcGetPTX)

#define FIELD(name) __typeof__(&name) name;
static struct { FUNCTIONS(FIELD) } rtc;

/* Of the toolkit that this was built with, else in the folders of $DTRT_CUDA_PATH, else as the
 * loader finds it. */
static void *open_nvrtc(void) {
    void *h = dlopen(NVRTC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *folders = getenv("DTRT_CUDA_PATH");
    while (!h && folders && *folders) {
        size_t n = strcspn(folders, ":");
        char path[4096];
        snprintf(path, sizeof path, "%.*s/libnvrtc.so.13", (int)n, folders);
        h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        folders += n + (folders[n] == ':');
    }
    return h ? h : dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
}

const char *compile_missing(void) {
    static void *handle;
    if (handle) return NULL;
    void *h = open_nvrtc();
    if (!h) return dlerror();
    void *p;
#define GET(name)                                                                                  \
    p = dlsym(h, #name);                                                                           \
    if (!p) return #name " is not in " NVRTC_LIBRARY;                                              \
    memcpy(&rtc.name, &p, sizeof p);
    FUNCTIONS(GET)
    handle = h;
    return NULL;
}

static const char *log_of(Arena *a, nvrtcProgram program) {
    size_t n = 0;
    if (rtc.nvrtcGetProgramLogSize(program, &n) || n == 0) return "";
    char *log = arena_alloc(a, n + 1);
    rtc.nvrtcGetProgramLog(program, log);
    return log;
}

const char *compile_cuda(Arena *a, const char *name, const char *text, const char *arch,
                         const char *option, char *message, size_t size) {
    const char *options[] = {arena_printf(a, "--gpu-architecture=%s", arch), "-I" NVRTC_INCLUDE_DIR,
                             option};
    nvrtcProgram program;
    if (compile_missing() || rtc.nvrtcCreateProgram(&program, text, name, 0, NULL, NULL)) {
        snprintf(message, size, "NVRTC does not work");
        return NULL;
    }
    char *ptx = NULL;
    size_t n = 0;
    bool failed = rtc.nvrtcCompileProgram(program, option ? 3 : 2, options) != NVRTC_SUCCESS;
    const char *log = log_of(a, program);
    snprintf(message, size, "%s", log);
    if (!failed && !*log && !rtc.nvrtcGetPTXSize(program, &n)) {
        ptx = arena_alloc(a, n + 1);
        if (rtc.nvrtcGetPTX(program, ptx)) ptx = NULL;
    }
    rtc.nvrtcDestroyProgram(&program);
    return ptx;
}

#else

const char *compile_missing(void) {
    return "no NVRTC was found when this was built (set CUDA_HOME, or -DNVRTC_LIBRARY=... for "
           "CMake)";
}

const char *compile_cuda(Arena *a, const char *name, const char *text, const char *arch,
                         const char *option, char *message, size_t size) {
    (void)a, (void)name, (void)text, (void)arch, (void)option;
    snprintf(message, size, "%s", compile_missing());
    return NULL;
}

#endif
