/* engine.h - the state of a step, shared by the files of the room. */
#ifndef DTRT_DTR_ENGINE_H
#define DTRT_DTR_ENGINE_H

#include "dtr.h"
#include "kinetic.h"
#include "space.h"

#define FOREVER UINT32_MAX /* next use: none */

/* Runs that read a value: about to be mutated (they may run, but nothing may be evicted that needs
 * them), and mutated. */
enum { FREEZING = 1, FROZEN = 2 };

/* Dtr.state bits */
enum { S_THERE = 1, S_MADE = 2, S_NEED = 4, S_STALE_ABOVE = 8, S_STALE_BELOW = 16 };

typedef struct {
    uint32_t run, base, next; /* base: its first entry in Dtr.held; next: input to look at */
} Frame;

typedef struct {
    uint64_t bytes;
    uint32_t k;     /* output number; number of outputs: the workspace */
    uint32_t owner; /* storage, or SPACE_BUSY */
} Request;

typedef struct {
    uint32_t storage;
    uint64_t offset;
} Victim;

/* Evicted neighbourhoods of h_DTR^eq: see classes.c. */
typedef struct {
    uint32_t *of, *next, *prev;    /* per storage: class, other members; DTR_NONE */
    uint32_t *head, *size, *spare; /* per class */
    uint32_t nspare, *seen, stamp;
    double *cost;
} Classes;

struct Dtr {
    const DtrGraph *g;
    DtrOptions o;
    const DtrHooks *hooks;
    Space space;
    DtrCounters count;
    DtrStatus status; /* of the step, once it has failed */
    bool adopted;     /* the next step starts in the middle */
    uint32_t now;     /* first run that did not happen yet */
    double clock;     /* ns */
    uint64_t bytes;   /* there now */
    uint64_t hook_ns;
    /* stacks; their sizes are bounded by the graph */
    Frame *frame;      /* open runs: each at most once */
    bool *held;        /* per input of each open frame: locked by it */
    uint32_t *stack;   /* of walks: each storage at most once */
    Request *request;  /* of the current run */
    uint32_t *busy;    /* its scratch and workspace blocks */
    uint32_t *secured; /* locked until the mutation happened */
    Victim *victim;    /* of the current search for room */
    DtrOut *out;       /* of the current run */
    uint32_t *window;  /* blocks in address order */
    double *window_cost;
    uint32_t head; /* incremental: walks are queues, this is the first one left */
    uint32_t nframe, nheld, nstack, nrequest, nbusy, nsecured, nvictim, nwindow;
    /* per tensor */
    bool *defined; /* tensors after nstorage only */
    /* per storage */
    uint8_t *state;
    uint32_t *lock, *want, *use, *block, *pool_at;
    uint32_t *need, *blocked, *alive; /* counters of lives.c */
    double *last;                     /* clock of the last use */
    double dear;                      /* where sums of ancestors stop */
    double *ancestors, *descendants;  /* cached closure costs */
    double *key;                      /* cached part of the lookahead score, */
    double *own_key;                  /* and what it is at least: of the time of x alone */
    uint32_t *next_below;             /* cached: next use among evicted descendants */
    uint32_t *seen, stamp;            /* marks of walks */
    uint32_t *pool, npool;            /* evictable: there, not locked */
    uint64_t *entered, entries;       /* published: number of its entry into the pool */
    double *cost;                     /* time of the runs that make it and its views */
    Classes classes;
    Kinetic kinetic; /* incremental: of what may be evicted */
    bool *dirty;     /* incremental: its score changed since the last choice */
    uint32_t *dirty_list, ndirty;
    /* per run */
    uint8_t *frozen; /* 0, FREEZING or FROZEN */
    double *dist;    /* distance^beta */
    double dist_beta;
};

/* ---- engine.c ---- */
/* Lets x go. The hook hears of evicted ones when the search for room has ended. */
void dtr_drop(Dtr *d, uint32_t x, bool evicted);
/* Runs r, for the first time or again, and before it what it needs. */
bool dtr_ensure(Dtr *d, uint32_t r, bool first);
void dtr_lock(Dtr *d, uint32_t x);
void dtr_tell_drop(Dtr *d, Victim v, bool evicted);
/* Forgets everything: nothing has happened, nothing is there. */
void dtr_reset(Dtr *d);
uint64_t dtr_time(const Dtr *d); /* by the hook */

/* ---- lives.c: who can still need what ---- */
uint32_t dtr_next_use(Dtr *d, uint32_t x); /* run number, nrun for outputs, FOREVER */
void dtr_came(Dtr *d, uint32_t x);
void dtr_gone(Dtr *d, uint32_t x);
void dtr_freeze(Dtr *d, uint32_t run, uint8_t level);
/* The values that run r mutates must not be read any more. */
void dtr_freeze_readers(Dtr *d, uint32_t r);
/* The part of the lookahead score that does not depend on when: cost to the alpha per byte. */
double dtr_lookahead_key(const Dtr *d, uint32_t x, double cost);
void dtr_refresh(Dtr *d, uint32_t x); /* brings the cached closure costs of x up to date */

void dtr_spoil(Dtr *d, uint32_t x); /* the cost of x changed */

/* ---- published.c ---- */
void dtr_published_grow(Dtr *d, uint32_t r); /* before r runs first: its time counts from now on */
void dtr_published_drop_dead(Dtr *d, uint32_t r); /* after it */
bool dtr_published_finish(Dtr *d);

/* ---- classes.c ---- */
void dtr_classes_memory(Classes *c, Block *b, uint32_t nstorage);
void dtr_classes_reset(Classes *c, uint32_t nstorage);
void dtr_classes_gone(Dtr *d, uint32_t x);
void dtr_classes_came(Dtr *d, uint32_t x);
double dtr_classes_near(Dtr *d, uint32_t x); /* cost of the distinct classes next to x */

/* ---- evict.c ---- */
void dtr_pool_add(Dtr *d, uint32_t x);
void dtr_pool_remove(Dtr *d, uint32_t x);
/* A block of bytes, evicting as need be; SPACE_NONE when that is impossible: d->status says why. In
 * bytes-only mode any other number. */
uint32_t dtr_make_room(Dtr *d, uint64_t bytes, bool high_end, uint32_t owner);
/* True when x, there and unlocked and without further use of its own, may go. */
bool dtr_may_drop_dead(const Dtr *d, uint32_t x);

static inline bool is_there(const Dtr *d, uint32_t x) {
    return d->state[x] & S_THERE;
}
/* The score of x, or whether it has one, may have changed for another reason than time. */
static inline void mark_dirty(Dtr *d, uint32_t x) {
    if (!d->o.incremental || d->dirty[x]) return;
    d->dirty[x] = true;
    d->dirty_list[d->ndirty++] = x;
}
static inline bool is_defined(const Dtr *d, uint32_t t) {
    if (t >= d->g->nstorage) return d->defined[t];
    return !d->g->is_temp[t] || is_there(d, t);
}

#endif
