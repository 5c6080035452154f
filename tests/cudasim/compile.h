/* compile.h - CUDA C++ text -> PTX by NVRTC, for tests; NVRTC is opened when it is first needed. */
#ifndef CUDASIM_COMPILE_H
#define CUDASIM_COMPILE_H

#include "base.h"

/* Why CUDA C++ cannot be compiled here, or NULL when it can. */
const char *compile_missing(void);
/* arch: "compute_75"; option: one more, or NULL. NULL with the log in message, also for warnings.
 */
const char *compile_cuda(Arena *a, const char *name, const char *text, const char *arch,
                         const char *option, char *message, size_t size);

#endif
