/* test_emit.c - the C that operators write for the CPU: bodies and runtime objects. */
#include "test_ops.h"

typedef struct {
    Text objects; /* one "TYPE_N = INIT" a line */
    uint32_t count;
    const char *seen[16];
} Objects;

static uint32_t add_object(CpuEmit *e, const char *type, const char *init) {
    Objects *o = e->priv;
    for (uint32_t i = 0; i < o->count; i++)
        if (!strcmp(o->seen[i], init)) return i;
    o->seen[o->count] = init;
    text_add(&o->objects, "%s_%u = %s\n", type, o->count, init);
    return o->count++;
}

/* A value named "packed" has the layout of convolution 7. */
static uint32_t packed_by(CpuEmit *e, ValueId v) {
    return strcmp(e->g->value[v].name, "packed") ? NO_ID : 7;
}

/* Objects, then the bodies of all nodes that have one. */
static const char *emit(Bench *b, const bool *packed) {
    Text body;
    Objects o = {0};
    text_init(&body, b->arena);
    text_str(&body, "");
    text_init(&o.objects, b->arena);
    text_str(&o.objects, "");
    CpuEmit e = {.arena = b->arena,
                 .body = &body,
                 .g = b->g,
                 .packed = packed,
                 .threads = 1,
                 .object = add_object,
                 .packed_by = packed_by,
                 .priv = &o};
    for (NodeId n = 0; n < b->g->nnode; n++)
        if (op_def(b->g->node[n].op)->cpu) CHECK(op_def(b->g->node[n].op)->cpu(&e, &b->g->node[n]));
    return arena_printf(b->arena, "%s%s", o.objects.at, body.at);
}

static void check(const char *lines, const char *expect) {
    Bench b = bench_new(lines);
    CHECK(op_check(&b.diag, b.g));
    CHECK_STR(b.diag.log.at, "");
    CHECK_STR(emit(&b, NULL), expect);
    bench_free(&b);
}

#define SIZES                                                                                      \
    ", .n = 2, .ci = 3, .co = 4, .in = {6}, .out = {4}, .k = {3}, .stride = {1}, .dil = {1}, "     \
    ".pad_lo = {0}, .pad_hi = {0}}\n"

/* An object has one pass: forward nodes of one geometry that differ in ReLU have two, equal
 * gradient nodes share one. */
static void test_conv(void) {
    check(
        "%0 input f32[2,3,6] \"x\" %1 param f32[4,3,3] \"w\" %2 param f32[4] \"b\""
        "%3 param f32[4,3,3] \"w2\""
        "fwd %4 f32[2,4,4] \"y\" = Conv(%0, %1, %2) {relu=1} \"c\""
        "fwd %5 f32[2,4,4] \"z\" = Conv(%0, %3) \"c2\""
        "bwd %6 f32[4,3,3] \"dw\" = ConvGradW(%4, %0) {shape=[4,3,3]} \"g\""
        "bwd %7 f32[4,3,3] \"dw2\" = ConvGradW(%5, %0) {shape=[4,3,3]} \"h\"",
        "DtrtConv_0 = {.nd = 1, .channels_last = 0, .group = 1, .bias = 1, .relu = 1, .packed = 0, "
        ".fwd = 1, .grad_x = 0, .grad_w = 0" SIZES
        "DtrtConv_1 = {.nd = 1, .channels_last = 0, .group = 1, .bias = 0, .relu = 0, .packed = 0, "
        ".fwd = 1, .grad_x = 0, .grad_w = 0" SIZES
        "DtrtConv_2 = {.nd = 1, .channels_last = 0, .group = 1, .bias = 0, .relu = 0, .packed = 0, "
        ".fwd = 0, .grad_x = 0, .grad_w = 1" SIZES
        "    dtrt_conv_forward(&DtrtConv_0[c->slot], p[0], p[1], p[2], p[3], p[4]);\n"
        "    dtrt_conv_forward(&DtrtConv_1[c->slot], p[0], p[1], NULL, p[2], p[3]);\n"
        "    dtrt_conv_grad_w(&DtrtConv_2[c->slot], p[0], p[1], p[2], p[3]);\n"
        "    dtrt_conv_grad_w(&DtrtConv_2[c->slot], p[0], p[1], p[2], p[3]);\n");
    /* A packed weight beside a plain one of the same geometry: two objects. */
    Bench b =
        bench_new("%0 input f32[2,3,6] \"x\" %1 param f32[4,3,3] \"w\" %2 param f32[4,3,3] \"v\""
                  "fwd %3 f32[2,4,4] \"y\" = Conv(%0, %1) \"c\""
                  "fwd %4 f32[2,4,4] \"z\" = Conv(%0, %2) \"d\"");
    bool packed[5] = {false, true};
    CHECK_STR(emit(&b, packed),
              "DtrtConv_0 = {.nd = 1, .channels_last = 0, .group = 1, .bias = 0, .relu = 0, "
              ".packed = 1, .fwd = 1, .grad_x = 0, .grad_w = 0" SIZES
              "DtrtConv_1 = {.nd = 1, .channels_last = 0, .group = 1, .bias = 0, .relu = 0, "
              ".packed = 0, .fwd = 1, .grad_x = 0, .grad_w = 0" SIZES
              "    dtrt_conv_forward(&DtrtConv_0[c->slot], p[0], p[1], NULL, p[2], p[3]);\n"
              "    dtrt_conv_forward(&DtrtConv_1[c->slot], p[0], p[1], NULL, p[2], p[3]);\n");
    bench_free(&b);
}

