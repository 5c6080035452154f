/* queue.h - streams, events and captures from inside: shared by stream.c, event.c, capture.c,
 * graph.c.
 *
 * A mark is one cuEventRecord: what a wait refers to even when the event is recorded again later.
 */
#ifndef QUEUE_H
#define QUEUE_H

#include "sim.h"

typedef struct SimCapture SimCapture;
typedef struct SimStream SimStream;

typedef struct {
    SimRange range;
    SimPin pin;
} OpRange;

typedef enum { OP_RUN, OP_RECORD, OP_WAIT } OpKind;

typedef struct {
    uint32_t refs;
    bool done;
    SimStream *stream;
    SimClock clock; /* once done */
    double ms;      /* once done */
    SimCapture *capture;
    uint32_t *nodes, nnodes; /* in a capture: what a wait depends on */
} Mark;

struct SimOp {
    SimOp *next;
    OpKind kind;
    const char *name;
    void (*run)(void *payload, SimOp *op);
    void *payload;   /* behind the ranges */
    OpRange *ranges; /* behind the struct */
    uint32_t nranges;
    bool watch;
    SimStep *step;
    Mark *mark;
    SimClock host;     /* what the host had waited for when it queued the work */
    SimStream *stream; /* where it runs */
};

struct SimStream {
    uint32_t id;
    bool used, blocking;
    SimOp *head, *tail;
    SimClock clock;
    SimStep *step;
    SimCapture *capture;
    uint32_t *nodes, nnodes; /* in a capture: what the next node depends on */
};

/* stream.c */
SimStream *stream_of(CUstream handle); /* NULL with a finding when there is no such stream */
SimStream *stream_slots(void);         /* SIM_STREAMS of them */
SimOp *op_new(const SimWork *work);
void op_free(SimOp *op);
void op_pin(SimOp *op);
void op_run(SimOp *op, SimStream *stream);
CUresult stream_append(SimStream *stream, SimOp *op);
void pump_stream(SimStream *stream); /* until its queue is empty; the host has waited for it */
void pump_mark(Mark *mark);
void pump_one(void); /* one piece of work, so that a polling program gets on */
Mark *mark_hold(Mark *mark);
void mark_drop(Mark *mark);

/* capture.c */
bool capture_add(SimStream *stream, SimOp *op); /* takes the work */
void capture_record(SimStream *stream, Mark *mark);
CUresult capture_wait(SimStream *stream, Mark *mark); /* one of the two is in a capture */
/* May work go to this stream: it is not the NULL stream beside a capture, nor in a void one? */
CUresult capture_forbids(const SimStream *stream, const char *function);
/* May the host wait for this stream (NULL: for all)? */
bool capture_allows_wait(const SimStream *stream, const char *function);

/* graph.c */
typedef struct {
    SimOp *op;
    uint32_t *needs, nneeds; /* indices of earlier nodes */
} Node;

typedef struct {
    uint32_t magic, refs;
    Node *nodes;
    uint32_t count, capacity;
} Graph;

Graph *graph_new(void);
void graph_drop(Graph *graph);
uint32_t graph_add(Graph *graph, SimOp *op, const uint32_t *needs, uint32_t nneeds);
/* reached[i]: node i is one of `from` or before one of them */
void graph_reach(const Graph *graph, const uint32_t *from, uint32_t n, bool *reached);
CUgraph graph_handle(Graph *graph);

#endif
