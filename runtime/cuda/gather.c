/* gather.c - Gather along an axis and its gradient: which kernels of gather.cu, on how many blocks.
 */
#include "cuda_plan.h"
#include "walk.h"

enum { SORT_CHUNK = 2048 }; /* GATHER_CHUNK of gather.cu */

static CuGather gather_of(int idx_i32, int64_t outer, int64_t n, int64_t inner, int64_t count) {
    CuGather q = {.outer = outer,
                  .n = n,
                  .inner = inner,
                  .count = count,
                  .idx_i32 = idx_i32,
                  .node = cu_node()};
    q.small = outer * count * inner <= INT32_MAX;
    q.by_inner = cu_divider((uint64_t)(q.small && inner ? inner : 1));
    q.by_count = cu_divider((uint64_t)(q.small && count ? count : 1));
    return q;
}

void dtrt_gather(DtrtCtx *c, const void *data, const void *idx, int idx_i32, void *y, int64_t outer,
                 int64_t n, int64_t inner, int64_t count, int elem) {
    int unit = 16;
    (void)c;
    while (unit > elem &&
           (inner * elem % unit || ((uintptr_t)data | (uintptr_t)y) % (uintptr_t)unit))
        unit = unit == 4 ? 1 : unit / 2;
    CuGather q = gather_of(idx_i32, outer, n, inner * elem / unit, count);
    int64_t blocks = cu_blocks(outer * count * q.inner, 256);
    switch (unit) {
    case 1: CU_LAUNCH(gather1, blocks, 256, &q, &idx, &data, &y); break;
    case 4: CU_LAUNCH(gather4, blocks, 256, &q, &idx, &data, &y); break;
    case 8: CU_LAUNCH(gather8, blocks, 256, &q, &idx, &data, &y); break;
    default: CU_LAUNCH(gather16, blocks, 256, &q, &idx, &data, &y); break;
    }
}

uint64_t dtrt_gather_grad_needs(int64_t n, int64_t inner, int64_t count) {
    CudaGatherSort sort;
    cuda_gather_sort(n, inner, count, &sort);
    return sort.bytes;
}

/* Chunks in shared memory, then longer and longer runs: distances that go beyond a chunk first. */
static void sort_indices(CuGather *q, const void *idx, uint64_t *key, int64_t keys) {
    int64_t chunk = keys < SORT_CHUNK ? keys : SORT_CHUNK, chunks = keys / chunk;
    CU_LAUNCH(gather_sort_chunks, cu_blocks(chunks, 1), 256, q, &idx, &key, &keys);
    for (int64_t run = 2 * chunk; run <= keys; run *= 2) {
        for (int64_t far = run / 2; far >= chunk; far /= 2)
            CU_LAUNCH(gather_sort_far, cu_blocks(keys / 2, 256), 256, &key, &keys, &run, &far);
        CU_LAUNCH(gather_sort_near, cu_blocks(chunks, 1), 256, &key, &keys, &run);
    }
}

void dtrt_gather_grad(DtrtCtx *c, const float *dy, const void *idx, int idx_i32, float *dx,
                      int64_t outer, int64_t n, int64_t inner, int64_t count, void *ws) {
    CuGather q = gather_of(idx_i32, outer, n, inner, count);
    CudaGatherSort sort;
    uint64_t *key = ws;
    (void)c;
    cuda_gather_sort(n, inner, count, &sort);
    if (!sort.keys) {
        CU_LAUNCH(gather_check, cu_blocks(count, 256), 256, &q, &idx);
        CU_LAUNCH(gather_grad_items, cu_blocks(outer * n * inner, 256), 256, &q, &idx, &dy, &dx);
        return;
    }
    q.bits = sort.bits;
    sort_indices(&q, idx, key, sort.keys);
    dtrt_fill(dx, (uint64_t)(outer * n * inner), 0.0, DTRT_F32);
    int wide = inner > 64;
    int64_t tiles = wide ? (inner + 127) / 128 : (inner + 31) / 32;
    int64_t blocks = cu_blocks(outer * tiles * ((count + 7) / 8), 1);
    if (wide)
        CU_LAUNCH(gather_grad_wide, blocks, 256, &q, &key, &dy, &dx);
    else
        CU_LAUNCH(gather_grad_narrow, blocks, 256, &q, &key, &dy, &dx);
}
