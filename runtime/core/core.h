/* core.h - what the files of runtime/core and runtime/ref share: the state of one run, its options,
 * and the functions of each file. Programs see dtrt.h only.
 *
 * Functions that can fail return a Status after they have printed an error; 0 is success. Memory is
 * allocated before the first step; inside a step nothing is. */
#ifndef DTRT_CORE_H
#define DTRT_CORE_H

#include <setjmp.h>
#include <stdio.h>

#include "dtr.h"
#include "dtrt.h"

typedef enum {
    ST_OK,
    ST_DATA, /* the model or the data is at fault */
    ST_USAGE,
    ST_BUDGET,  /* the budget cannot be met */
    ST_MACHINE, /* no memory, disk full, a library that fails */
    ST_DIVERGED
} Status;

#define DTRT_MAX_RANK 8
#define DTRT_ALIGN 256     /* of offsets in the block, as the planner has it */
#define MAX_LOSSES 1000    /* kept for the summary */
#define MAX_TIMES 65536    /* step times kept for the median */
#define PROFILE_SAMPLES 64 /* times kept per node */

typedef enum { RATE_CONSTANT, RATE_LINEAR, RATE_COSINE } RateKind;
typedef enum { MODE_AUTO, MODE_STATIC, MODE_DYNAMIC } Mode;

typedef struct Runtime Runtime;

/* ---- device.c: memory that the host may not see ------------------------------------------- */
/* What a target with memory of its own gives; all but close end the run or return a Status after a
 * message. */
typedef struct DtrtDevice {
    Status (*open)(Runtime *rt); /* libraries, context, the program's kernels */
    void (*close)(Runtime *rt);
    uint64_t (*left)(void);          /* bytes of memory that nobody has taken */
    void *(*alloc)(uint64_t bytes);  /* zeros; NULL: there is not so much */
    void (*release)(void *at);       /* NULL is fine */
    void *(*alloc_host)(uint64_t n); /* memory of the host that copies are fast from; NULL: none */
    void (*release_host)(void *at);
    Status (*read)(void *host, const void *at, uint64_t n); /* after all work so far */
    Status (*write)(void *at, const void *host, uint64_t n);
    Status (*step)(Runtime *rt);                               /* dtrt_step_run */
    void (*run)(Runtime *rt, uint32_t node, void *const *ptr); /* one node, and waits for it */
} DtrtDevice;
/* Opens the program's device, if it has one. */
Status dtrt_device_open(Runtime *rt);
void dtrt_device_close(Runtime *rt);
/* Places for the data of a step: in the block, or buffers that the device's step copies from. After
 * the block is there. */
Status dtrt_staging_open(Runtime *rt);
void dtrt_staging_free(Runtime *rt);
uint8_t *dtrt_staging(const Runtime *rt, const DtrtTensor *t);
/* The data of the next step, while the device works on this one; and of a step, unless that was
 * done before. */
void dtrt_stage_ahead(Runtime *rt);
Status dtrt_stage(Runtime *rt, uint64_t step);
/* n bytes at `at` in device memory where the host can read them: `at` itself, or a copy in *own
 * (grown as need be; the caller frees it). NULL after a message. */
const void *dtrt_look(const Runtime *rt, const void *at, uint64_t n, void **own, uint64_t *room);

/* ---- options.c ---------------------------------------------------------------------------- */
typedef struct {
    const char *data, *log, *save, *save_grads, *export, *profile, *resume; /* NULL: not given */
    bool batched, synthetic, json, check_grad, hard, help;
    bool shuffle, accuracy;
    int64_t steps, epochs; /* 0: not given */
    int64_t save_every, warmup;
    RateKind schedule;
    bool seed_given;
    uint32_t nlr;
    float *lr; /* by step; the last one stays */
    float momentum, weight_decay, beta1, beta2, eps;
    bool nesterov;
    uint64_t seed;
    int threads;
    uint64_t budget; /* 0: not given */
    int64_t batch;   /* 0: not given */
    uint32_t ndim;
    struct OptionDim {
        const char *text; /* NAME=N */
        int64_t value;
    } * dim;
    bool no_graph;  /* devices: --graph off */
    bool drop_last; /* the partial batch at the end of an epoch */
    Mode mode;
    const char *heuristic; /* of dynamic mode: a name of the policy, "lookahead", or "auto" */
} Options;
Status dtrt_options_parse(const DtrtProgram *p, int argc, char **argv, Options *o);
void dtrt_options_help(const DtrtProgram *p, const char *argv0);

