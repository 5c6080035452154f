/* dtrt_kernels.h - what generated code calls when a node is more than a generated loop. Each target
 * has these functions in a library of its own (runtime/cpu, runtime/cuda): pointers are to memory
 * of the target's device, and a call on the CUDA target returns before the work is done. All
 * tensors are dense row-major f32 unless said otherwise. Every kernel is deterministic for a given
 * thread count (CUDA: always): fixed partitions, fixed order of summation, reductions in double.
 * Nothing here allocates: workspace comes from the caller, and the *_needs functions say how much.
 * Pointers are at least 64-byte aligned. in and out may be equal only where a comment says so.
 * Names of files and libraries below are those of the CPU target. */
#ifndef DTRT_KERNELS_H
#define DTRT_KERNELS_H

#include "dtrt.h"
#include "dtrt_math.h"

/* Vectorisable exp, log, tanh, erf, sigmoid are in dtrt_vecmath.h. */

/* ---- conv.c: oneDNN ---- */
/* Images [n, in.., ci] (channels last) or [n, ci, in..]; weights [co, ci/group, k..] when plain.
 * An object serves the passes of its geometry that it is asked for; objects of one geometry agree
 * on the packed layout. Primitives are created by dtrt_conv_init, never later. */
typedef struct DtrtConv {
    int nd, channels_last, group, bias, relu, packed;
    int fwd, grad_x, grad_w; /* which passes this object is asked for */
    int64_t n, ci, co;
    int64_t in[3], out[3], k[3], stride[3], dil[3], pad_lo[3], pad_hi[3];
    uint64_t limit; /* CUDA: 1 + bytes of workspace that a pass may have; 0: the library's rule */
    void *impl;     /* set by init */
} DtrtConv;

typedef struct {
    uint64_t weight_bytes;        /* packed weights (plain bytes when !packed) */
    uint64_t fwd, grad_x, grad_w; /* workspace bytes of each pass, reorders included */
} DtrtConvNeeds;

/* Shapes and workspace that init will use, without creating primitives (descriptors only). threads:
 * the OpenMP thread count to plan for. False with a message in err when the geometry is not
 * supported. */
bool dtrt_conv_needs(const DtrtConv *c, int threads, DtrtConvNeeds *out, char *err, size_t nerr);
/* like: an initialised object of the same geometry for another batch, whose packed layout this one
 * takes, so that both work on the same weights; NULL: the layout that suits this one. */
bool dtrt_conv_init(DtrtConv *c, const DtrtConv *like, int threads);
/* What an initialised object uses: workspace of the passes it is asked for, packed weights. */
uint64_t dtrt_conv_workspace(const DtrtConv *c);
uint64_t dtrt_conv_weight_bytes(const DtrtConv *c);
int64_t dtrt_conv_weight_count(const DtrtConv *c); /* floats, padding included */
void dtrt_conv_free(DtrtConv *c);                  /* what init made; fine when there is nothing */
void dtrt_conv_forward(const DtrtConv *c, const float *x, const float *w, const float *b, float *y,
                       void *ws);
void dtrt_conv_grad_x(const DtrtConv *c, const float *dy, const float *w, float *dx, void *ws);
void dtrt_conv_grad_w(const DtrtConv *c, const float *dy, const float *x, float *dw, void *ws);
bool dtrt_conv_pack(const DtrtConv *c, const float *plain, void *packed);
bool dtrt_conv_unpack(const DtrtConv *c, const void *packed, float *plain);

/* ---- matmul.c: oneDNN ---- */
/* y[b.., m, n] = alpha * op(a) op(b) (+ bias[n]); batch of up to 6 axes, each operand's axis is the
 * result's or 1. trans: the operand's last two axes are stored swapped. */
typedef struct DtrtMatmul {
    int nbatch, trans_a, trans_b, bias;
    float alpha;
    int64_t batch_a[6], batch_b[6];
    int64_t m, n, k;
    void *impl;
} DtrtMatmul;
bool dtrt_matmul_needs(const DtrtMatmul *m, int threads, uint64_t *workspace, char *err,
                       size_t nerr);
