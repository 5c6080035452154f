/* params.h - structs that host code and CUDA kernels share: included by both, so nothing but plain
 * types of fixed size. */
#ifndef DTRT_CUDA_PARAMS_H
#define DTRT_CUDA_PARAMS_H

/* Settings of the current step, in the module's variable cu_now. A captured step is replayed with
 * what is in it then, so kernels must not take these as arguments. */
typedef struct {
    unsigned long long seed, step;
    float lr, momentum, dampening, weight_decay, beta1, beta2, eps;
    int nesterov;
    double left1, left2; /* 1 - beta1^t, 1 - beta2^t; t counts from 1 */
} CuStep;

/* What a step found, in the module's variable cu_report: zeros when it begins. The first finding of
 * each kind stays. */
typedef struct {
    int nonfinite;      /* the largest CuUpdate.order whose gradient is not finite; from then on
                           updates change nothing */
    int loss_nonfinite; /* 1: the loss is not, and updates change nothing either */
    int bad_node;       /* 1 + the node that found a number out of range */
    float loss;
    long long value, limit, position; /* of that number: it must be in [0, limit), or in
                                         [limit, -limit) where limit is negative */
    unsigned long long hits, counted; /* accuracy */
} CuReport;

/* ---- arguments of kernels (walk.h makes them) ---- */

/* Parameter updates of one launch, as many as its 4 KiB of arguments hold. Their elements are
 * chunks of one grid: those of tensor i are first .. first of the next - 1. */
enum { CU_UPDATES = 84, CU_UPDATE_CHUNK = 2048 };
typedef struct {
    float *w;
    const float *g;
    float *m, *v; /* NULL: the rule has none */
    long long n;
    int first;
    int order; /* the earlier in the step, the larger; 0: its gradient is not looked at */
} CuUpdate;
typedef struct {
    int count, chunks, decoupled, pad;
    CuUpdate at[CU_UPDATES];
} CuUpdates;

/* Division of numbers below 2^31 by a constant, as a product. */
typedef struct {
    unsigned mul, shift;
} CuDivider;

/* The items of a box in row-major order, and where each lies in two arrays, as elements or whatever
 * unit the kernel moves. The axes in use are at the end: the innermost one is axis 7. */
typedef struct {
    int first; /* axes first..7 are in use */
    int small; /* everything is below 2^31: dividers work, offsets fit */
    long long total;
    long long size[8], to[8], from[8]; /* strides: of the array written, of the array read */
    CuDivider by[8];
} CuWalk;

/* Transposition as tiles of 32 x 32 items: in each slab, height x width items; along height they
 * are contiguous in the array read and `to` apart in the one written, along width `from` apart and
 * contiguous. */
typedef struct {
    CuWalk slabs;
    long long height, width, from, to;
    unsigned total, tiles, across; /* tiles altogether, of a slab, beside each other */
    CuDivider by_tiles, by_across;
} CuTiles;

/* DtrtLoss, and the node for reports; parts: chunks of the sum over positions */
typedef struct {
    long long outer, n, inner, ignore_index;
    float smoothing;
    int label_i32, has_ignore, is_log, node;
    int parts;
} CuLoss;

/* Pooling as on images [n, d, h, w, c]; axes that are not there have size 1. */
typedef struct {
    int in, out, k, stride, dil, lo, hi, pad;
    CuDivider by_in, by_out;
} CuPoolAxis;
typedef struct {
    CuPoolAxis a[3];
    long long n, c;
    CuDivider by_c;
    int is_max, wide; /* wide: positions of four bytes */
    int include_pad;
    int small_in, small_out; /* x, y have less than 2^31 elements */
    int pad;
} CuPool;

/* data [outer, n, inner], indices [count]; inner in items of the kernel */
typedef struct {
    long long outer, n, inner, count;
    CuDivider by_inner, by_count;
    int small, idx_i32, node;
    int bits; /* gradient: of the place in a sorted index */
} CuGather;

/* A reduction: output o is at keep.to, its elements are those of `over`, from keep.from on. */
typedef struct {
    CuWalk keep, over;
    int runs; /* the innermost axis is reduced */
    int splits;
    float scale;
    int kind; /* DtrtFold */
} CuReduce;

/* A convolution for conv.cu: missing spatial axes lead with size 1; strides in elements. An image
 * and all weights have fewer than 2^31 elements. */
typedef struct {
    int n, ci, co, group_in, group_out; /* the last two: channels of one group */
    int in[3], out[3], k[3], stride[3], dil[3], lo[3];
    int x_channel, x_cell, y_channel, y_cell; /* cells of the image */
    int w_out, w_in, w_cell;
    long long x_image, y_image;
} CuConv;

/* Pad. Axes first..7 are in use; strides of the array without padding. */
typedef struct {
    int first, mode, small, pad; /* small: the padded array has less than 2^31 items */
    long long total_in, total_out;
    long long in[8], out[8], lo[8], stride[8];
    CuDivider by_out[8];
} CuPad;

/* DtrtElements. Item i of the indices: its line begins at items.from of the data, whose places are
 * `stride` apart; along and inner are of the indices. */
typedef struct {
    CuWalk items;
    long long n, stride, along, inner;
    int how, idx_i32, node, pad;
} CuElements;

/* DtrtTuples; slices: of a batch */
typedef struct {
    int k, how, idx_i32, node;
    long long batch, count, inner, slices, dim[8];
} CuTuples;

/* GroupNorm: per channels a group; by: per with channels last, else s. */
typedef struct {
    long long n, c, s, groups, per;
    int channels_last, small;
    CuDivider by;
} CuGroups;

/* Resize. An interpolated axis: place p of the result is (i / below) % n of item i. */
typedef struct {
    long long in, out, n, below, stride; /* stride: of the array read */
    double scale, first, last;
} CuResizeAxis;
typedef struct {
    CuWalk rest; /* all axes, with stride 0 in `from` where they are interpolated */
    CuResizeAxis axis[8];
    int naxis, mode, coord, rounding, exclude, antialias;
    double cubic, value;
} CuResize;

/* The scores of a block of attention, [count rows, keys], where the rows' masks are, dropout (scale
 * 0: none). */
typedef struct {
    long long head, row, rows;       /* of the block: first head, first row, rows of a head */
    long long count, all_rows, keys; /* rows of the block, rows of a head in all */
    long long batch[6], add_dim[7], cond_dim[7];
    int nbatch, hides; /* hides: cond says which scores are filled, else which are not */
    float alpha, fill, scale;
    unsigned key, threshold;
} CuAttention;

#endif
