/* launch.c - kernels of the program's module on the step's stream. */
#include "cu.h"

void dtrt_cuda_too_large(void) {
    cu_fail("at these sizes it has 2^31 elements or more; compile the model for them");
}

void dtrt_cuda_launch(DtrtLaunch *k, DtrtGrid grid, int block, void **args) {
    if (grid.x <= 0 || grid.y <= 0) return;
    CUfunction f = k->function;
    if (!f) cu_check(cu.cuModuleGetFunction(&f, cu_device.module, k->name), k->name);
    k->function = f;
    cu_check(cu.cuLaunchKernel(f, (unsigned)grid.x, (unsigned)grid.y, 1, (unsigned)block, 1, 1, 0,
                               cu_device.stream, args, NULL),
             k->name);
}
