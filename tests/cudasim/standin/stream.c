/* stream.c - streams: queues of work that run late.
 *
 * Work runs when the host waits, or at once with seed 0. What runs then is up to the seed: with an
 * even one only what the awaited work depends on, so that everything else stays undone as long as
 * CUDA would allow; with an odd one a pseudo-random stream each time. A program whose result
 * depends on luck has it in neither.
 *
 * The NULL stream is the legacy default one: work there and work in blocking streams wait for each
 * other. Streams made with CU_STREAM_NON_BLOCKING do not take part.
 */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

static SimStream slots[SIM_STREAMS] = {[0] = {.used = true, .blocking = true}};
static SimClock host;
static uint32_t queued;

SimStream *stream_slots(void) {
    return slots;
}

SimStream *stream_of(CUstream handle) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return &slots[0];
    SimStream *s = (SimStream *)(void *)handle;
    for (uint32_t i = 1; i < SIM_STREAMS; i++)
        if (s == &slots[i] && s->used) return s;
    sim_finding("%p is no living stream", (void *)handle);
    return NULL;
}

Mark *mark_hold(Mark *mark) {
    mark->refs++;
    return mark;
}

void mark_drop(Mark *mark) {
    if (!mark || --mark->refs) return;
    free(mark->nodes);
    free(mark);
}

SimOp *op_new(const SimWork *work) {
    size_t ranges_bytes = work->nranges * sizeof(OpRange);
    size_t head = (sizeof(SimOp) + ranges_bytes + 15) / 16 * 16;
    SimOp *op = calloc(1, head + work->payload_bytes);
    if (!op) abort();
    *op = (SimOp){
        .name = work->name, .run = work->run, .nranges = work->nranges, .watch = work->watch};
    op->ranges = (OpRange *)(op + 1);
    op->payload = (char *)op + head;
    for (uint32_t i = 0; i < work->nranges; i++) op->ranges[i].range = work->ranges[i];
    if (work->payload_bytes) memcpy(op->payload, work->payload, work->payload_bytes);
    return op;
}

void op_free(SimOp *op) {
    sim_step_drop(op->step);
    mark_drop(op->mark);
    free(op);
}

const SimStep *sim_op_step(const SimOp *op) {
    return op->step;
}

void op_pin(SimOp *op) {
    for (uint32_t i = 0; !op->watch && i < op->nranges; i++) {
        const SimRange *r = &op->ranges[i].range;
        sim_pin(&op->ranges[i].pin, r->at, r->bytes, r->write);
    }
}

/* The whole range, which may lie in several storages that touch. */
static bool range_allowed(const SimOp *op, const SimStep *step, const SimRange *r) {
    const char *why = NULL;
    SimSpan span;
    for (uint64_t at = r->at; at < r->at + r->bytes; at = span.end) {
        if (sim_may_touch(step, at, 1, r->write, &span, &why)) continue;
        sim_finding("%s: %s (%llu bytes) %s %s: %s", op->name, r->what,
                    (unsigned long long)r->bytes, r->write ? "writes" : "reads", sim_place(at),
                    why);
        return false;
    }
    return true;
}

void sim_op_touched(SimOp *op, uint64_t at, uint64_t bytes, bool write) {
    if (!op->step) sim_race(op->stream->id, &op->stream->clock, op->name, at, bytes, write);
}

/* Kernels say nothing of what they touch; their step does. */
static bool step_allowed(const SimOp *op) {
    enum { MOST = 4096 };
    static SimRange ranges[MOST];
    bool good = true;
    uint32_t n = sim_step_ranges(op->step, ranges, MOST);
    for (uint32_t i = 0; i < n; i++) {
        good &= range_allowed(op, NULL, &ranges[i]);
        sim_race(op->stream->id, &op->stream->clock, op->name, ranges[i].at, ranges[i].bytes,
                 ranges[i].write);
    }
    return good;
}

void op_run(SimOp *op, SimStream *stream) {
    op->stream = stream;
    stream->clock.at[stream->id]++;
    bool good = true;
    for (uint32_t i = 0; i < op->nranges; i++) {
        OpRange *r = &op->ranges[i];
        if (!op->watch) {
            good &= range_allowed(op, op->step, &r->range);
            if (good) sim_unpin_before(&r->pin, op->name, r->range.at, r->range.bytes);
        }
        sim_race(stream->id, &stream->clock, op->watch ? r->range.what : op->name, r->range.at,
                 r->range.bytes, r->range.write);
    }
    if (!op->nranges) good &= step_allowed(op);
    if (good) op->run(op->payload, op);
    for (uint32_t i = 0; !op->watch && i < op->nranges; i++)
        if (op->ranges[i].range.write)
            sim_mark(op->ranges[i].range.at, op->ranges[i].range.bytes, true);
    for (uint32_t i = 0; i < op->nranges; i++) {
        OpRange *r = &op->ranges[i];
        sim_unpin(&r->pin, r->range.at, r->range.bytes, r->range.write);
    }
}

static bool is_ready(const SimStream *s) {
    return s->used && s->head && (s->head->kind != OP_WAIT || s->head->mark->done);
}

