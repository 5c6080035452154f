/* check.h - an independent judge of the engine's events: knows the primary members of the graph and
 * what has happened, and nothing of how the engine decides. */
#ifndef TEST_DTR_CHECK_H
#define TEST_DTR_CHECK_H

#include "dtr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const DtrGraph *g;
    const Dtr *d; /* to ask dtr_where */
    uint64_t capacity;
    bool bytes_only;
    uint32_t next;    /* first run that has not happened */
    uint64_t *offset; /* per storage; DTR_NOWHERE */
    bool *defined;    /* per tensor */
    bool *mutated;    /* per storage */
    uint64_t peak, cost;
    uint32_t events, stop_at; /* stop_at: the hook says stop after so many events */
    char error[200];          /* the first one */
} Judge;

static inline void judge_init(Judge *j, const DtrGraph *g) {
    *j = (Judge){.g = g, .stop_at = UINT32_MAX};
    j->offset = malloc((g->nstorage + 1) * sizeof *j->offset);
    j->defined = malloc(g->ntensor + 1);
    j->mutated = malloc(g->nstorage + 1);
    if (!j->offset || !j->defined || !j->mutated) abort();
}

static inline void judge_start(Judge *j, const Dtr *d, const DtrOptions *o) {
    j->d = d;
    j->capacity = o->capacity;
    j->bytes_only = o->bytes_only;
    j->next = j->events = 0;
    j->peak = j->cost = 0;
    j->error[0] = 0;
    for (uint32_t s = 0; s < j->g->nstorage; s++) j->offset[s] = DTR_NOWHERE;
    memset(j->defined, 0, j->g->ntensor);
    memset(j->mutated, 0, j->g->nstorage);
}

static inline void judge_free(Judge *j) {
    free(j->offset);
    free(j->defined);
    free(j->mutated);
}

#define JUDGE(j, ok, ...)                                                                          \
    do {                                                                                           \
        if (!(ok) && !(j)->error[0]) snprintf((j)->error, sizeof(j)->error, __VA_ARGS__);          \
    } while (0)

static inline bool judge_there(const Judge *j, uint32_t s) {
    return !j->g->is_temp[s] || j->offset[s] != DTR_NOWHERE;
}

typedef struct {
    uint64_t from, to;
} JudgeRange;

static inline int judge_compare(const void *x, const void *y) {
    const JudgeRange *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Everything that has bytes while the run works is disjoint, aligned, and inside the capacity. */
static inline void judge_memory(Judge *j, const DtrRun *r) {
    const DtrGraph *g = j->g;
    uint32_t nout = g->out.first[r->run + 1] - g->out.first[r->run], n = 0;
    JudgeRange *range = malloc((g->nstorage + nout + 1) * sizeof *range);
    uint64_t sum = 0;
    if (!range) abort();
    for (uint32_t s = 0; s < g->nstorage; s++)
        if (j->offset[s] != DTR_NOWHERE && g->bytes[s])
            range[n++] = (JudgeRange){j->offset[s], j->offset[s] + g->bytes[s]};
    for (uint32_t k = 0; k < nout; k++) {
        uint32_t t = g->out.at[g->out.first[r->run] + k];
        if (t >= g->nstorage || !g->bytes[t] || (!k && r->inplace != DTR_NONE)) continue;
        range[n++] = (JudgeRange){r->out[k].offset, r->out[k].offset + g->bytes[t]};
    }
    if (g->workspace[r->run])
        range[n++] = (JudgeRange){r->workspace, r->workspace + g->workspace[r->run]};
    for (uint32_t i = 0; i < n; i++) sum += range[i].to - range[i].from;
    if (sum > j->peak) j->peak = sum;
    JUDGE(j, sum <= j->capacity, "run %u: more bytes than there are", r->run);
    if (!j->bytes_only) {
        qsort(range, n, sizeof *range, judge_compare);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t end = i + 1 < n ? range[i + 1].from : j->capacity;
            JUDGE(j, range[i].to <= end, "run %u: overlap at %llu", r->run,
                  (unsigned long long)end);
            JUDGE(j, range[i].from % g->align == 0, "run %u: not aligned", r->run);
        }
    }
    free(range);
}