static void test_matmul(void) {
    /* Leading axes of A become rows; equal neighbouring batch axes become one. */
    check("%0 input f32[5,2,3] \"a\" %1 param f32[3,4] \"b\" %2 param f32[4] \"c\""
          "fwd %3 f32[5,2,4] \"y\" = MatMul(%0, %1, %2) {alpha=0.1} \"m\"",
          "DtrtMatmul_0 = {.nbatch = 0, .trans_a = 0, .trans_b = 0, .bias = 1, .alpha = "
          "0.100000001f, "
          ".m = 10, .n = 4, .k = 3}\n"
          "    dtrt_matmul(&DtrtMatmul_0[c->slot], p[0], p[1], p[2], p[3], p[4]);\n");
    check("%0 input f32[7,5,2,3] \"a\" %1 param f32[7,5,4,3] \"b\""
          "fwd %2 f32[7,5,2,4] \"y\" = MatMul(%0, %1) {trans_b=1} \"m\"",
          "DtrtMatmul_0 = {.nbatch = 1, .trans_a = 0, .trans_b = 1, .bias = 0, .alpha = 1.0f, "
          ".batch_a = {35}, .batch_b = {35}, .m = 2, .n = 4, .k = 3}\n"
          "    dtrt_matmul(&DtrtMatmul_0[c->slot], p[0], p[1], NULL, p[2], p[3]);\n");
    check("%0 input f32[7,1,2,3] \"a\" %1 param f32[5,3,4] \"b\""
          "fwd %2 f32[7,5,2,4] \"y\" = MatMul(%0, %1) \"m\"",
          "DtrtMatmul_0 = {.nbatch = 2, .trans_a = 0, .trans_b = 0, .bias = 0, .alpha = 1.0f, "
          ".batch_a = {7, 1}, .batch_b = {1, 5}, .m = 2, .n = 4, .k = 3}\n"
          "    dtrt_matmul(&DtrtMatmul_0[c->slot], p[0], p[1], NULL, p[2], p[3]);\n");
}

