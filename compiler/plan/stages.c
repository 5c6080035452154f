/* stages.c - memory rows at a few points of the base order (stages.h).
 *
 * First runs stand in the base order; effects stand at their place or later. Points are first runs
 * t_1 < ... < t_k of what is no effect. Segment j is the time after the first run of t_j, up to and
 * with that of t_(j+1), for j = k to the end. Whatever a schedule does, let
 *   P[j,s]  storage s, made before t_j, is there while t_j runs for the first time;
 *   A[j,s]  and stays when t_j has run: P[j,s], except for operands, see (2);
 *   R[j,r]  run r, at or before t_j, runs again in segment j;
 *   Q[j,r]  it runs again some time after t_j: Q[j,r] <= sum over q >= j of R[q,r];
 *   D[j,t]  view t with a cost ran in the copy of its storage that is there after t_j.
 * The extra time is at least the sum of ns_r R[j,r], and these hold:
 *
 * (1) operands of t_j: P[j,s] = 1.
 * (2) memory at the point: working set of t_j + sum over other s of bytes_s P[j,s] <= capacity. An
 *     operand stays for nothing, A[j,s] = 1, since its bytes count at the point anyway; unless its
 *     bytes may be taken over by the result. Then the row has bytes less by I, where
 *     I <= sum over such operands of (1 - A[j,s]).
 * (3) continuity: P[j,s] <= A[j-1,s] + R[j-1, maker of s];
 *     D[j,t] <= A[j,s] and D[j,t] <= D[j-1,t] + R[j-1, run of t].
 * (4) closure in a segment: for each s made before t_j and read by a first run of the segment:
 *     A[j,s] + R[j, maker] >= 1; and read by r: A[j,s] + R[j, maker] >= R[j,r]. For views that are
 *     read the same with D, and with the storage that they lie in.
 * (5) the same closure with Q in place of R, to the end of the step.
 *
 * So the least solution is a lower bound for every schedule; with all runs as points and rows
 * inside stages it would be Checkmate's program (Jain et al., MLSys 2020). What weakens it, never
 * the other way: memory between the points; reruns before the first point and reruns of what the
 * same segment made cost nothing; what an effect made, as long as the effect may be waiting, takes
 * no bytes; an update freezes nobody, since it may wait. The idea to write rows at few points and
 * to add points where the decoded schedule goes over the capacity is ours.
 *
 * Columns that cannot matter are left out: P and R of what nobody can read later, R of runs that
 * cost more than the best known schedule spends (`most`). Q is written for points before the last
 * one only, and is R when just one R is in its sum. */
#include "stages.h"

#include <math.h>
#include <string.h>

typedef struct {
    Arena *a;
    Stages *s;
    const Problem *p;
    uint32_t *last;  /* per tensor: last first run that reads it; nrun for outputs; 0: nobody */
    uint32_t *reach; /* the same, reruns of readers included */
    bool *rerun;     /* per run: may run again */
    bool *need;      /* per tensor: read in the segment that is being written */
    bool *operand;   /* per storage, of the current point */
    uint32_t *whole; /* per run: Q[j,r] of the current point */
} Writer;

static uint32_t *cell(uint32_t *table, uint32_t j, uint32_t width, uint32_t i) {
    return &table[(size_t)j * width + i];
}

static uint32_t *held(Writer *w, uint32_t j, StorageId x) {
    return cell(w->s->held, j, w->p->nstorage, x);
}

static uint32_t *after(Writer *w, uint32_t j, StorageId x) {
    return cell(w->s->after, j, w->p->nstorage, x);
}

static uint32_t *again(Writer *w, uint32_t j, uint32_t r) {
    return cell(w->s->again, j, w->p->nrun, r);
}

static uint32_t *view(Writer *w, uint32_t j, uint32_t t) {
    return cell(w->s->view, j, w->p->ntensor - w->p->nstorage, t - w->p->nstorage);
}

static bool is_made(const Problem *p, StorageId x) {
    return p->is_temp[x] && p->def[x] != NO_ID;
}

/* ---- who can be read when ---- */

static void raise_to(uint32_t *at, uint32_t to) {
    if (to > *at) *at = to;
}

