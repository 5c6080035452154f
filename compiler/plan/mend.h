/* mend.h - changes to a timeline that keep it legal: dropping a storage between two uses, taking
 * recomputations out again; and on top of them repair until a capacity is kept, and reduction to
 * what is needed. Internal to the room. */
#ifndef DTRC_MEND_H
#define DTRC_MEND_H

#include "timeline.h"

/* Where repair looks first: the highest position, the first or last one over the capacity, any one.
 */
typedef enum { AT_PEAK, AT_FIRST, AT_LAST, AT_RANDOM } MendOrder;

/* One execution to insert. */
typedef struct {
    uint32_t run, before;
} Insertion;

/* Positions over the capacity, and by how many bytes together. */
typedef struct {
    uint32_t positions;
    int64_t bytes;
} Excess;

typedef struct {
    Excess sum;      /* before the chunk */
    uint32_t within; /* first of its entries in Mender.within, or NO_ID: nothing is over */
} ChunkExcess;

typedef struct {
    Timeline *t;
    Arena *a;
    int64_t capacity;
    uint64_t rng, work; /* work: elementary steps done, a few ns each */
    MendOrder order;
    double noise; /* scores are multiplied by exp(noise * u), u in [-1, 1] */
    double price; /* time per byte and position of relief: a running mean of what was paid */
    bool extend;  /* operands that ended shortly before may stay instead of being made again */
    /* Per run, or NULL: operands that ended are made again by these, once, and by no others. */
    const bool *rerun;
    uint32_t rerun_after; /* after this item */
    VEC(Insertion) plan, best;
    uint32_t *mark, stamp; /* per run: in the current plan */
    Excess all;
    VEC(ChunkExcess) before; /* per chunk, in sequence */
    VEC(Excess) within;      /* per position of chunks that are over the capacity somewhere */
    Numbers todo;
} Mender;

Mender *mender_new(Arena *a, Timeline *t, int64_t capacity);

/* Drops storages until the peak is within the capacity. False, with the timeline somewhere on the
 * way, when nothing can be dropped, the time goes past cost_limit, or `steps` were not enough. */
bool mend(Mender *m, uint64_t cost_limit, uint32_t steps);

/* An item over the capacity, the one that m->order asks for. */
uint32_t mend_position(Mender *m);
/* Drops the life across item `at`: it is made again right before its next use. False, and nothing
 * changed, when that cannot be. */
bool mend_drop(Mender *m, uint32_t life, uint32_t at);

/* Removes an execution that is not a first one, and with it what served only it. False, and nothing
 * changed, for a view that is needed since its storage was made again. */
bool mend_take_out(Mender *m, uint32_t item);
/* The same, when the capacity is kept; else false and nothing changed. */
bool mend_try_out(Mender *m, uint32_t item);

typedef enum { BY_COST, BY_DENSITY, BY_LATEST, BY_EARLIEST, REDUCE_ORDERS } ReduceOrder;
/* Takes out recomputations, one by one in the given order, until none can go. */
void mend_reduce(Mender *m, ReduceOrder order);

static inline uint32_t mend_random(Mender *m, uint32_t n) {
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return (uint32_t)((m->rng >> 32) * n >> 32);
}
static inline double mend_unit(Mender *m) {
    return (double)mend_random(m, 1u << 24) / (1 << 24);
}

#endif
