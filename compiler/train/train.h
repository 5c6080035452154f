/* train.h - from a forward graph to the graph of one training step. */
#ifndef DTRC_TRAIN_H
#define DTRC_TRAIN_H

#include "ops.h"

typedef enum {
    LOSS_CROSS_ENTROPY,
    LOSS_NLL,
    LOSS_MSE,
    LOSS_L1,
    LOSS_BCE_LOGITS,
    LOSS_OUTPUT
} LossKind;
typedef struct {
    LossKind kind;
    const char *output; /* model output it reads; NULL: the only one */
    const char *label;  /* name of the target array; NULL: "target" */
    int64_t class_axis; /* default 1; negative counts from the end */
    bool has_ignore;
    int64_t ignore_index;
    double label_smoothing;
} LossSpec;

typedef enum { OPT_SGD, OPT_ADAM, OPT_ADAMW } OptKind;
typedef struct {
    OptKind kind;
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps; /* defaults: PyTorch's */
    bool nesterov;
    bool momentum_state; /* SGD keeps a velocity: momentum was given and not 0 at compile time */
} OptSpec;

const char *train_loss_name(LossKind k); /* "cross-entropy", ... */
const char *train_optimizer_name(OptKind k);
bool train_over_classes(LossKind k); /* the labels are class indices */
/* "cross-entropy:class_axis=-1,ignore_index=255". False after reporting (usage error). */
bool train_parse_loss(Diag *d, Arena *a, const char *s, LossSpec *out);
bool train_parse_optimizer(Diag *d, Arena *a, const char *s, OptSpec *out);
/* Text that train_parse_* reads back; for manifests. */
const char *train_loss_str(Arena *a, const LossSpec *l);
const char *train_optimizer_str(Arena *a, const OptSpec *o);

/* roles.c: applies --freeze and --train globs (fnmatch on ONNX names, in the order given; a later
 * one wins) to PARAM and FROZEN values of g, in place. A glob that matches nothing is an error. */
typedef struct {
    bool train;
    const char *glob;
} RoleRule;
bool train_roles(Graph *g, Diag *d, const RoleRule *rules, uint32_t n);

/* Loss, autodiff, optimizer. Only nodes between a trained parameter and the loss get gradients; an
 * operator without gradient on such a path is reported (all of them at once). dW is computed before
 * dX, an update stands as soon as its gradient is complete and nobody reads the weight any more.
 * The loss is appended even if nothing is trained. Gradient accumulation of a value with several
 * consumers: a chain of Add in reverse consumer order. Values of role ROLE_TARGET are created with
 * the shape the loss wants. */
Graph *train_build(Arena *a, Diag *d, const Graph *fwd, const LossSpec *loss, const OptSpec *opt);

/* waiting.c: the step with small updates side by side, after simplify_step. */
Graph *train_join_updates(Arena *a, const Graph *step);

#endif
