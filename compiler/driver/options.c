/* options.c - the command line of dtrc: what fixes memory; the run-time options of a trainer do
 * not. Every option is a row of a table that also makes --help. */
#include "driver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum {
    O_BUDGET,
    O_OUT,
    O_BATCH,
    O_DIM,
    O_LOSS,
    O_OPTIMIZER,
    O_FREEZE,
    O_TRAIN,
    O_DROPOUT,
    O_TARGET,
    O_GPU_ARCH,
    O_MATH,
    O_PLANNER,
    O_EFFORT,
    O_TIME_LIMIT,
    O_ACCOUNTING,
    O_EMIT,
    O_INIT,
    O_SEED,
    O_THREADS,
    O_JSON,
    O_EXPLAIN,
    O_SWEEP,
    O_BUDGETS,
    O_PLANNERS,
    O_MEASURE,
    O_COSTS,
    O_DEVICE,
    O_REPORT,
    O_EMIT_LOG,
    O_DUMP,
    O_STOP,
    O_HELP,
    O_VERSION
} Key;

typedef struct {
    Key key;
    const char *name, *alias, *arg, *help;
} Row;

static const Row rows[] = {
    {O_BUDGET, "--budget", NULL, "SIZE",
     "bytes with K, M, G (powers of 1024), or a percentage of the peak without\n"
     "recomputation; covers weights, gradients, optimizer state, activations, workspace"},
    {O_OUT, "-o", "--output", "FILE", "the trainer (or, for plan, the plan as JSON)"},
    {O_BATCH, "--batch", NULL, "N", "binds the symbolic batch dimension"},
    {O_DIM, "--dim", NULL, "NAME=N", "binds another symbolic dimension (repeatable)"},
    {O_LOSS, "--loss", NULL, "KIND[:K=V,..]",
     "cross-entropy, nll, mse, l1, bce-logits, output; keys output, label,\n"
     "class_axis, ignore_index, label_smoothing"},
    {O_OPTIMIZER, "--optimizer", NULL, "KIND[:K=V,..]",
     "sgd, adam, adamw; default sgd:momentum=0.9; keys momentum, dampening,\n"
     "nesterov, weight_decay, betas=0.9/0.999, eps (run-time flags change them)"},
    {O_FREEZE, "--freeze", NULL, "GLOB", "do not train the initializers that match (repeatable)"},
    {O_TRAIN, "--train", NULL, "GLOB",
     "train the initializers that match; the last match wins (repeatable)"},
    {O_DROPOUT, "--dropout", NULL, "on|off", "keep Dropout nodes (default on)"},
    {O_TARGET, "--target", NULL, "cpu|cuda|null",
     "what to compile for (default cpu; null: schedules without arithmetic)"},
    {O_GPU_ARCH, "--gpu-arch", NULL, "LIST",
     "cuda: architectures with compiled kernels (default sm_80,sm_90), or with PTX, which\n"
     "later ones compile when they start: compute_NN (default: the lowest of the list)"},
    {O_MATH, "--math", NULL, "f32|tf32",
     "cuda: exact products and convolutions (default), or inputs rounded to TF32"},
    {O_PLANNER, "--planner", NULL, "NAME",
     "none, sqrt, dtr, dtr-eq, dtr-local, lru, size, msps, dynamic (what a program makes\n"
     "of the budget in dynamic mode), static (default), ilp (proves how good it is),\n"
     "ilp-checkmate (the published program, for small graphs)"},
    {O_TIME_LIMIT, "--time-limit", NULL, "SECONDS",
     "for the ilp planners, which stop with the best plan and bound (default 60;\n"
     "compare: 10)"},
    {O_EFFORT, "--effort", NULL, "0..3", "planning time for plan quality (default 1)"},
    {O_ACCOUNTING, "--accounting", NULL, "arena|bytes",
     "bytes: byte sums without addresses, to compare with published\n"
     "planners (plan, compare; default arena)"},
    {O_EMIT, "--emit", NULL, "DIR", "leave the generated program in DIR; it builds with make"},
    {O_INIT, "--init", NULL, "keep|kaiming|xavier",
     "initial weights (default keep: those of the file)"},
    {O_SEED, "--seed", NULL, "N", "seed of --init (default 0)"},
    {O_THREADS, "--threads", NULL, "N",
     "threads of the trainer (default: the processors of this machine)"},
    {O_JSON, "--json", NULL, NULL, "machine-readable output"},
    {O_EXPLAIN, "--explain", NULL, NULL,
     "every recomputed node, every drop with the time it spans, what is there at\n"
     "the peak (plan)"},
    {O_SWEEP, "--sweep", NULL, NULL,
     "overhead at every budget from the peak to the smallest; -o FILE.svg draws\n"
     "it (plan)"},
    {O_BUDGETS, "--budgets", NULL, "LIST", "budgets of compare and --sweep, such as 100%,50%,2G"},
    {O_PLANNERS, "--planners", NULL, "LIST",
     "planners of compare, such as static,dtr (default: all but ilp-checkmate)"},
    {O_MEASURE, "--measure", NULL, NULL,
     "run the program: static plans and dynamic mode under each budget, on random data\n"
     "(compare)"},
    {O_COSTS, "--costs", NULL, "FILE", "times of nodes that a trainer's --profile measured"},
    {O_DEVICE, "--device", NULL, "FILE",
     "constants of the cost model (dtrc calibrate writes them); cuda: also the name\n"
     "of a GPU (default a100)"},
    {O_REPORT, "--report", NULL, "FILE.html",
     "a page with pictures: memory over time, what is recomputed; compare:\n"
     "overhead over budget, too (plan, compare)"},
    {O_EMIT_LOG, "--emit-log", NULL, "FILE.log",
     "the training step as a trace that other planners read (plan)"},
    {O_DUMP, "-d", NULL, "STAGE",
     "print a stage: import, simplify, train, fuse, cost, plan; ilp: the last program\n"
     "of an ilp planner in CPLEX LP format"},
    {O_STOP, "-s", NULL, "STAGE", "stop after a stage"},
    {O_HELP, "--help", "-h", NULL, "this text"},
    {O_VERSION, "--version", "-V", NULL, "the version"},
};
enum { NROW = sizeof rows / sizeof *rows };

