/* cuda_kernels.c - the kernels of a program for the target cuda: kernels.cu, one text that holds
 * everything (settings, math, the runtime's kernels that the node bodies call, the program's
 * loops), compiled by NVRTC to a cubin for each architecture; the PTX of the lowest is kept, too.
 *
 * A file of the runtime's kernels says in its first line which calls need it:
 *     // calls: dtrt_softmax dtrt_softmax_grad
 * NVRTC is opened when it is needed; it compiles without a GPU. Options: no contraction to fused
 * multiply-add, so that a value has the same bits wherever it is computed. */
#include "gen.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 1 << 22, LOG_SHOWN = 2000 };

/* ---- the text ----------------------------------------------------------------------------------
 */

static char *read_source(Gen *g, const char *name) {
    size_t n;
    const char *path = arena_printf(g->a, "%s/%s", g->o->include_dir, name);
    char *s = file_read(g->a, path, SOURCE_MAX, &n);
    if (!s) diag_error(g->d, (Place){.file = path}, "cannot read the text of the kernels");
    return s;
}

/* Lines of a file but its #include lines: one text has everything. */
static void add_source(Text *t, const char *name, const char *s) {
    text_add(t, "\n/* ---- %s ---- */\n", name);
    while (*s) {
        size_t n = strcspn(s, "\n");
        if (strncmp(s, "#include", 8)) text_add(t, "%.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does some node body call the function? */
static bool is_called(const Gen *g, const char *name, size_t n) {
    for (uint32_t i = 0; i < g->body.n; i++)
        for (const char *s = g->body.at[i].text; (s = strstr(s, "dtrt_")); s += 5)
            if (!strncmp(s, name, n) && !is_name(s[n])) return true;
    return false;
}

static bool is_needed(const Gen *g, const char *source) {
    static const char mark[] = "// calls:";
    if (strncmp(source, mark, sizeof mark - 1)) return false;
    const char *end = source + strcspn(source, "\n");
    for (const char *s = source + sizeof mark - 1; s < end;) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " \n");
        if (n == 1 && *s == '*') return true;
        if (n && is_called(g, s, n)) return true;
        s += n;
        if (*s == '\n') break;
    }
    return false;
}

static int is_kernel_file(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 3 && !strcmp(e->d_name + n - 3, ".cu");
}

/* In the order of their names. */
static bool add_runtime(Gen *g, Text *t) {
    struct dirent **file;
    const char *dir = arena_printf(g->a, "%s/cuda", g->o->include_dir);
    int n = scandir(dir, &file, is_kernel_file, alphasort);
    if (n < 0)
        return diag_error(g->d, (Place){.file = dir},
                          "the texts of the CUDA kernels are not there");
    bool ok = true;
    for (int i = 0; i < n; i++) {
        const char *name = arena_printf(g->a, "cuda/%s", file[i]->d_name);
        char *s = ok ? read_source(g, name) : NULL;
        if (ok && !s) ok = false;
        if (s && is_needed(g, s)) add_source(t, name, s);
        free(file[i]);
    }
    free(file);
    return ok;
}

static bool write_kernels(Gen *g) {
    static const char *const shared[] = {"cuda/types.cuh", "cuda/params.h", "dtrt_math.h",
                                         "dtrt_vecmath.h", "cuda/prelude.cuh"};
    Text t;
    text_init(&t, g->a);
    text_add(&t,
             "/* Kernels of a training program made by dtrc, compiled by NVRTC with --std=c++17\n"
             " * --fmad=false -default-device. */\n"
             "#define CU_SHARES %d\n",
             g->c->threads);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const char *s = read_source(g, shared[i]);
        TRY(s != NULL);
        add_source(&t, shared[i], s);
    }
    TRY(add_runtime(g, &t));
    text_str(&t, "\n/* ---- loops of this program ---- */\n");
    for (uint32_t i = 0; i < g->loop_kernels.n; i++)
        cg_print_loop(g, g->loop_kernels.at[i].text, i, &t);
    g->kernels = t.at;
    return true;
}

/* ---- NVRTC -------------------------------------------------------------------------------------
 */

#ifdef DTRC_CUDA
#include <nvrtc.h>

#define NVRTC_FUNCTIONS(F)                                                                         \
    F(nvrtcGetErrorString)                                                                         \
    F(nvrtcCreateProgram)                                                                          \
    F(nvrtcDestroyProgram)                                                                         \
    F(nvrtcCompileProgram)                                                                         \
    F(nvrtcGetPTXSize)                                                                             \
    F(nvrtcGetPTX)                                                                                 \
    F(nvrtcGetCUBINSize)                                                                           \
    F(nvrtcGetCUBIN)                                                                               \
    F(nvrtcGetProgramLogSize)                                                                      \
    F(nvrtcGetProgramLog)

typedef struct {
#define F(name) __typeof__(&name) name;
    NVRTC_FUNCTIONS(F)
#undef F
} Nvrtc;