/* ---- rate.c ---------------------------------------------------------------------------------- */
float dtrt_rate(const Options *o, uint64_t step, uint64_t steps); /* steps: of all training */

/* ---- tables.c ------------------------------------------------------------------------------ */
/* The program's tables agree with each other and with the block: after this nothing that reads them
 * checks an index. */
Status dtrt_tables_check(const DtrtProgram *p);

/* ---- zip.c -------------------------------------------------------------------------------- */
typedef struct {
    char *name;
    int method; /* 0 stored, 8 deflated */
    uint32_t crc;
    uint64_t packed, bytes; /* size in the file, size of the contents */
    uint64_t header;        /* offset of the local header */
} ZipEntry;
typedef struct {
    uint32_t n;
    ZipEntry *entry;
} Zip;
bool dtrt_is_zip(int fd);
Status dtrt_zip_read(int fd, const char *file, Zip *z); /* central directory, zip64 too */
void dtrt_zip_free(Zip *z);
/* Where the entry's bytes lie: in fd itself when stored, else inflated into an unlinked temporary
 * file. */
Status dtrt_zip_open(int fd, const char *file, const ZipEntry *e, int *out_fd, uint64_t *offset);
/* gzip file -> unlinked temporary file */
Status dtrt_gzip_open(int fd, const char *file, int *out_fd);

/* ---- npy.c -------------------------------------------------------------------------------- */
typedef enum { D_U8, D_I8, D_U16, D_I16, D_U32, D_I32, D_I64, D_F32, D_F64, D_BOOL } DataType;
size_t dtrt_data_size(DataType t);
const char *dtrt_data_type_name(DataType t); /* numpy's name */
typedef struct {
    DataType type;
    int rank; /* may be DTRT_MAX_RANK + 1: batches of samples */
    int64_t dim[DTRT_MAX_RANK + 1];
    uint64_t offset, bytes; /* of the elements, from the start of the entry */
} NpyHeader;
/* Reads the header at offset of fd; the entry has `size` bytes. what: file and array, for messages.
 */
Status dtrt_npy_read(int fd, uint64_t offset, uint64_t size, const char *what, NpyHeader *h);

/* ---- dataset.c: any data file as named arrays of rows -------------------------------------- */
typedef struct {
    int fd;
    uint64_t offset, rows;
} DataPart;
typedef struct {
    const char *name; /* NULL while it waits for one by position */
    const char *file;
    DataType type;
    int rank; /* without the first axis, which counts rows */
    int64_t dim[DTRT_MAX_RANK];
    uint64_t rows, row_bytes, stride;
    bool raw; /* IDX, CIFAR, tokens: the bytes of a row count, not its axes */
    uint32_t npart;
    DataPart *part;
} DataArray;
typedef struct {
    uint32_t n, nfd;
    DataArray *array;
    int *fd;
    char *spec;    /* own copy of --data */
    char *listing; /* names of the arrays seen, for messages */
} Dataset;
/* `spec` is FILE, or a comma list of FILE or NAME=FILE. Arrays without a name get those of the
 * program's inputs and then of its target, in order. Equal names in several files follow one
 * another. */
Status dtrt_dataset_open(const DtrtProgram *p, const char *spec, Dataset *d);
void dtrt_dataset_free(Dataset *d);
/* Rows r .. r+n into buf; they lie in one part (dtrt_dataset_span says how many do). */
Status dtrt_dataset_rows(const DataArray *a, uint64_t r, uint64_t n, void *buf);
uint64_t dtrt_dataset_span(const DataArray *a, uint64_t r);
/* "float32 [100,3,32,32]" */
const char *dtrt_dataset_str(const DataArray *a);

