/* core_test.c - the runtime's parts that need no program: digests, JSON, files that appear whole,
 * .npy and zip readers on good and hostile bytes, conversions. */
#include "core.h"
#include "test.h"

#include <fcntl.h>
#include <stdarg.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static char folder[] = "/tmp/core_test-XXXXXX";

static int file_of(const void *bytes, size_t n) {
    int fd = memfd_create("test", 0);
    if (fd < 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n) exit(1);
    return fd;
}

/* ---- sha256: FIPS 180-2, appendix B ---- */
static void sha_of(const char *s, char hex[65]) {
    Sha256 h;
    dtrt_sha256_init(&h);
    for (size_t i = 0; s[i]; i++) dtrt_sha256_add(&h, s + i, 1); /* byte by byte */
    dtrt_sha256_hex(&h, hex);
}

static void test_sha256(void) {
    char hex[65];
    sha_of("abc", hex);
    CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha_of("", hex);
    CHECK_STR(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", hex);
    CHECK_STR(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/* ---- json ---- */
static void test_json(void) {
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    /* quote, backslash, newline, escape; two-byte letter; a lone continuation byte; a surrogate (3
     * bytes) */
    dtrt_json_string(f, "a\"\\\n\x1b\xc3\xa4\x80\xed\xa0\x80z");
    dtrt_json_float(f, 0.1);
    dtrt_json_float(f, (double)NAN);
    fclose(f);
    CHECK_STR(text, "\"a\\\"\\\\\\u000a\\u001b\xc3\xa4\\ufffd\\ufffd\\ufffd\\ufffdz\"0.1null");
    free(text);
}

/* ---- npy ---- */
static Status npy(const char *dict, uint64_t data, NpyHeader *h) {
    uint8_t buf[1024] = "\x93NUMPY\x01";
    size_t n = strlen(dict);
    buf[8] = (uint8_t)n;
    buf[9] = (uint8_t)(n >> 8);
    memcpy(buf + 10, dict, n);
    int fd = file_of(buf, 10 + n + data);
    Status st = dtrt_npy_read(fd, 0, 10 + n + data, "test.npy", h);
    close(fd);
    return st;
}

static void test_npy(void) {
    NpyHeader h;
    CHECK_EQ(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24, &h), ST_OK);
    CHECK(h.type == D_F32 && h.rank == 2 && h.dim[0] == 2 && h.dim[1] == 3 && h.bytes == 24);
    CHECK_EQ(npy("{\"shape\":(),\"descr\":\"|u1\",\"fortran_order\":False}", 1, &h), ST_OK);
    CHECK(h.type == D_U8 && h.rank == 0 && h.bytes == 1);
    static const char *const bad[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", /* 32 bytes, 24 are there */
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", /* 2^62 *
                                                                                            16 */
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
        "{'descr': '<f4', 'fortran_order': False, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
        "{'descr': '<f4",
        "{{{{{{{{",
        "",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_EQ(npy(bad[i], 24, &h), ST_DATA);
    uint8_t cut[] = "\x93NUMPY\x01\x00\xff\xff{"; /* a header of 65535 bytes, one is there */
    int fd = file_of(cut, sizeof cut);
    for (uint64_t n = 0; n <= sizeof cut; n++)
        CHECK_EQ(dtrt_npy_read(fd, 0, n, "cut", &h), ST_DATA);
    close(fd);
}

/* ---- zip: one stored entry "a.npy" of 4 bytes, written out by hand ---- */
static size_t put(uint8_t *at, const char *format, ...) {
    va_list ap;
    uint8_t *p = at;
    va_start(ap, format);
    for (const char *f = format; *f; f++) { /* 2, 4: little-endian numbers of so many bytes */
        unsigned v = va_arg(ap, unsigned);
        for (int i = 0; i < *f - '0'; i++) *p++ = (uint8_t)(v >> (8 * i));
    }
    va_end(ap);
    return (size_t)(p - at);
}

static size_t make_zip(uint8_t *z, uint32_t crc, uint32_t packed, uint32_t header,
                       uint32_t directory) {
    size_t n = put(z, "42222244422", 0x04034b50, 20, 0, 0, 0, 0, crc, 4, 4, 5, 0);
    memcpy(z + n, "a.npyDATA", 9);
    n += 9;
    size_t at = n;
    n += put(z + n, "42222224442222244", 0x02014b50, 20, 20, 0, 0, 0, 0, crc, packed, packed, 5, 0,
             0, 0, 0, 0, header);
    memcpy(z + n, "a.npy", 5);
    n += 5;
    n += put(z + n, "42222442", 0x06054b50, 0, 0, 1, 1, (unsigned)(n - at),
             directory ? directory : (unsigned)at, 0);
    return n;
}

static Status open_first(const uint8_t *bytes, size_t n, uint64_t *offset) {
    Zip z;
    int fd = file_of(bytes, n), out;
    Status st = dtrt_zip_read(fd, "test.npz", &z);
    if (!st && !z.n) st = ST_DATA;
    if (!st) st = dtrt_zip_open(fd, "test.npz", &z.entry[0], &out, offset);
    if (z.n) dtrt_zip_free(&z);
    close(fd);
    return st;
}

static void test_zip(void) {
    uint8_t z[256];
    uint64_t offset = 0;
    uint32_t crc = 0x9b661ed7u; /* of "DATA" */
    size_t n = make_zip(z, crc, 4, 0, 0);
    CHECK_EQ(open_first(z, n, &offset), ST_OK);
    CHECK_EQ(offset, 35); /* header of 30, name of 5 */
    for (size_t cut = 0; cut < n; cut++) CHECK_EQ(open_first(z, cut, &offset), ST_DATA);
    make_zip(z, crc ^ 1, 4, 0, 0);
    CHECK_EQ(open_first(z, n, &offset), ST_DATA);
    make_zip(z, crc, 4000000000u, 0, 0); /* larger than the file */
    CHECK_EQ(open_first(z, n, &offset), ST_DATA);
    make_zip(z, crc, 4, 1000000, 0); /* header outside */
    CHECK_EQ(open_first(z, n, &offset), ST_DATA);
    make_zip(z, crc, 4, 0, 4000000000u); /* directory outside */
    CHECK_EQ(open_first(z, n, &offset), ST_DATA);
    make_zip(z, crc, UINT32_MAX, 0, 0); /* says 64-bit sizes, has none */
    CHECK_EQ(open_first(z, n, &offset), ST_DATA);
}

/* ---- files that appear whole ---- */
static void path_of(char *buf, const char *name) {
    sprintf(buf, "%s/%s", folder, name);
}

static long size_of(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    fclose(f);
    return n;
}

static Status write_file(const char *path, uint64_t bytes) {
    static const char block[5000];
    OutFile f;
    Status st = dtrt_out_open(&f, path);
    if (st) {
        dtrt_out_abort(&f);
        return st;
    }
    for (uint64_t n; bytes; bytes -= n) {
        n = bytes < sizeof block ? bytes : sizeof block;
        dtrt_out_write(&f, block, n);
    }
    return dtrt_out_commit(&f);
}

static void test_outfile(void) {
    char path[64], tmp[96];
    struct rlimit old, low = {20000, 20000};
    path_of(path, "out");
    CHECK_EQ(write_file(path, 100), ST_OK);
    CHECK_EQ(size_of(path), 100);
    CHECK_EQ(write_file(path, 200000), ST_OK); /* more than the buffer, and replaces */
    CHECK_EQ(size_of(path), 200000);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    low.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &low);
    CHECK_EQ(write_file(path, 300000), ST_MACHINE); /* as on a full disk */
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_EQ(size_of(path), 200000); /* the earlier file is whole */
    sprintf(tmp, "%s.tmp-%ld", path, (long)getpid());
    CHECK_EQ(size_of(tmp), -1); /* nothing is left */
    CHECK_EQ(write_file("/dev/full", 100), ST_MACHINE);
    CHECK_EQ(dtrt_out_check("/dev/full"), ST_OK); /* and it is still a device */
    CHECK_EQ(write_file(folder, 100), ST_MACHINE);
    path_of(path, "no/such/folder");
    CHECK_EQ(dtrt_out_check(path), ST_MACHINE);
    path_of(path, "new");
    CHECK_EQ(dtrt_out_check(path), ST_OK);
    CHECK_EQ(size_of(path), -1); /* a check leaves nothing behind */
}

/* ---- conversions ---- */
static void test_convert(void) {
    uint8_t u[3] = {0, 51, 255};
    float f[3];
    int64_t i[3], large[2] = {5, INT64_MAX};
    int32_t small[2];
    double d[2] = {0.1, 1e300};
    dtrt_convert(D_U8, u, DTRT_F32, f, 3, true);
    CHECK(f[0] == 0 && f[1] == 0.2f && f[2] == 1); /* 51/255 */
    dtrt_convert(D_U8, u, DTRT_F32, f, 3, false);
    CHECK(f[1] == 51);
    dtrt_convert(D_U8, u, DTRT_I64, i, 3, false);
    CHECK(i[0] == 0 && i[2] == 255);
    dtrt_convert(D_I64, large, DTRT_I32, small, 2, false);
    CHECK(small[0] == 5 && small[1] == INT32_MAX);
    dtrt_convert(D_F64, d, DTRT_F32, f, 1, false);
    CHECK(f[0] == 0.1f);
}

static void test_texts(void) {
    CHECK_STR(dtrt_name_str("a\"\x1b[2J"), "\"a\\\"\\x1b[2J\"");
    CHECK_STR(dtrt_size_str(1536), "1.50 KiB");
    CHECK_STR(dtrt_shape_str(2, (int64_t[]){3, 32}, "N"), "[N,3,32]");
    CHECK_STR(dtrt_shape_str(0, NULL, NULL), "[]");
    float x[3] = {0, 1, -INFINITY};
    CHECK(dtrt_all_finite(x, 2) && !dtrt_all_finite(x, 3));
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    test_sha256();
    test_json();
    test_npy();
    test_zip();
    test_outfile();
    test_convert();
    test_texts();
    char path[64];
    path_of(path, "out");
    unlink(path);
    rmdir(folder);
    return test_end();
}
