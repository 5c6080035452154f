/* dnn_store.c - handles, descriptors and their attributes: the outside of the stand-in libcudnn. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dnn.h"

enum { MAGIC = 0x446e4e21, OWN_BYTES = 16 << 20 };

struct cudnnContext {
    CUstream stream;
};

static char last_error[512];

cudnnStatus_t dnn_error(cudnnStatus_t status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return status;
}

bool dnn_is_convolution(cudnnBackendDescriptorType_t kind) {
    return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

static Dnn *any_of(cudnnBackendDescriptor_t handle) {
    Dnn *d = handle;
    if (d && d->magic == MAGIC) return d;
    sim_finding("cudnn: %p is no living descriptor", (void *)handle);
    return NULL;
}

Dnn *dnn_of(cudnnBackendDescriptor_t handle, cudnnBackendDescriptorType_t kind) {
    Dnn *d = handle;
    return d && d->magic == MAGIC && d->kind == kind && d->final ? d : NULL;
}

const DnnValue *dnn_value(const Dnn *d, cudnnBackendAttributeName_t name) {
    for (uint32_t i = 0; i < d->nvalues; i++)
        if (d->values[i].rule->name == name) return &d->values[i];
    return NULL;
}

int64_t dnn_int(const Dnn *d, cudnnBackendAttributeName_t name, int64_t otherwise) {
    const DnnValue *v = dnn_value(d, name);
    if (!v) return otherwise;
    if (dnn_size(v->rule->type) == sizeof(int64_t)) return *(const int64_t *)v->elements;
    return v->rule->type == CUDNN_TYPE_BOOLEAN ? *(const bool *)v->elements
                                               : *(const int *)v->elements;
}

Dnn *dnn_child(const Dnn *d, cudnnBackendAttributeName_t name) {
    const DnnValue *v = dnn_value(d, name);
    return v ? *(Dnn *const *)v->elements : NULL;
}

void dnn_put(Dnn *d, cudnnBackendAttributeName_t name, const void *elements, int64_t count) {
    const DnnAttribute *rule = dnn_rule(d->kind, name);
    size_t bytes = dnn_size(rule->type) * (size_t)count;
    DnnValue *v = (DnnValue *)dnn_value(d, name);
    if (!v) v = &d->values[d->nvalues++];
    free(v->elements);
    *v = (DnnValue){rule, count, malloc(bytes + 1)};
    if (!v->elements) abort();
    memcpy(v->elements, elements, bytes);
}

cudnnStatus_t dnn_set_conv(Dnn *d, const DnnConv *conv) {
    d->conv = malloc(sizeof *conv);
    if (!d->conv) return CUDNN_STATUS_ALLOC_FAILED;
    *d->conv = *conv;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind,
                                           cudnnBackendDescriptor_t *handle) {
    SIM_ENTER(CUDNN_STATUS_ALLOC_FAILED);
    if (!dnn_has_kind(kind))
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "no descriptors of kind %d here", (int)kind);
    Dnn *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_ALLOC_FAILED;
    *d = (Dnn){.magic = MAGIC, .kind = kind};
    *handle = d;
    sim_object("cuDNN descriptors", 1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle) {
    SIM_ENTER_SURE;
    Dnn *d = any_of(handle);
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    for (uint32_t i = 0; i < d->nvalues; i++) free(d->values[i].elements);
    free(d->engine);
    free(d->conv);
    *d = (Dnn){0};
    sim_keep(d);
    sim_object("cuDNN descriptors", -1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements) {
    SIM_ENTER(CUDNN_STATUS_INTERNAL_ERROR);
    Dnn *d = any_of(handle);
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    const DnnAttribute *rule = dnn_rule(d->kind, name);
    if (d->final)
        return dnn_error(CUDNN_STATUS_NOT_INITIALIZED, "set after finalize: %d", (int)name);
    if (!rule || rule->use == DNN_READ_ONLY)
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "kind %d has no attribute %d to set",
                         (int)d->kind, (int)name);
    if (rule->type != type || !elements || count < 1 || count > rule->most)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d: %lld elements of type %d",
                         (int)name, (long long)count, (int)type);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        for (int64_t i = 0; i < count; i++) {
            const Dnn *child = any_of(((cudnnBackendDescriptor_t const *)elements)[i]);
            if (!child || !child->final)
                return dnn_error(CUDNN_STATUS_BAD_PARAM, "attribute %d: not finalized", (int)name);
        }
    }
    dnn_put(d, name, elements, count);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t want,
                                       int64_t *count, void *elements) {
    SIM_ENTER(CUDNN_STATUS_INTERNAL_ERROR);
    const Dnn *d = any_of(handle);
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    const DnnAttribute *rule = dnn_rule(d->kind, name);
    if (!d->final)
        return dnn_error(CUDNN_STATUS_NOT_INITIALIZED, "get before finalize: %d", (int)name);
    if (!rule || rule->type != type)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "kind %d has no attribute %d of type %d",
                         (int)d->kind, (int)name, (int)type);
    if (rule->use == DNN_READ_ONLY || type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return dnn_fill(d, name, want, count, elements);
    const DnnValue *v = dnn_value(d, name);
    if (!v) return dnn_error(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d was not set", (int)name);
    if (count) *count = v->count;
    if (elements)
        memcpy(elements, v->elements, dnn_size(type) * (size_t)(want < v->count ? want : v->count));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(Dnn *d) {
    const DnnAttribute *missing = dnn_missing(d);
    if (missing)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "kind %d lacks attribute %d", (int)d->kind,
                         (int)missing->name);
    if (d->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR) return dnn_check_tensor(d);
    if (d->kind == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) return dnn_check_convolution(d);
    if (dnn_is_convolution(d->kind)) return dnn_check_operation(d);
    return dnn_finalize(d);
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
    SIM_ENTER(CUDNN_STATUS_INTERNAL_ERROR);
    Dnn *d = any_of(handle);
    if (!d) return CUDNN_STATUS_BAD_PARAM;
    cudnnStatus_t status = finalize(d);
    d->final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    SIM_ENTER(CUDNN_STATUS_EXECUTION_FAILED);
    const Dnn *p = dnn_of(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const Dnn *v = dnn_of(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (!handle || !p || !v) {
        sim_finding("cudnnBackendExecute: a handle, a plan and a pack, finalized, are needed");
        return CUDNN_STATUS_BAD_PARAM;
    }
    return dnn_execute(handle->stream, p, v);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    SIM_ENTER(CUDNN_STATUS_NOT_INITIALIZED);
    if (!sim_legal_in_capture(__func__)) return CUDNN_STATUS_INTERNAL_ERROR;
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return CUDNN_STATUS_ALLOC_FAILED;
    sim_overhead(OWN_BYTES);
    sim_object("cuDNN handles", 1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    SIM_ENTER_SURE;
    if (!handle) return CUDNN_STATUS_BAD_PARAM;
    sim_drain();
    free(handle);
    sim_overhead(-OWN_BYTES);
    sim_object("cuDNN handles", -1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    SIM_ENTER(CUDNN_STATUS_BAD_PARAM);
    if (!handle) return CUDNN_STATUS_BAD_PARAM;
    handle->stream = (CUstream)stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void) {
    return CUDA_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch ((int)status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_ALLOC_FAILED: return "CUDNN_STATUS_ALLOC_FAILED";
    default: return "CUDNN_STATUS_OTHER";
    }
}

void cudnnGetLastErrorString(char *message, size_t size) {
    if (size) snprintf(message, size, "%s", last_error);
}