/* ---- formats.c: IDX, CIFAR binary, token files --------------------------------------------- */
bool dtrt_is_idx(int fd);
Status dtrt_idx_open(int fd, const char *file, DataArray *a, DataPart *part);
/* CIFAR and token files have no magic number: the program's inputs tell what is expected. */
bool dtrt_is_cifar(const DtrtProgram *p, int fd);
void dtrt_cifar_open(const DtrtProgram *p, int fd, DataArray a[2], DataPart part[2]);
bool dtrt_is_tokens(const DtrtProgram *p, int fd);
Status dtrt_tokens_open(const DtrtProgram *p, int fd, const char *file, DataArray a[2],
                        DataPart part[2]);

/* ---- loader.c: rows -> staged batches ------------------------------------------------------ */
typedef struct {
    int tensor;
    const DataArray *array; /* NULL: synthetic */
    bool divide;            /* uint8 pixels: by 255 */
    int64_t limit;          /* synthetic integers are below it */
} Feed;
typedef struct {
    Dataset data;
    uint32_t nfeed;
    Feed *feed;
    uint64_t rows, batch, steps_per_epoch; /* batch: rows per step */
    uint64_t tail;                         /* rows of the last step of an epoch, or 0 */
    uint64_t epoch;                        /* that order belongs to */
    uint32_t *order;                       /* shuffled rows, or NULL */
    uint8_t *scratch;                      /* raw rows on their way to a conversion */
    uint64_t scratch_bytes;
} Loader;

Status dtrt_loader_open(Runtime *rt);
void dtrt_loader_free(Loader *l);
/* Fills inputs and targets of the block for this step (0-based). */
Status dtrt_loader_stage(Runtime *rt, uint64_t step);
uint64_t dtrt_loader_epoch(const Loader *l, uint64_t step);
uint64_t dtrt_loader_position(const Loader *l, uint64_t step); /* samples of its epoch before it */
bool dtrt_loader_is_tail(const Loader *l, uint64_t step);
const DtrtTensor *dtrt_program_input(const DtrtProgram *p);  /* the first; NULL: none */
const DtrtTensor *dtrt_program_target(const DtrtProgram *p); /* NULL when the loss has none */
int64_t dtrt_program_batch(const DtrtProgram *p); /* first axis of the first input; 0: none */

/* ---- datacheck.c --------------------------------------------------------------------------- */
Status dtrt_data_check(Runtime *rt); /* names, shapes, types, lengths */
Status dtrt_labels_scan(Runtime *rt);
Status dtrt_labels_check(const DtrtProgram *p, const DataArray *a, DtrtType type, const void *v,
                         uint64_t row, uint64_t n);
/* n elements; divide: uint8 pixels to floats in [0,1] */
bool dtrt_same_type(DataType t, DtrtType want); /* no conversion needed */
void dtrt_convert(DataType type, const void *src, DtrtType want, void *dst, uint64_t n,
                  bool divide);

/* ---- synthetic.c --------------------------------------------------------------------------- */
int64_t dtrt_synthetic_limit(const DtrtProgram *p, int tensor);
void dtrt_synthetic_fill(Runtime *rt, const Feed *f, uint64_t step);

/* ---- resize.c: the sizes of a run ------------------------------------------------------------ */
#define MAX_SYMBOLS 8
/* The program's tables for other sizes than the compiled ones. */
typedef struct {
    DtrtProgram p;
    DtrtTensor *tensor;
    DtrtStorage *storage;
    DtrtNode *node;
    int64_t dim[MAX_SYMBOLS];
} Sized;
Status dtrt_sizes_open(Runtime *rt); /* --batch, --dim; before the library's objects are made */
/* The library's objects, and whether they fit the plan: sets rt->p and rt->why_resized. */
Status dtrt_sizes_needs(Runtime *rt);
/* The partial batch of `rows`: Runtime.tail, unless a note says why it is left out. */
Status dtrt_sizes_tail(Runtime *rt, uint64_t rows);
void dtrt_sizes_free(Runtime *rt);
/* A constant of the model that has another size in this run: cut, or repeated. */
bool dtrt_is_resized(const Runtime *rt, uint32_t tensor);
Status dtrt_constant_load(Runtime *rt, uint32_t tensor, uint8_t *to);

