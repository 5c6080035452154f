/* cu.h - what the files of runtime/cuda share. The CUDA driver, cuBLAS and cuDNN are loaded with
 * dlopen, so that one program starts anywhere and says what is missing.
 *
 * Node bodies (dtrt_kernels.h) run on the host and enqueue work on one stream; nothing waits inside
 * a step. A step may be captured once and replayed: what changes from step to step is read by
 * kernels from cu_now (params.h), never taken as an argument, and no call inside a step may
 * allocate, synchronise or copy from pageable memory. */
#ifndef DTRT_CU_H
#define DTRT_CU_H

#include <cuda.h>

#include "core.h"
#include "dtrt_kernels.h"
#include "params.h"

/* ---- driver.c: libcuda ---- */
#define CU_FUNCTIONS(F)                                                                            \
    F(cuInit)                                                                                      \
    F(cuDriverGetVersion)                                                                          \
    F(cuGetErrorName)                                                                              \
    F(cuGetErrorString)                                                                            \
    F(cuDeviceGetCount)                                                                            \
    F(cuDeviceGet)                                                                                 \
    F(cuDeviceGetName)                                                                             \
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
    F(cuMemcpyDtoH)                                                                                \
    F(cuMemcpyHtoDAsync)                                                                           \
    F(cuMemcpyDtoHAsync)                                                                           \
    F(cuMemcpyDtoDAsync)                                                                           \
    F(cuMemsetD8Async)                                                                             \
    F(cuMemsetD32Async)                                                                            \
    F(cuStreamCreate)                                                                              \
    F(cuStreamDestroy)                                                                             \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamWaitEvent)                                                                           \
    F(cuStreamBeginCapture)                                                                        \
    F(cuStreamEndCapture)                                                                          \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphLaunch)                                                                               \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphExecDestroy)                                                                          \
    F(cuEventCreate)                                                                               \
    F(cuEventDestroy)                                                                              \
    F(cuEventRecord)                                                                               \
    F(cuEventSynchronize)                                                                          \
    F(cuEventElapsedTime)                                                                          \
    F(cuModuleLoadData)                                                                            \
    F(cuModuleUnload)                                                                              \
    F(cuModuleGetFunction)                                                                         \
    F(cuModuleGetGlobal)                                                                           \
    F(cuLaunchKernel)
typedef struct {
#define F(name) __typeof__(&name) name;
    CU_FUNCTIONS(F)
#undef F
} CuDriver;
extern CuDriver cu; /* cu.cuMemAlloc(..): the header's macros give the versioned names */

typedef struct {
    CUdevice device;
    CUcontext context;
    CUstream stream; /* of the step's work */
    int arch;        /* compute capability, 90 for 9.0 */
    int processors;  /* multiprocessors */
    char name[128];
    bool tf32; /* --math tf32: convolutions and products may round their inputs to TF32 */
    uint64_t context_bytes; /* device memory that context, module and libraries took */
} CuDevice;
extern CuDevice cu_device;

/* Opens one of `names` (NULL-terminated, best first), in the folders of $DTRT_CUDA_PATH (colons
 * between) first, then as the loader finds it. NULL after a message that names what is missing and
 * the remedy. */
void *cu_library(const char *what, const char *const *names);
/* Fills n pointers from symbols; false after a message. */
bool cu_symbols(void *library, const char *what, const char *const *name, void **to, uint32_t n);

/* Ends the run with a message (status 4) unless r is success. `what`: the call. */
void cu_check(CUresult r, const char *what);
/* "error: ..." with the node that runs, then the run ends with status 4. */
void cu_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The node that is being enqueued, for reports of kernels (CuReport.bad_node is 1 + this); -1. */
int cu_node(void);

/* ---- launch.c: kernels of the program's module ---- */
typedef struct {
    const char *name;
    CUfunction f; /* found at the first launch */
} CuKernel;
void cu_launch(CuKernel *k, int64_t grid_x, int64_t grid_y, int block, void **args);
/* CU_LAUNCH(softmax_rows, cu_blocks(rows, 1), 256, &x, &y, &rows): addresses of variables of
 * exactly the kernel's parameter types. A grid of 0 blocks launches nothing. */
#define CU_LAUNCH(kernel, grid, block, ...) CU_LAUNCH2(kernel, grid, 1, block, __VA_ARGS__)
#define CU_LAUNCH2(kernel, grid_x, grid_y, block, ...)                                             \
    do {                                                                                           \
        static CuKernel kernel_ = {.name = #kernel};                                               \
        void *args_[] = {__VA_ARGS__};                                                             \
        cu_launch(&kernel_, (grid_x), (grid_y), (block), args_);                                   \
    } while (0)
/* Blocks for n items at `per` a block; at most CU_MAX_BLOCKS: kernels walk on in grid strides. */
enum { CU_MAX_BLOCKS = 65535 };
static inline int64_t cu_blocks(int64_t n, int64_t per) {
    int64_t b = (n + per - 1) / per;
    return b < CU_MAX_BLOCKS ? b : CU_MAX_BLOCKS;
}

#endif
