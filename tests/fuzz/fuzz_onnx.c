/* fuzz_onnx.c - any bytes as an ONNX file: an import either fails with a message or gives a graph
 * that the verifier accepts. The file has no name in a folder, so external data is never found. */
#include "onnx.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("model", 0);
        if (fd < 0) abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    OnnxOptions o = {.batch = 2, .dropout = true, .inference_default = true};
    OnnxInfo info;
    Graph *g = onnx_import(a, &d, path, &o, &info);
    if (!g && !d.errors) abort(); /* refused without a word */
    if (g && !ir_verify(&d, g)) {
        fputs(d.log.at, stderr);
        abort();
    }
    arena_free(a);
    return 0;
}