/* ---- dynamic.c: a schedule made at run time ------------------------------------------------- */
typedef struct {
    DtrtSchedule schedule;     /* owned */
    const char *heuristic;     /* that made it */
    uint64_t cost_ns, base_ns; /* of a step, and of one without recomputation, by the cost model */
    uint32_t decisions;        /* searches for something to evict, in the play that made it */
    uint64_t decide_ns;        /* their time */
    uint64_t plan_ns;          /* of all plays */
} Dynamic;
/* The cheapest schedule found for `limit` bytes, persistent ones included. ST_BUDGET without a
 * message when there is none. Release with dtrt_dynamic_free. */
Status dtrt_dynamic_make(const DtrtProgram *p, uint64_t limit, const char *heuristic, Dynamic *out);
void dtrt_dynamic_free(Dynamic *d);
/* smallest: a limit for which dtrt_dynamic_make succeeds, within 1 % of where its search ends;
 * floor: no schedule exists below it. */
Status dtrt_dynamic_bounds(const DtrtProgram *p, const char *heuristic, uint64_t *smallest,
                           uint64_t *floor);
static inline double dtrt_dynamic_overhead(const Dynamic *d) {
    return d->base_ns ? (double)d->cost_ns / (double)d->base_ns - 1 : 0;
}

/* ---- choose.c ------------------------------------------------------------------------------- */
/* Sets rt->s, rt->limit and maps the block. */
Status dtrt_choose(Runtime *rt);

/* ---- resume.c ---- */
typedef struct {
    int fd;
    uint64_t bytes, start; /* of the file; of the first tensor in it */
    struct cJSON *header;
} Resume;
/* Before the context is set: reads the header; sets first_step, and the seed unless it was given.
 */
Status dtrt_resume_open(Runtime *rt);
Status dtrt_resume_load(Runtime *rt);      /* into the block */
void dtrt_resume_notes(const Runtime *rt); /* what is not as when the file was written */
void dtrt_resume_free(Runtime *rt);

/* ---- block.c: the device block ------------------------------------------------------------- */
bool dtrt_block_map(Runtime *rt);    /* of the size that rt->s needs; false: the machine has none */
Status dtrt_block_load(Runtime *rt); /* the initial weights */
void dtrt_block_free(Runtime *rt);
uint64_t dtrt_type_bytes(DtrtType t);
uint64_t dtrt_tensor_count(const DtrtTensor *t);
uint64_t dtrt_tensor_plain_bytes(const DtrtTensor *t);
/* What a bounce buffer needs: tensors pass through it that are packed or not in the host's memory.
 */
uint64_t dtrt_bounce_bytes(const Runtime *rt);
/* Where the host writes the plain row-major bytes of a tensor; dtrt_tensor_put brings them to their
 * place in the block. */
void *dtrt_tensor_room(const Runtime *rt, const DtrtTensor *t, void *bounce);
Status dtrt_tensor_put(Runtime *rt, const DtrtTensor *t, void *room);
/* Plain row-major bytes of a tensor's contents at `at` in device memory, there or in the bounce
 * buffer. NULL after a message. */
const void *dtrt_tensor_plain(const Runtime *rt, const DtrtTensor *t, const void *at, void *bounce);
bool dtrt_read_at(int fd, void *buf, uint64_t n, uint64_t offset); /* all n bytes */
/* Reads from the payload of the executable. */
Status dtrt_payload_open(Runtime *rt);
Status dtrt_payload_read(Runtime *rt, uint64_t offset, void *buf, uint64_t bytes);
uint64_t dtrt_resident_bytes(void);
/* Grows with what libraries take of the memory that the block is in. */
uint64_t dtrt_taken_bytes(const Runtime *rt);

