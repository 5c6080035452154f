/* tensor_test.c - every element type, raw and typed; shapes against payloads. */
#include "model.h"

#include <string.h>

static Arena *arena;

/* Reads a serialized TensorProto the way the importer does. */
static bool read_tensor(const Buf *t, Tensor *out, Diag *d) {
    Buf graph = {0}, model = {0};
    field_buf(&graph, 5, t);
    field_buf(&model, 7, &graph);
    Wire w;
    diag_init(d, arena, NULL);
    if (!wire_shrink(arena, d, "t", (Span){model.at, model.n}, &w)) return false;
    ModelProto *m = onnx__model_proto__unpack(NULL, w.message.n, w.message.at);
    Sources s = {.file = "t", .payload = w.payload, .npayload = w.npayload};
    bool ok = tensor_read(arena, d, &s, (Place){.tensor = "w"}, m->graph->initializer[0], out);
    onnx__model_proto__free_unpacked(m, NULL);
    return ok;
}

static Tensor expect_tensor(const Buf *t, DType dt, uint64_t count) {
    Tensor out = {0};
    Diag d;
    CHECK(read_tensor(t, &out, &d));
    if (d.errors) fprintf(stderr, "%s", d.log.at);
    CHECK_EQ(out.dtype, dt);
    CHECK_EQ(out.count, count);
    return out;
}

static void expect_error(const Buf *t, const char *message) {
    Tensor out;
    Diag d;
    CHECK(!read_tensor(t, &out, &d));
    if (!strstr(d.log.at, message)) fprintf(stderr, "expected \"%s\", got %s", message, d.log.at);
    CHECK(strstr(d.log.at, message) != NULL);
}

static void test_raw(void) {
    Tensor t;
    Buf b = tensor_raw("w", 1, "3", (float[]){1, -2.5f, 3}, 12);
    t = expect_tensor(&b, DT_F32, 3);
    CHECK(tensor_real(&t, 1) == -2.5);
    b = tensor_raw("w", 11, "1", (double[]){0.1}, 8);
    t = expect_tensor(&b, DT_F64, 1);
    CHECK(tensor_real(&t, 0) == 0.1);
    b = tensor_raw("w", 7, "2", (int64_t[]){INT64_MIN, 7}, 16);
    t = expect_tensor(&b, DT_I64, 2);
    CHECK(tensor_int(&t, 0) == INT64_MIN);
    b = tensor_raw("w", 6, "1", (int32_t[]){-9}, 4);
    t = expect_tensor(&b, DT_I32, 1);
    CHECK_EQ(tensor_int(&t, 0), -9);
    b = tensor_raw("w", 2, "2", "\x00\xFF", 2); /* uint8 */
    t = expect_tensor(&b, DT_I32, 2);
    CHECK_EQ(tensor_int(&t, 1), 255);
    b = tensor_raw("w", 3, "2", "\x7F\xFF", 2); /* int8 */
    t = expect_tensor(&b, DT_I32, 2);
    CHECK_EQ(tensor_int(&t, 1), -1);
    b = tensor_raw("w", 5, "1", "\xFE\xFF", 2); /* int16 */
    t = expect_tensor(&b, DT_I32, 1);
    CHECK_EQ(tensor_int(&t, 0), -2);
    b = tensor_raw("w", 4, "1", "\xFE\xFF", 2); /* uint16 */
    t = expect_tensor(&b, DT_I32, 1);
    CHECK_EQ(tensor_int(&t, 0), 65534);
    b = tensor_raw("w", 12, "1", "\xFF\xFF\xFF\xFF", 4); /* uint32 */
    t = expect_tensor(&b, DT_I64, 1);
    CHECK_EQ(tensor_int(&t, 0), 4294967295);
    b = tensor_raw("w", 9, "3", "\x00\x01\x02", 3); /* bool: 2 is true */
    t = expect_tensor(&b, DT_BOOL, 3);
    CHECK_EQ(((const uint8_t *)t.data)[2], 1);
}

/* Half precision: 1.5 is 0x3E00, the smallest subnormal 2^-24 is 0x0001, -inf 0xFC00, 65504 0x7BFF.
 * bfloat16 is the upper half of an f32: 0x3FC0 is 1.5. */
