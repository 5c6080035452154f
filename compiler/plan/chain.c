/* chain.c - Problem -> Chain.
 *
 * Forward is cut before runs at which few bytes are carried over: where a single storage is, if
 * there are enough of those places (a block's output), else where the bytes are fewest. Backward is
 * cut where it begins to read what was made before a segment. Both follow from the order of first
 * runs alone: whatever it looks like, the result is a chain, only not a helpful one when backward
 * does not mirror forward.
 *
 * Bytes while a segment runs are measured on that order. */
#include "chain.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const Problem *p;
    Arena *a;
    uint32_t forward;
    uint32_t *last;  /* per storage: last forward use */
    uint64_t *carry; /* per forward run: bytes carried into it */
    uint32_t *count; /* storages carried into it */
} Cutter;

static bool is_forward(const Cutter *c, StorageId s) {
    return c->p->is_temp[s] && c->p->def[s] != NO_ID && c->p->def[s] < c->forward;
}

/* What is carried into each forward run. */
static void fill_carry(Cutter *c) {
    const Problem *p = c->p;
    int64_t *bytes = ARENA_ARRAY(c->a, int64_t, (uint64_t)c->forward + 2);
    int32_t *count = ARENA_ARRAY(c->a, int32_t, (uint64_t)c->forward + 2);
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!is_forward(c, s)) continue;
        c->last[s] = p->def[s];
        EACH(p->users, s, r) if (r < c->forward && r > c->last[s]) c->last[s] = r;
        bytes[p->def[s] + 1] += (int64_t)p->bytes[s];
        bytes[c->last[s] + 1] -= (int64_t)p->bytes[s];
        count[p->def[s] + 1]++;
        count[c->last[s] + 1]--;
    }
    for (uint32_t r = 0; r < c->forward; r++) {
        bytes[r + 1] += bytes[r];
        count[r + 1] += count[r];
        c->carry[r] = (uint64_t)bytes[r];
        c->count[r] = (uint32_t)count[r];
    }
}

static bool is_cut(const Cutter *c, uint32_t r, bool single) {
    if (single) return c->count[r] == 1;
    uint64_t before = c->carry[r - 1], after = r + 1 < c->forward ? c->carry[r + 1] : 0;
    return c->count[r] && c->carry[r] <= before && c->carry[r] < after;
}

/* Ascending, run 0 first; at most CHAIN_MOST, evenly spread. */
static uint32_t choose_cuts(Cutter *c, uint32_t *cut) {
    uint32_t n = 0;
    for (int single = 1; single >= 0 && n < CHAIN_LEAST; single--) {
        n = 1;
        for (uint32_t r = 1; r < c->forward; r++)
            if (is_cut(c, r, single)) cut[n++] = r;
    }
    uint32_t step = (n + CHAIN_MOST - 1) / CHAIN_MOST, kept = 0;
    for (uint32_t i = 0; i < n; i += step) cut[kept++] = cut[i];
    return kept;
}

/* ---- measuring ---- */

static bool is_of_forward(const Chain *c, StorageId s) {
    return c->p->is_temp[s] && c->p->def[s] != NO_ID && c->p->def[s] < c->forward;
}

typedef struct {
    const Chain *c;
    Arena *a;
    uint32_t *user; /* per storage: its last user, or maker */
    uint32_t *end;  /* per storage: the run after which it goes, in what is measured */
    int64_t *bytes; /* per run, and one more: differences */
} Meter;

static void live(Meter *m, StorageId s, uint32_t from, uint32_t to) {
    m->bytes[from] += (int64_t)m->c->p->bytes[s];
    m->bytes[to + 1] -= (int64_t)m->c->p->bytes[s];
    m->end[s] = to;
}

/* Workspace, less what an output takes over from an operand that ends there. */
static int64_t extra_at(const Meter *m, uint32_t r) {
    const Problem *p = m->c->p;
    int64_t extra = (int64_t)p->workspace[r];
    EACH(p->inplace, r, s)
    if (m->end[s] == r && !p->is_output[s]) return extra - (int64_t)p->bytes[s];
    return extra;
}

/* The most in runs from..to-1; forgets them. */
static uint64_t most(Meter *m, uint32_t from, uint32_t to) {
    int64_t sum = 0, peak = 0;
    for (uint32_t r = from; r < to; r++) {
        sum += m->bytes[r];
        if (sum + extra_at(m, r) > peak) peak = sum + extra_at(m, r);
    }
    memset(m->bytes + from, 0, (to + 1 - from) * sizeof *m->bytes);
    return (uint64_t)peak;
}

