/* measure.c - compare --measure: programs run on random data, so that what plans say stands beside
 * what happens.
 *
 * One program is compiled without a budget. It runs as it is, which everything is compared with,
 * and in dynamic mode under each budget, as a program does that finds less memory than it was
 * compiled for. A program holds one static plan: static mode under a budget is the program compiled
 * for that budget. All runs make the same number of steps from the same seed, and end with the same
 * weights if recomputation changes nothing.
 *
 * Times are medians over the steps of one run. A machine drifts, so the program without a budget
 * runs again right after each other run, and overheads compare those two. */
#include "compare.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_STEPS = 5, MOST_STEPS = 200, TARGET_NS = 2000000000, TEXT_MAX = 1 << 24 };

typedef struct {
    Arena *a;
    Diag *d;
    const Options *o;
    CgOptions runtime;
    const char *dir; /* of the programs and of what they say */
    const char *steps;
} Bench;

static const char *file_in(const Bench *b, const char *name) {
    return arena_printf(b->a, "%s/%s", b->dir, name);
}

/* The first error line of a program, without its "error: ". */
static const char *first_error(const Bench *b) {
    size_t n;
    const char *s = file_read(b->a, file_in(b, "err"), TEXT_MAX, &n);
    s = s ? strstr(s, "error: ") : NULL;
    if (!s) return "no message";
    s += strlen("error: ");
    return arena_strn(b->a, s, strcspn(s, "\n"));
}

static double number(const cJSON *j, const char *key) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, key);
    return cJSON_IsNumber(x) ? x->valuedouble : 0;
}

static const char *string(Arena *a, const cJSON *j, const char *key) {
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, key);
    return cJSON_IsString(x) ? arena_str(a, x->valuestring) : "";
}

/* The summary is the last line of what a program says. */
static bool read_summary(const Bench *b, Measured *m) {
    size_t n;
    char *s = file_read(b->a, file_in(b, "out"), TEXT_MAX, &n);
    if (!s) return false;
    while (n && s[n - 1] == '\n') s[--n] = 0;
    char *line = strrchr(s, '\n');
    cJSON *j = cJSON_Parse(line ? line + 1 : s);
    if (!j) return false;
    m->mode = string(b->a, j, "mode");
    m->heuristic = string(b->a, j, "heuristic");
    m->sha256 = string(b->a, j, "weights_sha256");
    m->steps = (uint32_t)number(j, "steps");
    m->step_ms = number(j, "step_ms");
    m->peak_bytes = (uint64_t)number(j, "peak_bytes");
    m->again = (uint32_t)number(j, "recomputed_runs");
    m->evictions = (uint32_t)number(j, "evictions");
    m->decisions = (uint32_t)number(j, "decisions");
    m->decide_ns = number(j, "decide_ns");
    m->planning_ms = number(j, "planning_ms");
    cJSON_Delete(j);
    return *m->sha256 != 0;
}

/* more: options of the trainer, NULL at the end. */
static Measured *run(const Bench *b, const char *program, const char *const *more) {
    VEC(char *) argv = {0};
    const char *const common[] = {program, "--synthetic", "--seed",  "0",     "--lr",
                                  "0.001", "--json",      "--steps", b->steps};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        VEC_PUSH(b->a, argv, arena_str(b->a, common[i]));
    for (; *more; more++) VEC_PUSH(b->a, argv, arena_str(b->a, *more));
    VEC_PUSH(b->a, argv, NULL);
    Measured *m = ARENA_NEW(b->a, Measured);
    m->status = process_run(argv.at, file_in(b, "out"), file_in(b, "err"));
    if (m->status < 0)
        m->error = strerror(errno);
    else if (m->status)
        m->error = first_error(b);
    else if (!read_summary(b, m))
        m->error = "its summary cannot be read";
    return m;
}

static const char *const static_mode[] = {"--mode", "static", NULL};

/* Compiles a plan and runs it as compiled; the program stays at `name`. NULL after reporting. */
static Measured *run_plan(const Bench *b, Work *w, const Plan *p, const char *name) {
    const char *program = file_in(b, name);
    const Plan *before = w->plan;
    w->plan = p;
    int status = trainer_make(b->a, b->d, b->o, w, &b->runtime, NULL, program);
    w->plan = before;
    return status == EXIT_DONE ? run(b, program, static_mode) : NULL;
}

static Measured *run_dynamic(const Bench *b, const char *planner, uint64_t budget) {
    const char *const mode[] = {
        "--mode",      "dynamic",
        "--budget",    arena_printf(b->a, "%llu", (unsigned long long)budget),
        "--heuristic", strcmp(planner, "dynamic") ? planner : "auto",
        NULL};
    return run(b, file_in(b, "program"), mode);
}

static void compare_with(const Bench *b, const Measured *base, Measured *m) {
    if (m->error) return;
    const Measured *now = run(b, file_in(b, "program"), static_mode);
    m->base_ms = now->error ? base->step_ms : now->step_ms;
    m->overhead = m->base_ms > 0 ? m->step_ms / m->base_ms - 1 : 0;
    m->same_weights = !strcmp(m->sha256, base->sha256);
}

/* Steps for about two seconds, by the cost model. */
static const char *choose_steps(Arena *a, const Plan *p) {
    uint64_t n = TARGET_NS / (p->base_ns ? p->base_ns : 1);
    n = n < LEAST_STEPS ? LEAST_STEPS : n > MOST_STEPS ? MOST_STEPS : n;
    return arena_printf(a, "%u", (uint32_t)n);
}

static int measure_all(Bench *b, Work *w, Compare *c) {
    PlanOptions po = b->o->plan;
    po.budget = w->peak;
    po.planner = "none";
    const Plan *none;
    double ms;
    if (pipeline_plan(b->a, b->d, b->o, w, &po, &none, &ms) != PLAN_OK) return EXIT_BUDGET;
    b->steps = choose_steps(b->a, none);
    Measured *base = run_plan(b, w, none, "program");
    if (!base) return EXIT_MACHINE;
    if (base->error) {
        diag_error(b->d, (Place){.file = b->o->model},
                   "the compiled program ends with status %d: %s", base->status, base->error);
        return base->status > 0 && base->status <= EXIT_MACHINE ? base->status : EXIT_MACHINE;
    }
    base->base_ms = base->step_ms;
    base->same_weights = true;
    c->base = base;
    for (uint32_t i = c->nbudget; i-- > 0;)
        for (uint32_t k = 0; k < c->nplanner; k++) {
            CompareRow *r = &c->budget[i].row[k];
            Measured *m;
            if (compare_is_dynamic(r->planner) && (c->listed || !strcmp(r->planner, "dynamic"))) {
                m = run_dynamic(b, r->planner, c->budget[i].bytes);
            } else if (!strcmp(r->planner, "static") && r->plan) {
                m = run_plan(b, w, r->plan, "static");
                if (!m) return EXIT_MACHINE;
            } else {
                continue;
            }
            compare_with(b, base, m);
            r->measured = m;
        }
    return EXIT_DONE;
}

int measure(Arena *a, Diag *d, const Options *o, Work *w, Compare *c) {
    Bench b = {.a = a, .d = d, .o = o};
    if (!trainer_runtime(a, d, &b.runtime) || !trainer_temp_dir(a, d, &b.dir)) return EXIT_MACHINE;
    int status = measure_all(&b, w, c);
    static const char *const files[] = {"program", "static", "out", "err"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(file_in(&b, files[i]));
    rmdir(b.dir);
    return status;
}
