/* order.c - the order pre-pass: an order of first runs that needs less memory than the graph's, for
 * nothing.
 *
 * First the question whether any order can pay: the bound that holds for all orders against that of
 * the base order (windows.c). For training steps of networks the two are all but the same: what is
 * held between the forward and the backward pass is held in every order. Only when they differ
 * are orders looked for, and taken only when their own bound at this capacity is lower by something
 * that matters; byte sums without recomputation are too poor a guide for that.
 *
 * Candidates. List scheduling: of the runs that can go next the one that frees most, less what it
 * makes. Local search: single runs go to the best place between what must come before and after
 * them, judged by the squares of bytes over the capacity, summed over positions, for as long as
 * that changes something; from p's order and from that of the list. Updates and views move, too. */
#include "order.h"

#include "cut.h"
#include "precede.h"

#include <string.h>

enum {
    REACH = 4000, /* positions a run is moved by at most */
    PASSES = 20,
    OPERANDS = 32, /* runs with more stay where they are */
    READY = 500    /* of the runs that can go next, so many are compared: the latest to be ready */
};
/* Elementary steps of one local search. */
#define WORK UINT64_C(30000000)
#define WORK_RUN UINT64_C(10000)

/* What an order must save to be worth a search of its own: parts of base time, and of the bound. */
static const double least_time = 0.001, least_part = 0.03;

/* A complete order with its bytes. */
typedef struct {
    const Problem *p;
    Precedence pre;
    double capacity;
    uint32_t *seq, *pos; /* runs by position, positions by run */
    int64_t *pass;       /* bytes there before the run at a position; nrun: at the end */
    int64_t *made;       /* per run: bytes of its results and workspace */
    int64_t *save;       /* per position: bytes that a result takes over */
    uint32_t *end;       /* per storage: position of its last use; nrun for outputs */
    uint64_t work;
} Line;

static bool moves(const Problem *p, StorageId s) {
    return p->is_temp[s] && p->def[s] != NO_ID;
}

/* Last use by others than run `without`; the making counts. */
static uint32_t last_use(Line *x, StorageId s, uint32_t without) {
    const Problem *p = x->p;
    uint32_t end = p->def[s] == without ? 0 : x->pos[p->def[s]];
    if (p->is_output[s]) return p->nrun;
    EACH(p->users, s, u) if (u != without && x->pos[u] > end) end = x->pos[u];
    x->work += list_len(&p->users, s);
    return end;
}

static bool takes_over(const Problem *p, uint32_t r, StorageId s) {
    EACH(p->inplace, r, q) if (q == s) return true;
    return false;
}

/* Distinct storages that a run reads and that move with it; more than OPERANDS: that many. */
static uint32_t operands(const Problem *p, uint32_t r, StorageId *s) {
    uint32_t n = 0;
    EACH(p->in, r, t) {
        StorageId q = p->storage[t];
        bool seen = !moves(p, q);
        for (uint32_t i = 0; i < n; i++) seen |= s[i] == q;
        if (seen) continue;
        if (n == OPERANDS) return n + 1;
        s[n++] = q;
    }
    return n;
}

/* pass and save at positions from .. to. */
static void fill(Line *x, uint32_t from, uint32_t to) {
    const Problem *p = x->p;
    for (uint32_t k = from; k <= to; k++) {
        uint32_t r = x->seq[k];
        int64_t bytes = x->pass[k];
        x->save[k] = 0;
        EACH(p->inplace, r, s) if (x->end[s] == k && !x->save[k]) x->save[k] = (int64_t)p->bytes[s];
        EACH(p->out, r, t)
        if (t != NO_ID && t < p->nstorage && x->end[t] > k) bytes += (int64_t)p->bytes[t];
        for (uint32_t i = p->in.first[r]; i < p->in.first[r + 1]; i++) {
            StorageId s = p->storage[p->in.at[i]];
            bool seen = !moves(p, s) || x->end[s] != k;
            for (uint32_t j = p->in.first[r]; j < i && !seen; j++)
                seen = p->storage[p->in.at[j]] == s;
            if (!seen) bytes -= (int64_t)p->bytes[s];
        }
        x->pass[k + 1] = bytes;
        x->work += 4;
    }
}

