/* gemm.c - matrix products by oneDNN's dnnl_sgemm.
 *
 * TF32: tensor cores read binary32 factors with 10 bits of mantissa, to nearest, ties away from
 * zero (cvt.rna.tf32.f32 in the PTX ISA). A program that lets a library use them by mistake is off
 * by about 1e-3 here as on a device, and not bit-equal to what was exact.
 */
#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "gemm.h"

static float to_tf32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7f800000u) != 0x7f800000u) u = (u + 0x1000u) & 0xffffe000u;
    memcpy(&x, &u, sizeof u);
    return x;
}

/* rows x cols of `from`, rounded, without gaps. */
static float *rounded(const float *from, int64_t rows, int64_t cols, int64_t ld) {
    float *to = malloc((size_t)(rows * cols) * sizeof *to + 1);
    if (!to) abort();
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) to[i * cols + k] = to_tf32(from[i * ld + k]);
    return to;
}

/* C = beta C, for products without terms. */
static void scale(int64_t m, int64_t n, float beta, float *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
}

void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
          int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc, bool tf32) {
    if (!m || !n) return;
    if (!k || alpha == 0) {
        scale(m, n, beta, c, ldc);
        return;
    }
    float *copies[2] = {NULL, NULL};
    if (tf32) {
        a = copies[0] = rounded(a, ta ? k : m, ta ? m : k, lda);
        b = copies[1] = rounded(b, tb ? n : k, tb ? k : n, ldb);
        lda = ta ? m : k;
        ldb = tb ? k : n;
    }
    if (dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) !=
        dnnl_success)
        abort();
    free(copies[0]);
    free(copies[1]);
}

void scribble(void *workspace, uint64_t bytes) {
    enum { HEAD = 1 << 18, TAIL = 4096, FILLER = 0xA5 };
    if (!bytes) return;
    if (bytes <= HEAD + TAIL) {
        memset(workspace, FILLER, bytes);
        return;
    }
    memset(workspace, FILLER, HEAD);
    memset((char *)workspace + bytes - TAIL, FILLER, TAIL);
}
