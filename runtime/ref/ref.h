/* ref.h - the reference: an interpreter in double precision of the forward graph as imported
 * (images channels-first, before any rewriting), written as plainly as possible. It shares no code
 * with the kernels that it checks but the random numbers of Dropout. Memory is outside the budget.
 *
 * Every element of every value is a double, integers and booleans too. */
#ifndef DTRT_REF_H
#define DTRT_REF_H

#include "core.h"

typedef struct {
    const DtrtProgram *p;
    uint64_t seed, step;
    double **base; /* per value: with the weights as they are; NULL until computed */
    double **now;  /* per value in this evaluation: base's array, or one of its own */
    double *target;
} Ref;

/* One node at work: operand and result k with their shapes. NULL where absent. */
#define REF_OUT 3
typedef struct {
    const Ref *r;
    const DtrtRefNode *n;
    double *y[REF_OUT];
} RefCall;
typedef void RefOp(const RefCall *c);

/* ---- interpret.c ---- */
uint64_t dtrt_ref_count(const DtrtRefValue *v);
const double *dtrt_ref_in(const RefCall *c, uint32_t k);
const DtrtRefValue *dtrt_ref_in_shape(const RefCall *c, uint32_t k);
const DtrtRefValue *dtrt_ref_out_shape(const RefCall *c, uint32_t k);
int64_t dtrt_ref_i(const DtrtRefNode *n, const char *attr, int64_t dflt);
double dtrt_ref_f(const DtrtRefNode *n, const char *attr, double dflt);
const int64_t *dtrt_ref_ints(const DtrtRefNode *n, const char *attr, uint32_t *count);
/* [outer, n, inner] around an axis, negative ones counted from the end. */
void dtrt_ref_split(const DtrtRefValue *v, int64_t axis, int64_t *outer, int64_t *n,
                    int64_t *inner);
/* Sources (weights, inputs, constants) and the target from the device block and the payload. */
Status dtrt_ref_open(Ref *r, Runtime *rt);
void dtrt_ref_free(Ref *r);
/* Computes base. */
Status dtrt_ref_forward(Ref *r);
/* `to`: r with every f32 weight, buffer and input multiplied by 1 + u, |u| <= by at random, and its
 * base computed. To be freed in any case. */
Status dtrt_ref_shake(Ref *to, const Ref *r, uint32_t key, double by);
/* The loss with value `v` replaced by `w`: only the nodes that depend on it run again. */
Status dtrt_ref_loss_with(Ref *r, int v, const double *w, double *loss);
/* ---- families; NULL when the operator is not theirs ---- */
RefOp *dtrt_ref_elementwise(const char *op);
RefOp *dtrt_ref_norm(const char *op);
RefOp *dtrt_ref_fold(const char *op);
RefOp *dtrt_ref_index(const char *op);
RefOp *dtrt_ref_resize(const char *op);
RefOp *dtrt_ref_conv(const char *op);
RefOp *dtrt_ref_matmul(const char *op);
RefOp *dtrt_ref_pool(const char *op);
RefOp *dtrt_ref_class_loss(const char *op);
RefOp *dtrt_ref_movement(const char *op);
/* ---- loss.c ---- */
double dtrt_ref_loss(const Ref *r);

#endif
