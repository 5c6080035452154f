/* simplify.h - graph to graph rewriting. Each pass takes a const graph and returns a new one. */
#ifndef DTRC_SIMPLIFY_H
#define DTRC_SIMPLIFY_H

#include "ops.h"

/* Forward passes, run by simplify_forward in this order, with clean.c in between:
 *  - bias.c, group_norm.c: sums with a bias, group normalization as exporters write it.
 *  - channels_last.c: images (operands of Conv, pools, BatchNorm of rank 3..5) become
 *    channels-last. A layout pass that carries a transposed twin of each value through elementwise
 *    operators, Concat, Pad, Slice, Gather, ReduceSum, Softmax and reshapes that keep channels
 *    apart, and materialises the other order only where somebody needs it. After it, every tensor
 *    is plainly row-major; Conv and pools have channels_last=1. Graph outputs keep their shape.
 *  - lower.c: BatchNorm -> BnStats, InvStd, BnApply, BnUpdate (training) or InvStd, BnApply
 *    (inference); the update of running statistics is its own effectful node.
 *  - patterns.c: GELU, SiLU, HardSwish, LayerNorm chains; Conv+Relu where nothing else reads the
 *    convolution.
 *  - attention.c, bce.c: attention and binary cross-entropy from their chains. */
Graph *simplify_forward(Arena *a, Diag *d, const Graph *g);

/* On the training step: clean.c, then fusion (fuse.c): elementwise nodes and column reductions over
 * one space become Fused nodes, where no value gets a longer life and nothing is materialised that
 * was not before. The result depends on the graph alone, never on the budget, so that every budget
 * runs the same kernels. */
Graph *simplify_step(Arena *a, const Graph *g);

/* ---- clean.c ---- */
/* Without dead code, common subexpressions, movements that cancel. Nodes that stay keep their
 * order. */
Graph *simplify_clean(Arena *a, const Graph *g);

#endif
