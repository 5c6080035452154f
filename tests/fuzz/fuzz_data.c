/* fuzz_data.c - any bytes as a data file of a trainer: .npz with its arrays, .npy, gzip, IDX. What
 * the readers accept lies inside the file. */
#include "core.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t file_size(int fd) {
    struct stat s;
    if (fstat(fd, &s)) abort();
    return (uint64_t)s.st_size;
}

static void read_npy(int fd, uint64_t offset, uint64_t size) {
    NpyHeader h;
    if (dtrt_npy_read(fd, offset, size, "fuzz", &h) != ST_OK) return;
    if (h.offset > size || h.bytes > size - h.offset || h.rank > DTRT_MAX_RANK + 1) abort();
}

static void read_zip(int fd) {
    Zip z;
    if (dtrt_zip_read(fd, "fuzz", &z) != ST_OK) return;
    for (uint32_t i = 0; i < z.n; i++) {
        int part;
        uint64_t offset;
        if (z.entry[i].bytes > (1 << 20)) continue; /* would only cost time */
        if (dtrt_zip_open(fd, "fuzz", &z.entry[i], &part, &offset) != ST_OK) continue;
        if (offset + z.entry[i].bytes > file_size(part)) abort();
        read_npy(part, offset, z.entry[i].bytes);
        if (part != fd) close(part);
    }
    dtrt_zip_free(&z);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    if (fd < 0 && (fd = memfd_create("data", 0)) < 0) abort();
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    if (dtrt_is_zip(fd)) read_zip(fd);
    read_npy(fd, 0, size);
    if (dtrt_is_idx(fd)) {
        DataArray a;
        DataPart part;
        if (dtrt_idx_open(fd, "fuzz", &a, &part) == ST_OK &&
            part.offset + a.rows * a.row_bytes > size)
            abort();
    }
    return 0;
}
