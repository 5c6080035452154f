/* random.c - tensors of random numbers. Element i depends on the seed, the step, the node's key and
 * i alone, so that a second run of the node makes the same. */
#include "dtrt_kernels.h"
#include "kernel.h"

void dtrt_random_fill(const DtrtCtx *c, float *y, int64_t n, uint32_t key, int normal, double scale,
                      double shift) {
#pragma omp parallel for schedule(static) if (n > 1024)
    for (int64_t i = 0; i < n; i++) {
        double r = normal ? dtrt_normal(c->seed, c->step, key, (uint64_t)i)
                          : (double)dtrt_uniform(c->seed, c->step, key, (uint64_t)i);
        y[i] = (float)(scale * r + shift);
    }
}