static int64_t bytes_at(const Line *x, uint32_t k) {
    return x->pass[k] + x->made[x->seq[k]] - x->save[k];
}

static double burden(const Line *x, int64_t bytes) {
    double e = ((double)bytes - x->capacity) / (x->capacity + 1);
    return e > 0 ? e * e : 0;
}

static Line *line_new(Arena *a, const Problem *p, uint64_t capacity) {
    Line *x = ARENA_NEW(a, Line);
    uint64_t n1 = (uint64_t)p->nrun + 1;
    *x = (Line){.p = p,
                .pre = precede_new(a, p),
                .capacity = (double)capacity,
                .seq = ARENA_ARRAY(a, uint32_t, n1),
                .pos = ARENA_ARRAY(a, uint32_t, n1),
                .pass = ARENA_ARRAY(a, int64_t, n1),
                .made = ARENA_ARRAY(a, int64_t, n1),
                .save = ARENA_ARRAY(a, int64_t, n1),
                .end = ARENA_ARRAY(a, uint32_t, p->nstorage)};
    for (uint32_t r = 0; r < p->nrun; r++) {
        x->seq[r] = r;
        x->made[r] = (int64_t)p->workspace[r];
        EACH(p->out, r, t) if (t != NO_ID && t < p->nstorage) x->made[r] += (int64_t)p->bytes[t];
    }
    return x;
}

/* After seq was set. */
static void settle(Line *x) {
    const Problem *p = x->p;
    for (uint32_t k = 0; k < p->nrun; k++) x->pos[x->seq[k]] = k;
    for (StorageId s = 0; s < p->nstorage; s++)
        if (moves(p, s)) x->end[s] = last_use(x, s, NO_ID);
    if (p->nrun) fill(x, 0, p->nrun - 1);
}

static Order order_of(Arena *a, const Line *x) {
    const Problem *p = x->p;
    Order o = {.node = ARENA_ARRAY(a, NodeId, p->g->nnode)};
    for (uint32_t k = 0; k < p->g->nnode; k++) o.node[k] = NO_ID;
    for (uint32_t k = 0; k < p->nrun; k++) {
        double b = (double)bytes_at(x, k);
        o.node[k] = p->node[x->seq[k]];
        if (b > (double)o.peak) o.peak = (uint64_t)b;
        if (b > x->capacity) o.over += (uint64_t)(b - x->capacity);
    }
    return o;
}

Order order_base(Arena *a, const Problem *p, uint64_t capacity) {
    Line *x = line_new(a, p, capacity);
    settle(x);
    return order_of(a, x);
}

/* ---- local search ---- */

/* A run on its way. */
typedef struct {
    uint32_t run, at; /* its position */
    int64_t kept;     /* bytes of its results that somebody reads later */
    uint32_t n;
    StorageId operand[OPERANDS + 1];
    uint32_t other[OPERANDS + 1]; /* last use of the operand by another run */
    double old, best;             /* burden of its own position; gain of the best place, below 0 */
    uint32_t to;
} Move;

/* The run stands behind position k instead of at its own: what it reads stays until then. */
static void try_later(Line *x, Move *m, uint32_t last) {
    const Problem *p = x->p;
    double sum = 0;
    int64_t there = x->pass[m->at];
    for (uint32_t k = m->at + 1; k <= last; k++) {
        uint32_t r = x->seq[k];
        int64_t save = x->save[k], stays = 0, mine = 0;
        for (uint32_t i = 0; i < m->n; i++) {
            StorageId s = m->operand[i];
            if (m->other[i] > k) continue;
            if (m->other[i] == k && takes_over(p, r, s)) save = 0;
            stays += (int64_t)p->bytes[s];
            if (takes_over(p, m->run, s)) mine = (int64_t)p->bytes[s];
        }
        sum += burden(x, there + x->made[r] - save) - burden(x, bytes_at(x, k));
        there = x->pass[k + 1] - m->kept + stays;
        double gain = sum + burden(x, there + x->made[m->run] - mine) - m->old;
        if (gain < m->best) {
            m->best = gain;
            m->to = k;
        }
        x->work += 2 + m->n;
    }
}

