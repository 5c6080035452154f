/* trace.h - graphs of the planning benchmark -> Graph, and back: simrd logs (.log, .log.gz) and
 * Checkmate graphs (node-link JSON, .json). They can be planned, not compiled.
 *
 * Node k of the graph is operator k of the trace, so that plans name operators by the same number.
 * Storages have the name of their tensor. Every operator is an Opaque node with its time in
 * attribute cost_ns, or an OpaqueView node when its results are views of an argument, which then is
 * input 0. Constants are persistent; what the recording program still holds at the end is an output
 * of the graph. Cost: cost_opaque. */
#ifndef DTRC_TRACE_H
#define DTRC_TRACE_H

#include "cost.h"

/* ---- read.c ---- */
bool trace_is(const char *path); /* by its name: .log, .log.gz or .json */
/* NULL after reporting. The result passes ir_verify. */
Graph *trace_read(Arena *a, Diag *d, const char *path);
/* The same for bytes in memory; compressed ones too. The name tells the format. */
Graph *trace_parse(Arena *a, Diag *d, const char *name, const char *bytes, size_t n);

/* ---- emit.c ---- */
/* A graph with its costs as a simrd log; README.md says what the log cannot say. */
void trace_print_log(Text *out, const Graph *g, const Cost *c);

#endif
