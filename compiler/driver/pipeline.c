/* pipeline.c - the straight list of calls from a model file to a plan. This is the architecture:
 * every stage takes the artefact of the one before and leaves it alone. */
#include "driver.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MODEL_TEXT_MAX = 1 << 28, /* bytes of a text graph */
    MAX_BUDGETS = 400
};

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

static void dump(Arena *a, const Options *o, Stage st, const Graph *g) {
    if (o->dump != st) return;
    Text t;
    text_init(&t, a);
    ir_print(&t, g);
    fputs(t.at, stdout);
}

/* Our own passes must keep the invariants; a violation is our bug, said before it does harm. */
static void must_verify(Diag *d, const Graph *g, const char *stage) {
    if (ir_verify(d, g)) return;
    diag_error(d, (Place){.file = g->file},
               "the graph is malformed after %s: this is a bug in dtrc", stage);
    abort();
}

/* A graph without a loss is a forward graph. */
static bool has_phases(Diag *d, const Graph *g) {
    for (NodeId n = 0; n < g->nnode; n++)
        if (g->loss == NO_ID && g->node[n].phase != PHASE_FORWARD)
            return diag_error(d, ir_place(g, n, NO_ID),
                              "a graph without a loss has forward nodes only");
    return true;
}

/* Text graphs are for tests and experiments: they may hold a forward graph or a whole step. */
static Graph *load_text(Arena *a, Diag *d, const char *path) {
    size_t n;
    char *text = file_read(a, path, MODEL_TEXT_MAX, &n);
    if (!text) {
        diag_error(d, (Place){.file = path}, "cannot read the graph: %s", strerror(errno));
        return NULL;
    }
    if (strlen(text) != n) {
        diag_error(d, (Place){.file = path}, "not a text graph: it holds a NUL byte");
        return NULL;
    }
    Graph *g = ir_parse(a, d, path, text);
    return g && ir_verify(d, g) && op_check(d, g) && has_phases(d, g) ? g : NULL;
}

static int load(Arena *a, Diag *d, const Options *o, Work *w) {
    const char *m = o->model;
    w->is_trace = trace_is(m);
    w->is_onnx = !w->is_trace && !ends_with(m, ".ir");
    bool compiles = o->verb == VERB_COMPILE || o->measure;
    if (w->is_trace && compiles) {
        diag_error(d, (Place){.file = m},
                   "a planning trace says how long operators take, not what they compute: it can "
                   "be planned, but not compiled");
        diag_hint(d, "dtrc plan, dtrc verify and dtrc inspect read traces");
        return EXIT_MODEL;
    }
    if (w->is_trace) {
        w->forward = trace_read(a, d, m);
    } else if (w->is_onnx) {
        OnnxOptions x = o->onnx;
        x.need_weights = compiles && !strcmp(o->init, "keep");
        x.init_given = strcmp(o->init, "keep") != 0;
        w->forward = onnx_import(a, d, m, &x, &w->info);
        for (uint32_t i = 0; i < w->info.nnote && w->forward; i++)
            diag_warn(d, (Place){.file = m}, "%s", w->info.note[i]);
    } else {
        w->forward = load_text(a, d, m);
    }
    return w->forward ? EXIT_DONE : EXIT_MODEL;
}

/* Without --loss: a scalar output is the loss; otherwise the loss is cross-entropy over axis 1. */
static bool choose_loss(Arena *a, Diag *d, const Options *o, const Graph *g, LossSpec *loss) {
    if (o->loss) return train_parse_loss(d, a, o->loss, loss);
    uint64_t n;
    bool scalar = g->noutput == 1 && shape_count(&g->value[g->output[0]].shape, &n) && n == 1;
    return train_parse_loss(d, a, scalar ? "output" : "cross-entropy", loss);
}

Graph *pipeline_fuse(Arena *a, const Options *o, const Graph *step) {
    Graph *g = simplify_step(a, step);
    return o->target == TARGET_CUDA ? train_join_updates(a, g) : g;
}

