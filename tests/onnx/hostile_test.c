/* hostile_test.c - damaged models: thousands of byte and bit changes of valid ones, in one process,
 * best under ASan. Whatever comes out, an import ends with a graph that verifies or with an error,
 * in time. */
#include "model.h"

#include <string.h>
#include <time.h>

#define ROUNDS 1000

static uint64_t state = 20240117;

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016). */
static uint64_t next(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717u;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Buf read_model(const char *name) {
    char path[256];
    Buf b = {0};
    snprintf(path, sizeof path, "tests/data/traces/%s/model.onnx", name);
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    uint8_t part[4096];
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;) put(&b, part, n);
    if (f) fclose(f);
    return b;
}

/* Places of bytes outside of weights, where a change means something. */
static uint32_t structure(const Buf *b, size_t *at) {
    Arena *a = arena_new();
    Diag d;
    Wire w;
    diag_init(&d, a, NULL);
    CHECK(wire_shrink(a, &d, "t", (Span){b->at, b->n}, &w));
    bool *weight = calloc(b->n, 1);
    for (uint32_t i = 0; i < w.npayload; i++)
        if (w.payload[i].n > 64) memset(weight + (w.payload[i].at - b->at), 1, w.payload[i].n);
    uint32_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        if (!weight[i]) at[n++] = i;
    free(weight);
    arena_free(a);
    return n;
}

static void change(Buf *b, const size_t *at, uint32_t n) {
    size_t i = at[next() % n];
    switch (next() % 4) {
    case 0: b->at[i] = (uint8_t)next(); break;
    case 1: b->at[i] = (const uint8_t[]){0, 1, 0x7F, 0x80, 0xFF}[next() % 5]; break;
    case 2: b->at[i] = b->at[at[next() % n]]; break;
    default: b->at[i] ^= (uint8_t)(1 << next() % 8);
    }
}

static void flips(const char *model) {
    Buf good = read_model(model);
    size_t *at = malloc(good.n * sizeof *at);
    uint32_t n = structure(&good, at), refused = 0;
    double slowest = 0;
    for (int round = 0; round < ROUNDS; round++) {
        Buf bad = {malloc(good.n), good.n, good.n}; /* its own block, for ASan */
        memcpy(bad.at, good.at, good.n);
        for (uint64_t k = 1 + next() % 3; k; k--) change(&bad, at, n);
        double start = seconds();
        Imported i = import_buf(bad);
        double took = seconds() - start;
        if (took > slowest) slowest = took;
        CHECK((i.g != NULL) == (i.d.errors == 0));
        if (!i.g) CHECK(i.d.log.n > 0);
        refused += !i.g;
        imported_free(&i);
        free(bad.at);
    }
    /* Most changes hit a name, a number or a length: a good part must be noticed. */
    CHECK(refused > ROUNDS / 4);
    CHECK(slowest < 5);
    free(at);
}

/* Names may hold anything but a zero byte; they stay as they are in the graph and escaped in
 * messages. */
static void test_names(void) {
    const char *evil = "\"); system(\"x\"); /* */ \n\\ %s %n \xFF";
    Model m = model_new(13);
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    model_init(&m, tensor_zeros(evil, "4"));
    char in[128];
    snprintf(in, sizeof in, "x,%s", evil);
    model_node(&m, "Add", evil, in, "y", NULL);
    Imported i = import_model(&m);
    CHECK(i.g && i.g->nnode == 1);
    if (i.g) CHECK_STR(i.g->node[0].name, evil);
    imported_free(&i);
    model_node(&m, "Relu", evil, "nowhere", "z", NULL);
    i = import_model(&m);
    CHECK(!i.g);
    CHECK(says(&i, "node '\\\"); system(\\\"x\\\"); /* */ \\x0a\\\\ %s %n \\xff' (Relu)"));
    imported_free(&i);
}

/* A node with very many inputs, an attribute with very many numbers: errors, not work. */
static void test_wide_nodes(void) {
    Model m = model_new(13);
    model_input(&m, "x", F32, "N,4");
    model_output(&m, "y");
    Buf n = {0}, attr = {0}, a = {0};
    for (int k = 0; k < 300000; k++) field_str(&n, 1, "x");
    field_str(&n, 2, "y");
    field_str(&n, 4, "Sum");
    Model sum = m;
    sum.graph = (Buf){0};
    put(&sum.graph, m.graph.at, m.graph.n);
    field_buf(&sum.graph, 1, &n);
    double start = seconds();
    Imported i = import_model(&sum);
    CHECK(seconds() - start < 5);
    imported_free(&i);
    field_str(&a, 1, "perm");
    for (int k = 0; k < 1000000; k++) field_int(&a, 8, 0);
    field_int(&a, 20, 7);
    field_buf(&attr, 5, &a);
    model_node(&m, "Transpose", "t", "x", "y", &attr);
    i = import_model(&m);
    CHECK(!i.g);
    CHECK(says(&i, "attribute perm is too long"));
    imported_free(&i);
}

int main(void) {
    flips("mlp_relu");
    flips("lenet_mnist");
    flips("transformer_encoder");
    flips("resnet_mini");
    test_names();
    test_wide_nodes();
    return test_end();
}
