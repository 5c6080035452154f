/* gather.c - Gather along an axis and its gradient: which kernels of gather.cu, on how many blocks.
 */
#include "walk.h"

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

void dtrt_gather_grad(DtrtCtx *c, const float *dy, const void *idx, int idx_i32, float *dx,
                      int64_t outer, int64_t n, int64_t inner, int64_t count) {
    CuGather q = gather_of(idx_i32, outer, n, inner, count);
    int by_row = n <= count;
    int64_t owners = outer * (by_row ? n : count);
    (void)c;
    CU_LAUNCH(gather_check, cu_blocks(count, 256), 256, &q, &idx);
    if (inner < 16 || count <= 16) {
        CU_LAUNCH(gather_grad_items, cu_blocks(outer * n * inner, 256), 256, &q, &idx, &dy, &dx);
        return;
    }
    if (!by_row) dtrt_fill(dx, (uint64_t)(outer * n * inner), 0.0, DTRT_F32);
    if (inner > 64) {
        int64_t blocks = owners * ((inner + 127) / 128);
        CU_LAUNCH(gather_grad_wide, cu_blocks(blocks, 1), 256, &q, &idx, &dy, &dx, &by_row);
    } else {
        int64_t blocks = owners * ((inner + 31) / 32);
        CU_LAUNCH(gather_grad_narrow, cu_blocks(blocks, 1), 256, &q, &idx, &dy, &dx, &by_row);
    }
}
