/* module.c - modules and launches: PTX text becomes C, a shared object and calls (../simt.h).
 *
 * A cubin or a fat binary is refused with CUDA_ERROR_NO_BINARY_FOR_GPU, as by a driver with no
 * fitting code, so that a program takes its PTX. The parameters of a launch are copied when it is
 * queued.
 *
 * In checked mode each access of a kernel asks sim_may_touch; the answer is kept for the span in
 * which it holds, so that most accesses cost two comparisons. The spans touched also tell the race
 * detector what a kernel without a step used.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../simt.h"
#include "sim.h"

enum { MAX_SHARED_DEFAULT = 49152, MAX_SHARED = 232448, MESSAGE = 4096 };

typedef struct {
    SimtModule *simt;
    bool unloaded;
    struct Function *functions; /* one for each kernel */
} Module;

typedef struct Function {
    const SimtKernel *kernel;
    const Module *module;
    uint32_t dynamic_limit;
} Function;

typedef struct {
    const Function *function;
    SimtDim grid, block;
    uint32_t dynamic;
    unsigned char params[];
} Launch;

/* A span that a kernel touched, and how much of it. */
typedef struct {
    SimSpan span;
    uint64_t low, high;
} Touch;

typedef struct {
    SimOp *op;
    struct {
        Touch *list;
        uint32_t count, capacity, last;
    } by_use[2]; /* reads, writes */
} Watch;

static bool is_ptx(const char *image) {
    while (*image == ' ' || *image == '\n' || *image == '\t' || *image == '\r') image++;
    return strncmp(image, "//", 2) == 0 || strncmp(image, ".version", 8) == 0;
}

static CUresult wrap(CUmodule *handle, SimtModule *simt) {
    Module *m = calloc(1, sizeof *m);
    Function *functions = calloc(simt->nkernels + 1, sizeof *functions);
    if (!m || !functions) abort();
    *m = (Module){.simt = simt, .functions = functions};
    for (uint32_t i = 0; i < simt->nkernels; i++) {
        uint32_t stat = simt->kernels[i].static_shared;
        uint32_t rest = stat < MAX_SHARED_DEFAULT ? MAX_SHARED_DEFAULT - stat : 0;
        functions[i] = (Function){&simt->kernels[i], m, rest};
    }
    for (uint32_t i = 0; i < simt->nvariables; i++)
        sim_lend((uint64_t)(uintptr_t)simt->variables[i].address, simt->variables[i].bytes);
    *handle = (CUmodule)(void *)m;
    sim_object("modules", 1);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *handle, const void *image) {
    SIM_ENTER(CUDA_ERROR_OUT_OF_MEMORY);
    if (!sim_legal_in_capture(__func__)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!is_ptx(image)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    static char message[MESSAGE];
    const SimEnv *env = sim_options();
    SimtModule *simt = simt_load(image, env->check ? SIMT_CHECKED : SIMT_FAST, env->cache, message,
                                 sizeof message);
    if (!simt) {
        sim_finding("cuModuleLoadData: %s", message);
        return CUDA_ERROR_INVALID_PTX;
    }
    const char *digits = strpbrk(simt->target, "0123456789");
    if (digits && atoi(digits) > env->capability) {
        simt_unload(simt);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return wrap(handle, simt);
}

CUresult cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned n, CUjit_option *options,
                            void **values) {
    (void)n;
    (void)options;
    (void)values;
    return cuModuleLoadData(handle, image);
}

CUresult cuModuleUnload(CUmodule handle) {
    SIM_ENTER_SURE;
    Module *m = (Module *)(void *)handle;
    if (!m || m->unloaded) return CUDA_ERROR_INVALID_HANDLE;
    sim_drain();
    for (uint32_t i = 0; i < m->simt->nvariables; i++)
        sim_take_back((uint64_t)(uintptr_t)m->simt->variables[i].address);
    m->unloaded =
        true; /* its code stays: graphs may hold launches, which are findings from now on */
    sim_keep(m);
    sim_object("modules", -1);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule handle, const char *name) {
    SIM_ENTER(CUDA_ERROR_NOT_FOUND);
    Module *m = (Module *)(void *)handle;
    if (!m || m->unloaded) return CUDA_ERROR_INVALID_HANDLE;
    const SimtKernel *kernel = simt_kernel(m->simt, name);
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)(void *)&m->functions[kernel - m->simt->kernels];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *at, size_t *bytes, CUmodule handle, const char *name) {
    SIM_ENTER(CUDA_ERROR_NOT_FOUND);
    Module *m = (Module *)(void *)handle;
    if (!m || m->unloaded) return CUDA_ERROR_INVALID_HANDLE;
    const SimtVariable *v = simt_variable(m->simt, name);
    if (!v) return CUDA_ERROR_NOT_FOUND;
    if (at) *at = (CUdeviceptr)(uintptr_t)v->address;
    if (bytes) *bytes = v->bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    SIM_ENTER(CUDA_ERROR_INVALID_VALUE);
    Function *f = (Function *)(void *)handle;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (uint32_t)value + f->kernel->static_shared > MAX_SHARED)
        return CUDA_ERROR_INVALID_VALUE;
    f->dynamic_limit = (uint32_t)value;
    return CUDA_SUCCESS;
}

