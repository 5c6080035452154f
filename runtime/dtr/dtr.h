/* dtr.h - Dynamic Tensor Rematerialization of one training step: in which order operators run, what
 * is evicted when memory is short, what is made again, and where everything lies in the arena. The
 * planner plays steps with it ahead of time, a running program while it runs: one piece of code.
 *
 * Runs happen in the order of the graph; whatever a run reads and is not there is made again first;
 * when no hole of the arena is large enough something is evicted by score (policy.h). Storages
 * without any further use go at once.
 *
 * Updates of persistent values. A run that reads a value which has been mutated is frozen. A
 * storage is lost when its maker is frozen or needs a lost storage that is not there. The engine
 * keeps: no storage that is still needed is ever lost. So
 *  - what could not be made again is not evicted, unless nobody needs it;
 *  - before a mutation, what the readers of the value make, is not there and is needed, is made and
 *    kept.
 *
 * Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor
 * Rematerialization", ICLR 2021. Deviations: addresses; the graph of the step is known, so that
 * dead storages go by themselves; operators in place; updates as above.
 *
 * The room includes nothing of the compiler and nothing of the rest of the runtime. All memory is
 * one block that is taken before the first step. Nothing here depends on time or addresses: the
 * same graph and options give the same events. */
#ifndef DTRT_DTR_H
#define DTRT_DTR_H

#include "policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DTR_NONE UINT32_MAX    /* no run, tensor, storage */
#define DTR_NOWHERE UINT64_MAX /* offset of what is not there */

/* at[first[i] .. first[i+1]) belongs to i. */
typedef struct {
    uint32_t *first, *at;
} DtrLists;

