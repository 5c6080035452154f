/* formats_test.c - data files that have no names in them (CIFAR, tokens, IDX), what a shuffled
 * epoch covers, and the bounds of synthetic data. */
#include "core.h"
#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

static int file_of(const void *bytes, size_t n, char *name) {
    int fd = memfd_create("test", 0);
    if (fd < 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n) exit(1);
    sprintf(name, "/proc/self/fd/%d", fd);
    return fd;
}

/* A program of one input and one target; the block holds them at 0 and 512 KiB. */
static DtrtTensor tensors[2];
static DtrtProgram program_of(DtrtType type, int rank, const int64_t *dim, int trank,
                              const int64_t *tdim, int64_t nclass) {
    tensors[0] =
        (DtrtTensor){.name = "x", .role = DTRT_INPUT, .type = type, .rank = rank, .conv = -1};
    tensors[1] =
        (DtrtTensor){.name = "y", .role = DTRT_TARGET, .type = DTRT_I64, .rank = trank, .conv = -1};
    tensors[1].offset = 512 << 10;
    memcpy(tensors[0].dim, dim, (size_t)rank * sizeof *dim);
    memcpy(tensors[1].dim, tdim, (size_t)trank * sizeof *tdim);
    return (DtrtProgram){
        .ntensor = 2, .tensor = tensors, .nclass = nclass, .loss_kind = "cross-entropy"};
}

static Runtime rt;
static uint8_t block[1 << 20];
static Status open_data(const DtrtProgram *p, const char *file) {
    memset(&rt, 0, sizeof rt);
    rt.p = rt.compiled = p;
    rt.block = block;
    rt.o.data = file;
    return dtrt_loader_open(&rt);
}
static const float *x_at(uint64_t i) {
    return (const float *)block + i;
}
static const int64_t *token(int tensor, uint64_t i) {
    return (const int64_t *)(block + tensors[tensor].offset) + i;
}

/* Record r: label(s), then 3072 bytes of value r. */
static uint8_t cifar_bytes[5 * 3074];
static void test_cifar(void) {
    char file[64];
    const int64_t dim[] = {2, 3, 32, 32}, tdim[] = {2};
    for (int r = 0; r < 5; r++) {
        memset(cifar_bytes + r * 3073, r, 3073);
        cifar_bytes[r * 3073] = (uint8_t)(9 - r);
    }
    int fd = file_of(cifar_bytes, 5 * 3073, file);
    DtrtProgram p = program_of(DTRT_F32, 4, dim, 1, tdim, 10);
    CHECK_EQ(open_data(&p, file), ST_OK);
    CHECK_EQ(rt.loader.rows, 5);
    CHECK_EQ(rt.loader.steps_per_epoch, 2);     /* one of five is left out */
    CHECK_EQ(dtrt_loader_stage(&rt, 1), ST_OK); /* records 2 and 3 */
    CHECK(*x_at(0) == 2 / 255.0f && *x_at(3071) == 2 / 255.0f && *x_at(3072) == 3 / 255.0f);
    CHECK(*token(1, 0) == 7 && *token(1, 1) == 6);
    dtrt_loader_free(&rt.loader);
    p.nclass = 9; /* label 9 is too large */
    CHECK_EQ(open_data(&p, file), ST_DATA);
    dtrt_loader_free(&rt.loader);
    close(fd);
    for (int r = 0; r < 4; r++) { /* CIFAR-100: coarse r, fine 50 + r */
        cifar_bytes[r * 3074] = (uint8_t)r;
        cifar_bytes[r * 3074 + 1] = (uint8_t)(50 + r);
    }
    fd = file_of(cifar_bytes, 4 * 3074, file);
    for (int coarse = 0; coarse < 2; coarse++) {
        p.nclass = coarse ? 20 : 100;
        CHECK_EQ(open_data(&p, file), ST_OK);
        CHECK_EQ(dtrt_loader_stage(&rt, 0), ST_OK);
        CHECK(*token(1, 0) == (coarse ? 0 : 50) && *token(1, 1) == (coarse ? 1 : 51));
        dtrt_loader_free(&rt.loader);
    }
    close(fd);
}

/* Ten tokens 100..109 in rows of four: two rows, the targets one token later. */
static void check_tokens(const void *bytes, size_t n) {
    char file[64];
    const int64_t dim[] = {2, 4};
    int fd = file_of(bytes, n, file);
    DtrtProgram p = program_of(DTRT_I64, 2, dim, 2, dim, 200);
    CHECK_EQ(open_data(&p, file), ST_OK);
    CHECK_EQ(rt.loader.rows, 2);
    CHECK_EQ(dtrt_loader_stage(&rt, 0), ST_OK);
    CHECK(*token(0, 0) == 100 && *token(0, 7) == 107 && *token(1, 0) == 101 && *token(1, 7) == 108);
    dtrt_loader_free(&rt.loader);
    p.nclass = 105;
    CHECK_EQ(open_data(&p, file), ST_DATA);
    dtrt_loader_free(&rt.loader);
    close(fd);
}