static int build_step(Arena *a, Diag *d, const Options *o, Work *w) {
    if (w->is_trace || w->forward->loss != NO_ID) { /* or a text graph of a whole step */
        w->step = w->forward;
        if (w->is_trace) dump(a, o, ST_FUSE, w->step);
        return EXIT_DONE;
    }
    uint32_t before = d->errors;
    if (!choose_loss(a, d, o, w->forward, &w->loss) ||
        !train_parse_optimizer(d, a, o->optimizer ? o->optimizer : "sgd:momentum=0.9", &w->opt))
        return EXIT_USAGE;
    if (!train_roles(w->forward, d, o->rule, o->nrule)) return EXIT_USAGE;
    if (!init_weights(a, d, w->forward, o->init, o->seed)) return EXIT_MODEL;
    dump(a, o, ST_IMPORT, w->forward);
    if (o->stop == ST_IMPORT) return EXIT_DONE;
    Graph *net = simplify_forward(a, d, w->forward);
    if (!net || d->errors > before) return EXIT_MODEL;
    must_verify(d, net, "simplify");
    dump(a, o, ST_SIMPLIFY, net);
    if (o->stop == ST_SIMPLIFY) return EXIT_DONE;
    Graph *step = train_build(a, d, net, &w->loss, &w->opt);
    if (!step || d->errors > before) return EXIT_MODEL;
    must_verify(d, step, "train");
    dump(a, o, ST_TRAIN, step);
    if (o->stop == ST_TRAIN) return EXIT_DONE;
    w->step = pipeline_fuse(a, o, step);
    must_verify(d, w->step, "fuse");
    describe_sizes(a, d, o, w);
    must_verify(d, w->step, "sizes");
    dump(a, o, ST_FUSE, w->step);
    return EXIT_DONE;
}

/* Before there is a graph: what can be refused early is. */
static bool read_device(Arena *a, Diag *d, const Options *o, Device *out) {
    *out = *device_default();
    if (o->target == TARGET_CUDA) {
        if (device_gpu(o->device ? o->device : "a100", o->tf32, out)) return true;
        if (access(o->device, R_OK)) {
            diag_error(d, (Place){.file = o->device},
                       "is no file, and no GPU of that name is known");
            diag_hint(d, "known are %s", device_gpu_names(a));
            return false;
        }
    }
    if (!o->device) return true;
    Device gpu;
    if (o->target != TARGET_CUDA && device_gpu(o->device, false, &gpu) && access(o->device, R_OK)) {
        diag_error(d, (Place){.file = o->device}, "is no file; as a GPU, it needs --target cuda");
        return false;
    }
    TRY(device_read(a, d, o->device, out));
    out->tf32 = o->tf32; /* plans of convolutions are those of the engines that run */
    if (o->target != TARGET_CUDA || out->gpu) return true;
    diag_error(d, (Place){.file = o->device}, "says not which GPU it is of: expected \"gpu\"");
    diag_hint(d, "known are %s", device_gpu_names(a));
    return false;
}

static int make_cost(Arena *a, Diag *d, const Options *o, Work *w) {
    int threads = o->target == TARGET_CUDA ? CUDA_SHARES
                  : o->threads             ? o->threads
                                           : omp_get_num_procs();
    w->cost = w->is_trace ? cost_opaque(a, w->step)
                          : cost_on_device(a, w->step, o->target, threads, &w->device);
    if (o->target == TARGET_CUDA && !w->is_trace && cost_lacks_library(w->step, &w->device)) {
        diag_warn(d, (Place){.file = o->model},
                  "cuDNN 9 cannot be asked on this machine: convolutions are planned with the "
                  "workspace that they may have, and the trainer chooses how when it starts");
        diag_hint(d, "install cuDNN 9, or name its folder in the environment variable "
                     "DTRT_CUDA_PATH");
    }
    if (o->costs && !cost_read_profile(a, d, o->costs, w->step, o->target, w->info.sha256, w->cost))
        return EXIT_MODEL;
    return EXIT_DONE;
}

static void print_costs(Arena *a, const Options *o, const Work *w) {
    printf("# graph %016llx, target %s, threads %d, times of %s\n",
           (unsigned long long)ir_digest(w->step), target_name(o->target), w->cost->threads,
           diag_name(a, o->costs      ? o->costs
                        : w->is_trace ? "the trace"
                                      : w->device.name));
    for (NodeId n = 0; n < w->step->nnode; n++)
        printf("%6u %-16s %12llu ns %12llu workspace  %s\n", n, op_def(w->step->node[n].op)->name,
               (unsigned long long)w->cost->node_ns[n],
               (unsigned long long)w->cost->node_workspace[n], diag_name(a, w->step->node[n].name));
}

bool pipeline_budget(Diag *d, const char *option, const char *text, uint64_t peak, uint64_t *out) {
    if (ends_with(text, "%")) {
        char *end;
        double p = strtod(text, &end);
        if (end != text && !strcmp(end, "%") && p > 0 && p <= 1e6) {
            *out = (uint64_t)((double)peak * (p / 100));
            return true;
        }
    } else if (parse_bytes(text, out)) {
        return true;
    }
    return diag_error(d, (Place){0},
                      "%s %s: expected a size such as 4G, 512M or a percentage such as 60%%",
                      option, text);
}

