/* wire_test.c - the wire scan: what it keeps, where payloads lie, what it refuses and how cheaply.
 */
#include "model.h"

#include <string.h>
#include <sys/resource.h>
#include <time.h>

typedef struct {
    Arena *a;
    Diag d;
    Wire w;
    bool ok;
} Scan;

static Scan scan(const Buf *b) {
    Scan s = {.a = arena_new()};
    diag_init(&s.d, s.a, NULL);
    s.ok = wire_shrink(s.a, &s.d, "t.onnx", (Span){b->at, b->n}, &s.w);
    return s;
}

static void expect(const Buf *b, const char *message) {
    Scan s = scan(b);
    CHECK(!s.ok);
    CHECK(strstr(s.d.log.at, message) != NULL);
    arena_free(s.a);
}

static Buf small_model(void) {
    Model m = model_new(13);
    float w[6] = {1, 2, 3, 4, 5, 6};
    model_input(&m, "x", F32, "N,2");
    model_init(&m, tensor_f32("w", "2,3", w));
    model_node(&m, "MatMul", "mm", "x,w", "y", NULL);
    model_output(&m, "y");
    return model_bytes(&m);
}

/* The weight stays in the file: the payload points there, and the copy is shorter. */
static void test_payload(void) {
    Buf b = small_model();
    Scan s = scan(&b);
    CHECK(s.ok);
    CHECK_EQ(s.w.npayload, 1);
    CHECK_EQ(s.w.payload[0].n, 24);
    CHECK(s.w.payload[0].at > b.at && s.w.payload[0].at + 24 <= b.at + b.n);
    CHECK(memmem(s.w.message.at, s.w.message.n, s.w.payload[0].at, 24) == NULL);
    ModelProto *p = onnx__model_proto__unpack(NULL, s.w.message.n, s.w.message.at);
    CHECK(p != NULL);
    if (p) {
        CHECK_EQ(p->graph->n_node, 1);
        CHECK_STR(p->graph->node[0]->op_type, "MatMul");
        CHECK_STR(p->graph->input[0]->type->tensor_type->shape->dim[0]->dim_param, "N");
        CHECK_EQ(p->graph->initializer[0]->raw_data.len, 4);
        onnx__model_proto__free_unpacked(p, NULL);
    }
    arena_free(s.a);
}

/* Every proper prefix is an error or a smaller valid model, never a crash. */
static void test_truncated(void) {
    Buf b = small_model();
    uint32_t refused = 0;
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *cut = malloc(n + 1); /* its own block, so that reading past the end is seen */
        memcpy(cut, b.at, n);
        Buf c = {cut, n, n};
        Scan s = scan(&c);
        refused += !s.ok;
        arena_free(s.a);
        free(cut);
    }
    /* Whole fields come first: ir_version (2 bytes) and opset_import (6 bytes); a cut right behind
     * them or before them is well formed, as is one of no bytes. */
    CHECK_EQ(refused, b.n - 3);
}

static void test_malformed(void) {
    Buf b = {0};
    put(&b, "\x3A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 12);
    expect(&b, "a number of more than ten bytes");
    b.n = 0;
    put(&b, "\x3A\x05\x0A", 3);
    expect(&b, "reaches past the end");
    b.n = 0;
    put(&b, "\x0B", 1);
    expect(&b, "an unknown wire type");
    b.n = 0;
    put(&b, "\x00\x00", 2);
    expect(&b, "an impossible field number");
    b.n = 0;
    field_int(&b, 7, 1);
    expect(&b, "a field of the wrong type");
    b.n = 0;
    field_str(&b, 7, "");
    field_str(&b, 7, "");
    expect(&b, "a single field occurs twice");
    b.n = 0;
    field_bytes(&b, 2, "a\0b", 3);
    expect(&b, "a zero byte in a name");
}

/* Fields that nobody knows are skipped at any length, and do not reach the copy. */
static void test_unknown_fields(void) {
    Buf b = small_model();
    Scan plain = scan(&b);
    Buf more = {0};
    field_str(&more, 999, "something new");
    field_int(&more, 77, -1);
    put(&more, b.at, b.n);
    Scan s = scan(&more);
    CHECK(s.ok);
    CHECK_EQ(s.w.message.n, plain.w.message.n);
    arena_free(s.a);
    arena_free(plain.a);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* If inside If: graph { node { op_type, attribute { g { .. } } } }, written from the inside out. */
static void test_nested_bomb(void) {
    size_t cap = 1 << 20, at = cap;
    uint8_t *buf = malloc(cap);
    const uint8_t op[] = {4 << 3 | 2, 2, 'I', 'f'};
    while (cap - at < 114 << 10) {
        for (int level = 0; level < 3; level++) { /* g, attribute, node */
            static const uint8_t field[] = {6, 5, 1};
            Buf head = {0};
            if (level == 2) at -= sizeof op, memcpy(buf + at, op, sizeof op);
            put_varint(&head, (uint64_t)field[level] << 3 | 2);
            put_varint(&head, cap - at);
            at -= head.n;
            memcpy(buf + at, head.at, head.n);
        }
    }
    Buf inner = {buf + at, cap - at, cap - at}, b = {0};
    field_buf(&b, 7, &inner);
    double start = seconds();
    expect(&b, "nested more than 64 deep");
    CHECK(seconds() - start < 0.5);
    free(buf);
}

/* Two megabytes of nodes: as empty ones, and with the shortest operator name. */
static void test_wide_bomb(void) {
    Buf empty = {0}, named = {0}, b = {0}, c = {0};
    for (int i = 0; i < 1 << 20; i++) put(&empty, "\x0A\x00", 2);
    for (int i = 0; i < 1 << 19; i++) put(&named, "\x0A\x03\x22\x01X", 5);
    field_buf(&b, 7, &empty);
    field_buf(&c, 7, &named);
    double start = seconds();
    expect(&b, "a node without an operator");
    expect(&c, "more than 262144 nodes");
    CHECK(seconds() - start < 1);
}

/* Inputs of nodes cost sixteen times their two bytes once unpacked; the whole stays small. */
static void test_many_names(void) {
    Model m = model_new(13);
    Buf n = {0};
    for (int i = 0; i < 1 << 20; i++) put(&n, "\x0A\x00", 2);
    field_str(&n, 4, "Add");
    field_buf(&m.graph, 1, &n);
    double start = seconds();
    Imported i = import_model(&m);
    CHECK(!i.g);
    CHECK(i.d.errors == 1);
    CHECK(seconds() - start < 1);
    imported_free(&i);
}

int main(void) {
    test_payload();
    test_truncated();
    test_malformed();
    test_unknown_fields();
    test_nested_bomb();
    test_wide_bomb();
    test_many_names();
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
#ifndef __SANITIZE_ADDRESS__
    CHECK(use.ru_maxrss < 256 << 10); /* KiB */
#endif
    return test_end();
}
