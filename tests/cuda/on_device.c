/* on_device.c - a program without nodes: its one image is the text of the kernels. */
#include "on_device.h"

#include "cu.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static Runtime rt;
static DtrtProgram program;
static DtrtImage image;

static bool skip(const char *why) {
    printf("skipped: %s\n", why);
    return false;
}

/* ---- kernels ---- */

typedef struct {
    char *at;
    size_t n;
} Source;

static void add(Source *s, const char *text, size_t n) {
    s->at = realloc(s->at, s->n + n + 1);
    if (!s->at) abort();
    memcpy(s->at + s->n, text, n);
    s->n += n;
    s->at[s->n] = 0;
}

/* Without its #include lines, as dtrc does it. */
static void add_file(Source *s, const char *path) {
    char line[1000];
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "#include", 8)) add(s, line, strlen(line));
    fclose(f);
}

/* In the order in which dtrc puts a program's text together. */
static Source kernel_text(const char *const *kernels) {
    static const char *const shared[] = {"runtime/cuda/kernels/types.cuh", "runtime/cuda/params.h",
                                         "runtime/core/dtrt_math.h", "runtime/core/dtrt_vecmath.h",
                                         "runtime/cuda/kernels/prelude.cuh"};
    Source s = {0};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) add_file(&s, shared[i]);
    for (; *kernels; kernels++) {
        char path[200];
        snprintf(path, sizeof path, "runtime/cuda/kernels/%s.cu", *kernels);
        add_file(&s, path);
    }
    return s;
}

#define RTC_FUNCTIONS(F)                                                                           \
    F(nvrtcCreateProgram)                                                                          \
    F(nvrtcCompileProgram)                                                                         \
    F(nvrtcGetPTXSize)                                                                             \
    F(nvrtcGetPTX)                                                                                 \
    F(nvrtcGetProgramLogSize)                                                                      \
    F(nvrtcGetProgramLog)

static struct {
#define F(name) __typeof__(&name) name;
    RTC_FUNCTIONS(F)
#undef F
} rtc;

static bool open_rtc(void) {
    static const char *const file[] = {"libnvrtc.so.13", "libnvrtc.so.12", DEVICE_TEST_NVRTC};
    void *lib = NULL, *to;
    for (size_t i = 0; i < sizeof file / sizeof *file && !lib; i++) lib = dlopen(file[i], RTLD_NOW);
    if (!lib) return false;
#define F(name)                                                                                    \
    to = dlsym(lib, #name);                                                                        \
    if (!to) return false;                                                                         \
    memcpy(&rtc.name, &to, sizeof to);
    RTC_FUNCTIONS(F)
#undef F
    return true;
}

/* The PTX of the kernels, which must compile without a warning. */
static char *compile(const char *text, size_t *n) {
    static const char *const option[] = {"--gpu-architecture=compute_80", "--std=c++17",
                                         "--fmad=false", "-default-device",
                                         "--diag-suppress=177"}; /* functions of other kernels */
    nvrtcProgram p;
    size_t log = 0;
    bool good = rtc.nvrtcCreateProgram(&p, text, "kernels.cu", 0, NULL, NULL) == NVRTC_SUCCESS &&
                rtc.nvrtcCompileProgram(p, sizeof option / sizeof *option, option) == NVRTC_SUCCESS;
    if (rtc.nvrtcGetProgramLogSize(p, &log) == NVRTC_SUCCESS && log > 1) {
        char *said = malloc(log);
        if (said && rtc.nvrtcGetProgramLog(p, said) == NVRTC_SUCCESS) fprintf(stderr, "%s\n", said);
        free(said);
        good = false;
    }
    char *ptx = good && rtc.nvrtcGetPTXSize(p, n) == NVRTC_SUCCESS ? malloc(*n) : NULL;
    if (!ptx || rtc.nvrtcGetPTX(p, ptx) != NVRTC_SUCCESS) {
        fprintf(stderr, "the kernels do not compile\n");
        exit(1);
    }
    return ptx;
}

/* ---- the program ---- */

/* False: nobody says where libraries are, and there are no stand-ins. */
static bool find_libraries(const char *build) {
    char folder[4000], file[4096];
    if (getenv("DTRT_CUDA_PATH")) return true;
    snprintf(folder, sizeof folder, "%s/cudasim/lib", build);
    snprintf(file, sizeof file, "%s/libcuda.so.1", folder);
    setenv("DTRT_CUDA_PATH", folder, 1);
    setenv("DTRC_SIM_CHECK", "1", 0);
    return access(file, R_OK) == 0;
}

bool device_open(const char *build, const char *const *kernels, bool tf32) {
    if (!open_rtc()) return skip("NVRTC is not installed");
    if (!find_libraries(build)) return skip("the stand-ins of CUDA's libraries were not built");
    size_t n = 0;
    Source text = kernel_text(kernels);
    char *ptx = compile(text.at, &n);
    image = (DtrtImage){.is_text = true, .arch = 75, .file_bytes = n};
    program = (DtrtProgram){.nimage = 1, .image = &image, .tf32 = tf32};
    rt.p = rt.compiled = &program;
    rt.running = -1;
    rt.payload_bytes = n;
    rt.exe = memfd_create("kernels", 0);
    if (rt.exe < 0 || write(rt.exe, ptx, n) != (ssize_t)n) {
        perror("memfd");
        exit(1);
    }
    free(ptx);
    free(text.at);
    if (setjmp(rt.fail) != 0) exit(1); /* where a call ends that cannot go on */
    if (dtrt_cuda.open(&rt) != ST_OK) exit(1);
    return true;
}

void device_close(void) {
    dtrt_cuda.close(&rt);
    close(rt.exe);
}

/* ---- arrays ---- */

void *device_room(uint64_t bytes) {
    void *at = dtrt_cuda.alloc(bytes ? bytes : 1);
    if (!at) {
        fprintf(stderr, "no device memory\n");
        exit(1);
    }
    cu_check(
        cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, 0xff, bytes ? bytes : 1, cu_device.stream),
        "cuMemsetD8Async");
    return at;
}

void *device_put(const void *host, uint64_t bytes) {
    void *at = device_room(bytes);
    if (dtrt_cuda.write(at, host, bytes) != ST_OK) exit(1);
    return at;
}

void device_get(void *host, const void *at, uint64_t bytes) {
    if (dtrt_cuda.read(host, at, bytes) != ST_OK) exit(1);
}

void device_drop(void *at) {
    cu_check(cu.cuStreamSynchronize(cu_device.stream), "cuStreamSynchronize");
    cu_check(cu.cuMemFree((CUdeviceptr)(uintptr_t)at), "cuMemFree");
}
