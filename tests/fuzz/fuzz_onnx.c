/* fuzz_onnx.c - any bytes as an ONNX file: an import either fails with a message or gives a graph
 * that the verifier accepts. Then the file that --export would write, zeros for weights, can be
 * imported, too. The file has no name in a folder, so external data is never found. */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { EXPORTED_MAX = 1 << 24 };

static const OnnxOptions options = {.batch = 2, .dropout = true, .inference_default = true};

static Graph *import(Arena *a, const void *data, size_t size, OnnxInfo *info, const char **path) {
    static int fd = -1;
    static char name[32];
    if (fd < 0) {
        fd = memfd_create("model", 0);
        if (fd < 0) abort();
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    Diag d;
    diag_init(&d, a, NULL);
    *path = name;
    Graph *g = onnx_import(a, &d, name, &options, info);
    if (!g && !d.errors) abort(); /* refused without a word */
    if (g && !ir_verify(&d, g)) {
        fputs(d.log.at, stderr);
        abort();
    }
    return g;
}

/* The pieces of the exported file in one; NULL: there are none, or they are too large for this. */
static uint8_t *exported(Arena *a, const OnnxExport *x, size_t *size) {
    *size = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->piece[i].n > EXPORTED_MAX - *size) return NULL;
        *size += x->piece[i].n;
    }
    uint8_t *all = arena_alloc(a, *size + 1), *at = all;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->piece[i].value == NO_ID) memcpy(at, x->piece[i].bytes, x->piece[i].n);
        at += x->piece[i].n;
    }
    return x->n ? all : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Arena *a = arena_new();
    OnnxInfo info, again;
    const char *path;
    Graph *g = import(a, data, size, &info, &path);
    if (g) {
        OnnxExport x;
        size_t n;
        onnx_export(a, path, &info, g, &x);
        if (!x.n && !x.none) abort(); /* refused without a word */
        uint8_t *bytes = exported(a, &x, &n);
        if (bytes && !import(a, bytes, n, &again, &path)) abort();
    }
    arena_free(a);
    return 0;
}
