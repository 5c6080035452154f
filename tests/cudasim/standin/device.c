/* device.c - the one device, its primary context, and the names of errors.
 *
 * The numbers are those of an H200. The context takes memory when it is made, as a driver's does,
 * so that programs which measure the overhead measure something. cuGetExportTable is there because
 * NVRTC opens libcuda and reads the size of a table that it asks for; 8 bytes tell it that there is
 * nothing.
 */
#include <stdio.h>
#include <string.h>

#include "sim.h"

enum { CONTEXT_BYTES = 300 << 20 };

static bool ready;
static int retained;
static CUcontext current;

static CUcontext primary(void) {
    static char context;
    return (CUcontext)(void *)&context;
}

CUresult cuInit(unsigned flags) {
    SIM_ENTER(CUDA_ERROR_NO_DEVICE);
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    ready = true;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    SIM_ENTER_SURE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    SIM_ENTER(CUDA_ERROR_NOT_INITIALIZED);
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    SIM_ENTER(CUDA_ERROR_INVALID_DEVICE);
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (ordinal) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    SIM_ENTER(CUDA_ERROR_INVALID_DEVICE);
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "CPU stand-in");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    SIM_ENTER(CUDA_ERROR_INVALID_DEVICE);
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_options()->memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    SIM_ENTER(CUDA_ERROR_INVALID_DEVICE);
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = sim_options()->capability / 10;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = sim_options()->capability % 10;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 3201000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 6144; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 3; break;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED: *value = 0; break;
    default: sim_finding("device attribute %d has no value here", (int)attribute); *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (!ready) return CUDA_ERROR_NOT_INITIALIZED;
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    if (!retained++) sim_overhead(CONTEXT_BYTES);
    *context = primary();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    SIM_ENTER_SURE;
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    if (!retained) {
        sim_finding("cuDevicePrimaryCtxRelease: it is not retained");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    sim_drain();
    if (!--retained) sim_overhead(-CONTEXT_BYTES);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    SIM_ENTER(CUDA_ERROR_INVALID_CONTEXT);
    if (context && context != primary()) return CUDA_ERROR_INVALID_CONTEXT;
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    SIM_ENTER(CUDA_ERROR_INVALID_CONTEXT);
    *context = current;
    return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static const size_t nothing[2] = {sizeof(size_t)};
    (void)id;
    *table = nothing;
    return CUDA_SUCCESS;
}

typedef struct {
    CUresult code;
    const char *name, *text;
} Error;

#define E(code, text)                                                                              \
    { code, #code, text }
static const Error errors[] = {
    E(CUDA_SUCCESS, "no error"),
    E(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    E(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    E(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    E(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    E(CUDA_ERROR_NOT_READY, "device not ready"),
    E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
      "operation failed due to a previous error during capture"),
    E(CUDA_ERROR_STREAM_CAPTURE_MERGE,
      "operation would result in a merge of separate capture sequences"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    E(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
      "dependency created on uncaptured work in another stream"),
    E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
      "operation would make the legacy stream depend on a capturing blocking stream"),
    E(CUDA_ERROR_CAPTURED_EVENT,
      "operation not permitted on an event last recorded in a capturing stream"),
    E(CUDA_ERROR_UNKNOWN, "unknown error"),
};

static const Error *error_of(CUresult code) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return &errors[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    const Error *e = error_of(code);
    *name = e ? e->name : NULL;
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
    const Error *e = error_of(code);
    *text = e ? e->text : NULL;
    return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
