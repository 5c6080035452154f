/* dnn_execute.c - queues a plan with the pointers of a variant pack.
 *
 * Checked: every tensor of the plan has a pointer of the promised alignment, the result overlaps no
 * operand, and a plan that wants a workspace gets one, all of which is written to first.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "dnn.h"
#include "gemm.h"

typedef struct {
    DnnConv conv;
    bool tf32, nondeterministic;
    float *tensor[3];
    void *workspace;
    uint64_t workspace_bytes;
} Run;

/* Which of x, w, y the operation writes. */
static int result_of(cudnnBackendDescriptorType_t kind) {
    return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? 2
           : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? 0
                                                                                  : 1;
}

/* Atomic additions in changing order: the last bit of the first element is not the same twice. */
static void shake(float *p) {
    static unsigned turn;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if ((t.tv_nsec / 64 + turn++) % 2) *p = nextafterf(*p, 2 * *p);
}

static void run_plan(void *payload, SimOp *op) {
    (void)op;
    const Run *r = payload;
    scribble(r->workspace, r->workspace_bytes);
    float *result = r->tensor[result_of(r->conv.kind)];
    dnn_compute(&r->conv, r->tf32, r->tensor[0], r->tensor[1], r->tensor[2], result);
    if (r->nondeterministic) shake(result);
}

static void *pointer_of(const Dnn *pack, int64_t uid) {
    const DnnValue *ids = dnn_value(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const DnnValue *at = dnn_value(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t i = 0; i < ids->count && i < at->count; i++)
        if (((const int64_t *)ids->elements)[i] == uid) return ((void *const *)at->elements)[i];
    return NULL;
}

static bool fill_tensors(const Dnn *pack, Run *run, SimRange *ranges) {
    static const char *const names[3] = {"x", "w", "y"};
    int result = result_of(run->conv.kind);
    for (int i = 0; i < 3; i++) {
        run->tensor[i] = pointer_of(pack, run->conv.uid[i]);
        uint64_t at = (uint64_t)(uintptr_t)run->tensor[i];
        if (!at || at % (uint64_t)run->conv.align[i]) {
            sim_finding("cudnnBackendExecute: %s is at 0x%llx, promised was %lld-byte alignment",
                        names[i], (unsigned long long)at, (long long)run->conv.align[i]);
            return false;
        }
        ranges[i] = (SimRange){at, run->conv.bytes[i], i == result, names[i]};
    }
    for (int i = 0; i < 3; i++)
        if (i != result && ranges[i].at < ranges[result].at + ranges[result].bytes &&
            ranges[result].at < ranges[i].at + ranges[i].bytes)
            sim_finding("cudnnBackendExecute: %s overlaps %s", names[result], names[i]);
    return true;
}

cudnnStatus_t dnn_execute(CUstream stream, const Dnn *plan, const Dnn *pack) {
    Run run = {.conv = *plan->conv,
               .tf32 = plan->engine->tf32,
               .nondeterministic = plan->engine->nondeterministic,
               .workspace_bytes = plan->engine->workspace};
    SimRange ranges[4];
    if (!fill_tensors(pack, &run, ranges)) return CUDNN_STATUS_BAD_PARAM;
    const DnnValue *workspace = dnn_value(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    run.workspace = workspace ? *(void *const *)workspace->elements : NULL;
    if (run.workspace_bytes && !run.workspace) {
        sim_finding("cudnnBackendExecute: no workspace, the plan needs %llu bytes",
                    (unsigned long long)run.workspace_bytes);
        return CUDNN_STATUS_BAD_PARAM;
    }
    uint32_t n = 3;
    if (run.workspace_bytes)
        ranges[n++] =
            (SimRange){(uint64_t)(uintptr_t)run.workspace, run.workspace_bytes, true, "workspace"};
    CUresult r = sim_enqueue(
        stream, &(SimWork){"cudnn convolution", run_plan, &run, sizeof run, ranges, n, false});
    return r == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
