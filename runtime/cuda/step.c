/* step.c - one training step on the GPU: the batch is copied from pinned memory on a stream of its
 * own, the schedule's nodes are enqueued one after the other, and the host waits once, for the
 * report (params.h).
 *
 * What the CPU's step checks on the host is checked by kernels: a loss or a gradient that is not
 * finite, or a number out of range, spoils the step, and updates that follow change nothing, so
 * that a diverged run ends with the weights it had.
 *
 * The second step of each size is captured into a CUDA graph, and later ones replay it: everything
 * that changes from step to step is in cu_now. (The first runs plainly, because libraries load
 * kernels when they are first used.) Where the host must see something inside a step, nothing is
 * captured. */
#include "cu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    CuStep now;
    CuReport report;
} Frame;

static struct {
    Frame *frame;       /* pinned */
    CUstream copy;      /* of the batch */
    CUevent copied;     /* the batch is in the block */
    CUevent start, end; /* of a node, for profiles */
    uint64_t plain[2];  /* steps of each size that ran uncaptured */
    CUgraphExec graph[2];
    bool no_graph;  /* it could not be made */
    bool capturing; /* now */
} step;

void cu_step_interrupted(void) {
    CUgraph unfinished = NULL;
    if (!step.capturing) return;
    step.capturing = false;
    cu.cuStreamEndCapture(cu_device.stream, &unfinished);
    if (unfinished) cu.cuGraphDestroy(unfinished);
}

void cu_step_free(void) {
    for (int i = 0; i < 2; i++)
        if (step.graph[i]) cu.cuGraphExecDestroy(step.graph[i]);
    if (step.start) cu.cuEventDestroy(step.start);
    if (step.end) cu.cuEventDestroy(step.end);
    if (step.copied) cu.cuEventDestroy(step.copied);
    if (step.copy) cu.cuStreamDestroy(step.copy);
    if (step.frame) cu.cuMemFreeHost(step.frame);
    memset(&step, 0, sizeof step);
}

