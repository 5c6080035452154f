/* driver.h - the command line and the straight list of calls behind it. */
#ifndef DTRC_DRIVER_H
#define DTRC_DRIVER_H

#include "codegen.h"
#include "explain.h"
#include "onnx.h"
#include "plan.h"
#include "simplify.h"
#include "sizes.h"
#include "trace.h"
#include "train.h"

/* Exit statuses. */
enum { EXIT_DONE = 0, EXIT_MODEL = 1, EXIT_USAGE = 2, EXIT_BUDGET = 3, EXIT_MACHINE = 4 };

typedef enum {
    VERB_COMPILE,
    VERB_INSPECT,
    VERB_PLAN,
    VERB_COMPARE,
    VERB_VERIFY,
    VERB_CALIBRATE,
    VERB_OPS,
    VERB_HELP,
    VERB_VERSION
} Verb;

/* Stages that -d prints and -s stops after, in order. */
typedef enum {
    ST_NONE,
    ST_IMPORT,
    ST_SIMPLIFY,
    ST_TRAIN,
    ST_FUSE,
    ST_COST,
    ST_PLAN,
    ST_ILP, /* what the planner solved */
    ST_COUNT
} Stage;

typedef struct {
    Verb verb;
    const char *command; /* the whole command line, for front matter */
    const char *model;
    const char *plan_file; /* verify */
    const char *budget;    /* as given; NULL: no limit */
    const char *out;       /* -o */
    const char *emit;      /* --emit DIR */
    const char *report;    /* --report FILE.html */
    const char *emit_log;  /* --emit-log FILE.log */
    const char *costs;     /* --costs FILE: a trainer's profile; NULL: the model's times */
    const char *device;    /* --device FILE: constants of the cost model; NULL: built in */
    const char *budgets;   /* of --sweep and compare, as given; NULL: every 5 %, or three */
    const char *planners;  /* of compare, as given, names are known; NULL: all */
    bool json, explain, sweep, measure;
    OnnxOptions onnx;
    const char *loss, *optimizer; /* as given; NULL: defaults */
    RoleRule *rule;
    uint32_t nrule;
    Target target;
    bool tf32;           /* --math tf32 */
    GpuArch gpu_arch[8]; /* ascending; some have PTX */
    uint32_t ngpu_arch;
    PlanOptions plan;
    const char *init; /* keep, kaiming, xavier */
    uint64_t seed;
    int threads;
    Stage dump, stop;
} Options;

/* ---- options.c ---- */
/* False after reporting a usage error (status 2). */
bool options_parse(Arena *a, Diag *d, int argc, char **argv, Options *out);
void options_help(FILE *out);

/* ---- pipeline.c: everything a verb may need, made in order ---- */
typedef struct {
    Graph *forward; /* as imported, roles applied */
    OnnxInfo info;
    bool is_onnx, is_trace;
    Graph *step;          /* fused training step, what is planned and compiled */
    const Sizes *sizes;   /* other sizes that the step can have; NULL: none */
    const char *one_size; /* why there are none */
    LossSpec loss;
    OptSpec opt;
    Device device;
    Cost *cost;
    uint64_t persistent, peak, floor; /* bytes */
    uint64_t budget;
    const Plan *plan;
    double planning_ms;
} Work;

/* Runs the stages up to and including `last`, or to Options.stop. The exit status; EXIT_DONE goes
 * on. */
int pipeline_run(Arena *a, Diag *d, const Options *o, Stage last, Work *w);
/* "60%" of the peak, or bytes; false after reporting. option: for the message. */
bool pipeline_budget(Diag *d, const char *option, const char *text, uint64_t peak, uint64_t *out);
typedef VEC(uint64_t) Budgets;
/* The same for a list such as "100%,60%,2G": ascending, each once. */
bool pipeline_budgets(Arena *a, Diag *d, const char *list, uint64_t peak, Budgets *out);
/* simplify_step, and what the target wants of the order. */
Graph *pipeline_fuse(Arena *a, const Options *o, const Graph *step);
/* One plan, verified, and how long that took. A step that has its costs and limits. */
PlanStatus pipeline_plan(Arena *a, Diag *d, const Options *o, const Work *w, const PlanOptions *po,
                         const Plan **out, double *ms);
/* Persistent bytes, peak and floor of a step that has its costs. */
void pipeline_limits(const Options *o, Work *w);
/* Whether Options.stop ended the run. */
bool pipeline_stopped(const Options *o, Stage last);

/* ---- symbols.c ---- */
/* Fills w->sizes and w->one_size; with sizes, w->step becomes an instance of them. */
void describe_sizes(Arena *a, Diag *d, const Options *o, Work *w);

/* ---- trainer.c ---- */
/* Fills include_dir and lib_dir; false after reporting. */
bool trainer_runtime(Arena *a, Diag *d, CgOptions *cg);
bool trainer_temp_dir(Arena *a, Diag *d, const char **out);
/* Code and executable of w->plan. dir: gets the code; NULL: nobody keeps it. out: NULL: no
 * executable. The exit status. */
int trainer_make(Arena *a, Diag *d, const Options *o, const Work *w, const CgOptions *runtime,
                 const char *dir, const char *out);

/* ---- inspect.c, report.c, explain.c, init.c ---- */
int inspect_print(Arena *a, Diag *d, const Options *o);
void ops_print(Arena *a, FILE *out);
/* "overhead", "gap" and the rest: text on out, or one line of JSON */
void report_plan(FILE *out, const Options *o, const Work *w);
/* Overhead less bound; 0 where only rounding in the last digits is left. */
double report_gap(double overhead, double bound);
/* What a solver proved for every plan with first runs in the graph's order; 0: nothing. */
double report_proof_bound(const Plan *p);
/* The keys of that JSON object; without w->plan those of a plan are null. bound: below 0: no plan
 * exists. min: the smallest budget. */
void report_fields(Text *t, const Work *w, const char *planner, double bound, uint64_t min);
/* plan: what is there at the peak, what was dropped and made again; all of it with o->explain. */
void explain_print(FILE *out, Arena *a, const Options *o, const Work *w);
void explain_json(Text *t, const Work *w); /* all of it, one object */
/* Operator; for fused nodes those of the body. What a storage is for. Both escaped by diag_name. */
const char *explain_kind(Arena *a, const Node *n);
const char *explain_storage_kind(Arena *a, const Work *w, StorageId s);
bool report_html(Arena *a, Diag *d, const Options *o, const Work *w);
/* Status 3: smallest budget, lower bound, values at the peak. Always returns EXIT_BUDGET. */
int report_infeasible(Arena *a, Diag *d, const Options *o, const Work *w);
/* Initial values for --init and for weights whose external file is missing. */
bool init_weights(Arena *a, Diag *d, Graph *g, const char *kind, uint64_t seed);

/* ---- sweep.c, compare.c, calibrate.c: exit statuses ---- */
int sweep(Arena *a, Diag *d, const Options *o); /* plan --sweep */
int compare(Arena *a, Diag *d, const Options *o);
int calibrate(Arena *a, Diag *d, const Options *o); /* needs o->costs */

#endif
