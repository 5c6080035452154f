/* gpu.h - the same kernels on a device: a launch with buffers that live on the host, copied there
 * and back. libcuda is opened from the folders of $DTRT_CUDA_PATH, else as the loader finds it; the
 * stand-in of standin/ serves too. */
#ifndef CUDASIM_GPU_H
#define CUDASIM_GPU_H

#include "simt.h"

typedef struct {
    void *at;
    size_t bytes;
    bool writable; /* copied back */
} GpuBuffer;

/* NULL, or why there is no device. */
const char *gpu_open(void);
const char *gpu_name(void);
/* The device's own module of what `module` was made from: cubin or PTX. Its variables are copied
 * there before each launch, and back. NULL, or why not. */
const char *gpu_add(const SimtModule *module, const void *image);
/* As simt_launch; addresses of buffers in the parameters, and in structs among them, are replaced.
 * NULL, or the error. */
const char *gpu_launch(const SimtKernel *kernel, SimtDim grid, SimtDim block,
                       uint32_t dynamic_shared, void *const *args, const GpuBuffer *buffers,
                       uint32_t n);
void gpu_close(void); /* modules and context */

#endif
