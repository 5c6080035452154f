/* capture.c - stream capture: work of streams goes into a graph instead of their queues.
 *
 * A stream in a capture knows the nodes that its next node depends on; an event recorded there
 * takes them along, and a stream that waits for such an event joins the capture (CUDA C++
 * Programming Guide, "Creating a Graph Using Stream Capture"). What the guide forbids meanwhile is
 * a finding, and makes the capture void: its end then fails as CUDA's does.
 */
#include <stdlib.h>
#include <string.h>

#include "queue.h"

struct SimCapture {
    SimCapture *next; /* all that are active */
    SimStream *origin;
    CUstreamCaptureMode mode;
    bool invalid, ended;
    Graph *graph;
};

static SimCapture *active;

static void set_nodes(SimStream *s, const uint32_t *nodes, uint32_t n) {
    uint32_t *copy = n ? malloc(n * sizeof *copy) : NULL;
    if (n && !copy) abort();
    if (n) memcpy(copy, nodes, n * sizeof *copy);
    free(s->nodes);
    s->nodes = copy;
    s->nnodes = n;
}

static void join_nodes(SimStream *s, const Mark *mark) {
    uint32_t *all = malloc((s->nnodes + mark->nnodes + 1) * sizeof *all);
    if (!all) abort();
    uint32_t n = s->nnodes;
    if (n) memcpy(all, s->nodes, n * sizeof *all);
    for (uint32_t i = 0; i < mark->nnodes; i++) {
        bool there = false;
        for (uint32_t k = 0; k < n; k++) there |= all[k] == mark->nodes[i];
        if (!there) all[n++] = mark->nodes[i];
    }
    set_nodes(s, all, n);
    free(all);
}

static void void_captures(void) {
    for (SimCapture *c = active; c; c = c->next) c->invalid = true;
}

bool sim_legal_in_capture(const char *function) {
    for (const SimCapture *c = active; c; c = c->next) {
        if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        sim_finding("%s is not allowed during a capture", function);
        void_captures();
        return false;
    }
    return true;
}

bool capture_allows_wait(const SimStream *stream, const char *function) {
    if (!(stream ? stream->capture : active)) return true;
    sim_finding("%s: the host cannot wait for work that is being captured", function);
    void_captures();
    return false;
}

CUresult capture_forbids(const SimStream *stream, const char *function) {
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->id || !active) return CUDA_SUCCESS;
    sim_finding("%s: the NULL stream waits for others, which is not allowed during a capture",
                function);
    void_captures();
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

bool capture_add(SimStream *stream, SimOp *op) {
    if (stream->capture->invalid) {
        op_free(op);
        return false;
    }
    uint32_t node = graph_add(stream->capture->graph, op, stream->nodes, stream->nnodes);
    set_nodes(stream, &node, 1);
    return true;
}

void capture_record(SimStream *stream, Mark *mark) {
    mark->capture = stream->capture;
    mark->nnodes = stream->nnodes;
    mark->nodes = malloc((stream->nnodes + 1) * sizeof *mark->nodes);
    if (!mark->nodes) abort();
    if (stream->nnodes) memcpy(mark->nodes, stream->nodes, stream->nnodes * sizeof *mark->nodes);
}

CUresult capture_wait(SimStream *stream, Mark *mark) {
    if (!mark->capture) {
        sim_finding("cuStreamWaitEvent: a captured stream waits for an event recorded outside");
        void_captures();
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (mark->capture->ended || (stream->capture && stream->capture != mark->capture) ||
        !stream->id) {
        sim_finding("cuStreamWaitEvent: the event was recorded in another capture");
        void_captures();
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->capture) {
        join_nodes(stream, mark);
    } else {
        stream->capture = mark->capture;
        set_nodes(stream, mark->nodes, mark->nnodes);
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    SIM_ENTER(CUDA_ERROR_UNKNOWN);
    SimStream *s = stream_of(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!s->id || s->capture) {
        sim_finding("cuStreamBeginCapture: %s", s->id ? "the stream is in a capture already"
                                                      : "the NULL stream cannot be captured");
        return s->id ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    SimCapture *c = calloc(1, sizeof *c);
    if (!c) abort();
    sim_keep(c); /* marks refer to it */
    *c = (SimCapture){.next = active, .origin = s, .mode = mode, .graph = graph_new()};
    active = c;
    s->capture = c;
    set_nodes(s, NULL, 0);
    return CUDA_SUCCESS;
}

/* All that joined is before what the origin did last. */
static bool all_joined(const SimCapture *c) {
    bool *reached = calloc(c->graph->count + 1, sizeof *reached);
    if (!reached) abort();
    graph_reach(c->graph, c->origin->nodes, c->origin->nnodes, reached);
    bool joined = true;
    SimStream *slots = stream_slots();
    for (int i = 0; i < SIM_STREAMS; i++) {
        if (slots[i].capture != c) continue;
        for (uint32_t k = 0; k < slots[i].nnodes; k++) joined &= reached[slots[i].nodes[k]];
    }
    free(reached);
    return joined;
}

static void leave(SimCapture *c) {
    SimStream *slots = stream_slots();
    for (int i = 0; i < SIM_STREAMS; i++) {
        if (slots[i].capture != c) continue;
        slots[i].capture = NULL;
        set_nodes(&slots[i], NULL, 0);
    }
    SimCapture **p = &active;
    while (*p != c) p = &(*p)->next;
    *p = c->next;
    c->ended = true;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    SIM_ENTER_SURE;
    bool fails = sim_call(__func__); /* ends the capture all the same */
    SimStream *s = stream_of(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    SimCapture *c = s->capture;
    *graph = NULL;
    if (!c || c->origin != s) {
        sim_finding("cuStreamEndCapture: no capture began in this stream");
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    bool joined = all_joined(c);
    leave(c);
    if (fails) {
        graph_drop(c->graph);
        return CUDA_ERROR_UNKNOWN;
    }
    if (c->invalid || !joined) {
        if (!c->invalid)
            sim_finding("cuStreamEndCapture: work of a joined stream is not waited for");
        graph_drop(c->graph);
        return joined ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
    *graph = graph_handle(c->graph);
    sim_object("graphs", 1);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    SIM_ENTER(CUDA_ERROR_UNKNOWN);
    const SimStream *s = stream_of(handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    *status = !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
