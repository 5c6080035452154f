/* program.c - trains the network of program.h on whatever libraries a folder holds, and compares
 * losses and weights with reference.c.
 *
 *     cudasim_program FOLDER [graph] [BUG]
 *
 * Built as dtrc's programs are: one block of device memory divided by the program, batches staged
 * through pinned memory on a copy stream while the step before computes, a side stream for one
 * gradient, nothing allocated in a step; with `graph` the step is captured and replayed. It tells a
 * checker about its block (watch.h).
 *
 * BUG names one mistake to make; run_standin.py has the list, with what must be found. Without one
 * there must be no finding in any order of streams.
 *
 * Status: 0 all as in double precision, 1 not, 4 a call failed, 77 NVRTC is missing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

/* Storages of the block. GW1 takes the place of Z, which is dead by then. */
typedef enum {
    W1,
    B1,
    W2,
    LOSS,
    X0,
    X1,
    T0,
    T1,
    BLAS_SPACE,
    PERSISTENT,
    H = PERSISTENT,
    Z,
    DZ,
    DH,
    GB1,
    CONV_SPACE,
    GW2,
    GW1,
    STORAGES
} Storage;

enum { ALIGN = 256, BLAS_BYTES = 4096, CONV_BYTES = 2048, LAG = 2 };

static const struct {
    const char *name;
    uint64_t bytes;
} storages[STORAGES] = {
    [W1] = {"w1", W1_COUNT * 4},
    [B1] = {"b1", FILTERS * 4},
    [W2] = {"w2", W2_COUNT * 4},
    [LOSS] = {"loss", BATCH * 4},
    [X0] = {"images 0", IMAGE * 4},
    [X1] = {"images 1", IMAGE * 4},
    [T0] = {"labels 0", BATCH * 4},
    [T1] = {"labels 1", BATCH * 4},
    [BLAS_SPACE] = {"workspace of products", BLAS_BYTES},
    [H] = {"hidden", BATCH *HIDDEN * 4},
    [Z] = {"logits", BATCH *CLASSES * 4},
    [DZ] = {"gradient of logits", BATCH *CLASSES * 4},
    [DH] = {"gradient of hidden", BATCH *HIDDEN * 4},
    [GB1] = {"gradient of b1", FILTERS * 4},
    [GW2] = {"gradient of w2", W2_COUNT * 4},
    [CONV_SPACE] = {"workspace of convolutions", CONV_BYTES},
    [GW1] = {"gradient of w1", W1_COUNT * 4},
};

static const char source[] =
    "__device__ float rate;\n"
    "extern \"C\" __global__ void bias_relu(float *y, const float *b, int n, int c) {\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) y[i] = fmaxf(y[i] + b[i % c], 0.f);\n"
    "}\n"
    "extern \"C\" __global__ void relu_back(float *dy, const float *y, int n) {\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n && !(y[i] > 0.f)) dy[i] = 0.f;\n"
    "}\n"
    "extern \"C\" __global__ void bias_back(const float *dy, float *db, int rows, int c) {\n"
    "    __shared__ float part[64];\n"
    "    float sum = 0.f;\n"
    "    for (int r = threadIdx.x; r < rows; r += 64) sum += dy[r * c + blockIdx.x];\n"
    "    part[threadIdx.x] = sum;\n"
    "    __syncthreads();\n"
    "    for (int half = 32; half; half /= 2) {\n"
    "        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];\n"
    "        __syncthreads();\n"
    "    }\n"
    "    if (!threadIdx.x) db[blockIdx.x] = part[0];\n"
    "}\n"
    "extern \"C\" __global__ void entropy(const float *z, const int *t, float *loss, float *dz,\n"
    "                                   int k, float scale) {\n"
    "    int row = blockIdx.x, i = threadIdx.x;\n"
    "    float v = i < k ? z[row * k + i] : -1e30f, top = v;\n"
    "    for (int o = 16; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));\n"
    "    float e = i < k ? expf(v - top) : 0.f, sum = e;\n"
    "    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);\n"
    "    if (i < k) dz[row * k + i] = (e / sum - (i == t[row] ? 1.f : 0.f)) * scale;\n"
    "    if (i == t[row]) loss[row] = (logf(sum) + top - v) * scale;\n"
    "}\n"
    "extern \"C\" __global__ void sgd(float *w, const float *g, int n) {\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) w[i] -= rate * g[i];\n"
    "}\n";

