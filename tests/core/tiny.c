/* tiny.c - a complete program written by hand, as the code generator would write one: softmax
 * regression of 3 inputs on 2 classes, batch 4, with a weight in a "packed" layout (rows of 3
 * padded to 4), a bias, a running statistic, and SGD with velocity for the weight.
 *
 *   logits = x w' + b;  loss = mean cross-entropy;  stat = 0.9 stat + 0.1 mean of the logits
 *
 * Faults for tests, by environment: TINY_FAIL=1: the first node calls dtrt_fail; TINY_STALE=1: the
 * softmax node reads its result before it wrote it (hard mode must show it); TINY_WRONG=1: a wrong
 * gradient. */
#include "dtrt.h"
#include "dtrt_interface.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 4, D = 3, C = 2, ROW = 4, BREAKS_AT = 9 };

/* persistent: x 0, target 64, w 128, b 192, stat 256, v 320, const 384; arena from 448 */
enum { X = 0, T = 64, W = 128, B = 192, STAT = 256, V = 320, PERSISTENT = 384 };
enum { LOGITS = 384, LOSS = 448, DLOGITS = 512, DW = 576, DB = 640, END = 704 };

static int flag(const char *name) {
    const char *s = getenv(name);
    return s && *s == '1';
}

static void k_logits(DtrtCtx *c, void *const *p) {
    const float *x = p[0], *w = p[1], *b = p[2];
    float *y = p[3];
    if (flag("TINY_FAIL")) dtrt_fail(c, "index %d is out of range", 7);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < C; k++) {
            y[n * C + k] = b[k];
            for (int i = 0; i < D; i++) y[n * C + k] += x[n * D + i] * w[k * ROW + i];
        }
}

static void k_loss(DtrtCtx *c, void *const *p) {
    const float *x = p[0];
    const int64_t *t = p[1];
    float *loss = p[2], sum = 0, old = flag("TINY_STALE") ? *loss : 0;
    for (int n = 0; n < N; n++) {
        const float *r = x + n * C;
        float max = fmaxf(r[0], r[1]);
        sum += max + logf(expf(r[0] - max) + expf(r[1] - max)) - r[t[n]];
    }
    *loss = sum / N + 0 * old;
    if (c->step == BREAKS_AT && flag("TINY_BREAK")) *loss = INFINITY;
}

static void k_stat(DtrtCtx *c, void *const *p) {
    float *stat = p[0];
    const float *x = p[1];
    (void)c;
    for (int k = 0; k < C; k++)
        stat[k] = 0.9f * stat[k] + 0.1f * (x[k] + x[C + k] + x[2 * C + k] + x[3 * C + k]) / N;
}

static void k_dlogits(DtrtCtx *c, void *const *p) {
    const float *x = p[0];
    const int64_t *t = p[1];
    float *d = p[2];
    (void)c;
    for (int n = 0; n < N; n++) {
        float q = 1 / (1 + expf(x[n * C] - x[n * C + 1]));
        d[n * C] = (1 - q - (t[n] == 0)) / N;
        d[n * C + 1] = (q - (t[n] == 1)) / N;
    }
}

static void k_dw(DtrtCtx *c, void *const *p) {
    const float *d = p[0], *x = p[1];
    float *dw = p[2];
    (void)c;
    memset(dw, 0, C * ROW * sizeof *dw);
    for (int k = 0; k < C; k++)
        for (int i = 0; i < D; i++)
            for (int n = 0; n < N; n++) dw[k * ROW + i] += d[n * C + k] * x[n * D + i];
    if (flag("TINY_WRONG")) dw[0] *= 1.01f;
}

static void k_db(DtrtCtx *c, void *const *p) {
    const float *d = p[0];
    float *db = p[1];
    (void)c;
    for (int k = 0; k < C; k++) db[k] = d[k] + d[C + k] + d[2 * C + k] + d[3 * C + k];
}

