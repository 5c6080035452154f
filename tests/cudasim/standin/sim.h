/* sim.h - inside of the stand-in libcuda: what its files, and the stand-in libcublas and libcudnn,
 * share. Programs under test see NVIDIA's headers and watch.h only.
 *
 * Device memory is memory of the process. Work is queued per stream and runs when a synchronisation
 * forces it, in an order that DTRC_SIM_SEED chooses among those that CUDA allows.
 *
 * Invariants:
 *  1. One lock (SIM_ENTER) is held in every function of the API; all below run under it.
 *  2. Queued work owns all that it needs: handles, modules and descriptors may go meanwhile.
 *  3. A finding is never only printed: it makes the process end with SIM_EXIT_STATUS.
 */
#ifndef SIM_H
#define SIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "watch.h" /* of runtime/cuda */

enum { SIM_EXIT_STATUS = 86, SIM_STREAMS = 64 };

/* ---- report.c: options, findings, planned failures, the end of the process ---- */

typedef struct {
    uint64_t seed;     /* DTRC_SIM_SEED: 0 eager, odd: any stream next, even: only what is needed */
    bool check;        /* DTRC_SIM_CHECK: every access of kernels is checked */
    uint64_t memory;   /* DTRC_SIM_MEMORY: bytes of the device */
    int capability;    /* DTRC_SIM_CC: 90 */
    const char *cache; /* DTRC_SIM_CACHE: folder for translated modules */
} SimEnv;

const SimEnv *sim_options(void);
void sim_lock(void);
void sim_unlock(int *unused);
__attribute__((format(printf, 1, 2))) void sim_finding(const char *format, ...);
/* Counts the call; true when DTRC_SIM_FAIL says that this one fails. Writes the trace. */
bool sim_call(const char *function);
bool sim_drops_wait(void); /* this cuStreamWaitEvent is to be forgotten: DTRC_SIM_DROP */
/* Counts living objects: +1 made, -1 gone. What is left at the end is a finding. */
void sim_object(const char *kind, int change);
/* What an API function made and destroyed stays where it was, so that a later use of it is seen. */
void sim_keep(void *object);
/* Pseudo-random number below n, from the seed. */
uint32_t sim_random(uint32_t n);

/* First line of an API function: takes the lock for its scope, and returns `failure` when this call
 * is to fail. SIM_ENTER_SURE: for those that release things, which no test lets fail. */
#define SIM_ENTER_SURE                                                                             \
    int sim_guard_ __attribute__((cleanup(sim_unlock))) = (sim_lock(), 0);                         \
    (void)sim_guard_
#define SIM_ENTER(failure)                                                                         \
    SIM_ENTER_SURE;                                                                                \
    if (sim_call(__func__)) return failure

/* ---- memory.c: allocations ---- */

typedef struct {
    uint64_t at, bytes;
    uint64_t map, map_bytes; /* with guard pages around */
    uint32_t id;             /* order of allocation, for messages */
    bool host;               /* pinned memory */
    bool freed;
    bool lent;         /* a variable of a module: not from cuMemAlloc */
    uint64_t *written; /* in checked runs, of device memory: a bit for each word of 4 bytes */
} SimAlloc;

/* The allocation that holds [at, at + bytes), freed ones too; NULL when there is none. */
SimAlloc *sim_alloc_at(uint64_t at, uint64_t bytes);
/* "buffer 3 (4096 bytes) +512", for messages; valid until the fourth next call. */
const char *sim_place(uint64_t at);
/* Memory of others that counts as a device buffer from here on, or no more. */
void sim_lend(uint64_t at, uint64_t bytes);
void sim_take_back(uint64_t at);
/* Checked runs know for each word of device memory whether something wrote it. */
void sim_mark(uint64_t at, uint64_t bytes, bool written);
bool sim_is_written(uint64_t at, uint64_t bytes);
void sim_memory_report(void); /* leaks */
uint64_t sim_memory_peak(void);
/* Memory that contexts and libraries take for themselves: counts as used. */
void sim_overhead(int64_t bytes);

/* ---- pinned.c: pinned memory under queued work ---- */

typedef struct {
    uint64_t sum; /* of the bytes when the work was queued */
    bool summed;
    uint32_t pending; /* work queued with it, twice when a graph is launched twice */
} SimPin;

void sim_pin(SimPin *pin, uint64_t at, uint64_t bytes, bool write); /* the work is queued */
void sim_unpin_before(const SimPin *pin, const char *name, uint64_t at,
                      uint64_t bytes);                                /* it runs */
void sim_unpin(SimPin *pin, uint64_t at, uint64_t bytes, bool write); /* it ran */

/* ---- arena.c: live storages, steps, what work may touch ---- */

typedef struct SimStep SimStep; /* the ranges of one dtrt_watch_step; counted references */
SimStep *sim_step_hold(SimStep *step);
void sim_step_drop(SimStep *step);

typedef struct {
    uint64_t at, bytes;
    bool write;
    const char *what; /* "A of cublasSgemm" */
} SimRange;

/* Part of memory in which the answer is the same for every byte. */
typedef struct {
    uint64_t begin, end;
} SimSpan;

/* May work of `step` (NULL: not restricted) touch [at, at + bytes)? If not, *why says why. *span
 * gets the surroundings for which the answer holds when it is yes. */
bool sim_may_touch(const SimStep *step, uint64_t at, uint64_t bytes, bool write, SimSpan *span,
                   const char **why);
const char *sim_step_name(const SimStep *step); /* NULL without a step */
uint32_t sim_step_ranges(const SimStep *step, SimRange *ranges, uint32_t most);
void sim_arena_forget(uint64_t at, uint64_t bytes); /* the allocation is freed */

/* ---- race.c: order between streams ---- */

typedef struct {
    uint32_t at[SIM_STREAMS]; /* per stream: work up to here happened before */
} SimClock;

void sim_clock_join(SimClock *clock, const SimClock *other);
/* Work number `clock->at[stream]` of stream `stream` touches the range: a finding when earlier work
 * that it is not ordered with conflicts. */
void sim_race(uint32_t stream, const SimClock *clock, const char *name, uint64_t at, uint64_t bytes,
              bool write);
void sim_race_forget(uint64_t at, uint64_t bytes);

/* ---- stream.c: queues ---- */

typedef struct SimOp SimOp;

/* Work as a library hands it over. */
typedef struct {
    const char *name; /* text that lives forever */
    void (*run)(void *payload, SimOp *op);
    const void *payload; /* copied */
    size_t payload_bytes;
    const SimRange *ranges; /* exact; copied. Kernels have none: they are watched while they run */
    uint32_t nranges;
    bool watch; /* a call of watch.h: the ranges say what it orders, not what it touches */
} SimWork;

/* Checks the ranges and queues (or records) the work. */
CUresult sim_enqueue(CUstream stream, const SimWork *work);
const SimStep *sim_op_step(const SimOp *op);
/* A kernel that has no step touched this while it ran. */
void sim_op_touched(SimOp *op, uint64_t at, uint64_t bytes, bool write);
/* Work queued on the stream from here on has this step; takes the reference. */
void sim_stream_step(CUstream stream, SimStep *step);
/* Runs all queued work and lets the host wait for it: an implicit device synchronisation. */
void sim_drain(void);
/* Functions that a capture forbids ask this first. Else a finding, and the capture is void. */
bool sim_legal_in_capture(const char *function);

#endif
