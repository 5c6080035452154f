/* dnn.c - geometry of a convolution -> operation graph -> engine configurations -> the first plan
 * that is allowed.
 *
 * cuDNN's graph API (NVIDIA cuDNN 9 documentation, "Backend API"): a graph of one operation, a list
 * of engine configurations from heuristics, and a plan for each of them, with its workspace. Which
 * engines are exact and deterministic is read from their numerical notes; transforms (FFT,
 * Winograd's with large tiles) are exact in name only and not taken. Engines that are compiled at
 * run time are not taken: they need NVRTC in programs, and cost up to a second each at start.
 *
 * One spatial axis is made two; strides tell the layout. Padding is given before and after, so
 * asymmetric padding is one too. */
#include "dnn.h"

#include <assert.h>

enum { MAX_RANK = 5, MAX_CONFIGS = 64, MAX_NOTES = 32, MIN_ALIGN = 16 };

typedef cudnnBackendDescriptor_t Desc;

/* ---- descriptors: made with ok set, filled in, and finalized if all went well ---- */

typedef struct {
    const Dnn *d;
    bool ok;
} Maker;

static Desc make(Maker *m, cudnnBackendDescriptorType_t type) {
    Desc x = NULL;
    if (m->ok && m->d->cudnnBackendCreateDescriptor(type, &x) != CUDNN_STATUS_SUCCESS) {
        x = NULL;
        m->ok = false;
    }
    return x;
}

static void set(Maker *m, Desc x, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    m->ok = m->ok &&
            m->d->cudnnBackendSetAttribute(x, name, type, count, value) == CUDNN_STATUS_SUCCESS;
}