static void test_pool(void) {
    check("%0 input f32[1,6,4] \"x\""
          "fwd %1 f32[1,3,4] \"y\", %2 u8[1,3,4] \"i\" = MaxPool(%0) {kernel=2, strides=2, "
          "channels_last=1} \"p\""
          "bwd %3 f32[1,6,4] \"dx\" = MaxPoolGrad(%1, %2) {kernel=2, strides=2, channels_last=1, "
          "shape=[1,6,4]} \"q\"",
          "DtrtPool_0 = {.nd = 1, .channels_last = 1, .is_max = 1, .count_include_pad = 0, "
          ".ceil_mode = 0, .n = 1, .c = 4, .in = {6}, .out = {3}, .k = {2}, .stride = {2}, "
          ".dil = {1}, .pad_lo = {0}, .pad_hi = {0}}\n"
          "    dtrt_pool_forward(&DtrtPool_0[c->slot], p[0], p[1], p[2]);\n"
          "    dtrt_pool_grad(&DtrtPool_0[c->slot], p[0], p[1], p[2]);\n");
}

static void test_movement(void) {
    check("%0 input f32[2,3] \"x\" fwd %1 f32[3,2] \"y\" = Transpose(%0) {perm=[1,0]} \"t\"",
          "    const int64_t dim[] = {2, 3};\n"
          "    const int64_t perm[] = {1, 0};\n"
          "    dtrt_transpose(p[0], p[1], 2, dim, perm, 4);\n");
    /* One outer row of each input: 3 and 5 floats. */
    check("%0 input f32[2,3] \"x\" %1 input f32[2,5] \"z\""
          "fwd %2 f32[2,8] \"y\" = Concat(%0, %1) {axis=1} \"c\"",
          "    const int64_t inner[] = {12, 20};\n"
          "    dtrt_concat(2, (const void *const *)p, p[2], 2, inner);\n");
    check(
        "%0 input i64[9] \"x\" fwd %1 i64[3] \"y\" = Slice(%0) {starts=8, steps=-2, sizes=3} \"s\"",
        "    const int64_t xdim[] = {9};\n"
        "    const int64_t start[] = {8};\n"
        "    const int64_t step[] = {-2};\n"
        "    const int64_t size[] = {3};\n"
        "    dtrt_slice(p[0], p[1], 1, xdim, start, step, size, 8);\n");
    check("%0 input f32[3] \"x\" fwd %1 f32[6] \"y\" = Pad(%0) {pads=[1,2], value=-inf} \"p\"",
          "    const int64_t xdim[] = {3};\n"
          "    const int64_t lo[] = {1};\n"
          "    const int64_t hi[] = {2};\n"
          "    dtrt_pad(p[0], p[1], 1, xdim, lo, hi, 0, -INFINITY, DTRT_F32);\n");
    check("%0 input f32[2,9,5] \"x\" %1 input i32[7] \"i\""
          "fwd %2 f32[2,7,5] \"y\" = Gather(%0, %1) {axis=1} \"g\""
          "bwd %3 f32[2,9,5] \"dx\" = GatherGrad(%2, %1) {axis=1, shape=[2,9,5]} \"h\"",
          "    dtrt_gather(c, p[0], p[1], 1, p[2], 2, 9, 5, 7, 4);\n"
          "    dtrt_gather_grad(c, p[0], p[1], 1, p[2], 2, 9, 5, 7, p[3]);\n");
    check("fwd %0 f32[2,2] \"y\" = Fill() {shape=[2,2], value=1} \"f\"",
          "    dtrt_fill(p[0], 4, 1.0, DTRT_F32);\n");
}

/* Rows around the axis; absent operands are NULL. */
static void test_norms(void) {
    check("%0 input f32[2,3,4] \"x\" %1 param f32[3,4] \"w\""
          "fwd %2 f32[2,3,4] \"y\", %3 f32[2,1,1] \"m\", %4 f32[2,1,1] \"i\" = LayerNorm(%0, %1) "
          "{axis=1, eps=0.5} \"n\""
          "fwd %5 f32[2,3,4] \"s\" = Softmax(%2) {axis=1} \"s\""
          "fwd %6 f32[2,3,4] \"l\" = LogSoftmax(%5) \"l\""
          "bwd %7 f32[2,3,4] \"g\" = LogSoftmaxGrad(%6, %6) \"g\""
          "bwd %8 f32[2,3,4] \"dx\" = LayerNormGradX(%7, %0, %1, %3, %4) {axis=1} \"d\"",
          "    dtrt_layernorm(p[0], p[1], NULL, p[2], p[3], p[4], 2, 12, 0.5f);\n"
          "    dtrt_softmax(p[0], p[1], 2, 3, 4, 0);\n"
          "    dtrt_softmax(p[0], p[1], 6, 4, 1, 1);\n"
          "    dtrt_softmax_grad(p[0], p[1], p[2], 6, 4, 1, 1);\n"
          "    dtrt_layernorm_grad_x(p[0], p[1], p[2], p[3], p[4], p[5], 2, 12);\n");
}

