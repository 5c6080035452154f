/* lean.c - a schedule that holds as little as it can: before each run its operands are made again
 * from nothing, one after the other, and nothing stays that no open run waits for. Where a budget
 * is so small that dropping one storage at a time leads nowhere, this is a schedule to begin with;
 * reduction takes out what the capacity does not ask for.
 *
 * Operands are made in the order of what making them takes beyond what stays of it, largest first:
 * the fewest registers for an expression tree (Sethi and Ullman, J. ACM 17, 1970; with sizes:
 * Liu, SIAM J. Algebraic Discrete Methods 8, 1987). Graphs share subexpressions, so this is no
 * optimum here.
 *
 * Updates (P3): what has an ancestor that an effect freezes, and is read after the effect, is made
 * before it and stays until its last reader. */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

enum { LEAN_MOST = 20000 }; /* executions */

typedef struct {
    uint32_t run, wants;     /* wants: tensor that its caller waits for; NO_ID: a first execution */
    uint32_t begin, next, n; /* operands in Lean.operand, the next one to make, their end */
} Open;

typedef struct {
    const Problem *p;
    Arena *a;
    uint64_t small; /* what has at most so many bytes stays */
    uint32_t most;  /* executions */
    bool *there;    /* per tensor */
    uint32_t *lock; /* per storage */
    uint64_t *need; /* per tensor: bytes that making it from nothing takes */
    uint32_t *lost; /* per tensor: the effect after which it cannot be made from nothing; NO_ID */
    bool *ran;      /* per run */
    bool *stays;    /* per tensor: from its first execution on, since it is lost already then */
    VEC(Open) open;
    Numbers operand, run;
    VEC(uint64_t) kept;
} Lean;

static bool is_there(const Lean *l, uint32_t t) {
    StorageId s = l->p->storage[t];
    return !l->p->is_temp[s] || (l->there[s] && l->there[t]);
}

static void unlock(Lean *l, StorageId s) {
    if (!l->p->is_temp[s] || --l->lock[s] || l->p->bytes[s] <= l->small) return;
    l->there[s] = false;
    EACH(l->p->views, s, v) l->there[v] = false;
}

/* Results that nobody waits for go. */
static void execute(Lean *l, uint32_t run, uint32_t wants) {
    const Problem *p = l->p;
    uint64_t kept = 0;
    uint32_t k = 0;
    if (wants != NO_ID) l->lock[p->storage[wants]]++;
    EACH(p->out, run, t) {
        bool may = wants == NO_ID || k < 64;
        if (t != NO_ID && may && !is_there(l, t)) {
            if (k < 64) kept |= (uint64_t)1 << k;
            l->there[t] = true;
            l->lock[p->storage[t]]++;
            if (wants != NO_ID || !l->stays[t]) unlock(l, p->storage[t]);
        }
        k++;
    }
    l->ran[run] = true;
    VEC_PUSH(l->a, l->run, run);
    VEC_PUSH(l->a, l->kept, kept);
}

typedef struct {
    uint64_t beyond;
    uint32_t tensor;
} Ranked;

static int ranked_cmp(const void *x, const void *y) {
    const Ranked *a = x, *b = y;
    if (a->beyond != b->beyond) return a->beyond < b->beyond ? 1 : -1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static Ranked ranked(const Lean *l, uint32_t t) {
    uint64_t stays = l->p->bytes[l->p->storage[t]];
    return (Ranked){l->need[t] > stays ? l->need[t] - stays : 0, t};
}

/* Operands and, in a first execution, what has to be there as well and stay. */
static uint32_t rank_operands(const Lean *l, uint32_t run, const Numbers *hold, Ranked *r) {
    uint32_t n = 0;
    EACH(l->p->in, run, t) r[n++] = ranked(l, t);
    for (uint32_t i = 0; hold && i < hold->n; i++) r[n++] = ranked(l, hold->at[i]);
    if (n) qsort(r, n, sizeof *r, ranked_cmp);
    return n;
}

/* What each tensor takes, and when it is lost, in the order of first runs. */
static void measure(Lean *l, const uint32_t *frozen, Ranked *r) {
    const Problem *p = l->p;
    memset(l->lost, 0xff, p->ntensor * sizeof *l->lost);
    for (uint32_t run = 0; run < p->nrun; run++) {
        uint32_t n = rank_operands(l, run, NULL, r), lost = frozen[run];
        uint64_t held = 0, most = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t t = r[i].tensor;
            if (held + l->need[t] > most) most = held + l->need[t];
            held += p->bytes[p->storage[t]];
            if (l->lost[t] < lost) lost = l->lost[t];
        }
        held += p->workspace[run];
        EACH(p->out, run, t) if (t != NO_ID && t < p->nstorage) held += p->bytes[t];
        EACH(p->out, run, t) {
            if (t == NO_ID) continue;
            l->need[t] = held > most ? held : most;
            l->lost[t] = lost;
        }
    }
}

static void open_run(Lean *l, uint32_t run, uint32_t wants, const Numbers *hold, Ranked *r) {
    Open o = {.run = run, .wants = wants, .begin = l->operand.n, .next = l->operand.n};
    o.n = o.begin + rank_operands(l, run, hold, r);
    for (uint32_t i = 0; i < o.n - o.begin; i++) VEC_PUSH(l->a, l->operand, r[i].tensor);
    VEC_PUSH(l->a, l->open, o);
}

/* Executes the run on top and all that it needs. False when something frozen would have to run, or
 * it takes too long. */
