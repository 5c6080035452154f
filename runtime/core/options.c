/* options.c - the run-time options of a trainer: a table of names, one parser per kind of value.
 *
 * Nothing here can add memory: options that would add state (momentum on a program without a
 * velocity) or need other shapes are usage errors that say what to compile instead. */
#include "core.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef struct {
    const DtrtProgram *p;
    Options *o;
} Parse;

typedef Status Setter(Parse *c, const char *name, const char *value);

static Status usage(const char *name, const char *value, const char *expected) {
    dtrt_error("%s %s: expected %s", name, dtrt_name_str(value), expected);
    return ST_USAGE;
}

static bool read_int(const char *s, int64_t lo, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || v < lo) return false;
    *out = v;
    return true;
}

static bool read_float(const char *s, const char **end, float *out) {
    char *e;
    *out = strtof(s, &e);
    *end = e;
    return e != s && isfinite(*out);
}

static Status set_float(const char *name, const char *value, float lo, float *out) {
    const char *end;
    if (!read_float(value, &end, out) || *end || *out < lo)
        return usage(name, value, "a number that is not negative");
    return ST_OK;
}

static Status set_data(Parse *c, const char *name, const char *value) {
    (void)name;
    c->o->data = value;
    return ST_OK;
}

static Status set_steps(Parse *c, const char *name, const char *value) {
    return read_int(value, 1, &c->o->steps) ? ST_OK
                                            : usage(name, value, "a number of steps, 1 or more");
}

static Status set_epochs(Parse *c, const char *name, const char *value) {
    return read_int(value, 1, &c->o->epochs) ? ST_OK
                                             : usage(name, value, "a number of epochs, 1 or more");
}

static Status set_lr(Parse *c, const char *name, const char *value) {
    uint32_t n = 1;
    for (const char *s = value; *s; s++) n += *s == ',';
    free(c->o->lr);
    c->o->lr = malloc(n * sizeof(float));
    if (!c->o->lr) return dtrt_no_memory(n * sizeof(float));
    c->o->nlr = n;
    const char *s = value;
    for (uint32_t i = 0; i < n; i++, s++)
        if (!read_float(s, &s, &c->o->lr[i]) || (*s && *s != ',') || c->o->lr[i] < 0)
            return usage(name, value, "a learning rate, or a comma list of them, one per step");
    return ST_OK;
}

static Status set_momentum(Parse *c, const char *name, const char *value) {
    if (!c->p->momentum_state) {
        dtrt_error("%s: this program was compiled without a velocity (optimizer %s)", name,
                   c->p->optimizer);
        dtrt_hint(
            "compile it with --optimizer sgd:momentum=%s; a state cannot be added at run time",
            value);
        return ST_USAGE;
    }
    return set_float(name, value, 0, &c->o->momentum);
}

static Status set_nesterov(Parse *c, const char *name, const char *value) {
    (void)value;
    if (!c->p->momentum_state) {
        dtrt_error("%s needs momentum, and this program was compiled without a velocity", name);
        dtrt_hint("compile it with --optimizer sgd:momentum=0.9,nesterov=1");
        return ST_USAGE;
    }
    c->o->nesterov = true;
    return ST_OK;
}

static Status set_weight_decay(Parse *c, const char *name, const char *value) {
    return set_float(name, value, 0, &c->o->weight_decay);
}

static Status needs_adam(Parse *c, const char *name) {
    if (!strncmp(c->p->optimizer, "adam", 4)) return ST_OK;
    dtrt_error("%s: this program was compiled with optimizer %s, which has no such value", name,
               c->p->optimizer);
    return ST_USAGE;
}

static Status set_betas(Parse *c, const char *name, const char *value) {
    const char *s;
    Status st = needs_adam(c, name);
    if (st) return st;
    bool ok = read_float(value, &s, &c->o->beta1) && *s == '/' &&
              read_float(s + 1, &s, &c->o->beta2) && !*s;
    ok = ok && c->o->beta1 >= 0 && c->o->beta1 < 1 && c->o->beta2 >= 0 && c->o->beta2 < 1;
    return ok ? ST_OK : usage(name, value, "two numbers in [0,1), such as 0.9/0.999");
}

