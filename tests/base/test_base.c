/* test_base.c - arena, arrays, maps, checked sizes, text escapes, files, diagnostics. */
#include "base.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sys/stat.h>
#include <unistd.h>

static jmp_buf oom;

static void on_oom(size_t bytes) {
    (void)bytes;
    longjmp(oom, 1);
}

static bool is_zero(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void test_arena(void) {
    Arena *a = arena_new();
    for (size_t n = 0; n < 200; n++) {
        char *p = arena_alloc(a, n);
        CHECK_EQ((uintptr_t)p % 16, 0);
        CHECK(is_zero(p, n));
        memset(p, 1, n);
    }
    /* In place, then past the end of the block, then behind another piece: bytes kept, tail zero.
     */
    char *p = arena_alloc(a, 5);
    memcpy(p, "abcd", 5);
    char *q = arena_grow(a, p, 5, 100);
    CHECK(q == p);
    CHECK(is_zero(q + 5, 95));
    q = arena_grow(a, q, 100, 1 << 20);
    CHECK_STR(q, "abcd");
    CHECK(is_zero(q + 5, (1 << 20) - 5));
    arena_alloc(a, 1);
    char *r = arena_grow(a, q, 1 << 20, (1 << 20) + 8);
    CHECK(r != q);
    CHECK_STR(r, "abcd");
    CHECK_STR(arena_printf(a, "%s-%d", "x", 7), "x-7");
    CHECK_STR(arena_strn(a, "hello", 2), "he");
    CHECK(arena_bytes(a) > 1 << 21);
    CHECK(arena_owns(a, p) && arena_owns(a, q + 1000) && arena_owns(a, r + (1 << 20) + 7));
    CHECK(!arena_owns(a, "abc") && !arena_owns(a, NULL) && !arena_owns(a, r + (1 << 23)));
    VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < 1000; i++) VEC_PUSH(a, v, i * i);
    CHECK_EQ(v.n, 1000);
    for (uint32_t i = 0; i < 1000; i++) CHECK(v.at[i] == i * i);
    arena_free(a);
}

/* The handler gets control on a failed request and on sizes that overflow. */
static void test_oom(void) {
    Arena *a = arena_new();
    int caught = 0;
    arena_on_oom(on_oom);
    arena_fail_at(2);
    if (setjmp(oom))
        caught |= 1;
    else {
        arena_alloc(a, 1 << 20);
        arena_alloc(a, 1 << 24);
    }
    arena_fail_at(0);
    if (setjmp(oom))
        caught |= 2;
    else
        checked_array(UINT64_MAX / 4, 8);
    if (setjmp(oom))
        caught |= 4;
    else
        arena_alloc(a, SIZE_MAX - 3);
    CHECK_EQ(caught, 7);
    arena_on_oom(NULL);
    arena_free(a);
}

static void test_map(void) {
    Arena *a = arena_new();
    Map *m = map_new(a);
    char key[16];
    for (uint32_t i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "k%u", i * 7);
        CHECK(map_put(m, key, i));
    }
    CHECK(!map_put(m, "k7", 99));
    CHECK_EQ(map_get(m, "k7"), 99);
    CHECK_EQ(map_get(m, "k14"), 2);
    CHECK_EQ(map_get(m, "k1"), NO_ID);
    CHECK_EQ(map_count(m), 5000);
    Bits b = bits_new(a, 65);
    bits_set(b, 64);
    CHECK(bits_get(b, 64) && !bits_get(b, 63));
    bits_clear(b, 64);
    CHECK(!bits_get(b, 64));
    arena_free(a);
}

static void test_checked(void) {
    static const struct {
        const char *s;
        uint64_t bytes;
        bool ok;
    } row[] = {
        {"1234", 1234, true},
        {"4G", 4294967296, true},
        {"512M", 536870912, true},
        {"100k", 102400, true},
        {"1.5G", 1610612736, true}, /* 3 * 2^29 */
        {"0.1K", 102, true},        /* 102.4 */
        {"16777215T", 18446742974197923840u, true},
        {"16777216T", 0, false}, /* 2^64 */
        {"18446744073709551616", 0, false},
        {"", 0, false},
        {"G", 0, false},
        {"-1", 0, false},
        {"1.5", 0, false},
        {"1.G", 0, false},
        {".5G", 0, false},
        {"1e9", 0, false},
        {"4 G", 0, false},
        {"4GB", 0, false},
        {"0x10", 0, false},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint64_t got = 0;
        bool ok = parse_bytes(row[i].s, &got);
        CHECK_EQ(ok, row[i].ok);
        if (ok) CHECK(got == row[i].bytes);
    }
    char buf[32];
    CHECK_STR(format_bytes(buf, 1023), "1023 B");
    CHECK_STR(format_bytes(buf, 1536), "1.50 KiB");
    CHECK_STR(format_bytes(buf, 4198320537), "3.91 GiB");
    CHECK_STR(format_bytes(buf, UINT64_MAX), "16.00 EiB");
    uint64_t x;
    CHECK(!checked_mul(1ull << 32, 1ull << 32, &x));
    CHECK(!checked_add(UINT64_MAX, 1, &x));
    CHECK_EQ(round_up(257, 256), 512);
}

