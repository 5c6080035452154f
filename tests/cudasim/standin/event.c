/* event.c - events. Each cuEventRecord makes a mark in the queue of its stream; waits refer to the
 * mark that was the newest when they were called, as CUDA defines it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "queue.h"

typedef struct {
    uint32_t magic;
    bool timed;
    Mark *mark; /* NULL: never recorded */
} Event;

enum { MAGIC = 0x45764e74 };

static Event *event_of(CUevent handle) {
    Event *e = (Event *)(void *)handle;
    if (e && e->magic == MAGIC) return e;
    sim_finding("%p is no living event", (void *)handle);
    return NULL;
}

static void take_time(void *payload, SimOp *op) {
    (void)op;
    Mark *mark = payload;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    mark->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

CUresult cuEventCreate(CUevent *handle, unsigned flags) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    Event *e = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    *e = (Event){.magic = MAGIC, .timed = !(flags & CU_EVENT_DISABLE_TIMING)};
    *handle = (CUevent)(void *)e;
    sim_object("events", 1);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle) {
    SIM_ENTER_SURE;
    Event *e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    mark_drop(e->mark);
    e->magic = 0;
    sim_keep(e);
    sim_object("events", -1);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    Event *e = event_of(handle);
    SimStream *s = stream_of(stream);
    if (!e || !s) return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = capture_forbids(s, __func__);
    if (r != CUDA_SUCCESS) return r;
    Mark *mark = calloc(1, sizeof *mark);
    if (!mark) return CUDA_ERROR_OUT_OF_MEMORY;
    *mark = (Mark){.refs = 1, .stream = s};
    mark_drop(e->mark);
    e->mark = mark;
    if (s->capture) {
        capture_record(s, mark);
        return CUDA_SUCCESS;
    }
    SimOp *op = op_new(&(SimWork){.name = "cuEventRecord", .run = take_time});
    op->kind = OP_RECORD;
    op->mark = mark_hold(mark);
    return stream_append(s, op);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    Event *e = event_of(handle);
    SimStream *s = stream_of(stream);
    if (!e || !s) return CUDA_ERROR_INVALID_HANDLE;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!e->mark || sim_drops_wait()) return CUDA_SUCCESS; /* never recorded: as if done */
    if (s->capture || e->mark->capture) return capture_wait(s, e->mark);
    SimOp *op = op_new(&(SimWork){.name = "cuStreamWaitEvent"});
    op->kind = OP_WAIT;
    op->mark = mark_hold(e->mark);
    return stream_append(s, op);
}

static CUresult host_may_ask(const Event *e, const char *function) {
    if (e->mark && e->mark->capture) {
        sim_finding("%s: the event was recorded in a capture", function);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    bool allowed = !e->mark || capture_allows_wait(e->mark->stream, function);
    return allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuEventSynchronize(CUevent handle) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    Event *e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = host_may_ask(e, __func__);
    if (r == CUDA_SUCCESS && e->mark) pump_mark(e->mark);
    return r;
}

CUresult cuEventQuery(CUevent handle) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    Event *e = event_of(handle);
    if (!e) return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = host_may_ask(e, __func__);
    if (r != CUDA_SUCCESS || !e->mark) return r;
    if (!e->mark->done) pump_one();
    if (!e->mark->done) return CUDA_ERROR_NOT_READY;
    pump_mark(e->mark); /* the host knows it now */
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    const Event *a = event_of(from), *b = event_of(to);
    if (!a || !b || !a->timed || !b->timed || !a->mark || !b->mark)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!a->mark->done || !b->mark->done) return CUDA_ERROR_NOT_READY;
    *ms = (float)(b->mark->ms - a->mark->ms);
    return CUDA_SUCCESS;
}