static Status set_eps(Parse *c, const char *name, const char *value) {
    Status st = needs_adam(c, name);
    return st ? st : set_float(name, value, 0, &c->o->eps);
}

static Status set_seed(Parse *c, const char *name, const char *value) {
    int64_t v;
    if (!read_int(value, 0, &v)) return usage(name, value, "a whole number, 0 or more");
    c->o->seed = (uint64_t)v;
    c->o->seed_given = true;
    return ST_OK;
}

static Status set_shuffle(Parse *c, const char *name, const char *value) {
    if (strcmp(value, "on") && strcmp(value, "off")) return usage(name, value, "on or off");
    c->o->shuffle = !strcmp(value, "on");
    return ST_OK;
}

static Status set_metric(Parse *c, const char *name, const char *value) {
    if (!strcmp(value, "none")) {
        c->o->accuracy = false;
        return ST_OK;
    }
    if (strcmp(value, "accuracy")) return usage(name, value, "accuracy or none");
    if (c->p->nclass <= 0 || c->p->logits_storage < 0) {
        dtrt_error("%s accuracy: the loss %s has no classes to count hits of", name,
                   c->p->loss_kind);
        return ST_USAGE;
    }
    c->o->accuracy = true;
    return ST_OK;
}

/* "4G", "512M", "1.5GiB", "100000" */
static bool read_size(const char *s, uint64_t *out) {
    static const char units[] = "kmgt";
    char *end;
    double v = strtod(s, &end);
    if (end == s || !(v >= 0) || !isfinite(v)) return false;
    if (*end) {
        const char *u = strchr(units, *end | 32);
        if (!u) return false;
        for (long i = u - units; i >= 0; i--) v *= 1024;
        end++;
        if (!strcasecmp(end, "b") || !strcasecmp(end, "ib")) end = strchr(end, 0);
    }
    *out = v < 0x1p63 ? (uint64_t)v : UINT64_MAX;
    return !*end;
}

static Status set_budget(Parse *c, const char *name, const char *value) {
    if (!read_size(value, &c->o->budget) || !c->o->budget)
        return usage(name, value, "bytes, with K, M or G");
    return ST_OK;
}

static Status set_heuristic(Parse *c, const char *name, const char *value) {
    c->o->heuristic = value;
    return dtr_choice_known(value)
               ? ST_OK
               : usage(name, value, "auto, dtr, dtr-eq, dtr-local, lru, size, msps or lookahead");
}

static Status set_batch(Parse *c, const char *name, const char *value) {
    return read_int(value, 1, &c->o->batch) ? ST_OK : usage(name, value, "a batch size, 1 or more");
}

static Status set_dim(Parse *c, const char *name, const char *value) {
    const char *eq = strrchr(value, '=');
    int64_t v;
    if (!eq || eq == value || !read_int(eq + 1, 1, &v))
        return usage(name, value, "NAME=N with N 1 or more");
    struct OptionDim *more = realloc(c->o->dim, (c->o->ndim + 1) * sizeof *more);
    if (!more) return dtrt_no_memory((c->o->ndim + 1) * sizeof *more);
    more[c->o->ndim++] = (struct OptionDim){value, v};
    c->o->dim = more;
    return ST_OK;
}

static Status set_mode(Parse *c, const char *name, const char *value) {
    static const char *const mode[] = {"auto", "static", "dynamic"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, mode[i])) continue;
        c->o->mode = (Mode)i;
        return ST_OK;
    }
    return usage(name, value, "static, dynamic or auto");
}

static Status set_graph(Parse *c, const char *name, const char *value) {
    if (strcmp(value, "on") && strcmp(value, "off")) return usage(name, value, "on or off");
    if (!c->p->device) {
        dtrt_error("%s: this program was compiled for the target %s, which has no graphs", name,
                   c->p->target);
        return ST_USAGE;
    }
    c->o->no_graph = !strcmp(value, "off");
    return ST_OK;
}