/* Does backward of segment k read it? */
static uint32_t last_in_backward(const Meter *m, StorageId s, uint32_t k) {
    const Segment *x = &m->c->segment[k];
    uint32_t from = m->c->segment[k + 1].back, last = NO_ID;
    EACH(m->c->p->users, s, r) if (r >= from && r < x->back) last = r;
    return last;
}

/* Runs of the segment that make what is marked, back to what is carried into it. */
static double again_ns(const Meter *m, uint32_t k, bool *wanted) {
    const Problem *p = m->c->p;
    const Segment *x = &m->c->segment[k];
    double ns = 0;
    for (uint32_t r = x[1].run; r-- > x->run;) {
        bool any = false;
        EACH(p->out, r, t) any |= t != NO_ID && wanted[p->storage[t]];
        if (!any || p->effect[r]) continue;
        ns += (double)p->ns[r];
        EACH(p->in, r, t) wanted[p->storage[t]] = true;
    }
    return ns;
}

static void measure_forward(Meter *m, uint32_t k) {
    const Chain *c = m->c;
    const Problem *p = c->p;
    Segment *x = &c->segment[k];
    bool *wanted = ARENA_ARRAY(m->a, bool, p->nstorage);
    for (int kept = 0; kept < SEG_KEPT; kept++) {
        memset(wanted, 0, p->nstorage * sizeof *wanted);
        for (uint32_t r = x->run; r < x[1].run; r++) EACH(p->out, r, s) {
                if (s == NO_ID || s >= p->nstorage || !p->is_temp[s]) continue;
                bool carried = c->last[s] >= x[1].run, inner = last_in_backward(m, s, k) != NO_ID;
                wanted[s] = (carried && kept != SEG_INNER) || (inner && kept != SEG_CARRIED);
                if (kept == SEG_INNER && inner && !carried) x->inner += p->bytes[s];
                live(m, s, r, wanted[s] || carried ? x[1].run - 1 : c->last[s]);
                if (wanted[s]) m->end[s] = NO_ID;
            }
        x->fwd[kept] = most(m, x->run, x[1].run);
        x->again_ns[kept] = again_ns(m, k, wanted);
    }
}

/* What forward made and backward of segment k reads is there from its begin (`whole`), or only at
 * its readers. */
static void add_operands(Meter *m, uint32_t k, bool whole) {
    const Chain *c = m->c;
    const Problem *p = c->p;
    uint32_t from = c->segment[k + 1].back;
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!is_of_forward(c, s)) continue;
        bool carried = p->def[s] < c->segment[k].run && c->last[s] >= c->segment[k].run;
        uint32_t last = last_in_backward(m, s, k);
        if (carried || last == NO_ID) continue;
        if (whole) {
            live(m, s, from, last);
            continue;
        }
        EACH(p->users, s, r) if (r >= from && r < c->segment[k].back) live(m, s, r, r);
    }
}

/* Gradients and what else backward makes; the bytes of those that are there before. */
static uint64_t add_gradients(Meter *m, uint32_t from, uint32_t to) {
    const Problem *p = m->c->p;
    uint64_t before = 0;
    for (StorageId s = 0; s < p->nstorage; s++) {
        if (!p->is_temp[s] || p->def[s] == NO_ID || p->def[s] < m->c->forward) continue;
        bool stays = p->is_output[s] || m->user[s] >= to;
        if (p->def[s] >= to || (!stays && m->user[s] < from)) continue;
        live(m, s, p->def[s] > from ? p->def[s] : from, stays ? to - 1 : m->user[s]);
        if (stays) m->end[s] = NO_ID;
        if (p->def[s] < from) before += p->bytes[s];
    }
    return before;
}

/* Bytes at readers of the segment's results while those are made again. */
static uint64_t while_again(Meter *m, uint32_t k) {
    const Chain *c = m->c;
    const Problem *p = c->p;
    const Segment *x = &c->segment[k];
    int64_t sum = 0, peak = 0;
    for (uint32_t r = x[1].back; r < x->back; r++) {
        sum += m->bytes[r];
        bool any = false;
        EACH(p->in, r, t) any |= p->def[t] < x[1].run && p->def[t] >= x->run;
        int64_t own = 0;
        EACH(p->out, r, t) if (t != NO_ID && t < p->nstorage) own += (int64_t)p->bytes[t];
        if (any && sum - own > peak) peak = sum - own;
    }
    return (uint64_t)peak + x->fwd[SEG_CARRIED];
}

