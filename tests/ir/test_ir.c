/* test_ir.c - building and asking, the text form both ways, hostile texts, one broken graph for
 * each invariant. */
#include "ir.h"
#include "test.h"

static Arena *arena;
static Diag diag;

static void fresh(void) {
    arena_free(arena);
    arena = arena_new();
    diag_init(&diag, arena, NULL);
}

/* Everything that the text form can say. */
static const char golden[] =
    "graph \"m\\\"odel.onnx\"\n"
    "%0 input f32[2,3] \"x\"\n"
    "%1 param f32[3,4] \"w\" fill(0.1)\n"
    "%2 const f32[4] \"b\" data[1.0,-2.5,inf,nan]\n"
    "%3 state f32[3,4] \"optim.m.w\" of %1\n"
    "%4 const i64[2] \"i\" data[-1,9223372036854775807]\n"
    "%5 target bool[] \"t\"\n"
    "fwd %6 f32[2,4] \"y\" = MatMul(%0, %1, -) {trans_a=0, alpha=1.0} \"fc\" onnx \"Gemm\"\n"
    "fwd %7 f32[8] \"v\" = Reshape(%6) {shape=8} \"view\"\n"
    "fwd %8 f32[8] \"d\" = Dropout(%7) {ratio=0.5} \"drop\" key 3\n"
    "fwd -, %9 u8[0] \"k\" = Opaque() {pads=[], kernel=[3,3], value=[1.0,1e-05]} \"o\\012\"\n"
    "bwd %10 f32[2,4] \"a\", %11 f32[4] \"s\" = Fused(%6, %2) \"f\" space [2,4] {\n"
    "    i0 f32 = Mul(a0, a1) \"m\"\n"
    "    i1 f32 = Dropout(i0) {ratio=0.5} key 4\n"
    "    i2 f32 = ReduceSum(i1) {axes=0}\n"
    "    out i0, i2.1\n"
    "}\n"
    "bwd %12 f32[3,4] \"w.grad\" of %1 = Copy(%3) \"g\"\n"
    "upd Sgd(%1, %12, %3) \"w.update\"\n"
    "output %6, %8\n"
    "loss %11\n"
    "logits %6\n"
    "keys 5\n";

static const char *print(const Graph *g) {
    Text t;
    text_init(&t, arena);
    ir_print(&t, g);
    return t.at;
}

static void test_round_trip(void) {
    fresh();
    Graph *g = ir_parse(arena, &diag, "g.ir", golden);
    CHECK(g != NULL);
    if (!g) {
        fputs(diag.log.at, stderr);
        return;
    }
    CHECK_STR(print(g), golden);
    CHECK_EQ(g->nvalue, 13);
    CHECK_EQ(g->nstorage, 12); /* the view shares one */
    CHECK_EQ(g->value[7].storage, g->value[6].storage);
    CHECK_EQ(g->node[1].attr[0].i[0], 8);
    CHECK_STR(g->file, "m\"odel.onnx");
    CHECK_STR(g->node[3].name, "o\n");
    CHECK_EQ(g->value[1].data->n, 48);
    CHECK_EQ(((const int64_t *)g->value[4].data->bytes)[1], INT64_MAX);
    CHECK(ir_verify(&diag, g));
    CHECK_STR(diag.log.at, "");
}

/* A copy prints the same when the arena of the original is gone and its bytes are others' (ASan
 * sees what was forgotten), and shares what does not lie in that arena. */
static void test_copy(void) {
    fresh();
    Arena *other = arena_new();
    Graph *g = ir_parse(other, &diag, "g.ir", golden);
    g->node[0].onnx = "Literal";
    const Graph *shared = ir_copy(arena, g, arena), *copy = ir_copy(arena, g, other);
    CHECK(shared->node[0].name == g->node[0].name && shared->value != g->value);
    CHECK(copy->node[0].name != g->node[0].name && copy->node[0].onnx == g->node[0].onnx);
    CHECK(arena_owns(other, g->node) && !arena_owns(other, copy->node));
    const char *before = print(g);
    arena_free(other);
    CHECK_STR(print(copy), before);
    CHECK(strstr(before, "Literal") && ir_verify(&diag, copy));
}

/* Cut anywhere, the text is refused or read, and nothing is touched that is not there (ASan). */
static void test_cuts(void) {
    for (size_t n = 0; n < sizeof golden; n++) {
        fresh();
        char *cut = arena_strn(arena, golden, n);
        Graph *g = ir_parse(arena, &diag, "g.ir", cut);
        CHECK(g ? diag.errors == 0 : diag.errors == 1);
        if (g) ir_verify(&diag, g);
    }
}

