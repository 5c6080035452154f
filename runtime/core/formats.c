/* formats.c - raw data files without names: IDX (MNIST), CIFAR-10/100 binary, token files (llm.c's
 * too). Each becomes strided rows, so that the loader knows one shape of file only: a CIFAR record
 * is a label row and an image row with one stride; a token file is rows of T tokens for the input
 * and the same rows one token later for the target. */
#include "core.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t file_size(int fd) {
    struct stat s;
    return fstat(fd, &s) ? 0 : (uint64_t)s.st_size;
}

static bool is_int(DtrtType t) {
    return t == DTRT_I64 || t == DTRT_I32;
}

/* ---- IDX: 0 0 type rank, then big-endian 32-bit sizes ------------------------------------- */

bool dtrt_is_idx(int fd) {
    uint8_t m[4];
    return pread(fd, m, 4, 0) == 4 && !m[0] && !m[1] && m[2] >= 8 && m[2] <= 14 && m[3] >= 1 &&
           m[3] <= 4;
}

Status dtrt_idx_open(int fd, const char *file, DataArray *a, DataPart *part) {
    uint8_t head[4 + 4 * 4];
    uint64_t bytes = 1, size = file_size(fd);
    if (pread(fd, head, 4, 0) != 4 || pread(fd, head + 4, 4u * head[3], 4) != 4 * head[3]) {
        dtrt_error("%s: an IDX file that ends within its header", file);
        return ST_DATA;
    }
    if (head[2] != 8 && head[2] != 9) {
        dtrt_error("%s: an IDX file of element type 0x%02x; uint8 (0x08) is supported", file,
                   head[2]);
        return ST_DATA;
    }
    *a = (DataArray){.type = head[2] == 8 ? D_U8 : D_I8, .rank = head[3] - 1, .raw = true};
    bool ok = true;
    for (int i = 0; i < head[3]; i++) {
        const uint8_t *q = head + 4 + 4 * i;
        uint32_t n = (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
        ok = ok && dtrt_mul_u64(bytes, n, &bytes);
        if (i)
            a->dim[i - 1] = n;
        else
            a->rows = n;
    }
    uint64_t start = 4 + 4 * (uint64_t)head[3];
    if (!ok || bytes > size - start) {
        dtrt_error("%s: an IDX file that is cut short: %" PRIu64 " bytes of data after the header",
                   file, size - start);
        return ST_DATA;
    }
    a->stride = a->row_bytes = a->rows ? bytes / a->rows : 0;
    *part = (DataPart){fd, start, a->rows};
    return ST_OK;
}

/* ---- CIFAR: records of one label (CIFAR-100: coarse and fine) and 3x32x32 bytes ------------ */

#define CIFAR_PIXELS 3072

static uint64_t cifar_labels(const DtrtProgram *p, int fd) {
    uint64_t size = file_size(fd);
    bool ten = size % (CIFAR_PIXELS + 1) == 0, hundred = size % (CIFAR_PIXELS + 2) == 0;
    if (!size) return 0;
    if (ten && hundred) return p->nclass == 20 || p->nclass == 100 ? 2 : 1;
    return ten ? 1 : hundred ? 2 : 0;
}

bool dtrt_is_cifar(const DtrtProgram *p, int fd) {
    const DtrtTensor *x = dtrt_program_input(p), *y = dtrt_program_target(p);
    return x && y && x->type == DTRT_F32 && x->rank == 4 && x->dim[1] == 3 && x->dim[2] == 32 &&
           x->dim[3] == 32 && is_int(y->type) && cifar_labels(p, fd);
}

void dtrt_cifar_open(const DtrtProgram *p, int fd, DataArray a[2], DataPart part[2]) {
    uint64_t labels = cifar_labels(p, fd), stride = labels + CIFAR_PIXELS;
    uint64_t rows = file_size(fd) / stride;
    uint64_t fine = labels == 2 && p->nclass != 20; /* 20: the coarse labels */
    a[0] = (DataArray){.type = D_U8, .rank = 3, .dim = {3, 32, 32}, .row_bytes = CIFAR_PIXELS};
    a[1] = (DataArray){.type = D_U8, .row_bytes = 1};
    for (int i = 0; i < 2; i++) {
        a[i].raw = true;
        a[i].rows = rows;
        a[i].stride = stride;
    }
    part[0] = (DataPart){fd, labels, rows};
    part[1] = (DataPart){fd, fine, rows};
}

/* ---- token files --------------------------------------------------------------------------- */

#define LLMC_HEADER 1024 /* 256 int32: magic, version, number of tokens */

typedef struct {
    uint64_t start, count;
    DataType type;
} Tokens;

bool dtrt_is_tokens(const DtrtProgram *p, int fd) {
    const DtrtTensor *x = dtrt_program_input(p), *y = dtrt_program_target(p);
    return x && y && is_int(x->type) && is_int(y->type) && x->rank == 2 && y->rank == 2 &&
           x->dim[1] == y->dim[1] && file_size(fd) >= 4;
}

/* Without a header the width shows in the data: the upper halves of 32-bit tokens are 0, or 1 in
 * the vocabularies that need them. */
static DataType guess_width(int fd) {
    uint16_t buf[2048];
    ssize_t n = pread(fd, buf, sizeof buf, 0) / 4;
    for (ssize_t i = 0; i < n; i++)
        if (buf[2 * i + 1] > 3) return D_U16;
    return n ? D_U32 : D_U16;
}

static Status read_tokens(int fd, const char *file, Tokens *t) {
    int32_t head[3] = {0};
    uint64_t size = file_size(fd);
    bool v1 = false, v7 = false;
    if (size >= LLMC_HEADER && pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head) {
        v1 = head[0] == 20240520 && head[1] == 1;
        v7 = head[0] == 20240801 && head[1] == 7;
    }
    t->start = v1 || v7 ? LLMC_HEADER : 0;
    t->type = v1 ? D_U16 : v7 ? D_U32 : guess_width(fd);
    t->count = (size - t->start) / dtrt_data_size(t->type);
    if (!t->start) return ST_OK;
    if (head[2] < 0 || (uint64_t)head[2] > t->count) {
        dtrt_error("%s: a token file that is cut short: its header says %d tokens, %" PRIu64
                   " are there",
                   file, head[2], t->count);
        return ST_DATA;
    }
    t->count = (uint64_t)head[2];
    return ST_OK;
}

Status dtrt_tokens_open(const DtrtProgram *p, int fd, const char *file, DataArray a[2],
                        DataPart part[2]) {
    Tokens t;
    int64_t length = dtrt_program_input(p)->dim[1];
    Status st = read_tokens(fd, file, &t);
    if (st) return st;
    uint64_t elem = dtrt_data_size(t.type), row = (uint64_t)length * elem;
    uint64_t rows = t.count ? (t.count - 1) / (uint64_t)length : 0;
    for (uint64_t i = 0; i < 2; i++) {
        a[i] = (DataArray){.type = t.type,
                           .rank = 1,
                           .dim = {length},
                           .rows = rows,
                           .row_bytes = row,
                           .stride = row,
                           .raw = true};
        part[i] = (DataPart){fd, t.start + i * elem, rows};
    }
    dtrt_note("%s: %" PRIu64 " %s tokens, %" PRIu64 " rows of %lld", file, t.count,
              dtrt_data_type_name(t.type), rows, (long long)length);
    return ST_OK;
}