static void test_groups(void) {
    check("%0 input f32[2,6,5] \"x\" %1 param f32[6] \"w\" %2 param f32[6] \"b\""
          "%3 param f32[5] \"v\""
          "fwd %4 f32[2,6,5] \"y\", %5 f32[2,3] \"m\", %6 f32[2,3] \"i\" = GroupNorm(%0, %1, %2) "
          "{group=3, eps=0.5} \"n\""
          "fwd %7 f32[2,6,5] \"r\", %8 f32[2,6,1] \"s\" = RmsNorm(%0, %3) {axis=-1, eps=0.5} \"q\""
          "bwd %9 f32[2,6,5] \"dx\" = GroupNormGradX(%4, %0, %1, %5, %6) {group=3} \"d\""
          "bwd %10 f32[2,6,5] \"e\" = RmsNormGradX(%7, %0, %3, %8) {axis=-1} \"f\"",
          "    dtrt_groupnorm(p[0], p[1], p[2], p[3], p[4], p[5], 2, 6, 5, 3, 0, 0.5f);\n"
          "    dtrt_rmsnorm(p[0], p[1], p[2], p[3], 12, 5, 0.5f);\n"
          "    dtrt_groupnorm_grad_x(p[0], p[1], p[2], p[3], p[4], p[5], 2, 6, 5, 3, 0);\n"
          "    dtrt_rmsnorm_grad_x(p[0], p[1], p[2], p[3], p[4], 12, 5);\n");
}

static void test_attention(void) {
    check(
        "%0 input f32[2,5,4] \"q\" %1 input f32[2,6,4] \"k\" %2 input f32[2,6,3] \"v\""
        "%3 input bool[5,6] \"c\" %9 param f32[6] \"m\""
        "fwd %4 f32[2,5,3] \"y\", %5 f32[2,5,2] \"s\" = Attention(%0, %1, %2, -, %3) "
        "{alpha=0.5, trans_b=1, value=-2.0} \"n\""
        "bwd %6 f32[2,5,4] \"a\", %7 f32[2,6,4] \"b\", %8 f32[2,6,3] \"d\" = "
        "AttentionGrad(%4, %0, %1, %2, %5, -, %3) {alpha=0.5, trans_b=1, value=-2.0} \"g\""
        "bwd %10 f32[2,5,4] \"a\", %11 f32[2,6,4] \"b\", %12 f32[2,6,3] \"d\", %13 f32[2,5,6] "
        "\"s\" "
        "= AttentionGrad(%4, %0, %1, %2, %5, %9) {trans_b=1, ratio=0.25} \"h\" key 9",
        "DtrtAttention_0 = {.grad = 0, .nbatch = 1, .trans_k = 0, .add = 0, .cond = "
        "DTRT_ATTENTION_HIDES, .alpha = 0.5f, .fill = -2.0f, .batch = {2}, .rows = 5, .keys = 6, "
        ".depth = 4, .width = 3, .cond_dim = {1, 5}}\n"
        "DtrtAttention_1 = {.grad = 1, .nbatch = 1, .trans_k = 0, .add = 0, .cond = "
        "DTRT_ATTENTION_HIDES, .alpha = 0.5f, .fill = -2.0f, .batch = {2}, .rows = 5, .keys = 6, "
        ".depth = 4, .width = 3, .cond_dim = {1, 5}}\n"
        "DtrtAttention_2 = {.grad = 1, .nbatch = 1, .trans_k = 0, .add = 1, .cond = "
        "DTRT_ATTENTION_NO_COND, .alpha = 1.0f, .fill = 0.0f, .ratio = 0.25f, .batch = {2}, .rows "
        "= "
        "5, .keys = 6, .depth = 4, .width = 3, .add_dim = {1, 1}}\n"
        "    dtrt_attention_forward(c, &DtrtAttention_0[c->slot], 0, p[0], p[1], p[2], NULL, p[4], "
        "p[5], p[6], p[7]);\n"
        "    dtrt_attention_grad(c, &DtrtAttention_1[c->slot], 0, p[0], p[1], p[2], p[3], NULL, "
        "p[6], p[4], p[7], p[8], p[9], NULL, p[10]);\n"
        "    dtrt_attention_grad(c, &DtrtAttention_2[c->slot], 9, p[0], p[1], p[2], p[3], p[5], "
        "NULL, p[4], p[6], p[7], p[8], p[9], p[10]);\n");
}