static void k_update_w(DtrtCtx *c, void *const *p) {
    float *w = p[0], *v = p[2];
    const float *g = p[1];
    for (int i = 0; i < C * ROW; i++) {
        v[i] = c->momentum * v[i] + g[i];
        w[i] -= c->lr * v[i];
    }
}

static void k_update_b(DtrtCtx *c, void *const *p) {
    float *b = p[0];
    const float *g = p[1];
    for (int i = 0; i < C; i++) b[i] -= c->lr * g[i];
}

static bool pack(int conv, const float *plain, void *packed) {
    float *to = packed, row[C * D];
    (void)conv;
    memcpy(row, plain, sizeof row);
    memset(to, 0, C * ROW * sizeof *to);
    for (int k = 0; k < C; k++) memcpy(to + k * ROW, row + k * D, D * sizeof *to);
    return true;
}

static bool unpack(int conv, const void *packed, float *plain) {
    const float *from = packed;
    (void)conv;
    for (int k = 0; k < C; k++) memcpy(plain + k * D, from + k * ROW, D * sizeof *plain);
    return true;
}

static const DtrtTensor tensors[] = {
    {"x", DTRT_INPUT, DTRT_F32, 2, {N, D}, X, N *D * 4, -1, -1, 0, 0, 0},
    {"target", DTRT_TARGET, DTRT_I64, 1, {N}, T, N * 8, -1, -1, 0, 0, 0},
    {"w", DTRT_PARAM, DTRT_F32, 2, {C, D}, W, C *ROW * 4, 0, -1, 0, 0, C *D * 4},
    {"bias \"quoted\"", DTRT_PARAM, DTRT_F32, 1, {C}, B, C * 4, -1, -1, 0, 64, C * 4},
    {"stat", DTRT_BUFFER, DTRT_F32, 1, {C}, STAT, C * 4, -1, -1, 0, 0, 0},
    {"optim.m.w", DTRT_STATE, DTRT_F32, 2, {C, D}, V, C *ROW * 4, 0, 2, 'm', 0, 0},
};

#define F DTRT_F32
#define I DTRT_I64
static const DtrtStorage storages[] = {
    {N * D * 4, 0, F},    /* 0 x */
    {N * 8, 1, I},        /* 1 target */
    {C * ROW * 4, 2, F},  /* 2 w */
    {C * 4, 3, F},        /* 3 bias */
    {C * 4, 4, F},        /* 4 stat */
    {C * ROW * 4, 5, F},  /* 5 velocity */
    {N * C * 4, -1, F},   /* 6 logits */
    {4, -1, F},           /* 7 loss */
    {N * C * 4, -1, F},   /* 8 dlogits */
    {C * ROW * 4, -1, F}, /* 9 dw */
    {C * 4, -1, F},       /* 10 db */
};

static const int32_t operands[] = {
    0, 2,  3, 6, /* 0 */
    6, 1,  7,    /* 4 */
    4, 6,        /* 7 */
    6, 1,  8,    /* 9 */
    8, 0,  9,    /* 12 */
    2, 9,  5,    /* 15 */
    8, 10,       /* 18 */
    3, 10,       /* 20 */
};

static const DtrtNode nodes[] = {
    {k_logits, "fc", "MatMul", 0, 0, 3, 1, 0, -1, 0, 0, 0, 8},
    {k_loss, "loss", "SoftmaxCE", 1, 4, 2, 1, 0, -1, 0, 0, 0, 2},
    {k_stat, "stat", "BnUpdate", 2, 7, 2, 0, 0, -1, 0, 1, 0, 1},
    {k_dlogits, "loss.dx", "SoftmaxCEGrad", 3, 9, 2, 1, 1, -1, 0, 0, 0, 2},
    {k_dw, "fc.dw", "MatMul", 4, 12, 2, 1, 1, -1, 0, 0, 0, 8},
    {k_update_w, "w.update", "Sgd", 5, 15, 3, 0, 2, 2, 0, 5, 0, 2},
    {k_db, "fc.db", "ReduceSum", 6, 18, 1, 1, 1, -1, 0, 0, 0, 1},
    {k_update_b, "b.update", "Sgd", 7, 20, 2, 0, 2, 3, 0, 1, 0, 1},
};

