/* build.h - what both readers share: tensors and operators of a trace, with limits. Internal to the
 * room. */
#ifndef DTRC_TRACE_BUILD_H
#define DTRC_TRACE_BUILD_H

#include "trace.h"

/* What a trace may hold. Sums stay far below 2^53, so that times and sizes are exact in doubles and
 * plans that recompute cannot overflow either. */
#define TRACE_TENSORS ((uint32_t)1 << 20)
#define TRACE_OPERANDS ((uint32_t)1 << 24)     /* of all operators together */
#define TRACE_TENSOR_BYTES ((uint64_t)1 << 40) /* of one tensor: the limit of the IR */
#define TRACE_BYTES ((uint64_t)1 << 50)        /* of all tensors */
#define TRACE_NS ((uint64_t)1 << 50)           /* of one run of each operator */
#define TRACE_NAMES ((uint64_t)1 << 28)        /* bytes of all names */

typedef struct {
    Arena *a;
    Diag *d;
    const char *file;
    uint32_t line; /* for messages; 0: none */
    Graph *g;
    Map *tensors; /* name -> value */
    uint64_t bytes, ns, names;
    uint32_t operands;
} Trace;

typedef VEC(ValueId) Values;

Trace trace_new(Arena *a, Diag *d, const char *file);
/* "FILE: line N: message" */
void trace_report(Trace *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define trace_error(...) (trace_report(__VA_ARGS__), false)
/* A tensor with a storage of its own. Names are unique, text, and not empty. */
bool trace_tensor(Trace *t, const char *name, uint64_t bytes, Role role, ValueId *out);
/* The next operator; the results are added with trace_result in their order. */
bool trace_operator(Trace *t, const char *name, Phase ph, uint64_t ns, const Values *in,
                    uint32_t nout, NodeId *out);
/* Result k of operator n, with a storage of its own. */
bool trace_result(Trace *t, NodeId n, uint32_t k, const char *name, uint64_t bytes);
/* Makes n, whose results were not added yet, an operator whose results are views of input i. */
void trace_make_view(Trace *t, NodeId n, uint32_t i);
bool trace_view(Trace *t, NodeId n, uint32_t k, const char *name);

/* ---- simrd.c, checkmate.c ---- */
/* text[n] is 0. */
bool trace_simrd(Trace *t, const char *text, size_t n);
bool trace_checkmate(Trace *t, const char *text, size_t n);

#endif
