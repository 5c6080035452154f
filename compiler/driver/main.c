/* main.c - dtrc: compiles an ONNX model into a training program that stays inside a memory budget.
 *
 * Verbs: compile (default), inspect, plan, compare, verify, calibrate, ops. Each is a short list of
 * pipeline calls. The only place that knows exit statuses; an arena that runs out of memory comes
 * back here. */
#include "driver.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DTRC_VERSION
#define DTRC_VERSION "0"
#endif

static jmp_buf oom_return;
static size_t oom_bytes;

static void on_oom(size_t bytes) {
    oom_bytes = bytes;
    longjmp(oom_return, 1);
}

static const char *default_output(Arena *a, const char *model) {
    const char *base = strrchr(model, '/');
    base = base ? base + 1 : model;
    const char *dot = strrchr(base, '.');
    return arena_printf(a, "%.*s.trainer",
                        (int)(dot && dot > base ? dot - base : (long)strlen(base)), base);
}

/* Before the work, not after it: whether the folder of the output can be written. */
static bool check_output(Arena *a, Diag *d, const char *out) {
    const char *slash = strrchr(out, '/');
    const char *dir = !slash ? "." : slash == out ? "/" : arena_strn(a, out, (size_t)(slash - out));
    if (access(dir, W_OK | X_OK) == 0) return true;
    return diag_error(d, (Place){.file = out}, "cannot write here: %s", strerror(errno));
}

static int verb_compile(Arena *a, Diag *d, const Options *o) {
    CgOptions cg = {0};
    if (o->stop == ST_NONE && !trainer_runtime(a, d, &cg)) return EXIT_MACHINE;
    const char *out = o->out || o->emit ? o->out : default_output(a, o->model);
    if (o->stop == ST_NONE && out && !check_output(a, d, out)) return EXIT_MACHINE;
    Work w = {0};
    int status = pipeline_run(a, d, o, ST_PLAN, &w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_PLAN)) return status;
    status = trainer_make(a, d, o, &w, &cg, o->emit, out);
    if (status != EXIT_DONE) return status;
    report_plan(stdout, o, &w);
    if (!o->json) {
        if (o->emit) printf("wrote the folder %s\n", o->emit);
        if (out) printf("wrote the trainer %s\n", out);
    }
    return EXIT_DONE;
}

static int verb_plan(Arena *a, Diag *d, const Options *o) {
    if (o->sweep) return sweep(a, d, o);
    Work w = {0};
    int status = pipeline_run(a, d, o, ST_PLAN, &w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_PLAN)) return status;
    if (o->out) {
        Text t;
        text_init(&t, a);
        Text header;
        text_init(&header, a);
        text_str(&header, "\"model\": ");
        text_json(&header, o->model);
        text_str(&header, ", \"command\": ");
        text_json(&header, o->command);
        plan_print_json(&t, w.step, w.cost, w.plan, header.at);
        if (!file_write(o->out, t.at, t.n)) {
            diag_error(d, (Place){.file = o->out}, "cannot write the plan: %s", strerror(errno));
            return EXIT_MACHINE;
        }
    }
    if (o->report && !report_html(a, d, o, &w)) return EXIT_MACHINE;
    report_plan(stdout, o, &w);
    if (!o->json) explain_print(stdout, a, o, &w);
    return EXIT_DONE;
}

static int verb_verify(Arena *a, Diag *d, const Options *o) {
    Work w = {0};
    int status = pipeline_run(a, d, o, ST_COST, &w);
    if (status != EXIT_DONE) return status;
    size_t n;
    char *text = file_read(a, o->plan_file, (size_t)1 << 30, &n);
    if (!text) {
        diag_error(d, (Place){.file = o->plan_file}, "cannot read the plan: %s", strerror(errno));
        return EXIT_MODEL;
    }
    Plan *p = plan_parse_json(a, d, o->plan_file, text, n, w.step, w.cost);
    if (!p || !plan_verify(d, w.step, w.cost, p)) return EXIT_MODEL;
    char b1[32], b2[32];
    printf("%s: valid: %u steps, %s of %s\n", o->plan_file, p->nstep,
           format_bytes(b1, p->persistent_bytes + p->arena_bytes), format_bytes(b2, p->budget));
    return EXIT_DONE;
}

static int run(Arena *a, Diag *d, int argc, char **argv) {
    Options o = {0};
    if (!options_parse(a, d, argc, argv, &o)) return EXIT_USAGE;
    switch (o.verb) {
    case VERB_HELP: options_help(stdout); return EXIT_DONE;
    case VERB_VERSION: printf("dtrc %s\n", DTRC_VERSION); return EXIT_DONE;
    case VERB_OPS: ops_print(a, stdout); return EXIT_DONE;
    case VERB_INSPECT: return inspect_print(a, d, &o);
    case VERB_PLAN: return verb_plan(a, d, &o);
    case VERB_COMPARE: return compare(a, d, &o);
    case VERB_VERIFY: return verb_verify(a, d, &o);
    case VERB_CALIBRATE: return calibrate(a, d, &o);
    case VERB_COMPILE: return verb_compile(a, d, &o);
    }
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    arena_on_oom(on_oom);
    Arena *volatile arena = NULL;
    if (setjmp(oom_return)) {
        fprintf(stderr, "error: out of memory: a request of %zu bytes failed\n", oom_bytes);
        if (arena) arena_free(arena);
        return EXIT_MACHINE;
    }
    arena = arena_new();
    Diag d;
    diag_init(&d, arena, stderr);
    int status = run(arena, &d, argc, argv);
    arena_free(arena);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "error: cannot write to standard output\n");
        return EXIT_MACHINE;
    }
    return status;
}
