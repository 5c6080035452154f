/* Convolutions of well-known networks, planned for GPUs that are not here: there is a plan for each
 * pass; it is exact (or may use TF32), deterministic and compiled in advance, which is read again
 * from the plan that was made; workspace keeps to the cap; a program that may use just what was
 * planned plans the same; one that may use nothing does without. */
#include "dnn.h"
#include "test.h"

typedef struct {
    const char *name;
    int nd, group;
    int64_t n, ci, co, in[3], k[3], stride[3], dil[3], lo[3], hi[3];
} Row;
#define D1                                                                                         \
    { 1, 1, 1 }
#define SAME                                                                                       \
    {1, 1}, {                                                                                      \
        1, 1                                                                                       \
    }

static const Row rows[] = {
    {"resnet50 conv1", 2, 1, 32, 3, 64, {224, 224}, {7, 7}, {2, 2}, D1, {3, 3}, {3, 3}},
    {"resnet50 1x1", 2, 1, 32, 64, 256, {56, 56}, {1, 1}, {1, 1}, D1, {0}, {0}},
    {"resnet50 3x3", 2, 1, 32, 64, 64, {56, 56}, {3, 3}, {1, 1}, D1, SAME},
    {"resnet50 3x3 stride 2", 2, 1, 32, 128, 128, {56, 56}, {3, 3}, {2, 2}, D1, SAME},
    {"resnet50 shortcut", 2, 1, 32, 256, 512, {56, 56}, {1, 1}, {2, 2}, D1, {0}, {0}},
    {"resnet50 last", 2, 1, 32, 512, 512, {7, 7}, {3, 3}, {1, 1}, D1, SAME},
    {"densenet", 2, 1, 32, 128, 32, {28, 28}, {3, 3}, {1, 1}, D1, SAME},
    {"vgg", 2, 1, 32, 64, 64, {224, 224}, {3, 3}, {1, 1}, D1, SAME},
    {"unet", 2, 1, 4, 64, 64, {416, 608}, {3, 3}, {1, 1}, D1, SAME},
    {"unet up", 2, 1, 32, 64, 128, {16, 16}, {2, 2}, {2, 2}, D1, {0}, {0}},
    {"alexnet", 2, 1, 32, 3, 64, {224, 224}, {11, 11}, {4, 4}, D1, {2, 2}, {2, 2}},
    {"inception 1x7", 2, 1, 32, 128, 128, {17, 17}, {1, 7}, {1, 1}, D1, {0, 3}, {0, 3}},
    {"deeplab", 2, 1, 8, 2048, 256, {28, 28}, {3, 3}, {1, 1}, {12, 12}, {12, 12}, {12, 12}},
    {"lenet", 2, 1, 64, 1, 6, {28, 28}, {5, 5}, {1, 1}, D1, {2, 2}, {2, 2}},
    {"vit", 2, 1, 32, 3, 768, {224, 224}, {16, 16}, {16, 16}, D1, {0}, {0}},
    {"convnext 7x7", 2, 96, 32, 96, 96, {56, 56}, {7, 7}, {1, 1}, D1, {3, 3}, {3, 3}},
    {"convnext down", 2, 1, 32, 96, 192, {56, 56}, {2, 2}, {2, 2}, D1, {0}, {0}},
    {"mobilenet depthwise", 2, 144, 32, 144, 144, {56, 56}, {3, 3}, {2, 2}, D1, SAME},
    {"resnext", 2, 32, 32, 256, 256, {28, 28}, {3, 3}, {1, 1}, D1, SAME},
    {"tensorflow's padding", 2, 1, 32, 32, 64, {112, 112}, {3, 3}, {2, 2}, D1, {0}, {1, 1}},
    {"loose end", 2, 1, 7, 16, 16, {20, 20}, {3, 3}, {2, 2}, D1, {0}, {0}},
    {"1-d", 1, 1, 32, 80, 384, {3000}, {3}, {1}, D1, {1}, {1}},
    {"1-d stride 2", 1, 1, 32, 384, 384, {3000}, {3}, {2}, D1, {1}, {1}},
    {"r3d stem", 3, 1, 8, 3, 64, {8, 112, 112}, {3, 7, 7}, {1, 2, 2}, D1, {1, 3, 3}, {1, 3, 3}},
    {"r3d", 3, 1, 8, 64, 128, {8, 56, 56}, {3, 3, 3}, {2, 2, 2}, D1, {1, 1, 1}, {1, 1, 1}},
};

