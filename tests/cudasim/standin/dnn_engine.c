/* dnn_engine.c - graphs, heuristics, engines, configurations and plans.
 *
 * The engines are invented, to have what cuDNN's lists have: tensor cores first, one that depends
 * on time, one whose plans cannot be made, different workspaces, and an exact one without workspace
 * at the end, which alone is in the fallback list. A program that takes the first of a list where
 * it should look at the notes and the workspace gets what it deserves: other results.
 */
#include <stdlib.h>
#include <string.h>

#include "dnn.h"

enum { ENGINES = 6 };

/* All that the operation touches, as exact engines of cuDNN want to transpose: it grows with the
 * batch. */
static uint64_t tensor_bytes(const DnnConv *c) {
    return c->bytes[0] + c->bytes[1] + c->bytes[2];
}

/* Engine number `place` of the list, best first. */
static DnnEngine engine_at(int place, const DnnConv *c) {
    bool backward = c->kind != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    uint64_t big = tensor_bytes(c);
    switch (place) {
    case 0:
        return (DnnEngine){.index = 57,
                           .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
                           .nnotes = 1,
                           .tf32 = true,
                           .supported = true,
                           .workspace = 131};
    case 1:
        return (DnnEngine){.index = 34,
                           .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
                           .nnotes = 1,
                           .nondeterministic = true,
                           .supported = backward,
                           .workspace = 4096};
    case 2: /* copies all of them into another layout, as the real one does */
        return (DnnEngine){
            .index = 6, .supported = true, .workspace = c->bytes[0] + c->bytes[1] + c->bytes[2]};
    case 3: return (DnnEngine){.index = 41, .supported = false, .workspace = 0};
    case 4: return (DnnEngine){.index = 2, .supported = true, .workspace = big / 8 + 1};
    default: return (DnnEngine){.index = 0, .supported = true, .fallback = true};
    }
}

static bool engine_by_index(int64_t index, const DnnConv *c, DnnEngine *engine) {
    for (int i = 0; i < ENGINES; i++) {
        *engine = engine_at(i, c);
        if (engine->index == index) return true;
    }
    return false;
}

static cudnnStatus_t take_engine(Dnn *d, const Dnn *from) {
    d->engine = malloc(sizeof *d->engine);
    if (!d->engine) return CUDNN_STATUS_ALLOC_FAILED;
    *d->engine = *from->engine;
    return dnn_set_conv(d, from->conv);
}

static cudnnStatus_t finalize_graph(Dnn *d) {
    const DnnValue *ops = dnn_value(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    const Dnn *operation = dnn_child(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (ops->count != 1 || !dnn_is_convolution(operation->kind))
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "only graphs of one convolution");
    return dnn_set_conv(d, operation->conv);
}

static cudnnStatus_t finalize_engine(Dnn *d) {
    const Dnn *graph = dnn_of(dnn_child(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH),
                              CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    DnnEngine engine;
    if (!graph) return dnn_error(CUDNN_STATUS_BAD_PARAM, "an engine without a graph");
    if (!engine_by_index(dnn_int(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1), graph->conv, &engine))
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "no engine of this index");
    return take_engine(d, &(Dnn){.engine = &engine, .conv = graph->conv});
}

cudnnStatus_t dnn_finalize(Dnn *d) {
    switch ((int)d->kind) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_engine(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
        const Dnn *graph = dnn_of(dnn_child(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH),
                                  CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
        if (!graph) return dnn_error(CUDNN_STATUS_BAD_PARAM, "heuristics without a graph");
        return dnn_set_conv(d, graph->conv);
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
        const Dnn *engine =
            dnn_of(dnn_child(d, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        return engine ? take_engine(d, engine)
                      : dnn_error(CUDNN_STATUS_BAD_PARAM, "a configuration without an engine");
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        const Dnn *config = dnn_of(dnn_child(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                                   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!config) return dnn_error(CUDNN_STATUS_BAD_PARAM, "a plan without a configuration");
        if (!config->engine->supported)
            return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld does not do this",
                             (long long)config->engine->index);
        return take_engine(d, config);
    }
    default: return CUDNN_STATUS_SUCCESS; /* packs, knobs */
    }
}

/* The caller made the descriptors; they become configurations. */
static cudnnStatus_t fill_results(const Dnn *heuristics, int64_t want, int64_t *count,
                                  void *elements) {
    bool fallback = dnn_int(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, -1) == CUDNN_HEUR_MODE_FALLBACK;
    *count = 0;
    for (int i = 0; i < ENGINES; i++) {
        DnnEngine engine = engine_at(i, heuristics->conv);
        if (fallback && !engine.fallback) continue;
        if (elements && *count < want) {
            Dnn *config = ((Dnn **)elements)[*count];
            Dnn source = {.engine = &engine, .conv = heuristics->conv};
            if (config->kind != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || config->final)
                return dnn_error(CUDNN_STATUS_BAD_PARAM, "results go into new configurations");
            cudnnStatus_t status = take_engine(config, &source);
            if (status != CUDNN_STATUS_SUCCESS) return status;
            config->final = true;
        } else if (elements) {
            break;
        }
        ++*count;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t fill_engine(const Dnn *config, int64_t want, int64_t *count, void *elements) {
    *count = 1;
    if (!elements || want < 1) return CUDNN_STATUS_SUCCESS;
    Dnn *engine = *(Dnn **)elements;
    if (engine->kind != CUDNN_BACKEND_ENGINE_DESCRIPTOR || engine->final)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "the engine goes into a new descriptor");
    dnn_put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, &config->engine->index, 1);
    engine->final = true;
    return take_engine(engine, config);
}

static cudnnStatus_t give_int(int64_t value, int64_t want, int64_t *count, void *elements) {
    if (count) *count = 1;
    if (elements && want > 0) *(int64_t *)elements = value;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_fill(const Dnn *d, cudnnBackendAttributeName_t name, int64_t want, int64_t *count,
                       void *elements) {
    int64_t unused;
    if (!count) count = &unused;
    switch ((int)name) {
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: return give_int(64, want, count, elements);
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return fill_results(d, want, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return fill_engine(d, want, count, elements);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return give_int((int64_t)d->engine->workspace, want, count, elements);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = d->engine->nnotes;
        for (int i = 0; elements && i < d->engine->nnotes && i < want; i++)
            ((cudnnBackendNumericalNote_t *)elements)[i] = d->engine->notes[i];
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    case CUDNN_ATTR_ENGINE_KNOB_INFO: *count = 0; return CUDNN_STATUS_SUCCESS;
    default:
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d cannot be read here", (int)name);
    }
}
