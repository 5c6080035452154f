/* dnn_attributes.c - which attributes a descriptor has, of which type, how many elements.
 *
 * From the reference of cuDNN's backend (graph) API, for what convolutions need. Everything else is
 * refused, so a program that needs more says so at once.
 */
#include "dnn.h"

#define T(name, type, most, use)                                                                   \
    { CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_##name, CUDNN_TYPE_##type, most, use }
#define C(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_##name, CUDNN_TYPE_##type,    \
            most, use                                                                              \
    }
#define F(name, type, use)                                                                         \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,                                    \
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_##name, CUDNN_TYPE_##type, 1, use             \
    }
#define BD(name, type, use)                                                                        \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,                              \
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_##name, CUDNN_TYPE_##type, 1, use            \
    }
#define BF(name, type, use)                                                                        \
    {                                                                                              \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,                            \
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_##name, CUDNN_TYPE_##type, 1, use          \
    }
#define G(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_##name,                 \
            CUDNN_TYPE_##type, most, use                                                           \
    }
#define H(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_##name, CUDNN_TYPE_##type,      \
            most, use                                                                              \
    }
#define E(name, type, most, use)                                                                   \
    { CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_##name, CUDNN_TYPE_##type, most, use }
#define N(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_##name, CUDNN_TYPE_##type, most,  \
            use                                                                                    \
    }
#define P(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_##name,                 \
            CUDNN_TYPE_##type, most, use                                                           \
    }
#define V(name, type, most, use)                                                                   \
    {                                                                                              \
        CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_##name, CUDNN_TYPE_##type,  \
            most, use                                                                              \
    }
#define K(name, type, use)                                                                         \
    {                                                                                              \
        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_##name, CUDNN_TYPE_##type, 1, \
            use                                                                                    \
    }

static const DnnAttribute rules[] = {
    T(DATA_TYPE, DATA_TYPE, 1, DNN_REQUIRED),
    T(DIMENSIONS, INT64, DNN_MAX_DIMS, DNN_REQUIRED),
    T(STRIDES, INT64, DNN_MAX_DIMS, DNN_REQUIRED),
    T(UNIQUE_ID, INT64, 1, DNN_REQUIRED),
    T(BYTE_ALIGNMENT, INT64, 1, DNN_REQUIRED),
    T(IS_VIRTUAL, BOOLEAN, 1, DNN_OPTIONAL),
    T(IS_BY_VALUE, BOOLEAN, 1, DNN_OPTIONAL),

    C(COMP_TYPE, DATA_TYPE, 1, DNN_REQUIRED),
    C(CONV_MODE, CONVOLUTION_MODE, 1, DNN_REQUIRED),
    C(SPATIAL_DIMS, INT64, 1, DNN_REQUIRED),
    C(DILATIONS, INT64, DNN_SPATIAL, DNN_REQUIRED),
    C(FILTER_STRIDES, INT64, DNN_SPATIAL, DNN_REQUIRED),
    C(PRE_PADDINGS, INT64, DNN_SPATIAL, DNN_REQUIRED),
    C(POST_PADDINGS, INT64, DNN_SPATIAL, DNN_REQUIRED),

    F(ALPHA, FLOAT, DNN_OPTIONAL),
    F(BETA, FLOAT, DNN_OPTIONAL),
    F(CONV_DESC, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    F(X, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    F(W, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    F(Y, BACKEND_DESCRIPTOR, DNN_REQUIRED),

    BD(ALPHA, FLOAT, DNN_OPTIONAL),
    BD(BETA, FLOAT, DNN_OPTIONAL),
    BD(CONV_DESC, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BD(DX, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BD(W, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BD(DY, BACKEND_DESCRIPTOR, DNN_REQUIRED),

    BF(ALPHA, FLOAT, DNN_OPTIONAL),
    BF(BETA, FLOAT, DNN_OPTIONAL),
    BF(CONV_DESC, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BF(X, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BF(DW, BACKEND_DESCRIPTOR, DNN_REQUIRED),
    BF(DY, BACKEND_DESCRIPTOR, DNN_REQUIRED),

    G(HANDLE, HANDLE, 1, DNN_OPTIONAL),
    G(OPS, BACKEND_DESCRIPTOR, 8, DNN_REQUIRED),
    G(ENGINE_GLOBAL_COUNT, INT64, 1, DNN_READ_ONLY),

    H(OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, DNN_REQUIRED),
    H(MODE, HEUR_MODE, 1, DNN_REQUIRED),
    H(SM_COUNT_TARGET, INT32, 1, DNN_OPTIONAL),
    H(RESULTS, BACKEND_DESCRIPTOR, DNN_MAX_ELEMENTS, DNN_READ_ONLY),

    E(OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, DNN_REQUIRED),
    E(GLOBAL_INDEX, INT64, 1, DNN_REQUIRED),
    E(NUMERICAL_NOTE, NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, DNN_READ_ONLY),
    E(BEHAVIOR_NOTE, BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, DNN_READ_ONLY),
    E(KNOB_INFO, BACKEND_DESCRIPTOR, DNN_MAX_ELEMENTS, DNN_READ_ONLY),

    N(ENGINE, BACKEND_DESCRIPTOR, 1, DNN_REQUIRED),
    N(KNOB_CHOICES, BACKEND_DESCRIPTOR, DNN_MAX_ELEMENTS, DNN_OPTIONAL),
    N(WORKSPACE_SIZE, INT64, 1, DNN_READ_ONLY),

    P(HANDLE, HANDLE, 1, DNN_OPTIONAL),
    P(ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, DNN_REQUIRED),
    P(WORKSPACE_SIZE, INT64, 1, DNN_READ_ONLY),

    V(DATA_POINTERS, VOID_PTR, 16, DNN_REQUIRED),
    V(UNIQUE_IDS, INT64, 16, DNN_REQUIRED),
    V(WORKSPACE, VOID_PTR, 1, DNN_OPTIONAL),

    K(KNOB_TYPE, KNOB_TYPE, DNN_REQUIRED),
    K(KNOB_VALUE, INT64, DNN_REQUIRED),
};

enum { RULES = sizeof rules / sizeof *rules };

const DnnAttribute *dnn_rule(cudnnBackendDescriptorType_t kind, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == kind && rules[i].name == name) return &rules[i];
    return NULL;
}

const DnnAttribute *dnn_missing(const Dnn *d) {
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == d->kind && rules[i].use == DNN_REQUIRED &&
            !dnn_value(d, rules[i].name))
            return &rules[i];
    return NULL;
}

bool dnn_has_kind(cudnnBackendDescriptorType_t kind) {
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == kind) return true;
    return false;
}

size_t dnn_size(cudnnBackendAttributeType_t type) {
    switch ((int)type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_INT32: return sizeof(int32_t);
    case CUDNN_TYPE_HANDLE: return sizeof(cudnnHandle_t);
    case CUDNN_TYPE_VOID_PTR: return sizeof(void *);
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(cudnnBackendDescriptor_t);
    default: return sizeof(int); /* enumerations */
    }
}
