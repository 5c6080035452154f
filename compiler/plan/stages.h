/* stages.h - the stage-point model: which storages are held at a few points of the base order, and
 * what runs again between them, as a mixed-integer program. Internal to the room. */
#ifndef DTRC_STAGES_H
#define DTRC_STAGES_H

#include "mip.h"
#include "timeline.h"

typedef struct {
    const Problem *p;
    uint64_t capacity;
    const uint32_t *point; /* runs, ascending */
    uint32_t npoint;
    double most; /* ns: extra time that a schedule may take; INFINITY: any */
    double unit; /* ns per unit of the objective */
    Mip *mip;
    uint32_t *held, *after; /* per point and storage: column, MIP_ONE or MIP_ZERO */
    uint32_t *again;        /* per point and run */
    uint32_t *view;         /* per point and view with a cost */
    double *room;           /* per point: capacity less the working set */
} Stages;

/* ---- stages.c ---- */
/* point[] must outlive the result. Effects cannot be points. */
Stages *stages_new(Arena *a, const Problem *p, uint64_t capacity, const uint32_t *point,
                   uint32_t npoint, double most);
/* Bytes that a solution, maybe one of the linear relaxation, uses at point j. */
uint64_t stages_used(const Stages *s, const double *value, uint32_t j);
static inline uint32_t stages_after(const Stages *s, uint32_t j, StorageId x) {
    return s->after[(size_t)j * s->p->nstorage + x];
}

/* ---- decode.c ---- */
/* The base order with everything dropped at each point that the solution does not keep, and made
 * again when it is next read. value: per column of s->mip. as: s->p, or the problem whose updates
 * come last; runs are numbered as there. False when something that an update froze would have to
 * run again. */
bool stages_decode(Arena *a, const Stages *s, const double *value, const Problem *as,
                   Sequence *out);
/* The first execution before which, or at which, the schedule is most over the capacity, of those
 * that are no point of s and no effect. NO_ID: none. */
NodeId stages_worst(const Stages *s, const Timeline *t);

#endif