static const char *const stage_names[ST_COUNT] = {"",     "import", "simplify", "train",
                                                  "fuse", "cost",   "plan",     "ilp"};

void options_help(FILE *out) {
    fputs("usage: dtrc MODEL --budget SIZE [-o TRAINER] [OPTION...]    compile a training program\n"
          "       dtrc inspect MODEL [--json]                         operators, parameters, what "
          "is missing\n"
          "       dtrc plan MODEL --budget SIZE [--json] [-o PLAN.json] [--report FILE.html]\n"
          "       dtrc verify MODEL PLAN.json                         replay a plan with an "
          "independent checker\n"
          "       dtrc compare MODEL --budgets LIST [--planners LIST] [--measure] [--json] "
          "[--report FILE.html]\n"
          "       dtrc plan MODEL --sweep [--json] [-o FILE.svg]      overhead over budgets\n"
          "       dtrc calibrate MODEL --costs PROFILE [-o DEVICE.json]  fits the cost model\n"
          "       dtrc ops                                            the table of supported "
          "operators\n\n"
          "MODEL is an .onnx file, a text graph (.ir) or, for inspect, plan, compare and verify, a "
          "planning\n"
          "trace (simrd .log, .log.gz; Checkmate .json). Then train:\n"
          "       ./TRAINER --data train.npz --epochs 3               (./TRAINER --help lists its "
          "options)\n\n"
          "options:\n",
          out);
    for (int i = 0; i < NROW; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", rows[i].name, rows[i].arg ? " " : "",
                 rows[i].arg ? rows[i].arg : "");
        fprintf(out, "  %-30s ", left);
        for (const char *p = rows[i].help; *p; p++) {
            fputc(*p, out);
            if (*p == '\n') fprintf(out, "%33s", "");
        }
        fputc('\n', out);
    }
    fputs("\nexit status: 0 done, 1 the model or the data is at fault, 2 usage, 3 the budget "
          "cannot be met,\n"
          "4 the machine is at fault\n",
          out);
}

