/* policy.c - see policy.h. Staleness and bytes are at least 1, so that no score is a division by
 * zero; a storage that costs nothing and one that was used just now compare as in the paper's
 * simulator. */
#include "policy.h"

#include <string.h>

static const char *const names[DTR_COUNT] = {"dtr", "dtr-eq", "dtr-local", "lru", "size", "msps"};

DtrHeuristic dtr_heuristic(const char *name) {
    for (int h = 0; h < DTR_COUNT; h++)
        if (!strcmp(name, names[h])) return (DtrHeuristic)h;
    return DTR_COUNT;
}

const char *dtr_name(DtrHeuristic h) {
    return names[h];
}

double dtr_score(DtrHeuristic h, const DtrStorage *s) {
    double bytes = s->bytes > 1 ? s->bytes : 1, stale = s->staleness > 1 ? s->staleness : 1;
    switch (h) {
    case DTR_FULL: return (s->cost + s->ancestors + s->descendants) / (bytes * stale);
    case DTR_EQ: return (s->cost + s->classes) / (bytes * stale);
    case DTR_LOCAL: return s->cost / (bytes * stale);
    case DTR_LRU: return 1 / stale;
    case DTR_SIZE: return 1 / bytes;
    case DTR_MSPS: return (s->cost + s->ancestors) / bytes;
    case DTR_COUNT: break;
    }
    return 0;
}
