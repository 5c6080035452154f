/* load.c - PTX text -> C (ptx2c) -> shared object ($CC) -> SimtModule. Objects are kept in a folder
 * under a hash of all that they were made of, when one is given. Each load opens a copy of its own,
 * so that the variables of a module begin with their first values. */
#include "simt.h"
#include "ptx2c.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SIMT_INCLUDE_DIR
#error "SIMT_INCLUDE_DIR: the folder of simt_device.h"
#endif

/* Opened modules, for simt_unload. */
typedef struct Opened Opened;
struct Opened {
    SimtModule *module;
    void *handle;
    Opened *next;
};
static Opened *opened;

/* FNV-1a, 64 bits (Fowler, Noll, Vo; RFC draft-eastlake-fnv). */
static uint64_t hash(uint64_t h, const void *bytes, size_t n) {
    for (const uint8_t *p = bytes; n; n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

static bool failed(char *message, size_t size, const char *what, const char *detail) {
    snprintf(message, size, "%s: %s", what, detail);
    return false;
}

static const char *compiler(void) {
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

/* Where simt_device.h is: in the sources that this was built from, or, when it runs elsewhere, in
 * those that it is run in. */
static const char *include_dir(void) {
    return access(SIMT_INCLUDE_DIR "/simt_device.h", R_OK) ? "tests/cudasim" : SIMT_INCLUDE_DIR;
}

static bool compile(Arena *a, const char *c_file, const char *object, unsigned bodies,
                    char *message, size_t size) {
    char *define = arena_printf(a, "-DSIMT_BODIES=%u", bodies);
    char *log = arena_printf(a, "%s.log", object);
    /* No contraction: fma is where PTX says so. Whole registers: no fast-math of any kind. */
    char *argv[] = {arena_str(a, compiler()),
                    "-std=gnu11",
                    "-w",
                    "-O1",
                    "-ffp-contract=off",
                    "-fno-math-errno",
                    "-fno-trapping-math",
                    "-march=native",
                    "-fPIC",
                    "-shared",
                    define,
                    arena_printf(a, "-I%s", include_dir()),
                    "-o",
                    arena_str(a, object),
                    arena_str(a, c_file),
                    "-lm",
                    NULL};
    int status = process_run(argv, log, log);
    if (status) {
        size_t n;
        char *text = file_read(a, log, (size_t)1 << 20, &n);
        failed(message, size, status < 0 ? "cannot run the C compiler" : "the C compiler failed",
               status < 0 ? strerror(errno)
               : text     ? text
                          : "");
    }
    unlink(log);
    return !status;
}

/* Made under another name and renamed: others may make the same object at the same time. */
static bool make_object(Arena *a, const Text *c, unsigned bodies, const char *object, char *message,
                        size_t size) {
    char *c_file = arena_printf(a, "%s.%ld.c", object, (long)getpid());
    char *made = arena_printf(a, "%s.%ld.so", object, (long)getpid());
    if (!file_write(c_file, c->at, c->n)) return failed(message, size, c_file, strerror(errno));
    bool ok = compile(a, c_file, made, bodies, message, size);
    if (!getenv("SIMT_KEEP_C")) unlink(c_file);
    if (ok && rename(made, object)) ok = failed(message, size, object, strerror(errno));
    return ok;
}

static SimtModule *open_object(Arena *a, const char *object, char *message, size_t size) {
    static unsigned copies;
    size_t n;
    char *bytes = file_read(a, object, (size_t)1 << 30, &n);
    char *copy = arena_printf(a, "%s.%ld.%u.open", object, (long)getpid(), copies++);
    if (!bytes || !file_write(copy, bytes, n)) {
        failed(message, size, copy, strerror(errno));
        return NULL;
    }
    void *handle = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
    unlink(copy);
    const void *module = handle ? dlsym(handle, "simt_module") : NULL;
    Opened *o = module ? malloc(sizeof *o) : NULL;
    if (!o) {
        failed(message, size, object, handle ? "not a module" : dlerror());
        if (handle) dlclose(handle);
        return NULL;
    }
    SimtModule *m;
    memcpy(&m, &module, sizeof m);
    *o = (Opened){m, handle, opened};
    opened = o;
    return m;
}

static uint64_t hash_header(Arena *a, uint64_t h, const char *path) {
    size_t n = 0;
    const char *bytes = file_read(a, path, (size_t)1 << 20, &n);
    return hash(h, bytes ? bytes : "", n);
}

/* Of all that the object depends on. */
static uint64_t object_hash(Arena *a, const Text *c, unsigned bodies) {
    uint64_t h = hash(0xcbf29ce484222325u, c->at, c->n);
    h = hash(h, &bodies, sizeof bodies);
    h = hash(h, compiler(), strlen(compiler()));
    h = hash_header(a, h, arena_printf(a, "%s/simt.h", include_dir()));
    return hash_header(a, h, arena_printf(a, "%s/simt_device.h", include_dir()));
}

static SimtModule *load(Arena *a, const char *ptx, unsigned bodies, const char *dir, bool keep,
                        char *message, size_t size) {
    Text c;
    text_init(&c, a);
    if (!ptx2c(a, ptx, &c, message, size)) return NULL;
    char *object =
        arena_printf(a, "%s/%016llx.so", dir, (unsigned long long)object_hash(a, &c, bodies));
    SimtModule *m = NULL;
    if (access(object, R_OK) == 0 || make_object(a, &c, bodies, object, message, size))
        m = open_object(a, object, message, size);
    if (!keep) unlink(object);
    return m;
}

SimtModule *simt_load(const char *ptx, unsigned bodies, const char *folder, char *message,
                      size_t size) {
    char temporary[] = "/tmp/simt-XXXXXX";
    const char *dir = folder ? folder : mkdtemp(temporary);
    if (size) message[0] = 0;
    if (!dir) {
        failed(message, size, temporary, strerror(errno));
        return NULL;
    }
    Arena *a = arena_new();
    SimtModule *m = load(a, ptx, bodies, dir, folder != NULL, message, size);
    arena_free(a);
    if (!folder) rmdir(dir);
    return m;
}

void simt_unload(SimtModule *module) {
    for (Opened **o = &opened; *o; o = &(*o)->next) {
        if ((*o)->module != module) continue;
        Opened *gone = *o;
        *o = gone->next;
        dlclose(gone->handle);
        free(gone);
        return;
    }
}