#define DTR_EACH(l, i, x)                                                                          \
    for (uint32_t x##_i = (l).first[i], x;                                                         \
         x##_i < (l).first[(i) + 1] && (x = (l).at[x##_i], true); x##_i++)

static inline uint32_t dtr_len(const DtrLists *l, uint32_t i) {
    return l->first[i + 1] - l->first[i];
}

/* ---- graph.c: what there is to run --------------------------------------------------------- */
/* Runs: nodes that do something, in the order in which they happen for the first time. Tensors:
 * what runs read and make. Tensor t < nstorage is the contents of storage t; the tensors after that
 * are views with a cost, which only traces have: a run makes such a view, and must run again after
 * its storage was dropped. Views that cost nothing are not here: whoever reads one reads the
 * storage. Persistent storages are always there and have no bytes here.
 *
 * A list of members, so that the planner's Problem can have them as its own. */
#define DTR_GRAPH_MEMBERS                                                                          \
    uint32_t nrun, nstorage, ntensor, noutput;                                                     \
    uint64_t align; /* of offsets; all bytes are multiples of it */                                \
    /* per run */                                                                                  \
    bool *effect;             /* happens once: it mutates something */                             \
    uint64_t *ns, *workspace; /* time; bytes of scratch memory */                                  \
    DtrLists in;      /* distinct tensors read; persistent storages left out, their views not */   \
    DtrLists out;     /* one entry per output of the node: tensor or DTR_NONE */                   \
    DtrLists inplace; /* storages whose bytes output 0 may take over */                            \
    DtrLists writes;  /* persistent storages it mutates */                                         \
    DtrLists reads;   /* persistent storages it reads, at least those that somebody mutates */     \
    /* per storage */                                                                              \
    uint64_t *bytes; /* 0 for persistent ones */                                                   \
    bool *is_temp;   /* not persistent */                                                          \
    /* per tensor */                                                                               \
    uint32_t *storage; /* where it lives: t < nstorage: t */                                       \
    uint32_t *def;     /* run that makes it; DTR_NONE for persistent storages */                   \
    uint32_t *output;  /* noutput tensors that must be there at the end */                         \
    /* ---- the rest by dtr_fill_lists ---- */                                                     \
    uint64_t base_ns, floor_bytes; /* one run of each; largest working set of a run */             \
    uint32_t most_outputs;         /* of one run */                                                \
    bool *is_output;               /* storage: must be there at the end */                         \
    double *cost;                  /* storage: time of the runs that make it and its views */      \
    DtrLists users;                /* runs that read it, ascending */                              \
    DtrLists makers;               /* runs that make it and its views; the storage's own first */  \
    DtrLists views;                /* tensors after nstorage that live in it */                    \
    DtrLists parents, children;    /* storages one run up and down, without itself */              \
    DtrLists readers; /* persistent and mutated: runs that read it and do not mutate it */

typedef struct {
    DTR_GRAPH_MEMBERS
} DtrGraph;

/* Bytes that dtr_fill_lists needs, computed from the members above the line. */
size_t dtr_lists_bytes(const DtrGraph *g);
/* Fills the members below the line; `memory` (of malloc's alignment, zeroed) holds their arrays. */
void dtr_fill_lists(DtrGraph *g, void *memory);

/* ---- engine.c ------------------------------------------------------------------------------ */
typedef struct {
    uint64_t capacity; /* bytes of the arena */
    bool bytes_only;   /* count bytes, no addresses */
    bool evict;        /* false: fail when something does not fit */
    DtrHeuristic h;
    bool lookahead;            /* score by the distance to the next use instead of h: */
    double alpha, beta, gamma; /* cost^alpha / (bytes * distance^beta), descendants times gamma */
    bool window;               /* evict a cheapest contiguous run of storages */
    bool regret;         /* lookahead: bring back victims whose bytes were not taken after all */
    bool two_ended;      /* short lives at the high end of holes */
    bool incremental;    /* choose victims without looking at everything: see incremental.c */
    bool published;      /* the rules of the simulator of the paper: see published.c */
    uint64_t cost_limit; /* ns: end a step whose runs take longer; UINT64_MAX: none */
    uint64_t work_limit; /* end a step that takes more elementary steps to decide; 0: none */
    const DtrLists *drop_after; /* per run: storages to drop right after its first time; or NULL */
} DtrOptions;

typedef enum {
    DTR_OK,
    DTR_NO_ROOM,  /* something does not fit, whatever is evicted */
    DTR_TOO_DEAR, /* past cost_limit: recomputations without end in sight */
    DTR_TOO_LONG, /* past work_limit */
    DTR_STOPPED   /* a hook said so */
} DtrStatus;

typedef enum {
    DTR_NOTHING,  /* no bytes: view, persistent, or absent output */
    DTR_RESIDENT, /* stays until it is dropped, or taken over in place */
    DTR_SCRATCH   /* written but not kept: a second run writes outputs that are still there, or that
                     nobody wants, to bytes of their own, which are free again after the run */
} DtrPlace;

typedef struct {
    uint64_t offset; /* in the arena; RESIDENT and SCRATCH with bytes */
    uint8_t place;   /* DtrPlace */
} DtrOut;

typedef struct {
    uint32_t run;
    bool again;         /* not for the first time in this step */
    uint32_t inplace;   /* output 0 has the bytes of this storage, which ends here without a drop;
                           DTR_NONE: not in place */
    const DtrOut *out;  /* per output of the run */
    uint64_t workspace; /* offset, when the run has workspace bytes */
} DtrRun;

/* Called in the order in which things happen. Within `run`, dtr_where gives every input of the run,
 * the one in place as well; outputs lie where the event says. A hook that returns false ends the
 * step with DTR_STOPPED and is the last one called. Any may be NULL. */
typedef struct {
    void *user;
    bool (*run)(void *user, const DtrRun *r);
    /* evicted: to make room; else because nobody will use it. Offset 0 where nothing has bytes. */
    bool (*drop)(void *user, uint32_t storage, uint64_t offset, bool evicted);
    uint64_t (*clock)(void *user); /* ns; only for DtrCounters.decide_ns and engine_ns */
} DtrHooks;

/* Of the last step. */
typedef struct {
    uint64_t cost_ns;              /* of all runs, by the graph */
    uint64_t peak_bytes;           /* largest byte sum at any moment */
    uint64_t high_bytes;           /* highest end of anything in the arena */
    uint64_t work;                 /* elementary steps of deciding */
    uint64_t decide_ns;            /* choosing and dropping victims, without hooks */
    uint64_t engine_ns;            /* the whole step without hooks */
    uint32_t runs, reruns;         /* all; those that are not first ones */
    uint32_t decisions, evictions; /* searches for a victim or a run of victims; victims */
    uint32_t failed_run;           /* status not OK: the run that could not happen, or was last */
    uint64_t failed_bytes;         /* NO_ROOM: what it wanted in one piece */
} DtrCounters;

typedef struct Dtr Dtr;

/* For steps of g, which must stay as it is; NULL when memory is short. Nothing is allocated later.
 */
Dtr *dtr_open(const DtrGraph *g, const DtrOptions *o);
void dtr_close(Dtr *d);
/* The same in memory of the caller: dtr_bytes(g) bytes of malloc's alignment, zeroed; no close. */
size_t dtr_bytes(const DtrGraph *g);
Dtr *dtr_init(void *memory, const DtrGraph *g, const DtrOptions *o);
/* Other options from the next step on. */
void dtr_set(Dtr *d, const DtrOptions *o);

/* One step: every run at least once, in order; effects exactly once; all outputs there at the end.
 * After a failure nothing is known of the arena: the next step starts afresh, unless adopted. */
DtrStatus dtr_step(Dtr *d, const DtrHooks *hooks);
const DtrCounters *dtr_counters(const Dtr *d);
/* Offset of a storage that is there (0 when it has no bytes, or none are addressed); DTR_NOWHERE.
 */
uint64_t dtr_where(const Dtr *d, uint32_t storage);

/* ---- choose.c: several ways to play a step; the cheapest stays ------------------------------ */
/* A play of more than this many times the time without recomputation is given up. */
enum { DTR_THRASH = 8 };

typedef struct {
    const DtrGraph *g;
    const char *heuristic;
    uint64_t capacity;
    bool any;               /* the first play that comes to its end will do; one capacity only */
    bool plain;             /* the play without evictions has been */
    const char *name;       /* heuristic of the play at hand */
    bool found;             /* a play has come to its end */
    bool dear;              /* one was given up because it took too long */
    uint64_t best_ns, work; /* of the best play; elementary steps left */
    uint64_t spent;         /* elementary steps of all plays */
    uint32_t smaller, play; /* numbers of the next play: of the capacity, and under it */
    /* Heuristics, a bit for each name: that have come to an end under a larger capacity; under this
     * one; the one at hand. */
    uint32_t settled, came, current;
} DtrChoice;
/* heuristic: a name of policy.h, "lookahead", or "auto": all of them. */
bool dtr_choice_known(const char *heuristic);
void dtr_choice_begin(DtrChoice *c, const DtrGraph *g, const char *heuristic, uint64_t capacity);
/* The options of the next play; false: there is none. */
bool dtr_choice_next(DtrChoice *c, DtrOptions *o);
/* How it ended. True: it is the cheapest so far, to be kept. */
bool dtr_choice_ended(DtrChoice *c, DtrStatus st, const DtrCounters *n);

/* ---- adopt.c ------------------------------------------------------------------------------- */
/* The next dtr_step starts in the middle: runs before `next` have happened, and `offset` says per
 * storage where it lies, or DTR_NOWHERE. What is there must have been made by those runs; what
 * nobody needs any more is dropped first thing. Views with a cost of what is not persistent will
 * run again. Counters and cost_limit begin at nothing. False when offsets overlap, are not inside
 * the capacity, or when something that is still needed can not be made any more. */
bool dtr_adopt(Dtr *d, uint32_t next, const uint64_t *offset);

#endif
