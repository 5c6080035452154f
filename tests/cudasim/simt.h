/* simt.h - runs CUDA kernels on the CPU, for tests: what stand-ins of the driver and tests include.
 *
 * PTX text -> simt_load (translate to C, compile, open) -> SimtModule: kernels and variables.
 * simt_launch runs one grid to its end on the calling thread and reports what was wrong with it.
 *
 * Execution model: one CUDA thread after the other, each until it waits (barrier, warp collective)
 * or ends; one block after the other. Device pointers are host pointers. Shared memory holds 0xFF
 * (NaN) when a block starts. Results do not depend on timing, only on SimtOptions.
 *
 * Invariants:
 *  1. A launch without findings, of a kernel without data races, gives the same bits in every
 * order.
 *  2. Unchecked launches find bad launch parameters, divergence that blocks progress and deadlocks
 * only.
 *  3. After SIMT_LAUNCH nothing ran; after SIMT_SYNC or SIMT_DEADLOCK from a stuck block, the rest
 * of the grid did not run; after any other finding the run went on (bad reads give 0xFF bytes, bad
 *     writes are dropped).
 *  4. Not reentrant: one launch at a time in a process.
 */
#ifndef SIMT_H
#define SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct SimtThread SimtThread; /* one running CUDA thread: simt_device.h */
typedef struct SimtModule SimtModule;

typedef struct {
    uint32_t x, y, z;
} SimtDim;

typedef struct {
    uint32_t offset, bytes, align; /* within the parameter block */
} SimtParam;

typedef struct {
    const char *name; /* of a __shared__ array, as the compiler has it */
    uint32_t offset, bytes;
} SimtShared;

typedef struct {
    const char *name;
    const SimtParam *params;
    uint32_t nparams;
    uint32_t param_bytes;    /* of the whole parameter block */
    uint32_t static_shared;  /* bytes */
    uint32_t dynamic_offset; /* where an extern __shared__ array starts; static_shared rounded up */
    const SimtShared *shared; /* arrays, by offset; checked launches keep them apart */
    uint32_t nshared;
    uint32_t local_bytes; /* stack frames (.local), called functions included */
    uint32_t max_threads; /* .maxntid or .reqntid, multiplied; 0: not given */
    bool collective;      /* has barriers or warp collectives */
    const SimtModule *module;
    void (*fast)(SimtThread *);    /* body without checks, NULL when not compiled */
    void (*checked)(SimtThread *); /* body with checks, NULL when not compiled */
} SimtKernel;

typedef struct {
    const char *name;
    void *address; /* for cuModuleGetGlobal: in memory of the module */
    size_t bytes;
    bool constant; /* .const */
} SimtVariable;

struct SimtModule {
    const char *target; /* "sm_90" */
    const SimtKernel *kernels;
    uint32_t nkernels;
    const SimtVariable *variables;
    uint32_t nvariables;
};

typedef enum {
    SIMT_LAUNCH, /* impossible launch: sizes, shared memory, a body that was not compiled */
    SIMT_MEMORY, /* access outside a __shared__ array or local memory, or refused by SimtOptions.may
                  */
    SIMT_ALIGNMENT,     /* address not a multiple of the access (vectors: of the whole vector) */
    SIMT_RACE,          /* threads of one block, no barrier between */
    SIMT_BLOCK_RACE,    /* blocks of one grid, not both atomic */
    SIMT_UNINIT_SHARED, /* shared memory read before written */
    SIMT_UNINIT_GLOBAL, /* refused by SimtOptions.initialised */
    SIMT_SYNC,     /* barrier or collective not reached by all it names, or at different places */
    SIMT_DEADLOCK, /* all threads wait, or (checked) one loops without end */
    SIMT_TRAP,     /* trap or a failed device assertion */
    SIMT_KINDS
} SimtKind;

typedef struct {
    SimtKind kind;
    char kernel[80]; /* cut */
    uint32_t line;   /* of the PTX text; 0 for SIMT_LAUNCH */
    SimtDim block, thread;
    uint64_t times; /* how often this kind was found on this line of this kernel */
    char text[200]; /* one sentence, without the above */
} SimtFinding;

enum { SIMT_MAX_FINDINGS = 32 };

/* Zero-initialise; may collect over many launches. */
typedef struct {
    SimtFinding
        list[SIMT_MAX_FINDINGS]; /* different (kernel, line, kind), in order of appearance */
    uint32_t count;              /* used entries of list */
    uint64_t total;              /* all of them, also those with no place in list */
} SimtFindings;

typedef enum { SIMT_ASCENDING, SIMT_DESCENDING, SIMT_SEEDED } SimtOrder;

/* Zero-initialised: fast, ascending. */
typedef struct {
    bool check;            /* memory, alignment, races, initialisation, strict synchronisation */
    SimtOrder order;       /* of blocks, and of the threads that can run in a block */
    uint64_t seed;         /* for SIMT_SEEDED */
    uint32_t max_shared;   /* limit of static + dynamic shared bytes; 0: 49152 */
    uint64_t max_findings; /* stop the grid after so many in this launch; 0: 100000 */
    /* Checked launches ask this for every access to global memory outside the module's own
     * variables: are [p, p + bytes) inside a buffer that is alive (and writable, if `write`)? If
     * not, *why may be set to a text that stays valid until the next call. NULL: every access is
     * allowed. */
    bool (*may)(void *ctx, const void *p, size_t bytes, bool write, const char **why);
    /* Asked before reads of global memory that `may` allowed: was all of it written? NULL: yes. */
    bool (*initialised)(void *ctx, const void *p, size_t bytes);
    /* Told after writes (and atomics) of global memory that `may` allowed. NULL: nobody cares. */
    void (*wrote)(void *ctx, const void *p, size_t bytes);
    void *ctx; /* for the three */
} SimtOptions;

/* Runs grid x block threads. `args` has kernel->nparams pointers to values, as of cuLaunchKernel.
 * The findings are added to *found (may be NULL). True when this launch had none. */
bool simt_launch(const SimtKernel *kernel, SimtDim grid, SimtDim block, uint32_t dynamic_shared,
                 void *const *args, const SimtOptions *options, SimtFindings *found);

/* "race: softmax line 87, block 3,0,0 thread 17,0,0: ..." into text; cut to size. */
void simt_describe(const SimtFinding *finding, char *text, size_t size);
const char *simt_kind_name(SimtKind kind); /* "race" */

const SimtKernel *simt_kernel(const SimtModule *module, const char *name);     /* NULL: no such */
const SimtVariable *simt_variable(const SimtModule *module, const char *name); /* NULL: no such */

enum { SIMT_FAST = 1, SIMT_CHECKED = 2 }; /* bodies to compile, or-ed */

/* Translates PTX (zero-terminated), compiles it with $CC (else cc) and opens it. `folder`: an
 * existing folder where the shared object is kept under a name made of a hash of all that it
 * depends on, and taken from when it is already there; NULL: a temporary one that is removed at
 * once. NULL on failure, with one or more lines in message. Modules stay until
 * simt_unload; variables start anew at simt_load. */
SimtModule *simt_load(const char *ptx, unsigned bodies, const char *folder, char *message,
                      size_t size);
void simt_unload(SimtModule *module);

#endif