/* ---- step.c -------------------------------------------------------------------------------- */
typedef struct {
    uint64_t runs, min_ns;
    uint64_t ns[PROFILE_SAMPLES];
} ProfileSlot;
/* What a step of one size follows. */
typedef struct {
    const DtrtProgram *p;
    const DtrtSchedule *s;
    void **ptr;
    uint32_t loss_step, logits_step;
    const float *loss_at, *logits_at;
} Stage;
struct Runtime {
    const DtrtProgram *compiled; /* as the executable has it */
    const DtrtProgram *p;        /* with the sizes of this run */
    const DtrtSchedule *s;       /* that steps follow: p->plan or dynamic.schedule */
    Sized size[2];               /* of all batches but the partial one; of that */
    Stage stage[2];              /* the one that is not in use (ctx.slot says which is) */
    bool tail;                   /* stage 1 is there */
    Dynamic tail_dynamic;        /* its schedule, when that of stage 0 has no room for it */
    char why_resized[200];       /* why the compiled schedule does not hold; "": it does */
    bool is_dynamic;
    Dynamic dynamic;
    uint64_t limit; /* bytes that the block may have */
    Resume resume;
    uint64_t first_step; /* steps that were done before this run */
    Options o;
    DtrtCtx ctx;
    uint8_t *block; /* in device memory */
    /* devices: where the data of a step is put, per tensor; one is filled while a step copies from
     * the other */
    uint8_t **staging[2];
    uint8_t *staged; /* what they point into */
    int half;        /* the one that was filled last */
    bool ahead;      /* with the data of step ahead_step, before its time; how that ended */
    uint64_t ahead_step, steps; /* steps: of all training */
    Status ahead_status;
    uint64_t block_bytes, library_bytes;
    char device[160]; /* that steps run on; "": the processor */
    int exe;          /* own executable, or -1 */
    uint64_t payload, payload_bytes;
    void **ptr;      /* parallel to s->addr */
    int32_t running; /* node in progress, or -1 */
    jmp_buf fail;    /* where a call ends that cannot go on (dtrt_fail) */
    Status failed;   /* and why */
    /* indices of the steps after which loss and model output are there (UINT32_MAX: it never is),
     * and where */
    uint32_t loss_step, logits_step;
    const float *loss_at, *logits_at;
    Loader loader;
    /* gradients of one step, plain: called right before each update */
    Status (*on_grad)(Runtime *rt, int tensor, const float *g);
    void *grad_user;
    void *bounce;         /* for unpacking inside a step, when on_grad is set */
    ProfileSlot *profile; /* one per node, or NULL */
    float loss;
    uint64_t hits, counted; /* accuracy of this step */
};
Status dtrt_step_open(Runtime *rt);
void dtrt_step_use(Runtime *rt, int slot); /* the sizes of the next step */
Status dtrt_step_run(Runtime *rt);
void dtrt_step_free(Runtime *rt);
/* Bytes of operand i of a node; its workspace is the last. */
uint64_t dtrt_operand_bytes(const DtrtProgram *p, const DtrtNode *n, uint32_t i);
/* Hard mode: fills what the node will write, but for what it takes over, with NaN. */
typedef void DtrtFill(const Runtime *rt, uint64_t offset, uint64_t bytes);
void dtrt_hard_fill(const Runtime *rt, const DtrtNode *n, const uint64_t *addr, DtrtFill *fill);
/* The gradient of a parameter at `at` is wanted outside (on_grad): plain, in the host's memory. */
Status dtrt_gradient_out(Runtime *rt, const DtrtNode *n, const void *at);

/* ---- diagnose.c ------------------------------------------------------------------------------ */
bool dtrt_all_finite(const float *x, uint64_t n);
/* Reruns the pure nodes of steps [0, end) and reports the first one that made a non-finite value.
 * what: "the loss", "the gradient of ...". */
Status dtrt_diagnose(Runtime *rt, uint32_t end, const char *what);

/* ---- metric.c -------------------------------------------------------------------------------- */
/* Scores [outer, n, inner]. */
void dtrt_metric_shape(const DtrtProgram *p, int64_t *outer, int64_t *n, int64_t *inner);
void dtrt_metric_accuracy(Runtime *rt);

/* ---- outfile.c: a file that appears whole or not at all ---- */
typedef struct {
    const char *path;
    char *tmp; /* NULL: written in place (a device or a pipe) */
    int fd;
    bool failed; /* reported already */
    size_t fill;
    char *buf;
} OutFile;
Status dtrt_out_check(const char *path); /* could it be written? leaves nothing behind */
Status dtrt_out_open(OutFile *f, const char *path);
void dtrt_out_write(OutFile *f, const void *bytes, uint64_t n);
void dtrt_out_at(OutFile *f, uint64_t offset, const void *bytes, uint64_t n); /* in any order */
Status dtrt_out_commit(OutFile *f);
void dtrt_out_abort(OutFile *f);