static void test_tokens(void) {
    uint16_t u16[10];
    uint32_t u32[10];
    int32_t llmc[256 + 10] = {20240520, 1, 10};
    for (uint32_t i = 0; i < 10; i++) u16[i] = (uint16_t)(u32[i] = 100 + i);
    check_tokens(u16, sizeof u16);
    check_tokens(u32, sizeof u32);
    memcpy(llmc + 256, u16, sizeof u16);
    check_tokens(llmc, 1024 + sizeof u16);
    char file[64];
    int64_t dim[] = {2, 4};
    int fd = file_of(llmc, 1024 + 18, file); /* its header says ten, nine are there */
    DtrtProgram p = program_of(DTRT_I64, 2, dim, 2, dim, 200);
    CHECK_EQ(open_data(&p, file), ST_DATA);
    dtrt_loader_free(&rt.loader);
    close(fd);
    llmc[0] = 20240801; /* the version of 32-bit tokens */
    llmc[1] = 7;
    memcpy(llmc + 256, u32, sizeof u32);
    check_tokens(llmc, 1024 + sizeof u32);
}

static void test_idx(void) {
    DataArray a;
    DataPart part;
    char file[64];
    const uint8_t good[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    for (size_t n = 0; n <= sizeof good; n++) {
        int fd = file_of(good, n, file);
        bool whole = n == sizeof good;
        if (dtrt_is_idx(fd))
            CHECK_EQ(dtrt_idx_open(fd, "test", &a, &part), whole ? ST_OK : ST_DATA);
        close(fd);
    }
    CHECK(a.rows == 2 && a.row_bytes == 3 && part.offset == 12);
    const uint8_t large[] = {0,   0,   8,   4,   255, 255, 255, 255, 255, 255,
                             255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    int fd = file_of(large, sizeof large, file); /* 2^128 bytes */
    CHECK_EQ(dtrt_idx_open(fd, "test", &a, &part), ST_DATA);
    close(fd);
}

/* 1003 labels, each its own number: an epoch of 500 batches of two shows all but one of them, once.
 */
static void test_shuffle(void) {
    enum { ROWS = 1003 };
    static uint8_t raw[8 + ROWS], seen[256];
    char file[64], spec[160];
    const int64_t dim[] = {2, 1}, tdim[] = {2};
    raw[2] = 8, raw[3] = 1, raw[6] = ROWS >> 8, raw[7] = ROWS & 255;
    for (int i = 0; i < ROWS; i++) raw[8 + i] = (uint8_t)(i % 251);
    int fd = file_of(raw, sizeof raw, file);
    sprintf(spec, "%s,%s", file, file);
    DtrtProgram p = program_of(DTRT_F32, 2, dim, 1, tdim, 251);
    memset(&rt, 0, sizeof rt);
    rt.p = rt.compiled = &p;
    rt.block = block;
    rt.o.data = spec;
    rt.o.shuffle = true;
    CHECK_EQ(dtrt_loader_open(&rt), ST_OK);
    int moved = 0;
    for (uint64_t step = 0; step < 501; step++) { /* 501 steps an epoch: 1003 = 501 * 2 + 1 */
        CHECK_EQ(dtrt_loader_stage(&rt, 501 + step), ST_OK); /* the second epoch */
        for (uint64_t i = 0; i < 2; i++) {
            int64_t label = *token(1, i);
            seen[label]++;
            moved += label != (int64_t)((2 * step + i) % 251);
            CHECK(*x_at(i) == (float)label / 255.0f); /* input and target go together */
        }
    }
    int total = 0, wrong = 0;
    for (int i = 0; i < 251; i++) { /* 1003 = 4*251 - 1: four of each, but three of the last */
        total += seen[i];
        wrong += seen[i] < (i == 250 ? 2 : 3) || seen[i] > 4;
    }
    CHECK_EQ(total, 1002);
    CHECK_EQ(wrong, 0);
    CHECK(moved > 900); /* about 1 of 251 stays by chance */
    dtrt_loader_free(&rt.loader);
    close(fd);
}

/* x -> Reshape -> indices of a Gather from a table of 17 rows: synthetic indices lie below 17. */
static void test_synthetic(void) {
    static const int32_t in0[] = {0}, out0[] = {1}, in1[] = {2, 1}, out1[] = {3};
    const DtrtRefNode node[] = {{.op = "Reshape", .nin = 1, .nout = 1, .in = in0, .out = out0},
                                {.op = "Gather", .nin = 2, .nout = 1, .in = in1, .out = out1}};
    const DtrtRefValue value[] = {{.tensor = 0, .rank = 1, .dim = {64}},
                                  {.tensor = -1, .rank = 2, .dim = {8, 8}},
                                  {.tensor = -1, .rank = 2, .dim = {17, 4}},
                                  {.tensor = -1, .rank = 3, .dim = {8, 8, 4}}};
    const int64_t dim[] = {64};
    DtrtProgram p = program_of(DTRT_I64, 1, dim, 1, dim, 3);
    p.nrefnode = 2, p.refnode = node, p.nrefvalue = 4, p.refvalue = value;
    CHECK_EQ(dtrt_synthetic_limit(&p, 0), 17);
    CHECK_EQ(dtrt_synthetic_limit(&p, 1), 3);
    memset(&rt, 0, sizeof rt);
    rt.p = rt.compiled = &p;
    rt.block = block;
    rt.o.synthetic = true;
    CHECK_EQ(dtrt_loader_open(&rt), ST_OK);
    CHECK_EQ(dtrt_loader_stage(&rt, 0), ST_OK);
    int64_t most = 0, least = 99, label = 0;
    for (uint64_t i = 0; i < 64; i++) {
        int64_t v = *token(0, i);
        most = v > most ? v : most;
        least = v < least ? v : least;
        label = *token(1, i) > label ? *token(1, i) : label;
    }
    CHECK(least >= 0 && most < 17 && most > 10 && label == 2);
    dtrt_loader_free(&rt.loader);
}

int main(void) {
    test_cifar();
    test_tokens();
    test_idx();
    test_shuffle();
    test_synthetic();
    return test_end();
}