bool dtrt_matmul_init(DtrtMatmul *m, int threads);
uint64_t dtrt_matmul_workspace(const DtrtMatmul *m); /* after init */
void dtrt_matmul_free(DtrtMatmul *m);
void dtrt_matmul(const DtrtMatmul *m, const float *a, const float *b, const float *bias, float *y,
                 void *ws);

/* ---- attention.c: y = dropout(softmax(mask(alpha * q k'))) v for each head ---- */
/* q [batch.., rows, depth], k [batch.., keys, depth] (trans_k: [batch.., depth, keys]), v [batch..,
 * keys, width], y [batch.., rows, width]. Scores [batch.., rows, keys] are masked in this order:
 * where cond (bool) says so they become fill, then add (f32) is added; axes of cond and add are
 * those of the scores or 1, the last is always keys. stats [batch.., rows, 2]: largest score, 1/sum
 * of exponentials. Dropout is that of dtrt_dropout over [batch.., rows, keys], with the step's seed
 * and `key`. dscores [batch.., rows, keys], if not NULL: gradient of the masked scores, of which
 * the sum over broadcast axes is that of add. An object is of the forward pass or (grad) of the
 * gradient. */
enum { DTRT_ATTENTION_NO_COND, DTRT_ATTENTION_HIDES, DTRT_ATTENTION_SHOWS };
typedef struct DtrtAttention {
    int grad, nbatch, trans_k;
    int add, cond;            /* is there one; cond: what true means for a score */
    float alpha, fill, ratio; /* ratio: of dropout, 0: none */
    int64_t batch[6], rows, keys, depth, width;
    int64_t add_dim[7], cond_dim[7]; /* batch axes and rows */
    void *impl;
} DtrtAttention;
bool dtrt_attention_needs(const DtrtAttention *m, int threads, uint64_t *workspace, char *err,
                          size_t nerr);
bool dtrt_attention_init(DtrtAttention *m, int threads);
uint64_t dtrt_attention_workspace(const DtrtAttention *m); /* after init */
void dtrt_attention_free(DtrtAttention *m);
void dtrt_attention_forward(const DtrtCtx *c, const DtrtAttention *m, uint32_t key, const float *q,
                            const float *k, const float *v, const float *add, const void *cond,
                            float *y, float *stats, void *ws);
void dtrt_attention_grad(const DtrtCtx *c, const DtrtAttention *m, uint32_t key, const float *dy,
                         const float *q, const float *k, const float *v, const float *add,
                         const void *cond, const float *stats, float *dq, float *dk, float *dv,
                         float *dscores, void *ws);

/* ---- pool.c: own loops, no workspace ---- */
typedef struct DtrtPool {
    int nd, channels_last, is_max, count_include_pad, ceil_mode;
    int64_t n, c;
    int64_t in[3], out[3], k[3], stride[3], dil[3], pad_lo[3], pad_hi[3];
} DtrtPool;
/* Bytes of the positions that max pooling saves: one each where the window has < 256 cells, else
 * four; 0 for average pooling. */
uint64_t dtrt_pool_index_bytes(const DtrtPool *p);
void dtrt_pool_forward(const DtrtPool *p, const float *x, float *y, void *index);
/* Where each maximum lies in x (channels first) as one row; by_columns: the first spatial axis is
 * the nearest. 0 for a window without a cell. */
void dtrt_pool_places(const DtrtPool *p, const float *x, int64_t *place, int by_columns);
void dtrt_pool_grad(const DtrtPool *p, const float *dy, const void *index, float *dx);

/* ---- softmax.c: [outer, n, inner], over n; in place allowed for y == x, dx == dy ---- */
void dtrt_softmax(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int log);
void dtrt_softmax_grad(const float *dy, const float *y, float *dx, int64_t outer, int64_t n,
                       int64_t inner, int log);

/* ---- loss.c: logits [outer, n, inner], labels [outer, inner] i64 (or i32) ---- */
/* Mean over the labels that are not ignored (0/0 gives NaN as in PyTorch). is_log: inputs are
 * log-probabilities (NLL). ws: dtrt_loss_needs bytes. */
typedef struct {
    int64_t outer, n, inner;
    int label_i32, has_ignore, is_log;
    int64_t ignore_index;
    float smoothing;
} DtrtLoss;
uint64_t dtrt_loss_needs(const DtrtLoss *l, int threads);
void dtrt_loss_forward(DtrtCtx *c, const DtrtLoss *l, const float *x, const void *labels,
                       float *loss, void *ws);