static void test_half(void) {
    Buf b = tensor_raw("w", 10, "4", (uint16_t[]){0x3E00, 1, 0xFC00, 0x7BFF}, 8);
    Tensor t = expect_tensor(&b, DT_F32, 4);
    CHECK(tensor_real(&t, 0) == 1.5);
    CHECK(tensor_real(&t, 1) == 0x1p-24);
    CHECK(tensor_real(&t, 2) == -INFINITY);
    CHECK(tensor_real(&t, 3) == 65504);
    b = tensor_raw("w", 16, "1", (uint16_t[]){0x3FC0}, 2);
    t = expect_tensor(&b, DT_F32, 1);
    CHECK(tensor_real(&t, 0) == 1.5);
    Buf typed = {0}, bits = {0};
    field_int(&typed, 1, 1);
    field_int(&typed, 2, 10);
    put_varint(&bits, 0x3E00);
    field_buf(&typed, 5, &bits); /* int32_data, packed */
    t = expect_tensor(&typed, DT_F32, 1);
    CHECK(tensor_real(&t, 0) == 1.5);
}

static void test_typed(void) {
    Buf b = {0};
    float v[2] = {4, 0.25f};
    field_int(&b, 1, 2);
    field_int(&b, 2, 1);
    field_bytes(&b, 4, v, sizeof v); /* float_data, packed */
    Tensor t = expect_tensor(&b, DT_F32, 2);
    CHECK(tensor_real(&t, 1) == 0.25);
    b.n = 0;
    field_int(&b, 1, 2);
    field_int(&b, 2, 7);
    field_int(&b, 7, -1); /* int64_data, one by one */
    field_int(&b, 7, 5);
    t = expect_tensor(&b, DT_I64, 2);
    CHECK_EQ(tensor_int(&t, 0), -1);
    b.n = 0;
    field_int(&b, 1, 1);
    field_int(&b, 2, 13);
    field_int(&b, 11, -1); /* uint64_data: 2^64 - 1 has no i64 */
    expect_error(&b, "element 0 is above the largest signed 64-bit integer");
}

static void test_shapes(void) {
    Tensor t;
    Buf b = tensor_f32("w", "", (float[]){3});
    t = expect_tensor(&b, DT_F32, 1);
    CHECK_EQ(t.shape.rank, 0);
    b = tensor_raw("w", 1, "0", NULL, 0);
    t = expect_tensor(&b, DT_F32, 0);
    CHECK_EQ(t.shape.rank, 1);
    b = tensor_raw("w", 1, "2,0,3", NULL, 0);
    expect_tensor(&b, DT_F32, 0);
    b = tensor_raw("w", 1, "2,2", (float[3]){0}, 12);
    expect_error(&b, "shape [2,2] needs 16 bytes, found 12");
    b = tensor_raw("w", 1, "2", (float[3]){0}, 9);
    expect_error(&b, "shape [2] needs 8 bytes, found 9");
    b = tensor_raw("w", 1, "-1", "", 0);
    expect_error(&b, "expected sizes, found dimension -1 at axis 0");
    b = tensor_raw("w", 1, "4611686018427387904,4611686018427387904", "", 0);
    expect_error(&b, "too many elements");
    b = tensor_raw("w", 1, "1,1,1,1,1,1,1,1,1", "abcd", 4);
    expect_error(&b, "expected at most 8 axes, found 9");
    b = tensor_raw("w", 8, "1", "a", 1);
    expect_error(&b, "element type 8 (string) are not supported");
    b = tensor_raw("w", 99, "1", "a", 1);
    expect_error(&b, "element type 99");
    b = tensor_raw("w", 1, "1", "abcd", 4);
    field_bytes(&b, 4, "abcd", 4);
    expect_error(&b, "expected values in one field");
    b = (Buf){0};
    field_int(&b, 1, 3);
    field_int(&b, 2, 1);
    expect_error(&b, "shape [3] needs 3 elements, found 0");
}

int main(void) {
    arena = arena_new();
    test_raw();
    test_half();
    test_typed();
    test_shapes();
    arena_free(arena);
    return test_end();
}