/* Both passes of a loss share an object. */
static void test_loss(void) {
    check("%0 input f32[2,5,3] \"x\" %1 target i32[2,3] \"t\""
          "fwd %2 f32[] \"loss\" = SoftmaxCE(%0, %1) {axis=1, ignore_index=-100, smoothing=0.25} "
          "\"l\""
          "bwd %3 f32[2,5,3] \"g\" = SoftmaxCEGrad(%2, %0, %1) {axis=1, ignore_index=-100, "
          "smoothing=0.25} \"g\"",
          "DtrtLoss_0 = {.outer = 2, .n = 5, .inner = 3, .label_i32 = 1, .has_ignore = 1, "
          ".is_log = 0, .ignore_index = INT64_C(-100), .smoothing = 0.25f}\n"
          "    dtrt_loss_forward(c, &DtrtLoss_0[c->slot], p[0], p[1], p[2], p[3]);\n"
          "    dtrt_loss_grad(c, &DtrtLoss_0[c->slot], p[0], p[1], p[2], p[3], p[4]);\n");
}

/* Updates of a packed weight run over as many elements as the library says, padding included. */
static void test_updates(void) {
    check("%0 param f32[4] \"packed\" %1 input f32[4] \"g\" %2 state f32[4] \"optim.m.w\" of %0 "
          "%3 state f32[4] \"optim.v.w\" of %0 %4 buffer f32[4] \"mean\" %5 buffer f32[4] \"var\""
          "upd Sgd(%0, %1) \"a\" upd Sgd(%0, %1, %2) \"b\" upd AdamW(%0, %1, %2, %3) \"c\" "
          "upd BnUpdate(%4, %5, %1, %1) {momentum=0.75} \"d\"",
          "    dtrt_sgd(c, p[0], p[1], NULL, dtrt_conv_weight_count(&DtrtConv_7[c->slot]));\n"
          "    dtrt_sgd(c, p[0], p[1], p[2], dtrt_conv_weight_count(&DtrtConv_7[c->slot]));\n"
          "    dtrt_adam(c, p[0], p[1], p[2], p[3], dtrt_conv_weight_count(&DtrtConv_7[c->slot]), "
          "1);\n"
          "    dtrt_bn_update(p[0], p[1], p[2], p[3], 4, 0.75f);\n");
}

static void test_sums(void) {
    check("%0 input f32[2,3,4] \"x\" fwd %1 f32[2,1,4] \"s\" = ReduceSum(%0) {axes=1, scale=0.125} "
          "\"s\"",
          "    const int64_t dim[] = {2, 3, 4};\n"
          "    const uint8_t red[] = {0, 1, 0};\n"
          "    dtrt_reduce_sum(p[0], p[1], 3, dim, red, 0.125f, p[2]);\n");
}

int test_emit(void) {
    test_norms();
    test_groups();
    test_attention();
    test_loss();
    test_updates();
    test_sums();
    test_conv();
    test_matmul();
    test_pool();
    test_movement();
    return test_failed;
}