static uint32_t reach_of_run(const Writer *w, uint32_t r) {
    uint32_t most = 0;
    EACH(w->p->out, r, t) if (t != NO_ID && w->reach[t] > most) most = w->reach[t];
    return most;
}

/* Readers come after makers, so one pass from the end sees each tensor's readers before its maker.
 */
static void fill_reach(Writer *w) {
    const Problem *p = w->p;
    for (uint32_t r = 0; r < p->nrun; r++) {
        w->rerun[r] = !p->effect[r] && (double)p->ns[r] <= w->s->most;
        EACH(p->in, r, t) w->last[t] = r;
    }
    for (uint32_t i = 0; i < p->noutput; i++) w->last[p->output[i]] = p->nrun;
    memcpy(w->reach, w->last, p->ntensor * sizeof *w->reach);
    for (uint32_t t = p->nstorage; t < p->ntensor; t++)
        raise_to(&w->reach[p->storage[t]], w->last[t]);
    for (uint32_t r = p->nrun; r-- > 0;) {
        uint32_t to = w->rerun[r] ? reach_of_run(w, r) : 0;
        EACH(p->in, r, t) {
            raise_to(&w->reach[t], to);
            raise_to(&w->reach[p->storage[t]], to);
        }
    }
}

/* An effect's result takes no bytes while the effect may be waiting: until a first run at the point
 * or before, which is no effect, has read it. */
static bool is_waiting(const Problem *p, StorageId x, uint32_t point) {
    if (!p->effect[p->def[x]]) return false;
    EACH(p->users, x, u) if (u <= point && !p->effect[u]) return false;
    return true;
}

/* ---- columns ---- */

static bool is_taken_over(const Problem *p, uint32_t run, StorageId x) {
    EACH(p->inplace, run, y) if (x == y) return true;
    return false;
}

static void add_held(Writer *w, uint32_t j, StorageId x) {
    const Problem *p = w->p;
    uint32_t point = w->s->point[j], *h = held(w, j, x), *a = after(w, j, x);
    *h = *a = MIP_ZERO;
    if (!is_made(p, x) || p->def[x] > point) return;
    bool later = w->reach[x] > point;
    if (p->def[x] == point || !p->bytes[x] || is_waiting(p, x, point)) {
        *h = p->def[x] == point ? MIP_ZERO : MIP_ONE;
        *a = MIP_ONE;
    } else if (w->operand[x]) {
        *h = MIP_ONE;
        *a = !later                       ? MIP_ZERO
             : is_taken_over(p, point, x) ? mip_column(w->s->mip, 0, 1, true, (MipName){'A', j, x})
                                          : MIP_ONE;
    } else if (later) {
        *h = *a = mip_column(w->s->mip, 0, 1, true, (MipName){'P', j, x});
    }
}

static void add_view(Writer *w, uint32_t j, uint32_t t) {
    const Problem *p = w->p;
    uint32_t point = w->s->point[j], x = p->storage[t], *d = view(w, j, t);
    *d = MIP_ZERO;
    if (p->def[t] == NO_ID || p->def[t] > point || w->reach[t] <= point) return;
    bool read = p->def[t] == point;
    EACH(p->in, point, u) read |= u == t;
    if (!p->is_temp[x])
        *d = MIP_ONE; /* its storage never goes */
    else if (read)
        *d = *after(w, j, x);
    else
        *d = mip_column(w->s->mip, 0, 1, false, (MipName){'D', j, t});
}

static void add_again(Writer *w, uint32_t j, uint32_t r) {
    uint32_t point = w->s->point[j], *c = again(w, j, r);
    *c = MIP_ZERO;
    if (r > point || !w->rerun[r] || reach_of_run(w, r) <= point) return;
    *c = mip_column(w->s->mip, (double)w->p->ns[r] / w->s->unit, 1, true, (MipName){'R', j, r});
}

static void add_columns(Writer *w) {
    const Problem *p = w->p;
    for (uint32_t j = 0; j < w->s->npoint; j++) {
        uint32_t point = w->s->point[j];
        EACH(p->in, point, t) w->operand[p->storage[t]] = true;
        for (StorageId x = 0; x < p->nstorage; x++) add_held(w, j, x);
        for (uint32_t t = p->nstorage; t < p->ntensor; t++) add_view(w, j, t);
        for (uint32_t r = 0; r < p->nrun; r++) add_again(w, j, r);
        EACH(p->in, point, t) w->operand[p->storage[t]] = false;
    }
}

