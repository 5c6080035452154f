/* passes.h - what passes.c asks of the library. Internal to the room. */
#ifndef DTRT_CUDA_PASSES_H
#define DTRT_CUDA_PASSES_H

#include "cuda_plan.h"

/* deviceless.c: the library, planning for a device; NULL when it is not on this machine. */
const Dnn *dnn_for(const CudaDevice *device);

/* dnn.c; without cuDNN's header both are none.c.
 *
 * The first plan in the order of the library's heuristics (mode A, then its fallback list) that
 *  - needs at most `most` bytes of workspace,
 *  - is deterministic and compiled in advance,
 *  - computes in f32 throughout, unless tf32: then products may round their inputs to TF32.
 * False when there is none. */
bool dnn_plan(const Dnn *d, const DtrtConv *c, CudaPass pass, bool tf32, uint64_t most, void **plan,
              uint64_t *workspace);
void dnn_drop(const Dnn *d, void *plan); /* fine for NULL */

#endif
