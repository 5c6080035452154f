/* test_kernel_text.c - all kernels of the runtime compiled by NVRTC as one text, for three
 * architectures: no warning, no spilled register, shared memory and registers that every device
 * has; each launch names a kernel, and each kernel has a launch.
 *
 * Compiling takes half a minute of a processor. What has passed leaves its hash in the build folder
 * and is not compiled again: the result depends on the texts, on NVRTC and on this program alone.
 *
 *     test_kernel_text BUILD [kernels.cu...]
 * With files, those are checked instead, which `dtrc --target cuda --emit DIR` writes. */
#include <unistd.h>

#include "test.h"

#include "kernel_text.h"

enum { SHARED_MAX = 48 * 1024, REGISTERS = 65536 };

static bool is_name(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Does s hold the whole name? */
static bool has_name(const char *s, const char *name, size_t n) {
    for (const char *at = s; (at = strstr(at, name)); at += n)
        if ((at == s || !is_name(at[-1])) && !is_name(at[n])) return true;
    return false;
}

/* The number before `unit` in the line, 0 when it is not there. */
static long number_before(const char *line, const char *unit) {
    const char *at = strstr(line, unit);
    while (at && at > line && at[-1] == ' ') at--;
    while (at && at > line && at[-1] >= '0' && at[-1] <= '9') at--;
    return at ? strtol(at, NULL, 10) : 0;
}

/* Most threads of a block of the kernel: PTX says it where the source does, else launches have 256
 * (or LOSS_PARTS). */
static long threads_of(const char *ptx, const char *kernel) {
    const char *at = ptx;
    size_t n = strlen(kernel);
    while ((at = strstr(at, ".entry "))) {
        at += 7;
        if (strncmp(at, kernel, n) || is_name(at[n])) continue;
        const char *body = strchr(at, '{'), *most = strstr(at, ".maxntid ");
        return most && most < body ? strtol(most + 9, NULL, 10) : 256;
    }
    return 0;
}

static const char *const quiet[] = {"Compiling entry", "Function properties", "bytes gmem",
                                    "Compile time",    "stack frame",         "Used "};

/* One line of the log of ptxas; *kernel: the one that lines speak of. */
static void check_line(char *line, char *kernel, size_t size, const char *ptx, const char *arch) {
    const char *entry = strstr(line, "entry function '");
    bool known = !*line;
    if (entry) {
        entry += strlen("entry function '");
        snprintf(kernel, size, "%.*s", (int)strcspn(entry, "'"), entry);
    }
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        known = known || strstr(line, quiet[i]);
    if (!known) fprintf(stderr, "%s: %s\n", arch, line);
    CHECK(known);
    if (strstr(line, "stack frame")) {
        long spilled = number_before(line, "bytes spill stores");
        if (spilled) fprintf(stderr, "%s: %s spills %ld bytes\n", arch, kernel, spilled);
        CHECK_EQ(spilled, 0);
    }
    if (strstr(line, "Used ")) {
        long threads = threads_of(ptx, kernel), used = number_before(line, "registers");
        if (threads * used > REGISTERS)
            fprintf(stderr, "%s: %s: %ld registers, %ld threads\n", arch, kernel, used, threads);
        CHECK(threads > 0 && used > 0 && threads * used <= REGISTERS);
        CHECK(number_before(line, "bytes smem") <= SHARED_MAX);
    }
}

static const char *check_arch(Arena *a, const char *source, const char *arch) {
    char *log, kernel[128] = "";
    char *ptx = kernel_compile(a, source, arch, &log);
    if (!ptx) fprintf(stderr, "%s:\n%s\n", arch, log);
    CHECK(ptx != NULL);
    if (!ptx) return NULL;
    CHECK(strstr(log, "Used ") != NULL);
    for (char *line = log; *line;) {
        size_t n = strcspn(line, "\n");
        bool more = line[n] == '\n';
        line[n] = 0;
        check_line(line, kernel, sizeof kernel, ptx, arch);
        line += n + more;
    }
    return ptx;
}

/* ---- launches ---- */

/* Kernel names in `launch(NAME, ..`, each with an ending put behind. */
static void add_launches(const char *host, const char *launch, const char *const *ending,
                         Text *names) {
    size_t n = strlen(launch);
    for (const char *s = host; (s = strstr(s, launch)); s += n) {
        if (s != host && is_name(s[-1])) continue;
        const char *name = s + n;
        size_t length = 0;
        while (is_name(name[length])) length++;
        /* the macros of walk.h itself */
        if (name[length] != ',' || !strncmp(name, "kernel", length)) continue;
        for (int i = 0; ending[i]; i++) text_add(names, "%.*s%s ", (int)length, name, ending[i]);
    }
}

static void check_launches(const char *kernels, const char *host) {
    static const char *const one[] = {"", NULL}, *const rows[] = {"_warp", "_block", NULL},
                             *const walks[] = {"", "_big", NULL};
    Arena *a = arena_new();
    Text launched;
    text_init(&launched, a);
    text_str(&launched, " ");
    add_launches(host, "CU_LAUNCH(", one, &launched);
    add_launches(host, "CU_LAUNCH2(", one, &launched);
    add_launches(host, "CU_ROWS(", rows, &launched);
    add_launches(host, "ATTENTION_ROWS(", rows, &launched);
    add_launches(host, "CU_WALK(", walks, &launched);
    for (const char *s = launched.at; *s;) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " ");
        char *name = arena_printf(a, "%.*s", (int)n, s);
        bool there = !n || has_name(kernels, name, n);
        if (!there) fprintf(stderr, "no kernel %s\n", name);
        CHECK(there);
        s += n;
    }
    for (const char *s = kernels; (s = strstr(s, ".entry ")); s += 7) {
        size_t n = strcspn(s + 7, "( \n");
        char *name = arena_printf(a, "%.*s", (int)n, s + 7);
        bool there = has_name(launched.at, name, n);
        if (!there) fprintf(stderr, "nobody launches %s\n", name);
        CHECK(there);
    }
    arena_free(a);
}

