/* step.h - the steps of train_build, each in the file of its name; private to this room. */
#ifndef DTRC_TRAIN_STEP_H
#define DTRC_TRAIN_STEP_H

#include "train.h"

/* loss.c: appends the loss to g, sets g->loss, g->logits and g->output. */
bool loss_build(Graph *g, Diag *d, const LossSpec *spec);
/* autodiff.c: appends the backward nodes. grad[v] for every value of g as it is now: the gradient
 * of the loss with respect to the trained parameter v; NO_ID for other values and for parameters
 * that the loss does not depend on. */
bool ad_build(Graph *g, Diag *d, Arena *scratch, ValueId **grad);
/* optimizer.c: adds an update, with its states, for each parameter with a gradient, and moves it to
 * the earliest place where the gradient is complete and nobody reads the weight any more. */
void opt_insert(Graph *g, Arena *scratch, const ValueId *grad, const OptSpec *spec);

#endif