static bool usage(Diag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool usage(Diag *d, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *msg = arena_vprintf(d->arena, fmt, ap);
    va_end(ap);
    diag_error(d, (Place){0}, "%s", msg);
    diag_hint(d, "dtrc --help lists verbs and options");
    return false;
}

static bool parse_int(const char *s, int64_t lo, int64_t hi, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < lo || v > hi) return false;
    *out = v;
    return true;
}

static bool parse_seconds(Diag *d, const char *opt, const char *v, double *out) {
    char *end;
    *out = strtod(v, &end);
    if (end != v && !*end && *out > 0 && *out <= 1e6) return true;
    return usage(d, "%s %s: expected seconds, above 0 and up to 1000000", opt, v);
}

static const Row *find_row(const char *s, size_t n) {
    for (int i = 0; i < NROW; i++) {
        const char *names[2] = {rows[i].name, rows[i].alias};
        for (int k = 0; k < 2; k++)
            if (names[k] && strlen(names[k]) == n && !strncmp(names[k], s, n)) return &rows[i];
    }
    return NULL;
}

typedef VEC(DimBinding) DimVec;
typedef VEC(RoleRule) RuleVec;

static bool parse_stage(Diag *d, const char *v, Stage *out) {
    for (int i = 1; i < ST_COUNT; i++)
        if (!strcmp(stage_names[i], v)) {
            *out = (Stage)i;
            return true;
        }
    return usage(d, "unknown stage '%s': expected import, simplify, train, fuse, cost, plan or ilp",
                 v);
}

static bool parse_dim(Arena *a, Diag *d, const char *v, DimVec *dims) {
    const char *eq = strrchr(v, '=');
    int64_t n;
    if (!eq || eq == v || !parse_int(eq + 1, 1, INT32_MAX, &n))
        return usage(d, "--dim %s: expected NAME=N with N from 1 to %d", v, INT32_MAX);
    DimBinding b = {arena_strn(a, v, (size_t)(eq - v)), n};
    VEC_PUSH(a, *dims, b);
    return true;
}

static bool parse_target(Diag *d, const char *v, Target *out) {
    for (*out = TARGET_CPU; *out <= TARGET_NULL; ++*out)
        if (!strcmp(v, target_name(*out))) return true;
    return usage(d, "--target %s: expected cpu, cuda or null", v);
}

/* The entry of an architecture in the ascending list; NULL: the list is full. */
static GpuArch *arch_entry(Options *o, int number) {
    uint32_t at = o->ngpu_arch;
    while (at && o->gpu_arch[at - 1].number > number) at--;
    if (at && o->gpu_arch[at - 1].number == number) return &o->gpu_arch[at - 1];
    if (o->ngpu_arch == sizeof o->gpu_arch / sizeof *o->gpu_arch) return NULL;
    memmove(&o->gpu_arch[at + 1], &o->gpu_arch[at], (o->ngpu_arch++ - at) * sizeof(GpuArch));
    o->gpu_arch[at] = (GpuArch){.number = number};
    return &o->gpu_arch[at];
}