static void test_bad_texts(void) {
    static const struct {
        const char *text, *error;
    } row[] = {
        {"", "line 1: expected 'graph', found the end of the text"},
        {"graph \"m\"\n\n%0 inputs f32[] \"x\"",
         "line 3: expected a role (input, target, param, frozen, ...), found 'inputs'"},
        {"graph \"m\" %0 input f32[-1] \"x\"", "line 1: expected a size, found -1"},
        {"graph \"m\" %0 input f32[1,1,1,1,1,1,1,1,1] \"x\"", "line 1: expected at most 8 axes"},
        {"graph \"m\" %0 input f32[4294967296,4294967296] \"x\"",
         "line 1: shape [4294967296,4294967296] is too large"},
        {"graph \"m\" %0 input f32[99999999999999999999] \"x\"",
         "line 1: number 99999999999999999999 is too large"},
        {"graph \"m\" %0 param f32[1099511627776] \"x\" fill(0)",
         "line 1: initial data of 4398046511104 bytes is too large for a text"},
        {"graph \"m\" %0 param f32[4] \"x\" fill(0)\n%1 param f32[67108864] \"y\" fill(0)",
         "line 2: initial data of 268435456 bytes is too large for a text"},
        {"graph \"m\" %0 const i32[2] \"x\" data[1, 2147483648]",
         "line 1: expected a number of type i32, found 2147483648"},
        {"graph \"m\" %0 const f32[2] \"x\" data[1]", "line 1: expected ',', found ']'"},
        {"graph \"m\" %0 input f32[] \"x\" %0 input f32[] \"y\"",
         "line 1: value %0 is defined twice"},
        {"graph \"m\"\nfwd Relu(%4) \"r\"", "line 2: value %4 is not defined before"},
        {"graph \"m\"\nfwd Frob() \"r\"", "line 2: expected an operator, found 'Frob'"},
        {"graph \"m\"\nfwd Fill() {frob=1} \"r\"",
         "line 2: expected the name of an attribute, found 'frob'"},
        {"graph \"m\"\nfwd Fill() {axis=1,axis=1} \"r\"", "line 2: attribute axis is given twice"},
        {"graph \"m\"\nfwd %0 f32[] \"y\" = Reshape() \"r\"",
         "line 2: Reshape needs an input, found none"},
        {"graph \"m\" %0 input f32[4] \"x\" fwd %1 f32[3] \"y\" = Reshape(%0) \"r\"",
         "line 1: view %1 must have the dtype and element count of its input"},
        {"graph \"m\" %0 state f32[] \"x\" of %7", "line 1: value %7 is not defined"},
        {"graph \"m\" fwd Fused() \"f\"",
         "line 1: expected 'space' and a body, found the end of the text"},
        {"graph \"m\" fwd Fused() \"f\" space [] { i0 f32 = Neg(i0) out }",
         "line 1: expected one of 0 operands i0, i1, ..., found 'i0'"},
        {"graph \"m\" fwd Fused() \"f\" space [] { i1 f32 = Neg(i0) out }",
         "line 1: expected one of 1 operands i0, i1, ..., found 'i1'"},
        {"graph \"abc", "line 1: expected the end of a string"},
        {"graph \"a\\000\"", "line 1: a string cannot hold a zero byte"},
        {"graph \"m\" @", "line 1: unexpected character '@'"},
        {"graph \"m\" loss 3", "line 1: expected a value such as %3, found 3"},
        {"graph \"m\" keys 1.5", "line 1: expected a number in 0..4294967294, found 1.5"},
        {"graph \"m\" keys 1e5e", "line 1: expected a number, found '1e5e'"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fresh();
        CHECK(!ir_parse(arena, &diag, "g.ir", row[i].text));
        CHECK_STR(diag.log.at, arena_printf(arena, "error: g.ir: %s\n", row[i].error));
    }
}

/* Valid texts of broken graphs, and what the verifier says. */
static void test_verify_texts(void) {
    static const struct {
        const char *text, *error;
    } row[] = {
        {"%0 param f32[1] \"w\" %1 input f32[1] \"g\" upd Sgd(%0, %1) \"u\""
         "bwd %2 f32[1] \"y\" = Relu(%0) \"r\"",
         "node 'r' (Relu), tensor 'w': I5: node 1 reads value 0 after node 0 changed it"},
        {"%1 input f32[1] \"g\" fwd %2 f32[1] \"y\" = Relu(%1) \"r\" upd Sgd(%2, %1) \"u\"",
         "node 'u' (Sgd), tensor 'y': I4: node 1 changes value 1, which is not persistent"},
        {"%1 input f32[1] \"g\" bwd %2 f32[1] \"y\" = Relu(%1) \"r\" fwd %3 f32[1] \"z\" = Neg(%1) "
         "\"n\"",
         "node 'n' (Neg): I6: forward node 1 stands after the backward pass began"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fresh();
        Graph *g =
            ir_parse(arena, &diag, "g.ir", arena_printf(arena, "graph \"\" %s", row[i].text));
        CHECK(g && !ir_verify(&diag, g));
        CHECK_STR(diag.log.at, arena_printf(arena, "error: %s\n", row[i].error));
    }
}

/* I5: two nodes may mutate one value, in their order; one of them stands after a reader, too. */
static void test_verify_two_effects(void) {
    fresh();
    Graph *g = ir_parse(arena, &diag, "g.ir",
                        "graph \"\" %0 param f32[1] \"w\" %1 input f32[1] \"g\""
                        "bwd %2 f32[1] \"y\" = Relu(%0) \"r\""
                        "upd Sgd(%0, %1) \"u\" upd Sgd(%0, %1) \"v\"");
    CHECK(g && ir_verify(&diag, g));
}

static Graph *small(void) {
    fresh();
    return ir_parse(arena, &diag, "g.ir",
                    "graph \"\" %0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Relu(%0) \"r\""
                    "fwd %2 f32[6] \"z\" = Reshape(%1) \"v\"");
}

/* Graphs that no text can make. */
static void test_verify_damage(void) {
    Graph *g = small();
    CHECK(ir_verify(&diag, g));
    g->node[0].in[0] = 1; /* I1: reads its own output */
    CHECK(!ir_verify(&diag, g));
    CHECK_STR(diag.log.at,
              "error: node 'r' (Relu), tensor 'y': I1: node 0 reads value 1 before its "
              "definition\n");
    g = small();
    g->node[1].out[0] = 1; /* I1: two definitions, and value 2 has none */
    CHECK(!ir_verify(&diag, g));
    CHECK_EQ(diag.errors, 3);
    g = small();
    g->value[0].role = ROLE_TEMP; /* I2, and its storage is no longer persistent */
    CHECK(!ir_verify(&diag, g));
    CHECK_EQ(diag.errors, 2);
    g = small();
    g->value[2].storage = 0; /* I3 */
    CHECK(!ir_verify(&diag, g));
    CHECK_EQ(diag.errors, 1);
    g = small();
    g->storage[1].bytes = 25; /* I3: the value and its view */
    CHECK(!ir_verify(&diag, g));
    CHECK_EQ(diag.errors, 2);
    g = small();
    g->node[1].in[0] = 77;
    g->loss = 78;
    CHECK(!ir_verify(&diag, g));
    CHECK_EQ(diag.errors, 2);
}

static void test_queries(void) {
    fresh();
    static const struct {
        Shape a, b, out;
        bool ok;
    } row[] = {
        {{2, {3, 1}}, {1, {4}}, {2, {3, 4}}, true},
        {{0, {0}}, {2, {5, 6}}, {2, {5, 6}}, true},
        {{3, {2, 1, 4}}, {3, {2, 3, 1}}, {3, {2, 3, 4}}, true},
        {{1, {0}}, {1, {1}}, {1, {0}}, true},
        {{1, {3}}, {1, {4}}, {0, {0}}, false},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Shape s;
        bool ok = shape_broadcast(&row[i].a, &row[i].b, &s);
        CHECK_EQ(ok, row[i].ok);
        if (ok) CHECK(shape_eq(&s, &row[i].out));
    }
    uint64_t n;
    CHECK(shape_count(&(Shape){2, {0, 5}}, &n) && n == 0);
    CHECK(!shape_count(&(Shape){3, {0, INT64_MAX, 3}}, &n));
    CHECK(!shape_count(&(Shape){1, {-1}}, &n));
    CHECK_STR(shape_str(arena, &(Shape){2, {8, 64}}), "[8,64]");
    CHECK_STR(shape_str(arena, &(Shape){0}), "[]");
    CHECK_EQ(attr_by_name("kernel"), A_kernel);
    CHECK_EQ(attr_by_name("nothing"), A_COUNT);

    /* x is read by both nodes, twice by the second. */
    Graph *g = ir_parse(arena, &diag, "g.ir",
                        "graph \"\" %0 input f32[2] \"x\" fwd %1 f32[2] \"y\" = Relu(%0) \"r\""
                        "fwd %2 f32[2] \"z\" = Add(%0, %0) \"a\"");
    Users u = ir_users(arena, g);
    CHECK_EQ(u.first[1] - u.first[0], 2);
    CHECK(u.user[0] == 0 && u.user[1] == 1);
    CHECK_EQ(u.first[3], 2);
    ir_attr_f(g, 0, A_alpha, 0.5);
    ir_attr_i(g, 0, A_alpha, 2); /* replaces */
    CHECK_EQ(g->node[0].nattr, 1);
    CHECK_NEAR(ir_get_f(&g->node[0], A_alpha, 9), 2, 0);
    CHECK_EQ(ir_get_i(&g->node[0], A_beta, 9), 9);
}

int main(void) {
    test_round_trip();
    test_copy();
    test_cuts();
    test_bad_texts();
    test_verify_texts();
    test_verify_two_effects();
    test_verify_damage();
    test_queries();
    arena_free(arena);
    return test_end();
}
