/* cuda_plan.h - what the compiler must know of the CUDA target without a GPU: devices, and the
 * workspace of convolutions and matrix products. Programs decide by the same functions, so both
 * come to the same answer. No types of CUDA here: without its headers the compiler is built too. */
#ifndef DTRT_CUDA_PLAN_H
#define DTRT_CUDA_PLAN_H

#include "dtrt_kernels.h"

/* ---- devices.c ---- */
typedef struct {
    const char *name;  /* what a user writes: "h200" */
    const char *title; /* what the driver says: "NVIDIA H200" */
    int arch;          /* compute capability, 90 for 9.0 */
    int processors;    /* multiprocessors */
    uint64_t memory_bytes;
    /* Of the data sheet: what a cost model starts from. */
    double flops_per_ns;      /* f32, a fused multiply-add counted as two */
    double tf32_flops_per_ns; /* dense, on tensor cores; that of f32 where there are none */
    double bytes_per_ns;      /* of device memory */
    double fixed_ns;          /* from kernel to kernel in one stream */
    /* For cuDNN's heuristics. */
    int clock_mhz, memory_clock_mhz;
    int blocks_per_processor, threads_per_processor;
    uint64_t cache_bytes, shared_bytes; /* L2; shared memory that a block can ask for */
} CudaDevice;
/* The devices in their order, NULL after the last one. */
const CudaDevice *cuda_device(uint32_t i);
const CudaDevice *cuda_device_named(const char *name); /* NULL: unknown */
/* The JSON that a cuDNN device descriptor takes; the length without the final 0. */
size_t cuda_device_json(const CudaDevice *d, char *to, size_t room);

typedef struct {
    const CudaDevice *device;
    bool tf32;           /* products may round their inputs to TF32 */
    uint64_t conv_limit; /* as in cuda_conv_pass */
} CudaTarget;

/* ---- passes.c: how each pass of a convolution is done ---- */
typedef enum { PASS_FWD, PASS_GRAD_X, PASS_GRAD_W, PASSES } CudaPass;
typedef enum {
    WAY_PRODUCT, /* one matrix product: kernels of one cell, channels last */
    WAY_LIBRARY, /* a plan of cuDNN */
    WAY_OWN      /* loops of kernels/conv.cu: depthwise, and what the library has no plan for */
} CudaWay;
typedef struct {
    CudaWay way;
    int64_t images;   /* WAY_LIBRARY: so many at a time, a divisor of the batch */
    void *plan;       /* WAY_LIBRARY: its plan for them (a cuDNN descriptor) */
    int64_t parts;    /* WAY_OWN, weights: partial sums, 1: none */
    uint64_t library; /* bytes for a library; a multiple of 256 when turned weights follow */
    uint64_t weights; /* bytes of weights in the library's layout, 0: it takes them as they are */
    uint64_t bytes;   /* of workspace in all: library, then weights; or parts */
} CudaConvPass;
typedef struct Dnn Dnn; /* dnn.h */
/* The rule when nothing else is said: as many bytes as the convolution works on, at most 32 MiB, or
 * what one image needs if that is more. */
uint64_t cuda_conv_cap(const DtrtConv *c);
/* d NULL: the library is not there to ask; a pass of WAY_LIBRARY then has no plan and as many bytes
 * as it may have. limit: 1 + the most bytes of workspace, 0: cuda_conv_cap. */
void cuda_conv_pass(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t limit,
                    CudaConvPass *out);
/* Floats of the weights; packed ones are [co, k.., ci/group] with channels last and as plain ones,
 * [co, ci/group, k..], with channels first. */
int64_t cuda_conv_weights(const DtrtConv *c);

/* ---- products.c ---- */
/* Bytes for cuBLAS: so many results in all, each a sum of k products. */
uint64_t cuda_product_workspace(int64_t results, int64_t k);
uint64_t cuda_matmul_workspace(const DtrtMatmul *m);
/* Attention works on the scores of so many heads and rows of each at a time. */
typedef struct {
    int64_t heads, rows;
    uint64_t scores;  /* bytes, a multiple of 256; the gradient has as many for theirs, behind */
    uint64_t library; /* bytes for cuBLAS, behind those */
    uint64_t bytes;   /* of workspace in all */
} CudaAttention;
void cuda_attention(const DtrtAttention *m, CudaAttention *out);

/* ---- scratch.c ---- */
/* A sum over axes: the elements of each output in so many parts, one after the other in the
 * workspace. Depends on the shape alone, and so do the bits of the sum. */
typedef struct {
    int splits; /* 1: no parts */
    uint64_t bytes;
} CudaSum;
void cuda_sum(int nd, const int64_t *dim, const uint8_t *red, CudaSum *out);
/* The gradient of Gather over n rows of `inner` columns: indices sorted as numbers with so many
 * bits for the place. */
typedef struct {
    int bits;     /* 0: not sorted */
    int64_t keys; /* a power of two, at least count */
    uint64_t bytes;
} CudaGatherSort;
void cuda_gather_sort(int64_t n, int64_t inner, int64_t count, CudaGatherSort *out);

/* ---- passes.c, deviceless.c ---- */
/* As dtrt_conv_needs. Asks cuDNN, if this machine has it, what it does on the target's device. */
void cuda_plan_conv(const DtrtConv *c, const CudaTarget *t, DtrtConvNeeds *out);
/* deviceless.c: where the numbers are from: "cuDNN 9.19.0", NULL when it is not on this machine. */
const char *cuda_plan_library(void);

/* deviceless.c: the library, planning for a device; NULL when it is not on this machine. */
const Dnn *dnn_for(const CudaDevice *device);

/* dnn.c; without cuDNN's header both are none.c.
 *
 * The first plan in the order of the library's heuristics (mode A, then its fallback list) that
 *  - needs at most `most` bytes of workspace,
 *  - is deterministic and compiled in advance,
 *  - computes in f32 throughout, unless tf32: then products may round their inputs to TF32.
 * False when there is none. */
bool dnn_plan(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most, void **plan,
              uint64_t *workspace);
void dnn_drop(const Dnn *d, void *plan); /* fine for NULL */

#endif
