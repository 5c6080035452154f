/* random.c - tensors of random numbers. */
#include "walk.h"

void dtrt_random_fill(const DtrtCtx *c, float *y, int64_t n, uint32_t key, int normal, double scale,
                      double shift) {
    (void)c; /* seed and step are read on the device */
    CU_LAUNCH(random_fill, cu_blocks(n, 256), 256, &y, &n, &key, &normal, &scale, &shift);
}