static int max_threads(const SimtKernel *kernel) {
    return kernel->max_threads ? (int)kernel->max_threads : 1024;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle) {
    SIM_ENTER(CUDA_ERROR_INVALID_VALUE);
    const Function *f = (const Function *)(void *)handle;
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = max_threads(f->kernel); break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)f->kernel->static_shared; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)f->kernel->local_bytes; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = (int)f->dynamic_limit; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads,
                                                     size_t dynamic) {
    SIM_ENTER(CUDA_ERROR_INVALID_VALUE);
    const Function *f = (const Function *)(void *)handle;
    if (threads < 1 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    size_t shared = f->kernel->static_shared + dynamic + 1024; /* 1 KiB of the system for each */
    int by_shared = (int)(MAX_SHARED / shared), by_threads = 2048 / threads;
    *blocks = by_threads < 32 ? by_threads : 32;
    if (by_shared < *blocks) *blocks = by_shared;
    return CUDA_SUCCESS;
}

static void flush(Watch *watch) {
    for (int write = 0; write < 2; write++) {
        for (uint32_t i = 0; i < watch->by_use[write].count; i++) {
            const Touch *t = &watch->by_use[write].list[i];
            sim_op_touched(watch->op, t->low, t->high - t->low, write);
        }
        free(watch->by_use[write].list);
    }
}

static bool add_touch(Watch *watch, uint64_t at, size_t bytes, bool write, const char **why) {
    SimSpan span;
    if (!sim_may_touch(sim_op_step(watch->op), at, bytes, write, &span, why)) return false;
    uint32_t n = watch->by_use[write].count;
    if (n == watch->by_use[write].capacity) {
        uint32_t more = n ? 2 * n : 16;
        Touch *list = realloc(watch->by_use[write].list, more * sizeof *list);
        if (!list) abort();
        watch->by_use[write].list = list;
        watch->by_use[write].capacity = more;
    }
    watch->by_use[write].list[n] = (Touch){span, at, at + bytes};
    watch->by_use[write].last = watch->by_use[write].count++;
    return true;
}

static bool within(Touch *t, uint64_t at, size_t bytes) {
    if (at < t->span.begin || at + bytes > t->span.end) return false;
    if (at < t->low) t->low = at;
    if (at + bytes > t->high) t->high = at + bytes;
    return true;
}

static bool may(void *ctx, const void *p, size_t bytes, bool write, const char **why) {
    Watch *watch = ctx;
    uint64_t at = (uint64_t)(uintptr_t)p;
    Touch *list = watch->by_use[write].list;
    uint32_t n = watch->by_use[write].count;
    if (n && within(&list[watch->by_use[write].last], at, bytes)) return true;
    for (uint32_t i = 0; i < n; i++) {
        if (!within(&list[i], at, bytes)) continue;
        watch->by_use[write].last = i;
        return true;
    }
    return add_touch(watch, at, bytes, write, why);
}

static bool initialised(void *ctx, const void *p, size_t bytes) {
    (void)ctx;
    return sim_is_written((uint64_t)(uintptr_t)p, bytes);
}

static void wrote(void *ctx, const void *p, size_t bytes) {
    (void)ctx;
    sim_mark((uint64_t)(uintptr_t)p, bytes, true);
}

static void run_launch(void *payload, SimOp *op) {
    const Launch *l = payload;
    const SimtKernel *kernel = l->function->kernel;
    if (l->function->module->unloaded) {
        sim_finding("launch of %s after its module was unloaded", kernel->name);
        return;
    }
    const SimEnv *env = sim_options();
    Watch watch = {.op = op};
    SimtOptions options = {.check = env->check,
                           .order = env->seed % 3 == 0   ? SIMT_ASCENDING
                                    : env->seed % 3 == 1 ? SIMT_DESCENDING
                                                         : SIMT_SEEDED,
                           .seed = env->seed,
                           .max_shared = kernel->dynamic_offset + l->function->dynamic_limit,
                           .max_findings = 10,
                           .may = may,
                           .initialised = initialised,
                           .wrote = wrote,
                           .ctx = &watch};
    void **args = malloc((kernel->nparams + 1) * sizeof *args);
    SimtFindings *found = calloc(1, sizeof *found);
    if (!args || !found) abort();
    for (uint32_t i = 0; i < kernel->nparams; i++)
        args[i] = (unsigned char *)payload + offsetof(Launch, params) + kernel->params[i].offset;
    simt_launch(kernel, l->grid, l->block, l->dynamic, args, &options, found);
    for (uint32_t i = 0; i < found->count; i++) {
        char text[512];
        simt_describe(&found->list[i], text, sizeof text);
        const char *step = sim_step_name(sim_op_step(op));
        sim_finding("%s%s%s", text, step ? " in step " : "", step ? step : "");
    }
    flush(&watch);
    free(args);
    free(found);
}

/* What the driver refuses at once. */
static const char *impossible(const Function *f, SimtDim grid, SimtDim block, uint32_t dynamic) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z) return "an empty grid";
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return "a grid beyond the limits";
    if (!threads || threads > 1024 || block.z > 64) return "a block beyond the limits";
    if (threads > (uint64_t)max_threads(f->kernel)) return "more threads than __launch_bounds__";
    if (dynamic > f->dynamic_limit) return "more dynamic shared memory than allowed";
    return NULL;
}

