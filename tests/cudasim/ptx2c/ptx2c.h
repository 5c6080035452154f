/* ptx2c.h - PTX text -> C text, one file that includes simt_device.h and defines simt_module.
 *
 * Each PTX register is a C local, each instruction a C statement. The bodies of the kernels are
 * written once and compiled as the macro SIMT_BODIES says: 1 fast, 2 checked, 3 both. */
#ifndef PTX2C_H
#define PTX2C_H

#include "base.h"

/* False with "line N: ..." in message: broken PTX, or something that is not known. */
bool ptx2c(Arena *arena, const char *ptx, Text *out, char *message, size_t size);

#endif