static bool run_open(Lean *l, const uint32_t *frozen, const Numbers *hold, Ranked *r) {
    const Problem *p = l->p;
    while (l->open.n) {
        if (l->run.n > l->most) return false;
        Open *o = &l->open.at[l->open.n - 1];
        if (o->next < o->n) {
            uint32_t t = l->operand.at[o->next];
            if (is_there(l, t)) {
                l->lock[p->storage[t]]++;
                o->next++;
                continue;
            }
            uint32_t maker = p->def[t];
            if (maker == NO_ID || (frozen[maker] != NO_ID && l->ran[frozen[maker]])) return false;
            open_run(l, maker, t, NULL, r);
            continue;
        }
        Open done = *o;
        l->open.n--;
        execute(l, done.run, done.wants);
        for (uint32_t i = 0; done.wants == NO_ID && hold && i < hold->n; i++)
            l->lock[p->storage[hold->at[i]]]++;
        for (uint32_t i = done.begin; i < done.n; i++) unlock(l, p->storage[l->operand.at[i]]);
        l->operand.n = done.begin;
        if (done.wants == NO_ID) continue;
        if (!is_there(l, done.wants)) return false;
        if (l->open.n) l->open.at[l->open.n - 1].next++; /* and has the lock */
    }
    return true;
}

static bool provide(Lean *l, const uint32_t *frozen, uint32_t t, Ranked *r) {
    if (is_there(l, t)) {
        l->lock[l->p->storage[t]]++;
        return true;
    }
    uint32_t maker = l->p->def[t];
    if (maker == NO_ID || (frozen[maker] != NO_ID && l->ran[frozen[maker]])) return false;
    open_run(l, maker, t, NULL, r);
    return run_open(l, frozen, NULL, r);
}

/* Storages that are locked before a run, and let go after one: what gets lost, until its last
 * reader; outputs that get lost, for good. */
typedef struct {
    Numbers *hold, *let_go; /* per run */
} Keeps;

static Keeps find_keeps(Lean *l) {
    const Problem *p = l->p;
    uint64_t n = (uint64_t)p->nrun + 1;
    Keeps k = {ARENA_ARRAY(l->a, Numbers, n), ARENA_ARRAY(l->a, Numbers, n)};
    bool *is_output = ARENA_ARRAY(l->a, bool, p->ntensor);
    uint32_t *last = ARENA_ARRAY(l->a, uint32_t, p->ntensor);
    for (uint32_t i = 0; i < p->noutput; i++) is_output[p->output[i]] = true;
    for (uint32_t r = 0; r < p->nrun; r++) EACH(p->in, r, t) last[t] = r;
    for (uint32_t t = 0; t < p->ntensor; t++) {
        uint32_t lost = l->lost[t], def = p->def[t], end = is_output[t] ? p->nrun : last[t];
        if (lost == NO_ID || def == NO_ID || !p->is_temp[p->storage[t]]) continue;
        if (end <= def || end <= lost) continue;
        l->stays[t] = lost < def;
        if (lost > def) VEC_PUSH(l->a, k.hold[lost], t);
        VEC_PUSH(l->a, k.let_go[end], t);
    }
    return k;
}

static bool run_all(Lean *l, const uint32_t *frozen, Ranked *r) {
    const Problem *p = l->p;
    Keeps k = find_keeps(l);
    for (uint32_t run = 0; run < p->nrun; run++) {
        open_run(l, run, NO_ID, &k.hold[run], r);
        if (!run_open(l, frozen, &k.hold[run], r)) return false;
        for (uint32_t i = 0; i < k.let_go[run].n; i++) unlock(l, p->storage[k.let_go[run].at[i]]);
    }
    Ranked *last = ARENA_ARRAY(l->a, Ranked, (uint64_t)p->noutput + 1);
    for (uint32_t i = 0; i < p->noutput; i++) last[i] = ranked(l, p->output[i]);
    if (p->noutput) qsort(last, p->noutput, sizeof *last, ranked_cmp);
    for (uint32_t i = 0; i < p->noutput; i++)
        if (!provide(l, frozen, last[i].tensor, r)) return false;
    return true;
}

bool sequence_lean(Arena *a, const Problem *p, uint64_t small, Sequence *out) {
    Arena *scratch = arena_new();
    Lean l = {.p = p, .a = scratch, .small = small, .most = LEAN_MOST};
    l.there = ARENA_ARRAY(scratch, bool, p->ntensor);
    l.need = ARENA_ARRAY(scratch, uint64_t, p->ntensor);
    l.lost = ARENA_ARRAY(scratch, uint32_t, p->ntensor);
    l.lock = ARENA_ARRAY(scratch, uint32_t, p->nstorage);
    l.ran = ARENA_ARRAY(scratch, bool, p->nrun);
    l.stays = ARENA_ARRAY(scratch, bool, p->ntensor);
    uint32_t *frozen = problem_frozen(scratch, p), widest = 0;
    for (uint32_t r = 0; r < p->nrun; r++)
        if (list_len(&p->in, r) > widest) widest = list_len(&p->in, r);
    Ranked *room = ARENA_ARRAY(scratch, Ranked, (uint64_t)widest + p->ntensor + 1);
    measure(&l, frozen, room);
    bool ok = run_all(&l, frozen, room);
    *out = (Sequence){.n = l.run.n,
                      .run = ARENA_ARRAY(a, uint32_t, l.run.n),
                      .kept = ARENA_ARRAY(a, uint64_t, l.run.n)};
    for (uint32_t i = 0; i < l.run.n && ok; i++) {
        out->run[i] = l.run.at[i];
        out->kept[i] = l.kept.at[i];
        out->cost_ns += p->ns[l.run.at[i]];
    }
    arena_free(scratch);
    return ok;
}
