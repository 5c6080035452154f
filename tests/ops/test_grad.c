/* test_grad.c - which nodes the gradients of heavy operators are made of. Their numbers are checked
 * by the train room against finite differences. */
#include "test_ops.h"

/* Gradient of the last node with respect to all float inputs, as text: what was added, then din. */
static const char *gradient(Bench *b) {
    Graph *g = b->g;
    NodeId n = g->nnode - 1;
    bool *need = ARENA_ARRAY(b->arena, bool, g->nvalue + 1);
    for (ValueId v = 0; v < g->nvalue; v++) need[v] = g->value[v].dtype == DT_F32;
    Node node = g->node[n];
    ValueId dout[2] = {NO_ID, NO_ID}, din[4] = {NO_ID, NO_ID, NO_ID, NO_ID};
    dout[0] = ir_value(g, "dy", DT_F32, &g->value[node.out[0]].shape, ROLE_INPUT);
    GradCtx c = {g, &b->diag, b->arena, need};
    CHECK(op_def(node.op)->grad(&c, n, dout, din));
    CHECK(ir_verify(&b->diag, g));
    CHECK_STR(b->diag.log.at, "");
    Text t;
    text_init(&t, b->arena);
    const char *all = bench_print(b), *from = strstr(all, "bwd");
    text_str(&t, from ? from : "");
    for (uint32_t i = 0; i < node.nin; i++)
        text_add(&t, din[i] == NO_ID ? "%s-" : "%s%%%u", i ? " " : "din ", din[i]);
    return t.at;
}

static void check(const char *lines, const char *expect) {
    Bench b = bench_new(lines);
    CHECK_STR(gradient(&b), expect);
    bench_free(&b);
}

static void test_conv(void) {
    /* dY is the last source, %3; ReLU first, then bias, weight, image. */
    check("%0 param f32[2,6,6,3] \"x\" %1 param f32[4,3,3,3] \"w\" %2 param f32[4] \"b\""
          "fwd %3 f32[2,4,4,4] \"y\" = Conv(%0, %1, %2) {channels_last=1, relu=1} \"c\"",
          "bwd %5 f32[2,4,4,4] \"c.drelu.out\" = ReluGrad(%3, %4) \"c.drelu\"\n"
          "bwd %6 f32[4] \"c.db.out\" = ReduceSum(%5) {axes=[0,1,2], keepdims=0} \"c.db\"\n"
          "bwd %7 f32[4,3,3,3] \"c.dw.out\" = ConvGradW(%5, %0) {channels_last=1, shape=[4,3,3,3]} "
          "\"c.dw\"\n"
          "bwd %8 f32[2,6,6,3] \"c.dx.out\" = ConvGradX(%5, %1) {channels_last=1, shape=[2,6,6,3]} "
          "\"c.dx\"\n"
          "din %8 %7 %6");
    /* Channels first: the channel axis is 1. */
    check("%0 param f32[2,3,6] \"x\" %1 param f32[4,3,3] \"w\" %2 param f32[4] \"b\""
          "fwd %3 f32[2,4,4] \"y\" = Conv(%0, %1, %2) \"c\"",
          "bwd %5 f32[4] \"c.db.out\" = ReduceSum(%3) {axes=[0,2], keepdims=0} \"c.db\"\n"
          "bwd %6 f32[4,3,3] \"c.dw.out\" = ConvGradW(%3, %0) {shape=[4,3,3]} \"c.dw\"\n"
          "bwd %7 f32[2,3,6] \"c.dx.out\" = ConvGradX(%3, %1) {shape=[2,3,6]} \"c.dx\"\n"
          "din %7 %6 %5");
    /* A transposed one: what it is the gradient of, and the same weight gradient with the images
     * changing places. */
    check("%0 param f32[2,3,3,4] \"y\" %1 param f32[4,3,2,2] \"w\""
          "fwd %2 f32[2,6,6,3] \"x\" = ConvGradX(%0, %1) {strides=[2,2], channels_last=1, "
          "shape=[2,6,6,3]} \"t\"",
          "bwd %4 f32[4,3,2,2] \"t.dw.out\" = ConvGradW(%0, %2) {strides=[2,2], channels_last=1, "
          "shape=[4,3,2,2]} \"t.dw\"\n"
          "bwd %5 f32[2,3,3,4] \"t.dx.out\" = Conv(%2, %1) {strides=[2,2], channels_last=1} "
          "\"t.dx\"\n"
          "din %5 %4");
}