/* "sm_80,sm_90" or, with the names that nvcc uses, "sm_80,compute_90". */
static bool parse_archs(Diag *d, const char *v, Options *o) {
    bool ptx = false;
    o->ngpu_arch = 0;
    for (const char *s = v; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        char *end;
        bool cubin = !strncmp(s, "sm_", 3);
        size_t prefix = cubin ? 3 : strncmp(s, "compute_", 8) ? 0 : 8;
        long n = prefix ? strtol(s + prefix, &end, 10) : 0;
        bool valid = n >= 50 && n <= 999 && (!*end || *end == ',');
        GpuArch *arch = valid ? arch_entry(o, (int)n) : NULL;
        if (!arch)
            return usage(d,
                         "--gpu-arch %s: expected at most %zu architectures such as "
                         "sm_80,sm_90,compute_90",
                         v, sizeof o->gpu_arch / sizeof *o->gpu_arch);
        *(cubin ? &arch->cubin : &arch->ptx) = true;
        ptx |= arch->ptx;
    }
    o->gpu_arch[0].ptx |= !ptx;
    return true;
}

static bool one_of(Diag *d, const char *opt, const char *v, const char *x, const char *y,
                   const char *z) {
    if (!strcmp(v, x) || !strcmp(v, y) || (z && !strcmp(v, z))) return true;
    return usage(d, "%s %s: expected %s%s%s%s%s", opt, v, x, z ? ", " : " or ", y, z ? " or " : "",
                 z ? z : "");
}

static bool check_planner(Diag *d, const char *name) {
    if (plan_known(name)) return true;
    return usage(d,
                 "unknown planner '%s': expected none, sqrt, dtr, dtr-eq, dtr-local, lru, size, "
                 "msps, dynamic, static, ilp or ilp-checkmate",
                 name);
}

/* Names with commas between them. */
static bool check_planners(Arena *a, Diag *d, const char *v) {
    for (const char *p = v;; p++) {
        size_t n = strcspn(p, ",");
        TRY(check_planner(d, arena_strn(a, p, n)));
        p += n;
        if (!*p) return true;
    }
}

static bool apply(Arena *a, Diag *d, const Row *r, const char *v, Options *o, DimVec *dims,
                  RuleVec *rules) {
    int64_t n = 0;
    switch (r->key) {
    case O_BUDGET: o->budget = v; return true;
    case O_OUT: o->out = v; return true;
    case O_BATCH:
        if (!parse_int(v, 1, INT32_MAX, &n))
            return usage(d, "--batch %s: expected a number from 1", v);
        o->onnx.batch = n;
        return true;
    case O_DIM: return parse_dim(a, d, v, dims);
    case O_LOSS: o->loss = v; return true;
    case O_OPTIMIZER: o->optimizer = v; return true;
    case O_FREEZE:
    case O_TRAIN: {
        RoleRule rule = {r->key == O_TRAIN, v};
        VEC_PUSH(a, *rules, rule);
        return true;
    }
    case O_DROPOUT:
        TRY(one_of(d, r->name, v, "on", "off", NULL));
        o->onnx.dropout = !strcmp(v, "on");
        return true;
    case O_TARGET: return parse_target(d, v, &o->target);
    case O_GPU_ARCH: return parse_archs(d, v, o);
    case O_MATH:
        TRY(one_of(d, r->name, v, "f32", "tf32", NULL));
        o->tf32 = !strcmp(v, "tf32");
        return true;
    case O_PLANNER: o->plan.planner = v; return check_planner(d, v);
    case O_EFFORT:
        if (!parse_int(v, 0, 3, &n)) return usage(d, "--effort %s: expected 0, 1, 2 or 3", v);
        o->plan.effort = (int)n;
        return true;
    case O_TIME_LIMIT: return parse_seconds(d, r->name, v, &o->plan.time_limit);
    case O_ACCOUNTING:
        TRY(one_of(d, r->name, v, "arena", "bytes", NULL));
        o->plan.bytes_only = !strcmp(v, "bytes");
        return true;
    case O_EMIT: o->emit = v; return true;
    case O_INIT:
        TRY(one_of(d, r->name, v, "keep", "kaiming", "xavier"));
        o->init = v;
        return true;
    case O_SEED:
        if (!parse_int(v, 0, INT64_MAX, &n))
            return usage(d, "--seed %s: expected a number from 0", v);
        o->seed = (uint64_t)n;
        return true;
    case O_THREADS:
        if (!parse_int(v, 1, 1024, &n))
            return usage(d, "--threads %s: expected a number from 1 to 1024", v);
        o->threads = (int)n;
        return true;
    case O_JSON: o->json = true; return true;
    case O_EXPLAIN: o->explain = true; return true;
    case O_SWEEP: o->sweep = true; return true;
    case O_BUDGETS: o->budgets = v; return true;
    case O_PLANNERS: o->planners = v; return check_planners(a, d, v);
    case O_MEASURE: o->measure = true; return true;
    case O_COSTS: o->costs = v; return true;
    case O_DEVICE: o->device = v; return true;
    case O_REPORT: o->report = v; return true;
    case O_EMIT_LOG:
        if (strlen(v) <= 4 || strcmp(v + strlen(v) - 4, ".log"))
            return usage(d, "--emit-log %s: expected a name that ends in .log", v);
        o->emit_log = v;
        return true;
    case O_DUMP: return parse_stage(d, v, &o->dump);
    case O_STOP: return parse_stage(d, v, &o->stop);
    case O_HELP: o->verb = VERB_HELP; return true;
    case O_VERSION: o->verb = VERB_VERSION; return true;
    }
    return false;
}

