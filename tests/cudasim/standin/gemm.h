/* gemm.h - matrix products of the stand-in libraries, in binary32. */
#ifndef GEMM_H
#define GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* C = alpha op(A) op(B) + beta C, row-major: C is m x n, op(A) m x k, op(B) k x n. With beta 0, C
 * is not read. The same call gives the same bits each time. `tf32`: factors are rounded as tensor
 * cores do. */
void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
          int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, bool tf32);

/* Fills a workspace with bytes that nobody may expect to keep. */
void scribble(void *workspace, uint64_t bytes);

#endif