/* Parameters are not typed; a value that lies in a freed buffer can be nothing else than its
 * address. */
static void check_params(const SimtKernel *kernel, const unsigned char *params) {
    for (uint32_t i = 0; i < kernel->nparams; i++) {
        uint64_t value;
        if (kernel->params[i].bytes != sizeof value) continue;
        memcpy(&value, params + kernel->params[i].offset, sizeof value);
        const SimAlloc *a = sim_alloc_at(value, 1);
        if (a && a->freed)
            sim_finding("launch of %s: parameter %u is in %s", kernel->name, i, sim_place(value));
    }
}

CUresult cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned dynamic, CUstream stream, void **params,
                        void **extra) {
    SIM_ENTER(CUDA_ERROR_LAUNCH_FAILED);
    const Function *f = (const Function *)(void *)handle;
    if (!f || extra || (f->kernel->nparams && !params)) return CUDA_ERROR_INVALID_VALUE;
    SimtDim grid = {gx, gy, gz}, block = {bx, by, bz};
    const char *why = impossible(f, grid, block, dynamic);
    if (why) {
        sim_finding("launch of %s with %s: grid %u,%u,%u block %u,%u,%u shared %u", f->kernel->name,
                    why, gx, gy, gz, bx, by, bz, dynamic);
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t size = sizeof(Launch) + f->kernel->param_bytes;
    Launch *l = calloc(1, size);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    *l = (Launch){f, grid, block, dynamic};
    for (uint32_t i = 0; i < f->kernel->nparams; i++)
        memcpy(l->params + f->kernel->params[i].offset, params[i], f->kernel->params[i].bytes);
    check_params(f->kernel, l->params);
    CUresult r = sim_enqueue(stream, &(SimWork){.name = f->kernel->name,
                                                .run = run_launch,
                                                .payload = l,
                                                .payload_bytes = size});
    free(l);
    return r;
}