static Status set_threads(Parse *c, const char *name, const char *value) {
    int64_t v;
    if (c->p->device) {
        dtrt_error("%s: this program computes on a GPU", name);
        return ST_USAGE;
    }
    if (!read_int(value, 1, &v)) return usage(name, value, "a number of threads, 1 or more");
    if (v > c->p->threads) {
        dtrt_error("%s %lld: this program was compiled for at most %d threads", name, (long long)v,
                   c->p->threads);
        dtrt_hint(
            "workspaces are part of the plan and grow with the thread count; compile the model "
            "again with --threads %lld",
            (long long)v);
        return ST_USAGE;
    }
    c->o->threads = (int)v;
    return ST_OK;
}

static Status set_save_every(Parse *c, const char *name, const char *value) {
    return read_int(value, 1, &c->o->save_every)
               ? ST_OK
               : usage(name, value, "a number of steps, 1 or more");
}

static Status set_warmup(Parse *c, const char *name, const char *value) {
    return read_int(value, 0, &c->o->warmup) ? ST_OK
                                             : usage(name, value, "a number of steps, 0 or more");
}

static Status set_schedule(Parse *c, const char *name, const char *value) {
    static const char *const kind[] = {"constant", "linear", "cosine"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, kind[i])) continue;
        c->o->schedule = (RateKind)i;
        return ST_OK;
    }
    return usage(name, value, "constant, linear or cosine");
}

static Status set_unavailable(Parse *c, const char *name, const char *value) {
    (void)c, (void)value;
    dtrt_error("%s is not available in this version", name);
    return ST_USAGE;
}

/* Options that take a file name: which field. */
#define FILE_OPTION(field)                                                                         \
    static Status set_##field(Parse *c, const char *name, const char *value) {                     \
        if (!*value) return usage(name, value, "a file name");                                     \
        c->o->field = value;                                                                       \
        return ST_OK;                                                                              \
    }
FILE_OPTION(log)
FILE_OPTION(save)
FILE_OPTION(save_grads)
FILE_OPTION(export)
FILE_OPTION(profile)
FILE_OPTION(resume)

#define FLAG_OPTION(field)                                                                         \
    static Status set_##field(Parse *c, const char *name, const char *value) {                     \
        (void)name, (void)value;                                                                   \
        c->o->field = true;                                                                        \
        return ST_OK;                                                                              \
    }
FLAG_OPTION(batched)
FLAG_OPTION(drop_last)
FLAG_OPTION(synthetic)
FLAG_OPTION(json)
FLAG_OPTION(hard)
FLAG_OPTION(help)
FLAG_OPTION(check_grad)

