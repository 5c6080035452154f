/* optim.c - parameter updates. Four elements a thread: less would spend its time on the constants
 * of the step. */
#include "walk.h"

enum { PER_BLOCK = 1024 };

void dtrt_sgd(const DtrtCtx *c, float *w, const float *g, float *v, int64_t n) {
    (void)c;
    CU_LAUNCH(sgd, cu_blocks(n, PER_BLOCK), 256, &w, &g, &v, &n);
}

void dtrt_adam(const DtrtCtx *c, float *w, const float *g, float *m, float *v, int64_t n,
               int decoupled) {
    (void)c;
    CU_LAUNCH(adam, cu_blocks(n, PER_BLOCK), 256, &w, &g, &m, &v, &n, &decoupled);
}
