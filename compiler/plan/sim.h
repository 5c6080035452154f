/* sim.h - simulation of one training step in an arena with addresses: the core of every strategy
 * but `none`. Internal to the room.
 *
 * Runs happen in the problem's order; whatever a run reads and is not there is made again first;
 * when no hole is large enough something is evicted by score. What happened is the plan.
 *
 * Updates of persistent values (P3). A run that reads a value which has been mutated is frozen. A
 * storage is lost when its maker is frozen or needs a lost storage that is not there. The
 * simulation keeps: no storage that is still needed is ever lost. So
 *  - what could not be made again is not evicted, unless nobody needs it (evict.c);
 *  - before a mutation, what the readers of the value make, is not there and is needed, is made and
 *    kept (sim.c, secure_readers). */
#ifndef DTRC_SIM_H
#define DTRC_SIM_H

#include "policy.h"
#include "problem.h"
#include "space.h"

#define FOREVER UINT32_MAX /* next use: none */

typedef struct {
    uint64_t capacity; /* bytes of the arena */
    bool bytes_only;   /* count bytes, no addresses */
    bool evict;        /* false: fail when something does not fit */
    bool lookahead;    /* score by distance to the next use instead of h */
    DtrHeuristic h;
    /* lookahead: cost^alpha / (bytes * distance^beta), descendants times gamma */
    double alpha, beta, gamma;
    const float *weight;     /* lookahead: factor of each gap's score, or NULL; gap = use[x] + x */
    bool window;             /* evict a cheapest contiguous run of storages */
    bool regret;             /* bring back victims whose bytes were not taken after all */
    bool two_ended;          /* short lives at the high end of holes */
    uint64_t cost_limit;     /* give up past this time of all runs */
    uint64_t work_limit;     /* give up past this many elementary steps; 0: none */
    const Lists *drop_after; /* per run: storages to drop right after its first time; or NULL */
} SimOptions;

typedef struct {
    uint8_t kind;
    uint32_t id; /* run (not node), or storage */
    StorageId inplace;
    uint32_t out; /* first of its entries in Sim.out */
    uint64_t workspace;
} SimStep;

/* Runs that read a value: about to be mutated (they may run, but nothing may be evicted that needs
 * them), and mutated. */
enum { FREEZING = 1, FROZEN = 2 };

typedef struct {
    uint32_t run, base, next; /* base: its first entry in Sim.held; next: input to look at */
} Frame;

typedef struct {
    uint64_t bytes;
    uint32_t k;      /* output number; number of outputs: the workspace */
    StorageId owner; /* or SPACE_BUSY */
} SimRequest;

/* Sim.state bits */
enum { S_THERE = 1, S_MADE = 2, S_NEED = 4, S_STALE_ABOVE = 8, S_STALE_BELOW = 16 };

typedef struct {
    const Problem *p;
    SimOptions o;
    Arena *a;
    Space space;
    bool failed;
    uint32_t now; /* first run that did not happen yet */
    double clock; /* ns */
    uint64_t cost, work, bytes, byte_peak;
    uint32_t evictions;
    VEC(SimStep) step;
    VEC(PlanOut) out;
    VEC(Frame) frame;
    VEC(bool) held;          /* per input of each open frame: locked by it */
    VEC(uint32_t) stack;     /* of walks */
    VEC(SimRequest) request; /* of the current run */
    VEC(uint32_t) busy;      /* its scratch and workspace blocks */
    VEC(StorageId) secured;  /* locked until the mutation happened */
    VEC(StorageId) victims;  /* of the current search for room */
    VEC(uint64_t) victim_at;
    VEC(uint32_t) evicted; /* gaps of what was evicted, when o.weight is given */
    VEC(uint32_t) window;
    VEC(double) window_cost;
    /* per tensor */
    bool *defined; /* tensors after nstorage only */
    /* per storage */
    uint8_t *state;
    uint32_t *lock, *want, *use, *block, *pool_at;
    uint32_t *need, *blocked, *alive; /* counters of lives.c */
    double *last;                     /* clock of the last use */
    double dear;                      /* where sums of ancestors stop */
    double *ancestors, *descendants;  /* cached closure costs */
    double *key;                      /* cached part of the lookahead score */
    uint32_t *next_below;             /* cached: next use among evicted descendants */
    uint32_t *seen, stamp;            /* marks of walks */
    uint32_t *eq_node;                /* dtr-eq: element of the storage while evicted */
    VEC(uint32_t) eq_up;              /* union-find parents */
    VEC(double) eq_cost;
    StorageId *pool; /* evictable: there, not locked */
    uint32_t npool;
    /* per run */
    uint8_t *frozen; /* 0, FREEZING or FROZEN */
    double *dist;    /* distance^beta */
    double dist_beta;
} Sim;

/* ---- sim.c ---- */
Sim *sim_new(Arena *a, const Problem *p);
/* PLAN_OK, or PLAN_INFEASIBLE when it did not fit or went past a limit. */
PlanStatus sim_run(Sim *s, const SimOptions *o);
Plan *sim_plan(Arena *a, const Sim *s, uint64_t budget, const char *planner);
void sim_drop(Sim *s, StorageId x, bool evicted);

/* ---- lives.c: who can still need what ---- */
uint32_t sim_next_use(Sim *s, StorageId x); /* run number, nrun for outputs, FOREVER */
void sim_came(Sim *s, StorageId x);
void sim_gone(Sim *s, StorageId x);
void sim_freeze(Sim *s, uint32_t run, uint8_t level);
void sim_refresh(Sim *s, StorageId x); /* brings the cached closure costs of x up to date */

/* ---- evict.c ---- */
void sim_pool_add(Sim *s, StorageId x);
void sim_pool_remove(Sim *s, StorageId x);
/* A block of bytes, evicting as need be; NO_ID when that is impossible. In bytes-only mode any
 * other number. */
uint32_t sim_make_room(Sim *s, uint64_t bytes, bool high_end, uint32_t owner);
/* True when x, there and unlocked and without further use of its own, may go. */
bool sim_may_drop_dead(const Sim *s, StorageId x);

static inline bool sim_there(const Sim *s, StorageId x) {
    return s->state[x] & S_THERE;
}
static inline bool sim_defined(const Sim *s, uint32_t t) {
    if (t >= s->p->nstorage) return s->defined[t];
    return !s->p->is_temp[t] || sim_there(s, t);
}

#endif
