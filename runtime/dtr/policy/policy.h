/* policy.h - eviction scores of Dynamic Tensor Rematerialization as pure functions over plain
 * numbers: no state, no allocation, no includes of compiler or runtime.
 *
 * Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor
 * Rematerialization", ICLR 2021, section 4 and appendix C. The victim is the storage with the
 * LOWEST score. */
#ifndef DTRT_POLICY_H
#define DTRT_POLICY_H

typedef enum {
    DTR_FULL,  /* h_DTR: e* neighbourhood, evicted ancestors and descendants */
    DTR_EQ,    /* h_DTR^eq: union-find classes of evicted neighbours */
    DTR_LOCAL, /* own cost only */
    DTR_LRU,   /* least recently used */
    DTR_SIZE,  /* largest first */
    DTR_MSPS,  /* most savings per cost: evicted ancestors, no staleness (Peng et al., Capuchin,
                  2020) */
    DTR_COUNT
} DtrHeuristic;

/* "dtr", "dtr-eq", ...; DTR_COUNT when unknown. */
DtrHeuristic dtr_heuristic(const char *name);
const char *dtr_name(DtrHeuristic h);

/* What a heuristic has to know of a storage. Times in ns; unused fields are ignored. */
typedef struct {
    double cost;        /* of the runs that make it */
    double ancestors;   /* cost of evicted storages that would have to be made first */
    double descendants; /* cost of evicted storages that need it */
    double classes;     /* cost of the distinct union-find classes next to it */
    double bytes;
    double staleness; /* time since its last use */
} DtrStorage;

double dtr_score(DtrHeuristic h, const DtrStorage *s);

#endif