static const struct {
    const char *name, *arg; /* arg NULL: a flag */
    Setter *set;
    const char *help; /* NULL: not listed */
} table[] = {
    {"--data", "FILE", set_data,
     "training data: .npz with arrays named as the inputs and the target; or .npy, IDX (MNIST, .gz "
     "too), CIFAR binary, token files; several files with commas, NAME=FILE too"},
    {"--batched", NULL, set_batched, "the first axis of every array counts batches, not samples"},
    {"--synthetic", NULL, set_synthetic, "random data of the right shapes instead of --data"},
    {"--steps", "N", set_steps, "stop after N steps, those before --resume included"},
    {"--epochs", "N", set_epochs,
     "stop after N epochs (default 1), those before --resume included"},
    {"--lr", "X[,X...]", set_lr, "learning rate, or one per step (the last one stays)"},
    {"--schedule", "KIND", set_schedule,
     "constant (default), linear or cosine: down to 0 at the last step"},
    {"--warmup", "N", set_warmup, "raise the learning rate from 0 over N steps"},
    {"--momentum", "X", set_momentum, "sgd: momentum"},
    {"--nesterov", NULL, set_nesterov, "sgd: Nesterov momentum"},
    {"--weight-decay", "X", set_weight_decay, "weight decay"},
    {"--betas", "A/B", set_betas, "adam, adamw: decay rates of the moments"},
    {"--eps", "X", set_eps, "adam, adamw: added to the denominator"},
    {"--seed", "N", set_seed, "seed of shuffling, dropout and synthetic data (default 0)"},
    {"--shuffle", "on|off", set_shuffle, "order of samples (default on, off with --batched)"},
    {"--metric", "accuracy|none", set_metric, "default: accuracy for classification"},
    {"--threads", "N", set_threads, "at most the compiled number"},
    {"--budget", "SIZE", set_budget,
     "bytes (K, M, G) that the program may take; less than it was compiled for: dynamic mode"},
    {"--batch", "N", set_batch, "another batch than the compiled one: dynamic mode"},
    {"--dim", "NAME=N", set_dim, "another size of a symbolic dimension of the model: dynamic mode"},
    {"--drop-last", NULL, set_drop_last,
     "leave out the samples at the end of an epoch that are no whole batch"},
    {"--mode", "static|dynamic|auto", set_mode,
     "static: the compiled schedule or none; dynamic: one made at start; auto (default): dynamic "
     "where the compiled one does not fit"},
    {"--heuristic", "NAME", set_heuristic,
     "dynamic mode: dtr, dtr-eq, dtr-local, lru, size, msps, lookahead; auto (default): the best"},
    {"--graph", "on|off", set_graph,
     "GPU: capture the step once and replay it (default), or enqueue its operations one by one"},
    {"--save", "FILE", set_save, "write weights, statistics and optimizer state (safetensors)"},
    {"--save-every", "N", set_save_every, "write it every N steps, too"},
    {"--resume", "FILE", set_resume,
     "go on from a file of --save, or start from safetensors with weights only"},
    {"--export", "FILE", set_export, "write the trained model (ONNX, in inference form)"},
    {"--save-grads", "FILE", set_save_grads, "write the gradients of the first step (safetensors)"},
    {"--log", "FILE", set_log, "one JSON object per step"},
    {"--profile", "FILE", set_profile, "time of each node (JSON)"},
    {"--check-grad", NULL, set_check_grad,
     "compare the gradients of the first batch with finite differences in double precision"},
    {"--json", NULL, set_json, "a summary on the last line of stdout"},
    {"--hard", NULL, set_hard,
     "fill memory with NaN before and after its use (a test of the program)"},
    {"--help", NULL, set_help, "this text"},
    {"--val", "FILE", set_unavailable, NULL},
};
#define NOPTION (sizeof table / sizeof *table)

void dtrt_options_help(const DtrtProgram *p, const char *argv0) {
    printf("%s: trains %s (batch %lld, loss %s, optimizer %s, lr %g) in %s\n\n", argv0, p->model,
           (long long)dtrt_program_batch(p), p->loss_kind, p->optimizer, (double)p->lr,
           dtrt_size_str(p->persistent_bytes + p->plan.arena_bytes));
    printf("usage: %s --data FILE [options]\n", argv0);
    for (size_t i = 0; i < NOPTION; i++) {
        char left[40];
        if (!table[i].help) continue;
        snprintf(left, sizeof left, "%s %s", table[i].name, table[i].arg ? table[i].arg : "");
        printf("  %-24s %s\n", left, table[i].help);
    }
    printf("\narrays expected in the data file:\n");
    for (uint32_t i = 0; i < p->ntensor; i++) {
        const DtrtTensor *t = &p->tensor[i];
        static const char *const type[] = {"float32", "float64", "int64", "int32", "uint8", "bool"};
        if (t->role != DTRT_INPUT && t->role != DTRT_TARGET) continue;
        printf("  %s %s %s%s\n", dtrt_name_str(t->name), type[t->type],
               dtrt_shape_str(t->rank ? t->rank - 1 : 0, t->dim + 1, "N"),
               t->role == DTRT_TARGET ? " (target)" : "");
    }
    printf("\nexit status: 0 done, 1 model or data at fault, 2 usage, 3 budget, 4 machine, 5 "
           "diverged\n");
}

