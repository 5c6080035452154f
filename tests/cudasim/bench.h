/* bench.h - what the kernel tests run on: a module, buffers that are watched, launches whose
 * outputs are compared with sums in double and hashed, so that runs in other orders can be
 * compared. */
#ifndef CUDASIM_BENCH_H
#define CUDASIM_BENCH_H

#include "base.h"
#include "simt.h"

enum { MAX_BUFFERS = 16 };

typedef struct {
    uint8_t *at;
    size_t bytes;
    bool writable;
    uint8_t *written; /* one byte a byte */
} Buffer;

/* All floats that bench_compare saw in one run, for another run to be compared with. */
typedef struct {
    float *at;
    size_t n, cap, next;
    bool again; /* the other run */
    size_t different;
    uint32_t worst; /* distance in units in the last place */
} Record;

typedef struct {
    const SimtModule *module;
    SimtOptions options;
    SimtFindings found;
    Buffer buffer[MAX_BUFFERS];
    uint32_t buffers;
    uint32_t wrong; /* elements that are not as they should be; the first are printed */
    bool quiet;     /* print nothing, compare nothing: mutants */
    uint64_t hash;  /* of all outputs so far */
    bool on_gpu;    /* launches go to the device (gpu.h) */
    Record *record; /* or NULL */
} Bench;

/* A run with this module; the random numbers of the inputs start anew. */
void bench_begin(Bench *b, const SimtModule *m, bool check, SimtOrder order, uint64_t seed);
void bench_end(Bench *b); /* frees the buffers */

/* Buffers filled with random numbers in [lo, hi), read-only for kernels; bytes of 0xFF that kernels
 * may write, and may not read before; zeros that they may read and write. */
float *bench_floats(Bench *b, size_t n, double lo, double hi);
int *bench_ints(Bench *b, size_t n, int below);
void *bench_input(Bench *b, const void *bytes, size_t n);
void *bench_output(Bench *b, size_t bytes);
void *bench_state(Bench *b, const void *bytes, size_t n); /* a copy, or zeros */

void bench_launch(Bench *b, const char *kernel, SimtDim grid, SimtDim block,
                  uint32_t dynamic_shared, void *const *args);

/* |got - want| <= absolute + relative * |want|, or it counts as wrong; NaN does. */
void bench_compare(Bench *b, const char *what, const float *got, const double *want, size_t n,
                   double relative, double absolute);
void bench_compare_ints(Bench *b, const char *what, const void *got, const void *want, size_t n,
                        size_t bytes);

/* These floats are to be the same, or nearly, in another run. */
void bench_record(Bench *b, const float *got, size_t n);

#define ARGS(...) ((void *[]){__VA_ARGS__})
#define D1(x_) ((SimtDim){(uint32_t)(x_), 1, 1})
#define D2(x_, y_) ((SimtDim){(uint32_t)(x_), (uint32_t)(y_), 1})

/* cases.c: one kernel of kernels/FILE at size n (1 and more) */
typedef struct {
    const char *name, *file;
    void (*run)(Bench *b, int n);
} KernelCase;
extern const KernelCase kernel_cases[];
extern const uint32_t nkernel_cases;

/* The CUDA text of kernels/FILE; NULL: cannot be read. */
char *bench_text(Arena *a, const char *file);

#endif