/* The run stands in front of position k: what it makes is there from then on, what only it reads at
 * the end goes. */
static void try_earlier(Line *x, Move *m, uint32_t first) {
    const Problem *p = x->p;
    double sum = 0;
    for (uint32_t k = m->at; k-- > first;) {
        uint32_t r = x->seq[k];
        int64_t save = x->save[k], freed = 0, mine = 0;
        for (uint32_t i = 0; i < m->n; i++) {
            StorageId s = m->operand[i];
            if (x->end[s] != m->at || m->other[i] > k) continue;
            if (m->other[i] == k) {
                if (takes_over(p, r, s)) save = (int64_t)p->bytes[s];
                continue;
            }
            freed += (int64_t)p->bytes[s];
            if (takes_over(p, m->run, s)) mine = (int64_t)p->bytes[s];
        }
        sum += burden(x, x->pass[k] + m->kept - freed + x->made[r] - save);
        sum -= burden(x, bytes_at(x, k));
        double gain = sum + burden(x, x->pass[k] + x->made[m->run] - mine) - m->old;
        if (gain < m->best) {
            m->best = gain;
            m->to = k;
        }
        x->work += 2 + m->n;
    }
}

static void carry_out(Line *x, const Move *m) {
    const Problem *p = x->p;
    uint32_t lo = m->at < m->to ? m->at : m->to, hi = m->at < m->to ? m->to : m->at;
    if (m->to > m->at)
        memmove(x->seq + lo, x->seq + lo + 1, (hi - lo) * sizeof *x->seq);
    else
        memmove(x->seq + lo + 1, x->seq + lo, (hi - lo) * sizeof *x->seq);
    x->seq[m->to] = m->run;
    for (uint32_t k = lo; k <= hi; k++) x->pos[x->seq[k]] = k;
    for (uint32_t k = lo; k <= hi; k++) {
        EACH(p->in, x->seq[k], t) {
            StorageId s = p->storage[t];
            if (moves(p, s)) x->end[s] = last_use(x, s, NO_ID);
        }
        EACH(p->out, x->seq[k], t)
        if (t != NO_ID && t < p->nstorage) x->end[t] = last_use(x, t, NO_ID);
    }
    fill(x, lo, hi);
}

/* Moves a run to its best place. False: it stands there. */
static bool move(Line *x, uint32_t run) {
    const Problem *p = x->p;
    Move m = {.run = run, .at = x->pos[run], .best = -1e-9, .to = x->pos[run]};
    uint32_t first = m.at < REACH ? 0 : m.at - REACH;
    uint32_t last = p->nrun - 1 - m.at < REACH ? p->nrun - 1 : m.at + REACH;
    EACH(x->pre.before, run, q) if (x->pos[q] >= first) first = x->pos[q] + 1;
    EACH(x->pre.after, run, q) if (x->pos[q] <= last) last = x->pos[q] - 1;
    m.n = operands(p, run, m.operand);
    if (first == last || m.n > OPERANDS) return false;
    for (uint32_t i = 0; i < m.n; i++) m.other[i] = last_use(x, m.operand[i], run);
    EACH(p->out, run, t)
    if (t != NO_ID && t < p->nstorage && x->end[t] > m.at) m.kept += (int64_t)p->bytes[t];
    m.old = burden(x, bytes_at(x, m.at));
    try_later(x, &m, last);
    try_earlier(x, &m, first);
    if (m.to == m.at) return false;
    carry_out(x, &m);
    return true;
}