static const char *escaped(Arena *a, void (*add)(Text *, const char *), const char *s) {
    Text t;
    text_init(&t, a);
    text_str(&t, "");
    add(&t, s);
    return t.at;
}

static void test_text(void) {
    Arena *a = arena_new();
    CHECK_STR(escaped(a, text_quote, "a\"b\\c\n1?\?/"), "\"a\\\"b\\\\c\\0121\\?\\?/\"");
    CHECK_STR(escaped(a, text_quote, "\xc3\xa9"), "\"\\303\\251\"");
    CHECK_STR(escaped(a, text_json, "a\"b\\\n\xc3\xa9\xff"),
              "\"a\\\"b\\\\\\u000a\xc3\xa9\\ufffd\"");
    CHECK_STR(escaped(a, text_comment, "x*/ y\\\n\xc3\xa9?\?/"), "x_/ y____?_/");
    Text t;
    text_init(&t, a);
    text_char(&t, '*');
    text_comment(&t, "/");
    CHECK_STR(t.at, "* /");
    for (int i = 0; i < 1000; i++) text_add(&t, "%d,", i);
    CHECK_EQ(t.n, 3 + 10 * 2 + 90 * 3 + 900 * 4);
    CHECK_EQ(strlen(t.at), t.n);
    uint32_t c;
    CHECK_EQ(utf8_length("\xe2\x82\xac", &c), 3); /* the euro sign */
    CHECK_EQ(c, 0x20ac);
    CHECK_EQ(utf8_length("\xc0\x80", &c), 0);         /* overlong */
    CHECK_EQ(utf8_length("\xed\xa0\x80", &c), 0);     /* surrogate */
    CHECK_EQ(utf8_length("\xf4\x90\x80\x80", &c), 0); /* past U+10FFFF */
    CHECK_EQ(utf8_length("\xe2\x82", &c), 0);         /* cut off */
    arena_free(a);
}

static void test_file(const char *folder) {
    Arena *a = arena_new();
    const char *path = arena_printf(a, "%s/test_base.%ld", folder, (long)getpid());
    size_t n = 0;
    CHECK(file_write(path, "abc", 3));
    CHECK(file_write(path, "hello", 5));
    char *s = file_read(a, path, 5, &n);
    CHECK(s && n == 5 && !strcmp(s, "hello"));
    errno = 0;
    CHECK(!file_read(a, path, 4, &n) && errno == EFBIG);
    CHECK(!file_read(a, folder, 100, &n) && errno == EISDIR);
    CHECK(!file_read(a, arena_printf(a, "%s.none", path), 100, &n) && errno == ENOENT);
    CHECK(!file_write(arena_printf(a, "%s.none/x", path), "", 0) && errno == ENOENT);
    CHECK(!file_can_write(arena_printf(a, "%s.none/x", path)) && errno == ENOENT);
    CHECK(file_can_write(path) && file_can_write("/dev/null"));
    /* A pipe stays one, and gets the bytes; without a reader that is an error. */
    const char *fifo = arena_printf(a, "%s.pipe", path);
    char got[4] = "";
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(!file_write(fifo, "abc", 3) && errno == ENXIO);
    int fd = open(fifo, O_RDONLY | O_NONBLOCK);
    CHECK(file_write(fifo, "abc", 3) && read(fd, got, 3) == 3 && !strcmp(got, "abc"));
    close(fd);
    unlink(fifo);
    CHECK_EQ(unlink(path), 0);
    arena_free(a);
}

static void test_diag(void) {
    Arena *a = arena_new();
    Diag d;
    diag_init(&d, a, NULL);
    CHECK(!diag_error(&d, (Place){"m.onnx", "conv1", "Conv", "w"}, "expected %d axes, found %d", 4,
                      3));
    diag_warn(&d, (Place){.tensor = "a'\x1b[2J\n"}, "odd");
    diag_hint(&d, "try again");
    CHECK(!diag_error(&d, (Place){.op = "Loop"}, "unsupported"));
    CHECK(!diag_error(&d, (Place){0}, "plain"));
    CHECK_EQ(d.errors, 3);
    CHECK_STR(d.log.at, "error: m.onnx: node 'conv1' (Conv), tensor 'w': expected 4 axes, found 3\n"
                        "warning: tensor 'a\\'\\x1b[2J\\x0a': odd\n"
                        "  hint: try again\n"
                        "error: Loop: unsupported\n"
                        "error: plain\n");
    char name[200];
    memset(name, 'n', 199);
    name[199] = 0;
    CHECK_EQ(strlen(diag_name(a, name)), 123);                  /* 120 and "..." */
    CHECK_STR(diag_name(a, "\xe2\x80\xae"), "\\xe2\\x80\\xae"); /* right-to-left override */
    arena_free(a);
}

int main(int argc, char **argv) {
    test_arena();
    test_oom();
    test_map();
    test_checked();
    test_text();
    test_file(argc > 1 ? argv[1] : ".");
    test_diag();
    return test_end();
}