static void test_matmul(void) {
    /* A weight under a batch: one product over all 10 rows. dB = alpha A' dY; dA = alpha dY B'. */
    check("%0 param f32[5,2,3] \"a\" %1 param f32[3,4] \"b\" %2 param f32[4] \"c\""
          "fwd %3 f32[5,2,4] \"y\" = MatMul(%0, %1, %2) {alpha=0.5} \"m\"",
          "bwd %5 f32[4] \"m.dbias.out\" = ReduceSum(%3) {axes=[0,1], keepdims=0} \"m.dbias\"\n"
          "bwd %6 f32[10,3] \"m.a.rows.out\" = Reshape(%0) {shape=[10,3]} \"m.a.rows\"\n"
          "bwd %7 f32[10,4] \"m.dy.rows.out\" = Reshape(%3) {shape=[10,4]} \"m.dy.rows\"\n"
          "bwd %8 f32[3,4] \"m.db.out\" = MatMul(%6, %7) {trans_a=1, alpha=0.5} \"m.db\"\n"
          "bwd %9 f32[5,2,3] \"m.da.out\" = MatMul(%3, %1) {trans_b=1, alpha=0.5} \"m.da\"\n"
          "din %9 %8 %5");
    /* Both swapped, [3,2]' [4,3]': dA = B' dY' (op(B) = B', so trans_a on B), dB = dY' A'. */
    check("%0 param f32[3,2] \"a\" %1 param f32[4,3] \"b\""
          "fwd %2 f32[2,4] \"y\" = MatMul(%0, %1) {trans_a=1, trans_b=1} \"m\"",
          "bwd %4 f32[4,3] \"m.db.out\" = MatMul(%2, %0) {trans_a=1, trans_b=1} \"m.db\"\n"
          "bwd %5 f32[3,2] \"m.da.out\" = MatMul(%1, %2) {trans_a=1, trans_b=1} \"m.da\"\n"
          "din %5 %4");
    /* Batch axis of B is broadcast: its gradient is summed and keeps its axis of 1. */
    check("%0 param f32[5,2,3] \"a\" %1 param f32[1,3,4] \"b\""
          "fwd %2 f32[5,2,4] \"y\" = MatMul(%0, %1) \"m\"",
          "bwd %4 f32[5,3,4] \"m.db.out\" = MatMul(%0, %2) {trans_a=1} \"m.db\"\n"
          "bwd %5 f32[3,4] \"m.db.sum.out\" = ReduceSum(%4) {axes=0, keepdims=0} \"m.db.sum\"\n"
          "bwd %6 f32[1,3,4] \"m.db.sum.out\" = Reshape(%5) {shape=[1,3,4]} \"m.db.sum\"\n"
          "bwd %7 f32[5,2,3] \"m.da.out\" = MatMul(%2, %1) {trans_b=1} \"m.da\"\n"
          "din %7 %6");
}

static void test_pool(void) {
    check(
        "%0 param f32[1,4,6] \"x\""
        "fwd %1 f32[1,4,3] \"y\", %2 u8[1,4,3] \"i\" = MaxPool(%0) {kernel=2, strides=2} \"p\"",
        "bwd %4 f32[1,4,6] \"p.dx.out\" = MaxPoolGrad(%1, %3) {kernel=2, strides=2, shape=[1,4,6]} "
        "\"p.dx\"\n"
        "din %4");
    check(
        "%0 param f32[1,4,6] \"x\""
        "fwd %1 f32[1,4,3] \"y\" = AveragePool(%0) {kernel=2, strides=2} \"p\"",
        "bwd %3 f32[1,4,6] \"p.dx.out\" = AveragePoolGrad(%1) {kernel=2, strides=2, shape=[1,4,6]} "
        "\"p.dx\"\n"
        "din %3");
}

static void test_movement(void) {
    check("%0 param f32[2,3] \"x\" fwd %1 f32[6] \"y\" = Reshape(%0) {shape=6} \"r\"",
          "bwd %3 f32[2,3] \"r.dx.out\" = Reshape(%1) {shape=[2,3]} \"r.dx\"\ndin %3");
    /* perm 2,0,1 sends axis 0 to place 1, 1 to 2, 2 to 0: inverse 1,2,0. */
    check("%0 param f32[2,3,4] \"x\" fwd %1 f32[4,2,3] \"y\" = Transpose(%0) {perm=[2,0,1]} \"t\"",
          "bwd %3 f32[2,3,4] \"t.dx.out\" = Transpose(%1) {perm=[1,2,0]} \"t.dx\"\ndin %3");
    check("%0 param f32[2,3] \"x\" %1 param f32[2,5] \"z\""
          "fwd %2 f32[2,8] \"y\" = Concat(%0, %1) {axis=-1} \"c\"",
          "bwd %4 f32[2,3] \"c.dx0.out\" = Slice(%2) {starts=[0,0], steps=[1,1], sizes=[2,3]} "
          "\"c.dx0\"\n"
          "bwd %5 f32[2,5] \"c.dx1.out\" = Slice(%2) {starts=[0,3], steps=[1,1], sizes=[2,5]} "
          "\"c.dx1\"\n"
          "din %4 %5");
    check(
        "%0 param f32[9] \"x\" fwd %1 f32[3] \"y\" = Slice(%0) {starts=8, steps=-2, sizes=3} \"s\"",
        "bwd %3 f32[9] \"s.dx.out\" = SliceGrad(%1) {starts=8, steps=-2, shape=9} \"s.dx\"\ndin "
        "%3");
    check("%0 param f32[3] \"x\" fwd %1 f32[6] \"y\" = Pad(%0) {pads=[1,2]} \"p\"",
          "bwd %3 f32[3] \"p.dx.out\" = Slice(%1) {starts=1, steps=1, sizes=3} \"p.dx\"\ndin %3");
    check(
        "%0 param f32[3] \"x\" fwd %1 f32[4] \"y\" = Pad(%0) {pads=[-1,2]} \"p\"",
        "bwd %3 f32[3] \"p.dx.out\" = PadGrad(%1) {pads=[-1,2], mode=0, shape=3} \"p.dx\"\ndin %3");
    check(
        "%0 param f32[3] \"x\" fwd %1 f32[5] \"y\" = Pad(%0) {pads=[1,1], mode=2} \"p\"",
        "bwd %3 f32[3] \"p.dx.out\" = PadGrad(%1) {pads=[1,1], mode=2, shape=3} \"p.dx\"\ndin %3");
    check("%0 param f32[9,5] \"x\" %1 input i64[2] \"i\""
          "fwd %2 f32[9,2] \"y\" = Gather(%0, %1) {axis=1} \"g\"",
          "bwd %4 f32[9,5] \"g.dx.out\" = GatherGrad(%2, %1) {axis=1, shape=[9,5]} \"g.dx\"\ndin "
          "%4 -");
}

int test_grad(void) {
    test_conv();
    test_matmul();
    test_pool();
    test_movement();
    return test_failed;
}
