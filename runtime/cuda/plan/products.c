/* products.c - workspace of matrix products and of attention.
 *
 * cuBLAS needs 16 KiB to work at all, and room for partial results when it splits long sums, which
 * it does when the result has too few tiles for all multiprocessors. NVIDIA recommends 32 MiB for
 * Hopper and 4 MiB for others (cuBLAS documentation, cublasSetWorkspace): the former is the most
 * that is given here, the latter what large results have. */
#include "cuda_plan.h"

enum { SHORT_SUM = 512, FEW_TILES = 256 * 128 * 128, BLOCK = 1 << 22 };
static const uint64_t mib = 1 << 20, kib = 1 << 10;

static uint64_t aligned(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}

uint64_t cuda_product_workspace(int64_t results, int64_t k) {
    uint64_t parts = 4 * sizeof(float) * (uint64_t)results;
    if (results >= FEW_TILES) return 4 * mib;
    if (k < SHORT_SUM || parts < 64 * kib) return 64 * kib;
    return parts < 32 * mib ? aligned(parts) : 32 * mib;
}

uint64_t cuda_matmul_workspace(const DtrtMatmul *m) {
    int64_t results = m->m * m->n;
    for (int i = 0; i < m->nbatch; i++)
        results *= m->batch_a[i] > m->batch_b[i] ? m->batch_a[i] : m->batch_b[i];
    return cuda_product_workspace(results, m->k);
}

/* ---- attention ---- */

static uint64_t larger(uint64_t x, uint64_t y) {
    return x > y ? x : y;
}

void cuda_attention(const DtrtAttention *m, CudaAttention *out) {
    int64_t heads = 1, rows = m->rows > 0 ? m->rows : 1, keys = m->keys > 0 ? m->keys : 1;
    int64_t fit = BLOCK / keys > 0 ? BLOCK / keys : 1; /* rows that fit */
    for (int i = 0; i < m->nbatch; i++) heads *= m->batch[i];
    *out = (CudaAttention){.heads = 1, .rows = rows};
    if (rows <= fit) {
        out->heads = fit / rows < heads ? fit / rows : heads;
    } else {
        int64_t parts = (rows + fit - 1) / fit;
        out->rows = (rows + parts - 1) / parts;
    }
    int64_t all = out->heads * out->rows, of_keys = out->heads * keys;
    out->scores = aligned(sizeof(float) * (uint64_t)(all * keys));
    out->library = larger(cuda_product_workspace(all * keys, m->grad ? m->width : m->depth),
                          cuda_product_workspace(all * (m->grad ? m->depth : m->width), keys));
    if (m->grad) {
        out->library = larger(out->library, cuda_product_workspace(all * keys, m->depth));
        out->library = larger(out->library, cuda_product_workspace(of_keys * m->depth, out->rows));
        out->library = larger(out->library, cuda_product_workspace(of_keys * m->width, out->rows));
    }
    out->bytes = out->scores * (m->grad ? 2 : 1) + out->library;
}
