/* external_test.c - tensors in files beside the model, and all the ways to ask for another file.
 * The source is included, so that the way without openat2 is tested on kernels that have it. */
#include "external.c"
#include "model.h"

#include <limits.h>

static char dir[PATH_MAX - 64];

static const char *path(const char *name) {
    static char buf[4][PATH_MAX];
    static int turn;
    char *p = buf[turn++ & 3];
    snprintf(p, sizeof buf[0], "%s/%s", dir, name);
    return p;
}

static void write_file(const char *name, const void *p, size_t n) {
    FILE *f = fopen(path(name), "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && fclose(f) == 0);
}

/* y = x * w with w in another file; keys as "location=..;offset=..". */
static void write_model(const char *keys) {
    Model m = model_new(13);
    Buf t = {0}, pair = {0};
    field_int(&t, 1, 2);
    field_int(&t, 2, F32);
    field_str(&t, 8, "w");
    while (*keys) {
        size_t n = strcspn(keys, ";"), key = strcspn(keys, "=");
        pair.n = 0;
        field_bytes(&pair, 1, keys, key);
        field_bytes(&pair, 2, keys + key + 1, n - key - 1);
        field_buf(&t, 13, &pair);
        keys += n + (keys[n] == ';');
    }
    field_int(&t, 14, 1);
    model_input(&m, "x", F32, "2,2");
    model_init(&m, t);
    model_node(&m, "Mul", "mul", "x,w", "y", NULL);
    model_output(&m, "y");
    Buf b = model_bytes(&m);
    write_file("m.onnx", b.at, b.n);
}

static Imported load(const char *keys, bool need) {
    write_model(keys);
    Imported i = {.a = arena_new()};
    diag_init(&i.d, i.a, NULL);
    OnnxOptions o = {.batch = 2, .need_weights = need};
    i.g = onnx_import(i.a, &i.d, path("m.onnx"), &o, &i.info);
    return i;
}

static void refused(const char *keys, const char *message) {
    for (int need = 0; need < 2; need++) {
        Imported i = load(keys, need);
        CHECK(!i.g);
        CHECK(says(&i, message));
        imported_free(&i);
    }
}

static void test_good(void) {
    Imported i = load("location=w.bin;offset=4;length=8;checksum=abc", true);
    CHECK(i.g != NULL);
    if (i.g) {
        const Value *w = &i.g->value[value_named(i.g, "w")];
        CHECK_EQ(w->data->n, 8);
        CHECK(memcmp(w->data->bytes, (float[]){2, 3}, 8) == 0);
    }
    imported_free(&i);
    i = load("location=sub/./w.bin", true);
    CHECK(i.g != NULL);
    imported_free(&i);
}

static void test_missing(void) {
    Imported i = load("location=nowhere.bin", false);
    CHECK(i.g != NULL);
    CHECK_EQ(i.info.missing_bytes, 8);
    if (i.g) CHECK(i.g->value[value_named(i.g, "w")].data == NULL);
    imported_free(&i);
    i = load("location=nowhere.bin", true);
    CHECK(!i.g);
    CHECK(says(&i, "external file 'nowhere.bin' is not there"));
    imported_free(&i);
}

static void test_refused(void) {
    const char *outside = "is not inside the model's folder", *link = "symbolic link";
    refused("location=../w.bin", outside);
    refused("location=sub/../../w.bin", outside);
    refused("location=/etc/passwd", outside);
    refused("location=", outside);
    refused("offset=0", "without a location");
    refused("location=link.bin", link);
    refused("location=linked/w.bin", link);
    refused("location=hard.bin", "has 2 names (hard links), expected one");
    refused("location=sub", "is not a regular file");
    refused("location=pipe", "is not a regular file");
    refused("location=w.bin;length=4", "length 4, the shape needs 8 bytes");
    refused("location=w.bin;offset=-4", "expected a non-negative number for offset, found '-4'");
    refused("location=w.bin;offset=0x4", "found '0x4'");
    refused("location=w.bin;offset=99999999999999999999", "expected a non-negative number");
    refused("location=w.bin;offset=18446744073709551612", "past its end");
    refused("location=w.bin;offset=8",
            "bytes 8 to 16 of external file 'w.bin' are past its end at 12");
}

static bool opens_stepwise(const char *name) {
    int at = open(dir, O_PATH | O_DIRECTORY), fd = open_stepwise(at, name);
    close(at);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void test_stepwise(void) {
    CHECK(opens_stepwise("w.bin"));
    CHECK(opens_stepwise("sub/w.bin"));
    CHECK(opens_stepwise("sub//./w.bin"));
    CHECK(!opens_stepwise("link.bin"));
    CHECK(!opens_stepwise("linked/w.bin"));
    CHECK(!opens_stepwise("w.bin/w.bin"));
    CHECK(!opens_stepwise("nowhere/w.bin"));
    char deep[600];
    memset(deep, 'a', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    CHECK(!opens_stepwise(deep));
}

int main(int argc, char **argv) {
    snprintf(dir, sizeof dir, "%s/onnx-external-XXXXXX", argc > 1 ? argv[1] : "/tmp");
    if (!mkdtemp(dir)) return 1;
    float w[3] = {1, 2, 3};
    CHECK(mkdir(path("sub"), 0700) == 0);
    write_file("w.bin", w, sizeof w);
    write_file("sub/w.bin", w, sizeof w);
    write_file("hard.bin", w, sizeof w);
    CHECK(link(path("hard.bin"), path("hard2.bin")) == 0);
    CHECK(symlink("w.bin", path("link.bin")) == 0);
    CHECK(symlink("sub", path("linked")) == 0);
    CHECK(mkfifo(path("pipe"), 0600) == 0);
    test_good();
    test_missing();
    test_refused();
    test_stepwise();
    static const char *const made[] = {"m.onnx",    "w.bin",    "sub/w.bin", "sub", "hard.bin",
                                       "hard2.bin", "link.bin", "linked",    "pipe"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) remove(path(made[i]));
    rmdir(dir);
    return test_end();
}
