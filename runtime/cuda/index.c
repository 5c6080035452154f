/* index.c - GatherElements, ScatterElements, GatherND, ScatterND and TopK: arguments of the kernels
 * of index.cu. */
#include "walk.h"

/* With fewer lines of indices than that a thread takes an index, not a line. */
enum { LINES = 4096, SHORT = 32 };

static CuElements elements_of(const DtrtElements *e) {
    CuElements q = {.items = cu_walk(),
                    .n = e->dim[e->axis],
                    .stride = 1,
                    .along = e->idim[e->axis],
                    .inner = 1,
                    .how = (int)e->how,
                    .idx_i32 = e->idx_i32,
                    .node = cu_node()};
    int64_t stride = 1, dense = 1;
    for (int k = e->nd; k-- > 0;) {
        cu_walk_push(&q.items, e->idim[k], dense, k == e->axis ? 0 : stride);
        if (k > e->axis) q.inner *= e->idim[k];
        if (k > e->axis) q.stride *= e->dim[k];
        stride *= e->dim[k];
        dense *= e->idim[k];
    }
    cu_walk_close(&q.items);
    return q;
}

static int64_t count_of(int nd, const int64_t *dim) {
    int64_t n = 1;
    for (int k = 0; k < nd; k++) n *= dim[k];
    return n;
}

static void start_from(const void *data, void *y, int64_t n, int elem) {
    uint64_t bytes = (uint64_t)(n * elem);
    if (data)
        dtrt_copy(data, y, bytes);
    else
        dtrt_fill(y, bytes, 0.0, DTRT_U8);
}

void dtrt_gather_elements(DtrtCtx *c, const DtrtElements *e, const void *data, const void *idx,
                          void *y) {
    CuElements q = elements_of(e);
    int64_t blocks = cu_blocks(q.items.total, 256);
    (void)c;
    switch (e->elem) {
    case 1: CU_LAUNCH(gather_elements1, blocks, 256, &q, &idx, &data, &y); break;
    case 4: CU_LAUNCH(gather_elements4, blocks, 256, &q, &idx, &data, &y); break;
    default: CU_LAUNCH(gather_elements8, blocks, 256, &q, &idx, &data, &y); break;
    }
}

void dtrt_scatter_elements(DtrtCtx *c, const DtrtElements *e, const void *data, const void *idx,
                           const void *updates, void *y) {
    CuElements q = elements_of(e);
    int64_t lines = q.along ? q.items.total / q.along : 0;
    int64_t by_line = cu_blocks(lines, 256), by_index = cu_blocks(q.items.total, 256);
    bool whole = lines >= LINES || q.along <= SHORT;
    (void)c;
    start_from(data, y, count_of(e->nd, e->dim), e->elem);
    switch (e->elem + 10 * whole) {
    case 1: CU_LAUNCH(scatter_owned1, by_index, 256, &q, &idx, &updates, &y); break;
    case 4: CU_LAUNCH(scatter_owned4, by_index, 256, &q, &idx, &updates, &y); break;
    case 8: CU_LAUNCH(scatter_owned8, by_index, 256, &q, &idx, &updates, &y); break;
    case 11: CU_LAUNCH(scatter_lines1, by_line, 256, &q, &idx, &updates, &y); break;
    case 14: CU_LAUNCH(scatter_lines4, by_line, 256, &q, &idx, &updates, &y); break;
    default: CU_LAUNCH(scatter_lines8, by_line, 256, &q, &idx, &updates, &y); break;
    }
}

static CuTuples tuples_of(const DtrtTuples *t) {
    CuTuples q = {.k = t->k,
                  .how = (int)t->how,
                  .idx_i32 = t->idx_i32,
                  .node = cu_node(),
                  .batch = t->batch,
                  .count = t->count,
                  .inner = t->inner,
                  .slices = count_of(t->k, t->dim)};
    for (int i = 0; i < t->k; i++) q.dim[i] = t->dim[i];
    return q;
}

void dtrt_gather_nd(DtrtCtx *c, const DtrtTuples *t, const void *data, const void *idx, void *y) {
    CuTuples q = tuples_of(t);
    int64_t blocks = cu_blocks(q.batch * q.count * q.inner, 256);
    (void)c;
    switch (t->elem) {
    case 1: CU_LAUNCH(gather_nd1, blocks, 256, &q, &idx, &data, &y); break;
    case 4: CU_LAUNCH(gather_nd4, blocks, 256, &q, &idx, &data, &y); break;
    default: CU_LAUNCH(gather_nd8, blocks, 256, &q, &idx, &data, &y); break;
    }
}

void dtrt_scatter_nd(DtrtCtx *c, const DtrtTuples *t, const void *data, const void *idx,
                     const void *updates, void *y) {
    CuTuples q = tuples_of(t);
    int64_t blocks = cu_blocks(q.batch * q.count * ((q.inner + 31) / 32), 8);
    (void)c;
    start_from(data, y, q.batch * q.slices * q.inner, t->elem);
    switch (t->elem) {
    case 1: CU_LAUNCH(scatter_nd1, blocks, 256, &q, &idx, &updates, &y); break;
    case 4: CU_LAUNCH(scatter_nd4, blocks, 256, &q, &idx, &updates, &y); break;
    default: CU_LAUNCH(scatter_nd8, blocks, 256, &q, &idx, &updates, &y); break;
    }
}

void dtrt_topk(const float *x, float *v, int64_t *at, int64_t outer, int64_t n, int64_t inner,
               int64_t k, int largest) {
    CU_LAUNCH(topk, cu_blocks(outer * n * inner, 256), 256, &x, &v, &at, &outer, &n, &inner, &k,
              &largest);
}
