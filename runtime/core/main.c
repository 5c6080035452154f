/* main.c - dtrt_main: the life of a training program as a list of calls. Everything is checked and
 * allocated before the first step; the loop stages a batch, runs the step, reports. */
#include "core.h"

#include <inttypes.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nothing is worse than to train for hours and to fail at writing. */
static Status check_outputs(const Options *o) {
    const char *const path[] = {o->save, o->save_grads, o->export, o->profile};
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        Status st = path[i] ? dtrt_out_check(path[i]) : ST_OK;
        if (st) return st;
    }
    return ST_OK;
}

static void set_context(Runtime *rt) {
    const Options *o = &rt->o;
    rt->ctx = (DtrtCtx){.seed = o->seed,
                        .threads = o->threads,
                        .momentum = o->momentum,
                        .dampening = rt->p->dampening,
                        .weight_decay = o->weight_decay,
                        .beta1 = o->beta1,
                        .beta2 = o->beta2,
                        .eps = o->eps,
                        .nesterov = o->nesterov,
                        .lr = o->lr[0],
                        .user = rt};
    omp_set_dynamic(0);
    if (!rt->p->device) omp_set_num_threads(o->threads);
/* Threads start now, so that their stacks count when free memory is looked at. */
#pragma omp parallel
    {}
}

static Status open_all(Runtime *rt) {
    Status st = check_outputs(&rt->o);
    if (st) return st;
    dtrt_fence_open();
    if (rt->o.resume) st = dtrt_resume_open(rt);
    if (st) return st;
    set_context(rt);
    st = dtrt_payload_open(rt);
    if (!st) st = dtrt_device_open(rt);
    if (!st) st = dtrt_sizes_open(rt);
    if (!st) st = dtrt_sizes_needs(rt);
    if (!st && *rt->device)
        dtrt_note(
            "on %s: kernels and libraries took %s of its memory beside the budget, %s are free",
            rt->device, dtrt_size_str(rt->library_bytes), dtrt_size_str(rt->p->device->left()));
    if (!st) st = dtrt_choose(rt);
    if (!st) st = dtrt_block_load(rt);
    if (!st) st = dtrt_staging_open(rt);
    if (!st && rt->o.resume) st = dtrt_resume_load(rt);
    if (!st) st = dtrt_loader_open(rt);
    if (!st && rt->o.resume) dtrt_resume_notes(rt);
    if (!st) st = dtrt_step_open(rt);
    if (st || !rt->tail) return st;
    dtrt_step_use(rt, 1);
    st = dtrt_step_open(rt);
    dtrt_step_use(rt, 0);
    return st;
}

static void free_all(Runtime *rt) {
    dtrt_loader_free(&rt->loader);
    dtrt_step_free(rt);
    dtrt_staging_free(rt);
    dtrt_block_free(rt);
    dtrt_device_close(rt);
    dtrt_dynamic_free(&rt->dynamic);
    dtrt_dynamic_free(&rt->tail_dynamic);
    dtrt_sizes_free(rt);
    dtrt_resume_free(rt);
    dtrt_fence_close();
    free(rt->o.lr);
    free(rt->o.dim);
}

static uint64_t count_steps(const Runtime *rt) {
    if (rt->o.steps) return (uint64_t)rt->o.steps;
    if (rt->o.synthetic) return 10;
    return rt->loader.steps_per_epoch * (uint64_t)(rt->o.epochs ? rt->o.epochs : 1);
}

static Status train_step(Runtime *rt, Report *r, uint64_t step) {
    const Options *o = &rt->o;
    rt->ctx.step = step;
    rt->ctx.lr = dtrt_rate(o, step, r->steps);
    dtrt_step_use(rt, dtrt_loader_is_tail(&rt->loader, step));
    uint64_t start = dtrt_now_ns();
    Status st = dtrt_stage(rt, step);
    uint64_t staged = dtrt_now_ns();
    if (!st) st = dtrt_step_run(rt);
    uint64_t done = dtrt_now_ns();
    if (!st) st = dtrt_report_step(rt, r, step, done - staged, staged - start);
    if (!st) dtrt_step_use(rt, 0);
    return st;
}

static Status train(Runtime *rt, Report *r) {
    uint64_t steps = rt->steps = count_steps(rt);
    Status st = dtrt_report_open(rt, r, steps);
    if (!st && rt->o.save_grads) st = dtrt_grads_open(rt, rt->o.save_grads);
    uint64_t every = (uint64_t)rt->o.save_every, step = rt->first_step;
    if (step >= steps)
        dtrt_note("nothing is left to do: %" PRIu64 " of %" PRIu64 " steps were done before", step,
                  steps);
    for (; step < steps && !st; step++) {
        st = train_step(rt, r, step);
        if (step == rt->first_step && rt->grad_user) st = dtrt_grads_close(rt, st);
        if (!st && every && (step + 1) % every == 0 && step + 1 < steps)
            st = dtrt_checkpoint_save(rt, rt->o.save, step + 1);
    }
    Status closed = dtrt_report_close(rt, r);
    if (!st) st = closed;
    if (!st && rt->o.save) st = dtrt_checkpoint_save(rt, rt->o.save, step);
    if (!st && rt->o.export) st = dtrt_export(rt, rt->o.export);
    if (!st && rt->o.profile) st = dtrt_report_profile(rt);
    if (!rt->o.json || (st && st != ST_DIVERGED)) return st;
    Status said = dtrt_report_summary(rt, r);
    return st ? st : said;
}

/* libgomp's threads spin at a barrier for milliseconds before they sleep. Where other programs use
 * the processors too, the thread they wait for is often not running, and small steps take a hundred
 * times as long. The policy is read when the library is loaded, so the program starts itself again
 * with the other one, unless the user has chosen. Failing that it just goes on. */
static void sleep_at_barriers(char **argv) {
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return;
    self[n] = 0;
    if (!setenv("OMP_WAIT_POLICY", "passive", 1)) execv(self, argv);
}

int dtrt_main(const DtrtProgram *p, int argc, char **argv) {
    sleep_at_barriers(argv);
    static Runtime rt; /* static: not in registers when dtrt_fail jumps */
    static Report report;
    rt = (Runtime){
        .compiled = p, .p = p, .s = &p->plan, .resume = {.fd = -1}, .exe = -1, .running = -1};
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write, like a full disk */
    Status st = dtrt_tables_check(p);
    if (!st) st = dtrt_options_parse(p, argc, argv, &rt.o);
    if (!st && rt.o.help) {
        dtrt_options_help(p, argv[0]);
        free(rt.o.lr);
        return 0;
    }
    if (!st) {
        if (setjmp(rt.fail)) {
            st = rt.failed;
        } else {
            st = open_all(&rt);
            if (!st) st = rt.o.check_grad ? dtrt_check_grad(&rt) : train(&rt, &report);
        }
    }
    if (rt.grad_user && !rt.o.check_grad) dtrt_grads_close(&rt, st);
    free_all(&rt);
    return (int)st;
}