/* Q[j,r], and the row that defines it. */
static uint32_t add_whole(Writer *w, uint32_t j, uint32_t r) {
    Mip *m = w->s->mip;
    uint32_t n = 0, only = MIP_ZERO;
    for (uint32_t q = j; q < w->s->npoint; q++)
        if (*again(w, q, r) != MIP_ZERO && r <= w->s->point[j]) only = *again(w, q, r), n++;
    if (n < 2) return only;
    uint32_t c = mip_column(m, 0, 1, true, (MipName){'Q', j, r});
    mip_add(m, c, 1);
    for (uint32_t q = j; q < w->s->npoint; q++) mip_add(m, *again(w, q, r), -1);
    mip_row(m, MIP_MOST, 0, 5);
    return c;
}

/* ---- rows ---- */

static void add_memory(Writer *w, uint32_t j) {
    const Problem *p = w->p;
    Mip *m = w->s->mip;
    uint32_t point = w->s->point[j];
    double room = (double)w->s->capacity - (double)p->workspace[point];
    EACH(p->out, point, t)
    if (t != NO_ID && t < p->nstorage && p->is_temp[t]) room -= (double)p->bytes[t];
    bool saved = false, may_save = false;
    EACH(p->inplace, point, x) {
        saved |= *after(w, j, x) == MIP_ZERO;
        may_save |= *after(w, j, x) != MIP_ONE;
    }
    uint64_t over = may_save ? p->bytes[p->inplace.at[p->inplace.first[point]]] : 0;
    if (saved) room += (double)over;
    uint32_t unsaved = MIP_ZERO; /* 1 - I */
    if (may_save && !saved) {
        unsaved = mip_column(m, 0, 1, false, (MipName){'I', j, point});
        uint32_t n = list_len(&p->inplace, point);
        mip_add(m, unsaved, 1);
        EACH(p->inplace, point, x) mip_add(m, *after(w, j, x), -1);
        mip_row(m, MIP_LEAST, 1 - (double)n, 2);
        room += (double)over;
        mip_add(m, unsaved, (double)over);
    }
    for (StorageId x = 0; x < p->nstorage; x++)
        if (*held(w, j, x) != MIP_ZERO && p->bytes[x] && !is_waiting(p, x, point))
            mip_add(m, *held(w, j, x), (double)p->bytes[x]);
    w->s->room[j] = room;
    mip_knapsack(m, room, 2);
}

/* there + made >= at_least, where at_least is a column or MIP_ONE. */
static void add_cover(Mip *m, uint32_t there, uint32_t made, uint32_t at_least, int equation) {
    mip_add(m, there, 1);
    mip_add(m, made, 1);
    mip_add(m, at_least, -1);
    mip_row(m, MIP_LEAST, 0, equation);
}

static void add_continuity(Writer *w, uint32_t j) {
    const Problem *p = w->p;
    Mip *m = w->s->mip;
    for (StorageId x = 0; x < p->nstorage && j; x++)
        if (*held(w, j, x) != MIP_ZERO && p->bytes[x] && p->def[x] < w->s->point[j - 1] &&
            !is_waiting(p, x, w->s->point[j]))
            add_cover(m, *after(w, j - 1, x), *again(w, j - 1, p->def[x]), *held(w, j, x), 3);
    for (uint32_t t = p->nstorage; t < p->ntensor; t++) {
        if (*view(w, j, t) == MIP_ZERO || !p->is_temp[p->storage[t]]) continue;
        add_cover(m, *after(w, j, p->storage[t]), MIP_ZERO, *view(w, j, t), 3);
        if (j && p->def[t] <= w->s->point[j - 1])
            add_cover(m, *view(w, j - 1, t), *again(w, j - 1, p->def[t]), *view(w, j, t), 3);
    }
}

