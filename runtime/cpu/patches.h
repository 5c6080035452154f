/* patches.h - private to conv.c: convolutions whose windows do not overlap, as matrix products over
 * the patches of the image. For passes of which the library has nothing but its reference loops. */
#ifndef DTRT_PATCHES_H
#define DTRT_PATCHES_H

#include "onednn.h"

/* Patch matrix: a row for each output place, columns [k.., ci]. */
typedef struct {
    int64_t rows, cols;
    dnnl_memory_desc_t weights; /* the weights as [co, k.., ci] */
    dnnl_memory_desc_t a, b, y; /* of the product; the patches are b (gradient of the weights) or y
                                   (gradient of the image) */
} Patches;

/* False when windows overlap, there are groups, or channels come first. */
bool patches_fit(const DtrtConv *c);
/* grad_w: weights = dY' patches; else patches = dY weights. */
dnnl_status_t patches_plan(const DtrtConv *c, bool grad_w, Patches *p, dnnl_primitive_desc_t *pd);
uint64_t patches_bytes(const Patches *p);
void patches_gather(const DtrtConv *c, const float *x, float *patches);
/* Cells of dx that no window covers become zero. */
void patches_scatter(const DtrtConv *c, const float *patches, float *dx);

#endif
