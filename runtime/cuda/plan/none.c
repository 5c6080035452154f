/* none.c - the compiler built without cuDNN's header: nothing can be asked. */
#include "cuda_plan.h"

const Dnn *dnn_for(const CudaDevice *device) {
    (void)device;
    return NULL;
}

const char *cuda_plan_library(void) {
    return NULL;
}

bool dnn_plan(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most, void **plan,
              uint64_t *workspace) {
    (void)d, (void)c, (void)pass, (void)tf32, (void)most, (void)plan, (void)workspace;
    return false;
}

void dnn_drop(const Dnn *d, void *plan) {
    (void)d, (void)plan;
}
