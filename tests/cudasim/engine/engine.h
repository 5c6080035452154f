/* engine.h - the simulator inside: one launch at a time, in `simt_now`.
 *
 * A kernel with barriers or warp collectives, and every checked kernel, runs one fiber a CUDA
 * thread (fiber.c). A fiber runs until it waits; the scheduler (launch.c) then takes the next one
 * that can run. What lanes do together is in collect.c, what is checked at each access in check.c,
 * who touched a word before in shadow.c. */
#ifndef ENGINE_H
#define ENGINE_H

#include "simt_device.h"

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / 32 };

typedef enum { FIBER_READY, FIBER_AT_BARRIER, FIBER_AT_WARP, FIBER_DONE } FiberState;

typedef struct {
    SimtThread t; /* first: a SimtThread of a fiber is the fiber */
    void *context;
    uint8_t *stack;
    bool started;  /* has a context to go on with */
    uint32_t line; /* where it waits */
    /* In: what a lane brought to a collective; out: what it takes away. */
    int mode;
    uint32_t value, b, c, result;
    bool flag;
} Fiber;

typedef enum { SHARED_UNWRITTEN, SHARED_WRITTEN, SHARED_GAP } SharedState;

typedef enum { GROUP_SYNC, GROUP_SHUFFLE, GROUP_BALLOT, GROUP_REDUCE } GroupKind;

/* Lanes that have come to one collective; kept under the lowest lane of its mask. */
typedef struct {
    GroupKind kind;
    uint32_t line, mask, arrived;
} Group;

typedef struct {
    Group group[32];
    uint32_t present, done; /* lanes that exist; that have ended */
    uint32_t epoch;         /* grows when all lanes meet at a __syncwarp */
} Warp;

typedef struct {
    const SimtKernel *kernel;
    const SimtOptions *options;
    SimtFindings *found;
    SimtDim grid, block, block_id;
    uint32_t threads;      /* of a block */
    uint32_t shared_bytes; /* static and dynamic */
    uint64_t block_number;
    uint32_t launch;     /* counts launches: stamps of shadow cells */
    uint32_t epoch;      /* counts barriers within a block */
    uint32_t live;       /* threads of the block that have not ended */
    uint32_t at_barrier; /* of these, waiting there */
    uint32_t barrier_votes,
        barrier_result; /* of those that wait; of the last one that was passed */
    bool stop;          /* give up the grid */
    uint64_t findings;
    uint8_t *shared, *params;
    uint8_t *shared_state; /* checked: a SharedState for each byte */
    uint8_t *shared_fresh; /* of a block that starts */
    Fiber *fibers;
    Warp warps[MAX_WARPS];
    Fiber *current;             /* NULL: the scheduler runs */
    uint8_t state[MAX_THREADS]; /* FiberState of each */
} Launch;
extern Launch simt_now;
extern const SimtCalls simt_calls;

/* findings.c: a sentence about what thread t does in this line (of another one: t of any fiber). */
void simt_report(const SimtThread *t, SimtKind kind, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* fiber.c; fiber.h has what is inlined */
bool fibers_ready(uint32_t n, uint32_t local_bytes); /* simt_now.fibers has n; false: no memory */
void fiber_start(Fiber *f);
_Noreturn void fiber_end(void);                                    /* from inside: gives it up */
bool fiber_owns(const Fiber *f, uint64_t address, uint32_t bytes); /* on its stack? */

/* collect.c */
uint32_t simt_barrier(SimtThread *t, bool value, uint32_t line);
void simt_warp_sync(SimtThread *t, uint32_t mask, uint32_t line);
uint32_t simt_shuffle(SimtThread *t, int mode, uint32_t value, uint32_t b, uint32_t c,
                      uint32_t mask, uint32_t line, bool *inside);
uint32_t simt_ballot(SimtThread *t, bool value, uint32_t mask, uint32_t line, uint32_t *voters);
uint32_t simt_reduce(SimtThread *t, int op, int is_signed, uint32_t value, uint32_t mask,
                     uint32_t line);
void thread_ended(Fiber *f); /* told by the scheduler */
bool release_barrier(void);  /* all live threads wait there: lets them go on */
void report_stuck(void);     /* nobody can run */

/* check.c, shadow.c */
const char *shared_name(uint64_t offset, char *text, size_t size); /* "tile + 12" */
void *simt_access(SimtThread *t, int how, int space, uint64_t address, uint32_t bytes,
                  uint32_t line);
void shadow_touch(SimtThread *t, bool shared, int how, uint64_t address, uint32_t bytes,
                  uint32_t line);
void shadow_end(void); /* after a launch */

#endif