static void set_desc(Maker *m, Desc x, cudnnBackendAttributeName_t name, Desc value) {
    set(m, x, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(Maker *m, Desc x) {
    m->ok = m->ok && m->d->cudnnBackendFinalize(x) == CUDNN_STATUS_SUCCESS;
}

static void destroy(const Dnn *d, Desc x) {
    if (x) d->cudnnBackendDestroyDescriptor(x);
}

static bool get(const Dnn *d, Desc x, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *value) {
    return d->cudnnBackendGetAttribute(x, name, type, room, count, value) == CUDNN_STATUS_SUCCESS;
}

/* ---- the operation ---- */

/* [outer, channels, space..], channels last or first in memory. A single spatial axis becomes the
 * second of two. */
static Desc tensor(Maker *m, const DtrtConv *c, int64_t name, int64_t outer, int64_t channels,
                   const int64_t *space) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t dim[MAX_RANK] = {outer, channels, 1}, stride[MAX_RANK], align = MIN_ALIGN;
    int lead = c->nd == 1, rank = c->nd + lead + 2;
    for (int i = 0; i < c->nd; i++) dim[2 + lead + i] = space[i];
    int64_t step = c->channels_last ? channels : 1;
    for (int i = rank; i-- > 2;) {
        stride[i] = step;
        step *= dim[i];
    }
    stride[1] = c->channels_last ? 1 : step;
    stride[0] = c->channels_last ? step : step * channels;
    Desc x = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(m, x, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(m, x, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, x, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(m, x, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dim);
    set(m, x, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, stride);
    finalize(m, x);
    return x;
}

static void set_window(Maker *m, Desc x, cudnnBackendAttributeName_t name, const DtrtConv *c,
                       const int64_t *v, int64_t missing) {
    int64_t value[3] = {missing}, lead = c->nd == 1;
    for (int i = 0; i < c->nd; i++) value[lead + i] = v[i];
    set(m, x, name, CUDNN_TYPE_INT64, c->nd + lead, value);
}

static Desc window(Maker *m, const DtrtConv *c) {
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t axes = c->nd == 1 ? 2 : c->nd;
    Desc x = make(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(m, x, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    set(m, x, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, x, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_window(m, x, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c, c->pad_lo, 0);
    set_window(m, x, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c, c->pad_hi, 0);
    set_window(m, x, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c, c->stride, 1);
    set_window(m, x, CUDNN_ATTR_CONVOLUTION_DILATIONS, c, c->dil, 1);
    finalize(m, x);
    return x;
}

/* What the three kinds of operation call the same things. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
} operations[PASSES] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* Everything a graph of one convolution is made of; freed in the end. */
typedef struct {
    Desc x, w, y, window, op, graph;
} Graph;

static void make_graph(Maker *m, const DtrtConv *c, CudaPass pass, Graph *g) {
    const float one = 1.0f, zero = 0.0f;
    g->x = tensor(m, c, DNN_X, c->n, c->ci, c->in);
    g->w = tensor(m, c, DNN_W, c->co, c->ci / c->group, c->k);
    g->y = tensor(m, c, DNN_Y, c->n, c->co, c->out);
    g->window = window(m, c);
    g->op = make(m, operations[pass].type);
    set_desc(m, g->op, operations[pass].x, g->x);
    set_desc(m, g->op, operations[pass].w, g->w);
    set_desc(m, g->op, operations[pass].y, g->y);
    set_desc(m, g->op, operations[pass].window, g->window);
    set(m, g->op, operations[pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(m, g->op, operations[pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finalize(m, g->op);
    g->graph = make(m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (m->d->handle)
        set(m, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &m->d->handle);
    set_desc(m, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, g->op);
    finalize(m, g->graph);
}

static void free_graph(const Dnn *d, Graph *g) {
    Desc all[] = {g->graph, g->op, g->window, g->y, g->w, g->x};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) destroy(d, all[i]);
}

/* ---- engines ---- */

/* Do the engine's notes allow it? */
static bool is_allowed(const Dnn *d, Desc engine, bool tf32) {
    cudnnBackendNumericalNote_t note[MAX_NOTES];
    cudnnBackendBehaviorNote_t behavior[MAX_NOTES];
    int64_t notes = 0, behaviors = 0;
    if (!get(d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES,
             &notes, note) ||
        !get(d, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES,
             &behaviors, behavior))
        return false;
    for (int64_t i = 0; i < behaviors && i < MAX_NOTES; i++)
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
    for (int64_t i = 0; i < notes && i < MAX_NOTES; i++) switch (note[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return false;
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            if (!tf32) return false;
            break;
        default: break;
        }
    return true;
}

/* The plan of one configuration, if it is allowed and small enough. */
static bool plan_config(const Dnn *d, Desc config, bool tf32, uint64_t most, void **out,
                        uint64_t *workspace) {
    Maker m = {d, true};
    int64_t n, bytes = -1;
    Desc engine = make(&m, CUDNN_BACKEND_ENGINE_DESCRIPTOR), plan = NULL;
    bool ok = m.ok &&
              get(d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                  &engine) &&
              is_allowed(d, engine, tf32);
    destroy(d, engine);
    if (!ok) return false;
    plan = make(&m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (d->handle)
        set(&m, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle);
    else
        set_desc(&m, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, d->device);
    set_desc(&m, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(&m, plan);
    ok = m.ok &&
         get(d, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
    if (!ok || bytes < 0 || (uint64_t)bytes > most) {
        destroy(d, plan);
        return false;
    }
    *out = plan;
    *workspace = (uint64_t)bytes;
    return true;
}

/* Configurations of one list of the heuristics, in their order; returns how many. */
static int64_t list_configs(const Dnn *d, Desc graph, cudnnBackendHeurMode_t mode,
                            Desc config[MAX_CONFIGS]) {
    Maker m = {d, true};
    int64_t n = 0;
    Desc list = make(&m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(&m, list, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(&m, list, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!d->handle) set_desc(&m, list, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, d->device);
    finalize(&m, list);
    for (int i = 0; i < MAX_CONFIGS; i++) config[i] = make(&m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (m.ok && !get(d, list, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                     MAX_CONFIGS, &n, config))
        n = 0;
    destroy(d, list);
    return n < MAX_CONFIGS ? n : MAX_CONFIGS;
}

bool dnn_plan(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most, void **plan,
              uint64_t *workspace) {
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    assert(c->nd >= 1 && c->nd <= 3 && (d->handle || d->device));
    Maker m = {d, true};
    Graph g = {0};
    bool found = false;
    make_graph(&m, c, pass, &g);
    for (int i = 0; i < 2 && m.ok && !found; i++) {
        Desc config[MAX_CONFIGS];
        int64_t n = list_configs(d, g.graph, mode[i], config);
        for (int64_t k = 0; k < n && !found; k++)
            found = plan_config(d, config[k], tf32, most, plan, workspace);
        for (int k = 0; k < MAX_CONFIGS; k++) destroy(d, config[k]);
    }
    free_graph(d, &g);
    return found;
}

void dnn_drop(const Dnn *d, void *plan) {
    destroy(d, plan);
}
