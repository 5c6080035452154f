/* scratch.c - workspace of our own kernels: partial sums of reductions, sorted indices of gradients
 * of Gather. */
#include "cuda_plan.h"

enum {
    BLOCKS = 1024,   /* that keep a device busy */
    PARTS = 1 << 17, /* sums of one reduction at most */
    RUN = 4096,
    ROWS = 256,      /* elements of an output that are worth a block of their own */
    FEW = 16,        /* indices, */
    FEW_NARROW = 256 /* with few columns, that each element looks through by itself */
};

void cuda_sum(int nd, const int64_t *dim, const uint8_t *red, CudaSum *out) {
    int64_t outputs = 1, over = 1, splits;
    bool runs = false;
    for (int i = 0; i < nd; i++) {
        if (red[i])
            over *= dim[i];
        else
            outputs *= dim[i];
        if (dim[i] != 1) runs = red[i] != 0; /* so says the last one */
    }
    int64_t blocks = runs ? outputs : (outputs + 31) / 32;
    splits = (BLOCKS + blocks - 1) / (blocks ? blocks : 1);
    if (splits > over / (runs ? RUN : ROWS)) splits = over / (runs ? RUN : ROWS);
    if (splits > PARTS / (outputs ? outputs : 1)) splits = PARTS / (outputs ? outputs : 1);
    *out = (CudaSum){.splits = splits > 1 ? (int)splits : 1};
    if (out->splits > 1) out->bytes = (uint64_t)(outputs * splits) * sizeof(double);
}

static int bits_of(int64_t n) {
    int bits = 0;
    while (bits < 62 && (int64_t)1 << bits < n) bits++;
    return bits;
}

/* A key is a row and a place among the indices; all ones is no row. */
void cuda_gather_sort(int64_t n, int64_t inner, int64_t count, CudaGatherSort *out) {
    int bits = bits_of(count);
    *out = (CudaGatherSort){0};
    if (count <= FEW || (inner < FEW && count <= FEW_NARROW) || bits + bits_of(n) > 62) return;
    *out = (CudaGatherSort){bits, (int64_t)1 << bits, sizeof(uint64_t) << bits};
}
