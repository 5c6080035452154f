/* cudnn.c - cuDNN's library and handle; running a plan.
 *
 * Plans are made once (plan/dnn.c). A run binds addresses in a variant pack, a small object of the
 * host, and enqueues the plan's kernels on the handle's stream; this may be captured. */
#include "dnn.h"
#include "libraries.h"

#include <string.h>

static Dnn dnn;

static bool open_library(void) {
    static const char *const file[] = {"libcudnn.so.9", NULL};
#define F(name) #name,
    static const char *const name[] = {DNN_FUNCTIONS(F)};
#undef F
    enum { COUNT = sizeof name / sizeof *name };
    void *to[COUNT];
    void *lib = cu_library("cuDNN (libcudnn.so.9)", file);
    if (!lib) {
        dtrt_hint("convolutions on the GPU need cuDNN 9; folders of libraries can be named in the "
                  "environment variable DTRT_CUDA_PATH");
        return false;
    }
    if (!cu_symbols(lib, "cuDNN", name, to, COUNT)) return false;
    memcpy(&dnn, to, sizeof to);
    return true;
}

static const char *last_error(void) {
    static char text[512];
    text[0] = 0;
    dnn.cudnnGetLastErrorString(text, sizeof text);
    return text;
}

const Dnn *cu_dnn(void) {
    if (dnn.handle) return &dnn;
    if (!dnn.cudnnCreate && !open_library()) return NULL;
    cudnnStatus_t s = dnn.cudnnCreate(&dnn.handle);
    if (s == CUDNN_STATUS_SUCCESS)
        s = dnn.cudnnSetStream(dnn.handle, (cudaStream_t)cu_device.stream);
    if (s != CUDNN_STATUS_SUCCESS) {
        dtrt_error("cuDNN cannot be used: %s (%s)", dnn.cudnnGetErrorString(s), last_error());
        dnn.handle = NULL;
        return NULL;
    }
    return &dnn;
}

void cu_dnn_close(void) {
    if (dnn.handle) dnn.cudnnDestroy(dnn.handle);
    dnn.handle = NULL;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t pack, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    return dnn.cudnnBackendSetAttribute(pack, name, type, count, value);
}

void cu_dnn_execute(void *plan, const void *x, const void *w, const void *y, void *workspace) {
    static const int64_t id[] = {DNN_X, DNN_W, DNN_Y};
    const void *at[] = {x, w, y};
    cudnnBackendDescriptor_t pack;
    cudnnStatus_t s =
        dnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (s != CUDNN_STATUS_SUCCESS) cu_fail("cuDNN: %s", dnn.cudnnGetErrorString(s));
    s = set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, id);
    if (!s) s = set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
    if (!s) s = set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!s) s = dnn.cudnnBackendFinalize(pack);
    if (!s) s = dnn.cudnnBackendExecute(dnn.handle, plan, pack);
    if (s) cu_fail("a convolution of cuDNN: %s (%s)", dnn.cudnnGetErrorString(s), last_error());
    dnn.cudnnBackendDestroyDescriptor(pack);
}
