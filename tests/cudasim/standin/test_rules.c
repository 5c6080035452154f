/* test_rules.c - what the stand-ins answer, without any finding: the process would end with a
 * status of its own otherwise. Order of the NULL stream, queries, fills and copies, graphs that are
 * launched twice, refusals of the driver and of cuDNN's descriptors. */
#include <cuda.h>
#include <cudnn.h>

#include "test.h"

enum { COUNT = 64, BYTES = COUNT * 4 };

static CUdeviceptr device(void) {
    CUdeviceptr p = 0;
    CHECK(!cuMemAlloc(&p, BYTES));
    return p;
}

static void check_refusals(void) {
    static const char elf[] = "\177ELF";
    CUmodule module;
    CUdevice unit;
    CUdeviceptr p = 0;
    size_t before, after, total;
    const char *name = NULL;
    CHECK_EQ(cuModuleLoadData(&module, elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_EQ(cuDeviceGet(&unit, 1), CUDA_ERROR_INVALID_DEVICE);
    CHECK(!cuMemGetInfo(&before, &total));
    CHECK_EQ(cuMemAlloc(&p, before + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(!cuMemAlloc(&p, 1000));
    CHECK(!cuMemGetInfo(&after, &total));
    CHECK_EQ(before - after, 1024); /* units of 512 bytes */
    CHECK(!cuMemFree(p));
    CHECK(!cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    CHECK_STR(name, "CUDA_ERROR_OUT_OF_MEMORY");
}

/* Fills and copies, and what memory holds before. */
static void check_memory(void) {
    CUdeviceptr a = device(), b = device();
    uint32_t got[COUNT], value = 0x3f800000;
    CUstream s;
    CHECK(!cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(!cuMemcpyDtoH(got, a, BYTES));
    for (int i = 0; i < COUNT; i++) CHECK_EQ(got[i], UINT32_MAX);
    CHECK(!cuMemsetD32Async(a, value, COUNT, s));
    CHECK(!cuMemsetD8Async(a + 4, 7, 4, s));
    CHECK(!cuMemcpyDtoDAsync(b, a, BYTES, s));
    CHECK_EQ(cuStreamQuery(s), CUDA_ERROR_NOT_READY); /* one of three ran */
    CHECK(!cuStreamSynchronize(s));
    CHECK(!cuStreamQuery(s));
    CHECK(!cuMemcpyDtoH(got, b, BYTES));
    for (int i = 0; i < COUNT; i++) CHECK_EQ(got[i], i == 1 ? 0x07070707 : value);
    CHECK(!cuStreamDestroy(s));
    CHECK(!cuMemFree(a));
    CHECK(!cuMemFree(b));
}

/* A blocking stream and the NULL stream wait for each other without events. */
static void check_null_stream(void) {
    CUdeviceptr a = device();
    uint32_t got[COUNT];
    CUstream s;
    CHECK(!cuStreamCreate(&s, CU_STREAM_DEFAULT));
    CHECK(!cuMemsetD32Async(a, 1, COUNT, s));
    CHECK(!cuMemsetD32Async(a, 2, COUNT / 2, NULL));
    CHECK(!cuMemsetD32Async(a, 3, COUNT / 4, s));
    CHECK(!cuMemcpyDtoH(got, a, BYTES));
    for (int i = 0; i < COUNT; i++) CHECK_EQ(got[i], i < COUNT / 4 ? 3 : i < COUNT / 2 ? 2 : 1);
    CHECK(!cuStreamDestroy(s));
    CHECK(!cuMemFree(a));
}

static void check_events(void) {
    CUdeviceptr a = device();
    CUstream s;
    CUevent early, late, never;
    float ms = -1;
    CHECK(!cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(!cuEventCreate(&early, CU_EVENT_DEFAULT));
    CHECK(!cuEventCreate(&late, CU_EVENT_DEFAULT));
    CHECK(!cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
    CHECK(!cuEventQuery(never));
    CHECK(!cuEventSynchronize(never));
    CHECK(!cuStreamWaitEvent(s, never, 0));
    CHECK(!cuEventRecord(early, s));
    CHECK(!cuMemsetD8Async(a, 0, BYTES, s));
    CHECK(!cuEventRecord(late, s));
    CHECK_EQ(cuEventElapsedTime(&ms, early, late), CUDA_ERROR_NOT_READY);
    CHECK(!cuEventSynchronize(late));
    CHECK(!cuEventQuery(early));
    CHECK(!cuEventElapsedTime(&ms, early, late));
    CHECK(ms >= 0);
    CHECK_EQ(cuEventElapsedTime(&ms, early, never), CUDA_ERROR_INVALID_HANDLE);
    CHECK(!cuEventDestroy(early));
    CHECK(!cuEventDestroy(late));
    CHECK(!cuEventDestroy(never));
    CHECK(!cuStreamDestroy(s));
    CHECK(!cuMemFree(a));
}

/* What is captured runs when it is launched, with the pinned memory of that moment, as often. */
static void check_graph(void) {
    CUdeviceptr a = device();
    CUstream s, side;
    CUevent fork, join;
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    uint32_t *in, *out;
    CHECK(!cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CHECK(!cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(!cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(!cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(!cuMemHostAlloc((void **)&in, BYTES, 0));
    CHECK(!cuMemHostAlloc((void **)&out, BYTES, 0));
    memset(in, 0, BYTES);
    CHECK(!cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(!cuMemcpyHtoDAsync(a, in, BYTES, s));
    CHECK(!cuEventRecord(fork, s));
    CHECK(!cuStreamWaitEvent(side, fork, 0));
    CHECK(!cuMemsetD32Async(a, 5, 1, side));
    CHECK(!cuStreamIsCapturing(side, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK(!cuEventRecord(join, side));
    CHECK(!cuMemsetD32Async(a + 4, 6, 1, s));
    CHECK(!cuStreamWaitEvent(s, join, 0));
    CHECK(!cuMemcpyDtoHAsync(out, a, BYTES, s));
    CHECK(!cuStreamEndCapture(s, &graph));
    CHECK(!cuStreamIsCapturing(side, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
    CHECK(!cuGraphInstantiate(&exec, graph, 0));
    CHECK(!cuGraphDestroy(graph));
    for (uint32_t round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) in[i] = 100 * round + (uint32_t)i;
        CHECK(!cuGraphLaunch(exec, s));
        CHECK(!cuGraphLaunch(exec, s));
        CHECK(!cuStreamSynchronize(s));
        CHECK_EQ(out[0], 5);
        CHECK_EQ(out[1], 6);
        for (int i = 2; i < COUNT; i++) CHECK_EQ(out[i], 100 * round + (uint32_t)i);
    }
    CHECK(!cuGraphExecDestroy(exec));
    CHECK(!cuEventDestroy(fork));
    CHECK(!cuEventDestroy(join));
    CHECK(!cuStreamDestroy(s));
    CHECK(!cuStreamDestroy(side));
    CHECK(!cuMemFreeHost(in));
    CHECK(!cuMemFreeHost(out));
    CHECK(!cuMemFree(a));
}

static void set_int(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t n, const void *v, int status) {
    CHECK_EQ(cudnnBackendSetAttribute(d, name, type, n, v), status);
}

static void check_descriptors(void) {
    cudnnBackendDescriptor_t t, op;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t dim[4] = {2, 3, 5, 7}, stride[4] = {105, 1, 21, 3}, align = 16, uid = 1, n = 0, got = 0;
    char message[64] = "";
    CHECK(!cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t));
    CHECK_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR, &op),
             CUDNN_STATUS_NOT_SUPPORTED);
    CHECK_EQ(cudnnBackendFinalize(t), CUDNN_STATUS_BAD_PARAM); /* nothing is set */
    cudnnGetLastErrorString(message, sizeof message);
    CHECK(strstr(message, "lacks attribute"));
    set_int(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT32, 4, dim, CUDNN_STATUS_BAD_PARAM);
    set_int(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 6, dim, CUDNN_STATUS_BAD_PARAM);
    set_int(t, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dim,
            CUDNN_STATUS_NOT_SUPPORTED);
    set_int(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, CUDNN_STATUS_SUCCESS);
    set_int(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim, CUDNN_STATUS_SUCCESS);
    set_int(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, stride, CUDNN_STATUS_SUCCESS);
    set_int(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, CUDNN_STATUS_SUCCESS);
    set_int(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align, CUDNN_STATUS_SUCCESS);
    CHECK_EQ(cudnnBackendFinalize(t), CUDNN_STATUS_BAD_PARAM); /* 4 dimensions, 3 strides */
    CHECK_EQ(
        cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &n, &got),
        CUDNN_STATUS_NOT_INITIALIZED);
    set_int(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride, CUDNN_STATUS_SUCCESS);
    CHECK(!cudnnBackendFinalize(t));
    set_int(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid,
            CUDNN_STATUS_NOT_INITIALIZED);
    CHECK(!cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &n, &got));
    CHECK_EQ(n, 1);
    CHECK_EQ(got, 1);
    CHECK(!cudnnBackendDestroyDescriptor(t));
}

int main(void) {
    CUcontext context;
    CHECK(!cuInit(0));
    CHECK(!cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(!cuCtxSetCurrent(context));
    check_refusals();
    check_memory();
    check_null_stream();
    check_events();
    check_graph();
    check_descriptors();
    CHECK(!cuDevicePrimaryCtxRelease(0));
    return test_end();
}