static Verb verb_by_name(const char *s) {
    static const struct {
        const char *name;
        Verb verb;
    } verbs[] = {
        {"inspect", VERB_INSPECT}, {"plan", VERB_PLAN},           {"compare", VERB_COMPARE},
        {"verify", VERB_VERIFY},   {"calibrate", VERB_CALIBRATE}, {"ops", VERB_OPS},
        {"help", VERB_HELP}};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(s, verbs[i].name)) return verbs[i].verb;
    return VERB_COMPILE;
}

/* Whether the output is the model's own file, by whatever path. */
static bool is_model(const Options *o, const char *out) {
    struct stat m, s;
    return out && !stat(o->model, &m) && !stat(out, &s) && S_ISREG(m.st_mode) &&
           m.st_dev == s.st_dev && m.st_ino == s.st_ino;
}

static bool is_svg(const char *path) {
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".svg");
}

/* Options of single verbs: those that make one plan, many, or compare planners. */
static bool check_report(Diag *d, const Options *o) {
    bool plan = o->verb == VERB_PLAN, compare = o->verb == VERB_COMPARE;
    if (o->report && !plan && !compare) return usage(d, "--report belongs to plan and compare");
    if (o->emit_log && !plan) return usage(d, "--emit-log belongs to plan");
    if (o->explain && !plan) return usage(d, "--explain belongs to plan");
    if (o->sweep && !plan) return usage(d, "--sweep belongs to plan");
    if (o->budgets && !o->sweep && !compare)
        return usage(d, "--budgets belongs to compare and --sweep");
    if (o->sweep && o->budget) return usage(d, "--sweep takes --budgets LIST, not --budget");
    if (o->sweep && (o->explain || o->report))
        return usage(d, "--sweep makes many plans: --explain and --report are for one");
    if (o->sweep && o->out && !is_svg(o->out))
        return usage(d, "-o %s: --sweep draws a picture, expected FILE.svg", o->out);
    if (o->planners && !compare) return usage(d, "--planners belongs to compare");
    if (o->measure && !compare) return usage(d, "--measure belongs to compare");
    if (!compare) return true;
    if (o->budget) return usage(d, "compare takes --budgets LIST, not --budget");
    if (o->plan.planner) return usage(d, "compare takes --planners LIST, not --planner");
    if (o->out) return usage(d, "compare writes no file but that of --report");
    if (o->measure && o->plan.bytes_only)
        return usage(d,
                     "--measure runs programs, which need addresses: not with --accounting bytes");
    return true;
}

