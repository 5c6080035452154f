/* dnn_convolution.c - what tensors, convolutions and their operations must be to be finalised, and
 * the operation as numbers.
 *
 * Groups are not said: they are the channels of the image by the channels of the filter. */
#include <string.h>

#include "dnn.h"

typedef struct {
    int64_t count; /* of dimensions */
    int64_t dim[DNN_MAX_DIMS], stride[DNN_MAX_DIMS];
} Shape;

cudnnStatus_t dnn_check_tensor(const Dnn *d) {
    const DnnValue *dims = dnn_value(d, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const DnnValue *strides = dnn_value(d, CUDNN_ATTR_TENSOR_STRIDES);
    if (dims->count != strides->count || dims->count < 3)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "a tensor of %lld dimensions and %lld strides",
                         (long long)dims->count, (long long)strides->count);
    for (int64_t i = 0; i < dims->count; i++)
        if (((const int64_t *)dims->elements)[i] < 1 || ((const int64_t *)strides->elements)[i] < 1)
            return dnn_error(CUDNN_STATUS_BAD_PARAM, "dimension or stride %lld is not positive",
                             (long long)i);
    if (dnn_int(d, CUDNN_ATTR_TENSOR_DATA_TYPE, -1) != CUDNN_DATA_FLOAT ||
        dnn_int(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) || dnn_int(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0))
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "only binary32 tensors in memory");
    int64_t align = dnn_int(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (align < 4 || (align & (align - 1)))
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "an alignment of %lld bytes", (long long)align);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_check_convolution(const Dnn *d) {
    static const cudnnBackendAttributeName_t lists[] = {
        CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS};
    int64_t n = dnn_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    for (int k = 0; k < 4; k++) {
        const DnnValue *v = dnn_value(d, lists[k]);
        if (v->count != n)
            return dnn_error(CUDNN_STATUS_BAD_PARAM, "%lld space dimensions, list %d has %lld",
                             (long long)n, k, (long long)v->count);
        for (int64_t i = 0; i < n; i++)
            if (((const int64_t *)v->elements)[i] < (k < 2))
                return dnn_error(CUDNN_STATUS_BAD_PARAM, "a stride, dilation or padding too small");
    }
    if (dnn_int(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, -1) != CUDNN_DATA_FLOAT ||
        dnn_int(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, -1) != CUDNN_CROSS_CORRELATION)
        return dnn_error(CUDNN_STATUS_NOT_SUPPORTED, "only cross-correlation in binary32");
    return CUDNN_STATUS_SUCCESS;
}

/* N C and three space dimensions, those in front of size 1 where the tensor has fewer. */
static Shape shape_of(const Dnn *tensor) {
    const DnnValue *dims = dnn_value(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const DnnValue *strides = dnn_value(tensor, CUDNN_ATTR_TENSOR_STRIDES);
    Shape s = {.count = dims->count};
    for (int i = 0; i < DNN_MAX_DIMS; i++) s.dim[i] = s.stride[i] = 1;
    for (int64_t i = 0; i < s.count; i++) {
        int64_t to = i < 2 ? i : i + DNN_MAX_DIMS - s.count;
        s.dim[to] = ((const int64_t *)dims->elements)[i];
        s.stride[to] = ((const int64_t *)strides->elements)[i];
    }
    return s;
}

static void read_list(const Dnn *d, cudnnBackendAttributeName_t name, int64_t otherwise,
                      int64_t list[DNN_SPATIAL]) {
    const DnnValue *v = dnn_value(d, name);
    for (int64_t i = 0; i < DNN_SPATIAL; i++) {
        int64_t from = i - (DNN_SPATIAL - v->count);
        list[i] = from < 0 ? otherwise : ((const int64_t *)v->elements)[from];
    }
}

static float read_float(const Dnn *d, cudnnBackendAttributeName_t name, float otherwise) {
    const DnnValue *v = dnn_value(d, name);
    return v ? *(const float *)v->elements : otherwise;
}

typedef struct {
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} Names;

static Names names_of(cudnnBackendDescriptorType_t kind) {
    if (kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return (Names){CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return (Names){CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return (Names){CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

static cudnnStatus_t check_space(const DnnConv *c, const Dnn *conv) {
    int64_t post[DNN_SPATIAL];
    read_list(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0, post);
    for (int i = 0; i < DNN_SPATIAL; i++) {
        int64_t room = c->in[i] + c->pre[i] + post[i] - ((c->ker[i] - 1) * c->dil[i] + 1);
        if (room >= 0 && c->out[i] == room / c->step[i] + 1) continue;
        return dnn_error(CUDNN_STATUS_BAD_PARAM,
                         "space dimension %d: %lld of %lld do not give %lld", i,
                         (long long)c->in[i], (long long)c->ker[i], (long long)c->out[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t read_conv(const Dnn *operation, DnnConv *conv) {
    Names names = names_of(operation->kind);
    const cudnnBackendAttributeName_t tensor[3] = {names.x, names.w, names.y};
    Shape shapes[3];
    *conv = (DnnConv){.kind = operation->kind,
                      .alpha = read_float(operation, names.alpha, 1),
                      .beta = read_float(operation, names.beta, 0)};
    for (int i = 0; i < 3; i++) {
        const Dnn *t = dnn_of(dnn_child(operation, tensor[i]), CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        if (!t) return dnn_error(CUDNN_STATUS_BAD_PARAM, "tensor %d of an operation is none", i);
        shapes[i] = shape_of(t);
        conv->uid[i] = dnn_int(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
        conv->align[i] = dnn_int(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
        int64_t last = 0;
        for (int k = 0; k < DNN_MAX_DIMS; k++) last += (shapes[i].dim[k] - 1) * shapes[i].stride[k];
        conv->bytes[i] = (uint64_t)(last + 1) * sizeof(float);
    }
    const Dnn *d = dnn_of(dnn_child(operation, names.conv), CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const Shape *x = &shapes[0], *w = &shapes[1], *y = &shapes[2];
    if (!d || x->count != w->count || x->count != y->count ||
        x->count != dnn_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) + 2)
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "tensors and convolution differ in dimensions");
    conv->n = x->dim[0];
    conv->cg = w->dim[1];
    conv->groups = x->dim[1] / w->dim[1];
    conv->kg = w->dim[0] / (conv->groups ? conv->groups : 1);
    if (x->dim[0] != y->dim[0] || y->dim[1] != w->dim[0] || conv->groups * conv->cg != x->dim[1] ||
        conv->groups * conv->kg != w->dim[0])
        return dnn_error(CUDNN_STATUS_BAD_PARAM, "images or channels do not fit each other");
    memcpy(conv->in, x->dim + 2, sizeof conv->in);
    memcpy(conv->ker, w->dim + 2, sizeof conv->ker);
    memcpy(conv->out, y->dim + 2, sizeof conv->out);
    memcpy(conv->xs, x->stride, sizeof conv->xs);
    memcpy(conv->ws, w->stride, sizeof conv->ws);
    memcpy(conv->ys, y->stride, sizeof conv->ys);
    read_list(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0, conv->pre);
    read_list(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1, conv->step);
    read_list(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 1, conv->dil);
    return check_space(conv, d);
}

cudnnStatus_t dnn_check_operation(Dnn *d) {
    DnnConv conv;
    cudnnStatus_t status = read_conv(d, &conv);
    return status == CUDNN_STATUS_SUCCESS ? dnn_set_conv(d, &conv) : status;
}
