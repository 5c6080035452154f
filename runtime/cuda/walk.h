/* walk.h - host side of CuWalk (params.h) and of the kernels' launch shapes.
 *
 * Division by a constant: T. Granlund and P. Montgomery, "Division by invariant integers using
 * multiplication", PLDI 1994. */
#ifndef DTRT_CUDA_WALK_H
#define DTRT_CUDA_WALK_H

#include <assert.h>

#include "cu.h"

/* d in [1, 2^31] */
static inline CuDivider cu_divider(uint64_t d) {
    unsigned shift = 0;
    while (((uint64_t)1 << shift) < d) shift++;
    uint64_t mul = ((((uint64_t)1 << shift) - d) << 32) / d + 1;
    return (CuDivider){(unsigned)mul, shift};
}

static inline CuWalk cu_walk(void) {
    return (CuWalk){.first = 8, .total = 1};
}

/* Puts an axis in front of the others; it joins the one behind it where that changes no offset. */
static inline void cu_walk_push(CuWalk *w, int64_t size, int64_t to, int64_t from) {
    int k = w->first;
    w->total *= size;
    if (size == 1) return;
    if (k < 8 && to == w->to[k] * w->size[k] && from == w->from[k] * w->size[k]) {
        w->size[k] *= size;
        return;
    }
    assert(k > 0);
    w->first = --k;
    w->size[k] = size;
    w->to[k] = to;
    w->from[k] = from;
}

/* Dividers, once all axes are there. */
static inline void cu_walk_close(CuWalk *w) {
    int64_t reach_to = 0, reach_from = 0;
    for (int k = w->first; k < 8; k++) {
        reach_to += (w->size[k] - 1) * (w->to[k] < 0 ? -w->to[k] : w->to[k]);
        reach_from += (w->size[k] - 1) * (w->from[k] < 0 ? -w->from[k] : w->from[k]);
    }
    w->small = w->total <= INT32_MAX && reach_to <= INT32_MAX && reach_from <= INT32_MAX;
    for (int k = w->first; w->small && k < 8; k++) {
        w->by[k] = cu_divider(w->size[k] ? (uint64_t)w->size[k] : 1);
    }
}

/* movement.c: copies the elements of `elem` bytes of a walk that is not closed yet. */
void cu_walk_copy(CuWalk w, void *to, const void *from, int elem);

/* Threads of a block that works on a row of n: some ROW_CACHE elements each, if that is enough. */
static inline int cu_row_threads(int64_t n) {
    int threads = 32;
    while (threads < 1024 && (int64_t)threads * 8 < n) threads *= 2;
    return threads;
}
/* Rows of n: kernel_warp, 8 rows a block, or kernel_block. */
enum { CU_WARP_ROW = 256 };
#define CU_ROWS(kernel, rows, n, ...)                                                              \
    do {                                                                                           \
        if ((n) <= CU_WARP_ROW)                                                                    \
            CU_LAUNCH(kernel##_warp, cu_blocks((rows), 8), 256, __VA_ARGS__);                      \
        else                                                                                       \
            CU_LAUNCH(kernel##_block, cu_blocks((rows), 1), cu_row_threads(n), __VA_ARGS__);       \
    } while (0)
/* A small or a large walk: kernel, or kernel_big with 64-bit divisions. */
#define CU_WALK(kernel, walk, blocks, ...)                                                         \
    do {                                                                                           \
        if ((walk)->small)                                                                         \
            CU_LAUNCH(kernel, (blocks), 256, __VA_ARGS__);                                         \
        else                                                                                       \
            CU_LAUNCH(kernel##_big, (blocks), 256, __VA_ARGS__);                                   \
    } while (0)

static inline CUdeviceptr cu_ptr(const void *p) {
    return (CUdeviceptr)(uintptr_t)p;
}

#endif