static bool check(Diag *d, const Options *o, int npos) {
    if (o->verb == VERB_HELP || o->verb == VERB_VERSION || o->verb == VERB_OPS) return true;
    if (!o->model) return usage(d, "no model given");
    if (is_model(o, o->out) || is_model(o, o->report) || is_model(o, o->emit_log))
        return usage(d, "the output '%s' is the model: it would be overwritten",
                     is_model(o, o->out)      ? o->out
                     : is_model(o, o->report) ? o->report
                                              : o->emit_log);
    if (o->verb == VERB_VERIFY && !o->plan_file)
        return usage(d, "verify needs MODEL and PLAN.json");
    if (npos > (o->verb == VERB_VERIFY ? 2 : 1))
        return usage(d, "too many arguments: one model is compiled at a time");
    if (o->verb == VERB_COMPILE && o->plan.bytes_only)
        return usage(d,
                     "--accounting bytes is for plan and compare only: a trainer needs addresses");
    bool proves = o->plan.planner && !strncmp(o->plan.planner, "ilp", 3);
    if (o->dump == ST_ILP && !proves)
        return usage(d, "-d ilp needs --planner ilp or ilp-checkmate");
    if (o->plan.time_limit > 0 && !proves && o->verb != VERB_COMPARE)
        return usage(d, "--time-limit is for --planner ilp and ilp-checkmate");
    if (o->threads && o->target == TARGET_CUDA) return usage(d, "--threads is for the target cpu");
    if (o->ngpu_arch && o->target != TARGET_CUDA)
        return usage(d, "--gpu-arch is for --target cuda");
    if (o->tf32 && o->target != TARGET_CUDA) return usage(d, "--math tf32 is for --target cuda");
    TRY(check_report(d, o));
    if (o->verb == VERB_CALIBRATE && !o->costs)
        return usage(d, "calibrate needs --costs FILE: what ./TRAINER --profile FILE wrote");
    return true;
}

static const char *join_command(Arena *a, int argc, char **argv) {
    Text t;
    text_init(&t, a);
    text_str(&t, "dtrc");
    for (int i = 1; i < argc; i++) text_add(&t, " %s", argv[i]);
    return t.at;
}

bool options_parse(Arena *a, Diag *d, int argc, char **argv, Options *o) {
    *o = (Options){.verb = VERB_COMPILE, .init = "keep", .onnx.dropout = true, .plan.effort = 1};
    o->command = join_command(a, argc, argv);
    DimVec dims = {0};
    RuleVec rules = {0};
    int npos = 0;
    bool verb_seen = false, only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *s = argv[i];
        if (!only_positional && !strcmp(s, "--")) {
            only_positional = true;
        } else if (!only_positional && s[0] == '-' && s[1]) {
            const char *eq = s[1] == '-' ? strchr(s, '=') : NULL;
            const Row *r = find_row(s, eq ? (size_t)(eq - s) : strlen(s));
            if (!r) return usage(d, "unknown option '%s'", s);
            const char *v = eq ? eq + 1 : NULL;
            if (!r->arg && v) return usage(d, "%s takes no value", r->name);
            if (r->arg && !v && ++i == argc) return usage(d, "%s needs %s", r->name, r->arg);
            if (r->arg && !v) v = argv[i];
            TRY(apply(a, d, r, v, o, &dims, &rules));
        } else if (!npos && !verb_seen && verb_by_name(s) != VERB_COMPILE && !only_positional) {
            if (o->verb == VERB_COMPILE) o->verb = verb_by_name(s);
            verb_seen = true;
        } else {
            if (npos == 0) o->model = s;
            if (npos == 1 && o->verb == VERB_VERIFY) o->plan_file = s;
            npos++;
        }
    }
    o->onnx.dim = dims.at;
    o->onnx.ndim = dims.n;
    o->rule = rules.at;
    o->nrule = rules.n;
    TRY(check(d, o, npos));
    return o->ngpu_arch || parse_archs(d, "sm_80,sm_90", o);
}
