/* build.c - from a program folder to an executable: the system compiler on program.c, linked with
 * the runtime, and weights.bin appended (runtime/core/payload.h says how it is found again).
 *
 * The compiler is run without a shell. Everything is made under a temporary name beside the result
 * and renamed at the end, so an earlier executable stays whole when something fails. What the
 * linker needs stands in link-flags-TARGET.txt beside the library. */
#include "gen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Speed of the loops: wide vectors; square roots and selects without errno and traps; operands of
 * different types may lie in one place one after the other. */
#define C_FLAGS                                                                                    \
    "-std=c11 -O3 -march=native -fno-math-errno -fno-trapping-math -fno-strict-aliasing -Wall"

enum { FLAGS_MAX = 1 << 16, OUTPUT_SHOWN = 2000 };

typedef VEC(char *) Words;

static void add_words(Arena *a, Words *w, const char *s) {
    while (*s) {
        size_t n = strcspn(s, " \t\n");
        if (n) VEC_PUSH(a, *w, arena_strn(a, s, n));
        s += n;
        s += strspn(s, " \t\n");
    }
}

static const char *link_flags(Arena *a, const CgOptions *o) {
    size_t n;
    bool cuda = o->target == TARGET_CUDA;
    const char *file = arena_printf(a, "%s/link-flags-%s.txt", o->lib_dir, cuda ? "cuda" : "cpu");
    char *s = file_read(a, file, FLAGS_MAX, &n);
    if (s) return s;
    return cuda ? "-ldtrt_cuda -ldtrt -lcjson -lz -fopenmp -ldl -lm"
                : "-ldtrt_cpu -ldtrt -ldnnl -lcjson -lz -fopenmp -lm";
}

void cg_print_makefile(Gen *g, Text *t) {
    Words w = {0};
    add_words(g->a, &w, link_flags(g->a, g->o));
    text_str(t, "# Builds the training program from this folder: make, or\n"
                "#   make DTRC_INCLUDE=/usr/include/dtrc DTRC_LIB=/usr/lib/dtrc\n");
    text_add(t, "DTRC_INCLUDE ?= %s\nDTRC_LIB ?= %s\n", g->o->include_dir, g->o->lib_dir);
    text_str(t, "CFLAGS ?= " C_FLAGS "\nLDLIBS =");
    for (uint32_t i = 0; i < w.n; i++) text_add(t, " %s", w.at[i]);
    text_str(
        t,
        "\n\ntrainer: program.c weights.bin\n"
        "\t$(CC) $(CFLAGS) -I\"$(DTRC_INCLUDE)\" program.c -o $@.tmp -L\"$(DTRC_LIB)\" $(LDLIBS)\n"
        "\tcat weights.bin >> $@.tmp\n"
        "\tmv $@.tmp $@\n\n"
        "clean:\n\trm -f trainer trainer.tmp\n");
}

/* The start of what the compiler said; with --emit, compiler.log keeps all of it. */
static void show_output(Arena *a, Diag *d, const char *log) {
    size_t n;
    char *s = file_read(a, log, 1 << 24, &n);
    if (!s || !n) return;
    if (n > OUTPUT_SHOWN) s[OUTPUT_SHOWN] = 0;
    diag_hint(d, "the compiler said:\n%s", s);
}

static bool compile(Arena *a, Diag *d, const char *dir, const char *tmp, const CgOptions *o) {
    Words w = {0};
    const char *cc = getenv("CC");
    add_words(a, &w, cc && *cc ? cc : "cc");
    if (!w.n) return diag_error(d, (Place){0}, "$CC is blank: expected a C compiler");
    add_words(a, &w, C_FLAGS);
    char *more[] = {arena_printf(a, "-I%s", o->include_dir), arena_printf(a, "%s/program.c", dir),
                    "-o", arena_str(a, tmp), arena_printf(a, "-L%s", o->lib_dir)};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) VEC_PUSH(a, w, more[i]);
    add_words(a, &w, link_flags(a, o));
    VEC_PUSH(a, w, NULL);
    const char *log = arena_printf(a, "%s/compiler.log", dir);
    int status = process_run(w.at, log, log);
    if (status == 0) {
        unlink(log);
        return true;
    }
    if (status < 0 || status == 127) {
        diag_error(d, (Place){.file = w.at[0]}, "cannot run the C compiler: %s",
                   status < 0 ? strerror(errno) : "not found");
        diag_hint(d, "install gcc, or name a compiler in the environment variable CC");
        return false;
    }
    diag_error(d, (Place){.file = more[1]}, "the C compiler failed with status %d", status);
    show_output(a, d, log);
    return false;
}

/* Appends file `from` to file `to`. False with errno set. */
static bool append(const char *from, const char *to) {
    static char buf[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_APPEND | O_CLOEXEC);
    bool ok = in >= 0 && out >= 0;
    ssize_t n = 0;
    while (ok && (n = read(in, buf, sizeof buf)) > 0)
        for (ssize_t at = 0, m; ok && at < n; at += m)
            ok = (m = write(out, buf + at, (size_t)(n - at))) >= 0;
    ok = ok && n == 0 && fsync(out) == 0;
    int why = errno;
    if (in >= 0) close(in);
    if (out >= 0 && close(out) && ok) return false;
    errno = why;
    return ok;
}

bool cg_build(Arena *a, Diag *d, const char *dir, const char *out, const CgOptions *o) {
    struct stat st;
    if (!stat(out, &st) && !S_ISREG(st.st_mode)) /* the rename would replace a device */
        return diag_error(d, (Place){.file = out}, "cannot write the executable: no regular file");
    const char *tmp = arena_printf(a, "%s.tmp%ld", out, (long)getpid());
    bool ok = compile(a, d, dir, tmp, o);
    if (ok && (!append(arena_printf(a, "%s/weights.bin", dir), tmp) || rename(tmp, out)))
        ok =
            diag_error(d, (Place){.file = out}, "cannot write the executable: %s", strerror(errno));
    if (!ok) unlink(tmp);
    return ok;
}