static void open_step(const Runtime *rt) {
    if (step.frame) return;
    void *at;
    cu_check(cu.cuMemHostAlloc(&at, sizeof *step.frame, 0), "cuMemHostAlloc");
    step.frame = at;
    cu_check(cu.cuStreamCreate(&step.copy, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    cu_check(cu.cuEventCreate(&step.copied, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    cu_check(cu.cuEventCreate(&step.start, CU_EVENT_DEFAULT), "cuEventCreate");
    cu_check(cu.cuEventCreate(&step.end, CU_EVENT_DEFAULT), "cuEventCreate");
    cu_watch_block(rt);
    cu_check(cu.cuStreamSynchronize(cu_device.stream), "cuStreamSynchronize");
}

/* ---- before and after the nodes ----------------------------------------------------------------
 */

static void fill_settings(const DtrtCtx *c, CuStep *now) {
    double t = (double)c->step + 1;
    *now = (CuStep){.seed = c->seed,
                    .step = c->step,
                    .lr = c->lr,
                    .momentum = c->momentum,
                    .dampening = c->dampening,
                    .weight_decay = c->weight_decay,
                    .beta1 = c->beta1,
                    .beta2 = c->beta2,
                    .eps = c->eps,
                    .nesterov = c->nesterov,
                    .left1 = 1 - pow((double)c->beta1, t),
                    .left2 = 1 - pow((double)c->beta2, t)};
}

/* The step before has ended, so the block's data may be overwritten and the frame filled. */
static void copy_in(const Runtime *rt) {
    const DtrtProgram *p = rt->p;
    fill_settings(&rt->ctx, &step.frame->now);
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        if ((t->role != DTRT_INPUT && t->role != DTRT_TARGET) || !t->bytes) continue;
        CUdeviceptr to = (CUdeviceptr)(uintptr_t)(rt->block + t->offset);
        cu_check(
            cu.cuMemcpyHtoDAsync(to, dtrt_staging(rt, t), dtrt_tensor_plain_bytes(t), step.copy),
            "copying the batch");
    }
    cu_check(cu.cuMemcpyHtoDAsync(cu_device.now, &step.frame->now, sizeof(CuStep), step.copy),
             "copying the settings of the step");
    cu_check(cu.cuMemsetD8Async(cu_device.report, 0, sizeof(CuReport), step.copy),
             "cuMemsetD8Async");
    cu_check(cu.cuEventRecord(step.copied, step.copy), "cuEventRecord");
    cu_check(cu.cuStreamWaitEvent(cu_device.stream, step.copied, 0), "cuStreamWaitEvent");
}

/* Of the run at a place of the schedule; NULL: a drop. */
static const DtrtNode *node_of(const Runtime *rt, uint32_t place) {
    int32_t run = rt->s->step[place].run;
    return run < 0 ? NULL : &rt->p->node[rt->s->run[run].node];
}

static Status read_report(Runtime *rt) {
    CuReport *r = &step.frame->report;
    cu_watch_free_work();
    cu_check(cu.cuMemcpyDtoHAsync(r, cu_device.report, sizeof *r, cu_device.stream),
             "copying the report of the step");
    rt->running = -1;
    dtrt_stage_ahead(rt);
    cu_check(cu.cuStreamSynchronize(cu_device.stream), "the step on the GPU");
    rt->loss = r->loss;
    rt->hits = r->hits;
    rt->counted = r->counted;
    if (r->bad_node) {
        const DtrtNode *n = &rt->p->node[r->bad_node - 1];
        bool from_end = r->limit < 0; /* numbers that may count from the end */
        dtrt_error("step %llu, node %s (%s): %lld at position %lld: expected %lld to %lld",
                   (unsigned long long)rt->ctx.step, dtrt_name_str(n->name), n->op, r->value,
                   r->position, from_end ? r->limit : 0, (from_end ? -r->limit : r->limit) - 1);
        return ST_DATA;
    }
    if (r->loss_nonfinite) return dtrt_diagnose(rt, rt->loss_step + 1, "the loss");
    if (!r->nonfinite) return ST_OK;
    uint32_t order = (uint32_t)r->nonfinite;
    char what[160];
    snprintf(what, sizeof what, "the gradient of %s",
             dtrt_name_str(rt->p->tensor[node_of(rt, rt->s->nstep - order)->param].name));
    return dtrt_diagnose(rt, rt->s->nstep, what);
}

/* ---- the nodes ---------------------------------------------------------------------------------
 */

static void check_loss(const Runtime *rt) {
    const float *at = rt->loss_at;
    cu_watch_free_work();
    CU_LAUNCH(step_loss, 1, 32, &at);
}

static void count_hits(const Runtime *rt) {
    const DtrtProgram *p = rt->p;
    const DtrtTensor *t = dtrt_program_target(p);
    const float *x = rt->logits_at;
    int64_t outer, n, inner;
    long long ignore = p->ignore_index;
    int is_i32 = t && t->type == DTRT_I32, has_ignore = p->has_ignore;
    dtrt_metric_shape(p, &outer, &n, &inner);
    if (!t || dtrt_tensor_count(t) != (uint64_t)(outer * inner)) return;
    const void *labels = rt->block + t->offset;
    cu_watch_free_work();
    CU_LAUNCH(step_accuracy, cu_blocks(outer * inner, 128), 128, &x, &labels, &is_i32, &has_ignore,
              &ignore, &outer, &n, &inner);
}

static void fill_nan(const Runtime *rt, uint64_t offset, uint64_t bytes) {
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)(rt->block + offset);
    if (bytes) cu_check(cu.cuMemsetD8Async(at, 0xff, bytes, cu_device.stream), "cuMemsetD8Async");
}

static void run_timed(Runtime *rt, const DtrtNode *n, void *const *ptr) {
    ProfileSlot *slot = &rt->profile[rt->running];
    float ms = 0;
    cu_check(cu.cuEventRecord(step.start, cu_device.stream), "cuEventRecord");
    n->run(&rt->ctx, ptr);
    cu_check(cu.cuEventRecord(step.end, cu_device.stream), "cuEventRecord");
    cu_check(cu.cuEventSynchronize(step.end), "cuEventSynchronize");
    cu_check(cu.cuEventElapsedTime(&ms, step.start, step.end), "cuEventElapsedTime");
    uint64_t ns = (uint64_t)((double)ms * 1e6);
    if (!slot->runs || ns < slot->min_ns) slot->min_ns = ns;
    slot->ns[slot->runs++ % PROFILE_SAMPLES] = ns;
}

static bool is_timed(const Runtime *rt) {
    return rt->profile && !rt->ctx.slot; /* of the batch: partial ones differ */
}

static void run_node(Runtime *rt, const DtrtRun *r) {
    const DtrtNode *n = &rt->p->node[r->node];
    rt->running = (int32_t)r->node;
    if (is_timed(rt))
        run_timed(rt, n, rt->ptr + r->first);
    else
        n->run(&rt->ctx, rt->ptr + r->first);
}

static void enqueue_run(Runtime *rt, const DtrtRun *r) {
    cu_watch_runs(rt, &r, 1);
    if (rt->o.hard) dtrt_hard_fill(rt, &rt->p->node[r->node], rt->s->addr + r->first, fill_nan);
    run_node(rt, r);
}

static void enqueue_drop(Runtime *rt, const DtrtStep *now) {
    cu_watch_free_work();
    if (rt->o.hard) fill_nan(rt, now->offset, rt->p->storage[now->storage].bytes);
    cu_watch_drop(rt, now->storage, now->offset);
}

/* Does a drop at one of the places from .. to - 1 take what node n reads? (A fault of the schedule,
 * which must not be hidden from a checker.) */
static bool was_dropped(const Runtime *rt, uint32_t from, uint32_t to, const DtrtNode *n) {
    for (uint32_t i = from; i < to; i++)
        for (uint32_t k = 0; rt->s->step[i].run < 0 && k < n->nin; k++)
            if (rt->p->operand[n->first + k] == rt->s->step[i].storage) return true;
    return false;
}

/* Updates from place `from` on with nothing but drops between them are one piece of work; the drops
 * come after it, when their bytes are still nobody else's. Returns the place behind in *end. */
static Status enqueue_updates(Runtime *rt, uint32_t from, uint32_t *end) {
    const DtrtSchedule *s = rt->s;
    const DtrtRun *run[CU_UPDATES] = {0};
    int order[CU_UPDATES];
    uint32_t n = 0, at = from;
    for (; at < s->nstep; at++) {
        const DtrtNode *node = node_of(rt, at);
        if (!node) continue;
        if (node->param < 0 || n == (is_timed(rt) ? 1 : CU_UPDATES)) break;
        if (was_dropped(rt, from, at, node)) break;
        order[n] = (int)(s->nstep - at);
        run[n] = &s->run[s->step[at].run];
        rt->running = (int32_t)run[n]->node;
        Status st = dtrt_gradient_out(rt, node, rt->ptr[run[n++]->first + 1]);
        if (st) return st;
    }
    cu_watch_runs(rt, run, n);
    if (n > 1) cu_updates_begin();
    for (uint32_t i = 0; i < n; i++) {
        cu_updates_order(order[i]);
        run_node(rt, run[i]);
    }
    cu_updates_end();
    for (uint32_t i = from; i < at; i++)
        if (s->step[i].run < 0) enqueue_drop(rt, &s->step[i]);
    *end = at;
    return ST_OK;
}

static Status enqueue(Runtime *rt) {
    const DtrtSchedule *s = rt->s;
    cu_watch_begin(rt);
    for (uint32_t i = 0; i < s->nstep;) {
        const DtrtNode *n = node_of(rt, i);
        if (n && n->param >= 0) {
            Status st = enqueue_updates(rt, i, &i);
            if (st) return st;
            continue;
        }
        if (n)
            enqueue_run(rt, &s->run[s->step[i].run]);
        else
            enqueue_drop(rt, &s->step[i]);
        if (n && rt->o.accuracy && i == rt->logits_step) count_hits(rt);
        if (n && i == rt->loss_step) check_loss(rt);
        i++;
    }
    cu_watch_end();
    return ST_OK;
}

/* ---- captured ----------------------------------------------------------------------------------
 */

static bool may_capture(const Runtime *rt) {
    return !rt->on_grad && !rt->profile && !rt->o.no_graph && !step.no_graph;
}

/* What a capture records does not run: the step is run by the graph. */
static Status capture(Runtime *rt) {
    CUgraph graph = NULL;
    CUgraphExec *exec = &step.graph[rt->ctx.slot];
    cu_check(cu.cuStreamBeginCapture(cu_device.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
             "cuStreamBeginCapture");
    step.capturing = true;
    Status st = enqueue(rt);
    step.capturing = false;
    CUresult r = cu.cuStreamEndCapture(cu_device.stream, &graph);
    if (!st && r == CUDA_SUCCESS) r = cu.cuGraphInstantiateWithFlags(exec, graph, 0);
    if (graph) cu.cuGraphDestroy(graph);
    if (st || r == CUDA_SUCCESS) return st;
    *exec = NULL;
    step.no_graph = true;
    dtrt_note("the step could not be captured (error %d): its operations are enqueued one by one",
              (int)r);
    return ST_OK;
}

Status cu_step(Runtime *rt) {
    int slot = rt->ctx.slot;
    open_step(rt);
    copy_in(rt);
    Status st = ST_OK;
    if (may_capture(rt) && step.plain[slot] && !step.graph[slot]) st = capture(rt);
    if (st) return st;
    if (may_capture(rt) && step.graph[slot]) {
        cu_check(cu.cuGraphLaunch(step.graph[slot], cu_device.stream), "cuGraphLaunch");
    } else {
        st = enqueue(rt);
        step.plain[slot]++;
    }
    return st ? st : read_report(rt);
}

void cu_run(Runtime *rt, uint32_t node, void *const *ptr) {
    cu_watch_everything(rt);
    rt->p->node[node].run(&rt->ctx, ptr);
    cu_check(cu.cuStreamSynchronize(cu_device.stream), rt->p->node[node].op);
}
