/* family.h - helpers that the family files of this room share; private to it. */
#ifndef DTRC_OPS_FAMILY_H
#define DTRC_OPS_FAMILY_H

#include "ops.h"

/* ---- infer.c --------------------------------------------------------------------------------- */
/* Input i of node n; NULL when absent. */
const Value *op_input(const Graph *g, NodeId n, uint32_t i);
/* Creates output k of node n (a storage of its own), unless k is past the node's outputs. False
 * when the size overflows. */
bool op_out(InferCtx *c, NodeId n, uint32_t k, DType dt, const Shape *s);
/* Output 0 as a view of input 0; element counts must be equal (checked by the caller). */
bool op_out_view(InferCtx *c, NodeId n, const Shape *s);
/* "error: node .. tensor (input i): message"; i = NO_ID: no tensor. Returns false. */
bool op_error(InferCtx *c, NodeId n, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Input i must have this dtype, a rank in lo..hi, exactly this shape, integers (i64, i32). True for
 * an absent input. */
bool op_need_dtype(InferCtx *c, NodeId n, uint32_t i, DType want);
bool op_need_rank(InferCtx *c, NodeId n, uint32_t i, uint32_t lo, uint32_t hi);
bool op_need_shape(InferCtx *c, NodeId n, uint32_t i, const Shape *want);
bool op_need_index(InferCtx *c, NodeId n, uint32_t i);
/* Attribute `axis` in 0..rank-1 (negative counts from the end); dflt when absent. */
bool op_need_axis(InferCtx *c, NodeId n, uint32_t rank, int64_t dflt, int64_t *axis);
/* Attribute with exactly `count` integers; *v is NULL when it is absent and need not be there. */
bool op_need_ints(InferCtx *c, NodeId n, AttrKey k, uint32_t count, bool required,
                  const int64_t **v);
/* Attribute `shape` as a Shape of non-negative dimensions. */
bool op_need_shape_attr(InferCtx *c, NodeId n, Shape *out);
/* A slice (Slice, SliceGrad, SliceAdd) must lie inside shape x. */
bool op_check_cut(InferCtx *c, NodeId n, const Shape *x, const int64_t *start, const int64_t *step,
                  const int64_t *size);
/* Broadcasting of elementwise operators: what a NULL infer means. */
bool op_infer_ew(InferCtx *c, NodeId n);

/* ---- reduce.c ---- */
/* Bit k: axis k is reduced. Without attribute axes, or with an empty one, all are. */
uint32_t op_reduced_axes(const Node *n, uint32_t rank);
/* Shape of the result for operand shape x, axes and keepdims checked. */
bool op_reduced_shape(InferCtx *c, NodeId n, const Shape *x, Shape *out);
/* Inference of a reduction of an f32 operand. */
bool op_infer_reduce(InferCtx *c, NodeId n);
/* `dim` and `red` in the body: sizes of shape s, and which axes are reduced. */
void op_emit_reduced(CpuEmit *e, const Node *n, const Shape *s);

/* ---- ops.c ----------------------------------------------------------------------------------- */
/* Name of a node derived from n's, such as "conv1.dx". */
const char *op_derived(Graph *g, NodeId n, const char *suffix);
/* Product of dimensions lo..hi-1. */
int64_t shape_span(const Shape *s, uint32_t lo, uint32_t hi);
/* What a node that normalises over the axes from A_axis on walks: rows of len elements. */
void op_rows_of(const Node *n, const Shape *x, long long *rows, long long *len);
/* C constants of type float and double that read back to the same number; INFINITY and NAN
 * included. */
const char *op_c_float(Arena *a, double v);
const char *op_c_double(Arena *a, double v);

/* ---- for gradient functions ------------------------------------------------------------------ */
/* Is input i there, and its gradient wanted? */
static inline bool grad_wants(const GradCtx *c, NodeId n, uint32_t i) {
    const Node *nd = &c->g->node[n];
    return i < nd->nin && nd->in[i] != NO_ID && c->need[nd->in[i]];
}
static inline const char *grad_name(GradCtx *c, NodeId n) {
    return op_derived(c->g, n, ".grad");
}
/* v summed down to the shape of input i: the inverse of broadcasting. */
static inline ValueId grad_fit(GradCtx *c, NodeId n, ValueId v, uint32_t i) {
    Shape s = op_input(c->g, n, i)->shape;
    return op_reduce_to(c->g, PHASE_BACKWARD, grad_name(c, n), v, &s);
}

#endif