void dtrt_loss_grad(DtrtCtx *c, const DtrtLoss *l, const float *dloss, const float *x,
                    const void *labels, float *dx, void *ws);

/* ---- norm.c: LayerNorm over rows [rows, n]; scale, bias [n] (bias NULL: none) ---- */
void dtrt_layernorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t rows, int64_t n, float eps);
void dtrt_layernorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t rows, int64_t n);
/* group_norm.c: x [n, c, s], or [n, s, c] with channels_last; scale, bias [c]; mean, invstd [n,
 * group] */
void dtrt_groupnorm(const float *x, const float *scale, const float *bias, float *y, float *mean,
                    float *invstd, int64_t n, int64_t c, int64_t s, int64_t group,
                    int channels_last, float eps);
void dtrt_groupnorm_grad_x(const float *dy, const float *x, const float *scale, const float *mean,
                           const float *invstd, float *dx, int64_t n, int64_t c, int64_t s,
                           int64_t group, int channels_last);
/* rows as for LayerNorm; inv [rows] (NULL: not wanted) */
void dtrt_rmsnorm(const float *x, const float *scale, float *y, float *inv, int64_t rows, int64_t n,
                  float eps);
void dtrt_rmsnorm_grad_x(const float *dy, const float *x, const float *scale, const float *inv,
                         float *dx, int64_t rows, int64_t n);
/* r = momentum*r + (1-momentum)*batch for n channels */
void dtrt_bn_update(float *rmean, float *rvar, const float *mean, const float *var, int64_t n,
                    float momentum);

/* ---- reduce.c: y = scale * sum of x over the axes with red[i] != 0; nd <= 8. ws: as many bytes as
 * `needs` says ---- */
void dtrt_reduce_sum(const float *x, float *y, int nd, const int64_t *dim, const uint8_t *red,
                     float scale, void *ws);
uint64_t dtrt_reduce_sum_needs(int nd, const int64_t *dim, const uint8_t *red);

/* ---- fold.c: as dtrt_reduce_sum; NaN wins over every number ---- */
typedef enum { DTRT_FOLD_MAX, DTRT_FOLD_MIN, DTRT_FOLD_PROD, DTRT_FOLD_LSE } DtrtFold;
void dtrt_fold(DtrtFold kind, const float *x, float *y, int nd, const int64_t *dim,
               const uint8_t *red);
/* dim: of x and dx */
void dtrt_prod_grad(const float *dy, const float *x, float *dx, int nd, const int64_t *dim,
                    const uint8_t *red);
/* Along n of [outer, n, inner]. exclusive: an element does not count itself; reverse: from the end.
 */
void dtrt_cumsum(const float *x, float *y, int64_t outer, int64_t n, int64_t inner, int exclusive,
                 int reverse);
/* Position of the first (or last) maximum or minimum: y [outer, inner]. */
void dtrt_arg(const float *x, int64_t *y, int64_t outer, int64_t n, int64_t inner, int min,
              int last);

/* ---- movement.c: elem is the element size in bytes (1, 4 or 8) ---- */
void dtrt_copy(const void *x, void *y, uint64_t bytes);
void dtrt_transpose(const void *x, void *y, int nd, const int64_t *dim, const int64_t *perm,
                    int elem);
void dtrt_concat(int n, const void *const *x, void *y, int64_t outer,
                 const int64_t *inner_bytes); /* inner_bytes: per input, one outer slice */
void dtrt_slice(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *start,
                const int64_t *step, const int64_t *size, int elem);
/* y = x with dy added in the slice; y may be x */
void dtrt_slice_add(const float *x, const float *dy, float *y, int nd, const int64_t *xdim,
                    const int64_t *start, const int64_t *step, const int64_t *size);
void dtrt_slice_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *start,
                     const int64_t *step, const int64_t *size);
/* pads: lo[nd], hi[nd] (negative crops); mode 0 constant, 1 reflect, 2 edge */
void dtrt_pad(const void *x, void *y, int nd, const int64_t *xdim, const int64_t *lo,
              const int64_t *hi, int mode, double value, DtrtType type);