static void run_head(SimStream *s) {
    SimOp *op = s->head;
    s->head = op->next;
    if (!s->head) s->tail = NULL;
    queued--;
    sim_clock_join(&s->clock, &op->host);
    if (op->kind == OP_WAIT) {
        sim_clock_join(&s->clock, &op->mark->clock);
    } else if (op->kind == OP_RECORD) {
        op->mark->done = true;
        op->mark->clock = s->clock;
        op->run(op->mark, op); /* the time */
    } else {
        op_run(op, s);
    }
    op_free(op);
}

/* The stream that must go next so that `s` gets on: waits refer to marks queued before them, so
 * this ends. */
static SimStream *needed(SimStream *s) {
    while (!is_ready(s)) s = s->head->mark->stream;
    return s;
}

static SimStream *any_ready(void) {
    SimStream *ready[SIM_STREAMS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < SIM_STREAMS; i++)
        if (is_ready(&slots[i])) ready[n++] = &slots[i];
    return n ? ready[sim_random(n)] : NULL;
}

static void run_next(SimStream *wanted) {
    run_head(sim_options()->seed % 2 ? any_ready() : needed(wanted));
}

void pump_stream(SimStream *stream) {
    while (stream->head) run_next(stream);
    sim_clock_join(&host, &stream->clock);
}

void pump_mark(Mark *mark) {
    while (!mark->done) run_next(mark->stream);
    sim_clock_join(&host, &mark->clock);
}

void pump_one(void) {
    SimStream *s = any_ready();
    if (s) run_head(s);
}

void sim_drain(void) {
    for (uint32_t i = 0; i < SIM_STREAMS; i++)
        if (slots[i].used) pump_stream(&slots[i]);
}

/* The legacy default stream waits for the blocking ones and they for it. */
static void order_legacy(SimStream *stream) {
    if (!stream->blocking) return;
    for (uint32_t i = 0; i < SIM_STREAMS; i++) {
        SimStream *other = &slots[i];
        if (other == stream || !other->used || !other->blocking || (stream->id && i)) continue;
        while (other->head) run_next(other);
        sim_clock_join(&stream->clock, &other->clock);
    }
}

CUresult stream_append(SimStream *stream, SimOp *op) {
    order_legacy(stream);
    op->host = host;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    queued++;
    if (!sim_options()->seed)
        while (stream->head) run_next(stream);
    return CUDA_SUCCESS;
}

static bool ranges_exist(const SimWork *work) {
    for (uint32_t i = 0; !work->watch && i < work->nranges; i++) {
        const SimRange *r = &work->ranges[i];
        const SimAlloc *a = r->bytes ? sim_alloc_at(r->at, r->bytes) : NULL;
        if (!r->bytes || (a && !a->freed)) continue;
        sim_finding("%s: %s: %llu bytes at %s are not inside a living buffer", work->name, r->what,
                    (unsigned long long)r->bytes, sim_place(r->at));
        return false;
    }
    return true;
}

CUresult sim_enqueue(CUstream handle, const SimWork *work) {
    SimStream *stream = stream_of(handle);
    if (!stream) return CUDA_ERROR_INVALID_HANDLE;
    if (!ranges_exist(work)) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = capture_forbids(stream, work->name);
    if (r != CUDA_SUCCESS) return r;
    SimOp *op = op_new(work);
    op->step = sim_step_hold(stream->step);
    if (stream->capture)
        return capture_add(stream, op) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    op_pin(op);
    return stream_append(stream, op);
}

void sim_stream_step(CUstream handle, SimStep *step) {
    SimStream *stream = stream_of(handle);
    if (!stream) {
        sim_step_drop(step);
        return;
    }
    sim_step_drop(stream->step);
    stream->step = step;
}

CUresult cuStreamCreate(CUstream *handle, unsigned flags) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 1; i < SIM_STREAMS; i++) {
        SimStream *s = &slots[i];
        if (s->used) continue;
        SimClock clock = s->clock; /* numbers go on where an earlier stream of the slot stopped */
        sim_clock_join(&clock, &host);
        *s = (SimStream){
            .id = i, .used = true, .blocking = !(flags & CU_STREAM_NON_BLOCKING), .clock = clock};
        *handle = (CUstream)(void *)s;
        sim_object("streams", 1);
        return CUDA_SUCCESS;
    }
    sim_finding("more than %d streams", SIM_STREAMS - 1);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(handle, flags);
}

CUresult cuStreamDestroy(CUstream handle) {
    SIM_ENTER_SURE;
    SimStream *s = stream_of(handle);
    if (!s || !s->id) return CUDA_ERROR_INVALID_HANDLE;
    if (!capture_allows_wait(s, __func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    while (s->head) run_next(s);
    sim_step_drop(s->step);
    s->step = NULL;
    s->used = false;
    sim_object("streams", -1);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    SimStream *s = stream_of(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!capture_allows_wait(s, __func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pump_stream(s);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    SimStream *s = stream_of(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!capture_allows_wait(s, __func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->head) pump_one();
    if (s->head) return CUDA_ERROR_NOT_READY;
    sim_clock_join(&host, &s->clock);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    if (!capture_allows_wait(NULL, __func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_drain();
    return CUDA_SUCCESS;
}
