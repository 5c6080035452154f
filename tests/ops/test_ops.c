/* test_ops.c - the table of operators against the facts that ir knows, op_check, and the other
 * files. */
#include "test_ops.h"

Bench bench_new(const char *lines) {
    Bench b = {.arena = arena_new()};
    diag_init(&b.diag, b.arena, NULL);
    b.g = ir_parse(b.arena, &b.diag, "t.ir", arena_printf(b.arena, "graph \"\"\n%s", lines));
    if (!b.g) {
        fputs(b.diag.log.at, stderr);
        exit(1);
    }
    return b;
}

void bench_free(Bench *b) {
    arena_free(b->arena);
}

const char *bench_print(Bench *b) {
    Text all, t;
    text_init(&all, b->arena);
    ir_print(&all, b->g);
    text_init(&t, b->arena);
    text_str(&t, "");
    for (const char *s = all.at; *s;) {
        const char *end = strchr(s, '\n') + 1;
        if (*s != '%' && strncmp(s, "graph", 5)) text_add(&t, "%.*s", (int)(end - s), s);
        s = end;
    }
    return t.at;
}

/* ir keeps its own short list of views, effects and random operators; it must be the table's. */
static void test_table(void) {
    for (OpCode op = 1; op < OP_COUNT; op++) {
        const OpDef *d = op_def(op);
        CHECK_STR(d->name, ir_op_name(op));
        CHECK_EQ(d->cls, ir_op_class(op));
        CHECK_EQ(d->mutates, ir_op_mutates(op));
        CHECK_EQ(ir_op_by_name(d->name), op);
        CHECK(d->min_in <= d->max_in);
        CHECK(d->infer || (d->flags & OPF_EW));
        CHECK(!(d->flags & OPF_EW) || d->expr);
        bool runs = !(d->flags & (OPF_EW | OPF_COLREDUCE | OPF_COMPILE)) && d->cls != CLS_VIEW &&
                    op != OP_Fused && op != OP_Opaque;
        CHECK(!runs || d->cpu);
    }
    CHECK_EQ(ir_op_by_name("Frobnicate"), OP_NONE);
}

static void test_check(void) {
    static const struct {
        const char *lines, *error;
    } row[] = {
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Relu(%0) \"r\"", ""},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[3,2] \"y\" = Relu(%0) \"r\"",
         "error: node 'r' (Relu), tensor 'y': expected f32[2,3], found f32[3,2]\n"},
        {"%0 input f32[2,3] \"x\" fwd Relu(%0) \"r\"",
         "error: node 'r' (Relu): expected 1 outputs, found 0\n"},
        {"%0 input f32[2,3] \"x\" fwd - = Relu(%0) \"r\"",
         "error: node 'r' (Relu): expected output 0, found none\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Add(%0) \"r\"",
         "error: node 'r' (Add): expected 2 inputs, found 1\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\", %2 f32[3] \"s\" = Fused(%0) \"f\" space "
         "[2,3] {"
         "i0 f32 = Relu(a0) i1 f32 = ReduceSum(i0) {axes=0, keepdims=0} out i0, i1 }",
         ""},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Fused(%0) \"f\" space [2,3] {"
         "i0 f32 = MatMul(a0, a0) out i0 }",
         "error: node 'f' (Fused): instruction 0: expected an elementwise operator or a column "
         "reduction, found MatMul with 2 operands\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Fused(%0) \"f\" space [2,3] {"
         "i0 f32 = ReduceSum(a0) {axes=0, keepdims=0} i1 f32 = Add(a0, i0) out i1 }",
         "error: node 'f' (Fused): instruction 1: expected an elementwise operand, found a column "
         "reduction or nothing\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2] \"y\" = Fused(%0) \"f\" space [2,3] {"
         "i0 f32 = ReduceSum(a0) {axes=1, keepdims=0} out i0 }",
         "error: node 'f' (Fused): instruction 0: expected leading axes, found others\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Fused(%0) \"f\" space [2,3] {"
         "i0 f32 = Equal(a0, a0) out i0 }",
         "error: node 'f' (Fused): instruction 0: expected dtype bool, found f32\n"},
        {"%0 input f32[2,3] \"x\" fwd %1 f32[2,3] \"y\" = Fused(%0) \"f\" space [2,3] {"
         "i0 f32 = Relu(a0) out i0.1 }",
         "error: node 'f' (Fused): output 0: expected one of 1 results of Relu, found 1\n"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Bench b = bench_new(row[i].lines);
        CHECK_EQ(op_check(&b.diag, b.g), !*row[i].error);
        CHECK_STR(b.diag.log.at, row[i].error);
        bench_free(&b);
    }
}

/* Class and work of nodes: a Fused node is random when a member is; Conv does 2*n*co*out*ci*k. */
static void test_questions(void) {
    Bench b = bench_new("%0 input f32[2,3,8,8] \"x\" %1 param f32[4,3,3,3] \"w\""
                        "fwd %2 f32[2,4,6,6] \"y\" = Conv(%0, %1) \"c\""
                        "fwd %3 f32[2,3,8,8] \"d\" = Fused(%0) \"f\" space [2,3,8,8] {"
                        "  i0 f32 = Dropout(a0) {ratio=0.5} key 1 out i0 }"
                        "fwd %4 f32[3,8,8] \"s\" = ReduceSum(%0) {axes=0, keepdims=0} \"s\""
                        "fwd %5 f32[2,3,8] \"t\" = ReduceSum(%0) {axes=3, keepdims=0} \"t\"");
    CHECK(op_check(&b.diag, b.g));
    CHECK_STR(b.diag.log.at, "");
    CHECK_EQ(op_flops(b.g, &b.g->node[0]), 2 * 2 * 4 * 36 * 3 * 9);
    CHECK_EQ(op_node_class(&b.g->node[0]), CLS_PURE);
    CHECK_EQ(op_node_class(&b.g->node[1]), CLS_RANDOM);
    CHECK(op_is_colreduce(&b.g->node[2]));
    CHECK(!op_is_colreduce(&b.g->node[3]));
    CHECK(!op_is_colreduce(&b.g->node[0]));
    bench_free(&b);
}

int main(void) {
    test_table();
    test_check();
    test_questions();
    int failed = test_infer() + test_grad() + test_emit();
    return test_end() || failed;
}