Order order_search(Arena *a, const Problem *p, uint64_t capacity) {
    Line *x = line_new(a, p, capacity);
    uint64_t most = WORK + WORK_RUN * p->nrun;
    settle(x);
    bool any = true;
    for (uint32_t pass = 0; any && pass < PASSES; pass++) {
        any = false;
        for (uint32_t k = 0; k < p->nrun && x->work < most; k++)
            any |= move(x, pass & 1 ? p->nrun - 1 - k : k);
    }
    return order_of(a, x);
}

/* ---- list scheduling ---- */

/* What goes less what comes when r runs next. left: per storage, readers to come. */
static int64_t gain_of(const Problem *p, uint32_t r, const uint32_t *left) {
    StorageId s[OPERANDS + 1];
    uint32_t n = operands(p, r, s);
    int64_t gain = 0;
    for (uint32_t i = 0; i < n && i < OPERANDS; i++)
        if (left[s[i]] == 1 && !p->is_output[s[i]]) gain += (int64_t)p->bytes[s[i]];
    EACH(p->out, r, t)
    if (t != NO_ID && t < p->nstorage && (left[t] || p->is_output[t])) gain -= (int64_t)p->bytes[t];
    return gain;
}

Order order_list(Arena *a, const Problem *p, uint64_t capacity) {
    Line *x = line_new(a, p, capacity);
    uint32_t *wait = ARENA_ARRAY(a, uint32_t, p->nrun), *ready = ARENA_ARRAY(a, uint32_t, p->nrun);
    uint32_t *left = ARENA_ARRAY(a, uint32_t, p->nstorage), n = 0, at = 0;
    for (StorageId s = 0; s < p->nstorage; s++) left[s] = list_len(&p->users, s);
    for (uint32_t r = 0; r < p->nrun; r++)
        if (!(wait[r] = list_len(&x->pre.before, r))) ready[n++] = r;
    while (n) {
        uint32_t best = 0;
        int64_t most = INT64_MIN;
        for (uint32_t i = n > READY ? n - READY : 0; i < n; i++) {
            int64_t gain = gain_of(p, ready[i], left);
            if (gain < most || (gain == most && ready[i] > ready[best])) continue;
            most = gain;
            best = i;
        }
        uint32_t r = ready[best];
        ready[best] = ready[--n];
        x->seq[at++] = r;
        EACH(p->in, r, t) {
            StorageId s = p->storage[t];
            bool seen = !moves(p, s);
            for (uint32_t i = p->in.first[r]; i < t_i && !seen; i++)
                seen = p->storage[p->in.at[i]] == s;
            if (!seen) left[s]--;
        }
        EACH(x->pre.after, r, q) if (!--wait[q]) ready[n++] = q;
    }
    settle(x);
    return order_of(a, x);
}

/* ---- whether it pays ---- */

NodeId *order_find(Arena *a, const Problem *p, uint64_t capacity) {
    Arena *t = arena_new();
    CutBound base, any;
    cut_bound_any_order(t, p, capacity, &any);
    cut_bound(t, p, capacity, &base);
    double least = least_time * (double)p->base_ns, best = base.value;
    if (least < least_part * base.value) least = least_part * base.value;
    NodeId *found = NULL;
    bool may_pay = any.feasible && (!base.feasible || any.value <= base.value - least);
    const Problem *list = NULL;
    for (int k = 0; k < 3 && may_pay; k++) {
        Order o = k == 1 ? order_list(t, p, capacity) : order_search(t, k ? list : p, capacity);
        const Problem *q = problem_new(t, p->g, p->c, o.node, p->align == 1);
        if (k == 1) list = q;
        CutBound b;
        cut_bound(t, q, capacity, &b);
        bool pays = found || !base.feasible ? b.value < best || !found : b.value <= best - least;
        if (!b.feasible || !pays) continue;
        best = b.value;
        if (!found) found = ARENA_ARRAY(a, NodeId, p->g->nnode);
        memcpy(found, o.node, p->g->nnode * sizeof *found);
    }
    arena_free(t);
    return found;
}
