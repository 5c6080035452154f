/* kernel_text.h - the texts of runtime/cuda/kernels put together as codegen does it, and NVRTC, for
 * tests. Both work without a GPU. */
#ifndef KERNEL_TEXT_H
#define KERNEL_TEXT_H

#include <dirent.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include "base.h"

/* Appends a file without its #include lines. */
static inline bool kernel_add(Text *t, Arena *a, const char *path) {
    size_t n;
    const char *s = file_read(a, path, (size_t)1 << 20, &n);
    if (!s) return false;
    text_add(t, "#line 1 \"%s\"\n", path);
    while (*s) {
        size_t line = strcspn(s, "\n");
        if (strncmp(s, "#include", 8)) text_add(t, "%.*s", (int)line, s);
        text_str(t, "\n");
        s += line + (s[line] == '\n');
    }
    return true;
}

/* What all kernels see. */
static inline bool kernel_head(Text *t, Arena *a) {
    text_str(t, "#define CU_SHARES 16384\n");
    return kernel_add(t, a, "runtime/cuda/kernels/types.cuh") &&
           kernel_add(t, a, "runtime/cuda/params.h") &&
           kernel_add(t, a, "runtime/core/dtrt_math.h") &&
           kernel_add(t, a, "runtime/core/dtrt_vecmath.h") &&
           kernel_add(t, a, "runtime/cuda/kernels/prelude.cuh");
}

static inline int kernel_is_file(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 3 && !strcmp(e->d_name + n - 3, ".cu");
}
/* The files, sorted: as scandir gives them, for the caller to free. */
static inline int kernel_files(struct dirent ***list) {
    return scandir("runtime/cuda/kernels", list, kernel_is_file, alphasort);
}

#define KERNEL_NVRTC(F)                                                                            \
    F(nvrtcVersion)                                                                                \
    F(nvrtcCreateProgram)                                                                          \
    F(nvrtcDestroyProgram)                                                                         \
    F(nvrtcCompileProgram)                                                                         \
    F(nvrtcGetPTXSize)                                                                             \
    F(nvrtcGetPTX)                                                                                 \
    F(nvrtcGetProgramLogSize)                                                                      \
    F(nvrtcGetProgramLog)
static struct {
#define F(name) __typeof__(&name) name;
    KERNEL_NVRTC(F)
#undef F
} rtc;

/* False: there is no NVRTC here. */
static inline bool kernel_open_nvrtc(void) {
    static const char *const name[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                       "/usr/local/cuda/lib64/libnvrtc.so"};
    void *lib = NULL;
    for (size_t i = 0; !lib && i < sizeof name / sizeof *name; i++) lib = dlopen(name[i], RTLD_NOW);
#define F(name)                                                                                    \
    if (!lib || !(*(void **)&rtc.name = dlsym(lib, #name))) return false;
    KERNEL_NVRTC(F)
#undef F
    return true;
}

/* PTX, or NULL; *log: what NVRTC and ptxas had to say. arch: "sm_80" (compiled to the end, with
 * figures in the log) or "compute_80". */
static inline char *kernel_compile(Arena *a, const char *source, const char *arch, char **log) {
    nvrtcProgram p;
    const char *option[] = {arena_printf(a, "--gpu-architecture=%s", arch), "--std=c++17",
                            "--fmad=false", "-default-device", "--ptxas-options=-v"};
    size_t n = 0;
    char *ptx = NULL;
    int count = strncmp(arch, "sm_", 3) ? 4 : 5;
    *log = arena_str(a, "no program");
    if (rtc.nvrtcCreateProgram(&p, source, "kernels.cu", 0, NULL, NULL)) return NULL;
    nvrtcResult r = rtc.nvrtcCompileProgram(p, count, option);
    if (!rtc.nvrtcGetProgramLogSize(p, &n)) {
        *log = arena_alloc(a, n + 1);
        rtc.nvrtcGetProgramLog(p, *log);
    }
    if (!r && !rtc.nvrtcGetPTXSize(p, &n)) {
        ptx = arena_alloc(a, n + 1);
        if (rtc.nvrtcGetPTX(p, ptx)) ptx = NULL;
    }
    rtc.nvrtcDestroyProgram(&p);
    return ptx;
}

#endif