static struct {
    CUdeviceptr block, at[STORAGES];
    CUstream main, side, copy;
    CUevent loaded[2], used[2], fork, join;
    CUmodule module;
    CUfunction bias_relu, relu_back, bias_back, entropy, sgd;
    cublasHandle_t blas;
    cudnnHandle_t dnn;
    ConvPlan conv[CONV_KINDS];
    float *images[2], *losses, *weights; /* pinned */
    int *labels[2];
    CUgraphExec graph[2];
} g;

static const char *bug = "";

static bool is(const char *name) {
    return strcmp(bug, name) == 0;
}

/* ---- the block ---- */

static uint64_t up(uint64_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void divide(void) {
    uint64_t at = 0;
    uint64_t offset[STORAGES];
    for (int s = 0; s < GW1; s++) {
        offset[s] = at;
        at += up(s == Z ? storages[GW1].bytes : storages[s].bytes);
    }
    offset[GW1] = offset[Z];
    CALL(api.cuMemAlloc(&g.block, at));
    api.watchArena(g.block, at);
    for (int s = 0; s < STORAGES; s++) g.at[s] = g.block + offset[s];
}

static void live(Storage s) {
    api.watchLive(g.main, g.at[s], storages[s].bytes, 0, storages[s].name);
}

static void dead(Storage s) {
    api.watchDead(g.main, g.at[s], storages[s].bytes, 0);
}

/* What the next work on the stream uses: `reads` and `writes` end with STORAGES. */
static void uses(CUstream stream, const char *name, const Storage *reads, const Storage *writes) {
    DtrtWatchRange ranges[2 * STORAGES];
    uint32_t n = 0;
    for (int k = 0; k < 2; k++)
        for (const Storage *s = k ? writes : reads; *s != STORAGES; s++)
            ranges[n++] =
                (DtrtWatchRange){g.at[*s], storages[*s].bytes,
                                 k ? DTRT_WATCH_READ | DTRT_WATCH_WRITE : DTRT_WATCH_READ, 0};
    api.watchStep(stream, name, ranges, n);
}

#define LIST(...)                                                                                  \
    (const Storage[]) {                                                                            \
        __VA_ARGS__, STORAGES                                                                      \
    }

static float *floats(Storage s) {
    return (float *)(uintptr_t)g.at[s];
}

/* ---- start and end ---- */

static void open_kernels(void) {
    char *ptx = compile_kernels(source);
    if (!ptx) {
        printf("skipped: NVRTC is not installed\n");
        exit(77);
    }
    CALL(api.cuModuleLoadData(&g.module, ptx));
    free(ptx);
    CALL(api.cuModuleGetFunction(&g.bias_relu, g.module, "bias_relu"));
    CALL(api.cuModuleGetFunction(&g.relu_back, g.module, "relu_back"));
    CALL(api.cuModuleGetFunction(&g.bias_back, g.module, "bias_back"));
    CALL(api.cuModuleGetFunction(&g.entropy, g.module, "entropy"));
    CALL(api.cuModuleGetFunction(&g.sgd, g.module, "sgd"));
    CUdeviceptr at;
    size_t bytes;
    CALL(api.cuModuleGetGlobal(&at, &bytes, g.module, "rate"));
    CALL(api.cuMemcpyHtoD(at, &rate, sizeof rate));
}

static void open_libraries(void) {
    CUdeviceptr space = g.at[BLAS_SPACE];
    CALL(api.cublasCreate(&g.blas));
    if (is("forgotten-workspace"))
        CALL(api.cublasSetWorkspace(g.blas, (void *)(uintptr_t)space, BLAS_BYTES));
    CALL(api.cublasSetStream(g.blas, (cudaStream_t)g.main));
    if (!is("forgotten-workspace"))
        CALL(api.cublasSetWorkspace(g.blas, (void *)(uintptr_t)space, BLAS_BYTES));
    CALL(api.cublasSetMathMode(g.blas, is("tf32-product") ? CUBLAS_TF32_TENSOR_OP_MATH
                                                          : CUBLAS_DEFAULT_MATH));
    CALL(api.cudnnCreate(&g.dnn));
    CALL(api.cudnnSetStream(g.dnn, (cudaStream_t)g.main));
    for (int k = 0; k < CONV_KINDS; k++)
        g.conv[k] = conv_plan(g.dnn, (ConvKind)k, is("big-workspace") ? 1 << 30 : CONV_BYTES,
                              is("tf32-convolution"));
}

static void *pinned(size_t bytes) {
    void *p;
    CALL(api.cuMemHostAlloc(&p, bytes, 0));
    return p;
}

static void open_all(Model *model) {
    CUcontext context;
    CUdevice device;
    CALL(api.cuInit(0));
    CALL(api.cuDeviceGet(&device, 0));
    CALL(api.cuDevicePrimaryCtxRetain(&context, device));
    CALL(api.cuCtxSetCurrent(context));
    CUstream *streams[] = {&g.main, &g.side, &g.copy};
    CUevent *events[] = {&g.loaded[0], &g.loaded[1], &g.used[0], &g.used[1], &g.fork, &g.join};
    for (int i = 0; i < 3; i++) CALL(api.cuStreamCreate(streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 6; i++) CALL(api.cuEventCreate(events[i], CU_EVENT_DISABLE_TIMING));
    divide();
    for (Storage s = 0; s < PERSISTENT; s++) live(s);
    open_kernels();
    open_libraries();
    for (int b = 0; b < 2; b++) {
        g.images[b] = pinned(IMAGE * 4);
        g.labels[b] = pinned(BATCH * 4);
    }
    g.losses = pinned(STEPS * BATCH * 4);
    g.weights = pinned((W1_COUNT + W2_COUNT + FILTERS) * 4);
    float *w = g.weights;
    for (int i = 0; i < W1_COUNT; i++) *w++ = (float)model->w1[i];
    for (int i = 0; i < FILTERS; i++) *w++ = (float)model->b1[i];
    for (int i = 0; i < W2_COUNT; i++) *w++ = (float)model->w2[i];
    w = g.weights;
    CALL(api.cuMemcpyHtoDAsync(g.at[W1], w, W1_COUNT * 4, g.main));
    CALL(api.cuMemcpyHtoDAsync(g.at[B1], w + W1_COUNT, FILTERS * 4, g.main));
    CALL(api.cuMemcpyHtoDAsync(g.at[W2], w + W1_COUNT + FILTERS, W2_COUNT * 4, g.main));
    CALL(api.cuStreamSynchronize(g.main));
}

static void close_all(void) {
    for (int b = 0; b < 2; b++) {
        if (g.graph[b]) CALL(api.cuGraphExecDestroy(g.graph[b]));
        CALL(api.cuMemFreeHost(g.images[b]));
        CALL(api.cuMemFreeHost(g.labels[b]));
        CALL(api.cuEventDestroy(g.loaded[b]));
        CALL(api.cuEventDestroy(g.used[b]));
    }
    CALL(api.cuEventDestroy(g.fork));
    CALL(api.cuEventDestroy(g.join));
    CALL(api.cuMemFreeHost(g.losses));
    CALL(api.cuMemFreeHost(g.weights));
    for (int k = 0; k < CONV_KINDS; k++) CALL(api.cudnnBackendDestroyDescriptor(g.conv[k].plan));
    CALL(api.cudnnDestroy(g.dnn));
    CALL(api.cublasDestroy(g.blas));
    if (!is("leaked-module")) CALL(api.cuModuleUnload(g.module));
    if (!is("leaked-memory")) CALL(api.cuMemFree(g.block));
    if (is("double-free")) api.cuMemFree(g.block);
    CALL(api.cuStreamDestroy(g.main));
    CALL(api.cuStreamDestroy(g.side));
    CALL(api.cuStreamDestroy(g.copy));
    CALL(api.cuDevicePrimaryCtxRelease(0));
}

/* ---- one step ---- */

static void launch(CUfunction f, int blocks, int threads, CUstream stream, void **params) {
    CALL(api.cuLaunchKernel(f, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0, stream, params,
                            NULL));
}

static void product(bool ta, bool tb, int m, int n, int k, Storage a, int lda, Storage b, int ldb,
                    Storage c, int ldc) {
    const float one = 1, zero = 0;
    CALL(api.cublasSgemm(g.blas, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                         n, k, &one, floats(a), lda, floats(b), ldb, &zero, floats(c), ldc));
}

static void forward(Storage x, Storage t) {
    int n = BATCH * HIDDEN, filters = FILTERS, classes = CLASSES;
    float scale = 1.0f / BATCH;
    live(H);
    live(CONV_SPACE);
    uses(g.main, "convolution", LIST(x, W1), LIST(H, CONV_SPACE));
    conv_run(g.dnn, g.conv[CONV_FORWARD], g.at[x], g.at[W1], g.at[H], g.at[CONV_SPACE]);
    uses(g.main, "bias and ReLU", LIST(B1), LIST(H));
    launch(g.bias_relu, (n + 127) / 128, is("large-block") ? 2048 : 128, g.main,
           (void *[]){&g.at[H], &g.at[B1], &n, &filters});
    live(Z);
    live(DZ);
    if (is("overlap")) live(GW1);
    uses(g.main, "logits", LIST(H, W2), LIST(Z, BLAS_SPACE));
    if (is("small-ld"))
        product(true, false, CLASSES, BATCH, HIDDEN, W2, HIDDEN - 1, H, HIDDEN, Z, CLASSES);
    else
        product(true, false, CLASSES, BATCH, HIDDEN, W2, HIDDEN, H, HIDDEN, Z,
                is("large-ld") ? CLASSES + 40 : CLASSES);
    uses(g.main, "entropy", LIST(Z, t), LIST(LOSS, DZ));
    if (is("undeclared-write")) uses(g.main, "entropy", LIST(Z, t, DZ), LIST(LOSS));
    launch(g.entropy, BATCH, 32, g.main,
           (void *[]){&g.at[Z], &g.at[t], &g.at[LOSS], &g.at[DZ], &classes, &scale});
    dead(Z);
}

static void backward(Storage x) {
    int n = BATCH * HIDDEN, rows = BATCH * PIXELS, filters = FILTERS;
    live(GW2);
    uses(g.main, "gradient of w2", LIST(H, DZ), LIST(GW2, BLAS_SPACE));
    product(false, true, HIDDEN, CLASSES, BATCH, H, HIDDEN, DZ, CLASSES, GW2, HIDDEN);
    live(DH);
    uses(g.main, "gradient of hidden", LIST(W2, DZ), LIST(DH, BLAS_SPACE));
    product(false, false, HIDDEN, BATCH, CLASSES, W2, HIDDEN, DZ, CLASSES, DH, HIDDEN);
    dead(DZ);
    if (is("dead-storage")) dead(H);
    uses(g.main, "ReLU back", LIST(H), LIST(DH));
    if (is("dead-storage")) api.watchStep(g.main, NULL, NULL, 0);
    launch(g.relu_back, (n + 127) / 128, 128, g.main, (void *[]){&g.at[DH], &g.at[H], &n});
    if (!is("dead-storage")) dead(H);
    live(GB1);
    live(GW1);
    CALL(api.cuEventRecord(g.fork, g.main));
    CALL(api.cuStreamWaitEvent(g.side, g.fork, 0));
    uses(g.side, "gradient of b1", LIST(DH), LIST(GB1));
    if (!is("unwritten-read"))
        launch(g.bias_back, FILTERS, 64, g.side,
               (void *[]){&g.at[DH], &g.at[GB1], &rows, &filters});
    CALL(api.cuEventRecord(g.join, g.side));
    uses(g.main, "gradient of w1", LIST(x, DH), LIST(GW1, CONV_SPACE));
    conv_run(g.dnn, g.conv[CONV_FILTER], g.at[x], g.at[GW1], g.at[DH], g.at[CONV_SPACE]);
    if (!is("no-wait-join")) CALL(api.cuStreamWaitEvent(g.main, g.join, 0));
    dead(CONV_SPACE);
    dead(DH);
}

static void update(Storage w, Storage gradient, int n) {
    uses(g.main, "SGD", LIST(gradient), LIST(w));
    launch(g.sgd, (n + 127) / 128, 128, g.main, (void *[]){&g.at[w], &g.at[gradient], &n});
    dead(gradient);
}

static void compute(int b) {
    forward(b ? X1 : X0, b ? T1 : T0);
    backward(b ? X1 : X0);
    update(W1, GW1, W1_COUNT);
    update(B1, GB1, FILTERS);
    update(W2, GW2, W2_COUNT + is("one-too-many"));
    if (is("no-wait-join")) CALL(api.cuStreamWaitEvent(g.main, g.join, 0)); /* too late */
    api.watchStep(g.main, NULL, NULL, 0);
    api.watchStep(g.side, NULL, NULL, 0);
}

static void capture(int b) {
    CUgraph graph;
    CALL(api.cuStreamBeginCapture(g.main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CUdeviceptr extra;
    if (is("capture-alloc")) api.cuMemAlloc(&extra, 256);
    if (is("capture-sync")) api.cuStreamSynchronize(g.main);
    if (is("capture-pageable")) {
        int on_stack = 0;
        api.cuMemcpyHtoDAsync(g.at[T0], &on_stack, sizeof on_stack, g.main);
    }
    compute(b);
    if (is("capture-unjoined")) {
        CALL(api.cuStreamWaitEvent(g.copy, g.join, 0));
        CALL(api.cuMemcpyDtoHAsync(g.losses, g.at[LOSS], BATCH * 4, g.copy));
    }
    CALL(api.cuStreamEndCapture(g.main, &graph));
    CALL(api.cuGraphInstantiate(&g.graph[b], graph, 0));
    CALL(api.cuGraphDestroy(graph));
}

/* ---- the run ---- */

static float noise(uint64_t *state) { /* splitmix64: Steele, Lea, Flood, OOPSLA 2014 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1;
}

static void batch_of(int step, float *images, int *labels) {
    uint64_t state = (uint64_t)step + 100;
    for (int i = 0; i < IMAGE; i++) images[i] = noise(&state);
    for (int i = 0; i < BATCH; i++) labels[i] = (int)((noise(&state) + 1) * 4.99f);
}

/* Fills pinned buffers when the copy of two steps ago is done, and copies when the step that used
 * the target is done. */
static void load(int step) {
    int b = step % LAG;
    if (step >= LAG && !is("early-host")) CALL(api.cuEventSynchronize(g.loaded[b]));
    batch_of(step, g.images[b], g.labels[b]);
    if (step >= LAG && !is("no-wait-reuse")) CALL(api.cuStreamWaitEvent(g.copy, g.used[b], 0));
    uint64_t more = is("copy-past-end") ? 4096 : 0;
    CALL(api.cuMemcpyHtoDAsync(g.at[X0 + b], g.images[b], IMAGE * 4 + more, g.copy));
    CALL(api.cuMemcpyHtoDAsync(g.at[T0 + b], g.labels[b], BATCH * 4, g.copy));
    CALL(api.cuEventRecord(g.loaded[b], g.copy));
}

static void run_step(int step, bool use_graph) {
    int b = step % LAG;
    if (use_graph && !g.graph[b]) capture(b);
    if (!is("no-wait-load")) CALL(api.cuStreamWaitEvent(g.main, g.loaded[b], 0));
    if (use_graph)
        CALL(api.cuGraphLaunch(g.graph[b], g.main));
    else
        compute(b);
    CALL(api.cuEventRecord(g.used[b], g.main));
    CALL(api.cuMemcpyDtoHAsync(g.losses + step * BATCH, g.at[LOSS], BATCH * 4, g.main));
}

static bool compare(Model *model, const float *losses) {
    static float images[IMAGE];
    int labels[BATCH];
    double worst = 0;
    bool good = true;
    for (int step = 0; step < STEPS; step++) {
        batch_of(step, images, labels);
        double want = reference_step(model, images, labels), got = 0;
        for (int i = 0; i < BATCH; i++) got += losses[step * BATCH + i];
        good &= fabs(got - want) <= 2e-6; /* NaN is not */
        printf("step %d loss %.7f reference %.7f\n", step, got, want);
    }
    const float *w = g.weights;
    for (int i = 0; i < W1_COUNT + FILTERS + W2_COUNT; i++) {
        double want = i < W1_COUNT             ? model->w1[i]
                      : i < W1_COUNT + FILTERS ? model->b1[i - W1_COUNT]
                                               : model->w2[i - W1_COUNT - FILTERS];
        double error = fabs(w[i] - want);
        if (!(error <= worst)) worst = error;
        good &= error <= 1e-6;
    }
    printf("%s, weights within %.2g\n", good ? "match" : "MISMATCH", worst);
    return good;
}

static void misuse_freed(void) {
    CUdeviceptr gone;
    CALL(api.cuMemAlloc(&gone, 4096));
    CALL(api.cuMemFree(gone));
    int n = 1;
    api.cuLaunchKernel(g.relu_back, 1, 1, 1, 32, 1, 1, 0, g.main, (void *[]){&gone, &gone, &n},
                       NULL);
}

int main(int argc, char **argv) {
    bool use_graph = argc > 2 && strcmp(argv[2], "graph") == 0;
    if (argc < 2 || !api_open(argv[1])) return 4;
    if (argc > 2 + use_graph) bug = argv[2 + use_graph];
    static Model model;
    uint64_t state = 1;
    for (int i = 0; i < W1_COUNT; i++) model.w1[i] = (double)(0.3f * noise(&state));
    for (int i = 0; i < W2_COUNT; i++) model.w2[i] = (double)(0.1f * noise(&state));
    open_all(&model);
    load(0);
    for (int step = 0; step < STEPS; step++) {
        if (step + 1 < STEPS) load(step + 1);
        run_step(step, use_graph);
    }
    if (is("freed-buffer")) misuse_freed();
    if (!is("no-sync")) CALL(api.cuStreamSynchronize(g.main));
    static float losses[STEPS * BATCH];
    memcpy(losses, g.losses, sizeof losses);
    CALL(api.cuMemcpyDtoHAsync(g.weights, g.at[W1], W1_COUNT * 4, g.main));
    CALL(api.cuMemcpyDtoHAsync(g.weights + W1_COUNT, g.at[B1], FILTERS * 4, g.main));
    CALL(api.cuMemcpyDtoHAsync(g.weights + W1_COUNT + FILTERS, g.at[W2], W2_COUNT * 4, g.main));
    CALL(api.cuStreamSynchronize(g.main));
    bool good = compare(&model, losses);
    close_all();
    return !good;
}