static DtrtConv geometry(const Row *r, int channels_last, int packed) {
    DtrtConv c = {.nd = r->nd,
                  .channels_last = channels_last,
                  .group = r->group,
                  .packed = packed,
                  .n = r->n,
                  .ci = r->ci,
                  .co = r->co};
    for (int i = 0; i < r->nd; i++) {
        c.in[i] = r->in[i], c.k[i] = r->k[i], c.stride[i] = r->stride[i], c.dil[i] = r->dil[i];
        c.pad_lo[i] = r->lo[i], c.pad_hi[i] = r->hi[i];
        int64_t reach = (c.k[i] - 1) * c.dil[i] + 1;
        c.out[i] = (c.in[i] + c.pad_lo[i] + c.pad_hi[i] - reach) / c.stride[i] + 1;
    }
    return c;
}

/* ---- notes of a finished plan ---- */

static uint64_t notes_of(const Dnn *d, cudnnBackendDescriptor_t engine,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
    int note[64];
    int64_t n = 0;
    uint64_t set = 0;
    CHECK_EQ(d->cudnnBackendGetAttribute(engine, name, type, 64, &n, note), 0);
    for (int64_t i = 0; i < n; i++) set |= 1ull << note[i];
    return set;
}

static void check_notes(const Dnn *d, void *plan, bool tf32) {
    cudnnBackendDescriptor_t config = NULL, engine = NULL;
    int64_t n;
    CHECK_EQ(d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config), 0);
    CHECK_EQ(d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    CHECK_EQ(d->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &config),
             0);
    CHECK_EQ(d->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
             0);
    uint64_t notes =
        notes_of(d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE);
    uint64_t behavior =
        notes_of(d, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE);
    CHECK(!(notes & (1ull << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC |
                     1ull << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                     1ull << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)));
    CHECK(tf32 || !(notes & 1ull << CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
    CHECK(!(behavior & 1ull << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION));
    d->cudnnBackendDestroyDescriptor(engine);
    d->cudnnBackendDestroyDescriptor(config);
}

/* ---- passes ---- */

static CudaWay expected_way(const DtrtConv *c) {
    bool cell = c->k[0] == 1 && c->nd == 2 && c->k[1] == 1 && c->stride[0] == 1;
    if (c->group > 1 && c->ci == c->group) return WAY_OWN;
    return cell && c->channels_last ? WAY_PRODUCT : WAY_LIBRARY;
}

/* A layout that the library does not take is turned: 4 bytes a weight, behind its workspace. */
static void check_weights(const DtrtConv *c, const CudaConvPass *p) {
    bool turned = p->way == WAY_LIBRARY && c->channels_last && !c->packed && c->ci > c->group;
    CHECK_EQ(p->weights, turned ? 4 * (uint64_t)cuda_conv_weights(c) : 0);
    CHECK_EQ(p->bytes, p->way == WAY_OWN ? p->bytes : p->library + p->weights);
    if (turned) CHECK_EQ(p->library % 256, 0);
}

static void check_pass(const Dnn *d, const Row *r, const DtrtConv *c, CudaPass pass, bool tf32) {
    CudaConvPass p, again, none;
    int failed = test_failed;
    cuda_conv_pass(d, c, pass, tf32, 0, &p);
    CHECK_EQ(p.way, expected_way(c));
    CHECK(p.bytes <= cuda_conv_cap(c));
    check_weights(c, &p);
    if (p.way == WAY_LIBRARY) {
        CHECK(p.plan && p.images >= 1 && c->n % p.images == 0);
        if (p.plan) check_notes(d, p.plan, tf32);
        if (pass == PASS_GRAD_W) CHECK_EQ(p.images, c->n);
    }
    cuda_conv_pass(d, c, pass, tf32, 1 + p.bytes, &again);
    CHECK_EQ(again.way, p.way);
    CHECK_EQ(again.images, p.images);
    CHECK_EQ(again.bytes, p.bytes);
    CHECK_EQ(again.parts, p.parts);
    cuda_conv_pass(d, c, pass, tf32, 1, &none);
    CHECK_EQ(none.bytes, 0);
    CHECK(none.way != WAY_PRODUCT);
    if (test_failed != failed) fprintf(stderr, "   in pass %d of %s\n", pass, r->name);
    dnn_drop(d, p.plan);
    dnn_drop(d, again.plan);
    dnn_drop(d, none.plan);
}

static void check_device(const char *name, bool tf32, int channels_last) {
    const Dnn *d = dnn_for(cuda_device_named(name));
    int failed = test_failed;
    CHECK(d != NULL);
    for (size_t i = 0; d && i < sizeof rows / sizeof *rows; i++) {
        DtrtConv c = geometry(&rows[i], channels_last, i % 2 == 0);
        for (int pass = 0; pass < PASSES; pass++) check_pass(d, &rows[i], &c, (CudaPass)pass, tf32);
    }
    if (test_failed != failed) fprintf(stderr, "   on %s\n", name);
}

/* ---- rules, which need no library ---- */

/* One image of 3x3 [64, 416, 608]: 2 * 64 * 416 * 608 * 4 bytes = 129499136; weights 64*64*9*4 =
 * 147456, four times that 589824; 65536 more: 130154496. */
static void check_caps(void) {
    DtrtConv large = geometry(&rows[8], 1, 1), small = geometry(&rows[2], 1, 1);
    CHECK_EQ(cuda_conv_cap(&large), 130154496);
    CHECK_EQ(cuda_conv_cap(&small), 32 << 20);
    CudaConvPass p;
    cuda_conv_pass(NULL, &small, PASS_GRAD_X, false, 0, &p); /* nobody to ask: the cap */
    CHECK_EQ(p.bytes, 32 << 20);
    CHECK(!p.plan);
    DtrtConv deep = geometry(&rows[17], 1, 1); /* 144 channels of 9 weights: 1296 */
    cuda_conv_pass(NULL, &deep, PASS_GRAD_W, false, 0, &p);
    CHECK_EQ(p.parts, 256); /* 2^20 / 1296 = 809, above the most */
    CHECK_EQ(p.bytes, 256 * 1296 * 8);
    cuda_conv_pass(NULL, &deep, PASS_GRAD_W, false, 1 + 3 * 1296 * 8 + 5, &p);
    CHECK_EQ(p.parts, 3);
}

static void check_products(void) {
    DtrtMatmul m = {.m = 1000, .n = 1000, .k = 511}; /* too short to be split */
    CHECK_EQ(cuda_matmul_workspace(&m), 64 << 10);
    m.m = m.n = 10, m.k = 1000000;
    CHECK_EQ(cuda_matmul_workspace(&m), 64 << 10); /* 16 bytes a result, at least 64 KiB */
    m.m = m.n = 1000;
    CHECK_EQ(cuda_matmul_workspace(&m), 16000000); /* a multiple of 256 */
    m.nbatch = 2, m.batch_a[0] = 2, m.batch_b[0] = 1, m.batch_a[1] = 1, m.batch_b[1] = 1;
    CHECK_EQ(cuda_matmul_workspace(&m), 32000000);
    m.batch_a[0] = 4;
    CHECK_EQ(cuda_matmul_workspace(&m), 32 << 20);
    m.batch_a[0] = 5; /* 5e6 results > 256 tiles of 128x128 */
    CHECK_EQ(cuda_matmul_workspace(&m), 4 << 20);
}

int main(void) {
    check_caps();
    check_products();
    CHECK(!cuda_device_named("h20"));
    if (!cuda_plan_library()) {
        if (test_failed) return test_end();
        printf("skipped: cuDNN is not installed\n");
        return 77;
    }
    for (uint32_t i = 0; cuda_device(i); i++) check_device(cuda_device(i)->name, false, 1);
    check_device("h200", false, 0);
    check_device("t4", false, 0);
    check_device("h200", true, 1);
    check_device("a100", true, 1);
    return test_end();
}
