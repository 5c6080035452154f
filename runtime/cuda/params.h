/* params.h - structs that host code and CUDA kernels share: included by both, so nothing but plain
 * types of fixed size. */
#ifndef DTRT_CUDA_PARAMS_H
#define DTRT_CUDA_PARAMS_H

/* Settings of the current step, in the module's variable cu_now. A captured step is replayed with
 * what is in it then, so kernels must not take these as arguments. */
typedef struct {
    unsigned long long seed, step;
    float lr, momentum, dampening, weight_decay, beta1, beta2, eps;
    int nesterov;
    double left1, left2; /* 1 - beta1^t, 1 - beta2^t; t counts from 1 */
} CuStep;

/* What a step found, in the module's variable cu_report: zeros when it begins. The first finding of
 * each kind stays. */
typedef struct {
    int nonfinite;      /* 1 + the parameter tensor whose gradient is not finite; from then
                           on updates change nothing */
    int loss_nonfinite; /* 1: the loss is not, and updates change nothing either */
    int bad_node;       /* 1 + the node that found a number out of range */
    float loss;
    long long value, limit, position; /* of that number: it must be in [0, limit) */
    unsigned long long hits, counted; /* accuracy */
} CuReport;

#endif