static void measure_backward(Meter *m, uint32_t k) {
    Segment *x = &m->c->segment[k];
    uint32_t from = x[1].back;
    for (int whole = 0; whole < 2 && x->back > from; whole++) {
        x->grads = add_gradients(m, from, x->back);
        uint64_t again = while_again(m, k);
        add_operands(m, k, whole);
        *(whole ? &x->bwd : &x->least) = most(m, from, x->back);
        if (!whole && x->least < again) x->least = again;
    }
    if (x->back == from && k + 1 < m->c->n) x->grads = x[1].grads;
}

/* Backward stays at a segment until it reads what was made before and is not carried into it. */
static void fill_backs(Chain *c) {
    const Problem *p = c->p;
    uint32_t at = c->n - 1, end = c->forward;
    c->segment[c->n].back = c->forward;
    for (uint32_t r = c->forward; r < p->nrun; r++) EACH(p->in, r, t) {
            StorageId s = p->storage[t];
            if (!is_of_forward(c, s)) continue;
            for (; p->def[s] < c->segment[at].run && c->last[s] < c->segment[at].run; at--)
                c->segment[at].back = r;
            end = r + 1;
        }
    for (uint32_t k = 0; k <= at; k++) c->segment[k].back = end;
}

static void fill_pairs(Chain *c) {
    const Problem *p = c->p;
    uint32_t n = c->n + 1;
    for (uint32_t j = 0; j < n; j++)
        for (StorageId s = 0; s < p->nstorage; s++) {
            if (!is_of_forward(c, s) || p->def[s] >= c->segment[j].run) continue;
            if (j == c->n || c->last[s] < c->segment[j].run) continue;
            for (uint32_t i = 0; i < j && c->segment[i].run <= p->def[s]; i++)
                c->carry[i * n + j] += p->bytes[s];
        }
}

static void measure(Arena *a, Chain *c) {
    const Problem *p = c->p;
    Meter m = {.c = c, .a = a, .user = ARENA_ARRAY(a, uint32_t, p->nstorage)};
    m.end = ARENA_ARRAY(a, uint32_t, p->nstorage);
    m.bytes = ARENA_ARRAY(a, int64_t, (uint64_t)p->nrun + 1);
    for (StorageId s = 0; s < p->nstorage; s++) {
        m.end[s] = NO_ID;
        m.user[s] = p->def[s] == NO_ID ? 0 : p->def[s];
        EACH(p->users, s, r) if (r > m.user[s]) m.user[s] = r;
    }
    for (uint32_t k = c->n; k-- > 0;) {
        measure_forward(&m, k);
        measure_backward(&m, k);
    }
}

static uint32_t forward_runs(const Problem *p) {
    uint32_t n = 0;
    while (n < p->nrun && p->g->node[p->node[n]].phase == PHASE_FORWARD) n++;
    return n;
}

Chain *chain_new(Arena *a, const Problem *p) {
    uint32_t forward = forward_runs(p);
    if (forward < CHAIN_LEAST || forward == p->nrun) return NULL;
    Arena *scratch = arena_new();
    Cutter cut = {.p = p, .a = scratch, .forward = forward};
    cut.last = ARENA_ARRAY(a, uint32_t, p->nstorage);
    cut.carry = ARENA_ARRAY(scratch, uint64_t, forward);
    cut.count = ARENA_ARRAY(scratch, uint32_t, forward);
    fill_carry(&cut);
    uint32_t *at = ARENA_ARRAY(scratch, uint32_t, forward), n = choose_cuts(&cut, at);
    Chain *c = NULL;
    if (n >= CHAIN_LEAST) {
        c = ARENA_NEW(a, Chain);
        *c = (Chain){.p = p, .n = n, .forward = forward, .last = cut.last};
        c->segment = ARENA_ARRAY(a, Segment, (uint64_t)n + 1);
        c->carry = ARENA_ARRAY(a, uint64_t, ((uint64_t)n + 1) * (n + 1));
        for (uint32_t k = 0; k <= n; k++) c->segment[k].run = k < n ? at[k] : forward;
        fill_backs(c);
        fill_pairs(c);
        measure(scratch, c);
    }
    arena_free(scratch);
    return c;
}