/* Tensor t, made before point j, is read after it if `reader` says so. */
static void add_read(Writer *w, uint32_t j, uint32_t t, const uint32_t *made, uint32_t reader,
                     int equation) {
    const Problem *p = w->p;
    uint32_t point = w->s->point[j];
    StorageId x = p->storage[t];
    if (t >= p->nstorage && p->def[t] <= point)
        add_cover(w->s->mip, *view(w, j, t), made[p->def[t]], reader, equation);
    if (is_made(p, x) && p->def[x] < point)
        add_cover(w->s->mip, *after(w, j, x), made[p->def[x]], reader, equation);
}

/* (4) and (5): made[] is R[j,.] or Q[j,.]; the segment ends with run `end`. What an effect reads
 * is read before the end of the step, not for sure before the end of a segment. */
static void add_closure(Writer *w, uint32_t j, const uint32_t *made, uint32_t end, int equation) {
    const Problem *p = w->p;
    uint32_t point = w->s->point[j];
    memset(w->need, 0, p->ntensor * sizeof *w->need);
    for (uint32_t r = point + 1; r <= end && r < p->nrun; r++)
        if (!p->effect[r] || end == p->nrun) EACH(p->in, r, t) w->need[t] = true;
    for (uint32_t i = 0; i < p->noutput && end == p->nrun; i++) w->need[p->output[i]] = true;
    for (uint32_t t = 0; t < p->ntensor; t++)
        if (w->need[t] && p->def[t] != NO_ID && p->def[t] <= point)
            add_read(w, j, t, made, MIP_ONE, equation);
    for (uint32_t r = 0; r <= point; r++)
        if (made[r] != MIP_ZERO) EACH(p->in, r, t) add_read(w, j, t, made, made[r], equation);
}

static void add_rows(Writer *w) {
    const Stages *s = w->s;
    for (uint32_t j = 0; j < s->npoint; j++) {
        bool last = j + 1 == s->npoint;
        add_memory(w, j);
        add_continuity(w, j);
        add_closure(w, j, again(w, j, 0), last ? w->p->nrun : s->point[j + 1], 4);
        if (last) break;
        for (uint32_t r = 0; r < w->p->nrun; r++) w->whole[r] = add_whole(w, j, r);
        add_closure(w, j, w->whole, w->p->nrun, 5);
    }
}

Stages *stages_new(Arena *a, const Problem *p, uint64_t capacity, const uint32_t *point,
                   uint32_t npoint, double most) {
    Stages *s = ARENA_NEW(a, Stages);
    double base = p->base_ns ? (double)p->base_ns : 1;
    *s = (Stages){p, capacity, point, npoint, most, base / MIP_UNITS, mip_new(a), 0, 0, 0, 0, 0};
    s->held = ARENA_ARRAY(a, uint32_t, (uint64_t)npoint * p->nstorage);
    s->after = ARENA_ARRAY(a, uint32_t, (uint64_t)npoint * p->nstorage);
    s->again = ARENA_ARRAY(a, uint32_t, (uint64_t)npoint * p->nrun);
    s->view = ARENA_ARRAY(a, uint32_t, (uint64_t)npoint * (p->ntensor - p->nstorage) + 1);
    s->room = ARENA_ARRAY(a, double, npoint);
    Arena *t = arena_new();
    Writer w = {t, s, p, 0, 0, 0, 0, 0, 0};
    w.last = ARENA_ARRAY(t, uint32_t, p->ntensor);
    w.reach = ARENA_ARRAY(t, uint32_t, p->ntensor);
    w.rerun = ARENA_ARRAY(t, bool, p->nrun);
    w.need = ARENA_ARRAY(t, bool, p->ntensor);
    w.operand = ARENA_ARRAY(t, bool, p->nstorage);
    w.whole = ARENA_ARRAY(t, uint32_t, p->nrun);
    fill_reach(&w);
    add_columns(&w);
    add_rows(&w);
    arena_free(t);
    return s;
}

uint64_t stages_used(const Stages *s, const double *value, uint32_t j) {
    const Problem *p = s->p;
    double bytes = (double)s->capacity - s->room[j];
    for (StorageId x = 0; x < p->nstorage; x++) {
        uint32_t c = s->held[(size_t)j * p->nstorage + x];
        if (c == MIP_ZERO || is_waiting(p, x, s->point[j])) continue;
        bytes += (double)p->bytes[x] * (c == MIP_ONE ? 1 : value[c]);
    }
    return (uint64_t)bytes;
}
