/* dnn.h - cuDNN's graph API (version 9) as the compiler, which has no GPU, and programs use it. Who
 * opens the library fills in a Dnn. */
#ifndef DTRT_CUDA_DNN_H
#define DTRT_CUDA_DNN_H

#include <cudnn_graph.h>

#include "cuda_plan.h"

#define DNN_FUNCTIONS(F)                                                                           \
    F(cudnnGetVersion)                                                                             \
    F(cudnnGetErrorString)                                                                         \
    F(cudnnGetLastErrorString)                                                                     \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendExecute)

/* The library with what it plans for: a GPU of this machine (handle) or a described one (device).
 */
struct Dnn {
#define F(name) __typeof__(&name) name;
    DNN_FUNCTIONS(F)
#undef F
    cudnnHandle_t handle;            /* NULL: device */
    cudnnBackendDescriptor_t device; /* a finalized DEVICEPROP descriptor */
};

/* Names of the operands in a variant pack. */
enum { DNN_X = 1, DNN_W, DNN_Y };

#endif
