/* timeline.h - a schedule that can be changed step by step: what runs at which position, how long
 * each copy of a storage lives, how many bytes are held. Internal to the room.
 *
 * A schedule is a sequence of items; an item is one execution of a run. Every storage is dropped
 * after its last use, so the sequence alone decides residency, and bytes at each position follow.
 * The first executions stand in the problem's order; all others can be inserted and removed, at the
 * price of a few binary searches and range additions. This is what reduction, repair and local
 * search work on (mend.c, peaks.c, search.c). No addresses: place.c packs the result.
 *
 * A life is one copy of a storage: from the item that makes it to the last item that reads it. An
 * item that makes several storages starts new lives for some ("kept") and writes the others to
 * scratch bytes, as plan.h allows. Uses are served by the last life that began before them. Views
 * with a cost (traces) are items too; they read their storage, and their result ends with its life:
 * a view serves what reads it as long as the life in which it ran.
 *
 * The state depends on the set of (run, position, kept) alone, so insertion and removal undo each
 * other exactly. */
#ifndef DTRC_TIMELINE_H
#define DTRC_TIMELINE_H

#include "problem.h"

enum { TL_CHUNK = 96 }; /* items a chunk holds at most */

/* Part of the sequence with the bytes at each of its positions: held[i] by lives, extra[i] by
 * workspace and scratch, less what an in-place result saves. */
typedef struct {
    uint32_t n, order, start; /* order: its place among chunks; start: position of item[0] */
    int64_t add, most;        /* add: to every held[i]; most: largest held + extra, add included */
    uint32_t item[TL_CHUNK];
    int64_t held[TL_CHUNK], extra[TL_CHUNK];
} Chunk;

typedef VEC(uint32_t) Numbers;

typedef struct {
    uint64_t from_key, to_key; /* of item and of to */
    uint32_t tensor, item;
    uint32_t to; /* item of the last use; its own item when there is none */
    bool kept;   /* false: scratch bytes of the item, serves nobody */
    Numbers
        uses; /* items that read it, by position; for a storage also those that read its views */
} Life;

typedef struct {
    uint64_t key;             /* position: items are ordered by key */
    uint32_t run;             /* nrun: the end of the step, which reads the outputs */
    uint32_t chunk, at, life; /* life: of output 0 */
    uint32_t again;           /* not a first one: its place in Timeline.again */
    bool first, there;
} Item;

typedef struct {
    bool inserted;
    uint32_t item, run;
    uint64_t key, kept;
} Change;

typedef struct {
    const Problem *p;
    Arena *a;
    uint64_t cost_ns; /* of all items */
    uint32_t nitem;   /* there now */
    VEC(Item) item;
    VEC(Life) life;
    VEC(Chunk) chunk;
    Numbers order; /* chunks in sequence */
    Numbers spare_chunk;
    Lists reads,
        views; /* per run, and nrun: distinct storages, and views with a cost, that it reads */
    uint32_t *first;  /* per run, and nrun: its first item */
    uint32_t *frozen; /* per run: the run after whose first execution it must not run; NO_ID */
    Numbers *spare;   /* per run: unused items */
    Numbers *makers;  /* per tensor: its kept lives, by position */
    Numbers again;    /* items that are not first executions, in no order */
    Numbers wide;     /* storages that have lived past the item after their maker */
    bool *is_wide;
    Numbers touched; /* items whose in-place saving may have changed */
    bool undoing;
    VEC(Change) journal;
} Timeline;

/* The base order without recomputation. */
Timeline *timeline_new(Arena *a, const Problem *p);

/* A schedule at rest: its executions in order, with what each keeps. */
typedef struct {
    uint32_t n;
    uint64_t cost_ns;
    uint32_t *run;
    uint64_t *kept;
} Sequence;

Sequence timeline_save(Arena *a, const Timeline *t);
void timeline_restore(Timeline *t, const Sequence *s);
Sequence sequence_base(Arena *a, const Problem *p);
/* The base order in which, right before the first execution of run `point`, everything goes that is
 * not in keep (per storage) nor read by that run; what is missing afterwards is made again when it
 * is first needed. False when that would have to run something frozen. */
bool sequence_keep(Arena *a, const Problem *p, uint32_t point, const bool *keep, Sequence *out);
/* What holds as little as it can (lean.c). small: storages of at most so many bytes stay once they
 * are made. False when it would be too long, or updates forbid it. */
bool sequence_lean(Arena *a, const Problem *p, uint64_t small, Sequence *out);
/* The executions of a plan; a rerun keeps what the plan places as resident. */
Sequence sequence_of_plan(Arena *a, const Problem *p, const Plan *plan);

/* kept: bit k: output k begins a new life (outputs past 63 never do in executions after the first).
 * The item stands before `before`. Returns its number. */
uint32_t timeline_insert(Timeline *t, uint32_t run, uint32_t before, uint64_t kept);
void timeline_remove(Timeline *t, uint32_t item); /* not a first execution */

/* All changes are remembered: those after a mark can be taken back, until they are forgotten. */
static inline uint32_t timeline_mark(const Timeline *t) {
    return t->journal.n;
}
void timeline_undo(Timeline *t, uint32_t mark);
static inline void timeline_forget(Timeline *t) {
    t->journal.n = 0;
}

/* ---- questions ---- */
int64_t timeline_peak(const Timeline *t);
int64_t timeline_peak_between(const Timeline *t, uint32_t from, uint32_t to); /* both included */
int64_t timeline_bytes_at(const Timeline *t, uint32_t item);
/* Position of an item, 0 for the first; valid until the next change, after timeline_number. */
void timeline_number(Timeline *t);
static inline uint32_t timeline_position(const Timeline *t, uint32_t item) {
    const Item *i = &t->item.at[item];
    return t->chunk.at[i->chunk].start + i->at;
}
uint32_t timeline_next(const Timeline *t, uint32_t item); /* NO_ID after the end */
uint32_t timeline_head(const Timeline *t);
/* The life that serves a read of the tensor at `item`: the last kept one that began before; NO_ID.
 */
uint32_t timeline_serving(const Timeline *t, uint32_t tensor, uint32_t item);
/* The operand whose bytes the item's output 0 takes over, or NO_ID. */
StorageId timeline_inplace(const Timeline *t, uint32_t item);
/* Whether each read is served, each view ran in the life that it belongs to, and nothing frozen
 * runs: for assertions and tests. */
bool timeline_is_legal(const Timeline *t);

/* ---- conversion ---- */
/* Steps with drops after the last use; byte accounting of the problem; not placed. */
Plan *timeline_plan(Arena *a, const Timeline *t, uint64_t budget, const char *planner);

static inline uint64_t timeline_key(const Timeline *t, uint32_t item) {
    return t->item.at[item].key;
}

#endif
