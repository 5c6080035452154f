/* program.h - a small CUDA program, as dtrc's programs are built: libraries opened from a folder,
 * one arena that it divides itself, two streams, pinned memory. Shared by its files; see program.c.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <cublas_v2.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>
#include <stdbool.h>
#include <stdint.h>

#include "watch.h"

/* The network: convolution 3x3 with padding 1, bias, ReLU, product, softmax and cross-entropy, SGD.
 */
enum {
    BATCH = 4,
    CHANNELS = 3,
    SIDE = 6,
    PIXELS = SIDE * SIDE,
    FILTERS = 4,
    HIDDEN = PIXELS * FILTERS, /* channels last: a row of the product's matrix */
    CLASSES = 10,
    STEPS = 6,
    IMAGE = BATCH * PIXELS * CHANNELS,
    W1_COUNT = FILTERS * 9 * CHANNELS,
    W2_COUNT = CLASSES * HIDDEN
};
static const float rate = 0.05f;

/* ---- reference.c: the same step in double precision ---- */

typedef struct {
    double w1[W1_COUNT], b1[FILTERS], w2[W2_COUNT];
} Model;

double reference_step(Model *model, const float *images, const int *labels); /* loss before it */

/* ---- api.c: functions of the opened libraries ---- */

#define CUDA_FUNCTIONS(F)                                                                          \
    F(cuInit)                                                                                      \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuDevicePrimaryCtxRelease)                                                                   \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxSynchronize)                                                                            \
    F(cuMemGetInfo)                                                                                \
    F(cuMemAlloc)                                                                                  \
    F(cuMemFree)                                                                                   \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemFreeHost)                                                                               \
    F(cuMemcpyHtoD)                                                                                \
    F(cuMemcpyHtoDAsync)                                                                           \
    F(cuMemcpyDtoHAsync)                                                                           \
    F(cuMemsetD8Async)                                                                             \
    F(cuStreamCreate)                                                                              \
    F(cuStreamDestroy)                                                                             \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamWaitEvent)                                                                           \
    F(cuStreamBeginCapture)                                                                        \
    F(cuStreamEndCapture)                                                                          \
    F(cuEventCreate)                                                                               \
    F(cuEventDestroy)                                                                              \
    F(cuEventRecord)                                                                               \
    F(cuEventSynchronize)                                                                          \
    F(cuGraphInstantiate)                                                                          \
    F(cuGraphLaunch)                                                                               \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphExecDestroy)                                                                          \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleUnload)                                                                              \
    F(cuModuleGetFunction)                                                                         \
    F(cuModuleGetGlobal)                                                                           \
    F(cuLaunchKernel)
#define BLAS_FUNCTIONS(F)                                                                          \
    F(cublasCreate)                                                                                \
    F(cublasDestroy)                                                                               \
    F(cublasSetStream)                                                                             \
    F(cublasSetWorkspace)                                                                          \
    F(cublasSetMathMode)                                                                           \
    F(cublasSgemm)
#define DNN_FUNCTIONS(F)                                                                           \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnGetLastErrorString)                                                                     \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendExecute)
#define WATCH_FUNCTIONS(F)                                                                         \
    F(Arena, DTRT_WATCH_ARENA)                                                                     \
    F(Live, DTRT_WATCH_LIVE)                                                                       \
    F(Dead, DTRT_WATCH_DEAD)                                                                       \
    F(Step, DTRT_WATCH_STEP)

typedef struct {
#define F(name) __typeof__(&name) name;
    CUDA_FUNCTIONS(F)
    BLAS_FUNCTIONS(F)
    DNN_FUNCTIONS(F)
#undef F
#define F(name, symbol) DtrtWatch##name *watch##name;
    WATCH_FUNCTIONS(F)
#undef F
} Api;

extern Api api;

bool api_open(const char *folder); /* says what is missing */
/* Ends the program with status 4 after a message when a call failed. */
void check_call(int status, const char *what, int line);
#define CALL(expression) check_call((int)(expression), #expression, __LINE__)
char *compile_kernels(const char *source); /* PTX, or NULL when there is no NVRTC */

/* ---- convolution.c: plans by cuDNN's graph API ---- */

typedef enum { CONV_FORWARD, CONV_FILTER, CONV_KINDS } ConvKind;

typedef struct {
    cudnnBackendDescriptor_t plan;
    uint64_t workspace;
} ConvPlan;

/* The first plan that is exact, deterministic and needs at most `most` bytes; the first of all with
 * take_any. */
ConvPlan conv_plan(cudnnHandle_t handle, ConvKind kind, uint64_t most, bool take_any);
void conv_run(cudnnHandle_t handle, ConvPlan plan, CUdeviceptr x, CUdeviceptr w, CUdeviceptr y,
              CUdeviceptr workspace);

#endif
