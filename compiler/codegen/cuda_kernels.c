/* cuda_kernels.c - the kernels of a program for the target cuda: kernels.cu, one text that holds
 * everything (settings, math, the runtime's kernels that the node bodies call, the program's
 * loops), and its compiled images (nvrtc.c).
 *
 * A file of the runtime's kernels says in its first line which calls need it:
 *     // calls: dtrt_softmax dtrt_softmax_grad
 */
#include "gen.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE_MAX = 1 << 22 };

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
             "#define CU_SHARES %d\n"
             "/* A program need not use every function that is here. */\n"
             "#pragma nv_diag_suppress 177\n",
             g->c->threads);
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        const char *s = read_source(g, shared[i]);
        TRY(s != NULL);
        add_source(&t, shared[i], s);
    }
    TRY(add_runtime(g, &t));
    text_str(&t, "\n/* ---- loops of this program ---- */\n#pragma nv_diag_default 177\n");
    for (uint32_t i = 0; i < g->loop_kernels.n; i++)
        cg_print_loop(g, g->loop_kernels.at[i].text, i, &t);
    g->kernels = t.at;
    return true;
}

bool cg_cuda_images(Gen *g) {
    return write_kernels(g) && cg_nvrtc(g);
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
