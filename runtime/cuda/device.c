/* device.c - the CUDA device as the core sees it (DtrtDevice). */
#include "cu.h"
#include "libraries.h"

static CUdeviceptr address(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

static void close_device(Runtime *rt) {
    (void)rt;
    cu_step_free();
    cu_conv_close();
    cu_close();
}

static void *alloc(uint64_t bytes) {
    CUdeviceptr at = 0;
    if (cu.cuMemAlloc(&at, bytes) != CUDA_SUCCESS) return NULL;
    cu_check(cu.cuMemsetD8Async(at, 0, bytes, cu_device.stream), "cuMemsetD8Async");
    cu_check(cu.cuStreamSynchronize(cu_device.stream), "cuStreamSynchronize");
    return (void *)(uintptr_t)at;
}

static void release(void *at) {
    if (!at) return;
    cu_watch_close();
    cu.cuMemFree(address(at));
}

static void *alloc_host(uint64_t n) {
    void *at = NULL;
    return cu.cuMemHostAlloc(&at, n ? n : 1, 0) == CUDA_SUCCESS ? at : NULL;
}

static void release_host(void *at) {
    cu.cuMemFreeHost(at);
}

static Status done(CUresult r, const char *what) {
    return cu_good(r, what) ? ST_OK : ST_MACHINE;
}

/* On the step's stream, so that copies and steps keep their order. */
static Status read_back(void *host, const void *at, uint64_t n) {
    cu_watch_free_work();
    Status st = ST_OK;
    if (n)
        st = done(cu.cuMemcpyDtoHAsync(host, address(at), n, cu_device.stream),
                  "a copy from the GPU");
    return st ? st : done(cu.cuStreamSynchronize(cu_device.stream), "the GPU's work");
}

static Status write_to(void *at, const void *host, uint64_t n) {
    cu_watch_free_work();
    Status st = ST_OK;
    if (n)
        st =
            done(cu.cuMemcpyHtoDAsync(address(at), host, n, cu_device.stream), "a copy to the GPU");
    return st ? st : done(cu.cuStreamSynchronize(cu_device.stream), "the GPU's work");
}

const DtrtDevice dtrt_cuda = {.open = cu_open,
                              .close = close_device,
                              .left = cu_left,
                              .alloc = alloc,
                              .release = release,
                              .alloc_host = alloc_host,
                              .release_host = release_host,
                              .read = read_back,
                              .write = write_to,
                              .step = cu_step,
                              .run = cu_run};