/* The last address of a run is its workspace. */
#define NONE DTRT_NOWHERE
static const uint64_t addr[] = {
    X,       W,      B,       LOGITS, NONE, /* 0 */
    LOGITS,  T,      LOSS,    NONE,         /* 5 */
    STAT,    LOGITS, NONE,                  /* 9 */
    LOGITS,  T,      DLOGITS, NONE,         /* 12 */
    DLOGITS, X,      DW,      NONE,         /* 16 */
    W,       DW,     V,       NONE,         /* 20 */
    DLOGITS, DB,     NONE,                  /* 24 */
    B,       DB,     NONE,                  /* 27 */
};

static const DtrtRun runs[] = {{0, 0}, {1, 5}, {2, 9}, {3, 12}, {4, 16}, {5, 20}, {6, 24}, {7, 27}};

static const DtrtStep steps[] = {
    {0, -1, 0}, {1, -1, 0},  {2, -1, 0}, {3, -1, 0},       {-1, 6, LOGITS}, {4, -1, 0},
    {5, -1, 0}, {-1, 9, DW}, {6, -1, 0}, {-1, 8, DLOGITS}, {7, -1, 0},      {-1, 10, DB},
};

static const int32_t ref_in[] = {0, 1, 2}, ref_out[] = {3};
static const char *const ref_attr_name[] = {"trans_b"};
static const int64_t ref_one[] = {1};
static const int64_t *const ref_attr_i[] = {ref_one};
static const double *const ref_attr_f[] = {NULL};
static const uint32_t ref_attr_n[] = {1};
static const DtrtRefNode ref_node[] = {{"MatMul", "fc", 3, 1, ref_in, ref_out, ref_attr_name,
                                        ref_attr_i, ref_attr_f, ref_attr_n, 1, 0}};
static const DtrtRefValue ref_value[] = {
    {"x", DTRT_F32, 2, {N, D}, 0, 0, 0},
    {"w", DTRT_F32, 2, {C, D}, 2, 0, 0},
    {"bias \"quoted\"", DTRT_F32, 1, {C}, 3, 0, 0},
    {"y", DTRT_F32, 2, {N, C}, -1, 0, 0},
};

static const DtrtProgram program = {
    .interface = DTRT_INTERFACE,
    .model = "tiny.onnx",
    .model_sha256 = "00",
    .command = "by hand",
    .target = "cpu",
    .budget_bytes = 1024,
    .persistent_bytes = PERSISTENT,
    .threads = 1,
    .ntensor = sizeof tensors / sizeof *tensors,
    .tensor = tensors,
    .nstorage = sizeof storages / sizeof *storages,
    .storage = storages,
    .noperand = sizeof operands / sizeof *operands,
    .operand = operands,
    .nnode = sizeof nodes / sizeof *nodes,
    .node = nodes,
    .plan = {.arena_bytes = END - PERSISTENT,
             .nrun = sizeof runs / sizeof *runs,
             .run = runs,
             .naddr = sizeof addr / sizeof *addr,
             .addr = addr,
             .nstep = sizeof steps / sizeof *steps,
             .step = steps},
    .loss_storage = 7,
    .logits_storage = 6,
    .logits_rank = 2,
    .logits_dim = {N, C},
    .loss_kind = "cross-entropy",
    .class_axis = 1,
    .nclass = C,
    .optimizer = "sgd",
    .momentum_state = true,
    .lr = 0.5f,
    .momentum = 0.9f,
    .pack = pack,
    .unpack = unpack,
    .nrefnode = 1,
    .nrefvalue = 4,
    .refnode = ref_node,
    .refvalue = ref_value,
    .ref_output = 3,
};

int main(int argc, char **argv) {
    return dtrt_main(&program, argc, argv);
}
