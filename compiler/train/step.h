/* step.h - what the files of this room share; private to it. */
#ifndef DTRC_TRAIN_STEP_H
#define DTRC_TRAIN_STEP_H

#include "train.h"

/* loss.c: appends the loss to g, sets g->loss, g->logits and g->output. */
bool loss_build(Graph *g, Diag *d, const LossSpec *spec);
/* autodiff.c: appends the backward nodes. grad[v] for every value of g as it is now: the gradient
 * of the loss with respect to the trained parameter v; NO_ID for other values and for parameters
 * that the loss does not depend on. */
bool ad_build(Graph *g, Diag *d, Arena *scratch, ValueId **grad);
/* optimizer.c: a copy that may grow: arrays are new, what they point to is shared and never
 * written.
 */
Graph *step_copy(Arena *a, const Graph *old);

#endif
