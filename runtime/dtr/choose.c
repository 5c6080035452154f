/* choose.c - several ways to play one step; the cheapest stays.
 *
 * Which heuristic is best depends on graph and capacity, and so does how victims and holes are
 * chosen: one victim after the other or a cheapest contiguous run, storages of short lives at the
 * other end of holes or not. All plays look only at what is the same in every step, so one choice
 * before the first step serves all. `auto` plays every heuristic, and scores by the distance to the
 * next use too, which whoever knows the whole step can have. The first play evicts nothing and
 * fills the arena from one end: where that fits, nothing is cheaper, and it takes no more of the
 * capacity than it needs.
 *
 * A greedy heuristic can run into a dead end under one capacity and not under a smaller one, and
 * what fits the smaller one fits this one too: heuristics that come to no end are tried under
 * smaller ones. So `auto` is no dearer than any of them alone, while the work lasts. */
#include "dtr.h"

#include <string.h>

enum { SMALLER = 24 }; /* smaller capacities, 1/256 apart */
/* Elementary steps, some 10 ns each, that all plays together may take once one has come to its end,
 * that each may take until then, and after which nothing is tried any more. */
#define WORK UINT64_C(100000000)
#define MOST_WORK (10 * WORK)

typedef struct {
    DtrHeuristic h;
    bool lookahead;
    double alpha, beta, gamma; /* of lookahead */
} Score;

static const Score scores[] = {
    {.h = DTR_EQ},
    {.lookahead = true, .alpha = 1, .beta = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 0.5, .beta = 1},
    {.h = DTR_FULL},
    {.h = DTR_LOCAL},
    {.h = DTR_MSPS},
    {.lookahead = true, .alpha = 1, .beta = 0.5},
    {.lookahead = true, .alpha = 1.5, .beta = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 1, .gamma = 0.5},
    {.lookahead = true, .alpha = 1, .beta = 1},
    {.h = DTR_LRU},
    {.h = DTR_SIZE},
};

enum { WINDOW = 1, TWO_ENDED = 2, WAYS = 4, PLAYS = WAYS * sizeof scores / sizeof *scores };

static const char *score_name(const Score *s) {
    return s->lookahead ? "lookahead" : dtr_name(s->h);
}

/* A bit for the name that a score goes by. */
static uint32_t name_bit(const Score *s) {
    return UINT32_C(1) << (s->lookahead ? DTR_COUNT : s->h);
}

bool dtr_choice_known(const char *name) {
    return !strcmp(name, "auto") || !strcmp(name, "lookahead") || dtr_heuristic(name) != DTR_COUNT;
}

void dtr_choice_begin(DtrChoice *c, const DtrGraph *g, const char *heuristic, uint64_t capacity) {
    *c = (DtrChoice){.g = g, .heuristic = heuristic, .capacity = capacity, .work = WORK};
}

static bool is_chosen(const Score *s, const char *heuristic) {
    return !strcmp(heuristic, "auto") || !strcmp(heuristic, score_name(s));
}

static void fill_options(const DtrChoice *c, const Score *s, uint32_t way, DtrOptions *o) {
    uint64_t base = c->g->base_ns ? c->g->base_ns : 1;
    *o = (DtrOptions){.capacity = c->capacity - c->capacity / 256 * c->smaller,
                      .evict = true,
                      .h = s->h,
                      .lookahead = s->lookahead,
                      .alpha = s->alpha,
                      .beta = s->beta,
                      .gamma = s->lookahead ? s->gamma : 1,
                      .regret = s->lookahead,
                      .incremental = true,
                      .window = way & WINDOW,
                      .two_ended = way & TWO_ENDED,
                      .cost_limit = base < UINT64_MAX / DTR_THRASH ? base * DTR_THRASH : UINT64_MAX,
                      .work_limit = c->found ? c->work : WORK};
    if (c->found) o->cost_limit = c->best_ns - 1;
}

/* The play without evictions, by the name of the first heuristic that is chosen. */
static void fill_plain(DtrChoice *c, DtrOptions *o) {
    const Score *s = scores;
    while (!is_chosen(s, c->heuristic)) s++;
    fill_options(c, s, 0, o);
    o->evict = false;
    c->name = score_name(s);
    c->plain = true;
}

bool dtr_choice_next(DtrChoice *c, DtrOptions *o) {
    if (c->capacity < c->g->floor_bytes) return false;
    if (!c->plain) {
        fill_plain(c, o);
        return true;
    }
    if (c->found && c->best_ns <= c->g->base_ns) return false;
    for (; c->smaller <= SMALLER && c->spent < MOST_WORK; c->play = 0, c->smaller++) {
        for (; c->play < PLAYS; c->play++) {
            const Score *s = &scores[c->play / WAYS];
            if (c->found && (c->any || !c->work || !c->best_ns)) return false;
            if (!is_chosen(s, c->heuristic) || c->settled & name_bit(s)) continue;
            fill_options(c, s, WAYS - 1 - c->play % WAYS, o);
            if (o->capacity < c->g->floor_bytes) return false;
            c->name = score_name(s);
            c->current = name_bit(s);
            c->play++;
            return true;
        }
        if (c->any) return false;
        c->settled |= c->came;
    }
    return false;
}

bool dtr_choice_ended(DtrChoice *c, DtrStatus st, const DtrCounters *n) {
    c->spent += n->work;
    c->work -= n->work < c->work ? n->work : c->work;
    bool dear = st == DTR_TOO_DEAR || st == DTR_TOO_LONG;
    c->dear |= dear;
    /* What is given up because another one is cheaper has come to its end for that matter. */
    if (st == DTR_OK || (dear && c->found)) c->came |= c->current;
    if (st != DTR_OK) return false;
    c->found = true;
    c->best_ns = n->cost_ns;
    return true;
}