static int by_size(const void *x, const void *y) {
    const uint64_t *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

bool pipeline_budgets(Arena *a, Diag *d, const char *list, uint64_t peak, Budgets *out) {
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        uint64_t bytes;
        TRY(pipeline_budget(d, "--budgets", arena_strn(a, p, n), peak, &bytes));
        if (out->n == MAX_BUDGETS)
            return diag_error(d, (Place){0}, "--budgets: more than %d entries", MAX_BUDGETS);
        VEC_PUSH(a, *out, bytes);
        p += n;
        if (!*p) break;
    }
    qsort(out->at, out->n, sizeof *out->at, by_size);
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->n; i++)
        if (!n || out->at[i] != out->at[n - 1]) out->at[n++] = out->at[i];
    out->n = n;
    return true;
}

void pipeline_limits(const Options *o, Work *w) {
    bool bytes_only = o->plan.bytes_only;
    w->persistent = plan_persistent_bytes(w->step, w->cost, bytes_only);
    w->peak = plan_peak_without_budget(w->step, w->cost, bytes_only);
    w->floor = plan_floor(w->step, w->cost, bytes_only);
}

PlanStatus pipeline_plan(Arena *a, Diag *d, const Options *o, const Work *w, const PlanOptions *po,
                         const Plan **out, double *ms) {
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    Plan *plan = NULL;
    PlanStatus st = plan_make(a, w->step, w->cost, po, &plan);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    *ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6;
    *out = NULL;
    if (st != PLAN_OK) return st;
    *out = w->is_trace ? plan_run_views(a, w->step, w->cost, plan) : plan;
    if (plan_verify(d, w->step, w->cost, *out)) return st;
    diag_error(d, (Place){.file = o->model},
               "the plan failed its verification: this is a bug in dtrc");
    abort();
}

static int make_plan(Arena *a, Diag *d, const Options *o, Work *w) {
    pipeline_limits(o, w);
    w->budget = w->peak;
    if (o->budget && !pipeline_budget(d, "--budget", o->budget, w->peak, &w->budget))
        return EXIT_USAGE;
    PlanOptions po = o->plan;
    po.budget = w->budget;
    Text model;
    text_init(&model, a);
    if (o->dump == ST_ILP) po.model = &model;
    PlanStatus st = pipeline_plan(a, d, o, w, &po, &w->plan, &w->planning_ms);
    if (model.n) fputs(model.at, stdout);
    if (st == PLAN_TOO_LARGE) {
        diag_error(d, (Place){.file = o->model},
                   "%u nodes are too many for --planner %s, whose program grows with their square",
                   w->step->nnode, po.planner);
        diag_hint(d, "--planner ilp proves as much on large graphs");
        return EXIT_USAGE;
    }
    if (st != PLAN_OK) return report_infeasible(a, d, o, w);
    if (o->dump == ST_PLAN) {
        Text t;
        text_init(&t, a);
        plan_print_list(&t, w->step, w->plan);
        fputs(t.at, stdout);
    }
    return EXIT_DONE;
}

static bool write_log(Arena *a, Diag *d, const char *path, const Work *w) {
    Text t;
    text_init(&t, a);
    trace_print_log(&t, w->step, w->cost);
    if (file_write(path, t.at, t.n)) return true;
    return diag_error(d, (Place){.file = path}, "cannot write the trace: %s", strerror(errno));
}

bool pipeline_stopped(const Options *o, Stage last) {
    return o->stop != ST_NONE && o->stop <= last;
}

int pipeline_run(Arena *a, Diag *d, const Options *o, Stage last, Work *w) {
    if (!read_device(a, d, o, &w->device)) return EXIT_MODEL;
    int status = load(a, d, o, w);
    if (status != EXIT_DONE) return status;
    status = build_step(a, d, o, w);
    if (status != EXIT_DONE || pipeline_stopped(o, ST_FUSE)) return status;
    status = make_cost(a, d, o, w);
    if (status != EXIT_DONE) return status;
    if (o->dump == ST_COST) print_costs(a, o, w);
    if (o->emit_log && !write_log(a, d, o->emit_log, w)) return EXIT_MACHINE;
    if (last < ST_PLAN || pipeline_stopped(o, ST_COST)) return EXIT_DONE;
    return make_plan(a, d, o, w);
}
