/* copy.c - cuMemcpy* and cuMemset*.
 *
 * Memory that is not pinned is staged by the driver: a copy from it takes the bytes when it is
 * called, a copy to it returns when it is done.
 */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

typedef struct {
    void *to;
    const void *from; /* NULL: the bytes follow */
    size_t bytes;
    unsigned char staged[];
} Copy;

typedef struct {
    void *to;
    uint32_t value;
    uint32_t unit; /* 1 or 4 bytes */
    size_t count;
} Fill;

static void run_copy(void *payload, SimOp *op) {
    (void)op;
    const Copy *c = payload;
    memmove(c->to, c->from ? c->from : c->staged, c->bytes);
}

static void run_fill(void *payload, SimOp *op) {
    (void)op;
    const Fill *f = payload;
    if (f->unit == 1) memset(f->to, (int)f->value, f->count);
    for (size_t i = 0; f->unit == 4 && i < f->count; i++) ((uint32_t *)f->to)[i] = f->value;
}

static bool is_device(const char *name, uint64_t at, size_t bytes) {
    const SimAlloc *a = sim_alloc_at(at, bytes);
    if (a && !a->freed && !a->host) return true;
    sim_finding("%s: %zu bytes at %s are not inside a living device buffer", name, bytes,
                sim_place(at));
    return false;
}

static CUresult enqueue_copy(const char *name, CUstream stream, void *to, const void *from,
                             size_t bytes, const SimRange *ranges, uint32_t n, bool staged) {
    size_t size = sizeof(Copy) + (staged ? bytes : 0);
    Copy *c = malloc(size);
    if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
    *c = (Copy){to, staged ? NULL : from, bytes};
    if (staged) memcpy(c->staged, from, bytes);
    CUresult r = sim_enqueue(stream, &(SimWork){name, run_copy, c, size, ranges, n, false});
    free(c);
    return r;
}

/* Where it starts decides: a copy that leaves the buffer must not count as one of other memory. */
static bool is_pinned(const void *p) {
    return sim_alloc_at((uint64_t)(uintptr_t)p, 1) != NULL;
}

static CUresult pageable(CUstream stream, const char *name) {
    const SimStream *s = stream_of(stream);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->capture) return CUDA_SUCCESS;
    return sim_legal_in_capture(name) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult to_device(const char *name, CUdeviceptr to, const void *from, size_t bytes,
                          CUstream stream) {
    if (!bytes) return CUDA_SUCCESS;
    if (!is_device(name, to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    bool pinned = is_pinned(from);
    CUresult r = pinned ? CUDA_SUCCESS : pageable(stream, name);
    if (r != CUDA_SUCCESS) return r;
    SimRange ranges[] = {{to, bytes, true, "target"},
                         {(uint64_t)(uintptr_t)from, bytes, false, "source"}};
    return enqueue_copy(name, stream, (void *)(uintptr_t)to, from, bytes, ranges, pinned ? 2 : 1,
                        !pinned);
}

static CUresult to_host(const char *name, void *to, CUdeviceptr from, size_t bytes,
                        CUstream stream) {
    if (!bytes) return CUDA_SUCCESS;
    if (!is_device(name, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    bool pinned = is_pinned(to);
    CUresult r = pinned ? CUDA_SUCCESS : pageable(stream, name);
    if (r != CUDA_SUCCESS) return r;
    SimRange ranges[] = {{from, bytes, false, "source"},
                         {(uint64_t)(uintptr_t)to, bytes, true, "target"}};
    r = enqueue_copy(name, stream, to, (const void *)(uintptr_t)from, bytes, ranges, pinned ? 2 : 1,
                     false);
    if (r == CUDA_SUCCESS && !pinned) pump_stream(stream_of(stream));
    return r;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    return to_device("cuMemcpyHtoDAsync", to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    return to_host("cuMemcpyDtoHAsync", to, from, bytes, stream);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult r = to_device("cuMemcpyHtoD", to, from, bytes, NULL);
    if (r == CUDA_SUCCESS) pump_stream(stream_of(NULL));
    return r;
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult r = to_host("cuMemcpyDtoH", to, from, bytes, NULL);
    if (r == CUDA_SUCCESS) pump_stream(stream_of(NULL));
    return r;
}

static CUresult on_device(const char *name, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                          CUstream stream) {
    if (!bytes) return CUDA_SUCCESS;
    if (!is_device(name, to, bytes) || !is_device(name, from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (to < from + bytes && from < to + bytes)
        sim_finding("%s: source and target overlap at %s", name, sim_place(to > from ? to : from));
    SimRange ranges[] = {{to, bytes, true, "target"}, {from, bytes, false, "source"}};
    return enqueue_copy(name, stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes,
                        ranges, 2, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    return on_device("cuMemcpyDtoDAsync", to, from, bytes, stream);
}

static CUresult fill(const char *name, CUdeviceptr to, uint32_t value, uint32_t unit, size_t count,
                     CUstream stream) {
    size_t bytes = count * unit;
    if (!bytes) return CUDA_SUCCESS;
    if (to % unit) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(name, to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    Fill f = {(void *)(uintptr_t)to, value, unit, count};
    SimRange range = {to, bytes, true, "target"};
    return sim_enqueue(stream, &(SimWork){name, run_fill, &f, sizeof f, &range, 1, false});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    return fill("cuMemsetD8Async", to, value, 1, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    return fill("cuMemsetD32Async", to, value, 4, count, stream);
}
