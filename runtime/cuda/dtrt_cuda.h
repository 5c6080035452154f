/* dtrt_cuda.h - what programs for the target cuda use beside dtrt_kernels.h: launches of their own
 * kernels. Needs no header of CUDA. */
#ifndef DTRT_CUDA_H
#define DTRT_CUDA_H

#include <stdint.h>

#include "dtrt.h"

extern const struct DtrtDevice dtrt_cuda;

/* A kernel of the program's images. */
typedef struct {
    const char *name;
    void *function; /* found at the first launch */
} DtrtLaunch;

typedef struct {
    int64_t x, y;
} DtrtGrid;
static inline DtrtGrid dtrt_cuda_grid(int64_t x, int64_t y) {
    return (DtrtGrid){x, y};
}
/* Blocks for n items at `per` a block, as many as a grid has at most: kernels walk on in strides of
 * the grid. */
static inline int64_t dtrt_cuda_blocks(int64_t n, int64_t per) {
    int64_t b = (n + per - 1) / per;
    return b < 65535 ? b : 65535;
}
/* Enqueues a kernel on the step's stream: args as for cuLaunchKernel. A grid without blocks
 * launches nothing. Ends the run with status 4 when it fails. */
void dtrt_cuda_launch(DtrtLaunch *k, DtrtGrid grid, int block, void **args);
/* Ends the run: a loop's operands have more elements than its kernel was compiled for. */
void dtrt_cuda_too_large(void) __attribute__((noreturn));

#endif
