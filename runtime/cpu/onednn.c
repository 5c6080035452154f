/* onednn.c - the library's engine and stream, and prepared primitives (see onednn.h).
 *
 * Everything runs on one CPU engine and one in-order stream, both made at first use and kept for
 * the process. Only the main thread calls this, but for onednn_run_on. Errors at creation are
 * returned; an error while a step runs can only be the machine's (the library allocates small
 * internal structures), so it ends the program. */
#include "onednn.h"

#include <assert.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static dnnl_engine_t engine;
static dnnl_stream_t stream;

dnnl_engine_t onednn_engine(void) {
    if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
    if (engine && !stream &&
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) {
        return NULL;
    }
    return engine;
}

const char *onednn_error(dnnl_status_t s) {
    switch (s) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented by the library";
    case dnnl_runtime_error: return "run-time error";
    default: return "error in the library";
    }
}

int onednn_push_threads(int threads) {
    int old = omp_get_max_threads();
    if (threads > 0 && threads != old) omp_set_num_threads(threads);
    return old;
}

void onednn_pop_threads(int old) {
    if (omp_get_max_threads() != old) omp_set_num_threads(old);
}

dnnl_status_t onednn_attr(dnnl_primitive_attr_t *attr) {
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s != dnnl_success) return s;
    return dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
}

uint64_t onednn_md_bytes(const dnnl_memory_desc_t *md) {
    return md ? (uint64_t)dnnl_memory_desc_get_size(md) : 0;
}

uint64_t onednn_scratch_bytes(const_dnnl_primitive_desc_t pd) {
    return onednn_md_bytes(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

const char *onednn_impl(const_dnnl_primitive_desc_t pd) {
    const char *name = "";
    if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success)
        return "";
    return name;
}

bool onednn_op_init(OnednnOp *op, const_dnnl_primitive_desc_t pd) {
    *op = (OnednnOp){0};
    return dnnl_primitive_create(&op->prim, pd) == dnnl_success;
}

bool onednn_op_arg(OnednnOp *op, int arg, const dnnl_memory_desc_t *md) {
    assert(op->narg < ONEDNN_MAX_ARGS);
    dnnl_exec_arg_t *a = &op->arg[op->narg];
    a->arg = arg;
    if (dnnl_memory_create(&a->memory, md, engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
    op->narg++;
    return true;
}

bool onednn_op_scratch(OnednnOp *op, const_dnnl_primitive_desc_t pd) {
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return onednn_op_arg(op, DNNL_ARG_SCRATCHPAD, md);
}

dnnl_status_t onednn_stream_new(dnnl_stream_t *out) {
    *out = NULL;
    return dnnl_stream_create(out, engine, dnnl_stream_default_flags);
}

void onednn_run(const OnednnOp *op, void *const *addr) {
    onednn_run_on(op, addr, stream);
}

void onednn_run_on(const OnednnOp *op, void *const *addr, dnnl_stream_t on) {
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < op->narg && s == dnnl_success; i++) {
        s = dnnl_memory_set_data_handle(op->arg[i].memory, addr[i]);
    }
    if (s == dnnl_success) s = dnnl_primitive_execute(op->prim, on, op->narg, op->arg);
    if (s == dnnl_success) s = dnnl_stream_wait(on);
    if (s != dnnl_success) {
        fprintf(stderr, "error: oneDNN: %s\n", onednn_error(s));
        exit(4);
    }
}

void onednn_op_free(OnednnOp *op) {
    for (int i = 0; i < op->narg; i++) dnnl_memory_destroy(op->arg[i].memory);
    if (op->prim) dnnl_primitive_destroy(op->prim);
    *op = (OnednnOp){0};
}
