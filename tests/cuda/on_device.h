/* on_device.h - for tests of the CUDA runtime's calls: opens the libraries as a program does, with
 * the runtime's kernels compiled by NVRTC, and moves arrays. The libraries are the stand-ins of
 * tests/cudasim, which run on the CPU and check every access, unless DTRT_CUDA_PATH says where
 * others are: with an empty one the machine's own, on its GPU. */
#ifndef ON_DEVICE_H
#define ON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* build: the build folder. kernels: names in runtime/cuda/kernels without .cu, NULL after the last
 * one. False after a line that says why the test is skipped. */
bool device_open(const char *build, const char *const *kernels, bool tf32);
void device_close(void);

void *device_room(uint64_t bytes); /* full of 0xff bytes, which are NaN; a multiple of 256 */
void *device_put(const void *host, uint64_t bytes);
void device_get(void *host, const void *at, uint64_t bytes); /* after all work so far */
void device_drop(void *at);

#endif
