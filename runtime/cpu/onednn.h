/* onednn.h - private to runtime/cpu: one engine and stream for the process, prepared primitives,
 * and the thread count they are made for. attention.c, conv.c and matmul.c are the only users;
 * nobody else includes dnnl.h. */
#ifndef DTRT_ONEDNN_H
#define DTRT_ONEDNN_H

#include "dtrt_kernels.h"
#include <dnnl.h>

/* A primitive with one memory object for each argument: running it sets addresses and allocates
 * nothing of size. Arguments are added in the order in which onednn_run expects their addresses. */
enum { ONEDNN_MAX_ARGS = 6 };
typedef struct {
    dnnl_primitive_t prim;
    int narg;
    dnnl_exec_arg_t arg[ONEDNN_MAX_ARGS];
} OnednnOp;

/* NULL when the library cannot be started (its message is in onednn_error). */
dnnl_engine_t onednn_engine(void);
/* Text for a status, for messages. */
const char *onednn_error(dnnl_status_t s);

/* The OpenMP thread count is part of what a primitive descriptor plans for. push sets it and
 * returns the old one for pop. */
int onednn_push_threads(int threads);
void onednn_pop_threads(int old);

/* Attributes with caller-owned scratchpad. */
dnnl_status_t onednn_attr(dnnl_primitive_attr_t *attr);
uint64_t onednn_md_bytes(const dnnl_memory_desc_t *md);
uint64_t onednn_scratch_bytes(const_dnnl_primitive_desc_t pd);
/* Name of the implementation, such as "jit:avx512_core". */
const char *onednn_impl(const_dnnl_primitive_desc_t pd);

/* Creates the primitive of pd with no arguments yet; scratchpad arguments take the descriptor of
 * pd. */
bool onednn_op_init(OnednnOp *op, const_dnnl_primitive_desc_t pd);
bool onednn_op_arg(OnednnOp *op, int arg, const dnnl_memory_desc_t *md);
bool onednn_op_scratch(OnednnOp *op, const_dnnl_primitive_desc_t pd);
/* addr[i] is the address of the i-th argument. Failure is the machine's fault: prints and exits
 * with 4. */
void onednn_run(const OnednnOp *op, void *const *addr);
/* As onednn_run, by a thread of its own: of primitives made for one thread and of nobody else's
 * memory objects, on a stream that is nobody else's. */
void onednn_run_on(const OnednnOp *op, void *const *addr, dnnl_stream_t on);
dnnl_status_t onednn_stream_new(dnnl_stream_t *out);
/* Frees the primitive and its memory objects; an op that was never filled is fine. */
void onednn_op_free(OnednnOp *op);

#endif
