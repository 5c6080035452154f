/* cut.h - the single-point minimum cut: what to keep at one moment of a schedule, and a lower bound
 * on what recomputation must cost because of that moment. Internal to the room.
 *
 * At a point of a schedule some first runs have happened (runs before `run`). Later some of the
 * tensors that they made are needed. Each storage is either kept at the point and takes its bytes,
 * or its maker runs once more, which needs the maker's operands in the same way. The cheapest
 * choice under the capacity is bounded from below by Lagrangian duality. */
#ifndef DTRC_CUT_H
#define DTRC_CUT_H

#include "flow.h"
#include "problem.h"

typedef enum {
    CUT_MAY_KEEP, /* is there: kept or not, as is best */
    CUT_FIXED,    /* is there and stays, whatever happens; its bytes are none of capacity's */
    CUT_AWAY      /* is not there: must be made again if it is needed */
} CutState;

typedef struct {
    uint32_t run;          /* tensors that are made by first runs before this one may be needed */
    uint64_t capacity;     /* bytes for what is kept, CUT_FIXED ones left out */
    const uint8_t *state;  /* per storage: CutState; only those made before `run` matter */
    const bool *need;      /* per tensor: used after the point without being made again first, or an
                              output; only those made before `run` matter */
    const double *ns;      /* per run: cost of one more run, or NULL: Problem.ns */
    const bool *stuck;     /* per run: may not run again; or NULL. Effects never do. */
    const double *keep_ns; /* per storage: what keeping it costs besides its bytes; or NULL */
    const double *want_ns; /* per storage: lost when it is neither kept nor made again; or NULL */
    double guess;          /* a price to begin with, or 0 */
    /* Most minimum cuts to compute; 0: until the dual is exact to 1e-6 of the base time. 1: the
     * dual at the guess; keep and rerun then belong to that price and may not fit. */
    uint32_t flows;
} CutPoint;

typedef struct {
    bool feasible;  /* false: what cannot be made again does not fit; nothing else is valid then */
    double value;   /* ns: lower bound on the time of runs that happen again after the point */
    double price;   /* ns per byte, at which the bound is reached */
    double cost;    /* ns of the runs in `rerun`; cost - value is what duality leaves open */
    uint64_t bytes; /* of what is kept */
    bool *keep;     /* per storage: kept at the point; CUT_FIXED ones are not in it */
    bool *rerun;    /* per run: runs again after the point */
    /* per storage, with want_ns: the share of the dual's solution in which it is kept; is there
     * some time after the point */
    double *kept, *have;
    uint32_t flows;
} CutResult;

typedef struct Cut Cut;

/* Room for the cuts of one problem; a Cut is used for any number of points. */
Cut *cut_new(Arena *a, const Problem *p);
/* The arrays of *r belong to the Cut and last until its next use. */
void cut_solve(Cut *c, const CutPoint *at, CutResult *r);

/* ---- windows.c ---- */

typedef struct {
    bool feasible; /* false: no plan exists; nothing else is valid then */
    double value;  /* ns; a valid lower bound on the extra time of any plan */
    uint32_t run;  /* the best single point of the dual; NO_ID: memory suffices everywhere */
    double price;  /* ns per byte there */
    bool *keep;    /* per storage: a good choice of what to keep there */
    uint32_t nwindow, *window; /* points whose windows together give the value */
} CutBound;

/* The best of some points of the base order and of windows between them. capacity: bytes of the
 * arena. */
void cut_bound(Arena *a, const Problem *p, uint64_t capacity, CutBound *best);
/* The same, valid for every order of first runs that plan.h allows. */
void cut_bound_any_order(Arena *a, const Problem *p, uint64_t capacity, CutBound *best);
/* The base order at `run` as a CutPoint whose arrays live in a; false when the run's own working
 * set does not fit. */
bool cut_base_point(Arena *a, const Problem *p, uint32_t run, uint64_t capacity, CutPoint *at);

#endif
