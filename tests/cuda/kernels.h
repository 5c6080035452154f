/* kernels.h - both targets' functions of dtrt_kernels.h in one process, on the same data, for the
 * tests of the CUDA kernels.
 *
 *     begin("softmax 3x5x1");
 *     float *x = floats(15, -2, 2);
 *     Out *y = out_floats(15);
 *     EACH(k) k->softmax(x, at(y), 3, 5, 1, 0);
 *     compare(y, 2e-6);
 *     finish();
 *
 * The body of EACH runs once with runtime/cpu and then some times with runtime/cuda, whose kernels
 * go from NVRTC's PTX through the simulator (tests/cudasim) with all its checks: in different
 * orders of threads and blocks, on two blocks instead of many, and with 64-bit indices. Every pass
 * has its own copy of each output, all ones (NaN) before. The passes of CUDA must agree in every
 * bit, and with the CPU's to within the tolerance of `compare`. */
#ifndef KERNELS_H
#define KERNELS_H

#include "test.h"

#include "dtrt_kernels.h"

#define KERNEL_CALLS(F)                                                                            \
    F(pool_index_bytes)                                                                            \
    F(pool_forward)                                                                                \
    F(pool_grad)                                                                                   \
    F(pool_places)                                                                                 \
    F(softmax)                                                                                     \
    F(softmax_grad)                                                                                \
    F(loss_needs)                                                                                  \
    F(loss_forward)                                                                                \
    F(loss_grad)                                                                                   \
    F(layernorm)                                                                                   \
    F(layernorm_grad_x)                                                                            \
    F(groupnorm)                                                                                   \
    F(groupnorm_grad_x)                                                                            \
    F(rmsnorm)                                                                                     \
    F(rmsnorm_grad_x)                                                                              \
    F(bn_update)                                                                                   \
    F(reduce_sum)                                                                                  \
    F(reduce_sum_needs)                                                                            \
    F(fold)                                                                                        \
    F(prod_grad)                                                                                   \
    F(cumsum)                                                                                      \
    F(arg)                                                                                         \
    F(copy)                                                                                        \
    F(transpose)                                                                                   \
    F(concat)                                                                                      \
    F(slice)                                                                                       \
    F(slice_add)                                                                                   \
    F(slice_grad)                                                                                  \
    F(pad)                                                                                         \
    F(pad_grad)                                                                                    \
    F(gather)                                                                                      \
    F(gather_grad)                                                                                 \
    F(gather_grad_needs)                                                                           \
    F(gather_elements)                                                                             \
    F(scatter_elements)                                                                            \
    F(gather_nd)                                                                                   \
    F(scatter_nd)                                                                                  \
    F(topk)                                                                                        \
    F(random_fill)                                                                                 \
    F(resize_init)                                                                                 \
    F(resize_free)                                                                                 \
    F(resize)                                                                                      \
    F(fill)                                                                                        \
    F(sgd)                                                                                         \
    F(adam)

typedef struct {
#define F(name) __typeof__(dtrt_##name) *name;
    KERNEL_CALLS(F)
#undef F
} Calls;

#define F(name) extern __typeof__(dtrt_##name) cuda_##name;
KERNEL_CALLS(F)
#undef F

/* Compiles the kernel files (names without .cu, NULL-terminated) that the tests of this program
 * need. Arguments: the build folder, and "gpu" to compare a device (the stand-in of one in
 * DTRT_CUDA_PATH) with one pass of the simulator, bit for bit ("gpu-rz" must fail). False when it
 * is to be skipped: no NVRTC, no device. */
bool open_kernels(int argc, char **argv, const char *const *file);
bool on_gpu(void);

int kernels_end(void); /* test_end of the checks in kernels.c: each file counts its own */

void begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void finish(void); /* frees what the case has made */

/* Inputs. Reading or writing past their ends is found. */
void *bytes(size_t n);
void allow(void *p, size_t n); /* memory of the test's own */
float *floats(int64_t n, double lo, double hi);
int64_t *integers(int64_t n, int64_t lo, int64_t end); /* in [lo, end) */

/* Outputs. */
typedef struct Out Out;
Out *out_bytes(size_t n);
Out *out_floats(int64_t n);
Out *out_copy(const void *from, size_t n); /* each pass begins with these bytes */
void *at(Out *o);                          /* of the present pass */

enum { CUDA_PASSES = 4 };
const Calls *first_pass(void);
const Calls *next_pass(void);
bool on_cpu(void); /* the present pass */
#define EACH(k) for (const Calls *k = first_pass(); k; k = next_pass())

/* Floats: |cuda - cpu| <= tolerance * (1 + |cpu|), NaN where NaN is; the first few that are not are
 * told. */
void compare(Out *o, double tolerance);
void compare_bytes(Out *o);
/* The CUDA passes agree with each other, and with these: where runtime/cpu has something else. */
void expect_floats(Out *o, const double *want, double tolerance);

/* The last launch's report (params.h): value, limit and position of what was out of range. */
bool reported(long long *value, long long *limit, long long *position);
int nonfinite_reported(void);    /* CuReport.nonfinite */
void set_step(const DtrtCtx *c); /* settings of the step, for both */
void spoil(bool spoilt);         /* has the step gone wrong? */

#endif