void dtrt_pad_grad(const float *dy, float *dx, int nd, const int64_t *xdim, const int64_t *lo,
                   const int64_t *hi, int mode);
/* data [outer, n, inner], indices count (i64 or i32): y [outer, count, inner]. An index outside the
 * axis ends the run with a message (status 1) through dtrt_fail. */
void dtrt_gather(DtrtCtx *c, const void *data, const void *idx, int idx_i32, void *y, int64_t outer,
                 int64_t n, int64_t inner, int64_t count, int elem);
void dtrt_gather_grad(DtrtCtx *c, const float *dy, const void *idx, int idx_i32, float *dx,
                      int64_t outer, int64_t n, int64_t inner, int64_t count, void *ws);
uint64_t dtrt_gather_grad_needs(int64_t n, int64_t inner, int64_t count); /* bytes of ws */
/* ---- index.c: elem is the element size in bytes; indices outside of their axis as in Gather ----
 */
/* Reductions other than SET are for f32. */
typedef enum {
    DTRT_SCATTER_SET,
    DTRT_SCATTER_ADD,
    DTRT_SCATTER_MUL,
    DTRT_SCATTER_MAX,
    DTRT_SCATTER_MIN
} DtrtScatter;
/* data [dim..]; indices, updates and gathered elements [idim..], no larger away from the axis. */
typedef struct {
    int nd, axis, idx_i32, elem;
    DtrtScatter how;
    int64_t dim[8], idim[8];
} DtrtElements;
void dtrt_gather_elements(DtrtCtx *c, const DtrtElements *q, const void *data, const void *idx,
                          void *y);
/* data NULL: zeros. y may be data. */
void dtrt_scatter_elements(DtrtCtx *c, const DtrtElements *q, const void *data, const void *idx,
                           const void *updates, void *y);
/* data [batch, dim[0]..dim[k-1], inner], indices [batch, count, k], updates and gathered slices
 * [batch, count, inner]. */
typedef struct {
    int k, idx_i32, elem;
    DtrtScatter how;
    int64_t batch, count, inner, dim[8];
} DtrtTuples;
void dtrt_gather_nd(DtrtCtx *c, const DtrtTuples *q, const void *data, const void *idx, void *y);
void dtrt_scatter_nd(DtrtCtx *c, const DtrtTuples *q, const void *data, const void *idx,
                     const void *updates, void *y);
/* x [outer, n, inner] -> values v and positions at [outer, k, inner], best first; of equal ones the
 * first; NaN is the largest. */
void dtrt_topk(const float *x, float *v, int64_t *at, int64_t outer, int64_t n, int64_t inner,
               int64_t k, int largest);

/* ---- random.c ---- */
/* y[i] = scale * r + shift, r uniform in [0, 1) or normal, of stream (c->seed, c->step, key). */
void dtrt_random_fill(const DtrtCtx *c, float *y, int64_t n, uint32_t key, int normal, double scale,
                      double shift);

/* ---- resize.c ---- */
/* Interpolates [in..] to [out..], or (grad) brings a gradient [out..] to [in..]. mode 0 nearest, 1
 * linear, 2 cubic; coord and rounding count as in compiler/ops/resize.c; first and last: the region
 * of tf_crop_and_resize, value outside of it. */
typedef struct {
    int nd, mode, coord, rounding, exclude, antialias, grad;
    double cubic, value;
    int64_t in[8], out[8];
    double scale[8], first[8], last[8];
    void *impl; /* set by init */
} DtrtResize;
bool dtrt_resize_init(DtrtResize *r, int threads);
void dtrt_resize_free(DtrtResize *r);
void dtrt_resize(const DtrtResize *r, const float *x, float *y);

void dtrt_fill(void *y, uint64_t n, double value, DtrtType type);

/* ---- optim.c: n elements (packed bytes / 4 for packed weights); lr and the rest from c ---- */
void dtrt_sgd(const DtrtCtx *c, float *w, const float *g, float *v,
              int64_t n); /* v NULL: no momentum */
void dtrt_adam(const DtrtCtx *c, float *w, const float *g, float *m, float *v, int64_t n,
               int decoupled);

#endif
