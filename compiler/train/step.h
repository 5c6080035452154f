/* step.h - the first two steps of train_build (optimizer.c); private to this room. */
#ifndef DTRC_TRAIN_STEP_H
#define DTRC_TRAIN_STEP_H

#include "train.h"

/* loss.c: appends the loss to g, sets g->loss, g->logits and g->output. */
bool loss_build(Graph *g, Diag *d, const LossSpec *spec);
/* autodiff.c: appends the backward nodes. grad[v] for every value of g as it is now: the gradient
 * of the loss with respect to the trained parameter v; NO_ID for other values and for parameters
 * that the loss does not depend on. */
bool ad_build(Graph *g, Diag *d, Arena *scratch, ValueId **grad);

#endif
