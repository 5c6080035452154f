/* dnn.h - inside of the stand-in libcudnn: descriptors of the graph API and what is done with them.
 *
 * A descriptor is a list of attributes with a type and a count. dnn_attributes.c says which
 * attributes each kind has, dnn_store.c keeps them, dnn_convolution.c checks operations when they
 * are finalised, dnn_engine.c invents engines, dnn_execute.c queues a plan, dnn_compute.c computes.
 */
#ifndef DNN_H
#define DNN_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim.h"

enum { DNN_MAX_ATTRIBUTES = 24, DNN_MAX_ELEMENTS = 64, DNN_MAX_DIMS = 5, DNN_SPATIAL = 3 };

typedef struct {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    uint8_t most; /* elements */
    enum { DNN_REQUIRED, DNN_OPTIONAL, DNN_READ_ONLY } use;
} DnnAttribute;

typedef struct Dnn Dnn;

typedef struct {
    const DnnAttribute *rule;
    int64_t count;
    void *elements;
} DnnValue;

/* A convolution with three space dimensions (of size 1 in front where there are fewer). Strides are
 * in elements, order N C D H W (K C D H W for filters). */
typedef struct {
    cudnnBackendDescriptorType_t kind; /* the operation */
    int64_t n, groups, cg, kg;         /* images, groups, channels of a group in and out */
    int64_t in[DNN_SPATIAL], ker[DNN_SPATIAL], out[DNN_SPATIAL];
    int64_t pre[DNN_SPATIAL], step[DNN_SPATIAL], dil[DNN_SPATIAL];
    int64_t xs[DNN_MAX_DIMS], ws[DNN_MAX_DIMS], ys[DNN_MAX_DIMS];
    int64_t uid[3];    /* of x, w, y or their gradients */
    int64_t align[3];  /* bytes */
    uint64_t bytes[3]; /* from the first to the last element */
    float alpha, beta;
} DnnConv;

typedef struct {
    int64_t index;
    cudnnBackendNumericalNote_t notes[4];
    int nnotes;
    bool tf32, nondeterministic;
    bool supported;     /* else its plans cannot be finalised */
    uint64_t workspace; /* for this operation */
    bool fallback;      /* in the list of the fallback mode */
} DnnEngine;

struct Dnn {
    uint32_t magic;
    cudnnBackendDescriptorType_t kind;
    bool final;
    DnnValue values[DNN_MAX_ATTRIBUTES];
    uint32_t nvalues;
    DnnEngine *engine; /* of engines, configurations and plans, once known */
    DnnConv *conv;     /* of operations, graphs and what comes from them */
};

/* dnn_attributes.c */
const DnnAttribute *dnn_rule(cudnnBackendDescriptorType_t kind, cudnnBackendAttributeName_t name);
const DnnAttribute *dnn_missing(const Dnn *d); /* a required attribute that is not set */
bool dnn_has_kind(cudnnBackendDescriptorType_t kind);
size_t dnn_size(cudnnBackendAttributeType_t type);

/* dnn_store.c */
__attribute__((format(printf, 2, 3))) cudnnStatus_t dnn_error(cudnnStatus_t status,
                                                              const char *format, ...);
Dnn *dnn_of(cudnnBackendDescriptor_t handle,
            cudnnBackendDescriptorType_t kind); /* final, or NULL */
const DnnValue *dnn_value(const Dnn *d, cudnnBackendAttributeName_t name);
int64_t dnn_int(const Dnn *d, cudnnBackendAttributeName_t name, int64_t otherwise);
Dnn *dnn_child(const Dnn *d, cudnnBackendAttributeName_t name); /* a descriptor in an attribute */
void dnn_put(Dnn *d, cudnnBackendAttributeName_t name, const void *elements, int64_t count);
cudnnStatus_t dnn_set_conv(Dnn *d, const DnnConv *conv); /* copies */
bool dnn_is_convolution(cudnnBackendDescriptorType_t kind);

/* dnn_convolution.c */
cudnnStatus_t dnn_check_tensor(const Dnn *d);
cudnnStatus_t dnn_check_convolution(const Dnn *d);
cudnnStatus_t dnn_check_operation(Dnn *d); /* and sets its conv */

/* dnn_engine.c */
cudnnStatus_t dnn_finalize(Dnn *d); /* graphs, heuristics, engines, configurations, plans */
cudnnStatus_t dnn_fill(const Dnn *d, cudnnBackendAttributeName_t name, int64_t want, int64_t *count,
                       void *elements); /* attributes that are descriptors or computed */

/* dnn_execute.c */
cudnnStatus_t dnn_execute(CUstream stream, const Dnn *plan, const Dnn *pack);

/* dnn_compute.c */
void dnn_compute(const DnnConv *conv, bool tf32, const float *x, const float *w, const float *y,
                 float *result);

#endif