static Status parse_one(Parse *c, int argc, char **argv, int *i) {
    const char *arg = argv[*i], *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    for (size_t k = 0; k < NOPTION; k++) {
        const char *value = NULL;
        if (strlen(table[k].name) != n || strncmp(table[k].name, arg, n)) continue;
        if (!table[k].arg && eq) return usage(table[k].name, eq + 1, "no value");
        if (table[k].arg && eq) value = eq + 1;
        if (table[k].arg && !eq) {
            if (*i + 1 >= argc) {
                dtrt_error("%s needs a value: %s", arg, table[k].arg);
                return ST_USAGE;
            }
            value = argv[++*i];
        }
        return table[k].set(c, table[k].name, value);
    }
    dtrt_error("unknown option %s", dtrt_name_str(arg));
    dtrt_hint("%s --help lists the options", argv[0]);
    return ST_USAGE;
}

/* The same regular file, by whatever path; what is not there yet, by its name. */
static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    bool here = !stat(a, &x), there = !stat(b, &y);
    if (!here && !there) return !strcmp(a, b);
    return here && there && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* No output replaces the data, the program or another output. --save over --resume is usual. */
static Status check_files(const Options *o) {
    const struct {
        const char *name, *file;
    } x[] = {{"--data", o->data},       {"this program", "/proc/self/exe"},
             {"--resume", o->resume},   {"--save", o->save},
             {"--export", o->export},   {"--save-grads", o->save_grads},
             {"--profile", o->profile}, {"--log", o->log}};
    enum { COUNT = sizeof x / sizeof *x, RESUME = 2, SAVE = 3 };
    for (int i = SAVE; i < COUNT; i++)
        for (int k = 0; k < i; k++) {
            if (!x[i].file || !x[k].file || (i == SAVE && k == RESUME)) continue;
            if (!is_same_file(x[i].file, x[k].file)) continue;
            dtrt_error("%s %s would overwrite %s", x[i].name, dtrt_name_str(x[i].file), x[k].name);
            return ST_USAGE;
        }
    return ST_OK;
}

static Status check_together(const DtrtProgram *p, const Options *o) {
    const char *fault = NULL;
    if (o->data && o->synthetic) fault = "--data and --synthetic exclude each other";
    if (!o->data && !o->synthetic) fault = "no data: give --data FILE, or --synthetic";
    if (o->steps && o->epochs) fault = "--steps and --epochs exclude each other";
    if (o->synthetic && o->epochs) fault = "--synthetic data has no epochs: give --steps";
    if (o->synthetic && o->batched) fault = "--batched describes a data file, not --synthetic";
    if (o->save_every && !o->save) fault = "--save-every needs --save FILE";
    if (o->nlr > 1 && (o->schedule || o->warmup))
        fault = "a list of learning rates is a schedule of its own: no --schedule, no --warmup";
    if (o->export && !p->npiece) {
        dtrt_error("--export: this program cannot write its model: %s",
                   p->no_export ? p->no_export : "it has no file");
        dtrt_hint("--save writes the weights, by their names in the model");
        return ST_USAGE;
    }
    if (!fault) return ST_OK;
    dtrt_error("%s", fault);
    return ST_USAGE;
}

Status dtrt_options_parse(const DtrtProgram *p, int argc, char **argv, Options *o) {
    Parse c = {p, o};
    const char *env = getenv("DTRT_HARD");
    bool shuffle_given = false;
    *o = (Options){.momentum = p->momentum,
                   .weight_decay = p->weight_decay,
                   .beta1 = p->beta1,
                   .beta2 = p->beta2,
                   .eps = p->eps,
                   .nesterov = p->nesterov,
                   .threads = p->threads,
                   .heuristic = "auto"};
#ifdef DTRC_HARD
    o->hard = true;
#endif
    if (env) o->hard = *env && strcmp(env, "0");
    o->accuracy = p->nclass > 0 && p->logits_storage >= 0;
    for (int i = 1; i < argc; i++) {
        shuffle_given |= !strncmp(argv[i], "--shuffle", 9);
        Status st = parse_one(&c, argc, argv, &i);
        if (st) return st;
    }
    if (o->help) return ST_OK;
    if (!shuffle_given) o->shuffle = !o->batched;
    if (!o->nlr) {
        Status st = set_lr(&c, "--lr", "0");
        if (st) return st;
        o->lr[0] = p->lr;
    }
    Status st = check_together(p, o);
    return st ? st : check_files(o);
}