/* The folders of $DTRT_CUDA_PATH, the loader's, the toolkit's usual place. */
static void *open_library(Gen *g) {
    static const char *const name[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    const char *given = getenv("DTRT_CUDA_PATH");
    const char *folders = arena_printf(g->a, "%s::/usr/local/cuda/lib64", given ? given : "");
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        for (const char *s = folders;; s++) {
            size_t n = strcspn(s, ":");
            void *lib =
                dlopen(n ? arena_printf(g->a, "%.*s/%s", (int)n, s, name[i]) : name[i], RTLD_NOW);
            if (lib) return lib;
            s += n;
            if (!*s) break;
        }
    diag_error(g->d, (Place){0},
               "libnvrtc.so.13 cannot be opened, and --target cuda needs it to "
               "compile kernels");
    diag_hint(g->d, "install NVIDIA's CUDA toolkit (package cuda-nvrtc), or name the folder of the "
                    "library in the environment variable DTRT_CUDA_PATH");
    return NULL;
}

static bool open_nvrtc(Gen *g, Nvrtc *out) {
#define F(name) #name,
    static const char *const name[] = {NVRTC_FUNCTIONS(F)};
#undef F
    enum { COUNT = sizeof name / sizeof *name };
    void *at[COUNT], *lib = open_library(g);
    TRY(lib != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        at[i] = dlsym(lib, name[i]);
        if (!at[i])
            return diag_error(g->d, (Place){0}, "libnvrtc has no function %s: it is too old",
                              name[i]);
    }
    memcpy(out, at, sizeof *out);
    return true;
}

static bool compile_failed(Gen *g, const Nvrtc *rtc, nvrtcProgram p, nvrtcResult r, int arch) {
    size_t n = 0;
    char *log = NULL;
    if (rtc->nvrtcGetProgramLogSize(p, &n) == NVRTC_SUCCESS && n) {
        log = arena_alloc(g->a, n + 1);
        if (rtc->nvrtcGetProgramLog(p, log) != NVRTC_SUCCESS) log = NULL;
    }
    diag_error(g->d, (Place){.file = "kernels.cu"}, "NVRTC could not compile for sm_%d: %s", arch,
               rtc->nvrtcGetErrorString(r));
    if (r == NVRTC_ERROR_INVALID_OPTION)
        diag_hint(g->d,
                  "does this version of NVRTC know the architecture? CUDA 13 starts at sm_75");
    if (log && *log) {
        if (n > LOG_SHOWN) log[LOG_SHOWN] = 0;
        diag_hint(g->d, "NVRTC said:\n%s", log);
    }
    return false;
}

static bool take_image(Gen *g, const Nvrtc *rtc, nvrtcProgram p, int arch, bool is_text) {
    size_t n = 0;
    nvrtcResult r = (is_text ? rtc->nvrtcGetPTXSize : rtc->nvrtcGetCUBINSize)(p, &n);
    char *bytes = arena_alloc(g->a, n + 1);
    if (r == NVRTC_SUCCESS) r = (is_text ? rtc->nvrtcGetPTX : rtc->nvrtcGetCUBIN)(p, bytes);
    if (r != NVRTC_SUCCESS) return compile_failed(g, rtc, p, r, arch);
    GenImage i = {arch, is_text, bytes, n, 0};
    VEC_PUSH(g->a, g->image, i);
    return true;
}

static bool compile(Gen *g, const Nvrtc *rtc, int arch, bool with_text) {
    nvrtcProgram p;
    const char *option[] = {arena_printf(g->a, "--gpu-architecture=sm_%d", arch), "--std=c++17",
                            "--fmad=false", "-default-device"};
    nvrtcResult r = rtc->nvrtcCreateProgram(&p, g->kernels, "kernels.cu", 0, NULL, NULL);
    if (r != NVRTC_SUCCESS)
        return diag_error(g->d, (Place){0}, "NVRTC: %s", rtc->nvrtcGetErrorString(r));
    r = rtc->nvrtcCompileProgram(p, sizeof option / sizeof *option, option);
    bool ok = r == NVRTC_SUCCESS ? take_image(g, rtc, p, arch, false)
                                 : compile_failed(g, rtc, p, r, arch);
    if (ok && with_text) ok = take_image(g, rtc, p, arch, true);
    rtc->nvrtcDestroyProgram(&p);
    return ok;
}

static bool compile_all(Gen *g) {
    Nvrtc rtc;
    const int *arch = g->o->gpu_arch;
    uint32_t lowest = 0;
    TRY(open_nvrtc(g, &rtc));
    for (uint32_t i = 1; i < g->o->ngpu_arch; i++)
        if (arch[i] < arch[lowest]) lowest = i;
    for (uint32_t i = 0; i < g->o->ngpu_arch; i++) TRY(compile(g, &rtc, arch[i], i == lowest));
    return true;
}
#else
static bool compile_all(Gen *g) {
    return diag_error(g->d, (Place){0}, "this dtrc was built without the target cuda");
}
#endif

bool cg_cuda_images(Gen *g) {
    return write_kernels(g) && compile_all(g);
}

void cg_print_images(Gen *g, Text *t) {
    if (g->o->target != TARGET_CUDA) return;
    text_str(t, "/* Kernels (kernels.cu), compiled: in weights.bin. */\n"
                "static const DtrtImage images[] = {\n");
    for (uint32_t i = 0; i < g->image.n; i++)
        text_add(t, "    {%d, %d, %llu, %llu},\n", g->image.at[i].arch, g->image.at[i].is_text,
                 (unsigned long long)g->image.at[i].file_offset,
                 (unsigned long long)g->image.at[i].n);
    text_str(t, "};\n\n");
}