static inline void judge_order(Judge *j, const DtrRun *r) {
    const DtrGraph *g = j->g;
    JUDGE(j, r->again ? r->run < j->next : r->run == j->next, "run %u out of order", r->run);
    JUDGE(j, !r->again || !g->effect[r->run], "effect %u again", r->run);
    DTR_EACH(g->in, r->run, t) {
        uint32_t s = g->storage[t];
        JUDGE(j, j->defined[t] || (t < g->nstorage && !g->is_temp[t]), "run %u: tensor %u missing",
              r->run, t);
        JUDGE(j, judge_there(j, s), "run %u: storage %u missing", r->run, s);
        if (g->is_temp[s])
            JUDGE(j, dtr_where(j->d, s) == j->offset[s], "run %u: %u is elsewhere", r->run, s);
    }
    DTR_EACH(g->reads, r->run, w) {
        bool own = false;
        DTR_EACH(g->writes, r->run, v) own |= v == w;
        JUDGE(j, own || !j->mutated[w], "run %u reads %u after it changed", r->run, w);
    }
    DTR_EACH(g->writes, r->run, w) j->mutated[w] = true;
}

static inline void judge_gone(Judge *j, uint32_t s) {
    j->offset[s] = DTR_NOWHERE;
    for (uint32_t t = 0; t < j->g->ntensor; t++)
        if (j->g->storage[t] == s) j->defined[t] = false;
}

static inline void judge_inplace(Judge *j, const DtrRun *r) {
    const DtrGraph *g = j->g;
    uint32_t from = r->inplace, to = g->out.at[g->out.first[r->run]];
    bool allowed = false;
    if (from == DTR_NONE) return;
    DTR_EACH(g->inplace, r->run, x) allowed |= x == from;
    JUDGE(j, allowed && g->bytes[from] == g->bytes[to], "run %u: not in place", r->run);
    JUDGE(j, j->bytes_only || r->out[0].offset == j->offset[from], "run %u: in place elsewhere",
          r->run);
    for (uint32_t i = 0; i < g->noutput; i++)
        JUDGE(j, g->storage[g->output[i]] != from, "run %u: an output is taken over", r->run);
    judge_gone(j, from);
}

static inline bool judge_run(void *user, const DtrRun *r) {
    Judge *j = user;
    const DtrGraph *g = j->g;
    judge_order(j, r);
    judge_memory(j, r);
    judge_inplace(j, r);
    for (uint32_t k = 0; k < g->out.first[r->run + 1] - g->out.first[r->run]; k++) {
        uint32_t t = g->out.at[g->out.first[r->run] + k];
        bool bytes = t < g->nstorage && g->is_temp[t];
        JUDGE(j, (r->out[k].place == DTR_NOTHING) == !bytes, "run %u: place of output %u", r->run,
              k);
        if (t == DTR_NONE) continue;
        if (bytes && r->out[k].place == DTR_RESIDENT) {
            JUDGE(j, j->offset[t] == DTR_NOWHERE, "run %u: %u is there already", r->run, t);
            j->offset[t] = r->out[k].offset;
        }
        if (!bytes || r->out[k].place == DTR_RESIDENT) j->defined[t] = true;
    }
    if (!r->again) j->next = r->run + 1;
    j->cost += g->ns[r->run];
    return ++j->events < j->stop_at;
}

static inline bool judge_drop(void *user, uint32_t s, uint64_t offset, bool evicted) {
    Judge *j = user;
    (void)evicted;
    JUDGE(j, j->g->is_temp[s] && j->offset[s] != DTR_NOWHERE, "drop of %u, which is not there", s);
    JUDGE(j, j->bytes_only || !j->g->bytes[s] || j->offset[s] == offset, "drop of %u elsewhere", s);
    judge_gone(j, s);
    return ++j->events < j->stop_at;
}

static inline void judge_end(Judge *j) {
    const DtrGraph *g = j->g;
    JUDGE(j, j->next == g->nrun, "run %u is missing", j->next);
    for (uint32_t i = 0; i < g->noutput; i++) {
        uint32_t t = g->output[i], s = g->storage[t];
        JUDGE(j, judge_there(j, s) && (!g->is_temp[s] || j->defined[t]), "output %u is missing", t);
    }
}

static inline DtrHooks judge_hooks(Judge *j) {
    return (DtrHooks){.user = j, .run = judge_run, .drop = judge_drop};
}

#endif
