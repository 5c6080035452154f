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
#include "dtrt_cuda.h"
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
    bool tf32;       /* --math tf32: convolutions and products may round their inputs to TF32 */
    CUmodule module; /* the program's kernels */
    CUdeviceptr now, report; /* its variables cu_now and cu_report */
} CuDevice;
extern CuDevice cu_device;

Status cu_open(Runtime *rt);
void cu_close(void);
uint64_t cu_left(void); /* bytes of device memory that nobody has taken */

/* Opens one of `names` (NULL-terminated, best first), in the folders of $DTRT_CUDA_PATH (colons
 * between) first, then as the loader finds it. NULL after a message that names what is missing and
 * the remedy. */
void *cu_library(const char *what, const char *const *names);
/* Fills n pointers from symbols; false after a message. */
bool cu_symbols(void *library, const char *what, const char *const *name, void **to, uint32_t n);

/* False after a message unless r is success. */
bool cu_good(CUresult r, const char *what);
/* Ends the run with a message (status 4) unless r is success. `what`: the call. */
void cu_check(CUresult r, const char *what);
/* "error: ..." with the node that runs, then the run ends with status 4. */
void cu_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* The node that is being enqueued, for reports of kernels (CuReport.bad_node is 1 + this); -1. */
int cu_node(void);

/* ---- watch.c: what checkers of memory are told (watch.h) ---- */
void cu_watch_open(void *driver);
void cu_watch_block(const Runtime *rt); /* the block, and persistent storages from here on */
void cu_watch_begin(const Runtime *rt); /* of a step */
/* Before n runs whose work is one, and the drop of a storage; the end of a step ends what still
 * lives. */
void cu_watch_runs(const Runtime *rt, const DtrtRun *const *r, uint32_t n);
void cu_watch_drop(const Runtime *rt, int32_t storage, uint64_t at);
void cu_watch_end(void);
void cu_watch_free_work(void);               /* what follows touches any live bytes */
void cu_watch_everything(const Runtime *rt); /* from here on the whole arena is live */
void cu_watch_close(void);

/* ---- step.c ---- */
Status cu_step(Runtime *rt);
void cu_run(Runtime *rt, uint32_t node, void *const *ptr);
void cu_step_interrupted(void); /* a call inside it ends the run */
void cu_step_free(void);

/* ---- optim.c ---- */
/* dtrt_sgd and dtrt_adam between begin and end may be launched at end. order: CuUpdate.order of the
 * next one; without it its gradient is not looked at. */
void cu_updates_begin(void);
void cu_updates_order(int order);
void cu_updates_end(void);

/* ---- launch.c: kernels of the program's module ---- */
/* CU_LAUNCH(softmax_rows, cu_blocks(rows, 1), 256, &x, &y, &rows): addresses of variables of
 * exactly the kernel's parameter types. A grid of 0 blocks launches nothing. */
#define CU_LAUNCH(kernel, grid, block, ...) CU_LAUNCH2(kernel, grid, 1, block, __VA_ARGS__)
#define CU_LAUNCH2(kernel, grid_x, grid_y, block, ...)                                             \
    do {                                                                                           \
        static DtrtLaunch kernel_ = {#kernel, NULL};                                               \
        void *args_[] = {__VA_ARGS__};                                                             \
        dtrt_cuda_launch(&kernel_, dtrt_cuda_grid((grid_x), (grid_y)), (block), args_);            \
    } while (0)
#define CU_MAX_BLOCKS 65535
#define cu_blocks dtrt_cuda_blocks

#endif