void dtrt_out_forget(void); /* removes the temporary files of all open ones; async-signal-safe */

/* ---- fence.c: libraries that run out of memory ---- */
void dtrt_fence_open(void); /* from here on no library ends the program without a message */
void dtrt_fence_close(void);
/* Around calls that create or convert library objects. */
void dtrt_fence(bool on);

/* ---- checkpoint.c ---- */
enum { DTRT_SAVED_ROLES = 1 << DTRT_PARAM | 1 << DTRT_FROZEN | 1 << DTRT_BUFFER | 1 << DTRT_STATE };
/* Tensors of some roles (bit r: role r) under the unique names that files have for them. */
typedef struct {
    uint32_t n;
    int *tensor;
    char **name;
} TensorNames;
Status dtrt_names_open(const DtrtProgram *p, uint32_t roles, TensorNames *x);
void dtrt_names_free(TensorNames *x);
const char *dtrt_safetensors_type(DtrtType t);
/* A bounce buffer for use between steps: the arena when the host sees it and it is large enough.
 * free(*own) later. NULL after a message. */
void *dtrt_idle_bounce(Runtime *rt, void **own);
/* safetensors files: weights, statistics and optimizer state; gradients of one step. */
Status dtrt_checkpoint_save(Runtime *rt, const char *path, uint64_t steps);
Status dtrt_grads_open(Runtime *rt, const char *path);
Status dtrt_grads_close(Runtime *rt,
                        Status st); /* st: how the step ended; the file stays only if well */
Status dtrt_weights_sha256(Runtime *rt, char hex[65]);

/* ---- export.c: the model's file with the trained weights ---- */
Status dtrt_export(Runtime *rt, const char *path);

/* ---- json.c -------------------------------------------------------------------------------- */
void dtrt_json_string(FILE *f, const char *s);
/* %.9g, or null: JSON has no NaN */
void dtrt_json_float(FILE *f, double x);

/* ---- sha256.c ---- */
typedef struct {
    uint32_t h[8];
    uint64_t n;
    uint8_t part[64];
} Sha256;
void dtrt_sha256_init(Sha256 *s);
void dtrt_sha256_add(Sha256 *s, const void *bytes, uint64_t n);
void dtrt_sha256_hex(Sha256 *s, char hex[65]);

/* ---- report.c: progress line, log, summary, profile ---- */
typedef struct {
    uint64_t first, steps; /* steps done before; of all training */
    uint64_t done, samples, start_ns, last_ns, epoch_hits, epoch_counted;
    uint64_t nloss;
    float loss[MAX_LOSSES];
    float ms[MAX_TIMES], data_ms[MAX_TIMES]; /* rings */
    FILE *log;
    bool tty;
} Report;
uint64_t dtrt_now_ns(void);
Status dtrt_report_open(Runtime *rt, Report *r, uint64_t steps);
Status dtrt_report_step(Runtime *rt, Report *r, uint64_t step, uint64_t step_ns, uint64_t data_ns);
Status dtrt_report_close(Runtime *rt, Report *r);
Status dtrt_report_summary(Runtime *rt, Report *r);
Status dtrt_report_profile(Runtime *rt);

/* ---- message.c ---- */
void dtrt_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void dtrt_hint(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void dtrt_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The progress line on a terminal stays open; a message ends it first. */
void dtrt_line_is_open(bool open);
void dtrt_end_line(void);
/* A name from a model or a file, quoted, without control characters, cut when long. One of 8 static
 * buffers. */
const char *dtrt_name_str(const char *s);
const char *dtrt_size_str(uint64_t bytes); /* "3.91 GiB"; static buffers as well */
const char *dtrt_shape_str(int rank, const int64_t *dim,
                           const char *first);            /* "[N,3,32,32]" with first "N" */
bool dtrt_mul_u64(uint64_t a, uint64_t b, uint64_t *out); /* false on overflow */
Status dtrt_no_memory(uint64_t bytes);

/* ---- runtime/ref: checkgrad.c ---- */
Status dtrt_check_grad(Runtime *rt);

#endif