static int is_host_file(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 2 && !strcmp(e->d_name + n - 2, ".c");
}

static void free_list(struct dirent **file, int n) {
    for (int i = 0; i < n; i++) free(file[i]);
    free(file);
}

static void read_all(Arena *a, Text *kernels, Text *host) {
    struct dirent **file;
    int n = kernel_files(&file);
    CHECK(n > 10);
    for (int i = 0; i < n; i++) {
        char *path = arena_printf(a, "runtime/cuda/kernels/%s", file[i]->d_name);
        size_t bytes;
        const char *s = file_read(a, path, (size_t)1 << 20, &bytes);
        CHECK(s && !strncmp(s, "// calls: ", 10)); /* codegen goes by it */
        CHECK(kernel_add(kernels, a, path));
    }
    free_list(file, n);
    n = scandir("runtime/cuda", &file, is_host_file, alphasort);
    CHECK(n > 10);
    for (int i = 0; i < n; i++)
        CHECK(kernel_add(host, a, arena_printf(a, "runtime/cuda/%s", file[i]->d_name)));
    free_list(file, n);
}

/* FNV-1a, 64 bits (Fowler, Noll, Vo; RFC draft-eastlake-fnv). */
static uint64_t hash(uint64_t h, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h;
}

/* The file that says that all this has passed; NULL: it cannot be told. */
static char *stamp_of(Arena *a, const char *build_dir, const Text *kernels, const Text *host) {
    int version[2] = {0};
    size_t n;
    const char *program = file_read(a, "/proc/self/exe", (size_t)1 << 26, &n);
    if (!program || rtc.nvrtcVersion(&version[0], &version[1])) return NULL;
    uint64_t h = hash(0xcbf29ce484222325u, program, n);
    h = hash(h, kernels->at, kernels->n);
    h = hash(h, host->at, host->n);
    h = hash(h, (const char *)version, sizeof version);
    return arena_printf(a, "%s/cudasim/cache/%016llx.passed", build_dir, (unsigned long long)h);
}

static const char *const arch[] = {"sm_75", "sm_80", "sm_90"};
enum { ARCHS = sizeof arch / sizeof *arch };

/* kernels.cu of programs. */
static void check_programs(Arena *a, char **file, int n) {
    for (int i = 0; i < n; i++) {
        size_t bytes;
        char *source = file_read(a, file[i], (size_t)1 << 24, &bytes);
        CHECK(source != NULL);
        for (size_t k = 0; source && k < ARCHS; k++) check_arch(a, source, arch[k]);
        printf("%s: %s\n", file[i], test_failed ? "FAILED, or one before" : "ok");
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    Arena *a = arena_new();
    Text kernels, host;
    if (!kernel_open_nvrtc()) {
        printf("skipped: libnvrtc.so cannot be opened\n");
        arena_free(a);
        return 77;
    }
    if (argc > 2) {
        check_programs(a, argv + 2, argc - 2);
        arena_free(a);
        return test_end();
    }
    text_init(&kernels, a);
    text_init(&host, a);
    CHECK(kernel_head(&kernels, a));
    read_all(a, &kernels, &host);
    const char *ptx = NULL, *stamp = argc > 1 ? stamp_of(a, argv[1], &kernels, &host) : NULL;
    if (stamp && access(stamp, F_OK) == 0) {
        printf("passed before: %s\n", stamp);
        arena_free(a);
        return test_end();
    }
    for (size_t i = 0; i < ARCHS; i++) ptx = check_arch(a, kernels.at, arch[i]);
    if (ptx) check_launches(ptx, host.at);
    if (stamp && test_end() == 0) file_write(stamp, "", 0);
    arena_free(a);
    return test_end();
}
