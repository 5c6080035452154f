/* nvrtc.c - kernels.cu compiled by NVRTC: cubins and PTX, as --gpu-arch asks.
 *
 * NVRTC is opened when it is needed; it compiles without a GPU. Options: no contraction to fused
 * multiply-add, so that a value has the same bits wherever it is computed. Compiling takes seconds,
 * and models are compiled again and again for other budgets: in a folder that $DTRC_CACHE names,
 * images are kept by the hash of what they were made of, with a hash of their own behind them: a
 * file that was damaged is made anew. */
#include "gen.h"

#ifdef DTRC_CUDA
#include <dlfcn.h>
#include <nvrtc.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_SHOWN = 2000, IMAGE_MAX = 1 << 28, HASH = SHA256_DIGEST_STRING_LENGTH - 1 };

#define NVRTC_FUNCTIONS(F)                                                                         \
    F(nvrtcVersion)                                                                                \
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

static void add_image(Gen *g, int arch, bool is_text, const void *bytes, size_t n) {
    GenImage i = {arch, is_text, bytes, n, 0};
    VEC_PUSH(g->a, g->image, i);
}

static bool take_image(Gen *g, const Nvrtc *rtc, nvrtcProgram p, int arch, bool is_text) {
    size_t n = 0;
    nvrtcResult r = (is_text ? rtc->nvrtcGetPTXSize : rtc->nvrtcGetCUBINSize)(p, &n);
    char *bytes = arena_alloc(g->a, n + 1);
    if (r == NVRTC_SUCCESS) r = (is_text ? rtc->nvrtcGetPTX : rtc->nvrtcGetCUBIN)(p, bytes);
    if (r != NVRTC_SUCCESS) return compile_failed(g, rtc, p, r, arch);
    add_image(g, arch, is_text, bytes, n);
    return true;
}

/* ---- $DTRC_CACHE ---- */

/* "FOLDER/HASH", of the version of NVRTC, the architecture and the text; NULL: no cache. */
static const char *cache_name(Gen *g, const Nvrtc *rtc, int arch) {
    const char *folder = getenv("DTRC_CACHE");
    int major = 0, minor = 0;
    char hex[HASH + 1];
    if (!folder || !*folder || rtc->nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) return NULL;
    const char *all = arena_printf(g->a, "%d.%d sm_%d\n%s", major, minor, arch, g->kernels);
    SHA256Data((const uint8_t *)all, strlen(all), hex);
    return arena_printf(g->a, "%s/%s", folder, hex);
}

static const char *image_file(Gen *g, const char *name, bool is_text) {
    return arena_printf(g->a, "%s.%s", name, is_text ? "ptx" : "cubin");
}

/* The bytes of an image, *n of them; NULL: not there, or not as it was kept. */
static char *read_image(Gen *g, const char *file, size_t *n) {
    char hex[HASH + 1], *bytes = file_read(g->a, file, IMAGE_MAX, n);
    if (!bytes || *n <= HASH) return NULL;
    *n -= HASH;
    SHA256Data((const uint8_t *)bytes, *n, hex);
    if (memcmp(bytes + *n, hex, HASH)) return NULL;
    bytes[*n] = 0; /* a text ends */
    return bytes;
}

static bool take_cached(Gen *g, const char *name, const GpuArch *arch) {
    const bool wanted[2] = {arch->cubin, arch->ptx};
    size_t n[2] = {0};
    char *bytes[2] = {NULL};
    for (int is_text = 0; name && is_text < 2; is_text++) {
        if (!wanted[is_text]) continue;
        bytes[is_text] = read_image(g, image_file(g, name, is_text), &n[is_text]);
        if (!bytes[is_text]) return false;
    }
    for (int is_text = 0; name && is_text < 2; is_text++)
        if (wanted[is_text]) add_image(g, arch->number, is_text, bytes[is_text], n[is_text]);
    return name != NULL;
}

/* What cannot be kept is compiled again the next time. */
static void keep(Gen *g, const char *name, const GenImage *i) {
    char hex[HASH + 1], *all = arena_alloc(g->a, i->n + HASH);
    SHA256Data(i->bytes, i->n, hex);
    memcpy(all, i->bytes, i->n);
    memcpy(all + i->n, hex, HASH);
    file_write(image_file(g, name, i->is_text), all, i->n + HASH);
}

static bool compile(Gen *g, const Nvrtc *rtc, const GpuArch *arch) {
    nvrtcProgram p;
    int number = arch->number;
    const char *cached = cache_name(g, rtc, number);
    if (take_cached(g, cached, arch)) return true;
    const char *kind = arch->cubin ? "sm" : "compute"; /* of the latter, NVRTC makes PTX only */
    const char *option[] = {arena_printf(g->a, "--gpu-architecture=%s_%d", kind, number),
                            "--std=c++17", "--fmad=false", "-default-device"};
    uint32_t first = g->image.n;
    nvrtcResult r = rtc->nvrtcCreateProgram(&p, g->kernels, "kernels.cu", 0, NULL, NULL);
    if (r != NVRTC_SUCCESS)
        return diag_error(g->d, (Place){0}, "NVRTC: %s", rtc->nvrtcGetErrorString(r));
    r = rtc->nvrtcCompileProgram(p, sizeof option / sizeof *option, option);
    bool ok = r == NVRTC_SUCCESS || compile_failed(g, rtc, p, r, number);
    if (ok && arch->cubin) ok = take_image(g, rtc, p, number, false);
    if (ok && arch->ptx) ok = take_image(g, rtc, p, number, true);
    rtc->nvrtcDestroyProgram(&p);
    for (uint32_t i = first; ok && cached && i < g->image.n; i++) keep(g, cached, &g->image.at[i]);
    return ok;
}

bool cg_nvrtc(Gen *g) {
    Nvrtc rtc;
    TRY(open_nvrtc(g, &rtc));
    for (uint32_t i = 0; i < g->o->ngpu_arch; i++) TRY(compile(g, &rtc, &g->o->gpu_arch[i]));
    return true;
}
#else
bool cg_nvrtc(Gen *g) {
    return diag_error(g->d, (Place){0}, "this dtrc was built without the target cuda");
}
#endif
