/* convolution.c - the two convolutions of program.c by cuDNN's graph API: channels last, and the
 * first plan of the heuristics whose engine is exact and deterministic and whose workspace fits. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"

typedef cudnnBackendDescriptor_t Desc;

enum { MAX_CONFIGS = 16, MAX_NOTES = 16 };

static Desc make(cudnnBackendDescriptorType_t kind) {
    Desc d = NULL;
    CALL(api.cudnnBackendCreateDescriptor(kind, &d));
    return d;
}

static void set(Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *v) {
    CALL(api.cudnnBackendSetAttribute(d, name, type, n, v));
}

static void set_child(Desc d, cudnnBackendAttributeName_t name, Desc child) {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child);
}

static Desc tensor(int64_t uid, int64_t outer, int64_t channels, int64_t side) {
    Desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t align = 16, dim[4] = {outer, channels, side, side};
    int64_t stride[4] = {channels * side * side, 1, channels * side, channels};
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    CALL(api.cudnnBackendFinalize(d));
    return d;
}

static Desc window(void) {
    Desc d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dims = 2, ones[2] = {1, 1};
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
    set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
    set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
    set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    CALL(api.cudnnBackendFinalize(d));
    return d;
}

static Desc operation(ConvKind kind, const Desc part[4]) {
    bool forward = kind == CONV_FORWARD;
    Desc d = make(forward ? CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                          : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    set_child(d,
              forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
                      : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              part[0]);
    set_child(d,
              forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W
                      : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              part[1]);
    set_child(d,
              forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
                      : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              part[2]);
    set_child(d,
              forward ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC
                      : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              part[3]);
    CALL(api.cudnnBackendFinalize(d));
    return d;
}

static bool is_exact(Desc config) {
    Desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[MAX_NOTES];
    int64_t n = 0;
    CALL(api.cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine));
    CALL(api.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                      CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &n, notes));
    bool exact = true;
    for (int64_t i = 0; i < n; i++)
        exact &= notes[i] != CUDNN_NUMERICAL_NOTE_TENSOR_CORE &&
                 notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    CALL(api.cudnnBackendDestroyDescriptor(engine));
    return exact;
}

/* NULL when the engine does not do it or wants more than `most` bytes. */
static Desc plan_of(cudnnHandle_t handle, Desc config, uint64_t most, uint64_t *workspace) {
    Desc plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t n, bytes = -1;
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (!api.cudnnBackendFinalize(plan))
        CALL(api.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &n, &bytes));
    if (bytes >= 0 && (uint64_t)bytes <= most) {
        *workspace = (uint64_t)bytes;
        return plan;
    }
    CALL(api.cudnnBackendDestroyDescriptor(plan));
    return NULL;
}

static ConvPlan first_plan(cudnnHandle_t handle, Desc graph, uint64_t most, bool take_any) {
    Desc list = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR), config[MAX_CONFIGS];
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    ConvPlan found = {0};
    set_child(list, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(list, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    CALL(api.cudnnBackendFinalize(list));
    for (int i = 0; i < MAX_CONFIGS; i++) config[i] = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    CALL(api.cudnnBackendGetAttribute(list, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &n, config));
    for (int64_t i = 0; i < n && !found.plan; i++)
        if (take_any || is_exact(config[i]))
            found.plan = plan_of(handle, config[i], most, &found.workspace);
    for (int i = 0; i < MAX_CONFIGS; i++) CALL(api.cudnnBackendDestroyDescriptor(config[i]));
    CALL(api.cudnnBackendDestroyDescriptor(list));
    return found;
}

ConvPlan conv_plan(cudnnHandle_t handle, ConvKind kind, uint64_t most, bool take_any) {
    Desc part[4] = {tensor('x', BATCH, CHANNELS, SIDE), tensor('w', FILTERS, CHANNELS, 3),
                    tensor('y', BATCH, FILTERS, SIDE), window()};
    Desc op = operation(kind, part), graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_child(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op);
    CALL(api.cudnnBackendFinalize(graph));
    ConvPlan plan = first_plan(handle, graph, most, take_any);
    CALL(api.cudnnBackendDestroyDescriptor(graph));
    CALL(api.cudnnBackendDestroyDescriptor(op));
    for (int i = 0; i < 4; i++) CALL(api.cudnnBackendDestroyDescriptor(part[i]));
    if (!plan.plan) {
        fprintf(stderr, "program: no plan for a convolution\n");
        exit(4);
    }
    return plan;
}

void conv_run(cudnnHandle_t handle, ConvPlan plan, CUdeviceptr x, CUdeviceptr w, CUdeviceptr y,
              CUdeviceptr workspace) {
    Desc pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    int64_t uid[3] = {'x', 'w', 'y'};
    void *at[3] = {(void *)(uintptr_t)x, (void *)(uintptr_t)w, (void *)(uintptr_t)y};
    void *scratch = (void *)(uintptr_t)workspace;
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, uid);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch);
    CALL(api.cudnnBackendFinalize(pack));
    CALL(api.cudnnBackendExecute(handle, plan.plan, pack));
    CALL(api.cudnnBackendDestroyDescriptor(pack));
}
